"""HTTP in front of servers that speak in lines: streamable HTTP in both eras, as an ASGI application.

Strategy: a session of the older era is one conversation, which begins with `initialize` and belongs to the
credential that began it. What answers a request goes to the stream of that request, and as JSON if nothing else
was said before; what belongs to no request goes to the newest open stream, else to the one that listens, where it
waits until there is one, as do answers that nobody awaits. A stream that breaks can be resumed by the id of its
last event. The stateless era has no sessions: all requests with one credential are one conversation, in which each
has an id of its own (`multiplexer`), and a caller that hangs up cancels. Conversations that nobody uses end after a
while.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

from msgspec import UnsetType

from ..clients.known import era_of
from ..gateway import Gateway
from . import frames, sse
from .connections import Headers
from .frames import Frame, Id
from .headers import EVENT_STREAM, JSON, SESSION_HEADER, credential
from .http import Application, Request, ResponseWriter
from .multiplexer import Multiplexer
from .relay import Relay, ToClient
from .shared_servers import SharedServers
from .streamable_http import stateless_headers

_log = logging.getLogger("mcp_envelope")

IDLE: Final = 1800.0
MOST_SESSIONS: Final = 256
_VERSION: Final = "mcp-protocol-version"
_SSE_HEADERS: Final = [("cache-control", "no-cache, no-transform"), ("x-accel-buffering", "no")]
# Seconds to wait for the first message before a reply becomes a stream, and between signs of life in one.
_SILENCE: Final = 15.0
# How many bytes may wait in a stream before its server has to wait.
_MOST_WAITING: Final = 1 << 20
# How much is kept for streams that may be resumed: bytes and events in each, and streams in a session.
_MOST_KEPT: Final = 16 << 20
_MOST_EVENTS: Final = 1000
_MOST_BROKEN: Final = 32
_HEADER_MISMATCH: Final = -32020
# The HTTP status of an error in the stateless era.
_STATUS: Final = {
    -32700: 400,
    -32600: 400,
    -32602: 400,
    _HEADER_MISMATCH: 400,
    -32021: 400,
    -32022: 400,
    frames.METHOD_NOT_FOUND: 404,
}


# Begins a conversation: its messages for the client, and whether its servers are shared.
MakeRelay = Callable[[ToClient, bool], Relay]


class Stream:
    """Messages on their way to one caller, in order. `awaited` are the ids of the requests that it answers."""

    def __init__(self, number: int = 0, awaited: Iterable[Id] = (), is_resumable: bool = True) -> None:
        self.number = number
        self.is_resumable = is_resumable
        self.awaited = set(awaited)
        self.is_attached = False
        self.is_closed = False
        self._count = 0
        # What waits, and what was sent and may be asked for again, with their numbers.
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._sent: deque[tuple[int, bytes]] = deque()
        self._size = 0
        self._news = asyncio.Event()
        self._taken = asyncio.Event()

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to come, and nothing waits."""
        return not self._waiting and (self.is_closed or (self.number > 0 and not self.awaited))

    @property
    def is_full(self) -> bool:
        """Whether so much waits that no news is added."""
        return self._size > _MOST_KEPT

    @property
    def has_sent(self) -> bool:
        return bool(self._sent)

    def put(self, frame: bytes, answers: Id | None = None) -> None:
        self._count += 1
        self._waiting.append((self._count, frame))
        self._size += len(frame)
        while not self.is_attached and (self._size > _MOST_KEPT or len(self._waiting) > _MOST_EVENTS):
            if len(self._waiting) == 1:
                break
            self._size -= len(self._waiting.popleft()[1])
        if answers is not None:
            self.awaited.discard(answers)
        self._news.set()

    async def room(self) -> None:
        """Wait until most of it was taken, or nobody is there to take it."""
        while self.is_attached and self._size > _MOST_WAITING:
            self._taken.clear()
            await self._taken.wait()

    async def take(self, patience: float) -> tuple[int, bytes] | None:
        """The next message with its number; None if there is none for so long, or it is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while not self._waiting and not self.is_over:
                    self._news.clear()
                    await self._news.wait()
        if not self._waiting:
            return None
        number, frame = self._waiting.popleft()
        self._size -= len(frame)
        self._taken.set()
        self._sent.append((number, frame))
        kept = sum(len(each) for _, each in self._sent)
        while len(self._sent) > 1 and (kept > _MOST_WAITING or len(self._sent) > _MOST_EVENTS):
            kept -= len(self._sent.popleft()[1])
        return number, frame

    def rewind(self, last: int) -> None:
        """Whatever came after this event is sent again."""
        while self._sent and self._sent[-1][0] > last:
            number, frame = self._sent.pop()
            self._waiting.appendleft((number, frame))
            self._size += len(frame)
        self._news.set()

    def detach(self) -> None:
        self.is_attached = False
        self._taken.set()

    def close(self) -> None:
        self.is_closed = True
        self._news.set()
        self._taken.set()


class StatefulSession:
    """A conversation of the older era, and its streams."""

    def __init__(self, name: str, owner: str | None) -> None:
        self.name = name
        self.owner = owner
        self.relay: Relay | None = None
        self.used = time.monotonic()
        # The first one belongs to no request.
        self._streams: dict[int, Stream] = {0: Stream()}
        self._last = 0

    @property
    def listener(self) -> Stream:
        return self._streams[0]

    @property
    def is_idle(self) -> bool:
        return not any(each.is_attached or each.awaited for each in self._streams.values())

    def open(self, awaited: Iterable[Id]) -> Stream:
        self._last += 1
        stream = self._streams[self._last] = Stream(self._last, awaited)
        return stream

    def find(self, event_id: str) -> tuple[Stream, int] | None:
        """The stream of an event, and the event's number in it."""
        number, _, event = event_id.partition("-")
        stream = self._streams.get(int(number)) if number.isdecimal() else None
        return None if stream is None or not event.isdecimal() else (stream, int(event))

    def forget(self, stream: Stream) -> None:
        """Forget a stream that is over, or nobody can ask for again."""
        if stream.number and (stream.is_over or not stream.has_sent):
            self._streams.pop(stream.number, None)
        broken = [number for number, each in self._streams.items() if number and not each.is_attached]
        for number in broken[:-_MOST_BROKEN]:
            del self._streams[number]

    async def deliver(self, messages: list[bytes]) -> None:
        """What the conversation has for its client."""
        self.used = time.monotonic()
        for data in messages:
            for part in frames.read_batch(data) or [data]:
                stream, answers = self._place(part)
                stream.put(part, answers)
                await stream.room()

    def _place(self, data: bytes) -> tuple[Stream, Id | None]:
        frame = frames.read(data)
        key = None if frame is None else frame.key
        if frame is not None and frame.is_response and key is not None:
            for each in self._streams.values():
                for spelled in (key, frames.same_id(key)):
                    if spelled is not None and spelled in each.awaited:
                        return each, spelled
            # In the stream of another request, it would be taken for the answer to that.
            return self.listener, None
        waiting = [each for each in self._streams.values() if each.awaited and each.is_attached]
        return waiting[-1] if waiting else self.listener, None

    def close(self) -> None:
        for stream in self._streams.values():
            stream.close()


