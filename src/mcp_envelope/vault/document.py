"""A stored payload to walk in: values found by their path, and as much of each as there is room for.

Strategy: a small value is loaded and parsed. A large one is a span of the index, and only the chunks that are asked
for are read. Children come unparsed, and large ones not even loaded, so that
walking over many costs only those that are looked at. A path goes on through a string that holds JSON, as it does
in the cuts. What JSON itself cannot open (thousands of levels, a number of a megabyte) is shown as the text that
it is.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, Literal, NamedTuple, cast

import msgspec

from ..fit.text import characters
from ..jsontext.document import OPEN_STRING, Buffer, Far, Member, Node, TooDeep, abridged, parse
from ..jsontext.errors import WHITESPACE, JSONError, replace_lone_surrogates
from .layout import CHUNK, Checkpoints, Index, InMemory, Source, Span, character_start, unpacked
from .store import Damaged

ValueKind = Literal["object", "array", "string", "number", "boolean", "null", "text"]

# A longer number is shown as text; no reader would take it for a number anyway.
_LONG_NUMBER: Final = 1 << 7
# How many members of an object are looked at even if there is no room for them, since they share the room.
_SHARING: Final = 256
_KEYS_LISTED: Final = 8
_STREAMED: Final = 1 << 20
# Bytes of the widest character.
_WIDEST: Final = 4
# Python does not read longer integers.
_LONG_INTEGER: Final = 4000
_NOTHING: Final = InMemory(b"")


class BadPath(Exception):
    """There is nothing at the path. `found` is how far it leads, `there` what could follow."""

    def __init__(self, path: str, found: str, there: str) -> None:
        super().__init__(f"there is nothing at {path!r}: {there}")
        self.path = path
        self.found = found
        self.there = there


class Child(msgspec.Struct, frozen=True, gc=False):
    """A child of a list or an object. Of a `large` one, which is not loaded, `raw` has a size only."""

    ordinal: int
    raw: Buffer
    member: Member | None = None
    large: StoredValue | None = None

    @property
    def step(self) -> str:
        """The last step of the child's path."""
        return str(self.ordinal) if self.member is None else escaped_step(self.member.key)

    def loaded(self, room: int) -> Child:
        """The same, loaded if it is not larger than the room."""
        if self.large is None or self.large.size > room:
            return self
        raw = self.large.raw()
        member = None if self.member is None else Member(self.member.key, self.member.raw_key, raw)
        return Child(self.ordinal, raw, member)


class Chunk(NamedTuple):
    """Some small children of the list or object at `path`, as a list or object of their own."""

    path: str
    first: int
    raw: bytes


