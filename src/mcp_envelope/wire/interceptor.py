"""The envelope between a client and a server, without any I/O: frames in, frames out.

Strategy: the outline of each frame tells whether it concerns us. Lists of tools are rewritten, results of tools are
sealed, `envelope_read` is answered here; whatever else passes is forwarded as the very bytes that came, malformed
frames and unknown methods included. Requests are remembered by their ids until they are answered. What has to
wait for something (a result whose schema nobody asked for yet) waits for a list that the proxy asks for itself.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ..clients import UNKNOWN, Client
from ..clients import client as known_client
from ..dialects.notice import READ_TOOL
from ..front import Call, Front
from ..jsontree import encode
from ..outcome import Failure
from ..payload import read_result
from ..policy.table import BUDGET_ARGUMENT
from ..sealed import Sealed
from . import frames
from .catalogue import Catalogue, Listed
from .frames import CallParams, Frame, Id, ToolResult
from .results import cut_error, result_of, with_result

_META: Final = "io.modelcontextprotocol/"
_OURS: Final = "envelope://"
_CALL: Final = msgspec.json.Decoder(CallParams)
_RESULT: Final = msgspec.json.Decoder(ToolResult)


class Moves(NamedTuple):
    """What is to be sent on, in order."""

    to_client: list[bytes]
    to_server: list[bytes]


class _Info(msgspec.Struct):
    name: str = ""
    version: str = ""


class _Initialize(msgspec.Struct, rename="camel"):
    client_info: _Info | None = None


class _Meta(msgspec.Struct, rename={"info": f"{_META}clientInfo", "version": f"{_META}protocolVersion"}):
    info: _Info | UnsetType = UNSET
    version: str | UnsetType = UNSET


class _WithMeta(msgspec.Struct, rename={"meta": "_meta"}):
    meta: Raw | UnsetType = UNSET


class _Cancelled(msgspec.Struct, rename="camel"):
    request_id: Raw | UnsetType = UNSET


class _Read(msgspec.Struct):
    uri: str = ""


class _Pending(NamedTuple):
    """A request of the client that concerns us."""

    method: str
    identifier: bytes
    call: Call | None = None
    meta: bytes | None = None


class Interceptor:
    """One conversation. `catalogue` may be shared by conversations with the same server.

    One that `adopts` also seals what looks like a tool's result when it does not know the request.
    """

    def __init__(
        self, front: Front, catalogue: Catalogue | None = None, *, observe: bool = False, adopts: bool = False
    ) -> None:
        self._adopts = adopts
        self._front = front
        self.catalogue = catalogue or Catalogue(front)
        self._observe = observe
        self.client: Client = UNKNOWN
        self._pending: dict[Id, _Pending] = {}
        self._lock = threading.Lock()
        self._waiting: list[Callable[[], Moves]] = []
        self._own = f"mcp-envelope-{os.urandom(6).hex()}"
        self._asked = 0
        self._own_meta: bytes | None = None

    # -- from the client ------------------------------------------------------------------------------------

    def from_client(self, data: bytes, owner: str | None = None) -> Moves:
        batch = frames.read_batch(data)
        if batch is not None:
            return _joined(batch, data, [self.from_client(part, owner) for part in batch])
        frame = frames.read(data)
        if frame is None or isinstance(frame.method, UnsetType):
            return Moves([], [data])
        match frame.method:
            case "tools/call":
                return self._called(frame, data, owner)
            case "tools/list" | "initialize":
                if (key := frame.key) is not None:
                    self._pending[key] = _Pending(frame.method, bytes(_raw(frame.id)))
                if frame.method == "initialize":
                    self._meet(frame)
            case "resources/read":
                return self._read_resource(frame, data, owner)
            case "notifications/cancelled":
                self._cancelled(frame)
        return Moves([], [data])

    def _meet(self, frame: Frame) -> None:
        try:
            info = msgspec.json.decode(_raw(frame.params), type=_Initialize).client_info
        except (msgspec.MsgspecError, RecursionError):
            return
        if info is not None:
            self.client = known_client(info.name, info.version)

    def _cancelled(self, frame: Frame) -> None:
        try:
            cancelled = msgspec.json.decode(_raw(frame.params), type=_Cancelled).request_id
        except (msgspec.MsgspecError, RecursionError):
            return
        if not isinstance(cancelled, UnsetType) and (key := frames.id_key(bytes(cancelled))) is not None:
            self._pending.pop(key, None)

    def _called(self, frame: Frame, data: bytes, owner: str | None) -> Moves:
        key = frame.key
        try:
            params = _CALL.decode(_raw(frame.params))
        except (msgspec.MsgspecError, RecursionError):
            return Moves([], [data])
        if key is None or self.catalogue.enveloped:
            return Moves([], [data])
        meta = _read_meta(params.meta)
        client = self.client
        if not isinstance(meta.info, UnsetType):
            client = known_client(meta.info.name, meta.info.version)
        arguments = {} if isinstance(params.arguments, UnsetType) else params.arguments
        modern = not isinstance(meta.version, UnsetType)
        if params.name == READ_TOOL and not self._observe:
            return Moves([self._read_on(frame, arguments, client, owner, modern)], [])
        requested: object = None
        if BUDGET_ARGUMENT in arguments and not self._observe:
            listed = self.catalogue.find(params.name)
            if listed is None:
                return self._after_list(meta_of(params), lambda: self._called(frame, data, owner))
            if listed.adds_budget:
                requested = msgspec.json.decode(arguments.pop(BUDGET_ARGUMENT))
                changed = frames.replaced(_raw(frame.params), {"arguments": encode(arguments)})
                data = frames.replaced(frame.data, {"params": changed})
        call = Call(
            tool=params.name,
            policy=self._front.policy(params.name, requested, client),
            client=client,
            owner=owner,
            request_id=None if isinstance(frame.id, UnsetType) else bytes(frame.id).decode().strip('"')[:200],
            started=time.perf_counter(),
        )
        self._pending[key] = _Pending("tools/call", bytes(_raw(frame.id)), call, meta_of(params))
        return Moves([], [data])

    def _read_on(
        self, frame: Frame, arguments: dict[str, Raw], client: Client, owner: str | None, modern: bool
    ) -> bytes:
        """`envelope_read`: answered here, never upstream."""
        given = {name: msgspec.json.decode(value) for name, value in arguments.items()}
        policy = self._front.policy(READ_TOOL, None, client)
        call = Call(tool=READ_TOOL, policy=policy, client=client, owner=owner)
        result = self._front.read(given, call).to_json()
        if modern:
            result = b'%b,"resultType":"complete"}' % result[:-1]
        assert not isinstance(frame.id, UnsetType)
        return frames.response(frame.id, result)

    def _read_resource(self, frame: Frame, data: bytes, owner: str | None) -> Moves:
        try:
            uri = msgspec.json.decode(_raw(frame.params), type=_Read).uri
        except (msgspec.MsgspecError, RecursionError):
            uri = ""
        if not uri.startswith(_OURS) or isinstance(frame.id, UnsetType) or self.catalogue.enveloped:
            return Moves([], [data])
        from ..vault.resources import resource

        try:
            result = resource(self._front.vault, uri, owner)
        except Failure as failure:
            problem = failure.problem
            return Moves(
                [frames.failure(frame.id, -32602, f"{problem.code}: {problem.message} {problem.hint}")], []
            )
        return Moves([frames.response(frame.id, result)], [])

    # -- from the server ------------------------------------------------------------------------------------

    def from_server(self, data: bytes) -> Moves:
        batch = frames.read_batch(data)
        if batch is not None:
            moves = [self.from_server(part) for part in batch]
            forth, back = _joined(batch, data, [Moves(there, here) for here, there in moves])
            return Moves(back, forth)
        if not self._pending and not self._waiting and not self._adopts:
            return Moves([data], [])
        frame = frames.read(data)
        if frame is None or not frame.is_response:
            return Moves([data], [])
        key = frame.key
        if key is not None and key[0] == "s" and str(key[1]).startswith(self._own):
            return self._own_list(frame)
        pending = self._pending.pop(key, None) if key is not None else None
        if pending is None and self._adopts and _looks_like_result(frame):
            call = Call(tool="", policy=self._front.policy("", None, self.client), client=self.client)
            pending = _Pending("tools/call", b"", call)
        if pending is None:
            return Moves([data], [])
        if pending.method == "tools/list":
            return Moves([self._listed(frame, data)], [])
        if pending.method == "tools/call" and pending.call is not None:
            return self._answered(frame, data, pending)
        return Moves([data], [])

    def _listed(self, frame: Frame, data: bytes) -> bytes:
        if isinstance(frame.result, UnsetType):
            return data
        shown = self.catalogue.learn(frame.result)
        return data if shown is None or self._observe else with_result(frame, shown)

    def _answered(self, frame: Frame, data: bytes, pending: _Pending) -> Moves:
        call = pending.call
        assert call is not None
        if not isinstance(frame.error, UnsetType):
            return Moves([data if self._observe else cut_error(frame, data, call, self._front)], [])
        if isinstance(frame.result, UnsetType) or self.catalogue.enveloped:
            return Moves([data], [])
        try:
            result = _RESULT.decode(frame.result)
        except (msgspec.MsgspecError, RecursionError):
            result = result_of(frame.result)
        if result.result_type not in (UNSET, "complete") or (
            result.content is UNSET and result.structuredContent is UNSET
        ):
            # Input that is asked for, a task: not a result yet.
            return Moves([data], [])
        content = [] if isinstance(result.content, UnsetType) else result.content
        structured = None if isinstance(result.structuredContent, UnsetType) else result.structuredContent
        listed = self.catalogue.find(call.tool)
        is_error = result.is_error is True
        size = max(sum(map(len, content)) + len(content) + 1, len(structured or b""))
        if listed is None and structured is not None and not is_error and not self._is_small(call, size):
            return self._after_list(pending.meta, lambda: self._answered(frame, data, pending))
        call = _knowing(call, listed)
        if self._front.fits(call, content, structured, size, is_error):
            return Moves([data], [])
        payload = read_result(
            [bytes(block) for block in content], None if structured is None else bytes(structured)
        )
        if self._observe:
            self._front.seal(payload, call, is_error=is_error or None, vault=None)
            return Moves([data], [])
        sealed = self._front.seal(payload, call, is_error=is_error or None)
        if sealed.untouched and not (call.published.wrap and structured is not None):
            return Moves([data], [])
        return Moves([with_result(frame, self._sealed(sealed, frame, result))], [])

    def _is_small(self, call: Call, size: int) -> bool:
        budget = call.policy.budget
        return call.is_native and (budget is None or size <= budget.limit)

    def _sealed(self, sealed: Sealed, frame: Frame, result: ToolResult) -> bytes:
        """The server's result with its lanes replaced; whatever else it says stays."""
        made = msgspec.json.decode(sealed.to_json(), type=ToolResult)
        changes: dict[str, bytes | None] = {
            "content": sealed.content,
            "structuredContent": None
            if isinstance(made.structuredContent, UnsetType)
            else bytes(made.structuredContent),
        }
        if sealed.is_error != (result.is_error is True):
            changes["isError"] = b"true" if sealed.is_error else b"false"
        if sealed.meta:
            own = encode(sealed.meta)
            if isinstance(result.meta, UnsetType) or bytes(result.meta)[:1] != b"{":
                changes["_meta"] = own
            else:
                changes["_meta"] = frames.replaced(
                    result.meta, {key: encode(value) for key, value in sealed.meta.items()}
                )
        return frames.replaced(_raw(frame.result), changes)

    # -- lists that the proxy asks for itself ---------------------------------------------------------------

    def _after_list(self, meta: bytes | None, then: Callable[[], Moves]) -> Moves:
        """Do something once the tools are known; the list is asked for if nobody asked yet."""
        with self._lock:
            self._waiting.append(then)
            if len(self._waiting) > 1:
                return Moves([], [])
            self._own_meta = meta
            return Moves([], [self._list_request(None)])

    def _list_request(self, cursor: str | None) -> bytes:
        self._asked += 1
        params: dict[str, Any] = {} if cursor is None else {"cursor": cursor}
        if self._own_meta is not None:
            # The stateless era says with each request who asks; the call that waits has said so.
            params["_meta"] = Raw(self._own_meta)
        message: dict[str, Any] = {
            "jsonrpc": "2.0",
            "id": f"{self._own}-{self._asked}",
            "method": "tools/list",
        }
        return encode({**message, "params": params} if params else message)

    def _own_list(self, frame: Frame) -> Moves:
        cursor: str | None = None
        if not isinstance(frame.result, UnsetType):
            self.catalogue.learn(frame.result)
            cursor = self.catalogue.cursor(frame.result)
        if cursor is not None and self._asked < 1000:
            return Moves([], [self._list_request(cursor)])
        # Whatever came of it, nobody waits any longer.
        self.catalogue.complete = True
        with self._lock:
            waiting, self._waiting = self._waiting, []
        moves = [then() for then in waiting]
        return Moves(
            [each for move in moves for each in move.to_client],
            [each for move in moves for each in move.to_server],
        )

    # -- the end --------------------------------------------------------------------------------------------

    def owns(self, frame: bytes) -> bool:
        """Whether a frame is a request of our own."""
        return self._own.encode() in frame[:200]

    def awaits(self, key: Id) -> bool:
        """Whether a request that concerns us is not answered yet."""
        return key in self._pending

    def failed(self, data: bytes, message: str, code: str) -> bytes | None:
        """The answer to a request that could not be passed on; None for what needs no answer."""
        frame = frames.read(data)
        if frame is None or isinstance(frame.id, UnsetType) or isinstance(frame.method, UnsetType):
            return None
        pending = self._pending.pop(frame.key, None) if frame.key is not None else None
        if pending is None or pending.call is None:
            return frames.failure(frame.id, -32603, message)
        hint = "Do not retry at once. Tell the user that the server is down."
        sealed = self._front.seal(Failure(code, message, hint), pending.call)
        return frames.response(frame.id, sealed.to_json())

    def lost(self, message: str, code: str = "UPSTREAM_DIED") -> list[bytes]:
        """The server is gone: every call that still waits gets a coded failure."""
        failure = Failure(code, message, "The call may have taken effect. Check before calling again.")
        answers: list[bytes] = []
        while self._pending:
            _, pending = self._pending.popitem()
            identifier = Raw(pending.identifier)
            if pending.call is not None:
                answers.append(frames.response(identifier, self._front.seal(failure, pending.call).to_json()))
            else:
                answers.append(frames.failure(identifier, -32603, message))
        return answers


