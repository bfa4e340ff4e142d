"""HTTP in front of HTTP: a reverse proxy that looks into tool results and nothing else.

Strategy: each request is an exchange of its own, and nothing that another replica would need is kept in this one.
Pages of other sites may not reach us, whatever name they gave our address. A client that goes away takes its
request along. `/health` and `/metrics` are ours; every other path is the server's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit

import anyio

from ..front import Front
from . import frames
from .answer import Answer
from .callers import Callers
from .door import Request
from .exchange import Exchange
from .metrics import Metrics
from .older import Older
from .upstream import Headers, Upstream

_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_TEXT: Final = "text/plain; charset=utf-8"
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[Any], Awaitable[None]]


class HttpProxy:
    """Serves what comes in at the door. `hosts` are names by which it may be called, besides those of loopback.

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
        budget = front.policy("").budget
        self.upstream = Upstream(url, headers, budget=0 if budget is None else budget.limit)
        self.observe = observe
        self.callers = Callers(front)
        self.older = Older(self.upstream)
        self.metrics = Metrics()
        front.observers.append(self.metrics.noted)
        self._hosts = (*_LOOPBACK, *map(str.lower, hosts))
        self._is_open = is_open
        self._listening: set[anyio.CancelScope] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """The life of the server, as uvicorn tells it; requests come in at the door."""
        assert scope["type"] == "lifespan"
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._loop = asyncio.get_running_loop()
                # What this loads could not be loaded later, if there are too many open files.
                await anyio.sleep(0)
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
    def listening(self) -> Iterator[None]:
        """A stream that merely listens."""
        with anyio.CancelScope() as scope:
            self._listening.add(scope)
            try:
                yield
            finally:
                self._listening.discard(scope)

    # -- a request ------------------------------------------------------------------------------------------

    async def serve(self, request: Request, answer: Answer) -> None:
        if refusal := self._refusal(request):
            await answer.whole(*refusal, _TEXT)
        elif request.method == "CONNECT":
            await answer.whole(501, [], b"The proxy is in front of one server and leads nowhere else.", _TEXT)
        elif request.path == "/health" and request.method in ("GET", "HEAD"):
            await answer.json(200, b'{"status":"ok"}')
        elif request.path == "/metrics" and request.method in ("GET", "HEAD"):
            text = self.metrics.text().encode()
            await answer.whole(200, [], text, "text/plain; version=0.0.4; charset=utf-8")
        else:
            await self._pass(request, answer)

    def _refusal(self, request: Request) -> tuple[int, Headers, bytes] | None:
        if not self._is_open and _named(request.named.get("host", "")) not in self._hosts:
            return 421, [], b"Invalid Host header"
        origin = request.named.get("origin")
        if origin is not None and _hostname(origin) not in self._hosts:
            return 403, [], b"Invalid Origin header"
        return None

    async def _pass(self, request: Request, answer: Answer) -> None:
        self.metrics.in_flight += 1
        try:
            if request.body is None:
                said = "The request is larger than the proxy takes."
                await answer.json(413, frames.failure(frames.NULL, -32600, said))
            else:
                await Exchange(self, request, request.body, answer).run()
        finally:
            self.metrics.in_flight -= 1
            self.metrics.request(request.method, answer.status)


def _named(host: str) -> str | None:
    return _hostname(f"//{host}")


@lru_cache(256)
def _hostname(origin: str) -> str | None:
    try:
        return urlsplit(origin).hostname
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    return host in _LOOPBACK or host.startswith("127.")
