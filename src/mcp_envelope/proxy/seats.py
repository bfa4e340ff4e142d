"""A process that several conversations share: each has a seat at it.

Strategy: there is one process for each kind of client (its version of the protocol and its capabilities), so that
the server knows what it may ask of whoever calls. Frames for a seat wait in a line of its own, because a client
that is slow must not hold up the others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Mapping
from typing import Final

from msgspec import UNSET

from ..jsontext.document import encode
from . import frames
from .launcher import Command, Launcher, Link, Listener
from .sharing import Sharing

_log = logging.getLogger("mcp_envelope")

# How many bytes may wait for one client.
_MOST_WAITING: Final = 64 << 20


class Seat:
    """A conversation at a process that it shares with others."""

    def __init__(self, servers: SharedServers, server: str, listener: Listener) -> None:
        self._servers = servers
        self._server = server
        self._shared: _Shared | None = None
        self.listener = listener
        self._frames: deque[bytes] = deque()
        self._size = 0
        self._task: asyncio.Task[None] | None = None

    def send(self, frame: bytes) -> None:
        if self._shared is None:
            # The handshake comes first.
            self._shared = self._servers.find(self._server, frame)
        self._shared.send(self, frame)

    async def drain(self) -> None:
        if self._shared is not None:
            await self._shared.link.drain()

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._shared is not None:
            self._shared.leave(self)

    def put(self, frame: bytes) -> None:
        """Deliver a frame in its turn. Nobody waits for a client that is slow: it loses what exceeds its share."""
        if self._size > _MOST_WAITING:
            _log.warning(
                "mcp-envelope: a client does not take what a shared server sends; a message is dropped"
            )
            return
        self._frames.append(frame)
        self._size += len(frame)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._deliver())

    async def _deliver(self) -> None:
        while self._frames:
            frame = self._frames.popleft()
            self._size -= len(frame)
            await self.listener.received(frame)
        self._task = None


class _Shared:
    """A process, and the conversations at it."""

    def __init__(self, launcher: Launcher, command: Command) -> None:
        self.link = Link(launcher, command, Listener(self._received, self._lost, self._failed))
        self.sharing: Sharing[Seat] = Sharing()

    def send(self, seat: Seat, frame: bytes) -> None:
        back, onward = self.sharing.from_client(seat, frame)
        for each in onward:
            self.link.send(each)
        for each in back:
            seat.put(each)

    def leave(self, seat: Seat) -> None:
        told = self.sharing.leave(seat)
        for each in told if self.link.is_running else ():
            self.link.send(each)

    async def _received(self, data: bytes) -> None:
        to_clients, to_server = self.sharing.from_server(data)
        for seat, frame in to_clients:
            seat.put(frame)
        for frame in to_server:
            self.link.send(frame)

    async def _lost(self, words: str, code: str) -> None:
        self.sharing.lost()
        for seat in list(self.sharing.clients):
            await seat.listener.lost(words, code)

    async def _failed(self, data: bytes, words: str, code: str) -> None:
        for seat, frame in self.sharing.withdrawn(data):
            await seat.listener.failed(frame, words, code)


class SharedServers:
    """The shared processes of these servers."""

    def __init__(self, launcher: Launcher, commands: Mapping[str, Command]) -> None:
        self._launcher = launcher
        self._commands = commands
        self._by_kind: dict[tuple[str, bytes], _Shared] = {}

    def connect(self, server: str, listener: Listener) -> Seat:
        return Seat(self, server, listener)

    def find(self, server: str, handshake: bytes) -> _Shared:
        params = frames.members_of(UNSET if (frame := frames.read(handshake)) is None else frame.params)
        told = {name: value for name, value in params.items() if name not in ("clientInfo", "_meta")}
        kind = server, encode(told)
        if kind not in self._by_kind:
            self._by_kind[kind] = _Shared(self._launcher, self._commands[server])
        return self._by_kind[kind]

    async def sweep(self, idle: float) -> None:
        """End the processes at which nobody has been for so long."""
        for kind, shared in list(self._by_kind.items()):
            if not shared.sharing.clients and time.monotonic() - shared.link.used > idle:
                del self._by_kind[kind]
                await shared.link.aclose()

    async def aclose(self) -> None:
        await asyncio.gather(*(shared.link.aclose() for shared in self._by_kind.values()))
