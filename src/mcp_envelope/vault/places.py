"""Where a vault is: `sqlite` files, Valkey or Redis addresses, or none.

Strategy: the address tells the store, and only that store's library is imported. A plain path is a SQLite
file; no address at all is the default file in the user's state folder.
"""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import unquote, urlsplit

from .store import DEFAULT_CAP, DEFAULT_TTL, Store, StoreError
from .vault import Vault

NONE: Final = ("none", "off")
# The file in the user's state folder, named.
DEFAULT: Final = "default"
_SERVERS: Final = ("valkey", "valkeys", "redis", "rediss", "unix")


def open_vault(
    address: str | None = None, *, ttl: float = DEFAULT_TTL, cap: int = DEFAULT_CAP
) -> Vault | None:
    """The vault at an address; None if the address is `none`. ValueError says what an address looks like."""
    if address is not None and address.strip().lower() in NONE:
        return None
    return Vault(_store(address, ttl, cap), ttl)


def check(address: str | None) -> None:
    """ValueError if no vault can have this address, or if what it needs is not installed. Opens nothing."""
    _, found, _ = (address or "").partition("://")
    if address is None or address == DEFAULT or address.strip().lower() in NONE or not found:
        return
    try:
        open_vault(address)
    except StoreError as error:
        raise ValueError(str(error)) from None


def _store(address: str | None, ttl: float, cap: int) -> Store:
    address = None if address == DEFAULT else address
    scheme, found, rest = (address or "").partition("://")
    if found and scheme.lower() in _SERVERS:
        from .valkey import ValkeyStore

        return ValkeyStore(address or "", ttl=ttl, cap=cap)
    if found and scheme.lower() not in ("sqlite", "file"):
        raise ValueError(
            f"no vault has an address like {scheme}://…; use a file, sqlite:///PATH, valkey://HOST:PORT, "
            "rediss://HOST:PORT, or none"
        )
    from .sqlite import SQLiteStore

    path: str | None = address or None
    if found:
        split = urlsplit(f"file://{rest}")
        # sqlite:///relative and sqlite:////absolute, as elsewhere.
        path = unquote(split.path)
        path = path[1:] if scheme.lower() == "sqlite" else path
        if split.netloc or not path:
            raise ValueError(
                "a SQLite vault is written sqlite:///PATH, with three slashes (four if absolute)"
            )
    return SQLiteStore(path and os.path.expanduser(path), ttl=ttl, cap=cap)
