"""The headers that go with a message over HTTP, made from the message itself.

Strategy: a request of the stateless era says everything anew, so its headers repeat what its body says: the
version, the method, what it names, and the arguments that the tool wants to see there. An older one says which
session it belongs to, and that is known elsewhere.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from .frames import Frame
from .upstream import Headers

TYPES: Final = [("content-type", "application/json"), ("accept", "application/json, text/event-stream")]
VERSION: Final = "mcp-protocol-version"
_SAID_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
_NAMED: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    # What a task is called is its id.
    "tasks/get": "task_id",
    "tasks/update": "task_id",
    "tasks/cancel": "task_id",
}
_SAFE: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class _Params(msgspec.Struct, rename={"meta": "_meta", "task_id": "taskId"}):
    meta: dict[str, Raw] | UnsetType = UNSET
    name: Any = None
    uri: Any = None
    task_id: Any = None
    arguments: Any = None


def modern(frame: Frame | None, mirrored: Callable[[str], Mapping[tuple[str, ...], str]]) -> Headers | None:
    """The headers of a request of the stateless era; None for what is of an older one."""
    if frame is None or isinstance(frame.method, UnsetType) or isinstance(frame.params, UnsetType):
        return None
    try:
        params = msgspec.json.decode(frame.params, type=_Params)
        meta = {} if isinstance(params.meta, UnsetType) else params.meta
        version = msgspec.json.decode(meta[_SAID_VERSION], type=str)
    except (KeyError, *_UNREADABLE):
        return None
    headers = [*TYPES, (VERSION, encoded(version)), ("mcp-method", encoded(frame.method))]
    name = getattr(params, _NAMED[frame.method]) if frame.method in _NAMED else None
    if isinstance(name, str):
        headers.append(("mcp-name", encoded(name)))
    if frame.method == "tools/call" and isinstance(name, str) and isinstance(params.arguments, dict):
        headers += mirror(mirrored(name), params.arguments)
    return headers


def encoded(value: str) -> str:
    """A text as a header can carry it."""
    if not value or (_SAFE.fullmatch(value) and not (value.startswith("=?base64?") and value.endswith("?="))):
        return value
    return f"=?base64?{base64.b64encode(value.encode('utf-8', 'replace')).decode()}?="


def mirror(named: Mapping[tuple[str, ...], str], arguments: dict[str, Any]) -> Headers:
    """Arguments that the tool's schema wants to see in headers, too."""
    headers: Headers = []
    for path, token in named.items():
        value: Any = arguments
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        if isinstance(value, str | int | float) and _TOKEN.fullmatch(token):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            headers.append((f"mcp-param-{token}", encoded(text)))
    return headers
