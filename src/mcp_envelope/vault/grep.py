r"""Lines of a stored payload that match a pattern, each with the path and the offset where it is read.

Strategy: a text and every long string are read in pieces of a megabyte, and the unfinished line goes over into
the next piece. Of JSON only string values are searched, and most runs of small values have no match, so a run
is first searched as it is stored: every quote becomes a line break, so that each string is lines of its own
among others that are not meant, and RE2 goes over it once. Only if something is found there, or if the strings
cannot be told so simply (`\u` escapes, strings that hold JSON), is the run decoded and its strings searched;
and only if one of them has a match are paths worked out.

A line ends at `\n`; a `\r` before it, or at the end of the string, belongs to the line break, so `$` stands
before it. A string that ends with a line break has no empty line after it, and an empty string has no line.
In a string that holds JSON the strings of that JSON are searched, since that is where a path leads. A line of
more than eight megabytes is searched in parts, and each part can match once; a match that lies on a seam is
found if it is short.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import Final

import msgspec

from ..jsontree import encode
from ..text import characters
from .bounds import BadQuery, Budget, TooCostly
from .document import Value
from .pattern import Finder
from .pieces import Run
from .strings import children_of, decoded, path_of, places_in, texts_in

__all__ = ["LIMITS", "BadQuery", "Found", "Limits", "Match", "TooCostly", "run"]

_MOST_BYTES: Final = 1 << 16
_MOST_CONTEXT: Final = 100
# Characters of a line that are shown, and how many of them before the match.
_SHOWN: Final = 300
_LEAD: Final = 100
_PIECE: Final = 1 << 20
_LONGEST_LINE: Final = 8 << 20
# Of a longer line, so many characters are in two parts.
_OVERLAP: Final = 1 << 16
# A run that is larger is taken apart before it is decoded.
_LARGE_RUN: Final = 1 << 22
_ADVICE: Final = "Narrow it with a path, or read pages instead."

# No control character can stand in JSON as it is stored, so two of them can stand for others for a while.
_LINES: Final = bytes.maketrans(b'"\x00\x01', b'\n\\"')
_ESCAPES: Final = (
    (b"\\\\", b"\x00"),
    (b'\\"', b"\x01"),
    (b"\\n", b"\n"),
    (b"\\r", b"\r"),
    (b"\\t", b"\t"),
    (b"\\/", b"/"),
)


class Match(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line that matches: a page at `path` and `offset` begins with the match."""

    path: str = ""
    offset: int
    # Counted from 1 in the string or text at the path.
    line: int
    text: str
    before: list[str] = []
    after: list[str] = []


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """`total` counts all matching lines, if the search got to the end."""

    matches: list[Match]
    more: bool
    total: int | None = None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    pattern: int = 1000
    seconds: float = 10.0


LIMITS: Final = Limits()


class _Enough(Exception):
    """There is another match, and no room for it."""


def run(
    root: Value,
    pattern: str,
    *,
    context: int = 0,
    limits: Limits = LIMITS,
    ignore_case: bool = False,
    skip: int = 0,
    most_bytes: int = _MOST_BYTES,
) -> Found:
    """The matching lines from the `skip`-th on, as many as `most_bytes` hold; at least one, if there is one."""
    budget = Budget(seconds=limits.seconds, steps=1 << 62, memory=1 << 62, advice=_ADVICE)
    finder = Finder(pattern, ignore_case=ignore_case, longest=limits.pattern, budget=budget)
    search = _Search(finder, max(0, min(context, _MOST_CONTEXT)), skip, most_bytes)
    try:
        for part in root.walk():
            budget.look()
            search.part(part)
    except _Enough:
        return Found(matches=search.matches, more=True)
    except TooCostly:
        if not search.matches:
            raise
        return Found(matches=search.matches, more=True)
    except RecursionError:
        raise TooCostly(f"stopped, because values are nested too deeply. {_ADVICE}") from None
    return Found(matches=search.matches, more=False, total=search.seen)


class _Page:
    """What was read of a text and is not searched yet, and what is known of what came before."""

    def __init__(self, path: str, text: str = "") -> None:
        self.path = path
        self.text = text
        self.offset = 0
        self.line = 1
        # The lines right before, for context; and whether the text begins amid a line.
        self.before: list[str] = []
        self.inside = False

    def turn(self, stop: int, context: int) -> None:
        """Go on after some whole lines."""
        body = self.text[:stop]
        self.text = self.text[stop:]
        self.offset += stop
        self.line += body.count("\n")
        self.inside = False
        if context and body:
            lines = body.removesuffix("\n").rsplit("\n", context)[-context:]
            self.before = [*self.before, *map(_clipped, lines)][-context:]

    def move(self, count: int) -> None:
        """Go on amid a line."""
        self.text = self.text[count:]
        self.offset += count
        self.inside = True


