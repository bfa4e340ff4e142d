"""What the one line costs inside a server: calls of a real client, with and without it, taking turns.

A call is everything: the client's request, the library's work on both sides, the tool, and the client's
validation of what comes back. In memory that is the least that a call can cost; over HTTP on the loopback, with
the server in a process of its own, it is about what people pay. The vault and the ledger are files in a temporary
folder, as in real use.
"""

import asyncio
import logging
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from threading import Thread
from time import process_time, sleep
from typing import Any

from benchmarks.clock import Clock, Race, race
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
    with (
        tempfile.TemporaryDirectory() as folder,
        _connected(library, SIZES[size], Path(folder)) as (calls, clocks),
    ):
        races = [race(calls, seconds / RACES, 3, clocks) for _ in range(RACES)]
    for name in calls:
        best = median(each.best(name) for each in races)
        added = 1e6 * (best - median(each.best(BARE) for each in races)) if name != BARE else None
        table.add(name, 1000 * best, _ratio(races, name), added)
    if size == "2 KB":
        # The SDK's own call takes a third of FastMCP's time, so the same work is a larger part of it.
        most = 10 if library == "MCPServer" else 3
        table.check(f"{library}: a small call", 100 * (_ratio(races, LINE) - 1), "≤", most, "% more")
    else:
        table.check(f"{library}: a large call", _ratio(races, LINE), "≤", 1, "× without")
    return table


def _ratio(races: list[Race], name: str) -> float:
    return median(each.ratio(name, BARE) for each in races)


@contextmanager
def _connected(
    library: str, count: int, folder: Path
) -> Iterator[tuple[dict[str, Callable[[], Any]], dict[str, Clock]]]:
    """A call for each server, on one event loop that runs only while a call does; and what tells its time."""
    for noisy in ("fastmcp", "mcp"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    loop = asyncio.new_event_loop()
    ends: list[asyncio.Event] = []
    keepers: list[asyncio.Task[None]] = []
    calls: dict[str, Callable[[], Any]] = {}
    clocks: dict[str, Clock] = {}

    async def keep(server: Any, ready: asyncio.Future[Any], end: asyncio.Event) -> None:
        # Whoever opens a connection has to close it, so a task of its own holds it.
        async with _client(library, server) as call:
            await call()
            ready.set_result(call)
            await end.wait()

    with ExitStack() as stack:
        made: dict[str, Any]
        if library == HTTP:
            apart = {name: stack.enter_context(_apart(name, count, folder)) for name in (BARE, LINE, LIMITER)}
            made = {name: server.url for name, server in apart.items()}
            clocks = {name: server.time for name, server in apart.items()}
        else:
            made = {name: _server(name, library, count, folder) for name in _ways(library)}
        try:
            for name, server in made.items():
                ready, end = loop.create_future(), asyncio.Event()
                ends.append(end)
                keepers.append(loop.create_task(keep(server, ready, end)))
                call = loop.run_until_complete(ready)
                calls[name] = partial(_run, loop, call)
            yield calls, clocks
        finally:
            for end in ends:
                end.set()
            loop.run_until_complete(asyncio.gather(*keepers))
            loop.close()


class _Apart:
    """A server in a process of its own. It says where it listens and, asked, how long it worked."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.url = f"http://127.0.0.1:{int(self._heard())}/mcp"

    def _heard(self) -> float:
        assert self._process.stdout is not None
        return float(self._process.stdout.readline())

    def time(self) -> float:
        """Processor time of both ends."""
        assert self._process.stdin is not None
        self._process.stdin.write("?\n")
        self._process.stdin.flush()
        return self._heard() + process_time()


@contextmanager
def _apart(name: str, count: int, folder: Path) -> Iterator[_Apart]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.servers", name, str(count), str(folder)],
        cwd=Path(__file__).resolve().parent.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield _Apart(process)
    finally:
        # It ends with its input.
        process.communicate()


def _serve(name: str, count: int, folder: Path) -> None:
    uvicorn = module("uvicorn")
    app = _server(name, HTTP, count, folder).http_app()
    serving = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", timeout_graceful_shutdown=1))
    running = Thread(target=serving.run)
    running.start()
    while not serving.started:
        sleep(0.01)
    print(serving.servers[0].sockets[0].getsockname()[1], flush=True)
    for _ in sys.stdin:
        print(process_time(), flush=True)
    serving.should_exit = True
    running.join()


def _run(loop: asyncio.AbstractEventLoop, call: Callable[[], Any]) -> Any:
    return loop.run_until_complete(call())


def _ways(library: str) -> tuple[str, ...]:
    return (BARE, LINE) if library == "MCPServer" else (BARE, LINE, LIMITER)


def _server(name: str, library: str, count: int, folder: Path) -> Any:
    from mcp_envelope.vault.ledger import Ledger

    value = orders(count)

    async def list_orders() -> dict[str, Any]:
        return value  # type: ignore[no-any-return]

    if library == "MCPServer":
        server = module("mcp.server.mcpserver").MCPServer("bench")
        server.add_tool(list_orders)
    else:
        server = module("fastmcp").FastMCP("bench")
        server.tool(list_orders)
    if name == LIMITER:
        limiting = module("fastmcp.server.middleware.response_limiting")
        server.add_middleware(limiting.ResponseLimitingMiddleware(max_size=LIMIT))
    if name != LINE:
        return server
    options: dict[str, Any] = {"vault": str(folder / "vault.db"), "ledger": Ledger(folder / "ledger.db")}
    if library == "MCPServer":
        module("mcp_envelope.servers.sdk").envelope(server, **options)
    else:
        server.add_middleware(module("mcp_envelope.servers.fastmcp").EnvelopeMiddleware(**options))
    return server


@asynccontextmanager
async def _client(library: str, server: Any) -> AsyncIterator[Callable[[], Any]]:
    if library != "MCPServer":
        async with module("fastmcp").Client(server, mode="2026-07-28") as client:
            yield lambda: client.call_tool_mcp("list_orders", {})
    else:
        async with module("mcp").Client(server, mode="2026-07-28") as client:
            yield lambda: client.call_tool("list_orders", {})


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    _serve(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
