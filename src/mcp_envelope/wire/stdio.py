"""Standard input and output: the proxy starts the server, and is to the client what the server would be.

Strategy: two threads, one for each direction, that read whole lines and write them on. Blocking writes are the
back-pressure: nobody reads faster than the other side takes. Only what the proxy itself has to tell the server
is written beside, because whoever reads a server's answers must never wait for that server to read; and what the
proxy reads in the vault is read beside, because it may last and others wait behind it. The server has a process
group of its own; signals go on to it (`signals.py`), its standard error is the proxy's own, and its end is the
proxy's end, code and all. If the proxy is killed, a guard ends the group.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from .beside import Beside
from .guard import Guard, signal_group
from .opening import Opening
from .signals import Signals, until_ended

if TYPE_CHECKING:
    # Loaded while the server starts, not before.
    from .asking import Moves
    from .interceptor import Interceptor
    from .readings import Work

_CHUNK: Final = 1 << 20
# A frame of fewer bytes is written together with its end.
_SMALL: Final = 1 << 16
_PIPE: Final = 1 << 20
# How long a server may take to end after its input was closed, once the client is gone, in seconds.
_PATIENCE: Final = 5.0
# How long the answer to a question of our own is waited for.
_PATIENCE_FOR_LISTS: Final = 10.0
# No reading takes longer, in seconds; the slowest have limits of their own that are below.
_LONGEST: Final = 15.0
_MOMENT: Final = 0.01
_LAST_WORD: Final = getattr(signal, "SIGKILL", signal.SIGTERM)


class CannotStart(Exception):
    """The server's command cannot be run. Says why."""


def lines(descriptor: int) -> Iterator[bytes]:
    """Whole lines, without their ends."""
    return (line for line, _ in lines_and_ends(descriptor))


def lines_and_ends(
    descriptor: int, read: Callable[[int, int], bytes] = os.read
) -> Iterator[tuple[bytes, bytes]]:
    """Whole lines, however long they are, and their ends: the last one may have none."""
    whole: io.BytesIO | None = None
    while chunk := read(descriptor, _CHUNK):
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            if whole is None:
                yield chunk[start:end], b"\n"
            else:
                whole.write(chunk[start:end])
                # The buffer itself, not a copy; nothing here holds on to it while it is worked on.
                line, whole = [whole.getvalue()], None
                yield line.pop(), b"\n"
            start = end + 1
        if start < len(chunk):
            if whole is None:
                whole = io.BytesIO()
            whole.write(chunk[start:] if start else chunk)
    if whole is not None:
        yield whole.getvalue(), b""


