"""stdio in front of HTTP: a client that starts programs reaches a server that has a URL.

Strategy: every line from the client is one message to the server, and everything that comes back is written as
lines. Requests run concurrently; notifications wait for each other, which keeps their order. In the stateless
era a request is cancelled by closing its connection, in the older one by a notification. When the client closes
its end, its requests get a moment to be answered; then, or on a signal, whatever still runs is cancelled and the
session is deleted.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from contextlib import aclosing
from typing import Final, Literal, Protocol

import anyio
import anyio.abc
from msgspec import UnsetType

from ..gateway import Gateway
from ..jsontext.document import compact
from . import frames
from .frames import Frame, Id, Outgoing
from .interceptor import LOGIN_NEEDED, Interceptor
from .stdio_asyncio import GRACE, POLL, SIGNALS, StandardOutput, standard_input
from .streamable_http import HttpRefusal, StreamableHttp, request_key, stateless_headers
from .upstream import BROKEN, Upstream, UpstreamLogin, explained, no_answer
from .url_elicitation import PendingLogin, UrlElicitations

_MORE_NEEDED: Final = (
    "The server wants more rights than the login has. Run this command in a terminal, then try again: %s"
)
_log = logging.getLogger("mcp_envelope")


class InteractiveLogin(UpstreamLogin, Protocol):
    """A login that a person may have to begin."""

    # The command that does that, as it is typed into a shell.
    command: str

    def needs(self, status: int) -> Literal["", "login", "more", "patience"]:
        """What would help with a request that was refused: nothing of ours, a login, a wider one, or time."""
        ...

    async def invite(self, group: anyio.abc.TaskGroup) -> PendingLogin | None:
        """Begin a login that a person finishes in a browser, or return the one that waits; None if we can't."""
        ...


# Seconds for the server to accept a notification, since what follows waits for it, or to list its tools.
_TIMEOUT: Final = 30.0
# Any other refusal means that the server is not available to us.
_CODES: Final = {
    401: "FORBIDDEN",
    403: "FORBIDDEN",
    408: "UPSTREAM_TIMEOUT",
    413: "TOO_LARGE",
    429: "RATE_LIMITED",
}


