"""Ten minutes of mixed HTTP load on three replicas, which are restarted in turn: `python -m scripts.load`.

Strategy: real programs on loopback: a server, a Valkey, three proxies that share it. Clients send all kinds of
requests (small and large calls, lists, pages of what any replica has stored), each to a replica at random, and the
same ones to the server itself, so that both meet the same machine at the same moment. A client whose replica is
being restarted tries another one, as a balancer would. Every answer is checked. At the end: errors, the memory of
each replica, p50 and p99 in windows of ten seconds, and a picture (`--picture` writes docs/reliability.svg).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

import httpx2
import msgspec
from tests.ports import free_port
from tests.proxy.programs import command, environment
from tests.vault.valkey_server import running_server

ROOT: Final = Path(__file__).resolve().parents[1]
PICTURE: Final = ROOT / "docs" / "reliability.svg"
WINDOW: Final = 10.0
# Seconds between the restarts of two replicas.
ROLL: Final = 5.0
META: Final = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "load", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
HEADERS: Final = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
}


class Replica:
    """A proxy on a port that it keeps."""

    def __init__(self, folder: Path, name: str, vault: str, server: str) -> None:
        self.folder, self.name = folder, name
        self.port = free_port()
        self.options = ["--listen", f"127.0.0.1:{self.port}", "--vault", vault, "--url", server]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self.process: subprocess.Popen[bytes] | None = None
        # Its memory in KB, once in a while, for each time that it was started.
        self.memory: list[list[tuple[float, int]]] = []

    async def start(self) -> None:
        log = (self.folder / f"{self.name}.log").open("ab")
        self.process = subprocess.Popen(
            command(*self.options), cwd=self.folder, env=environment(self.folder), stdout=log, stderr=log
        )
        await listening(self.port)
        self.memory.append([])

    async def restart(self) -> int:
        """As a deployment does: SIGTERM, and the next one when that has ended. Returns how it ended."""
        assert self.process is not None
        self.process.terminate()
        code = await asyncio.to_thread(self.process.wait, 30)
        await self.start()
        return code

    def look(self) -> None:
        assert self.process is not None
        with contextlib.suppress(OSError, IndexError):
            pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
            self.memory[-1].append((time.monotonic(), pages * os.sysconf("SC_PAGE_SIZE") >> 10))


async def listening(port: int) -> None:
    for _ in range(1200):
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(0.05)
    raise RuntimeError(f"nobody listens on {port}")


class Load:
    def __init__(self, replicas: list[Replica], direct: str, seconds: float) -> None:
        self.replicas, self.direct = replicas, direct
        self.begun = time.monotonic()
        self.end = self.begun + seconds
        # Per way: when each call began, and how long it took.
        self.taken: dict[str, list[tuple[float, float]]] = {"direct": [], "proxy": []}
        self.kinds: Counter[str] = Counter()
        self.wrong: Counter[str] = Counter()
        self.retried = 0
        # Handles of what was stored, at any replica.
        self.handles: list[str] = []

    async def ask(self, client: httpx2.AsyncClient, way: str, method: str, **params: Any) -> dict[str, Any]:
        """The response's message; while replicas come and go, from the first one that gives one."""
        body = msgspec.json.encode(
            {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
        )
        headers = {**HEADERS, "mcp-method": method}
        if "name" in params:
            headers["mcp-name"] = params["name"]
        start = time.monotonic()
        while True:
            url = self.direct if way == "direct" else random.choice(self.replicas).url
            try:
                response = await client.post(url, content=body, headers=headers)
                if response.status_code not in (502, 503):
                    break
            except httpx2.TransportError as error:
                if way == "direct":
                    raise RuntimeError(repr(error)) from error
            self.retried += 1
            await asyncio.sleep(0.01)
        text = response.text
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            text = next(line[5:] for line in text.splitlines() if line.startswith("data:") and len(line) > 6)
        self.taken[way].append((start - self.begun, time.monotonic() - start))
        answer: dict[str, Any] = msgspec.json.decode(text)
        return answer

    async def one(self, client: httpx2.AsyncClient, kind: str, way: str) -> str | None:
        """Send a request; return what is wrong with the answer."""
        if kind == "list":
            answer = await self.ask(client, way, "tools/list")
            return None if answer["result"]["tools"] else "no tools"
        if kind == "page":
            handle = random.choice(self.handles[-200:])
            asked = {"handle": handle, "path": "/rows", "offset": random.randrange(900)}
            answer = await self.ask(client, "proxy", "tools/call", name="envelope_read", arguments=asked)
            if '"row ' in str(answer["result"]["content"]).replace("\\", ""):
                return None
            return str(answer)[:200]
        count = 1000 if kind == "large" else 2
        answer = await self.ask(client, way, "tools/call", name="rows", arguments={"count": count})
        rows = answer.get("result", {}).get("structuredContent", {})
        if not rows.get("rows") or rows["rows"][0] != {"id": 0, "name": "row 0", "done": True}:
            return str(answer)[:200]
        if kind == "large" and way == "proxy":
            if "handle" not in rows.get("_envelope", {}):
                return "no handle"
            self.handles.append(rows["_envelope"]["handle"])
        return None

    async def client(self) -> None:
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
            while time.monotonic() < self.end:
                kind = random.choices(("small", "large", "list", "page"), (12, 3, 1, 2))[0]
                kind = "small" if kind == "page" and not self.handles else kind
                for way in ("proxy",) if kind == "page" else random.sample(("direct", "proxy"), 2):
                    self.kinds[f"{kind}, {way}"] += 1
                    try:
                        wrong = await self.one(client, kind, way)
                    except Exception as error:  # whatever it is, it counts
                        wrong = repr(error)[:200]
                    if wrong is not None:
                        self.wrong[f"{kind}, {way}: {wrong}"] += 1
                await asyncio.sleep(random.random() * 0.1)

    async def watch(self) -> None:
        while time.monotonic() < self.end:
            for replica in self.replicas:
                replica.look()
            await asyncio.sleep(2)

    async def roll(self, seconds: float) -> tuple[list[float], list[int]]:
        """Restart one replica after the other, so that two of them are always there: when, and how each ended."""
        moments, codes = [], []
        await asyncio.sleep(seconds)
        for replica in self.replicas:
            moments.append(time.monotonic() - self.begun)
            codes.append(await replica.restart())
            await asyncio.sleep(ROLL)
        return moments, codes


def windows(taken: list[tuple[float, float]]) -> list[tuple[float, float, float]]:
    """The middle of each window, p50 and p99 in milliseconds."""
    found: dict[int, list[float]] = {}
    for begun, seconds in taken:
        found.setdefault(int(begun / WINDOW), []).append(1000 * seconds)
    return [
        ((at + 0.5) * WINDOW, median(each), quantiles(each, n=100)[-1])
        for at, each in sorted(found.items())
        if len(each) > 20
    ]


def picture(load: Load, restarts: list[float], seconds: float) -> str:
    """Latency above, memory below, over time."""
    wide, high, left, top = 620, 150, 60, 30
    lines = {way: windows(taken) for way, taken in load.taken.items()}
    most = max(p99 for each in lines.values() for _, _, p99 in each)
    memory = [(at - load.begun, kb) for replica in load.replicas for run in replica.memory for at, kb in run]
    heaviest = max(kb for _, kb in memory)
    parts: list[str] = []

    def x(at: float) -> float:
        return left + wide * at / seconds

    def line(points: list[tuple[float, float]], kind: str) -> None:
        path = " ".join(f"{x(at):.1f},{y:.1f}" for at, y in points)
        parts.append(f'<polyline class="{kind}" points="{path}"/>')

    def axis(base: float, highest: float, unit: str, title: str) -> None:
        parts.append(f'<text x="{left}" y="{base - high - 10}">{title}</text>')
        for part in (0, 0.5, 1):
            y = base - high * part
            parts.append(f'<line class="grid" x1="{left}" x2="{left + wide}" y1="{y}" y2="{y}"/>')
            parts.append(
                f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{highest * part:.0f} {unit}</text>'
            )

    base, below = top + high, top + 2 * high + 60
    axis(base, most, "ms", "latency: p50 (bold) and p99, in windows of ten seconds")
    axis(below, heaviest / 1024, "MB", "memory of the three replicas; dotted: a restart")
    parts += [
        f'<line class="restart" x1="{x(at):.1f}" x2="{x(at):.1f}" y1="{top}" y2="{below}"/>'
        for at in restarts
    ]
    for way, found in lines.items():
        line([(at, base - high * p50 / most) for at, p50, _ in found], f"{way} bold")
        line([(at, base - high * p99 / most) for at, _, p99 in found], way)
    for run in [run for replica in load.replicas for run in replica.memory if run]:
        line([(at - load.begun, below - high * kb / heaviest) for at, kb in run], "proxy")
    parts += [
        f'<text x="{x(60 * minute):.0f}" y="{below + 18}" text-anchor="middle">{minute} min</text>'
        for minute in range(0, int(seconds / 60) + 1, 2)
    ]
    for number, way in enumerate(("proxy", "direct")):
        across = left + wide + 16
        parts.append(f'<line class="{way} bold" x1="{across}" x2="{across + 20}" y1="{60 + 20 * number}"')
        parts[-1] += f' y2="{60 + 20 * number}"/><text x="{across + 26}" y="{64 + 20 * number}">{way}</text>'
    style = (
        "text{font:12px system-ui,sans-serif;fill:#57606a}polyline,line{fill:none;stroke-width:1}"
        ".bold{stroke-width:2.5}.grid{stroke:#d0d7de}.proxy{stroke:#0969da}.direct{stroke:#bc4c00}"
        ".restart{stroke:#8c959f;stroke-dasharray:2 4}"
        "@media(prefers-color-scheme:dark){text{fill:#9198a1}.grid{stroke:#30363d}.proxy{stroke:#79c0ff}"
        ".direct{stroke:#ffa657}}"
    )
    body = "\n".join(parts)
    size = f"0 0 {left + wide + 90} {below + 30}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}">\n<style>{style}</style>\n{body}\n</svg>\n'
    )


