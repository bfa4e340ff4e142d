"""The OpenAI Agents SDK: results of its MCP servers, and `envelope_read` as a tool for the agent.

Strategy: the SDK calls a server's `call_tool`, and shows its model the content of what comes back, or, where the
server was made so, the structure. That one method is replaced; approvals, filters, caches and resources stay the
server's own. The SDK writes a structure with spaces and escapes, so it goes into the content here, where it is
shown as it was measured.
"""

from __future__ import annotations

import json
from typing import Any, Final, TypeVar, Unpack

from ..clients.known import Client
from ..dialects.notice import READ_TOOL
from .adapter import Host, Options, made, missing_library, structure_as_text

try:
    from agents import FunctionTool, ToolOutputImage, ToolOutputText
    from agents.mcp import MCPServer
    from agents.tool_context import ToolContext
    from mcp.types import CallToolResult, ImageContent, TextContent
except ImportError as error:
    raise missing_library("openai-agents", error) from error

_Server = TypeVar("_Server", bound=MCPServer)
_CLIENT: Final = Client(name="openai-agents", lane="content")


class ServerEnvelope:
    """Call it with each server, and put its `read_tool` among the agent's tools."""

    def __init__(self, **options: Unpack[Options]) -> None:
        self._host = Host(_CLIENT, options)

    def __call__(self, server: _Server) -> _Server:
        """Return the server, whose results are sealed from now on."""
        call_tool = server.call_tool

        async def sealed(tool_name: str, arguments: dict[str, Any] | None, *more: Any, **meta: Any) -> Any:
            if tool_name == READ_TOOL:
                # The server has an envelope of its own.
                return await call_tool(tool_name, arguments, *more, **meta)
            call = self._host.call(tool_name, arguments)
            restored = self._host.restored(call)
            if not isinstance(restored, dict):
                return made(CallToolResult, restored.to_result())
            given = None if arguments is None else restored
            result = await call_tool(tool_name, given, *more, **meta)
            if server.use_structured_content:
                result = structure_as_text(result)
            shown = result.model_copy(update={"content": list(map(_as_shown, result.content))})
            finished = await self._host.finish_content(shown, call)
            return result if finished is shown and not _has_hidden_image(result) else finished

        server.call_tool = sealed
        return server

    @property
    def read_tool(self) -> FunctionTool:
        """`envelope_read`, which reads what was cut from any server's result."""
        entry = self._host.read_tool

        async def read(context: ToolContext[Any], arguments: str) -> Any:
            result = (await self._host.read(json.loads(arguments or "{}"))).to_result()
            return [_output(block) for block in result["content"]]

        return FunctionTool(
            entry["name"], entry["description"], entry["inputSchema"], read, strict_json_schema=False
        )


def _as_shown(block: Any) -> Any:
    """Return a block as the SDK shows it: links and texts in resources as JSON, with their empty fields.

    It would do the same with an embedded image, as base64, of which a model makes nothing: that becomes an image.
    """
    if _is_hidden_image(block):
        kind = block.resource.model_dump(by_alias=True)["mimeType"]
        return ImageContent.model_validate({"type": "image", "data": block.resource.blob, "mimeType": kind})
    if block.type == "resource_link" or (block.type == "resource" and hasattr(block.resource, "text")):
        return TextContent(type="text", text=block.model_dump_json())
    return block


def _is_hidden_image(block: Any) -> bool:
    if block.type != "resource" or not hasattr(block.resource, "blob"):
        return False
    return str(block.resource.model_dump(by_alias=True).get("mimeType")).startswith("image/")


def _has_hidden_image(result: CallToolResult) -> bool:
    return any(map(_is_hidden_image, result.content))


def _output(block: dict[str, Any]) -> ToolOutputText | ToolOutputImage:
    """Return a block as the SDK itself would show it."""
    if block["type"] == "text":
        return ToolOutputText(text=block["text"])
    if block["type"] == "image":
        return ToolOutputImage(image_url=f"data:{block['mimeType']};base64,{block['data']}")
    return ToolOutputText(text=json.dumps(block))
