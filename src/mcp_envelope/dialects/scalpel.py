"""The dialect `scalpel`: `data`, and as many metadata fields as the profile asks for.

Strategy: every field has its place in one fixed order; a profile is the set of those that are shown. What is
not selected is left out, not null, except in `debug`, which shows every field. The document knows no budget;
if one is set, the data is fitted into it like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from ..blocks import text_block
from ..budget import Budget
from ..codes import CATALOGUE
from ..facts import Facts, Problem
from ..fitting import Cut
from ..job import Job, Lanes
from ..meters import meter as meter_of
from ..rooms import Lane
from ..schema.wrapping import embed
from ..spelling import written
from . import notice

_UNLIMITED: Final = 1 << 62
# In the order of the document's debug example.
_IDENTITY: Final = ("tier", "tool_version", "tool_id", "request_id", "capabilities", "duration_ms")
# What helps to correlate a response with a request.
_STANDARD: Final = ("tier", "tool_version", "tool_id", "request_id")


class Scalpel:
    name = "scalpel"

    def budget(self, tokens: int | None, max_bytes: int | None, meter: str | None) -> Budget:
        if tokens is None and max_bytes is None:
            return Budget(_UNLIMITED, meter_of("bytes"))
        return Budget.of(tokens=tokens, max_bytes=max_bytes, meter=meter)

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

    def seal(self, job: Job) -> Lanes:
        problem = job.facts.error or job.facts.miss
        envelope: Lane | None = None
        if not job.payload.is_empty and (problem is None or _is_promised(job)):
            envelope = _with_data(job, problem)
        if envelope is None and problem is None:
            problem = job.too_large() if not job.payload.is_empty else None
        if envelope is None:
            envelope = job.first_that_fits(lambda length: _framed(job, None, (), problem, length))
        if problem is not None and job.facts.error is None and job.facts.miss is None:
            job.facts = replace(job.facts, error=problem)
        blocks = [text_block(envelope.json.decode())]
        note = _note(job, envelope.cuts)
        if note:
            # The document knows no cuts, so the envelope has no place for them.
            blocks.append(text_block(note))
        content = job.lane(b"[%b]" % b",".join(blocks), envelope.cuts, measured=envelope.json + note.encode())
        meta = notice.meta(job.with_cuts(envelope.cuts)) if envelope.cuts else None
        return Lanes(content, envelope, False, job.facts, meta)


def _note(job: Job, cuts: tuple[Cut, ...]) -> str:
    return notice.sentence(job.with_cuts(cuts), 1, beside_handle=False) if cuts else ""


def _is_promised(job: Job) -> bool:
    """Whether the data of a failure is what clients were told of."""
    return job.schema is None or job.schema.is_valid(bytes(job.payload.as_node().raw))


def _with_data(job: Job, problem: Problem | None) -> Lane | None:
    return job.fit_data(lambda fitted, length: _framed(job, fitted.json, fitted.cuts, problem, length))


def _framed(
    job: Job, data: bytes | None, cuts: tuple[Cut, ...], problem: Problem | None, length: int
) -> Lane:
    facts = job.facts
    shown: dict[str, Any] = {}
    known = _known(facts)
    everything = job.profile == "debug"
    for name in _IDENTITY:
        wanted = everything or (job.profile == "standard" and name in _STANDARD and known[name] is not None)
        # A client that names its request gets the name back, whatever the profile.
        if wanted or (name == "request_id" and facts.client_request_id):
            shown[name] = _short(known[name], length)
    if problem is not None:
        hidden = (job.hidden if data is None else None) or {}
        shown["error"] = _error(problem, everything, length, hidden)
    elif everything:
        shown["error"] = None
    hints = facts.upgrade_hints[: (len(facts.upgrade_hints), 3, 0)[length]]
    if hints or everything:
        shown["upgrade_hints"] = [
            {name: _short(getattr(hint, name), length) for name in ("feature", "tier", "reason")}
            for hint in hints
        ]
    parts = [written(shown)[1:-1]] if shown else []
    if data is not None or everything or problem is None:
        parts.append(b'"data":%b' % (data if data is not None else b"null"))
    text = b"{%b}" % b",".join(parts)
    return job.lane(text, cuts, data or b"", measured=text + _note(job, cuts).encode())


def _short(value: Any, length: int) -> Any:
    """Under a tight budget other people's words are cut short, in any alphabet."""
    if length == 0 or not isinstance(value, str):
        return value
    return value[: (0, 64, 16)[length]]


def _known(facts: Facts) -> dict[str, Any]:
    duration = facts.duration_ms
    return {
        "tier": facts.tier,
        "tool_version": facts.tool_version,
        "tool_id": facts.tool,
        "request_id": facts.request_id,
        "capabilities": list(facts.capabilities or ()),
        "duration_ms": int(duration) if duration is not None and duration == int(duration) else duration,
    }


def _error(problem: Problem, everything: bool, length: int, hidden: dict[str, str]) -> dict[str, Any]:
    most = (1 << 20, 200, 24)[length]
    message = problem.message if len(problem.message) <= most else problem.message[: most - 1] + "…"
    error: dict[str, Any] = {"error": message, "error_code": CATALOGUE.spelling(problem.code, "scalpel")}
    details = {**(problem.details if problem.details and length == 0 else {}), **hidden}
    if details or everything:
        error["error_details"] = details or None
    return error
