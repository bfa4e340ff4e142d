"""The one table of settings: the class `Policy`, whose fields are the settings.

Strategy: a setting is a field with a type, a default, a kind and one line of documentation. The loader, the
environment, the command `config`, the JSON Schema and the documentation all read `SETTINGS`, which is made
from the fields; to add a setting is to add a field. A policy does not change: `with_budget` makes another
one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from .. import meters
from ..budget import Budget
from ..meters import METERS
from ..vault.store import DEFAULT_CAP, DEFAULT_TTL
from .allowance import OWN, Allowance
from .entries import Patterns, Rankings, Record, Texts
from .kinds import NOTHING, Amount, Choice, Flag, Kind, Names, Text, Whole

# The profiles that are always there. A user's own stands on one of them.
PROFILES: Final = ("minimal", "standard", "debug")
BUILT_IN: Final = "built-in"
CALL: Final = "call"
PREFIX: Final = "MCP_ENVELOPE_"
# The argument by which a call asks for its own budget.
BUDGET_ARGUMENT: Final = "tokenBudget"

_TOKENS: Final = Whole(100, 10_000_000)
_BYTES: Final = Whole(1, 1_000_000_000)
_TIME: Final = Amount(
    "time",
    "seconds",
    "24h",
    (("s", 1), ("m", 60), ("min", 60), ("h", 3600), ("d", 86_400), ("w", 604_800)),
    1,
    3650 * 86_400,
)
_SIZE: Final = Amount(
    "size",
    "bytes",
    "1GiB",
    (
        *(("b", 1), ("kb", 10**3), ("mb", 10**6), ("gb", 10**9), ("tb", 10**12)),
        *(("kib", 1 << 10), ("mib", 1 << 20), ("gib", 1 << 30), ("tib", 1 << 40)),
    ),
    1 << 20,
    1 << 50,
)


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    kind: Kind
    default: Any
    doc: str
    # Only one of two rivals can hold: setting one in a stronger layer takes the other one away.
    rival: str | None = None

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()


def _setting(default: Any, kind: Kind, doc: str, rival: str | None = None) -> Any:
    about = {"setting": (kind, doc, rival)}
    if isinstance(default, Mapping):
        return field(default_factory=lambda: default, metadata=about)
    return field(default=default, metadata=about)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """All settings that apply to one call, and where each came from."""

    dialect: str = _setting("native", Choice(tuple(OWN)), "The wire shape of a result.")
    tokens: int | None = _setting(
        None, _TOKENS, "The most tokens that each lane may have. Unset: the dialect's default.", "bytes"
    )
    bytes: int | None = _setting(None, _BYTES, "The same in bytes; goes in place of `tokens`.", "tokens")
    max_tokens: int | None = _setting(
        None,
        _TOKENS,
        "The most that a call's own `tokenBudget` may ask for. "
        "Unset: 10,000, or `tokens` (a quarter of `bytes`) if that is more. At most 10,000 in `transcend`.",
    )
    meter: str | None = _setting(
        None,
        Choice(METERS),
        "What counts tokens. Unset: `estimate`, in `transcend` `chars4`. Bytes are always counted as bytes.",
    )
    profile: str = _setting("minimal", Text(PROFILES), "How much metadata a result shows.")
    lists: Mapping[str, tuple[str, ...]] = _setting(
        NOTHING,
        Rankings(),
        "How a list is ordered before it is cut: `file` up, `-score` down, `@group` together.",
    )
    hint: str = _setting("", Text(), "The next step to suggest when something was cut; best set per tool.")
    hints: Mapping[str, str] = _setting(
        NOTHING, Texts(), "The same per list or field, where the tool has no hint."
    )
    include_only: tuple[str, ...] = _setting(
        (), Names(), "The top-level fields of `data` to keep. Empty: all."
    )
    exclude_fields: tuple[str, ...] = _setting((), Names(), "The top-level fields of `data` to leave out.")
    redact: bool = _setting(
        True, Flag(), "Whether secrets are masked before a result is measured and stored."
    )
    redact_patterns: Mapping[str, str] = _setting(NOTHING, Patterns(), "What else to mask (Python's `re`).")
    vault: str | None = _setting(
        None,
        Text(),
        "Where whole results are kept: a file, `sqlite:///PATH`, `valkey://HOST:PORT`, `rediss://HOST:PORT`, "
        "or `none`. Unset: a file in the user's state folder.",
    )
    vault_ttl: int = _setting(round(DEFAULT_TTL), _TIME, "How long they are kept. Unset: 24 hours.")
    vault_size: int = _setting(
        DEFAULT_CAP, _SIZE, "How much all of them may take; the oldest make room. Unset: 1 GiB."
    )
    truncatable: tuple[str, ...] = _setting((), Names(), "`ctxo`: more names of arrays that may be cut.")
    workspace: Mapping[str, str] | None = _setting(
        None, Record(("root",), ("package",)), "`ctxo`: the workspace that `_meta` names."
    )
    tier: str | None = _setting(
        None, Choice(("community", "pro", "enterprise")), "`scalpel`: the tier to report."
    )
    tool_version: str | None = _setting(None, Text(), "`scalpel`: the version of the tool to report.")
    capabilities: tuple[str, ...] = _setting((), Names(), "`scalpel`: the capabilities to report.")

    # The built-in profile that `profile` stands on: what a dialect goes by.
    detail: str = "minimal"
    # Setting -> where its value came from.
    sources: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    # About this call, for the result: what it asked for and did not get.
    warnings: tuple[str, ...] = ()
    # About the settings, for whoever set them: in the log and in `mcp-envelope config`, not in results.
    problems: tuple[str, ...] = ()

    @property
    def allowance(self) -> Allowance:
        """The budget with the dialect's defaults filled in."""
        return Allowance.of(self.dialect, self.tokens, self.bytes, self.max_tokens, self.meter)

    @property
    def budget(self) -> Budget | None:
        """The same for `seal`. None: no limit."""
        return _budget(self.dialect, self.tokens, self.bytes, self.max_tokens, self.meter)

    def with_budget(self, requested: object) -> Policy:
        """This policy for a call that asks for a budget of its own. Nothing that it may ask raises."""
        allowance = self.allowance
        tokens, warning = allowance.request(requested)
        warnings = (*self.warnings, warning) if warning else self.warnings
        if tokens is None:
            return replace(self, warnings=warnings)
        # The ceiling goes along, since it may depend on the tokens that were configured.
        return replace(
            self,
            tokens=tokens,
            bytes=None,
            max_tokens=allowance.ceiling,
            sources=MappingProxyType({**self.sources, "tokens": CALL, "bytes": BUILT_IN}),
            warnings=warnings,
        )


@lru_cache(256)
def _budget(
    dialect: str, tokens: int | None, max_bytes: int | None, max_tokens: int | None, meter: str | None
) -> Budget | None:
    """Every call asks for it several times, and there are few of them."""
    allowance = Allowance.of(dialect, tokens, max_bytes, max_tokens, meter)
    return None if allowance.limit is None else Budget(allowance.limit, meters.meter(allowance.meter))


def _settings() -> dict[str, Setting]:
    bare = Policy()
    found = {}
    for each in fields(Policy):
        if "setting" in each.metadata:
            kind, doc, rival = each.metadata["setting"]
            found[each.name] = Setting(each.name, kind, getattr(bare, each.name), doc, rival)
    return found


SETTINGS: Final[Mapping[str, Setting]] = MappingProxyType(_settings())


def budget_argument(dialect: str) -> str:
    """What a call's own budget is called, in the spelling of the dialect."""
    return "token_budget" if dialect == "scalpel" else BUDGET_ARGUMENT
