"""The connections of clients: bytes in, requests out.

Strategy: uvicorn listens, heeds signals and ends it all; what a connection speaks it leaves open, and this is ours.
httptools finds the requests; each is gathered whole and then served by a task of its own, one after the other. A
general server hands body, answer and hang-up over in messages, which takes longer than the rest of a small call.
Whoever hangs up takes the task along.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

import httptools

from .answer import Answer
from .response import Headers

if TYPE_CHECKING:
    import uvicorn
    from uvicorn.server import ServerState

    from .http import HttpProxy

_log = logging.getLogger("mcp_envelope")

LARGEST_REQUEST: Final = 64 << 20
_LARGEST_HEAD: Final = 1 << 16
# So many requests, or bytes of them, may wait for their turn. What follows is not read, and no hang-up is noticed.
_MOST_WAITING: Final = 64
_LARGEST_WAITING: Final = 1 << 20
# How long nothing may come of a request that began, in seconds.
_SILENCE: Final = 60.0


class Request:
    """One request. The names of its headers are in small letters; `named` has the first of each name."""

    def __init__(self, method: str, target: str, headers: Headers, is_old: bool = False) -> None:
        self.method = method
        if not target.startswith("/") and "://" in target:
            # As it is said to a proxy.
            split = urlsplit(target)
            target = (split.path or "/") + (f"?{split.query}" if split.query else "")
        self.target = target
        self.path, _, self.query = target.partition("?")
        self.headers = headers
        self.named = dict(reversed(headers))
        self.is_old = is_old
        # None if it is too large.
        self.body: bytes | None = b""


class Door(asyncio.Protocol):
    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._proxy: HttpProxy = config.app  # type: ignore[assignment]
        self._loop = _loop or asyncio.get_running_loop()
        self._state = server_state
        self._timeout = config.timeout_keep_alive
        self._parser: Any = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        # Whether another request may follow.
        self.is_kept = True
        self._is_refused = False
        # The request that is being read.
        self._target = b""
        self._headers: Headers = []
        self._request: Request | None = None
        self._parts: list[bytes] = []
        self._size = 0
        # The bytes of its head, those of its lines in this read, and whether another request ended in this read.
        self._head = 0
        self._in_lines = 0
        self._is_behind = False
        self._is_in_head = False
        self._is_body_to_come = False
        # Whether it has to be told that its body may come, once it is its turn.
        self._is_asked = False
        # Those that came before the last one was answered.
        self._waiting: deque[tuple[Request, bool]] = deque()
        self._held = 0
        self._is_paused = False
        self._task: asyncio.Task[None] | None = None
        self._idle_since = 0.0
        self._heard = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_full = False
        self._drained: asyncio.Future[None] | None = None

    # -- what the transport tells ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._state.connections.add(self)  # type: ignore[arg-type]
        self._rest()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._state.connections.discard(self)
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            # Nobody waits for the answer any more: the request to the server goes, too.
            self._task.cancel()
        elif self._request is not None:
            self._proxy.metrics.request(self._request.method, 0)
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        self._in_lines, self._is_behind = 0, False
        left = memoryview(data)
        while left and not self._is_refused:
            left = self._feed(left)
        if self._is_in_head:
            self._head += self._in_lines if self._is_behind else len(data)
            if self._head > _LARGEST_HEAD:
                self._refuse(431, b"The request has too many headers.")

    def _feed(self, data: memoryview) -> memoryview:
        """What is left for another parser."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            self._stay()
            return data[error.args[0] :]
        except httptools.HttpParserError as error:
            if isinstance(error, httptools.HttpParserInvalidMethodError) and bytes(data[:3]).isalpha():
                self._proxy.metrics.request("other", 501)
                self._refuse(501, b"The proxy does not know this method.")
            else:
                _log.warning("mcp-envelope: a request is not HTTP: %s", error)
                self._refuse(400, b"Invalid HTTP request received.")
        return data[:0]

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    # -- what the parser finds ------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if not self._is_body_to_come:
            self._target, self._headers = b"", []
            self._head, self._in_lines, self._is_in_head = 0, 0, True

    def on_url(self, url: bytes) -> None:
        self._target += url
        self._in_lines += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        # What follows a body says nothing that we would need.
        if self._is_in_head:
            self._in_lines += len(name) + len(value)
            self._headers.append((name.decode("latin-1").lower(), value.decode("latin-1").rstrip(" \t")))

    def on_headers_complete(self) -> None:
        if self._is_body_to_come:
            return
        self._is_in_head = False
        method, is_old = self._parser.get_method().decode("latin-1"), self._parser.get_http_version() == "1.0"
        request = self._request = Request(method, self._target.decode("latin-1"), self._headers, is_old)
        said = request.named.get("content-length", "")
        self._parts, self._size = [], 0
        if said.isdigit() and int(said) > LARGEST_REQUEST:
            request.body = None
            self._take(request)
        elif "expect" in request.named and not is_old:
            self._is_asked = True
            if self._task is None:
                self._encourage()

    def _encourage(self) -> None:
        """Who asked whether to send a body may do so. Within another answer it would be a part of that."""
        if self._is_asked:
            self._is_asked = False
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        request = self._request
        if request is None or request.body is None:
            # It was refused already; what is left of it is not kept.
            return
        self._parts.append(body)
        self._size += len(body)
        if self._size > LARGEST_REQUEST:
            request.body = None
            self._parts.clear()
            self._take(request)

    def on_message_complete(self) -> None:
        request = self._request
        if request is None or (not self._is_body_to_come and self._parser.should_upgrade()):
            return
        self._request, self._is_body_to_come, self._is_asked, self._is_behind = None, False, False, True
        if request.body is not None:
            request.body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            self._parts = []
            self._take(request)
        elif self._task is None:
            self._rest()

    def _stay(self) -> None:
        """Some offer another protocol with every request. We stay, but the parser leaves the body to the other."""
        request = self._request
        self._parser = httptools.HttpRequestParser(self)
        if request is None:
            return
        sizes = ("content-length", "transfer-encoding")
        said = [f"{name}: {request.named[name]}\r\n" for name in sizes if name in request.named]
        self._is_body_to_come = True
        self._feed(memoryview(f"POST / HTTP/1.1\r\n{''.join(said)}\r\n".encode("latin-1")))

    # -- requests -------------------------------------------------------------------------------------------

    def _take(self, request: Request) -> None:
        is_kept = not request.is_old and self._parser.should_keep_alive()
        if self._task is None:
            self._serve(request, is_kept)
        else:
            self._waiting.append((request, is_kept))
            self._held += len(request.body or b"")
            is_much = len(self._waiting) > _MOST_WAITING or self._held > _LARGEST_WAITING
            if is_much and self._transport is not None and not self._is_paused:
                self._is_paused = True
                self._transport.pause_reading()

    def _serve(self, request: Request, is_kept: bool) -> None:
        self.is_kept = self.is_kept and is_kept
        self._task = self._loop.create_task(self._run(request))
        self._state.tasks.add(self._task)
        self._task.add_done_callback(self._state.tasks.discard)

    async def _run(self, request: Request) -> None:
        answer = Answer(self, request.method, request.is_old)
        try:
            await self._proxy.serve(request, answer)
        except asyncio.CancelledError:
            self.is_kept = False
            if self.is_open and not answer.status:
                # It took longer than the end can wait.
                await answer.whole(503, [], b"The proxy ends.", "text/plain; charset=utf-8")
            raise
        except Exception:
            _log.exception("mcp-envelope: a request could not be served")
            self.is_kept = False
            if not answer.status:
                await answer.whole(500, [], b"Internal Server Error", "text/plain; charset=utf-8")
        finally:
            self._task = None
            self.is_kept = self.is_kept and answer.is_done
            self._next()

    def _next(self) -> None:
        self._state.total_requests += 1
        if self._transport is None:
            return
        if not self.is_kept:
            self._transport.close()
            return
        if self._waiting:
            request, is_kept = self._waiting.popleft()
            self._held -= len(request.body or b"")
            self._serve(request, is_kept)
        else:
            self._encourage()
            self._rest()
        if self._is_paused and not self._waiting:
            self._is_paused = False
            self._transport.resume_reading()

    def _refuse(self, status: int, words: bytes) -> None:
        """What cannot be read ends the connection, once what is being answered is."""
        self._request, self._is_refused, self.is_kept = None, True, False
        if self._transport is not None and self._task is None:
            head = f"HTTP/1.1 {status} \r\ncontent-type: text/plain\r\ncontent-length: {len(words)}\r\n"
            self._transport.write(head.encode() + b"connection: close\r\n\r\n" + words)
            self._transport.close()

    # -- time -----------------------------------------------------------------------------------------------

    def _rest(self) -> None:
        """Nothing is asked. One timer is enough: it looks whether something was asked meanwhile."""
        self._idle_since = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout, self._tire)

    def _tire(self) -> None:
        self._timer = None
        if self._transport is None or self._task is not None:
            return
        # Something may be about to be asked.
        is_begun = self._is_in_head or self._request is not None
        until = self._heard + _SILENCE if is_begun else self._idle_since + self._timeout
        left = until - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(min(left, self._timeout), self._tire)
        elif is_begun:
            self._refuse(408, b"The rest of the request did not come.")
        else:
            self._transport.close()

    def shutdown(self) -> None:
        """The end is near: what is asked is answered, and nothing after it."""
        self.is_kept = False
        if self._transport is not None and self._task is None:
            self._transport.close()

    # -- answers --------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if self._transport is not None and data:
            self._transport.write(data)

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def hang_up(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def drained(self) -> None:
        while self._is_full and self._transport is not None:
            self._drained = self._loop.create_future()
            await self._drained
