"""TOML, and where everything in it stands.

Strategy: `tomllib` says what the text means and whether it is TOML at all. The scanner beside it then only has to
step over values that are known to be right, and to note where keys, values and items stand. It knows tables, dotted
keys and inline tables. Lists of tables are stepped over: servers are never kept in them.
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any, Final

from ..policy.places import place
from .tree import Broken, Document, Field, Node, Span, Syntax

_SPACE: Final = re.compile(r"[ \t]*")
_BLANK: Final = re.compile(r"[ \t\r\n]*")
_COMMENT: Final = re.compile(r"#[^\n]*")
_KEY: Final = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
_STRING: Final = re.compile(
    r'"""(?:[^\\]|\\.)*?""""{0,2}' r"|'''.*?''''{0,2}" r'|"(?:[^"\\\n]|\\.)*"' r"|'[^'\n]*'", re.DOTALL
)
# Numbers, truth values and times; a time may have a space in it.
_BARE: Final = re.compile(r"[^,\]}#\r\n]*[^,\]}#\r\n \t]")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_AT: Final = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)


def read(text: str) -> Document:
    value = _parse(text)
    scanner = _Scanner(text)
    try:
        scanner.document()
    except RecursionError:
        raise Broken("not TOML: nested too deeply") from None
    return Document(text, value, scanner.root, SYNTAX, scanner.comments, scanner.strings)


def _parse(text: str) -> Any:
    text = text.removeprefix("\ufeff")
    try:
        # Numbers with a point stay text: a nan would not be equal to itself.
        return tomllib.loads(text, parse_float=str)
    except RecursionError:
        raise Broken("not TOML: nested too deeply") from None
    except ValueError as error:
        found = _AT.fullmatch(str(error))
        if found is None:
            raise Broken(f"not TOML: {error}") from None
        line, column = found[2], found[3]
        where = f"line {line}, column {column}" if line else place(text, len(text))
        raise Broken(f"{where}: not TOML: {found[1][:1].lower()}{found[1][1:]}") from None


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 1 if text.startswith("\ufeff") else 0
        self.root = Node()
        self.comments: list[Span] = []
        self.strings: list[Span] = []

    def document(self) -> None:
        table = self.root
        self.gap()
        while self.at < len(self.text):
            if self.text.startswith("[[", self.at):
                self.at += 2
                self.descend(Node(), self.key(), self.at, inline=False)
                table = Node()
                self.expect("]]")
            elif self.text.startswith("[", self.at):
                start = self.at
                self.at += 1
                table = self.descend(self.root, self.key(), start, inline=False)
                self.expect("]")
            else:
                self.member(table, inline=False)
            self.gap()

    def member(self, table: Node, *, inline: bool) -> None:
        start, parts = self.at, self.key()
        *way, (name, span) = parts
        holder = self.descend(table, way, start, inline=inline)
        self.expect("=")
        self.match(_SPACE)
        holder.add(Field(name, [span], self.value(), lead=start, inline=inline))

    def descend(self, node: Node, parts: list[tuple[str, Span]], lead: int, *, inline: bool) -> Node:
        """The table that a dotted key leads to, made if it is not there yet."""
        for name, span in parts:
            if name in node.fields:
                node.fields[name].keys.append(span)
            else:
                node.add(Field(name, [span], Node(), lead=lead, inline=inline))
            node = node.fields[name].node
        return node

    def key(self) -> list[tuple[str, Span]]:
        parts: list[tuple[str, Span]] = []
        while True:
            self.match(_SPACE)
            start, part = self.at, self.match(_KEY)
            if not part:
                raise self.lost()
            parts.append((_unquoted(part), (start, self.at)))
            self.match(_SPACE)
            if not self.text.startswith(".", self.at):
                return parts
            self.at += 1

    def value(self) -> Node:
        node = Node(start=self.at)
        opening = self.text[self.at : self.at + 1]
        if opening in ("{", "["):
            self.at += 1
            self.container(node, "}" if opening == "{" else "]")
        elif self.match(_STRING):
            self.strings.append((node.start, self.at))
        elif not self.match(_BARE):
            raise self.lost()
        node.end = self.at
        return node

    def container(self, node: Node, closing: str) -> None:
        while True:
            self.gap()
            if self.text.startswith(closing, self.at):
                self.at += 1
                return
            if closing == "}":
                self.member(node, inline=True)
            else:
                node.items.append(self.value())
            self.gap()
            if self.text.startswith(",", self.at):
                self.at += 1

    def gap(self) -> None:
        self.match(_BLANK)
        while self.text.startswith("#", self.at):
            start = self.at
            self.match(_COMMENT)
            self.comments.append((start, self.at))
            self.match(_BLANK)

    def match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        if found is None:
            return ""
        self.at = found.end()
        return found[0]

    def expect(self, mark: str) -> None:
        self.match(_SPACE)
        if not self.text.startswith(mark, self.at):
            raise self.lost()
        self.at += len(mark)

    def lost(self) -> Broken:
        return Broken(f"{place(self.text, self.at)}: this TOML is not understood")


def _unquoted(key: str) -> str:
    if key[0] not in "\"'":
        return key
    return str(tomllib.loads(f"key = {key}")["key"])


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _string(name)


SYNTAX: Final = Syntax("TOML", _string, _key, " = ", "http_headers", _parse)
