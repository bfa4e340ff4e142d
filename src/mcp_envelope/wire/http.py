"""HTTP in front of HTTP: a reverse proxy that looks into tool results and nothing else.

Strategy: each request is an exchange of its own, and nothing that another replica would need is kept in this one.
Pages of other sites may not reach us, whatever name they gave our address. A client that goes away takes its
request along. `/health` and `/metrics` are ours; every other path is the server's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from ..front import Front
from . import frames
from .answer import Answer, Send
from .callers import Callers
from .exchange import Exchange
from .metrics import Metrics
from .older import Older
from .upstream import Upstream

LARGEST_REQUEST: Final = 64 << 20
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_METHODS: Final = ("GET", "POST", "DELETE", "OPTIONS", "HEAD", "PUT", "PATCH")
Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]


class HttpProxy:
    """The ASGI application. `hosts` are names by which it may be called, besides those of loopback.

    Unless it `is_open`, it may be called by no others. Pages may call it from these hosts alone in any case.
    """

    def __init__(
        self,
        front: Front,
        url: str,
        *,
        headers: dict[str, str] | None = None,
        hosts: tuple[str, ...] = (),
        is_open: bool = False,
        observe: bool = False,
    ) -> None:
        self.front = front
        self.upstream = Upstream(url, headers)
        self.observe = observe
        self.callers = Callers(front)
        self.older = Older(self.upstream)
        self.metrics = Metrics()
        front.observers.append(self.metrics.noted)
        self._hosts = (*_LOOPBACK, *map(str.lower, hosts))
        self._is_open = is_open
        self._listening: set[anyio.CancelScope] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            request = Request(scope, receive)
            own = self._refusal(request) or self._own_page(request)
            if own is not None:
                await own(scope, receive, send)
            else:
                await self._serve(request, receive, Answer(send))

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._loop = asyncio.get_running_loop()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.upstream.aclose()
                self.front.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def leave(self) -> None:
        """The end is near: streams that merely listen are over, so that nobody waits for them.

        May be called from anywhere, a signal's handler included.
        """
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._hush)

    def _hush(self) -> None:
        for scope in list(self._listening):
            scope.cancel()

    @contextmanager
    def listening(self, merely: bool) -> Iterator[None]:
        with anyio.CancelScope() as scope:
            if merely:
                self._listening.add(scope)
            try:
                yield
            finally:
                self._listening.discard(scope)

    def _refusal(self, request: Request) -> Response | None:
        host = urlsplit(f"//{request.headers.get('host', '')}").hostname
        if not self._is_open and host not in self._hosts:
            return PlainTextResponse("Invalid Host header", 421)
        origin = request.headers.get("origin")
        if origin is not None and _hostname(origin) not in self._hosts:
            return PlainTextResponse("Invalid Origin header", 403)
        return None

    def _own_page(self, request: Request) -> Response | None:
        if request.method not in ("GET", "HEAD"):
            return None
        if request.url.path == "/health":
            return JSONResponse({"status": "ok"})
        if request.url.path == "/metrics":
            return PlainTextResponse(self.metrics.text(), media_type="text/plain; version=0.0.4")
        return None

    # -- a request ------------------------------------------------------------------------------------------

    async def _serve(self, request: Request, receive: Receive, answer: Answer) -> None:
        self.metrics.in_flight += 1
        try:
            body = await _body(request)
            if body is None:
                said = "The request is larger than the proxy takes."
                await answer.json(413, frames.failure(frames.NULL, -32600, said))
            else:
                await self._exchange(request, receive, body, answer)
        except ClientDisconnect:
            pass
        finally:
            self.metrics.in_flight -= 1
            method = request.method if request.method in _METHODS else "other"
            # Without a status: the client went before there was one.
            labels = f'method="{method}",status="{answer.status or "none"}"'
            self.metrics.add("mcp_envelope_requests_total", labels)

    async def _exchange(self, request: Request, receive: Receive, body: bytes, answer: Answer) -> None:
        async with anyio.create_task_group() as group:

            async def watch() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                # Nobody waits for the answer any more: the request to the server goes, too.
                group.cancel_scope.cancel()

            group.start_soon(watch)
            await Exchange(self, request, body, answer).run()
            group.cancel_scope.cancel()


async def _body(request: Request) -> bytes | None:
    """The body; None if it is too large."""
    said = request.headers.get("content-length", "")
    if said.isdigit() and int(said) > LARGEST_REQUEST:
        return None
    parts: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        parts.append(chunk)
        size += len(chunk)
        if size > LARGEST_REQUEST:
            return None
    return b"".join(parts)


def _hostname(origin: str) -> str | None:
    try:
        return urlsplit(origin).hostname
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    return host in _LOOPBACK or host.startswith("127.")
