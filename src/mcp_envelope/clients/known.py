"""What is known of MCP clients: which lane their model reads, how much they accept, whether they follow links.

Strategy: a table in a file of its own (`clients.toml`), where every entry names its source, and a look-up by the
name that a client gives itself. A client that is not in the table gets both lanes, each within the budget.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path
from typing import Final, Literal

import msgspec

Lane = Literal["structured", "content", "both", "unknown"]
# Of the protocol: with a handshake and sessions, or stateless; empty if not known.
Era = Literal["", "sessions", "stateless"]
_STATELESS: Final = "2026-07-28"


class _Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Without a limit, the default budget applies."""

    lane: Lane = "unknown"
    tokens: int | None = None
    max_bytes: int | None = None
    # Whether the client can follow links to stored results.
    links: bool = False
    # Whether its model gets to see images, the longest side that isn't scaled down on the way, and the most
    # bytes of base64 that an image may have.
    images: bool = True
    image_pixels: int | None = None
    image_bytes: int | None = None


class Client(_Limits, frozen=True, kw_only=True):
    """A client, under the name that it gave."""

    name: str = ""
    version: str = ""
    era: Era = ""

    @property
    def has_limit(self) -> bool:
        return self.tokens is not None or self.max_bytes is not None


class Known(_Limits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of the table."""

    names: tuple[str, ...]
    lane: Lane
    source: str


UNKNOWN: Final = Client()


# mcp-remote, which connects clients to remote servers, adds itself to their names.
_VIA: Final = re.compile(r"\s*\(via [^()]*\)$")
_LONGEST: Final = 200
# Not through importlib.resources, which takes longer to import than everything else here.
_TABLE: Final = Path(__file__).parent / "clients.toml"


@cache
def table() -> dict[str, Known]:
    """The entries by each of their names, in lower case; `*` in a name stands for anything."""
    import tomllib

    entries = msgspec.convert(tomllib.loads(_TABLE.read_text("utf-8")), dict[str, Known])
    return {name.lower(): entry for entry in entries.values() for name in entry.names}


def era_of(protocol: object) -> Era:
    """The era of a protocol version, which is a date."""
    if not isinstance(protocol, str) or not protocol:
        return ""
    return "stateless" if protocol >= _STATELESS else "sessions"


def client(name: str, version: str = "", era: Era = "") -> Client:
    """What is known of a client with this name and version."""
    return _client(name[:_LONGEST], version[:80], era)


@lru_cache(256)
def _client(name: str, version: str, era: Era) -> Client:
    entry = _entry(_VIA.sub("", name).strip().lower())
    limits = {field: getattr(entry, field) for field in _Limits.__struct_fields__} if entry else {}
    return Client(name=name, version=version, era=era, **limits)


def _entry(name: str) -> Known | None:
    known = table()
    if name in known:
        return known[name]
    return next((entry for each, entry in known.items() if "*" in each and fnmatchcase(name, each)), None)
