"""The server behind the proxy, over HTTP: requests go out, and what comes back is read as messages.

Strategy: a request carries exactly the headers it is given, and nothing from one caller's reply is remembered for
another's request. A reply is one JSON body, a stream of events, or something else, which is left alone. Bodies
and events share one allowance of memory, so that many large ones wait for each other instead of exhausting it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any, Final, Protocol, cast
from urllib.parse import urlsplit

from anyio import CancelScope, CapacityLimiter, to_thread

from . import frames, sse
from .connections import (
    ANYONE,
    Caller,
    Headers,
    Pool,
    Response,
    Unanswered,
    Unreachable,
    Unreadable,
    basic_auth,
)
from .frames import Outgoing
from .headers import EVENT_STREAM, JSON, message_type, origin, resolve
from .memory import Reservation, SharedMemory

# The most bytes of one body or event.
MOST: Final = 512 << 20
# The errors of a reply that does not arrive whole.
BROKEN: Final = (Unanswered, sse.TooLong)
# A smaller frame is processed right here, a larger one in another thread, so that nobody waits for it. One that is
# within the budget takes microseconds up to a certain size; one that is not has to be stored.
_INLINE: Final = 1 << 10
_INLINE_WITHIN_BUDGET: Final = 1 << 13
# Frames of this size keep a core busy, so few are worked on at a time.
_LARGE: Final = 1 << 20
_LARGE_AT_ONCE: Final = 2
_MAX_REDIRECTS: Final = 4


class UpstreamLogin(Protocol):
    """What a login at the server gives to requests, and what it learns from their replies."""

    async def authorization(self, url: str) -> str | None:
        """The Authorization header of a request to an address; None if there is no token for it."""
        ...

    async def refused(self, url: str, sent: str | None, status: int, header: str) -> bool:
        """Take note of a refusal; returns whether the request may be sent again, with another token."""
        ...

    async def note(self, url: str, status: int, header: str) -> None:
        """Take note of a refusal that is final."""
        ...


class Upstream:
    """One server. `headers` replace the caller's of the same names. `cookies` are kept only for a single caller.

    `budget` is what most results have: fewer bytes than that are within it, whatever its unit. Headers with
    credentials take the place of a `login`.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        cookies: bool = False,
        budget: int = 0,
        login: UpstreamLogin | None = None,
    ) -> None:
        split = urlsplit(url)
        userinfo, at, netloc = split.netloc.rpartition("@")
        self.url = split._replace(netloc=netloc).geturl() if at else url
        self._headers = dict(headers or {})
        self._overridden = {name.lower() for name in self._headers}
        if at and "authorization" not in self._overridden:
            self._headers["Authorization"] = basic_auth(userinfo)
            self._overridden.add("authorization")
        self.login = None if "authorization" in self._overridden else login
        self._keeps_cookies = cookies
        self._cookies: _Cookies | None = None
        self._pool = Pool()
        self.memory = SharedMemory()
        self._inline = max(_INLINE, min(_INLINE_WITHIN_BUDGET, budget))
        self._large: CapacityLimiter | None = None

    async def aclose(self) -> None:
        await self._pool.aclose()

    async def request(
        self, method: str, url: str, headers: Headers, body: bytes = b"", caller: Caller = ANYONE
    ) -> Response:
        """Send a request and return its reply, to be released."""
        if self._overridden:
            kept = [pair for pair in headers if pair[0].lower() not in self._overridden]
            headers = [*kept, *self._headers.items()]
        if self._cookies is not None:
            headers = [*headers, *self._cookies.header(url)]
        if self.login is None:
            response = await self._pool.send(method, url, headers, body, caller)
        else:
            response = await self._send_with_token(self.login, method, url, headers, body, caller)
        if self._keeps_cookies and "set-cookie" in response.named:
            self._cookies = self._cookies or _Cookies()
            self._cookies.learn(response)
        return response

    async def _send_with_token(
        self, login: UpstreamLogin, method: str, url: str, headers: Headers, body: bytes, caller: Caller
    ) -> Response:
        """Send a request with a token, and once more with another one if it was refused and did nothing."""
        is_second = False
        while True:
            token = await login.authorization(url)
            sent = headers if token is None else [*headers, ("authorization", token)]
            response = await self._pool.send(method, url, sent, body, caller)
            if response.status not in (401, 403):
                return response
            challenge = response.get("www-authenticate")
            try:
                if is_second:
                    await login.note(url, response.status, challenge)
                elif await login.refused(url, token, response.status, challenge):
                    is_second = True
                    response.release()
                    continue
            except BaseException:
                response.release()
                raise
            return response

    @asynccontextmanager
    async def send(
        self,
        method: str,
        url: str,
        headers: Headers,
        body: bytes = b"",
        *,
        caller: Caller = ANYONE,
        follow: bool = False,
    ) -> AsyncIterator[Response]:
        """The reply. With `follow`, redirects within the same server are followed."""
        for left in reversed(range(_MAX_REDIRECTS + 1)):
            response = await self.request(method, url, headers, body, caller)
            try:
                target = _redirect_target(response) if follow and left else None
                if target is None:
                    yield response
                    return
                await small_body(response)
                url = target
            finally:
                response.release()

    async def ask(self, url: str, headers: Headers, caller: Caller, request: bytes) -> bytes | None:
        """The answer to a request of the proxy's own; None if there is none."""
        with suppress(*BROKEN):
            async with (
                self.send("POST", url, headers, request, caller=caller) as response,
                aclosing(self.messages(response)) as messages,
            ):
                async for event in messages:
                    if event.data and _answers(event.data, request):
                        return event.data
        return None

    async def intercept(self, handle: Callable[..., Outgoing], frame: bytes, *more: Any) -> Outgoing:
        """Pass a frame to the interceptor, in another thread if it may have to store or read something."""
        if len(frame) <= self._inline and b"envelope" not in frame:
            return handle(frame, *more)
        if len(frame) < _LARGE:
            return await _in_thread(None, handle, frame, *more)
        if self._large is None:
            self._large = CapacityLimiter(_LARGE_AT_ONCE)
        return await _in_thread(self._large, handle, frame, *more)

    async def body(self, response: Response, reservation: Reservation) -> bytes:
        """The body in one piece, held in `reservation`."""
        if (small := response.take()) is not None:
            return small
        parts: list[bytes] = []
        async for chunk in response.chunks():
            parts.append(chunk)
            await reservation.grow(len(chunk))
            if reservation.size > MOST:
                raise sse.TooLong(f"the reply has more than {MOST} bytes")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def messages(self, response: Response) -> AsyncGenerator[sse.Event, None]:
        """The messages of a reply: those of its events, or its body as if it were one."""
        if (kind := readable_type(response)) == EVENT_STREAM:
            async with aclosing(self.events(response)) as events:
                async for event in events:
                    yield event
        elif kind == JSON:
            with self.memory.reserve() as reservation:
                body = await self.body(response, reservation)
                yield sse.Event(body, body)

    async def events(
        self, response: Response, reservation: Reservation | None = None
    ) -> AsyncGenerator[sse.Event, None]:
        """Event by event; what follows the last blank line comes as an event that is not whole."""
        splitter = sse.Splitter(MOST)
        with reservation or self.memory.reserve() as reservation:
            async for chunk in response.chunks():
                for event in splitter.feed(chunk):
                    yield event
                await reservation.settle(splitter.size)
            if rest := splitter.rest():
                yield sse.read(rest)._replace(is_whole=False)


