"""JSON-RPC frames, and the tool results in them, as bytes: what doesn't have to change keeps its bytes.

Strategy: one pass of msgspec gives the members of a message as slices of the frame. A frame that has to change is
assembled from its own members, in their order, with only the changes replaced. What msgspec cannot read (half a
surrogate pair, NaN, thousands of levels) is read by slower means, because a frame that nobody could read would
escape every budget. A tool's result is read only as far as its lanes. What is not a result as the protocol defines
it is all text for us, since nobody knows what a client would do with it. Some readers take `Result` for `result`,
so names that differ from the protocol's in case alone are spelled as the protocol has them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ..jsontext.document import Buffer, Node, TooDeep, compact, encode
from ..jsontext.errors import (
    STRING,
    WHITESPACE,
    JSONError,
    check_utf8,
    replace_lone_surrogates,
    replace_nonfinite,
)
from ..payload import Result

if TYPE_CHECKING:
    from ..envelope import Sealed

Id = tuple[str, Any]
_Bytes = TypeVar("_Bytes", bytes, Raw)
NULL: Final = Raw(b"null")
BOM: Final = b"\xef\xbb\xbf"
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
# What a request of the stateless era says of its sender, in `_meta`.
META_PREFIX: Final = "io.modelcontextprotocol/"
META_VERSION: Final = f"{META_PREFIX}protocolVersion"
META_CLIENT: Final = f"{META_PREFIX}clientInfo"
META_CAPABILITIES: Final = f"{META_PREFIX}clientCapabilities"
# What msgspec raises for bytes that it cannot read.
UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
CANNOT_OPEN: Final = (TooDeep, *UNREADABLE)
_COMPLETE: Final = "complete"
# The types of what is not a result yet.
_INTERIM: Final = ("input_required", "task")


class Frame(msgspec.Struct, frozen=True):
    """The members of one message. `data` is all of it, as it came or repaired."""

    id: Raw | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET
    data: bytes = b""
    # Whether names are spelled otherwise in `data` than they came.
    is_respelled: bool = False

    @property
    def key(self) -> Id | None:
        """The id as a key, so that equal ids have equal keys; None if there is no id."""
        return None if isinstance(self.id, UnsetType) else id_key(bytes(self.id))

    @property
    def identifier(self) -> Raw:
        """The id as it is spelled."""
        return NULL if isinstance(self.id, UnsetType) else self.id

    @property
    def is_response(self) -> bool:
        # Some readers take what has both a method and an outcome for a response.
        if self.method is not UNSET:
            return self.result is not UNSET or self.error is not UNSET
        return not (self.id is UNSET and self.result is UNSET and self.error is UNSET)

    @property
    def meta(self) -> dict[str, Raw]:
        return members_of(self.param("_meta"))

    @property
    def version(self) -> str | None:
        """The version of the protocol that a stateless request names."""
        return text_of(self.meta.get(META_VERSION))

    def param(self, name: str) -> Raw | None:
        return members_of(self.params).get(name)


class Outgoing(NamedTuple):
    """Frames to be sent, in order."""

    to_client: list[bytes]
    to_server: list[bytes]


def joined(parts: Sequence[Outgoing]) -> Outgoing:
    return Outgoing(
        [frame for part in parts for frame in part.to_client],
        [frame for part in parts for frame in part.to_server],
    )


class ToolResult(msgspec.Struct, frozen=True):
    """The result of a call: `raw` is all of it, `lanes` are what is measured."""

    raw: Raw
    lanes: Result
    meta: Raw | UnsetType = UNSET


class Error(msgspec.Struct, frozen=True):
    """A JSON-RPC error. A malformed one may have no code, and anything for a message."""

    code: int | float | None = None
    message: Any = ""
    data: Any = None


class _Message(msgspec.Struct):
    id: Raw | UnsetType = UNSET
    method: Raw | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class _UsualMessage(_Message, forbid_unknown_fields=True):
    jsonrpc: Raw | UnsetType = UNSET


class _ResultMembers(msgspec.Struct):
    content: list[Raw] | UnsetType = UNSET
    structured: Raw | UnsetType = msgspec.field(default=UNSET, name="structuredContent")
    is_error: bool = msgspec.field(default=False, name="isError")
    meta: Raw | UnsetType = msgspec.field(default=UNSET, name="_meta")
    result_type: str = msgspec.field(default=_COMPLETE, name="resultType")


class _UsualMembers(_ResultMembers, forbid_unknown_fields=True):
    pass


_USUAL_MESSAGE: Final = msgspec.json.Decoder(_UsualMessage)
_MESSAGE: Final = msgspec.json.Decoder(_Message)
_USUAL_RESULT: Final = msgspec.json.Decoder(_UsualMembers)
_RESULT: Final = msgspec.json.Decoder(_ResultMembers)
_ERROR: Final = msgspec.json.Decoder(Error)
_METHOD: Final = msgspec.json.Decoder(str)
_OBJECT: Final = msgspec.json.Decoder(dict[str, Raw])
_MESSAGE_NAMES: Final = {name: name for name in _Message.__struct_fields__}
_PARAM_NAMES: Final = {
    name.casefold(): name
    for name in ("name", "arguments", "uri", "_meta", "requestId", "progressToken", "taskId")
}
_RESULT_NAMES: Final = {
    name.casefold(): name
    for name in ("content", "structuredContent", "isError", "_meta", "resultType", "task", "taskId", "result")
}
_BATCH: Final = msgspec.json.Decoder(list[Raw])
_TOKEN: Final = re.compile(STRING + rb"|[{}\[\],:]")


# -- reading ------------------------------------------------------------------------------------------------


def read(data: bytes) -> Frame | None:
    """The members of a message; None for anything else (a batch, or no JSON)."""
    # JavaScript's `fetch` drops a byte order mark.
    data = data.removeprefix(BOM)
    for repair in (bytes, _repaired):
        try:
            data = repair(data)
            return _frame(data)
        except (RecursionError, TooDeep):
            return _read_deep(data)
        except UNREADABLE:
            if data.lstrip(WHITESPACE)[:1] != b"{":
                return None
    return None


def _frame(came: bytes) -> Frame:
    data = came
    found: _Message
    try:
        found = _USUAL_MESSAGE.decode(data)
    except (msgspec.ValidationError, UnicodeDecodeError):
        # There are members of other names.
        data = _spelled(data, _MESSAGE_NAMES)
        found = _MESSAGE.decode(data)
    if not isinstance(found.params, UnsetType):
        params = _spelled_if_readable(found.params, _PARAM_NAMES)
        if params is not found.params:
            found.params, data = params, replaced(data, {"params": bytes(params)})
    return _settled(found, data, data is not came)


def _spelled(data: _Bytes, names: Mapping[str, str]) -> _Bytes:
    """The same object, in which no name differs from one of the protocol's in case alone.

    What readers that disregard case make of it (CVE-2026-27896) is then what all others do.
    """
    try:
        members = _OBJECT.decode(data)
    except UnicodeDecodeError:
        valid = type(data)(bytes(data).decode("utf-8", "replace").encode())
        respelled = _spelled(valid, names)
        return data if respelled is valid else respelled
    wrong = [name for name in members if name.casefold() in names and name not in names.values()]
    if not wrong:
        return data
    changes: dict[str, bytes | None] = dict.fromkeys(wrong)
    for name in wrong:
        if (known := names[name.casefold()]) not in members:
            changes[known] = bytes(members[name])
    return type(data)(replaced(data, changes))


def _spelled_if_readable(raw: Raw, names: Mapping[str, str]) -> Raw:
    try:
        return _spelled(raw, names)
    except CANNOT_OPEN:
        return raw


def _settled(found: _Message, data: bytes, is_respelled: bool) -> Frame:
    method: str | UnsetType = UNSET
    if not isinstance(found.method, UnsetType):
        try:
            method = _METHOD.decode(found.method)
        except UNREADABLE:
            # A method that is not a string must not hide the rest.
            method = UNSET if (text := text_of(found.method)) is None else text
    error = found.error
    if not isinstance(error, UnsetType) and len(error) == 4 and bytes(error) == b"null":
        # Some servers send a null error with every result.
        error = UNSET
    return Frame(found.id, method, found.params, found.result, error, data, is_respelled)


def _repaired(data: bytes) -> bytes:
    """What Python's own parser accepts, as valid JSON."""
    if b"\\u" in data:
        data, _ = replace_lone_surrogates(data)
    return replace_nonfinite(data)


