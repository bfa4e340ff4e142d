"""JSON-RPC frames, seen from outside: the outline is read, and the bytes of everything else stay as they are.

Strategy: one pass of msgspec gives the members of a message as slices of the frame. A frame that has to change
is put together again from its own members, in their order, with only what changed replaced. What msgspec cannot
take (half a surrogate pair, NaN, thousands of levels) is read by slower means, because a frame that nobody could
read would go past every budget.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ..faults import STRING, WHITESPACE, mend_numbers, mend_surrogates
from ..jsontree import Buffer, Node, encode

Id = tuple[str, Any]
NULL: Final = Raw(b"null")


class Frame(msgspec.Struct):
    """The outline of one message. `data` are its bytes, as they came or mended."""

    id: Raw | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET
    data: bytes = b""

    @property
    def key(self) -> Id | None:
        """The id, such that equal ids are equal keys; None if there is none."""
        return None if isinstance(self.id, UnsetType) else id_key(bytes(self.id))

    @property
    def identifier(self) -> Raw:
        """The id as it is spelled."""
        return NULL if isinstance(self.id, UnsetType) else self.id

    @property
    def is_response(self) -> bool:
        return self.method is UNSET and self.id is not UNSET


class _Outline(msgspec.Struct):
    id: Raw | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class ToolResult(
    msgspec.Struct, rename={"meta": "_meta", "is_error": "isError", "result_type": "resultType"}
):
    """The outline of what `tools/call` gives."""

    content: list[Raw] | UnsetType = UNSET
    structuredContent: Raw | UnsetType = UNSET  # noqa: N815
    is_error: bool | UnsetType = UNSET
    meta: Raw | UnsetType = UNSET
    result_type: str | UnsetType = UNSET


class CallParams(msgspec.Struct, rename={"meta": "_meta"}):
    """The outline of what `tools/call` asks for, whatever it is: a mistake is the server's to judge."""

    name: Any = ""
    arguments: Raw | UnsetType = UNSET
    meta: Raw | UnsetType = UNSET


class ListResult(msgspec.Struct, rename={"next_cursor": "nextCursor"}):
    tools: list[Raw]
    next_cursor: Any = None


class _Loose(msgspec.Struct):
    """The same for what says `method` and means something else."""

    id: Raw | UnsetType = UNSET
    method: Raw | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


_READ: Final = msgspec.json.Decoder(_Outline)
_READ_LOOSELY: Final = msgspec.json.Decoder(_Loose)
_CALL: Final = msgspec.json.Decoder(CallParams)
_MEMBERS: Final = msgspec.json.Decoder(dict[str, Raw])
_BATCH: Final = msgspec.json.Decoder(list[Raw])
_TOKEN: Final = re.compile(STRING + rb"|[{}\[\],:]")


def id_key(raw: bytes) -> Id:
    """An id as a key: equal for equal values, however they are spelled, and whatever they are."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # Half a surrogate pair, a number beyond measure: they can only be told by their spelling.
        return "r", raw.lower()
    if isinstance(value, str):
        return "s", value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "r", raw
    return "n", int(value) if value == int(value) else value


def read(data: bytes) -> Frame | None:
    """The outline of a message; None for what is no message (a batch, a mistake)."""
    try:
        outline = _READ.decode(data)
    except RecursionError:
        return _read_slowly(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _read_loosely(data)
    return Frame(outline.id, outline.method, outline.params, outline.result, _told(outline.error), data)


def _told(error: Raw | UnsetType) -> Raw | UnsetType:
    """An error that is null is none; some servers say so with every answer."""
    is_null = not isinstance(error, UnsetType) and len(error) == 4 and bytes(error) == b"null"
    return UNSET if is_null else error


def _mended(data: bytes) -> bytes:
    """What Python's own parser takes, as JSON has it."""
    if b"\\u" in data:
        data, _ = mend_surrogates(data)
    return mend_numbers(data)


def _read_loosely(data: bytes) -> Frame | None:
    """What is wrong may be half a surrogate pair, NaN, or a method that is no text: none hides the rest."""
    if data.lstrip(WHITESPACE)[:1] != b"{":
        return None
    data = _mended(data)
    try:
        outline = _READ_LOOSELY.decode(data)
    except RecursionError:
        return _read_slowly(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    method: str | UnsetType = UNSET
    if not isinstance(outline.method, UnsetType):
        try:
            method = msgspec.json.decode(outline.method, type=str)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            method = UNSET
    return Frame(outline.id, method, outline.params, outline.result, _told(outline.error), data)


def read_batch(data: bytes) -> list[bytes] | None:
    """The messages of a batch, if this is one."""
    if data.lstrip(WHITESPACE)[:1] != b"[":
        return None
    try:
        return _parts(data)
    except msgspec.MsgspecError:
        pass
    except (UnicodeDecodeError, RecursionError):
        return None
    try:
        return _parts(_mended(data))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _parts(batch: bytes) -> list[bytes]:
    return [bytes(part) for part in _BATCH.decode(batch)]


def _read_slowly(data: bytes) -> Frame | None:
    """The outline by counting brackets: no stack to exhaust. What is inside is not checked."""
    members: dict[str, bytes] = {}
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
                members[key] = data[start : token.start()].strip(WHITESPACE)
            key, start = None, -1
            if depth == 0:
                break
        elif depth == 1 and mark == b":" and start < 0:
            start = token.end()
        elif depth == 1 and start < 0 and mark[:1] == b'"':
            key = _text(mark)
    if depth or not data.lstrip(WHITESPACE).startswith(b"{"):
        return None
    frame = Frame(data=data)
    for name in ("id", "params", "result", "error"):
        if members.get(name) and (name, members[name]) != ("error", b"null"):
            setattr(frame, name, Raw(members[name]))
    if members.get("method", b"")[:1] == b'"':
        frame.method = _text(members["method"]) or UNSET
    return frame


def _text(string: bytes) -> str | None:
    try:
        return msgspec.json.decode(mend_surrogates(string)[0], type=str)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def call_params(params: Raw | UnsetType) -> CallParams:
    try:
        return CallParams() if isinstance(params, UnsetType) else _CALL.decode(params)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return CallParams()


def members_of(raw: Raw | UnsetType) -> dict[str, Raw] | None:
    """The members of an object; None for whatever else it is."""
    try:
        return None if isinstance(raw, UnsetType) else _MEMBERS.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def text_of(raw: Buffer) -> str | None:
    """What a JSON string says; None for whatever else it is."""
    return _text(bytes(raw)) if bytes(memoryview(raw)[:1]) == b'"' else None


def value_of(raw: Raw) -> Any:
    """A value as Python has it; what it cannot have is told as it is spelled."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return bytes(memoryview(raw)[:200]).decode("utf-8", "replace")


def replaced(data: Buffer, changes: Mapping[str, bytes | None]) -> bytes:
    """An object with some of its members changed, added or (None) taken away; the others keep their bytes."""
    left = dict(changes)
    parts: list[bytes] = []
    # What msgspec gives has no space around it, and need not be copied.
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


def failure(identifier: Raw, code: int, message: str, data: Any = None) -> bytes:
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (bytes(identifier), encode(error))
