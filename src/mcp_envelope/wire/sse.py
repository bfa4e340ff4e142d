"""Server-sent events, one at a time, as the bytes that they came in.

Strategy: a stream is split at its blank lines and nothing else is touched, so an event that need not change is
passed on exactly. Of an event that must, only the data is written anew. Events of many megabytes are gathered
once, and the search for their end goes on where it stopped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

# A line ends with CR LF, LF or CR, and a blank line ends an event. Atomic, because CR LF is one end and not two.
_END: Final = re.compile(rb"(?>\r\n|\n|\r){2}")
_LINE: Final = re.compile(rb"\r\n|\n|\r")


class TooLong(Exception):
    """An event has more bytes than are taken."""


class Event(NamedTuple):
    """`raw` is the event with its blank line; `data` is None if it has none."""

    raw: bytes
    data: bytes | None
    name: bytes = b"message"
    id: bytes | None = None

    def with_data(self, data: bytes) -> bytes:
        """The same event with other data, which has no line breaks."""
        lines = [line for line in _LINE.split(self.raw.rstrip(b"\r\n")) if not _is_data(line)]
        return b"\n".join([*lines, b"data: " + data]) + b"\n\n"


def message(data: bytes) -> bytes:
    """An event of our own."""
    return b"event: message\ndata: %b\n\n" % data


class Splitter:
    def __init__(self, most: int) -> None:
        self._most = most
        self._buffer = bytearray()
        self._searched = 0

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The events that are complete now."""
        self._buffer += chunk
        while found := _END.search(self._buffer, max(self._searched - 3, 0)):
            raw = bytes(self._buffer[: found.end()])
            del self._buffer[: found.end()]
            self._searched = 0
            yield read(raw)
        self._searched = len(self._buffer)
        if self._searched > self._most:
            raise TooLong(f"an event has more than {self._most} bytes")

    def rest(self) -> bytes:
        """What came after the last whole event."""
        return bytes(self._buffer)


def read(raw: bytes) -> Event:
    data: list[bytes] = []
    name, identifier = b"message", None
    for line in _LINE.split(raw.rstrip(b"\r\n")):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
        elif field == b"id":
            identifier = value
    return Event(raw, b"\n".join(data) if data else None, name, identifier)


def _is_data(line: bytes) -> bool:
    return line == b"data" or line.startswith(b"data:")
