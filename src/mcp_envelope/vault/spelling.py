"""A value as the text that it is stored as, from any character on.

Strategy: a source has marks that say which character begins at which byte, one every 32 KB; where every byte is
a character it needs none. From the nearest mark on characters are counted, so a page costs the page. The pages
of a list or an object are then its exact spelling, with every blank and every escape.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from ..text import characters
from .source import Source, Whole

# A character has so many bytes at most.
_WIDEST: Final = 4


class Spelling:
    """What lies between two bytes of a source; it is asked for its text as a string would be."""

    kind: Final = "text"

    def __init__(self, path: str, source: Source, start: int, end: int) -> None:
        self.path = path
        self.size = end - start
        self._source = source
        self._end = end
        self._before = self._characters(start)
        self.total = self._characters(end) - self._before

    @classmethod
    def of(cls, path: str, raw: bytes) -> Spelling:
        return cls(path, Whole(raw), 0, len(raw))

    def text(self, offset: int, room: int) -> str:
        """More than `room` bytes from a character on, or all there is."""
        start = self._byte(self._before + offset)
        stop = min(start + room + _WIDEST, self._end)
        data = self._source.read(start, stop)
        if stop < self._end:
            # The last character may not be here whole.
            last = len(data) - 1
            while data[last] & 0xC0 == 0x80:
                last -= 1
            data = data[:last]
        return data.decode()

    def _characters(self, byte: int) -> int:
        """How many characters come before the byte."""
        marks = self._source.marks
        if marks is None:
            return byte
        mark = bisect_right(marks.starts, byte) - 1
        return int(marks.firsts[mark]) + characters(self._source.read(marks.starts[mark], byte))

    def _byte(self, character: int) -> int:
        marks = self._source.marks
        if marks is None:
            return character
        mark = bisect_right(marks.firsts, character) - 1
        start = int(marks.starts[mark])
        stop = min(marks.starts[mark + 1], self._end) if mark + 1 < len(marks.starts) else self._end
        said = self._source.read(start, stop).decode()
        return start + len(said[: character - marks.firsts[mark]].encode())