def escaped_step(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def unescaped(escaped: bytes) -> str:
    """What the inside of a JSON string says."""
    if b"\\" not in escaped:
        return escaped.decode()
    quoted = b'"%b"' % escaped
    try:
        return OPEN_STRING.decode(quoted)
    except ValueError:
        return OPEN_STRING.decode(replace_lone_surrogates(quoted)[0])


def decode_json(decoder: msgspec.json.Decoder[Any], raw: bytes, number: Callable[[str], Any]) -> Any:
    """Decode JSON, also with half a surrogate pair or an integer of thousands of digits in it."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError:

        def integer(text: str) -> Any:
            return int(text) if len(text) < _LONG_INTEGER else number(text)

        return json.loads(replace_lone_surrogates(raw)[0], parse_float=number, parse_int=integer)
    except msgspec.DecodeError:
        repaired, count = replace_lone_surrogates(raw)
        if not count:
            raise
        return decode_json(decoder, repaired, number)


class StoredValue:
    """One value: either loaded (`node`, or `plain` if it is not JSON), or a span to be read when asked."""

    def __init__(
        self,
        path: str,
        *,
        node: Node | None = None,
        plain: bytes | None = None,
        span: Span | None = None,
        source: Source | None = None,
    ) -> None:
        self.path = path
        self._node = node
        self._plain = plain
        self._span = span
        self._source: Source = source or _NOTHING
        # As it is stored, with its whitespace.
        self._exact: bytes | None = None
        if span is not None:
            self.size = span.end - span.start
            self.kind: ValueKind = "text" if span.kind == "leaf" else span.kind
            self.total = span.total
        elif node is not None:
            self.size, self.kind = node.size, node.kind
            self.total = node.length() if node.kind == "string" else 1
            if node.kind in ("array", "object"):
                self.total = node.total()
        else:
            assert plain is not None
            self.size, self.kind, self.total = len(plain), "text", characters(plain)

    @classmethod
    def small(cls, path: str, raw: bytes) -> StoredValue:
        """A value that is loaded; what cannot be opened as JSON is text."""
        try:
            node = parse(raw)
            if node.kind in ("array", "object"):
                node.total()
            elif node.kind == "number" and node.size > _LONG_NUMBER:
                return cls(path, plain=raw)
        except (TooDeep, JSONError):
            return cls(path, plain=raw.strip(WHITESPACE))
        value = cls(path, node=node)
        value._exact = raw
        return value

    @classmethod
    def large(cls, path: str, span: Span, source: Source) -> StoredValue:
        if span.kind == "leaf":
            return cls.small(path, source.read(span.start, span.end))
        return cls(path, span=span, source=source)

    # -- the way to a value ---------------------------------------------------------------------------------

    def opened(self) -> StoredValue:
        """The JSON that a string holds, in place of the string."""
        if self.kind != "string":
            return self
        if self._span is not None and self._span.embedded is not None:
            return StoredValue.large(self.path, self._span.embedded, _StringSource(self._source, self._span))
        if self._node is not None and (inner := self._node.inner()):
            try:
                inner.total()
            except TooDeep:
                return self
            return StoredValue(self.path, node=inner)
        return self

    def _verbatim(self) -> StoredValue:
        """The same, but with all the whitespace in a small value, which parsing takes away."""
        value = self if self._span is None else self.opened()
        if value._exact is None or value._node is None:
            return value
        raw = value._exact.strip(WHITESPACE)
        try:
            if value.kind == "string" and value.opened() is not value:
                raw = unescaped(raw[1:-1]).encode().strip(WHITESPACE)
            return StoredValue(self.path, node=Node(raw))
        except (TooDeep, msgspec.DecodeError):
            # Half a surrogate pair in a key, which parsing replaces.
            return value.opened()

    def find(self, path: str, *, opened: bool = True) -> StoredValue:
        """Return the value that a JSON pointer leads to; the JSON in a string counts as what the string is.

        If it is not to be `opened` it is the value as it is stored: a string is a string, and has its whitespace.
        """
        if path and not path.startswith("/"):
            steps = path.removeprefix("$").replace("[", "/").replace("]", "").replace(".", "/").strip("/")
            raise BadPath(path, "", f"a path is a JSON pointer and begins with a slash, such as /{steps}")
        value = self
        for step in path.split("/")[1:]:
            value = value.opened() if opened else value._verbatim()
            child = value.child(step.replace("~1", "/").replace("~0", "~"))
            if child is None:
                raise BadPath(path, value.path, value._what_is_there())
            value = child
        return value.opened() if opened else value

    def child(self, step: str) -> StoredValue | None:
        if self.kind == "object":
            return self.member(step)
        if self.kind != "array" or not (step.isascii() and step.isdigit()) or len(step) > 15:
            return None
        return self.item(int(step))

    def item(self, index: int) -> StoredValue | None:
        found = next(self.children(index), None) if self.kind == "array" and 0 <= index < self.total else None
        return None if found is None else self.value_of(found)

    def member(self, key: str) -> StoredValue | None:
        """The value of the member with that key, as it is stored."""
        found = self._member(key) if self.kind == "object" else None
        return None if found is None else self.value_of(found)

    def _member(self, key: str) -> Child | None:
        span = self._span
        if span is None:
            found = [child for child in self.children() if child.member and child.member.key == key]
            return found[-1] if found else None
        if key in span.keys:
            return next(self.children(span.keys[key]), None)
        for chunk in span.chunks_with(key, self._source.stored):
            for child in self._children_in(span, chunk):
                if child.member is not None and child.member.key == key:
                    return child
        return None

    def value_of(self, child: Child) -> StoredValue:
        return child.large or StoredValue.small(f"{self.path}/{child.step}", bytes(child.raw))

    def member_keys(self) -> Iterator[str]:
        for child in self.children():
            assert child.member is not None
            yield child.member.key

    def _what_is_there(self) -> str:
        where = self.path or "the top"
        if self.kind == "array":
            return f"there is a list of {self.total} items at {where}"
        if self.kind != "object":
            return f"there is a {self.kind} at {where}"
        keys = [key[:40] for key in islice(self.member_keys(), _KEYS_LISTED)]
        if self.total > _KEYS_LISTED:
            keys.append(f"… ({self.total} in all)")
        return f"the keys at {where} are {', '.join(keys)}" if keys else f"the object at {where} is empty"

    # -- what is in it --------------------------------------------------------------------------------------

    def children(self, first: int = 0) -> Iterator[Child]:
        """The children of a list or an object, from one of them on."""
        span = self._span
        if span is None:
            assert self._node is not None
            yield from children_of(self._node, 0, first)
            return
        ordinals = unpacked(span.ordinals)
        for chunk in range(max(bisect_right(ordinals, first) - 1, 0), len(ordinals)):
            yield from islice(self._children_in(span, chunk), max(first - ordinals[chunk], 0), None)

    def chunks(self, first: int = 0) -> Iterator[Chunk | StoredValue]:
        """The same in larger parts: large children, and runs of small ones."""
        span = self._span
        if span is None:
            raw = joined(self.kind, self.children(first)) if first else self.raw()
            yield Chunk(self.path, first, raw)
            return
        ordinals = unpacked(span.ordinals)
        for chunk in range(max(bisect_right(ordinals, first) - 1, 0), len(ordinals)):
            children = self._children_in(span, chunk)
            if span.is_large(chunk):
                yield from map(self.value_of, children)
            elif ordinals[chunk] < first:
                rest = islice(children, first - ordinals[chunk], None)
                yield Chunk(self.path, first, joined(span.kind, rest))
            else:
                yield Chunk(self.path, ordinals[chunk], self._chunk(span, chunk))

    def walk(self) -> Iterator[Chunk | StoredValue]:
        """Everything, in order: runs of small children, and each string or text that is large."""
        if self.kind not in ("array", "object"):
            yield self
            return
        for part in self.chunks():
            if isinstance(part, Chunk):
                yield part
            else:
                yield from part.opened().walk()

    def _children_in(self, span: Span, chunk: int) -> Iterator[Child]:
        ordinal = unpacked(span.ordinals)[chunk]
        child = span.child(chunk, self._source.stored)
        if child is None:
            try:
                yield from children_of(Node(self._chunk(span, chunk)), ordinal)
            except msgspec.DecodeError as error:
                raise Damaged(f"the stored payload is not what was written: {error}") from None
            return
        raw = cast(Buffer, Far(child.end - child.start))
        member: Member | None = None
        if span.kind == "object":
            before = self._source.read(unpacked(span.starts)[chunk], child.start).rstrip(WHITESPACE)
            raw_key = before.removesuffix(b":").rstrip(WHITESPACE)
            member = Member(unescaped(raw_key[1:-1]), raw_key, raw)
        step = Child(ordinal, raw, member).step
        yield Child(ordinal, raw, member, StoredValue.large(f"{self.path}/{step}", child, self._source))

    def _chunk(self, span: Span, chunk: int) -> bytes:
        """A chunk of small children as a list or object of its own."""
        starts = unpacked(span.starts)
        stop = starts[chunk + 1] if chunk + 1 < len(starts) else span.end - 1
        inside = self._source.read(starts[chunk], stop).rstrip(WHITESPACE).removesuffix(b",")
        return b"[%b]" % inside if span.kind == "array" else b"{%b}" % inside

    def raw(self) -> bytes:
        """The value's exact bytes; all of them."""
        return b"".join(self.stream())

    def stream(self) -> Iterator[bytes]:
        """The same, a part at a time."""
        if self._span is None:
            yield self._exact or (bytes(self._node.raw) if self._node is not None else self._plain or b"")
            return
        for at in range(self._span.start, self._span.end, _STREAMED):
            yield self._source.read(at, min(at + _STREAMED, self._span.end))

    def as_text(self) -> StoredValue | ExactText:
        """The value as text: a string's own characters, and of anything else the exact bytes."""
        if self.kind in ("string", "text"):
            return self
        if self._span is None:
            return ExactText.of(self.path, self.raw())
        return ExactText(self.path, self._source, self._span.start, self._span.end)

    def node(self, room: int) -> Node:
        """The value for a fitter that has at most `room` bytes for it."""
        span = self._span
        if span is None:
            # What cannot be opened can be kept or left out.
            return Node(self._plain or b"null") if self._node is None else self._node
        if span.kind == "string":
            head = self._source.read(span.start, min(span.start + room + CHUNK, span.end))
            held = self.opened()
            inner = None if held is self or held.kind == "text" else held.node(room)
            return abridged(head, self.size, self.total, inner=inner)
        children: list[Child] = []
        covered = 0
        for found in self.children():
            child = found.loaded(room)
            children.append(child)
            covered += len(child.raw)
            if covered > room and (span.kind == "array" or len(children) >= _SHARING):
                break
        nodes = {child.ordinal: child.large.node(room) for child in children if child.large is not None}
        if span.kind == "array":
            items = [child.raw for child in children]
            return abridged(b"[]", self.size, self.total, items=items, children=nodes)
        members = [child.member for child in children if child.member is not None]
        return abridged(b"{}", self.size, self.total, members=members, children=nodes)

    def text(self, offset: int, room: int) -> str:
        """What a string or a text says from a character on: more than `room` bytes of it, or all there is."""
        span = self._span
        if span is None:
            said = self._plain.decode() if self._plain is not None else cast(Node, self._node).text()
            # A character has a byte at least.
            return said[offset : offset + room + 1]
        starts, ordinals = unpacked(span.starts), unpacked(span.ordinals)
        chunk = max(bisect_right(ordinals, offset) - 1, 0)
        skipped = offset - ordinals[chunk]
        parts: list[str] = []
        covered = 0
        while chunk < len(starts) and covered <= room:
            closing = span.end - (span.kind == "string")
            stop = starts[chunk + 1] if chunk + 1 < len(starts) else closing
            data = self._source.read(starts[chunk], stop)
            part = (data.decode() if span.kind == "text" else unescaped(data))[skipped:]
            parts.append(part)
            covered += len(part.encode())
            skipped, chunk = 0, chunk + 1
        return "".join(parts)


def root_of(source: Source, size: int, index: Index) -> StoredValue:
    """The whole payload as a value."""
    if index.root is not None:
        return StoredValue.large("", index.root, source)
    data = source.read(0, size)
    return StoredValue("", plain=data) if index.text else StoredValue.small("", data)


def text_parts(value: StoredValue | ExactText, at: int = 0, size: int = _STREAMED) -> Iterator[str]:
    """What a string or a text says from a character on, in parts of about so many bytes."""
    # What has no index is decoded whole for every part, so there are not many parts.
    room = max(size, value.size // 16)
    while at < value.total and (part := value.text(at, room)):
        yield part
        at += len(part)


def children_of(node: Node, ordinal: int, first: int = 0) -> Iterator[Child]:
    """The children of a loaded node from the `first` on; the very first of them has that ordinal."""
    if node.kind == "object":
        for index, member in enumerate(node.members()[first:], ordinal + first):
            yield Child(index, member.value, member)
    else:
        for index, item in enumerate(node.all_items()[first:], ordinal + first):
            yield Child(index, item)


def joined(kind: str, children: Iterable[Child]) -> bytes:
    """Some children as a list or object of their own."""
    if kind == "array":
        return b"[%b]" % b",".join([bytes(child.raw) for child in children])
    members = [child.member for child in children if child.member is not None]
    return b"{%b}" % b",".join([b"%b:%b" % (member.raw_key, member.value) for member in members])


class _StringSource(Source):
    """The text of a long string, as its UTF-8 bytes: so JSON inside a string is read like any other."""

    def __init__(self, source: Source, span: Span) -> None:
        self._source = source
        self._starts = unpacked(span.starts)
        self._text_starts = unpacked(span.text_starts)
        self._end = span.end - 1
        self.checkpoints = Checkpoints(unpacked(span.ordinals), self._text_starts)

    @property
    def stored(self) -> Source:
        return self._source.stored

    def read(self, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        first = bisect_right(self._text_starts, start) - 1
        last = max(bisect_right(self._text_starts, end - 1) - 1, first)
        stop = self._starts[last + 1] if last + 1 < len(self._starts) else self._end
        text = unescaped(self._source.read(self._starts[first], stop)).encode()
        return text[start - self._text_starts[first] : end - self._text_starts[first]]


class ExactText:
    """What is between two bytes of a source, as text, with every blank and every escape.

    It is asked for its text as a string would be. Characters are counted from the nearest checkpoint, so a page
    costs the page.
    """

    kind: Final = "text"

    def __init__(self, path: str, source: Source, start: int, end: int) -> None:
        self.path = path
        self.size = end - start
        self._source = source
        self._end = end
        self._before = self._characters(start)
        self.total = self._characters(end) - self._before

    @classmethod
    def of(cls, path: str, raw: bytes) -> ExactText:
        return cls(path, InMemory(raw), 0, len(raw))

    def text(self, offset: int, room: int) -> str:
        """More than `room` bytes from a character on, or all there is."""
        start = self._byte(self._before + offset)
        stop = min(start + room + _WIDEST, self._end)
        data = self._source.read(start, stop)
        if stop < self._end:
            # The last character may not be here whole.
            data = data[: character_start(data, len(data) - 1)]
        return data.decode()

    def _characters(self, byte: int) -> int:
        """How many characters come before the byte."""
        if self._source.checkpoints is None:
            return byte
        ordinals, starts = self._source.checkpoints
        nearest = bisect_right(starts, byte) - 1
        return int(ordinals[nearest]) + characters(self._source.read(starts[nearest], byte))

    def _byte(self, character: int) -> int:
        """Where the character begins."""
        if self._source.checkpoints is None:
            return character
        ordinals, starts = self._source.checkpoints
        nearest = bisect_right(ordinals, character) - 1
        start = int(starts[nearest])
        stop = min(starts[nearest + 1], self._end) if nearest + 1 < len(starts) else self._end
        said = self._source.read(start, stop).decode()
        return start + len(said[: character - ordinals[nearest]].encode())
