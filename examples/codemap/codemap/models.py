"""What the tools return. Their output schemas are made from these types, so the names are as on the wire."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from mcp_envelope.anchors import Anchor, NodeId

Via = Literal["language server", "fallback-map"]


class Entry(TypedDict):
    """A symbol or a file. `stale`: its file changed since the last index."""

    id: NodeId
    kind: str
    anchor: Anchor
    stale: NotRequired[bool]


class Hub(Entry):
    hub: int


class Folder(TypedDict):
    path: str
    files: int
    symbols: int


class LanguageCount(TypedDict):
    lang: str
    files: int
    symbols: int


class Overview(TypedDict):
    languages: list[LanguageCount]
    folders: list[Folder]
    hubs: list[Hub]


class Result(Entry):
    score: int


class SearchResults(TypedDict):
    results: list[Result]


class Neighbor(Entry):
    edge: str
    direction: Literal["in", "out"]
    depth: int
    hub: int
    certain: bool


class Neighbors(TypedDict):
    node: Entry
    neighbors: list[Neighbor]


class PathStep(Entry):
    edge: NotRequired[str]


class Route(TypedDict):
    path: list[PathStep]


class Problem(TypedDict):
    file: str
    problem: str


class ServerState(TypedDict):
    lang: str
    command: str
    state: str
    crashes: int
    stderr: list[str]


class Status(TypedDict):
    root: str
    built: bool
    files: int
    symbols: int
    uses: int
    age: str | None
    changed: int
    added: int
    deleted: int
    packages: list[str]
    problems: list[Problem]
    languageServers: list[ServerState]


class Rebuilt(TypedDict):
    indexed: int
    unchanged: int
    deleted: int
    seconds: float
    problems: list[Problem]


class Location(TypedDict):
    """`inside` is the symbol around it."""

    anchor: Anchor
    inside: NotRequired[NodeId]
    certain: NotRequired[bool]
    stale: NotRequired[bool]


class Definitions(TypedDict):
    via: Via
    definitions: list[Location]


class References(TypedDict):
    via: Via
    references: list[Location]


class Outline(TypedDict):
    via: Via
    symbols: list[Entry]


class TypeInfo(TypedDict):
    anchor: Anchor
    type: str


class Call(Entry):
    calls: int


class CallHierarchy(TypedDict):
    via: Via
    direction: Literal["incoming", "outgoing"]
    calls: list[Call]


class Importer(TypedDict):
    id: NodeId
    anchor: Anchor
    stale: NotRequired[bool]


class Importers(TypedDict):
    node: Entry
    importers: list[Importer]


class Impacted(Entry):
    depth: int
    hub: int
    edge: str
    through: NodeId
    certain: bool


class BlastRadius(TypedDict):
    node: Entry
    risk: Literal["none", "low", "medium", "high"]
    direct: int
    impacted: int
    files: int
    packages: list[str]
    impactedSymbols: list[Impacted]


class DeadCode(TypedDict):
    deadSymbols: list[Entry]
    deadFiles: list[Entry]
    unusedExports: NotRequired[list[Entry]]
