"""Memory for large frames, shared by all that are under way.

Strategy: whoever gathers a frame says how large it has become. While all of them together have more than there is
room for, nobody reads on but the one that came first; so there is always one that gets done, and the sum stays
within the room and what one frame may have.
"""

from __future__ import annotations

from typing import Final

import anyio

_SIZE: Final = 128 << 20
# A frame of fewer bytes is not counted.
_SMALL: Final = 1 << 16


class Room:
    def __init__(self, size: int = _SIZE) -> None:
        self._size = size
        self.used = 0
        self._places: dict[int, Place] = {}
        self._changed: anyio.Event | None = None

    def place(self) -> Place:
        """Room for one frame after the other, until its block ends; nothing is taken yet."""
        return Place(self)

    def _put(self, place: Place, size: int) -> None:
        freed = size < place.counted
        self.used += size - place.counted
        place.counted = size
        if size:
            # They stay in the order in which they came.
            self._places.setdefault(id(place), place)
        else:
            self._places.pop(id(place), None)
        if freed and self._changed is not None:
            self._changed.set()
            self._changed = None

    async def _wait(self, place: Place) -> None:
        while self.used > self._size and next(iter(self._places.values())) is not place:
            if self._changed is None:
                self._changed = anyio.Event()
            await self._changed.wait()


class Place:
    """What one reader has gathered of its frame."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self.size = 0
        self.counted = 0

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        if self.counted:
            self._room._put(self, 0)

    async def grow(self, more: int) -> None:
        await self.settle(self.size + more)

    async def settle(self, size: int) -> None:
        """So many bytes are held now; wait until more may be."""
        self.size = size
        counted = size if size > _SMALL else 0
        if counted != self.counted:
            self._room._put(self, counted)
        if counted:
            await self._room._wait(self)
