"""opencode: the answer to its plugin, which hands over each result and puts back what it gets.

Strategy: the plugin has the whole result of an MCP server's tool before opencode looks at its size, and the text of
a tool of opencode's own. opencode shows its model the content, so that is sealed. `read` is never cut: edits go by
its lines.
"""

from __future__ import annotations

import os
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ..clients.known import client
from ..dialects.notice import READ_TOOL
from ..gateway import Call, Gateway
from ..jsontext.document import encode, text_block
from ..payload import Result
from .result_files import saved_text

NAME: Final = "opencode"
# Tools of opencode's own whose texts are sealed.
_OWN: Final = frozenset({"bash", "grep", "webfetch"})
# Where it keeps what it has cut.
_FOLDER: Final = "tool-output"


class _Metadata(msgspec.Struct, rename="camel"):
    output_path: str = ""


class _EventOutput(msgspec.Struct, rename="camel"):
    content: list[Raw] | UnsetType = UNSET
    output: str | UnsetType = UNSET
    is_error: bool | None = False
    metadata: _Metadata | None = None


class _Event(msgspec.Struct):
    tool: str
    output: _EventOutput
    args: Any = None


def answer(data: bytes, gateway: Gateway) -> bytes | None:
    """Return the members that the plugin puts into the result; None if the result stays as it is."""
    event = msgspec.json.decode(data, type=_Event)
    content, text = event.output.content, event.output.output
    if event.tool.endswith(READ_TOOL):
        return None
    if not isinstance(content, UnsetType):
        result = Result([bytes(block) for block in content], is_error=bool(event.output.is_error))
    elif not isinstance(text, UnsetType) and event.tool in _OWN:
        saved = event.output.metadata.output_path if event.output.metadata else ""
        folder, name = os.path.split(saved)
        whole = saved_text(saved, folder) if name and os.path.basename(folder) == _FOLDER else None
        result = Result([text_block(whole or text)])
    else:
        return None
    known = client(NAME)
    arguments = event.args if isinstance(event.args, dict) else None
    policy = gateway.policy(event.tool, None, known)
    sealed = gateway.finish(result, Call(tool=event.tool, policy=policy, client=known, arguments=arguments))
    if sealed is None:
        return None
    if isinstance(content, UnsetType):
        blocks = msgspec.json.decode(sealed.content)
        return encode({"output": "\n\n".join(block["text"] for block in blocks)})
    return b'{"content":%b,"isError":%b}' % (sealed.content, b"true" if sealed.is_error else b"false")