class _Search:
    def __init__(self, finder: Finder, context: int, skip: int, most_bytes: int) -> None:
        self._finder = finder
        self._context = context
        self._skip = skip
        self._room = most_bytes
        self.seen = 0
        self.matches: list[Match] = []

    def part(self, part: Run | Value) -> None:
        if isinstance(part, Run):
            self._run(part.path, part.first, part.data)
        elif part.kind in ("string", "text"):
            self._text(part)

    # -- texts and long strings -----------------------------------------------------------------------------

    def _text(self, value: Value) -> None:
        # What has no outline is decoded whole for every piece, so there are not many pieces.
        room = max(_PIECE, value.size // 16)
        page = _Page(value.path)
        at = 0
        while at < value.total and (piece := value.text(at, room)):
            at += len(piece)
            page.text += piece
            if at < value.total:
                self._whole_lines(page)
        self._lines(page, len(page.text))

    def _whole_lines(self, page: _Page) -> None:
        """Search the lines that are there with their context; the rest waits for more."""
        stop = len(page.text)
        for _ in range(self._context + 1):
            stop = page.text.rfind("\n", 0, max(stop, 0))
        self._lines(page, stop + 1)
        if len(page.text) > _LONGEST_LINE:
            self._lines(page, page.text.rfind("\n") + 1)
        if len(page.text) > _LONGEST_LINE:
            found = self._matched(page, page.text, open_end=True)
            page.move(len(page.text) - (1 if found else _OVERLAP))

    def _lines(self, page: _Page, stop: int) -> None:
        """Search the page up to `stop`, the end of a line, and leave it there."""
        if stop:
            self._matched(page, page.text[:stop])
            page.turn(stop, self._context)

    def _matched(self, page: _Page, body: str, *, open_end: bool = False) -> bool:
        """Note the matches in the body, which the page begins with. Whether there were any."""
        # Line breaks without `\r`: the lines are as many, and begin with the same characters.
        searched = _plain(body)
        lines: list[str] = []
        starts: list[int] = []
        line = at = 0
        found = False
        for start in self._finder.starts(searched, inside=page.inside, open_end=open_end):
            found = True
            self.seen += 1
            if self.seen <= self._skip:
                continue
            if not lines:
                lines = body.removesuffix("\n").split("\n")
                starts = list(accumulate([len(one) + 1 for one in lines], initial=0))
                if len(body) < len(page.text):
                    lines += page.text[len(body) :].split("\n", self._context)[: self._context]
            line += searched.count(b"\n", at, start)
            at = start
            column = characters(searched[searched.rfind(b"\n", 0, start) + 1 : start])
            self._add(page, lines, line, starts[line], column)
        return found

    def _add(self, page: _Page, lines: list[str], line: int, start: int, column: int) -> None:
        if self._room <= 0:
            raise _Enough
        before = [_clipped(one) for one in lines[max(line - self._context, 0) : line]]
        if missing := self._context - len(before):
            before = [*page.before[-missing:], *before]
        match = Match(
            path=page.path,
            offset=page.offset + start + column,
            line=page.line + line,
            text=_clipped(lines[line], column),
            before=before,
            after=list(map(_clipped, lines[line + 1 : line + 1 + self._context])),
        )
        self.matches.append(match)
        self._room -= len(encode(match)) + 1

    # -- runs of small values -------------------------------------------------------------------------------

    def _run(self, path: str, first: int, data: bytes) -> None:
        if not self._may_match(data):
            return
        if len(data) > _LARGE_RUN:
            self._apart(path, first, data)
        else:
            self._decoded(path, first, data)

    def _decoded(self, path: str, first: int, data: bytes) -> None:
        value = decoded(data)
        texts = texts_in(value)
        lines = "\n".join(texts).encode()
        as_they_are = not (b"\r" in lines or b"\n\n" in lines or lines.endswith(b"\n"))
        if not as_they_are:
            lines = b"\n".join(map(_plain, texts))
        hits = list(self._finder.starts(lines)) if texts else []
        if self.seen + len(hits) <= self._skip:
            self.seen += len(hits)
            return
        sizes = map(len, texts if as_they_are and lines.isascii() else map(_plain, texts))
        begins = list(accumulate([size + 1 for size in sizes], initial=0))
        wanted = {bisect_right(begins, hit) - 1 for hit in hits}
        for trail, text in places_in(value, first, wanted):
            self._matched(_Page(path + path_of(trail), text), text)

    def _may_match(self, data: bytes) -> bool:
        """Whether a string in there may match. Says yes also for what matches between the strings."""
        if self._finder.holds_json(data):
            return True
        for escape, character in _ESCAPES:
            if b"\\" not in data:
                break
            data = data.replace(escape, character)
        if b"\\" in data:
            return True
        return self._finder.any(_without_returns(data.translate(_LINES)))

    def _apart(self, path: str, first: int, data: bytes) -> None:
        """A large run (the outline cannot tell where its parts are) as smaller ones."""
        some: list[bytes] = []
        size = begin = 0
        for index, (step, key, raw) in enumerate(children_of(data, first)):
            if len(raw) > _LARGE_RUN or size > _PIECE:
                self._joined(path, first + begin, some, data)
                some, size, begin = [], 0, index
            if len(raw) > _LARGE_RUN:
                begin = index + 1
                for part in Value.small(f"{path}/{step}", raw).opened().walk():
                    self.part(part)
            else:
                some.append(key + raw)
                size += len(raw)
        self._joined(path, first + begin, some, data)

    def _joined(self, path: str, first: int, some: list[bytes], data: bytes) -> None:
        run = data[:1] + b",".join(some) + data[-1:]
        if some and self._may_match(run):
            self._decoded(path, first, run)


def _plain(text: str) -> bytes:
    """The lines of a text, with nothing but `\\n` between them and nothing after the last one."""
    return _without_returns(text.removesuffix("\n").encode())


def _without_returns(lines: bytes) -> bytes:
    return lines.replace(b"\r\n", b"\n").removesuffix(b"\r") if b"\r" in lines else lines


def _clipped(line: str, column: int = 0) -> str:
    """A line as it is shown: of a long one, the part around the column."""
    line = line.removesuffix("\r")
    if len(line) <= _SHOWN:
        return line
    start = max(min(column - _LEAD, len(line) - _SHOWN), 0)
    head, tail = "…" if start else "", "…" if start + _SHOWN < len(line) else ""
    return f"{head}{line[start : start + _SHOWN]}{tail}"
