"""The dialect `transcend`: one envelope with `ok`, and a token budget that is kept by construction.

Strategy: both lanes hold the same envelope, as compact JSON, and that text is what is measured: its UTF-16
length divided by four. The figure `used` is part of the text, so it is written in until it is true. The data
is fitted like any other; `dropped` tells of the list that lost most, and its note of all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from ..blocks import text_block
from ..budget import Budget, check_whole
from ..codes import CATALOGUE
from ..facts import Facts, Problem
from ..fitting import Cut, Fitted
from ..job import Job, Lanes
from ..jsontree import encode
from ..meters import meter as meter_of
from ..ranking import rank
from ..rooms import Lane
from ..schema.wrapping import embed
from ..spelling import written

DEFAULT: Final = 2000
LEAST: Final = 100
MOST: Final = 10_000
_RESERVED: Final = frozenset({"code", "message", "hint"})
# Lists whose order the document gives, unless the server declares another.
_RANKINGS: Final = {"references": rank("file", "line"), "neighbors": rank("depth", "-hubScore")}
# Shortened before any other string is.
_SNIPPETS: Final = frozenset({"snippet"})
_CLIP: Final = (100_000, 120, 40)


class Transcend:
    name = "transcend"

    def budget(self, tokens: int | None, max_bytes: int | None, meter: str | None) -> Budget:
        if max_bytes is not None:
            return Budget.of(max_bytes=max_bytes, meter=meter)
        check_whole(tokens=tokens)
        counted = meter_of(meter or "chars4")
        wanted = DEFAULT if tokens is None else tokens
        limit = min(max(wanted, LEAST), MOST)
        warning = (
            None if limit == wanted else f"tokenBudget={wanted} is out of range and was taken as {limit}."
        )
        return Budget(limit, counted, warning)

    def output_schema(self, data: Mapping[str, Any] | bool | None) -> dict[str, Any] | None:
        count = {"type": "integer", "minimum": 0}
        text = {"type": "string"}
        return embed(
            {} if data is None else data,
            "data",
            before={"ok": {"type": "boolean"}},
            after={
                "error": {
                    "type": "object",
                    "properties": {"code": text, "message": text, "hint": text},
                    "required": ["code", "message"],
                },
                "tokenBudget": {
                    "type": "object",
                    "properties": {"requested": count, "used": count, "max": count},
                    "required": ["requested", "used", "max"],
                },
                "truncated": {"type": "boolean"},
                "dropped": {
                    "type": "object",
                    "properties": {"kind": text, "count": count, "note": text},
                    "required": ["kind", "count", "note"],
                },
                "warnings": {"type": "array", "items": text},
            },
            required=["ok", "tokenBudget", "truncated", "warnings"],
        )

    def seal(self, job: Job) -> Lanes:
        problem = job.facts.error or job.facts.miss
        envelope = None
        if problem is None:
            envelope = _success(job)
            if envelope is None:
                problem = job.too_large()
                job.facts = replace(job.facts, error=problem)
        if envelope is None:
            assert problem is not None
            shown = problem
            envelope = job.first_that_fits(lambda length: _failure(job, shown, length))
        text = b"[%b]" % text_block(envelope.json.decode())
        content = job.lane(text, envelope.cuts, envelope.body, measured=envelope.json)
        is_error = problem is not None or bool(job.is_error)
        return Lanes(content, envelope, is_error, job.facts, None)


def _success(job: Job) -> Lane | None:
    if job.lacks_data:
        return job.first_that_fits(lambda length: _framed(job, b'"ok":true', (), length))

    def frame(fitted: Fitted, length: int) -> Lane:
        return _framed(job, b'"ok":true,"data":%b' % fitted.json, fitted.cuts, length, fitted.json)

    return job.fit_data(frame, _RANKINGS, _SNIPPETS)


def _failure(job: Job, problem: Problem, length: int) -> Lane:
    error: dict[str, Any] = {
        "code": CATALOGUE.spelling(problem.code, "transcend"),
        "message": _clipped(problem.message, length),
    }
    if length == 0:
        # Extras stand before the hint, and none can pass itself off as the code.
        error.update({key: value for key, value in (problem.details or {}).items() if key not in _RESERVED})
    error.update(job.hidden or {})
    if problem.hint:
        error["hint"] = _clipped(problem.hint, length)
    is_hidden = job.hidden is not None
    return _framed(job, b'"ok":false,"error":%b' % written(error), (), length, is_hidden=is_hidden)


def _framed(
    job: Job,
    start: bytes,
    cuts: tuple[Cut, ...],
    length: int,
    body: bytes = b"",
    is_hidden: bool = False,
) -> Lane:
    budget = job.budget
    after: dict[str, Any] = {"truncated": bool(cuts) or is_hidden}
    if cuts:
        after["dropped"] = _dropped(job, cuts, length)
    after["warnings"] = _warnings(job.facts.warnings, length)
    end = encode(after)[1:]
    used = budget.limit
    for _ in range(6):
        figures = b'{"requested":%d,"used":%d,"max":%d}' % (budget.limit, used, max(MOST, budget.limit))
        lane = job.lane(b'{%b,"tokenBudget":%b,%b' % (start, figures, end), cuts, body)
        if lane.used == used:
            break
        used = lane.used
    return lane


def _dropped(job: Job, cuts: tuple[Cut, ...], length: int) -> dict[str, Any]:
    ordered = sorted(cuts, key=lambda cut: -cut.dropped)
    told = ordered[: (4, 2, 1)[length]]
    what = " and ".join(f"{cut.dropped} {_counted(cut)}" for cut in told)
    more = len(ordered) - len(told)
    if more:
        what += f" (and {more} more places)"
    way_back = _way_back(job.with_cuts(cuts), ordered[0], length)
    note = f"Dropped {what} to fit tokenBudget={job.budget.limit}. {way_back}"
    return {"kind": _noun(ordered[0]), "count": ordered[0].dropped, "note": note}


def _counted(cut: Cut) -> str:
    return _noun(cut) if cut.kind == "items" else f"{cut.kind} of {_noun(cut)}"


def _noun(cut: Cut) -> str:
    """The bare noun: the name of the list, or what was cut where there is no name."""
    steps = [step for step in cut.path.split("/") if step and not step.isdigit()]
    return steps[-1].replace("~1", "/").replace("~0", "~")[:40] if steps else cut.kind


def _way_back(facts: Facts, cut: Cut, length: int) -> str:
    hint = facts.next_step()
    way = _clipped(hint, length) if hint else "Raise tokenBudget, or ask for less."
    if facts.handle is not None:
        path = f", path={encode(cut.path).decode()}" if cut.path and length < 2 else ""
        offset = f", offset={cut.offset}" if cut.offset else ""
        way = f'Read on: envelope_read(handle="{facts.handle}"{path}{offset}).' + (f" {way}" if hint else "")
    return way


def _warnings(warnings: tuple[str, ...], length: int) -> list[str]:
    if length == 2 and warnings:
        return [f"{len(warnings)} warnings left out to fit."]
    most = (20, 3, 0)[length]
    said = [_clipped(warning, length) for warning in warnings[:most]]
    if len(warnings) > most and said:
        said[-1] += f" (and {len(warnings) - most} more)"
    return said


def _clipped(text: str, length: int) -> str:
    """At most so many bytes once it is escaped: in some alphabets a character takes six."""
    most = _CLIP[length]
    while (size := len(encode(text)) - 2) > most:
        text = text[: min(len(text) - 2, len(text) * (most - 3) // size)] + "…"
    return text
