"""JSON bytes seen lazily, one level at a time.

Strategy: `msgspec.Raw` gives the children of a container as slices of the original buffer, at about two
gigabytes a second and without building Python objects. Only containers that are really cut are opened, so
everything else keeps its exact bytes: `1.0`, `1e400`, escapes, key order. A long array of small items is
opened window by window, so its cost in memory is one window and not one object for each item.
Whatever msgspec cannot take (lone surrogates, ten thousand levels) goes to `faults`, which is slow and sure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Raw

from .faults import (
    STRING,
    WHITESPACE,
    JSONError,
    byte_in,
    check_utf8,
    compact_slowly,
    diagnose,
    mend_surrogates,
)
from .text import unescaped

_T = TypeVar("_T")
Buffer: TypeAlias = bytes | Raw
Kind: TypeAlias = Literal["object", "array", "string", "number", "boolean", "null"]

# Below this many levels a value is not opened any more: it is kept or dropped whole.
MAX_DEPTH: Final = 64

_KINDS: Final[dict[int, Kind]] = {
    ord("{"): "object",
    ord("["): "array",
    ord('"'): "string",
    ord("t"): "boolean",
    ord("f"): "boolean",
    ord("n"): "null",
    **dict.fromkeys(b"-0123456789", "number"),
}
OPEN_OBJECT: Final = msgspec.json.Decoder(dict[str, Raw])
OPEN_ARRAY: Final = msgspec.json.Decoder(list[Raw])
_OPEN_SCALAR: Final = msgspec.json.Decoder(Raw)
OPEN_STRING: Final = msgspec.json.Decoder(str)
encode: Final = msgspec.json.Encoder().encode

# An array larger than this is opened in windows, if its items are small.
LARGE: Final = 1 << 22
_WINDOW: Final = 1 << 18
_SMALL_ITEM: Final = 128
_BOUNDARY_TRIES: Final = 16
# What stands between two items that begin so, and the same with space in it.
_SEAMS: Final = {b"{": b"},{", b"[": b"],[", b'"': b'","'}
_SPACED_SEAMS: Final = {
    seam[-1:]: re.compile(
        re.escape(seam[:1]) + rb"[ \t\r\n]*+(,)(?=[ \t\r\n]*+" + re.escape(seam[-1:]) + rb")"
    )
    for seam in _SEAMS.values()
}

# What a string that holds JSON begins with: space, escaped or not, and a bracket.
OPENS_JSON: Final = re.compile(rb"(?:[ ]|\\[nrt]|\\u00(?:20|0[9aAdD]))*+[\[{]")
_LOOK: Final = 1 << 12
# A key as it is spelled, and the colon after it.
_KEY: Final = re.compile(rb"[ \t\r\n]*(" + STRING + rb")[ \t\r\n]*:[ \t\r\n]*")


class TooDeep(ValueError):
    """Valid JSON, nested deeper than can be opened. It can be kept or dropped, not cut."""


def kind_of(raw: Buffer) -> Kind:
    return _KINDS[memoryview(raw)[0]]


class Node:
    """One JSON value and, once they are asked for, its children."""

    __slots__ = ("_children", "_inner", "_items", "_length", "_members", "_raw", "_total", "kind", "size")

    def __init__(self, raw: Buffer) -> None:
        self._raw: Buffer | None = raw
        self.size = len(raw)
        self.kind: Kind = _KINDS[memoryview(raw)[0]]
        self._members: list[Member] | None = None
        self._items: list[Buffer] | None = None
        self._total = -1
        self._length = -1
        self._children: dict[int, Node] = {}
        self._inner: Node | Literal[False] | None = None

    @property
    def raw(self) -> Buffer:
        """The value's exact bytes."""
        if self._raw is None:
            self._raw = b"{%b}" % b",".join(
                [b"%b:%b" % (member.raw_key, member.value) for member in self.members()]
            )
        return self._raw

    def forget(self) -> None:
        """Let go of the children that were opened, and of what their strings hold. Who asks opens them again."""
        self._children.clear()

    def members(self) -> list[Member]:
        """Key, exact bytes of the key, exact bytes of the value. The last of equal keys counts."""
        if self._members is None:
            self._members = _exact_keys(self.raw, _open(OPEN_OBJECT, self.raw))
        return self._members

    def items(self, room: int) -> list[Buffer]:
        """The first items, at least as many as `room` bytes can hold."""
        self._open_array(room)
        assert self._items is not None
        return self._items

    def all_items(self) -> list[Buffer]:
        if self._items is None or len(self._items) < self._total:
            self._items = [*_open(OPEN_ARRAY, self.raw)]
            self._total = len(self._items)
        return self._items

    def total(self) -> int:
        """How many items an array or members an object has."""
        if self._total < 0 and self.kind == "object":
            self._total = len(self.members())
        elif self._total < 0:
            self._open_array(_WINDOW)
        return self._total

    def child(self, index: int) -> Node:
        node = self._children.get(index)
        if node is None:
            if self.kind == "object":
                node = Node(self.members()[index].value)
            else:
                assert self._items is not None
                node = Node(self._items[index])
            self._children[index] = node
        return node

    def text(self) -> str:
        """What a string node says."""
        return OPEN_STRING.decode(self.raw)

    def length(self) -> int:
        """How many characters (code points) a string node has."""
        if self._length < 0:
            raw = bytes(self.raw)
            plain = b"\\" not in raw and raw.isascii()
            self._length = len(raw) - 2 if plain else len(self.text())
        return self._length

    def inner(self) -> Node | None:
        """The JSON container that a string node holds, if it holds one."""
        if self._inner is None:
            self._inner = False
            if OPENS_JSON.match(bytes(memoryview(self.raw)[1:_LOOK])):
                self._inner = sniff(unescaped(self.raw)) or False
        return self._inner or None

    def _open_array(self, room: int) -> None:
        if self._items is not None and (len(self._items) == self._total or self._total_covers(room)):
            return
        if self.size <= max(LARGE, 2 * room) or not is_dense(self.raw):
            self._items = [*_open(OPEN_ARRAY, self.raw)]
            self._total = len(self._items)
            return
        head: list[Buffer] = []
        covered = total = 0
        for window, items in windows(self.raw):
            total += len(items)
            if covered <= room:
                head.extend(items)
                covered += len(window)
        self._items, self._total = head, total

    def _total_covers(self, room: int) -> bool:
        assert self._items is not None
        return sum(map(len, self._items)) + len(self._items) > room


