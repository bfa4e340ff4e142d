"""What a tool answered, taken out of its frame, fitted, and put back.

Strategy: a result is looked at only as far as its lanes. What can go out as it is does; otherwise the lanes are
replaced and every other member stays as it came. A result that is no result as the protocol has it is fitted as
well, since nobody knows what a client would do with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ..blocks import text_block
from ..budget import Budget
from ..faults import JSONError, check_utf8
from ..front import Call, payload_of
from ..job import most_bytes
from ..jsontree import Buffer, TooDeep, compact, encode
from ..payload import Payload, read_result
from ..text import fit_text
from . import frames
from .frames import Frame, ToolResult

if TYPE_CHECKING:
    from ..front import Front
    from ..sealed import Sealed

_RESULT: Final = msgspec.json.Decoder(ToolResult)
_OPAQUE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Answer(msgspec.Struct):
    """The result of a call: `raw` is all of it, the others are its lanes."""

    raw: Raw
    content: list[Raw]
    structured: Raw | None
    is_error: bool
    meta: Raw | UnsetType = UNSET
    # No result as the protocol has it.
    strange: bool = False

    @property
    def size(self) -> int:
        """Bytes of the larger lane."""
        return max(sum(map(len, self.content)) + len(self.content) + 1, len(self.structured or b""))


def read_answer(raw: Raw) -> Answer | None:
    """The lanes of a result; None for what is no result yet: a task, or input that is asked for."""
    try:
        result = _RESULT.decode(raw)
    except _OPAQUE:
        result = _result_of(raw)
    if result.result_type not in (UNSET, "complete"):
        return None
    content = [] if isinstance(result.content, UnsetType) else result.content
    structured = None if isinstance(result.structuredContent, UnsetType) else result.structuredContent
    if result.content is UNSET and structured is None:
        if task_of(raw) is not None:
            return None
        # Something else altogether. All of it is what a client would have to show.
        return Answer(raw, [raw], None, True, result.meta, True)
    return Answer(raw, content, structured, result.is_error is True, result.meta)


def _result_of(raw: Raw) -> ToolResult:
    """The outline of a result that is not as it should be: what can be told of it."""
    found = ToolResult()
    members = frames.members_of(raw)
    if members is None:
        # No object, or nested deeper than can be opened.
        return found
    if "content" in members:
        try:
            found.content = msgspec.json.decode(members["content"], type=list[Raw])
        except _OPAQUE:
            found.content = UNSET
    if "structuredContent" in members:
        found.structuredContent = members["structuredContent"]
    found.is_error = bytes(members.get("isError", b"")) == b"true"
    if "_meta" in members:
        found.meta = members["_meta"]
    if (said := members.get("resultType")) is not None:
        found.result_type = frames.text_of(said) or "complete"
    return found


def task_of(raw: Raw) -> str | None:
    """The id of the task that a call became, if it did: in a member `task`, or beside `resultType`."""
    members = frames.members_of(raw) or {}
    inside = frames.members_of(members["task"]) if "task" in members else members
    said = (inside or {}).get("taskId")
    return None if said is None else frames.text_of(said)


def sendable(frame: Frame) -> Frame:
    """The frame with whatever is no UTF-8 in it replaced; nobody could read it as it is."""
    if not frame.data.isascii():
        try:
            check_utf8(frame.data)
        except JSONError:
            mended = frames.read(frame.data.decode("utf-8", "replace").encode())
            return frame if mended is None else mended
    return frame


def is_within(call: Call, answer: Answer) -> bool:
    """Whether the lanes as they came are within the budget. Their text may have more space than its JSON needs."""
    budget = call.policy.budget
    if budget is None or answer.size <= budget.limit:
        return True
    if answer.size > most_bytes(budget):
        return False
    return all(budget.meter.count(lane) <= budget.limit for lane in _lanes(answer))


def _lanes(answer: Answer) -> tuple[bytes, bytes]:
    return b"[%b]" % b",".join(answer.content), bytes(answer.structured or b"")


def payload_for(answer: Answer, call: Call) -> Payload:
    """What is to be fitted."""
    content = tuple(answer.content)
    if answer.strange:
        return Payload(text=bytes(answer.raw))
    if answer.is_error and answer.structured is not None and call.published.schema is not None:
        # Some clients hold the structure of a failure to the schema, too. Cut, it could break it: so what it
        # says goes into the text, which no schema binds.
        payload = read_result(content, answer.structured)
        if payload.blocks is None:
            return Payload(text=payload.original())
        said = bytes(answer.structured).decode()
        return Payload(blocks=(*content, text_block(said)))
    return payload_of(read_result(content, answer.structured), call)


def with_lanes(sealed: Sealed, answer: Answer) -> bytes:
    """The server's result with its lanes replaced; whatever else it says stays."""
    structured = sealed.structured
    if structured is not None and (b"\n" in structured or b"\r" in structured):
        # A message is one line on stdio.
        structured = compact(structured)
    changes: dict[str, bytes | None] = {"content": sealed.content, "structuredContent": structured}
    if sealed.is_error != answer.is_error:
        changes["isError"] = b"true" if sealed.is_error else b"false"
    if sealed.meta:
        own = {key: encode(value) for key, value in sealed.meta.items()}
        try:
            meta = b"{}" if isinstance(answer.meta, UnsetType) else bytes(answer.meta)
            changes["_meta"] = frames.replaced(meta if meta[:1] == b"{" else b"{}", own)
        except (TooDeep, *_OPAQUE):
            changes["_meta"] = frames.replaced(b"{}", own)
    if answer.strange:
        changes["isError"] = b"true"
        return frames.replaced(b"{}", changes)
    try:
        return frames.replaced(answer.raw, changes)
    except (TooDeep, *_OPAQUE):
        # What surrounds the lanes cannot be opened; the lanes are what counts.
        return frames.replaced(b"{}", changes)