def _read_deep(data: bytes) -> Frame | None:
    """Find the members by counting brackets, with no stack to exhaust. What is inside is not checked."""
    found: dict[str, bytes] = {}
    depth = 0
    key: str | None = None
    start = -1
    for token in _TOKEN.finditer(data):
        mark = token[0]
        if mark in (b"{", b"["):
            depth += 1
        elif mark in (b"}", b"]"):
            depth -= 1
        if depth == 0 or (depth == 1 and mark == b","):
            if key is not None and start >= 0:
                found[key] = data[start : token.start()].strip(WHITESPACE)
            key, start = None, -1
            if depth == 0:
                data = data[: token.end()]
                break
        elif depth == 1 and mark == b":" and start < 0:
            start = token.end()
        elif depth == 1 and start < 0 and mark[:1] == b'"':
            key = text_of(mark)
    if depth or not data.lstrip(WHITESPACE).startswith(b"{"):
        return None
    known = {name: Raw(value) for name, value in found.items() if value and name in _MESSAGE_NAMES}
    is_respelled = any(name.casefold() in _MESSAGE_NAMES for name in found.keys() - known.keys())
    if is_respelled:
        # At this depth, what has a name of another case is left out.
        data = b"{%b}" % b",".join(b'"%b":%b' % (name.encode(), value) for name, value in known.items())
    return _settled(_Message(**known), data, is_respelled)


