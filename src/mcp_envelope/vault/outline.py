"""Where things are in a stored payload, so that a page costs the page and not the payload.

Strategy: only what is large gets a `Knot`. A large list or object is marked every 32 KB: which item begins
there, and at which byte. What lies between two marks is a stretch: a run of small children that is read and
parsed when one of them is wanted, or a single large child that has a knot of its own. A long string is marked
by characters; one that holds JSON also has the knot of that JSON, in the coordinates of the unescaped text.
An object with many members has a table from the digest of a key to its stretch. Tables, and the knots of many
children, follow the payload in the same stored bytes. What cannot be marked (equal keys, thousands of levels) is
a leaf: correct, and read whole.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate, repeat
from operator import add
from typing import Final

import msgspec
from msgspec import Raw

from ..faults import STRING, WHITESPACE
from ..jsontree import (
    LARGE,
    MAX_DEPTH,
    OPEN_ARRAY,
    OPEN_OBJECT,
    OPEN_STRING,
    OPENS_JSON,
    TooDeep,
    encode,
    holds_json,
    is_dense,
    windows,
)
from ..text import string_cut, unescaped
from .knots import Knot, Outline, Table, digest, packed, placed

# A value of more bytes has a knot; about so many bytes of small children lie between two marks.
FAR: Final = 1 << 15
_FEW_STRETCHES: Final = 4
# So many knots may be loaded with one; children that bring more are stored elsewhere.
_LOADED_TOGETHER: Final = 16
_IN_A_BUCKET: Final = 256
_LOOK: Final = 1 << 12
_BETWEEN: Final = re.compile(rb"[ \t\r\n]*,[ \t\r\n]*")
_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_KEY: Final = re.compile(rb"(" + STRING + rb")[ \t\r\n]*:[ \t\r\n]*")

View = memoryview


class Builder:
    """Makes the outline of a payload, and what is stored behind it: the tables, and the knots of many children."""

    def __init__(self, size: int) -> None:
        self._behind: list[bytes] = []
        self._at = size

    @property
    def behind(self) -> bytes:
        return b"".join(self._behind)

    def _put(self, data: bytes) -> int:
        """Store it behind the payload; where it will be."""
        place = self._at
        self._behind.append(data)
        self._at += len(data)
        return place

    def hang(self, knot: Knot, children: dict[int, Knot], firsts: list[int], starts: list[int]) -> None:
        """Give a list or an object its marks and its large children."""
        knot.firsts, knot.starts = packed(firsts), packed(starts)
        if sum([child.weight for child in children.values()]) <= _LOADED_TOGETHER:
            knot.children = children
        else:
            found = map(children.get, firsts)
            knot.places = packed([0 if child is None else self._put(placed(child)) for child in found])

    def document(self, data: bytes) -> Outline:
        """`data` is known to be JSON."""
        if len(data) <= FAR:
            return Outline()
        start = len(data) - len(data.lstrip(WHITESPACE))
        end = len(data.rstrip(WHITESPACE))
        knot = self._knot(View(data), start, end, 0)
        if data.isascii():
            return Outline(knot)
        marks = _text_knot(data)
        return Outline(knot, firsts=marks.firsts, starts=marks.starts)

    def text(self, data: bytes) -> Outline:
        """Plain text; what is JSON comes as a document."""
        return Outline(_text_knot(data) if len(data) > FAR else None, text=True)

    def _knot(self, data: View, start: int, end: int, depth: int) -> Knot | None:
        if end - start <= FAR:
            return None
        first = data[start]
        try:
            if depth < MAX_DEPTH:
                if first == 0x5B:
                    return self._array(data, start, end, depth)
                if first == 0x7B:
                    return self._object(data, start, end, depth)
                if first == 0x22:
                    return self._string(data, start, end, depth)
        except (msgspec.DecodeError, RecursionError, TooDeep, _Unmarked):
            # Half a surrogate pair, or too deep: correct as a leaf.
            pass
        return Knot("leaf", start, end, 0)

    # -- lists ----------------------------------------------------------------------------------------------

    def _array(self, data: View, start: int, end: int, depth: int) -> Knot:
        knot = Knot("array", start, end, 0)
        children: dict[int, Knot] = {}
        marks = _Marks()
        for at, stop, items in _windowed(data, start, end):
            positions = _positions(data, at, stop, [len(item) for item in items])
            marks.add(positions)
            for index in positions.large:
                ordinal = knot.total + index
                child = self._knot(
                    data, positions.at[index], positions.at[index] + len(items[index]), depth + 1
                )
                if child is not None:
                    children[ordinal] = child
            knot.total += len(items)
        self.hang(knot, children, marks.firsts, marks.starts)
        return knot

    # -- objects --------------------------------------------------------------------------------------------

    def _object(self, data: View, start: int, end: int, depth: int) -> Knot:
        values = OPEN_OBJECT.decode(data[start:end])
        keys = list(values)
        positions = _member_positions(data, start, end, values)
        knot = Knot("object", start, end, len(keys))
        children: dict[int, Knot] = {}
        marks = _Marks()
        marks.add(positions)
        for index in positions.large:
            at = positions.values[index]
            child = self._knot(data, at, at + len(values[keys[index]]), depth + 1)
            if child is not None:
                children[index] = child
        self.hang(knot, children, marks.firsts, marks.starts)
        knot.keys = {keys[index]: index for index in knot.children}
        if knot.places or len(marks.firsts) - len(children) > _FEW_STRETCHES:
            knot.table = self._table(keys, marks.firsts)
        return knot

    def _table(self, keys: list[str], firsts: list[int]) -> Table:
        count = len(keys) // _IN_A_BUCKET + 1
        buckets: list[array[int]] = [array("I") for _ in range(count)]
        stretch = 0
        for ordinal, key in enumerate(keys):
            while stretch + 1 < len(firsts) and firsts[stretch + 1] <= ordinal:
                stretch += 1
            hashed = digest(key)
            buckets[hashed * count >> 32].extend((hashed, stretch))
        ends = accumulate([4 * (count + 1), *[4 * len(bucket) for bucket in buckets]])
        table = array("I", ends).tobytes() + b"".join([bucket.tobytes() for bucket in buckets])
        return Table(self._put(table), count)

    # -- strings --------------------------------------------------------------------------------------------

    def _string(self, data: View, start: int, end: int, depth: int) -> Knot:
        raw = data[start:end]
        firsts, starts, inside = [0], [start + 1], [0]
        at = 1
        while at < len(raw) - 1:
            stop = len(raw) - 1 if len(raw) - 1 - at <= FAR else string_cut(raw, at + FAR, at)  # type: ignore[arg-type]
            text = OPEN_STRING.decode(b'"%b"' % bytes(raw[at:stop]))
            at = stop
            firsts.append(firsts[-1] + len(text))
            starts.append(start + at)
            inside.append(inside[-1] + len(text.encode()))
        knot = Knot("string", start, end, firsts.pop(), packed(firsts))
        knot.starts, knot.inside = packed(starts[:-1]), packed(inside[:-1])
        if OPENS_JSON.match(bytes(raw[1:_LOOK])):
            knot.held = self._held(unescaped(raw), depth)  # type: ignore[arg-type]
        return knot

    def _held(self, text: bytes, depth: int) -> Knot | None:
        if not holds_json(text):
            return None
        start = len(text) - len(text.lstrip(WHITESPACE))
        end = len(text.rstrip(WHITESPACE))
        return self._knot(View(text), start, end, depth + 1) or Knot("leaf", start, end, 0)


def _text_knot(data: bytes) -> Knot:
    firsts, starts = [0], [0]
    while starts[-1] < len(data):
        stop = min(starts[-1] + FAR, len(data))
        while stop < len(data) and data[stop] & 0xC0 == 0x80:
            stop -= 1
        # To decode is the quickest way to count.
        firsts.append(firsts[-1] + len(data[starts[-1] : stop].decode("utf-8", "replace")))
        starts.append(stop)
    return Knot("text", 0, len(data), firsts[-1], packed(firsts[:-1]), packed(starts[:-1]))


# -- positions ----------------------------------------------------------------------------------------------


class _Unmarked(Exception):
    """The positions cannot be told."""


class _Positions:
    """Where each child begins, where its value does, and which values are large."""

    def __init__(self, at: list[int], values: list[int], sizes: list[int]) -> None:
        self.at = at
        self.values = values
        self.large = [index for index, size in enumerate(sizes) if size > FAR] if max(sizes) > FAR else []


class _Marks:
    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.starts: list[int] = []
        self._total = 0

    def add(self, positions: _Positions) -> None:
        """Marks for more children: before and after each large one, and every `FAR` bytes of small ones."""
        at = positions.at
        run = 0
        for large in [*positions.large, len(at)]:
            while run < large:
                self._mark(run, at[run])
                run = min(max(bisect_left(at, at[run] + FAR), run + 1), large)
            if large < len(at):
                self._mark(large, at[large])
                run = large + 1
        self._total += len(at)

    def _mark(self, index: int, at: int) -> None:
        self.firsts.append(self._total + index)
        self.starts.append(at)


def _windowed(data: View, start: int, end: int) -> Iterator[tuple[int, int, list[Raw]]]:
    """The items of a list, a window of it at a time, and the bytes where the window begins and ends."""
    raw = data[start:end]
    if len(raw) <= LARGE or not is_dense(raw):  # type: ignore[arg-type]
        yield start + 1, end - 1, OPEN_ARRAY.decode(raw)
        return
    at = start + 1
    for window, items in windows(raw):  # type: ignore[arg-type]
        yield at, at + len(window) - 2, items
        at += len(window) - 1


def _positions(data: View, at: int, stop: int, sizes: list[int]) -> _Positions:
    if not sizes:
        raise _Unmarked
    if at + sum(sizes) + len(sizes) - 1 == stop:
        # One comma between any two, and no whitespace anywhere: the sizes tell all.
        compact = list(accumulate(map(add, sizes[:-1], repeat(1)), initial=at))
        return _Positions(compact, compact, sizes)
    walked: list[int] = []
    space = _SPACE.match(data, at)
    at = space.end() if space else at
    for size in sizes:
        walked.append(at)
        between = _BETWEEN.match(data, at + size)
        at = between.end() if between else at + size
    return _Positions(walked, walked, sizes)


def _member_positions(data: View, start: int, end: int, values: dict[str, Raw]) -> _Positions:
    if not values:
        raise _Unmarked
    sizes = [len(value) for value in values.values()]
    spelled = [len(encode(key)) + 1 for key in values]
    if start + 1 + sum(sizes) + sum(spelled) + len(sizes) == end:
        at = list(accumulate(map(add, map(add, spelled[:-1], sizes[:-1]), repeat(1)), initial=start + 1))
        return _Positions(at, list(map(add, at, spelled)), sizes)
    keys: list[int] = []
    starts: list[int] = []
    space = _SPACE.match(data, start + 1)
    where = space.end() if space else start + 1
    for key, size in zip(values, sizes, strict=True):
        match = _KEY.match(data, where)
        if match is None or OPEN_STRING.decode(match[1]) != key:
            # Equal keys: the last value counts, and the walk is lost.
            raise _Unmarked
        keys.append(where)
        starts.append(match.end())
        between = _BETWEEN.match(data, match.end() + size)
        where = between.end() if between else match.end() + size
    space = _SPACE.match(data, where)
    if space is None or space.end() != end - 1:
        # The last key came before, with another value.
        raise _Unmarked
    return _Positions(keys, starts, sizes)
