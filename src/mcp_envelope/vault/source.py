"""The bytes of a stored payload, read a piece at a time.

Strategy: a payload is stored as blobs of 64 KB, each compressed for itself and with a checksum, so that any piece
costs the blobs it lies in, and what a disk made of them is never taken for what was written. The text that a
JSON string holds is a source too: its bytes are made by reading the stretches of the string that cover them and
taking their escapes away. So JSON inside a string is read like any other.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, Protocol

from ..faults import mend_surrogates
from ..jsontree import OPEN_STRING
from .knots import Knot, packed, unpacked
from .store import Damaged, Store

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
# Blobs that are read ahead when everything is wanted.
_AHEAD: Final = 16


class Compressor:
    """Packs blobs one after the other, each for itself. To begin anew for each would cost more than the packing."""

    def __init__(self) -> None:
        self._compressor = ZstdCompressor(options=_OPTIONS)

    def pack(self, data: bytes | memoryview) -> bytes:
        return self._compressor.compress(data, ZstdCompressor.FLUSH_FRAME)


def decompress(blob: bytes) -> bytes:
    """What was packed; `Damaged` if a single bit of it is another."""
    try:
        return _decompress(blob)
    except (ZstdError, MemoryError, ValueError) as error:
        # A header that was changed may ask for any amount of memory.
        raise Damaged(f"a blob cannot be unpacked: {error}") from None


def blobs_of(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Compressed blobs of 64 KB each, but for the last one, from parts of any size."""
    rest = b""
    compress = Compressor().pack
    for part in parts:
        view = memoryview(part)
        if rest:
            missing = BLOB - len(rest)
            rest, view = rest + bytes(view[:missing]), view[missing:]
            if len(rest) < BLOB:
                continue
            yield compress(rest)
        full = len(view) - len(view) % BLOB
        for at in range(0, full, BLOB):
            yield compress(view[at : at + BLOB])
        rest = bytes(view[full:])
    if rest:
        yield compress(rest)


class Marks(NamedTuple):
    """Which character begins at which byte, for some of them, the very first included."""

    firsts: memoryview
    starts: memoryview


class Source(Protocol):
    # None if every byte is a character.
    marks: Marks | None

    @property
    def stored(self) -> Source:
        """The stored bytes themselves, where tables and knots are."""
        ...

    def read(self, start: int, end: int) -> bytes: ...


class Whole:
    """A payload that is here already."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.marks = None if data.isascii() else Marks(*[unpacked(packed([0]))] * 2)

    @property
    def stored(self) -> Source:
        return self

    def read(self, start: int, end: int) -> bytes:
        return self._data[start:end]


class Blobs:
    """A payload in a store."""

    def __init__(self, store: Store, key: str, size: int, marks: Marks | None = None) -> None:
        self.marks = marks
        self._store = store
        self._key = key
        self._size = size
        self._kept: OrderedDict[int, bytes] = OrderedDict()

    @property
    def stored(self) -> Source:
        return self

    def read(self, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        first, last = start // BLOB, (end - 1) // BLOB
        data = b"".join(self._load(range(first, last + 1)))
        piece = data[start - first * BLOB : end - first * BLOB]
        if len(piece) != end - start:
            raise Damaged("the stored payload is shorter than it was")
        return piece

    def stream(self) -> Iterator[bytes]:
        """The payload from beginning to end, about a megabyte at a time."""
        for at in range(0, self._size, _AHEAD * BLOB):
            stop = min(at + _AHEAD * BLOB, self._size)
            yield self.read(at, stop)

    def _load(self, numbers: range) -> list[bytes]:
        missing = [number for number in numbers if number not in self._kept]
        if missing:
            for number, blob in zip(missing, self._store.blobs(self._key, missing), strict=True):
                self._kept[number] = decompress(blob)
        found = [self._kept[number] for number in numbers]
        while len(self._kept) > _CACHED:
            self._kept.popitem(last=False)
        return found


class Unescaped:
    """The text of a long string, as its UTF-8 bytes."""

    def __init__(self, source: Source, knot: Knot) -> None:
        self._source = source
        self._starts = unpacked(knot.starts)
        self._inside = unpacked(knot.inside)
        self._end = knot.end - 1
        self.marks: Marks | None = Marks(unpacked(knot.firsts), self._inside)

    @property
    def stored(self) -> Source:
        return self._source.stored

    def read(self, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        first = bisect_right(self._inside, start) - 1
        last = max(bisect_right(self._inside, end - 1) - 1, first)
        stop = self._starts[last + 1] if last + 1 < len(self._starts) else self._end
        text = unescaped(self._source.read(self._starts[first], stop)).encode()
        return text[start - self._inside[first] : end - self._inside[first]]


def unescaped(escaped: bytes) -> str:
    """What the inside of a JSON string says."""
    if b"\\" not in escaped:
        return escaped.decode()
    quoted = b'"%b"' % escaped
    try:
        return OPEN_STRING.decode(quoted)
    except ValueError:
        return OPEN_STRING.decode(mend_surrogates(quoted)[0])
