"""The envelope between a client and a server, without any I/O: frames in, frames out.

Strategy: the outline of each frame tells whether it concerns us. Lists of tools are rewritten, results of tools are
sealed, `envelope_read` is answered here; whatever else passes is forwarded as the very bytes that came, malformed
frames and unknown methods included. Requests are remembered by their ids until they are answered. What has to
wait for something (a result whose schema nobody asked for yet) waits for a list that the proxy asks for itself.
A mistake of ours is never a reason to lose a frame: it goes on as it is, and the log says so.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ..clients import UNKNOWN, Client
from ..dialects.notice import READ_TOOL
from ..front import Call, Front
from ..jsontree import encode
from ..outcome import Failure
from ..sharing import shared
from . import frames, results
from .asking import Asking, Moves, Waiting
from .catalogue import NOTHING, Catalogue
from .frames import Frame, Id
from .readings import Readings, Work
from .requests import Pending, Requests
from .sender import introduced, of_era, sender_of

_log = logging.getLogger("mcp_envelope")

_OURS: Final = "envelope://"
_CHANGED: Final = "notifications/tools/list_changed"
# A notification of that name is not longer.
_SHORT: Final = 4096

# What is answered when we fail ourselves; made of nothing that could fail as well.
_BROKEN: Final = (
    b'{"content":[{"type":"text","text":"{\\"_envelope\\":{\\"error\\":{\\"code\\":\\"INTERNAL\\",\\"message\\":'
    b'\\"The proxy failed on this result. The call may have taken effect.\\",\\"hint\\":'
    b'\\"Tell the user; the proxy\'s log says why.\\"}}}"}],"isError":true}'
)


class Interceptor:
    """One conversation. `catalogue` may be shared by conversations with the same server.

    One that `adopts` also seals what looks like a tool's result when it does not know the request: another
    conversation of the same `owner` may have sent it. `requests` may be shared by conversations whose answers can
    come on one another's streams.
    """

    def __init__(
        self,
        front: Front,
        catalogue: Catalogue | None = None,
        *,
        observe: bool = False,
        adopts: bool = False,
        owner: str | None = None,
        requests: Requests | None = None,
    ) -> None:
        self._adopts = adopts
        self._front = front
        self.catalogue = catalogue or Catalogue(front)
        self._observe = observe
        self.client: Client = UNKNOWN
        self._owner = owner
        self._requests = Requests() if requests is None else requests
        self._asking = Asking(self.catalogue)
        self._readings = Readings(front)

    # -- from the client ------------------------------------------------------------------------------------

    def from_client(self, data: bytes, owner: str | None = None, later: list[Work] | None = None) -> Moves:
        """Where `later` is given, what may last is put there, for the caller to do and to send what it gives."""
        batch = frames.read_batch(data)
        if batch is None:
            return self._of_client(data, owner, later)
        return _joined(batch, data, [self._of_client(part, owner, later) for part in batch])

    def _of_client(self, data: bytes, owner: str | None, later: list[Work] | None) -> Moves:
        try:
            frame = frames.read(data)
            if frame is None or isinstance(frame.method, UnsetType):
                return Moves([], [data])
            if frame.method == "tools/call":
                return self._called(frame, data, owner, later)
            if frame.method == "resources/read" and (uri := self._own_resource(frame)) is not None:
                modern = sender_of((frames.members_of(frame.params) or {}).get("_meta", UNSET)).modern
                read = partial(self._readings.resource, frame, uri, owner, modern)
                return self._read(frame, read, partial(Moves, [], [data]), later)
            if frame.method == "notifications/cancelled":
                return self._cancelled(frame, data)
            if frame.method == "initialize" and (client := introduced(frame.params)) is not None:
                self.client = client
            if (key := frame.key) is not None:
                self._requests.add(key, self._pending(frame))
        except Exception:
            _log.exception("mcp-envelope: a request passes as it is")
        return Moves([], [data])

    def _pending(self, frame: Frame) -> Pending:
        """What to remember of a request."""
        assert isinstance(frame.method, str)
        pending = Pending(frame.method, bytes(frame.identifier))
        if frame.method == "tools/list":
            cursor = (frames.members_of(frame.params) or {}).get("cursor", b"null")
            pending.first = bytes(cursor) == b"null"
        elif frame.method in ("tasks/result", "tasks/get"):
            # The result of a call that became a task.
            said = (frames.members_of(frame.params) or {}).get("taskId", b"null")
            begun = self._requests.of_task(frames.text_of(said) or "")
            if begun is not None:
                pending.call, pending.meta, pending.modern = begun.call, begun.meta, begun.modern
            elif self._adopts:
                pending.call = self._unknown_call()
        return pending

    def _cancelled(self, frame: Frame, data: bytes) -> Moves:
        cancelled = (frames.members_of(frame.params) or {}).get("requestId")
        if cancelled is not None:
            key = frames.id_key(bytes(cancelled))
            if self._readings.forget(key) or self._asking.forget(key):
                # The server has never heard of it.
                return Moves([], [])
            self._requests.cancel(key)
        return Moves([], [data])

    def _called(
        self,
        frame: Frame,
        data: bytes,
        owner: str | None,
        later: list[Work] | None = None,
        asked: bool = False,
    ) -> Moves:
        """A call. `asked` tells that there is no use in asking for a list."""
        key = frame.key
        if key is None:
            return Moves([], [data])
        params = frames.call_params(frame.params)
        tool = params.name if isinstance(params.name, str) else ""
        sender = sender_of(params.meta)
        client = sender.client or self.client
        waits = Waiting(partial(self._called, frame, data, owner, asked=True), key, bytes(frame.identifier))
        wait = partial(self._asking.wait, waits, sender.said)
        arguments: dict[str, Raw] = frames.members_of(params.arguments) or {}
        ours = not self._observe and not self.catalogue.enveloped
        if tool == READ_TOOL and ours:
            # Never sent upstream, unless the server may have a tool of that name itself.
            call = Call(tool=tool, policy=self._front.policy(tool, None, client), client=client, owner=owner)
            sure = asked or self.catalogue.seen
            read = partial(self._readings.page, frame, arguments, call, sender.modern, sure)
            return self._read(frame, read, wait, later)
        requested: object = None
        if (own := self._front.budget_argument(tool)) in arguments and ours:
            listed = self.catalogue.find(tool)
            if listed is None and not asked:
                return wait()
            if listed is not None and listed.adds_budget:
                requested = frames.value_of(arguments.pop(own))
                changed = frames.replaced(_raw(frame.params), {"arguments": encode(arguments)})
                data = frames.replaced(frame.data, {"params": changed})
        pending = Pending("tools/call", bytes(frame.identifier), None, sender.said, sender.modern)
        if not self.catalogue.enveloped:
            pending.call = Call(
                tool=tool,
                policy=self._front.policy(tool, requested, client),
                client=client,
                owner=owner,
                request_id=pending.identifier.decode("utf-8", "replace").strip('"')[:200],
                started=time.perf_counter(),
            )
        self._requests.add(key, pending)
        return Moves([], [data])

    def _read(
        self, frame: Frame, read: Callable[[], bytes | None], otherwise: Work, later: list[Work] | None
    ) -> Moves:
        """A request that is answered here, now or later."""
        if later is not None and (key := frame.key) is not None:
            later.append(self._readings.beside(key, read, otherwise, frame))
            return Moves([], [])
        answer = read()
        return otherwise() if answer is None else Moves([answer], [])

    def _own_resource(self, frame: Frame) -> str | None:
        """The address of a stored result that is read as a resource; None if it is not ours."""
        if isinstance(frame.id, UnsetType) or self._observe or self.catalogue.enveloped:
            return None
        said = (frames.members_of(frame.params) or {}).get("uri")
        uri = None if said is None else frames.text_of(said)
        return uri if uri is not None and uri.startswith(_OURS) else None

    # -- from the server ------------------------------------------------------------------------------------

    def from_server(self, data: bytes) -> Moves:
        batch = frames.read_batch(data)
        if batch is None:
            return self._of_server(data)
        moves = [self._of_server(part) for part in batch]
        forth, back = _joined(batch, data, [Moves(there, here) for here, there in moves])
        return Moves(back, forth)

    def _of_server(self, data: bytes) -> Moves:
        nobody_waits = not self._requests and not self._asking and not self._adopts
        if nobody_waits and len(data) > _SHORT:
            return Moves([data], [])
        try:
            frame = frames.read(data)
            if frame is None:
                return Moves([data], [])
            if frame.method == _CHANGED:
                # What was learned stays true for those who were told so, until they ask again.
                self.catalogue.complete = False
            if not frame.is_response or (key := frame.key) is None:
                return Moves([data], [])
            if self._asking.owns(key):
                return self._asking.answered(frame)
            pending = self._requests.take(key)
            if pending is None and self._adopts and _looks_like_result(frame):
                pending = Pending("tools/call", b"", self._unknown_call())
            if pending is not None and pending.method == "tools/list":
                return Moves([self._listed(frame, data, pending)], [])
            if pending is not None and pending.call is not None:
                return self._safely(frame, data, pending, False)
        except Exception:
            _log.exception("mcp-envelope: an answer passes as it is")
        return Moves([data], [])

    def _unknown_call(self) -> Call:
        policy = self._front.policy("", None, self.client)
        return Call(tool="", policy=policy, client=self.client, owner=self._owner)

    def _listed(self, frame: Frame, data: bytes, pending: Pending) -> bytes:
        if isinstance(frame.result, UnsetType):
            return data
        shown = self.catalogue.learn(frame.result, pending.first, told=not self._observe)
        return data if shown is None or self._observe else results.with_result(frame, shown)

    def _answered(self, frame: Frame, data: bytes, pending: Pending, asked: bool = False) -> Moves:
        """The answer to a call. `asked` tells that there is no use in asking for a list."""
        call = pending.call
        assert call is not None
        if not isinstance(frame.error, UnsetType):
            return Moves([data if self._observe else results.cut_error(frame, data, call, self._front)], [])
        raw = _inside(frame, pending)
        if isinstance(raw, UnsetType) or self.catalogue.enveloped:
            return Moves([data], [])
        answer = results.read_answer(raw)
        if answer is None:
            if (task := results.task_of(raw)) is not None:
                self._requests.began(task, pending)
            return Moves([data], [])
        listed = self.catalogue.find(call.tool)
        typed = answer.structured is not None and not answer.is_error
        if listed is None and typed and call.tool and not asked and not self._observe:
            then = partial(self._safely, frame, data, pending, True)
            return self._asking.wait(Waiting(then), pending.meta)
        if typed and (listed is None or not call.tool) and call.is_native:
            # Clients may hold the result to a schema that we could not learn.
            listed = self.catalogue.uncertain()
        call = msgspec.structs.replace(call, published=(listed or NOTHING).published)
        call = shared(call, answer.content, answer.structured)
        # Some clients hold the structure of a failure to what they were told of successes.
        misleads = answer.is_error and answer.structured is not None and call.published.wrap
        if not misleads and self._front.fits(
            call, answer.content, answer.structured, answer.size, answer.is_error
        ):
            return Moves([data], [])
        mended = results.sendable(frame)
        if mended is not frame:
            return self._answered(mended, data, pending, asked)
        payload = results.payload_for(answer, call)
        is_error = answer.is_error or None
        if self._observe:
            self._front.seal(payload, call, is_error=is_error, vault=None)
            return Moves([data], [])
        sealed = self._front.seal(payload, call, is_error=is_error)
        wraps = call.published.wrap and answer.structured is not None
        if sealed.untouched and not wraps and results.is_within(call, answer):
            return Moves([data], [])
        result = results.with_lanes(sealed, answer)
        if pending.method == "tasks/get":
            result = frames.replaced(_raw(frame.result), {"result": result})
        return Moves([results.with_result(frame, result)], [])

    def _safely(self, frame: Frame, data: bytes, pending: Pending, asked: bool) -> Moves:
        """The answer to a call. If we fail, nothing may pass that was not looked at: it may be of any size."""
        try:
            return self._answered(frame, data, pending, asked)
        except Exception:
            if self._observe:
                _log.exception("mcp-envelope: an answer passes as it is")
                return Moves([data], [])
            _log.exception("mcp-envelope: an answer could not be put into its envelope")
            return Moves([frames.response(frame.identifier, of_era(_BROKEN, pending.modern))], [])

    # -- what whoever drives it wants to know ---------------------------------------------------------------

    @property
    def is_crowded(self) -> bool:
        """Whether so much waits for a list that nothing more should be taken from the client for now."""
        return self._asking.is_crowded

    @property
    def expects_answers(self) -> bool:
        """Whether the client asked for something that was not answered yet."""
        return self._requests.are_wanted or bool(self._asking)

    @property
    def holds_requests(self) -> bool:
        """Whether something that the client sent was not sent on yet."""
        return self._asking.holds_requests

    def owns(self, frame: bytes) -> bool:
        """Whether a frame is a request of our own."""
        return self._asking.is_request(frame)

    def unanswered(self, request: bytes) -> Moves:
        """A request of our own waited long enough for its answer."""
        return self._asking.unanswered(request)

    def awaits(self, key: Id) -> bool:
        """Whether a request is not answered yet."""
        return key in self._requests

    # -- the end --------------------------------------------------------------------------------------------

    def failed(self, data: bytes, message: str, code: str) -> bytes | None:
        """The answer to a request that could not be passed on; None for what needs no answer."""
        frame = frames.read(data)
        if frame is None or isinstance(frame.id, UnsetType) or isinstance(frame.method, UnsetType):
            return None
        pending = self._requests.take(frame.key) if frame.key is not None else None
        return self._failure(pending or Pending("", bytes(frame.id)), Failure(code, message))

    def lost(self, message: str, code: str = "UPSTREAM_DIED") -> list[bytes]:
        """The server is gone: every request that still waits gets an answer, calls a coded one."""
        unsent = self._asking.given_up()
        answers = self._asking.finish().to_client
        if self._observe:
            return answers
        failure = Failure(code, message, "The call may have taken effect. Check before calling again.")
        answers += [self._failure(pending, failure) for pending in self._requests.all()]
        failure = Failure(code, message, "The call was not sent to it. Call again once it is back.")
        for each in unsent:
            call = Call(tool="", policy=self._front.policy("", None, self.client), client=self.client)
            answers.append(self._failure(Pending("tools/call", each.identifier, call), failure))
        return answers

    def _failure(self, pending: Pending, failure: Failure) -> bytes:
        identifier = Raw(pending.identifier)
        if pending.call is None or pending.method == "tasks/get":
            return frames.failure(identifier, -32603, failure.problem.message)
        sealed = self._front.seal(failure, pending.call)
        return frames.response(identifier, of_era(sealed.to_json(), pending.modern))

    def close(self) -> None:
        self._front.close()


def _inside(frame: Frame, pending: Pending) -> Raw | UnsetType:
    """A tool's result: that of the frame, or that of the task that the frame tells of."""
    if pending.method != "tasks/get":
        return frame.result
    return (frames.members_of(frame.result) or {}).get("result", UNSET)


def _looks_like_result(frame: Frame) -> bool:
    members = frames.members_of(frame.result)
    return members is not None and bytes(members.get("content", b""))[:1] == b"["


def _raw(part: Raw | UnsetType) -> Raw:
    return Raw(b"{}") if isinstance(part, UnsetType) else part


def _joined(batch: list[bytes], data: bytes, moves: list[Moves]) -> Moves:
    """A batch goes on as a batch: the very bytes, if none of its messages changed."""
    answers = [each for move in moves for each in move.to_client]
    forward = [each for move in moves for each in move.to_server]
    if forward == batch:
        return Moves(answers, [data])
    # Our own answers are sent one by one, which every client takes; so is a message that is left alone.
    return Moves(answers, [b"[%b]" % b",".join(forward)] if forward else [])


__all__ = ["Interceptor", "Moves"]
