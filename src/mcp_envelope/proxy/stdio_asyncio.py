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
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from .relay import Relay, ToClient
from .stdio import Writer, lines_and_ends

_SIGNALS: Final = ("SIGINT", "SIGTERM", "SIGHUP")
_CHUNK: Final = 1 << 18
_GRACE: Final = 5.0
_POLL: Final = 0.01


async def serve(make_relay: Callable[[ToClient], Relay]) -> int:
    """Serve one client; 0, or the exit code that a shell gives for the signal that ended it."""
    loop = asyncio.get_running_loop()
    output = await _output()
    relay = make_relay(output.write)
    reading = loop.create_task(_read(relay))
    caught: list[int] = []

    def stop(number: int) -> None:
        caught.append(number)
        reading.cancel()

    for name in _SIGNALS:
        with suppress(NotImplementedError, AttributeError):
            number = int(getattr(signal, name))
            loop.add_signal_handler(number, stop, number)
    gone = loop.create_task(output.gone.wait())
    await asyncio.wait([reading, gone], return_when=asyncio.FIRST_COMPLETED)
    reading.cancel()
    gone.cancel()
    if not caught and not output.gone.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE):
                while relay.route.expects_answers and not output.gone.is_set():
                    await asyncio.sleep(_POLL)
    await relay.aclose()
    output.close()
    return 128 + caught[0] if caught else 0


class _Output(asyncio.BaseProtocol):
    """Standard output; `gone` is set when nobody reads it any more."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self._free = asyncio.Event()
        self._free.set()
        self._pipe: asyncio.WriteTransport | None = None
        self._writer: Writer | None = None

    async def open(self) -> None:
        if _is_pipe(sys.stdout.fileno()):
            loop = asyncio.get_running_loop()
            self._pipe, _ = await loop.connect_write_pipe(lambda: self, sys.stdout)
        else:
            self._writer = Writer(sys.stdout.fileno())

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
        if self._pipe is not None:
            os.set_blocking(sys.stdout.fileno(), True)


async def _output() -> _Output:
    output = _Output()
    await output.open()
    return output


async def _read(relay: Relay) -> None:
    descriptor = sys.stdin.fileno()
    loop = asyncio.get_running_loop()
    if not _is_pipe(descriptor):
        lines: asyncio.Queue[bytes | None] = asyncio.Queue(1)
        threading.Thread(target=_read_lines, args=(loop, lines), daemon=True).start()
        while (line := await lines.get()) is not None:
            if line.strip():
                await relay.from_client(line)
        return
    reader = asyncio.StreamReader(_CHUNK)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    rest: list[bytes] = []
    while chunk := await reader.read(_CHUNK):
        *whole, last = chunk.split(b"\n")
        for each in whole:
            line = b"".join([*rest, each])
            rest.clear()
            if line.strip():
                await relay.from_client(line)
        if last:
            rest.append(last)
    if line := b"".join(rest).strip():
        await relay.from_client(line)


def _is_pipe(descriptor: int) -> bool:
    if os.name != "posix":
        return False
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _read_lines(loop: asyncio.AbstractEventLoop, lines: asyncio.Queue[bytes | None]) -> None:
    """Runs in a thread of its own, which nobody waits for, since reading cannot be interrupted."""
    with suppress(OSError, RuntimeError):
        for line, _ in lines_and_ends(sys.stdin.fileno()):
            asyncio.run_coroutine_threadsafe(lines.put(line), loop).result()
        asyncio.run_coroutine_threadsafe(lines.put(None), loop).result()
