"""stdio in front of HTTP: a client that starts programs reaches a server that has an address.

Strategy: every line from the client is one request to the server, and all that comes back goes out as lines. The
session and protocol headers that an HTTP client would send are made from what passes. Requests run side by side;
notifications wait for each other, so that their order stays. A stream that breaks is taken up again where the
older era allows it. The oldest transport, where answers come on one long stream, is spoken when the server does.
"""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from typing import Any, Final
from urllib.parse import urljoin

import anyio
import anyio.abc
import httpx2
import msgspec
from anyio import to_thread
from msgspec import UNSET, Raw, UnsetType

from ..front import Front
from . import frames, sse
from .frames import Frame, Id
from .interceptor import Interceptor
from .stdio import Writer, lines
from .upstream import MOST, Upstream, is_json, is_stream, looked_at, make_client, whole

_TYPES: Final = [("content-type", "application/json"), ("accept", "application/json, text/event-stream")]
_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
_SAFE: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
# How often a broken stream is taken up again in a row, and how long to wait before, in seconds.
_RETRIES: Final = 5
_PAUSE: Final = 1.0


class _Params(msgspec.Struct, rename={"meta": "_meta", "request_id": "requestId"}):
    meta: dict[str, Raw] | UnsetType = UNSET
    name: str | UnsetType = UNSET
    uri: str | UnsetType = UNSET
    arguments: dict[str, Any] | UnsetType = UNSET
    request_id: Raw | UnsetType = UNSET


class _Initialized(msgspec.Struct, rename="camel"):
    protocol_version: str = ""


