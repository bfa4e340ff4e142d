"""The proxy on standard input and output: it starts the server and takes its place in front of the client.

Strategy: two threads, one per direction, read whole lines and write them on. Blocking writes are the back-
pressure: neither side reads faster than the other accepts. Two things get threads of their own. The proxy's own
requests to the server, because whoever reads the server's responses must never wait for that server to read; and
reads from the vault, because they may take a while and other requests wait behind them. The server runs in its
own process group with the proxy's standard error, and when it ends, the proxy ends with its exit code
(`processes.py`).

The client's `initialize`, and all that the server sends before it gets another request, need nothing of ours. They
pass at once while the interceptor is still loading, and are shown to it later, so the proxy starts in a blink.
"""

from __future__ import annotations

import gc
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

from .processes import KILL, ProcessGuard, Signals, describe_exit, reader_until_exit, signal_group

if TYPE_CHECKING:
    # Loaded while the server starts, not before.
    from .frames import Outgoing
    from .interceptor import Interceptor
    from .reads import Work

_CHUNK: Final = 1 << 20
# A frame of fewer bytes is written together with its newline.
_SMALL: Final = 1 << 16
_PIPE: Final = 1 << 20
# Seconds that a server may take to end once its client is gone and its input closed.
_PATIENCE: Final = 5.0
# Seconds to wait for the response to a request of our own.
_PATIENCE_FOR_LISTS: Final = 10.0
# Seconds that no read from the vault exceeds; the slowest have lower limits of their own.
_LONGEST_READ: Final = 15.0
_MOST_READS: Final = 16
# No `initialize` request is longer.
_LONGEST_INITIALIZE: Final = 1 << 16
_MOMENT: Final = 0.01


class CannotStart(Exception):
    """The server's command cannot be run; the message says why."""


class Proxy:
    """Serves one client. `make` returns the interceptor; it is called while the server starts."""

    def __init__(self, command: Sequence[str], make: Callable[[], Interceptor]) -> None:
        self._command = command
        self._make = make

    def run(self) -> int:
        """Serve until the server ends; return its exit code, or minus the signal that ended it."""
        guard = ProcessGuard()
        signals = Signals()
        try:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                # The client may hand more descriptors to the server.
                close_fds=False,
                process_group=0 if os.name == "posix" else None,
            )
        except (OSError, ValueError) as error:
            guard.dismiss()
            reason = getattr(error, "strerror", None) or str(error)
            raise CannotStart(f"cannot start {self._command[0]!r}: {reason.lower()}") from error
        guard.watch(process.pid)
        signals.forward_to(process)
        assert process.stdin is not None
        assert process.stdout is not None
        incoming = os.dup(process.stdout.fileno())
        server = Writer(os.dup(process.stdin.fileno()))
        process.stdin.close()
        process.stdout.close()
        _widen(incoming)
        # The server is starting up meanwhile.
        startup = Startup(self._make, lambda: signal_group(process.pid, KILL))
        client = Writer(sys.stdout.fileno())
        relay = _Relay(startup, client, server)
        threading.Thread(target=relay.from_client, daemon=True).start()
        relay.from_server(incoming, reader_until_exit(process))
        interceptor = startup.result()
        if client.is_broken:
            _end(process, server)
        code = process.wait()
        if not client.is_broken:
            relay.reads.wait(_LONGEST_READ)
        client.write(interceptor.lost(f"The server ended ({describe_exit(code)}) before it answered."))
        interceptor.close()
        guard.dismiss()
        return code


def _widen(descriptor: int) -> None:
    """Widen a pipe, where the system allows it: large frames then take fewer turns."""
    with suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE)


def _end(process: subprocess.Popen[bytes], server: Writer) -> None:
    """End the server after its client is gone: close its input as a client would, then insist."""
    if server.close(_PATIENCE):
        with suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE)
            return
    for step in (signal.SIGTERM, KILL):
        signal_group(process.pid, step)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE)
            return


