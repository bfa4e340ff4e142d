"""JSON bytes seen lazily, one level at a time.

Strategy: `msgspec.Raw` gives the children of a container as slices of the original buffer, at about two
gigabytes a second and without building Python objects. Only containers that are actually cut are opened, so
everything else keeps its exact bytes: `1.0`, `1e400`, escapes, key order. A long array of small items is
opened window by window, so it costs the memory of one window and not an object for each item. Whatever msgspec
can't handle (lone surrogates, ten thousand levels) goes to `errors`, which is slow and thorough.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Raw

from .errors import (
    STRING,
    WHITESPACE,
    JSONError,
    byte_in,
    check_utf8,
    compact_slowly,
    diagnose,
    replace_lone_surrogates,
)

_T = TypeVar("_T")
Buffer: TypeAlias = bytes | Raw
Kind: TypeAlias = Literal["object", "array", "string", "number", "boolean", "null"]

# How much of a string is decoded at once.
_PIECE: Final = 1 << 18
# A text content block, around the JSON string that is its text.
TEXT_OPEN: Final = b'{"type":"text","text":'
TEXT_CLOSE: Final = b"}"

# Values below this many levels are not opened: they are kept or dropped whole.
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
# What separates two items that begin with this byte, and the same with whitespace in it.
_SEAMS: Final = {b"{": b"},{", b"[": b"],[", b'"': b'","'}
_SPACED_SEAMS: Final = {
    seam[-1:]: re.compile(
        re.escape(seam[:1]) + rb"[ \t\r\n]*+(,)(?=[ \t\r\n]*+" + re.escape(seam[-1:]) + rb")"
    )
    for seam in _SEAMS.values()
}

# How a string that holds JSON begins: whitespace, escaped or not, and a bracket.
OPENS_JSON: Final = re.compile(rb"(?:[ ]|\\[nrt]|\\u00(?:20|0[9aAdD]))*+[\[{]")
_LOOK: Final = 1 << 12
# A key as spelled, and the colon after it.
_KEY: Final = re.compile(rb"[ \t\r\n]*(" + STRING + rb")[ \t\r\n]*:[ \t\r\n]*")


class TooDeep(ValueError):
    """Valid JSON that is nested too deeply to be opened. It can be kept or dropped, but not cut."""


def kind_of(raw: Buffer) -> Kind:
    return _KINDS[memoryview(raw)[0]]


class Node:
    """One JSON value and, once asked for, its children."""

    __slots__ = (
        *("_children", "_inner", "_items", "_length", "_members", "_raw", "_total"),
        *("is_own", "kind", "size"),
    )

    def __init__(self, raw: Buffer, *, is_own: bool = False) -> None:
        self._raw: Buffer | None = raw
        # Whether our encoder wrote it, and its numbers are still to be spelled the way they will be sent.
        self.is_own = is_own
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
        """The value's exact bytes; for what is sent, see `spelled`."""
        if self._raw is None:
            self._raw = b"{%b}" % b",".join(
                [b"%b:%b" % (member.raw_key, member.value) for member in self.members()]
            )
        return self._raw

    def spelled(self, part: Buffer) -> bytes:
        """Return a part of the document as it is sent."""
        return respelled(bytes(part)) if self.is_own else bytes(part)

    def forget(self) -> None:
        """Release the children that were opened. They are opened again when asked for."""
        self._children.clear()

    def members(self) -> list[Member]:
        """Return key, exact bytes of the key and exact bytes of the value. Of equal keys, the last one counts."""
        if self._members is None:
            self._members = _exact_keys(self.raw, _open(OPEN_OBJECT, self.raw))
        return self._members

    def items(self, room: int) -> list[Buffer]:
        """Return the first items, at least as many as fit into `room` bytes."""
        self._open_array(room)
        assert self._items is not None
        return self._items

    def all_items(self) -> list[Buffer]:
        if self._items is None or len(self._items) < self._total:
            self._items = [*_open(OPEN_ARRAY, self.raw)]
            self._total = len(self._items)
        return self._items

    def picked(self, indices: Sequence[int]) -> list[bytes]:
        """Return a few items of an array, by ascending indices, without opening all others at once."""
        if self._items is not None and len(self._items) == self._total:
            return [bytes(self._items[index]) for index in indices]
        found: list[bytes] = []
        first = 0
        for _, items in windows(self.raw) if is_dense(self.raw) else [(self.raw, self.all_items())]:
            following = indices[len(found) : bisect_left(indices, first + len(items))]
            found += [bytes(items[index - first]) for index in following]
            first += len(items)
        return found

    def total(self) -> int:
        """Return the number of an array's items or an object's members."""
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
        """Return the text of a string node."""
        return OPEN_STRING.decode(self.raw)

    def length(self) -> int:
        """Return the number of characters (code points) in a string node."""
        if self._length < 0:
            raw = bytes(self.raw)
            plain = b"\\" not in raw and raw.isascii()
            self._length = len(raw) - 2 if plain else len(self.text())
        return self._length

    def inner(self) -> Node | None:
        """Return the JSON container that a string node holds, if any."""
        if self._inner is None:
            self._inner = False
            if OPENS_JSON.match(bytes(memoryview(self.raw)[1:_LOOK])):
                self._inner = sniff(unescaped(self.raw)) or False
        return self._inner or None

    def _open_array(self, room: int) -> None:
        items = self._items
        if items is not None and (len(items) == self._total or sum(map(len, items)) + len(items) > room):
            return
        head: list[Buffer] = []
        covered = total = 0
        if self._total >= 0:
            # They were counted before, so the rest needn't be looked at.
            for window, items_there in windows(self.raw, max(2 * room, _LOOK)):
                head.extend(items_there)
                covered += len(window)
                if covered > room:
                    break
            self._items = head
            return
        if self.size <= max(LARGE, 2 * room) or not is_dense(self.raw):
            self.all_items()
            return
        for window, items_there in windows(self.raw):
            total += len(items_there)
            if covered <= room:
                head.extend(items_there)
                covered += len(window)
        self._items, self._total = head, total


