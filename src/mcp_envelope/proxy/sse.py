"""Server-sent events, one at a time, as the bytes in which they came.

Strategy: a stream is split at its blank lines and nothing else is touched, so that an event that need not change
is passed on exactly. In an event that must, only the data is replaced. An event of many megabytes is copied once,
and the search for its end continues where it stopped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_LINE: Final = re.compile(rb"\r\n|\n|\r")
_BOM: Final = b"\xef\xbb\xbf"


class TooLong(Exception):
    """An event or a body is larger than the proxy accepts."""


class Event(NamedTuple):
    """`raw` is the event with its blank line; `data` is None if it has none."""

    raw: bytes
    data: bytes | None
    name: bytes = b"message"
    id: bytes | None = None
    # How long to wait before the stream is resumed, in milliseconds.
    retry: int | None = None
    # Whether its blank line came.
    is_whole: bool = True

    def with_data(self, data: bytes) -> bytes:
        """Return the event with other data."""
        lines = [line for line in _LINE.split(self.raw.rstrip(b"\r\n")) if not _is_data(line)]
        return b"\n".join([*lines, *_data_lines(data)]) + b"\n\n"


def message(data: bytes) -> bytes:
    """Return an event of the proxy's own."""
    return b"\n".join([b"event: message", *_data_lines(data)]) + b"\n\n"


class Splitter:
    """Splits a stream into events of at most `most` bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._buffer = bytearray()
        # Where the last line begins, and how far the buffer has been searched.
        self._line = 0
        self._searched = 0

    @property
    def size(self) -> int:
        """How many bytes are waiting for the end of their event."""
        return len(self._buffer)

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Yield the events that are now complete."""
        buffer = self._buffer
        buffer += chunk
        begun, line, searched = 0, self._line, len(buffer)
        for end, after in _line_ends(buffer, self._searched):
            if end == line:
                with memoryview(buffer) as view:
                    raw = bytes(view[begun:after])
                begun = after
                yield read(raw)
            elif after == len(buffer) and buffer[end:] == b"\r":
                # The other half of this line end may still come.
                searched = end
                break
            line = after
        del buffer[:begun]
        self._line, self._searched = line - begun, searched - begun
        if len(buffer) > self._most:
            raise TooLong(f"an event has more than {self._most} bytes")

    def rest(self) -> bytes:
        """What came after the last complete event."""
        return bytes(self._buffer)


def read(raw: bytes) -> Event:
    """Parse one event."""
    data: list[bytes] = []
    name, identifier, retry = b"message", None, None
    start = len(_BOM) if raw.startswith(_BOM) else 0
    for end, after in (*_line_ends(raw, start), (len(raw), len(raw))):
        colon = raw.find(b":", start, min(end, start + 16))
        field = raw[start : min(end, start + 16) if colon < 0 else colon]
        at = end if colon < 0 else colon + 2 if raw[colon + 1 : min(colon + 2, end)] == b" " else colon + 1
        if field == b"data":
            data.append(raw[at:end])
        elif field == b"event":
            name = raw[at:end] or b"message"
        elif field == b"id" and b"\0" not in raw[at:end]:
            identifier = raw[at:end]
        elif field == b"retry" and end - at < 10 and raw[at:end].isdigit():
            retry = int(raw[at:end])
        start = after
    return Event(raw, b"\n".join(data) if data else None, name, identifier, retry)


def _line_ends(buffer: bytes | bytearray, start: int) -> Iterator[tuple[int, int]]:
    """Yield where each line ends and the next one begins: at CR LF, LF or CR. Each byte is searched once."""
    lf, cr = buffer.find(b"\n", start), buffer.find(b"\r", start)
    while lf >= 0 or cr >= 0:
        if cr < 0 or 0 <= lf < cr:
            end, after = lf, lf + 1
        else:
            end, after = cr, cr + 2 if lf == cr + 1 else cr + 1
        yield end, after
        lf = buffer.find(b"\n", after) if 0 <= lf < after else lf
        cr = buffer.find(b"\r", after) if 0 <= cr < after else cr


def _is_data(line: bytes) -> bool:
    # A stream may begin with a byte order mark, which can go.
    line = line.removeprefix(_BOM)
    return line == b"data" or line.startswith(b"data:")


def _data_lines(data: bytes) -> list[bytes]:
    # Line by line: a line end within the data would end it.
    if b"\n" not in data and b"\r" not in data:
        return [b"data: " + data]
    return [b"data: " + line for line in _LINE.split(data)]
