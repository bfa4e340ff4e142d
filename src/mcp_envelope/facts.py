"""What is known about one result besides its payload; a dialect puts it into words and keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from .fitting import Cut

Status = Literal["ok", "info", "warn", "error"]


@dataclass(frozen=True, slots=True)
class Problem:
    """A coded failure, as it may be shown."""

    code: str
    message: str
    hint: str = ""
    details: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class UpgradeHint:
    """A feature that a higher tier has."""

    feature: str
    tier: str
    reason: str


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything but the payload. What is absent is None or empty, and no dialect makes it up."""

    # What became of the payload.
    cuts: tuple[Cut, ...] = ()
    handle: str | None = None
    # When the stored payload will be gone, in seconds since 1970.
    expires: float | None = None
    # Whether what is left out may be linked to: the client can follow links to stored results.
    linkable: bool = False
    # A page of a stored payload: the arguments, besides the path and the offset, that give the next one.
    reading: str | None = None
    # What the tool said.
    error: Problem | None = None
    miss: Problem | None = None
    status: Status | None = None
    summary: str | None = None
    details: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    links: tuple[Mapping[str, Any], ...] = ()
    show_details: bool = True
    hint: str | None = None
    # By the path or the name of what was cut, for a tool that has no hint of its own.
    hints: Mapping[str, str] = {}
    warnings: tuple[str, ...] = ()
    # What the call was.
    tool: str | None = None
    tool_version: str | None = None
    request_id: str | None = None
    client_request_id: bool = False
    duration_ms: float | None = None
    tier: str | None = None
    capabilities: tuple[str, ...] | None = None
    upgrade_hints: tuple[UpgradeHint, ...] = ()
    rate_limit: Mapping[str, Any] | None = None
    token_usage: Mapping[str, Any] | None = None
    workspace: Mapping[str, Any] | None = None
    # What the dialect adds because of the profile.
    extras: Mapping[str, Any] = {}

    @property
    def link_to(self) -> str | None:
        """The handle, if what is left out may be linked to by it."""
        return self.handle if self.linkable else None

    def next_step(self) -> str | None:
        """The stable hint for what was cut: the tool's own, else that of the list which lost most."""
        if self.hint or not self.hints:
            return self.hint
        for cut in sorted(self.cuts, key=lambda cut: -cut.dropped):
            found = self.hints.get(cut.path) or self.hints.get(cut.path.rpartition("/")[2])
            if found:
                return found
        return None


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
