"""The nav_ tools: a language server's answers about the files as they are now, else the map's."""

# ruff: noqa: N803

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import Field

from mcp_envelope import Link, Miss, Reply, enveloped, fallback, rank, warn
from mcp_envelope.anchors import NodeId

from .arguments import Col, File, Filter, Line, OptionalNode, link
from .graph import Node
from .models import Call, CallHierarchy, Definitions, Entry, Location, Outline, References, TypeInfo
from .navigation import Navigator, Spot
from .repository import Repository, View

# How long to wait before a server that has just started is asked again, in seconds.
_PAUSES = (0.3, 0.6, 1.2, 0.0)


class NavTools:
    def __init__(self, repository: Repository, navigator: Navigator) -> None:
        self._repository = repository
        self._navigator = navigator
        # The languages whose servers had time to read the project.
        self._asked_again: set[str] = set()

    @enveloped(lists={"definitions": rank("anchor.file", "anchor.line")})
    async def nav_definition(
        self, node: OptionalNode = None, file: File = None, line: Line = None, col: Col = None
    ) -> Reply[Definitions] | Miss:
        """Where the symbol at a place is defined."""
        spot = self._navigator.locate(node, file, line, col)
        found, is_live = await self._navigator.try_to(
            "The definition", spot, "textDocument/definition", "definitionProvider"
        )
        if is_live:
            locations = self._live(spot, found)
        else:
            with self._repository.view() as view:
                at = self._used_at(view, spot)
                locations = [] if at is None else [view.location(at.anchor)]
        if not locations:
            return Miss(
                "The name may be of a library or built in; nav_type says more.",
                "There is no definition in the repository.",
            )
        data = Definitions(via="language server" if is_live else "fallback-map", definitions=locations)
        return Reply(data, summary=f"Defined in {locations[0]['anchor'].file}", links=self._excerpt(spot))

    @enveloped(
        lists={"references": rank("anchor.file", "anchor.line")}, hint="Pass fileFilter to see one folder."
    )
    async def nav_references(
        self,
        node: OptionalNode = None,
        file: File = None,
        line: Line = None,
        col: Col = None,
        fileFilter: Filter = "",
    ) -> Reply[References] | Miss:
        """Where the symbol at a place is used, file by file."""
        spot = self._navigator.locate(node, file, line, col)
        found, is_live = await self._references(spot)
        locations = self._live(spot, found) if is_live else []
        if not locations and (not is_live or self._repository.index.is_built):
            locations = self._mapped_references(spot)
            is_live = self._nothing_missed("The references", is_live, bool(locations))
        shown = [each for each in locations if each["anchor"].file.startswith(fileFilter)]
        if not shown:
            return Miss("Check it with find_dead_code before you remove anything.", "Nothing uses it.")
        files = len({each["anchor"].file for each in shown})
        data = References(via="language server" if is_live else "fallback-map", references=shown)
        return Reply(
            data,
            summary=f"{len(shown):,} references in {files:,} files",
            next_steps=["get_blast_radius shows what these reach."],
            links=self._excerpt(spot),
        )

    @enveloped(lists={"symbols": rank("anchor.line")})
    async def nav_symbols(
        self, file: Annotated[str, Field(description="A file, relative to the root.")]
    ) -> Reply[Outline]:
        """The outline of a file as it is now."""
        spot = self._navigator.locate(None, file, 1, 1)
        found, is_live = await self._navigator.try_to(
            "The outline", spot, "textDocument/documentSymbol", "documentSymbolProvider"
        )
        if is_live:
            entries = [
                Entry(id=name, kind=kind, anchor=anchor)
                for name, kind, anchor in self._navigator.outline(spot, found or [])
            ]
        else:
            with self._repository.view() as view:
                entries = [view.entry(node) for node in view.graph.symbols_in(spot.path)]
        return Reply(
            Outline(via="language server" if is_live else "fallback-map", symbols=entries),
            summary=f"{len(entries)} symbols in {spot.path}",
        )

    async def nav_type(
        self, node: OptionalNode = None, file: File = None, line: Line = None, col: Col = None
    ) -> Reply[TypeInfo] | Miss:
        """The type and documentation of the symbol at a place. Only a language server knows them."""
        spot = self._navigator.locate(node, file, line, col)
        found = await self._navigator.ask(spot, "textDocument/hover", "hoverProvider")
        contents = (found or {}).get("contents") or ""
        text = (
            contents
            if isinstance(contents, str)
            else contents.get("value", "")
            if isinstance(contents, dict)
            else ""
        )
        if not text:
            return Miss("Point at a name.", "There is nothing with a type at this place.")
        return Reply(TypeInfo(anchor=spot.anchor, type=text.strip()), summary=text.strip().splitlines()[0])

    @enveloped(
        lists={"calls": rank("-calls", "anchor.file")},
        hint="Pass direction, or use map_neighbors with a depth.",
    )
    async def nav_call_hierarchy(
        self,
        node: OptionalNode = None,
        file: File = None,
        line: Line = None,
        col: Col = None,
        direction: Literal["incoming", "outgoing"] = "incoming",
    ) -> Reply[CallHierarchy]:
        """Which functions call the one at a place (incoming), or are called by it (outgoing)."""
        spot = self._navigator.locate(node, file, line, col)
        ask, what = self._navigator.try_to, "The call hierarchy"
        items, is_live = await ask(what, spot, "textDocument/prepareCallHierarchy", "callHierarchyProvider")
        calls: list[Call] = []
        for item in (items or [])[:1]:
            found, is_live = await ask(
                what, spot, f"callHierarchy/{direction}Calls", "callHierarchyProvider", {"item": item}
            )
            for each in found or []:
                place = self._navigator.called(spot, each["from" if direction == "incoming" else "to"])
                if place is not None:
                    name, kind, anchor = place
                    calls.append(Call(id=name, kind=kind, anchor=anchor, calls=len(each["fromRanges"])))
        if not calls and (not is_live or self._repository.index.is_built):
            calls = self._mapped_calls(spot, direction)
            is_live = self._nothing_missed(what, is_live, bool(calls))
        data = CallHierarchy(
            via="language server" if is_live else "fallback-map", direction=direction, calls=calls
        )
        return Reply(data, summary=f"{len(calls)} {direction} calls")

    async def _references(self, spot: Spot) -> tuple[Any, bool]:
        """Ask the language server, and one that has just started, and reads the project, again.

        It has read enough if it knows the files that the map is certain of, or, without a map, if it says the same
        twice.
        """
        uses = {"context": {"includeDeclaration": False}}
        what, method, needs = "The references", "textDocument/references", "referencesProvider"
        expected = self._mapped_files(spot)
        found: Any = None
        missing: list[str] = []
        for pause in _PAUSES:
            before = found
            found, is_live = await self._navigator.try_to(what, spot, method, needs, uses)
            if not is_live:
                break
            missing = sorted((expected or set()) - self._navigator.files(spot.lang, found))
            if spot.lang in self._asked_again or (found == before if expected is None else not missing):
                break
            await asyncio.sleep(pause)
        self._asked_again |= {spot.lang} if is_live else set()
        if found and missing:
            names = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
            warn(
                f"The map has uses in other files, too: {names}. The language server may still be reading the"
                " project; call again, or see map_neighbors."
            )
        return found, is_live

    def _nothing_missed(self, what: str, is_live: bool, is_mapped: bool) -> bool:
        """Whether a live answer without anything in it stands, which it doesn't if the map knows something."""
        if is_live and is_mapped:
            # A server that has just started answers before it has read the project, and where the code has no
            # types it finds nothing either.
            why = (
                "The language server found none: it is still reading the project, or it can't tell the types."
            )
            fallback(what, "fallback-map", why)
        return is_live and not is_mapped

    def _live(self, spot: Spot, found: object) -> list[Location]:
        """Return what a language server found, with the symbols around, as far as the map knows them."""
        anchors = self._navigator.anchors(spot.lang, found)
        if not self._repository.index.is_built:
            return [Location(anchor=anchor) for anchor in anchors]
        locations = []
        with self._repository.view() as view:
            for anchor in anchors:
                location = Location(anchor=view.anchor(anchor))
                around = view.graph.at(anchor.file, anchor.line)
                if around is not None and not view.mark(anchor.file):
                    location["inside"] = around.id
                locations.append(location)
        return locations

    def _used_at(self, view: View, spot: Spot) -> Node | None:
        """Return the symbol that is defined, or used, at a place, as far as the map knows."""
        graph = view.graph
        if spot.name is not None:
            return next(graph.nodes("f.path = ? AND s.name = ?", spot.path, spot.name), None)
        defined = next(
            graph.nodes(
                "f.path = ? AND s.line = ? AND s.col <= ? AND s.col + length(s.last) >= ?",
                spot.path,
                spot.line,
                spot.col,
                spot.col,
            ),
            None,
        )
        return defined or graph.used_at(spot.path, spot.line, spot.col)

    def _mapped_references(self, spot: Spot) -> list[Location]:
        with self._repository.view() as view:
            node = self._used_at(view, spot)
            if node is None:
                return []
            locations = []
            for place, certain in view.graph.uses_of(node)[0]:
                owner = view.graph.owner(place)
                more = {} if certain else {"certain": False}
                anchor = owner.anchor_at(place.line, place.col)
                locations.append(view.location(anchor, inside=owner.id, **more))
            view.mention_namesakes(node)
        return locations

    def _mapped_files(self, spot: Spot) -> set[str] | None:
        """Return the files that use a symbol for certain; None without a map."""
        if not self._repository.index.is_built:
            return None
        with self._repository.view() as view:
            node = self._used_at(view, spot)
            uses = view.graph.uses_of(node)[0] if node is not None else []
            return {view.graph.owner(place).path for place, is_certain in uses if is_certain}

    def _mapped_calls(self, spot: Spot, direction: str) -> list[Call]:
        with self._repository.view() as view:
            node = self._used_at(view, spot)
            if node is None:
                return []
            edges = view.graph.incoming(node) if direction == "incoming" else view.graph.outgoing(node)
            counts = Counter(edge.node for edge in edges if edge.kind == "calls")
            return [view.entry(each, calls=count) for each, count in counts.items()]

    def _excerpt(self, spot: Spot) -> list[Link]:
        """Return a link to the source that a result is about."""
        if spot.name is None:
            return []
        return [link(NodeId(spot.lang, spot.path, spot.name))]

    def source(self, node: str) -> str:
        """The source of a node, as it is now."""
        spot = self._navigator.locate(NodeId.parse(node), None, None, None)
        lines = spot.text.splitlines()
        return "\n".join(lines[spot.line - 1 : spot.end_line or len(lines)])
