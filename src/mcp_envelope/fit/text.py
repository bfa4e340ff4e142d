"""Cuts plain text and JSON strings to a number of bytes.

Strategy: look only at the bytes around the cut. Text is cut at a line boundary if one is near, else between two
characters, never inside one; a JSON string is cut in its escaped form, never inside an escape or a surrogate
pair, so what stays keeps its spelling. A mark at the cut says how much is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import msgspec
from msgspec import Raw

from ..jsontext.document import string_cut

Ends = Literal["head", "both"]

_CONTINUATION: Final = bytes(range(0x80, 0xC0))
_ELLIPSIS: Final = "…"


@dataclass(frozen=True, slots=True)
class FittedText:
    """`kept` and `total` count characters; `offset` is the position of the first omitted one."""

    text: bytes
    kept: int
    total: int
    kept_lines: int
    total_lines: int
    offset: int


def fit_text(
    text: bytes, room: int, ends: Ends = "head", counts: tuple[int, int] | None = None
) -> FittedText | None:
    """Return the beginning of the text, or its beginning and end, in at most `room` bytes; None if that is too few.

    `counts` are the numbers of characters and lines, if known: counting takes a pass over the whole text.
    """
    total, total_lines = counts or (characters(text), lines(text))
    if len(text) <= room:
        return FittedText(text, total, total, total_lines, total_lines, total)
    reserve = len(_seam(total, total_lines))
    if room < reserve + 8:
        mark = _ELLIPSIS.encode()
        return FittedText(mark, 0, total, 0, total_lines, 0) if room >= len(mark) else None
    free = room - reserve
    tail = b"" if ends == "head" else text[_line_start(text, len(text) - free // 2) :]
    head = text[: line_end(text, free - len(tail))]
    kept = characters(head) + characters(tail)
    kept_lines = lines(head) + lines(tail)
    seam = _seam(total - kept, max(total_lines - kept_lines, 0))
    if head.endswith(b"\n") or not head:
        seam = seam.removeprefix(b"\n")
    if not tail:
        seam = seam.removesuffix(b"\n")
    return FittedText(head + seam + tail, kept, total, kept_lines, total_lines, characters(head))


def _seam(left_out: int, lines_left_out: int) -> bytes:
    what = f"{lines_left_out} lines" if lines_left_out > 1 else f"{left_out} characters"
    return f"\n{_ELLIPSIS} [{what} left out]\n".encode()


def characters(text: bytes) -> int:
    return len(text) if text.isascii() else len(text.translate(None, _CONTINUATION))


def lines(text: bytes) -> int:
    return text.count(b"\n") + (1 if text and not text.endswith(b"\n") else 0)


def line_end(text: bytes, limit: int) -> int:
    """Return the end of the last whole line before `limit`, or of the last character if that line is far back."""
    limit = max(limit, 0)
    end = text.rfind(b"\n", 0, limit) + 1
    if end < limit // 2:
        end = limit
        while end > 0 and end < len(text) and text[end] & 0xC0 == 0x80:
            end -= 1
    return end


def _line_start(text: bytes, limit: int) -> int:
    start = text.find(b"\n", limit - 1) + 1 if limit > 0 else 0
    if start == 0 or start - limit > (len(text) - limit) // 2:
        start = limit
        while start < len(text) and text[start] & 0xC0 == 0x80:
            start += 1
    return start


def string_head(raw: bytes | Raw, total: int, room: int, min_length: int = 0) -> tuple[bytes, int] | None:
    """Return the beginning of a JSON string of `total` characters, marked as cut, and how many characters stay."""
    for mark in (f"{_ELLIPSIS} [+{total} chars]", _ELLIPSIS):
        free = room - 2 - len(mark.encode())
        if free < (16 if len(mark) > 1 else 0):
            continue
        head = bytes(memoryview(raw)[1 : string_cut(raw, 1 + free)])
        kept = len(msgspec.json.decode(b'"%b"' % head, type=str))
        if len(mark) > 1:
            mark = f"{_ELLIPSIS} [+{total - kept} chars]"
        if kept + len(mark) < min_length or kept + len(mark) > total:
            # Shorter than the schema allows, or no shorter than the original (which may have a maxLength).
            continue
        return b'"%b%b"' % (head, mark.encode()), kept
    return None
