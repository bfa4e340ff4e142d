"""What the one line costs inside a server: calls of a real client, with and without it, taking turns.

A call is everything: the client's request, the library's work on both sides, the tool, and the client's
validation of what comes back. In memory that is the least that a call can cost; over HTTP on the loopback it is
about what people pay. The vault and the ledger are files in a temporary folder, as in real use.
"""

import asyncio
import logging
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from threading import Thread
from time import sleep
from typing import Any

from benchmarks.clock import Race, race
from benchmarks.engines import module
from benchmarks.report import Table, progress
from benchmarks.samples import orders

# Records of the order service, and what they come to as JSON.
SIZES = {"2 KB": 6, "2.4 MB": 7_200}
LIMIT = 32_000
# Threads and sockets make single races uneven: over HTTP one of them once showed a sixth of what the others did.
RACES = 5
FASTMCP, HTTP = "FastMCP", "FastMCP over HTTP"
BARE, LINE, LIMITER = "without", "with the line", "FastMCP's limiter"


def servers(seconds: float) -> list[Table]:
    if module("fastmcp") is None:
        return [Table("servers", "Servers: FastMCP is not installed", {})]
    tables = []
    for library in (FASTMCP, HTTP, "MCPServer"):
        for size in SIZES:
            progress(f"{library}, {size}")
            tables.append(_table(library, size, seconds))
    return tables


def _table(library: str, size: str, seconds: float) -> Table:
    table = Table(
        name=f"{library} {size}",
        title=f"One call of a tool on {library}, {size}",
        columns={"ms": "{:.3f}", "× without": "{:.3f}", "adds µs": "{:.0f}"},
        note="Processor time of both ends: the median of five races, in each the best of the rounds.\n"
        "An async tool that returns a typed dictionary.",
    )
    with tempfile.TemporaryDirectory() as folder, _connected(library, SIZES[size], Path(folder)) as calls:
        races = [race(calls, seconds / RACES, least=3) for _ in range(RACES)]
    for name in calls:
        best = median(each.best(name) for each in races)
        added = 1e6 * (best - median(each.best(BARE) for each in races)) if name != BARE else None
        table.add(name, 1000 * best, _ratio(races, name), added)
    if size == "2 KB":
        table.check(f"{library}: a small call", 100 * (_ratio(races, LINE) - 1), "≤", 3, "% more")
    else:
        table.check(f"{library}: a large call", _ratio(races, LINE), "≤", 1, "× without")
    return table


def _ratio(races: list[Race], name: str) -> float:
    return median(each.ratio(name, BARE) for each in races)


@contextmanager
def _connected(library: str, count: int, folder: Path) -> Iterator[dict[str, Callable[[], Any]]]:
    """A call for each server, on one event loop that runs only while a call does."""
    for noisy in ("fastmcp", "mcp"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    loop = asyncio.new_event_loop()
    made = _servers(library, count, folder)
    ends: list[asyncio.Event] = []
    keepers: list[asyncio.Task[None]] = []
    calls: dict[str, Callable[[], Any]] = {}

    http: list[Any] = []

    async def keep(server: Any, ready: asyncio.Future[Any], end: asyncio.Event) -> None:
        # Whoever opens a connection has to close it, so a task of its own holds it.
        async with _client(library, server) as call:
            await call()
            ready.set_result(call)
            await end.wait()

    try:
        for name, server in made.items():
            if library == HTTP:
                server, running = _over_http(server)
                http.append(running)
            ready, end = loop.create_future(), asyncio.Event()
            ends.append(end)
            keepers.append(loop.create_task(keep(server, ready, end)))
            call = loop.run_until_complete(ready)
            calls[name] = partial(_run, loop, call)
        yield calls
    finally:
        for end in ends:
            end.set()
        loop.run_until_complete(asyncio.gather(*keepers))
        loop.close()
        for running in http:
            running.should_exit = True


def _over_http(server: Any) -> tuple[str, Any]:
    """The address of a server that runs in a thread of its own, and what ends it."""
    uvicorn = module("uvicorn")
    settings = uvicorn.Config(server.http_app(), port=0, log_level="critical", timeout_graceful_shutdown=1)
    running = uvicorn.Server(settings)
    Thread(target=running.run, daemon=True).start()
    while not running.started:
        sleep(0.01)
    port = running.servers[0].sockets[0].getsockname()[1]
    return f"http://127.0.0.1:{port}/mcp", running


def _run(loop: asyncio.AbstractEventLoop, call: Callable[[], Any]) -> Any:
    return loop.run_until_complete(call())


def _servers(library: str, count: int, folder: Path) -> dict[str, Any]:
    from mcp_envelope.vault.ledger import Ledger

    options: dict[str, Any] = {"vault": str(folder / "vault.db"), "ledger": Ledger(folder / "ledger.db")}
    value = orders(count)

    async def list_orders() -> dict[str, Any]:
        return value  # type: ignore[no-any-return]

    def fresh() -> Any:
        if library != "MCPServer":
            server = module("fastmcp").FastMCP("bench")
            server.tool(list_orders)
        else:
            server = module("mcp.server.mcpserver").MCPServer("bench")
            server.add_tool(list_orders)
        return server

    made = {BARE: fresh(), LINE: fresh()}
    if library != "MCPServer":
        made[LINE].add_middleware(module("mcp_envelope.servers.fastmcp").EnvelopeMiddleware(**options))
        made[LIMITER] = fresh()
        limiting = module("fastmcp.server.middleware.response_limiting")
        made[LIMITER].add_middleware(limiting.ResponseLimitingMiddleware(max_size=LIMIT))
    else:
        module("mcp_envelope.servers.sdk").envelope(made[LINE], **options)
    return made


@asynccontextmanager
async def _client(library: str, server: Any) -> AsyncIterator[Callable[[], Any]]:
    if library != "MCPServer":
        async with module("fastmcp").Client(server, mode="2026-07-28") as client:
            yield lambda: client.call_tool_mcp("list_orders", {})
    else:
        async with module("mcp").Client(server, mode="2026-07-28") as client:
            yield lambda: client.call_tool("list_orders", {})
