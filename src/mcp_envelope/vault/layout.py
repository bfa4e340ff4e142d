"""How a payload is laid out in a store: compressed blobs, and an index, so that a page costs the page.

Strategy: a payload is stored as blobs of 64 KB, each compressed by itself and with a checksum. So any part costs
the blobs it lies in, and what a disk made of them is never taken for what was written.

In the index, only a large value gets a `Span`. The children of a large list or object form chunks: a run of small
children of about 32 KB, which is read and parsed when one of them is wanted, or a single large child with a span
of its own. The span knows which child each chunk begins with, and at which byte. A long string has chunks of
characters; one that holds JSON also has the span of that JSON, in the coordinates of the unescaped text. An object
with many chunks has a table from the hash of a key to its chunk. What cannot be divided (equal keys, thousands of
levels) is a leaf: correct, and read whole.

A page should load little of an index, however large the payload is. So a span holds the spans of its children
only if they are few; others, and the tables of keys, are stored after the payload, in its appendix, and are
loaded when they are on the way to the page. All numbers are packed, four bytes each, and read where they are.
"""

from __future__ import annotations

import re
import sys
import zlib
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate, repeat
from operator import add
from typing import Final, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Raw

from ..jsontext.document import (
    LARGE,
    MAX_DEPTH,
    OPEN_ARRAY,
    OPEN_OBJECT,
    OPEN_STRING,
    OPENS_JSON,
    Buffer,
    TooDeep,
    encode,
    holds_json,
    is_dense,
    string_cut,
    unescaped,
    windows,
)
from ..jsontext.errors import STRING, WHITESPACE
from .store import Damaged, Entry, Store, Writing

if sys.version_info >= (3, 14):
    from compression.zstd import CompressionParameter, ZstdCompressor, ZstdError
    from compression.zstd import decompress as _decompress
else:
    from backports.zstd import CompressionParameter, ZstdCompressor, ZstdError
    from backports.zstd import decompress as _decompress

BLOB: Final = 1 << 16
# Fast, and a third of the size: tools answer in JSON.
_OPTIONS: Final[dict[int, int]] = {
    CompressionParameter.compression_level: 1,
    CompressionParameter.checksum_flag: 1,
}
_CACHED: Final = 64
# How many blobs are read at once when everything is wanted.
_AHEAD: Final = 16
# A value of more bytes has a span; small children form chunks of about this many bytes.
CHUNK: Final = 1 << 15
_FEW_CHUNKS: Final = 4
# How many spans may be loaded with one; children that bring more go into the appendix.
_LOADED_TOGETHER: Final = 16
_IN_A_BUCKET: Final = 256
_LOOK: Final = 1 << 12
_LENGTH: Final = 4
# Around the blocks of a result, and before its structure.
_CONTENT: Final = b'{"content":['
_STRUCTURED: Final = b'],"structuredContent":'
_BLOCKS_AT_ONCE: Final = 1 << 10
_BETWEEN: Final = re.compile(rb"[ \t\r\n]*,[ \t\r\n]*")
_SPACE: Final = re.compile(rb"[ \t\r\n]*+")
_KEY: Final = re.compile(rb"(" + STRING + rb")[ \t\r\n]*:[ \t\r\n]*")


# -- blobs ----------------------------------------------------------------------------------------------------


def compressor() -> Callable[[bytes | memoryview], bytes]:
    """A function that compresses blobs, each by itself. To make one costs more than a blob does."""
    return partial(ZstdCompressor(options=_OPTIONS).compress, mode=ZstdCompressor.FLUSH_FRAME)


def decompress(blob: bytes) -> bytes:
    """Raises `Damaged` if a single bit changed."""
    try:
        return _decompress(blob)
    except (ZstdError, MemoryError, ValueError) as error:
        # A header that was changed may ask for any amount of memory.
        raise Damaged(f"a blob cannot be unpacked: {error}") from None