def grown(run: list[tuple[float, int]]) -> tuple[int, int] | None:
    """The memory of one run of a replica in its second minute and in its last one, in MB; None if it was short."""
    last = run[-1][0] if run else 0.0
    early, late = (
        [
            [kb for at, kb in run if low <= at - run[0][0] <= high]
            for low, high in ((60, 120), (last - run[0][0] - 60, last - run[0][0]))
        ]
        if run
        else ([], [])
    )
    return (
        None
        if not early or last - run[0][0] < 180
        else (round(median(early) / 1024), round(median(late) / 1024))
    )


def report(load: Load, codes: list[int], restarts: list[float], asked: argparse.Namespace) -> int:
    calls = load.kinds.total()
    wrong = load.wrong.total()
    print(f"{calls} requests in {asked.seconds:.0f} s by {asked.clients} clients: {wrong} wrong answers")
    for kind, count in sorted(load.kinds.items()):
        print(f"  {kind:16} {count:8}")
    for what, count in load.wrong.most_common(10):
        print(f"  {count} x {what}")
    print(
        f"{len(codes)} restarts, exit codes {sorted(set(codes))}; {load.retried} requests tried another replica"
    )
    for way, taken in load.taken.items():
        each = windows(taken)
        half = len(each) // 2
        p50, p99 = (median(window[which] for window in each) for which in (1, 2))
        first, second = (median(p99 for *_, p99 in part) for part in (each[:half], each[half:]))
        print(
            f"{way:8} p50 {p50:.1f} ms, p99 {p99:.1f} ms ({first:.1f} in the first half, {second:.1f} after it)"
        )
    for replica in load.replicas:
        for number, kept in enumerate(replica.memory):
            if (found := grown(kept)) is not None:
                early, late = found
                print(
                    f"{replica.name}, run {number + 1}: {early} MB in its second minute, {late} MB in its last"
                )
    if asked.picture:
        PICTURE.write_text(picture(load, restarts, asked.seconds))
    return int(wrong > 0 or not {*codes} <= {0, -signal.SIGTERM})


