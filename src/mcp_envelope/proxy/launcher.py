"""Server processes on an event loop: started when something is sent to them, and again after they have ended.

Strategy: a `Link` is one server as a conversation sees it. It is told frames and never makes anybody wait: what
cannot be written yet is held, and what can never be written is given back with the reason. A process that ends is
replaced when the next frame comes, at once the first time and after growing pauses if it keeps ending; what was
under way is lost, and whoever waits for it is told. All processes of the proxy are counted, and watched by the
guard, so that none outlives it.
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, cast

from . import frames
from .opening import Opening
from .processes import KILL, Guard, describe_exit, signal_group

_log = logging.getLogger("mcp_envelope")

_CHUNK: Final = 1 << 18
_BUFFER: Final = 1 << 20
# How many bytes a server may leave unread before whatever is sent to it fails.
_MOST_UNREAD: Final = 64 << 20
# Seconds that a server may take to end once its input is closed, or after a signal.
_PATIENCE: Final = 5.0
# Seconds after the end of a server in which its children may still write, or end.
_GRACE: Final = 1.0
# A server that ends earlier than this many seconds after its start has failed to start.
_SHORT_LIFE: Final = 10.0
# Seconds to wait before a server that keeps ending is started again.
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
MOST_PROCESSES: Final = 64


class Unavailable(Exception):
    """The server cannot be had. The message says why, and `code` is that of the failure."""

    def __init__(self, words: str, code: str = "UPSTREAM_UNAVAILABLE") -> None:
        super().__init__(words)
        self.code = code


class Command(NamedTuple):
    """How a server is started. `environ` is all of its environment, or None for the proxy's own."""

    words: tuple[str, ...]
    environ: Mapping[str, str] | None = None
    folder: str | None = None


