"""Attributes about results on OpenTelemetry spans, if tracing is in use.

Strategy: OpenTelemetry is never imported. If it is loaded already, the span that is open when a call comes in
is remembered with the call, because other spans may be open inside it by the time the result is sealed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .budget import Budget
    from .envelope import Sealed


def current_span() -> Any:
    """Return the current span, or None if there is none that records."""
    telemetry = sys.modules.get("opentelemetry.trace")
    if telemetry is None:
        return None
    span = telemetry.get_current_span()
    return span if span.is_recording() else None


def trace(sealed: Sealed, span: Any) -> None:
    report, problem = sealed.report, sealed.problem
    _set(
        span,
        report.limit,
        report.unit,
        report.used,
        sealed.truncated,
        len(sealed.cuts),
        sealed.handle is not None,
    )
    if problem is not None:
        span.set_attribute("mcp_envelope.error_code", problem.code)


def trace_untouched(budget: Budget | None, lanes: tuple[bytes, ...], span: Any) -> None:
    """Set the same attributes for a result that goes out as it came."""
    if span is not None and budget is not None:
        _set(span, budget.limit, budget.unit, max(map(budget.meter.count, lanes)), False, 0, False)


def _set(span: Any, limit: int, unit: str, used: int, truncated: bool, cuts: int, handle: bool) -> None:
    values = {
        "budget.limit": limit,
        "budget.unit": unit,
        "budget.used": used,
        "truncated": truncated,
        "cuts": cuts,
        "handle_present": handle,
    }
    span.set_attributes({f"mcp_envelope.{name}": value for name, value in values.items()})
