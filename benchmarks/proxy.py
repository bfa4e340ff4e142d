"""What a proxy costs: a server as it is, behind ours, and behind FastMCP's, taking turns in one run.

Times are on the wall, because a proxy is another process: what counts is when the answer is there. A small call is
one line out and one line in. A typed result is a call of the SDK's own client, which parses and validates it. A
cold start is from starting the command to the first reply. Memory is that of the proxy's process.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.engines import module
from benchmarks.report import Table, progress

DIRECT, OURS, FASTMCP = "direct", "mcp-envelope proxy", "FastMCP's proxy"
TOKENS = 8000
_SERVER = [sys.executable, str(Path(__file__).parent / "plain_server.py")]
_OURS = [sys.executable, "-m", "mcp_envelope", "proxy", "--tokens", str(TOKENS), "--", *_SERVER]
_FASTMCP = """
import sys
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy
create_proxy(StdioTransport(sys.argv[1], sys.argv[2:])).run("stdio", show_banner=False)
"""
_HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "benchmark", "version": "1"},
}


def proxy(quick: bool) -> list[Table]:
    with tempfile.TemporaryDirectory() as folder:
        env = _environment(Path(folder))
        tables = [_small(env, 300 if quick else 2000), _typed(env, 15 if quick else 60)]
        tables += [_start(env, 5 if quick else 15), _memory(env, 100)]
        return tables


def _environment(folder: Path) -> dict[str, str]:
    # Compiled files of our own, so that neither a stale one nor a setting that forbids them gets in the way.
    env = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "compiled"), "XDG_STATE_HOME": str(folder)}
    env |= {"MCP_ENVELOPE_VAULT": str(folder / "vault.db"), "FASTMCP_LOG_LEVEL": "CRITICAL"}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    return env


def _commands() -> dict[str, list[str]]:
    commands = {DIRECT: _SERVER, OURS: _OURS}
    if module("fastmcp") is not None:
        commands[FASTMCP] = [sys.executable, "-c", _FASTMCP, *_SERVER]
    return commands


class _Talk:
    """Lines to a process and back."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pid = process.pid
        self._process = process
        self._last = 0

    def ask(self, method: str, **params: Any) -> bytes:
        """The line that answers; whatever else is said meanwhile is skipped."""
        self._last += 1
        request = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}
        return self.send(json.dumps(request).encode() + b"\n", b'"id":%d' % self._last)

    def send(self, line: bytes, mark: bytes) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()
        while answer := self._process.stdout.readline():
            if mark in answer[:60] or mark in answer[-60:]:
                return answer
        raise RuntimeError("the proxy ended")

    def meet(self) -> None:
        self.ask("initialize", **_HELLO)
        assert self._process.stdin is not None
        self._process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        self._process.stdin.flush()


@contextmanager
def _running(command: list[str], env: dict[str, str]) -> Iterator[_Talk]:
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=env,
        bufsize=1 << 16,
    )
    try:
        yield _Talk(process)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _turns(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 3):
        for name, call in calls.items():
            start = perf_counter()
            call()
            if number >= 3:
                times[name].append(perf_counter() - start)
    return times


def _small(env: dict[str, str], rounds: int) -> Table:
    progress(f"small calls, {rounds} rounds")
    with ExitStack() as stack:
        calls: dict[str, Callable[[], Any]] = {}
        for name, command in _commands().items():
            talk = stack.enter_context(_running(command, env))
            talk.meet()
            talk.ask("tools/list")
            calls[name] = lambda talk=talk: talk.ask("tools/call", name="small", arguments={})  # type: ignore[misc]
        times = _turns(calls, rounds)
    table = Table(
        name="proxy, small call",
        title="A small call through a proxy",
        columns={"p50 ms": "{:.3f}", "p95 ms": "{:.3f}", "above direct ms": "{:+.3f}"},
        note=f"One line out, one line in, {rounds} rounds in turns.",
    )
    for name, took in times.items():
        above = 1e3 * (median(took) - median(times[DIRECT])) if name != DIRECT else None
        table.add(name, 1e3 * median(took), 1e3 * sorted(took)[int(0.95 * len(took))], above)
    table.check(
        "small call, p50 above direct", 1e3 * (median(times[OURS]) - median(times[DIRECT])), "≤", 0.5, "ms"
    )
    return table


