"""The server's process: signals that reach it, its end, and what happens if the proxy is killed.

Strategy: the proxy listens for signals before it starts the server, so that no signal ends the proxy alone. They
go through a pipe to a thread that forwards them to the server's process group, whatever the main thread is doing.
When the server ends, the proxy ends too, even if a child of the server still holds its output, and after a signal
even if the client has stopped reading. A guard process, forked before anything else is loaded, outlives the
proxy: if its pipe closes without a farewell, the proxy was killed, and the guard ends the servers' groups.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

KILL: Final = getattr(signal, "SIGKILL", signal.SIGTERM)
_ENDING: Final = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
_FORWARDED: Final = (*_ENDING, "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGCONT")
# Seconds after the server's end in which its children may still write, and pending writes may finish.
_GRACE: Final = 1.0
_FAREWELL: Final = b"done"
# How often the guard checks, in seconds, and how many times before the next, harsher step.
_INTERVAL: Final = 0.05
_CHECKS: Final = 20


def signal_group(group: int, number: int) -> bool:
    """Send a signal to a process group; False if there is nobody to receive it."""
    try:
        if os.name == "posix":
            os.killpg(group, number)
        else:
            os.kill(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


class ProcessGuard:
    """The process that ends the servers' groups if the proxy is killed. Start it before any thread."""

    def __init__(self) -> None:
        self._pipe: int | None = None
        if os.name != "posix":
            return
        listening, self._pipe = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._pipe)
            _stand_guard(listening)
        os.close(listening)

    def watch(self, group: int) -> None:
        self._tell(b"%d\n" % group)

    def forget(self, group: int) -> None:
        """The group has ended."""
        self._tell(b"-%d\n" % group)

    def _tell(self, line: bytes) -> None:
        if self._pipe is not None:
            with suppress(OSError):
                os.write(self._pipe, line)

    def dismiss(self) -> None:
        if self._pipe is not None:
            with suppress(OSError):
                os.write(self._pipe, _FAREWELL + b"\n")
            os.close(self._pipe)
            self._pipe = None
            with suppress(ChildProcessError):
                os.waitpid(self._pid, 0)


def _stand_guard(listening: int) -> None:
    """Wait in the forked process until the proxy says farewell, or is gone."""
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        # Descriptors that were meant for the server must not stay open here.
        os.closerange(3, listening)
        os.closerange(listening + 1, os.sysconf("SC_OPEN_MAX"))
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        groups: set[int] = set()
        heard = b""
        while part := os.read(listening, 1 << 12):
            *lines, heard = (heard + part).split(b"\n")
            for line in lines:
                if line == _FAREWELL:
                    return
                group = int(line)
                (groups.add if group > 0 else groups.discard)(abs(group))
        # The servers' input has ended, so they may end by themselves.
        for step in (0, int(signal.SIGTERM), int(KILL)):
            groups = {group for group in groups if signal_group(group, step)}
            for _ in range(_CHECKS if groups else 0):
                time.sleep(_INTERVAL)
                groups = {group for group in groups if signal_group(group, 0)}
    finally:
        os._exit(0)


class Signals:
    """Signals to the proxy, forwarded to the server."""

    def __init__(self) -> None:
        self._numbers = [getattr(signal, name) for name in _FORWARDED if hasattr(signal, name)]
        self._is_leaving = False
        if os.name == "posix":
            self._caught, wakeup = os.pipe()
            os.set_blocking(wakeup, False)
            signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
            for number in self._numbers:
                signal.signal(number, self._handle)

    def _handle(self, number: int, _frame: object) -> None:
        # Usually there is nothing to do: the wakeup pipe already has the number.
        if self._is_leaving:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def forward_to(self, process: subprocess.Popen[bytes]) -> None:
        if os.name == "posix":
            threading.Thread(target=self._forward, args=(process,), daemon=True).start()
            return
        for number in self._numbers:
            signal.signal(number, lambda caught, _frame: signal_group(process.pid, caught))

    def _forward(self, process: subprocess.Popen[bytes]) -> None:
        while caught := os.read(self._caught, 64):
            for number in caught:
                signal_group(process.pid, number)
                if not self._is_leaving:
                    threading.Thread(target=self._follow, args=(process, number), daemon=True).start()

    def _follow(self, process: subprocess.Popen[bytes], number: int) -> None:
        """End the proxy if the signal ended the server, unless it gets there by itself within a moment.

        It may be blocked in a write to a client that doesn't read.
        """
        code = process.wait()
        if code != -number and signal.Signals(number).name not in _ENDING:
            return
        time.sleep(_GRACE)
        main = threading.main_thread().ident
        if code != -number or main is None:
            os._exit(code if code >= 0 else 128 - code)
        self._is_leaving = True
        # This interrupts the write. Only the main thread can die of the signal.
        signal.pthread_kill(main, number)


def reader_until_exit(process: subprocess.Popen[bytes]) -> Callable[[int, int], bytes]:
    """A function like `os.read` that ends when the process does, even if others still hold the pipe."""
    if not hasattr(select, "poll"):
        return os.read
    exited, closes_on_exit = os.pipe()

    def wait() -> None:
        process.wait()
        os.close(closes_on_exit)

    threading.Thread(target=wait, daemon=True).start()
    poll = select.poll()
    poll.register(exited)
    is_over = False

    def read(descriptor: int, size: int) -> bytes:
        nonlocal is_over
        poll.register(descriptor, select.POLLIN)
        if not is_over:
            is_over = descriptor not in dict(poll.poll())
            if is_over:
                poll.unregister(exited)
        return os.read(descriptor, size) if not is_over or poll.poll(_GRACE * 1000) else b""

    return read


def describe_exit(code: int) -> str:
    """An exit code as `Popen` has it, in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"