class Member(msgspec.Struct, frozen=True, gc=False):
    key: str
    raw_key: bytes
    value: Buffer


def parse(buffer: bytes) -> Node:
    """Return the root of a document, checked from end to end; JSONError says what is wrong and where."""
    try:
        return _root(buffer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        check_utf8(buffer)
        offset, reason = diagnose(buffer) or (byte_in(str(error), len(buffer)), str(error))
        raise JSONError(reason, buffer, offset) from None


def sniff(buffer: bytes) -> Node | None:
    """Return the root if the text is a JSON object or array, else None."""
    if not _may_hold_json(buffer):
        return None
    try:
        return _root(buffer)
    except (ValueError, UnicodeError):
        return None


def _may_hold_json(buffer: bytes) -> bool:
    if buffer.lstrip(WHITESPACE)[:1] not in (b"{", b"["):
        return False
    # Megabytes of nothing but brackets are too deep to cut as JSON, and slow to parse.
    head = buffer[:_LOOK]
    return len(buffer) <= LARGE or head.count(b"[") + head.count(b"{") <= _LOOK // 2


def holds_json(buffer: bytes) -> bool:
    """Whether a text is a JSON object or array: the same answer as from `sniff`, without a copy of the text."""
    if not _may_hold_json(buffer):
        return False
    try:
        _OPEN_SCALAR.decode(buffer)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return sniff(buffer) is not None
    return True


def is_bare(text: bytes) -> bool:
    """Whether a text is JSON, but not an object."""
    if text.lstrip(WHITESPACE)[:1] == b"{":
        return False
    try:
        _OPEN_SCALAR.decode(text)
    except RecursionError:
        return True
    except (msgspec.DecodeError, UnicodeError):
        return False
    return True


def from_members(members: dict[str, bytes], totals: dict[str, int] | None = None) -> Node:
    """Return an object of values that our encoder wrote, without joining and splitting them again.

    `totals` has the number of items of lists, which then needn't be opened to the end.
    """
    node = assembled([Member(key, encode(key), value) for key, value in members.items()], is_own=True)
    if totals:
        for index, key in enumerate(members):
            if key in totals:
                node.child(index)._total = totals[key]
    return node


def assembled(parts: list[Member], *, is_own: bool = False) -> Node:
    """Return an object of these members."""
    node = Node(b"{}", is_own=is_own)
    if parts:
        node._raw = None
        node.size = 1 + sum([len(part.raw_key) + len(part.value) + 2 for part in parts])
    node._members = parts
    return node


class Far:
    """A value that isn't loaded: only its size is known, and it is too large to be asked for anything else."""

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
    """Return the beginning of a value of `size` bytes, enough for any room smaller than what was loaded.

    `total` counts its items, members or characters. Some of the `items` and `members` may be `Far`; what is
    known about those is in `children`.
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
        repaired, count = replace_lone_surrogates(body)
        if not count:
            raise
        return _checked(repaired)


def _checked(body: bytes) -> Node:
    """Return the root. Opening one level parses the whole document, so validation costs nothing extra."""
    node = Node(compact(body) if _has_space(body) else body)
    try:
        if node.kind in ("object", "array"):
            node.total()
        else:
            _OPEN_SCALAR.decode(node.raw)
    except TooDeep:
        # The slow parser has no stack to exhaust; only it can distinguish deep JSON from a deep mistake.
        if problem := diagnose(bytes(node.raw)):
            raise msgspec.DecodeError(problem[1]) from None
    return node


def compact(raw: Buffer) -> bytes:
    """Return the same value without insignificant whitespace; numbers and strings keep their spelling."""
    body = bytes(raw)
    try:
        return msgspec.json.format(body, indent=-1)
    except RecursionError:
        return compact_slowly(body)


def _has_space(body: bytes) -> bool:
    # A JSON string cannot contain a raw line break. For spaces, the beginning of the document decides: one that
    # is compact there and not later is still cut correctly, only less tightly.
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
    """Pair each value with its key as spelled in the buffer, found by skipping over the values."""
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
                # Equal keys break the count; from there on, keys are spelled our way.
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
    """Whether an array's items are small and many enough to be opened in windows."""
    try:
        window, items = next(windows(raw))
    except TooDeep:
        return False
    return len(window) < LARGE and len(window) < _SMALL_ITEM * len(items)


def windows(raw: Buffer, size: int | None = None) -> Iterator[tuple[Buffer, list[Raw]]]:
    """Split a large array into arrays of about `size` bytes (_WINDOW), each with its items.

    A comma is tried as the end of a window, and msgspec decides: `[` + window + `]` is valid JSON only if that
    comma separates two items of this array, because the parser reaches it in the same state.
    """
    view = memoryview(raw)
    end = len(view) - 1
    at = 1
    first = bytes(view[1:_LOOK]).lstrip(WHITESPACE)[:1]
    size = size or _WINDOW
    while end - at > size:
        chunk = bytes(view[at : at + size])
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
    # What could not be split isn't copied either: it may be a single large item.
    rest = raw if at == 1 else b"[%b]" % bytes(view[at:end])
    items = _open(OPEN_ARRAY, rest)
    if at > 1 and not items:
        raise msgspec.DecodeError("JSON is malformed: trailing comma in array")
    yield rest, items


def _commas(chunk: bytes, first: bytes) -> Iterator[int]:
    """Yield some commas that may separate two items of an array that begins with `first`; last ones first."""
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


def quoted(text: str) -> str:
    """Return a text as a JSON string in which nothing is invisible, and nothing moves what surrounds it."""
    shown = json.dumps(text, ensure_ascii=False)
    return shown if shown.isprintable() else json.dumps(text)


def text_block(text: str) -> bytes:
    """Return the JSON of a text content block."""
    return b"%b%b%b" % (TEXT_OPEN, encode(text), TEXT_CLOSE)


def unescaped(raw: bytes | Raw) -> bytes:
    """Return the text of a JSON string, as UTF-8.

    A long one is decoded piece by piece, because one wide character makes all of a Python string four times as
    large.
    """
    end = len(raw) - 1
    if end <= _PIECE:
        return msgspec.json.decode(raw, type=str).encode()
    view = memoryview(raw)
    whole = BytesIO()
    at = 1
    while at < end:
        stop = end if end - at <= _PIECE else string_cut(raw, at + _PIECE, at)
        whole.write(msgspec.json.decode(b'"%b"' % bytes(view[at:stop]), type=str).encode())
        at = stop
    return whole.getvalue()


_ESCAPES: Final = re.compile(rb"((?:\\u[0-9a-fA-F]{4})+)|\\.", re.DOTALL)


def readable(raw: bytes) -> bytes:
    """Return JSON with characters in place of their `\\uXXXX`, which cost a model several tokens each."""
    # One byte is looked for many times as fast as two.
    return _ESCAPES.sub(_characters, raw) if b"\\" in raw and b"\\u" in raw else raw


def _characters(match: re.Match[bytes]) -> bytes:
    if match[1] is None:
        return match[0]
    try:
        return encode(OPEN_STRING.decode(b'"%b"' % match[1]))[1:-1]
    except (msgspec.MsgspecError, UnicodeError):
        return match[0]  # half of a surrogate pair


def string_cut(raw: bytes | Raw, limit: int, start: int = 1) -> int:
    """Return the last position up to `limit` where an escaped JSON string may be cut.

    `start` is an earlier position where it may be cut, so there is no need to look further back.
    """
    window_start = max(start, limit - 13)
    window = bytes(memoryview(raw)[window_start : limit + 12])
    at = limit - window_start
    while at > 0 and at < len(window) and window[at] & 0xC0 == 0x80:
        at -= 1
    slash = window.rfind(b"\\", max(0, at - 6), at)
    if slash >= 0 and _opens_escape(raw, window_start + slash, start):
        length = 6 if window[slash + 1 : slash + 2] == b"u" else 2
        if slash + length > at:
            at = slash
    # The low half of a surrogate pair must not lose its high half.
    low, high = window[at : at + 4].lower(), at - 6
    if low[:3] == b"\\ud" and low[3:] in (b"c", b"d", b"e", b"f") and high >= 0:
        if window[high : high + 3].lower() == b"\\ud" and _opens_escape(raw, window_start + high, start):
            at = high
    return window_start + at


def _opens_escape(raw: bytes | Raw, at: int, start: int) -> bool:
    """Whether a backslash opens an escape: the number of backslashes right before it is even."""
    view = memoryview(raw)
    before = at
    while before > start and view[before - 1] == 0x5C:
        before -= 1
    return (at - before) % 2 == 0


# -- numbers, spelled the way they will be sent ---------------------------------------------------------------

# A Python server's library serializes values again after they were measured. From 1e16 on our encoder writes
# `1e16`, while pydantic writes `1e+16`: up to a third more tokens in a list of such numbers.
# Nearly every payload has no such number, so the search must be cheap: a literal comes first, and a failed match
# ends at the next character. A lookbehind for the digit before the `e` would cost a sixth more.
_EXPONENT: Final = re.compile(rb"e[1-9][0-9][0-9]?(?=[,\]}]|\Z)")


def written(value: Any) -> bytes:
    """Return plain data as JSON, spelled as it will be sent."""
    return respelled(encode(value))


def respelled(raw: bytes) -> bytes:
    """Return what our encoder wrote as Python's libraries would write it."""
    parts: list[bytes] = []
    at = quotes = 0
    for match in _EXPONENT.finditer(raw):
        digits = match.start() + 1
        if raw[digits - 2 : digits - 1].isdigit():
            part = raw[at:digits]
            # Inside a string it is text. Outside of strings, the number of quotes so far is even.
            bare = part.replace(b"\\\\", b"")
            quotes += bare.count(b'"') - bare.count(b'\\"')
            parts += part, b"" if quotes % 2 else b"+"
            at = digits
    return b"".join([*parts, raw[at:]]) if parts else raw
