"""The ways to the fixture server: directly, through `mcp-envelope proxy`, through FastMCP's proxy.

Strategy: every route has a fixture server of its own, so that what one run does is not seen by another. All are
processes on loopback that end with the `with` block, whatever happens in it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from tests.ports import free_port
from tests.warm import warm

_ROOT: Final = Path(__file__).resolve().parents[2]
# How long a process may take to listen, and to end when it is asked to, in seconds.
_START: Final = 60.0
_END: Final = 10.0

Route = Callable[[Path], AbstractContextManager[str]]


@contextmanager
def direct(folder: Path) -> Iterator[str]:
    port = free_port()
    with _running("server", [*warm("tests.conformance.server", str(port))], port, folder):
        yield f"http://127.0.0.1:{port}/mcp"


@contextmanager
def through_us(folder: Path) -> Iterator[str]:
    port = free_port()
    program = [sys.executable, "-m", "mcp_envelope", "proxy", "--vault", str(folder / "vault")]
    with direct(folder) as url:
        command = [*program, "--listen", f"127.0.0.1:{port}", "--url", url]
        with _running("proxy", command, port, folder):
            yield f"http://127.0.0.1:{port}/mcp"


@contextmanager
def through_gateway(folder: Path) -> Iterator[str]:
    """As one of three servers of a gateway, with names as they are."""
    port = free_port()
    with direct(folder) as url:
        servers: dict[str, dict[str, object]] = {
            "fixture": {"url": url},
            "git": _entry("mcp_server_git"),
            "time": _entry("mcp_server_time"),
        }
        file = folder / "servers.json"
        file.write_text(json.dumps({"mcpServers": servers}))
        options = ["--names", "short", "--vault", str(folder / "vault"), "--listen", f"127.0.0.1:{port}"]
        command = [sys.executable, "-m", "mcp_envelope", "gateway", str(file), *options]
        with _running("gateway", command, port, folder):
            yield f"http://127.0.0.1:{port}/mcp"


def _entry(module: str) -> dict[str, object]:
    command, *arguments = warm(module)
    return {"command": command, "args": arguments}


@contextmanager
def through_fastmcp(folder: Path) -> Iterator[str]:
    port = free_port()
    with direct(folder) as url:
        command = [sys.executable, "-m", "tests.conformance.rival", url, str(port)]
        with _running("rival", command, port, folder):
            yield f"http://127.0.0.1:{port}/mcp"


@contextmanager
def _running(name: str, command: list[str], port: int, folder: Path) -> Iterator[None]:
    """The process, from when it listens until the block ends."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MCP_ENVELOPE_")}
    said = folder / f"{name}.log"
    with said.open("wb") as log:
        process = subprocess.Popen(
            command, cwd=_ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            _wait(process, port, said)
            yield
        finally:
            process.terminate()
            try:
                process.wait(_END)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(_END)


def _wait(process: subprocess.Popen[bytes], port: int, said: Path) -> None:
    deadline = time.monotonic() + _START
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"{process.args!r} does not listen:\n{said.read_text()[-2000:]}")
