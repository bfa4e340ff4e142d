"""A client's configuration file as text and meaning at once, and edits that touch nothing else in it.

Strategy: the meaning comes from a real parser. The tree beside it holds only positions: of each key, value and
item. JSON, TOML and YAML give the same tree, so code that edits an entry needn't know which it is. An edit
replaces a span of the old text, so all other bytes stay by construction. What is inserted follows its neighbours:
on a line of its own if they are, between commas if they are. What was inserted can be removed without a trace,
because both sides know exactly where it goes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from ..jsontext import scanner, toml_scanner
from ..jsontext.scanner import MemberSpan, Span, Unparsable, ValueSpan
from .server_entry import Change, command_key

# Names of members, and numbers of items.
Path = tuple[str | int, ...]

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
# What precedes an item of a list in YAML on its line.
_DASH: Final = re.compile(r" *- +")
# A word of YAML that is the same in any place: quoted, or without what has a meaning somewhere.
_YAML_WORD: Final = re.compile(
    r"""[A-Za-z0-9_/.@+=-]+(?: [A-Za-z0-9_/.@+=-]+)*|"(?:[^"\\\r\n]|\\.)*"|'(?:[^'\r\n]|'')*'"""
)
# Where servers are kept: at the top, in the settings of VS Code, in the projects of Claude Code.
_KEYS: Final = ("mcpServers", "servers", "mcp_servers", "context_servers")
# A file with one of these is a server itself; and what belongs to it.
_ENTRY: Final = ("command", "url")
_PARTS: Final = ("args", "env", "headers")


class NotConfig(Exception):
    """The text cannot be parsed. The message says where and why."""


class Overlap(Exception):
    """Two edits want the same span."""


@dataclass(frozen=True, slots=True)
class Syntax:
    """How things are spelled."""

    name: str
    string: Callable[[str], str]
    key: Callable[[str], str]
    colon: str
    headers: str  # the key for the headers of a remote server
    parse: Callable[[str], Any]
    movable: re.Pattern[str] = re.compile(r".*", re.DOTALL)  # what means the same anywhere


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """One server in the configuration."""

    path: Path
    node: ValueSpan
    value: Any

    @property
    def name(self) -> str:
        """Its key, or in a list its own `name`; nothing for the only one in a file."""
        if not self.path:
            return str(self.value.get("name", ""))
        last = self.path[-1]
        return last if isinstance(last, str) else str(self.value.get("name", last + 1))

    @property
    def label(self) -> str:
        """The name, with the project if the server belongs to one."""
        return (
            f"{self.name} ({self.path[1]})" if self.path[:1] == ("projects",) else self.name or "the server"
        )


class Edit(NamedTuple):
    start: int
    end: int
    new: str


