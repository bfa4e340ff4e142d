"""JSON-RPC frames, seen from outside: the outline is read, and the bytes of everything else stay as they are.

Strategy: one pass of msgspec gives the members of a message as slices of the frame. A frame that has to change
is put together again from its own members, in their order, with only what changed replaced. What msgspec cannot
take (half a surrogate pair, thousands of levels) is read by slower means, because a frame that nobody could read
would go past every budget.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ..faults import STRING, WHITESPACE, mend_surrogates
from ..jsontree import Buffer, Node, encode

Id = tuple[str, Any]


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
    name: str
    arguments: dict[str, Raw] | UnsetType = UNSET
    meta: Raw | UnsetType = UNSET


class ListResult(msgspec.Struct, rename={"next_cursor": "nextCursor"}):
    tools: list[Raw]
    next_cursor: str | UnsetType | None = UNSET


_READ: Final = msgspec.json.Decoder(_Outline)
_BATCH: Final = msgspec.json.Decoder(list[Raw])
_TOKEN: Final = re.compile(STRING + rb"|[{}\[\],:]")


def id_key(raw: bytes) -> Id | None:
    try:
        value = msgspec.json.decode(raw)
    except msgspec.MsgspecError:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return (
        ("s", value) if isinstance(value, str) else ("n", float(value) if value != int(value) else int(value))
    )


def read(data: bytes) -> Frame | None:
    """The outline of a message; None for what is no message (a batch, a mistake)."""
    try:
        outline = _READ.decode(data)
    except RecursionError:
        return _read_slowly(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        try:
            data, count = mend_surrogates(data)
            if not count:
                return None
            outline = _READ.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
    return Frame(outline.id, outline.method, outline.params, outline.result, outline.error, data)


def read_batch(data: bytes) -> list[bytes] | None:
    """The messages of a batch, if this is one."""
    if data.lstrip(WHITESPACE)[:1] != b"[":
        return None
    try:
        return [bytes(part) for part in _BATCH.decode(data)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _read_slowly(data: bytes) -> Frame | None:
    """The outline by counting brackets: no stack to exhaust. What is inside is not checked."""
    members: dict[bytes, bytes] = {}
    depth = 0
    key = b""
    start = -1
    for token in _TOKEN.finditer(data):
        mark = token[0]
        if mark in (b"{", b"["):
            depth += 1
        elif mark in (b"}", b"]"):
            depth -= 1
            if depth == 0 and start >= 0:
                members[key] = data[start : token.start()].strip(WHITESPACE)
                break
        elif depth == 1 and mark == b",":
            members[key] = data[start : token.start()].strip(WHITESPACE)
            start = -1
        elif depth == 1 and mark == b":" and start < 0:
            start = token.end()
        elif depth == 1 and start < 0 and mark[:1] == b'"':
            key = mark[1:-1]
    if depth or not members:
        return None
    frame = Frame(data=data)
    for name in ("id", "params", "result", "error"):
        if name.encode() in members:
            setattr(frame, name, Raw(members[name.encode()]))
    if b"method" in members:
        try:
            frame.method = msgspec.json.decode(members[b"method"], type=str)
        except msgspec.MsgspecError:
            return None
    return frame


def replaced(data: Buffer, changes: Mapping[str, bytes | None]) -> bytes:
    """An object with some of its members changed, added or (None) taken away; the others keep their bytes."""
    left = dict(changes)
    parts: list[bytes] = []
    for member in Node(bytes(data).strip(WHITESPACE)).members():
        if member.key in left:
            value = left.pop(member.key)
            if value is not None:
                parts.append(b"%b:%b" % (member.raw_key, value))
        else:
            parts.append(b"%b:%b" % (member.raw_key, member.value))
    parts += [b"%b:%b" % (encode(key), value) for key, value in left.items() if value is not None]
    return b"{%b}" % b",".join(parts)


NULL: Final = Raw(b"null")


def response(identifier: Raw, result: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (bytes(identifier), result)


def failure(identifier: Raw, code: int, message: str, data: Any = None) -> bytes:
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (bytes(identifier), encode(error))
