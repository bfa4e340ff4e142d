"""The server behind the proxy, when it speaks HTTP: requests go there, and what comes back is frames again.

Strategy: a request carries exactly the headers that it is given, nothing of the library's own, and nothing is
remembered from one caller's answer for another's request. A reply is one JSON body, a stream of events, or
something else that is none of our business. Bodies and events are gathered in room that all requests share, so
that many large ones at a time wait for each other instead of filling the memory.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import httpx2
import msgspec
from anyio import CapacityLimiter, to_thread

from . import frames, sse
from .asking import Moves
from .room import Room

# The most bytes of one body or event that are taken.
MOST: Final = 512 << 20
# A smaller frame is looked at on the spot; a larger one by another thread, so that nobody waits for it.
_ON_THE_SPOT: Final = 1 << 10
# Frames of this size keep a core busy: only so many at a time.
_LARGE: Final = 1 << 20
_LARGE_AT_ONCE: Final = 2
# Servers close a connection that was idle for five seconds, often; one that is about to go is not used.
_IDLE: Final = 3.0
_OF_A_LANE: Final = 32
_TIMEOUT: Final = httpx2.Timeout(30.0, read=None, pool=None)
_REDIRECTS: Final = 5
# Headers that speak of one hop, or that are set anew for the next.
_OF_ONE_HOP: Final = frozenset(
    (
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te"),
        *("trailer", "trailers", "transfer-encoding", "upgrade", "host", "content-length", "expect"),
    )
)
_CODINGS: Final = ("gzip", "deflate", "identity")
Headers = list[tuple[str, str]]


def passed(headers: Iterable[tuple[str, str]]) -> Headers:
    """The headers that go on to the other side."""
    pairs = list(headers)
    named = {
        part.strip().lower()
        for name, value in pairs
        if name.lower() == "connection"
        for part in value.split(",")
    }
    return [
        (name, value)
        for name, value in pairs
        if name.lower() not in _OF_ONE_HOP and name.lower() not in named
    ]


def headers_of(response: httpx2.Response) -> Headers:
    """As they came: the library would guess what they are written in."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers.raw]


def readable(headers: Headers) -> Headers:
    """The same, but only with content codings asked for that we can undo."""
    kept: Headers = []
    for name, value in headers:
        if name.lower() == "accept-encoding":
            parts = [part.strip() for part in value.split(",")]
            value = ", ".join(part for part in parts if part.partition(";")[0].strip().lower() in _CODINGS)
        kept.append((name, value or "identity") if name.lower() == "accept-encoding" else (name, value))
    return kept


@cache
def _secure() -> ssl.SSLContext:
    """Made once: it reads many certificates."""
    return httpx2.create_ssl_context()


