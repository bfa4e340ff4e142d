"""A dialect of one's own: `{"status", "result", "page": {…}}`.

The class says how a result looks; the engine finds out how much of the data fits. Try it:

    mcp-envelope seal FILE --dialect examples/paged_dialect.py:Paged --tokens 300
    mcp-envelope proxy --dialect examples/paged_dialect.py:Paged -- COMMAND
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from mcp_envelope import BudgetRange, Dialect, Outcome


class Paged(Dialect):
    name = "paged"
    limits = BudgetRange(tokens=4000)

    def document(self, outcome: Outcome, data: Raw | None, length: int) -> Mapping[str, Any]:
        problem = outcome.error or outcome.miss
        if problem is not None:
            failed: dict[str, Any] = {
                "status": "failed" if outcome.error else "missing",
                "reason": self.short(problem.message, length),
                "advice": self.short(problem.hint, length),
            }
            note = self.note(outcome, length)
            return {**failed, "page": {"note": note}} if note else failed
        page: dict[str, Any] = {"complete": not outcome.cuts}
        if outcome.cuts:
            largest = max(outcome.cuts, key=lambda cut: cut.dropped)
            page |= {"shown": largest.kept, "of": largest.total, "note": self.note(outcome, length)}
        if outcome.warnings and length < 2:
            page["warnings"] = [self.short(warning, length) for warning in outcome.warnings[:20]]
        return {"status": "ok", "result": data, "page": page}

    def output_schema(self, data: Mapping[str, Any] | bool | None) -> dict[str, Any]:
        text, count = {"type": "string"}, {"type": "integer"}
        page = {
            "complete": {"type": "boolean"},
            "shown": count,
            "of": count,
            "note": text,
            "warnings": {"type": "array", "items": text},
        }
        others = {
            "status": {"enum": ["ok", "missing", "failed"]},
            "reason": text,
            "advice": text,
            "page": {"type": "object", "properties": page},
        }
        return self.schema_around(data, "result", others, required=["status"])
