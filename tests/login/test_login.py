"""Logging in at a real authorization server, by way of the command line."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple

import keyring.core
import pytest

from mcp_envelope.cli.main import main

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


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


class _Lines(io.RawIOBase):
    """What is written, line by line as it comes."""

    def __init__(self, heard: Callable[[str], Any]) -> None:
        self._heard = heard

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._heard(bytes(data).decode())
        return len(data)


def run(folder: Path, *arguments: str, **more: str) -> Done:
    """A command in this process: the SDK, which it needs, takes longer to import than the command to run."""
    return _run(folder, arguments, more, lambda said: None)


def _run(
    folder: Path, arguments: tuple[str, ...], more: dict[str, str], heard: Callable[[str], None]
) -> Done:
    said: list[str] = []

    def note(text: str) -> None:
        said.append(text)
        heard(text)

    errors = io.StringIO()
    with pytest.MonkeyPatch.context() as here, io.TextIOWrapper(io.BufferedWriter(_Lines(note))) as output:
        here.setattr(os, "environ", {**programs.environment(folder, **more)})
        here.setattr(sys, "stdin", io.StringIO())
        here.setattr(sys, "stdout", output)
        here.setattr(sys, "stderr", errors)
        keyring.core.init_backend()
        try:
            code = main([*arguments])
        except SystemExit as end:
            code = int(end.code or 0)
    return Done(code, "".join(said), errors.getvalue())


def log_in(
    folder: Path,
    url: str,
    *options: str,
    open_: Callable[[str], Any] = sites.logged_in,
    env: dict[str, str] | None = None,
) -> tuple[int, str]:
    """A login, and a person who opens the address that it names."""
    with ThreadPoolExecutor(1) as person:
        opening: list[Future[Any]] = []
        done = _run(
            folder,
            ("login", url, "--no-browser", *options),
            env or {},
            lambda said: opening.append(person.submit(open_, said.strip())),
        )
        for each in opening:
            each.result()
    return done.returncode, done.stderr


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