class Process(asyncio.SubprocessProtocol):
    """A running server, in lines."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._size = 0
        self._is_paused = False
        self._is_over = False
        self._news = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()
        self._exited = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self.pid = self._transport.get_pid()
        self._input = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))
        self._output = cast(asyncio.ReadTransport, self._transport.get_pipe_transport(1))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._chunks.append(data)
        self._size += len(data)
        if self._size > _BUFFER:
            self._is_paused = True
            self._output.pause_reading()
        self._news.set()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self._is_over = True
            self._news.set()
        else:
            self._drained.set()

    def process_exited(self) -> None:
        self._exited.set()
        # What it started may still hold its output.
        asyncio.get_running_loop().call_later(_GRACE, self._output.close)

    def pause_writing(self) -> None:
        self._drained.clear()

    def resume_writing(self) -> None:
        self._drained.set()

    @property
    def unread(self) -> int:
        """How many bytes it was sent and has not taken."""
        return self._input.get_write_buffer_size()

    def write(self, frame: bytes) -> None:
        self._input.write(frame + b"\n")

    async def drain(self) -> None:
        await self._drained.wait()

    async def lines(self) -> AsyncIterator[bytes]:
        """Whole lines of any length, until the process has ended."""
        whole: io.BytesIO | None = None
        while True:
            while not self._chunks:
                if self._is_over:
                    return
                self._news.clear()
                await self._news.wait()
            chunk = self._chunks.pop(0)
            self._size -= len(chunk)
            if self._is_paused and not self._chunks and not self._is_over:
                self._is_paused = False
                self._output.resume_reading()
            start = 0
            while (end := chunk.find(b"\n", start)) >= 0:
                if whole is None:
                    yield chunk[start:end]
                else:
                    whole.write(chunk[start:end])
                    # Nothing here keeps the line while it is worked on.
                    line, whole = [whole.getvalue()], None
                    yield line.pop()
                start = end + 1
            if start < len(chunk):
                whole = whole or io.BytesIO()
                whole.write(chunk[start:] if start else chunk)

    async def end(self) -> int:
        """End it as a client would, by closing its input, then insist; its exit code, or minus a signal."""
        self._input.close()
        for step in (0, signal.SIGTERM, KILL):
            if step:
                signal_group(self.pid, step)
            with suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    await self._exited.wait()
                    break
        self._transport.close()
        return self._transport.get_returncode() or 0


class Launcher:
    """Starts the processes of one proxy, at most so many at a time."""

    def __init__(self, guard: Guard, most: int | None = None) -> None:
        self._guard = guard
        self._most = most or MOST_PROCESSES
        self._running = 0
        # How many may be starting at a time: they are busy then.
        self._starting = asyncio.Semaphore(2 * (os.cpu_count() or 1) + 2)

    @property
    def is_full(self) -> bool:
        return self._running >= self._most

    async def start(self, command: Command) -> Process:
        if self.is_full:
            raise Unavailable(f"{_counted(self._most)} running, and more may not.", "RATE_LIMITED")
        self._running += 1
        try:
            async with self._starting:
                _, process = await asyncio.get_running_loop().subprocess_exec(
                    Process,
                    *command.words,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=None,
                    env=command.environ,
                    cwd=command.folder,
                    start_new_session=os.name == "posix",
                )
        except (OSError, ValueError) as error:
            self._running -= 1
            reason = getattr(error, "strerror", None) or str(error)
            raise Unavailable(
                f"The server cannot be started: {command.words[0]}: {reason.lower()}."
            ) from error
        except BaseException:
            self._running -= 1
            raise
        self._guard.watch(process.pid)
        return process

    async def ended(self, process: Process) -> None:
        """A process has ended: what it started and left behind ends, too."""
        if signal_group(process.pid, signal.SIGTERM):
            for _ in range(20):
                await asyncio.sleep(_GRACE / 20)
                if not signal_group(process.pid, 0):
                    break
            else:
                signal_group(process.pid, KILL)
        self._running -= 1
        self._guard.forget(process.pid)


class Listener(NamedTuple):
    """Whom a link tells what becomes of it."""

    # A frame from the server. The next one is read after it returns.
    received: Callable[[bytes], Awaitable[None]]
    # The server ended while it was running: the reason, and its code.
    lost: Callable[[str, str], Awaitable[None]]
    # A frame that was not sent, the reason, and its code.
    failed: Callable[[bytes, str, str], Awaitable[None]]


class Link:
    """One server, whichever process that is at the moment."""

    def __init__(self, launcher: Launcher, command: Command, listener: Listener) -> None:
        self._launcher = launcher
        self._command = command
        self._listener = listener
        self._opening = Opening()
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None
        # What waits for the process to start, or for the handshake.
        self._held: list[bytes] = []
        self._is_closing = False
        self._failures = 0
        self._not_before = 0.0
        self._reason = ""
        # When something was last said, on the clock of `time.monotonic`.
        self.used = time.monotonic()

    @property
    def is_running(self) -> bool:
        return self._task is not None

    def send(self, frame: bytes) -> None:
        """Send a frame, sooner or later. If that turns out to be impossible, the listener is told."""
        self.used = time.monotonic()
        if self._process is not None and not self._opening.is_under_way:
            if self._process.unread > _MOST_UNREAD:
                self._fail(
                    [frame], Unavailable("The server does not read what it is sent.", "UPSTREAM_TIMEOUT")
                )
                return
            self._opening.note(frame)
            self._process.write(frame)
            return
        self._held.append(frame)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._live())

    async def drain(self) -> None:
        """Wait until the server has taken most of what it was sent."""
        if self._process is not None:
            await self._process.drain()

    async def aclose(self) -> None:
        """End the process: close its input as a client would, then insist."""
        self._is_closing = True
        task, process = self._task, self._process
        if task is None:
            return
        if process is None:
            task.cancel()
        else:
            await process.end()
        await asyncio.wait([task])

    # -- the life of a process ----------------------------------------------------------------------------------

    async def _live(self) -> None:
        try:
            try:
                if (left := self._not_before - time.monotonic()) > 0:
                    raise Unavailable(
                        f"{self._reason} It is started again in {left:.0f} seconds at the earliest."
                    )
                process = await self._launcher.start(self._command)
            except Unavailable as reason:
                self._process, held, self._held = None, self._held, []
                if not self._not_before > time.monotonic() and reason.code == "UPSTREAM_UNAVAILABLE":
                    self._pause(str(reason))
                self._fail(held, reason)
                return
            await self._talk(process)
        finally:
            self._task = None
            if self._held and not self._is_closing:
                # Something came in the meantime.
                self._task = asyncio.get_running_loop().create_task(self._live())

    async def _talk(self, process: Process) -> None:
        since = time.monotonic()
        self._process = process
        try:
            self._begin(process)
            async for line in process.lines():
                await self._heard(process, line)
        finally:
            # It may have closed its output: then it cannot be talked to any more.
            code = await process.end()
            self._process = None
            await self._launcher.ended(process)
        if self._is_closing:
            return
        if time.monotonic() - since < _SHORT_LIFE:
            self._pause(f"The server ended ({describe_exit(code)}) soon after its start.")
        else:
            self._failures = 0
        if self._opening.is_under_way:
            # Whoever waits for what was held is told like the others.
            self._held = []
        await self._listener.lost(
            f"The server ended ({describe_exit(code)}) before it answered.", "UPSTREAM_DIED"
        )

    def _begin(self, process: Process) -> None:
        first = frames.read(self._held[0]) if self._held else None
        if first is None or first.method != "initialize":
            for frame in self._opening.again():
                process.write(frame)
        if not self._opening.is_under_way:
            self._flush(process)

    def _flush(self, process: Process) -> None:
        held, self._held = self._held, []
        for frame in held:
            self._opening.note(frame)
            process.write(frame)

    async def _heard(self, process: Process, line: bytes) -> None:
        self.used = time.monotonic()
        if self._is_closing:
            return
        if self._opening.may_answer(line) and (frame := frames.read(line)) is not None:
            onward = self._opening.answered(frame)
            if onward is not None:
                for each in onward:
                    process.write(each)
                if not self._opening.is_under_way:
                    self._flush(process)
                return
        await self._listener.received(line)

    def _pause(self, reason: str) -> None:
        """Do not start it again too soon: the first time it is tried again at once."""
        self._reason = reason
        pause = _FIRST_PAUSE * 2 ** (self._failures - 1) if self._failures else 0.0
        self._failures += 1
        self._not_before = time.monotonic() + min(pause, _LONGEST_PAUSE)

    def _fail(self, unsent: Sequence[bytes], reason: Unavailable) -> None:
        _log.warning("mcp-envelope: %s", reason)

        async def tell() -> None:
            for frame in unsent:
                await self._listener.failed(frame, str(reason), reason.code)

        if unsent:
            task = asyncio.get_running_loop().create_task(tell())
            _TELLING.add(task)
            task.add_done_callback(_TELLING.discard)


# Tasks that nobody else holds.
_TELLING: Final[set[asyncio.Task[None]]] = set()


def _counted(servers: int) -> str:
    return "1 server is" if servers == 1 else f"{servers} servers are"
