"""Comments that silence findings: `# noqa`, `# noqa: ENV003`, and `# mcp-envelope: off` for a whole file.

Strategy: read as flake8 reads them, so a comment that works there works here; but a string that looks like a
comment is none. A `noqa` speaks for its line; where a string or a backslash goes on over lines, for all of them.
"""

from __future__ import annotations

import re
import tokenize
from collections.abc import Iterable
from typing import Final

_NOQA: Final = re.compile(r"#\s*noqa(?::\s*(?P<codes>[A-Z]+[0-9]+(?:[,\s]+[A-Z]+[0-9]+)*))?", re.IGNORECASE)
_OFF: Final = re.compile(r"#\s*mcp-envelope:\s*off\s*$", re.IGNORECASE)


class Suppressions:
    def __init__(self, tokens: Iterable[tokenize.TokenInfo]) -> None:
        self.is_off = False
        # The codes that are quiet on a line; an empty text is the prefix of all of them.
        self._lines: dict[int, tuple[str, ...]] = {}
        lines: set[int] = set()
        codes: tuple[str, ...] = ()
        for token in tokens:
            if token.type in (tokenize.ENDMARKER, tokenize.DEDENT, tokenize.INDENT):
                continue
            lines.update(range(token.start[0], token.end[0] + 1))
            if token.type == tokenize.COMMENT:
                self.is_off = self.is_off or _OFF.match(token.string) is not None
                codes += _codes(token.string)
            if token.type in (tokenize.NL, tokenize.NEWLINE):
                if codes:
                    self._lines.update(dict.fromkeys(lines, codes))
                lines, codes = set(), ()

    def hides(self, rule: str, line: int) -> bool:
        return self.is_off or rule.startswith(self._lines.get(line, ()))


def _codes(comment: str) -> tuple[str, ...]:
    found = _NOQA.search(comment)
    if found is None:
        return ()
    if found["codes"] is None:
        return ("",)
    return tuple(re.split(r"[,\s]+", found["codes"].upper()))
