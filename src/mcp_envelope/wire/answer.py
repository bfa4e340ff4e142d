"""What goes back to the client of an HTTP request, and whether it has begun.

Strategy: whatever is there is written in one piece. Whoever writes on waits for whoever reads. An answer that has
not as many bytes as it promised ends the connection, so that nobody takes it for whole.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from .response import Headers

if TYPE_CHECKING:
    from .door import Door

_PHRASES: Final = {status.value: status.phrase for status in HTTPStatus}
_BODILESS: Final = (204, 304)
# A large body is handed over in such pieces, so that it is seen whether somebody takes it.
_PIECE: Final = 1 << 18


class Answer:
    def __init__(self, door: Door, method: str, is_old: bool = False) -> None:
        self._door = door
        self._is_head = method == "HEAD"
        # HTTP/1.0 knows no chunks: the body ends with the connection.
        self._is_old = is_old
        self.status = 0
        self.is_done = False
        self._is_chunked = False
        self._is_empty = False
        self._left: int | None = None
        # Is told whenever the client has taken a piece.
        self.moved: Callable[[], None] | None = None

    async def begin(self, status: int, headers: Headers) -> None:
        self._door.write(self._head(status, headers))

    async def more(self, body: bytes) -> None:
        """Returns when the client has taken most of it."""
        if not self.is_done and body:
            await self._write(self._framed(body))

    async def end(self, body: bytes = b"") -> None:
        if not self.is_done:
            self._door.write(self._framed(body) + self._end())
            self._finish()

    async def whole(self, status: int, headers: Headers, body: bytes, media_type: str | None = None) -> None:
        """Returns when the client has taken most of it."""
        typed = [] if media_type is None else [("content-type", media_type)]
        head = self._head(status, [*headers, *typed, ("content-length", str(len(body)))])
        framed = self._framed(body)
        self._finish()
        if len(framed) <= _PIECE:
            await self._write(head + framed)
        else:
            self._door.write(head)
            await self._write(framed)

    async def _write(self, data: bytes) -> None:
        if len(data) <= _PIECE:
            self._door.write(data)
            await self._door.drained()
            return
        view = memoryview(data)
        for start in range(0, len(data), _PIECE):
            self._door.write(bytes(view[start : start + _PIECE]))
            await self._door.drained()
            if self.moved is not None:
                self.moved()

    @property
    def is_heard(self) -> bool:
        """Whether the client is still there."""
        return self._door.is_open

    def hang_up(self) -> None:
        self._door.hang_up()

    async def json(self, status: int, body: bytes) -> None:
        await self.whole(status, [], body, "application/json")

    def _head(self, status: int, headers: Headers) -> bytes:
        self.status = status
        self._is_empty = self._is_head or status in _BODILESS
        lines = [f"HTTP/1.1 {status} {_PHRASES.get(status, '')}\r\n"]
        for name, value in headers:
            if name == "content-length" and value.isdigit():
                self._left = int(value)
            lines.append(f"{name}: {value}\r\n")
        if self._left is None and not self._is_empty:
            self._is_chunked = not self._is_old
            if self._is_chunked:
                lines.append("transfer-encoding: chunked\r\n")
            else:
                self._door.is_kept = False
        if not self._door.is_kept:
            lines.append("connection: close\r\n")
        head = "".join(lines)
        if head.count("\n") != len(lines):
            raise ValueError("a header has more than one line")
        return f"{head}\r\n".encode("latin-1")

    def _framed(self, body: bytes) -> bytes:
        if self._is_empty or not body:
            return b""
        if self._is_chunked:
            return b"%x\r\n%b\r\n" % (len(body), body)
        if self._left is not None:
            body = body[: self._left]
            self._left -= len(body)
        return body

    def _end(self) -> bytes:
        return b"0\r\n\r\n" if self._is_chunked else b""

    def _finish(self) -> None:
        self.is_done = True
        if self._left and not self._is_empty:
            self._door.is_kept = False
