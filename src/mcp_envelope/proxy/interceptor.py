"""The envelope between a client and a server, without any I/O: frames in, frames out.

Strategy: the members of each frame tell whether it concerns us. Tool lists are rewritten, tool results go through
`Gateway.finish`, `envelope_read` is answered here; everything else is forwarded as the bytes that came, malformed
frames and unknown methods included. Requests are remembered until their responses pass. What depends on a tool list
that nobody has requested yet waits until the proxy has requested it itself. A bug of ours must not lose a frame: a
request is forwarded as it is, a result is replaced by a coded failure, and the log says why.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from ..budget import Budget
from ..clients.known import UNKNOWN, Client, Era
from ..clients.known import client as known_client
from ..dialects.notice import READ_TOOL
from ..errors import is_protocol_error
from ..fit.text import fit_text
from ..gateway import Call, Gateway, may_have_placeholder
from ..jsontext.document import Buffer, encode
from ..outcome import Failure, client_request_id
from ..payload import Payload, Result
from . import frames
from .frames import UNREADABLE, Frame, Id, Outgoing, members_of
from .reads import Reads, Work
from .tool_lists import NOTHING, ListRequests, ToolList, Waiting

_log = logging.getLogger("mcp_envelope")

_RESOURCE: Final = "envelope://"
_LIST_CHANGED: Final = "notifications/tools/list_changed"
# From longer calls, no words are looked for in the result.
_READ: Final = 1 << 16
# No such notification is longer.
_SHORT: Final = 4096

# A request that lasts as long as the conversation.
_ENDLESS: Final = "subscriptions/listen"
_MOST_REQUESTS: Final = 10_000
_MOST_TASKS: Final = 1000
_NO_ID: Final[Id] = ("r", b"")
# With the command to run.
LOGIN_NEEDED: Final = (
    "The server wants a login. Run this command in a terminal, then try again: %s "
    "(or give the proxy a token: --bearer-env)"
)
_REPEATED: Final = (frames.META_VERSION, frames.META_CLIENT, frames.META_CAPABILITIES)

# The result when we fail ourselves: a constant, because building one might fail as well.
_BROKEN: Final = (
    b'{"content":[{"type":"text","text":"{\\"_envelope\\":{\\"error\\":{\\"code\\":\\"INTERNAL\\",\\"message\\":'
    b'\\"The proxy failed on this result. The call may have taken effect.\\",\\"hint\\":'
    b'\\"Tell the user; the proxy\'s log says why.\\"}}}"}],"isError":true}'
)


class Interceptor:
    """One conversation. `tools` may be shared by conversations with the same server.

    With `adopts`, it also seals what looks like a tool's result if it doesn't know the request: another
    conversation of the same `owner` may have sent it. `requests` may be shared by conversations whose responses
    can come on one another's streams. With `mirrors`, a stateless call waits for a tool list, because its HTTP
    headers depend on it.
    """

    def __init__(
        self,
        gateway: Gateway,
        tools: ToolList | None = None,
        *,
        observe: bool = False,
        adopts: bool = False,
        mirrors: bool = False,
        owner: str | None = None,
        requests: Requests | None = None,
    ) -> None:
        self._gateway = gateway
        self.tools = tools or ToolList(gateway)
        self._observe = observe
        self._adopts = adopts
        self._mirrors = mirrors
        self._owner = owner
        self.client: Client = UNKNOWN
        # The one request that a stream answers: clients take any response in it for the one to that request.
        self.answers: Id | None = None
        self._answered_before: Pending | None = None
        self._requests = Requests() if requests is None else requests
        self.list_requests = ListRequests(self.tools)
        self._reads = Reads(gateway)

    # -- from the client ------------------------------------------------------------------------------------

    def from_client(self, data: bytes, owner: str | None = None, later: list[Work] | None = None) -> Outgoing:
        """Take a frame from the client. If `later` is given, slow work is added to it instead of being done."""
        batch = frames.read_batch(data)
        if batch is None:
            return self._from_client(data, owner, later)
        to_client, to_server = frames.joined([self._from_client(part, owner, later) for part in batch])
        # Answers of our own are sent one by one, which every client accepts.
        return Outgoing(to_client, _as_batch(batch, data, to_server))

    def _from_client(self, data: bytes, owner: str | None, later: list[Work] | None) -> Outgoing:
        frame = None
        try:
            frame = frames.read(data)
            if frame is None:
                return Outgoing([], [data])
            if frame.is_respelled and not self._observe:
                data = frame.data
            if isinstance(frame.method, UnsetType):
                return Outgoing([], [data])
            if frame.method == "tools/call":
                return self._call(frame, data, owner, later)
            if frame.method == "resources/read" and (uri := self._own_resource(frame)) is not None:
                sender = read_sender(frame.param("_meta"))
                read = partial(self._reads.resource, frame, uri, owner, sender, not self.tools.enveloped)
                return self._reads.answer(frame, read, partial(Outgoing, [], [data]), later)
            if frame.method == "notifications/cancelled":
                return self._cancelled(frame, data)
            if frame.method == "initialize":
                self.client = _client(frame.param("clientInfo"), "sessions") or self.client
            if (key := frame.key) is not None:
                self._requests.add(key, self._pending(frame, frame.method))
        except Exception:
            _log.exception("mcp-envelope: internal error; the request is forwarded unchanged")
            if frame is not None and frame.method == "tools/call" and frame.key is not None:
                # Its answer is fitted all the same, unless that fails, too.
                with suppress(Exception):
                    call = self._unknown_call()
                    self._requests.add(frame.key, Pending("tools/call", bytes(frame.identifier), call))
        return Outgoing([], [data])

    def _pending(self, frame: Frame, method: str) -> Pending:
        pending = Pending(method, bytes(frame.identifier))
        if method == "tools/list":
            return replace(pending, is_first_page=frame.param("cursor") in (None, frames.NULL))
        if method in ("tasks/result", "tasks/get"):
            # The response has the result of a call that became a task.
            started = self._requests.task(frames.text_of(frame.param("taskId")) or "")
            if started is not None:
                return replace(pending, call=started.call, sender=started.sender)
            return replace(pending, call=self._unknown_call())
        return pending

    def _cancelled(self, frame: Frame, data: bytes) -> Outgoing:
        if (cancelled := frame.param("requestId")) is not None:
            key = frames.id_key(bytes(cancelled))
            if self._reads.cancel(key) or self.list_requests.cancel(key):
                # The server has never seen the request.
                return Outgoing([], [])
            self._requests.cancel(key)
        return Outgoing([], [data])

    def _call(
        self,
        frame: Frame,
        data: bytes,
        owner: str | None,
        later: list[Work] | None = None,
        listed: bool = False,
    ) -> Outgoing:
        """Take a call. With `listed`, the tool list has been requested already, whatever came of it."""
        key = frame.key
        if key is None:
            return Outgoing([], [data])
        params = members_of(frame.params)
        tool = frames.text_of(params.get("name")) or ""
        sender = read_sender(params.get("_meta"))
        identifier = bytes(frame.identifier)

        def wait() -> Outgoing:
            held = Waiting(partial(self._call, frame, data, owner, listed=True), identifier)
            return self.list_requests.wait(held, sender.meta)

        def forward() -> Outgoing:
            self._requests.add(key, Pending("tools/call", identifier, None, sender))
            return Outgoing([], [data])

        arguments = members_of(params.get("arguments"))
        if tool == READ_TOOL and not self._observe:
            # Sent to the server only if it may have a tool of that name itself, and the handle is not one of ours.
            call = self._new_call(tool, sender, owner, request_id=sender.request_id)
            is_ours = self.tools.is_ours or ((listed or self.tools.seen) and not self.tools.enveloped)
            read = partial(self._reads.page, frame, arguments, call, sender, is_ours)
            return self._reads.answer(frame, read, forward if self.tools.enveloped else wait, later)
        if self.tools.enveloped:
            return forward()
        if self._mirrors and sender.is_stateless and not self.tools.seen and not listed:
            return wait()
        budget: object = None
        spoken = self._gateway.spoken(tool)
        if (name := spoken.budget_argument) in arguments and not self._observe:
            known = self.tools.find(tool)
            if known is None and not listed:
                return wait()
            if known is not None and known.adds_budget:
                if (valid := frames.with_valid_utf8(frame)) is not frame:
                    return self._call(valid, valid.data, owner, later, listed)
                budget = frames.value_of(arguments.pop(name))
                changed = frames.replaced(_or_empty(frame.params), {"arguments": encode(arguments)})
                data = frames.replaced(frame.data, {"params": changed})
            elif spoken.defines_budget_argument:
                budget = frames.value_of(arguments[name])
        request_id, started = sender.request_id, time.perf_counter()
        given = None
        if len(data) <= _READ:
            given = {name: frames.value_of(value) for name, value in arguments.items()}
        made = self._new_call(
            tool, sender, owner, budget, request_id=request_id, started=started, arguments=given
        )
        pending = Pending("tools/call", identifier, made, sender)
        if not self._observe:
            try:
                data = self._restored(data, made)
            except Failure as failure:
                return Outgoing([self._failure(pending, failure)], [])
        self._requests.add(key, pending)
        return Outgoing([], [data])

    def _restored(self, data: bytes, call: Call) -> bytes:
        """A call as the server gets it, with the originals of masked values in its arguments."""
        if not may_have_placeholder(data) or (frame := frames.read(data)) is None:
            return data
        given = bytes(members_of(frame.params).get("arguments", frames.NULL))
        if (restored := self._gateway.restored(given, call)) is given:
            return data
        frame = frames.with_valid_utf8(frame)
        changed = frames.replaced(_or_empty(frame.params), {"arguments": restored})
        return frames.replaced(frame.data, {"params": changed})

    def _new_call(
        self, tool: str, sender: Sender, owner: str | None, budget: object = None, **more: Any
    ) -> Call:
        client = (sender.client or self.client).asking(sender.own)
        policy = self._gateway.policy(tool, budget, client)
        return Call(tool=tool, policy=policy, client=client, owner=owner, observed=self._observe, **more)

    def _unknown_call(self) -> Call:
        return self._new_call("", Sender(), self._owner)

    def _own_resource(self, frame: Frame) -> str | None:
        """The address of a stored result that is read as a resource; None if it is not ours."""
        if isinstance(frame.id, UnsetType) or self._observe:
            return None
        uri = frames.text_of(frame.param("uri"))
        return uri if uri is not None and uri.startswith(_RESOURCE) else None

    # -- from the server ------------------------------------------------------------------------------------

    def from_server(self, data: bytes) -> Outgoing:
        """Take a frame from the server."""
        batch = frames.read_batch(data)
        if batch is None:
            return self._from_server(data)
        to_client, to_server = frames.joined([self._from_server(part) for part in batch])
        return Outgoing(_as_batch(batch, data, to_client), to_server)

    def from_line(self, data: bytes) -> Outgoing:
        """Take a line from a server that speaks in lines."""
        lines = [data] if self._observe else frames.lines(data)
        return frames.joined([self.from_server(line) for line in lines])

    def _from_server(self, data: bytes) -> Outgoing:
        is_done = not self._requests and not self.list_requests and self._answered_before is None
        nobody_waits = is_done and not self._adopts
        if nobody_waits and len(data) > _SHORT:
            return Outgoing([data], [])
        try:
            frame = frames.read(data) or frames.read_leniently(data)
            if frame is None:
                return Outgoing([data], [])
            if frame.is_respelled and not self._observe:
                data = frame.data
            if frame.method == _LIST_CHANGED:
                # What was learned stays true for clients that have seen it, until they ask again.
                self.tools.complete = False
            if not frame.is_response:
                return Outgoing([data], [])
            key = frame.key or _NO_ID
            pending = self._requests.take(key)
            if pending is None and self.list_requests.expects(key):
                return self.list_requests.answered(frames.with_valid_utf8(frame))
            if self.answers is not None:
                # Some clients read on, and take the last answer.
                pending = pending or self._requests.find(self.answers) or self._answered_before
                self._answered_before = pending
            if pending is None and self._adopts and _looks_like_result(frame):
                pending = Pending("tools/call", b"", self._unknown_call())
            if pending is not None and pending.method == "tools/list":
                return Outgoing([self._listed(frame, data, pending)], [])
            if pending is not None and pending.call is not None:
                return self._answered(frame, data, pending, pending.call)
        except Exception:
            _log.exception("mcp-envelope: internal error; the response is forwarded unchanged")
        return Outgoing([data], [])

    def _listed(self, frame: Frame, data: bytes, pending: Pending) -> bytes:
        frame = frames.with_valid_utf8(frame)
        if isinstance(frame.result, UnsetType):
            return data
        shown, _ = self.tools.learn(frame.result, pending.is_first_page, shown=not self._observe)
        return data if shown is None or self._observe else frames.with_result(frame, shown)

    def _answered(
        self, frame: Frame, data: bytes, pending: Pending, call: Call, listed: bool = False
    ) -> Outgoing:
        """Take the response to a call. If we fail, it must not pass unchecked: it could be of any size."""
        try:
            if not isinstance(frame.error, UnsetType):
                if self._observe:
                    return Outgoing([data], [])
                return Outgoing([self._failed_call(frame, data, pending, call)], [])
            return self._finish(frame, data, pending, call, listed)
        except Exception:
            if self._observe:
                _log.exception("mcp-envelope: internal error; the response is forwarded unchanged")
                return Outgoing([data], [])
            _log.exception("mcp-envelope: internal error; the result is replaced by a failure")
            broken = frames.response(frame.identifier, pending.sender.own_result(_BROKEN))
            return Outgoing([broken], [])

    def _failed_call(self, frame: Frame, data: bytes, pending: Pending, call: Call) -> bytes:
        """An error response: a result in dialects where failures are results, unless it is about the request."""
        if pending.method != "tools/call" or call.is_native:
            return _cut_error(frame, data, call, self._gateway)
        error = frames.read_error(frame.error)
        message = error.message if isinstance(error.message, str) else ""
        if is_protocol_error(error.code, message, self.tools.find(call.tool) is not None):
            return _cut_error(frame, data, call, self._gateway)
        sealed = self._gateway.report(error.code, message, error.data, call)
        return frames.response(frame.identifier, pending.sender.own_result(sealed.to_json()))

    def _finish(self, frame: Frame, data: bytes, pending: Pending, call: Call, listed: bool) -> Outgoing:
        is_task = pending.method == "tasks/get"
        outer = frame.result
        if is_task and not isinstance(outer, UnsetType):
            outer = frames.spelled_result(outer)
        raw = frames.members_of(outer).get("result", UNSET) if is_task else outer
        if isinstance(outer, UnsetType) or isinstance(raw, UnsetType) or self.tools.enveloped:
            return Outgoing([data], [])
        result = frames.read_result(raw)
        named = frames.spelled_result(raw) if result is None else result.raw
        if (named is not raw or outer is not frame.result) and not self._observe:
            shown = frames.replaced(outer, {"result": bytes(named)}) if is_task else bytes(named)
            data = frames.with_result(frame, shown)
            frame, raw = replace(frame, result=Raw(shown), data=data), named
        if result is None:
            if (task := frames.task_of(raw)) is not None:
                self._requests.add_task(task, pending)
            return Outgoing([data], [])
        known = self.tools.find(call.tool)
        is_typed = result.lanes.structured is not None and not result.lanes.is_error
        if known is None and is_typed and call.tool and not listed and not self._observe:
            then = partial(self._answered, frame, data, pending, call, True)
            return self.list_requests.wait(Waiting(then), pending.sender.meta)
        if is_typed and (known is None or not call.tool) and call.is_native:
            # Clients may hold the result to a schema that we could not learn.
            known = self.tools.unknown_tool()
        call = replace(call, published=(known or NOTHING).published)
        sealed = self._gateway.finish(result.lanes, call, store=not self._observe)
        if sealed is None or self._observe:
            return Outgoing([data], [])
        if (valid := frames.with_valid_utf8(frame)) is not frame:
            frame = valid
            raw = frames.members_of(frame.result).get("result", UNSET) if is_task else frame.result
            assert not isinstance(raw, UnsetType)
            result = frames.read_result(raw) or result
        # Its notice may name our tool.
        self.tools.is_ours = True
        shown = frames.with_lanes(sealed, result)
        if is_task:
            shown = frames.replaced(_or_empty(frame.result), {"result": shown})
        return Outgoing([frames.with_result(frame, shown)], [])

    # -- for the transport ----------------------------------------------------------------------------------

    def read_tool(self) -> dict[str, Any]:
        """The list entry of `envelope_read`."""
        return self._gateway.read_tool()

    @property
    def expects_answers(self) -> bool:
        """Whether the client still waits for something."""
        return self._requests.are_awaited or bool(self.list_requests)

    def awaits(self, key: Id) -> bool:
        """Whether a request has no response yet."""
        return key in self._requests

    # -- the end --------------------------------------------------------------------------------------------

    def failed(self, data: bytes, message: str, code: str) -> bytes | None:
        """The response to a request that could not be forwarded; None if it needs none."""
        frame = frames.read(data)
        if frame is None or isinstance(frame.id, UnsetType) or isinstance(frame.method, UnsetType):
            return None
        pending = self._requests.take(frame.key) if frame.key is not None else None
        return self._failure(pending or Pending("", bytes(frame.id)), Failure(code, message))

    def lost(self, message: str, code: str = "UPSTREAM_DIED") -> list[bytes]:
        """The server is gone: the responses to all pending requests; calls get a coded failure."""
        held = self.list_requests.take_requests()
        answers = self.list_requests.finish().to_client
        if self._observe:
            return answers
        failure = Failure(code, message, "The call may have taken effect. Check before calling again.")
        answers += [self._failure(pending, failure) for pending in self._requests.take_all()]
        failure = Failure(code, message, "The call was not sent to the server. Call again once it is back.")
        call = self._new_call("", Sender(), None)
        return answers + [self._failure(Pending("tools/call", each, call), failure) for each in held]

    def _failure(self, pending: Pending, failure: Failure) -> bytes:
        identifier = Raw(pending.identifier)
        if pending.call is None or pending.method == "tasks/get":
            return frames.failure(identifier, frames.INTERNAL_ERROR, failure.problem.message)
        sealed = self._gateway.seal(failure, pending.call)
        return frames.response(identifier, pending.sender.own_result(sealed.to_json()))

    def close(self) -> None:
        self._gateway.close()


# -- pending requests, and who sent them --------------------------------------------------------------------


class _ClientInfo(msgspec.Struct):
    name: str = ""
    version: str = ""


def _client(info: Raw | None, era: Era) -> Client | None:
    """The client that a `clientInfo` names, if there is one that can be read."""
    try:
        found = None if info is None else msgspec.json.decode(info, type=_ClientInfo)
    except UNREADABLE:
        return None
    return None if found is None else known_client(found.name, found.version, era)


class Sender(msgspec.Struct, frozen=True):
    """What a request says about its sender. `client` is None if it doesn't name one.

    A client with a session introduces itself once, with `initialize`; a stateless one says who it is in the `_meta`
    of every request.
    """

    client: Client | None = None
    # The members of `_meta` that a request of our own has to repeat, as they are spelled.
    meta: bytes | None = None
    is_stateless: bool = False
    # The id that the client gave the request, besides that of the protocol.
    request_id: str | None = None
    # What else is in `_meta`: it may tell who will read the result.
    own: Mapping[str, Any] | None = None

    def own_result(self, result: bytes) -> bytes:
        """A result of the proxy's own, in the form of the sender's protocol version."""
        return b'%b,"resultType":"complete"}' % result[:-1] if self.is_stateless else result


def read_sender(meta: Raw | None) -> Sender:
    """The sender named in a request's `_meta`."""
    members = members_of(meta)
    repeated = {name: members[name] for name in _REPEATED if name in members}
    client = _client(members.get(frames.META_CLIENT), "stateless")
    own = {
        name: frames.value_of(members[name]) for name in members if not name.startswith(frames.META_PREFIX)
    }
    request_id = client_request_id(own) if own else None
    return Sender(
        client,
        encode(repeated) if repeated else None,
        frames.META_VERSION in members,
        request_id,
        own or None,
    )


