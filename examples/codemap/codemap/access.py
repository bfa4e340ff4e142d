"""Who may do how much: tiers, and calls for each minute.

Nothing here costs anything: the tier is an option of the server, `enterprise` unless you set it. A server that
sells tiers would look like this.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext

from mcp_envelope import Failure, describe_call, upgrade

from . import __version__

TIERS = ("community", "pro", "enterprise")
# What needs more than the lowest tier, and why.
_FEATURES = {
    "impact beyond 2 steps": ("pro", "Following uses further takes an index of the whole repository."),
    "unused exports": ("pro", "It compares every export with every file."),
    "impact across packages": ("enterprise", "It needs the map of all packages of a monorepo."),
}


def has(tier: str, feature: str) -> bool:
    """Return whether a tier has a feature; if it doesn't, the result will name the tier that has it."""
    needed, reason = _FEATURES[feature]
    if TIERS.index(tier) >= TIERS.index(needed):
        return True
    upgrade(feature, needed, reason)
    return False


def need(tier: str, feature: str) -> None:
    """Fail unless a tier has a feature."""
    if not has(tier, feature):
        needed = _FEATURES[feature][0]
        raise Failure(
            "UPGRADE_REQUIRED",
            f"{feature[0].upper()}{feature[1:]} need the tier {needed}; this server has {tier}.",
            "Go on without it, and tell the user which tier has it.",
            feature=feature,
            tier=needed,
        )


class Meter(Middleware):
    """Counts calls, and refuses those that are too many in a minute."""

    def __init__(self, tier: str, calls_per_minute: int | None) -> None:
        self._tier = tier
        self._limit = calls_per_minute
        self._calls: deque[float] = deque()

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        describe_call(tier=self._tier, tool_version=__version__)
        if self._limit is not None:
            now = time.monotonic()
            while self._calls and self._calls[0] <= now - 60:
                self._calls.popleft()
            left = self._limit - len(self._calls)
            wait = max(1, round(60 - (now - self._calls[0]))) if self._calls else 60
            describe_call(
                rate_limit={"limit": self._limit, "remaining": max(left - 1, 0), "resetSeconds": wait}
            )
            if left <= 0:
                raise Failure(
                    "RATE_LIMITED",
                    f"More than {self._limit} calls in a minute.",
                    "Wait as long as the details say.",
                    retryAfterSeconds=wait,
                )
            self._calls.append(now)
        return await call_next(context)
