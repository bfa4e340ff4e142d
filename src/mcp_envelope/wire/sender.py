"""Who sends a request: which program, and of which era.

Strategy: a client of the older era introduces itself once, with `initialize`. One of the stateless era says in the
`_meta` of each request who it is; that is kept as it is spelled, since requests of our own have to say the same.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw, UnsetType

from ..clients import Client, client
from ..jsontree import encode
from .frames import members_of

_META: Final = "io.modelcontextprotocol/"
_VERSION: Final = f"{_META}protocolVersion"
_INFO: Final = f"{_META}clientInfo"
_SAID: Final = (_VERSION, _INFO, f"{_META}clientCapabilities")
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class _Info(msgspec.Struct):
    name: str = ""
    version: str = ""


class _Initialize(msgspec.Struct, rename="camel"):
    client_info: _Info | None = None


class Sender(msgspec.Struct, frozen=True):
    """What one request says. `client` is None if it does not name its program."""

    client: Client | None = None
    # What it says of itself, to be repeated.
    said: bytes | None = None
    # Whether it is of the stateless era.
    modern: bool = False


def introduced(params: Raw | UnsetType) -> Client | None:
    """The program that `initialize` names."""
    try:
        given = b"{}" if isinstance(params, UnsetType) else params
        info = msgspec.json.decode(given, type=_Initialize).client_info
    except _UNREADABLE:
        return None
    return None if info is None else client(info.name, info.version, "sessions")


def sender_of(meta: Raw | UnsetType) -> Sender:
    """What a request's `_meta` says."""
    members = members_of(meta) or {}
    kept = {name: members[name] for name in _SAID if name in members}
    return Sender(_named(members), encode(kept) if kept else None, _VERSION in members)


def _named(members: dict[str, Raw]) -> Client | None:
    try:
        info = msgspec.json.decode(members[_INFO], type=_Info)
    except (KeyError, *_UNREADABLE):
        return None
    return client(info.name, info.version, "stateless")


def of_era(result: bytes, modern: bool) -> bytes:
    """A result of our own, as the sender's era has it."""
    return b'%b,"resultType":"complete"}' % result[:-1] if modern else result
