"""Pydantic AI: a toolset around any other, whose tools' results are sealed, with `envelope_read` beside them.

Strategy: a toolset returns Python values, whether its tools are an MCP server's or functions. A value is sealed as
the framework shows it to its model: a string as it is, an object as the JSON that the framework writes, files as
content blocks. What fits is returned as the very object. Several texts become one, because the framework would show
a list of texts as JSON, with escapes.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Final, Unpack

import msgspec

from ..clients.known import Client
from ..dialects.notice import READ_TOOL
from ..envelope import Sealed
from ..gateway import Published
from ..jsontext.document import encode, text_block
from ..payload import Result
from .adapter import Host, Options, missing_library, text_result

try:
    from pydantic_ai import ModelRetry, RunContext, ToolDefinition
    from pydantic_ai.exceptions import ToolFailed
    from pydantic_ai.messages import (
        BinaryContent,
        ToolReturn,
        is_multi_modal_content,
        tool_return_ta,
    )
    from pydantic_ai.tools import AgentDepsT
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset
    from pydantic_core import SchemaValidator, core_schema
except ImportError as error:
    raise missing_library("pydantic-ai-slim", error) from error

_CLIENT: Final = Client(name="pydantic-ai", lane="structured")
_ANY_OBJECT: Final = SchemaValidator(
    core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema())
)


@dataclass(kw_only=True)
class SealedTool(ToolsetTool[Any]):
    """A tool as the agent sees it: its return schema, which a model may be shown, allows a notice."""

    inner: ToolsetTool[Any]
    published: Published
    # Whose envelope this is: another one may be around it.
    host: Host


@dataclass(init=False)
class EnvelopeToolset(WrapperToolset[AgentDepsT]):
    """Put it around a toolset; around several, as a `CombinedToolset`, so that there is one `envelope_read`."""

    wrapped: AbstractToolset[AgentDepsT]
    host: Host

    def __init__(
        self,
        wrapped: AbstractToolset[AgentDepsT],
        host: Host | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(wrapped)
        # The framework makes copies of a toolset for each run: they share the host.
        self.host = host or Host(_CLIENT, options)

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        tools = await super().get_tools(ctx)
        if READ_TOOL in tools:
            # An envelope is inside already.
            return tools
        entry = self.host.read_tool
        own = ToolDefinition(
            name=entry["name"],
            description=entry["description"],
            parameters_json_schema=entry["inputSchema"],
        )
        listed = {name: self._listed(tool) for name, tool in tools.items()}
        reader = ToolsetTool(
            toolset=self, tool_def=own, max_retries=ctx.max_retries, args_validator=_ANY_OBJECT
        )
        return {**listed, READ_TOOL: reader}

    def _listed(self, tool: ToolsetTool[AgentDepsT]) -> SealedTool:
        schema = tool.tool_def.return_schema
        published = self.host.gateway.publish(tool.tool_def.name, schema)
        if published.wrap or published.document is None:
            # What isn't an object is shown as text, which no schema binds.
            published = Published()
        shown = dataclasses.replace(tool.tool_def, return_schema=published.document or schema)
        return SealedTool(
            toolset=tool.toolset,
            tool_def=shown,
            max_retries=tool.max_retries,
            args_validator=tool.args_validator,
            args_validator_func=tool.args_validator_func,
            inner=tool,
            published=published,
            host=self.host,
        )

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> Any:
        if not isinstance(tool, SealedTool) or tool.host is not self.host:
            own = tool.toolset
            if not isinstance(own, EnvelopeToolset) or own.host is not self.host:
                # An envelope is inside already.
                return await super().call_tool(name, tool_args, ctx, tool)
            return _value(await self.host.read(tool_args), [])
        call = self.host.call(name, tool_args, tool.published)
        arguments = self.host.restored(call)
        if not isinstance(arguments, dict):
            return _value(arguments, [])
        try:
            value = await super().call_tool(name, arguments, ctx, tool.inner)
        except (ModelRetry, ToolFailed) as failure:
            sealed = await self.host.finish(text_result(failure.message, is_error=True), call)
            if sealed is None:
                raise
            raise type(failure)(_text(sealed)) from failure
        data = value.return_value if isinstance(value, ToolReturn) else value
        result, files = _result(data)
        sealed = await self.host.finish(result, call)
        if sealed is None:
            return value
        shown = _value(sealed, files)
        return dataclasses.replace(value, return_value=shown) if isinstance(value, ToolReturn) else shown


def _result(value: Any) -> tuple[Result, list[Any]]:
    """Return a tool's value as a result, and the files that are no images: those are left as they are."""
    if isinstance(value, str):
        return text_result(value), []
    items = value if isinstance(value, list) else [value]
    if not any(map(is_multi_modal_content, items)):
        written = tool_return_ta.dump_json(value, by_alias=True)
        if written.startswith(b"{"):
            return Result([], written), []
        return text_result(json.loads(written) if written.startswith(b'"') else written.decode()), []
    blocks, files = [], []
    for item in items:
        if isinstance(item, BinaryContent) and item.is_image:
            data = base64.b64encode(item.data).decode()
            blocks.append(encode({"type": "image", "data": data, "mimeType": item.media_type}))
        elif is_multi_modal_content(item):
            files.append(item)
        else:
            text = item if isinstance(item, str) else tool_return_ta.dump_json(item, by_alias=True).decode()
            blocks.append(text_block(text))
    return Result(blocks), files


def _value(sealed: Sealed, files: list[Any]) -> Any:
    """Return what the framework shows its model as it was measured."""
    if sealed.is_error:
        raise ToolFailed(_text(sealed))
    if sealed.structured is not None:
        return msgspec.json.decode(sealed.structured)
    images = [
        BinaryContent(data=base64.b64decode(block["data"]), media_type=block["mimeType"])
        for block in msgspec.json.decode(sealed.content)
        if block["type"] == "image"
    ]
    text = _text(sealed)
    return [*([text] if text else []), *images, *files] if images or files else text


def _text(sealed: Sealed) -> str:
    blocks = msgspec.json.decode(sealed.content)
    shown = [block for block in blocks if block["type"] != "image"]
    return "\n\n".join([block["text"] if block["type"] == "text" else json.dumps(block) for block in shown])