@dataclass(frozen=True, slots=True)
class ConfigFile:
    text: str
    value: Any
    root: ValueSpan
    syntax: Syntax
    comments: list[Span]
    strings: list[Span]  # values only, no keys

    def servers(self) -> list[ServerEntry]:
        """Every entry, in the order of the file."""
        found: list[ServerEntry] = []
        for path in (*((key,) for key in _KEYS), ("mcp", "servers")):
            found += self._below(path)
        # opencode has its servers beside nothing else, and says of each which kind it is.
        found += [entry for entry in self._below(("mcp",)) if entry.value.get("type") in ("local", "remote")]
        # Goose has others of its own beside them.
        found += [
            e for e in self._below(("extensions",)) if e.value.get("type") in ("stdio", "streamable_http")
        ]
        if not found and isinstance(self.value, dict) and any(key in self.value for key in _ENTRY):
            # Continue takes a file for a server that has no name but the file's.
            return [ServerEntry((), self.root, self.value)]
        projects = self.value.get("projects") if isinstance(self.value, dict) else None
        for project in projects if isinstance(projects, dict) else ():
            found += self._below(("projects", project, "mcpServers"))
        return found

    def _below(self, path: tuple[str, ...]) -> Iterator[ServerEntry]:
        node, value = self.root, self.value
        for step in path:
            member = node.member(step)
            if not isinstance(value, dict) or step not in value or member is None:
                return
            node, value = member.value, value[step]
        if isinstance(value, dict):
            for name, member in node.fields.items():
                if isinstance(value.get(name), dict):
                    yield ServerEntry((*path, name), member.value, value[name])
        elif isinstance(value, list):
            for number, (item, span) in enumerate(zip(value, node.items, strict=True)):
                if isinstance(item, dict):
                    yield ServerEntry((*path, number), span, item)

    def raw(self, node: ValueSpan) -> str:
        return self.text[node.start : node.end]

    # -- edits ----------------------------------------------------------------------------------------------

    def edited(self, edits: Iterable[Edit]) -> str:
        return apply(self.text, edits)

    def edited_to(self, meaning: Any, edits: Iterable[Edit]) -> str | None:
        """The text after the edits, or None if it would not mean that."""
        try:
            text = self.edited(edits)
            return text if self.syntax.parse(text) == meaning else None
        except (Overlap, ValueError):  # Unparsable is a ValueError
            return None

    def rewritten(self, server: ServerEntry, change: Change) -> list[Edit]:
        """The edits that change an entry.

        A member stays where it is, and a word is spelled as it was. Others come next to the command.
        """
        fields, old, new, places = server.node.fields, server.value, change.value, change.places
        if not old.keys() <= fields.keys():  # a merge key of YAML has the others
            raise Overlap
        edits: list[Edit] = []
        spelled: dict[object, str] = {}
        for key in fields.keys() & change.moved:
            words = old[key] if isinstance(old[key], list) else [old[key]]
            for word, node in zip(words, fields[key].value.items or [fields[key].value], strict=False):
                if self.syntax.movable.fullmatch(raw := self.raw(node)):
                    spelled.setdefault(word, raw)

        def text(value: Any) -> str:
            if isinstance(value, list):
                return f"[{', '.join(map(text, value))}]"
            return spelled.get(value) or self.syntax.string(value)

        for key, value in new.items():
            member = fields.get(place := places.get(key, key))
            if member is None and key == "args":
                edits.append(self._insert_after(fields[command_key(old)], key, text(value)))
            elif member is None:
                edits.append(self._insert_before(fields[places["args"]], key, text(value)))
            else:
                edits += self._rename(member, key) if key != place else []
                edits += self._revalued(member.value, old[place], value, text)
        for key in old.keys() - {places.get(key, key) for key in new}:
            edits.append(
                (self._remove_after if key == "args" else self._remove_before)(server.node, fields[key])
            )
        return edits

    def _revalued(self, node: ValueSpan, old: Any, new: Any, text: Callable[[Any], str]) -> list[Edit]:
        if old == new:
            return []
        if isinstance(old, dict) and isinstance(new, dict):  # with the same values under other names
            pairs = zip(old, new, strict=True)
            return [edit for name, other in pairs for edit in self._rename(node.fields[name], other)]
        if not (isinstance(old, list) and isinstance(new, list)):
            return [Edit(node.start, node.end, text(new))]
        if not old:  # the space tells it from an array that wasn't there
            return [Edit(node.start + 1, node.start + 1, f" {', '.join(map(text, new))}")]
        same = [one == other for one, other in zip(reversed(old), reversed(new), strict=False)]
        tail = (*same, False).index(False)
        gone, words = node.items[: len(old) - tail], [text(word) for word in new[: len(new) - tail]]
        separator = self._separator(node.items[0].start)
        if not words:
            return [self._remove_first(node, len(gone))]
        if not gone:
            return [
                Edit(
                    node.items[0].start, node.items[0].start, "".join(f"{word}{separator}" for word in words)
                )
            ]
        return [Edit(gone[0].start, gone[-1].end, separator.join(words))]

    def _rename(self, member: MemberSpan, name: str) -> list[Edit]:
        """Another key, wherever it is spelled; quoted if the old one was."""
        return [Edit(start, end, self._quoted_as(start, name)) for start, end in member.keys]

    def _separator(self, first: int) -> str:
        """What separates items: a line break if the first one, at this offset, is the first on its line."""
        start = self._line_start(first)
        indent = self.text[start:first]
        if _DASH.fullmatch(indent):
            return f"{self._newline}{indent}"
        if start and not indent.strip(" \t"):
            return f",{self._newline}{indent}"
        return ", "

    def was_empty(self, array: ValueSpan) -> bool:
        """Whether the array had no items before words were put into it."""
        return bool(array.items) and self.text[array.start + 1 : array.items[0].start] == " "

    def _remove_first(self, array: ValueSpan, count: int) -> Edit:
        if count < len(array.items):
            return Edit(array.items[0].start, array.items[count].start, "")
        end = array.items[-1].end
        if self.text[end : array.end].lstrip().startswith(","):
            end = self.text.index(",", end) + 1
        return Edit(array.start + 1, end, "")

    def _insert_after(self, member: MemberSpan, name: str, value: str) -> Edit:
        spelled = self._spelled_like(member, name, value)
        if member.inline:
            at = member.value.end
            return Edit(at, at, f"{self._separator(member.lead)}{spelled}")
        at = self._line_end(member.value.end)
        return Edit(at, at, f"{self._newline}{self._indent(member)}{spelled}")

    def _insert_before(self, member: MemberSpan, name: str, value: str) -> Edit:
        spelled = self._spelled_like(member, name, value)
        between = self._separator(member.lead) if member.inline else f"{self._newline}{self._indent(member)}"
        return Edit(member.lead, member.lead, f"{spelled}{between}")

    def _remove_after(self, holder: ValueSpan, member: MemberSpan) -> Edit:
        """Undo `_insert_after`."""
        start = self._line_start(member.lead)
        if not member.inline and start:
            start -= 2 if self.text[:start].endswith("\r\n") else 1
            return Edit(start, member.value.end, "")
        before = [other for other in holder.members if other.lead < member.lead]
        if member.inline and before:
            return Edit(before[-1].value.end, member.value.end, "")
        return self._up_to_next(holder, member) or Edit(member.lead, member.value.end, "")

    def _remove_before(self, holder: ValueSpan, member: MemberSpan) -> Edit:
        """Undo `_insert_before`."""
        return self._up_to_next(holder, member) or self._remove_after(holder, member)

    def _up_to_next(self, holder: ValueSpan, member: MemberSpan) -> Edit | None:
        after = [other for other in holder.members if other.lead > member.lead]
        if not after or self.text[member.value.end : after[0].lead].strip(" \t\r\n,"):
            return None
        return Edit(member.lead, after[0].lead, "")

    def _spelled_like(self, member: MemberSpan, name: str, value: str) -> str:
        """A new member, with the dotted prefix and the separator of this one if that is plain."""
        start, end = member.keys[-1]
        between = self.text[end : member.value.start]
        plain = len(between) <= 3 and not between.strip(" :=")
        colon = between if plain else self.syntax.colon
        return f"{self.text[member.lead : start]}{self.syntax.key(name)}{colon}{value}"

    def _quoted_as(self, start: int, name: str) -> str:
        quote = self.text[start]
        if quote == "'" and name.isprintable() and quote not in name:
            return f"'{name}'"
        return self.syntax.string(name) if quote == '"' else self.syntax.key(name)

    @property
    def _newline(self) -> str:
        return "\r\n" if "\r\n" in self.text else "\n"

    def _line_start(self, at: int) -> int:
        return self.text.rfind("\n", 0, at) + 1

    def _line_end(self, at: int) -> int:
        end = self.text.find("\n", at)
        end = len(self.text) if end < 0 else end
        return end - 1 if self.text[at:end].endswith("\r") else end

    def _indent(self, member: MemberSpan) -> str:
        indent = self.text[self._line_start(member.lead) : member.lead].removeprefix("\ufeff")
        return indent.replace("-", " ") if _DASH.fullmatch(indent) else indent


