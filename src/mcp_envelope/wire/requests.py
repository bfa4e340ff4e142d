"""The client's requests that have no answer yet.

Strategy: every request is remembered by its id until its answer passes, calls of tools with all that their results
will need. Ids should be unique while they wait; where a client uses one twice, answers are taken in the order
of the requests. A request that was cancelled may still be answered, so it is remembered as well, though nobody
is told if the server dies. What is never answered is forgotten in the end, calls last.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

import msgspec

from .frames import Id

if TYPE_CHECKING:
    from ..front import Call

# A request that lasts as long as the conversation does.
_ENDLESS: Final = "subscriptions/listen"
_MOST: Final = 10_000
_MOST_TASKS: Final = 1000


class Pending(msgspec.Struct):
    """A request. `call` is there if it asks for a tool's result."""

    method: str
    identifier: bytes
    call: Call | None = None
    # What the request said of its sender, in the stateless era.
    meta: bytes | None = None
    # Whether it is of the stateless era.
    modern: bool = False
    # A list's first page.
    first: bool = False
    cancelled: bool = False

    @property
    def is_call(self) -> bool:
        return self.call is not None and not self.cancelled


class Requests:
    """`tasks` may be shared by conversations of one caller."""

    def __init__(self, tasks: OrderedDict[str, Pending] | None = None) -> None:
        # Both directions are looked at in threads of their own.
        self._lock = threading.Lock()
        self._waiting: dict[Id, list[Pending]] = {}
        self._minor: deque[Id] = deque()
        self._tasks: OrderedDict[str, Pending] = OrderedDict() if tasks is None else tasks

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __contains__(self, key: Id) -> bool:
        return key in self._waiting

    @property
    def are_wanted(self) -> bool:
        """Whether somebody still waits for an answer that is to come."""
        with self._lock:
            waiting = [pending for each in self._waiting.values() for pending in each]
        return any(not pending.cancelled and pending.method != _ENDLESS for pending in waiting)

    def add(self, key: Id, pending: Pending) -> None:
        with self._lock:
            self._waiting.setdefault(key, []).append(pending)
            if not pending.is_call:
                self._note_minor(key)

    def take(self, key: Id) -> Pending | None:
        """The request that an answer belongs to."""
        with self._lock:
            waiting = self._waiting.get(key)
            if waiting is None:
                return None
            pending = waiting.pop(0)
            if not waiting:
                del self._waiting[key]
            return pending

    def cancel(self, key: Id) -> None:
        with self._lock:
            for pending in self._waiting.get(key, ()):
                pending.cancelled = True
            if key in self._waiting:
                self._note_minor(key)

    def all(self) -> list[Pending]:
        """Those that still wait for an answer, in their order; none of them is remembered afterwards."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        return [pending for each in waiting.values() for pending in each if not pending.cancelled]

    def _note_minor(self, key: Id) -> None:
        """A server may never answer; of what is no call, only the last many are kept in mind."""
        self._minor.append(key)
        if len(self._minor) > _MOST:
            oldest = self._minor.popleft()
            kept = [pending for pending in self._waiting.pop(oldest, ()) if pending.is_call]
            if kept:
                self._waiting[oldest] = kept

    # -- tasks: the answer to a call comes later, to another request -----------------------------------------

    def began(self, task: str, pending: Pending) -> None:
        with self._lock:
            self._tasks[task[:1000]] = pending
            if len(self._tasks) > _MOST_TASKS:
                self._tasks.popitem(last=False)

    def of_task(self, task: str) -> Pending | None:
        return self._tasks.get(task[:1000])