class _Relay:
    """The two directions, each in a thread of its own."""

    def __init__(self, startup: Startup, client: Writer, server: Writer) -> None:
        self._startup = startup
        self._client = client
        self._server = server
        self.reads = Background(self._send)
        # Held from the moment a response releases waiting requests until they are about to be written.
        self._turn = threading.Lock()

    def _send(self, outgoing: Outgoing) -> None:
        self._client.write(outgoing.to_client)
        self._server.write(outgoing.to_server)

    def from_client(self) -> None:
        startup, client, server = self._startup, self._client, self._server
        interceptor: Interceptor | None = None
        later: list[Work] = []
        with suppress(OSError):
            for line, end in lines_and_ends(sys.stdin.fileno()):
                if interceptor is None:
                    passes = startup.takes_first(line)
                    if passes:
                        server.write([line], end)
                    interceptor = startup.finish()
                    if interceptor is None:
                        return
                    if passes:
                        continue
                to_client, to_server = interceptor.from_client(line, later=later)
                del line
                client.write(to_client)
                self._watch(interceptor, to_server)
                server.write(to_server, end)
                del to_client, to_server
                while later:
                    self.reads.start(later.pop(0))
                while interceptor.list_requests.is_crowded and not server.is_broken:
                    time.sleep(_MOMENT)
        # A read may turn out to be a request for the server.
        self.reads.wait(_LONGEST_READ)
        # What waits for a tool list is sent before the server's input ends.
        until = time.monotonic() + _PATIENCE
        while interceptor and self._holds(interceptor) and time.monotonic() < until and not server.is_broken:
            time.sleep(_MOMENT)
        server.close()

    def _holds(self, interceptor: Interceptor) -> bool:
        with self._turn:
            return interceptor.list_requests.holds_requests

    def from_server(self, incoming: int, read: Callable[[int, int], bytes]) -> None:
        for line, end in lines_and_ends(incoming, read):
            if self._startup.passes(line):
                self._client.write([line], end)
            else:
                interceptor = self._startup.result()
                with self._turn:
                    to_client, to_server = interceptor.from_line(line)
                    self._watch(interceptor, to_server)
                    self._server.write_later(to_server)
                del line
                self._client.write(to_client, end)
                # Large frames are released before the next line arrives.
                del to_client, to_server
            if self._client.is_broken:
                break

    def _watch(self, interceptor: Interceptor, to_server: Sequence[bytes]) -> None:
        """Limit how long a request of our own waits for its response: others wait for it."""
        for frame in to_server:
            if len(frame) < _SMALL and interceptor.list_requests.owns(frame):
                timer = threading.Timer(_PATIENCE_FOR_LISTS, self._give_up, (interceptor, frame))
                timer.daemon = True
                timer.start()

    def _give_up(self, interceptor: Interceptor, frame: bytes) -> None:
        with self._turn:
            to_client, to_server = interceptor.list_requests.unanswered(frame)
            self._server.write_later(to_server)
        self._client.write(to_client)


class Startup:
    """The frames that pass before the interceptor is loaded. `give_up` is called if it cannot be."""

    def __init__(self, make: Callable[[], Interceptor], give_up: Callable[[], object]) -> None:
        self._make = make
        self._give_up = give_up
        self._interceptor: Interceptor | None = None
        self._error: BaseException | None = None
        self._loaded = threading.Event()
        self._lock = threading.Lock()
        self._initialize: bytes | None = None
        self._heard: list[bytes] = []
        self._over = threading.Event()
        threading.Thread(target=self._load, daemon=True).start()

    def _load(self) -> None:
        # Modules stay for good: looking for garbage among them only takes time.
        gc.disable()
        try:
            self._interceptor = self._make()
        except BaseException as error:
            # Raised by `result`, where the proxy runs.
            self._error = error
            self._give_up()
        finally:
            gc.enable()
            self._loaded.set()

    def takes_first(self, line: bytes) -> bool:
        """Whether the client's first line is an `initialize` request, which can pass at once."""
        if len(line) > _LONGEST_INITIALIZE or not _is_initialize(line):
            return False
        self._initialize = line
        return True

    def passes(self, line: bytes) -> bool:
        """Whether a line from the server can pass at once, because no other request was sent yet."""
        with self._lock:
            if self._over.is_set():
                return False
            if self._initialize is not None:
                self._heard.append(line)
            return True

    def finish(self) -> Interceptor | None:
        """Wait for the interceptor and show it what has passed; None if it cannot be loaded.

        Call it before anything else is sent to the server: from now on everything goes through the interceptor.
        """
        self._loaded.wait()
        if self._interceptor is not None:
            with self._lock:
                if self._initialize is not None:
                    self._interceptor.from_client(self._initialize)
                for line in self._heard:
                    self._interceptor.from_line(line)
                self._heard.clear()
                self._over.set()
        return self._interceptor

    def result(self) -> Interceptor:
        """Return the interceptor, or raise what went wrong."""
        self._loaded.wait()
        if self._error is not None:
            raise self._error
        assert self._interceptor is not None
        if self._initialize is not None:
            self._over.wait()
        return self._interceptor