async def _in_thread(
    limiter: CapacityLimiter | None, handle: Callable[..., Outgoing], *given: Any
) -> Outgoing:
    """Run in a thread. A caller that is cancelled still waits for it, as the frame takes memory until it ends."""
    run = asyncio.ensure_future(to_thread.run_sync(handle, *given, limiter=limiter))
    try:
        return await asyncio.shield(run)
    except asyncio.CancelledError:
        with CancelScope(shield=True):
            await asyncio.wait([run])
        raise


class _Cookies:
    """The standard library's cookie jar. It is loaded with the first cookie, since most servers set none."""

    def __init__(self) -> None:
        from http.cookiejar import CookieJar

        self._jar = CookieJar()

    def learn(self, response: Response) -> None:
        from email.message import Message
        from urllib.request import Request

        message = Message()
        for name, value in response.headers:
            message[name] = value
        reply = SimpleNamespace(info=lambda: message)
        self._jar.extract_cookies(cast("Any", reply), Request(response.url))

    def header(self, url: str) -> Headers:
        from urllib.request import Request

        request = Request(url)
        self._jar.add_cookie_header(request)
        value = request.get_header("Cookie")
        return [("cookie", value)] if value else []


# -- replies ------------------------------------------------------------------------------------------------


def readable_type(response: Response) -> str:
    """What a reply is read as: JSON, a stream of events, or (nothing) not as messages."""
    kind = message_type(response.get("content-type"))
    if kind and (kind not in (JSON, EVENT_STREAM) or not response.is_decodable):
        coding = "" if response.is_decodable else f" in {response.get('content-encoding')!r:.80}"
        raise Unreadable(f"the reply is {kind}{coding}")
    return kind


async def small_body(response: Response, most: int = 1 << 20) -> bytes:
    """The body if it is small, else nothing."""
    body = b""
    async for chunk in response.chunks():
        body += chunk
        if len(body) > most:
            return b""
    return body


def _answers(data: bytes, request: bytes) -> bool:
    answer, asked = frames.read(data), frames.read(request)
    return answer is not None and asked is not None and answer.is_response and answer.key == asked.key


def explained(error: Exception) -> tuple[str, str]:
    """What to tell the client about an error, and its code."""
    if isinstance(error, sse.TooLong):
        return "The server's reply is too large.", "FRAME_TOO_LARGE"
    if isinstance(error, Unreadable):
        return "The server's reply is in a form that nobody asked for.", "UPSTREAM_BAD_REPLY"
    if isinstance(error, Unreachable):
        return "The server cannot be reached.", "UPSTREAM_UNAVAILABLE"
    return "The server broke off before it answered.", "UPSTREAM_DIED"


def no_answer(request: bytes) -> bytes:
    """What stands in for the answer to a request of the proxy's own that got none."""
    asked = frames.read(request)
    return frames.failure(
        frames.NULL if asked is None else asked.identifier, frames.INTERNAL_ERROR, "no answer"
    )


def _redirect_target(response: Response) -> str | None:
    """Where to go if a reply redirects: to the same server only, with the same method."""
    if not response.is_redirect or (response.method != "GET" and response.status not in (307, 308)):
        return None
    if (there := resolve(response.url, response.get("location"))) is None:
        return None
    scheme, host, port = origin(there)
    old = origin(response.url)
    is_upgrade = old == ("http", host, 80) and (scheme, port) == ("https", 443)
    return there if (scheme, host, port) == old or is_upgrade else None


__all__ = ["Caller", "Headers", "Response", "Unanswered", "Unreachable", "Unreadable", "Upstream"]
