"""The HTTP+SSE transport of 2024-11-05, which streamable HTTP has replaced.

Strategy: a client opens one long stream with GET. Its first event, `endpoint`, names the URL that messages are
posted to; every answer comes back on that stream, whichever request it belongs to. So in front of such a server a
stream is one conversation, as on stdio: one interceptor looks at what is posted and at what the stream brings, and
whatever the proxy has to say itself is written into the stream. A conversation lives where its stream does, so a
balancer in front of replicas has to keep its parts together; no later transport needs that.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urljoin

import anyio
import anyio.abc

from . import sse
from .headers import EVENT_STREAM, end_to_end, origin, relative, resolve, rooted
from .upstream import (
    BROKEN,
    Caller,
    Headers,
    Response,
    Unanswered,
    Unreachable,
    Upstream,
    no_answer,
    readable_type,
    small_body,
)

if TYPE_CHECKING:
    from .http import ResponseWriter
    from .interceptor import Interceptor


def is_endpoint(event: sse.Event) -> bool:
    """Whether an event opens a stream of this transport."""
    return event.name == b"endpoint" and bool(event.data)


def endpoint_url(event: sse.Event, stream_url: str) -> str | None:
    """The URL that takes messages, as an `endpoint` event names it; None if it is not a URL."""
    return resolve(stream_url, (event.data or b"").decode("utf-8", "replace").strip())


@asynccontextmanager
async def connect(upstream: Upstream) -> AsyncIterator[tuple[str, AsyncIterator[bytes]]]:
    """Open a stream as a client: the URL that takes messages, and the messages that arrive."""
    headers = [("accept", EVENT_STREAM)]
    async with upstream.send("GET", upstream.url, headers, follow=True) as response:
        if not response.is_success or readable_type(response) != EVENT_STREAM:
            raise Unreachable("the server has no stream of the legacy transport")
        async with aclosing(upstream.events(response)) as events:
            async for event in events:
                if is_endpoint(event):
                    url = endpoint_url(event, upstream.url)
                    if url is None or origin(url) != origin(upstream.url):
                        # Another server might be after our credentials.
                        raise Unreachable("the stream names an endpoint on another server")
                    yield url, (event.data async for event in events if event.data)
                    return
    raise Unreachable("the stream names no endpoint")


class _Conversation:
    """One stream, from its client's side, and where its messages go."""

    def __init__(self, upstream: Upstream, interceptor: Interceptor, writer: ResponseWriter) -> None:
        self._upstream = upstream
        self.interceptor = interceptor
        self.writer = writer
        # Those of the last message: what we post ourselves has the same.
        self.headers: Headers = []
        self.caller = Caller()
        self.url = ""

    async def say(self, messages: list[bytes]) -> None:
        for data in messages:
            await self.writer.write(sse.message(data))

    async def read(self, event: sse.Event, group: anyio.abc.TaskGroup) -> None:
        if not event.data:
            await self.writer.write(event.raw)
            return
        moves = await self._upstream.intercept(self.interceptor.from_server, event.data)
        for data in moves.to_client:
            await self.writer.write(event.raw if data is event.data else event.with_data(data))
        for frame in moves.to_server:
            group.start_soon(self._post_own, frame)

    async def post(self, body: bytes, owner: str | None, writer: ResponseWriter) -> None:
        """Post a message of the client's and relay the server's response, if there is one."""
        moves = await self._upstream.intercept(self.interceptor.from_client, body, owner)
        await self.say(moves.to_client)
        own = [frame for frame in moves.to_server if self.interceptor.list_requests.owns(frame)]
        for frame in own:
            await self._post_own(frame)
        for frame in [frame for frame in moves.to_server if frame not in own][:1]:
            try:
                async with self._send(frame) as response:
                    said = await small_body(response)
                    back = [pair for pair in end_to_end(response.headers) if pair[0] != "content-encoding"]
                    await writer.send(response.status, back, said)
                    return
            except Unanswered:
                await self._lose(frame)
        await writer.send(202, [], b"Accepted", "text/plain")

    async def _post_own(self, frame: bytes) -> None:
        """Post something that we send ourselves; the answer comes on the stream."""
        try:
            async with self._send(frame) as response:
                if response.is_success:
                    return
        except Unanswered:
            pass
        await self._lose(frame)

    def _send(self, frame: bytes) -> AbstractAsyncContextManager[Response]:
        return self._upstream.send("POST", self.url, self.headers, frame, caller=self.caller)

    async def _lose(self, frame: bytes) -> None:
        """A message could not be delivered."""
        if self.interceptor.list_requests.owns(frame):
            moves = self.interceptor.from_server(no_answer(frame))
            await self.say(moves.to_client)
            for onward in moves.to_server:
                await self._post_own(onward)
        elif failure := self.interceptor.failed(
            frame, "The server cannot be reached.", "UPSTREAM_UNAVAILABLE"
        ):
            await self.say([failure])


class LegacyStreams:
    """The streams of this transport that pass through the proxy, by where their messages are posted."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._conversations: dict[str, _Conversation] = {}

    async def relay(
        self,
        first: sse.Event,
        events: AsyncGenerator[sse.Event, None],
        interceptor: Interceptor,
        writer: ResponseWriter,
        url: str,
    ) -> None:
        """Relay a stream from its `endpoint` event on."""
        said = (first.data or b"").decode("utf-8", "replace")
        there = endpoint_url(first, url)
        name = said if there is None else relative(there)
        talk = self._conversations[name] = _Conversation(self._upstream, interceptor, writer)
        # An absolute URL would lead past us.
        await writer.write(first.raw if said == name else first.with_data(name.encode()))
        broken: Unanswered | sse.TooLong | None = None
        try:
            async with anyio.create_task_group() as group:
                try:
                    async for event in events:
                        await talk.read(event, group)
                except BROKEN as error:
                    # Raised in here, it would leave as a group of errors.
                    broken = error
                group.cancel_scope.cancel()
        finally:
            self._conversations.pop(name, None)
            with anyio.CancelScope(shield=True):
                await talk.say(interceptor.lost("The server ended the stream before it answered."))
        if broken is not None:
            raise broken

    async def post(
        self,
        target: str,
        body: bytes,
        headers: Headers,
        owner: str | None,
        caller: Caller,
        writer: ResponseWriter,
    ) -> bool:
        """Whether a message is for one of the streams; if so, it is posted."""
        target = rooted(target)
        talk = self._conversations.get(target)
        if talk is None:
            return False
        talk.headers, talk.caller, talk.url = headers, caller, urljoin(self._upstream.url, target)
        await talk.post(body, owner, writer)
        return True
