"""The dialect `scalpel`: `data`, and the metadata fields that the profile selects.

Strategy: the fields have a fixed order, and a profile is the set of those that are shown. Fields that are not
selected are omitted, not null, except in `debug`, which shows every field. The contract has no budget; if one
is set, the data is fitted into it as in any dialect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from ..codes import CATALOGUE, Problem
from ..fit.documents import Cut
from ..jsontext.document import Node, kind_of, text_block, written
from ..lanes import Lane, Lanes, Plan, first_that_fits, fit_data
from ..outcome import Outcome, UpgradeHint
from ..payload import Payload
from ..schema.widening import embed
from . import BudgetRange, Dialect, SettingsFile, Variable, fields_as, fields_of, member_schema, notice

_CAPABILITIES: Final = ("envelope-v1",)
# In the order of the document's debug example.
_IDENTITY: Final = ("tier", "tool_version", "tool_id", "request_id", "capabilities", "duration_ms")
# The fields that relate a response to a request.
_STANDARD: Final = ("tier", "tool_version", "tool_id", "request_id")


def _info(text: str) -> dict[str, Any]:
    return {"profile": "debug"} if text.strip().upper() == "DEBUG" else {}


class Scalpel(Dialect):
    name = "scalpel"
    budget_argument = "token_budget"
    selects_fields = True
    shows_warnings = False
    hides_paths = True
    failure_data = "beside"
    limits = BudgetRange(tokens=None)
    variables = (Variable("SCALPEL_MCP_INFO", _info, overrides=True),)
    file = SettingsFile(
        ".code-scalpel/response_config.json",
        "global",
        ("profile",),
        "tool_overrides",
        ("profile", "include_only", "exclude_fields"),
    )

    def output_schema(self, data: Mapping[str, Any] | bool | None) -> dict[str, Any] | None:
        text = {"type": ["string", "null"]}
        hint = {
            "type": "object",
            "properties": {
                "feature": {"type": "string"},
                "tier": {"type": "string"},
                "reason": {"type": "string"},
            },
            "required": ["feature", "tier", "reason"],
        }
        error = {
            "type": ["object", "null"],
            "properties": {
                "error": {"type": "string"},
                "error_code": {"type": "string"},
                "error_details": {"type": ["object", "null"]},
            },
            "required": ["error", "error_code"],
        }
        return embed(
            True if data is None else data,
            "data",
            before={
                "tier": text,
                "tool_version": text,
                "tool_id": text,
                "request_id": text,
                "capabilities": {"type": ["array", "null"], "items": {"type": "string"}},
                "duration_ms": {"type": ["number", "null"]},
                "error": error,
                "upgrade_hints": {"type": ["array", "null"], "items": hint},
            },
            after={},
            required=[],
            instead={"type": "null"},
        )

    def recognise(self, payload: Payload, outcome: Outcome) -> tuple[Outcome, Payload] | None:
        fields = fields_of(payload, _ScalpelEnvelope.__struct_fields__)
        spoken = None if fields is None else fields_as(_ScalpelEnvelope, fields, "data")
        if fields is None or spoken is None or ("data" not in fields and spoken.error is None):
            return None
        if len(fields) == 1 and "data" in fields and kind_of(fields["data"]) not in ("object", "null"):
            # A list under this key alone is more likely somebody's data.
            return None
        outcome = replace(
            outcome,
            tier=spoken.tier or outcome.tier,
            tool_version=spoken.tool_version or outcome.tool_version,
            tool=spoken.tool_id or outcome.tool,
            request_id=spoken.request_id or outcome.request_id,
            capabilities=outcome.capabilities if spoken.capabilities is None else spoken.capabilities,
            duration_ms=outcome.duration_ms if spoken.duration_ms is None else spoken.duration_ms,
            upgrade_hints=(*(spoken.upgrade_hints or ()), *outcome.upgrade_hints),
            said=dict.fromkeys(fields),
        )
        if (error := spoken.error) is not None:
            problem = Problem(error.error_code, error.error, details=error.error_details)
            outcome = replace(outcome, error=problem, status="error")
        has_data = "data" in fields and (spoken.error is None or kind_of(fields["data"]) != "null")
        return outcome, Payload(node=Node(fields["data"]), blocks=payload.blocks) if has_data else Payload()

    def data_schema(self, schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return member_schema(schema, "data", known=_ScalpelEnvelope.__struct_fields__)

    def fit(self, plan: Plan) -> Lanes:
        problem = plan.outcome.error or plan.outcome.miss
        envelope: Lane | None = None
        if not plan.payload.is_empty and (problem is None or _conforms(plan)):
            envelope = _with_data(plan, problem)
        if envelope is None and problem is None:
            problem = plan.too_large() if not plan.payload.is_empty else None
        if envelope is None:
            envelope = first_that_fits(lambda length: _framed(plan, None, (), problem, length), plan.limit)
        if problem is not None and plan.outcome.error is None and plan.outcome.miss is None:
            plan = replace(plan, outcome=replace(plan.outcome, error=problem))
        content = plan.lane(_content(plan, envelope.json, envelope.cuts), envelope.cuts)
        envelope = plan.lane(envelope.json, envelope.cuts, envelope.body)
        meta = notice.meta(plan.with_cuts(envelope.cuts)) if envelope.cuts or plan.outcome.warnings else None
        return Lanes(content, envelope, False, plan.outcome, meta)


class _ScalpelError(msgspec.Struct, forbid_unknown_fields=True):
    error: str
    error_code: str
    error_details: dict[str, Any] | None = None


class _ScalpelEnvelope(msgspec.Struct):
    """The envelope of a tool that makes it itself."""

    tier: str | None = None
    tool_version: str | None = None
    tool_id: str | None = None
    request_id: str | None = None
    capabilities: tuple[str, ...] | None = None
    duration_ms: float | None = None
    error: _ScalpelError | None = None
    upgrade_hints: tuple[UpgradeHint, ...] | None = None
    data: None = None


def _content(plan: Plan, envelope: bytes, cuts: tuple[Cut, ...]) -> bytes:
    """Return the text lane. The contract doesn't know cuts, so a note about them follows the envelope."""
    blocks = [text_block(envelope.decode())]
    if cuts:
        blocks.append(text_block(notice.sentence(plan.with_cuts(cuts), 1, beside_handle=False)))
    return b"[%b]" % b",".join(blocks)


