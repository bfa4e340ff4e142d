"""The proxy over HTTP: what a call costs through it, alone and a thousand at a time, against one without it.

Strategy: the server, the proxy and FastMCP's proxy are programs on loopback. The same requests go to each of them
in turns, as bytes over plain connections, so that a client's own work weighs on nobody; only the last rows use the
SDK's client, because there its own work is the point. The time is the wall's, since there are several processes,
and so only the ratios of rows that were run side by side mean anything.

    python benchmarks/over_http.py serve PORT        # the server alone
"""

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
import mcp_types as types
import msgspec
from mcp import Client
from mcp.server.lowlevel import Server

# The server runs as a file; its neighbours are imported as the package that they are.
sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.report import Table, progress

_ROW = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}, "done": {"type": "boolean"}},
    "required": ["id", "name", "done"],
}
# The same result under a schema that says what a row is, and under one that says no more than that there are some.
_ITEMS = {"rows": _ROW, "anything": {}}
_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
_HEADERS = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
    "mcp-name": "rows",
}
_AT_ONCE = 1000
_RIVAL = "FastMCP's proxy"


def http(quick: bool) -> list[Table]:
    rounds = 40 if quick else 200
    # It would log a line per request.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    with TemporaryDirectory() as folder, _sites(Path(folder)) as urls:
        return [_alone(urls, rounds), _crowd(urls, 1 if quick else 3), _client(urls, 8 if quick else 30)]


def _alone(urls: dict[str, str], rounds: int) -> Table:
    progress(f"HTTP, one call at a time, {rounds} rounds")
    table = Table(
        name="http",
        title="HTTP, one call at a time",
        columns={"p50 ms": "{:.2f}", "p95 ms": "{:.2f}", "× direct": "{:.2f}", "ms above": "{:.2f}"},
        note=f"{rounds} rounds in which each has its turn. 1,000 rows are over the budget: cut, and stored.",
    )
    for name, count in (("2 rows", 2), ("1,000 rows", 1000)):
        taken = asyncio.run(_turns({way: _one(url, count) for way, url in urls.items()}, rounds))
        for way, times in taken.items():
            p50, direct = median(times), median(taken["direct"])
            p95 = quantiles(times, n=20)[-1]
            table.add(f"{name}, {way}", 1e3 * p50, 1e3 * p95, p50 / direct, 1e3 * (p50 - direct))
            if way == "mcp-envelope" and count == 2:
                table.check(
                    "a small call through the proxy", 1e3 * (p50 - direct), "≤", 0.5, "ms above direct"
                )
    return table


def _crowd(urls: dict[str, str], rounds: int) -> Table:
    progress(f"HTTP, {_AT_ONCE} calls at a time, {rounds} rounds")
    table = Table(
        name="http-crowd",
        title=f"HTTP, {_AT_ONCE} calls at a time",
        columns={
            "calls/s": "{:.0f}",
            "× direct": "{:.2f}",
            "p50 ms": "{:.0f}",
            "p95 ms": "{:.0f}",
            "errors": "{:.0f}",
        },
        note="Nine calls of two rows to one of 1,000. All begin at once; the time of a call is until its answer.\n"
        "The server and whoever stands before it share the cores with the clients. FastMCP's proxy gets 100 calls.",
    )
    taken: dict[str, list[tuple[float, list[float], int]]] = {way: [] for way in urls}
    for _ in range(rounds):
        for way, url in urls.items():
            taken[way].append(asyncio.run(_rush(url, 100 if way == _RIVAL else _AT_ONCE)))
    speed = {way: max(len(moments) / whole for whole, moments, _ in each) for way, each in taken.items()}
    for way, each in taken.items():
        times = sorted(moment for _, moments, _ in each for moment in moments)
        errors = sum(count for _, _, count in each)
        table.add(
            way,
            speed[way],
            speed[way] / speed["direct"],
            1e3 * median(times),
            1e3 * quantiles(times, n=20)[-1],
            errors,
        )
    table.check(
        "errors of 1,000 calls at a time", sum(each[2] for each in taken["mcp-envelope"]), "≤", 0, "errors"
    )
    return table


def _client(urls: dict[str, str], rounds: int) -> Table:
    progress(f"HTTP with the SDK's client, {rounds} rounds")
    table = Table(
        name="http-client",
        title="HTTP, 1,000 typed rows with the SDK's own client",
        columns={"p50 ms": "{:.2f}", "p95 ms": "{:.2f}", "× direct": "{:.2f}"},
        note="Parsing and validation by the client included: a result that was cut is less work for it.\n"
        "Loose: the schema says nothing of a row, so that there is hardly anything to validate.",
    )

    async def run(tool: str) -> dict[str, list[float]]:
        async with contextlib.AsyncExitStack() as stack:
            calls: dict[str, Callable[[], Awaitable[object]]] = {}
            for way, url in urls.items():
                client = await stack.enter_async_context(Client(url))
                await client.list_tools()
                calls[way] = lambda client=client: client.call_tool(tool, {"count": 1000})  # type: ignore[misc]
            return await _turns(calls, rounds)

    for tool in _ITEMS:
        taken = asyncio.run(run(tool))
        for way, times in taken.items():
            p50, named = median(times), way if tool == "rows" else f"loose, {way}"
            table.add(named, 1e3 * p50, 1e3 * quantiles(times, n=20)[-1], p50 / median(taken["direct"]))
        if tool == "rows":
            ratio = median(taken["mcp-envelope"]) / median(taken["direct"])
            table.check("1,000 typed rows through the proxy", ratio, "≤", 1.0, "× direct")
    return table


