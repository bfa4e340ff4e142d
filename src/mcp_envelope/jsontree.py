"""JSON bytes seen lazily, one level at a time.

Strategy: `msgspec.Raw` gives the children of a container as slices of the original buffer, at about two
gigabytes a second and without building Python objects. Only containers that are really cut are opened, so
everything else keeps its exact bytes: `1.0`, `1e400`, escapes, key order. A long array of small items is
opened window by window, so its cost in memory is one window and not one object for each item.
Whatever msgspec cannot take (lone surrogates, ten thousand levels) has one slow, iterative answer here.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Raw

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
_WHITESPACE: Final = b" \t\r\n"
_OPEN_OBJECT: Final = msgspec.json.Decoder(dict[str, Raw])
_OPEN_ARRAY: Final = msgspec.json.Decoder(list[Raw])
_OPEN_SCALAR: Final = msgspec.json.Decoder(Raw)
_OPEN_STRING: Final = msgspec.json.Decoder(str)
encode: Final = msgspec.json.Encoder().encode

# An array larger than this is opened in windows, if its items are small.
_LARGE: Final = 1 << 22
_WINDOW: Final = 1 << 18
_SMALL_ITEM: Final = 128
_BOUNDARY_TRIES: Final = 16

_STRING: Final = rb'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+"'
_STRING_START: Final = re.compile(rb'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+')
_NUMBER: Final = rb"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?"
_TOKEN: Final = re.compile(
    rb"[ \t\r\n]*(?:(" + _STRING + rb")|(" + _NUMBER + rb"|true|false|null)|([\[{])|([\]}])|([,:]))"
)
_KEY: Final = re.compile(rb"[ \t\r\n]*(" + _STRING + rb")[ \t\r\n]*:[ \t\r\n]*")
# Every escape, one by one; group 1 is a surrogate that has no partner.
_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


class JSONError(ValueError):
    """The bytes are not JSON. Says where, so that a person can go there."""

    def __init__(self, reason: str, buffer: bytes, offset: int) -> None:
        offset = min(max(offset, 0), len(buffer))
        before = buffer[:offset]
        line_start = before.rfind(b"\n") + 1
        self.reason = reason
        self.offset = offset
        self.line = before.count(b"\n") + 1
        self.column = len(before[line_start:].decode("utf-8", "replace")) + 1
        super().__init__(f"not valid JSON: {reason} (line {self.line}, column {self.column})")


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

    def members(self) -> list[Member]:
        """Key, exact bytes of the key, exact bytes of the value. The last of equal keys counts."""
        if self._members is None:
            self._members = _exact_keys(self.raw, _open(_OPEN_OBJECT, self.raw))
        return self._members

    def items(self, room: int) -> list[Buffer]:
        """The first items, at least as many as `room` bytes can hold."""
        self._open_array(room)
        assert self._items is not None
        return self._items

    def all_items(self) -> list[Buffer]:
        if self._items is None or len(self._items) < self._total:
            self._items = [*_open(_OPEN_ARRAY, self.raw)]
            self._total = len(self._items)
        return self._items

    def total(self) -> int:
        """How many items an array or members an object has."""
        if self.kind == "object":
            return len(self.members())
        if self._total < 0:
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
        return _OPEN_STRING.decode(self.raw)

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
            head = bytes(memoryview(self.raw)[1:9]).lstrip(b" ")
            if head[:1] in (b"{", b"["):
                self._inner = sniff(self.text().encode()) or False
        return self._inner or None

    def _open_array(self, room: int) -> None:
        if self._items is not None and (len(self._items) == self._total or self._total_covers(room)):
            return
        if self.size <= max(_LARGE, 2 * room) or not _is_dense(self.raw):
            self._items = [*_open(_OPEN_ARRAY, self.raw)]
            self._total = len(self._items)
            return
        head: list[Buffer] = []
        covered = total = 0
        for window, items in _windows(self.raw):
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
        _check_utf8(buffer)
        offset, reason = diagnose(buffer) or (_byte_in(str(error), len(buffer)), str(error))
        raise JSONError(reason, buffer, offset) from None


def sniff(buffer: bytes) -> Node | None:
    """The root if the text is a JSON object or array, None if it is anything else."""
    if buffer.lstrip(_WHITESPACE)[:1] not in (b"{", b"["):
        return None
    try:
        return _root(buffer)
    except (ValueError, UnicodeError):
        return None


def from_members(members: dict[str, bytes]) -> Node:
    """An object whose values are encoded already: saves joining them and taking them apart again."""
    parts = [Member(key, encode(key), value) for key, value in members.items()]
    node = Node(b"{}")
    if parts:
        node._raw = None
        node.size = 1 + sum([len(part.raw_key) + len(part.value) + 2 for part in parts])
    node._members = parts
    return node


def _root(buffer: bytes) -> Node:
    if not buffer.isascii():
        _check_utf8(buffer)
    body = buffer.removeprefix(codecs.BOM_UTF8).strip(_WHITESPACE)
    if not body:
        raise msgspec.DecodeError("Input data was truncated")
    if _has_space(body):
        body = _compacted(body)
    if body[0] not in _KINDS:
        raise msgspec.DecodeError("JSON is malformed: invalid character (byte 0)")
    node = Node(body)
    try:
        _check(node)
    except msgspec.DecodeError:
        mended, count = mend_surrogates(body)
        if not count:
            raise
        node = Node(mended)
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
        return body


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
                if spelled and _OPEN_STRING.decode(spelled[1]) == key:
                    raw_key = bytes(spelled[1])
                    at = spelled.end() + len(value)
                    while at < len(view) and view[at] in b" \t\r\n,":
                        at += 1
                else:
                    exact = False
        members.append(Member(key, raw_key, value))
    return members


def _is_dense(raw: Buffer) -> bool:
    try:
        window, items = next(_windows(raw))
    except TooDeep:
        return False
    return len(window) < _LARGE and len(window) < _SMALL_ITEM * len(items)


def _windows(raw: Buffer) -> Iterator[tuple[bytes, Sequence[Buffer]]]:
    """Split a large array into arrays of about _WINDOW bytes, each with its items.

    A comma is tried as the end of a window, and msgspec is the judge: `[` + window + `]` is valid JSON only
    if that comma stands between two items of this array, because the reader gets to it in the same state.
    """
    view = memoryview(raw)
    end = len(view) - 1
    at = 1
    seam = {ord("{"): b"},{", ord("["): b"],[", ord('"'): b'","'}.get(view[1], b",")
    lead = seam.index(b",")
    while end - at > _WINDOW:
        chunk = bytes(view[at : at + _WINDOW])
        stop = len(chunk)
        for _ in range(_BOUNDARY_TRIES):
            stop = chunk.rfind(seam, 0, stop)
            if stop < 0:
                break
            window = b"[%b]" % chunk[: stop + lead]
            try:
                items = _open(_OPEN_ARRAY, window)
            except msgspec.DecodeError:
                continue
            yield window, items
            at += stop + lead + 1
            break
        else:
            break
        if stop < 0:
            break
    window = b"[%b]" % bytes(view[at:end])
    yield window, _open(_OPEN_ARRAY, window)


def _check_utf8(buffer: bytes) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")()
    step = 1 << 20
    for at in range(0, len(buffer) or 1, step):
        try:
            decoder.decode(buffer[at : at + step], at + step >= len(buffer))
        except UnicodeDecodeError as error:
            offset = at + error.start if error.start < step else at
            raise JSONError(f"invalid UTF-8, {error.reason}", buffer, offset) from None


def mend_surrogates(buffer: bytes) -> tuple[bytes, int]:
    """Replace each half of a broken surrogate pair by U+FFFD; no client could read it."""
    count = 0

    def mend(match: re.Match[bytes]) -> bytes:
        nonlocal count
        if match[1] is None:
            return match[0]
        count += 1
        return rb"\ufffd"

    return _ESCAPE.sub(mend, buffer), count


def diagnose(buffer: bytes) -> tuple[int, str] | None:
    """Where and why the bytes are not JSON, or None if they are. Linear, and without a stack of calls."""
    stack: list[int] = []
    at = len(codecs.BOM_UTF8) if buffer.startswith(codecs.BOM_UTF8) else 0
    expect: Literal["value", "value or ]", "key or }", "key", ":", ", or end"] = "value"
    while match := _TOKEN.match(buffer, at):
        start = match.start(match.lastindex or 0)
        string, scalar, opening, closing, comma = match.groups()
        token = (string or scalar or opening or closing or comma)[:20].decode("utf-8", "replace")
        if expect in ("key", "key or }"):
            if string:
                expect = ":"
            elif closing == b"}" and expect == "key or }":
                stack.pop()
                expect = ", or end"
            else:
                return start, f"expected a key in quotes, found {token!r}"
        elif expect == ":":
            if comma != b":":
                return start, f"expected ':' after a key, found {token!r}"
            expect = "value"
        elif expect == ", or end":
            if not stack:
                return start, f"something follows the end of the document: {token!r}"
            if comma == b",":
                expect = "key" if stack[-1] == 0x7B else "value"
            elif closing and closing[0] == stack[-1] + 2:
                stack.pop()
            else:
                return start, f"expected ',' or {chr(stack[-1] + 2)!r}, found {token!r}"
        elif string or scalar:
            expect = ", or end"
        elif opening:
            stack.append(opening[0])
            expect = "key or }" if opening == b"{" else "value or ]"
        elif closing == b"]" and expect == "value or ]":
            stack.pop()
            expect = ", or end"
        else:
            return start, f"expected a value, found {token!r}"
        at = match.end()
    at = len(buffer) - len(buffer[at:].lstrip(_WHITESPACE))
    if at < len(buffer):
        if buffer[at] == 0x22:
            return _diagnose_string(buffer, at)
        found = buffer[at : at + 40].decode("utf-8", "replace")[:12]
        return at, f"unexpected {found!r}"
    if expect != ", or end" or stack:
        return at, "the document ends too early"
    return None


def _diagnose_string(buffer: bytes, at: int) -> tuple[int, str]:
    end = _STRING_START.match(buffer, at).end()  # type: ignore[union-attr]
    if end == len(buffer):
        return at, "a string that starts here never ends"
    if buffer[end] == 0x5C:
        return end, f"invalid escape {buffer[end : end + 2].decode('utf-8', 'replace')!r} in a string"
    return end, f"control character {buffer[end : end + 1]!r} in a string; it must be escaped"


def _byte_in(message: str, size: int) -> int:
    found = re.search(r"\(byte (\d+)\)", message)
    return int(found[1]) if found else size