class StdioToHttp:
    def __init__(
        self,
        gateway: Gateway,
        url: str,
        headers: dict[str, str] | None = None,
        *,
        transport: str | None = None,
        observe: bool = False,
        login: InteractiveLogin | None = None,
    ) -> None:
        self._gateway = gateway
        self._upstream = Upstream(url, headers, cookies=True, login=login)
        self._login = login if self._upstream.login is not None else None
        self._invitations = UrlElicitations()
        self._transport = transport
        self._interceptor = Interceptor(gateway, observe=observe, adopts=True, mirrors=True)
        # Requests under way, and whether they are of the stateless era.
        self._running: dict[Id, tuple[anyio.CancelScope, bool]] = {}
        # Messages from the server on their way to the client.
        self._delivering = 0
        # Whether the conversation is of that era.
        self._is_stateless = False
        # The request for a tool list that is under way.
        self._listing: anyio.CancelScope | None = None
        self._signal = 0

    def run(self) -> int:
        """Return 0, or the exit code that a shell gives for the signal that ended it."""
        anyio.run(self._main)
        self._gateway.close()
        if self._signal:
            # A thread may still be blocked on a client that neither reads nor writes: do not wait for it.
            sys.stderr.flush()
            os._exit(128 + self._signal)
        return 0

    async def _main(self) -> None:
        self._output = await StandardOutput.opened()
        async with aclosing(self._upstream):
            async with anyio.create_task_group() as group:
                self._group = group
                self._http = StreamableHttp(
                    self._upstream,
                    group,
                    self._deliver,
                    self._interceptor.awaits,
                    self._legacy_ended,
                    self._transport,
                )
                group.start_soon(self._watch_signals)
                group.start_soon(self._watch_client)
                await self._serve()
                with anyio.move_on_after(GRACE):
                    while self._delivering or self._interceptor.expects_answers or self._output.is_behind:
                        await anyio.sleep(POLL)
                group.cancel_scope.cancel()
            await self._http.aclose()
        self._output.close()

    async def _watch_signals(self) -> None:
        wanted = [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]
        with anyio.open_signal_receiver(*wanted) as received:
            async for number in received:
                self._signal = int(number)
                self._group.cancel_scope.cancel()

    async def _watch_client(self) -> None:
        """A client that has stopped reading will hear nothing more, whether or not there is something to say."""
        await self._output.gone.wait()
        self._group.cancel_scope.cancel()

    # -- from the client ------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        async for line in standard_input():
            await self._from_client(line)
            while self._interceptor.list_requests.is_crowded:
                await anyio.sleep(POLL)

    async def _from_client(self, line: bytes) -> None:
        frame = frames.read(line)
        if frame is not None and frame.method == "notifications/cancelled" and self._cancel(frame):
            self._interceptor.from_client(line)
            if self._listing is not None and not self._interceptor.list_requests.are_wanted:
                self._listing.cancel()
            return
        batch = frames.read_batch(line)
        onward: list[bytes] = []
        for part in [line] if batch is None else batch:
            moves = await self._upstream.intercept(self._interceptor.from_client, part)
            await self._write(moves.to_client)
            for data in moves.to_server:
                if self._interceptor.list_requests.owns(data):
                    await self._dispatch(data)
                else:
                    onward.append(data)
        if batch is None or len(onward) < 2:
            for data in onward:
                await self._dispatch(data)
        else:
            await self._dispatch(line if onward == batch else frames.batch(onward))

    def _cancel(self, frame: Frame) -> bool:
        """Whether a cancellation is not sent on: in the stateless era, closing the connection is all it takes."""
        wanted = frame.param("requestId")
        found = None if wanted is None else self._running.get(frames.id_key(bytes(wanted)))
        if found is None:
            return self._is_stateless
        scope, is_stateless = found
        if is_stateless:
            scope.cancel()
        return is_stateless

    async def _dispatch(self, data: bytes) -> None:
        frame = frames.read(data)
        if self._interceptor.list_requests.owns(data):
            self._group.start_soon(self._own_request, data, frame)
        elif frame is None or request_key(frame) is not None:
            self._group.start_soon(self._request, data, frame)
        else:
            with anyio.move_on_after(_TIMEOUT):
                await self._request(data, frame)

    async def _own_request(self, data: bytes, frame: Frame | None) -> None:
        """A request of the proxy's own, which something waits for, though not forever."""
        with anyio.move_on_after(_TIMEOUT) as self._listing:
            await self._request(data, frame)
            if self._http.is_legacy:
                # The answer comes on another stream, if at all.
                await anyio.sleep(_TIMEOUT)
        await self._deliver(no_answer(data))

    async def _request(self, data: bytes, frame: Frame | None) -> None:
        if frame is not None and (answered := await self._invitations.answered(frame)) is not None:
            frame, data = answered, answered.data
        key, headers = request_key(frame), stateless_headers(frame, self._interceptor.tools.headers)
        if headers is not None:
            self._is_stateless = True
        elif frame is not None and frame.method == "initialize":
            self._is_stateless = False
        with anyio.CancelScope() as scope:
            running = scope, headers is not None
            if key is not None:
                self._running[key] = running
            try:
                await self._http.send(data, frame, headers)
            except HttpRefusal as error:
                await self._refused(data, frame, error)
            except BROKEN as error:
                _log.warning("mcp-envelope: the server did not answer: %s", error)
                await self._failed(data, *explained(error))
            finally:
                if key is not None and self._running.get(key) is running:
                    del self._running[key]

    # -- to the client --------------------------------------------------------------------------------------

    async def _deliver(self, data: bytes) -> None:
        self._delivering += 1
        try:
            moves = await self._upstream.intercept(self._from_server, data)
            await self._write(moves.to_client)
        finally:
            self._delivering -= 1
        for onward in moves.to_server:
            await self._dispatch(onward)

    def _from_server(self, data: bytes) -> Outgoing:
        """What comes of a text from the server, which on stdio has to be a message on one line."""
        if frames.read(data) is None and frames.read_batch(data) is None:
            _log.warning("mcp-envelope: the server sent something that is not a message")
            return Outgoing([], [])
        to_client, to_server = self._interceptor.from_server(data)
        lines = [compact(out) if b"\n" in out or b"\r" in out else out for out in to_client]
        return Outgoing(lines, to_server)

    async def _refused(self, data: bytes, frame: Frame | None, error: HttpRefusal) -> None:
        if self._login is not None and (need := self._login.needs(error.status)):
            await self._needs_login(self._login, data, frame, need)
            return
        if error.has_error and frame is not None:
            if not isinstance(frame.id, UnsetType) and request_key(frame) is not None:
                # The server may have refused before it knew which request it was.
                await self._deliver(frames.replaced(error.body, {"id": bytes(frame.id)}))
            return
        message = f"The server refused the request: {error}."
        if error.location:
            message = f"The server is somewhere else: {error.location.partition('?')[0]}. Use that address."
        elif error.status == 401:
            message += " It wants credentials: --bearer-env or --header-env."
        await self._failed(data, message, _CODES.get(error.status, "UPSTREAM_UNAVAILABLE"))

    async def _needs_login(
        self, login: InteractiveLogin, data: bytes, frame: Frame | None, need: str
    ) -> None:
        """Tell the client how its user logs in, by an address to open if it can show one."""
        if need == "patience":
            words = "The server that gives the tokens for this one does not answer. Try again in a moment."
            await self._failed(data, words, "UPSTREAM_UNAVAILABLE")
            return
        if frame is not None and self._invitations.may_ask(frame):
            invitation = await login.invite(self._group)
            if invitation is not None:
                if self._invitations.is_new(invitation):
                    self._group.start_soon(self._announce, invitation)
                await self._deliver(self._invitations.asking(frame, invitation))
                return
        await self._failed(
            data, (_MORE_NEEDED if need == "more" else LOGIN_NEEDED) % login.command, "LOGIN_REQUIRED"
        )

    async def _announce(self, invitation: PendingLogin) -> None:
        """Tell a client with a session when its user is done."""
        await invitation.done.wait()
        if (note := self._invitations.ended(invitation)) is not None:
            await self._write([note])

    async def _failed(self, data: bytes, message: str, code: str) -> None:
        if self._interceptor.list_requests.owns(data):
            return
        for part in frames.read_batch(data) or [data]:
            failure = self._interceptor.failed(part, message, code)
            if failure is not None:
                await self._write([failure])

    async def _legacy_ended(self) -> None:
        await self._write(self._interceptor.lost("The server ended the connection before it answered."))

    async def _write(self, out: list[bytes]) -> None:
        if out:
            await self._output.write(out)
