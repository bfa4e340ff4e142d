"""Real clients, each behind the same two questions: which tools are there, and what does this call give?

Strategy: a client is connected to a server that runs as a process of its own, and what it hands to its user is told
as plain JSON. So one conversation can be held through all of them. A client that refuses a result raises.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import fastmcp
import mcp
from fastmcp.client.transports import StdioTransport
from mcp.client.stdio import StdioServerParameters
from pydantic import BaseModel

from .node.install import NODE, ready


@dataclass(frozen=True)
class Place:
    """Where a server is: a command that is started, or an address."""

    command: tuple[str, ...] = ()
    env: dict[str, str] | None = None
    cwd: str | None = None
    url: str = ""


class Talker(Protocol):
    async def tools(self) -> list[dict[str, Any]]: ...

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]: ...


Connect = Callable[[Place], AbstractAsyncContextManager[Talker]]


class Refused(Exception):
    """The client did not take what the server sent."""


# -- Python -------------------------------------------------------------------------------------------------


class _FastMCP:
    def __init__(self, client: fastmcp.Client[Any]) -> None:
        self._client = client

    async def tools(self) -> list[dict[str, Any]]:
        return [_json(tool) for tool in await self._client.list_tools()]

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        result = await self._client.call_tool(tool, arguments, raise_on_error=False)
        told: dict[str, Any] = {"content": [_json(block) for block in result.content]}
        if result.structured_content is not None:
            told["structuredContent"] = result.structured_content
        return {**told, "isError": result.is_error, "_meta": result.meta or {}}


@asynccontextmanager
async def _fastmcp(place: Place) -> AsyncIterator[Talker]:
    transport: Any = place.url
    if place.command:
        command, *arguments = place.command
        transport = StdioTransport(command, arguments, place.env, place.cwd, keep_alive=False)
    async with fastmcp.Client(transport) as client:
        yield _FastMCP(client)


class _Official:
    def __init__(self, client: mcp.Client) -> None:
        self._client = client

    async def tools(self) -> list[dict[str, Any]]:
        return [_json(tool) for tool in (await self._client.list_tools()).tools]

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return _json(await self._client.call_tool(tool, arguments))


def _official(mode: Any) -> Connect:
    @asynccontextmanager
    async def connect(place: Place) -> AsyncIterator[Talker]:
        server: Any = place.url
        if place.command:
            command, *arguments = place.command
            server = StdioServerParameters(command=command, args=arguments, env=place.env, cwd=place.cwd)
        async with mcp.Client(server, mode=mode) as client:
            yield _Official(client)

    return connect


def _json(model: BaseModel) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


# -- TypeScript ---------------------------------------------------------------------------------------------


class _TypeScript:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def tools(self) -> list[dict[str, Any]]:
        tools: list[dict[str, Any]] = (await self._ask({"list": True}))["tools"]
        return tools

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = await self._ask({"call": tool, "arguments": arguments})
        return result

    async def _ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        return await self.answer()

    async def answer(self) -> Any:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise Refused("Node ended without an answer")
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]


def _typescript(sdk: int, version: str = "") -> Connect:
    @asynccontextmanager
    async def connect(place: Place) -> AsyncIterator[Talker]:
        settings: dict[str, Any] = {"sdk": sdk, "version": version, "url": place.url}
        if place.command:
            command, *arguments = place.command
            settings |= {"command": command, "args": arguments, "env": place.env, "cwd": place.cwd}
        process = await asyncio.create_subprocess_exec(
            NODE,
            ready(),
            json.dumps(settings),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 26,
        )
        try:
            talker = _TypeScript(process)
            await talker.answer()
            yield talker
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                await asyncio.wait_for(process.wait(), 10)
            except TimeoutError:
                process.kill()
                await process.wait()

    return connect


CLIENTS: dict[str, Connect] = {
    "fastmcp": _fastmcp,
    "mcp-legacy": _official("legacy"),
    "mcp-2026-07-28": _official("2026-07-28"),
    "typescript-1": _typescript(1),
    "typescript-2-2026-07-28": _typescript(2, "2026-07-28"),
}