def with_result(frame: Frame, result: bytes) -> bytes:
    try:
        return frames.replaced(frame.data, {"result": result})
    except (TooDeep, *_OPAQUE):
        return frames.response(frames.NULL if isinstance(frame.id, UnsetType) else frame.id, result)


class _Error(msgspec.Struct):
    code: int = -32603
    message: str = ""


def cut_error(frame: Frame, data: bytes, call: Call, front: Front) -> bytes:
    """A JSON-RPC error whose words are within the budget; the whole of it is stored."""
    budget = call.policy.budget
    assert not isinstance(frame.error, UnsetType)
    whole = bytes(frame.error)
    masked = front.masked(call.policy, whole)
    is_same = masked is whole
    if budget is not None and not _is_within(masked, budget):
        stored = _stored(masked, call, front)
        said: Buffer = frame.error if is_same else masked
        # A large one is let go before its words are taken out of the frame.
        del whole, masked
        masked, is_same = _cut(said, stored, budget), False
    # Some servers send a result beside the error. No client looks at it, but all have to read it.
    if is_same and isinstance(frame.result, UnsetType):
        return data
    try:
        return frames.replaced(frame.data, {"error": masked, "result": None})
    except (TooDeep, *_OPAQUE):
        identifier = frames.NULL if isinstance(frame.id, UnsetType) else frame.id
        return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (bytes(identifier), masked)


def _is_within(text: bytes, budget: Budget) -> bool:
    if len(text) <= budget.limit:
        return True
    return len(text) <= most_bytes(budget) and budget.meter.count(text) <= budget.limit


def _stored(whole: bytes, call: Call, front: Front) -> str | None:
    """The handle under which an error is kept, if it is."""
    keeping = front.keeping(call.owner)
    if keeping is None:
        return None
    handle, _ = keeping.promise()
    return handle if keeping.keep(handle, Payload(text=_utf8(whole)), call.tool) is None else None


def _cut(said: Buffer, handle: str | None, budget: Budget) -> bytes:
    way = "The rest was not kept." if handle is None else f'Read on: envelope_read(handle="{handle}").'
    try:
        error = msgspec.json.decode(said, type=_Error)
    except _OPAQUE:
        error = _Error(message=bytes(said).decode("utf-8", "replace"))
    del said
    code, message = error.code, error.message.encode()
    del error
    room = budget.limit if budget.unit == "bytes" else 4 * budget.limit
    while True:
        fitted = fit_text(message, room, "both")
        words = "" if fitted is None else fitted.text.decode()
        shown = encode({"code": code, "message": f"{words} [cut to fit] {way}"})
        if budget.meter.count(shown) <= budget.limit or room < 16:
            return shown
        room = room * 3 // 4


def _utf8(text: bytes) -> bytes:
    """Text that can be read back; that of a large frame is not copied without need."""
    try:
        check_utf8(text)
    except JSONError:
        return text.decode("utf-8", "replace").encode()
    return text
