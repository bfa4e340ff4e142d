"""One HTTP request on its way to the server, and what comes back on its way to the client.

Strategy: the request is looked at, sent on with its own headers, and its reply relayed as it comes: a JSON body as
one frame, a stream event by event, whatever else byte by byte. What is not a tool list or a result over its budget
leaves exactly as it came. If the server fails, a call gets a coded failure and any other request an error; but a
stream that its client can take up again just ends, because the rest is still to be had.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

import anyio
import msgspec

from . import frames, sse
from .answer import Answer
from .asking import Moves
from .callers import credential
from .interceptor import Interceptor
from .requests import Requests
from .room import Place
from .upstream import (
    Headers,
    Response,
    Unanswered,
    Unreachable,
    led,
    media_type,
    no_answer,
    origin,
    passed,
    readable,
    relative,
)

if TYPE_CHECKING:
    from .door import Request
    from .http import HttpProxy

_log = logging.getLogger("mcp_envelope")
SESSION: Final = "mcp-session-id"
# Where clients find the server that is somewhere else behind us.
_FRONT_DOORS: Final = ("/", "/mcp")
_ACCEPT: Final = "application/json, text/event-stream"
# How long a list that we ask for ourselves may take, in seconds.
_PATIENCE: Final = 30.0
# The method of a request is near its beginning.
_HEAD: Final = 1 << 12
_OF_BODY: Final = ("content-length", "content-encoding")


class _Ended(Exception):
    """The proxy has to end."""


class Exchange:
    def __init__(self, proxy: HttpProxy, request: Request, body: bytes, answer: Answer) -> None:
        self._proxy = proxy
        self._upstream = proxy.upstream
        self._request = request
        self._method = request.method
        self._body = body
        self._answer = answer
        self._owner = credential(request.named)
        self._session = request.named.get(SESSION)
        self._tools = proxy.callers.tools(self._owner, self._session)
        self._headers = readable(passed(request.headers))
        self.url = address(proxy.upstream.url, request)
        # The frames that were sent on, and answers of our own to others of the same batch.
        self._sent: list[bytes] = []
        self._ours: list[bytes] = []
        self._batch = False
        self._resumable = False
        self._tail = b""

    async def run(self) -> None:
        session = None
        if self._session:
            session = await self._proxy.callers.session(self._session, self._owner)
        self._requests = Requests(self._tools.tasks) if session is None else session.requests
        self._interceptor = Interceptor(
            self._proxy.front,
            self._tools.catalogue,
            observe=self._proxy.observe,
            # A stream, or the result of a task, may answer a call that another replica passed on.
            adopts=self._method == "GET" or b'"tasks/' in self._body[:_HEAD],
            owner=self._owner,
            requests=self._requests,
        )
        if session is not None:
            self._interceptor.client = session.client
        body: bytes | None = self._body
        if self._method == "POST" and self._body:
            older = self._proxy.older
            if await older.takes(self._request, self._body, self._headers, self._owner, self._answer):
                return
            body = await self._outgoing()
            if body is None:
                await self._answered_here()
                return
        try:
            response = await self._upstream.request(self._method, self.url, self._headers, body or b"")
            try:
                await self._relay(response)
            finally:
                response.release()
        except (Unanswered, sse.TooLong) as error:
            self._proxy.metrics.add("mcp_envelope_upstream_errors_total")
            _log.warning("mcp-envelope: the server behind did not answer: %s", error or type(error).__name__)
            await self._failed(error)
        except asyncio.CancelledError:
            if self._answer.is_heard:
                # It is not the client that went, but we who have to.
                await self._failed(_Ended())
            raise
        finally:
            self._forget()

    # -- to the server --------------------------------------------------------------------------------------

    async def _outgoing(self) -> bytes | None:
        """What to send on; None if there is nothing left to send."""
        parts = frames.read_batch(self._body)
        self._batch = parts is not None
        for part in [self._body] if parts is None else parts:
            moves = await self._upstream.look(self._interceptor.from_client, part, self._owner)
            moves = await self._settled(moves)
            self._ours += moves.to_client
            self._sent += moves.to_server
        if not self._sent:
            return None
        if parts is None:
            return self._sent[0]
        return self._body if self._sent == parts else _joined(self._sent)

    async def _answered_here(self) -> None:
        if not self._ours:
            await self._answer.whole(202, [], b"")
        else:
            await self._answer.json(200, _joined(self._ours) if self._batch else self._ours[0])

    async def _settled(self, moves: Moves) -> Moves:
        """Ask whatever the interceptor wants to know itself, until what is left concerns the client."""
        while own := [frame for frame in moves.to_server if self._interceptor.owns(frame)]:
            moves = Moves(moves.to_client, [frame for frame in moves.to_server if frame not in own])
            for frame in own:
                moves += await self._own(frame)
        return moves

    async def _own(self, frame: bytes) -> Moves:
        """What comes of a request of our own; an error is its answer if there is none, or none is needed."""
        catalogue = self._interceptor.catalogue
        # Until it is learned from: whoever waits for the same list finds it known.
        async with self._tools.lock:
            reply: bytes | None = None
            if not catalogue.complete and self._tools.is_worth_asking:
                with anyio.move_on_after(_PATIENCE):
                    reply = await self._ask(frame)
                if reply is None:
                    self._tools.failed()
            if reply is None and not catalogue.complete:
                self._tools.fall_back(catalogue)
            return await self._upstream.look(self._interceptor.from_server, reply or no_answer(frame))

    async def _ask(self, frame: bytes) -> bytes | None:
        """With the caller's headers: who may list tools may do so through us."""
        changed = {"content-type": "application/json", "accept": _ACCEPT}
        if self._request.named.get("mcp-method"):
            changed["mcp-method"] = "tools/list"
        dropped = ("mcp-method", "mcp-name", "last-event-id", *changed)
        headers = [
            (name, value)
            for name, value in self._headers
            if name not in dropped and not name.startswith("mcp-param-")
        ]
        return await self._upstream.ask(self.url, [*headers, *changed.items()], frame)

    # -- to the client --------------------------------------------------------------------------------------

    async def _relay(self, response: Response) -> None:
        await self._remember(response)
        said = response.headers
        back = passed(said)
        if "location" in response.named:
            back = _directed(back, self.url)
        kind = media_type(response)
        if kind == "text/event-stream":
            await self._answer.begin(response.status, _without_sizes(back))
            for ours in self._ours:
                await self._answer.more(sse.message(ours))
            with self._proxy.listening() if self._method == "GET" else nullcontext():
                await self._stream(response)
            await self._broken_off("The server ended the stream before it answered.", "UPSTREAM_DIED")
        elif kind == "application/json" and self._method == "POST":
            with self._place() as place:
                shown = await self._upstream.body(response, place)
                with place.working():
                    shown = await self._incoming(shown) or shown
                if self._ours:
                    shown = _joined([*self._ours, *(frames.read_batch(shown) or [shown])])
                place.hold(len(shown))
                await self._answer.whole(response.status, _without_sizes(back), shown)
        elif self._ours and response.is_success:
            await self._answered_here()
        else:
            sizes = [pair for pair in said if pair[0] == "content-length"]
            await self._answer.begin(response.status, [*back, *sizes])
            async for chunk in response.raw():
                await self._answer.more(chunk)
            await self._answer.end()

    def _place(self) -> Place:
        """Who takes nothing of a large answer is hung up on if others want the room."""
        place = self._upstream.room.place(self._answer.hang_up)
        self._answer.moved = place.moved
        return place

    async def _stream(self, response: Response) -> None:
        place = self._place()
        async with aclosing(self._upstream.events(response, place)) as events:
            async for event in events:
                self._resumable = self._resumable or bool(event.id)
                if event.name == b"endpoint" and self._method == "GET":
                    await self._proxy.older.converse(event, events, self._interceptor, self._answer, self.url)
                    return
                if not event.is_whole and frames.read(event.data or b"") is None:
                    # Half an event: what follows it, if anything, would become a part of it.
                    self._tail = event.raw
                    continue
                if not event.data:
                    await self._answer.more(event.raw)
                    continue
                with place.working():
                    shown = await self._incoming(event.data)
                if shown is not None:
                    await self._answer.more(event.raw if shown is event.data else event.with_data(shown))

    async def _incoming(self, data: bytes) -> bytes | None:
        """What the client gets for one text from the server: the very same object, if nothing changes."""
        parts = frames.read_batch(data)
        if parts is None:
            moves = await self._settled(await self._upstream.look(self._interceptor.from_server, data))
            return moves.to_client[0] if moves.to_client else None
        shown: list[bytes] = []
        for part in parts:
            shown += (
                await self._settled(await self._upstream.look(self._interceptor.from_server, part))
            ).to_client
        return data if shown == parts else _joined(shown)

    # -- the end --------------------------------------------------------------------------------------------

    async def _failed(self, error: Exception) -> None:
        if isinstance(error, sse.TooLong):
            words, code = "The server's reply is larger than is taken.", "FRAME_TOO_LARGE"
        elif isinstance(error, Unreachable):
            words, code = "The server behind the proxy cannot be reached.", "UPSTREAM_UNAVAILABLE"
        elif isinstance(error, _Ended):
            words, code = "The proxy ended before the server answered.", "UPSTREAM_DIED"
        else:
            words, code = "The server behind the proxy broke off before it answered.", "UPSTREAM_DIED"
        if self._answer.status:
            await self._broken_off(words, code)
            return
        calls = [frame for frame in self._sent if self._is_call(frame)]
        answers = self._failures(self._sent, words, code)
        if not answers:
            answers = [frames.failure(frames.NULL, -32603, words)]
        body = _joined([*self._ours, *answers]) if self._batch else answers[0]
        await self._answer.json(200 if calls and not self._proxy.observe else 502, body)

    async def _broken_off(self, words: str, code: str) -> None:
        """The stream is over. Whoever still waits on it is told, unless the stream can be taken up again."""
        failures: list[bytes] = []
        if not self._resumable and not self._proxy.observe:
            failures = self._failures([frame for frame in self._sent if self._awaits(frame)], words, code)
        await self._answer.end(b"".join(map(sse.message, failures)) or self._tail)

    def _failures(self, sent: list[bytes], words: str, code: str) -> list[bytes]:
        if self._proxy.observe:
            read = [frames.read(frame) for frame in sent]
            known = [frame.id for frame in read if frame is not None and isinstance(frame.id, msgspec.Raw)]
            return [frames.failure(identifier, -32603, words) for identifier in known]
        failed = [self._interceptor.failed(frame, words, code) for frame in sent]
        return [answer for answer in failed if answer is not None]

    def _is_call(self, data: bytes) -> bool:
        frame = frames.read(data)
        return frame is not None and frame.method == "tools/call" and frame.key is not None

    def _awaits(self, data: bytes) -> bool:
        frame = frames.read(data)
        if frame is None or frame.method is msgspec.UNSET or (key := frame.key) is None:
            return False
        return self._interceptor.awaits(key)

    def _forget(self) -> None:
        """Nobody waits here any longer; the answer to what can be taken up again may come on another stream."""
        for data in self._sent if self._requests else ():
            frame = frames.read(data)
            if frame is None or (key := frame.key) is None or not self._awaits(data):
                continue
            if self._resumable:
                self._requests.cancel(key)
            else:
                self._requests.take(key)

    async def _remember(self, response: Response) -> None:
        given = response.get(SESSION)
        if given and given != self._session and response.is_success:
            await self._proxy.callers.began(given, self._owner, self._interceptor.client)
        elif self._session and (response.status == 404 or (self._method == "DELETE" and response.is_success)):
            self._proxy.callers.ended(self._session, self._owner)


def _joined(parts: list[bytes]) -> bytes:
    return b"[%b]" % b",".join(parts)


def _without_sizes(headers: Headers) -> Headers:
    """The body may become another one, and is not compressed any more."""
    return [pair for pair in headers if pair[0] not in _OF_BODY]


def _directed(headers: Headers, url: str) -> Headers:
    """Redirects within the server lead through us; those to elsewhere, such as a login, stay as they are."""
    return [
        (name, relative(value) if name == "location" and _is_within(value, url) else value)
        for name, value in headers
    ]


def _is_within(location: str, url: str) -> bool:
    there = led(url, location)
    return there is not None and origin(there) == origin(url)


def address(url: str, request: Request) -> str:
    """Where a request goes: the same path at the server, or the server's own if ours was not named."""
    return _address(url, request.path, request.query)


@lru_cache(256)
def _address(url: str, path: str, query: str) -> str:
    base = urlsplit(url)
    if path in _FRONT_DOORS or path == base.path:
        path, query = base.path or "/", "&".join(filter(None, (base.query, query)))
    return urlunsplit((base.scheme, base.netloc, path, query, ""))