def apply(text: str, edits: Iterable[Edit]) -> str:
    parts: list[str] = []
    done = 0
    for start, end, new in sorted(edits, key=lambda edit: edit[:2]):
        if start < done:
            raise Overlap
        parts += [text[done:start], new]
        done = end
    return "".join([*parts, text[done:]])


# -- reading ------------------------------------------------------------------------------------------------


def read(data: bytes, name: str) -> ConfigFile:
    """Parse a file; the ending of its name tells the format, if it has one. Raises NotConfig."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise NotConfig(f"line {line}: not UTF-8; save it as UTF-8") from None
    ending = name.rpartition(".")[2].lower()
    if ending not in ("json", "jsonc", "toml", "yaml", "yml"):
        start = text.lstrip("\ufeff \t\r\n")[:1]
        ending = "json" if start in ("{", "/") else "toml"
    try:
        if ending in ("yaml", "yml"):
            return _read_yaml(text)
        if ending == "toml":
            value = TOML.parse(text)
            return ConfigFile(text, value, syntax=TOML, **toml_scanner.scan(text)._asdict())
        plain, value, root = scanner.scan(text, _may_hold_servers)
    except Unparsable as error:
        raise NotConfig(str(error)) from None
    strings = list(scanner.string_values(plain))
    return ConfigFile(text, value, root, JSON, list(scanner.comments(text)), strings)


def _read_yaml(text: str) -> ConfigFile:
    try:
        from ..jsontext import yaml_scanner  # PyYAML is in an extra
    except ImportError:
        raise NotConfig("it is YAML, which needs: pip install 'mcp-envelope[yaml]'") from None
    found = yaml_scanner.scan(text)
    syntax = Syntax("YAML", _toml_string, _toml_key, ": ", "headers", yaml_scanner.parse, _YAML_WORD)
    return ConfigFile(text, found.meaning, found.root, syntax, found.comments, found.strings)


def _may_hold_servers(path: Path) -> bool:
    """Whether servers may be at this path or below."""
    if not path or path[0] in ("mcp", "extensions", *_KEYS, *_PARTS):
        return True
    return path[0] == "projects" and (len(path) < 3 or path[2] == "mcpServers")


def _json_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _toml_string(text: str) -> str:
    return _json_string(text).replace("\x7f", "\\u007f")


def _toml_key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _toml_string(name)


JSON: Final = Syntax("JSON", _json_string, _json_string, ": ", "headers", scanner.parse)
# Floats stay text: a nan would not be equal to itself.
_parse_toml: Final = partial(toml_scanner.parse, parse_float=str)
TOML: Final = Syntax("TOML", _toml_string, _toml_key, " = ", "http_headers", _parse_toml)
