"""The oldest transport over HTTP: answers come on one long stream, whatever request they belong to.

Strategy: the first event of such a stream names the address for messages. From then on the stream is one
conversation, as on stdio: what is posted to that address is looked at by the same interceptor that looks at the
stream, and what we have to say ourselves is written into the stream. A conversation lives where its stream does,
so a balancer in front of replicas has to keep its parts together; in every later transport it need not.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING
from urllib.parse import urljoin

import anyio
import anyio.abc

from . import sse
from .answer import Answer
from .interceptor import Interceptor
from .upstream import Headers, Unanswered, led, no_answer, passed, relative, rooted, whole

if TYPE_CHECKING:
    from .door import Request
    from .upstream import Upstream


class _Conversation:
    def __init__(self, interceptor: Interceptor, answer: Answer) -> None:
        self.interceptor = interceptor
        self.answer = answer
        # Those of the last message: what we post ourselves has the same.
        self.headers: Headers = []
        self.url = ""

    async def say(self, answers: list[bytes]) -> None:
        for data in answers:
            await self.answer.more(sse.message(data))


class Older:
    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._conversations: dict[str, _Conversation] = {}

    async def converse(
        self,
        first: sse.Event,
        events: AsyncGenerator[sse.Event, None],
        interceptor: Interceptor,
        answer: Answer,
        url: str,
    ) -> None:
        """Relay a stream from its first event on."""
        said = (first.data or b"").decode("utf-8", "replace")
        there = led(url, said)
        name = said if there is None else relative(there)
        talk = self._conversations[name] = _Conversation(interceptor, answer)
        # A whole address would lead past us.
        await answer.more(first.raw if said == name else first.with_data(name.encode()))
        broken: Unanswered | sse.TooLong | None = None
        try:
            async with anyio.create_task_group() as group:
                try:
                    async for event in events:
                        await self._relay(event, talk, group)
                except (Unanswered, sse.TooLong) as error:
                    # Out of here it would come as a group of errors.
                    broken = error
                group.cancel_scope.cancel()
        finally:
            self._conversations.pop(name, None)
            with anyio.CancelScope(shield=True):
                await talk.say(interceptor.lost("The server ended the stream before it answered."))
        if broken is not None:
            raise broken

    async def _relay(self, event: sse.Event, talk: _Conversation, group: anyio.abc.TaskGroup) -> None:
        if not event.data:
            await talk.answer.more(event.raw)
            return
        moves = await self._upstream.look(talk.interceptor.from_server, event.data)
        for data in moves.to_client:
            await talk.answer.more(event.raw if data is event.data else event.with_data(data))
        for frame in moves.to_server:
            group.start_soon(self._post, talk, frame)

    async def takes(
        self, request: Request, body: bytes, headers: Headers, owner: str | None, answer: Answer
    ) -> bool:
        """A message for a conversation of ours; False if it is none."""
        target = rooted(request.target)
        talk = self._conversations.get(target)
        if talk is None:
            return False
        talk.headers, talk.url = headers, urljoin(self._upstream.url, target)
        moves = await self._upstream.look(talk.interceptor.from_client, body, owner)
        await talk.say(moves.to_client)
        own = [frame for frame in moves.to_server if talk.interceptor.owns(frame)]
        for frame in own:
            await self._post(talk, frame)
        onward = [frame for frame in moves.to_server if frame not in own]
        if onward:
            await self._send(talk, onward[0], answer)
        else:
            await answer.whole(202, [], b"Accepted", "text/plain")
        return True

    async def _send(self, talk: _Conversation, frame: bytes, answer: Answer) -> None:
        try:
            async with self._upstream.send("POST", talk.url, talk.headers, frame) as response:
                body = await whole(response)
                back = [pair for pair in passed(response.headers) if pair[0] != "content-encoding"]
                await answer.whole(response.status, back, body)
        except Unanswered:
            await self._lost(talk, frame)
            await answer.whole(202, [], b"Accepted", "text/plain")

    async def _post(self, talk: _Conversation, frame: bytes) -> None:
        """Something that we send ourselves; the answer comes on the stream."""
        try:
            async with self._upstream.send("POST", talk.url, talk.headers, frame) as response:
                if response.is_success:
                    return
        except Unanswered:
            pass
        await self._lost(talk, frame)

    async def _lost(self, talk: _Conversation, frame: bytes) -> None:
        interceptor = talk.interceptor
        if interceptor.owns(frame):
            moves = interceptor.from_server(no_answer(frame))
            await talk.say(moves.to_client)
            for onward in moves.to_server:
                await self._post(talk, onward)
        elif failure := interceptor.failed(frame, "The server cannot be reached.", "UPSTREAM_UNAVAILABLE"):
            await talk.say([failure])