class BlobWriter:
    """Cuts what is pushed into blobs of 64 KB and compresses each by itself; the last may be smaller."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing
        self._compress = compressor()
        self._waiting = bytearray()
        self._written = 0

    @property
    def size(self) -> int:
        return self._written + len(self._waiting)

    def push(self, data: bytes | memoryview) -> None:
        self._waiting += data
        if len(self._waiting) >= BLOB:
            self._write(len(self._waiting) // BLOB * BLOB)

    def commit(self, entry: Entry, index: bytes) -> None:
        self._write(len(self._waiting))
        self._writing.commit(msgspec.structs.replace(entry, index=self._compress(index)))

    def _write(self, size: int) -> None:
        with memoryview(self._waiting) as view:
            ends = [(at, min(at + BLOB, size)) for at in range(0, size, BLOB)]
            self._writing.add([self._compress(view[at:end]) for at, end in ends])
        del self._waiting[:size]
        self._written += size


class Checkpoints(NamedTuple):
    """Characters, the very first included, and the bytes where they begin."""

    characters: memoryview
    starts: memoryview


class Source:
    """Bytes that can be read in parts."""

    # None if every byte is a character.
    checkpoints: Checkpoints | None = None

    @property
    def stored(self) -> Source:
        """The stored bytes, where the payload's appendix is."""
        return self

    def read(self, start: int, end: int) -> bytes:
        raise NotImplementedError


class InMemory(Source):
    """A payload that is loaded already."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        start = memoryview(b"\0\0\0\0").cast("I")
        self.checkpoints = None if data.isascii() else Checkpoints(start, start)

    def read(self, start: int, end: int) -> bytes:
        return self._data[start:end]


class StoredBytes(Source):
    """A payload in a store."""

    def __init__(self, store: Store, key: str, size: int, checkpoints: Checkpoints | None = None) -> None:
        self.checkpoints = checkpoints
        self._store = store
        self._key = key
        self._size = size
        self._cache: OrderedDict[int, bytes] = OrderedDict()

    def read(self, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        first, last = start // BLOB, (end - 1) // BLOB
        data = b"".join(self._load(range(first, last + 1)))
        part = data[start - first * BLOB : end - first * BLOB]
        if len(part) != end - start:
            raise Damaged("the stored payload is shorter than it was")
        return part

    def stream(self) -> Iterator[bytes]:
        """The payload from beginning to end, about a megabyte at a time."""
        for at in range(0, self._size, _AHEAD * BLOB):
            yield self.read(at, min(at + _AHEAD * BLOB, self._size))

    def _load(self, numbers: range) -> list[bytes]:
        missing = [number for number in numbers if number not in self._cache]
        if missing:
            for number, blob in zip(missing, self._store.blobs(self._key, missing), strict=True):
                self._cache[number] = decompress(blob)
        found = [self._cache[number] for number in numbers]
        while len(self._cache) > _CACHED:
            self._cache.popitem(last=False)
        return found


# -- the index ------------------------------------------------------------------------------------------------


def packed(numbers: Sequence[int]) -> bytes:
    return array("I", numbers).tobytes()


def unpacked(numbers: bytes) -> memoryview:
    return memoryview(numbers).cast("I")


def key_hash(key: str) -> int:
    return zlib.crc32(key.encode("utf-8", "surrogatepass"))


class KeyTable(msgspec.Struct, array_like=True, frozen=True):
    """Where the table of an object's keys is stored: the ends of its buckets, then the buckets."""

    start: int
    buckets: int

    def chunks_with(self, key: str, stored: Source) -> list[int]:
        """The chunks that may have the key: all that have a key with the same hash."""
        hashed = key_hash(key)
        at = self.start + 4 * (hashed * self.buckets >> 32)
        start, end = unpacked(stored.read(at, at + 8))
        pairs = unpacked(stored.read(self.start + start, self.start + end))
        return [pairs[at + 1] for at in range(0, len(pairs), 2) if pairs[at] == hashed]


