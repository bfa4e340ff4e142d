"""The vault of a command: opened when it is needed, and not before.

Strategy: most results fit, so nothing of the vault is loaded or made before one was cut. An address that is
plainly well formed is taken as such; any other is opened at once, to hear what is wrong with it. What is only
read is never created: a file that is not there holds nothing.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from ..vault.store import StoreError, new_handle
from . import screen
from .console import Misuse, Parser
from .settings import Place

if TYPE_CHECKING:
    from ..payload import Payload
    from ..vault.vault import Vault

_WELL_FORMED: Final = re.compile(
    r"(?!.*://).+|sqlite:///.+|(valkey|redis)s?://([^/@\s]*@)?[a-z0-9.-]+(:[0-9]{1,5})?(/[0-9]*)?",
    re.IGNORECASE | re.DOTALL,
)
_NONE: Final = ("none", "off")


def add_arguments(parser: Parser, config: bool = True) -> None:
    add = parser.add_argument_group("the vault").add_argument
    add(
        "--vault",
        metavar="URL",
        help="where whole results are kept: a file, sqlite:///PATH, valkey://HOST:PORT, rediss://HOST:PORT, "
        "or none (default: MCP_ENVELOPE_VAULT, else a file in your state folder)",
    )
    if config:
        add("--config", metavar="FILE", help="take it from the settings in a mcp-envelope.toml")


def is_none(place: Place) -> bool:
    return place.address is not None and place.address.strip().lower() in _NONE


def check(place: Place) -> None:
    address = place.address
    if address is None:
        return
    lacks_library = not address.startswith("sqlite:") and "://" in address and find_spec("valkey") is None
    if lacks_library or not _WELL_FORMED.fullmatch(address):
        with opened(place):
            pass


@contextmanager
def opened(place: Place) -> Iterator[Vault | None]:
    """The vault, or None if there shall be none. Whatever the store has to say in the log is said elsewhere."""
    import logging

    from ..vault.places import open_vault

    log, silence = logging.getLogger("mcp_envelope"), logging.NullHandler()
    log.addHandler(silence)
    try:
        try:
            vault = open_vault(place.address, ttl=place.ttl, cap=place.cap)
        except (ValueError, StoreError) as error:
            # Nothing was touched yet: it is the address, or a library that is missing.
            raise Misuse(f"{_named_by(place)}: {error}") from None
        try:
            yield vault
        finally:
            if vault is not None:
                vault.close()
    finally:
        log.removeHandler(silence)


def _named_by(place: Place) -> str:
    option, value = place.again or ("", "")
    return {"--vault": "argument --vault", "--config": f"vault in {value}"}.get(option, "MCP_ENVELOPE_VAULT")


def missing_file(vault: Vault) -> str | None:
    """The file of a vault that nothing was stored in yet."""
    from ..vault.sqlite import SQLiteStore

    is_file = isinstance(vault.store, SQLiteStore)
    return vault.store.place if is_file and not os.path.lexists(vault.store.place) else None


class Keeper:
    """What `seal` needs of a vault. `kept` is the handle of what was stored, `problem` why it was not."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.kept: str | None = None
        self.problem: str | None = None

    def promise(self) -> tuple[str, float]:
        return new_handle(), time.time() + self._place.ttl

    def keep(self, handle: str, payload: Payload, tool: str | None) -> str | None:
        try:
            with opened(self._place) as vault:
                assert vault is not None
                self.problem = vault.keep(handle, payload, tool)
        except (StoreError, Misuse) as error:
            self.problem = str(error)
        if self.problem is None:
            self.kept = handle
        return self.problem


def read_command(handle: str, place: Place, *options: str) -> str:
    """The command that reads on, to paste."""
    return screen.command("mcp-envelope", "read", handle, *options, *place.again)
