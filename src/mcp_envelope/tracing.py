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
    report = sealed.report
    span.set_attributes(
        {
            "mcp_envelope.budget.limit": report.limit,
            "mcp_envelope.budget.unit": report.unit,
            "mcp_envelope.budget.used": report.used,
            "mcp_envelope.truncated": sealed.truncated,
            "mcp_envelope.cuts": len(sealed.cuts),
            "mcp_envelope.handle_present": sealed.handle is not None,
            **({"mcp_envelope.error_code": sealed.problem.code} if sealed.problem else {}),
        }
    )


def trace_untouched(budget: Budget | None, lanes: tuple[bytes, ...], span: Any) -> None:
    """Set the same attributes for a result that goes out as it came."""
    if span is None or budget is None:
        return
    span.set_attributes(
        {
            "mcp_envelope.budget.limit": budget.limit,
            "mcp_envelope.budget.unit": budget.unit,
            "mcp_envelope.budget.used": max(budget.meter.count(lane) for lane in lanes),
            "mcp_envelope.truncated": False,
            "mcp_envelope.cuts": 0,
            "mcp_envelope.handle_present": False,
        }
    )
