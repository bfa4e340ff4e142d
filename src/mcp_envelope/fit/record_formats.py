"""Spells a list of records in fewer bytes: its keys once, then the values, as rows of JSON or as CSV.

Strategy: values keep the spelling they came with; only strings lose their escapes, in CSV. Records go into a table
as long as each has the same keys and nothing nested, so no cell is missing or made up. Nothing is chosen here: the
rows come in the order in which the fitter prefers them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ..jsontext.document import Buffer, Node, TooDeep, encode, kind_of, readable, unescaped

FORMS: Final = ("json", "rows", "csv", "auto")
# How many times more rows a form has to show than JSON before `auto` takes it.
WORTHWHILE: Final = 1.2
# A text that would be read as something else without quotes, or that CSV can't hold without them.
_NEEDS_QUOTES: Final = re.compile(rb'(?s).*[",\r\n]|\s|.*\s\Z|\Z|(true|false|null)\Z|-?[0-9][0-9.eE+-]*\Z')


class RecordTable:
    """The first records in `order`, about `room` bytes of them, as long as they are alike."""

    def __init__(self, items: Sequence[Buffer], order: Sequence[int], room: int) -> None:
        self.columns: list[str] = []
        self.rows: list[list[bytes]] = []
        for index in order:
            record = _flat(items[index])
            if not record or (self.rows and record.keys() != set(self.columns)):
                break
            self.columns = self.columns or list(record)
            self.rows.append([record[column] for column in self.columns])
            room -= sum(map(len, self.rows[-1])) + len(self.columns)
            if room < 0:
                break

    def lines(self, form: str) -> list[bytes]:
        """Return the header and the rows, each as a row of JSON or as a line of CSV."""
        every = [[encode(column) for column in self.columns], *self.rows]
        if form == "rows":
            return [b"[%b]" % b",".join(row) for row in every]
        # An empty line would be no row at all.
        return [b",".join(map(_cell, row)) or b"null" for row in every]


def joined(lines: Sequence[bytes], form: str) -> bytes:
    return b"[%b]" % b",".join(lines) if form == "rows" else b"\n".join(lines)


def _flat(raw: Buffer) -> dict[str, bytes] | None:
    if kind_of(raw) != "object":
        return None
    try:
        members = Node(raw).members()
    except TooDeep:
        return None
    if any(kind_of(member.value) in ("object", "array") for member in members):
        return None
    return {member.key: bytes(member.value) for member in members}


def _cell(raw: bytes) -> bytes:
    if raw == b"null":
        return b""
    if raw[:1] != b'"':
        return raw
    text = unescaped(readable(raw))
    return b'"%b"' % text.replace(b'"', b'""') if _NEEDS_QUOTES.match(text) else text
