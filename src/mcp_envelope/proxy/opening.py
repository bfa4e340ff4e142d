"""How a conversation began, so that it can begin again with a fresh process; without any I/O.

Strategy: what a client tells its server once is remembered as it passes: the handshake, the level of logging,
subscriptions. A fresh process is told the same under ids of ours, whose responses nobody else sees, and what the
client says meanwhile waits until the server has taken the handshake.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from msgspec import UnsetType

from . import frames
from .frames import Frame, text_of

_INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'


class Opening:
    def __init__(self) -> None:
        self._initialize: bytes | None = None
        self._initialized = _INITIALIZED
        self._level: bytes | None = None
        self._subscribed: dict[str, bytes] = {}
        self._prefix = f"mcp-envelope-{os.urandom(8).hex()}-"
        self._number = 0
        # The id of a repeated handshake that is under way.
        self._awaited = ""

    @property
    def is_under_way(self) -> bool:
        return bool(self._awaited)

    def note(self, data: bytes) -> None:
        """Take note of what is sent to the server."""
        frame = frames.read(data)
        if frame is None or isinstance(frame.method, UnsetType):
            return
        if frame.method == "initialize":
            self._initialize, self._level = data, None
            self._subscribed.clear()
        elif frame.method == "notifications/initialized":
            self._initialized = data
        elif frame.method == "logging/setLevel":
            self._level = data
        elif frame.method == "resources/subscribe":
            self._subscribed[text_of(frame.param("uri")) or ""] = data
        elif frame.method == "resources/unsubscribe":
            self._subscribed.pop(text_of(frame.param("uri")) or "", None)

    def again(self) -> list[bytes]:
        """The handshake for a fresh process; nothing if there was none. `answered` gets the response."""
        self._awaited = ""
        if self._initialize is None:
            return []
        again = self._own(self._initialize)
        self._awaited = f"{self._prefix}{self._number}"
        return [again]

    def answered(self, frame: Frame) -> Sequence[bytes] | None:
        """What the server is told next, if this is a response to a request of ours."""
        kind, name = frame.key or ("", "")
        if kind != "s" or not name.startswith(self._prefix) or not frame.is_response:
            return None
        if name != self._awaited:
            return ()
        self._awaited = ""
        repeated = ([] if self._level is None else [self._level]) + list(self._subscribed.values())
        return [self._initialized, *map(self._own, repeated)]

    def may_answer(self, data: bytes) -> bool:
        """Whether a frame from the server has to be looked at."""
        return self._prefix.encode() in data[:400] or self._prefix.encode() in data[-400:]

    def _own(self, request: bytes) -> bytes:
        self._number += 1
        return frames.replaced(request, {"id": b'"%b%d"' % (self._prefix.encode(), self._number)})