class Pending(msgspec.Struct, frozen=True):
    """A request that awaits its response. `call` is set if that is the result of a tool."""

    method: str
    identifier: bytes
    call: Call | None = None
    sender: Sender = Sender()
    # For tools/list.
    is_first_page: bool = False
    is_cancelled: bool = False

    @property
    def is_call(self) -> bool:
        return self.call is not None and not self.is_cancelled


class Requests:
    """The pending requests of a conversation, by id. `tasks` may be shared by conversations of one caller.

    Ids should be unique while they are in use; where a client repeats one, responses are matched in the order of
    the requests. A cancelled request may still get a response, so it is remembered too, but its sender is not told
    if the server dies. Requests that never get a response are forgotten in the end, calls last.
    """

    def __init__(self, tasks: OrderedDict[str, Pending] | None = None) -> None:
        # Both directions run in threads of their own.
        self._lock = threading.Lock()
        self._waiting: dict[Id, list[Pending]] = {}
        self._minor: deque[tuple[Id, Pending]] = deque()
        self._tasks: OrderedDict[str, Pending] = OrderedDict() if tasks is None else tasks

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __contains__(self, key: Id) -> bool:
        return key in self._waiting

    @property
    def are_awaited(self) -> bool:
        """Whether the client still waits for a response that is bound to come."""
        with self._lock:
            waiting = [pending for each in self._waiting.values() for pending in each]
        return any(not pending.is_cancelled and pending.method != _ENDLESS for pending in waiting)

    def add(self, key: Id, pending: Pending) -> None:
        with self._lock:
            self._waiting.setdefault(key, []).append(pending)
            if not pending.is_call:
                self._add_minor(key, pending)

    def take(self, key: Id) -> Pending | None:
        """Remove and return the request that a response belongs to."""
        with self._lock:
            if key not in self._waiting:
                key = frames.same_id(key) or key
            waiting = self._waiting.get(key)
            if waiting is None:
                return None
            pending = waiting.pop(0)
            if not waiting:
                del self._waiting[key]
            return pending

    def find(self, key: Id) -> Pending | None:
        """The request, which still awaits its response."""
        with self._lock:
            waiting = self._waiting.get(key)
            return waiting[0] if waiting else None

    def cancel(self, key: Id) -> None:
        with self._lock:
            waiting = self._waiting.get(key, [])
            fresh = [pending for pending in waiting if not pending.is_cancelled]
            cancelled = [replace(pending, is_cancelled=True) for pending in fresh]
            waiting[:] = [pending for pending in waiting if pending.is_cancelled] + cancelled
            for pending in cancelled:
                self._add_minor(key, pending)

    def take_all(self) -> list[Pending]:
        """Remove all requests; return those that are not cancelled, in order."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        return [pending for each in waiting.values() for pending in each if not pending.is_cancelled]

    def _add_minor(self, key: Id, pending: Pending) -> None:
        """Bound what a server never responds to: except for calls, only the latest are remembered."""
        self._minor.append((key, pending))
        if len(self._minor) > _MOST_REQUESTS:
            key, oldest = self._minor.popleft()
            # Most were answered long ago, and their ids may be in use again.
            waiting = self._waiting.get(key, [])
            if any(each is oldest for each in waiting):
                waiting[:] = [each for each in waiting if each is not oldest]
                if not waiting:
                    del self._waiting[key]

    # -- tasks: the result of a call comes later, in response to another request ------------------------------

    def add_task(self, task: str, pending: Pending) -> None:
        with self._lock:
            self._tasks[task[:1000]] = pending
            if len(self._tasks) > _MOST_TASKS:
                self._tasks.popitem(last=False)

    def task(self, task: str) -> Pending | None:
        """The call that started a task."""
        return self._tasks.get(task[:1000])


# -- helpers ------------------------------------------------------------------------------------------------


def _looks_like_result(frame: Frame) -> bool:
    members = frames.members_of(frame.result)
    return not isinstance(frame.error, UnsetType) or "structuredContent" in members or "content" in members


def _or_empty(part: Raw | UnsetType) -> Raw:
    return Raw(b"{}") if isinstance(part, UnsetType) else part


def _as_batch(batch: list[bytes], data: bytes, forward: list[bytes]) -> list[bytes]:
    """A batch goes on as a batch, as the very bytes if none of its messages changed."""
    if forward == batch:
        return [data]
    return [frames.batch(forward)] if forward else []


def _cut_error(frame: Frame, data: bytes, call: Call, gateway: Gateway) -> bytes:
    """An error response whose message is within the budget; the whole error is stored."""
    budget = call.policy.budget
    budget = None if budget is None else budget.for_errors
    assert not isinstance(frame.error, UnsetType)
    whole = bytes(frame.error)
    error = gateway.masked(call, whole)
    is_same = error is whole
    if budget is not None and not budget.holds(error):
        handle = _store(error, call, gateway)
        original: Buffer = frame.error if is_same else error
        # The copy of a large error is released before its message is decoded.
        del whole, error
        error, is_same = _cut(original, handle, budget), False
    # Some servers send a result with the error. No client looks at it, but all have to read it.
    if is_same and isinstance(frame.result, UnsetType):
        return data
    try:
        return frames.replaced(frame.data, {"error": error, "result": None})
    except frames.CANNOT_OPEN:
        return frames.error_response(frame.identifier, error)


def _store(error: bytes, call: Call, gateway: Gateway) -> str | None:
    """Store an error; return its handle, or None if it could not be stored."""
    keeping = gateway.keeping(call.owner)
    if keeping is None:
        return None
    handle, _ = keeping.promise()
    text = bytes(Result([error]).as_utf8().content[0])
    return handle if keeping.keep(handle, Payload(text=text), call.tool) is None else None


def _cut(original: Buffer, handle: str | None, budget: Budget) -> bytes:
    rest = "The rest was not kept." if handle is None else f'Read on: envelope_read(handle="{handle}").'
    error = frames.read_error(original)
    said = error.message if isinstance(error.message, str) else bytes(original).decode("utf-8", "replace")
    code, message = frames.INTERNAL_ERROR if error.code is None else error.code, said.encode()
    del original, error, said
    room = budget.limit if budget.unit == "bytes" else 4 * budget.limit
    while True:
        fitted = fit_text(message, room, "both")
        words = "" if fitted is None else fitted.text.decode()
        shown = encode({"code": code, "message": f"{words} [cut to fit] {rest}"})
        if budget.holds(shown) or room < 16:
            return shown
        room = room * 3 // 4
