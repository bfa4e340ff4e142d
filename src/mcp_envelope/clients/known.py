"""What is known of MCP clients: which lane their model reads, how much they accept, who reads a call's result.

Strategy: a table in a file of its own (`clients.toml`), where every entry names its source, and a look-up by the
name that a client gives itself. A client that is not in the table gets both lanes, each within the budget. What a
single request says in its `_meta` may make it another client: one with other limits, or a program.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from ..budget import Caps

Lane = Literal["structured", "content", "both", "unknown"]
# Of the protocol: with a handshake and sessions, or stateless; empty if not known.
Era = Literal["", "sessions", "stateless"]
_STATELESS: Final = "2026-07-28"
# Who reads a result; empty if nobody said so. A request says it in its `_meta`, under the key.
Reader = Literal["", "model", "program"]
READER_KEY: Final = "io.github.mcp-envelope/reader"


class _Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Without tokens or bytes, the default budget applies. Past any limit, the client cuts a result itself."""

    lane: Lane = "unknown"
    tokens: int | None = None
    max_bytes: int | None = None
    characters: int | None = None
    lines: int | None = None
    # Of the text of a failure.
    error_characters: int | None = None
    # Whether the client can follow links to stored results.
    links: bool = False
    # Whether its model is shown images, and whether also beside a structure, and in embedded resources; whose
    # formula gives their cost; the longest side that isn't scaled down on the way; the most bytes of base64 that an
    # image may have.
    images: bool = True
    images_beside_structure: bool = True
    embedded_images: bool = True
    image_cost: str | None = None
    image_pixels: int | None = None
    image_bytes: int | None = None
    # Audio and other files up to so many bytes of base64 are saved by the client, and its model is told where.
    saved_bytes: int = 0


class Client(_Limits, frozen=True, kw_only=True):
    """A client, under the name that it gave."""

    name: str = ""
    version: str = ""
    era: Era = ""
    # What the request said of its reader, and whether it is one of those that the client's programs make.
    reader: Reader = ""
    is_program: bool = False

    @property
    def has_limit(self) -> bool:
        return self.tokens is not None or self.max_bytes is not None

    @property
    def caps(self) -> Caps | None:
        caps = Caps(self.max_bytes, self.characters, self.lines, self.error_characters)
        return None if caps == _NO_CAPS else caps

    def asking(self, meta: Mapping[str, Any] | None) -> Client:
        """Return what is known of the client as it makes this request, from the request's `_meta`."""
        if not meta:
            return self
        asked = meta.get(READER_KEY)
        reader: Reader = "program" if asked == "program" else "model" if asked == "model" else ""
        known = _known(self.name)
        if known is None or (known.program is None and not known.model_at):
            return self if not reader else _client(self.name, self.version, self.era, reader, "", False)
        rule = known.program
        is_program = rule is not None and str(meta.get(rule.meta, "")).startswith(rule.prefix)
        model: Any = meta
        for key in known.model_at:
            model = model.get(key) if isinstance(model, Mapping) else None
        named = model[:_LONGEST] if isinstance(model, str) and known.model_at else ""
        return _client(self.name, self.version, self.era, reader, named, is_program)


class _Program(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request made by a program has a value with this prefix under this key of its `_meta`."""

    meta: str
    prefix: str


class _OfModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limits of a model, in place of its client's."""

    max_bytes: int | None = None
    image_pixels: int | None = None


class Known(_Limits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of the table."""

    names: tuple[str, ...]
    lane: Lane
    source: str
    program: _Program | None = None
    # Where a request's `_meta` names the model, and the limits of models whose names match.
    model_at: tuple[str, ...] = ()
    models: dict[str, _OfModel] = {}


_NO_CAPS: Final = Caps()
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
    return _client(name[:_LONGEST], version[:80], era, "", "", False)


@lru_cache(256)
def _client(name: str, version: str, era: Era, reader: Reader, model: str, is_program: bool) -> Client:
    entry = _known(name)
    limits = {field: getattr(entry, field) for field in _Limits.__struct_fields__} if entry else {}
    for pattern, known in entry.models.items() if entry is not None and model else ():
        if fnmatchcase(model.lower(), pattern):
            limits |= {field: value for field, value in msgspec.structs.asdict(known).items() if value}
            break
    return Client(name=name, version=version, era=era, reader=reader, is_program=is_program, **limits)


@lru_cache(256)
def _known(name: str) -> Known | None:
    """Return the entry of a client that gives itself this name."""
    name, known = _VIA.sub("", name).strip().lower(), table()
    if name in known:
        return known[name]
    return next((entry for each, entry in known.items() if "*" in each and fnmatchcase(name, each)), None)
