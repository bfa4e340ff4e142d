"""Memory for large frames, shared by all that are under way.

Strategy: whoever holds a frame says how large it has become, until it is passed on. While all of them together have
more than there is room for, no large one reads on but the one that came first; so there is always one that gets
done. One that stands still, because its server or its client does, is passed by the next. So that the sum stays
within a few times the room, and what one frame may have, nobody is passed beyond that, and whoever stood still for
long is given up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import anyio

_SIZE: Final = 128 << 20
# A frame of fewer bytes is not counted.
_SMALL: Final = 1 << 16
# A frame of less than this part of the room, as a power of two, does not wait behind large ones.
_LITTLE: Final = 8
# So many times the room may be taken if those before do not get on.
_TIMES: Final = 4
# How long one may stand still before the next may pass it, and before it is given up, in seconds.
_STILL: Final = 2.0
_PATIENCE: Final = 30.0


class Room:
    def __init__(self, size: int = _SIZE) -> None:
        self._size = size
        self.used = 0
        self._places: dict[int, Place] = {}
        self._changed: anyio.Event | None = None

    def place(self, give_up: Callable[[], None] | None = None) -> Place:
        """Room for one frame after the other, until its block ends; nothing is taken yet.

        `give_up` ends whatever the place is for.
        """
        return Place(self, give_up)

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
        place.is_waiting = True
        try:
            while self.used > self._size and not self._may_go_on(place):
                if self.used > self._size * _TIMES:
                    self._give_up_one()
                if self._changed is None:
                    self._changed = anyio.Event()
                # Nobody tells that another one stands still.
                with anyio.move_on_after(_STILL):
                    await self._changed.wait()
        finally:
            place.is_waiting = False
            place.moved()

    def _may_go_on(self, place: Place) -> bool:
        is_crowded = self.used > self._size * _TIMES
        if not is_crowded and place.size <= self._size >> _LITTLE:
            return True
        for each in self._places.values():
            if each is place:
                return True
            if is_crowded or not each.is_still(_STILL):
                return False
        return True

    def _give_up_one(self) -> None:
        for each in self._places.values():
            if each.give_up is not None and each.is_still(_PATIENCE):
                each.give_up()
                return


class Place:
    """What one reader holds of its frame."""

    def __init__(self, room: Room, give_up: Callable[[], None] | None = None) -> None:
        self._room = room
        self.give_up = give_up
        self.size = 0
        self.counted = 0
        self.is_waiting = False
        self._is_busy = False
        self._since = time.monotonic()

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        if self.counted:
            self._room._put(self, 0)

    async def grow(self, more: int) -> None:
        await self.settle(self.size + more)

    async def settle(self, size: int) -> None:
        """So many bytes are held now; wait until more may be."""
        self.hold(size)
        if self.counted:
            await self._room._wait(self)

    def hold(self, size: int) -> None:
        """So many bytes are held now, and no more will be."""
        self.size = size
        self.moved()
        counted = size if size > _SMALL else 0
        if counted != self.counted:
            self._room._put(self, counted)

    def moved(self) -> None:
        """Something was read or taken."""
        self._since = time.monotonic()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Nothing is read meanwhile, but it is we who take the time."""
        self._is_busy = True
        try:
            yield
        finally:
            self._is_busy = False
            self.moved()

    def is_still(self, seconds: float) -> bool:
        """Whether it stood still for so long, and neither for lack of room nor because of us."""
        return not self.is_waiting and not self._is_busy and time.monotonic() - self._since > seconds
