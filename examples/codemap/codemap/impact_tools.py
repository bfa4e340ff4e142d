"""The tools to ask before a change: who imports it, what it may break, and what nobody needs."""

# ruff: noqa: N803

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mcp_envelope import Miss, Reply, enveloped, rank, warn

from .access import has, need
from .arguments import Filter, NodeArgument, link
from .models import BlastRadius, DeadCode, Impacted, Importers
from .repository import Repository

_USES = ("calls", "inherits", "references")
_FREE_DEPTH = 2


class ImpactTools:
    def __init__(self, repository: Repository, tier: str) -> None:
        self._repository = repository
        self._tier = tier

    @enveloped(lists={"importers": rank("anchor.file")}, hint="Pass fileFilter to see one folder.")
    def find_importers(self, node: NodeArgument, fileFilter: Filter = "") -> Reply[Importers] | Miss:
        """Which files import a file, or a symbol of it by name."""
        with self._repository.view() as view:
            start = view.node(node)
            importers = [
                view.location(file.anchor_at(line, col), id=file.id)
                for file, line, col in view.graph.importers_of(start)
                if file.path.startswith(fileFilter)
            ]
            entry = view.entry(start)
        if not importers:
            return Miss("find_dead_code lists files that nothing imports.", f"Nothing imports {node}.")
        return Reply(
            Importers(node=entry, importers=importers), summary=f"{len(importers):,} files import it"
        )

    @enveloped(
        lists={"impactedSymbols": rank("depth", "-hub", "anchor.file")},
        hint="Pass a smaller depth or fileFilter.",
    )
    def get_blast_radius(
        self,
        node: NodeArgument,
        depth: Annotated[int, Field(ge=1, le=6)] = 2,
        fileFilter: Filter = "",
        acrossPackages: bool = True,
    ) -> Reply[BlastRadius] | Miss:
        """What may break if a node changes: everything that uses it, directly or through others."""
        with self._repository.view() as view:
            start = view.node(node)
            if depth > _FREE_DEPTH and not has(self._tier, "impact beyond 2 steps"):
                depth = _FREE_DEPTH
            across = acrossPackages and (len(view.packages) < 2 or has(self._tier, "impact across packages"))
            kinds = _USES if start.name else ("imports",)
            impacted: list[Impacted] = []
            packages = set()
            for step in view.graph.walk(start, depth, ("in",), kinds):
                reached = step.edge.node
                if not reached.path.startswith(fileFilter) or not (
                    across or reached.package == start.package
                ):
                    continue
                packages.add(reached.package or ".")
                impacted.append(
                    view.entry(
                        reached,
                        depth=step.depth,
                        hub=view.graph.hub(reached),
                        edge=step.edge.kind,
                        through=step.origin.id,
                        certain=step.edge.is_certain,
                    )
                )
            view.mention_namesakes(start)
            files = len({each["anchor"].file for each in impacted})
            direct = sum(each["depth"] == 1 for each in impacted)
            data = BlastRadius(
                node=view.entry(start),
                risk="none" if not impacted else "low" if files <= 3 else "medium" if files <= 15 else "high",
                direct=direct,
                impacted=len(impacted),
                files=files,
                packages=sorted(packages),
                impactedSymbols=impacted,
            )
        return Reply(
            data,
            summary=f"{data['risk'].capitalize()} risk: {len(impacted):,} symbols in {files:,} files",
            details=[f"{direct:,} directly, {len(impacted) - direct:,} through others."],
            next_steps=["Confirm what you are going to edit with nav_references."],
            links=[link(start.id)],
            status="warn" if data["risk"] == "high" else "ok",
        )

    @enveloped(
        lists={
            "deadSymbols": rank("anchor.file", "anchor.line"),
            "deadFiles": rank("anchor.file"),
            "unusedExports": rank("anchor.file", "anchor.line"),
        },
        hint="Pass fileFilter to see one folder.",
    )
    def find_dead_code(self, fileFilter: Filter = "", unusedExports: bool = False) -> Reply[DeadCode]:
        """What may be removed: symbols that nothing uses, files that nothing imports, and exports used at home."""
        if unusedExports:
            need(self._tier, "unused exports")
        with self._repository.view() as view:
            dead, inside = view.graph.unused()
            files = view.graph.unimported()
            data = DeadCode(
                deadSymbols=[view.entry(node) for node in dead if node.path.startswith(fileFilter)],
                deadFiles=[view.entry(node) for node in files if node.path.startswith(fileFilter)],
            )
            if unusedExports:
                data["unusedExports"] = [
                    view.entry(node) for node in inside if node.path.startswith(fileFilter)
                ]
        warn("What is only called by name, by a framework or from outside of the repository looks dead here.")
        return Reply(
            data,
            summary=f"{len(data['deadSymbols']):,} symbols and {len(data['deadFiles']):,} files look unused",
        )
