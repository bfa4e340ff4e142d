"""What is known about one result besides its payload; a dialect puts it into words and keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .fitting import Cut


@dataclass(frozen=True, slots=True)
class Problem:
    """A coded failure, as it may be shown."""

    code: str
    message: str
    hint: str = ""
    details: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    cuts: tuple[Cut, ...] = ()
    handle: str | None = None
    hint: str | None = None
    warnings: tuple[str, ...] = ()
    error: Problem | None = None
    tool: str | None = None
    request_id: str | None = None
    duration_ms: float | None = None
    extras: Mapping[str, Any] = field(default_factory=dict)
