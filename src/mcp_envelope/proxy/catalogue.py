"""What the servers of a gateway offer, how that looks as the offer of one, and what they offered the last time.

Strategy: of each server the answer to its handshake and the entries of its lists are kept as they came, so they can
be remembered on disk and compared. Tools and prompts get the server's name in front, always: it tells a model whose
`search` it is, and a name that depended on which other servers there are would change under permissions and habits.
With `short` names, only those that several servers have get it. Addresses of resources stay as they are, because
results name them.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw

from ..jsontext.document import encode
from ..state_files import state_folder, write_private
from . import frames
from .frames import members_of, text_of

SEPARATOR: Final = "__"
# The kinds of lists: the method, the member of the result, and the capability that goes with it.
LISTS: Final = {
    "tools": ("tools/list", "tools", "tools"),
    "prompts": ("prompts/list", "prompts", "prompts"),
    "resources": ("resources/list", "resources", "resources"),
    "templates": ("resources/templates/list", "resourceTemplates", "resources"),
}
_log = logging.getLogger("mcp_envelope")

_LARGEST: Final = 64 << 20
_UNUSABLE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_EXPRESSION: Final = re.compile(r"\\\{[^{}]*\\\}")


class Offer(msgspec.Struct):
    """What one server offers: the result of its handshake, and the entries of its lists."""

    handshake: Raw
    tools: list[Raw] = []
    prompts: list[Raw] = []
    resources: list[Raw] = []
    templates: list[Raw] = []

    def has(self, capability: str) -> bool:
        return capability in members_of(members_of(self.handshake).get("capabilities"))

    def changed(self, since: Offer | None) -> list[str]:
        """The kinds of lists that differ."""
        return [kind for kind in LISTS if since is None or getattr(self, kind) != getattr(since, kind)]


class Names(NamedTuple):
    """Names as clients see them, with the server and the server's own name; and the other way round."""

    targets: dict[str, tuple[str, str]]
    shown: dict[tuple[str, str], str]


def prefixes(servers: Iterable[str]) -> dict[str, str]:
    """What stands before the names of each server: its own name, as far as names of tools may have it."""
    found: dict[str, str] = {}
    for server in servers:
        plain = _UNUSABLE.sub("_", server) or "server"
        found[server] = _unlike(plain, found.values())
    return found


def _unlike(name: str, taken: Iterable[str]) -> str:
    others, number, free = set(taken), 1, name
    while free in others:
        number += 1
        free = f"{name}_{number}"
    return free


def named(entries: Mapping[str, Sequence[str]], prefix: Mapping[str, str], short: bool) -> Names:
    """Names for what each server has."""
    count = Counter(name for names in entries.values() for name in set(names))
    names = Names({}, {})
    for server, own in entries.items():
        for name in dict.fromkeys(own):
            is_alone = short and count[name] == 1 and SEPARATOR not in name
            shown = name if is_alone else f"{prefix[server]}{SEPARATOR}{name}"
            shown = _unlike(shown, names.targets)
            names.targets[shown] = server, name
            names.shown[server, name] = shown
    return names


def name_of(entry: Raw) -> str:
    return text_of(members_of(entry).get("name")) or ""


def renamed(entry: Raw, name: str) -> bytes:
    return frames.replaced(entry, {"name": encode(name)})


def fits_template(uri: str, template: str) -> bool:
    """Whether an address may come from a template; any expression of it stands for anything."""
    pattern = _EXPRESSION.sub(".*", re.escape(template))
    return re.fullmatch(pattern, uri, re.DOTALL) is not None


# -- one handshake for all ----------------------------------------------------------------------------------


def merged(
    offers: Mapping[str, Offer], version: str, info: Mapping[str, str], is_stateless: bool
) -> dict[str, Any]:
    """The result of a handshake that stands for all of these."""
    said = {server: members_of(offer.handshake) for server, offer in offers.items()}
    # The gateway has tools in any case, and says itself when a list changes.
    capabilities: dict[str, Any] = {"tools": {}}
    for each in said.values():
        if "capabilities" in each:
            capabilities = _united(capabilities, frames.value_of(each["capabilities"]))
    for name in ("tools", "prompts", "resources"):
        if name in capabilities:
            capabilities[name] = {**_object(capabilities[name]), "listChanged": True}
    told = {server: text_of(each.get("instructions")) for server, each in said.items()}
    instructions = "\n\n".join(f"{server}: {words}" for server, words in told.items() if words)
    result: dict[str, Any] = {"capabilities": capabilities, "serverInfo": info}
    if instructions:
        result["instructions"] = instructions
    if is_stateless:
        versions = [_versions(each) for each in said.values()]
        common = [
            each for each in (versions[0] if versions else [version]) if all(each in v for v in versions)
        ]
        stamped = {"io.modelcontextprotocol/serverInfo": info}
        return {
            "resultType": "complete",
            "supportedVersions": common or [version],
            **result,
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": stamped,
        }
    spoken = [text_of(each.get("protocolVersion")) or "" for each in said.values()]
    return {"protocolVersion": max(spoken, default=version) or version, **result}


def _versions(handshake: Mapping[str, Raw]) -> list[str]:
    found = frames.value_of(handshake["supportedVersions"]) if "supportedVersions" in handshake else []
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _united(one: Any, other: Any) -> Any:
    """What either has: objects by their members, anything else where it is not false."""
    if isinstance(one, dict) and isinstance(other, dict):
        shared = {name: _united(one[name], other[name]) for name in one.keys() & other.keys()}
        return {**one, **other, **shared}
    return one or other


# -- what was offered the last time -------------------------------------------------------------------------


_DECODER: Final = msgspec.json.Decoder(dict[str, Offer])


class OfferCache:
    """Offers on disk, one private file per server. `ways` says how each is started: a changed one is a new server.

    A file that cannot be read is ignored, and one that cannot be written costs the next start some time.
    """

    def __init__(self, ways: Mapping[str, bytes], folder: Path | None = None) -> None:
        self._folder = folder or state_folder() / "servers"
        self._digests = {server: blake2b(way, digest_size=20).hexdigest() for server, way in ways.items()}

    def load(self, server: str, era: str) -> Offer | None:
        return self._eras(server).get(era)

    def save(self, server: str, era: str, offer: Offer) -> None:
        try:
            write_private(self._path(server), msgspec.json.encode({**self._eras(server), era: offer}))
        except OSError as error:
            _log.warning("mcp-envelope: what %s offers is not remembered: %s", server, error)

    def _eras(self, server: str) -> dict[str, Offer]:
        path = self._path(server)
        try:
            if path.stat().st_size > _LARGEST:
                return {}
            return _DECODER.decode(path.read_bytes())
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return {}

    def _path(self, server: str) -> Path:
        return self._folder / f"{self._digests[server]}.json"
