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
from itertools import islice
from typing import Any, Final

from .columns import Records, csv_columns
from .profile import Profile, profile, visible

_LOOKED_AT: Final = 4 << 20
_MOST_ENTRIES: Final = 200
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
_DEFINITION: Final = re.compile(
    rb"^[ \t]*(?:export |default |public |private |static |pub |async )*"
    rb"(?:def|class|func|function|fn|interface|struct|enum|trait|impl|type)[ \t]+[\w$(][^\r\n]*",
    re.MULTILINE,
)
_LEVEL: Final = re.compile(
    rb"^[^\r\n]{0,60}?\b(TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)\b", re.MULTILINE
)


def notable_lines(text: bytes, words: Collection[str] = ()) -> list[tuple[int, int]]:
    """Return where the lines that matter begin and end, the most telling first."""
    head = text[:_LOOKED_AT]
    found: dict[int, tuple[int, int]] = {}
    for sought in islice(sorted(words, key=len, reverse=True), _MOST_WORDS):
        pattern = re.compile(re.escape(sought.encode("utf-8", "replace")), re.IGNORECASE)
        places = list(islice(pattern.finditer(head), _MOST_NOTABLE + 1))
        # What is everywhere says nothing.
        if len(places) <= _MOST_NOTABLE:
            found |= {start: (start, end) for start, end in _lines_at(head, places)}
    errors = list(_lines_at(head, islice(_ERROR.finditer(head), _MOST_NOTABLE)))
    return list((found | {start: (start, end) for start, end in errors if start not in found}).values())


def _lines_at(text: bytes, places: Any) -> Iterator[tuple[int, int]]:
    last = -1
    for place in places:
        if place.start() < last:
            continue
        start = text.rfind(b"\n", 0, place.start()) + 1
        last = text.find(b"\n", place.start()) + 1 or len(text)
        yield start, last


class Outline(Profile, frozen=True):
    """The same for a text: `kind` says what the entries are, of which there may be `more`."""

    kind: str = ""
    entries: Sequence[str] = ()
    more: int = 0

    def within(self, room: int) -> dict[str, Any]:
        made = super().within(room)
        shown: list[str] = []
        left = room - 60
        for entry in self.entries:
            left -= len(entry.encode()) + 3
            if left < 0:
                break
            shown.append(entry)
        if not shown:
            return made
        made |= {self.kind: shown}
        more = len(self.entries) - len(shown) + self.more
        return made | ({"more": more} if more else {})


def outline(text: bytes, words: Collection[str] = ()) -> Outline | None:
    """Return what the text consists of, if that is recognised."""
    head = text[:_LOOKED_AT]
    if len(head) < len(text):
        head = head[: head.rfind(b"\n") + 1]
    if files := _files(head):
        return Outline(0, 0, kind="files", entries=files)
    if table := csv_columns(head.decode("utf-8", "replace")):
        rows = len(next(iter(table.values())))
        records = Records(table, rows)
        found = profile(records, words)
        return Outline(rows, 0 if len(head) == len(text) else rows, found.fields, found.lines)
    # In source code, a comment may look like a heading; in Markdown, an example has definitions.
    kinds = [
        ("headings", _outside_code(_HEADING.finditer(head))),
        ("definitions", _DEFINITION.finditer(head)),
    ]
    for kind, found_places in kinds if _SECOND.search(head) else reversed(kinds):
        places = list(islice(found_places, _MOST_ENTRIES))
        if len(places) >= _FEWEST:
            more = sum(1 for _ in found_places)
            return Outline(0, 0, kind=kind, entries=_numbered(head, places), more=more)
    levels = Counter(match[1].decode() for match in _LEVEL.finditer(head))
    if sum(levels.values()) >= _FEWEST and len(head) == len(text):
        entries = [f"{level}: {count}" for level, count in levels.most_common()]
        return Outline(0, 0, kind="levels", entries=entries)
    return None


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


def _files(text: bytes) -> list[str]:
    """The files of a diff, with how many lines were added and removed in each."""
    if not re.search(rb"^(?:diff --git |--- [^\n]+\n\+\+\+ )", text, re.MULTILINE):
        return []
    counts: dict[str, list[int]] = {}
    current: list[int] | None = None
    for match in _DIFF.finditer(text):
        if name := match[1] or match[2]:
            if name != b"/dev/null":
                current = counts.setdefault(name.decode("utf-8", "replace"), [0, 0])
        elif current is not None:
            current[match[3] == b"-"] += 1
    return [f"{visible(name[-_SHOWN:])} +{added} -{removed}" for name, (added, removed) in counts.items()]


def _numbered(text: bytes, places: Sequence[re.Match[bytes]]) -> list[str]:
    """Each line with its number, counted from 1."""
    entries: list[str] = []
    line, at = 1, 0
    for place in places:
        line += text.count(b"\n", at, place.start())
        at = place.start()
        entries.append(f"{line}: {visible(place[0].decode('utf-8', 'replace').strip()[:_SHOWN])}")
    return entries
