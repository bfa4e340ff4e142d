"""Servers of each library in front of real clients of each era, with the same words for all of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
import fastmcp
import mcp
import mcp_types
from fastmcp import FastMCP
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer

from mcp_envelope.dialects.notice import META_KEY
from mcp_envelope.servers.fastmcp import EnvelopeMiddleware
from mcp_envelope.servers.sdk import envelope

LIBRARIES = ("fastmcp", "mcpserver")
ERAS = ("legacy", "2026-07-28")
DIALECTS = ("native", "ctxo", "transcend", "gel", "scalpel")

T = TypeVar("T")
AnyServer = FastMCP[Any] | MCPServer[Any] | Server[Any]


def run(main: Callable[[], Awaitable[T]]) -> T:
    return anyio.run(main)


def bare(library: str, *functions: Any) -> AnyServer:
    """A server without an envelope."""
    server: FastMCP[Any] | MCPServer[Any] = FastMCP("test") if library == "fastmcp" else MCPServer("test")
    for function in functions:
        if isinstance(server, FastMCP):
            server.tool(function)
        else:
            server.add_tool(function)
    return server


def enveloped_server(library: str, *functions: Any, **options: Any) -> AnyServer:
    """The same with the one line."""
    server = bare(library, *functions)
    put(server, **options)
    return server


def put(server: AnyServer, **options: Any) -> None:
    options = {"ledger": False, "vault": "none", **options}
    if isinstance(server, FastMCP):
        server.add_middleware(EnvelopeMiddleware(**options))
    else:
        envelope(server, **options)


class Session:
    """A client that is connected. Results that break the schema listed for them raise."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def call(self, tool: str, arguments: dict[str, Any] | None = None, **more: Any) -> Any:
        if isinstance(self.client, fastmcp.Client):
            return await self.client.call_tool_mcp(tool, arguments or {}, **more)
        return await self.client.call_tool(tool, arguments or {}, **more)

    async def tools(self) -> dict[str, mcp_types.Tool]:
        listed = await self.client.list_tools()
        tools = listed if isinstance(listed, list) else listed.tools
        return {tool.name: tool for tool in tools}

    async def read_list(self, handle: str, path: str = "") -> list[Any]:
        """All items of a stored list of small items, page by page."""
        items: list[Any] = []
        while True:
            page = await self.call("envelope_read", {"handle": handle, "path": path, "offset": len(items)})
            assert not page.is_error, page
            found = (
                page.structured_content["data"]
                if page.structured_content
                else json.loads(page.content[-1].text)
            )
            items += found
            said = json.dumps(page.model_dump(mode="json", by_alias=True)).replace("\\", "")
            if "Read on: envelope_read(" not in said:
                return items
            assert found
            assert f"offset={len(items)})" in said


@asynccontextmanager
async def connected(
    server: AnyServer, era: str = "2026-07-28", name: str = "tester"
) -> AsyncIterator[Session]:
    info = mcp_types.Implementation(name=name, version="1.0")
    client: Any
    if isinstance(server, FastMCP):
        client = fastmcp.Client(server, mode=era, client_info=info)
    else:
        client = mcp.Client(server, mode=era, client_info=info)
    async with client:
        yield Session(client)


def ask(
    server: AnyServer, tool: str, arguments: dict[str, Any] | None = None, era: str = "2026-07-28"
) -> Any:
    """One call by a client of its own."""

    async def main() -> Any:
        async with connected(server, era) as session:
            return await session.call(tool, arguments)

    return run(main)


def budgeted(dialect: str, tokens: int | None) -> dict[str, Any]:
    """The argument that asks for a budget, as the dialect spells it."""
    name = "token_budget" if dialect == "scalpel" else "tokenBudget"
    return {} if tokens is None else {name: tokens}


def listed(server: AnyServer, era: str = "2026-07-28") -> dict[str, mcp_types.Tool]:
    async def main() -> dict[str, mcp_types.Tool]:
        async with connected(server, era) as session:
            return await session.tools()

    return run(main)


def notice(result: Any) -> dict[str, Any]:
    found: dict[str, Any] = (result.meta or {}).get(META_KEY, {})
    return found


def wire(result: Any) -> str:
    """A result as it went over the wire, but for what differs from connection to connection."""
    dumped: str = result.model_dump_json(by_alias=True, exclude_none=True)
    return dumped
