"""LangChain: an interceptor for `langchain-mcp-adapters`, and `envelope_read` as a tool for the agent.

Strategy: LangChain shows its model the content of a result, and gives programs the structure, as the message's
artifact. So the content is sealed, and the structure stays whole.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Unpack

from ..clients.known import Client
from ..dialects.notice import READ_TOOL
from .adapter import Host, Options, made, missing_library

try:
    from langchain_core.tools import BaseTool
    from langchain_mcp_adapters.interceptors import MCPToolCallRequest, MCPToolCallResult
    from langchain_mcp_adapters.sessions import StdioConnection
    from langchain_mcp_adapters.tools import convert_mcp_tool_to_langchain_tool
    from mcp.types import CallToolResult, Tool
except ImportError as error:
    raise missing_library("langchain-mcp-adapters", error) from error

_CLIENT: Final = Client(name="langchain", lane="content")
# The server of the one tool that is answered here: nothing is ever connected.
_OWN: Final = "mcp-envelope"
_NOWHERE: Final[StdioConnection] = {"transport": "stdio", "command": _OWN, "args": []}


class EnvelopeInterceptor:
    """Put it into `tool_interceptors`, and its `read_tool` among the agent's tools."""

    def __init__(self, **options: Unpack[Options]) -> None:
        self._host = Host(_CLIENT, options)

    @property
    def read_tool(self) -> BaseTool:
        """`envelope_read`, which reads what was cut from any tool's result."""
        return convert_mcp_tool_to_langchain_tool(
            None,
            Tool.model_validate(self._host.read_tool),
            connection=_NOWHERE,
            tool_interceptors=[self],
            server_name=_OWN,
        )

    async def __call__(
        self,
        request: MCPToolCallRequest,
        handler: Callable[[MCPToolCallRequest], Awaitable[MCPToolCallResult]],
    ) -> MCPToolCallResult:
        if request.name == READ_TOOL:
            if request.server_name == _OWN:
                return made(CallToolResult, (await self._host.read(request.args)).to_result())
            # The server has an envelope of its own.
            return await handler(request)
        call = self._host.call(request.name, request.args)
        arguments = self._host.restored(call)
        if not isinstance(arguments, dict):
            return made(CallToolResult, arguments.to_result())
        if arguments != request.args:
            request = request.override(args=arguments)
        result = await handler(request)
        # Another interceptor may answer with a message or a command of LangChain's.
        return await self._host.finish_content(result, call) if isinstance(result, CallToolResult) else result
