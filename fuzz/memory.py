"""A store for results that costs next to nothing: the last few, in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mcp_envelope.vault.store import Damaged, Entry, Gone, Stats, Writing

CAP: Final = 1 << 24


class MemoryStore:
    place = "memory"

    def __init__(self, keeps: int) -> None:
        self.keeps = keeps
        self.kept: dict[str, tuple[Entry, list[bytes]]] = {}

    def write(self, key: str, expires: float) -> _MemoryWriting:
        return _MemoryWriting(self, key)

    def entry(self, key: str) -> Entry | Gone | None:
        return self.kept[key][0] if key in self.kept else None

    def blobs(self, key: str, numbers: Sequence[int]) -> list[bytes]:
        if key not in self.kept:
            raise Damaged("it is gone")
        return [self.kept[key][1][number] for number in numbers]

    def delete(self, key: str) -> bool:
        return self.kept.pop(key, None) is not None

    def entries(self) -> Iterator[Entry]:
        return (entry for entry, _ in self.kept.values())

    def sweep(self) -> int:
        return 0

    def purge(self) -> int:
        count = len(self.kept)
        self.kept.clear()
        return count

    def stats(self) -> Stats:
        size, stored = (sum(getattr(entry, name) for entry in self.entries()) for name in ("size", "stored"))
        return Stats(place=self.place, entries=len(self.kept), size=size, stored=stored, cap=CAP)

    def close(self) -> None:
        pass


class _MemoryWriting(Writing):
    def __init__(self, store: MemoryStore, key: str) -> None:
        super().__init__(key, store.place, CAP)
        self._store = store
        self._blobs: list[bytes] = []

    def _send(self, blobs: Sequence[bytes]) -> None:
        self._blobs += blobs

    def _publish(self, entry: Entry, blobs: Sequence[bytes]) -> None:
        kept = self._store.kept
        kept[self._key] = entry, [*self._blobs, *blobs]
        while len(kept) > self._store.keeps:
            del kept[next(iter(kept))]

    def _discard(self) -> None:
        self._blobs.clear()
