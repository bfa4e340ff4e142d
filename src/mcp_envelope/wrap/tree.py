"""A configuration file as text and meaning at once: what it says, and where it says it.

Strategy: the meaning comes from a real parser. The tree beside it has only places: of each key, each value, each
item of a list. JSON and TOML give the same tree, so whatever edits a server's entry needs to know neither. A key of
a TOML table may be spelled in several places; all of them are kept. Of equal keys in JSON the last one counts, as
in every client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

Span = tuple[int, int]
Path = tuple[str, ...]


class Broken(Exception):
    """The text cannot be parsed. The message says where and why."""


@dataclass(slots=True)
class Node:
    """A value. A TOML table that is spread over lines has no span of its own."""

    start: int = -1
    end: int = -1
    items: list[Node] = field(default_factory=list)
    fields: dict[str, Field] = field(default_factory=dict)
    order: list[Field] = field(default_factory=list)  # equal keys included

    def add(self, member: Field) -> None:
        self.fields.pop(member.name, None)
        self.fields[member.name] = member
        self.order.append(member)

    def scalars(self) -> Iterator[Node]:
        """The values inside that hold no others."""
        children = [*self.items, *(member.node for member in self.order)]
        if not children and self.start >= 0:
            yield self
        for child in children:
            yield from child.scalars()


@dataclass(slots=True)
class Field:
    """A member of an object or a table."""

    name: str
    keys: list[Span]
    node: Node
    lead: int  # where its line or its dotted key begins: what is before the key itself is part of the name
    inline: bool  # between commas, not on a line of its own


@dataclass(frozen=True, slots=True)
class Syntax:
    """How things are spelled."""

    name: str
    string: Callable[[str], str]
    key: Callable[[str], str]
    colon: str
    headers: str  # the key for the headers of a remote server
    parse: Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Document:
    text: str
    value: Any
    root: Node
    syntax: Syntax
    comments: list[Span]
    strings: list[Span]  # values only, no keys

    def raw(self, node: Node) -> str:
        return self.text[node.start : node.end]

    def newline(self) -> str:
        return "\r\n" if "\r\n" in self.text else "\n"

    def line_start(self, at: int) -> int:
        return self.text.rfind("\n", 0, at) + 1

    def line_end(self, at: int) -> int:
        end = self.text.find("\n", at)
        end = len(self.text) if end < 0 else end
        return end - 1 if self.text[at:end].endswith("\r") else end


@dataclass(frozen=True, slots=True)
class Server:
    """One entry of the configuration."""

    path: Path
    node: Node
    value: Any

    @property
    def name(self) -> str:
        return self.path[-1]

    @property
    def label(self) -> str:
        """The name, and the project if it is a project's."""
        return f"{self.name} ({self.path[1]})" if self.path[0] == "projects" else self.name


# Where servers lie: at the top, in the settings of VS Code, in the projects of Claude Code.
KEYS = ("mcpServers", "servers", "mcp_servers")


def is_on_the_way(path: Path) -> bool:
    """Whether servers may lie at this path or below."""
    if not path or path[0] in KEYS:
        return True
    if path[0] == "mcp":
        return len(path) == 1 or path[1] == "servers"
    return path[0] == "projects" and (len(path) < 3 or path[2] == "mcpServers")


def servers(document: Document) -> list[Server]:
    """Every entry, in the order of the file."""
    found: list[Server] = []
    for at in (*((key,) for key in KEYS), ("mcp", "servers")):
        found += _below(document, at)
    projects = document.value.get("projects") if isinstance(document.value, dict) else None
    for project in projects if isinstance(projects, dict) else ():
        found += _below(document, ("projects", project, "mcpServers"))
    return found


def _below(document: Document, path: Path) -> Iterator[Server]:
    node, value = document.root, document.value
    for step in path:
        if not isinstance(value, dict) or step not in value or step not in node.fields:
            return
        node, value = node.fields[step].node, value[step]
    if isinstance(value, dict):
        for name, member in node.fields.items():
            if isinstance(value.get(name), dict):
                yield Server((*path, name), member.node, value[name])
