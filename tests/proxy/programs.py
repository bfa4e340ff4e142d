"""The proxy as people run it: a program, on standard input and output or listening on a port.

Everything that it keeps is in a folder of the test. Programs are ended when the `with` block is, whatever happens.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import msgspec
from mcp.client.stdio import StdioServerParameters

_ROOT = Path(__file__).resolve().parents[2]
_START = 30.0


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Without what the surroundings say of settings and of ways through a network."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("MCP_ENVELOPE_") and not name.lower().endswith("_proxy")
    }
    kept = {"XDG_STATE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "MCP_ENVELOPE_TOKENS": "2000"}
    found = {**clean, **kept, **more}
    # What is said to be nothing is not there.
    return {name: value for name, value in found.items() if value}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "mcp_envelope", "proxy", *arguments]


def parameters(folder: Path, *arguments: str, **more: str) -> StdioServerParameters:
    """For the SDK's client, which starts the program itself."""
    program, *rest = command("--vault", str(folder / "vault.db"), *arguments)
    return StdioServerParameters(command=program, args=rest, env=environment(folder, **more), cwd=folder)


@contextlib.contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


class Listening:
    """A proxy on a port of its own; its words go to a file."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log
        self.url = self._found()

    @property
    def words(self) -> str:
        return self._log.read_text()

    def _found(self) -> str:
        until = time.monotonic() + _START
        while time.monotonic() < until and self.process.poll() is None:
            for line in self.words.splitlines():
                if "listening on " in line:
                    return line.partition("listening on ")[2].partition(",")[0]
            time.sleep(0.02)
        raise AssertionError(f"it does not listen: {self.words}")


def is_gone(pid: int) -> bool:
    """Whether a process has ended, or does so within a while."""
    until = time.monotonic() + _START
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


@contextlib.contextmanager
def listening(
    folder: Path, name: str, *arguments: str, command: str = "proxy", **more: str
) -> Iterator[Listening]:
    log = folder / f"{name}.log"
    with log.open("wb") as words:
        process = subprocess.Popen(
            [sys.executable, "-m", "mcp_envelope", command, "--listen", "127.0.0.1:0", *arguments],
            cwd=folder,
            env=environment(folder, **more),
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
        )
    with ended(process):
        yield Listening(process, log)


@contextlib.contextmanager
def server(folder: Path, kind: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """The server in `sdk` as a program, once it listens."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.proxy.sdk", str(port), kind],
        cwd=_ROOT,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with ended(process):
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process


class Talking:
    """The proxy on standard input and output; lines are messages."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        # Whether it stops to listen after the next line.
        self.deaf = False
        self._lines: Queue[bytes] = Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(ValueError, OSError):
            for line in self.process.stdout:
                self._lines.put(line)
                if self.deaf:
                    self.process.stdout.close()

    def say(self, *messages: Any) -> None:
        assert self.process.stdin is not None
        for message in messages:
            data = message if isinstance(message, bytes) else msgspec.json.encode(message)
            self.process.stdin.write(data + b"\n")
        self.process.stdin.flush()

    def hear(self, seconds: float = 60.0) -> Any:
        """The next message."""
        try:
            return msgspec.json.decode(self._lines.get(timeout=seconds))
        except Empty:
            raise AssertionError(f"nothing was said; {self.process.poll()=}") from None

    def ask(self, message: Any) -> Any:
        self.say(message)
        while True:
            heard = self.hear()
            if heard.get("id") == message["id"]:
                return heard

    def hears_nothing(self, seconds: float) -> bool:
        time.sleep(seconds)
        return self._lines.empty()

    def close(self) -> int:
        """The client closes its end; the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(15)


@contextlib.contextmanager
def bridge(folder: Path, url: str, *arguments: str, **more: str) -> Iterator[Talking]:
    process = subprocess.Popen(
        command("--vault", str(folder / "vault.db"), "--url", url, *arguments),
        cwd=folder,
        env=environment(folder, **more),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with ended(process):
        yield Talking(process)
