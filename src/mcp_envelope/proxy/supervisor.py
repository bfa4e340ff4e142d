"""Server processes on an event loop: started when something is sent to them, and again after they have ended.

Strategy: a `SupervisedServer` takes frames and never blocks the sender: what cannot be written yet is held, and
what can never be written is given back with the reason. A process that ends is replaced when the next frame
comes, at once the first time and after growing pauses if it keeps ending; what was under way is lost, and whoever
waits for it is told. The fresh process gets the handshake that the client made with the first one (`Handshake`).
All processes of the proxy are counted, and watched by the guard, so that none outlives it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, cast

from msgspec import UnsetType

from . import frames
from .frames import Frame, text_of
from .processes import KILL, ProcessGuard, describe_exit, signal_group
from .stdio import LineSplitter

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


class ServerUnavailable(Exception):
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
    """A running server."""

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

    async def chunks(self) -> AsyncIterator[bytes]:
        """What it writes, until it has ended."""
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
            yield chunk

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


class Supervisor:
    """Starts the processes of one proxy, at most so many at a time."""

    def __init__(self, guard: ProcessGuard, most: int | None = None) -> None:
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
            raise ServerUnavailable(
                f"{_counted(self._most)} running, which is the most allowed.", "RATE_LIMITED"
            )
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
            raise ServerUnavailable(
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


class Handshake:
    """What a client told its server once (handshake, level of logging, subscriptions), to be told again.

    A fresh process is told the same under ids of ours, whose responses nobody else sees.
    """

    def __init__(self) -> None:
        self._initialize: bytes | None = None
        self._initialized = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
        self._level: bytes | None = None
        self._subscribed: dict[str, bytes] = {}
        self._prefix = f"mcp-envelope-{os.urandom(8).hex()}-"
        self._number = 0
        # The id of a repeated handshake that is under way.
        self._awaited = ""

    @property
    def is_under_way(self) -> bool:
        return bool(self._awaited)

    def note(self, data: bytes) -> None:
        """Take note of what is sent to the server."""
        frame = frames.read(data)
        if frame is None or isinstance(frame.method, UnsetType):
            return
        if frame.method == "initialize":
            self._initialize, self._level = data, None
            self._subscribed.clear()
        elif frame.method == "notifications/initialized":
            self._initialized = data
        elif frame.method == "logging/setLevel":
            self._level = data
        elif frame.method == "resources/subscribe":
            self._subscribed[text_of(frame.param("uri")) or ""] = data
        elif frame.method == "resources/unsubscribe":
            self._subscribed.pop(text_of(frame.param("uri")) or "", None)

    def again(self) -> list[bytes]:
        """The handshake for a fresh process; nothing if there was none. `answered` gets the response."""
        self._awaited = ""
        if self._initialize is None:
            return []
        again = self._own(self._initialize)
        self._awaited = f"{self._prefix}{self._number}"
        return [again]

    def answered(self, frame: Frame) -> Sequence[bytes] | None:
        """What the server is told next, if this is a response to a request of ours."""
        kind, name = frame.key or ("", "")
        if kind != "s" or not name.startswith(self._prefix) or not frame.is_response:
            return None
        if name != self._awaited:
            return ()
        self._awaited = ""
        repeated = ([] if self._level is None else [self._level]) + list(self._subscribed.values())
        return [self._initialized, *map(self._own, repeated)]

    def may_answer(self, data: bytes) -> bool:
        """Whether a frame from the server has to be looked at."""
        return self._prefix.encode() in data[:400] or self._prefix.encode() in data[-400:]

    def _own(self, request: bytes) -> bytes:
        self._number += 1
        return frames.replaced(request, {"id": b'"%b%d"' % (self._prefix.encode(), self._number)})


class ServerCallbacks(NamedTuple):
    """What is called when something happens to a server."""

    # A frame from the server. The next one is read after it returns.
    received: Callable[[bytes], Awaitable[None]]
    # The server ended while it was running: the reason, and its code.
    lost: Callable[[str, str], Awaitable[None]]
    # A frame that was not sent, the reason, and its code.
    failed: Callable[[bytes, str, str], Awaitable[None]]


class SupervisedServer:
    """One server, whichever process that is at the moment."""

    def __init__(self, supervisor: Supervisor, command: Command, callbacks: ServerCallbacks) -> None:
        self._supervisor = supervisor
        self._command = command
        self._callbacks = callbacks
        self._handshake = Handshake()
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
        """Send a frame, sooner or later. If that turns out to be impossible, `failed` is called."""
        self.used = time.monotonic()
        if self._unread > _MOST_UNREAD:
            words = "The server does not read what it is sent."
            self._fail([frame], ServerUnavailable(words, "UPSTREAM_TIMEOUT"))
            return
        if self._process is not None and not self._handshake.is_under_way:
            self._handshake.note(frame)
            self._process.write(frame)
            return
        self._held.append(frame)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._live())

    @property
    def _unread(self) -> int:
        """How many bytes were sent that it has not taken."""
        return sum(map(len, self._held)) + (0 if self._process is None else self._process.unread)

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
                    raise ServerUnavailable(
                        f"{self._reason} It is started again in {left:.0f} seconds at the earliest."
                    )
                process = await self._supervisor.start(self._command)
            except ServerUnavailable as reason:
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
        since, splitter = time.monotonic(), LineSplitter()
        self._process = process
        try:
            self._begin(process)
            async for chunk in process.chunks():
                for line in splitter.feed(chunk):
                    await self._heard(process, line)
        finally:
            # It may have closed its output: then it cannot be talked to any more.
            code = await process.end()
            self._process = None
            await self._supervisor.ended(process)
        if self._is_closing:
            return
        if time.monotonic() - since < _SHORT_LIFE:
            self._pause(f"The server ended ({describe_exit(code)}) soon after its start.")
        else:
            self._failures = 0
        if self._handshake.is_under_way:
            # Whoever waits for what was held is told like the others.
            self._held = []
        await self._callbacks.lost(
            f"The server ended ({describe_exit(code)}) before it answered.", "UPSTREAM_DIED"
        )

    def _begin(self, process: Process) -> None:
        first = frames.read(self._held[0]) if self._held else None
        if first is None or first.method != "initialize":
            for frame in self._handshake.again():
                process.write(frame)
        if not self._handshake.is_under_way:
            self._flush(process)

    def _flush(self, process: Process) -> None:
        held, self._held = self._held, []
        for frame in held:
            self._handshake.note(frame)
            process.write(frame)

    async def _heard(self, process: Process, line: bytes) -> None:
        self.used = time.monotonic()
        if self._is_closing:
            return
        if self._handshake.may_answer(line) and (frame := frames.read(line)) is not None:
            onward = self._handshake.answered(frame)
            if onward is not None:
                for each in onward:
                    process.write(each)
                if not self._handshake.is_under_way:
                    self._flush(process)
                return
        await self._callbacks.received(line)

    def _pause(self, reason: str) -> None:
        """Do not start it again too soon: the first time it is tried again at once."""
        self._reason = reason
        pause = _FIRST_PAUSE * 2 ** (self._failures - 1) if self._failures else 0.0
        self._failures += 1
        self._not_before = time.monotonic() + min(pause, _LONGEST_PAUSE)

    def _fail(self, unsent: Sequence[bytes], reason: ServerUnavailable) -> None:
        _log.warning("mcp-envelope: %s", reason)

        async def tell() -> None:
            for frame in unsent:
                await self._callbacks.failed(frame, str(reason), reason.code)

        if unsent:
            task = asyncio.get_running_loop().create_task(tell())
            _TELLING.add(task)
            task.add_done_callback(_TELLING.discard)


# Tasks that nobody else holds.
_TELLING: Final[set[asyncio.Task[None]]] = set()


def _counted(servers: int) -> str:
    return "1 server is" if servers == 1 else f"{servers} servers are"