class _StatelessSession:
    """All requests of the stateless era with one credential: one conversation."""

    def __init__(self, make_relay: MakeRelay) -> None:
        self.relay = make_relay(self.deliver, False)
        self.multiplexer: Multiplexer[Stream] = Multiplexer()
        self.used = time.monotonic()
        # Whether the server does not know the era; then it is as good as new.
        self.is_refused = False

    async def send(self, stream: Stream, data: bytes, owner: str | None) -> None:
        self.used = time.monotonic()
        back, onward = self.multiplexer.from_client(stream, data)
        for each in back:
            self._put(stream, each)
        for each in onward:
            await self.relay.from_client(each, owner)

    async def leave(self, stream: Stream, owner: str | None) -> None:
        self.used = time.monotonic()
        for each in self.multiplexer.leave(stream):
            await self.relay.from_client(each, owner)

    async def deliver(self, messages: list[bytes]) -> None:
        for data in messages:
            to_clients, to_server = self.multiplexer.from_server(data)
            for stream, each in to_clients:
                self._put(stream, each)
            for each in to_server:
                await self.relay.from_client(each)

    def _put(self, stream: Stream, data: bytes) -> None:
        frame = frames.read(data)
        is_last = frame is not None and frame.is_response
        if stream.is_full and not is_last:
            # The others that use this process do not wait for a caller that is slow.
            _log.warning(
                "mcp-envelope: a client does not take what its server says; a notification is dropped"
            )
            return
        stream.put(data, frame.key if frame is not None and is_last else None)
        if is_last:
            stream.close()


