"""Server processes that several clients share.

Strategy: there is one process for each kind of client (its version of the protocol and its capabilities), so that
the server knows what it may ask of whoever calls. Each client has a queue of its own, because one that is slow
must not hold up the others.
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
from .multiplexer import Multiplexer
from .supervisor import Command, ServerCallbacks, SupervisedServer, Supervisor

_log = logging.getLogger("mcp_envelope")

# How many bytes may wait for one client, and with how many more notifications are dropped.
_MOST_WAITING: Final = 64 << 20
_MOST_NEWS: Final = 16 << 20
_SLOW: Final = "a client does not take what a shared server sends"
_DROPPED: Final = "The answer was dropped: the client took too little of what came before. Call again."


class SharedConnection:
    """One client's connection to a process that it shares with others."""

    def __init__(self, servers: SharedServers, server: str, callbacks: ServerCallbacks) -> None:
        self._servers = servers
        self._server = server
        self._shared: _SharedServer | None = None
        self.callbacks = callbacks
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
        """Deliver a frame in its turn. Nobody waits for a client that is slow.

        If much waits, notifications are dropped; if very much, an answer becomes a failure, so that its call ends.
        """
        if self._size > _MOST_NEWS and (read := frames.read(frame)) is not None:
            if read.key is None:
                _log.warning("mcp-envelope: %s; a notification is dropped", _SLOW)
                return
            if read.is_response and self._size > _MOST_WAITING:
                _log.warning("mcp-envelope: %s; an answer is dropped", _SLOW)
                frame = frames.failure(read.identifier, frames.INTERNAL_ERROR, _DROPPED)
        self._frames.append(frame)
        self._size += len(frame)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._deliver())

    async def _deliver(self) -> None:
        while self._frames:
            frame = self._frames.popleft()
            self._size -= len(frame)
            await self.callbacks.received(frame)
        self._task = None


class _SharedServer:
    """A process and its clients."""

    def __init__(self, supervisor: Supervisor, command: Command) -> None:
        self.link = SupervisedServer(
            supervisor, command, ServerCallbacks(self._received, self._lost, self._failed)
        )
        self.multiplexer: Multiplexer[SharedConnection] = Multiplexer()

    def send(self, connection: SharedConnection, frame: bytes) -> None:
        back, onward = self.multiplexer.from_client(connection, frame)
        for each in onward:
            self.link.send(each)
        for each in back:
            connection.put(each)

    def leave(self, connection: SharedConnection) -> None:
        told = self.multiplexer.leave(connection)
        for each in told if self.link.is_running else ():
            self.link.send(each)

    async def _received(self, data: bytes) -> None:
        to_clients, to_server = self.multiplexer.from_server(data)
        for connection, frame in to_clients:
            connection.put(frame)
        for frame in to_server:
            self.link.send(frame)

    async def _lost(self, words: str, code: str) -> None:
        self.multiplexer.lost()
        for connection in list(self.multiplexer.clients):
            await connection.callbacks.lost(words, code)

    async def _failed(self, data: bytes, words: str, code: str) -> None:
        for connection, frame in self.multiplexer.withdrawn(data):
            await connection.callbacks.failed(frame, words, code)


class SharedServers:
    """The shared processes of these servers, one for each kind of client."""

    def __init__(self, supervisor: Supervisor, commands: Mapping[str, Command]) -> None:
        self._supervisor = supervisor
        self._commands = commands
        self._by_kind: dict[tuple[str, bytes], _SharedServer] = {}

    def connect(self, server: str, callbacks: ServerCallbacks) -> SharedConnection:
        return SharedConnection(self, server, callbacks)

    def find(self, server: str, handshake: bytes) -> _SharedServer:
        params = frames.members_of(UNSET if (frame := frames.read(handshake)) is None else frame.params)
        told = {name: value for name, value in params.items() if name not in ("clientInfo", "_meta")}
        kind = server, encode(told)
        if kind not in self._by_kind:
            self._by_kind[kind] = _SharedServer(self._supervisor, self._commands[server])
        return self._by_kind[kind]

    async def sweep(self, idle: float) -> None:
        """End the processes at which nobody has been for so long."""
        for kind, shared in list(self._by_kind.items()):
            if not shared.multiplexer.clients and time.monotonic() - shared.link.used > idle:
                del self._by_kind[kind]
                await shared.link.aclose()

    async def aclose(self) -> None:
        await asyncio.gather(*(shared.link.aclose() for shared in self._by_kind.values()))
