"""One session: a client, started with a server and a script for its model, until the script is over.

A client that does not come to an end is ended with everything that it started: it leads a process group of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .cases import READ
from .clients import CACHE, ROOT, SERVER, Client, Setting
from .model import Call, Json, Model, Player, Script, Seen, Tool
from .server import TOOLS

_CLIENT_INFO = "io.modelcontextprotocol/clientInfo"  # where requests have it since 2026-07-28
_GRACE = 2.0
# Directly, through the proxy, or with our adapter inside the client.
Way = Literal["direct", "proxy", "inside"]


@dataclass(frozen=True)
class Session:
    """What happened: the calls and what the model saw, the results on the wire, the tools on offer."""

    calls: list[tuple[Call, Seen]]
    sent: list[Json]
    client_info: Json
    tools: tuple[Tool, ...]
    seconds: float
    problem: str = ""


def server_command(proxied: bool, record: Path) -> tuple[str, ...]:
    """The fixture server, through the proxy or not, with what the client receives recorded."""
    python = sys.executable
    server = (python, str(ROOT / "lab" / "server.py"))
    proxy = (python, "-m", "mcp_envelope", "proxy", "--") if proxied else ()
    return (python, str(ROOT / "lab" / "tap.py"), str(record), *proxy, *server)


def play(client: Client, model: Model, script: Script, way: Way, limit: float) -> Session:
    home = CACHE / "homes" / f"{client.name}-{way}"
    shutil.rmtree(home, ignore_errors=True)
    (home / "tmp").mkdir(parents=True)
    record = home / "wire.jsonl"
    player = Player(script, SERVER, (*TOOLS, READ))
    model.players[home.name] = player
    server = server_command(way == "proxy", record)
    setting = Setting(home, model.address(home.name), server, inside=way == "inside")
    command, environment = client.command(setting)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="lab-") as work, (home / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            command, cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
        problem = ""
        try:
            while process.poll() is None and not player.over.is_set():
                if time.monotonic() - started > limit:
                    problem = f"not finished after {limit:.0f} s"
                    break
                player.over.wait(0.1)
            if player.over.is_set():
                _wait(process, _GRACE)
        finally:
            _end(process)
    if not player.over.is_set() and not problem:
        said = (home / "output.txt").read_text(errors="replace").replace(str(ROOT), "").splitlines()
        last = next((line for line in reversed(said) if "Error" in line), said[-1] if said else "")
        problem = f"it ended by itself with code {process.returncode}: {last.strip(' |')[:200]}"
    sent, info = _wire(record)
    return Session(
        player.calls, sent, info, player.tools, time.monotonic() - started, player.problem or problem
    )


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)


def _end(process: subprocess.Popen[bytes]) -> None:
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, how)
        except ProcessLookupError:
            return
        _wait(process, _GRACE)


def _wire(record: Path) -> tuple[list[Json], Json]:
    """What came back for each tools/call, in the order of the calls, and how the client introduced itself."""
    asked: dict[str, Json] = {}
    info: Json = {}
    for line in record.read_bytes().splitlines() if record.exists() else ():
        try:
            frame = json.loads(line)
        except ValueError:
            continue
        if "method" in frame:
            params = frame.get("params", {})
            info = info or params.get("clientInfo") or params.get("_meta", {}).get(_CLIENT_INFO, {})
            if frame["method"] == "tools/call":
                asked[str(frame["id"])] = {}
        elif str(frame.get("id")) in asked:
            asked[str(frame["id"])] = frame.get("result") or {"error": frame.get("error")}
    return list(asked.values()), info
