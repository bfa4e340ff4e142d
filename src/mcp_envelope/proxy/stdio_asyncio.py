"""A client on standard input and output, served on an event loop (`stdio` does it with threads).

Strategy: lines in, lines out, through asyncio's pipes where the system has them for such a file, else in a thread.
A client that takes nothing is not read and neither are the servers. When it closes its end, what is under way
gets a moment to be answered; then, or on a signal, the servers are ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Final

from .relay import Relay, ToClient
from .stdio import LineSplitter, Writer, lines_and_ends

SIGNALS: Final = ("SIGINT", "SIGTERM", "SIGHUP")
# Seconds for answers once the client has closed its end, and how often to look whether they are there.
GRACE: Final = 5.0
POLL: Final = 0.01
_CHUNK: Final = 1 << 18


async def serve(make_relay: Callable[[ToClient], Relay]) -> int:
    """Serve one client; 0, or the exit code that a shell gives for the signal that ended it."""
    loop = asyncio.get_running_loop()
    output = await StandardOutput.opened()
    relay = make_relay(output.write)
    reading = loop.create_task(_read(relay))
    caught: list[int] = []

    def stop(number: int) -> None:
        caught.append(number)
        reading.cancel()

    for name in SIGNALS:
        with suppress(NotImplementedError, AttributeError):
            number = int(getattr(signal, name))
            loop.add_signal_handler(number, stop, number)
    gone = loop.create_task(output.gone.wait())
    await asyncio.wait([reading, gone], return_when=asyncio.FIRST_COMPLETED)
    reading.cancel()
    gone.cancel()
    if not caught:
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                while (relay.route.expects_answers or output.is_behind) and not output.gone.is_set():
                    await asyncio.sleep(POLL)
    # Whoever still waits for the client to take something goes on, so that the servers can be ended.
    output.close()
    await relay.aclose()
    return 128 + caught[0] if caught else 0


async def _read(relay: Relay) -> None:
    async for line in standard_input():
        await relay.from_client(line)


async def standard_input() -> AsyncIterator[bytes]:
    """The lines that the client writes, but for blank ones."""
    descriptor, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    if not _is_pipe(descriptor):
        lines: asyncio.Queue[bytes | None] = asyncio.Queue(1)
        threading.Thread(target=_read_lines, args=(loop, lines), daemon=True).start()
        while (line := await lines.get()) is not None:
            if line.strip():
                yield line
        return
    reader, splitter = asyncio.StreamReader(_CHUNK), LineSplitter()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while chunk := await reader.read(_CHUNK):
        for line in splitter.feed(chunk):
            if line.strip():
                yield line
    if rest := splitter.rest().strip():
        yield rest


def _read_lines(loop: asyncio.AbstractEventLoop, lines: asyncio.Queue[bytes | None]) -> None:
    """Runs in a thread of its own, which nobody waits for, since reading cannot be interrupted."""
    with suppress(OSError, RuntimeError):
        for line, _ in lines_and_ends(sys.stdin.fileno()):
            asyncio.run_coroutine_threadsafe(lines.put(line), loop).result()
        asyncio.run_coroutine_threadsafe(lines.put(None), loop).result()


class StandardOutput(asyncio.BaseProtocol):
    """Lines for the client; `gone` is set when nobody reads them any more."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self._free = asyncio.Event()
        self._free.set()
        self._pipe: asyncio.WriteTransport | None = None
        self._writer: Writer | None = None

    @classmethod
    async def opened(cls) -> StandardOutput:
        output, descriptor = cls(), sys.stdout.fileno()
        if _is_pipe(descriptor):
            loop = asyncio.get_running_loop()
            # A file of its own, since it is closed with the pipe.
            pipe = os.fdopen(os.dup(descriptor), "wb", buffering=0)
            output._pipe, _ = await loop.connect_write_pipe(lambda: output, pipe)
            # `write` returns when the system has taken everything: what is left here at the end would be lost.
            output._pipe.set_write_buffer_limits(0)
        else:
            output._writer = Writer(descriptor)
        return output

    @property
    def is_behind(self) -> bool:
        """Whether the client has not taken everything yet."""
        return not self._free.is_set()

    def pause_writing(self) -> None:
        self._free.clear()

    def resume_writing(self) -> None:
        self._free.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
        self._free.set()

    async def write(self, frames: list[bytes]) -> None:
        if self._writer is not None:
            await asyncio.to_thread(self._writer.write, frames)
            if self._writer.is_broken:
                self.gone.set()
            return
        assert self._pipe is not None
        for frame in frames:
            self._pipe.write(frame + b"\n")
        await self._free.wait()

    def close(self) -> None:
        self._free.set()
        if self._pipe is not None:
            os.set_blocking(sys.stdout.fileno(), True)


def _is_pipe(descriptor: int) -> bool:
    if os.name != "posix":
        return False
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
