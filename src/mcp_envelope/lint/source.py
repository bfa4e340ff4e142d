"""A source file as bytes, text, tree and tokens, with positions, and the comments that silence findings.

Strategy: Python's tree counts columns in UTF-8 bytes, people count characters, and an edit must leave every other
byte as it is. So the text is kept as UTF-8 with its own line ends, and edits are ranges of that; a file in another
encoding is read and never written. Comments are read as flake8 reads them, so one that works there works here:
`# noqa`, `# noqa: ENV003`, and our own `# mcp-envelope: off` for a whole file.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from typing import Final, NamedTuple

_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_NOQA: Final = re.compile(r"#\s*noqa(?::\s*(?P<codes>[A-Z]+[0-9]+(?:[,\s]+[A-Z]+[0-9]+)*))?", re.IGNORECASE)
_OFF: Final = re.compile(r"#\s*mcp-envelope:\s*off\s*$", re.IGNORECASE)


class NotPython(Exception):
    """A file cannot be read as Python. Lines count from 1, columns from 0."""

    def __init__(self, message: str, line: int = 1, column: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


class NotReadable(NotPython):
    """A file cannot be read at all."""


class Replacement(NamedTuple):
    """New bytes for a range of the UTF-8 text."""

    start: int
    end: int
    text: bytes


class SourceFile:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.encoding, text = _decode(data)
        self.utf8 = text.encode("utf-8", "surrogatepass")
        self.tree = _parse(text)
        self._starts = [0, *(found.end() for found in _LINE_END.finditer(self.utf8))]

    @property
    def can_be_written(self) -> bool:
        return self.data.endswith(self.utf8)

    @cached_property
    def tokens(self) -> list[tokenize.TokenInfo]:
        """The tokens, as far as the file can be tokenized. The parser is more lenient."""
        found: list[tokenize.TokenInfo] = []
        text = _LINE_END.sub(b"\n", self.utf8).decode("utf-8", "surrogatepass")
        with suppress(tokenize.TokenError, SyntaxError):
            found.extend(tokenize.generate_tokens(io.StringIO(text).readline))
        return found

    def span(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[
            node.end_lineno - 1
        ] + node.end_col_offset

    def column(self, line: int, column: int) -> int:
        """A column of the tree, in characters."""
        start = self._starts[line - 1]
        return len(self.utf8[start : start + column].decode("utf-8", "replace"))

    def edited(self, edits: list[Replacement]) -> bytes:
        """The file's bytes after the edits."""
        out = self.utf8
        for edit in sorted(edits, reverse=True):
            out = out[: edit.start] + edit.text + out[edit.end :]
        return self.data.removesuffix(self.utf8) + out  # a byte order mark stays


def _decode(data: bytes) -> tuple[str, str]:
    """The encoding, and the text without a byte order mark."""
    try:
        name, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return name, data.decode(name)
    except SyntaxError as error:
        raise NotPython(str(error.msg or "the declared encoding is not known")) from None
    except UnicodeDecodeError as error:
        line = len(_LINE_END.findall(data[: error.start])) + 1
        raise NotPython(f"not {name}, which the file claims to be", line) from None
    except (LookupError, ValueError, TypeError) as error:  # a codec that is not for text
        raise NotPython(f"cannot be decoded: {error}") from None


def _parse(text: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape is not our concern
            return ast.parse(text)
    except SyntaxError as error:
        column = max((error.offset or 1) - 1, 0)
        raise NotPython(error.msg or "invalid syntax", error.lineno or 1, column) from None
    except (RecursionError, MemoryError):
        raise NotPython("nested too deeply") from None
    except ValueError as error:  # null bytes, in some versions
        raise NotPython(str(error)) from None


def is_off(tokens: Iterable[tokenize.TokenInfo]) -> bool:
    """Whether a comment silences the whole file."""
    return any(token.type == tokenize.COMMENT and _OFF.match(token.string) for token in tokens)


def silenced(tokens: Iterable[tokenize.TokenInfo]) -> dict[int, tuple[str, ...]]:
    """The beginnings of the codes that comments silence on a line; the empty string begins all of them.

    A `noqa` covers its line, or all lines of a string or a continued line that it ends.
    """
    found: dict[int, tuple[str, ...]] = {}
    lines: set[int] = set()
    codes: tuple[str, ...] = ()
    for token in tokens:
        if token.type in (tokenize.ENDMARKER, tokenize.DEDENT, tokenize.INDENT):
            continue
        lines.update(range(token.start[0], token.end[0] + 1))
        if token.type == tokenize.COMMENT and (noqa := _NOQA.search(token.string)):
            codes += tuple(re.split(r"[,\s]+", (noqa["codes"] or "").upper()))
        if token.type in (tokenize.NL, tokenize.NEWLINE):
            found.update(dict.fromkeys(lines, codes) if codes else {})
            lines, codes = set(), ()
    return found
