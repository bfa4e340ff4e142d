"""stdio in front of HTTP: a client that starts programs reaches a server that has an address.

Strategy: every line from the client is one message to the server, and all that comes back goes out as lines.
Requests run side by side; notifications wait for each other, so that their order stays. In the stateless era a
request is cancelled by hanging up, in the older one by saying so. When the client closes its end, what it asked for
gets a moment to be answered; then, or when a signal comes, whatever runs is given up and the session is closed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from contextlib import aclosing, suppress
from typing import Any, Final

import anyio
import msgspec
from anyio import to_thread
from anyio.streams.memory import MemoryObjectSendStream
from msgspec import Raw, UnsetType

from ..front import Front
from ..jsontree import compact, encode
from . import frames, headers, sse
from .asking import Moves
from .frames import Frame, Id
from .interceptor import Interceptor
from .link import Link, Lost, Refused, is_error
from .stdio import Writer, lines
from .upstream import Headers, Unanswered, Unreachable, Upstream, no_answer

_log = logging.getLogger("mcp_envelope")

_SIGNALS: Final = ("SIGINT", "SIGTERM", "SIGHUP")
# How long a server may take to accept a notification, in seconds: what follows waits for it.
_PATIENCE: Final = 30.0
# How long answers are waited for once the client has closed its end.
_LAST_WORDS: Final = 5.0
_MOMENT: Final = 0.01
_MOST_PAGES: Final = 100
# What a refusal is called. Any other means that the server is not there for us.
_CODES: Final = {
    401: "FORBIDDEN",
    403: "FORBIDDEN",
    408: "UPSTREAM_TIMEOUT",
    413: "TOO_LARGE",
    429: "RATE_LIMITED",
}


class Bridge:
    def __init__(
        self,
        front: Front,
        url: str,
        own: dict[str, str] | None = None,
        *,
        transport: str | None = None,
        observe: bool = False,
    ) -> None:
        self._front = front
        self._upstream = Upstream(url, own, cookies=True)
        self._transport = transport
        self._interceptor = Interceptor(front, observe=observe, adopts=True)
        self._writer = Writer(sys.stdout.fileno())
        # What runs, and whether it is of the stateless era.
        self._running: dict[Id, tuple[anyio.CancelScope, bool]] = {}
        # Messages of the server that are on their way to the client.
        self._delivering = 0
        self._is_modern = False
        self._learning = anyio.Lock()
        self._signal = 0

    def run(self) -> int:
        """0, or what a shell makes of the signal that ended it."""
        anyio.run(self._main)
        self._front.close()
        if self._signal:
            # A thread may still wait for a client that neither reads nor writes: nobody waits for that thread.
            sys.stderr.flush()
            os._exit(128 + self._signal)
        return 0

    async def _main(self) -> None:
        async with aclosing(self._upstream):
            async with anyio.create_task_group() as group:
                self._group = group
                upstream, interceptor = self._upstream, self._interceptor
                self._link = Link(
                    upstream, group, self._deliver, interceptor.awaits, self._ended, self._transport
                )
                group.start_soon(self._heed_signals)
                await self._serve()
                with anyio.move_on_after(_LAST_WORDS):
                    while self._delivering or self._interceptor.expects_answers:
                        await anyio.sleep(_MOMENT)
                group.cancel_scope.cancel()
            await self._link.leave()

    async def _heed_signals(self) -> None:
        wanted = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
        with anyio.open_signal_receiver(*wanted) as received:
            async for number in received:
                self._signal = int(number)
                self._group.cancel_scope.cancel()

    # -- from the client ------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        sending, receiving = anyio.create_memory_object_stream[bytes](0)
        loop = asyncio.get_running_loop()
        threading.Thread(target=_read_lines, args=(loop, sending), daemon=True).start()
        async with receiving:
            async for line in receiving:
                if line.strip():
                    await self._from_client(line)
                while self._interceptor.is_crowded:
                    await anyio.sleep(_MOMENT)

    async def _from_client(self, line: bytes) -> None:
        frame = frames.read(line)
        if frame is not None and frame.method == "notifications/cancelled" and self._hung_up(frame):
            self._interceptor.from_client(line)
            return
        batch = frames.read_batch(line)
        onward: list[bytes] = []
        for part in [line] if batch is None else batch:
            moves = await self._upstream.look(self._interceptor.from_client, part)
            await self._write(moves.to_client)
            for data in moves.to_server:
                if self._interceptor.owns(data):
                    await self._dispatch(data)
                else:
                    onward.append(data)
        if batch is None or len(onward) < 2:
            for data in onward:
                await self._dispatch(data)
        else:
            await self._dispatch(line if onward == batch else b"[%b]" % b",".join(onward))

    def _hung_up(self, frame: Frame) -> bool:
        """Whether a cancellation is done with: in the stateless era the request is hung up, and nothing is sent."""
        wanted = (frames.members_of(frame.params) or {}).get("requestId")
        found = None if wanted is None else self._running.get(frames.id_key(bytes(wanted)))
        if found is None:
            return self._is_modern
        if found[1]:
            found[0].cancel()
        return found[1]

    async def _dispatch(self, data: bytes) -> None:
        frame = frames.read(data)
        if self._interceptor.owns(data):
            self._group.start_soon(self._own_request, data, frame)
        elif frame is None or (frame.id is not msgspec.UNSET and frame.method is not msgspec.UNSET):
            self._group.start_soon(self._request, data, frame)
        else:
            with anyio.move_on_after(_PATIENCE):
                await self._request(data, frame)

    async def _own_request(self, data: bytes, frame: Frame | None) -> None:
        """Something waits for the answer, but not for ever."""
        with anyio.move_on_after(_PATIENCE):
            await self._request(data, frame)
            if self._link.is_oldest:
                # It comes on another stream, if it comes.
                await anyio.sleep(_PATIENCE)
        await self._deliver(no_answer(data))

    async def _request(self, data: bytes, frame: Frame | None) -> None:
        key = None if frame is None or isinstance(frame.method, UnsetType) else frame.key
        with anyio.CancelScope() as scope:
            running = scope, self._is_of_now(frame)
            if key is not None:
                self._running[key] = running
            try:
                await self._link.send(data, frame, await self._said(frame))
            except Refused as error:
                await self._refused(data, frame, error)
            except (Lost, Unanswered, sse.TooLong) as error:
                _log.warning("mcp-envelope: the server did not answer: %s", error)
                await self._failed(data, *_told(error))
            finally:
                if key is not None and self._running.get(key) is running:
                    del self._running[key]

    def _is_of_now(self, frame: Frame | None) -> bool:
        """Whether a message is of the stateless era; so is the conversation then, until the client begins anew."""
        if headers.modern(frame, lambda tool: {}) is not None:
            self._is_modern = True
            return True
        if frame is not None and frame.method == "initialize":
            self._is_modern = False
        return False

    async def _said(self, frame: Frame | None) -> Headers | None:
        """The headers of a message of the stateless era."""
        catalogue = self._interceptor.catalogue
        said = headers.modern(frame, catalogue.headers)
        if said is not None and frame is not None and frame.method == "tools/call" and not catalogue.seen:
            # The tool may want arguments in headers, and only a list tells.
            await self._learn(frame)
            said = headers.modern(frame, catalogue.headers)
        return said

    async def _learn(self, frame: Frame) -> None:
        catalogue = self._interceptor.catalogue
        meta = (frames.members_of(frame.params) or {}).get("_meta", Raw(b"{}"))
        kept = {
            name: value for name, value in (frames.members_of(meta) or {}).items() if name != "progressToken"
        }
        async with self._learning:
            cursor: str | None = None
            for page in range(_MOST_PAGES):
                if catalogue.complete or (catalogue.seen and not page):
                    return
                params: dict[str, Any] = (
                    {"_meta": kept} if cursor is None else {"cursor": cursor, "_meta": kept}
                )
                request = encode(
                    {
                        "jsonrpc": "2.0",
                        "id": f"mcp-envelope-tools-{page}",
                        "method": "tools/list",
                        "params": params,
                    }
                )
                said = headers.modern(frames.read(request), catalogue.headers)
                with anyio.move_on_after(_PATIENCE):
                    found = await self._upstream.ask(self._upstream.url, said or [], request, follow=True)
                    reply = None if found is None else frames.read(found)
                if reply is None or isinstance(reply.result, UnsetType):
                    return
                catalogue.learn(reply.result)
                if (cursor := catalogue.cursor(reply.result)) is None:
                    return

    # -- to the client --------------------------------------------------------------------------------------

    async def _deliver(self, data: bytes) -> None:
        self._delivering += 1
        try:
            moves = await self._upstream.look(self._seen, data)
            await self._write(moves.to_client)
        finally:
            self._delivering -= 1
        for onward in moves.to_server:
            await self._dispatch(onward)

    def _seen(self, data: bytes) -> Moves:
        """What to make of a text from the server: on stdio it has to be a message, and one line."""
        if frames.read(data) is None and frames.read_batch(data) is None:
            _log.warning("mcp-envelope: the server said something that is no message")
            return Moves([], [])
        to_client, to_server = self._interceptor.from_server(data)
        lines = [compact(out) if b"\n" in out or b"\r" in out else out for out in to_client]
        return Moves(lines, to_server)

    async def _refused(self, data: bytes, frame: Frame | None, error: Refused) -> None:
        if is_error(error.body) and frame is not None:
            if isinstance(frame.id, UnsetType) or isinstance(frame.method, UnsetType):
                return
            # The refusal may have come before the server knew which request it was.
            await self._deliver(frames.replaced(error.body, {"id": bytes(frame.id)}))
            return
        words = f"The server refused the request: {error}."
        if error.location:
            words = f"The server is somewhere else: {error.location.partition('?')[0]}. Use that address."
        elif error.status == 401:
            words += " It wants credentials: --bearer-env or --header-env."
        await self._failed(data, words, _CODES.get(error.status, "UPSTREAM_UNAVAILABLE"))

    async def _failed(self, data: bytes, words: str, code: str) -> None:
        if self._interceptor.owns(data):
            return
        for part in frames.read_batch(data) or [data]:
            failure = self._interceptor.failed(part, words, code)
            if failure is not None:
                await self._write([failure])

    async def _ended(self) -> None:
        """The one stream of the oldest transport is over, and every answer with it."""
        await self._write(self._interceptor.lost("The server ended the connection before it answered."))

    async def _write(self, out: list[bytes]) -> None:
        if out:
            await to_thread.run_sync(self._writer.write, out, abandon_on_cancel=True)
            if self._writer.broken:
                self._group.cancel_scope.cancel()


def _read_lines(loop: asyncio.AbstractEventLoop, sending: MemoryObjectSendStream[bytes]) -> None:
    """In a thread of its own, which nobody waits for: reading cannot be interrupted."""
    with suppress(OSError, RuntimeError, anyio.BrokenResourceError):
        for line in lines(sys.stdin.fileno()):
            asyncio.run_coroutine_threadsafe(sending.send(line), loop).result()
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(sending.close)


def _told(error: Exception) -> tuple[str, str]:
    if isinstance(error, sse.TooLong):
        return "The server's reply is larger than is taken.", "FRAME_TOO_LARGE"
    if isinstance(error, Unreachable):
        return "The server cannot be reached.", "UPSTREAM_UNAVAILABLE"
    return "The server broke off before it answered.", "UPSTREAM_DIED"
