"""Cuts plain text and JSON strings to a number of bytes.

Strategy: look only at the bytes around the cut. Text is cut at a line boundary if one is near, else between two
characters, never inside one; a JSON string is cut in its escaped form, never inside an escape or a surrogate
pair, so what stays keeps its spelling. A mark at each gap says how much is missing, by the numbers of the lines
where whole lines are. Between beginning and end, lines that the caller thinks worth keeping stay as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec
from msgspec import Raw

from ..jsontext.document import string_cut

# The beginning alone; the beginning and a fifth for the end; half for each, as in the text of an error.
Ends = Literal["head", "tail", "both"]
_TAIL: Final = 5

_CONTINUATION: Final = bytes(range(0x80, 0xC0))
# A long text is counted piece by piece: whatever is made of it takes memory.
_PIECE: Final = 1 << 20
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
    text: bytes,
    room: int,
    ends: Ends = "head",
    counts: tuple[int, int] | None = None,
    notable: Sequence[tuple[int, int]] = (),
) -> FittedText | None:
    """Return the text in at most `room` bytes: its beginning, or its beginning and end; None if that is too few.

    `notable` says where lines begin and end that are worth keeping as well, the best first. `counts` are the
    numbers of characters and lines, if known: counting takes a pass over the whole text.
    """
    total, total_lines = counts or (characters(text), lines(text))
    if len(text) <= room:
        return FittedText(text, total, total, total_lines, total_lines, total)
    reserve = len(_seam(f"lines {total_lines} to {total} characters"))
    if room < reserve + 8:
        mark = _ELLIPSIS.encode()
        return FittedText(mark, 0, total, 0, total_lines, 0) if room >= len(mark) else None
    free = room - reserve
    start = len(text)
    if ends != "head":
        start = _line_start(text, len(text) - free // (2 if ends == "both" else _TAIL))
    left = free - (len(text) - start)
    between = _worthwhile(notable, (left // 2, start), left // 3, reserve)
    end = line_end(text, left - sum([stop - begin + reserve for begin, stop in between]))
    spans = [(0, end), *sorted([span for span in between if span[0] >= end]), (start, len(text))]
    return _joined(text, [span for span in spans if span[0] < span[1]], total, total_lines)


def _worthwhile(
    notable: Sequence[tuple[int, int]], within: tuple[int, int], room: int, seam: int
) -> list[tuple[int, int]]:
    """Return the lines between two places that fit the room, with a mark for each."""
    chosen: list[tuple[int, int]] = []
    for begin, stop in notable:
        if within[0] <= begin and stop <= within[1] and stop - begin + seam <= room:
            chosen.append((begin, stop))
            room -= stop - begin + seam
    return chosen


def _joined(text: bytes, spans: list[tuple[int, int]], total: int, total_lines: int) -> FittedText:
    """Return these parts of the text, with a mark where something is missing."""
    parts: list[bytes] = []
    kept = kept_lines = at = line = 0
    offset = -1
    for begin, stop in [*spans, (len(text), len(text))]:
        shown = text[begin:stop]
        if begin > at:
            # The end is counted from the end, so that a long gap before it isn't looked at.
            after = total_lines - lines(shown) if stop == len(text) else line + text.count(b"\n", at, begin)
            is_whole = text[at - 1 : at] in (b"", b"\n") and (
                begin == len(text) or text[begin - 1 : begin] == b"\n"
            )
            if is_whole and after > line + 1:
                seam = f"lines {line + 1} to {after}"
            else:
                seam = f"{characters(text[at:begin])} characters"
            parts.append(_seam(seam, parts, begin < len(text)))
            line = after
            offset = kept if offset < 0 else offset
        parts.append(shown)
        kept += characters(shown)
        kept_lines += lines(shown)
        line += shown.count(b"\n")
        at = stop
    return FittedText(b"".join(parts), kept, total, kept_lines, total_lines, max(offset, 0))


def _seam(what: str, before: Sequence[bytes] = (b" ",), more: bool = True) -> bytes:
    """Return the mark for what is missing, on a line of its own."""
    start = "\n" if before and before[-1] and not before[-1].endswith(b"\n") else ""
    return f"{start}{_ELLIPSIS} [{what} left out]{chr(10) if more else ''}".encode()


def characters(text: bytes) -> int:
    if text.isascii():
        return len(text)
    pieces = (text[at : at + _PIECE] for at in range(0, len(text), _PIECE))
    return sum([len(piece.translate(None, _CONTINUATION)) for piece in pieces])


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