def _looks_like_result(frame: Frame) -> bool:
    try:
        return not isinstance(_RESULT.decode(_raw(frame.result)).content, UnsetType)
    except (msgspec.MsgspecError, RecursionError):
        return False


def _knowing(call: Call, listed: Listed | None) -> Call:
    return call if listed is None else msgspec.structs.replace(call, published=listed.published)


def _raw(part: Raw | UnsetType) -> Raw:
    return Raw(b"{}") if isinstance(part, UnsetType) else part


def meta_of(params: CallParams) -> bytes | None:
    """What a request of the stateless era says of its sender, without what belongs to this request alone."""
    if isinstance(params.meta, UnsetType):
        return None
    try:
        members = msgspec.json.decode(params.meta, type=dict[str, Raw])
    except (msgspec.MsgspecError, RecursionError):
        return None
    kept = {key: value for key, value in members.items() if key.startswith(_META)}
    return encode(kept) if kept else None


def _read_meta(raw: Raw | UnsetType) -> _Meta:
    try:
        return _Meta() if isinstance(raw, UnsetType) else msgspec.json.decode(raw, type=_Meta)
    except (msgspec.MsgspecError, RecursionError):
        return _Meta()


def _joined(batch: list[bytes], data: bytes, moves: list[Moves]) -> Moves:
    """A batch goes on as a batch: the very bytes, if none of its messages changed."""
    answers = [each for move in moves for each in move.to_client]
    forward = [each for move in moves for each in move.to_server]
    if forward == batch:
        return Moves(answers, [data])
    # Our own answers are sent one by one, which every client takes; so is a message that is left alone.
    return Moves(answers, [b"[%b]" % b",".join(forward)] if forward else [])
