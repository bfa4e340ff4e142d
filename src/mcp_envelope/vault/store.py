"""What a store must do: keep numbered blobs under a key, and know what became of each key.

Strategy: a store is simple on purpose. It keeps entries and their blobs, for a time, in bounded space, and makes
each visible all at once: an entry is there with every blob, or not at all. Splitting into blobs, compression,
indexes, pages, searches and handles are the same for every store and live above it. A key is a digest of the
handle and its owner, so what belongs to another owner looks like what never existed. How a payload is written, in
batches and within the cap, is the same for all of them, too: `Writing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import ClassVar, Final, Literal, Protocol, Self

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


class Store(Protocol):
    """Every method raises `StoreError` when the store cannot be reached or used."""

    # For people: a path or an address, without a password.
    place: str

    def write(self, key: str, expires: float) -> Writing: ...

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