def read_leniently(data: bytes) -> Frame | None:
    """What lenient readers make of a malformed message: Java's takes no notice of what follows it."""
    data = data.removeprefix(BOM)
    return _read_deep(data) if data.lstrip(WHITESPACE)[:1] == b"{" else None


def read_batch(data: bytes) -> list[bytes] | None:
    """The messages of a batch; None if it is not a batch."""
    data = data.removeprefix(BOM)
    if data.lstrip(WHITESPACE)[:1] != b"[":
        return None
    for repair in (bytes, _repaired):
        try:
            return [bytes(part) for part in _BATCH.decode(repair(data))]
        except msgspec.MsgspecError:
            continue
        except (UnicodeDecodeError, RecursionError):
            return None
    return None


def lines(data: bytes) -> list[bytes]:
    """A line, as several if clients that also end lines at a carriage return take it for that (Java's, C#'s, Go's).

    Within a message it is but a space, and becomes one.
    """
    if data.find(b"\r") in (-1, len(data) - 1):
        return [data]
    if read(data) is None and read_batch(data) is None:
        return [part for part in data.split(b"\r") if part.strip()]
    return [data[:-1].replace(b"\r", b" ") + data[-1:]]


def id_key(raw: bytes) -> Id:
    """An id as a key: equal for equal values, whatever they are and however they are spelled."""
    try:
        value = msgspec.json.decode(raw)
    except UNREADABLE:
        # Half a surrogate pair or a number out of range: only the spelling tells them apart.
        return "r", raw.lower()
    if isinstance(value, str):
        return "s", value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "r", raw
    return "n", int(value) if value == int(value) else value


def same_id(key: Id) -> Id | None:
    """Return the other spelling of a number, since clients take a response to "5" for one to 5, if there is one."""
    kind, value = key
    if kind == "n":
        return "s", str(value)
    # Python's client reads "05" as a number, JavaScript's "5.0", "0x5" and an empty string, too.
    for number in (int, float, partial(int, base=0)) if kind == "s" else ():
        with suppress(ValueError, OverflowError):
            return "n", int(number(value.strip() or "0"))
    return None


def read_error(error: Buffer | UnsetType) -> Error:
    """A JSON-RPC error; an empty one if there is none, or none that can be read."""
    try:
        return Error() if isinstance(error, UnsetType) else _ERROR.decode(error)
    except UNREADABLE:
        return Error(message=None)


def members_of(raw: Raw | UnsetType | None) -> dict[str, Raw]:
    """The members of an object; none for anything else."""
    try:
        return {} if raw is None or isinstance(raw, UnsetType) else _OBJECT.decode(raw)
    except UNREADABLE:
        return {}


def text_of(raw: Buffer | None) -> str | None:
    """The text of a JSON string; None for anything else."""
    if raw is None or bytes(memoryview(raw)[:1]) != b'"':
        return None
    try:
        return msgspec.json.decode(replace_lone_surrogates(bytes(raw))[0], type=str)
    except UNREADABLE:
        return None


def value_of(raw: Raw) -> Any:
    """A value as Python has it, or as it is spelled where Python has none."""
    try:
        return msgspec.json.decode(raw)
    except UNREADABLE:
        return bytes(memoryview(raw)[:200]).decode("utf-8", "replace")


