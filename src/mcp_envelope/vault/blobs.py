"""The bytes of a stored payload: compressed blobs, and reading any part of them.

Strategy: a payload is stored as blobs of 64 KB, each compressed by itself and with a checksum. So any part costs
the blobs it lies in, and what a disk made of them is never taken for what was written.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import ClassVar, Final, NamedTuple, Self

import msgspec

from .store import Damaged, Entry, Store, StoreError, WriteSession

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


class Writing:
    """A payload that is being written, in batches. Leaving without `commit` leaves nothing visible behind.

    A store adds how a batch is sent, how the entry becomes visible, and how what was sent is taken back.
    """

    # Bytes and blobs that are sent at once: enough to be quick, and no lock or script takes long.
    batch_bytes: ClassVar[int] = 1 << 20
    batch_blobs: ClassVar[int] = 1000

    def __init__(self, key: str, place: str, cap: int) -> None:
        self._key = key
        self._place = place
        self._cap = cap
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._sent = 0
        self._sent_bytes = 0
        self._done = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if not self._done:
            # What stays is swept, or expires.
            with suppress(StoreError):
                self._discard()

    def add(self, blobs: Iterable[bytes]) -> None:
        """Add the next blobs; they are numbered from 0 in order."""
        for blob in blobs:
            self._waiting.append(blob)
            self._waiting_bytes += len(blob)
            self._check_cap(self._sent_bytes + self._waiting_bytes)
            if self._waiting_bytes >= self.batch_bytes or len(self._waiting) >= self.batch_blobs:
                self._send(self._waiting)
                self._count_sent()

    def commit(self, entry: Entry) -> None:
        """Make the entry visible, and make room for it: expired entries go first, then the oldest ones."""
        stored = self._sent_bytes + self._waiting_bytes + len(entry.index)
        self._check_cap(stored)
        count = self._sent + len(self._waiting)
        self._publish(
            msgspec.structs.replace(entry, key=self._key, stored=stored, blobs=count), self._waiting
        )
        self._done = True

    def _count_sent(self) -> None:
        self._sent += len(self._waiting)
        self._sent_bytes += self._waiting_bytes
        self._waiting, self._waiting_bytes = [], 0

    def _check_cap(self, size: int) -> None:
        if size > self._cap:
            raise StoreError(
                f"the result takes {size} bytes, which is more than the {self._cap} that the store at "
                f"{self._place} may hold: raise its cap"
            )

    def _send(self, blobs: Sequence[bytes]) -> None:
        raise NotImplementedError

    def _publish(self, entry: Entry, blobs: Sequence[bytes]) -> None:
        """Send the last blobs, and make the entry visible."""
        raise NotImplementedError

    def _discard(self) -> None:
        raise NotImplementedError


class BlobWriter:
    """Cuts what is pushed into blobs of 64 KB and compresses each by itself; the last may be smaller."""

    def __init__(self, writing: WriteSession) -> None:
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
