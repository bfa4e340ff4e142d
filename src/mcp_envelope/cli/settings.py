"""Settings for a single command: the policy, the budget, and its vault.

Strategy: a command reads a settings file only if it is named, because the nearest one may be anybody's, and
could send payloads anywhere. Reading settings takes longer than sealing a small payload, so it happens only if
there are some. The vault's own variables don't make a policy: where a result is kept must not change how it
looks. Most results fit, so the vault is not loaded or created until one is cut. An address that is clearly well
formed is trusted; any other is opened at once, to report what is wrong with it. Reading never creates a vault.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NamedTuple

from ..budget import Budget
from ..dialects import dialect
from ..payload import new_handle
from ..vault.store import DEFAULT_CAP, DEFAULT_TTL, StoreError
from . import console, files
from .console import Misuse, Parser

if TYPE_CHECKING:
    from ..config import Policy, Settings
    from ..payload import Payload
    from ..vault.vault import Vault

# As in `config`, which takes a while to import.
PREFIX: Final = "MCP_ENVELOPE_"
_VAULT: Final = f"{PREFIX}VAULT"
_PASSWORD: Final = re.compile(r"(://[^/@]*:)[^/@]*@")
_WELL_FORMED: Final = re.compile(
    r"(?!.*://).+|sqlite:///.+|(valkey|redis)s?://([^/@\s]*@)?[a-z0-9.-]+(:[0-9]{1,5})?(/[0-9]*)?",
    re.IGNORECASE | re.DOTALL,
)


class VaultAddress(NamedTuple):
    """Where the vault is; no address means the default file. `again` has the options that name it in a command."""

    address: str | None = None
    ttl: float = DEFAULT_TTL
    cap: int = DEFAULT_CAP
    again: tuple[str, ...] = ()

    @property
    def is_none(self) -> bool:
        return self.address is not None and self.address.strip().lower() in ("none", "off")

    def check(self) -> None:
        """Report a mistake in the address. Opening it touches nothing yet."""
        address = self.address
        if address is None:
            return
        lacks_library = not address.startswith("sqlite:") and "://" in address and find_spec("valkey") is None
        if lacks_library or not _WELL_FORMED.fullmatch(address):
            with self.opened():
                pass

    @contextmanager
    def opened(self) -> Iterator[Vault | None]:
        """The vault, or None if there should be none. The command reports problems, so the log is silent."""
        import logging

        from ..vault.vault import open_vault

        log, silence = logging.getLogger("mcp_envelope"), logging.NullHandler()
        log.addHandler(silence)
        vault = None
        try:
            try:
                vault = open_vault(self.address, ttl=self.ttl, cap=self.cap)
            except (ValueError, StoreError) as error:
                # Nothing was touched yet: it is the address, or a library that is missing.
                option, value = self.again or ("", "")
                named = {"--vault": "argument --vault", "--config": f"vault in {value}"}.get(option, _VAULT)
                raise Misuse(f"{named}: {error}") from None
            yield vault
        finally:
            if vault is not None:
                vault.close()
            log.removeHandler(silence)

    def read_command(self, handle: str, *options: str) -> str:
        """The command that reads on, to paste."""
        return console.command("mcp-envelope", "read", handle, *options, *self.again)


class VaultOnDemand:
    """A vault that is opened to store something. `kept` is the handle of that, `problem` why it was not stored."""

    def __init__(self, address: VaultAddress) -> None:
        self._address = address
        self.kept: str | None = None
        self.problem: str | None = None

    def promise(self) -> tuple[str, float]:
        return new_handle(), time.time() + self._address.ttl

    def keep(self, handle: str, payload: Payload, tool: str | None) -> str | None:
        try:
            with self._address.opened() as vault:
                assert vault is not None
                self.problem = vault.keep(handle, payload, tool)
        except (StoreError, Misuse) as error:
            self.problem = str(error)
        if self.problem is None:
            self.kept = handle
        return self.problem


def missing_file(vault: Vault) -> str | None:
    """Return the file of a vault that doesn't exist yet."""
    from ..vault.sqlite import SQLiteStore

    is_file = isinstance(vault.store, SQLiteStore)
    return vault.store.place if is_file and not os.path.lexists(vault.store.place) else None


def for_proxy(config: str | None) -> Settings:
    """The settings of the proxy, to be looked at. What is wrong with them is for the caller to report."""
    from ..config import Settings

    if config is not None:
        files.check_config(config)
    return Settings(config, trust_found=False, say=lambda problem: None)


def vault_options(parser: Parser, config: bool = True) -> None:
    parser.vault_option("the vault")
    if config:
        parser.options("the vault")("--config FILE", "take it from the settings in a mcp-envelope.toml")


def policy(config: str | None, tool: str | None = None, spoken: str | None = None) -> Policy | None:
    """Return the policy of the file, the environment and the dialect's own sources, if there are any.

    Complaints are printed: a single wrong setting is left out, with a warning. A file that cannot be parsed at all
    is an error.
    """
    if config is not None:
        files.check_config(config)
    elif not any(name.startswith(PREFIX) and not _is_of_vault(name) for name in os.environ):
        if spoken is None or not dialect(spoken).has_sources:
            return None
    return _composed(config, dict(os.environ), tool, spoken)


def vault_address(vault: str | None, config: str | None, found: Policy | None) -> VaultAddress:
    """Return what the option `--vault`, the policy or the environment names, in this order."""
    ours = {name: value for name, value in os.environ.items() if _is_of_vault(name) and value}
    if found is None and ours.keys() - {_VAULT}:
        found = _composed(None, ours, None)
    address = vault or (ours.get(_VAULT) if found is None else found.vault) or None
    again: tuple[str, ...] = ()
    if vault:
        again = ("--vault", without_password(vault))
    elif config is not None:
        again = ("--config", config)
    if found is None:
        return VaultAddress(address, again=again)
    return VaultAddress(address, found.vault_ttl, found.vault_size, again)


def budget(options: argparse.Namespace, found: Policy | None, spoken: str = "native") -> Budget:
    """Return the budget that the options ask for, else the configured one, else the dialect's default."""
    asked = (options.tokens, options.bytes, options.meter) != (None, None, None)
    try:
        if found is not None and not asked and (configured := found.budget):
            return configured
        return dialect(spoken).budget(options.tokens, options.bytes, options.meter)
    except ValueError as error:
        raise Misuse(str(error)) from None


def without_password(address: str) -> str:
    return _PASSWORD.sub(r"\1***@", address)


def _is_of_vault(name: str) -> bool:
    return name == _VAULT or name.startswith(f"{_VAULT}_")


def _composed(
    config: str | None, environment: dict[str, str], tool: str | None, spoken: str | None = None
) -> Policy:
    from ..config import Settings

    settings = Settings(config or os.devnull, environment, say=lambda _: None)
    policy = settings.policy(tool, dialect=spoken)
    for problem in dict.fromkeys((*settings.problems(policy.dialect), *policy.problems)):
        console.say("warning", problem)
    return policy
