"""What the environment says, and a file if one is named: the policy, the budget, and the place of the vault.

Strategy: a command takes settings from a file only if it is told which one, because the nearest one may be
anybody's, and it could send payloads anywhere. Reading settings takes longer than sealing a small payload, so it
happens only if there are some. The variables of the vault alone make no policy: where a result is kept must not
change how it looks.
"""

from __future__ import annotations

import argparse
import os
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from ..budget import Budget
from ..dialects import dialect
from ..vault.store import DEFAULT_CAP, DEFAULT_TTL
from . import console, files
from .console import Misuse

if TYPE_CHECKING:
    from ..policy import Policy

# As in the table of settings, which takes a while to import.
PREFIX: Final = "MCP_ENVELOPE_"
_VAULT: Final = f"{PREFIX}VAULT"
_OTHERS: Final = ("CTXO_", "SCALPEL_")
_PASSWORD: Final = re.compile(r"(://[^/@]*:)[^/@]*@")


class Place(NamedTuple):
    """Where the vault is; no address is the default file. `again` has the options that lead there again."""

    address: str | None = None
    ttl: float = DEFAULT_TTL
    cap: int = DEFAULT_CAP
    again: tuple[str, ...] = ()


def policy(config: str | None, tool: str | None = None, spoken: str | None = None) -> Policy | None:
    """The settings of the file and of the environment, if there are any; what is wrong with them is told."""
    environment = {**os.environ, **({f"{PREFIX}DIALECT": spoken} if spoken else {})}
    if config is not None:
        files.read(config)
    elif not any(name.startswith((PREFIX, *_OTHERS)) and not _is_of_vault(name) for name in environment):
        return None
    return _composed(config, environment, tool)


def place(vault: str | None, config: str | None, found: Policy | None) -> Place:
    """Of the option `--vault`, the policy, and the environment the first that says something."""
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
        return Place(address, again=again)
    return Place(address, found.vault_ttl, found.vault_size, again)


def budget(options: argparse.Namespace, found: Policy | None, spoken: str = "native") -> Budget:
    """What the options ask for, else what is configured, else what is usual in the dialect."""
    asked = (options.tokens, options.bytes, options.meter) != (None, None, None)
    if found is not None and not asked and (configured := found.budget):
        return configured
    try:
        return dialect(spoken).budget(options.tokens, options.bytes, options.meter)
    except ValueError as error:
        raise Misuse(str(error)) from None


def without_password(address: str) -> str:
    return _PASSWORD.sub(r"\1***@", address)


def _is_of_vault(name: str) -> bool:
    return name == _VAULT or name.startswith(f"{_VAULT}_")


def _composed(config: str | None, environment: dict[str, str], tool: str | None) -> Policy:
    from ..policy import Settings

    settings = Settings(config or os.devnull, environment, say=lambda _: None)
    policy = settings.policy(tool)
    for problem in dict.fromkeys((*settings.problems(policy.dialect), *policy.problems)):
        console.say("warning", problem)
    return policy
