"""The MCP server: fourteen tools on FastMCP, and the envelope in one line.

The tools say what they have to say in plain types, `Reply`, `Miss` and `Failure`; what it looks like on the wire is
up to the dialect.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

from fastmcp import FastMCP

from mcp_envelope.servers.fastmcp import EnvelopeMiddleware

from .access import Meter
from .impact_tools import ImpactTools
from .index import Index
from .lsp import LanguageServer
from .map_tools import MapTools
from .nav_tools import NavTools
from .navigation import Navigator
from .repository import Repository

_SCALPEL_BUDGET = 8000


@dataclass
class Options:
    root: Path
    database: Path
    language_servers: Mapping[str, str] = field(default_factory=dict)
    dialect: str | None = None
    tier: str = "enterprise"
    calls_per_minute: int | None = None
    oldest: float = 86400
    deadline: float | None = None
    build: bool = True
    vault: str | None = None


def create_server(options: Options) -> FastMCP[None]:
    repository = Repository(Index(options.root.resolve(), options.database), oldest=options.oldest)
    servers = {
        lang: LanguageServer(command, repository.root, start_deadline=options.deadline or 30)
        for lang, command in options.language_servers.items()
    }
    maps = MapTools(repository, servers)
    nav = NavTools(repository, Navigator(repository, servers, deadline=options.deadline))
    impact = ImpactTools(repository, options.tier)

    @asynccontextmanager
    async def lifespan(server: FastMCP[None]) -> AsyncIterator[None]:
        if options.build and not repository.index.is_built:
            Thread(target=repository.index.build, daemon=True).start()
        try:
            yield
        finally:
            for each in servers.values():
                await each.close()

    mcp: FastMCP[None] = FastMCP("codemap", instructions=_INSTRUCTIONS, lifespan=lifespan)
    # scalpel has no budget of its own, and some answers about a large repository are megabytes.
    budget = _SCALPEL_BUDGET if options.dialect == "scalpel" else None
    mcp.add_middleware(EnvelopeMiddleware(dialect=options.dialect, vault=options.vault, budget=budget))
    mcp.add_middleware(Meter(options.tier, options.calls_per_minute))
    # fmt: off
    for tool in (
        maps.map_overview, maps.map_search, maps.map_neighbors, maps.map_path, maps.map_status, maps.map_rebuild,
        nav.nav_definition, nav.nav_references, nav.nav_symbols, nav.nav_type, nav.nav_call_hierarchy,
        impact.find_importers, impact.get_blast_radius, impact.find_dead_code,
    ):
        # Whoever checks a server, or asks before each call, wants to know which tools change nothing.
        mcp.tool(tool, annotations={"readOnlyHint": tool != maps.map_rebuild, "openWorldHint": False})
    # fmt: on
    mcp.resource("codemap://source/{node*}", mime_type="text/plain")(nav.source)
    return mcp


_INSTRUCTIONS = """\
Start with map_search or map_overview: they give node ids, which the other tools take. The map_ and find_ tools
answer from an index, at once and approximately; the nav_ tools ask a language server about the files as they are
now. Before you edit, confirm with nav_references."""
