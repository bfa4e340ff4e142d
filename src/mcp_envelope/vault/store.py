"""What a store must do: keep numbered blobs under a key, and know what became of each key.

Strategy: a store is dumb on purpose. It keeps one entry and its blobs, for a time, in bounded space, and makes
them visible all at once: an entry is there with every blob, or not at all. Cutting into blobs, compression,
outlines, pages, searches and handles are the same for every store and live above it. A key is a digest of the
handle and its owner, so what belongs to somebody else cannot be told from what never was.
"""

from __future__ import annotations

import os
import string
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final, Literal, Protocol, Self

import msgspec

# How long a result is kept, how much all of them may take, and how long it is remembered that one is gone.
DEFAULT_TTL: Final = 24 * 3600.0
DEFAULT_CAP: Final = 1 << 30
REMEMBERED: Final = 7 * 24 * 3600.0

Kind = Literal["json", "text", "blocks"]
# Why a key that once had an entry has none: its time was over, somebody deleted it, it made room for newer ones.
Fate = Literal["expired", "deleted", "evicted"]


_ALPHABET: Final = string.ascii_letters + string.digits
_LETTERS: Final = 22


def new_handle() -> str:
    """130 random bits, in letters and digits: nothing to quote, and nothing that looks like an option."""
    number = int.from_bytes(os.urandom(24), "big")
    letters: list[str] = []
    for _ in range(_LETTERS):
        number, letter = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[letter])
    return "".join(letters)


class StoreError(Exception):
    """The store cannot do it now. The message is for people: what is wrong, and what would help."""


class DamagedFile(StoreError):
    """The store is ours, and ruined: nothing helps but beginning anew."""


class DiskTrouble(StoreError):
    """The disk is full, or fails: nothing can be written, not even that something is deleted."""


class Damaged(Exception):
    """The entry is there, but not all of its blobs are, or they are not what was written."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is known of a stored payload besides its bytes."""

    key: str
    # As it was given out; what a store lists is for its owner's eyes.
    handle: str
    kind: Kind
    # Bytes of the payload, and what its blobs take in the store.
    size: int
    stored: int
    blobs: int
    created: float
    expires: float
    tool: str | None = None
    # How to find one's way in the payload; written and read by `outline`.
    outline: bytes = b""


class Gone(msgspec.Struct, frozen=True):
    """A key whose entry is no more."""

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


class Writing(Protocol):
    """A payload on its way in. Leaving without `commit` leaves nothing behind that anybody can see."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def add(self, blobs: Sequence[bytes]) -> None:
        """The next blobs; they are numbered from 0 in the order in which they come."""
        ...

    def commit(self, entry: Entry) -> None:
        """Make it visible, whole, and make room for it: expired entries go first, then the oldest ones."""
        ...


class Store(Protocol):
    """Every method raises `StoreError` when the store cannot be reached or used."""

    # For people: a path or an address, without a password.
    place: str

    def write(self, key: str, expires: float) -> Writing: ...

    def entry(self, key: str) -> Entry | Gone | None:
        """The entry; what became of it; None if there never was one, as far as anybody remembers."""
        ...

    def blobs(self, key: str, numbers: Sequence[int]) -> list[bytes]:
        """Those blobs, in that order; `Damaged` if one is missing."""
        ...

    def delete(self, key: str) -> bool:
        """Whether there was something to delete."""
        ...

    def entries(self) -> Iterator[Entry]:
        """All that can be read, newest first, without their outlines."""
        ...

    def sweep(self) -> int:
        """Let go of what has expired; how many entries that were."""
        ...

    def purge(self) -> int:
        """Delete every entry; how many that were."""
        ...

    def stats(self) -> Stats: ...

    def close(self) -> None: ...
