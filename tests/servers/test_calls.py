"""Many calls at once keep apart; a call that is cancelled ends, and leaves nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio
import fastmcp
import httpx2
import mcp
import pytest
import uvicorn
from fastmcp import FastMCP
from fastmcp.client.transports import StreamableHttpTransport
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver import MCPServer

from mcp_envelope import Miss, Reply, warn
from mcp_envelope.outcome import current_remarks
from mcp_envelope.vault.vault import open_vault
from tests.pairwise import pairwise

from .harness import ERAS, LIBRARIES, AnyServer, Session, connected, enveloped_server, notice, run, wire


def stored(vault: str) -> int:
    opened = open_vault(vault)
    assert opened is not None
    try:
        return len(list(opened.store.entries()))
    finally:
        opened.close()


# -- many at once ---------------------------------------------------------------------------------------------


async def slow(number: int) -> dict[str, Any]:
    warn(f"first of {number}")
    await anyio.sleep(0.001 * (number % 5))
    warn(f"second of {number}")
    return {"rows": list(range(number, number + 500 * (number % 3)))}


def threaded(number: int) -> dict[str, Any] | Miss:
    warn(f"first of {number}")
    time.sleep(0.001 * (number % 5))
    warn(f"second of {number}")
    return Reply({"rows": list(range(number, number + 500 * (number % 3)))})  # type: ignore[return-value]


async def yielding(number: int):  # type: ignore[no-untyped-def]
    warn(f"first of {number}")
    for each in range(number, number + 500 * (number % 3)):
        if each % 100 == 0:
            await anyio.sleep(0)
        yield each
    warn(f"second of {number}")


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("era", ERAS)
def test_many_calls_keep_apart(library: str, era: str, vault: str) -> None:
    server = enveloped_server(library, slow, threaded, yielding, vault=vault)
    tools = ("slow", "threaded", "yielding")

    async def main() -> None:
        async with connected(server, era) as session:

            async def one(number: int) -> None:
                tool, budget = tools[number % 3], 150 + 40 * (number % 7)
                result = await session.call(tool, {"number": number, "tokenBudget": budget})
                assert not result.is_error
                assert notice(result)["warnings"] == [f"first of {number}", f"second of {number}"]
                assert len(wire(result)) < 40 * budget
                if (number % 3) and tool != "yielding":
                    wanted = list(range(number, number + 500 * (number % 3)))
                    assert await session.read_list(notice(result)["handle"], "/rows") == wanted

            async with anyio.create_task_group() as group:
                # Each of them stores something: more would wait for one another on a busy machine.
                for number in range(45):
                    group.start_soon(one, number)

    run(main)
    assert current_remarks() is None


# -- cancelled ------------------------------------------------------------------------------------------------


class Waiting:
    """Tools that wait to be cancelled, and tell that they were."""

    def __init__(self) -> None:
        self.started = anyio.Event()
        self.ended: list[str] = []
        self.over = threading.Event()

    async def waits(self) -> dict[str, int]:
        self.started.set()
        try:
            await anyio.sleep(30)
        except BaseException as error:
            self.ended.append(type(error).__name__)
            raise
        return {"a": 1}

    async def yields(self):  # type: ignore[no-untyped-def]
        try:
            for number in range(300_000):
                yield {"n": number, "text": "x" * 40}
            self.started.set()
            await anyio.sleep(30)
        except BaseException as error:
            self.ended.append(type(error).__name__)
            raise

    def blocks(self) -> dict[str, Any]:
        anyio.from_thread.run_sync(self.started.set)
        # A thread cannot be interrupted. It goes on once its call is known to be cancelled.
        try:
            while not self.over.wait(0.01):
                anyio.from_thread.check_cancelled()
        except BaseException:
            self.ended.append("returned")
        return {"rows": list(range(100_000))}


@pairwise(tool=["waits", "yields", "blocks"], library=LIBRARIES, era=ERAS)
def test_a_call_that_is_cancelled(tool: str, library: str, era: str, vault: str) -> None:
    async def main() -> None:
        waiting = Waiting()
        server = enveloped_server(library, waiting.waits, waiting.yields, waiting.blocks, vault=vault)
        async with connected(server, era) as session:
            await session.tools()
            async with anyio.create_task_group() as group:
                group.start_soon(session.call, tool)
                await waiting.started.wait()
                group.cancel_scope.cancel()
            for _ in range(2000):
                if waiting.ended:
                    break
                await anyio.sleep(0.01)
            waiting.over.set()
            assert waiting.ended in (["CancelledError"], ["GeneratorExit"], ["returned"])
            # The connection is as good as before.
            assert "envelope_read" in await session.tools()
        # The server waited for its threads, and deleted what they stored.
        assert stored(vault) == 0

    run(main)


# -- over HTTP ------------------------------------------------------------------------------------------------


@contextmanager
def over_http(server: AnyServer) -> Iterator[str]:
    """A real server on the loopback; its address."""
    if isinstance(server, FastMCP):
        app: Any = server.http_app()
    else:
        assert isinstance(server, MCPServer)
        app = server.streamable_http_app()
    running = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        while not running.started:
            time.sleep(0.01)
        port = running.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        running.should_exit = True
        thread.join()


@asynccontextmanager
async def http_client(
    library: str, address: str, era: str, token: str | None = None
) -> AsyncIterator[Session]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    if library == "fastmcp":
        transport = StreamableHttpTransport(address, headers=headers)
        async with fastmcp.Client(transport, mode=era) as client:
            yield Session(client)
        return
    async with httpx2.AsyncClient(headers=headers) as http:
        streams: Any = streamable_http_client(address, http_client=http)
        async with mcp.Client(streams, mode=era) as client:
            yield Session(client)


def rows() -> dict[str, Any]:
    return {"rows": list(range(9000))}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_handle_belongs_to_a_credential(library: str, era: str, vault: str) -> None:
    async def main(address: str) -> None:
        async with http_client(library, address, era, "one") as first:
            handle = notice(await first.call("rows"))["handle"]
            assert await first.read_list(handle, "/rows") == list(range(9000))
        for token in ("two", None):
            async with http_client(library, address, era, token) as other:
                result = await other.call("envelope_read", {"handle": handle})
                assert result.is_error
                assert "HANDLE_UNKNOWN" in wire(result)
        async with http_client(library, address, era, "one") as again:
            assert not (await again.call("envelope_read", {"handle": handle})).is_error

    with over_http(enveloped_server(library, rows, vault=vault)) as address:
        anyio.run(main, address)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_connection_that_is_gone(library: str, vault: str) -> None:
    """In the stateless era that is how a call is cancelled."""
    ended: list[str] = []
    started = threading.Event()

    async def waits():  # type: ignore[no-untyped-def]
        try:
            for number in range(100_000):
                yield {"n": number, "text": "x" * 40}
            started.set()
            await anyio.sleep(30)
        except BaseException as error:
            ended.append(type(error).__name__)
            raise

    async def main(address: str) -> None:
        async with http_client(library, address, "2026-07-28") as session:
            async with anyio.create_task_group() as group:
                group.start_soon(session.call, "waits")
                await anyio.to_thread.run_sync(started.wait, 20)
                group.cancel_scope.cancel()
            for _ in range(300):
                if ended:
                    break
                await anyio.sleep(0.02)

    with over_http(enveloped_server(library, waits, vault=vault)) as address:
        anyio.run(main, address)
    assert ended
    assert stored(vault) == 0
