"""What goes back to the client of an HTTP request, and whether it has begun."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from .upstream import Headers

Send = Callable[[Any], Awaitable[None]]


class Answer:
    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self.is_done = False
        # In the oldest transport what answers one request is written into the answer of another.
        self._lock = anyio.Lock()

    async def begin(self, status: int, headers: Headers) -> None:
        self.status = status
        raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})

    async def more(self, body: bytes) -> None:
        """Returns when the client has taken most of it: whoever writes waits for whoever reads."""
        async with self._lock:
            if not self.is_done:
                await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def end(self, body: bytes = b"") -> None:
        async with self._lock:
            if not self.is_done:
                self.is_done = True
                await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def whole(self, status: int, headers: Headers, body: bytes, media_type: str | None = None) -> None:
        typed = [] if media_type is None else [("content-type", media_type)]
        await self.begin(status, [*headers, *typed, ("content-length", str(len(body)))])
        await self.end(body)

    async def json(self, status: int, body: bytes) -> None:
        await self.whole(status, [], body, "application/json")
