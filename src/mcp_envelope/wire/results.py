"""Results and errors put back into the frames that they came in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ..jsontree import Node, TooDeep, encode
from ..payload import Payload
from ..text import fit_text
from . import frames
from .frames import Frame, ToolResult

if TYPE_CHECKING:
    from ..front import Call, Front

_NOTE: Final = 400


def with_result(frame: Frame, result: bytes) -> bytes:
    return frames.replaced(frame.data, {"result": result})


def result_of(raw: Raw) -> ToolResult:
    """The outline of a result that is not as it should be: what can be told of it."""
    found = ToolResult()
    try:
        members = {member.key: member.value for member in Node(bytes(raw)).members()}
    except (TooDeep, msgspec.MsgspecError, KeyError):
        # Nested deeper than can be opened: all of it is one value that cannot be cut.
        found.structuredContent = raw
        return found
    if "content" in members and bytes(members["content"])[:1] == b"[":
        try:
            found.content = msgspec.json.decode(members["content"], type=list[Raw])
        except (msgspec.MsgspecError, RecursionError):
            found.content = UNSET
    if "structuredContent" in members:
        found.structuredContent = Raw(bytes(members["structuredContent"]))
    found.is_error = bytes(members.get("isError", b"false")) == b"true"
    if "_meta" in members:
        found.meta = Raw(bytes(members["_meta"]))
    if "resultType" in members:
        found.result_type = "complete" if bytes(members["resultType"]) == b'"complete"' else "other"
    return found


class _Error(msgspec.Struct):
    code: int = -32603
    message: str = ""


def cut_error(frame: Frame, data: bytes, call: Call, front: Front) -> bytes:
    """A JSON-RPC error whose words are within the budget; the whole of it is stored."""
    budget = call.policy.budget
    assert not isinstance(frame.error, UnsetType)
    if (
        budget is None
        or len(frame.error) <= budget.limit
        or budget.meter.count(bytes(frame.error)) <= budget.limit
    ):
        return data
    try:
        error = msgspec.json.decode(frame.error, type=_Error)
    except (msgspec.MsgspecError, RecursionError):
        error = _Error(message=bytes(frame.error).decode("utf-8", "replace"))
    keeping = front.keeping(call.owner)
    way = "The rest was not kept."
    if keeping is not None:
        handle, _ = keeping.promise()
        if keeping.keep(handle, Payload(text=bytes(frame.error)), call.tool) is None:
            way = f'Read on: envelope_read(handle="{handle}").'
    room = max(budget.limit - _NOTE, 64)
    while True:
        fitted = fit_text(error.message.encode(), room, "both")
        words = "" if fitted is None else fitted.text.decode()
        shown = encode({"code": error.code, "message": f"{words} [cut to fit] {way}"})
        if budget.meter.count(shown) <= budget.limit or room < 16:
            return frames.replaced(frame.data, {"error": shown})
        room //= 2
