"""An RE2 pattern, checked, and made to search many lines at a time in bounded time.

Strategy: RE2 takes time linear in the text, but a hostile pattern makes each byte a thousand times dearer, and
a search cannot be interrupted. So the program that RE2 makes of a pattern may not be large, and the larger it
is the less text is searched at once; the clock is asked in between.

A line is searched as if it were alone. With `(?m)` and `never_nl` a buffer of lines gives the same matches as
the lines do one by one, but for what means the ends of the whole buffer or a part of a character: `\\A` and
`\\z` are read as `^` and `$`, and `(?-m)` and `\\C` are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from ..jsontree import OPENS_JSON
from .bounds import BadQuery, Budget, printable, shown

_MEMORY: Final = 8 << 20
# Instructions of the program. Each may cost 15 ns for each byte of text if the pattern is hostile.
_LARGEST_PROGRAM: Final = 5000
_AT_ONCE: Final = 1 << 25
# A line that is longer than what may be searched at once is searched in parts. So many bytes are in two of
# them, so that what lies on a seam is found, unless it is longer than that.
_OVERLAP: Final = 1 << 12
_TOKEN: Final = re.compile(
    r"\\Q.*?(?:\\E|\Z)|\\x\{[^}]*\}?|\\[pP]\{[^}]*\}?|\\.|\[\^?\]?(?:\[:[^\]]*:\]|\\.|[^\]\\])*+\]"
    r"|\(\?[a-zA-Z-]*[:)]|.",
    re.DOTALL,
)
_ADVICE: Final = {
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


class Finder:
    """A compiled pattern and the time that is left for it."""

    def __init__(self, pattern: str, *, ignore_case: bool, longest: int, budget: Budget) -> None:
        if len(pattern) > longest:
            raise bad(pattern, longest, f"the pattern has {len(pattern):,} characters, {longest:,} may be")
        try:
            pattern.encode()
        except UnicodeEncodeError as error:
            raise bad(pattern, error.start, "half of a surrogate pair is no character") from None
        import re2  # type: ignore[import-untyped]

        options = _quiet(re2)
        options.never_nl = True
        options.case_sensitive = not ignore_case
        try:
            self._regex: Any = re2.compile(f"(?m){_by_line(pattern)}", options)
        except re2.error as error:
            raise _misread(pattern, error.args[0] if error.args else b"") from None
        finally:
            # The library keeps 128 patterns for the whole process, each with megabytes of states.
            re2.purge()
        size = self._regex.programsize
        if size > _LARGEST_PROGRAM:
            raise bad(pattern, 0, "the pattern is too large; write smaller counts of repetition")
        self._holds_json: Any = re2.compile(b'"' + OPENS_JSON.pattern.replace(b"*+", b"*"), _quiet(re2))
        self._room = max(_AT_ONCE // size, 4 * _OVERLAP)
        self._budget = budget

    def holds_json(self, data: bytes) -> bool:
        """Whether there may be a string in this JSON that holds JSON. RE2 tells faster than Python does."""
        return self._holds_json.search(data) is not None

    def any(self, lines: bytes) -> bool:
        return next(self.starts(lines), None) is not None

    def starts(self, lines: bytes, *, inside: bool = False, open_end: bool = False) -> Iterator[int]:
        """For each line that has a match, the byte where the first match begins.

        `inside`: the text begins amid a line, with one character that is there to be looked at only.
        `open_end`: it ends amid a line, likewise.
        """
        at = _next_character(lines) if inside else 0
        end = max(_character(lines, len(lines) - 1), at) if open_end else len(lines)
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
            self._budget.look()
            part = min(at + self._room, stop)
            match = self._regex.search(lines, at, part)
            if match is not None:
                start: int = match.start()
                return start
            if part == stop:
                return None
            at = _character(lines, part - _OVERLAP)


def _quiet(re2: Any) -> Any:
    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False
    options.never_capture = True
    return options


def _character(text: bytes, at: int) -> int:
    """Where the character begins that this byte belongs to."""
    while at > 0 and text[at] & 0xC0 == 0x80:
        at -= 1
    return at


def _next_character(text: bytes) -> int:
    """Where the second character begins."""
    at = 1
    while at < len(text) and text[at] & 0xC0 == 0x80:
        at += 1
    return at


def bad(pattern: str, position: int, what: str) -> BadQuery:
    position = min(max(position, 0), len(pattern))
    place = shown(pattern, position)
    example = r"(?i)error: .*\btimeout\b"
    return BadQuery(f"{what}, at character {position}: {place}. An example that works: {example}", position)


def _tokens(pattern: str) -> list[tuple[int, str]]:
    return [(token.start(), token[0]) for token in _TOKEN.finditer(pattern)]


def _by_line(pattern: str) -> str:
    parts: list[str] = []
    for at, token in _tokens(pattern):
        if token == "\\C":
            raise bad(pattern, at, r"\C may be part of a character; use a dot")
        if token.startswith("(?") and "m" in token.partition("-")[2]:
            raise bad(pattern, at, "lines are searched one by one, so `m` cannot be turned off")
        parts.append({"\\A": "^", "\\z": "$"}.get(token, token))
    return "".join(parts)


def _misread(pattern: str, error: bytes | str) -> BadQuery:
    """What RE2 says is a reason and mostly the part of the pattern that it is about."""
    told = error.decode("utf-8", "replace") if isinstance(error, bytes) else error
    reason, _, part = told.partition(": ")
    tokens = _tokens(pattern)
    if reason == "missing )":
        return bad(pattern, _unpaired(tokens, "("), "a parenthesis is opened here and never closed")
    if reason == "unexpected )":
        return bad(pattern, _unpaired(tokens, ")"), "a parenthesis is closed here that was never opened")
    if reason == "missing ]":
        return bad(pattern, pattern.rfind(part), "a bracket is opened here and never closed")
    if reason.startswith("trailing"):
        return bad(pattern, len(pattern) - 1, "a backslash at the end; write two for one")
    if not part:
        return bad(pattern, 0, f"{printable(reason)[:60]}; write smaller counts of repetition")
    advice = _ADVICE.get(part, "")
    if re.fullmatch(r"\\[1-9]\d*", part):
        advice = "RE2 has no backreferences"
    at = next((at for at, _ in tokens if pattern.startswith(part, at)), max(pattern.find(part), 0))
    if part == "(?P" and (named := re.search(r"\(\?P(?!<)", pattern)):
        at = named.start()
    what = f"{reason} '{printable(part)[:40]}'"
    return bad(pattern, at, f"{advice} ({what})" if advice else what)


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
