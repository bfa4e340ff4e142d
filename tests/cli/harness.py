"""What the tests of the commands share: running one, in this process or as one, and what came out.

Strategy: most paths run `main()` in this process, with the streams caught at the file descriptors, because
that is the same code and takes milliseconds. Whatever belongs to the process itself runs as a real one.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from mcp_envelope.cli.main import main

from ..shown import shown

REPOSITORY = Path(__file__).parents[2]
SRC = str(REPOSITORY / "src")
COMMAND = [sys.executable, "-m", "mcp_envelope"]


class Outcome(NamedTuple):
    code: int
    out: bytes
    err: str

    @property
    def result(self) -> Any:
        assert self.out.endswith(b"\n")
        assert self.out.count(b"\n") == 1
        return json.loads(self.out)

    def lane(self, name: str) -> bytes:
        """The lane's bytes as they stand on the wire."""
        return bytes(msgspec.json.decode(self.out, type=dict[str, msgspec.Raw])[name])

    def shown(self, name: str) -> bytes:
        """The lane as a model gets it."""
        return shown(self.lane(name)) if name == "content" else self.lane(name)

    @property
    def notice(self) -> Any:
        return self.result["_meta"]["io.github.mcp-envelope/notice"]


Run = Callable[..., Outcome]


def runner(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[bytes]
) -> Run:
    """Runs a command in a folder; `stdin` is what is piped in."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("NO_COLOR", raising=False)

    def go(*arguments: str, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        code = main([command, *arguments])
        out, err = capture.readouterr()
        return Outcome(code, out, err.decode())

    return go


def environment(**changes: str | None) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "PYTHONIOENCODING")}
    merged = {**kept, "PYTHONPATH": SRC, **changes}
    return {key: value for key, value in merged.items() if value is not None}


def process(*arguments: str, stdin: bytes = b"", **env: str | None) -> Outcome:
    done = subprocess.run(
        [*COMMAND, *arguments],
        input=stdin,
        capture_output=True,
        env=environment(**env),
        timeout=60,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr.decode())


def at_terminal(
    command: list[str],
    folder: Path,
    *,
    answer: bytes = b"",
    until: bytes = b"end it with Ctrl-D",
    **env: str | None,
) -> tuple[int, str]:
    """Run with a terminal on all three streams; what it showed. What waits for a payload is interrupted."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env=environment(TERM="xterm", **env),
        # In a background job interrupts are ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as started:
        os.close(theirs)
        limit = threading.Timer(60, started.kill)
        limit.start()
        again = threading.Timer(5, started.send_signal, [signal.SIGINT])
        shown = b""
        try:
            while chunk := os.read(ours, 65536):
                shown += chunk
                if until in shown:
                    started.send_signal(signal.SIGINT)
                    # Once more, as a person would: Python may have been where it only reports an interrupt.
                    if again.ident is None:
                        again.start()
                if answer and b"[y/N] " in shown:
                    os.write(ours, answer)
                    answer = b""
        except OSError:
            pass  # Linux says so when the last writer has gone
        code = started.wait()
        limit.cancel()
        again.cancel()
    os.close(ours)
    return code, shown.decode()


def unprivileged(*arguments: str, stdin: bytes = b"", **env: str | None) -> Outcome:
    """A process that permissions bind, also where the tests run as root: it may do only what modes allow."""

    def give_up() -> None:
        # PR_CAPBSET_DROP of CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: gone with the next program.
        for capability in (1, 2):
            if ctypes.CDLL(None).prctl(24, capability, 0, 0, 0):
                os._exit(77)

    done = subprocess.run(
        [*COMMAND, *arguments],
        input=stdin,
        capture_output=True,
        env=environment(**env),
        timeout=60,
        check=False,
        preexec_fn=give_up if os.geteuid() == 0 else None,
    )
    if done.returncode == 77:
        pytest.skip("root cannot give up its privileges here")
    return Outcome(done.returncode, done.stdout, done.stderr.decode())