def _conforms(plan: Plan) -> bool:
    """Whether the data of a failure conforms to the advertised schema."""
    return plan.schema is None or plan.schema.is_valid(bytes(plan.payload.as_node().raw))


def _with_data(plan: Plan, problem: Problem | None) -> Lane | None:
    return fit_data(plan, lambda fitted, length: _framed(plan, fitted.json, fitted.cuts, problem, length))


def _framed(
    plan: Plan, data: bytes | None, cuts: tuple[Cut, ...], problem: Problem | None, length: int
) -> Lane:
    outcome = plan.outcome
    shown: dict[str, Any] = {}
    known = _known(outcome)
    everything = plan.profile == "debug"
    for name in _IDENTITY:
        wanted = everything or (plan.profile == "standard" and name in _STANDARD and known[name] is not None)
        # A client that sends a request id gets it back, whatever the profile, and what a tool says itself stays.
        if wanted or (name == "request_id" and known[name] is not None) or name in outcome.said:
            shown[name] = _short(known[name], length)
    if problem is not None:
        hidden = (plan.hidden if data is None else None) or {}
        if problem is outcome.miss and problem.hint and length < 2:
            # The next step is what a miss is about, and there is no other place for it.
            hidden = {"hint": _short(problem.hint, length), **hidden}
        shown["error"] = _error(problem, everything, length, hidden)
    elif everything:
        shown["error"] = None
    hints = outcome.upgrade_hints[: (len(outcome.upgrade_hints), 3, 0)[length]]
    if hints or everything:
        shown["upgrade_hints"] = [
            {name: _short(getattr(hint, name), length) for name in ("feature", "tier", "reason")}
            for hint in hints
        ]
    parts = [written(shown)[1:-1]] if shown else []
    if data is not None or everything or problem is None:
        parts.append(b'"data":%b' % (data if data is not None else b"null"))
    text = b"{%b}" % b",".join(parts)
    # The text lane is the larger one: its escapes, blocks and note come on top.
    return plan.lane(text, cuts, data or b"", measured=_content(plan, text, cuts))


def _short(value: Any, length: int) -> Any:
    """Return a text from the tool shortened, under a tight budget, so that it is short in any script."""
    if length == 0 or not isinstance(value, str):
        return value
    return value[: (0, 64, 16)[length]]


def _known(outcome: Outcome) -> dict[str, Any]:
    # Nobody may have measured it, and the contract wants a number.
    duration = outcome.duration_ms or 0
    return {
        "tier": outcome.tier,
        "tool_version": outcome.tool_version,
        "tool_id": outcome.tool,
        "request_id": outcome.request_id,
        "capabilities": list(_CAPABILITIES if outcome.capabilities is None else outcome.capabilities),
        "duration_ms": int(duration) if duration == int(duration) else duration,
    }


def _error(problem: Problem, everything: bool, length: int, hidden: dict[str, str]) -> dict[str, Any]:
    most = (1 << 20, 200, 24)[length]
    message = problem.message if len(problem.message) <= most else problem.message[: most - 1] + "…"
    error: dict[str, Any] = {"error": message, "error_code": CATALOGUE.general(problem.code)}
    details = {**(problem.details if problem.details and length == 0 else {}), **hidden}
    if CATALOGUE.find(problem.code) is None and length < 2:
        # The set of codes is closed: a code of the tool's own is a detail.
        details.setdefault("code", problem.code)
    if details or everything:
        error["error_details"] = details or None
    return error
