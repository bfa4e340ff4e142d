"""The reply of a server: its head, and its body as it comes.

Strategy: whoever reads takes what came, and the server waits while too much is not taken. What was compressed is
undone in small steps, since a little may become very much. A reply that breaks off is an error after all that came
of it, so that nobody takes it for whole.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, Iterator
from typing import TYPE_CHECKING, Final

from .route import Unanswered

if TYPE_CHECKING:
    from .pool import Connection

# So much may wait to be taken before nothing more is read.
AHEAD: Final = 1 << 16
# A body of no more bytes is worth waiting for.
SMALL: Final = 1 << 16
# The most that is decompressed in one step.
_STEP: Final = 1 << 20
_GZIP: Final = b"\x1f"
Headers = list[tuple[str, str]]


class Response:
    """The names of its headers are in small letters; `named` has one text for each name."""

    def __init__(self, connection: Connection, method: str, url: str) -> None:
        self.method = method
        self.url = url
        self.status = 0
        self.reason = ""
        self.headers: Headers = []
        self.named: dict[str, str] = {}
        self.is_whole = False
        self.error: Unanswered | None = None
        self._connection = connection
        self._parts: list[bytes] = []
        self._held = 0
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_redirect(self) -> bool:
        return self.status in (301, 302, 303, 307, 308) and bool(self.get("location"))

    def get(self, name: str, default: str = "") -> str:
        return self.named.get(name, default)

    async def begun(self) -> None:
        while not self.status:
            if self.error is not None:
                raise self.error
            await self._change()

    def take(self) -> bytes | None:
        """The whole body, if it is here and small; None if it has to be waited for."""
        if (
            not self.is_whole
            or self._held > SMALL
            or self.named.get("content-encoding", "identity") != "identity"
        ):
            return None
        parts, self._parts, self._held = self._parts, [], 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def raw(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes."""
        while True:
            if self._parts:
                taken = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
                self._parts.clear()
                self._held = 0
                self._connection.resume()
                yield taken
            elif self.is_whole:
                return
            elif self.error is not None:
                raise self.error
            else:
                await self._change()

    def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes, decompressed."""
        named = [part.strip().lower() for part in self.get("content-encoding").split(",")]
        codings = [part for part in reversed(named) if part not in ("", "identity")]
        return self._decoded([_Decoder(coding) for coding in codings]) if codings else self.raw()

    async def _decoded(self, decoders: list[_Decoder]) -> AsyncGenerator[bytes, None]:
        try:
            async for chunk in self.raw():
                for step in _undone(chunk, decoders):
                    yield step
            if not all(decoder.is_whole for decoder in decoders):
                raise Unanswered("the reply ends before what was compressed does")
        except zlib.error as error:
            raise Unanswered(f"the reply cannot be decompressed: {error}") from None

    async def _change(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def release(self) -> None:
        """Nobody reads any more: the connection is free again, or of no use."""
        self._connection.released()

    # -- from the connection --------------------------------------------------------------------------------

    def begin(self, status: int, reason: bytes, headers: Headers) -> None:
        self.status, self.reason, self.headers = status, reason.decode("latin-1"), headers
        named = self.named
        for name, value in headers:
            named[name] = f"{named[name]}, {value}" if name in named else value
        size = named.get("content-length", "")
        if not size.isdigit() or int(size) > SMALL:
            # Else it is here in a moment, and whoever waits is woken once.
            self._wake()

    def more(self, body: bytes) -> bool:
        """Whether the next may come at once."""
        self._parts.append(body)
        self._held += len(body)
        self._wake()
        return self._held <= AHEAD

    def finish(self) -> None:
        self.is_whole = True
        self._wake()

    def fail(self, error: Unanswered) -> None:
        self.error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _Decoder:
    def __init__(self, coding: str) -> None:
        self._is_deflate = coding == "deflate"
        self._bits = zlib.MAX_WBITS if self._is_deflate else zlib.MAX_WBITS | 16
        self._inner = zlib.decompressobj(self._bits)
        self._is_begun = False
        self._is_over = False

    @property
    def is_whole(self) -> bool:
        """Whether the end came of all that began; no body at all is whole."""
        return self._inner.eof or not self._is_begun

    def steps(self, chunk: bytes) -> Iterator[bytes]:
        while not self._is_over:
            if self._inner.eof:
                if not chunk:
                    return
                self._follow(chunk)
                continue
            step = self._step(chunk)
            if step:
                yield step
            chunk = self._inner.unused_data if self._inner.eof else self._inner.unconsumed_tail
            if not step and not chunk:
                return

    def _step(self, chunk: bytes) -> bytes:
        is_first, self._is_begun = not self._is_begun, True
        try:
            return self._inner.decompress(chunk, _STEP)
        except zlib.error:
            if not self._is_deflate or not is_first:
                raise
            # Some servers leave out the frame around what is deflated.
            self._inner = zlib.decompressobj(-zlib.MAX_WBITS)
            return self._inner.decompress(chunk, _STEP)

    def _follow(self, chunk: bytes) -> None:
        """One gzip may follow another, and both are the body. Anything else that follows is padding."""
        if self._is_deflate or not chunk.startswith(_GZIP):
            self._is_over = True
        else:
            self._inner = zlib.decompressobj(self._bits)


def _undone(chunk: bytes, decoders: list[_Decoder]) -> Iterator[bytes]:
    if not decoders:
        yield chunk
        return
    for step in decoders[0].steps(chunk):
        yield from _undone(step, decoders[1:])
