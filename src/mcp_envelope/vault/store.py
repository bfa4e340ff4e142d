"""What a store must do: keep numbered blobs under a key, and know what became of each key.

Strategy: a store is simple on purpose. It keeps entries and their blobs, for a time, in bounded space, and makes
each visible all at once: an entry is there with every blob, or not at all. Splitting into blobs, compression,
indexes, pages, searches and handles are the same for every store and live above it. A key is a digest of the
handle and its owner, so what belongs to another owner looks like what never existed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, Protocol, Self

import msgspec

# How long a result is kept, how much all of them may take, and how long a store remembers that one is gone.
DEFAULT_TTL: Final = 24 * 3600.0
DEFAULT_CAP: Final = 1 << 30
REMEMBERED: Final = 7 * 24 * 3600.0

Kind = Literal["json", "text", "blocks"]
# Why a key has no entry any more: it expired, it was deleted, or it made room for newer ones.
Fate = Literal["expired", "deleted", "evicted"]


class StoreError(Exception):
    """The store cannot be used. The message is for people: what is wrong, and what would help."""


class DamagedFile(StoreError):
    """The file is a vault, but damaged beyond repair: it can only be removed."""


class DiskTrouble(StoreError):
    """The disk is full, or fails: nothing can be written, not even a deletion."""


class Damaged(Exception):
    """The entry exists, but blobs are missing or are not what was written."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is known about a stored payload."""

    key: str
    # As the caller got it; only the owner of the store lists its entries.
    handle: str
    kind: Kind
    # Bytes of the payload; what it takes in the store and how many blobs it has, which the store fills in.
    size: int
    stored: int = 0
    blobs: int = 0
    created: float
    expires: float
    tool: str | None = None
    # Where things are in the payload: an `layout.Index`, compressed.
    index: bytes = b""


class Gone(msgspec.Struct, frozen=True):
    """A key whose entry is gone."""

    fate: Fate
    at: float


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    place: str
    entries: int
    # Bytes of the payloads, and what they take.
    size: int
    stored: int
    cap: int
    oldest: float | None = None
    newest: float | None = None


class WriteSession(Protocol):
    """A payload that is being written: in batches, and visible only after `commit`. See `blobs.Writing`."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def add(self, blobs: Iterable[bytes]) -> None: ...

    def commit(self, entry: Entry) -> None: ...


class Store(Protocol):
    """Every method raises `StoreError` when the store cannot be reached or used."""

    # For people: a path or an address, without a password.
    place: str

    def write(self, key: str, expires: float) -> WriteSession: ...

    def entry(self, key: str) -> Entry | Gone | None:
        """Return the entry, or what became of it; None if the key is unknown."""
        ...

    def blobs(self, key: str, numbers: Sequence[int]) -> list[bytes]:
        """Return those blobs, in that order; raise `Damaged` if one is missing."""
        ...

    def delete(self, key: str) -> bool:
        """Delete the entry; return whether there was one."""
        ...

    def entries(self) -> Iterator[Entry]:
        """All readable entries, newest first, without their indexes."""
        ...

    def sweep(self) -> int:
        """Delete what has expired; return how many entries that were."""
        ...

    def purge(self) -> int:
        """Delete every entry; return how many there were."""
        ...

    def stats(self) -> Stats: ...

    def close(self) -> None: ...
