"""HTTP in front of HTTP: a reverse proxy that looks into tool results and nothing else.

Strategy: each request is a conversation of its own. What the proxy learns of the tools is shared by all of them and
can be asked for again at any time, so any replica can answer any request; only what an older session needs for
itself (who its client is, calls whose answers come on another stream) is remembered, and nothing is lost if it
is not. Headers go on to the server as they came. A client that goes away takes its request along.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import anyio
import httpx2
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from ..front import Front
from . import frames, sse
from .catalogue import Catalogue
from .interceptor import Interceptor, Moves
from .metrics import Metrics
from .upstream import MOST, Upstream, is_json, is_stream, looked_at, make_client, passed, whole

_log = logging.getLogger("mcp_envelope")
_SESSION: Final = "mcp-session-id"
_SESSIONS: Final = 10_000
_LARGEST_REQUEST: Final = 64 << 20
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[Any], Awaitable[None]]


class HttpProxy:
    """The ASGI application. `hosts` are the names by which it may be called; none: any."""

    def __init__(
        self,
        front: Front,
        url: str,
        *,
        headers: dict[str, str] | None = None,
        hosts: tuple[str, ...] = (),
        observe: bool = False,
    ) -> None:
        self._front = front
        self._upstream = Upstream(make_client(), url, headers)
        self._catalogue = Catalogue(front)
        self._hosts = hosts
        self._observe = observe
        self._sessions: OrderedDict[str, Interceptor] = OrderedDict()
        # Conversations of the older SSE transport, by the address that the server named for them.
        self._endpoints: OrderedDict[str, Interceptor] = OrderedDict()
        self.metrics = Metrics()
        front.observers.append(self.metrics.noted)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        refused = self._refusal(request)
        if refused is not None:
            await refused(scope, receive, send)
            return
        if request.method == "GET" and request.url.path == "/health":
            await JSONResponse({"status": "ok"})(scope, receive, send)
            return
        if request.method == "GET" and request.url.path == "/metrics":
            await PlainTextResponse(self.metrics.text(), media_type="text/plain; version=0.0.4")(
                scope, receive, send
            )
            return
        self.metrics.in_flight += 1
        answer = _Answer(send)
        try:
            await self._serve(request, receive, answer)
        finally:
            self.metrics.in_flight -= 1
            labels = f'method="{request.method}",status="{answer.status}"'
            self.metrics.add("mcp_envelope_requests_total", labels)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self._upstream.client.aclose()
                self._front.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def _refusal(self, request: Request) -> Response | None:
        """Pages of other sites may not reach what listens on loopback, whatever name they gave it."""
        if not self._hosts:
            return None
        if _hostname(request.headers.get("host", "")) not in self._hosts:
            return PlainTextResponse("Invalid Host header", 421)
        origin = request.headers.get("origin")
        if origin and urlsplit(origin).hostname not in self._hosts:
            return PlainTextResponse("Invalid Origin header", 403)
        return None

    # -- a request ------------------------------------------------------------------------------------------

    async def _serve(self, request: Request, receive: Receive, answer: _Answer) -> None:
        try:
            body = await _body(request)
        except ClientDisconnect:
            return
        if body is None:
            await answer.whole(413, [], b"The request is larger than is taken.", "text/plain")
            return
        async with anyio.create_task_group() as group:

            async def watch() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                # Nobody waits for the answer any more: the request to the server goes, too.
                group.cancel_scope.cancel()

            group.start_soon(watch)
            try:
                await self._pass_on(request, body, answer)
            finally:
                group.cancel_scope.cancel()

    async def _pass_on(self, request: Request, body: bytes, answer: _Answer) -> None:
        interceptor = self._conversation(request)
        headers = passed(request.headers.items())
        url = self._address(request)
        owner = request.headers.get("authorization")
        if request.method == "POST" and body:
            moves = await looked_at(interceptor.from_client, body, owner)
            if moves.to_client and moves.to_server:
                # A batch of which some is ours: it goes on as it is, so that one reply answers it.
                moves = Moves([], [body])
            moves = await self._upstream.settle(interceptor, moves, headers, url)
            if moves.to_client:
                await answer.whole(200, [], moves.to_client[0], "application/json")
                return
            body = moves.to_server[0] if moves.to_server else body
        try:
            sent = [*headers, *self._upstream.headers.items()]
            async with self._upstream.client.stream(
                request.method, url, content=body, headers=sent
            ) as response:
                self._remember(request, response, interceptor)
                await self._relay(request, response, interceptor, headers, url, answer)
        except (httpx2.HTTPError, sse.TooLong) as error:
            self.metrics.add("mcp_envelope_upstream_errors_total")
            _log.warning("mcp-envelope: the server behind did not answer: %s", error)
            await self._unanswered(interceptor, answer, error)

    async def _relay(
        self,
        request: Request,
        response: httpx2.Response,
        interceptor: Interceptor,
        headers: list[tuple[str, str]],
        url: str,
        answer: _Answer,
    ) -> None:
        back = passed(response.headers.multi_items())
        if is_stream(response):
            await answer.begin(response.status_code, back)
            async for part in self._events(response, interceptor, headers, url):
                await answer.more(part)
            await answer.end()
        elif is_json(response) and request.method == "POST":
            body = await whole(response)
            moves = await looked_at(interceptor.from_server, body)
            moves = await self._upstream.settle(interceptor, moves, headers, url)
            await answer.whole(response.status_code, back, moves.to_client[0] if moves.to_client else body)
        else:
            await answer.begin(response.status_code, back)
            async for chunk in response.aiter_bytes():
                await answer.more(chunk)
            await answer.end()

    async def _events(
        self, response: httpx2.Response, interceptor: Interceptor, headers: list[tuple[str, str]], url: str
    ) -> AsyncIterator[bytes]:
        splitter = sse.Splitter(MOST)
        async for chunk in response.aiter_bytes():
            for event in splitter.feed(chunk):
                if event.data is None or event.name == b"endpoint":
                    yield self._endpoint(event, interceptor) if event.name == b"endpoint" else event.raw
                    continue
                moves = await looked_at(interceptor.from_server, event.data)
                moves = await self._upstream.settle(interceptor, moves, headers, url)
                if moves.to_client == [event.data]:
                    yield event.raw
                else:
                    for data in moves.to_client:
                        yield event.with_data(data)
        if rest := splitter.rest():
            yield rest

    async def _unanswered(self, interceptor: Interceptor, answer: _Answer, error: Exception) -> None:
        too_long = isinstance(error, sse.TooLong)
        code = "FRAME_TOO_LARGE" if too_long else "UPSTREAM_UNAVAILABLE"
        words = (
            "The server's reply is larger than is taken." if too_long else "The server behind did not answer."
        )
        lost = interceptor.lost(words, code)
        if answer.status and lost:
            await answer.more(sse.message(lost[0]))
            await answer.end()
        elif answer.status:
            await answer.end()
        elif lost:
            await answer.whole(200, [], lost[0], "application/json")
        else:
            said = frames.failure(frames.NULL, -32603, words)
            await answer.whole(502, [], said, "application/json")

    # -- what is remembered ---------------------------------------------------------------------------------

    def _conversation(self, request: Request) -> Interceptor:
        """The conversation that a request belongs to: its own, unless an older transport has longer ones."""
        session = request.headers.get(_SESSION)
        known = self._sessions.get(session) if session else None
        if known is None:
            known = self._endpoints.get(_relative(str(request.url)))
        if known is not None:
            return known
        # A stream may bring the answer to a call that another replica passed on.
        adopts = request.method == "GET"
        return Interceptor(self._front, self._catalogue, observe=self._observe, adopts=adopts)

    def _remember(self, request: Request, response: httpx2.Response, interceptor: Interceptor) -> None:
        session = response.headers.get(_SESSION) or request.headers.get(_SESSION)
        if session:
            _keep(self._sessions, session, interceptor)
            if request.method == "DELETE" and response.is_success:
                self._sessions.pop(session, None)

    def _endpoint(self, event: sse.Event, interceptor: Interceptor) -> bytes:
        """The older transport names the address for messages: they should come to us, on this conversation."""
        address = _relative((event.data or b"").decode("utf-8", "replace"))
        _keep(self._endpoints, address, interceptor)
        return event.with_data(address.encode())

    def _address(self, request: Request) -> str:
        """Where a request goes: the same path at the server, or the server's own if ours was not named."""
        base = urlsplit(self._upstream.url)
        path = request.url.path
        if path in ("/", "/mcp"):
            path = base.path or "/"
        query = request.url.query or base.query
        return urlunsplit((base.scheme, base.netloc, path, query, ""))


