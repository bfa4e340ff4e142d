"""A source file as bytes, text, tree and tokens, and the places in it.

Strategy: Python's tree counts columns in UTF-8 bytes, people count characters, and an edit must leave every other
byte as it is. So the text is kept as UTF-8 lines with their own line ends, edits are ranges of those, and the way
back to the file's encoding is checked before anybody writes. What cannot be read becomes one `NotPython`.
"""

from __future__ import annotations

import ast
import codecs
import io
import re
import tokenize
import warnings
from functools import cached_property
from typing import Final, NamedTuple

_LINE_END: Final = re.compile(rb"\r\n|\r|\n")


class NotPython(Exception):
    """A file that cannot be read as Python: why, and where if that is known (line from 1, column from 0)."""

    def __init__(self, reason: str, line: int = 1, column: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        self.column = column


class Unreadable(NotPython):
    """A file that can't be read at all."""


class Edit(NamedTuple):
    """Bytes of the UTF-8 text to be replaced."""

    start: int
    end: int
    text: bytes


class Source:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.encoding, self._mark, text = _decode(data)
        self.utf8 = text.encode("utf-8", "surrogatepass")
        self.tree = _parse(text)
        self._starts = [0, *(found.end() for found in _LINE_END.finditer(self.utf8))]

    @property
    def can_be_written(self) -> bool:
        """Whether the bytes come back as they were: some old encodings spell one text in several ways."""
        return self._encode(self.utf8) == self.data

    @cached_property
    def tokens(self) -> list[tokenize.TokenInfo]:
        """The tokens, as far as they can be read. Columns are in characters."""
        found: list[tokenize.TokenInfo] = []
        text = _LINE_END.sub(b"\n", self.utf8).decode("utf-8", "surrogatepass")
        try:
            found.extend(tokenize.generate_tokens(io.StringIO(text).readline))
        except (tokenize.TokenError, SyntaxError):  # the parser is kinder than the tokenizer
            return found
        return found

    def offset(self, line: int, column: int) -> int:
        """Where a place of the tree, its column in bytes, is in the text."""
        return self._starts[line - 1] + column

    def span(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)

    def token_offset(self, place: tuple[int, int]) -> int:
        """The same for a place of a token, its column in characters."""
        line, column = place
        return self._starts[line - 1] + len(self._line(line)[:column].encode("utf-8", "surrogatepass"))

    def column(self, line: int, column: int) -> int:
        """A column of the tree, in characters."""
        start = self._starts[line - 1]
        return len(self.utf8[start : start + column].decode("utf-8", "replace"))

    def edited(self, edits: list[Edit]) -> bytes:
        """The file's bytes after the edits."""
        out = self.utf8
        for edit in sorted(edits, reverse=True):
            out = out[: edit.start] + edit.text + out[edit.end :]
        return self._encode(out)

    def _line(self, line: int) -> str:
        end = self._starts[line] if line < len(self._starts) else len(self.utf8)
        return self.utf8[self._starts[line - 1] : end].decode("utf-8", "surrogatepass")

    def _encode(self, utf8: bytes) -> bytes:
        try:
            return self._mark + utf8.decode("utf-8", "surrogatepass").encode(self.encoding)
        except (UnicodeError, LookupError):
            return b""


def _decode(data: bytes) -> tuple[str, bytes, str]:
    """The encoding, the byte order mark if there is one, and the text after it."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except SyntaxError as error:
        raise NotPython(str(error.msg or "the declared encoding is not known")) from None
    mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    name = "utf-8" if encoding == "utf-8-sig" else encoding
    try:
        return name, mark, data[len(mark) :].decode(name)
    except UnicodeDecodeError as error:
        before = data[: len(mark) + error.start]
        line = len(_LINE_END.findall(before)) + 1
        raise NotPython(f"not {name}, as the file says it is", line) from None
    except (LookupError, ValueError, TypeError) as error:  # a codec that is no text encoding
        raise NotPython(f"cannot be decoded as {name}: {error}") from None


def _parse(text: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a doubtful escape is not our business
            return ast.parse(text)
    except SyntaxError as error:
        raise NotPython(
            error.msg or "invalid syntax", error.lineno or 1, max((error.offset or 1) - 1, 0)
        ) from None
    except (RecursionError, MemoryError):
        raise NotPython("nested too deeply") from None
    except ValueError as error:  # null bytes, in some versions
        raise NotPython(str(error)) from None
