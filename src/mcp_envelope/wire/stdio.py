"""stdio in front of stdio: the proxy starts the server, and is to the client what the server would be.

Strategy: two threads, one for each direction, that read whole lines and write them on. Blocking writes are the
back-pressure: nobody reads faster than the other side takes. The server has a process group of its own; signals
go on to it, its standard error is the proxy's own, and its end is the proxy's end, code and all. A small guard
process waits beside: if the proxy is killed, it ends the group, so that nothing is left behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    # Loaded while the server starts, not before.
    from .interceptor import Interceptor, Moves

_CHUNK: Final = 1 << 20
# How long a server may take to end after its input was closed, once the client is gone, in seconds.
_PATIENCE: Final = 5.0
_PASSED_ON: Final = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGCONT")


class CannotStart(Exception):
    """The server's command cannot be run. Says why."""


def lines(descriptor: int) -> Iterator[bytes]:
    """Whole lines, without their ends, however long they are."""
    parts: list[bytes] = []
    while chunk := os.read(descriptor, _CHUNK):
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            parts.append(chunk[start:end])
            yield b"".join(parts) if len(parts) > 1 else parts[0]
            parts.clear()
            start = end + 1
        if start < len(chunk):
            parts.append(chunk[start:])
    if parts:
        yield b"".join(parts)


class Writer:
    """Whole lines out, from more than one thread."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self.broken = False

    def write(self, frames: Sequence[bytes]) -> None:
        with self._lock:
            for frame in frames:
                if self.broken:
                    return
                try:
                    self._all(frame)
                    self._all(b"\n")
                except OSError:
                    # The other side is gone; its reader will find out as well.
                    self.broken = True

    def _all(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]


class Proxy:
    """`make` gives the interceptor; it is called while the server starts."""

    def __init__(self, command: Sequence[str], make: Callable[[], Interceptor]) -> None:
        self._command = command
        self._make = make

    def run(self) -> int:
        """Serve until the server ends; its exit code, or minus the signal that ended it."""
        guard = _Guard()
        try:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                process_group=0 if os.name == "posix" else None,
            )
        except (OSError, ValueError) as error:
            guard.dismiss()
            reason = getattr(error, "strerror", None) or str(error)
            raise CannotStart(f"cannot start {self._command[0]!r}: {reason}") from None
        guard.watch(process.pid)
        _pass_signals_on(process)
        # The server is starting up meanwhile.
        interceptor = self._make()
        assert process.stdin is not None
        assert process.stdout is not None
        client, server = Writer(sys.stdout.fileno()), Writer(process.stdin.fileno())

        def from_client() -> None:
            for line in lines(sys.stdin.fileno()):
                if line.strip():
                    _send(interceptor.from_client(line), client, server)
            assert process.stdin is not None
            with server._lock:
                server.broken = True
                process.stdin.close()

        threading.Thread(target=from_client, daemon=True).start()
        for line in lines(process.stdout.fileno()):
            if line.strip():
                _send(interceptor.from_server(line), client, server)
            if client.broken:
                break
        if client.broken:
            _end(process)
        code = process.wait()
        said = f"The server ended ({_told(code)}) before it answered."
        client.write(interceptor.lost(said))
        guard.dismiss()
        return code


def _send(moves: Moves, client: Writer, server: Writer) -> None:
    if moves.to_client:
        client.write(moves.to_client)
    if moves.to_server:
        server.write(moves.to_server)


def _told(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """The client is gone: the server is asked to end as a client would ask, then told."""
    if process.stdin is not None:
        process.stdin.close()
    for step in (None, signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
        if step is not None:
            _to_group(process.pid, step)
        try:
            process.wait(_PATIENCE)
            return
        except subprocess.TimeoutExpired:
            continue


def _to_group(pid: int, number: int) -> None:
    try:
        if os.name == "posix":
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _pass_signals_on(process: subprocess.Popen[bytes]) -> None:
    for name in _PASSED_ON:
        number = getattr(signal, name, None)
        if number is not None:
            signal.signal(number, lambda caught, _frame: _to_group(process.pid, caught))


class _Guard:
    """A process of its own that outlives the proxy by a moment, should the proxy be killed."""

    def __init__(self) -> None:
        self._told: int | None = None
        if os.name != "posix":
            return
        listening, self._told = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._told)
            _stand_guard(listening)
        os.close(listening)

    def watch(self, group: int) -> None:
        if self._told is not None:
            os.write(self._told, b"%d\n" % group)

    def dismiss(self) -> None:
        if self._told is not None:
            with suppress(OSError):
                os.write(self._told, b"done\n")
            os.close(self._told)
            self._told = None
            os.waitpid(self._pid, 0)


def _stand_guard(listening: int) -> None:
    """Wait until the proxy says that all is well, or is no more."""
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        heard = b""
        while part := os.read(listening, 64):
            heard += part
        if b"done" not in heard and (group := heard.strip()):
            import time

            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(int(group), number)
                except ProcessLookupError:
                    break
                time.sleep(1.0)
    finally:
        os._exit(0)