def read_result(raw: Raw) -> ToolResult | None:
    """Read a result; None for what is not a result yet: a task, or a request for input.

    Whatever has lanes is a result, as older clients show them without a look at the type.
    """
    members: _ResultMembers
    try:
        members = _USUAL_RESULT.decode(raw)
    except UNREADABLE:
        raw = spelled_result(raw)
        try:
            members = _RESULT.decode(raw)
        except UNREADABLE:
            members = _read_malformed(raw)
    structured = None if isinstance(members.structured, UnsetType) else members.structured
    meta = None if isinstance(members.meta, UnsetType) else members.meta
    if not isinstance(members.content, UnsetType):
        lanes = Result(members.content, structured, members.is_error, meta=meta)
    elif structured is not None:
        lanes = Result([], structured, members.is_error, meta=meta)
    elif members.result_type in _INTERIM or task_of(raw) is not None:
        return None
    else:
        # Something else altogether: a client would have to show all of it.
        lanes = Result([raw], None, True, True)
    return ToolResult(raw, lanes, members.meta)


def spelled_result(raw: Raw) -> Raw:
    """The result of a call, or of a question about a task, with the names of the protocol."""
    return _spelled_if_readable(raw, _RESULT_NAMES)


def _read_malformed(raw: Raw) -> _ResultMembers:
    """Read what can be read of a malformed result."""
    members = members_of(raw)
    found: dict[str, Any] = {"is_error": bytes(members.get("isError", b"")) == b"true"}
    try:
        found["content"] = msgspec.json.decode(members["content"], type=list[Raw])
    except (KeyError, *UNREADABLE):
        pass
    for field, name in (("structured", "structuredContent"), ("meta", "_meta")):
        if name in members:
            found[field] = members[name]
    found["result_type"] = text_of(members.get("resultType")) or _COMPLETE
    return _ResultMembers(**found)


def task_of(raw: Raw) -> str | None:
    """The id of the task that a call has become, in a member `task` or next to `resultType`."""
    members = members_of(raw)
    inner = members_of(members["task"]) if "task" in members else members
    return text_of(inner.get("taskId"))


# -- writing ------------------------------------------------------------------------------------------------


def replaced(data: Buffer, changes: Mapping[str, bytes | None]) -> bytes:
    """An object with some members changed, added or (None) removed; the others keep their bytes."""
    left = dict(changes)
    parts: list[bytes] = []
    # msgspec's slices have no space around them and need not be copied.
    whole = data if isinstance(data, Raw) else data.strip(WHITESPACE)
    for member in Node(whole).members():
        if member.key in left:
            value = left.pop(member.key)
            if value is not None:
                parts.append(b"%b:%b" % (member.raw_key, value))
        else:
            parts.append(b"%b:%b" % (member.raw_key, member.value))
    parts += [b"%b:%b" % (encode(key), value) for key, value in left.items() if value is not None]
    return b"{%b}" % b",".join(parts)


def response(identifier: Raw, result: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (bytes(identifier), result)


def failure(identifier: Raw, code: int, message: str) -> bytes:
    return error_response(identifier, encode({"code": code, "message": message}))


def error_response(identifier: Raw, error: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (bytes(identifier), error)


def batch(parts: Sequence[Buffer]) -> bytes:
    return b"[%b]" % b",".join(parts)


def with_lanes(sealed: Sealed, result: ToolResult) -> bytes:
    """The server's result with its lanes replaced; its other members stay."""
    structured = sealed.structured
    if structured is not None and (b"\n" in structured or b"\r" in structured):
        # On stdio, a message is one line.
        structured = compact(structured)
    changes: dict[str, bytes | None] = {"content": sealed.content, "structuredContent": structured}
    if sealed.is_error != result.lanes.is_error or result.lanes.opaque:
        changes["isError"] = b"true" if sealed.is_error or result.lanes.opaque else b"false"
    if sealed.meta:
        own = {key: encode(value) for key, value in sealed.meta.items()}
        meta = b"{}" if isinstance(result.meta, UnsetType) else bytes(result.meta)
        changes["_meta"] = _replaced(meta if meta[:1] == b"{" else b"{}", own)
    return _replaced(b"{}" if result.lanes.opaque else result.raw, changes)


def _replaced(data: Buffer, changes: Mapping[str, bytes | None]) -> bytes:
    """The object with its changes; the changes alone if the rest cannot be opened."""
    try:
        return replaced(data, changes)
    except CANNOT_OPEN:
        return replaced(b"{}", changes)


def with_result(frame: Frame, result: bytes) -> bytes:
    """The response with another result."""
    try:
        return replaced(frame.data, {"result": result})
    except CANNOT_OPEN:
        return response(frame.identifier, result)


def with_valid_utf8(frame: Frame) -> Frame:
    """The frame with whatever isn't UTF-8 in it replaced, for one that has to change: nobody could read it."""
    if not frame.data.isascii():
        try:
            check_utf8(frame.data)
        except JSONError:
            valid = frame.data.decode("utf-8", "replace").encode()
            return read(valid) or read_leniently(valid) or frame
    return frame