class Writer:
    """Whole lines out, from more than one thread."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self.broken = False
        # The last line has no end yet.
        self._open = False
        self._last: threading.Thread | None = None

    def write(self, frames: Sequence[bytes], end: bytes = b"\n") -> None:
        with self._lock:
            for frame in frames:
                if self.broken:
                    return
                try:
                    if self._open:
                        self._all(b"\n")
                    if len(frame) < _SMALL:
                        self._all(frame + end)
                    else:
                        self._all(frame)
                        self._all(end)
                    self._open = not end
                except OSError:
                    # The other side is gone; its reader will find out as well.
                    self.broken = True

    def later(self, frames: Sequence[bytes]) -> None:
        """Write beside whatever else is done, in the order of these calls. For one thread alone."""
        if frames:
            self._last = threading.Thread(target=self._after, args=(self._last, frames), daemon=True)
            self._last.start()

    def _after(self, previous: threading.Thread | None, frames: Sequence[bytes]) -> None:
        if previous is not None:
            previous.join()
        self.write(frames)

    def close(self, patience: float | None = None) -> bool:
        """Close the descriptor once all is written; False if it is not after so many seconds."""
        if self._last is not None:
            self._last.join(patience)
        if not self._lock.acquire(timeout=-1 if patience is None else patience):
            return False
        try:
            if not self.broken:
                os.close(self._descriptor)
            self.broken = True
        finally:
            self._lock.release()
        return True

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
        guard = Guard()
        signals = Signals()
        try:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                # Whatever else the client hands to the server.
                close_fds=False,
                process_group=0 if os.name == "posix" else None,
            )
        except (OSError, ValueError) as error:
            guard.dismiss()
            reason = getattr(error, "strerror", None) or str(error)
            raise CannotStart(f"cannot start {self._command[0]!r}: {reason}") from None
        guard.watch(process.pid)
        signals.go_to(process)
        assert process.stdin is not None
        assert process.stdout is not None
        incoming = os.dup(process.stdout.fileno())
        server = Writer(os.dup(process.stdin.fileno()))
        process.stdin.close()
        process.stdout.close()
        _widen(incoming)
        # The server is starting up meanwhile.
        opening = Opening(self._make, lambda: signal_group(process.pid, _LAST_WORD))
        client = Writer(sys.stdout.fileno())

        def send(moves: Moves) -> None:
            client.write(moves.to_client)
            server.write(moves.to_server)

        beside = Beside(send)
        conversation = _Conversation(opening, client, server, beside)
        threading.Thread(target=conversation.from_client, daemon=True).start()
        conversation.from_server(incoming, until_ended(process))
        interceptor = opening.result()
        if client.broken:
            _end(process, server)
        code = process.wait()
        if not client.broken:
            beside.wait(_LONGEST)
        client.write(interceptor.lost(f"The server ended ({_told(code)}) before it answered."))
        interceptor.close()
        guard.dismiss()
        return code


class _Conversation:
    """The two directions, each in a thread of its own."""

    def __init__(self, opening: Opening, client: Writer, server: Writer, beside: Beside) -> None:
        self._opening = opening
        self._client = client
        self._server = server
        self._beside = beside
        # Held from the moment when an answer sets requests free until they are about to be written.
        self._turn = threading.Lock()

    def from_client(self) -> None:
        opening, client, server = self._opening, self._client, self._server
        interceptor: Interceptor | None = None
        later: list[Work] = []
        with suppress(OSError):
            for line, end in lines_and_ends(sys.stdin.fileno()):
                if interceptor is None:
                    greets = opening.greets(line)
                    if greets:
                        server.write([line], end)
                    interceptor = opening.end()
                    if interceptor is None:
                        return
                    if greets:
                        continue
                to_client, to_server = interceptor.from_client(line, later=later)
                del line
                client.write(to_client)
                self._watch(interceptor, to_server)
                server.write(to_server, end)
                del to_client, to_server
                while later:
                    self._beside.take(later.pop(0))
                while interceptor.is_crowded and not server.broken:
                    time.sleep(_MOMENT)
        # What is read may have to ask the server something.
        self._beside.wait(_LONGEST)
        # What still waits for a list is sent before the server hears that this was all.
        until = time.monotonic() + _PATIENCE
        while interceptor and self._holds(interceptor) and time.monotonic() < until and not server.broken:
            time.sleep(_MOMENT)
        server.close()

    def _holds(self, interceptor: Interceptor) -> bool:
        with self._turn:
            return interceptor.holds_requests

    def from_server(self, incoming: int, read: Callable[[int, int], bytes]) -> None:
        for line, end in lines_and_ends(incoming, read):
            if self._opening.passes(line):
                self._client.write([line], end)
            else:
                interceptor = self._opening.result()
                with self._turn:
                    to_client, to_server = interceptor.from_server(line)
                    self._watch(interceptor, to_server)
                    self._server.later(to_server)
                del line
                self._client.write(to_client, end)
                # A large frame is not held on to until the next one comes.
                del to_client, to_server
            if self._client.broken:
                break

    def _watch(self, interceptor: Interceptor, to_server: Sequence[bytes]) -> None:
        """Something waits for the answer to a question of our own, but not for ever."""
        for frame in to_server:
            if len(frame) < _SMALL and interceptor.owns(frame):
                waits = threading.Timer(_PATIENCE_FOR_LISTS, self._give_up, (interceptor, frame))
                waits.daemon = True
                waits.start()

    def _give_up(self, interceptor: Interceptor, frame: bytes) -> None:
        with self._turn:
            to_client, to_server = interceptor.unanswered(frame)
            self._server.later(to_server)
        self._client.write(to_client)


def _widen(descriptor: int) -> None:
    """A wider pipe, where the system allows it: large frames then take fewer turns."""
    with suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE)


def _told(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"


def _end(process: subprocess.Popen[bytes], server: Writer) -> None:
    """The client is gone: the server is asked to end as a client would ask, then told."""
    if server.close(_PATIENCE):
        with suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE)
            return
    for step in (signal.SIGTERM, _LAST_WORD):
        signal_group(process.pid, step)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE)
            return
