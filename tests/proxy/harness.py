"""What the tests of the wire share: a conversation in memory, and the proxy as a process between two ends.

Strategy: most is tried on the interceptor alone, which does no I/O. What belongs to processes runs as real ones,
each in a state folder of its own; whoever starts one here also ends it, by its id.
"""

from __future__ import annotations

import fcntl
import json
import os
import queue
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mcp_envelope.budget import Budget
from mcp_envelope.config import Settings
from mcp_envelope.gateway import Gateway
from mcp_envelope.proxy.interceptor import Interceptor
from mcp_envelope.vault.ledger import Ledger
from mcp_envelope.vault.vault import Vault
from tests.shown import shown

HERE = Path(__file__).parent
OBLIGING = (sys.executable, str(HERE / "obliging.py"))
SRC = str(HERE.parents[1] / "src")
PATIENCE = 30.0
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
NOTICE = "io.github.mcp-envelope/notice"
ROWS: dict[str, Any] = {
    "type": "object",
    "properties": {"rows": {"type": "array", "items": {"type": "object"}}, "total": {"type": "integer"}},
    "required": ["rows", "total"],
    "additionalProperties": False,
}


def frame(message: Any) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()


def request(identifier: Any, method: str, **params: Any) -> bytes:
    return frame({"jsonrpc": "2.0", "id": identifier, "method": method, "params": params})


def call(identifier: Any, tool: str, arguments: Any = None, **more: Any) -> bytes:
    return request(identifier, "tools/call", name=tool, arguments=arguments or {}, **more)


def result(identifier: Any, **members: Any) -> bytes:
    return frame({"jsonrpc": "2.0", "id": identifier, "result": members})


def texts(*said: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": words} for words in said]


def typed(data: Any) -> dict[str, Any]:
    return {"content": texts(json.dumps(data)), "structuredContent": data}


def rows(count: int) -> dict[str, Any]:
    return {"rows": [{"id": n, "name": f"row number {n}"} for n in range(count)], "total": count}


def tool(name: str, output: Any = None, **properties: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": name, "inputSchema": {"type": "object", "properties": properties}}
    return entry if output is None else {**entry, "outputSchema": output}


def count(value: Any, unit: str = "tokens") -> int:
    """What a lane uses, as a model gets it: `content` is a list, `structuredContent` is not."""
    budget = Budget.of(tokens=128) if unit == "tokens" else Budget.of(max_bytes=512)
    return budget.meter.count(shown(value) if isinstance(value, list) else frame(value))


class Talk:
    """A conversation through an interceptor. `tokens` is the budget."""

    def __init__(
        self,
        folder: Path,
        tokens: int = 400,
        *,
        observe: bool = False,
        ledger: Ledger | bool = False,
        vault: Vault | str | None = None,
        settings: Settings | None = None,
        **environ: str,
    ) -> None:
        named = {f"MCP_ENVELOPE_{name}": value for name, value in environ.items()}
        settings = settings or Settings(None, {"MCP_ENVELOPE_TOKENS": str(tokens), **named}, start=folder)
        self.gateway = Gateway(settings, vault=vault or str(folder / "vault.db"), ledger=ledger)
        self.wire = Interceptor(self.gateway, observe=observe)
        self.tokens = tokens

    def send(self, data: bytes) -> tuple[list[bytes], list[bytes]]:
        """From the client: what goes back to it, what goes on to the server."""
        return self.wire.from_client(data)

    def reply(self, data: bytes) -> tuple[list[bytes], list[bytes]]:
        """From the server: what goes on to the client, what goes back to it."""
        return self.wire.from_server(data)

    def meet(self, name: str) -> None:
        hello = request(0, "initialize", clientInfo={"name": name, "version": "1"}, capabilities={})
        self.send(hello)
        self.reply(result(0, capabilities={}))

    def listed(self, *tools: dict[str, Any], identifier: Any = "list") -> list[dict[str, Any]]:
        """The tools as the client is told of them."""
        self.send(request(identifier, "tools/list"))
        [shown], _ = self.reply(result(identifier, tools=list(tools)))
        entries: list[dict[str, Any]] = json.loads(shown)["result"]["tools"]
        return entries

    def called(self, name: str, answer: dict[str, Any], arguments: Any = None, identifier: Any = 7) -> Any:
        """The result of a call, as the client gets it."""
        self.send(call(identifier, name, arguments))
        [shown], _ = self.reply(result(identifier, **answer))
        return json.loads(shown)["result"]

    def read(self, handle: str, **arguments: Any) -> Any:
        [shown], onward = self.send(call("read", "envelope_read", {"handle": handle, **arguments}))
        assert not onward
        return json.loads(shown)["result"]

    def read_all(self, handle: str, path: str = "") -> str:
        return read_all(lambda **asked: self.read(handle, **asked), path)


def read_all(read: Callable[..., Any], path: str = "") -> str:
    """The text at a path, put together from its pages."""
    parts: list[str] = []
    offset = 0
    while True:
        page = read(path=path, offset=offset)
        assert not page.get("isError"), page
        parts.append(page["content"][-1]["text"])
        cuts = page.get("_meta", {}).get(NOTICE, {}).get("dropped", [])
        if not cuts:
            return "".join(parts)
        assert cuts[0]["offset"] == offset + len(parts[-1])
        offset = cuts[0]["offset"]


# -- processes ----------------------------------------------------------------------------------------------


def environment(folder: Path, **more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MCP_ENVELOPE_")}
    return {
        **kept,
        "PYTHONPATH": SRC,
        "XDG_STATE_HOME": str(folder / "state"),
        "MCP_ENVELOPE_VAULT": str(folder / "vault.db"),
        **more,
    }


class Running:
    """A process that speaks in lines. What it says is read as it comes, so that it never has to wait for us."""

    def __init__(self, process: subprocess.Popen[bytes], reading: bool = True) -> None:
        self.process = process
        self.pid = process.pid
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        if reading:
            threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def say(self, data: bytes) -> None:
        self.send(data + b"\n")

    def hear(self, patience: float | None = None) -> bytes:
        """The next line, its end included; nothing at the end of all lines."""
        return self._lines.get(timeout=PATIENCE if patience is None else patience)

    def ask(self, data: bytes) -> Any:
        self.say(data)
        return json.loads(self.hear())

    def end_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def wait(self) -> int:
        return self.process.wait(PATIENCE)


def until(true: Callable[[], bool], patience: float = PATIENCE) -> bool:
    end = time.monotonic() + patience
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def is_stuck(pipe: Any) -> bool:
    """Whether whoever writes into a pipe waits for us: it stays as full as it is."""

    def waiting() -> int:
        return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)

    before = waiting()
    time.sleep(0.3)
    return 0 < before == waiting()


def proxied(*server: str, options: tuple[str, ...] = ()) -> list[str]:
    return [sys.executable, "-m", "mcp_envelope", "proxy", *options, "--", *server]


@contextmanager
def started(
    command: list[str],
    folder: Path,
    *,
    reading: bool = True,
    err: Any = subprocess.DEVNULL,
    group: int | None = None,
    **environ: str,
) -> Iterator[Running]:
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=err,
        cwd=folder,
        env=environment(folder, **environ),
        process_group=group,
    )
    running = Running(process, reading)
    try:
        yield running
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()


@contextmanager
def obliging(folder: Path, *options: str, **more: Any) -> Iterator[Running]:
    """The proxy in front of a server that does what calls say."""
    with started(proxied(*OBLIGING, options=options), folder, **more) as proxy:
        yield proxy