class Member(msgspec.Struct, frozen=True, gc=False):
    key: str
    raw_key: bytes
    value: Buffer


def parse(buffer: bytes) -> Node:
    """The root of a document, checked from end to end; JSONError says what is wrong and where."""
    try:
        return _root(buffer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        check_utf8(buffer)
        offset, reason = diagnose(buffer) or (byte_in(str(error), len(buffer)), str(error))
        raise JSONError(reason, buffer, offset) from None


def sniff(buffer: bytes) -> Node | None:
    """The root if the text is a JSON object or array, None if it is anything else."""
    if not _may_hold_json(buffer):
        return None
    try:
        return _root(buffer)
    except (ValueError, UnicodeError):
        return None


def _may_hold_json(buffer: bytes) -> bool:
    if buffer.lstrip(WHITESPACE)[:1] not in (b"{", b"["):
        return False
    # Megabytes of nothing but brackets: too deep to cut as JSON, and slow to tell.
    head = buffer[:_LOOK]
    return len(buffer) <= LARGE or head.count(b"[") + head.count(b"{") <= _LOOK // 2


def holds_json(buffer: bytes) -> bool:
    """Whether a text is a JSON object or array; the same answer as `sniff` gives, without a copy of it."""
    if not _may_hold_json(buffer):
        return False
    try:
        _OPEN_SCALAR.decode(buffer)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return sniff(buffer) is not None
    return True


def from_members(members: dict[str, bytes]) -> Node:
    """An object whose values are encoded already: saves joining them and taking them apart again."""
    return assembled([Member(key, encode(key), value) for key, value in members.items()])


def assembled(parts: list[Member]) -> Node:
    """An object of these members."""
    node = Node(b"{}")
    if parts:
        node._raw = None
        node.size = 1 + sum([len(part.raw_key) + len(part.value) + 2 for part in parts])
    node._members = parts
    return node


class Far:
    """The place of a value that is not here: its size is known, and it is too large to be asked for more."""

    __slots__ = ("_size",)

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size


def abridged(
    head: bytes,
    size: int,
    total: int,
    *,
    items: list[Buffer] | None = None,
    members: list[Member] | None = None,
    children: dict[int, Node] | None = None,
    inner: Node | None = None,
) -> Node:
    """The beginning of a value of `size` bytes: enough of it for whoever has less room than was loaded.

    `total` counts its items, members or characters. Of the `items` and `members` some may be `Far`; what is
    known of those is among the `children`.
    """
    node = Node(head)
    node.size = size
    node._items, node._members, node._children = items, members, children or {}
    if node.kind == "string":
        node._length, node._inner = total, inner or False
    else:
        node._total = total
    return node


def _root(buffer: bytes) -> Node:
    if not buffer.isascii():
        check_utf8(buffer)
    body = buffer.strip(WHITESPACE)
    if not body:
        raise msgspec.DecodeError("Input data was truncated")
    if body[0] not in _KINDS:
        raise msgspec.DecodeError("JSON is malformed: invalid character (byte 0)")
    try:
        return _checked(body)
    except msgspec.DecodeError:
        mended, count = mend_surrogates(body)
        if not count:
            raise
        return _checked(mended)


def _checked(body: bytes) -> Node:
    node = Node(_compacted(body) if _has_space(body) else body)
    _check(node)
    return node


def _check(node: Node) -> None:
    """Opening one level reads the whole document, so this is validation at no extra cost."""
    try:
        if node.kind == "object":
            node.members()
        elif node.kind == "array":
            node.total()
        else:
            _OPEN_SCALAR.decode(node.raw)
    except TooDeep:
        # The slow reader has no stack to exhaust; only it can tell deep JSON from a deep mistake.
        if problem := diagnose(bytes(node.raw)):
            raise msgspec.DecodeError(problem[1]) from None


def compact(raw: Buffer) -> bytes:
    """The same value without insignificant whitespace; numbers and strings keep their spelling."""
    return _compacted(raw if isinstance(raw, bytes) else bytes(raw))


def _compacted(body: bytes) -> bytes:
    try:
        return msgspec.json.format(body, indent=-1)
    except RecursionError:
        return compact_slowly(body)


def _has_space(body: bytes) -> bool:
    # A raw line break cannot stand inside a JSON string. For spaces the beginning of the document tells:
    # one that starts compact and is not so later is still cut correctly, only less tightly.
    if b"\n" in body or b"\t" in body or b"\r" in body:
        return True
    head = body[:4096]
    return b'": ' in head or b", " in head or b"[ " in head or b"{ " in head or b" :" in head


def _open(decoder: msgspec.json.Decoder[_T], raw: Buffer) -> _T:
    try:
        return decoder.decode(raw)
    except RecursionError:
        raise TooDeep("nested too deeply to be opened") from None


def _exact_keys(raw: Buffer, values: dict[str, Raw]) -> list[Member]:
    """Pair each value with its key as spelled in the buffer, found by walking over the values' lengths."""
    view = memoryview(raw)
    members: list[Member] = []
    at = 1
    exact = True
    for key, value in values.items():
        raw_key = encode(key)
        if exact:
            after = at + len(raw_key)
            if view[at:after] == raw_key and view[after] == 0x3A:
                at = after + 1 + len(value) + 1
            else:
                spelled = _KEY.match(view, at)
                # Equal keys upset the walk; from there on keys are spelled our way.
                if spelled and OPEN_STRING.decode(spelled[1]) == key:
                    raw_key = bytes(spelled[1])
                    at = spelled.end() + len(value)
                    while at < len(view) and view[at] in b" \t\r\n,":
                        at += 1
                else:
                    exact = False
        members.append(Member(key, raw_key, value))
    return members


def is_dense(raw: Buffer) -> bool:
    try:
        window, items = next(windows(raw))
    except TooDeep:
        return False
    return len(window) < LARGE and len(window) < _SMALL_ITEM * len(items)


def windows(raw: Buffer) -> Iterator[tuple[Buffer, list[Raw]]]:
    """Split a large array into arrays of about _WINDOW bytes, each with its items.

    A comma is tried as the end of a window, and msgspec is the judge: `[` + window + `]` is valid JSON only
    if that comma stands between two items of this array, because the reader gets to it in the same state.
    """
    view = memoryview(raw)
    end = len(view) - 1
    at = 1
    first = bytes(view[1:_LOOK]).lstrip(WHITESPACE)[:1]
    while end - at > _WINDOW:
        chunk = bytes(view[at : at + _WINDOW])
        for comma in _commas(chunk, first):
            window = b"[%b]" % chunk[:comma]
            try:
                items = _open(OPEN_ARRAY, window)
            except msgspec.DecodeError:
                continue
            yield window, items
            at += comma + 1
            break
        else:
            break
    # What could not be split is not copied, either: it may be a single large item.
    rest = raw if at == 1 else b"[%b]" % bytes(view[at:end])
    items = _open(OPEN_ARRAY, rest)
    if at > 1 and not items:
        raise msgspec.DecodeError("JSON is malformed: trailing comma in array")
    yield rest, items


def _commas(chunk: bytes, first: bytes) -> Iterator[int]:
    """Some commas that may stand between two items of an array that begins so; last ones first."""
    seam = _SEAMS.get(first, b",")
    lead = seam.index(b",")
    at = len(chunk)
    for _ in range(_BOUNDARY_TRIES):
        at = chunk.rfind(seam, 0, at)
        if at < 0:
            break
        yield at + lead
    if first in _SPACED_SEAMS:
        found = [match.start(1) for match in _SPACED_SEAMS[first].finditer(chunk)]
        yield from reversed(found[-_BOUNDARY_TRIES:])
