"""A client's side of streamable HTTP: messages to a server, its session and streams, and recovery when they break.

Strategy: each message is one POST, and whatever comes back is delivered message by message. A client on stdio
knows nothing of sessions, so the session of an older server is kept here: if the server has forgotten it, the
client is initialized again and the message sent once more, since a refused message did nothing. A stream that
breaks is resumed if its events have ids. A request of the stateless era repeats in its headers what its body
says. A server that refuses the first message as a server of the legacy transport would is spoken to in that
transport.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Final

import anyio
import anyio.abc
from msgspec import UnsetType

from . import frames, legacy_sse
from .frames import Frame, Id
from .headers import EVENT_STREAM, MESSAGE_HEADERS, SESSION_HEADER
from .upstream import BROKEN, Headers, Response, Unanswered, Upstream, readable_type, small_body

_VERSION: Final = "mcp-protocol-version"
_INITIALIZED: Final = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
# How often in a row a broken stream is resumed without success, and the seconds to wait before each attempt.
_RETRIES: Final = 5
_RETRY_DELAY: Final = 1.0
_MAX_RETRY_DELAY: Final = 30.0
_INITIALIZE_TIMEOUT: Final = 30.0


class HttpRefusal(Exception):
    """The server answered a message with an HTTP error, or redirected it elsewhere."""

    def __init__(self, response: Response, body: bytes = b"") -> None:
        super().__init__(f"HTTP {response.status} {response.reason}".strip())
        self.status = response.status
        self.body = body
        self.location: str = response.get("location") if response.is_redirect else ""

    @property
    def has_error(self) -> bool:
        """Whether the body is an error of the protocol."""
        frame = frames.read(self.body)
        return frame is not None and frames.read_error(frame.error).code is not None

    @property
    def is_unknown_session(self) -> bool:
        """Whether the server has forgotten the session: 404, but many say so in other words."""
        return self.status == 404 or (self.status == 400 and b"session" in self.body.lower())


class _Position:
    """How far a stream was read."""

    def __init__(self) -> None:
        self.last_id: bytes | None = None
        self.retry_delay = _RETRY_DELAY
        self.count = 0


class StreamableHttp:
    """`deliver` gets every message, `awaits` tells whether a request still has no answer.

    `ended` is called when the stream of the legacy transport is over, and all answers with it. `transport` is
    "http" or "sse"; None detects it.
    """

    def __init__(
        self,
        upstream: Upstream,
        group: anyio.abc.TaskGroup,
        deliver: Callable[[bytes], Awaitable[None]],
        awaits: Callable[[Id], bool],
        ended: Callable[[], Awaitable[None]],
        transport: str | None = None,
    ) -> None:
        self._upstream = upstream
        self._group = group
        self._deliver = deliver
        self._awaits = awaits
        self._ended = ended
        self._session: str | None = None
        self._version: str | None = None
        self._is_settled = transport is not None
        # The legacy transport: whether it is spoken, and where messages go while its stream is open.
        self.is_legacy = transport == "sse"
        self._endpoint: str | None = None
        # The client's own `initialize`, and the one of ours that is under way.
        self._initialize: bytes | None = None
        self._reinitializing: tuple[Id, anyio.Event] | None = None
        self._reinitialized = 0
        self._renewing = anyio.Lock()
        self._listener: anyio.CancelScope | None = None

    # -- messages -------------------------------------------------------------------------------------------

    async def send(self, data: bytes, frame: Frame | None, headers: Headers | None) -> None:
        """Send a message, and deliver what answers it before returning, except over the legacy transport.

        `headers` are those of a message of the stateless era.
        """
        method = None if frame is None else frame.method
        if method == "initialize":
            self._initialize, self._session, self._version = data, None, None
        if not await self._post(data, frame, headers):
            await self._post(data, frame, headers, is_retry=True)
        if method == "notifications/initialized" and not self.is_legacy:
            self._listen_anew()

    async def _post(
        self, data: bytes, frame: Frame | None, headers: Headers | None, is_retry: bool = False
    ) -> bool:
        """Post a message; False if it was refused for a reason that has been dealt with since."""
        is_first = frame is not None and frame.method == "initialize"
        if self.is_legacy and self._endpoint is None:
            await self._reopen(initialize=not is_first)
        session = self._session
        headers = [*MESSAGE_HEADERS, *self._session_headers(session)] if headers is None else headers
        async with self._upstream.send("POST", self._url, headers, data, follow=True) as response:
            if response.is_success:
                self._is_settled = True
                if is_first:
                    self._session = response.get(SESSION_HEADER) or None
                await self._read(response, frame)
                return True
            refused = HttpRefusal(response, await small_body(response))
        if is_retry or self.is_legacy:
            raise refused
        if session is not None and not is_first and refused.is_unknown_session:
            await self._renew(session)
            return False
        # A legacy server takes no messages where its stream is.
        statuses = (400, 404, 405) if is_first else (404, 405)
        if not self._is_settled and refused.status in statuses and not refused.has_error:
            with suppress(*BROKEN):
                await self._reopen(initialize=False)
                return False
        raise refused

    @property
    def _url(self) -> str:
        return self._endpoint or self._upstream.url

    def _session_headers(self, session: str | None) -> Headers:
        headers = [] if session is None else [(SESSION_HEADER, session)]
        return headers if self._version is None else [*headers, (_VERSION, self._version)]

    async def _read(self, response: Response, frame: Frame | None) -> None:
        """Deliver what a reply holds, the answer to a request included."""
        key = request_key(frame)
        position = _Position()
        try:
            await self._read_messages(response, position, frame)
        except Unanswered:
            if position.last_id is None and (key is None or self._awaits(key)):
                raise
        # Resuming takes no session, but the stateless era cannot do it.
        is_resumable = position.last_id is not None and (self._session or self._version)
        if key is not None and self._awaits(key) and is_resumable:
            await self._resume(position, frame, key)
        if key is not None and self._awaits(key) and response.status != 202:
            raise Unanswered("the reply holds no answer")

    async def _read_messages(self, response: Response, position: _Position, frame: Frame | None) -> None:
        async with aclosing(self._upstream.messages(response)) as events:
            async for event in events:
                position.count += 1
                position.last_id = event.id or position.last_id
                if event.retry is not None:
                    position.retry_delay = min(event.retry / 1000, _MAX_RETRY_DELAY)
                if event.data:
                    await self._received(event.data, frame)

    async def _received(self, data: bytes, frame: Frame | None) -> None:
        if frame is not None and frame.method == "initialize":
            self._learn_version(frames.read(data))
        if self._reinitializing is not None:
            key, answered = self._reinitializing
            answer = frames.read(data)
            if answer is not None and answer.is_response and answer.key == key:
                self._learn_version(answer)
                answered.set()
                return
        await self._deliver(data)

    def _learn_version(self, answer: Frame | None) -> None:
        if answer is not None:
            version = frames.members_of(answer.result).get("protocolVersion")
            self._version = frames.text_of(version) or self._version

    # -- streams --------------------------------------------------------------------------------------------

    async def _resume(self, position: _Position, frame: Frame | None, key: Id) -> None:
        """Resume a stream that ended before the answer came."""
        left = _RETRIES
        while left and self._awaits(key):
            left -= 1
            await anyio.sleep(position.retry_delay)
            before = position.count
            with suppress(Unanswered):
                if not await self._get(position, frame):
                    return
            if position.count > before:
                left = _RETRIES

    async def _get(self, position: _Position, frame: Frame | None) -> bool:
        """Read a stream to its end; False if the server has none."""
        headers = [*self._session_headers(self._session), ("accept", EVENT_STREAM)]
        if position.last_id is not None:
            headers.append(("last-event-id", position.last_id.decode("latin-1")))
        async with self._upstream.send("GET", self._upstream.url, headers, follow=True) as response:
            if not response.is_success or readable_type(response) != EVENT_STREAM:
                return response.status >= 500
            await self._read_messages(response, position, frame)
        return True

    def _listen_anew(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
        self._listener = anyio.CancelScope()
        self._group.start_soon(self._listen, self._listener)

    async def _listen(self, scope: anyio.CancelScope) -> None:
        """Listen to what the server sends of its own accord, unless it refuses."""
        position = _Position()
        failures = 0
        with scope:
            while True:
                before = position.count
                with suppress(*BROKEN):
                    if not await self._get(position, None):
                        return
                failures = 0 if position.count > before else failures + 1
                await anyio.sleep(min(position.retry_delay * 2 ** min(failures, 10), _MAX_RETRY_DELAY))

    async def _read_legacy_stream(
        self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Read the one stream of the legacy transport, once it has named its endpoint."""
        try:
            async with legacy_sse.connect(self._upstream) as (endpoint, messages):
                self._endpoint, self.is_legacy = endpoint, True
                task_status.started()
                with suppress(*BROKEN):
                    async for data in messages:
                        await self._received(data, None)
        finally:
            self._endpoint = None
        await self._ended()

    # -- sessions -------------------------------------------------------------------------------------------

    async def _reopen(self, initialize: bool) -> None:
        async with self._renewing:
            if self._endpoint is None:
                await self._group.start(self._read_legacy_stream)
                if initialize:
                    await self._reinitialize()

    async def _renew(self, session: str) -> None:
        async with self._renewing:
            # Others may have been refused for the same session, and wait here.
            if self._session == session:
                self._session = await self._reinitialize()
                self._listen_anew()

    async def _reinitialize(self) -> str | None:
        """Repeat the client's `initialize`; returns the session that begins with it."""
        if self._initialize is None:
            return None
        self._reinitialized += 1
        identifier = f"mcp-envelope-again-{self._reinitialized}"
        data = frames.replaced(self._initialize, {"id": b'"%b"' % identifier.encode()})
        answered = anyio.Event()
        self._reinitializing = ("s", identifier), answered
        try:
            with anyio.fail_after(_INITIALIZE_TIMEOUT):
                async with self._upstream.send(
                    "POST", self._url, MESSAGE_HEADERS, data, follow=True
                ) as response:
                    if not response.is_success:
                        raise HttpRefusal(response, await small_body(response))
                    session = response.get(SESSION_HEADER) or None
                    await self._read(response, None)
                await answered.wait()
                headers = [*MESSAGE_HEADERS, *self._session_headers(session)]
                async with self._upstream.send("POST", self._url, headers, _INITIALIZED, follow=True):
                    return session
        except TimeoutError:
            raise Unanswered("the server does not initialize a new session") from None
        finally:
            self._reinitializing = None

    async def aclose(self) -> None:
        """End the session."""
        if self._session is not None and not self.is_legacy:
            headers = self._session_headers(self._session)
            with suppress(*BROKEN), anyio.move_on_after(2):
                async with self._upstream.send("DELETE", self._upstream.url, headers, follow=True):
                    pass


