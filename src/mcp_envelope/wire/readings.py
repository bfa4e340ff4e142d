"""What the proxy answers itself: `envelope_read`, and stored results that are read as resources.

Strategy: a reading needs the vault and nothing of the conversation, and it may last, if it searches a large result.
So whoever drives the conversation can have it done beside everything else; one that is cancelled meanwhile stays
unanswered. Searches are held to seconds, so those of a conversation take turns: two at once would share them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Final

from msgspec import Raw

from ..front import Call, Front
from ..outcome import Failure
from . import frames
from .asking import Moves
from .frames import Frame, Id
from .sender import of_era

_log = logging.getLogger("mcp_envelope")

_SEARCHES: Final = ("query", "grep")

# What is left to do, and gives what is to be sent then.
Work = Callable[[], Moves]


class Readings:
    def __init__(self, front: Front) -> None:
        self._front = front
        self._turn = threading.Lock()
        self._lock = threading.Lock()
        # Those that are done beside, by the ids of their requests.
        self._beside: list[Id] = []

    def page(
        self, frame: Frame, arguments: Mapping[str, Raw], call: Call, modern: bool, sure: bool
    ) -> bytes | None:
        """The answer to `envelope_read`. None if the handle is unknown and it is not `sure` to be meant for us."""
        given = {name: frames.value_of(value) for name, value in arguments.items()}
        with self._turn if any(map(given.get, _SEARCHES)) else nullcontext():
            sealed = self._front.read(given, call)
        if not sure and sealed.problem is not None and sealed.problem.code == "HANDLE_UNKNOWN":
            return None
        return frames.response(frame.identifier, of_era(sealed.to_json(), modern))

    def resource(self, frame: Frame, uri: str, owner: str | None, modern: bool) -> bytes:
        from ..vault.resources import resource

        try:
            found = resource(self._front.vault, uri, owner)
        except Failure as failure:
            problem = failure.problem
            words = f"{problem.code}: {problem.message} {problem.hint}"
            return frames.failure(frame.identifier, -32602, words)
        return frames.response(frame.identifier, of_era(found, modern))

    # -- beside everything else -----------------------------------------------------------------------------

    def beside(self, key: Id, read: Callable[[], bytes | None], otherwise: Work, frame: Frame) -> Work:
        """A reading that is left to do. What it gives is an answer, or None and then what is done `otherwise`."""
        with self._lock:
            self._beside.append(key)
        return partial(self._done, key, read, otherwise, frame)

    def _done(self, key: Id, read: Callable[[], bytes | None], otherwise: Work, frame: Frame) -> Moves:
        try:
            answer = read()
            if not self.forget(key):
                return Moves([], [])
            return otherwise() if answer is None else Moves([answer], [])
        except Exception:
            _log.exception("mcp-envelope: a request passes as it is")
            self.forget(key)
            return Moves([], [frame.data])

    def forget(self, key: Id) -> bool:
        """It was cancelled, or is done; False if there is none, or no more."""
        with self._lock:
            if key not in self._beside:
                return False
            self._beside.remove(key)
            return True