def _is_initialize(line: bytes) -> bool:
    if b"initialize" not in line:
        return False
    import json

    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(message, dict) and message.get("method") == "initialize"


class Background:
    """A few threads at a time for work that would hold up the conversation; `send` gets the results.

    A thread for each piece of work, since they are rare. Work counts as running until its result is sent, so that
    nothing is lost once `wait` returns True.
    """

    def __init__(self, send: Callable[[Outgoing], None]) -> None:
        self._send = send
        self._changed = threading.Condition()
        self._running = 0

    def start(self, work: Work) -> None:
        """Start a piece of work; blocks while too many are running, which is the back-pressure."""
        with self._changed:
            self._changed.wait_for(lambda: self._running < _MOST_READS)
            self._running += 1
        threading.Thread(target=self._run, args=(work,), daemon=True).start()

    def _run(self, work: Work) -> None:
        try:
            self._send(work())
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def wait(self, patience: float) -> bool:
        """Wait until nothing is running; False if nothing finishes for `patience` seconds."""
        with self._changed:
            while self._running:
                if not self._changed.wait(patience):
                    return False
        return True


class Writer:
    """Writes whole lines, from more than one thread."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self.is_broken = False
        # Whether the last line still lacks its newline.
        self._is_open = False
        self._last: threading.Thread | None = None

    def write(self, frames: Sequence[bytes], end: bytes = b"\n") -> None:
        with self._lock:
            for frame in frames:
                if self.is_broken:
                    return
                try:
                    if self._is_open:
                        self._write_all(b"\n")
                    if len(frame) < _SMALL:
                        self._write_all(frame + end)
                    else:
                        self._write_all(frame)
                        self._write_all(end)
                    self._is_open = not end
                except OSError:
                    # The other side is gone; its reader will notice, too.
                    self.is_broken = True

    def write_later(self, frames: Sequence[bytes]) -> None:
        """Write in the background, in the order of these calls. For use by one thread only."""
        if frames:
            self._last = threading.Thread(target=self._write_after, args=(self._last, frames), daemon=True)
            self._last.start()

    def _write_after(self, previous: threading.Thread | None, frames: Sequence[bytes]) -> None:
        if previous is not None:
            previous.join()
        self.write(frames)

    def close(self, patience: float | None = None) -> bool:
        """Close the descriptor once everything is written; False if that takes more than `patience` seconds."""
        if self._last is not None:
            self._last.join(patience)
        if not self._lock.acquire(timeout=-1 if patience is None else patience):
            return False
        try:
            if not self.is_broken:
                os.close(self._descriptor)
            self.is_broken = True
        finally:
            self._lock.release()
        return True

    def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]


class LineSplitter:
    """Whole lines of any length, out of chunks of any size."""

    def __init__(self) -> None:
        self._begun: io.BytesIO | None = None

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that are now complete."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            if self._begun is None:
                yield chunk[start:end]
            else:
                self._begun.write(chunk[start:end])
                # The buffer itself, not a copy; nothing here keeps it while it is worked on.
                line, self._begun = [self._begun.getvalue()], None
                yield line.pop()
            start = end + 1
        if start < len(chunk):
            self._begun = self._begun or io.BytesIO()
            self._begun.write(chunk[start:] if start else chunk)

    def rest(self) -> bytes:
        """What came after the last newline."""
        return b"" if self._begun is None else self._begun.getvalue()


def lines_and_ends(
    descriptor: int, read: Callable[[int, int], bytes] = os.read
) -> Iterator[tuple[bytes, bytes]]:
    """Lines, each with its newline; the last one may have none."""
    splitter = LineSplitter()
    while chunk := read(descriptor, _CHUNK):
        # `map` keeps no line while it is worked on, as a loop would.
        yield from map(_ended, splitter.feed(chunk))
    if rest := splitter.rest():
        yield rest, b""


def _ended(line: bytes) -> tuple[bytes, bytes]:
    return line, b"\n"
