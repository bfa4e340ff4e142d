"""The HTTP server: uvicorn, with the limits that it leaves to others.

Strategy: uvicorn and httptools parse what strangers send, and the application never sees a request that they
refuse. uvicorn limits neither how long nor how large the head of a request may be, waits forever for the rest of
a body, refuses requests beyond its limit of connections but keeps the connections, loses the body of a request
that offers an upgrade to HTTP/2, as Java's client does, and forgets the running request of a connection that breaks
while another one is queued behind it. Its protocol class is extended here by just that.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from types import FrameType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..gateway import Gateway
from .http import GONE
from .interceptor import Interceptor

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from .http import Application

_log = logging.getLogger("mcp_envelope")

# How many bytes the head of a request may have beyond those of its first read.
_LARGEST_HEAD: Final = 1 << 16
# How long a head may take, and how long nothing may come of a body, in seconds.
_HEAD_TIME: Final = 60.0
_SILENCE: Final = 60.0
# How long a body may take, in seconds, and how many bytes earn it one more.
_BODY_TIME: Final = 60.0
_LEAST_RATE: Final = 1 << 15
# How much of a refused request's body is read and dropped, so that the client gets to see the refusal.
_MOST_DISCARDED: Final = 1 << 24
MOST_CONNECTIONS: Final = 4096
# How many open files to ask for where there is no limit.
_FILES: Final = 1 << 16


class _HeadWithBody:
    """A transport that sends the head of a response together with the body, if that follows at once.

    uvicorn writes them one after the other, which costs 20 µs more per request and wakes the client twice.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/1.1 "):
            self._head = data
            self._loop.call_soon(self._flush)
            return
        self._transport.write(data)

    def _flush(self) -> None:
        if self._head and not self.is_closing():
            self._transport.write(self._head)
        self._head = b""

    def close(self) -> None:
        self._flush()
        self._transport.close()


class HttpProtocol(HttpToolsProtocol):
    """One client's connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._is_in_head = False
        self._is_in_body = False
        self._head_size = 0
        self._body_size = 0
        # When the head of the body ended, on the loop's clock.
        self._body_since = 0.0
        self._deadline: asyncio.TimerHandle | None = None
        self._unfinished: list[RequestResponseCycle] = []
        self._gone: asyncio.Future[None] = self.loop.create_future()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.transport = cast(asyncio.Transport, _HeadWithBody(transport, self.loop))
        self._set_deadline(_HEAD_TIME)
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            self._refuse(503, "The proxy has too many connections.")

    def connection_lost(self, exc: Exception | None) -> None:
        self._clear_deadline()
        self._gone.set_result(None)
        super().connection_lost(exc)
        for cycle in self._unfinished:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    def data_received(self, data: bytes) -> None:
        was_in_head, was_in_body, before = self._is_in_head, self._is_in_body, self.cycle
        try:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                self._decline_upgrade()
                self.parser.feed_data(memoryview(data)[offer.args[0] :])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            _log.warning("mcp-envelope: invalid HTTP request: %s", error)
            self._refuse(400, "Invalid HTTP request received.")
            return
        if self._is_in_head and was_in_head:
            self._head_size += len(data)
            if self._head_size > _LARGEST_HEAD:
                self._refuse(431, "The head of the request is too large.")
            return
        if not (self._is_in_head or was_in_head or was_in_body) and self.cycle is before:
            # Line ends between two requests: the connection is as idle as it was.
            return
        self._unset_keepalive_if_required()
        self._clear_deadline()
        if self._is_in_head:
            self._set_deadline(_HEAD_TIME)
        elif self._is_in_body:
            left = self._body_since + _BODY_TIME + self._body_size / _LEAST_RATE - self.loop.time()
            self._set_deadline(min(_SILENCE, left))

    # -- parser callbacks -----------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        super().on_message_begin()
        cast(Any, self.scope)["extensions"] = {GONE: self._gone}
        self._is_in_head, self._head_size = True, 0

    def on_headers_complete(self) -> None:
        self._is_in_head, self._is_in_body = False, True
        self._body_size, self._body_since = 0, self.loop.time()
        super().on_headers_complete()
        self._unfinished = [cycle for cycle in self._unfinished if not cycle.response_complete]
        self._unfinished.append(self.cycle)

    def on_body(self, body: bytes) -> None:
        if self._is_in_body:
            self._body_size += len(body)
            super().on_body(body)
            if self.cycle.response_complete and self._body_size > _MOST_DISCARDED:
                self.transport.close()

    def on_message_complete(self) -> None:
        if self._is_in_body and not self.parser.should_upgrade():
            self._is_in_body = False
            super().on_message_complete()

    def _decline_upgrade(self) -> None:
        """Read the body after all, which the parser took for another protocol, and close after the response."""
        self.cycle.keep_alive = False
        callbacks = SimpleNamespace(on_body=self.on_body, on_message_complete=self.on_message_complete)
        self.parser = httptools.HttpRequestParser(callbacks)
        framing = (b"content-length", b"transfer-encoding")
        lines = [b"%b: %b\r\n" % header for header in self.headers if header[0] in framing]
        self.parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(lines))

    # -- limits ---------------------------------------------------------------------------------------------

    def _set_deadline(self, seconds: float) -> None:
        self._deadline = self.loop.call_later(seconds, self._time_is_up)

    def _time_is_up(self) -> None:
        if self.flow.read_paused:
            # It is we who do not read on.
            self._body_since = self.loop.time()
            self._set_deadline(_SILENCE)
        else:
            self._refuse(408, "The rest of the request did not arrive in time.")

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, status: int, words: str) -> None:
        """End the connection; say why, unless that would become part of another response."""
        if not any(cycle.response_started and not cycle.response_complete for cycle in self._unfinished):
            head = (
                f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
                f"content-length: {len(words)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write((head + words).encode())
        self.transport.close()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, leave: Callable[[], None]) -> None:
        super().__init__(config)
        self._leave = leave

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._leave()
        super().handle_exit(sig, frame)


def _raise_file_limit() -> None:
    """Each call takes two connections, and each of them a file."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _FILES if most == resource.RLIM_INFINITY else most
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, in a process that may have as many connections as the system allows."""
    _raise_file_limit()
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(2048)
    except OSError:
        listening.close()
        raise
    return listening


def _preload(gateway: Gateway) -> None:
    """Load whatever it takes to report a failure, by reporting one that is discarded.

    Once too many files are open, nothing more can be loaded.
    """
    silent = Gateway(gateway.settings, vault="none", ledger=False, dialect=gateway.dialect)
    silent.observers.append(lambda call: None)
    interceptor = Interceptor(silent)
    call = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"","arguments":{}}}'
    interceptor.from_client(call)
    interceptor.failed(call, "", "UPSTREAM_UNAVAILABLE")
    gateway.keeping(None)


def serve(app: Application, listening: socket.socket, connections: int = MOST_CONNECTIONS) -> bool:
    """Serve until a signal ends it; whether it could be started."""
    _preload(app.gateway)
    config = uvicorn.Config(
        cast(Any, app),
        http=HttpProtocol,
        lifespan="on",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=5,
        # uvicorn counts the connection that asks.
        limit_concurrency=connections + 1,
        # The headers of the server behind are passed on.
        server_header=False,
        date_header=False,
        ws="none",
        proxy_headers=False,
    )
    server = _Server(config, app.leave)
    server.run([listening])
    return server.started
