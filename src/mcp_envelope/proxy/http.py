"""HTTP in front of HTTP, as an ASGI application: a reverse proxy that looks into tool results and nothing else.

Strategy: a request is looked at, sent on with its own headers, and its response relayed as it arrives: a JSON body
as one frame, a stream event by event, anything else byte by byte. What is neither a tool list nor a result over its
budget leaves exactly as it came. Nothing that another replica would need is kept here. If the server fails, a call
gets a coded failure and any other request an error; but a stream that its client can resume just ends, because the
rest can still be had. A client that disconnects cancels its request. Web pages of other sites are refused, whatever
name they gave our address. `/health` and `/metrics` are ours; every other path is the server's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager, nullcontext
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import anyio

from ..clients.known import UNKNOWN
from ..gateway import Gateway
from . import frames, sse
from .authorization import LoginFront, base_of
from .frames import Outgoing
from .headers import (
    EVENT_STREAM,
    JSON,
    LOOPBACK,
    MESSAGE_HEADERS,
    SESSION_HEADER,
    credential,
    decodable,
    end_to_end,
    message_type,
    redirected,
    without_encoding,
)
from .interceptor import Interceptor, Requests
from .legacy_sse import LegacyStreams, is_endpoint
from .memory import OVERDRAFT, Reservation, SharedMemory
from .metrics import Metrics
from .sessions import Sessions
from .streamable_http import request_key
from .upstream import BROKEN, Caller, Headers, Response, Unreadable, Upstream, explained, no_answer

_log = logging.getLogger("mcp_envelope")

LARGEST_REQUEST: Final = 64 << 20
REQUEST_MEMORY: Final = 256 << 20
# Paths that stand for the server's own URL.
_ENTRY_PATHS: Final = ("/", "/mcp")
_TEXT: Final = "text/plain; charset=utf-8"
# The method of a request is near its beginning.
_BEGINNING: Final = 1 << 12
# A large body is sent in pieces of this size, so that we see whether the client takes it.
_PIECE: Final = 1 << 18
_BODILESS: Final = (204, 304)
# What in the scope of a request tells that its connection has ended: a future, as an extension of ASGI's.
GONE: Final = "mcp_envelope.gone"
# Headers that may tell callers apart who share a connection, though strangers may have the same.
_APART: Final = ("cookie", "forwarded", "x-forwarded-for")

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


class Request(NamedTuple):
    """The head of a request. Header names are lower case; `named` has the first value of each."""

    method: str
    # Both as they were sent, percent-encoded.
    path: str
    query: str
    headers: Headers
    named: dict[str, str]
    # Done when the connection that it came on has ended.
    gone: asyncio.Future[None]

    @property
    def target(self) -> str:
        return f"{self.path}?{self.query}" if self.query else self.path


def _request(scope: dict[str, Any]) -> Request:
    headers = [
        (name.decode("latin-1"), value.decode("latin-1").rstrip(" \t")) for name, value in scope["headers"]
    ]
    path, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
    # Under another server than ours, every request is a caller of its own.
    gone = scope.get("extensions", {}).get(GONE) or asyncio.get_running_loop().create_future()
    return Request(scope["method"], path, query, headers, dict(reversed(headers)), gone)


class ResponseWriter:
    """The response to one request. Each method returns once the client has taken most of what came before.

    A response that falls short of its `content-length` is never completed, and the server closes the connection.
    """

    def __init__(self, send: Send, method: str) -> None:
        self._send = send
        self._task = asyncio.current_task()
        self._is_head = method == "HEAD"
        # How many bytes are still to come, if that was announced.
        self._left: int | None = None
        self.status = 0
        self.is_complete = False
        # Whether somebody waits for the response.
        self.is_awaited = True
        # Called whenever the client has taken a piece.
        self.moved: Callable[[], None] | None = None

    async def start(self, status: int, headers: Headers) -> None:
        # uvicorn knows no other status codes.
        self.status = status = status if status < 600 else 502
        raw: list[tuple[bytes, bytes]] = []
        for name, value in headers:
            if name == "content-length":
                if status in _BODILESS:
                    continue
                self._left = 0 if self._is_head else int(value)
            raw.append((name.encode("latin-1"), value.encode("latin-1")))
        await self._send({"type": "http.response.start", "status": status, "headers": raw})

    async def write(self, body: bytes) -> None:
        if len(body) <= _PIECE:
            await self._write(body)
            return
        view = memoryview(body)
        for start in range(0, len(body), _PIECE):
            await self._write(bytes(view[start : start + _PIECE]))
            if self.moved is not None:
                self.moved()

    async def _write(self, body: bytes) -> None:
        if body and not self.is_complete:
            if self._left is not None:
                self._left -= len(body)
            # With the last byte it is complete: the client may send its next request at once.
            is_last = self._left == 0
            await self._send({"type": "http.response.body", "body": body, "more_body": not is_last})
            self.is_complete = is_last

    async def end(self) -> None:
        if not self._left and not self.is_complete:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            self.is_complete = True

    async def send(self, status: int, headers: Headers, body: bytes, media_type: str | None = None) -> None:
        """Send a whole response."""
        typed = [] if media_type is None else [("content-type", media_type)]
        await self.start(status, [*headers, *typed, ("content-length", str(len(body)))])
        if not self._is_head:
            await self.write(body)
        await self.end()

    async def json(self, status: int, body: bytes) -> None:
        await self.send(status, [], body, JSON)

    async def text(self, status: int, words: str) -> None:
        await self.send(status, [], words.encode(), _TEXT)

    def abandon(self, *_: object) -> None:
        """Nobody waits for the response any longer: cancel the request."""
        if self.is_awaited and not self.is_complete and self._task is not None:
            self.is_awaited = False
            self._task.cancel()


class Application:
    """What every HTTP front of ours does: it decides who may call, reads bodies within bounds, counts.

    `hosts` are names that it may be called by, besides those of loopback. If it `is_open`, it may be called by any
    name. Web pages may call it from these hosts alone in any case. Large request bodies have `request_memory` bytes
    in sum.
    """

    def __init__(
        self,
        gateway: Gateway,
        *,
        hosts: tuple[str, ...] = (),
        is_open: bool = False,
        request_memory: int = REQUEST_MEMORY,
    ) -> None:
        self.gateway = gateway
        # Apart from the memory for responses: whoever waits for one could wait for the other.
        self.request_memory = SharedMemory(request_memory // OVERDRAFT)
        self.metrics = Metrics()
        gateway.observers.append(self.metrics.noted)
        self._hosts = (*LOOPBACK, *map(str.lower, hosts))
        self._is_open = is_open
        self._listening: set[anyio.CancelScope] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        assert scope["type"] == "http"
        request = _request(scope)
        writer = ResponseWriter(send, request.method)
        try:
            await self._serve(request, receive, writer)
        except asyncio.CancelledError:
            # The client is gone, and then this goes nowhere; or the proxy is shutting down, or short of memory.
            if not writer.status:
                await writer.text(503, "The proxy cannot wait for the response.")
        except Exception:
            _log.exception("mcp-envelope: a request could not be served")
            if not writer.status:
                await writer.text(500, "Internal Server Error")

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._loop = asyncio.get_running_loop()
                # This loads modules that could not be loaded once too many files are open.
                await anyio.sleep(0)
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.aclose()
                self.gateway.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def answer(self, request: Request, body: bytes, writer: ResponseWriter) -> None:
        """Answer a request that is neither refused nor about the proxy itself."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """The server shuts down: nothing more will be asked."""

    def leave(self) -> None:
        """End the streams that merely listen, so that shutdown need not wait for them.

        May be called from anywhere, a signal handler included.
        """
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop_listening)

    def _stop_listening(self) -> None:
        for scope in list(self._listening):
            scope.cancel()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """A stream that merely listens: it answers no request."""
        with anyio.CancelScope() as scope:
            self._listening.add(scope)
            try:
                yield
            finally:
                self._listening.discard(scope)

    # -- a request ------------------------------------------------------------------------------------------

    async def _serve(self, request: Request, receive: Receive, writer: ResponseWriter) -> None:
        is_read = request.method in ("GET", "HEAD")
        origin = request.named.get("origin")
        said = [name for name, _ in request.headers if name in ("host", "origin")]
        if len(said) > len(set(said)):
            await writer.text(400, "Repeated Host or Origin header")
        elif not self._is_open and _hostname(f"//{request.named.get('host', '')}") not in self._hosts:
            await writer.text(421, "Invalid Host header")
        elif origin is not None and _hostname(origin) not in self._hosts:
            await writer.text(403, "Invalid Origin header")
        elif request.path == "/health" and is_read:
            await writer.json(200, b'{"status":"ok"}')
        elif request.path == "/metrics" and is_read:
            shown = self.metrics.text().encode()
            await writer.send(200, [], shown, "text/plain; version=0.0.4; charset=utf-8")
        else:
            self.metrics.in_flight += 1
            try:
                await self._forward(request, receive, writer)
            finally:
                self.metrics.in_flight -= 1
                self.metrics.request(request.method, writer.status)

    async def _forward(self, request: Request, receive: Receive, writer: ResponseWriter) -> None:
        with self.request_memory.reserve(writer.abandon) as reservation:
            try:
                body = await _body(request, receive, reservation)
            except sse.TooLong:
                words = "The request is larger than the proxy takes."
                await writer.json(413, frames.failure(frames.NULL, -32600, words))
                return
            if body is None:
                return
            watching = asyncio.ensure_future(_disconnected(receive))
            watching.add_done_callback(writer.abandon)
            try:
                await self.answer(request, body, writer)
            finally:
                watching.remove_done_callback(writer.abandon)
                watching.cancel()


class HttpProxy(Application):
    """In front of a server that has a URL. `headers` replace those of the callers."""

    def __init__(
        self,
        gateway: Gateway,
        url: str,
        *,
        headers: dict[str, str] | None = None,
        observe: bool = False,
        **more: Any,
    ) -> None:
        super().__init__(gateway, **more)
        budget = gateway.policy("").budget
        self.upstream = Upstream(url, headers, budget=0 if budget is None else budget.limit)
        self.observe = observe
        self.sessions = Sessions(gateway)
        self.legacy = LegacyStreams(self.upstream)
        self.logins = LoginFront(self.upstream)

    async def answer(self, request: Request, body: bytes, writer: ResponseWriter) -> None:
        about = await self.logins.answer(request.method, request.path, request.query, request.named, body)
        if about is not None:
            await writer.send(*about)
            return
        await Exchange(self, request, body, writer).run()

    async def aclose(self) -> None:
        await self.upstream.aclose()


async def _body(request: Request, receive: Receive, reservation: Reservation) -> bytes | None:
    """The body of a request, held in `reservation`; None if the client has gone away."""
    size = request.named.get("content-length", "")
    parts: list[bytes] = []
    received, is_whole = int(size) if size.isdigit() else 0, False
    while received <= LARGEST_REQUEST and not is_whole:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        is_whole = not message.get("more_body", False)
        await reservation.grow(len(parts[-1]))
        received = reservation.size
    if received > LARGEST_REQUEST:
        raise sse.TooLong(f"a request has more than {LARGEST_REQUEST} bytes")
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@lru_cache(256)
def _hostname(origin: str) -> str | None:
    try:
        return urlsplit(origin).hostname
    except ValueError:
        return None


class Exchange:
    """One request on its way to the server, and the response on its way to the client."""

    def __init__(self, proxy: HttpProxy, request: Request, body: bytes, writer: ResponseWriter) -> None:
        self._proxy = proxy
        self._upstream = proxy.upstream
        self._request = request
        self._method = request.method
        self._body = body
        self._writer = writer
        self._owner = credential(request.named)
        self._session_name = request.named.get(SESSION_HEADER)
        self._caller = Caller(
            (self._owner, self._session_name, *map(request.named.get, _APART)),
            None if self._owner or self._session_name else request.gone,
        )
        self._headers = decodable(end_to_end(request.headers))
        self._url = _address(proxy.upstream.url, proxy.logins.path_of(request.path), request.query)
        # The frames that were sent on, and responses of our own to others of the same batch.
        self._sent: list[bytes] = []
        self._ours: list[bytes] = []
        self._is_batch = False
        self._is_stream = False
        self._is_resumable = False
        # Half an event, with which a stream ended.
        self._tail = b""

    async def run(self) -> None:
        session = self._session = await self._proxy.sessions.find(self._session_name, self._owner)
        self._requests = session.requests if self._session_name else Requests(session.tasks)
        self._interceptor = Interceptor(
            self._proxy.gateway,
            session.tools,
            observe=self._proxy.observe,
            # A stream, or the result of a task, may answer a call that another replica passed on.
            adopts=self._method == "GET" or b'"tasks/' in self._body[:_BEGINNING],
            owner=self._owner,
            requests=self._requests,
        )
        self._interceptor.client = session.client or UNKNOWN
        body: bytes | None = self._body
        if self._method == "POST" and self._body:
            legacy = self._proxy.legacy
            sent = self._body, self._headers, self._owner, self._caller
            if await legacy.post(self._request.target, *sent, self._writer):
                return
            body = await self._outgoing()
            if body is None:
                await self._respond_ourselves()
                return
            if len(self._sent) == 1 and (only := frames.read(self._sent[0])) is not None:
                self._interceptor.answers = request_key(only)
        try:
            response = await self._upstream.request(
                self._method, self._url, self._headers, body or b"", self._caller
            )
            try:
                await self._relay(response)
            finally:
                response.release()
        except BROKEN as error:
            self._proxy.metrics.add("mcp_envelope_upstream_errors_total")
            _log.warning("mcp-envelope: the server behind did not answer: %s", error or type(error).__name__)
            await self._fail(*explained(error))
        except asyncio.CancelledError:
            if self._writer.is_awaited:
                await self._fail("The proxy ended before the server answered.", "UPSTREAM_DIED")
            raise
        finally:
            self._forget()

    # -- to the server --------------------------------------------------------------------------------------

    async def _outgoing(self) -> bytes | None:
        """What to send on; None if nothing is left to send."""
        parts = frames.read_batch(self._body)
        self._is_batch = parts is not None
        for part in [self._body] if parts is None else parts:
            moves = await self._upstream.intercept(self._interceptor.from_client, part, self._owner)
            moves = await self._settled(moves)
            self._ours += moves.to_client
            self._sent += moves.to_server
        if not self._sent:
            return None
        if parts is None:
            return self._sent[0]
        return self._body if self._sent == parts else frames.batch(self._sent)

    async def _respond_ourselves(self) -> None:
        if not self._ours:
            await self._writer.send(202, [], b"")
        else:
            await self._writer.json(200, frames.batch(self._ours) if self._is_batch else self._ours[0])

    async def _settled(self, moves: Outgoing) -> Outgoing:
        """Ask whatever the interceptor wants to know itself, until what is left concerns the client."""
        while own := [frame for frame in moves.to_server if self._interceptor.list_requests.owns(frame)]:
            others = [frame for frame in moves.to_server if frame not in own]
            asked = [await self._own(frame) for frame in own]
            moves = frames.joined([Outgoing(moves.to_client, others), *asked])
        return moves

    async def _own(self, frame: bytes) -> Outgoing:
        """What comes of a request of our own; an error stands in for a response that never came."""
        # With the caller's headers: whether it may list tools is for the server to decide.
        changed = [*MESSAGE_HEADERS]
        if self._request.named.get("mcp-method"):
            changed.append(("mcp-method", "tools/list"))
        dropped = ("mcp-method", "mcp-name", "last-event-id", *(name for name, _ in changed))
        headers = [
            pair for pair in self._headers if pair[0] not in dropped and not pair[0].startswith("mcp-param-")
        ]
        ask = partial(self._upstream.ask, self._url, [*headers, *changed], self._caller, frame)
        # Held until the list is learned from: whoever waits for the same list finds it known.
        async with self._session.lock:
            reply = await self._session.ask_for(self._interceptor.tools, ask)
            return await self._upstream.intercept(self._interceptor.from_server, reply or no_answer(frame))

    # -- to the client --------------------------------------------------------------------------------------

    async def _relay(self, response: Response) -> None:
        await self._remember(response)
        back = end_to_end(response.headers)
        if "location" in response.named:
            back = redirected(back, self._url)
        if response.status in (401, 403) and "www-authenticate" in response.named:
            back = self._proxy.logins.challenged(back, base_of(self._request.named), self._request.path)
        kind = self._kind(response)
        if kind == EVENT_STREAM:
            await self._writer.start(response.status, without_encoding(back))
            self._is_stream = True
            for ours in self._ours:
                await self._writer.write(sse.message(ours))
            with self._proxy.listening() if self._method == "GET" else nullcontext():
                await self._stream(response)
            await self._break_off("The server ended the stream before it answered.", "UPSTREAM_DIED")
        elif self._method == "POST" and (kind == JSON or self._is_refused_call(response)):
            await self._relay_body(response, back, kind)
        elif self._ours and response.is_success:
            await self._respond_ourselves()
        elif self._method == "GET" and kind == JSON and self._proxy.logins.changes(self._request.path):
            with self._reserve() as reservation:
                body = await self._upstream.body(response, reservation)
                shown = await self._proxy.logins.changed(
                    self._request.path, base_of(self._request.named), body
                )
                await self._writer.send(response.status, without_encoding(back), shown)
        else:
            sizes = [pair for pair in response.headers if pair[0] == "content-length"]
            await self._writer.start(response.status, [*back, *sizes])
            async for chunk in response.raw():
                await self._writer.write(chunk)
            await self._writer.end()

    def _kind(self, response: Response) -> str:
        """What the client reads the response as: JSON, a stream of events, or (nothing) not as messages."""
        kind = message_type(response.get("content-type"))
        if (
            kind in ("", JSON)
            and self._method == "GET"
            and response.status == 200
            and self._request.named.get("accept") == EVENT_STREAM
        ):
            # TypeScript's client does not look at the type of what it asked for as a stream.
            kind = EVENT_STREAM
        is_readable = response.is_decodable and kind in (JSON, EVENT_STREAM, "")
        is_ours = self._method == "POST" and (kind or self._is_refused_call(response))
        if not is_readable and (is_ours or EVENT_STREAM in kind) and not self._proxy.observe:
            raise Unreadable("a type or coding of the reply that was not asked for")
        return kind if is_readable else ""

    def _is_refused_call(self, response: Response) -> bool:
        return not response.is_success and any(each.method == "tools/call" for each in self._sent_requests())

    async def _relay_body(self, response: Response, back: Headers, kind: str) -> None:
        """Relay a body in one piece."""
        back = without_encoding(back)
        with self._reserve() as reservation:
            body = await self._upstream.body(response, reservation)
            with reservation.working():
                shown = (await self._incoming(body) if kind == JSON else None) or body
                if (
                    shown is body
                    and (not response.is_success or (kind == JSON and _is_unreadable(body)))
                    and (cut := await self._cut_refusal(response, body))
                ):
                    shown, back = (
                        cut,
                        [*(pair for pair in back if pair[0] != "content-type"), ("content-type", JSON)],
                    )
            if self._ours:
                shown = frames.batch([*self._ours, *(frames.read_batch(shown) or [shown])])
            reservation.hold(len(shown))
            await self._writer.send(response.status, back, shown)

    async def _cut_refusal(self, response: Response, body: bytes) -> bytes | None:
        """What stands for the body of an error status, which clients show as the error; None if it fits.

        The same for JSON that only lenient clients can read.
        """
        call = next((each for each in self._sent_requests() if each.method == "tools/call"), None)
        if call is None:
            return None
        words = f"HTTP {response.status}: {body.decode('utf-8', 'replace')}"
        error = frames.failure(call.identifier, frames.INTERNAL_ERROR, words)
        shown = await self._incoming(error)
        return None if shown is error else shown

    def _reserve(self) -> Reservation:
        """Memory for a response. A client that takes nothing of a large one loses it if others need the memory."""
        reservation = self._upstream.memory.reserve(self._writer.abandon)
        self._writer.moved = reservation.moved
        return reservation

    async def _stream(self, response: Response) -> None:
        reservation = self._reserve()
        async with aclosing(self._upstream.events(response, reservation)) as events:
            async for event in events:
                self._is_resumable = self._is_resumable or bool(event.id)
                if is_endpoint(event) and self._method == "GET":
                    await self._proxy.legacy.relay(event, events, self._interceptor, self._writer, self._url)
                    return
                if not event.is_whole and frames.read(event.data or b"") is None:
                    # Half an event: what follows it, if anything, would become a part of it.
                    self._tail = event.raw
                    continue
                if not event.data:
                    await self._writer.write(event.raw)
                    continue
                with reservation.working():
                    shown = await self._incoming(event.data)
                if shown is not None:
                    await self._writer.write(event.raw if shown is event.data else event.with_data(shown))

    async def _incoming(self, data: bytes) -> bytes | None:
        """What the client gets for a frame or batch from the server: the very same object, if nothing changes."""
        parts = frames.read_batch(data)
        shown: list[bytes] = []
        for part in [data] if parts is None else parts:
            moves = await self._upstream.intercept(self._interceptor.from_server, part)
            shown += (await self._settled(moves)).to_client
        if parts is None:
            return shown[0] if shown else None
        return data if shown == parts else frames.batch(shown)

    # -- the end --------------------------------------------------------------------------------------------

    async def _fail(self, words: str, code: str) -> None:
        if self._writer.status:
            await self._break_off(words, code)
            return
        requests = self._sent_requests()
        is_call = any(frame.method == "tools/call" for frame in requests)
        failures = self._failures(requests, words, code) or [
            frames.failure(frames.NULL, frames.INTERNAL_ERROR, words)
        ]
        body = frames.batch([*self._ours, *failures]) if self._is_batch else failures[0]
        await self._writer.json(200 if is_call and not self._proxy.observe else 502, body)

    async def _break_off(self, words: str, code: str) -> None:
        """End the response. Whoever still waits on a stream gets a failure, unless the stream can be resumed."""
        if self._is_stream:
            is_silent = self._is_resumable or self._proxy.observe
            failures = [] if is_silent else self._failures(self._unanswered(), words, code)
            await self._writer.write(b"".join(map(sse.message, failures)) or self._tail)
        await self._writer.end()

    def _failures(self, requests: list[frames.Frame], words: str, code: str) -> list[bytes]:
        if self._proxy.observe:
            return [frames.failure(frame.identifier, frames.INTERNAL_ERROR, words) for frame in requests]
        failed = [self._interceptor.failed(frame.data, words, code) for frame in requests]
        return [response for response in failed if response is not None]

    def _sent_requests(self) -> list[frames.Frame]:
        """The messages that were sent on and want a response."""
        read = [frames.read(data) for data in self._sent]
        return [frame for frame in read if frame is not None and request_key(frame) is not None]

    def _unanswered(self) -> list[frames.Frame]:
        return [
            frame
            for frame in self._sent_requests()
            if frame.key is not None and self._interceptor.awaits(frame.key)
        ]

    def _forget(self) -> None:
        """Forget what nobody waits for any longer. On a stream that can be resumed, a response may still come."""
        forget = self._requests.cancel if self._is_resumable else self._requests.take
        for frame in self._unanswered() if self._requests else ():
            if frame.key is not None:
                forget(frame.key)

    async def _remember(self, response: Response) -> None:
        given = response.get(SESSION_HEADER)
        if given and given != self._session_name and response.is_success:
            await self._proxy.sessions.start(given, self._owner, self._interceptor.client)
        elif self._session_name and (
            response.status == 404 or (self._method == "DELETE" and response.is_success)
        ):
            self._proxy.sessions.end(self._session_name, self._owner)


def _is_unreadable(body: bytes) -> bool:
    return frames.read(body) is None and frames.read_batch(body) is None


@lru_cache(256)
def _address(url: str, path: str, query: str) -> str:
    """Where a request goes: to the same path at the server, or to the server's own URL if it names our entry."""
    base = urlsplit(url)
    if path in _ENTRY_PATHS or path == base.path:
        path, query = base.path or "/", "&".join(filter(None, (base.query, query)))
    return urlunsplit((base.scheme, base.netloc, path, query, ""))