class Bridge:
    def __init__(
        self,
        front: Front,
        url: str,
        headers: dict[str, str] | None = None,
        *,
        transport: str | None = None,
        observe: bool = False,
    ) -> None:
        self._front = front
        self._url = url
        self._own_headers = headers
        self._transport = transport
        self._interceptor = Interceptor(front, observe=observe, adopts=True)
        self._writer = Writer(sys.stdout.fileno())
        self._session: str | None = None
        self._version: str | None = None
        self._endpoint: str | None = None
        self._running: dict[Id, tuple[anyio.CancelScope, bool]] = {}
        self._initializing: Id | None = None

    def run(self) -> int:
        anyio.run(self._main)
        self._front.close()
        return 0

    async def _main(self) -> None:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(make_client())
            self._upstream = Upstream(client, self._url, self._own_headers)
            self._group = await stack.enter_async_context(anyio.create_task_group())
            if self._transport == "sse":
                await self._group.start(self._older)
            source = lines(sys.stdin.fileno())
            while True:
                line = await to_thread.run_sync(next, source, None, abandon_on_cancel=True)
                if line is None:
                    break
                if line.strip():
                    await self._from_client(line)
            self._group.cancel_scope.cancel()
        await self._leave()

    async def _leave(self) -> None:
        """The client is gone: so is its session."""
        if self._session is None:
            return
        with suppress(httpx2.HTTPError), anyio.move_on_after(2):
            async with make_client() as client:
                headers = [*self._standing(), *(self._own_headers or {}).items()]
                await client.request("DELETE", self._url, headers=headers)

    # -- from the client ------------------------------------------------------------------------------------

    async def _from_client(self, line: bytes) -> None:
        frame = frames.read(line)
        if frame is not None and frame.method == "notifications/cancelled" and self._was_cancelled(frame):
            self._interceptor.from_client(line)
            return
        moves = await looked_at(self._interceptor.from_client, line)
        await self._write(moves.to_client)
        for data in moves.to_server:
            sent = frames.read(data)
            if sent is not None and sent.id is not UNSET and sent.method is not UNSET:
                self._group.start_soon(self._request, data, sent)
            else:
                await self._request(data, sent)

    def _was_cancelled(self, frame: Frame) -> bool:
        """In the stateless era a request is cancelled by hanging up."""
        wanted = _params(frame).request_id
        key = None if isinstance(wanted, UnsetType) else frames.id_key(bytes(wanted))
        found = self._running.get(key) if key is not None else None
        if found is None or not found[1]:
            return False
        found[0].cancel()
        return True

    async def _request(self, data: bytes, frame: Frame | None) -> None:
        headers, modern = self._headers(frame)
        key = frame.key if frame is not None else None
        with anyio.CancelScope() as scope:
            if key is not None:
                self._running[key] = scope, modern
            try:
                await self._exchange(data, frame, headers)
            except (httpx2.HTTPError, sse.TooLong) as error:
                code = "FRAME_TOO_LARGE" if isinstance(error, sse.TooLong) else "UPSTREAM_UNAVAILABLE"
                await self._fail(data, f"The server cannot be reached: {type(error).__name__}.", code)
            finally:
                if key is not None:
                    self._running.pop(key, None)

    async def _exchange(self, data: bytes, frame: Frame | None, headers: list[tuple[str, str]]) -> None:
        async with self._upstream.post(data, headers, self._endpoint) as response:
            if self._session is None:
                self._session = response.headers.get("mcp-session-id")
            starts = frame is not None and frame.method == "initialize"
            if starts and response.status_code in (400, 404, 405) and self._endpoint is None:
                # A server of the oldest kind: answers come on a stream of their own.
                await response.aread()
                await self._group.start(self._older)
                if self._is_older():
                    return await self._exchange(data, frame, headers)
            if is_stream(response) and response.is_success:
                await self._stream(response, headers, frame)
            elif is_json(response) and (body := await whole(response)):
                await self._replied(body, headers, frame)
            elif not response.is_success and frame is not None:
                told = (
                    f"The server refused the request: HTTP {response.status_code} {response.reason_phrase}."
                )
                await self._fail(data, told, "UPSTREAM_UNAVAILABLE")
            if frame is not None and frame.method == "notifications/initialized" and self._endpoint is None:
                self._group.start_soon(self._listen)
        return None

    # -- from the server ------------------------------------------------------------------------------------

    async def _stream(
        self, response: httpx2.Response, headers: list[tuple[str, str]], frame: Frame | None
    ) -> None:
        last: bytes | None = None
        async for event in _events(response):
            last = event.id or last
            if event.data:
                await self._replied(event.data, headers, frame)
        answered = frame is None or frame.key is None or not self._interceptor.awaits(frame.key)
        if last is not None and not answered and self._session is not None:
            await self._resume(last, headers, frame)

    async def _resume(self, last: bytes, headers: list[tuple[str, str]], frame: Frame | None) -> None:
        """Take up a stream that broke before the answer came."""
        for _ in range(_RETRIES):
            await anyio.sleep(_PAUSE)
            sent = [
                *self._standing(),
                ("accept", "text/event-stream"),
                ("last-event-id", last.decode("latin-1")),
            ]
            with suppress(httpx2.HTTPError):
                own = self._upstream.headers.items()
                async with self._upstream.client.stream("GET", self._url, headers=[*sent, *own]) as response:
                    if not response.is_success or not is_stream(response):
                        return
                    async for event in _events(response):
                        last = event.id or last
                        if event.data:
                            await self._replied(event.data, headers, frame)
            if frame is None or frame.key is None or not self._interceptor.awaits(frame.key):
                return

    async def _replied(self, data: bytes, headers: list[tuple[str, str]], frame: Frame | None) -> None:
        if frame is not None and frame.method == "initialize":
            reply = frames.read(data)
            if reply is not None and not isinstance(reply.result, UnsetType) and reply.key == frame.key:
                with suppress(msgspec.MsgspecError):
                    self._version = msgspec.json.decode(reply.result, type=_Initialized).protocol_version
        moves = await looked_at(self._interceptor.from_server, data)
        moves = await self._upstream.settle(self._interceptor, moves, headers, self._endpoint)
        await self._write(moves.to_client)
        for onward in moves.to_server:
            self._group.start_soon(self._request, onward, frames.read(onward))

    async def _listen(self) -> None:
        """What the server says of its own accord; a server that says nothing refuses, and that is fine."""
        last: bytes | None = None
        for _ in range(_RETRIES):
            sent = [*self._standing(), ("accept", "text/event-stream")]
            if last is not None:
                sent.append(("last-event-id", last.decode("latin-1")))
            with suppress(httpx2.HTTPError):
                own = self._upstream.headers.items()
                async with self._upstream.client.stream("GET", self._url, headers=[*sent, *own]) as response:
                    if not response.is_success or not is_stream(response):
                        return
                    async for event in _events(response):
                        last = event.id or last
                        if event.data:
                            await self._replied(event.data, [*_TYPES, *self._standing()], None)
            await anyio.sleep(_PAUSE)

    async def _older(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """The oldest transport: one stream for all answers; its first event names where messages go."""
        started = False
        try:
            own = self._upstream.headers.items()
            sent = [("accept", "text/event-stream"), *own]
            async with self._upstream.client.stream("GET", self._url, headers=sent) as response:
                if response.is_success and is_stream(response):
                    async for event in _events(response):
                        if event.name == b"endpoint" and event.data:
                            self._endpoint = urljoin(self._url, event.data.decode("utf-8", "replace").strip())
                            started = True
                            task_status.started()
                        elif event.data:
                            await self._replied(event.data, _TYPES, None)
        except httpx2.HTTPError:
            pass
        if not started:
            task_status.started()
        elif answers := self._interceptor.lost("The server ended the connection before it answered."):
            await self._write(answers)

    def _is_older(self) -> bool:
        return self._endpoint is not None

    # -- headers --------------------------------------------------------------------------------------------

    def _standing(self) -> list[tuple[str, str]]:
        """What an older session says with each request."""
        headers = [] if self._session is None else [("mcp-session-id", self._session)]
        return headers if self._version is None else [*headers, ("mcp-protocol-version", self._version)]

    def _headers(self, frame: Frame | None) -> tuple[list[tuple[str, str]], bool]:
        """The headers of a request, and whether it is of the stateless era, which says everything anew."""
        if frame is None or isinstance(frame.method, UnsetType):
            return [*_TYPES, *self._standing()], False
        params = _params(frame)
        meta = {} if isinstance(params.meta, UnsetType) else params.meta
        if _VERSION not in meta:
            return [*_TYPES, *self._standing()], False
        with suppress(msgspec.MsgspecError):
            version = msgspec.json.decode(meta[_VERSION], type=str)
            headers = [*_TYPES, ("mcp-protocol-version", version), ("mcp-method", encoded(frame.method))]
            name = getattr(params, _NAMED.get(frame.method, ""), UNSET) if frame.method in _NAMED else UNSET
            if not isinstance(name, UnsetType):
                headers.append(("mcp-name", encoded(name)))
            if frame.method == "tools/call" and not isinstance(params.arguments, UnsetType):
                mirrored = self._interceptor.catalogue.headers(str(params.name))
                headers += mirror(mirrored, params.arguments)
            return headers, True
        return [*_TYPES, *self._standing()], False

    # -- to the client --------------------------------------------------------------------------------------

    async def _fail(self, data: bytes, message: str, code: str) -> None:
        failure = self._interceptor.failed(data, message, code)
        if failure is not None:
            await self._write([failure])

    async def _write(self, out: list[bytes]) -> None:
        if out:
            await to_thread.run_sync(self._writer.write, out)
            if self._writer.broken:
                self._group.cancel_scope.cancel()


async def _events(response: httpx2.Response) -> AsyncIterator[sse.Event]:
    splitter = sse.Splitter(MOST)
    async for chunk in response.aiter_bytes():
        for event in splitter.feed(chunk):
            yield event


def _params(frame: Frame) -> _Params:
    try:
        raw = b"{}" if isinstance(frame.params, UnsetType) else frame.params
        return msgspec.json.decode(raw, type=_Params)
    except (msgspec.MsgspecError, RecursionError):
        return _Params()


def encoded(value: str) -> str:
    """A text as a header can carry it."""
    if _SAFE.fullmatch(value) and not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def mirror(named: dict[tuple[str, ...], str], arguments: dict[str, Any]) -> list[tuple[str, str]]:
    """Arguments that the tool's schema wants to see in headers, too."""
    headers: list[tuple[str, str]] = []
    for path, token in named.items():
        value: Any = arguments
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        if isinstance(value, bool):
            headers.append((f"mcp-param-{token}", "true" if value else "false"))
        elif isinstance(value, str | int | float):
            headers.append((f"mcp-param-{token}", encoded(str(value))))
    return headers