async def run(asked: argparse.Namespace) -> int:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        valkey = stack.enter_context(running_server(folder / "valkey"))
        port = free_port()
        serving = subprocess.Popen(
            [sys.executable, str(ROOT / "benchmarks" / "over_http.py"), "serve", str(port)],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        stack.callback(serving.wait)
        stack.callback(serving.kill)
        await listening(port)
        direct = f"http://127.0.0.1:{port}/mcp"
        replicas = [Replica(folder, f"replica-{number}", valkey.url, direct) for number in range(3)]
        for replica in replicas:
            await replica.start()
            assert replica.process is not None
            stack.callback(lambda replica=replica: (replica.process.kill(), replica.process.wait()))  # type: ignore[misc]
        load = Load(replicas, direct, asked.seconds)
        rolling = asyncio.ensure_future(load.roll(asked.seconds / 2))
        await asyncio.gather(load.watch(), *[load.client() for _ in range(asked.clients)])
        restarts, codes = await rolling
    return report(load, codes, restarts, asked)


def main() -> int:
    parser = argparse.ArgumentParser(description="Mixed load on three replicas, which are restarted in turn.")
    parser.add_argument("--seconds", type=float, default=600, help="for how long (default: 600)")
    parser.add_argument("--clients", type=int, default=12, help="how many clients (default: 12)")
    parser.add_argument("--picture", action="store_true", help="write docs/reliability.svg")
    return asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    os.nice(5)
    sys.exit(main())
