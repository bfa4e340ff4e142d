"""Plain text and JSON strings cut to a room in bytes.

Strategy: look only at the bytes around the cut. Text is cut at a line boundary if one is near, else between
two characters, never inside one; a JSON string is cut in its escaped form, never inside an escape or between
the halves of a surrogate pair, so what stays keeps its spelling. A mark with the count stands at the seam.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import Final, Literal

import msgspec
from msgspec import Raw

Ends = Literal["head", "both"]

_CONTINUATION: Final = bytes(range(0x80, 0xC0))
_ELLIPSIS: Final = "…"
# What is decoded at once.
_PIECE: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class FittedText:
    """`kept` and `total` count characters; `offset` is where the first omitted character stands."""

    text: bytes
    kept: int
    total: int
    kept_lines: int
    total_lines: int
    offset: int


def fit_text(
    text: bytes, room: int, ends: Ends = "head", counts: tuple[int, int] | None = None
) -> FittedText | None:
    """The text in at most `room` bytes: its beginning, or its beginning and its end. None: no room at all.

    `counts` are the text's characters and lines, if they are known: they cost a pass over all of it.
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
    """The end of the last whole line before `limit`; the last character's end if that line is far back."""
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
    """The beginning of a JSON string of `total` characters, marked as cut, and how many characters stay."""
    for mark in (f"{_ELLIPSIS} [+{total} chars]", _ELLIPSIS):
        free = room - 2 - len(mark.encode())
        if free < (16 if len(mark) > 1 else 0):
            continue
        head = bytes(memoryview(raw)[1 : string_cut(raw, 1 + free)])
        kept = len(msgspec.json.decode(b'"%b"' % head, type=str))
        if len(mark) > 1:
            mark = f"{_ELLIPSIS} [+{total - kept} chars]"
        if kept + len(mark) < min_length or kept + len(mark) > total:
            # Shorter than the schema wants, or no shorter than the string was (it may have a maxLength).
            continue
        return b'"%b%b"' % (head, mark.encode()), kept
    return None


def unescaped(raw: bytes | Raw) -> bytes:
    """What a JSON string says, as UTF-8. A long one goes piece by piece, because one wide character makes all of
    Python's own text four times as large."""
    end = len(raw) - 1
    if end <= _PIECE:
        return msgspec.json.decode(raw, type=str).encode()
    view = memoryview(raw)
    whole = BytesIO()
    at = 1
    while at < end:
        stop = end if end - at <= _PIECE else string_cut(raw, at + _PIECE, at)
        whole.write(msgspec.json.decode(b'"%b"' % bytes(view[at:stop]), type=str).encode())
        at = stop
    return whole.getvalue()


def string_cut(raw: bytes | Raw, limit: int, start: int = 1) -> int:
    """The last position not after `limit` where an escaped JSON string may be cut.

    `start` is a position before it where one may, too: nobody need look farther back.
    """
    window_start = max(start, limit - 13)
    window = bytes(memoryview(raw)[window_start : limit + 12])
    at = limit - window_start
    while at > 0 and at < len(window) and window[at] & 0xC0 == 0x80:
        at -= 1
    slash = window.rfind(b"\\", max(0, at - 6), at)
    if slash >= 0 and _opens_escape(raw, window_start + slash, start):
        length = 6 if window[slash + 1 : slash + 2] == b"u" else 2
        if slash + length > at:
            at = slash
    # The low half of a surrogate pair must not lose its high half.
    low, high = window[at : at + 4].lower(), at - 6
    if low[:3] == b"\\ud" and low[3:] in (b"c", b"d", b"e", b"f") and high >= 0:
        if window[high : high + 3].lower() == b"\\ud" and _opens_escape(raw, window_start + high, start):
            at = high
    return window_start + at


def _opens_escape(raw: bytes | Raw, at: int, start: int) -> bool:
    """A backslash opens an escape unless an odd number of backslashes stands right before it."""
    view = memoryview(raw)
    before = at
    while before > start and view[before - 1] == 0x5C:
        before -= 1
    return (at - before) % 2 == 0
