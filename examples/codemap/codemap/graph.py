"""Questions to the map: who uses a symbol, what it uses, and what is reached from it step by step.

Strategy: a use names a unit and a name in it. Where that unit only passes the name on (`from .core import run` in
an `__init__.py`), the import is followed: backwards from a definition to all its aliases, forwards from a use to
the definition. A use of an attribute of unknown type is certain only in its name. It counts for members of that
name as long as few have it; beyond that it would connect everything with everything.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Collection, Iterator
from typing import NamedTuple

from mcp_envelope.anchors import Anchor, NodeId

# An attribute's name that so many members have says nothing.
FEW = 3
_DEEPEST_ALIAS = 8
EDGES = ("calls", "inherits", "references", "imports", "contains")

_NODE = """SELECT s.id, f.id, f.path, f.lang, s.unit, s.name, s.kind, s.line, s.col, s.end_line, s.public,
 s.registered, f.package FROM symbols s JOIN files f ON f.id = s.file"""
_FILE = "SELECT 0, f.id, f.path, f.lang, f.unit, '', 'file', 1, 1, NULL, 1, 0, f.package FROM files f"
_USE = "SELECT u.file, u.owner, u.target, u.name, u.kind, u.line, u.col FROM uses u"


class Node(NamedTuple):
    """A symbol, or a file: then `symbol` is 0 and `name` is ""."""

    symbol: int
    file: int
    path: str
    lang: str
    unit: int
    name: str
    kind: str
    line: int
    col: int
    end_line: int | None
    is_public: int
    is_registered: int
    package: str

    @property
    def id(self) -> NodeId:
        return NodeId(self.lang, self.path, self.name or None)

    @property
    def anchor(self) -> Anchor:
        return Anchor(self.path, self.line, self.col, self.end_line)

    def anchor_at(self, line: int, col: int) -> Anchor:
        """Return the anchor of another place in the same file."""
        return Anchor(self.path, line, col)

    @property
    def last_name(self) -> str:
        return self.name.rpartition(".")[2]


class Place(NamedTuple):
    """A use, as it is stored."""

    file: int
    owner: int
    target: int
    name: str
    kind: str
    line: int
    col: int


class Edge(NamedTuple):
    node: Node
    kind: str
    direction: str  # in: the node refers to this one
    is_certain: bool


class Step(NamedTuple):
    """A node that is reached, by which edge, from where, and after how many steps."""

    edge: Edge
    origin: Node
    depth: int


class Graph:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._hubs: dict[tuple[int, str], int] = {}

    # -- nodes ------------------------------------------------------------------------------------------------

    def find(self, node: NodeId) -> Node | None:
        if node.qualified_name is None:
            return next(self.nodes("path = ? AND lang = ?", node.path, node.lang, query=_FILE), None)
        wanted = (node.path, node.lang, node.qualified_name)
        return next(self.nodes("f.path = ? AND f.lang = ? AND s.name = ?", *wanted), None)

    def nodes(self, where: str, *values: object, query: str = _NODE) -> Iterator[Node]:
        for row in self.connection.execute(f"{query} WHERE {where}", values):
            yield Node(*row)

    def files(self, beginning: str = "") -> Iterator[Node]:
        return self.nodes("substr(path, 1, length(?)) = ?", beginning, beginning, query=_FILE)

    def symbols_in(self, path: str) -> list[Node]:
        return list(self.nodes("f.path = ? ORDER BY s.line, s.col", path))

    def file(self, number: int) -> Node:
        return next(self.nodes("id = ?", number, query=_FILE))

    def at(self, path: str, line: int) -> Node | None:
        """Return the innermost symbol around a line, or its file."""
        around = self.nodes(
            "f.path = ? AND s.line <= ? AND s.end_line >= ? ORDER BY s.line DESC", path, line, line
        )
        return next(around, None) or next(self.nodes("path = ?", path, query=_FILE), None)

    def owner(self, place: Place) -> Node:
        """Return the symbol around a use, or its file."""
        found = next(self.nodes("s.id = ?", place.owner), None) if place.owner else None
        return found or self.file(place.file)

    def hub(self, node: Node) -> int:
        """Return how many certain uses a node has: its hub score."""
        key = (node.unit, node.name)
        if key not in self._hubs:
            if node.name:
                query = "SELECT count(*) FROM uses WHERE target = ? AND name = ?"
                self._hubs[key] = sum(
                    self.connection.execute(query, alias).fetchone()[0] for alias in self._aliases(node)
                )
            else:
                query = "SELECT count(DISTINCT file) FROM imports WHERE target = ?"
                self._hubs[key] = self.connection.execute(query, (node.unit,)).fetchone()[0]
        return self._hubs[key]

    def hubs(self, limit: int) -> list[Node]:
        """Return the symbols with the most certain uses."""
        rows = self.connection.execute(
            "SELECT target, name FROM uses WHERE target > 0 AND name <> '' GROUP BY name, target"
            " ORDER BY count(*) DESC LIMIT ?",
            (limit * 4,),
        )
        found = dict.fromkeys(node for row in rows.fetchall() if (node := self.resolve(*row)))
        return sorted(found, key=lambda node: -self.hub(node))[:limit]

    # -- edges ------------------------------------------------------------------------------------------------

    def _aliases(self, node: Node) -> list[tuple[int, str]]:
        """Return the units and names under which a symbol can be used."""
        head, dot, rest = node.name.partition(".")
        found = {(node.unit, head)}
        queue = deque(found)
        while queue:
            unit, name = queue.popleft()
            rows = self.connection.execute(
                "SELECT i.unit, CASE i.target_name WHEN '*' THEN ? ELSE i.alias END AS shown FROM imports i"
                " WHERE i.target = ? AND i.target_name IN (?, '*')"
                " AND (i.module = '' OR EXISTS (SELECT 1 FROM imports j WHERE j.target = i.unit))",
                (name, unit, name),
            )
            new = set(rows) - found
            found |= new
            queue += new
        return [(unit, f"{name}{dot}{rest}") for unit, name in sorted(found)]

    def resolve(self, unit: int, name: str, depth: int = 0) -> Node | None:
        """Return the symbol that a unit has under a name, its own or imported; the file if the name is ""."""
        if not name:
            return next(self.nodes("unit = ?", unit, query=_FILE), None)
        if found := next(self.nodes("s.unit = ? AND s.name = ?", unit, name), None):
            return found
        if depth == _DEEPEST_ALIAS:
            return None
        head, _, rest = name.partition(".")
        imported = self.connection.execute(
            "SELECT target, target_name FROM imports WHERE unit = ? AND alias IN (?, '*') AND target > 0",
            (unit, head),
        )
        for target, passed in imported.fetchall():
            further = name if passed == "*" else ".".join(filter(None, (passed, rest)))
            if found := self.resolve(target, further, depth + 1):
                return found
        # `module.Class.CONSTANT`: what is known of it is the class.
        outer = name.rpartition(".")[0]
        return self.resolve(unit, outer, depth + 1) if outer else None

    def uses_of(self, node: Node) -> tuple[list[tuple[Place, bool]], int]:
        """Return where a symbol is used, whether each is certain, and how many uses only share its name."""
        found = []
        for alias in self._aliases(node):
            rows = self.connection.execute(f"{_USE} WHERE u.target = ? AND u.name = ?", alias)
            found += [(Place(*row), True) for row in rows]
        if "." not in node.name:
            return found, 0
        last = node.last_name
        namesakes = self.connection.execute(
            "SELECT count(*) FROM symbols WHERE last = ? AND name <> last", (last,)
        ).fetchone()[0]
        if namesakes > FEW:
            count = "SELECT count(*) FROM uses WHERE name = ? AND target = 0"
            return found, self.connection.execute(count, (last,)).fetchone()[0]
        rows = self.connection.execute(f"{_USE} WHERE u.target = 0 AND u.name = ?", (last,))
        return found + [(Place(*row), False) for row in rows], 0

    def importers_of(self, node: Node) -> list[tuple[Node, int, int]]:
        """Return the files that import a file, or a symbol of it by name, each with line and column."""
        found: dict[int, tuple[Node, int, int]] = {}
        names = self._aliases(node) if node.name else [(node.unit, "")]
        for unit, name in names:
            rows = self.connection.execute(
                "SELECT file, line, col FROM imports WHERE target = ? AND (? = '' OR target_name IN (?, '*'))"
                " AND unit <> target",
                (unit, name, name),
            )
            for file, line, col in rows.fetchall():
                if file not in found:
                    found[file] = self.file(file), line, col
        return list(found.values())

    def incoming(self, node: Node) -> Iterator[Edge]:
        if not node.name:
            for importer, _, _ in self.importers_of(node):
                yield Edge(importer, "imports", "in", True)
            return
        for place, certain in self.uses_of(node)[0]:
            yield Edge(self.owner(place), _edge(place.kind), "in", certain)
        for parent in self._parent(node):
            yield Edge(parent, "contains", "in", True)

    def outgoing(self, node: Node) -> Iterator[Edge]:
        if not node.name:
            for symbol in self.nodes("f.path = ? AND s.name = s.last", node.path):
                yield Edge(symbol, "contains", "out", True)
            query = "SELECT DISTINCT target FROM imports WHERE file = ? AND target > 0 AND target <> unit"
            for (unit,) in self.connection.execute(query, (node.file,)).fetchall():
                for file in self.nodes("unit = ?", unit, query=_FILE):
                    yield Edge(file, "imports", "out", True)
            return
        for use in self.uses_in(node):
            target = self.resolve(use.target, use.name) if use.target else self._only_member(use.name)
            if target is not None and target.symbol:
                yield Edge(target, _edge(use.kind), "out", bool(use.target))
        for member in self.nodes("s.file = ? AND s.name = ? || '.' || s.last", node.file, node.name):
            yield Edge(member, "contains", "out", True)

    def used_at(self, path: str, line: int, col: int) -> Node | None:
        """Return the symbol whose name is used at a place."""
        rows = self.connection.execute(
            f"{_USE} JOIN files f ON f.id = u.file WHERE f.path = ? AND u.line = ? AND u.col <= ?"
            " ORDER BY u.col DESC LIMIT 1",
            (path, line, col),
        )
        for place in map(Place._make, rows):
            return self.resolve(place.target, place.name) if place.target else self._only_member(place.name)
        return None

    def uses_in(self, node: Node) -> list[Place]:
        rows = self.connection.execute(f"{_USE} WHERE u.file = ? AND u.owner = ?", (node.file, node.symbol))
        return [Place(*row) for row in rows]

    def _only_member(self, last: str) -> Node | None:
        found = list(self.nodes("s.last = ? AND s.name <> s.last LIMIT 2", last))
        return found[0] if len(found) == 1 else None

    def _parent(self, node: Node) -> Iterator[Node]:
        outer = node.name.rpartition(".")[0]
        if outer:
            yield from self.nodes("s.file = ? AND s.name = ?", node.file, outer)
        else:
            yield self.file(node.file)

    # -- walks ------------------------------------------------------------------------------------------------

    def walk(
        self, start: Node, depth: int, directions: Collection[str], kinds: Collection[str], most: int = 20_000
    ) -> Iterator[Step]:
        """Yield each node once, the nearest first."""
        seen = {(start.file, start.symbol)}
        queue = deque([(start, 0)])
        while queue:
            node, steps = queue.popleft()
            if steps == depth:
                continue
            edges: list[Edge] = []
            if "in" in directions:
                edges += self.incoming(node)
            if "out" in directions:
                edges += self.outgoing(node)
            # What is certain is reached first.
            for edge in sorted(edges, key=lambda edge: not edge.is_certain):
                key = (edge.node.file, edge.node.symbol)
                if edge.kind not in kinds or key in seen:
                    continue
                seen.add(key)
                yield Step(edge, node, steps + 1)
                if len(seen) > most:
                    return
                queue.append((edge.node, steps + 1))

    # -- what nobody uses -------------------------------------------------------------------------------------

    def unused(self) -> tuple[list[Node], list[Node]]:
        """Return the symbols that nothing uses, and the public ones that only their own file uses.

        A name that is used anywhere as an attribute of something unknown counts as used.
        """
        attributes = {
            str(name)
            for (name,) in self.connection.execute("SELECT DISTINCT name FROM uses WHERE target = 0")
        }
        used: dict[tuple[int, str], set[int]] = {}
        rows = self.connection.execute("SELECT DISTINCT target, name, file FROM uses WHERE target > 0")
        for target, name, file in rows.fetchall():
            while name:
                used.setdefault((target, name), set()).add(file)
                name = name.rpartition(".")[0]
        passed_on = {
            (target, name)
            for target, name in self.connection.execute(
                "SELECT DISTINCT target, target_name FROM imports WHERE target > 0 AND target_name <> ''"
            )
        }
        dead, inside = [], []
        for node in self.nodes("s.kind <> 'variable' AND s.registered = 0"):
            if _is_entry(node):
                continue
            users = used.get((node.unit, node.name), set())
            if (node.unit, node.name) in passed_on or ("." in node.name and node.last_name in attributes):
                continue
            if not users:
                dead.append(node)
            elif node.is_public and "." not in node.name and users == {node.file}:
                inside.append(node)
        return dead, inside

    def unimported(self) -> list[Node]:
        """Return the files that no other file imports, but for tests and what is started by itself."""
        where = (
            "f.unit NOT IN (SELECT target FROM imports WHERE unit <> target) AND f.lang <> 'go'"
            " AND f.id NOT IN (SELECT file FROM uses WHERE owner = 0 AND kind = 'calls')"
            " AND EXISTS (SELECT 1 FROM symbols s WHERE s.file = f.id)"
        )
        return [node for node in self.nodes(where, query=_FILE) if not _is_test(node.path)]


def _edge(kind: str) -> str:
    return "references" if kind == "reads" else kind


def _is_test(path: str) -> bool:
    name = path.rpartition("/")[2]
    return (
        f"/{path}".startswith(("/tests/", "/test/"))
        or "/tests/" in path
        or name.startswith(("test_", "conftest.", "__main__."))
        or name.endswith(("_test.go", "_test.py"))
        or ".test." in name
        or ".spec." in name
    )


def _is_entry(node: Node) -> bool:
    """Return whether something outside of the repository calls it: a test runner, an interpreter, a protocol."""
    last = node.last_name
    return (
        (last.startswith("__") and last.endswith("__"))
        or last in ("main", "init", "constructor")
        or (node.kind == "method" and last.startswith(("visit_", "do_", "on_")))
        or _is_test(node.path)
    )
