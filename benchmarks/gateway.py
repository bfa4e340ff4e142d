"""What a gateway costs: a small call beside the proxy's, its start with many servers, the weight of its tools."""

import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.proxy import _HELLO, _OURS, _SERVER, DIRECT, OURS, TOKENS, _environment, _running, _turns
from benchmarks.report import Table, progress

GATEWAY = "mcp-envelope gateway"
_MANY = 50
_FEW = 10


def gateway(quick: bool) -> list[Table]:
    with tempfile.TemporaryDirectory() as folder:
        env = _environment(Path(folder))
        tables = [
            _small(Path(folder), env, 300 if quick else 2000),
            _start(Path(folder), env, 5 if quick else 15),
        ]
        return [*tables, _weight(Path(folder), env)]


def _command(folder: Path, count: int) -> list[str]:
    """A gateway in front of so many servers."""
    servers: dict[str, dict[str, Any]] = {
        f"server{number}": {"command": _SERVER[0], "args": _SERVER[1:]} for number in range(count)
    }
    for number, entry in enumerate(servers.values()):
        # Each is a server of its own, whose lists are remembered apart.
        entry["env"] = {"NUMBER": str(number)}
    file = folder / f"{count}.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    return [sys.executable, "-m", "mcp_envelope", "gateway", str(file), "--tokens", str(TOKENS)]


def _small(folder: Path, env: dict[str, str], rounds: int) -> Table:
    progress(f"small calls through a gateway, {rounds} rounds")
    commands = {DIRECT: _SERVER, OURS: _OURS, GATEWAY: _command(folder, 3)}
    with ExitStack() as stack:
        calls: dict[str, Callable[[], Any]] = {}
        for name, command in commands.items():
            talk = stack.enter_context(_running(command, env))
            talk.meet()
            talk.ask("tools/list")
            tool = "server1__small" if name == GATEWAY else "small"
            calls[name] = lambda talk=talk, tool=tool: talk.ask("tools/call", name=tool, arguments={})  # type: ignore[misc]
        times = _turns(calls, rounds)
    table = Table(
        name="gateway, small call",
        title="A small call through a gateway with three servers",
        columns={"p50 ms": "{:.3f}", "p95 ms": "{:.3f}", "above the proxy ms": "{:+.3f}"},
        note=f"One line out, one line in, {rounds} rounds in turns.",
    )
    for name, took in times.items():
        above = 1e3 * (median(took) - median(times[OURS])) if name == GATEWAY else None
        table.add(name, 1e3 * median(took), 1e3 * sorted(took)[int(0.95 * len(took))], above)
    more = 1e3 * (median(times[GATEWAY]) - median(times[OURS]))
    table.check("small call, p50 above the proxy", more, "≤", 0.1, "ms")
    return table


def _start(folder: Path, env: dict[str, str], rounds: int) -> Table:
    progress(f"starts of a gateway with {_MANY} servers, {rounds} rounds")
    command = _command(folder, _MANY)

    def started() -> float:
        start = perf_counter()
        with _running(command, env) as talk:
            talk.ask("initialize", **_HELLO)
            tools = json.loads(talk.ask("tools/list"))["result"]["tools"]
            seconds = perf_counter() - start
            assert len(tools) > _MANY
            return seconds

    first = started()
    later = [started() for _ in range(rounds)]
    table = Table(
        name="gateway, start",
        title=f"From starting a gateway with {_MANY} servers to its list of tools",
        columns={"ms": "{:.0f}"},
        note=f"The first time, all servers are started and asked. Later: median of {rounds}.",
    )
    table.add("the first time", 1e3 * first)
    table.add("later", 1e3 * median(later))
    table.check(f"{_MANY} servers, start to tool list", median(later), "≤", 1, "s")
    return table


def _weight(folder: Path, env: dict[str, str]) -> Table:
    """The tool lists of ten wrapped servers, and that of one gateway, as JSON, in tokens of o200k."""
    from mcp_envelope.budget import meter_named

    count = meter_named("exact").count
    progress(f"tool lists of {_FEW} servers")

    def tools(command: list[str]) -> list[Any]:
        with _running(command, env) as talk:
            talk.meet()
            found: list[Any] = json.loads(talk.ask("tools/list"))["result"]["tools"]
            return found

    def weight(listed: list[Any]) -> int:
        return count(json.dumps(listed, separators=(",", ":"), ensure_ascii=False).encode())

    alone, wrapped = weight(tools(_SERVER)), weight(tools(_OURS))
    one = weight(tools(_command(folder, _FEW)))
    table = Table(
        name="gateway, tool list",
        title=f"The tool lists of {_FEW} servers, in tokens of o200k",
        columns={"tokens": "{:,.0f}"},
        note=f"Each server has {len(tools(_SERVER))} tools. The second row has envelope_read {_FEW} times.",
    )
    table.add(f"{_FEW} servers as they are", _FEW * alone)
    table.add(f"{_FEW} wrapped servers", _FEW * wrapped)
    table.add("one gateway", one)
    return table
