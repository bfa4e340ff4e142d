"""The server behind the proxy, when it speaks HTTP: frames go there, and what comes back is frames again.

Strategy: a reply is one JSON body, a stream of events, or something else that is none of our business. The proxy's
own requests (a list that it needs itself) go the same way with the caller's headers, so that whoever may list
tools may do so through us. The transport is httpx2, which the SDK brings along.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2
import msgspec
from anyio import to_thread

from . import sse
from .interceptor import Interceptor, Moves

# The most bytes of one body or event that are taken.
MOST: Final = 512 << 20
# A smaller frame is looked at on the spot; a larger one by another thread, so that nobody waits for it.
_ON_THE_SPOT: Final = 1 << 15
_ACCEPT: Final = "application/json, text/event-stream"
# Headers that speak of one hop, or that the library sets itself.
_NOT_PASSED: Final = frozenset(
    {
        *(
            "connection",
            "keep-alive",
            "proxy-authenticate",
            "proxy-authorization",
            "te",
            "trailer",
            "trailers",
        ),
        *(
            "transfer-encoding",
            "upgrade",
            "host",
            "content-length",
            "accept-encoding",
            "content-encoding",
            "expect",
        ),
    }
)


def passed(headers: Mapping[str, str] | list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The headers that go on to the other side."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(name, value) for name, value in pairs if name.lower() not in _NOT_PASSED]


def make_client() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        timeout=httpx2.Timeout(30.0, read=None, pool=None),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=256),
        follow_redirects=True,
    )


async def looked_at(look: Any, frame: bytes, *more: Any) -> Moves:
    """What the interceptor makes of a frame."""
    if len(frame) <= _ON_THE_SPOT:
        return look(frame, *more)  # type: ignore[no-any-return]
    return await to_thread.run_sync(look, frame, *more)


class Upstream:
    """One server. `headers` are sent besides those of the caller."""

    def __init__(
        self, client: httpx2.AsyncClient, url: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self.client = client
        self.url = url
        self.headers = dict(headers or {})

    @asynccontextmanager
    async def post(
        self, frame: bytes, headers: list[tuple[str, str]], url: str | None = None
    ) -> AsyncIterator[httpx2.Response]:
        sent = [*headers, *self.headers.items()]
        async with self.client.stream("POST", url or self.url, content=frame, headers=sent) as response:
            yield response

    async def settle(
        self, interceptor: Interceptor, moves: Moves, headers: list[tuple[str, str]], url: str | None = None
    ) -> Moves:
        """Ask whatever the interceptor wants to know itself, until what is left concerns the caller."""
        while own := [frame for frame in moves.to_server if interceptor.owns(frame)]:
            answers = list(moves.to_client)
            onward = [frame for frame in moves.to_server if frame not in own]
            for frame in own:
                for reply in await self.ask(frame, headers, url):
                    more = await looked_at(interceptor.from_server, reply)
                    answers += more.to_client
                    onward += more.to_server
            moves = Moves(answers, onward)
        return moves

    async def ask(self, frame: bytes, headers: list[tuple[str, str]], url: str | None = None) -> list[bytes]:
        """The answer to a request of our own; an error in its place if there is none."""
        kept = [(name, value) for name, value in headers if not name.lower().startswith("mcp-param-")]
        named = {"mcp-method": "tools/list", "content-type": "application/json", "accept": _ACCEPT}
        kept = [(name, value) for name, value in kept if name.lower() not in (*named, "mcp-name")]
        if not any(name.lower() == "mcp-method" for name, _ in headers):
            # The era before does not know the header.
            named.pop("mcp-method")
        try:
            async with self.post(frame, [*kept, *named.items()], url) as response:
                return [data async for data in frames_of(response)] or [_nothing(frame)]
        except httpx2.HTTPError:
            return [_nothing(frame)]


async def frames_of(response: httpx2.Response) -> AsyncIterator[bytes]:
    """Every frame of a reply."""
    if is_stream(response):
        splitter = sse.Splitter(MOST)
        async for chunk in response.aiter_bytes():
            for event in splitter.feed(chunk):
                if event.data:
                    yield event.data
    elif body := await whole(response):
        yield body


async def whole(response: httpx2.Response) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for chunk in response.aiter_bytes():
        parts.append(chunk)
        size += len(chunk)
        if size > MOST:
            raise sse.TooLong(f"the reply has more than {MOST} bytes")
    return b"".join(parts)


def is_stream(response: httpx2.Response) -> bool:
    return response.headers.get("content-type", "").lower().startswith("text/event-stream")


def is_json(response: httpx2.Response) -> bool:
    return response.headers.get("content-type", "").lower().startswith("application/json")


class _Asked(msgspec.Struct):
    id: msgspec.Raw


def _nothing(frame: bytes) -> bytes:
    identifier = bytes(msgspec.json.decode(frame, type=_Asked).id)
    return b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32603,"message":"no answer"}}' % identifier
