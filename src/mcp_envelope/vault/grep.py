r"""Lines of a stored payload that match an RE2 pattern, each with the path and the offset where it is read.

Strategy: a text and every long string are read a megabyte at a time, and an unfinished line is carried over. Of
JSON only string values are searched, and most chunks of small values have no match, so a chunk is first searched
as it is stored: every quote becomes a line break, so that each string is lines of its own among others that are
not meant, and RE2 goes over it once. Only if something is found there, or if the strings cannot be told so simply
(`\u` escapes, strings that hold JSON), is the chunk decoded and its strings searched; and only if one of them has
a match are paths worked out.

A line ends at `\n`; a `\r` before it, or at the end of the string, belongs to the line break, so `$` stands
before it. A string that ends with a line break has no empty line after it, and an empty string has no line.
In a string that holds JSON the strings of that JSON are searched, since that is where a path leads. A line of
more than eight megabytes is searched in parts, and each part can match once; a match across two parts is found if
it is short.

RE2 takes time linear in the text, but a hostile pattern makes each byte a thousand times dearer, and a search
cannot be interrupted. So the program that RE2 makes of a pattern may not be large, and the larger it is the less
text is searched at once; the clock is read in between. A line is searched as if it were alone: with `(?m)` and
`never_nl` a buffer of lines gives the same matches as the lines do one by one, except for what means the ends of
the whole buffer or a part of a character. So `\A` and `\z` are read as `^` and `$`, and `(?-m)` and `\C` are
refused.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, Final

import msgspec

from ..fit.text import characters
from ..jsontext.document import OPENS_JSON, Node, encode
from .document import Child, Chunk, StoredValue, children_of, decode_json, escaped_step, joined, text_parts
from .layout import character_start
from .limits import BadQuery, CostGuard, SearchLimits, TooCostly, printable

__all__ = ["LIMITS", "BadQuery", "Found", "Match", "SearchLimits", "TooCostly", "run"]

_MOST_BYTES: Final = 1 << 16
_MOST_CONTEXT: Final = 100
# Characters of a line that are shown, and how many of them before the match.
_SHOWN: Final = 300
_LEAD: Final = 100
_PART: Final = 1 << 20
_LONGEST_LINE: Final = 8 << 20
# How many characters the parts of a longer line overlap by.
_OVERLAP: Final = 1 << 16
# A chunk that is larger is taken apart before it is decoded.
_LARGE_CHUNK: Final = 1 << 22
# How much is searched only to count the matches for which there is no room, in bytes or characters.
_COUNTED: Final = 8 << 20
_ADVICE: Final = "Narrow it with a path, or read pages instead."

# Stored JSON has no control characters, so two of them can stand for others for a while.
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
    """`more` says that there are others after these. `total` counts all, if the search got to the end."""

    matches: list[Match]
    more: bool
    total: int | None = None


LIMITS: Final = SearchLimits(length=1000)


class _Enough(Exception):
    """There are other matches, for which there is no room, and too much is left to count them."""


def run(
    root: StoredValue,
    pattern: str,
    *,
    context: int = 0,
    limits: SearchLimits = LIMITS,
    skip: int = 0,
    most_bytes: int = _MOST_BYTES,
) -> Found:
    """The matching lines from the `skip`-th on, as many as `most_bytes` hold; at least one, if there is one.

    The rest is counted, because a model takes the number that it is told for the number that there are.
    """
    guard = CostGuard(limits, _ADVICE)
    compiled = _LinePattern(pattern, limits.length, guard)
    search = _Search(compiled, max(0, min(context, _MOST_CONTEXT)), skip, most_bytes)
    try:
        for part in root.walk():
            guard.check_clock()
            search.part(part)
    except (_Enough, TooCostly):
        if not search.matches:
            raise
        return Found(matches=search.matches, more=True)
    except RecursionError:
        raise TooCostly(f"stopped, because values are nested too deeply. {_ADVICE}") from None
    return Found(matches=search.matches, more=search.is_full, total=search.seen)


class _Window:
    """The text that was read and not searched yet, and what came before it."""

    def __init__(self, path: str, text: str = "") -> None:
        self.path = path
        self.text = text
        self.offset = 0
        self.line = 1
        # The lines right before, for context; and whether the text begins in the middle of a line.
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
        """Go on in the middle of a line."""
        self.text = self.text[count:]
        self.offset += count
        self.inside = True


class _Search:
    def __init__(self, pattern: _LinePattern, context: int, skip: int, most_bytes: int) -> None:
        self._pattern = pattern
        self._context = context
        self._skip = skip
        self._room = most_bytes
        self.seen = 0
        self.matches: list[Match] = []
        # Whether there was a match for which there was no room, and how much was searched since then.
        self.is_full = False
        self._counted = 0

    def part(self, part: Chunk | StoredValue) -> None:
        if isinstance(part, Chunk):
            self._count(len(part.raw))
        if isinstance(part, Chunk) and len(part.raw) > _LARGE_CHUNK:
            self._large_chunk(part)
        elif isinstance(part, Chunk):
            self._chunk(part)
        elif part.kind in ("string", "text"):
            self._text(part)

    def _count(self, size: int) -> None:
        self._counted += size if self.is_full else 0
        if self._counted > _COUNTED:
            raise _Enough

    # -- texts and long strings -----------------------------------------------------------------------------

    def _text(self, value: StoredValue) -> None:
        page = _Window(value.path)
        at = 0
        for piece in text_parts(value, size=_PART):
            at += len(piece)
            self._count(len(piece))
            page.text += piece
            if at < value.total:
                self._whole_lines(page)
        self._lines(page, len(page.text))

    def _whole_lines(self, page: _Window) -> None:
        """Search the lines that are complete with their context; the rest waits for more text."""
        stop = len(page.text)
        for _ in range(self._context + 1):
            stop = page.text.rfind("\n", 0, max(stop, 0))
        self._lines(page, stop + 1)
        if len(page.text) > _LONGEST_LINE:
            self._lines(page, page.text.rfind("\n") + 1)
        if len(page.text) > _LONGEST_LINE:
            found = self._matched(page, page.text, open_end=True)
            page.move(len(page.text) - (1 if found else _OVERLAP))

    def _lines(self, page: _Window, stop: int) -> None:
        """Search the page up to `stop`, the end of a line, and leave it there."""
        if stop:
            self._matched(page, page.text[:stop])
            page.turn(stop, self._context)

    def _matched(self, page: _Window, body: str, *, open_end: bool = False) -> bool:
        """Note the matches in the body, which the page begins with; return whether there were any."""
        # Line breaks without `\r`: the lines are as many, and begin with the same characters.
        searched = _plain(body)
        lines: list[str] = []
        starts: list[int] = []
        line = at = 0
        found = False
        for start in self._pattern.starts(searched, inside=page.inside, open_end=open_end):
            found = True
            self.seen += 1
            if self.seen <= self._skip or self.is_full:
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

    def _add(self, page: _Window, lines: list[str], line: int, start: int, column: int) -> None:
        if self.matches and self._room <= 0:
            self.is_full = True
            return
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

    # -- chunks of small values -----------------------------------------------------------------------------

    def _chunk(self, chunk: Chunk) -> None:
        if not self._may_match(chunk.raw):
            return
        value = decode_json(_DECODER, chunk.raw, float)
        texts = _texts_in(value)
        lines = "\n".join(texts).encode()
        as_they_are = not (b"\r" in lines or b"\n\n" in lines or lines.endswith(b"\n"))
        if not as_they_are:
            lines = b"\n".join(map(_plain, texts))
        hits = list(self._pattern.starts(lines)) if texts else []
        if self.is_full or self.seen + len(hits) <= self._skip:
            self.seen += len(hits)
            return
        sizes = map(len, texts if as_they_are and lines.isascii() else map(_plain, texts))
        begins = list(accumulate([size + 1 for size in sizes], initial=0))
        wanted = {bisect_right(begins, hit) - 1 for hit in hits}
        for trail, text in _texts_with_paths(value, chunk.first, wanted):
            self._matched(_Window(chunk.path + _path_of(trail), text), text)

    def _may_match(self, data: bytes) -> bool:
        """Whether a string in it may match. Also true if something between the strings matches."""
        if self._pattern.holds_json(data):
            return True
        for escape, character in _ESCAPES:
            if b"\\" not in data:
                break
            data = data.replace(escape, character)
        if b"\\" in data:
            return True
        return self._pattern.matches(_without_returns(data.translate(_LINES)))

    def _large_chunk(self, chunk: Chunk) -> None:
        """Search a chunk as smaller ones. It is large because the index cannot tell where its parts are."""
        if not self._may_match(chunk.raw):
            return
        node = Node(chunk.raw)
        some: list[Child] = []
        size = 0

        def search_some() -> None:
            if some:
                self._chunk(Chunk(chunk.path, some[0].ordinal, joined(node.kind, some)))

        for child in children_of(node, chunk.first):
            is_large = len(child.raw) > _LARGE_CHUNK
            if is_large or size > _PART:
                search_some()
                some, size = [], 0
            if is_large:
                value = StoredValue.small(f"{chunk.path}/{child.step}", bytes(child.raw))
                for part in value.opened().walk():
                    self.part(part)
            else:
                some.append(child)
                size += len(child.raw)
        search_some()


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


# -- patterns ----

_MEMORY: Final = 8 << 20
# Instructions of the program. Each may cost 15 ns for each byte of text if the pattern is hostile.
_LARGEST_PROGRAM: Final = 5000
_AT_ONCE: Final = 1 << 25
# A line that is longer than what may be searched at once is searched in parts. They overlap by this many bytes, so
# that a match across two parts is found, unless it is longer.
_SEAM: Final = 1 << 12
_TOKEN: Final = re.compile(
    r"\\Q.*?(?:\\E|\Z)|\\x\{[^}]*\}?|\\[pP]\{[^}]*\}?|\\.|\[\^?\]?(?:\[:[^\]]*:\]|\\.|[^\]\\])*+\]"
    r"|\(\?[a-zA-Z-]*[:)]|.",
    re.DOTALL,
)
_HINTS: Final = {
    "(?=": "RE2 has no lookahead",
    "(?!": "RE2 has no lookahead",
    "(?<=": "RE2 has no lookbehind",
    "(?<!": "RE2 has no lookbehind",
    "(?<": "RE2 has no lookbehind, and a group is named (?P<name>…)",
    "(?>": "RE2 has no atomic groups and needs none",
    "(?P": "RE2 has no backreferences",
    "(?(": "RE2 has no conditions",
    "(?#": "RE2 has no comments",
    "\\Z": "the end of a line is $",
    "++": "RE2 has no possessive repetition and needs none",
    "*+": "RE2 has no possessive repetition and needs none",
    "?+": "RE2 has no possessive repetition and needs none",
}


class _LinePattern:
    """A compiled pattern and the time that is left for it."""

    def __init__(self, pattern: str, longest: int, guard: CostGuard) -> None:
        if len(pattern) > longest:
            raise _bad(
                pattern, longest, f"the pattern has {len(pattern):,} characters, and the limit is {longest:,}"
            )
        try:
            pattern.encode()
        except UnicodeEncodeError as error:
            raise _bad(pattern, error.start, "half of a surrogate pair is not a character") from None
        import re2  # type: ignore[import-untyped]

        options = _quiet(re2)
        options.never_nl = True
        try:
            self._regex: Any = re2.compile(f"(?m){_by_line(pattern)}", options)
        except re2.error as error:
            raise _misread(pattern, error.args[0] if error.args else b"") from None
        finally:
            # The library keeps 128 patterns for the whole process, each with megabytes of states.
            re2.purge()
        size = self._regex.programsize
        if size > _LARGEST_PROGRAM:
            raise _bad(pattern, 0, "the pattern is too large; use smaller repetition counts")
        self._holds_json: Any = re2.compile(b'"' + OPENS_JSON.pattern.replace(b"*+", b"*"), _quiet(re2))
        self._room = max(_AT_ONCE // size, 4 * _SEAM)
        self._guard = guard

    def holds_json(self, data: bytes) -> bool:
        """Whether there may be a string in this JSON that holds JSON. RE2 is faster at this than Python."""
        return self._holds_json.search(data) is not None

    def matches(self, lines: bytes) -> bool:
        return next(self.starts(lines), None) is not None

    def starts(self, lines: bytes, *, inside: bool = False, open_end: bool = False) -> Iterator[int]:
        """For each line that has a match, the byte where the first match begins.

        `inside`: the text begins in the middle of a line, with one character for context.
        `open_end`: it ends in the middle of a line, likewise.
        """
        at = _next_character(lines) if inside else 0
        end = max(character_start(lines, len(lines) - 1), at) if open_end else len(lines)
        while at <= end:
            stop = self._stop(lines, at, end)
            start = self._search(lines, at, stop)
            if start is None:
                at = stop + 1
                continue
            yield start
            line_end = lines.find(b"\n", start, end)
            if line_end < 0:
                return
            at = line_end + 1

    def _stop(self, lines: bytes, at: int, end: int) -> int:
        """The end of as many lines as may be searched at once; of one, if it is longer than that."""
        if end - at <= self._room:
            return end
        stop = lines.rfind(b"\n", at, at + self._room)
        if stop < 0:
            stop = lines.find(b"\n", at + self._room, end)
        return stop if stop >= 0 else end

    def _search(self, lines: bytes, at: int, stop: int) -> int | None:
        while True:
            self._guard.check_clock()
            part = min(at + self._room, stop)
            match = self._regex.search(lines, at, part)
            if match is not None:
                start: int = match.start()
                return start
            if part == stop:
                return None
            at = character_start(lines, part - _SEAM)


def _quiet(re2: Any) -> Any:
    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False
    options.never_capture = True
    return options


def _next_character(text: bytes) -> int:
    """Where the second character begins."""
    at = 1
    while at < len(text) and text[at] & 0xC0 == 0x80:
        at += 1
    return at


def _bad(pattern: str, position: int, what: str) -> BadQuery:
    return BadQuery(what, pattern, position, r"(?i)error: .*\btimeout\b")


def _tokens(pattern: str) -> list[tuple[int, str]]:
    return [(token.start(), token[0]) for token in _TOKEN.finditer(pattern)]


def _by_line(pattern: str) -> str:
    parts: list[str] = []
    for at, token in _tokens(pattern):
        if token == "\\C":
            raise _bad(pattern, at, r"\C may be part of a character; use a dot")
        if token.startswith("(?") and "m" in token.partition("-")[2]:
            raise _bad(pattern, at, "lines are searched one by one, so `m` cannot be turned off")
        parts.append({"\\A": "^", "\\z": "$"}.get(token, token))
    return "".join(parts)


def _misread(pattern: str, error: bytes | str) -> BadQuery:
    """RE2 gives a reason, and mostly the part of the pattern that it is about."""
    message = error.decode("utf-8", "replace") if isinstance(error, bytes) else error
    reason, _, part = message.partition(": ")
    tokens = _tokens(pattern)
    if reason == "missing )":
        return _bad(pattern, _unpaired(tokens, "("), "a parenthesis is opened here and never closed")
    if reason == "unexpected )":
        return _bad(pattern, _unpaired(tokens, ")"), "a parenthesis is closed here that was never opened")
    if reason == "missing ]":
        return _bad(pattern, pattern.rfind(part), "a bracket is opened here and never closed")
    if reason.startswith("trailing"):
        return _bad(
            pattern, len(pattern) - 1, "the pattern ends with a backslash; write two for a literal one"
        )
    if not part:
        return _bad(pattern, 0, f"{printable(reason)[:60]}; use smaller repetition counts")
    advice = _HINTS.get(part, "")
    if re.fullmatch(r"\\[1-9]\d*", part):
        advice = "RE2 has no backreferences"
    at = next((at for at, _ in tokens if pattern.startswith(part, at)), max(pattern.find(part), 0))
    if part == "(?P" and (named := re.search(r"\(\?P(?!<)", pattern)):
        at = named.start()
    what = f"{reason} '{printable(part)[:40]}'"
    return _bad(pattern, at, f"{advice} ({what})" if advice else what)


def _unpaired(tokens: list[tuple[int, str]], wanted: str) -> int:
    """Where the first `)` without its `(` is, or the last `(` without its `)`."""
    opened: list[int] = []
    for at, token in tokens:
        if token == "(" or (token.startswith("(?") and token.endswith(":")):
            opened.append(at)
        elif token == ")":
            if not opened and wanted == ")":
                return at
            if opened:
                opened.pop()
    return opened[-1] if opened else 0


# -- strings ----

# What a string that holds JSON begins with.
_OPENERS: Final = "[{ \t\r\n"
_LOOK: Final = 1 << 12
# Numbers are not looked at, so they may become anything; none is too large for a float.
_DECODER: Final = msgspec.json.Decoder(float_hook=float)
# The last step of a path, and those before it. Cheap to make, since few of them become paths.
Trail = tuple[Any, ...]


def _texts_in(value: Any) -> list[str]:
    """The strings that have lines, in order. Most chunks that are decoded end here, so this is plain and quick."""
    texts: list[str] = []
    waiting = [value]
    while waiting:
        one = waiting.pop()
        kind = type(one)
        if kind is dict:
            waiting.extend(reversed(one.values()))
        elif kind is list:
            waiting.extend(reversed(one))
        elif kind is str and one:
            if one[0] in _OPENERS and (inner := _held(one)) is not None:
                waiting.append(inner)
            else:
                texts.append(one)
    return texts


def _texts_with_paths(value: Any, first: int, wanted: set[int]) -> Iterator[tuple[Trail, str]]:
    """Some of the same strings, by their numbers, with the steps that lead there, the last one first."""
    waiting: list[tuple[Trail, Any]] = [((), value)]
    index, left = -1, len(wanted)
    while left:
        trail, one = waiting.pop()
        if type(one) is str and one:
            inner = _held(one) if one[0] in _OPENERS else None
            if inner is None:
                index += 1
                if index in wanted:
                    left -= 1
                    yield trail, one
                continue
            one = inner
        if type(one) is list:
            begin = first if one is value else 0
            steps = range(begin + len(one) - 1, begin - 1, -1)
            waiting.extend([((step, trail), item) for step, item in zip(steps, reversed(one), strict=True)])
        elif type(one) is dict:
            waiting.extend([((key, trail), item) for key, item in reversed(one.items())])


def _path_of(trail: Trail) -> str:
    steps: list[str] = []
    while trail:
        steps.append(escaped_step(str(trail[0])))
        trail = trail[1]
    return "".join([f"/{step}" for step in reversed(steps)])


def _held(text: str) -> Any:
    """The list or object that a string holds as JSON, where a path would go on into it."""
    if not OPENS_JSON.match(encode(text[:_LOOK])[1:_LOOK]):
        return None
    try:
        value = decode_json(_DECODER, text.encode(), float)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list | dict) else None
