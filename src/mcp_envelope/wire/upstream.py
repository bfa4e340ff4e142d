"""The server behind the proxy, when it speaks HTTP: requests go there, and what comes back is frames again.

Strategy: a request carries exactly the headers that it is given, nothing of the library's own, and nothing is
remembered from one caller's answer for another's request. A reply is one JSON body, a stream of events, or
something else that is none of our business. Bodies and events are gathered in room that all requests share, so
that many large ones at a time wait for each other instead of filling the memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin, urlsplit, urlunsplit

import msgspec
from anyio import CancelScope, CapacityLimiter, to_thread

from . import frames, route, sse
from .asking import Moves
from .pool import Pool
from .response import Headers, Response
from .room import Place, Room
from .route import Unanswered, Unreachable

if TYPE_CHECKING:
    from .cookies import Cookies

# The most bytes of one body or event that are taken.
MOST: Final = 512 << 20
# A smaller frame is looked at on the spot; a larger one by another thread, so that nobody waits for it. One that is
# within the budget takes microseconds, up to a certain size; one that is not has to be stored.
_ON_THE_SPOT: Final = 1 << 10
_WITHIN_BUDGET: Final = 1 << 13
# Frames of this size keep a core busy: only so many at a time.
_LARGE: Final = 1 << 20
_LARGE_AT_ONCE: Final = 2
_REDIRECTS: Final = 5
# Headers that speak of one hop, or that are set anew for the next.
_OF_ONE_HOP: Final = frozenset(
    (
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te"),
        *("trailer", "trailers", "transfer-encoding", "upgrade", "host", "content-length", "expect"),
    )
)
_CODINGS: Final = ("gzip", "deflate", "identity")
_TWO_SLASHES: Final = ("//", "/\\", "\\/", "\\\\")


def passed(headers: Headers) -> Headers:
    """The headers that go on to the other side. Their names are in small letters."""
    kept = [pair for pair in headers if pair[0] not in _OF_ONE_HOP]
    if len(kept) == len(headers):
        return kept
    said = [value for name, value in headers if name == "connection"]
    named = {part.strip().lower() for value in said for part in value.split(",")}
    return [pair for pair in kept if pair[0] not in named]


def readable(headers: Headers) -> Headers:
    """The same, but only with content codings asked for that we can undo."""
    return [
        (name, _understood(value)) if name == "accept-encoding" else (name, value) for name, value in headers
    ]


@lru_cache(64)
def _understood(accepted: str) -> str:
    parts = [part.strip() for part in accepted.split(",")]
    kept = [part for part in parts if part.partition(";")[0].strip().lower() in _CODINGS]
    return ", ".join(kept) or "identity"


class Upstream:
    """One server. `headers` are sent in place of the caller's of the same names; `cookies` are for one caller.

    `budget` is what most results have: one of fewer bytes is within it, whatever it is counted in.
    """

    def __init__(
        self, url: str, headers: Mapping[str, str] | None = None, *, cookies: bool = False, budget: int = 0
    ) -> None:
        self.url, said = route.credentials(url)
        self.headers = dict(headers or {})
        self._own = {name.lower() for name in self.headers}
        if said is not None and "authorization" not in self._own:
            self.headers["Authorization"] = said
            self._own.add("authorization")
        self._has_cookies = cookies
        self.cookies: Cookies | None = None
        self.pool = Pool()
        self.room = Room()
        self._on_the_spot = max(_ON_THE_SPOT, min(_WITHIN_BUDGET, budget))
        self._large: CapacityLimiter | None = None

    async def aclose(self) -> None:
        await self.pool.aclose()

    async def request(self, method: str, url: str, headers: Headers, body: bytes = b"") -> Response:
        """The reply, which whoever gets it releases."""
        if self._own:
            kept = [pair for pair in headers if pair[0].lower() not in self._own]
            headers = [*kept, *self.headers.items()]
        if self.cookies is not None:
            headers = [*headers, *self.cookies.header(url)]
        response = await self.pool.send(method, url, headers, body)
        if self._has_cookies:
            self.learn(response)
        return response

    @asynccontextmanager
    async def send(
        self, method: str, url: str, headers: Headers, body: bytes = b"", *, follow: bool = False
    ) -> AsyncIterator[Response]:
        """The reply. Who says `follow` is led to other addresses of the same server, and to no other server."""
        for left in reversed(range(_REDIRECTS)):
            response = await self.request(method, url, headers, body)
            try:
                target = _redirected(response) if follow and left else None
                if target is None:
                    yield response
                    return
                await whole(response)
                url = target
            finally:
                response.release()

    def learn(self, response: Response) -> None:
        """Cookies that a reply sets."""
        if "set-cookie" in response.named:
            if self.cookies is None:
                from .cookies import Cookies

                self.cookies = Cookies()
            self.cookies.learn(response.url, response.headers)

    async def ask(self, url: str, headers: Headers, request: bytes, *, follow: bool = False) -> bytes | None:
        """The answer to a request of our own; None if there is none."""
        try:
            async with self.send("POST", url, headers, request, follow=follow) as response:
                if is_stream(response):
                    async with aclosing(self.events(response)) as events:
                        async for event in events:
                            if event.data and _answers(event.data, request):
                                return event.data
                elif is_json(response):
                    with self.room.place() as place:
                        body = await self.body(response, place)
                        return body if _answers(body, request) else None
        except (Unanswered, sse.TooLong):
            pass
        return None

    async def look(self, look: Callable[..., Moves], frame: bytes, *more: Any) -> Moves:
        """What the interceptor makes of a frame. It may have to store or to read something: not here, then."""
        if len(frame) <= self._on_the_spot and b"envelope" not in frame:
            return look(frame, *more)
        if len(frame) < _LARGE:
            return await _beside(None, look, frame, *more)
        if self._large is None:
            self._large = CapacityLimiter(_LARGE_AT_ONCE)
        return await _beside(self._large, look, frame, *more)

    async def body(self, response: Response, place: Place) -> bytes:
        """The body in one piece, which has its place."""
        if (small := response.take()) is not None:
            return small
        parts: list[bytes] = []
        async for chunk in response.chunks():
            parts.append(chunk)
            await place.grow(len(chunk))
            if place.size > MOST:
                raise sse.TooLong(f"the reply has more than {MOST} bytes")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def events(self, response: Response, place: Place | None = None) -> AsyncGenerator[sse.Event, None]:
        """Event by event. What follows the last blank line is the last one."""
        splitter = sse.Splitter(MOST)
        with place or self.room.place() as place:
            async for chunk in response.chunks():
                for event in splitter.feed(chunk):
                    yield event
                await place.settle(splitter.size)
            if rest := splitter.rest():
                yield sse.read(rest)._replace(is_whole=False)


async def _beside(limiter: CapacityLimiter | None, look: Callable[..., Moves], *given: Any) -> Moves:
    """In another thread. Whoever does not want it any more waits nevertheless: until it ends it takes its room."""
    run = asyncio.ensure_future(to_thread.run_sync(look, *given, limiter=limiter))
    try:
        return await asyncio.shield(run)
    except asyncio.CancelledError:
        with CancelScope(shield=True):
            await asyncio.wait([run])
        raise


async def whole(response: Response, most: int = 1 << 20) -> bytes:
    """A small body; nothing of one that is not."""
    parts: list[bytes] = []
    async for chunk in response.chunks():
        parts.append(chunk)
        if sum(map(len, parts)) > most:
            return b""
    return b"".join(parts)


def media_type(response: Response) -> str:
    """What a reply is, if we can read it."""
    if "content-encoding" in response.named and not _is_readable(response):
        return ""
    return response.get("content-type").partition(";")[0].strip().lower()


def is_stream(response: Response) -> bool:
    return media_type(response) == "text/event-stream"


def is_json(response: Response) -> bool:
    return media_type(response) == "application/json"


def _is_readable(response: Response) -> bool:
    codings = response.get("content-encoding", "identity").split(",")
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
    """The same place at whoever passes it on."""
    split = urlsplit(address)
    path = split.path or ("/" if split.netloc else "")
    return urlunsplit(("", "", rooted(path), split.query, ""))


def rooted(target: str) -> str:
    """A path that leads nowhere else: what follows two slashes, or what some take for them, would be a host."""
    return f"/.{target}" if target[:2] in _TWO_SLASHES else target


def origin(url: str) -> tuple[str, str, int]:
    split = urlsplit(url)
    return split.scheme, split.hostname or "", split.port or {"https": 443}.get(split.scheme, 80)


def led(url: str, to: str) -> str | None:
    """Where a server leads us; None if that is no address."""
    try:
        there = urljoin(url, to)
        origin(there)
    except ValueError:
        return None
    return there


def _redirected(response: Response) -> str | None:
    """Where a reply sends us, if we go there: to the same server, with the same method."""
    if not response.is_redirect or (response.method != "GET" and response.status not in (307, 308)):
        return None
    if (there := led(response.url, response.get("location"))) is None:
        return None
    scheme, host, port = origin(there)
    old = origin(response.url)
    upgraded = old == ("http", host, 80) and (scheme, port) == ("https", 443)
    return there if (scheme, host, port) == old or upgraded else None


__all__ = ["Headers", "Response", "Unanswered", "Unreachable", "Upstream"]
