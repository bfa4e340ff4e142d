"""The map_ tools: what is in the map, and what is connected with what."""

# ruff: noqa: N803

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastmcp import Context
from pydantic import Field

from mcp_envelope import Miss, Reply, enveloped, rank, warn

from .arguments import EdgeKind, Filter, NodeArgument
from .graph import EDGES, Node
from .lsp import LanguageServer
from .models import (
    Folder,
    LanguageCount,
    Neighbors,
    Overview,
    Problem,
    Rebuilt,
    Route,
    SearchResults,
    ServerState,
    Status,
)
from .repository import Repository, spoken

_MOST_PROBLEMS = 50
_MOST_RESULTS = 500


class MapTools:
    def __init__(self, repository: Repository, servers: dict[str, LanguageServer]) -> None:
        self._repository = repository
        self._servers = servers

    @enveloped(
        lists={"hubs": rank("-hub"), "folders": rank("-symbols", "path")}, hint="Pass focus to see less."
    )
    def map_overview(self, focus: Filter = "") -> Reply[Overview]:
        """What is in the repository: languages, folders, and the symbols that most of it uses (hubs)."""
        with self._repository.view() as view:
            like = f"{_escaped(focus)}%"
            per_file = (
                "SELECT f.path, f.lang, (SELECT count(*) FROM symbols s WHERE s.file = f.id) FROM files f"
                " WHERE f.path LIKE ? ESCAPE '!'"
            )
            rows = view.graph.connection.execute(per_file, (like,)).fetchall()
            folders: dict[str, list[int]] = {}
            languages: dict[str, list[int]] = {}
            for path, lang, symbols in rows:
                folders.setdefault(path.rpartition("/")[0] or ".", []).append(symbols)
                languages.setdefault(lang, []).append(symbols)
            hubs = [node for node in view.graph.hubs(200 if focus else 30) if node.path.startswith(focus)][
                :30
            ]
            overview = Overview(
                languages=[LanguageCount(lang=k, files=len(v), symbols=sum(v)) for k, v in languages.items()],
                folders=[Folder(path=k, files=len(v), symbols=sum(v)) for k, v in sorted(folders.items())],
                hubs=[view.entry(node, hub=view.graph.hub(node)) for node in hubs],
            )
        return Reply(
            overview,
            summary=f"{len(rows):,} files in {len(folders):,} folders",
            next_steps=["Look for a symbol with map_search, or at one with map_neighbors."],
        )

    @enveloped(
        lists={"results": rank("-score", "anchor.file", "anchor.line")},
        hint="Use a longer query or fileFilter.",
    )
    def map_search(
        self,
        query: Annotated[
            str, Field(min_length=1, description="Words that name or path have, such as 'vault open'.")
        ],
        fileFilter: Filter = "",
        kind: Annotated[str, Field(description="function, method, class, variable, file, …")] = "",
    ) -> Reply[SearchResults] | Miss:
        """Find symbols and files by parts of their names."""
        words = query.replace(".", " ").replace("#", " ").split()
        with self._repository.view() as view:
            condition = " AND ".join("f.path || '#' || s.name LIKE ? ESCAPE '!'" for _ in words)
            values = [f"%{_escaped(word)}%" for word in words]
            found = list(
                view.graph.nodes(
                    f"f.path LIKE ? ESCAPE '!' AND {condition}", f"{_escaped(fileFilter)}%", *values
                )
            )
            found += [
                file
                for file in view.graph.files(fileFilter)
                if all(w.lower() in file.path.lower() for w in words)
            ]
            if kind:
                found = [node for node in found if node.kind == kind]
            # Only what can be shown is worth looking at more closely.
            best = sorted(found, key=lambda node: (-_score(node, words), node.path, node.line))[:500]
            results = [view.entry(node, score=_score(node, words)) for node in best]
        if not results:
            return Miss(
                "Try fewer or shorter words. If the code is new, call map_rebuild.",
                f"Nothing is called {query!r}.",
            )
        if len(found) > len(best):
            warn(f"{len(found):,} matches; the best {len(best)} were looked at.")
        return Reply(SearchResults(results=results), summary=f"{len(found):,} matches for {query}")

    @enveloped(
        lists={"neighbors": rank("depth", "-hub")}, hint="Pass edgeKinds or direction, or a smaller depth."
    )
    def map_neighbors(
        self,
        node: NodeArgument,
        depth: Annotated[int, Field(ge=1, le=4)] = 1,
        direction: Literal["in", "out", "both"] = "both",
        edgeKinds: list[EdgeKind] | None = None,
    ) -> Reply[Neighbors]:
        """What a node is connected with: who uses it (in), what it uses (out), up to a number of steps."""
        with self._repository.view() as view:
            start = view.node(node)
            directions = ("in", "out") if direction == "both" else (direction,)
            neighbors = [
                view.entry(
                    step.edge.node,
                    edge=step.edge.kind,
                    direction=step.edge.direction,
                    depth=step.depth,
                    hub=view.graph.hub(step.edge.node),
                    certain=step.edge.is_certain,
                )
                for step in view.graph.walk(start, depth, directions, edgeKinds or EDGES, most=2000)
            ]
            view.mention_namesakes(start)
            data = Neighbors(node=view.entry(start), neighbors=neighbors)
        return Reply(data, summary=f"{len(neighbors):,} neighbors of {start.name or start.path}")

    def map_path(
        self, source: NodeArgument, target: NodeArgument, maxDepth: Annotated[int, Field(ge=1, le=8)] = 5
    ) -> Reply[Route] | Miss:
        """How one node leads to another: the shortest chain of uses, imports and members."""
        with self._repository.view() as view:
            start, end = view.node(source), view.node(target)
            came: dict[tuple[int, int], tuple[Node, str]] = {}
            for step in view.graph.walk(start, maxDepth, ("out",), EDGES):
                came[step.edge.node.file, step.edge.node.symbol] = step.origin, step.edge.kind
                if (step.edge.node.file, step.edge.node.symbol) == (end.file, end.symbol):
                    break
            else:
                return Miss(
                    "Try the other direction, or a larger maxDepth.", f"{source} does not lead to {target}."
                )
            path = []
            here = end
            while (here.file, here.symbol) != (start.file, start.symbol):
                before, edge = came[here.file, here.symbol]
                path.append(view.entry(here, edge=edge))
                here = before
            path.append(view.entry(start))
        return Reply(Route(path=path[::-1]), summary=f"{len(path) - 1} steps from {start.name} to {end.name}")

    def map_status(self) -> Reply[Status]:
        """What state the map and the language servers are in, and what changed since the last index."""
        index, age = self._repository.index, self._repository.age()
        counts, outdated, problems = [0, 0, 0], (0, 0, 0), list[Problem]()
        if index.is_built:
            with index.open() as connection:
                counts = [
                    connection.execute(f"SELECT count(*) FROM {t}").fetchone()[0]
                    for t in ("files", "symbols", "uses")
                ]
                outdated = index.outdated(connection)
            problems = self._problems()
        status = Status(
            root=self._repository.root.name,
            built=index.is_built,
            files=counts[0],
            symbols=counts[1],
            uses=counts[2],
            age=None if age is None else spoken(age),
            changed=outdated[0],
            added=outdated[1],
            deleted=outdated[2],
            packages=(index.fact("packages") or "").split("\n") if index.is_built else [],
            problems=problems,
            languageServers=[
                ServerState(
                    lang=lang,
                    command=each.command[0].rpartition("/")[2],
                    state=each.state,
                    crashes=each.crashes,
                    stderr=[*each.stderr],
                )
                for lang, each in self._servers.items()
            ],
        )
        step = "Call map_rebuild." if any(outdated) or not index.is_built else "The map is up to date."
        return Reply(status, summary=f"{counts[0]:,} files, {counts[1]:,} symbols", next_steps=[step])

    async def map_rebuild(self, ctx: Context, full: bool = False) -> Reply[Rebuilt]:
        """Bring the map up to date: only what changed is read again, unless `full`."""
        loop = asyncio.get_running_loop()

        def progress(done: int, total: int) -> None:
            if done % 50 == 0 or done == total:
                asyncio.run_coroutine_threadsafe(ctx.report_progress(done, total), loop)

        built = await asyncio.to_thread(self._repository.index.build, full=full, progress=progress)
        problems = self._problems()
        if problems:
            warn(f"{len(problems)} file(s) could not be read, or only in part: they are listed in problems.")
        data = Rebuilt(
            indexed=built.indexed,
            unchanged=built.unchanged,
            deleted=built.deleted,
            seconds=built.seconds,
            problems=problems,
        )
        return Reply(data, summary=f"{built.indexed:,} files indexed in {built.seconds} s")

    def _problems(self) -> list[Problem]:
        with self._repository.index.open() as connection:
            rows = connection.execute(
                "SELECT path, problem FROM files WHERE problem IS NOT NULL ORDER BY path LIMIT ?",
                (_MOST_PROBLEMS,),
            )
            return [Problem(file=path, problem=problem) for path, problem in rows]


def _escaped(text: str) -> str:
    """Return a text for LIKE … ESCAPE '!'."""
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def _score(node: Node, words: list[str]) -> int:
    """Return how well a node answers a search: by its own name first, then by the names around it."""
    name = (node.last_name or node.path.rpartition("/")[2].partition(".")[0]).lower()
    last = words[-1].lower()
    score = 100 if name == last else 60 if name.startswith(last) else 40 if last in name else 10
    score += 10 * sum(word.lower() in name for word in words[:-1])
    return score + 5 * (node.kind in ("class", "function")) + node.is_public - min(node.path.count("/"), 8)
