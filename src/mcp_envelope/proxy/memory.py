"""Memory for large frames, shared by all that are under way.

Strategy: whoever holds a frame says how large it has become, until it has been passed on. While all frames
together take more than the shared size, no large one reads on but the one that came first; so one of them always
gets done. One that makes no progress, because its server or its client makes none, is overtaken by the next.
Overtaking ends at a few times the shared size; beyond it, a frame that has made no progress for long is given up.
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
# A frame of at most this part of the shared size, as a power of two, does not wait behind large ones.
_LITTLE: Final = 8
# How many times the shared size may be taken if those in front make no progress.
OVERDRAFT: Final = 4
# For how long a frame may make no progress before the next overtakes it, and before it is given up, in seconds.
_STILL: Final = 2.0
_PATIENCE: Final = 30.0


class SharedMemory:
    def __init__(self, size: int = _SIZE) -> None:
        self._size = size
        self.used = 0
        # In the order in which they came.
        self._reservations: dict[int, Reservation] = {}
        self._freed: anyio.Event | None = None

    def reserve(self, give_up: Callable[[], None] | None = None) -> Reservation:
        """Memory for one frame after another, until its block ends; none is taken yet.

        `give_up` ends whatever the reservation is for.
        """
        return Reservation(self, give_up)

    def _put(self, reservation: Reservation, size: int) -> None:
        is_less = size < reservation.counted
        self.used += size - reservation.counted
        reservation.counted = size
        if size:
            self._reservations.setdefault(id(reservation), reservation)
        else:
            self._reservations.pop(id(reservation), None)
        if is_less and self._freed is not None:
            self._freed.set()
            self._freed = None

    async def _wait(self, reservation: Reservation) -> None:
        reservation.is_waiting = True
        try:
            while self.used > self._size and not self._may_go_on(reservation):
                if self.used > self._size * OVERDRAFT:
                    self._give_up_one()
                if self._freed is None:
                    self._freed = anyio.Event()
                # Nothing is signalled when another one stops making progress.
                with anyio.move_on_after(_STILL):
                    await self._freed.wait()
        finally:
            reservation.is_waiting = False
            reservation.moved()

    def _may_go_on(self, reservation: Reservation) -> bool:
        is_crowded = self.used > self._size * OVERDRAFT
        if not is_crowded and reservation.size <= self._size >> _LITTLE:
            return True
        for each in self._reservations.values():
            if each is reservation:
                return True
            if is_crowded or not each.is_still(_STILL):
                return False
        return True

    def _give_up_one(self) -> None:
        for each in self._reservations.values():
            if each.give_up is not None and each.is_still(_PATIENCE):
                each.give_up()
                return


class Reservation:
    """What one reader holds of its frame."""

    def __init__(self, memory: SharedMemory, give_up: Callable[[], None] | None = None) -> None:
        self._memory = memory
        self.give_up = give_up
        self.size = 0
        self.counted = 0
        self.is_waiting = False
        self._is_busy = False
        self._since = time.monotonic()

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, *_: object) -> None:
        if self.counted:
            self._memory._put(self, 0)

    async def grow(self, more: int) -> None:
        await self.settle(self.size + more)

    async def settle(self, size: int) -> None:
        """Hold this many bytes from now on, and wait until there may be more."""
        self.hold(size)
        if self.counted:
            await self._memory._wait(self)

    def hold(self, size: int) -> None:
        """Hold this many bytes from now on, and no more later."""
        self.size = size
        self.moved()
        counted = size if size > _SMALL else 0
        if counted != self.counted:
            self._memory._put(self, counted)

    def moved(self) -> None:
        """Something was read, or taken by the client."""
        self._since = time.monotonic()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Nothing is read meanwhile, but only because we are busy with it."""
        self._is_busy = True
        try:
            yield
        finally:
            self._is_busy = False
            self.moved()

    def is_still(self, seconds: float) -> bool:
        """Whether it has made no progress for so long, neither for lack of memory nor because of us."""
        return not self.is_waiting and not self._is_busy and time.monotonic() - self._since > seconds
