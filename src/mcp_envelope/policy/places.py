"""Where a key stands in a file: line and column, for a complaint about a file that can be parsed.

Strategy: `tomllib` and `json` say where a syntax error is, but of a valid document they give the values
alone. So the text is walked once more, by a scanner that knows just enough to step over values and to note
each key. It runs only when there is a complaint. It looks at text that its parser has accepted; if it loses
its way all the same, the keys found so far are what there is, and the complaint goes out without a place.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Final

Path = tuple[str, ...]

_GAP: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE: Final = re.compile(r"[ \t]*")
_KEY: Final = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
_STRING: Final = re.compile(
    r'"""(?:[^\\]|\\.)*?""""{0,2}'
    r"|'''.*?''''{0,2}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
# Numbers, truth values and times; a time may have a space in it.
_BARE: Final = re.compile(r"[^,\]}#\n]+")
# Our settings lie no deeper; what does is stepped over.
_DEEPEST: Final = 6


def place(text: str, offset: int) -> str:
    """`line 3, column 14`, both from 1, columns in characters."""
    line = text.count("\n", 0, offset) + 1
    return f"line {line}, column {offset - text.rfind(chr(10), 0, offset)}"


def line_of(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def toml_keys(text: str) -> dict[Path, int]:
    """The offset of each key in a TOML text, tables' names included."""
    scanner = _Toml(text)
    with suppress(_Lost, RecursionError, ValueError):
        scanner.document()
    return scanner.found


def json_keys(text: str) -> dict[Path, int]:
    """The offset of each member's key in a JSON text, down to the depth that matters here."""
    found: dict[Path, int] = {}
    with suppress(ValueError, IndexError, TypeError, RecursionError):
        _walk(text, _skip(text, 0), (), found)
    return found


class _Lost(Exception):
    """The text is not what the scanner thought."""


class _Toml:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.found: dict[Path, int] = {}

    def document(self) -> None:
        table: Path = ()
        self.match(_GAP)
        while self.at < len(self.text):
            if self.text.startswith("[", self.at):
                brackets = 2 if self.text.startswith("[[", self.at) else 1
                self.at += brackets
                table = self.key(())
                self.expect("]" * brackets)
            else:
                self.member(table)
            self.match(_GAP)

    def member(self, table: Path) -> None:
        path = self.key(table)
        self.expect("=")
        self.value(path)

    def key(self, table: Path) -> Path:
        """A dotted key, each part of it noted."""
        path = table
        while True:
            self.match(_SPACE)
            start, part = self.at, self.match(_KEY)
            if not part:
                raise _Lost
            path = (*path, _unquoted(part))
            self.found.setdefault(path, start)
            self.match(_SPACE)
            if not self.text.startswith(".", self.at):
                return path
            self.at += 1

    def value(self, path: Path) -> None:
        self.match(_SPACE)
        opening = self.text[self.at : self.at + 1]
        if opening in ("{", "["):
            self.at += 1
            self.container(path, "}" if opening == "{" else "]")
        elif not (self.match(_STRING) or self.match(_BARE)):
            raise _Lost

    def container(self, path: Path, closing: str) -> None:
        while True:
            self.match(_GAP)
            if self.text.startswith(closing, self.at):
                self.at += 1
                return
            if closing == "}":
                self.member(path)
            else:
                self.value(path)
            self.match(_GAP)
            if self.text.startswith(",", self.at):
                self.at += 1

    def match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        if found is None:
            return ""
        self.at = found.end()
        return found[0]

    def expect(self, mark: str) -> None:
        self.match(_SPACE)
        if not self.text.startswith(mark, self.at):
            raise _Lost
        self.at += len(mark)


def _unquoted(key: str) -> str:
    if key[0] not in "\"'":
        return key
    if key[0] == "'" or "\\" not in key:
        return key[1:-1]
    import tomllib

    return str(tomllib.loads(f"key = {key}")["key"])


def _walk(text: str, at: int, path: Path, found: dict[Path, int]) -> int:
    """Note the keys of the value at `at`; the offset after it."""
    if text[at] != "{" or len(path) >= _DEEPEST:
        return json.JSONDecoder().raw_decode(text, at)[1]
    at = _skip(text, at + 1)
    while text[at] != "}":
        start = at
        key, at = json.JSONDecoder().raw_decode(text, at)
        found[(*path, key)] = start  # the last of equal keys counts
        at = _skip(text, _skip(text, at) + 1)
        at = _skip(text, _walk(text, at, (*path, key), found))
        if text[at] == ",":
            at = _skip(text, at + 1)
    return at + 1


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at
