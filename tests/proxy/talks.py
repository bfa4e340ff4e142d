"""Conversations of the official SDK's client with the server in `sdk`, whatever stands in between.

Each takes a `target` and a `mode` as `mcp.Client` does: "legacy" is the era of sessions, "auto" the stateless one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp import Client

Target = Any
Talk = Callable[[Target, str], Awaitable[None]]
_TIMEOUT = 30.0


def hold(talk: Talk, target: Target, mode: str) -> None:
    asyncio.run(asyncio.wait_for(talk(target, mode), 60))


def said(result: types.CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


def page_of(result: types.CallToolResult) -> str:
    """The last block; a note comes before it."""
    block = result.content[-1]
    assert isinstance(block, types.TextContent)
    return block.text


async def large_results(target: Target, mode: str) -> None:
    """They are cut, they are valid (the client checks that), and they can be read on."""
    async with Client(target, mode=mode, read_timeout_seconds=_TIMEOUT) as client:
        small = await client.call_tool("rows", {"count": 3})
        assert small.structured_content == {"rows": [{"id": n, "name": f"row {n}"} for n in range(3)]}
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools][-1] == "envelope_read"
        large = await client.call_tool("rows", {"count": 30_000})
        notice = large.structured_content["_envelope"]
        assert notice["dropped"] == [
            {"path": "/rows", "kept": len(large.structured_content["rows"]), "total": 30_000}
        ]
        page = await client.call_tool(
            "envelope_read", {"handle": notice["handle"], "path": "/rows", "offset": 29_999}
        )
        assert json.loads(page_of(page)) == [{"id": 29_999, "name": "row 29999"}]
        least = await client.call_tool("rows", {"count": 2000, "tokenBudget": 200})
        assert len(json.dumps(least.structured_content)) < 2000
        text = await client.call_tool("text", {"lines": 50_000})
        assert len(said(text)) < 50_000
        assert "envelope_read" in said(text)
        failed = await client.call_tool("fail", {"size": 20_000})
        assert failed.is_error
        assert len(said(failed)) < 50_000


async def a_budget_before_any_list(target: Target, mode: str) -> None:
    """Whether the argument is the tool's, only a list tells; the proxy asks for it itself."""
    async with Client(target, mode=mode, read_timeout_seconds=_TIMEOUT) as client:
        least = await client.call_tool("text", {"lines": 2000, "tokenBudget": 200})
        assert not least.is_error
        assert len(said(least)) < 2000
        assert "envelope_read" in said(least)


async def progress(target: Target, mode: str) -> None:
    async with Client(target, mode=mode, read_timeout_seconds=_TIMEOUT) as client:
        told: list[float] = []

        async def note(progress: float, total: float | None, message: str | None) -> None:
            told.append(progress)

        result = await client.call_tool("wait", {"name": "a", "seconds": 0.5}, progress_callback=note)
        assert said(result) == "a is done"
        assert told == [float(step) for step in range(1, 11)]


async def cancellation(target: Target, mode: str) -> None:
    """The tool learns that nobody waits for it, and the connection goes on."""
    async with Client(target, mode=mode, read_timeout_seconds=_TIMEOUT) as client:
        waiting = asyncio.create_task(client.call_tool("wait", {"name": "b", "seconds": 30}))
        await until(client, "b began")
        waiting.cancel()
        await until(client, "b was cancelled")
        assert said(await client.call_tool("wait", {"name": "c", "seconds": 0.1})) == "c is done"


async def questions(target: Target, mode: str) -> None:
    """The server asks the client's user and its model within a call."""

    async def elicited(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"colour": "blue"})

    async def sampled(context: Any, params: Any) -> types.CreateMessageResult:
        content = types.TextContent(type="text", text="4")
        return types.CreateMessageResult(role="assistant", content=content, model="m")

    async with Client(
        target,
        mode=mode,
        read_timeout_seconds=_TIMEOUT,
        elicitation_callback=elicited,
        sampling_callback=sampled,
    ) as client:
        assert "blue" in said(await client.call_tool("ask"))
        assert "'4'" in said(await client.call_tool("sample"))


async def notifications(target: Target, mode: str) -> None:
    """What belongs to no request comes on the stream that listens, in its order."""
    heard: list[str] = []

    async def note(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            heard.append(str(message.params.uri))

    async with Client(target, mode=mode, read_timeout_seconds=_TIMEOUT, message_handler=note) as client:
        # The stream is opened beside the first requests.
        for _ in range(100):
            await client.call_tool("tell", {"count": 1})
            if heard:
                break
            await asyncio.sleep(0.05)
        heard.clear()
        await client.call_tool("tell", {"count": 20})
        for _ in range(200):
            if len(heard) >= 20:
                break
            await asyncio.sleep(0.02)
        assert heard[-20:] == [f"test://{number}" for number in range(20)]


async def resumption(target: Target, mode: str) -> None:
    """The server ends the stream before the answer; the answer comes on the one that takes it up."""
    async with Client(target, mode=mode, read_timeout_seconds=_TIMEOUT) as client:
        told: list[float] = []

        async def note(progress: float, total: float | None, message: str | None) -> None:
            told.append(progress)

        result = await client.call_tool("part", {"name": "d"}, progress_callback=note)
        assert page_of(result).startswith("d after all xxx")
        assert len(said(result)) < 45_000
        assert "envelope_read" in said(result)
        assert told == [1.0, 2.0]


async def until(client: Client, event: str) -> None:
    """The events are asked for again and again, on the same connection."""
    for _ in range(400):
        if event in said(await client.call_tool("events")).splitlines():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"it never came about: {event}")
