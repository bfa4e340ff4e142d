"""Logging in at a real authorization server, by way of the command line."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from ..proxy import programs
from . import sites
from .sites import Site


class LoggingIn:
    """`mcp-envelope login --no-browser` as a process."""

    def __init__(self, folder: Path, url: str, *options: str, **more: str) -> None:
        command = programs.command()[:-1]
        self.process = subprocess.Popen(
            [*command, "login", url, "--no-browser", *options],
            cwd=folder,
            env=programs.environment(folder, **more),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: Queue[str] = Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def address(self) -> str:
        """What it wants to be opened; nothing if it ended before."""
        return self._lines.get(timeout=30).strip()

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end(self) -> tuple[int, str]:
        """The exit code, and what it said to the person."""
        assert self.process.stderr is not None
        words = self.process.stderr.read()
        return self.process.wait(30), words


@contextmanager
def logging_in(folder: Path, url: str, *options: str, **more: str) -> Iterator[LoggingIn]:
    started = LoggingIn(folder, url, *options, **more)
    with programs.ended(started.process):  # type: ignore[arg-type]
        yield started


def log_in(
    folder: Path,
    url: str,
    *options: str,
    open_: Callable[[str], Any] = sites.logged_in,
    env: dict[str, str] | None = None,
) -> tuple[int, str]:
    with logging_in(folder, url, *options, **(env or {})) as started:
        if address := started.address():
            open_(address)
        return started.end()


def run(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = programs.command()[:-1]
    return subprocess.run(
        [*command, *arguments],
        cwd=folder,
        env=programs.environment(folder, **more),
        capture_output=True,
        text=True,
        timeout=60,
    )


def status(folder: Path, **more: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run(folder, "status", "--json", **more).stdout)
    return found


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with sites.site() as found:
        yield found


def test_a_login(site: Site, tmp_path: Path) -> None:
    code, words = log_in(tmp_path, site.url)
    assert code == 0, words
    [login] = status(tmp_path)
    assert login["url"] == site.url
    assert login["state"] == "good"
    assert login["issuer"] == site.issuer
    assert login["scope"] == "read"
    asked = site.provider.asked[-1]
    assert asked.resource == site.url
    assert asked.code_challenge
