"""Carries frames between one client and its servers, on an event loop.

Strategy: a `Route` decides, without any I/O, what each frame becomes and where it goes; here it is carried there.
A frame that may have to be cut or stored is worked on in another thread, in its turn: from one server, frames
come in their order, and a server whose frames the client does not take is not read any further. Reads from the
vault take as long as they take, a few at a time. A request of the proxy's own that nobody answers is given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from .frames import Outgoing
from .interceptor import Interceptor
from .reads import Work
from .supervisor import ServerCallbacks

# A smaller frame is worked on right here: it is within any budget, and another thread would cost more.
_INLINE: Final = 1 << 12
# Seconds to wait for the response to a request of our own.
_PATIENCE: Final = 10.0
_MOST_READS: Final = 16


class RoutedFrames(NamedTuple):
    """Frames to be sent, in order, those for a server with its name; before that, connections to be closed."""

    to_client: list[bytes]
    to_servers: list[tuple[str, bytes]]
    closed: list[str] = []  # noqa: RUF012


class Route(Protocol):
    """Where frames go. `from_client` adds slow work to `later`; the others are told of which server.

    `patience` is for how many seconds a request of the route's own may stay without a response, if it is one;
    `headers` are those that repeat arguments of a tool, as far as that is known.
    """

    @property
    def expects_answers(self) -> bool: ...
    def from_client(self, data: bytes, owner: str | None, later: list[Work]) -> RoutedFrames: ...
    def done(self, work: Work) -> RoutedFrames: ...
    def from_server(self, server: str, data: bytes) -> RoutedFrames: ...
    def lost(self, server: str, words: str, code: str) -> RoutedFrames: ...
    def failed(self, server: str, data: bytes, words: str, code: str) -> RoutedFrames: ...
    def patience(self, server: str, data: bytes) -> float | None: ...
    def unanswered(self, server: str, data: bytes) -> RoutedFrames: ...
    def headers(self, tool: str) -> Mapping[tuple[str, ...], str]: ...


class Connection(Protocol):
    """A server as a relay sees it: a process of its own, or a share of one."""

    def send(self, frame: bytes) -> None: ...
    async def drain(self) -> None: ...
    async def aclose(self) -> None: ...


Connect = Callable[[str, ServerCallbacks], Connection]
ToClient = Callable[[list[bytes]], Awaitable[None]]


class Relay:
    """`connect` returns the connection to a server, which is made when something is sent there."""

    def __init__(self, route: Route, connect: Connect, to_client: ToClient) -> None:
        self.route = route
        self.to_client = to_client
        self._connect = connect
        self._connections: dict[str, Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._reads = asyncio.Semaphore(_MOST_READS)

    async def from_client(self, data: bytes, owner: str | None = None) -> None:
        later: list[Work] = []
        await self._carry(await _worked(data, partial(self.route.from_client, data, owner, later)))
        for work in later:
            self._spawn(self._read(work))

    async def drain(self) -> None:
        """Wait until the servers have taken most of what they were sent."""
        for connection in list(self._connections.values()):
            await connection.drain()

    async def aclose(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        closing = [asyncio.ensure_future(each.aclose()) for each in self._connections.values()]
        if closing:
            await asyncio.wait(closing)

    def _connection(self, server: str) -> Connection:
        found = self._connections.get(server)
        if found is None:
            callbacks = ServerCallbacks(
                partial(self._from_server, server), partial(self._lost, server), partial(self._failed, server)
            )
            found = self._connections[server] = self._connect(server, callbacks)
        return found

    async def _carry(self, routed: RoutedFrames) -> None:
        for server in routed.closed:
            if (connection := self._connections.pop(server, None)) is not None:
                self._spawn(connection.aclose())
        for server, frame in routed.to_servers:
            if (patience := self.route.patience(server, frame)) is not None:
                self._spawn(self._watch(server, frame, patience))
            self._connection(server).send(frame)
        if routed.to_client:
            await self.to_client(routed.to_client)

    async def _from_server(self, server: str, data: bytes) -> None:
        await self._carry(await _worked(data, partial(self.route.from_server, server, data)))

    async def _lost(self, server: str, words: str, code: str) -> None:
        await self._carry(self.route.lost(server, words, code))

    async def _failed(self, server: str, data: bytes, words: str, code: str) -> None:
        await self._carry(self.route.failed(server, data, words, code))

    async def _read(self, work: Work) -> None:
        async with self._reads:
            await self._carry(await asyncio.to_thread(self.route.done, work))

    async def _watch(self, server: str, data: bytes, patience: float) -> None:
        await asyncio.sleep(patience)
        await self._carry(self.route.unanswered(server, data))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _worked(data: bytes, work: Callable[[], RoutedFrames]) -> RoutedFrames:
    if len(data) <= _INLINE:
        return work()
    return await asyncio.to_thread(work)


class SingleRoute:
    """The route to the only server there is."""

    def __init__(self, interceptor: Interceptor) -> None:
        self.interceptor = interceptor

    @property
    def expects_answers(self) -> bool:
        return self.interceptor.expects_answers

    def from_client(self, data: bytes, owner: str | None, later: list[Work]) -> RoutedFrames:
        return _routed(self.interceptor.from_client(data, owner, later))

    def done(self, work: Work) -> RoutedFrames:
        return _routed(work())

    def from_server(self, server: str, data: bytes) -> RoutedFrames:
        return _routed(self.interceptor.from_line(data))

    def lost(self, server: str, words: str, code: str) -> RoutedFrames:
        return RoutedFrames(self.interceptor.lost(words, code), [])

    def failed(self, server: str, data: bytes, words: str, code: str) -> RoutedFrames:
        if self.interceptor.list_requests.owns(data):
            return _routed(self.interceptor.list_requests.finish())
        failure = self.interceptor.failed(data, words, code)
        return RoutedFrames([] if failure is None else [failure], [])

    def patience(self, server: str, data: bytes) -> float | None:
        return _PATIENCE if self.interceptor.list_requests.owns(data) else None

    def unanswered(self, server: str, data: bytes) -> RoutedFrames:
        return _routed(self.interceptor.list_requests.unanswered(data))

    def headers(self, tool: str) -> Mapping[tuple[str, ...], str]:
        return self.interceptor.tools.headers(tool)


def _routed(outgoing: Outgoing) -> RoutedFrames:
    return RoutedFrames(outgoing.to_client, [("", frame) for frame in outgoing.to_server])