def request_key(frame: Frame | None) -> Id | None:
    """The id of a request; None for any other message."""
    return None if frame is None or isinstance(frame.method, UnsetType) else frame.key


# -- headers of the stateless era -----------------------------------------------------------------------------

# The parameter that says what a request is about.
_SUBJECTS: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
_PLAIN: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


def stateless_headers(
    frame: Frame | None, mirrored: Callable[[str], Mapping[tuple[str, ...], str]]
) -> Headers | None:
    """The headers of a request of the stateless era; None for any other message.

    `mirrored` gives the names of the headers that repeat arguments of a tool, by the arguments' paths.
    """
    if frame is None or isinstance(frame.method, UnsetType):
        return None
    params, version = frames.members_of(frame.params), frame.version
    if version is None:
        return None
    headers = [*MESSAGE_HEADERS, (_VERSION, encoded(version)), ("mcp-method", encoded(frame.method))]
    subject = frames.text_of(params.get(_SUBJECTS.get(frame.method, "")))
    if subject is None:
        return headers
    headers.append(("mcp-name", encoded(subject)))
    if frame.method == "tools/call" and "arguments" in params and (names := mirrored(subject)):
        arguments = frames.value_of(params["arguments"])
        for path, name in names.items():
            value = arguments
            for step in path:
                value = value.get(step) if isinstance(value, dict) else None
            if isinstance(value, str | int | float) and _TOKEN.fullmatch(name):
                text = str(value).lower() if isinstance(value, bool) else str(value)
                headers.append((f"mcp-param-{name}", encoded(text)))
    return headers


def encoded(value: str) -> str:
    """Encode any text as a header value."""
    if not value or (
        _PLAIN.fullmatch(value) and not (value.startswith("=?base64?") and value.endswith("?="))
    ):
        return value
    return f"=?base64?{base64.b64encode(value.encode('utf-8', 'replace')).decode()}?="
