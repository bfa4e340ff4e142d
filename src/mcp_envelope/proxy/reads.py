"""Requests that the proxy answers itself: `envelope_read`, and stored results read as resources.

Strategy: a read needs the vault and nothing of the conversation, and it may take a while if it searches a large
result. So the transport may run it in the background; one that is cancelled meanwhile gets no response. Searches
have time limits, so those of a conversation take turns: two at once would share the time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Raw

from ..gateway import Call, Gateway
from . import frames
from .frames import Frame, Id, Outgoing

if TYPE_CHECKING:
    from .interceptor import Sender

_log = logging.getLogger("mcp_envelope")

_SEARCHES: Final = ("query", "grep")

# Something left to do, which returns what is to be sent then.
Work = Callable[[], Outgoing]


class Reads:
    """The reads of one conversation."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._searching = threading.Lock()
        self._lock = threading.Lock()
        # The ids of requests that are read in the background.
        self._running: list[Id] = []

    def page(
        self, frame: Frame, arguments: Mapping[str, Raw], call: Call, sender: Sender, is_ours: bool
    ) -> bytes | None:
        """The response to `envelope_read`; None if the handle is unknown and the call may not be ours."""
        given = {name: frames.value_of(value) for name, value in arguments.items()}
        with self._searching if any(map(given.get, _SEARCHES)) else nullcontext():
            sealed = self._gateway.read(given, call)
        if not is_ours and sealed.problem is not None and sealed.problem.code == "HANDLE_UNKNOWN":
            return None
        return frames.response(frame.identifier, sender.own_result(sealed.to_json()))

    def resource(
        self, frame: Frame, uri: str, owner: str | None, sender: Sender, is_ours: bool
    ) -> bytes | None:
        """The response to a stored result that is read; None if it is unknown and may not be ours."""
        found, problem = self._gateway.resource(uri, owner)
        if problem:
            if not is_ours and problem.startswith("HANDLE_UNKNOWN"):
                return None
            return frames.failure(frame.identifier, frames.INVALID_PARAMS, problem)
        return frames.response(frame.identifier, sender.own_result(found))

    def answer(
        self, frame: Frame, read: Callable[[], bytes | None], otherwise: Work, later: list[Work] | None
    ) -> Outgoing:
        """Answer a request with what `read` returns, or do what is done `otherwise`; now, or `later`."""
        key = frame.key
        assert key is not None
        with self._lock:
            self._running.append(key)
        work = partial(self._run, key, read, otherwise, frame)
        if later is None:
            return work()
        later.append(work)
        return Outgoing([], [])

    def _run(self, key: Id, read: Callable[[], bytes | None], otherwise: Work, frame: Frame) -> Outgoing:
        try:
            answer = read()
            if not self.cancel(key):
                return Outgoing([], [])
            return otherwise() if answer is None else Outgoing([answer], [])
        except Exception:
            _log.exception("mcp-envelope: internal error; the request is forwarded unchanged")
            self.cancel(key)
            return Outgoing([], [frame.data])

    def cancel(self, key: Id) -> bool:
        """Forget a read that is cancelled or done; False if there is none."""
        with self._lock:
            if key not in self._running:
                return False
            self._running.remove(key)
            return True
