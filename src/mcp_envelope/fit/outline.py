"""What a long text consists of, and which of its lines matter.

Strategy: recognise the few kinds of text that tools return: a diff has files with added and removed lines, Markdown
has headings, source code has definitions, CSV has columns, a log has levels. Each is found by one pass of a regular
expression over the beginning of the text, up to a bound that is stated if it is reached. The lines that matter are
those with an error in them, and those with words of the call.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate, islice, pairwise
from typing import Any, Final

import msgspec

from .records import Profile, Records, csv_columns, profile, visible
from .survey import Words, standing_out

_LOOKED_AT: Final = 4 << 20
_MOST_ENTRIES: Final = 400
_MOST_NOTABLE: Final = 40
_MOST_WORDS: Final = 8
_SHOWN: Final = 80
# Fewer than this are no outline.
_FEWEST: Final = 3
_ERROR: Final = re.compile(
    rb"\b(?:ERROR|Error|error|FATAL|Fatal|fatal|FAILED|Failed|failed|FAIL|CRITICAL|critical|panic|Traceback|"
    rb"Exception|exception|[A-Z]\w+Error)\b"
)
_DIFF: Final = re.compile(
    rb"^(?:diff --git a/(.+?) b/|\+\+\+ (?:b/)?([^\t\r\n]+)|([-+])(?![-+]{2} ))", re.MULTILINE
)
# A heading, or where code begins or ends.
_HEADING: Final = re.compile(rb"^(?:[ \t]*(`{3,}|~{3,})([^\r\n]*)|#{1,6} +\S[^\r\n]*)", re.MULTILINE)
_SECOND: Final = re.compile(rb"^##+ +\w", re.MULTILINE)
_BEFORE: Final = (
    rb"^[ \t]*(?:(?:export|default|declare|public|private|protected|static|abstract|async|unsafe|"
    rb"pub(?:\([^)\n]*\))?)[ \t]+)*"
    rb"(def|class|func|function|fn|interface|struct|enum|trait|impl|type)\b(?:[ \t]*\*)?(?:[ \t]*<[^\n<>]*>)?[ \t]+"
    rb"(?:\([^)\n]*\)[ \t]*)?(?:self\.)?([\w$]+[?!]?)"
)
_AFTER: Final = rb"[ \t]*(?:[(<{:=;\[]|(?:extends|implements|for|struct|interface|where|func)\b"
_DEFINITION: Final = re.compile(rb"%b(?=%b))[^\r\n]*" % (_BEFORE, _AFTER), re.MULTILINE)
# In Ruby, nothing has to follow a name; in other texts, "class of" could be prose.
_RUBY: Final = re.compile(rb"^[ \t]*end[ \t]*\r?$", re.MULTILINE)
_RUBY_DEFINITION: Final = re.compile(rb"%b(?=%b|[ \t]*\r?$))[^\r\n]*" % (_BEFORE, _AFTER), re.MULTILINE)
_FUNCTIONS: Final = (b"def", b"func", b"function", b"fn")
_COMMIT: Final = re.compile(
    rb"^commit ([0-9a-f]{7})[0-9a-f]*\b[^\n]*\n(?:[A-Z]\w+:[^\n]*\n)+\r?\n {4}([^\r\n]*)", re.MULTILINE
)
_LEVEL: Final = re.compile(
    rb"\b(?:trace|debug|info|notice|warn|warning|error|critical|fatal)\b", re.IGNORECASE
)
_CODE: Final = re.compile(
    rb"^[^\r\n]*?(?:\b(?:error|warning)|:\d+:)[: \[]+([A-Z]{1,6}\d{2,5})\b", re.MULTILINE
)


def notable_lines(text: bytes, words: Words, table: Records | None = None) -> list[tuple[int, int]]:
    """Return where the lines that matter begin and end, the best first; `table` is the text if it is CSV."""
    head = _head(text)
    if table is not None and not table.sampled and (rows := _rows(head, table.total)):
        items = [head[begin:end] for begin, end in rows]
        return [rows[index] for indices in standing_out(table, items, words) for index in indices]
    found: dict[int, tuple[int, int]] = {}
    for sought in islice(sorted(words.values, key=len, reverse=True), _MOST_WORDS):
        pattern = re.compile(re.escape(sought.encode("utf-8", "replace")), re.IGNORECASE)
        places = list(islice(pattern.finditer(head), _MOST_NOTABLE + 1))
        # What is everywhere says nothing.
        if len(places) <= _MOST_NOTABLE:
            found |= {start: (start, end) for start, end in _lines_at(head, places)}
    errors = list(_lines_at(head, islice(_ERROR.finditer(head), _MOST_NOTABLE)))
    return list((found | {start: (start, end) for start, end in errors if start not in found}).values())


def _rows(text: bytes, count: int) -> list[tuple[int, int]]:
    """Where the rows of CSV begin and end, if each is a line."""
    ends = list(accumulate(map(len, text.splitlines(keepends=True))))
    return list(pairwise(ends)) if len(ends) == count + 1 else []


def _lines_at(text: bytes, places: Any) -> Iterator[tuple[int, int]]:
    last = -1
    for place in places:
        if place.start() < last:
            continue
        start = text.rfind(b"\n", 0, place.start()) + 1
        last = text.find(b"\n", place.start()) + 1 or len(text)
        yield start, last


class Outline(Profile, frozen=True):
    """The same for a text: `kind` says what the entries are, and `told` is a line about all of them.

    `brief` has the same entries in fewer words, if there is a way. In between, `more` were not made.
    """

    kind: str = ""
    told: str = ""
    entries: Sequence[str] = ()
    brief: Sequence[str] = ()
    more: int = 0

    def within(self, room: int) -> dict[str, Any]:
        made = super().within(room)
        if not self.kind:
            return made
        left = room - 40 - len(self.told.encode())
        sizes = [len(entry.encode()) + 3 for entry in self.entries]
        entries = self.entries
        if self.brief and sum(sizes) > left:
            entries, sizes = self.brief, [len(entry.encode()) + 3 for entry in self.brief]
        count = len(entries)
        if sum(sizes) > left:
            # The last one says where the others end.
            left -= sizes[-1] + 16
            count = sum(1 for size in accumulate(sizes[:-1]) if size <= left)
            if not count:
                return {"told": self.told} if self.told and left > 0 else {}
        shown = list(entries[:count])
        if more := len(entries) - count - 1 + self.more if count < len(entries) else self.more:
            shown.append(f"… {more} more")
        if count < len(entries):
            shown.append(entries[-1])
        return ({"told": self.told} if self.told else {}) | {self.kind: shown}


def outline(text: bytes, words: Collection[str] = (), table: Records | None = None) -> Outline | None:
    """Return what the text consists of, if that is recognised; `table` is the text as one, if it is CSV."""
    if table is not None:
        found = profile(table, words)
        return Outline(
            table.total, table.sampled, found.fields, found.lines, found.means, found.steps, found.unseen
        )
    head = _head(text)
    # In source code, a comment may look like a heading; in Markdown, an example has definitions.
    kinds = [_headings, _definitions] if _SECOND.search(head) else [_definitions, _headings]
    made = next((made for find in (_files, _commits, *kinds, _levels) if (made := find(head))), None)
    if made is not None and len(head) < len(text):
        seen = head.count(b"\n")
        return msgspec.structs.replace(made, told=f"{made.told}, in the first {seen} lines")
    return made


def table_of(text: bytes) -> Records | None:
    """Return the rows of a text that is CSV."""
    head = _head(text)
    if table := csv_columns(head.decode("utf-8", "replace")):
        rows = len(next(iter(table.values())))
        return Records(table, rows, 0 if len(head) == len(text) else rows)
    return None


def _head(text: bytes) -> bytes:
    head = text[:_LOOKED_AT]
    return head if len(head) == len(text) else head[: head.rfind(b"\n") + 1]


def _headings(text: bytes) -> Outline | None:
    places = list(_outside_code(_HEADING.finditer(text)))
    if len(places) < _FEWEST:
        return None
    return _ordered("headings", f"{len(places)} headings", _numbered(text, places))


def _definitions(text: bytes) -> Outline | None:
    places = list((_RUBY_DEFINITION if _RUBY.search(text) else _DEFINITION).finditer(text))
    if len(places) < _FEWEST:
        return None
    counted = Counter(place[1].decode() for place in places)
    each = ", ".join(f"{count} {keyword}" for keyword, count in counted.most_common())
    told = f"{len(places)} definitions: {each}"
    brief = [place[2] if place[1] in _FUNCTIONS else b"%b %b" % (place[1], place[2]) for place in places]
    return _ordered("definitions", told, _numbered(text, places), _numbered(text, places, brief))


def _commits(text: bytes) -> Outline | None:
    places = list(_COMMIT.finditer(text))
    if len(places) < _FEWEST:
        return None
    entries = [
        f"{place[1].decode()} {visible(place[2].decode('utf-8', 'replace')[:_SHOWN])}" for place in places
    ]
    return _ordered("commits", f"{len(places)} commits", entries)


def _ordered(kind: str, told: str, entries: Sequence[str], brief: Sequence[str] = ()) -> Outline:
    """Entries in the order of the text, of which the last is one."""
    more = max(len(entries) - _MOST_ENTRIES, 0)
    if more:
        entries = [*entries[: _MOST_ENTRIES - 1], entries[-1]]
        brief = [*brief[: _MOST_ENTRIES - 1], brief[-1]] if brief else ()
    return Outline(0, 0, kind=kind, told=told, entries=entries, brief=brief, more=more)


def _levels(text: bytes) -> Outline | None:
    """In how many lines of a log each level is, and each code of an error, such as TS2304 or E501."""
    found: dict[str, set[int]] = {}
    for match in _LEVEL.finditer(text):
        found.setdefault(match[0].decode().lower(), set()).add(text.rfind(b"\n", 0, match.start()))
    levels = {name: len(lines) for name, lines in found.items()}
    if sum(levels.values()) < _FEWEST:
        return None
    codes = Counter(match[1].decode() for match in _CODE.finditer(text))
    counted = [*Counter(levels).most_common(), *codes.most_common(_MOST_ENTRIES)]
    return Outline(
        0,
        0,
        kind="linesWith",
        told="lines with each word",
        entries=[f"{name}: {count}" for name, count in counted],
    )


def _outside_code(places: Iterator[re.Match[bytes]]) -> Iterator[re.Match[bytes]]:
    """The headings among these, without what only looks like one in a block of code."""
    fence = b""
    for place in places:
        if mark := place[1]:
            if not fence:
                fence = mark
            elif mark.startswith(fence) and not place[2].strip():
                fence = b""
        elif not fence:
            yield place


def _files(text: bytes) -> Outline | None:
    """The files of a diff, with how many lines were added and removed in each, most of both first."""
    if not re.search(rb"^(?:diff --git |--- [^\n]+\n\+\+\+ )", text, re.MULTILINE):
        return None
    counts: dict[str, list[int]] = {}
    current: list[int] | None = None
    for match in _DIFF.finditer(text):
        if name := match[1] or match[2]:
            if name != b"/dev/null":
                current = counts.setdefault(name.decode("utf-8", "replace"), [0, 0])
        elif current is not None:
            current[match[3] == b"-"] += 1
    if not counts:
        return None
    largest = sorted(counts.items(), key=lambda each: sum(each[1]), reverse=True)
    added, removed = map(sum, zip(*counts.values(), strict=True))
    entries = [f"{visible(name[-_SHOWN:])} +{added} -{removed}" for name, (added, removed) in largest]
    told = f"{len(counts)} files +{added} -{removed}, largest first"
    return Outline(0, 0, kind="files", told=told, entries=entries)


def _numbered(text: bytes, places: Sequence[re.Match[bytes]], said: Sequence[bytes] = ()) -> list[str]:
    """What is said of each place, or its line, with the number of that line, counted from 1."""
    entries: list[str] = []
    line, at = 1, 0
    for place, words in zip(places, said or [place[0] for place in places], strict=True):
        line += text.count(b"\n", at, place.start())
        at = place.start()
        entries.append(f"{line}: {visible(words.decode('utf-8', 'replace').strip()[:_SHOWN])}")
    return entries
