"""Claude Code: the answer to its `PostToolUse` hook, for tools of MCP servers and for two of its own.

Strategy: the hook is told a result in the form that Claude Code shows its model, and may replace it in the same
form: a string for a structure, blocks for content, an object of the tool's own for `Bash` and `Grep`. A result past
its limits Claude Code has put into a file of the session by then, and it is read from there, so that it is whole.
Nothing is answered where a result stays as it is. `Read` is never cut: edits go by its lines.
"""

from __future__ import annotations

import os
import re
from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from ..clients.known import client
from ..dialects.notice import READ_TOOL
from ..envelope import Sealed
from ..gateway import Call, Gateway
from ..jsontext.document import encode, text_block
from ..payload import Result
from .result_files import saved_text

NAME: Final = "claude-code"
_MCP: Final = "mcp__"
# Of the tools of Claude Code's own: which member of the answer is the text, and the most characters of it that
# Claude Code shows (2.1.327: 30,000 and 20,000, some of them for words of its own).
_TEXTS: Final = {"Bash": ("stdout", 29_500), "Grep": ("content", 19_500)}
# What Claude Code says in place of a result of more than 25,000 tokens.
_SAVED: Final = re.compile(
    r"Error: result \([^)]*\) exceeds maximum allowed tokens\. Output has been saved to (.+)"
)
_FOLDER: Final = "tool-results"


class HookEvent(msgspec.Struct):
    """What Claude Code tells the hook."""

    tool_name: str
    tool_response: Any = None
    tool_input: Any = None
    hook_event_name: str = ""
    transcript_path: str = ""


def answer(data: bytes, gateway: Gateway) -> bytes | None:
    """Return what the hook prints; None if the result stays as it is."""
    event = msgspec.json.decode(data, type=HookEvent)
    if event.hook_event_name != "PostToolUse" or event.tool_name.endswith(f"__{READ_TOOL}"):
        return None
    updated = _mcp(event, gateway) if event.tool_name.startswith(_MCP) else _own(event, gateway)
    if updated is None:
        return None
    return encode({"hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": updated}})


def _call(event: HookEvent, gateway: Gateway, tool: str, characters: int | None = None) -> Call:
    known = client(NAME)
    if characters is not None:
        known = replace(known, characters=characters)
    arguments = event.tool_input if isinstance(event.tool_input, dict) else None
    return Call(tool=tool, policy=gateway.policy(tool, None, known), client=known, arguments=arguments)


# -- tools of MCP servers ---------------------------------------------------------------------------------------


def _mcp(event: HookEvent, gateway: Gateway) -> Any:
    response = event.tool_response
    if isinstance(response, str) and (saved := _SAVED.match(response)):
        whole = _saved(saved[1].rstrip("."), event)
        response = response if whole is None else _blocks(whole)
    tool = event.tool_name.rpartition("__")[2]
    if isinstance(response, str):
        is_object = response.startswith("{") and _is_json(response)
        result = Result([], response.encode()) if is_object else Result([text_block(response)])
    elif isinstance(response, list):
        result = Result([encode(_from_api(block)) for block in response])
    else:
        return None
    sealed = gateway.finish(result, _call(event, gateway, tool))
    if sealed is None:
        # It may have been saved for its size alone, where the settings allow more.
        return response if response is not event.tool_response else None
    if sealed.structured is not None:
        return sealed.structured.decode()
    return [_to_api(block) for block in msgspec.json.decode(sealed.content)]


def _blocks(whole: str) -> Any:
    """Return what Claude Code saved: content blocks, or a text."""
    try:
        found = msgspec.json.decode(whole)
    except msgspec.MsgspecError:
        return whole
    is_content = isinstance(found, list) and all(
        isinstance(block, dict) and isinstance(block.get("type"), str) for block in found
    )
    return found if is_content and found else whole


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=Raw)
    except msgspec.MsgspecError:
        return False
    return True


def _from_api(block: Any) -> Any:
    """Return a block of the Messages API as one of MCP."""
    source = block.get("source") if isinstance(block, dict) else None
    if isinstance(source, dict) and block.get("type") == "image" and source.get("type") == "base64":
        return {"type": "image", "data": source["data"], "mimeType": source["media_type"]}
    return block


def _to_api(block: Any) -> Any:
    if block["type"] == "image" and "data" in block:
        source = {"type": "base64", "media_type": block["mimeType"], "data": block["data"]}
        return {"type": "image", "source": source}
    if block["type"] in ("text", "image"):
        return {name: value for name, value in block.items() if name in ("type", "text", "source")}
    return {"type": "text", "text": encode(block).decode()}


# -- tools of Claude Code's own -----------------------------------------------------------------------------------


def _own(event: HookEvent, gateway: Gateway) -> Any:
    name, characters = _TEXTS.get(event.tool_name, ("", 0))
    response = event.tool_response
    if not isinstance(response, dict) or not isinstance(response.get(name), str):
        return None
    text, path = response[name], response.get("persistedOutputPath")
    if isinstance(path, str):
        text = _saved(path, event) or text
    call = _call(event, gateway, event.tool_name, characters)
    sealed = gateway.finish(Result([text_block(text)]), call)
    if sealed is None:
        return None
    others = {key: value for key, value in response.items() if not key.startswith("persistedOutput")}
    return {**others, name: _text(sealed)}


def _text(sealed: Sealed) -> str:
    return "\n\n".join(block["text"] for block in msgspec.json.decode(sealed.content))


def _saved(path: str, event: HookEvent) -> str | None:
    """Return a result that was put into a file of this session."""
    if not event.transcript_path:
        return None
    return saved_text(path, os.path.join(event.transcript_path.removesuffix(".jsonl"), _FOLDER))
