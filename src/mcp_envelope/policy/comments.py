"""JSON with comments and trailing commas, made plain JSON.

Strategy: what is not JSON is overwritten with spaces, character for character, and line breaks stay. So
every other character keeps its line and column, and the parser's complaints are true of the file as it was
written. A string is one token and never looked into. A comment that does not end is left, for the parser to
complain about.
"""

from __future__ import annotations

import re
from typing import Final

_TOKEN: Final = re.compile(
    r"""
    (?P<string>  "(?:[^"\\]|\\.)*(?:"|\Z) )
  | (?P<comment> //[^\n\r]* | /\*.*?\*/ )
  | (?P<space>   [ \t\r\n]+ )
  | (?P<mark>    . )
    """,
    re.DOTALL | re.VERBOSE,
)
_VISIBLE: Final = re.compile(r"[^\r\n]")


def plain_json(text: str) -> str:
    """The same text with comments, and commas before a closing bracket, turned into spaces."""
    parts: list[str] = []
    last = ""  # the last mark that counts
    comma = -1  # where it is in `parts`, if it is a comma that may have to go
    for token in _TOKEN.finditer(text):
        part, kind = token[0], token.lastgroup
        if kind == "comment":
            part = _VISIBLE.sub(" ", part)
        elif kind != "space":
            if part in ("]", "}") and comma >= 0:
                parts[comma] = " "
            # Of `[,]` and `[1,,]` no comma is a trailing one: those are mistakes.
            comma = len(parts) if part == "," and last not in ("", "[", "{", ",", ":") else -1
            last = part
        parts.append(part)
    return "".join(parts)
