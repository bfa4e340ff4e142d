"""Connections to a server over HTTP/1.1, kept while they are warm.

Strategy: httptools (the parser of Node) reads the bytes, a request is written in one piece, and a reply is handed
over as it comes. There is nothing else in between, because a call through the proxy may cost half a millisecond
and a general client takes more than that. Whoever does not take what came makes the server wait. A connection is
used again only if its reply was whole; whatever goes wrong ends it, and nothing is ever sent twice.
"""

from __future__ import annotations

import asyncio
import select
from typing import Any, Final, cast

import httptools

from . import route
from .response import AHEAD, SMALL, Headers, Response
from .route import Address, Unanswered

# Servers close a connection that was idle for five seconds, often; one that is about to go is not used.
_IDLE: Final = 3.0
# How long a server may take none of what is written to it, in seconds.
_PATIENCE: Final = 30.0
_LARGEST_HEAD: Final = 1 << 18


class Connection(asyncio.BufferedProtocol):
    """One connection, with at most one request under way."""

    def __init__(self, pool: Pool, address: Address) -> None:
        self.address = address
        self.since = 0.0
        self.way: route.Way | None = None
        self._pool = pool
        self._parser: Any = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._news: select.poll | None = None
        self._response: Response | None = None
        self._headers: Headers = []
        self._reason = b""
        self._head = 0
        self._ends_with_connection = False
        self._is_kept = False
        self._is_paused = False
        self._slow: asyncio.TimerHandle | None = None

    @property
    def is_usable(self) -> bool:
        """Whether the server has not said anything meanwhile, such as good-bye."""
        transport, news = self._transport, self._news
        return transport is not None and not transport.is_closing() and not (news and news.poll(0))

    def ask(self, response: Response, head: bytes, body: bytes) -> None:
        assert self._transport is not None
        self._response, self._head, self._is_kept = response, 0, False
        if len(body) < SMALL:
            # Together in one packet.
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._transport.write(body)

    def released(self) -> None:
        response, self._response = self._response, None
        if response is not None and response.is_whole and self._is_kept and self._transport is not None:
            self.resume()
            self._pool.put(self)
        else:
            self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def resume(self) -> None:
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()

    # -- what the transport tells ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._news = cast("asyncio.Transport", transport), _news(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._pool.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._received(self._pool.buffer[:nbytes])

    def _received(self, data: memoryview) -> None:
        response = self._response
        if response is None or response.is_whole or response.error is not None:
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail("the server changed the protocol")
        except httptools.HttpParserError as error:
            if not response.is_whole:
                self._fail(f"the reply is not HTTP: {error}")
            self._is_kept = False
        if not response.status:
            self._head += len(data)
            if self._head > _LARGEST_HEAD:
                self._fail("the reply has too many headers")

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._pool.gone(self)
        if self._slow is not None:
            self._slow.cancel()
        response = self._response
        if response is not None and not response.is_whole and response.error is None:
            if response.status and self._ends_with_connection and exc is None:
                response.finish()
            else:
                response.fail(Unanswered("the server ended the connection before it answered"))

    def pause_writing(self) -> None:
        self._slow = asyncio.get_running_loop().call_later(_PATIENCE, self._lose_patience, None)

    def resume_writing(self) -> None:
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None

    def _lose_patience(self, left: int | None) -> None:
        if self._transport is None:
            return
        size = self._transport.get_write_buffer_size()
        if left is not None and size >= left:
            self._fail("the server does not take the request")
        else:
            self._slow = asyncio.get_running_loop().call_later(_PATIENCE, self._lose_patience, size)

    def _fail(self, words: str) -> None:
        if self._response is not None and self._response.error is None:
            self._response.fail(Unanswered(words))
        self.abort()

    # -- what the parser finds ------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._headers, self._reason = [], b""

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._response is not None and self._response.status:
            # What follows a body says nothing that we would need.
            return
        self._headers.append((name.decode("latin-1").lower(), value.decode("latin-1").rstrip(" \t")))

    def on_headers_complete(self) -> None:
        status, response = self._parser.get_status_code(), self._response
        if status < 200 or response is None or response.status:
            return
        response.begin(status, self._reason, self._headers)
        named = response.named
        self._ends_with_connection = "content-length" not in named and "transfer-encoding" not in named
        if response.method == "HEAD":
            # The parser waits for a body that does not come: the connection cannot be used again.
            response.finish()

    def on_body(self, body: bytes) -> None:
        response = self._response
        if response is not None and not response.is_whole and not response.more(body):
            if not self._is_paused and self._transport is not None:
                self._is_paused = True
                self._transport.pause_reading()

    def on_message_complete(self) -> None:
        response = self._response
        if response is not None and response.status and not response.is_whole:
            self._is_kept = self._parser.should_keep_alive()
            response.finish()


class Pool:
    """The connections of one program, to whatever servers."""

    def __init__(self) -> None:
        # In the order in which they became idle; the last one is used first.
        self._idle: dict[Address, dict[Connection, None]] = {}
        self._sweep: asyncio.TimerHandle | None = None
        # What is read, so much at a time, is taken out of it at once: one is enough for all.
        self.buffer = memoryview(bytearray(AHEAD))

    async def send(self, method: str, url: str, headers: Headers, body: bytes) -> Response:
        """The reply, as soon as its head is there. Whoever gets one releases it."""
        address, target = route.address(url)
        connection = self._warm(address)
        if connection is None:
            connection = Connection(self, address)
            connection.way = await route.connect(address, connection)
        way = connection.way
        assert way is not None
        lines = [f"{method} {way.prefix}{target} HTTP/1.1\r\nhost: {address.authority}\r\n{way.header}"]
        lines += [f"{name}: {value}\r\n" for name, value in headers]
        if body or method in ("POST", "PUT", "PATCH"):
            lines.append(f"content-length: {len(body)}\r\n")
        head = "".join(lines)
        response = Response(connection, method, url)
        try:
            if head.count("\n") != len(lines) + 1 + bool(way.header):
                raise Unanswered("a header has more than one line")
            connection.ask(response, f"{head}\r\n".encode("latin-1"), body)
            await response.begun()
        except BaseException:
            connection.abort()
            raise
        return response

    def _warm(self, address: Address) -> Connection | None:
        idle = self._idle.get(address)
        while idle:
            connection, _ = idle.popitem()
            if connection.is_usable and asyncio.get_running_loop().time() - connection.since < _IDLE:
                return connection
            connection.abort()
        return None

    def put(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        connection.since = loop.time()
        self._idle.setdefault(connection.address, {})[connection] = None
        if self._sweep is None:
            self._sweep = loop.call_later(_IDLE, self._swept, loop)

    def _swept(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close what was idle for too long."""
        old = loop.time() - _IDLE
        for idle in self._idle.values():
            for connection in [each for each in idle if each.since <= old]:
                connection.abort()
        left = any(idle for idle in self._idle.values())
        self._sweep = loop.call_later(_IDLE, self._swept, loop) if left else None

    def gone(self, connection: Connection) -> None:
        if (idle := self._idle.get(connection.address)) is not None:
            idle.pop(connection, None)

    async def aclose(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        for idle in list(self._idle.values()):
            for connection in list(idle):
                connection.abort()
        # Those of a TLS connection are told in the next round.
        await asyncio.sleep(0)


def _news(transport: asyncio.BaseTransport) -> select.poll | None:
    """Tells whether something came that was not read yet: from an idle server that is good-bye."""
    found = transport.get_extra_info("socket")
    if found is None or not hasattr(select, "poll"):
        return None
    poll = select.poll()
    poll.register(found.fileno(), select.POLLIN)
    return poll
