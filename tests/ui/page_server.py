"""Real calls through a real proxy, and `mcp-envelope ui` on what they left."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from mcp_envelope.vault.ledger import Ledger

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# So that it asks nobody on the network for anything.
_QUIET = ("background-networking", "component-update", "sync", "gpu", "quic")
FLAGS = ["--no-sandbox", "--no-first-run", *(f"--disable-{name}" for name in _QUIET)]
MARKUP = "<script>window.hurt = 1</script><img src=x onerror='window.hurt = 2'>"
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("list_tickets", {}),
    ("read_log", {}),
    ("count", {}),
    ("markup", {}),
)
_SERVER = f"""
from mcp.server.mcpserver import MCPServer

server = MCPServer("shop")


@server.tool()
def list_tickets() -> dict[str, list[dict[str, object]]]:
    rows = [
        {{"id": n, "title": f"The colour {{n}} breaks the upload", "state": ("open", "closed")[n % 2]}}
        for n in range(1200)
    ]
    rows[417]["state"] = "failed"
    return {{"tickets": rows}}


@server.tool()
def read_log() -> str:
    return "\\n".join(f"12:{{n % 60:02}} request {{n}} answered" for n in range(4000))


@server.tool()
def count() -> dict[str, int]:
    return {{"tickets": 1200}}


@server.tool()
def markup() -> dict[str, object]:
    return {{{MARKUP!r}: [{MARKUP!r} for _ in range(400)]}}


server.run()
"""


def make_calls(folder: Path, *calls: tuple[str, dict[str, Any]]) -> None:
    """Make calls through the proxy, and wait until they are in the ledger."""
    server = folder / "shop.py"
    server.write_text(_SERVER)
    arguments = ["-m", "mcp_envelope", "proxy", "--tokens", "1500", "--", sys.executable, str(server)]
    environ = {**os.environ, "XDG_STATE_HOME": str(folder)}

    async def main() -> None:
        parameters = StdioServerParameters(command=sys.executable, args=arguments, env=environ)
        async with Client(stdio_client(parameters)) as client:
            for name, values in calls:
                await client.call_tool(name, values)

    # The thread of a browser's test has an event loop already.
    with ThreadPoolExecutor(1) as aside:
        aside.submit(anyio.run, main).result()


def wait_for_calls(folder: Path, count: int) -> None:
    ledger = Ledger(folder / "mcp-envelope" / "ledger.db")
    try:
        for _ in range(600):
            if len(ledger.calls()) >= count:
                return
            time.sleep(0.05)
        raise TimeoutError(f"{len(ledger.calls())} calls of {count} in the ledger")
    finally:
        ledger.close()


@contextmanager
def page(folder: Path) -> Iterator[str]:
    """The address that `mcp-envelope ui` prints, while it runs."""
    command = [sys.executable, "-m", "mcp_envelope", "ui", "--no-browser"]
    environ = {**os.environ, "XDG_STATE_HOME": str(folder)}
    process = subprocess.Popen(command, env=environ, cwd=folder, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.communicate(timeout=20)
