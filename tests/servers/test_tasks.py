"""Tools that FastMCP's workers run in the background: what they left is sealed when the client asks for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastmcp import FastMCP
from fastmcp_tasks import TasksExtension
from fastmcp_tasks.client import call_tool_task

from mcp_envelope import Miss, Reply
from mcp_envelope.dialects.notice import META_KEY
from mcp_envelope.vault.vault import open_vault

from .harness import Session, connected, enveloped_server, notice, put, run


async def rows(count: int) -> dict[str, Any]:
    return {"rows": [{"id": number, "name": "a row of some length"} for number in range(count)]}


async def reply(count: int) -> Reply:
    return Reply(await rows(count))


async def miss() -> Reply | Miss:
    return Miss(hint="Look elsewhere.")


def server_of(**options: Any) -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("test")
    server.add_extension(TasksExtension(url="memory://"))
    for function in (rows, reply, miss):
        server.tool(function, task=True)
    put(server, **options)
    return server


@asynccontextmanager
async def tasking(**options: Any) -> AsyncIterator[Session]:
    async with connected(server_of(**options)) as session:
        yield session


def test_a_large_result_is_fitted_and_kept(vault: str) -> None:
    async def main() -> None:
        async with tasking(vault=vault) as session:
            for tool in ("rows", "reply"):
                result = await session.client.call_tool(tool, {"count": 3000, "tokenBudget": 700})
                assert len(result.structured_content["rows"]) < 100
                told = result.meta[META_KEY]
                # As many as the budget has room for, and not as many as the default would have.
                assert len(result.content[0].text) < 4 * 700
                whole = await session.read_list(told["handle"], "/rows")
                assert whole == (await rows(3000))["rows"]

    run(main)


def test_a_small_one_is_as_it_was() -> None:
    async def main() -> None:
        async with connected(enveloped_server("fastmcp", rows)) as plain, tasking() as session:
            direct = await plain.client.call_tool("rows", {"count": 3})
            tasked = await session.client.call_tool("rows", {"count": 3})
            assert tasked.content == direct.content
            assert tasked.structured_content == direct.structured_content
            assert META_KEY not in (tasked.meta or {})

    run(main)


def test_an_outcome_is_told_in_the_dialect() -> None:
    async def main() -> None:
        for dialect in ("native", "gel"):
            async with (
                tasking(dialect=dialect) as session,
                connected(enveloped_server("fastmcp", miss, dialect=dialect)) as plain,
            ):
                direct = await plain.client.call_tool("miss", {})
                tasked = await session.client.call_tool("miss", {})
                assert tasked.content == direct.content
                assert tasked.structured_content == direct.structured_content

    run(main)


def test_asking_twice_stores_nothing_twice(vault: str) -> None:
    async def main() -> None:
        async with tasking(vault=vault) as session:
            for tool in ("rows", "reply"):
                task = await call_tool_task(session.client, tool, {"count": 3000})
                await task.wait()
                first, second = await task.status(), await task.status()
                assert first.result == second.result
                assert first.result is not None
                assert notice(_Meta(first.result))["handle"]

    run(main)
    opened = open_vault(vault)
    assert opened is not None
    assert len(list(opened.store.entries())) == 2
    opened.close()


class _Meta:
    def __init__(self, result: dict[str, Any]) -> None:
        self.meta = result["_meta"]
