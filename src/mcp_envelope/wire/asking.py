"""Lists of tools that the proxy asks for itself, and what waits for them.

Strategy: a result that came before any list, or a call whose `tokenBudget` may be meant for us or for the tool,
waits until the tools are known. One list is under way at a time, page by page, under ids that no client has;
whatever comes of it, nobody waits longer than it takes. Answers to these requests never reach the client.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from msgspec import Raw, UnsetType

from ..jsontree import encode
from .catalogue import Catalogue
from .frames import Frame, Id

_MOST_PAGES: Final = 1000
# So many may wait before whoever reads from the client should stop for a while.
_CROWD: Final = 100


class Moves(NamedTuple):
    """What is to be sent on, in order."""

    to_client: list[bytes]
    to_server: list[bytes]

    def __add__(self, other: Moves) -> Moves:  # type: ignore[override]
        return Moves(self.to_client + other.to_client, self.to_server + other.to_server)


class Waiting(NamedTuple):
    # What goes on once the tools are known, or as good as they ever will be.
    then: Callable[[], Moves]
    # The request that was not sent yet: its id as a key and as it is spelled. None for a result.
    key: Id | None = None
    identifier: bytes = b""


class Asking:
    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._lock = threading.Lock()
        self._waiting: list[Waiting] = []
        self._prefix = f"mcp-envelope-{os.urandom(8).hex()}-"
        self._asked = 0
        self._pages = 0
        self._cursor: str | None = None
        self._meta: bytes | None = None
        # Whether the server leaves such questions unanswered.
        self._is_futile = False

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def is_crowded(self) -> bool:
        return len(self._waiting) >= _CROWD

    @property
    def holds_requests(self) -> bool:
        """Whether something that the client sent was not sent on yet."""
        return any(each.key is not None for each in list(self._waiting))

    def wait(self, waiting: Waiting, meta: bytes | None) -> Moves:
        """Do something once the tools are known; the list is asked for unless one is under way."""
        with self._lock:
            if not self._is_futile:
                self._waiting.append(waiting)
                if len(self._waiting) > 1:
                    return Moves([], [])
                self._meta, self._pages = meta, 0
                return Moves([], [self._request(None)])
        return waiting.then()

    def forget(self, key: Id) -> bool:
        """The client cancelled a request; True if it had not been sent on yet."""
        with self._lock:
            kept = [each for each in self._waiting if each.key != key]
            found = len(kept) < len(self._waiting)
            # The list is under way, so somebody has to wait for it.
            self._waiting = kept or ([Waiting(lambda: Moves([], []))] if found else [])
            return found

    def owns(self, key: Id | None) -> bool:
        return key is not None and key[0] == "s" and key[1].startswith(self._prefix)

    def is_request(self, frame: bytes) -> bool:
        return self._prefix.encode() in frame[:200]

    def answered(self, frame: Frame) -> Moves:
        """The answer to a request of ours: the next page is asked for, or whoever waited goes on."""
        if frame.key != ("s", f"{self._prefix}{self._asked}"):
            # Somebody answers twice.
            return Moves([], [])
        if not isinstance(frame.result, UnsetType):
            self._catalogue.learn(frame.result, self._pages == 1)
            cursor = self._catalogue.cursor(frame.result)
            # The empty text may mean a next page, or none: whoever says it twice means none.
            if cursor is not None and cursor != self._cursor and self._pages < _MOST_PAGES:
                return Moves([], [self._request(cursor)])
            self._catalogue.complete = self._catalogue.seen
        elif b"-32601" in bytes(_raw(frame.error)):
            # A server that knows no lists promises nothing.
            self._catalogue.complete = True
        return self.finish()

    def unanswered(self, request: bytes) -> Moves:
        """A question of ours waited long enough. If it still does, nobody waits on, and it is not asked again."""
        with self._lock:
            if not self._waiting or f'"{self._prefix}{self._asked}"'.encode() not in request[:200]:
                return Moves([], [])
            self._is_futile = True
        return self.finish()

    def finish(self) -> Moves:
        """Nobody waits any longer."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
            self._asked += 1
        moves = Moves([], [])
        for each in waiting:
            moves += each.then()
        return moves

    def given_up(self) -> list[Waiting]:
        """Requests that were never sent on; they wait no longer."""
        with self._lock:
            unsent = [each for each in self._waiting if each.key is not None]
            self._waiting = [each for each in self._waiting if each.key is None]
        return unsent

    def _request(self, cursor: str | None) -> bytes:
        self._asked += 1
        self._pages += 1
        self._cursor = cursor
        params: dict[str, Any] = {} if cursor is None else {"cursor": cursor}
        if self._meta is not None:
            # The stateless era says with each request who asks; the call that waits has said so.
            params["_meta"] = Raw(self._meta)
        message: dict[str, Any] = {
            "jsonrpc": "2.0",
            "id": f"{self._prefix}{self._asked}",
            "method": "tools/list",
        }
        return encode({**message, "params": params} if params else message)


def _raw(part: Raw | UnsetType) -> Raw:
    return Raw(b"") if isinstance(part, UnsetType) else part
