"""The one door everything goes through: a payload in, a result that fits out.

Strategy: read the payload once, gather what is known about the result, and let the dialect put both on the
wire. A lane's size is that of its exact text, notice, escaping and every block included; a lane leaves only
after its meter accepted it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from . import dialects
from .budget import Budget
from .facts import Facts
from .job import PROFILES, Job, Profile
from .payload import As, read_payload
from .ranking import Ranking
from .schema import Schema
from .sealed import Sealed

# What a handle may look like: the smallest budget must have room for it, and a call must be able to name it.
_HANDLE: Final = re.compile(r"[A-Za-z0-9._~-]{1,43}")


def seal(
    payload: Any,
    *,
    tokens: int | None = None,
    max_bytes: int | None = None,
    meter: str | None = None,
    budget: Budget | None = None,
    dialect: str = "native",
    schema: Schema | Mapping[str, Any] | bool | None = None,
    wrap: bool = False,
    rank: Mapping[str, Ranking] | None = None,
    profile: Profile = "minimal",
    handle: str | None = None,
    hint: str | None = None,
    warnings: Iterable[str] = (),
    tool: str | None = None,
    request_id: str | None = None,
    duration_ms: float | None = None,
    is_error: bool = False,
    read_as: As = "auto",
) -> Sealed:
    """Fit a tool's payload into a budget.

    `schema` is the output schema that clients were told; if it was made by `widen` and wrapped, say `wrap`.
    `rank` maps the path of a list to its ranking. `handle` names the stored payload, if it was stored.
    """
    if budget is None:
        budget = Budget.of(tokens=tokens, max_bytes=max_bytes, meter=meter)
    if handle is not None and not _HANDLE.fullmatch(handle):
        raise ValueError(f"a handle has 1 to 43 letters, digits or . _ ~ -, got {handle[:60]!r}")
    if profile not in PROFILES:
        raise ValueError(f"profile is one of {', '.join(PROFILES)}; got {profile!r}")
    if schema is not None and not isinstance(schema, Schema):
        schema = Schema.of(schema)
    read = read_payload(payload, read_as)
    facts = Facts(
        handle=handle,
        hint=hint,
        warnings=(*warnings, *([budget.warning] if budget.warning else [])),
        tool=tool,
        request_id=request_id,
        duration_ms=duration_ms,
    )
    job = Job(read, budget, facts, schema, wrap, rank or {}, is_error, profile)
    lanes = dialects.dialect(dialect).seal(job)
    return Sealed(
        lanes.content,
        lanes.structured,
        is_error=lanes.is_error,
        facts=lanes.facts,
        meta=lanes.meta,
        budget=budget,
        payload=read,
    )