class Span(msgspec.Struct, array_like=True):
    """Where a large value begins and ends, and the chunks in it."""

    kind: Literal["array", "object", "string", "text", "leaf"]
    start: int
    end: int
    # Items, members or characters.
    total: int
    # For each chunk the ordinal of its first item, member or character, and the byte where it begins.
    ordinals: bytes = b""
    starts: bytes = b""
    # A string: for each chunk the byte of the unescaped text where it begins.
    text_starts: bytes = b""
    # Large children by their ordinals; if they are many, for each chunk where its span is stored, or 0.
    children: dict[int, Span] = {}
    child_positions: bytes = b""
    # The ordinals of the large members that are here, and the table of all keys if there are many chunks.
    keys: dict[str, int] = {}
    table: KeyTable | None = None
    # The JSON that a string holds, in the coordinates of its text.
    embedded: Span | None = None

    @property
    def weight(self) -> int:
        """How many spans are loaded with this one, itself included."""
        embedded = 0 if self.embedded is None else self.embedded.weight
        return 1 + embedded + sum([child.weight for child in self.children.values()])

    def is_large(self, chunk: int) -> bool:
        """Whether the chunk is a single child with a span of its own."""
        if self.child_positions:
            return unpacked(self.child_positions)[chunk] != 0
        return bool(self.children) and unpacked(self.ordinals)[chunk] in self.children

    def child(self, chunk: int, stored: Source) -> Span | None:
        """The span of a chunk that is a single large child."""
        if not self.child_positions:
            return self.children.get(unpacked(self.ordinals)[chunk])
        at = unpacked(self.child_positions)[chunk]
        if not at:
            return None
        size = int.from_bytes(stored.read(at, at + _LENGTH))
        return _decoded(Span, stored.read(at + _LENGTH, at + _LENGTH + size))

    def chunks_with(self, key: str, stored: Source) -> list[int]:
        """The chunks of small members that may have the key."""
        if self.table is not None:
            return self.table.chunks_with(key, stored)
        return [chunk for chunk in range(len(self.ordinals) // 4) if not self.is_large(chunk)]


class Index(msgspec.Struct, array_like=True):
    """`root` is None for a payload so small that it is read whole. `text` means that it is not JSON."""

    root: Span | None = None
    text: bool = False
    # Of JSON with characters of several bytes: the character and the byte at each checkpoint.
    characters: bytes = b""
    starts: bytes = b""

    def encoded(self) -> bytes:
        return _ENCODE(self)

    @staticmethod
    def decoded(data: bytes) -> Index:
        return _decoded(Index, data)


_ENCODE: Final = msgspec.msgpack.Encoder().encode
_Decoded = TypeVar("_Decoded", Span, Index)


def _decoded(kind: type[_Decoded], data: bytes) -> _Decoded:
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise Damaged(f"the index is not what was written: {error}") from None


# -- building -----------------------------------------------------------------------------------------------


class IndexBuilder:
    """Makes the index of a payload of `size` bytes, and the appendix that is stored after it."""

    def __init__(self, size: int) -> None:
        self._appendix: list[bytes] = []
        self._end = size

    @property
    def appendix(self) -> bytes:
        return b"".join(self._appendix)

    def _append(self, data: bytes) -> int:
        """Return where it will be stored."""
        at = self._end
        self._appendix.append(data)
        self._end += len(data)
        return at

    def add_chunks(
        self, span: Span, children: dict[int, Span], ordinals: list[int], starts: list[int]
    ) -> None:
        """Give a list or an object its chunks and its large children."""
        span.ordinals, span.starts = packed(ordinals), packed(starts)
        if sum([child.weight for child in children.values()]) <= _LOADED_TOGETHER:
            span.children = children
            return
        positions: list[int] = []
        for child in map(children.get, ordinals):
            data = b"" if child is None else _ENCODE(child)
            positions.append(self._append(len(data).to_bytes(_LENGTH) + data) if data else 0)
        span.child_positions = packed(positions)

    def document(self, data: bytes) -> Index:
        """`data` is known to be JSON."""
        if len(data) <= CHUNK:
            return Index()
        root = self._span(memoryview(data), *_stripped(data), 0)
        if data.isascii():
            return Index(root)
        text = _text_span([data])
        return Index(root, characters=text.ordinals, starts=text.starts)

    def result(self, blocks: Sequence[Buffer], structured: bytes | None) -> Index:
        """The index that `document` would make of `result_parts` in one piece, which may be large: none is made."""
        parts = result_parts(blocks, structured)
        size = sum(map(len, parts))
        if size <= CHUNK:
            return Index()
        keys, starts, spans = ["content"], [1], [self._content(blocks)]
        if structured is not None:
            keys.append("structuredContent")
            starts.append(spans[0].end + 1)
            start, end = _stripped(structured)
            base = spans[0].end + len(_STRUCTURED) - 1
            span = self._span(memoryview(structured), start, end, 1, base)
            spans.append(span or Span("leaf", start, end, 0))
        chunks = _Chunks()
        large = chunks.add(starts, [span.end - span.start for span in spans])
        children = {index: spans[index] for index in large}
        root = self._with_members(Span("object", 0, size, len(keys)), keys, children, chunks)
        text = _text_span(parts)
        return Index(root) if text.total == size else Index(root, False, text.ordinals, text.starts)

    def _content(self, blocks: Sequence[Buffer]) -> Span:
        chunks = _Chunks()
        children: dict[int, Span] = {}
        at = len(_CONTENT)
        for first in range(0, len(blocks), _BLOCKS_AT_ONCE):
            sizes = [len(block) for block in blocks[first : first + _BLOCKS_AT_ONCE]]
            *starts, at = accumulate([size + 1 for size in sizes], initial=at)
            for index in chunks.add(starts, sizes):
                block = memoryview(blocks[first + index])
                child = self._span(block, 0, len(block), 2, starts[index])
                if child is not None:
                    children[first + index] = child
        # After the last block there is a bracket, and no comma.
        span = Span("array", len(_CONTENT) - 1, at if blocks else at + 1, chunks.total)
        if span.end - span.start > CHUNK:
            self.add_chunks(span, children, chunks.ordinals, chunks.starts)
        return span

    def text(self, data: bytes) -> Index:
        """Plain text; what is JSON comes as a document."""
        return Index(_text_span([data]) if len(data) > CHUNK else None, text=True)

    def _span(self, data: memoryview, start: int, end: int, depth: int, base: int = 0) -> Span | None:
        """The span of a value in `data`, which is stored from `base` on."""
        if end - start <= CHUNK:
            return None
        by_first = {0x5B: self._array, 0x7B: self._object, 0x22: self._string}
        build = by_first.get(data[start])
        if build is not None and depth < MAX_DEPTH:
            try:
                return build(data, start, end, depth, base)
            except (msgspec.DecodeError, RecursionError, TooDeep, _Indivisible):
                # Half a surrogate pair, or too deep: correct as a leaf.
                pass
        return Span("leaf", base + start, base + end, 0)

    def _array(self, data: memoryview, start: int, end: int, depth: int, base: int) -> Span:
        chunks = _Chunks(base)
        children: dict[int, Span] = {}
        for at, stop, items in _windowed(data, start, end):
            sizes = [len(item) for item in items]
            starts = _item_starts(data, at, stop, sizes)
            first = chunks.total
            for index in chunks.add(starts, sizes):
                child = self._span(data, starts[index], starts[index] + sizes[index], depth + 1, base)
                if child is not None:
                    children[first + index] = child
        span = Span("array", base + start, base + end, chunks.total)
        self.add_chunks(span, children, chunks.ordinals, chunks.starts)
        return span

    def _object(self, data: memoryview, start: int, end: int, depth: int, base: int) -> Span:
        values = OPEN_OBJECT.decode(data[start:end])
        keys, sizes = list(values), [len(value) for value in values.values()]
        starts, value_starts = _member_starts(data, start, end, keys, sizes)
        chunks = _Chunks(base)
        children: dict[int, Span] = {}
        for index in chunks.add(starts, sizes):
            at = value_starts[index]
            child = self._span(data, at, at + sizes[index], depth + 1, base)
            if child is not None:
                children[index] = child
        return self._with_members(Span("object", base + start, base + end, len(keys)), keys, children, chunks)

    def _with_members(self, span: Span, keys: list[str], children: dict[int, Span], chunks: _Chunks) -> Span:
        self.add_chunks(span, children, chunks.ordinals, chunks.starts)
        span.keys = {keys[index]: index for index in span.children}
        if span.child_positions or len(chunks.ordinals) - len(children) > _FEW_CHUNKS:
            span.table = self._key_table(keys, chunks.ordinals)
        return span

    def _key_table(self, keys: list[str], ordinals: list[int]) -> KeyTable:
        count = len(keys) // _IN_A_BUCKET + 1
        buckets: list[array[int]] = [array("I") for _ in range(count)]
        chunk = 0
        for ordinal, key in enumerate(keys):
            while chunk + 1 < len(ordinals) and ordinals[chunk + 1] <= ordinal:
                chunk += 1
            hashed = key_hash(key)
            buckets[hashed * count >> 32].extend((hashed, chunk))
        ends = accumulate([4 * (count + 1), *[4 * len(bucket) for bucket in buckets]])
        table = array("I", ends).tobytes() + b"".join([bucket.tobytes() for bucket in buckets])
        return KeyTable(self._append(table), count)

    def _string(self, data: memoryview, start: int, end: int, depth: int, base: int) -> Span:
        raw = data[start:end]
        ordinals, starts, text_starts = [0], [base + start + 1], [0]
        at = 1
        while at < len(raw) - 1:
            stop = len(raw) - 1 if len(raw) - 1 - at <= CHUNK else string_cut(raw, at + CHUNK, at)  # type: ignore[arg-type]
            text = OPEN_STRING.decode(b'"%b"' % bytes(raw[at:stop]))
            at = stop
            ordinals.append(ordinals[-1] + len(text))
            starts.append(base + start + at)
            text_starts.append(text_starts[-1] + len(text.encode()))
        span = Span("string", base + start, base + end, ordinals.pop(), packed(ordinals))
        span.starts, span.text_starts = packed(starts[:-1]), packed(text_starts[:-1])
        if OPENS_JSON.match(bytes(raw[1:_LOOK])):
            inside = unescaped(raw)  # type: ignore[arg-type]
            if holds_json(inside):
                ends = _stripped(inside)
                span.embedded = self._span(memoryview(inside), *ends, depth + 1) or Span("leaf", *ends, 0)
        return span


def _stripped(data: bytes) -> tuple[int, int]:
    """Where the JSON begins and ends, without the whitespace around it."""
    return len(data) - len(data.lstrip(WHITESPACE)), len(data.rstrip(WHITESPACE))


def result_parts(blocks: Sequence[Buffer], structured: bytes | None) -> list[Buffer]:
    """What is stored of a result: its blocks and, if there is one, its structure."""
    separated = [part for block in blocks for part in (b",", block)][1:]
    rest = [b"]}"] if structured is None else [_STRUCTURED, structured, b"}"]
    return [_CONTENT, *separated, *rest]


def character_start(text: bytes | memoryview, at: int) -> int:
    """Where the character begins that this byte belongs to."""
    # No character has more than four bytes.
    first = max(at - 3, 0)
    while at > first and text[at] & 0xC0 == 0x80:
        at -= 1
    return at


def _text_span(parts: Sequence[Buffer]) -> Span:
    """The span of what the parts come to; each is whole characters."""
    ordinals, starts = [0], [0]
    ordinal = start = 0
    for part in parts:
        data = memoryview(part)
        at = 0
        while at < len(data):
            if start - starts[-1] >= CHUNK or at:
                ordinals.append(ordinal)
                starts.append(start)
            stop = min(at + CHUNK, len(data))
            if stop < len(data):
                stop = character_start(data, stop)
            # To decode is the quickest way to count.
            ordinal += len(str(data[at:stop], "utf-8", "replace"))
            start += stop - at
            at = stop
    return Span("text", 0, start, ordinal, packed(ordinals), packed(starts))


# -- positions ----------------------------------------------------------------------------------------------


class _Indivisible(Exception):
    """The positions of the children cannot be determined."""


class _Chunks:
    def __init__(self, base: int = 0) -> None:
        self._base = base
        self.ordinals: list[int] = []
        self.starts: list[int] = []
        self.total = 0

    def add(self, starts: list[int], sizes: list[int]) -> list[int]:
        """Divide more children: each large one alone, others by `CHUNK` bytes. Return which are large."""
        large = [index for index, size in enumerate(sizes) if size > CHUNK] if max(sizes) > CHUNK else []
        first = 0
        for end in [*large, len(starts)]:
            while first < end:
                self._begin(first, starts)
                first = min(max(bisect_left(starts, starts[first] + CHUNK), first + 1), end)
            if end < len(starts):
                self._begin(end, starts)
                first = end + 1
        self.total += len(starts)
        return large

    def _begin(self, index: int, starts: list[int]) -> None:
        self.ordinals.append(self.total + index)
        self.starts.append(self._base + starts[index])


def _windowed(data: memoryview, start: int, end: int) -> Iterator[tuple[int, int, list[Raw]]]:
    """The items of a list, a window of it at a time, and the bytes where the window begins and ends."""
    raw = data[start:end]
    if len(raw) <= LARGE or not is_dense(raw):  # type: ignore[arg-type]
        yield start + 1, end - 1, OPEN_ARRAY.decode(raw)
        return
    at = start + 1
    for window, items in windows(raw):  # type: ignore[arg-type]
        yield at, at + len(window) - 2, items
        at += len(window) - 1


def _after(pattern: re.Pattern[bytes], data: memoryview, at: int) -> int:
    match = pattern.match(data, at)
    return match.end() if match else at


def _item_starts(data: memoryview, at: int, stop: int, sizes: list[int]) -> list[int]:
    if not sizes:
        raise _Indivisible
    if at + sum(sizes) + len(sizes) - 1 == stop:
        # One comma between any two, and no whitespace anywhere: the sizes are enough.
        return list(accumulate(map(add, sizes[:-1], repeat(1)), initial=at))
    starts: list[int] = []
    at = _after(_SPACE, data, at)
    for size in sizes:
        starts.append(at)
        at = _after(_BETWEEN, data, at + size)
    return starts


def _member_starts(
    data: memoryview, start: int, end: int, keys: list[str], sizes: list[int]
) -> tuple[list[int], list[int]]:
    """Where each member begins, and where its value does."""
    if not keys:
        raise _Indivisible
    key_sizes = [len(encode(key)) + 1 for key in keys]
    if start + 1 + sum(sizes) + sum(key_sizes) + len(sizes) == end:
        both = map(add, key_sizes[:-1], sizes[:-1])
        starts = list(accumulate(map(add, both, repeat(1)), initial=start + 1))
        return starts, list(map(add, starts, key_sizes))
    starts, value_starts = [], []
    at = _after(_SPACE, data, start + 1)
    for key, size in zip(keys, sizes, strict=True):
        match = _KEY.match(data, at)
        if match is None or OPEN_STRING.decode(match[1]) != key:
            # Equal keys: the last value counts, so the sizes belong to others.
            raise _Indivisible
        starts.append(at)
        value_starts.append(match.end())
        at = _after(_BETWEEN, data, match.end() + size)
    if _after(_SPACE, data, at) != end - 1:
        # The last key came before, with another value.
        raise _Indivisible
    return starts, value_starts