class _Lane:
    """Some of the connections. For each request the library looks through all that it has: so it has few."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.client = client
        self.busy = 0
        self._since = 0.0

    @property
    def is_idle(self) -> bool:
        return not self.busy and time.monotonic() - self._since > _IDLE

    def release(self) -> None:
        self.busy -= 1
        self._since = time.monotonic()


class Upstream:
    """One server. `headers` are sent in place of the caller's of the same names; `cookies` are for one caller."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None, *, cookies: bool = False) -> None:
        self.url = url
        self.headers = dict(headers or {})
        self._cookies = cookies
        self._jar = CookieJar(None if cookies else DefaultCookiePolicy(allowed_domains=[]))
        self._lanes = [self._lane()]
        self.room = Room()
        self._large: CapacityLimiter | None = None

    def _lane(self) -> _Lane:
        limits = httpx2.Limits(
            max_connections=None, max_keepalive_connections=_OF_A_LANE, keepalive_expiry=_IDLE
        )
        return _Lane(httpx2.AsyncClient(limits=limits, cookies=self._jar, verify=_secure()))

    async def _take_lane(self) -> _Lane:
        lane = next((lane for lane in self._lanes if lane.busy < _OF_A_LANE), None)
        if lane is None:
            lane = self._lane()
            self._lanes.append(lane)
        lane.busy += 1
        if len(self._lanes) > 1 and self._lanes[-1].is_idle:
            await self._lanes.pop().client.aclose()
        return lane

    async def aclose(self) -> None:
        for lane in self._lanes:
            await lane.client.aclose()

    @asynccontextmanager
    async def send(
        self, method: str, url: str, headers: Headers, body: bytes = b"", *, follow: bool = False
    ) -> AsyncIterator[httpx2.Response]:
        """The reply. Who says `follow` is led to other addresses of the same server, and to no other server."""
        own = {name.lower() for name in self.headers}
        sent = [*[pair for pair in headers if pair[0].lower() not in own], *self.headers.items()]
        lane = await self._take_lane()
        try:
            for left in reversed(range(_REDIRECTS)):
                request = httpx2.Request(
                    method,
                    url,
                    headers=[(name.encode("latin-1"), value.encode("latin-1")) for name, value in sent],
                    content=body or None,
                    cookies=self._jar if self._cookies else None,
                    extensions={"timeout": _TIMEOUT.as_dict()},
                )
                if method == "POST" and not body:
                    request.headers["content-length"] = "0"
                response = await lane.client.send(request, stream=True)
                try:
                    target = _redirected(response) if follow and left else None
                    if target is None:
                        yield response
                        return
                    await whole(response)
                    url = target
                finally:
                    await response.aclose()
        finally:
            lane.release()

    async def ask(
        self, url: str, headers: Headers, request: bytes, *, follow: bool = False
    ) -> tuple[bytes, httpx2.Headers] | None:
        """The answer to a request of our own, and its headers; None if there is none."""
        try:
            async with self.send("POST", url, headers, request, follow=follow) as response:
                if is_stream(response):
                    async with aclosing(self.events(response)) as events:
                        async for event in events:
                            if event.data and _answers(event.data, request):
                                return event.data, response.headers
                elif is_json(response):
                    async with self.body(response) as body:
                        return (body, response.headers) if _answers(body, request) else None
        except (httpx2.HTTPError, sse.TooLong):
            pass
        return None

    async def look(self, look: Callable[..., Moves], frame: bytes, *more: Any) -> Moves:
        """What the interceptor makes of a frame. It may have to store or to read something: not here, then."""
        if len(frame) <= _ON_THE_SPOT and b"envelope" not in frame:
            return look(frame, *more)
        if len(frame) < _LARGE:
            return await to_thread.run_sync(look, frame, *more)
        if self._large is None:
            self._large = CapacityLimiter(_LARGE_AT_ONCE)
        return await to_thread.run_sync(look, frame, *more, limiter=self._large)

    @asynccontextmanager
    async def body(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        """The body in one piece, which has its room until the block ends."""
        parts: list[bytes] = []
        with self.room.place() as place:
            async for chunk in response.aiter_bytes():
                parts.append(chunk)
                await place.grow(len(chunk))
                if place.size > MOST:
                    raise sse.TooLong(f"the reply has more than {MOST} bytes")
            gathered = parts[0] if len(parts) == 1 else b"".join(parts)
            parts.clear()
            yield gathered

    async def events(self, response: httpx2.Response) -> AsyncGenerator[sse.Event, None]:
        """Event by event. What follows the last blank line is the last one."""
        splitter = sse.Splitter(MOST)
        with self.room.place() as place:
            async for chunk in response.aiter_bytes():
                for event in splitter.feed(chunk):
                    yield event
                await place.settle(splitter.size)
            if rest := splitter.rest():
                yield sse.read(rest)._replace(is_whole=False)


async def whole(response: httpx2.Response, most: int = 1 << 20) -> bytes:
    """A small body; nothing of one that is not."""
    parts: list[bytes] = []
    async for chunk in response.aiter_bytes():
        parts.append(chunk)
        if sum(map(len, parts)) > most:
            return b""
    return b"".join(parts)


def media_type(response: httpx2.Response) -> str:
    value: str = response.headers.get("content-type", "")
    return value.partition(";")[0].strip().lower()


def is_stream(response: httpx2.Response) -> bool:
    return media_type(response) == "text/event-stream" and _is_readable(response)


def is_json(response: httpx2.Response) -> bool:
    return media_type(response) == "application/json" and _is_readable(response)


def _is_readable(response: httpx2.Response) -> bool:
    codings = response.headers.get("content-encoding", "identity").split(",")
    return all(coding.strip().lower() in _CODINGS for coding in codings)


def _answers(data: bytes, request: bytes) -> bool:
    frame = frames.read(data)
    if frame is None or not frame.is_response:
        return False
    return frame.key == frames.id_key(bytes(msgspec.json.decode(request, type=_Asked).id))


class _Asked(msgspec.Struct):
    id: msgspec.Raw


def no_answer(request: bytes) -> bytes:
    """What to take for the answer to a request of our own that has none."""
    return frames.failure(msgspec.json.decode(request, type=_Asked).id, -32603, "no answer")


def relative(address: str) -> str:
    split = urlsplit(address)
    return urlunsplit(("", "", split.path, split.query, ""))


def origin(url: str) -> tuple[str, str, int]:
    split = urlsplit(url)
    return split.scheme, split.hostname or "", split.port or {"https": 443}.get(split.scheme, 80)


def _redirected(response: httpx2.Response) -> str | None:
    """Where a reply sends us, if we go there: to the same server, with the same method."""
    if response.status_code not in (301, 302, 303, 307, 308) or "location" not in response.headers:
        return None
    if response.request.method != "GET" and response.status_code not in (307, 308):
        return None
    here = response.request.url
    there = str(here.join(response.headers["location"]))
    scheme, host, port = origin(there)
    old = origin(str(here))
    upgraded = old == ("http", host, 80) and (scheme, port) == ("https", 443)
    return there if (scheme, host, port) == old or upgraded else None