def _typed(env: dict[str, str], rounds: int) -> Table:
    progress(f"typed results with the SDK's client, {rounds} rounds")
    times = asyncio.run(_typed_times(env, rounds))
    table = Table(
        name="proxy, 1,000 rows",
        title="A typed result of 1,000 rows through a proxy, the client's parsing and validation included",
        columns={"p50 ms": "{:.1f}", "× direct": "{:.2f}"},
        note=f"The Python SDK's client, {rounds} rounds in turns. Ours cuts the result to {TOKENS} tokens and "
        "stores the rest.",
    )
    for name, took in times.items():
        table.add(name, 1e3 * median(took), median(took) / median(times[DIRECT]))
    table.check(
        "1,000 typed rows, client included", median(times[OURS]) / median(times[DIRECT]), "≤", 1, "× direct"
    )
    return table


async def _typed_times(env: dict[str, str], rounds: int) -> dict[str, list[float]]:
    import mcp
    from mcp.client.stdio import StdioServerParameters

    async with AsyncExitStack() as stack:
        clients = {}
        for name, command in _commands().items():
            server = StdioServerParameters(command=command[0], args=command[1:], env=env)
            clients[name] = await stack.enter_async_context(mcp.Client(server, mode="legacy"))
            await clients[name].list_tools()
        times: dict[str, list[float]] = {name: [] for name in clients}
        for number in range(rounds + 2):
            for name, client in clients.items():
                start = perf_counter()
                result = await client.call_tool("rows", {})
                if number >= 2:
                    times[name].append(perf_counter() - start)
                assert result.structured_content
        return times


def _start(env: dict[str, str], rounds: int) -> Table:
    progress(f"cold starts, {rounds} rounds")

    def started(command: list[str]) -> float:
        start = perf_counter()
        with _running(command, env) as talk:
            talk.ask("initialize", **_HELLO)
            return perf_counter() - start

    commands = _commands()
    times: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name, command in commands.items():
            seconds = started(command)
            if number:  # the first round writes the compiled files
                times[name].append(seconds)
    table = Table(
        name="proxy, start",
        title="From starting the command to the first reply",
        columns={"ms": "{:.0f}", "above direct ms": "{:+.0f}"},
        note=f"Median of {rounds}, in turns, compiled files warm.",
    )
    for name, took in times.items():
        above = 1e3 * (median(took) - median(times[DIRECT])) if name != DIRECT else None
        table.add(name, 1e3 * median(took), above)
    table.check(
        "cold start above direct", 1e3 * (median(times[OURS]) - median(times[DIRECT])), "≤", 150, "ms"
    )
    return table


def _memory(env: dict[str, str], megabytes: int) -> Table:
    size = megabytes << 20
    table = Table(
        name="proxy, memory",
        title=f"Memory of the proxy's process: idle, and the peak for a frame of {megabytes} MB",
        columns={"idle MB": "{:.0f}", "text": "{:.2f} ×", "JSON text": "{:.2f} ×", "typed": "{:.2f} ×"},
        note="Idle is after the first list. Peaks are multiples of the frame, each in a fresh process. Ours cuts\n"
        "the result; FastMCP's passes it on whole, and is asked for the text alone: JSON takes it gigabytes.",
    )
    for name, command in _commands().items():
        if name == DIRECT:
            continue
        progress(f"memory of {name}")
        idle = 0.0
        peaks: list[float | None] = []
        for kind in ("large", "json", "typed") if name == OURS else ("large",):
            with _running(command, env) as talk:
                talk.meet()
                talk.ask("tools/list")
                idle = _status(talk.pid, "VmRSS") / (1 << 20)
                answer = talk.ask("tools/call", name=kind, arguments={"bytes": size})
                peaks.append(_status(talk.pid, "VmHWM") / size if len(answer) > 1000 else None)
        table.add(name, idle, *peaks)
        if name == OURS:
            table.check(
                f"a frame of {megabytes} MB, peak", max(peak or 0 for peak in peaks), "≤", 3.5, "× the frame"
            )
    return table


def _status(pid: int, what: str) -> int:
    """Bytes, as Linux tells them; 0 elsewhere."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(what)), 0)