# -- turns ------------------------------------------------------------------------------------------------------


async def _turns(calls: dict[str, Callable[[], Awaitable[object]]], rounds: int) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {way: [] for way in calls}
    for number in range(rounds + 3):
        for way, call in calls.items():
            start = time.perf_counter()
            await call()
            if number >= 3:  # the first ones load things, connect, and ask for lists
                taken[way].append(time.perf_counter() - start)
    return taken


def _one(url: str, count: int) -> Callable[[], Awaitable[object]]:
    client: list[httpx2.AsyncClient] = []

    async def call() -> None:
        if not client:
            client.append(httpx2.AsyncClient(trust_env=False, timeout=60))
        response = await client[0].post(url, content=_body(count), headers=_HEADERS)
        assert response.status_code == 200, response.text

    return call


async def _rush(url: str, calls: int) -> tuple[float, list[float], int]:
    """The time for all, for each, and how many went wrong."""
    wrong = 0

    async def call(client: httpx2.AsyncClient, number: int) -> float:
        nonlocal wrong
        try:
            response = await client.post(
                url, content=_body(1000 if number % 10 == 0 else 2), headers=_HEADERS
            )
            wrong += response.status_code != 200 or b'"row 0"' not in response.content.replace(b"\\", b"")
        except httpx2.HTTPError:
            wrong += 1
        return time.perf_counter() - start

    async with contextlib.AsyncExitStack() as stack:
        # The library looks through all connections of a client for each request, so there are many clients.
        made = [httpx2.AsyncClient(trust_env=False, timeout=120) for _ in range(_AT_ONCE // 25)]
        clients = [await stack.enter_async_context(client) for client in made]
        await clients[0].post(url, content=_body(2), headers=_HEADERS)
        start = time.perf_counter()
        times = await asyncio.gather(
            *[call(clients[number % len(clients)], number) for number in range(calls)]
        )
        return time.perf_counter() - start, times, wrong


def _body(count: int) -> bytes:
    params = {"name": "rows", "arguments": {"count": count}, "_meta": _META}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})


# -- sites ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _sites(folder: Path) -> Iterator[dict[str, str]]:
    """The server, and each proxy in front of it: programs that end with the block."""
    ports = [_free() for _ in range(3)]
    server, ours, rival = (f"http://127.0.0.1:{port}/mcp" for port in ports)
    python = [sys.executable]
    options = f"host='127.0.0.1', port={ports[2]}, show_banner=False, log_level='ERROR'"
    proxy = f"from fastmcp.server import create_proxy as make; make({server!r}).run('http', {options})"
    commands = [
        [*python, str(Path(__file__)), "serve", str(ports[0])],
        [
            *python,
            "-m",
            "mcp_envelope",
            "proxy",
            "--vault",
            str(folder / "v"),
            "--listen",
            f"127.0.0.1:{ports[1]}",
            "--url",
            server,
        ],
        [*python, "-c", proxy],
    ]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MCP_ENVELOPE_")}
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((folder / "log").open("wb"))
        for command, port in zip(commands, ports, strict=True):
            process = subprocess.Popen(
                command, env={**clean, "XDG_STATE_HOME": str(folder)}, cwd=folder, stdout=log, stderr=log
            )
            stack.callback(_end, process)
            _await(port, process, folder / "log")
        yield {"direct": server, "mcp-envelope": ours, _RIVAL: rival}


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(8)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def _await(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if process.poll() is not None:
            break
        time.sleep(0.05)
    raise RuntimeError(f"it does not listen: {log.read_text()[-2000:]}")


def _serve(port: int) -> None:
    """A low-level server of the SDK, whose answers are made beforehand: what is measured is the way."""
    import uvicorn

    def made(count: int) -> types.CallToolResult:
        data = {
            "rows": [
                {"id": number, "name": f"row {number}", "done": number % 3 == 0} for number in range(count)
            ]
        }
        text = types.TextContent(type="text", text=msgspec.json.encode(data).decode())
        return types.CallToolResult(content=[text], structured_content=data)

    answers = {count: made(count) for count in (2, 1000)}

    def tool(name: str, items: dict[str, Any]) -> types.Tool:
        rows = {"type": "array", "items": items}
        schema = {"type": "object", "properties": {"rows": rows}, "required": ["rows"]}
        return types.Tool(name=name, input_schema={"type": "object"}, output_schema=schema)

    async def list_tools(context: object, params: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool(name, items) for name, items in _ITEMS.items()])

    async def call_tool(context: object, params: types.CallToolRequestParams) -> types.CallToolResult:
        return answers[int((params.arguments or {})["count"])]

    server = Server("rows", on_list_tools=list_tools, on_call_tool=call_tool)
    app = server.streamable_http_app()
    uvicorn.run(app, port=port, log_level="error", ws="none")


if __name__ == "__main__" and sys.argv[1:2] == ["serve"]:
    _serve(int(sys.argv[2]))
