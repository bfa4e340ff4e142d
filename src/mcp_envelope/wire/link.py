"""The way from the bridge to a server over HTTP: sessions, streams, and what to do when they break.

Strategy: a message is one POST, and whatever comes back is handed over, message by message. The session that an
older server opens is kept for its client, which knows nothing of sessions: if the server forgot it, the link
introduces the client again and sends the message once more, since a refused one did nothing. A stream that breaks
is taken up where the server numbers its events. The oldest transport, where all answers come on one long stream,
is spoken if the server speaks nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Final

import anyio
import anyio.abc
import msgspec
from msgspec import UnsetType

from . import frames, sse
from .frames import Frame, Id
from .headers import TYPES, VERSION
from .upstream import (
    Headers,
    Response,
    Unanswered,
    Unreachable,
    Upstream,
    is_json,
    is_stream,
    led,
    origin,
    whole,
)

_SESSION: Final = "mcp-session-id"
# How often a broken answer is taken up again in a row, and how long to wait before, in seconds.
_RETRIES: Final = 5
_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0
_PATIENCE: Final = 30.0
_BROKEN: Final = (Unanswered, sse.TooLong)


class Refused(Exception):
    """The server took the message and said no, in terms of HTTP."""

    def __init__(self, response: Response, body: bytes = b"") -> None:
        super().__init__(f"HTTP {response.status} {response.reason}".strip())
        self.status = response.status
        self.body = body
        self.location: str = response.get("location") if response.is_redirect else ""


class Lost(Exception):
    """The server ended the connection before it answered."""


class _Initialized(msgspec.Struct, rename="camel"):
    protocol_version: str = ""


class _Reading:
    """How far a stream was read."""

    def __init__(self) -> None:
        self.last: bytes | None = None
        self.pause = _PAUSE
        self.count = 0


class Link:
    """`deliver` gets every message, `waits` tells whether a request has no answer, `ended` that none will come."""

    def __init__(
        self,
        upstream: Upstream,
        group: anyio.abc.TaskGroup,
        deliver: Callable[[bytes], Awaitable[None]],
        waits: Callable[[Id], bool],
        ended: Callable[[], Awaitable[None]],
        transport: str | None = None,
    ) -> None:
        self._upstream = upstream
        self._group = group
        self._deliver = deliver
        self._waits = waits
        self._ended = ended
        self._session: str | None = None
        self._version: str | None = None
        self._is_settled = transport is not None
        # Of the oldest transport: whether it is spoken, and where messages go while its stream is open.
        self.is_oldest = transport == "sse"
        self._endpoint: str | None = None
        # How the client introduced itself, should it have to be said again.
        self._introduction: bytes | None = None
        self._renewing = anyio.Lock()
        self._renewals = 0
        self._expected: dict[Id, anyio.Event] = {}
        self._listener: anyio.CancelScope | None = None

    # -- messages -------------------------------------------------------------------------------------------

    async def send(self, data: bytes, frame: Frame | None, said: Headers | None) -> None:
        """Send a message; what answers it is delivered before this returns, but for the oldest transport.

        `said` are the headers of a message of the stateless era.
        """
        starts = frame is not None and frame.method == "initialize"
        if starts:
            self._introduction, self._session, self._version = data, None, None
        if not await self._post(data, frame, said):
            await self._post(data, frame, said, last=True)
        if frame is not None and frame.method == "notifications/initialized" and not self.is_oldest:
            self._listen_anew()

    async def _post(self, data: bytes, frame: Frame | None, said: Headers | None, last: bool = False) -> bool:
        """False if the way was mended, and the message should be sent again."""
        starts = frame is not None and frame.method == "initialize"
        if self.is_oldest and self._endpoint is None:
            await self._reopen(introduce=not starts)
        session = self._session
        headers = [*TYPES, *self._standing(session)] if said is None else said
        async with self._upstream.send("POST", self._url, headers, data, follow=True) as response:
            if response.is_success:
                self._is_settled = True
                if starts:
                    self._session = response.get(_SESSION) or None
                await self._read(response, frame)
                return True
            body = await whole(response)
            refused = Refused(response, body)
        if last or self.is_oldest:
            raise refused
        if session is not None and not starts and _is_forgotten(refused):
            await self._renew(session)
            return False
        if not self._is_settled and _may_be_oldest(refused, starts):
            await self._group.start(self._converse)
            if self._has_stream():
                return False
        raise refused

    @property
    def _url(self) -> str:
        return self._endpoint or self._upstream.url

    @property
    def _is_older(self) -> bool:
        """Whether streams can be taken up: that takes no session, but the stateless era has no way to do it."""
        return self._session is not None or self._version is not None

    def _has_stream(self) -> bool:
        return self._endpoint is not None

    def _standing(self, session: str | None) -> Headers:
        """What an older session says with each request."""
        headers = [] if session is None else [(_SESSION, session)]
        return headers if self._version is None else [*headers, (VERSION, self._version)]

    async def _read(self, response: Response, frame: Frame | None) -> None:
        key = None if frame is None or isinstance(frame.method, UnsetType) else frame.key
        if is_json(response):
            with self._upstream.room.place() as place:
                if body := await self._upstream.body(response, place):
                    await self._received(body, frame)
        elif is_stream(response):
            reading = _Reading()
            try:
                await self._events(response, reading, frame)
            except Unanswered:
                if reading.last is None and (key is None or self._waits(key)):
                    raise
            if key is not None and self._waits(key) and reading.last is not None and self._is_older:
                await self._resume(reading, frame, key)
        if key is not None and self._waits(key) and response.status != 202:
            raise Lost

    async def _events(self, response: Response, reading: _Reading, frame: Frame | None) -> None:
        async with aclosing(self._upstream.events(response)) as events:
            async for event in events:
                reading.count += 1
                reading.last = event.id or reading.last
                if event.retry is not None:
                    reading.pause = min(event.retry / 1000, _LONGEST_PAUSE)
                if event.data:
                    await self._received(event.data, frame)

    async def _received(self, data: bytes, frame: Frame | None) -> None:
        if frame is not None and frame.method == "initialize":
            self._note_version(data)
        if self._expected and (reply := frames.read(data)) is not None and reply.is_response:
            if reply.key in self._expected:
                self._note_version(data)
                self._expected[reply.key].set()
                return
        await self._deliver(data)

    def _note_version(self, data: bytes) -> None:
        reply = frames.read(data)
        if reply is not None and not isinstance(reply.result, UnsetType):
            with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                found = msgspec.json.decode(reply.result, type=_Initialized).protocol_version
                self._version = found or None

    # -- streams --------------------------------------------------------------------------------------------

    async def _resume(self, reading: _Reading, frame: Frame | None, key: Id) -> None:
        """Take up a stream that broke before the answer came."""
        left = _RETRIES
        while left and self._waits(key):
            left -= 1
            await anyio.sleep(reading.pause)
            before = reading.count
            with suppress(Unanswered):
                if not await self._get(reading, frame):
                    return
            if reading.count > before:
                left = _RETRIES

    async def _get(self, reading: _Reading, frame: Frame | None) -> bool:
        """Read a stream to its end; False if the server gives none."""
        headers = [*self._standing(self._session), ("accept", "text/event-stream")]
        if reading.last is not None:
            headers.append(("last-event-id", reading.last.decode("latin-1")))
        async with self._upstream.send("GET", self._upstream.url, headers, follow=True) as response:
            if not response.is_success or not is_stream(response):
                return response.status >= 500
            await self._events(response, reading, frame)
        return True

    def _listen_anew(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
        self._listener = anyio.CancelScope()
        self._group.start_soon(self._listen, self._listener)

    async def _listen(self, scope: anyio.CancelScope) -> None:
        """What the server says of its own accord; a server that says nothing refuses, and that is fine."""
        reading = _Reading()
        failures = 0
        with scope:
            while True:
                before = reading.count
                with suppress(*_BROKEN):
                    if not await self._get(reading, None):
                        return
                failures = 0 if reading.count > before else failures + 1
                await anyio.sleep(min(reading.pause * 2 ** min(failures, 10), _LONGEST_PAUSE))

    async def _converse(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """The oldest transport: one stream for all answers; its first event names where messages go."""
        url = self._upstream.url
        try:
            async with self._upstream.send(
                "GET", url, [("accept", "text/event-stream")], follow=True
            ) as response:
                if response.is_success and is_stream(response):
                    async with aclosing(self._upstream.events(response)) as events:
                        async for event in events:
                            if self._endpoint is not None and event.data:
                                await self._received(event.data, None)
                            elif event.name == b"endpoint" and event.data:
                                named = led(url, event.data.decode("utf-8", "replace").strip())
                                if named is None or origin(named) != origin(url):
                                    # Whoever leads us elsewhere may want our credentials there.
                                    return
                                self._endpoint, self.is_oldest = named, True
                                task_status.started()
        except _BROKEN:
            pass
        finally:
            opened, self._endpoint = self._endpoint is not None, None
            if not opened:
                task_status.started()
        if opened:
            await self._ended()

    # -- when the server forgot us --------------------------------------------------------------------------

    async def _reopen(self, introduce: bool) -> None:
        async with self._renewing:
            if self._endpoint is None:
                await self._group.start(self._converse)
                if not self._has_stream():
                    raise Unreachable("there is no stream of the oldest transport")
                if introduce:
                    await self._introduce()

    async def _renew(self, session: str) -> None:
        async with self._renewing:
            # Whoever sends something meanwhile still names the old session, is refused, and waits here.
            if self._session == session:
                self._session = await self._introduce()
                self._listen_anew()

    async def _introduce(self) -> str | None:
        """Say again who the client is, as it said so itself; the session that begins with it."""
        if self._introduction is None:
            return None
        self._renewals += 1
        name = f"mcp-envelope-again-{self._renewals}"
        data = frames.replaced(self._introduction, {"id": b'"%b"' % name.encode()})
        answered = self._expected["s", name] = anyio.Event()
        try:
            with anyio.fail_after(_PATIENCE):
                async with self._upstream.send("POST", self._url, TYPES, data, follow=True) as response:
                    if not response.is_success:
                        raise Refused(response, await whole(response))
                    session = response.get(_SESSION) or None
                    await self._read(response, None)
                await answered.wait()
                done = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
                headers = [*TYPES, *self._standing(session)]
                async with self._upstream.send("POST", self._url, headers, done, follow=True):
                    return session
        except TimeoutError:
            raise Lost from None
        finally:
            del self._expected["s", name]

    async def leave(self) -> None:
        """The client is gone: so is its session."""
        if self._session is not None and not self.is_oldest:
            with suppress(*_BROKEN), anyio.move_on_after(2):
                async with self._upstream.send(
                    "DELETE", self._upstream.url, self._standing(self._session), follow=True
                ):
                    pass


def _is_forgotten(refused: Refused) -> bool:
    """Whether the server does not know the session any more: 404, but many say it in other words."""
    return refused.status == 404 or (refused.status == 400 and b"session" in refused.body.lower())


def _may_be_oldest(refused: Refused, starts: bool) -> bool:
    """A server of the oldest kind takes no messages where its stream is."""
    if refused.status not in ((400, 404, 405) if starts else (404, 405)):
        return False
    return not is_error(refused.body)


class _Error(msgspec.Struct):
    code: int
    message: str


def is_error(body: bytes) -> bool:
    """Whether somebody refuses in the words of the protocol."""
    said = frames.read(body)
    if said is None or isinstance(said.error, UnsetType):
        return False
    try:
        msgspec.json.decode(said.error, type=_Error)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True
