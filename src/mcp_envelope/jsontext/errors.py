"""What is wrong with bytes that are not JSON, and repairs for what is almost JSON.

The fast parser only says that something is wrong. This slow one then finds out what: it walks over the tokens with
one regular expression and a list for a stack, so it is linear, knows line and column, and handles any depth.
"""

from __future__ import annotations

import codecs
import re
from typing import Final, Literal

WHITESPACE: Final = b" \t\r\n"
_OPEN_STRING: Final = rb'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+'
STRING: Final = _OPEN_STRING + b'"'
_NUMBER: Final = rb"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?"
_TOKEN: Final = re.compile(
    rb"[ \t\r\n]*(?:(" + STRING + rb")|(" + _NUMBER + rb"|true|false|null)|([\[{])|([\]}])|([,:]))"
)
# Each escape; group 1 is a surrogate without its partner.
_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)

# Strings, which are skipped, and (group 1) numbers that JSON doesn't have.
_NONFINITE: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|(-?\b(?:NaN|Infinity)\b)', re.DOTALL)


class JSONError(ValueError):
    """The bytes are not JSON. The message has the line and the column."""

    def __init__(self, reason: str, buffer: bytes, offset: int) -> None:
        offset = min(max(offset, 0), len(buffer))
        before = buffer[:offset]
        line_start = before.rfind(b"\n") + 1
        self.reason = reason
        self.offset = offset
        self.line = before.count(b"\n") + 1
        self.column = len(before[line_start:].decode("utf-8", "replace")) + 1
        super().__init__(f"not valid JSON: {reason} (line {self.line}, column {self.column})")


def check_utf8(buffer: bytes) -> None:
    """Raise JSONError unless the bytes are UTF-8. They are decoded in steps to save memory."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    step = 1 << 20
    for at in range(0, len(buffer) or 1, step):
        try:
            decoder.decode(buffer[at : at + step], at + step >= len(buffer))
        except UnicodeDecodeError as error:
            offset = at + error.start if error.start < step else at
            raise JSONError(f"invalid UTF-8, {error.reason}", buffer, offset) from None


def replace_lone_surrogates(buffer: bytes) -> tuple[bytes, int]:
    """Replace each lone half of a surrogate pair, which no client can read, with U+FFFD; return how many, too."""
    count = 0

    def replace(match: re.Match[bytes]) -> bytes:
        nonlocal count
        if match[1] is None:
            return match[0]
        count += 1
        return rb"\ufffd"

    return _ESCAPE.sub(replace, buffer), count


def replace_nonfinite(buffer: bytes) -> bytes:
    """Replace what Python writes but JSON doesn't have (NaN, infinities) with null."""
    if b"NaN" not in buffer and b"Infinity" not in buffer:
        return buffer
    return _NONFINITE.sub(lambda match: match[0] if match[1] is None else b"null", buffer)


def compact_slowly(buffer: bytes) -> bytes:
    """Return JSON of any depth without insignificant whitespace; anything else is returned unchanged."""
    parts: list[bytes] = []
    at = 0
    while match := _TOKEN.match(buffer, at):
        parts.append(match[0].lstrip(WHITESPACE))
        at = match.end()
    return b"".join(parts) if not buffer[at:].strip(WHITESPACE) else buffer


def diagnose(buffer: bytes) -> tuple[int, str] | None:
    """Return where and why the bytes are not JSON, or None if they are. Linear, and without recursion."""
    stack: list[int] = []
    at = 0
    expect: Literal["value", "value or ]", "key or }", "key", ":", ", or end"] = "value"
    while match := _TOKEN.match(buffer, at):
        start = match.start(match.lastindex or 0)
        string, scalar, opening, closing, comma = match.groups()
        token = (string or scalar or opening or closing or comma)[:20].decode("utf-8", "replace")
        if expect in ("key", "key or }"):
            if string:
                expect = ":"
            elif closing == b"}" and expect == "key or }":
                stack.pop()
                expect = ", or end"
            else:
                return start, f"expected a key in quotes, found {token!r}"
        elif expect == ":":
            if comma != b":":
                return start, f"expected ':' after a key, found {token!r}"
            expect = "value"
        elif expect == ", or end":
            if not stack:
                return start, f"something follows the end of the document: {token!r}"
            if comma == b",":
                expect = "key" if stack[-1] == 0x7B else "value"
            elif closing and closing[0] == stack[-1] + 2:
                stack.pop()
            else:
                return start, f"expected ',' or {chr(stack[-1] + 2)!r}, found {token!r}"
        elif string or scalar:
            expect = ", or end"
        elif opening:
            stack.append(opening[0])
            expect = "key or }" if opening == b"{" else "value or ]"
        elif closing == b"]" and expect == "value or ]":
            stack.pop()
            expect = ", or end"
        else:
            return start, f"expected a value, found {token!r}"
        at = match.end()
    at = len(buffer) - len(buffer[at:].lstrip(WHITESPACE))
    if at < len(buffer):
        if buffer[at] == 0x22:
            return _diagnose_string(buffer, at)
        found = buffer[at : at + 40].decode("utf-8", "replace")[:12]
        return at, f"unexpected {found!r}"
    if expect != ", or end" or stack:
        return at, "the document ends too early"
    return None


def _diagnose_string(buffer: bytes, at: int) -> tuple[int, str]:
    start = re.compile(_OPEN_STRING).match(buffer, at)
    assert start is not None, "there is a quote"
    end = start.end()
    if end == len(buffer):
        return at, "a string that starts here never ends"
    if buffer[end] == 0x5C:
        return end, f"invalid escape {buffer[end : end + 2].decode('utf-8', 'replace')!r} in a string"
    return end, f"control character {buffer[end : end + 1]!r} in a string; it must be escaped"


def byte_in(message: str, size: int) -> int:
    """Return the offset that msgspec's message names, else the size."""
    found = re.search(r"\(byte (\d+)\)", message)
    return int(found[1]) if found else size