class HttpToStdio(Application):
    """`make_relay` begins a conversation. With `share`, sessions share processes, and the stateless era has one.

    `idle` is after how many seconds a conversation ends that nobody uses.
    """

    def __init__(
        self,
        gateway: Gateway,
        make_relay: MakeRelay,
        shared: SharedServers,
        *,
        share: bool = False,
        idle: float | None = None,
        **more: Any,
    ) -> None:
        super().__init__(gateway, **more)
        self._make_relay = make_relay
        self._shared = shared
        self._share = share
        self._idle = idle or IDLE
        self._sessions: dict[str, StatefulSession] = {}
        self._stateless: dict[str | None, _StatelessSession] = {}
        self._sweeper: asyncio.Task[None] | None = None

    async def answer(self, request: Request, body: bytes, writer: ResponseWriter) -> None:
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().create_task(self._clean())
        if request.path not in ("/", "/mcp"):
            await writer.text(404, "Not Found")
        elif request.method == "POST":
            await self._post(request, body, writer)
        elif request.method in ("GET", "DELETE"):
            session = await self._session(request, writer)
            if session is None:
                return
            if request.method == "GET":
                await self._listen(session, request, writer)
            else:
                await self._end(session)
                await writer.send(204, [], b"")
        else:
            await writer.send(405, [("allow", "GET, POST, DELETE")], b"Method Not Allowed", "text/plain")

    async def aclose(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        ending = [self._end(each) for each in list(self._sessions.values())]
        stateless, self._stateless = list(self._stateless.values()), {}
        await asyncio.gather(*ending, *(each.relay.aclose() for each in stateless))
        await self._shared.aclose()

    # -- requests ---------------------------------------------------------------------------------------------

    async def _post(self, request: Request, body: bytes, writer: ResponseWriter) -> None:
        parts = frames.read_batch(body)
        read = [frames.read(part) for part in ([body] if parts is None else parts)]
        messages = [frame for frame in read if frame is not None]
        if not messages or len(messages) < len(read):
            await writer.json(400, frames.failure(frames.NULL, -32700, "The body is not a message."))
            return
        given = request.named.get(_VERSION, "")
        if era_of(given) == "stateless" or (not request.named.get(SESSION_HEADER) and messages[0].version):
            await self._post_stateless(request, messages, parts is not None, writer)
            return
        is_first = messages[0].method == "initialize"
        session = self._begin(request) if is_first else await self._session(request, writer)
        if session is None:
            if is_first:
                await _refuse_for_now(messages[0], "sessions", writer)
            return
        await self._exchange(session, request, messages, writer, parts is not None)

    async def _session(self, request: Request, writer: ResponseWriter) -> StatefulSession | None:
        """The session that a request names; None if it was refused."""
        name = request.named.get(SESSION_HEADER)
        session = None if name is None else self._sessions.get(name)
        if session is not None and session.owner == credential(request.named):
            session.used = time.monotonic()
            return session
        status, words = (400, "A session is needed: initialize first.")
        if name is not None:
            status, words = 404, "There is no such session, or it has ended."
        await writer.json(status, frames.failure(frames.NULL, -32600, words))
        return None

    def _begin(self, request: Request) -> StatefulSession | None:
        """A new session; None if there are too many."""
        if len(self._sessions) >= MOST_SESSIONS:
            return None
        session = StatefulSession(secrets.token_urlsafe(24), credential(request.named))
        probed = self._stateless.get(self._kept_for(request))
        if probed is not None and probed.is_refused and probed.multiplexer.is_idle:
            # The client has asked for the other era first, and was told that there is none: it goes on with the
            # same process, as it would on standard input and output.
            del self._stateless[self._kept_for(request)]
            session.relay = probed.relay
            session.relay.to_client = session.deliver
        else:
            session.relay = self._make_relay(session.deliver, self._share)
        self._sessions[session.name] = session
        return session

    async def _exchange(
        self,
        session: StatefulSession,
        request: Request,
        messages: list[Frame],
        writer: ResponseWriter,
        is_batch: bool,
    ) -> None:
        assert session.relay is not None
        keys = [each.key for each in messages if not isinstance(each.method, UnsetType)]
        awaited = [key for key in keys if key is not None]
        stream = session.open(awaited)
        stream.is_attached = bool(awaited)
        try:
            for each in messages:
                await session.relay.from_client(each.data, session.owner)
            if not awaited:
                # Whoever waits for an answer sends no more than that takes.
                await session.relay.drain()
                await writer.send(202, [], b"")
                return
            is_first = messages[0].method == "initialize"
            headers = [(SESSION_HEADER, session.name)] if is_first else []
            ended = await self._reply(stream, request, writer, headers, is_batch)
            if is_first and ended is not None and _is_error(ended):
                await self._end(session)
        finally:
            stream.detach()
            session.forget(stream)

    async def _listen(self, session: StatefulSession, request: Request, writer: ResponseWriter) -> None:
        last = request.named.get("last-event-id")
        found = session.find(last) if last else (session.listener, -1)
        if found is None:
            await writer.text(404, "There is no such event.")
            return
        stream, number = found
        if number >= 0:
            stream.rewind(number)
        elif stream.is_attached:
            await writer.text(409, "Somebody listens already.")
            return
        stream.is_attached = True
        try:
            with self.listening():
                await self._stream(stream, writer, [])
            await writer.end()
        finally:
            stream.detach()
            session.forget(stream)

    # -- the stateless era ------------------------------------------------------------------------------------

    def _kept_for(self, request: Request) -> str | None:
        return None if self._share else credential(request.named)

    async def _post_stateless(
        self, request: Request, messages: list[Frame], is_batch: bool, writer: ResponseWriter
    ) -> None:
        frame = messages[0]
        if is_batch or isinstance(frame.method, UnsetType):
            await writer.json(400, frames.failure(frames.NULL, -32600, "The body is not one request."))
            return
        if frame.key is None:
            # A caller cancels by hanging up; nothing else is said without a request.
            await writer.send(202, [], b"")
            return
        kept = self._kept_for(request)
        if kept not in self._stateless:
            if len(self._stateless) >= MOST_SESSIONS:
                await _refuse_for_now(frame, "callers", writer)
                return
            self._stateless[kept] = _StatelessSession(self._make_relay)
        common = self._stateless[kept]
        wanted = stateless_headers(frame, common.relay.route.headers)
        if wanted is None:
            words = "_meta lacks the version of the protocol, which a header has."
            await writer.json(400, frames.failure(frame.identifier, frames.INVALID_PARAMS, words))
            return
        if (wrong := _wrong_header(wanted, request)) is not None:
            words = f"The header {wrong} does not say what the body says."
            await writer.json(400, frames.failure(frame.identifier, _HEADER_MISMATCH, words))
            return
        stream = Stream(1, [frame.key], is_resumable=False)
        stream.is_attached = True
        owner = credential(request.named)
        try:
            await common.send(stream, frame.data, owner)
            ended = await self._reply(stream, request, writer, [], False, is_stateless=True)
            if frame.method == "server/discover" and ended is not None:
                common.is_refused = _is_error(ended)
        finally:
            stream.detach()
            await asyncio.shield(common.leave(stream, owner))

    # -- replies ----------------------------------------------------------------------------------------------

    async def _reply(
        self,
        stream: Stream,
        request: Request,
        writer: ResponseWriter,
        headers: list[tuple[str, str]],
        is_batch: bool,
        is_stateless: bool = False,
    ) -> Frame | None:
        """Reply with JSON if the first message is all there is, else with a stream; the last response."""
        accepted = request.named.get("accept", "*/*")
        takes_stream = EVENT_STREAM in accepted or "*/*" in accepted
        said: list[bytes] = []
        while not stream.is_over and (not said or not takes_stream):
            if (event := await stream.take(_SILENCE)) is not None:
                said.append(event[1])
            elif takes_stream:
                break
        if said and stream.is_over and (len(said) == 1 or not takes_stream):
            answers = [data for data in said if _is_response(data)]
            last = frames.read(answers[-1]) if answers else None
            status = 200
            if is_stateless and last is not None and _is_error(last):
                status = _STATUS.get(int(frames.read_error(last.error).code or 0), 200)
            shown = frames.batch(answers) if is_batch else answers[-1]
            await writer.send(status, headers, shown, JSON)
            return last
        if said:
            stream.rewind(0)
        await self._stream(stream, writer, headers)
        await writer.end()
        return None

    async def _stream(self, stream: Stream, writer: ResponseWriter, headers: list[tuple[str, str]]) -> None:
        await writer.start(200, [*headers, *_SSE_HEADERS, ("content-type", EVENT_STREAM)])
        is_primed = False
        while not stream.is_over:
            event = await stream.take(_SILENCE if is_primed else 0.01)
            if event is not None:
                number, frame = event
                identifier = b"id: %d-%d\n" % (stream.number, number) if stream.is_resumable else b""
                await writer.write(identifier + sse.message(frame))
            elif not stream.is_over:
                # A sign of life; the first one opens the stream.
                await writer.write(b": still here\n\n")
            is_primed = True

    # -- the end ----------------------------------------------------------------------------------------------

    async def _end(self, session: StatefulSession) -> None:
        self._sessions.pop(session.name, None)
        if session.relay is not None:
            await session.relay.aclose()
        session.close()

    async def _clean(self) -> None:
        while True:
            await asyncio.sleep(min(self._idle / 4, 30.0))
            before = time.monotonic() - self._idle
            for session in [each for each in self._sessions.values() if each.is_idle and each.used < before]:
                await self._end(session)
            for owner, each in list(self._stateless.items()):
                if not each.multiplexer.clients and each.used < before:
                    del self._stateless[owner]
                    await each.relay.aclose()
            await self._shared.sweep(self._idle)


async def _refuse_for_now(frame: Frame, what: str, writer: ResponseWriter) -> None:
    words = f"The proxy has as many {what} as it may have. Try again later."
    failure = frames.failure(frame.identifier, frames.INTERNAL_ERROR, words)
    await writer.send(503, [("retry-after", "10")], failure, JSON)


def _is_error(frame: Frame) -> bool:
    return not isinstance(frame.error, UnsetType)


def _is_response(data: bytes) -> bool:
    frame = frames.read(data)
    return frame is not None and frame.is_response


def _wrong_header(wanted: Headers, request: Request) -> str | None:
    """The name of a header that does not repeat what the body says."""
    for name, value in wanted:
        if name.startswith("mcp-") and _decoded(request.named.get(name.lower())) != _decoded(value):
            return name
    return None


def _decoded(value: str | None) -> str | None:
    if value is None or not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    try:
        return base64.b64decode(value[9:-2], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