class _Answer:
    """What goes back to the client, and whether it has begun."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    async def begin(self, status: int, headers: list[tuple[str, str]]) -> None:
        self.status = status
        raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})

    async def more(self, body: bytes) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def end(self, body: bytes = b"") -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def whole(
        self, status: int, headers: list[tuple[str, str]], body: bytes, media_type: str | None = None
    ) -> None:
        typed = [] if media_type is None else [("content-type", media_type)]
        await self.begin(status, [*headers, *typed, ("content-length", str(len(body)))])
        await self.end(body)


async def _body(request: Request) -> bytes | None:
    parts: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        parts.append(chunk)
        size += len(chunk)
        if size > _LARGEST_REQUEST:
            return None
    return b"".join(parts)


def _keep(where: OrderedDict[str, Interceptor], key: str, interceptor: Interceptor) -> None:
    where[key] = interceptor
    where.move_to_end(key)
    while len(where) > _SESSIONS:
        where.popitem(last=False)


def _relative(address: str) -> str:
    split = urlsplit(address)
    return urlunsplit(("", "", split.path, split.query, ""))


def _hostname(host: str) -> str:
    return urlsplit(f"//{host}").hostname or ""


def allowed_hosts(host: str) -> tuple[str, ...]:
    """The names by which a proxy that listens there may be called; any, if it listens to the world."""
    return (*_LOOPBACK, host) if host in _LOOPBACK else ()
