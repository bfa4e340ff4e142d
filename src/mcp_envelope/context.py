"""What code deep inside a call wants to have said with its result.

Strategy: one mutable `CallContext` for each call, held in a context variable. Tasks that a call starts, and
threads that get its context (`asyncio.to_thread`), inherit the variable and so add to the same context; calls
that run side by side have their own. Outside of a call there is nobody to tell, and a word is only logged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from .facts import Facts, UpgradeHint

_log = logging.getLogger("mcp_envelope")


@dataclass(slots=True)
class CallContext:
    """Gathered during one call. Set a field, or use the functions below."""

    warnings: list[str] = field(default_factory=list)
    upgrade_hints: list[UpgradeHint] = field(default_factory=list)
    tier: str | None = None
    tool_version: str | None = None
    capabilities: tuple[str, ...] | None = None
    rate_limit: Mapping[str, Any] | None = None
    token_usage: Mapping[str, Any] | None = None
    workspace: Mapping[str, Any] | None = None
    hint: str | None = None

    @property
    def is_silent(self) -> bool:
        """Whether nothing was said."""
        return not (
            self.warnings
            or self.upgrade_hints
            or self.hint
            or self.tier
            or self.tool_version
            or self.capabilities is not None
            or self.rate_limit
            or self.token_usage
            or self.workspace
        )

    def add_to(self, facts: Facts) -> Facts:
        return replace(
            facts,
            # The same word twice is one word: a loop that warns a thousand times says it once.
            warnings=tuple(dict.fromkeys((*facts.warnings, *self.warnings))),
            upgrade_hints=(*facts.upgrade_hints, *self.upgrade_hints),
            tier=self.tier or facts.tier,
            tool_version=self.tool_version or facts.tool_version,
            capabilities=self.capabilities if self.capabilities is not None else facts.capabilities,
            rate_limit=self.rate_limit or facts.rate_limit,
            token_usage=self.token_usage or facts.token_usage,
            workspace=self.workspace or facts.workspace,
            hint=self.hint or facts.hint,
        )


_current: ContextVar[CallContext | None] = ContextVar("mcp_envelope_call", default=None)


def current() -> CallContext | None:
    """The context of the call that is running here, if one is."""
    return _current.get()


@contextmanager
def call_context(context: CallContext | None = None) -> Iterator[CallContext]:
    """Adapters put this around a tool; what is said inside is in the context that it gives."""
    context = context or CallContext()
    token = entered(context)
    try:
        yield context
    finally:
        left(token)


def entered(context: CallContext) -> Token[CallContext | None]:
    """The same in two steps, for who does it with every call; `left` ends it."""
    return _current.set(context)


def left(token: Token[CallContext | None]) -> None:
    _current.reset(token)


def _within(what: str) -> CallContext:
    context = _current.get()
    if context is None:
        _log.info("said outside of a call, so nobody hears it: %s", what)
        return CallContext()
    return context


def warn(message: str) -> None:
    """Say something that is not fatal; it travels with the result."""
    _within(message).warnings.append(message)


def stale(count: int, what: str = "file") -> None:
    """So many things have changed since they were indexed."""
    if count > 0:
        warn(
            f"{count} {what}{'s' if count != 1 else ''} changed since the last index; results may be out of date."
        )


def index_age(age: str, advice: str = "") -> None:
    """How old the index is, and what to do about it."""
    warn(f"The index is {age} old.{f' {advice}' if advice else ''}")


def fallback(capability: str, through: str) -> None:
    """Something was answered in a way that is only approximate."""
    warn(f"{capability} was answered through {through}: treat it as approximate.")


def upgrade(feature: str, tier: str, reason: str) -> None:
    """A feature was asked for that a higher tier has."""
    _within(f"{feature} needs {tier}").upgrade_hints.append(UpgradeHint(feature, tier, reason))


def describe_call(
    *,
    tier: str | None = None,
    tool_version: str | None = None,
    capabilities: tuple[str, ...] | None = None,
    rate_limit: Mapping[str, Any] | None = None,
    token_usage: Mapping[str, Any] | None = None,
    workspace: Mapping[str, Any] | None = None,
    hint: str | None = None,
) -> None:
    """Facts about the call that some dialects show."""
    context = _within("facts about the call")
    context.tier = tier or context.tier
    context.tool_version = tool_version or context.tool_version
    context.capabilities = capabilities if capabilities is not None else context.capabilities
    context.rate_limit = rate_limit or context.rate_limit
    context.token_usage = token_usage or context.token_usage
    context.workspace = workspace or context.workspace
    context.hint = hint or context.hint
