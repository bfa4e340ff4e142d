"""The dialect `transcend`: one envelope with `ok`, and a token budget that holds by construction.

Strategy: both lanes hold the same envelope as compact JSON, and that text is what is measured: its UTF-16
length divided by four. `used` is part of the text, so it is written again until it is right. The data is fitted
as in any dialect; `dropped` names the list that lost most, and its note covers all of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from ..budget import Budget, check_whole, meter_named
from ..codes import CATALOGUE, Problem
from ..fit.documents import Cut, Fitted
from ..fit.ranking import rank
from ..jsontext.document import Node, encode, quoted, text_block, written
from ..lanes import Lane, Lanes, Plan, first_that_fits, fit_data
from ..outcome import Outcome
from ..payload import Payload
from ..schema.widening import embed
from . import BudgetRange, Dialect, fields_as, fields_of, member_schema
from .notice import LONGEST_PATH, next_step

DEFAULT: Final = 2000
LEAST: Final = 100
MOST: Final = 10_000
CODES: Final = frozenset(
    {
        "MAP_NOT_BUILT",
        "NODE_NOT_FOUND",
        "BAD_NODE_ID",
        "FILE_DELETED",
        "SYMBOL_NOT_FOUND",
        "LSP_UNAVAILABLE",
        "LSP_FAILED",
        "LSP_TIMEOUT",
        "BAD_ARGS",
        "INTERNAL",
    }
)
# The code of the contract for each kind of other codes. Whatever another call can avoid is BAD_ARGS.
_BY_KIND: Final = {
    "argument": "BAD_ARGS",
    "missing": "NODE_NOT_FOUND",
    "refused": "BAD_ARGS",
    "limit": "BAD_ARGS",
    "timeout": "LSP_TIMEOUT",
    "unavailable": "LSP_UNAVAILABLE",
    "unsupported": "BAD_ARGS",
    "internal": "INTERNAL",
}
_RESERVED: Final = frozenset({"code", "message", "hint", "reason"})
# Rankings that the contract defines, unless the server declares others.
_RANKINGS: Final = {"references": rank("file", "line"), "neighbors": rank("-hubScore")}
# Shortened before any other string.
_SNIPPETS: Final = frozenset({"snippet"})
_CLIP: Final = (100_000, 120, 40)
_PLAIN_NAME: Final = re.compile(r"[\w$@.:+*/~-]{1,40}")


class Transcend(Dialect):
    name = "transcend"
    keeps_beginnings = True
    defines_budget_argument = True
    limits = BudgetRange(tokens=DEFAULT, meter="chars4", least_tokens=LEAST, most_tokens=MOST)

    def budget(self, tokens: int | None, max_bytes: int | None, meter: str | None) -> Budget:
        if max_bytes is not None:
            return Budget.of(max_bytes=max_bytes, meter=meter)
        check_whole(tokens=tokens)
        counted = meter_named(meter or "chars4")
        wanted = DEFAULT if tokens is None else tokens
        limit = min(max(wanted, LEAST), MOST)
        warning = None if limit == wanted else f"tokenBudget={wanted} is out of range; using {limit}."
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

    def recognise(self, payload: Payload, outcome: Outcome) -> tuple[Outcome, Payload] | None:
        fields = fields_of(payload, _TranscendEnvelope.__struct_encode_fields__)
        spoken = None if fields is None else fields_as(_TranscendEnvelope, fields, "data")
        if fields is None or spoken is None or (spoken.error is None) != spoken.ok:
            return None
        if spoken.ok and "data" not in fields:
            return None
        said = {"truncated": True, "dropped": spoken.dropped} if spoken.truncated else {}
        outcome = replace(outcome, warnings=(*spoken.warnings, *outcome.warnings), said=said)
        data = Payload(node=Node(fields["data"]), blocks=payload.blocks) if "data" in fields else Payload()
        if spoken.error is None:
            return outcome, data
        code, message, hint = [str(spoken.error.get(name) or "") for name in ("code", "message", "hint")]
        if not code or not message:
            return None
        details = {key: value for key, value in spoken.error.items() if key not in _RESERVED}
        return replace(outcome, error=Problem(code, message, hint, details), status="error"), data

    def data_schema(self, schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return member_schema(schema, "ok", "data", known=_TranscendEnvelope.__struct_encode_fields__)

    def fit(self, plan: Plan) -> Lanes:
        problem = plan.outcome.error or plan.outcome.miss
        envelope = None
        if problem is None:
            envelope = _success(plan)
            if envelope is None:
                problem = plan.too_large()
                plan = replace(plan, outcome=replace(plan.outcome, error=problem))
        if envelope is None:
            assert problem is not None
            envelope = first_that_fits(partial(_failure, plan, problem), plan.limit)
        text = b"[%b]" % text_block(envelope.json.decode())
        content = plan.lane(text, envelope.cuts, envelope.body, measured=envelope.json)
        is_error = problem is not None or bool(plan.is_error)
        return Lanes(content, envelope, is_error, plan.outcome, None)


class _TranscendEnvelope(msgspec.Struct, rename="camel"):
    """The envelope of a tool that makes it itself."""

    ok: bool
    data: None = None
    error: dict[str, Any] | None = None
    token_budget: dict[str, Any] | None = None
    truncated: bool = False
    dropped: dict[str, Any] | None = None
    warnings: tuple[str, ...] = ()


def _success(plan: Plan) -> Lane | None:
    if plan.lacks_data:
        return first_that_fits(lambda length: _framed(plan, b'"ok":true', (), length), plan.limit)

    def frame(fitted: Fitted, length: int) -> Lane:
        return _framed(plan, b'"ok":true,"data":%b' % fitted.json, fitted.cuts, length, fitted.json)

    return fit_data(plan, frame, _RANKINGS, _SNIPPETS)


def _failure(plan: Plan, problem: Problem, length: int) -> Lane:
    known = CATALOGUE.closest(problem.code)
    code = known.name if known.name in CODES else _BY_KIND[known.kind]
    error: dict[str, Any] = {"code": code, "message": _clipped(problem.message, length)}
    if (name := CATALOGUE.name(problem.code)) != code:
        # The set of codes is closed, so any other one is told apart by its reason.
        error["reason"] = _clipped(name, length)
    if length == 0:
        # Details come before the hint, and none can replace the code, the message or the hint.
        error.update({key: value for key, value in (problem.details or {}).items() if key not in _RESERVED})
    is_hidden = plan.hidden is not None
    if length < 2:
        error.update(plan.hidden or {})
    forms = [{**error, "hint": _clipped(problem.hint, length)} if problem.hint else error]
    if length == 2:
        # Where even the shortest form has too much, code and message alone, and the next step in the note.
        forms += [error, {"code": code, "message": "Failed."}]
    return first_that_fits(
        lambda form: _framed(
            plan,
            b'"ok":false,"error":%b' % written(forms[form]),
            (),
            3 if form == 2 else length,
            is_hidden=is_hidden,
        ),
        plan.limit,
        range(len(forms)),
    )


def _framed(
    plan: Plan,
    start: bytes,
    cuts: tuple[Cut, ...],
    length: int,
    body: bytes = b"",
    is_hidden: bool = False,
) -> Lane:
    budget = plan.budget
    said = plan.outcome.said
    after: dict[str, Any] = {"truncated": bool(cuts or is_hidden or said or plan.outcome.lacking)}
    own = said.get("dropped") if length < 2 else None
    if cuts:
        after["dropped"] = _dropped(plan, cuts, length)
        if own and isinstance(own.get("note"), str):
            # What the tool left out itself is left out, too.
            after["dropped"]["note"] += " " + _clipped(own["note"], length)
    elif is_hidden:
        after["dropped"] = {"kind": "data", "count": 1, "note": _left_out(plan, length)}
    elif own:
        after["dropped"] = own
    elif lacking := plan.outcome.lacking:
        note = f"Cut {lacking} content block{'s' if lacking > 1 else ''} to fit tokenBudget={budget.limit}."
        way_back = " The warnings say how to read the rest."
        if length == 2:
            # There are none then.
            handle = plan.outcome.handle
            way_back = f' Read on: envelope_read(handle="{handle}").' if handle else ""
        after["dropped"] = {"kind": "blocks", "count": lacking, "note": note + way_back}
    after["warnings"] = _warnings(plan.outcome.warnings, length)
    end = encode(after)[1:]
    used = budget.limit
    for _ in range(6):
        figures = b'{"requested":%d,"used":%d,"max":%d}' % (budget.limit, used, max(MOST, budget.limit))
        lane = plan.lane(b'{%b,"tokenBudget":%b,%b' % (start, figures, end), cuts, body)
        if lane.used == used:
            break
        used = lane.used
    return lane


def _dropped(plan: Plan, cuts: tuple[Cut, ...], length: int) -> dict[str, Any]:
    # A page puts first what the next page continues with; anything else puts first what lost most.
    is_page = plan.outcome.reading is not None
    ordered = list(cuts) if is_page else sorted(cuts, key=lambda cut: -cut.dropped)
    named = ordered[: (4, 2, 1)[length]]
    what = " and ".join(f"{cut.dropped} {_counted(cut)}" for cut in named)
    more = len(ordered) - len(named)
    if more:
        what += f" (and {more} more cut{'s' if more > 1 else ''})"
    way_back = _way_back(plan.with_cuts(cuts), ordered[0], length)
    note = f"Dropped {what} to fit tokenBudget={plan.budget.limit}. {way_back}"
    return {"kind": _noun(ordered[0]), "count": ordered[0].dropped, "note": note}


def _left_out(plan: Plan, length: int) -> str:
    said = (f"Left out the data ({plan.payload.size} bytes).", "Left out the data.", "")[max(length - 1, 0)]
    if plan.outcome.handle is None:
        return f"{said} It was not kept.".lstrip()
    return f'{said} Read it: envelope_read(handle="{plan.outcome.handle}").'.lstrip()


def _counted(cut: Cut) -> str:
    noun = _noun(cut)
    return noun if cut.kind in ("items", noun) else f"{cut.kind} of {noun}"


def _noun(cut: Cut) -> str:
    """Return the name of the list, or what was cut if it has none that could stand in a sentence of ours."""
    steps = [step for step in cut.path.split("/") if step and not step.isdigit()]
    name = steps[-1].replace("~1", "/").replace("~0", "~") if steps else ""
    return name if _PLAIN_NAME.fullmatch(name) else cut.kind


def _way_back(outcome: Outcome, cut: Cut, length: int) -> str:
    hint = next_step(outcome)
    way = _clipped(hint, length) if hint else "Raise tokenBudget or narrow the request."
    if outcome.handle is not None:
        is_short = len(cut.path) <= LONGEST_PATH
        path = f", path={quoted(cut.path)}" if cut.path and is_short and length < 2 else ""
        offset = f", offset={cut.offset}" if cut.offset and is_short else ""
        way = f'Read on: envelope_read(handle="{outcome.handle}"{outcome.reading or ""}{path}{offset}).' + (
            f" {way}" if hint else ""
        )
    return way


def _warnings(warnings: tuple[str, ...], length: int) -> list[str]:
    if length > 1 and warnings:
        return [f"{len(warnings)} warnings left out to fit."]
    most = (20, 3, 0, 0)[length]
    texts = [_clipped(warning, length) for warning in warnings[:most]]
    if len(warnings) > most and texts:
        texts[-1] += f" (and {len(warnings) - most} more)"
    return texts


def _clipped(text: str, length: int) -> str:
    """Return the text shortened by its escaped size: in some scripts, a character takes six bytes."""
    most = _CLIP[length]
    while (size := len(encode(text)) - 2) > most:
        text = text[: min(len(text) - 2, len(text) * (most - 3) // size)] + "…"
    return text
