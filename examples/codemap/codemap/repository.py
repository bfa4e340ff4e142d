"""A repository as the tools see it: its map, its files, and what has to be said about them.

Strategy: every failure with a code comes from here or from `navigation`. A `View` makes what one call shows: it
reads the lines that anchors point at, compares hashes once for each file, and reports in the end what was out of
date.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mcp_envelope import Failure, describe_call, index_age, stale, warn
from mcp_envelope.anchors import Anchor, LineIndex, NodeId, relative_path

from .files import LARGEST, is_ignored, language_of, package_of
from .graph import Graph, Node
from .index import Index
from .models import Entry

_SNIPPET = 160
_SIMILAR = 5


class Repository:
    def __init__(self, index: Index, *, oldest: float = 86400) -> None:
        self.index = index
        self.root = index.root
        self._oldest = oldest  # seconds; an older index is mentioned

    # -- the map ----------------------------------------------------------------------------------------------

    @contextmanager
    def view(self) -> Iterator[View]:
        """Open the map for one call, and say in the end what was out of date in it."""
        if not self.index.is_built:
            building = self.index.building
            done = f": {building[0]:,} of {building[1]:,} files are done" if building and building[1] else ""
            raise Failure(
                "MAP_NOT_BUILT",
                f"The map is being built{done}." if building else "There is no map of this repository yet.",
                "Try again in a moment. The nav tools work meanwhile." if building else "Call map_rebuild.",
            )
        with self.index.open() as connection:
            view = View(self, Graph(connection), self.index.fact("packages") or "")
            yield view
            view.report()
        if (age := self.age()) is not None and age > self._oldest:
            index_age(
                spoken(age), "Confirm hot paths with nav_references before editing, or call map_rebuild."
            )

    def age(self) -> float | None:
        """Return how many seconds ago the map was built."""
        built = self.index.fact("built")
        return None if built is None else max(0.0, time.time() - float(built))

    # -- files ------------------------------------------------------------------------------------------------

    def path(self, file: str) -> str:
        """Return a path that a client named, relative to the root."""
        try:
            path = relative_path(file, self.root)
        except ValueError as error:
            raise Failure(
                "INVALID_PATH", f"{error}.", "Pass a path relative to the root of the repository."
            ) from None
        if not (self.root / path).resolve().is_relative_to(self.root):
            raise Failure("FORBIDDEN", f"{path} is a link that leads out of the repository.")
        if (self.root / path).is_dir():
            raise Failure("INVALID_PATH", f"{path} is a directory.", "Pass a file.")
        return path

    def read(self, file: str) -> tuple[str, str]:
        """Return the path and the text of a source file that a client named."""
        path = self.path(file)
        if is_ignored(self.root, path):
            raise Failure(
                "FORBIDDEN", f"{path} is left out by .gitignore.", "Ask the user before you read it."
            )
        if language_of(path) is None:
            raise Failure(
                "NOT_IMPLEMENTED",
                f"{path} is in no language that codemap knows.",
                "It knows Python, TypeScript, JavaScript and Go.",
            )
        try:
            data = (self.root / path).read_bytes()
        except FileNotFoundError:
            raise self._missing(path) from None
        if len(data) > LARGEST:
            raise Failure("TOO_LARGE", f"{path} has {len(data):,} bytes; more than {LARGEST:,} are not read.")
        return path, LineIndex.from_bytes(data).text

    def _missing(self, path: str) -> Failure:
        if self.index.is_built:
            with self.index.open() as connection:
                if self.index.state(connection, path):
                    hint = "Search for the symbol with map_search; it may have moved. Then call map_rebuild."
                    return Failure("FILE_DELETED", f"{path} was in the map, but is gone from the disk.", hint)
        return Failure(
            "NOT_FOUND", f"There is no file {path}.", "map_search finds files by a part of their name."
        )


class View:
    """What one call sees of the map."""

    def __init__(self, repository: Repository, graph: Graph, packages: str) -> None:
        self.graph = graph
        self.packages = [package for package in packages.split("\n") if package]
        self._repository = repository
        self._texts: dict[str, LineIndex | None] = {}
        self._states: dict[str, str] = {}

    def node(self, node: NodeId) -> Node:
        """Return the node with this id, and tell the client which package of the repository it is in."""
        found = self.graph.find(node)
        if found is None or self._state(node.path) == "gone":
            if self._state(node.path) == "gone":
                raise self._repository._missing(node.path)
            names = [str(each.id) for each in self.graph.symbols_in(node.path)]
            similar = difflib.get_close_matches(str(node), names, _SIMILAR, 0.5)
            hint = "Take an id from map_search or map_overview, or call map_rebuild if the code is new."
            raise Failure("NODE_NOT_FOUND", f"The map has no node {node}.", hint, similar=similar)
        self.describe_workspace(node.path)
        return found

    def describe_workspace(self, path: str) -> None:
        if self.packages:
            package = package_of(path, self.packages)
            root = {"root": self._repository.root.name}
            describe_call(workspace={**root, "package": package} if package else root)

    def entry(self, node: Node, **more: Any) -> Any:
        """Return a node as clients see it, with more fields of one of the types in `models`."""
        shown = Entry(id=node.id, kind=node.kind, anchor=self.anchor(node.anchor))
        return {**shown, **more, **self.mark(node.path)}

    def location(self, anchor: Anchor, **more: Any) -> Any:
        """Return a place as clients see it, with more fields."""
        return {"anchor": self.anchor(anchor), **more, **self.mark(anchor.file)}

    def mark(self, path: str) -> dict[str, bool]:
        return {"stale": True} if self._state(path) in ("changed", "gone") else {}

    def anchor(self, at: Anchor) -> Anchor:
        """Return an anchor with the line that it points at, unless the file has changed since."""
        if self._state(at.file) not in ("fresh", ""):
            return at
        if at.file not in self._texts:
            try:
                data = (self._repository.root / at.file).read_bytes()
                self._texts[at.file] = LineIndex(data.decode(errors="replace"))
            except OSError:
                self._texts[at.file] = None
        lines = self._texts[at.file]
        if lines is None or at.line > lines.line_count():
            return at
        snippet = lines.line_text(at.line).strip()[:_SNIPPET]
        return Anchor(at.file, at.line, at.col, at.end_line, snippet) if snippet else at

    def _state(self, path: str) -> str:
        if path not in self._states:
            self._states[path] = self._repository.index.state(self.graph.connection, path)
        return self._states[path]

    def mention_namesakes(self, node: Node) -> None:
        """Say how many uses of a member's name may be of another one's."""
        left_out = self.graph.uses_of(node)[1] if node.name else 0
        if left_out:
            warn(
                f"Many symbols are called {node.last_name}; {left_out:,} uses of the name that may be of any"
                " of them are left out. nav_references tells them apart."
            )

    def report(self) -> None:
        states = list(self._states.values())
        stale(
            states.count("changed"), marked="stale: true", advice="Call map_rebuild to bring them up to date."
        )
        if gone := states.count("gone"):
            warn(
                f"{gone} file(s) in this answer are gone from the disk since the last index. Call map_rebuild."
            )
        sizes = [len(text.text) for text in self._texts.values() if text is not None]
        if sizes:
            # Reading the files instead would have cost about this much.
            describe_call(token_usage={"files": len(sizes), "tokensInFiles": sum(sizes) // 4})


def spoken(seconds: float) -> str:
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return f"{int(seconds)} seconds"
