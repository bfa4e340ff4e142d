"""The dialect `gel`: a short text for the model, and `{meta, data}` for machines.

Strategy: the text lane is a headline with an emoji for the status, the details, further texts and links; its
texts together stay under about two thousand characters. The structured lane is `meta` beside the data, which is
fitted into the budget. Where anything is left out `meta.truncated` says so, and a link leads to the whole.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from ..blocks import text_block
from ..budget import Budget
from ..codes import CATALOGUE
from ..facts import Facts, Status, shortened
from ..fitting import Cut, Fitter
from ..job import Job, Lanes
from ..jsontree import encode
from ..payload import to_json
from ..rooms import Lane
from ..schema import FREE
from ..schema.wrapping import embed
from ..spelling import written
from ..text import fit_text
from . import notice

EMOJI: Final[Mapping[str, str]] = {"ok": "✅", "info": "ℹ️", "warn": "⚠️", "error": "❌"}
SUMMARY_LENGTH: Final = 80
INLINE_CHARACTERS: Final = 2000


class Gel:
    name = "gel"

    def budget(self, tokens: int | None, max_bytes: int | None, meter: str | None) -> Budget:
        return Budget.of(tokens=tokens, max_bytes=max_bytes, meter=meter)

    def output_schema(self, data: Mapping[str, Any] | bool | None) -> dict[str, Any] | None:
        return tool_response_envelope_schema(True if data is None else data)

    def seal(self, job: Job) -> Lanes:
        facts = _completed(job.facts)
        job.facts = facts
        structured = _structured(job)
        if structured is None:
            job.facts = facts = _completed(
                replace(facts, error=job.too_large(), status="error", summary=None)
            )
            structured = job.first_that_fits(lambda length: _failed(job, length))
        content, is_shorter = _content(job, bool(structured.cuts))
        if is_shorter and not structured.cuts:
            job.facts = replace(job.facts, extras={"truncated": True})
            structured = _structured(job) or structured
        is_error = facts.status == "error" if job.is_error is None else job.is_error
        return Lanes(content, structured, is_error, job.facts, None)


def tool_response_envelope_schema(data: Mapping[str, Any] | bool | type) -> dict[str, Any]:
    """The output schema of `{meta, data}`. A failure's data has an `errorCode` instead of the tool's own fields."""
    if isinstance(data, type):
        # pydantic models know their schema, msgspec that of dataclasses, attrs classes and typed dictionaries.
        made = getattr(data, "model_json_schema", None)
        data = made() if made is not None else msgspec.json.schema(data)
    text = {"type": "string"}
    texts = {"type": "array", "items": text}
    meta = {
        "type": "object",
        "properties": {
            "status": {"enum": ["ok", "error", "info", "warn"]},
            "summary": {"type": "string", "maxLength": SUMMARY_LENGTH},
            "details": texts,
            "nextSteps": texts,
            "truncated": {"type": "boolean"},
            "tokenUsage": {"type": "object"},
            "rateLimit": {"type": "object"},
        },
        "required": ["status", "summary"],
    }
    failure = {"type": "object", "properties": {"errorCode": text}, "required": ["errorCode"]}
    return embed(data, "data", before={"meta": meta}, after={}, required=["meta"], instead=failure)


def compose_tool_payload(
    meta: Mapping[str, Any],
    data: Any = None,
    additional_text: Sequence[str] = (),
    resource_links: Sequence[Mapping[str, Any]] = (),
    omit_meta_details: bool = False,
    is_error: bool | None = None,
) -> dict[str, Any]:
    """`{content, structuredContent, isError}` from a meta block and data, as the document describes it."""
    status = str(meta.get("status", "ok"))
    if status not in EMOJI:
        raise ValueError(f"status is one of {', '.join(EMOJI)}; got {status!r}")
    shown = {**meta, "status": status, "summary": headline(str(meta.get("summary", "")))}
    texts = [f"{EMOJI[status]} {shown['summary']}"]
    if not omit_meta_details:
        texts += [str(detail) for detail in meta.get("details") or ()]
    texts += additional_text
    return {
        "content": [
            *({"type": "text", "text": text} for text in texts),
            *(dict(link) for link in resource_links),
        ],
        "structuredContent": {"meta": shown, "data": msgspec.json.decode(to_json(data))},
        "isError": status == "error" if is_error is None else is_error,
    }


def build_structured_response(
    *,
    status: Status = "ok",
    title: str,
    data: Any,
    details: Sequence[str] = (),
    next_steps: Sequence[str] = (),
    resource_links: Sequence[Mapping[str, Any]] = (),
    truncated: bool = False,
) -> dict[str, Any]:
    """The summary as text and the typed data beside it, from the older way of giving status and title."""
    meta: dict[str, Any] = {"status": status, "summary": title}
    if details:
        meta["details"] = list(details)
    if next_steps:
        meta["nextSteps"] = list(next_steps)
    if truncated:
        meta["truncated"] = True
    return compose_tool_payload(meta, data, resource_links=resource_links)


def build_tool_response(
    *,
    status: Status = "ok",
    title: str,
    lines: Sequence[str] = (),
    next_steps: Sequence[str] = (),
) -> dict[str, Any]:
    """The older way, with text for data. Use `build_structured_response` or `compose_tool_payload`."""
    warnings.warn(
        "build_tool_response gives text for data; use build_structured_response or compose_tool_payload",
        DeprecationWarning,
        stacklevel=2,
    )
    data = {"title": title, "lines": list(lines)}
    return build_structured_response(
        status=status, title=title, data=data, details=lines, next_steps=next_steps
    )


def headline(summary: str) -> str:
    """One line of at most eighty characters, cut at a word."""
    line = " ".join(summary.split())
    if len(line) <= SUMMARY_LENGTH:
        return line
    head = line[: SUMMARY_LENGTH - 1]
    at = head.rfind(" ")
    return (head[:at] if at > SUMMARY_LENGTH // 2 else head).rstrip(" ,;:.-") + "…"


def _completed(facts: Facts) -> Facts:
    """Every result has a status and a summary, whether the tool gave them or not."""
    status: Status = facts.status or "ok"
    if facts.error is not None:
        status = "error"
    summary = facts.summary
    if not summary:
        problem = facts.error or facts.miss
        summary = problem.message if problem else f"{facts.tool or 'Tool'} returned a result."
    steps = facts.next_steps
    problem = facts.error or facts.miss
    if problem is not None and problem.hint and problem.hint not in steps:
        steps = (*steps, problem.hint)
    if facts.warnings and status == "ok":
        status = "warn"
    return replace(facts, status=status, summary=headline(summary), next_steps=steps)


def _structured(job: Job) -> Lane | None:
    facts = job.facts
    if facts.error is not None or (facts.miss is not None and job.payload.is_empty):
        return job.first_that_fits(lambda length: _failed(job, length))
    if job.lacks_data:
        return job.first_that_fits(lambda length: _framed(job, None, (), length))
    return job.fit_data(lambda fitted, length: _framed(job, fitted.json, fitted.cuts, length))


def _failed(job: Job, length: int) -> Lane:
    problem = job.facts.error or job.facts.miss
    assert problem is not None
    data: dict[str, Any] = {"errorCode": CATALOGUE.spelling(problem.code, "gel")}
    if length < 2:
        data["message"] = problem.message if length == 0 else shortened(problem.message, 120)
    if length == 0:
        data = {**(problem.details or {}), **data}
    if job.hidden is not None:
        data.update(job.hidden)
        job.facts = replace(job.facts, extras={"truncated": True})
    return _framed(job, written(data), (), length)


def _framed(job: Job, data: bytes | None, cuts: tuple[Cut, ...], length: int) -> Lane:
    meta = written(_meta(job.with_cuts(cuts), length))
    if data is None:
        return job.lane(b'{"meta":%b}' % meta, cuts)
    return job.lane(b'{"meta":%b,"data":%b}' % (meta, data), cuts, data)


def _meta(facts: Facts, length: int) -> dict[str, Any]:
    most = (50, 5, 0)[length]
    # The shortest has little of other people's words, which may be long in any alphabet.
    summary = (facts.summary or "")[: SUMMARY_LENGTH if length < 2 else 16]
    meta: dict[str, Any] = {"status": facts.status, "summary": summary}
    details = [*facts.details, *(f"Warning: {warning}" for warning in facts.warnings)]
    if length < 2 and (len(details) > most or len(facts.next_steps) > most):
        meta["truncated"] = True
    if details and most:
        meta["details"] = [detail[:1000] for detail in details[:most]]
    steps = [step[:500] for step in facts.next_steps[:most]]
    if facts.cuts:
        # What was left out, and the way back, is a next step; there is no other place for it.
        steps.insert(0, _left_out(facts, length))
    if steps:
        meta["nextSteps"] = steps
    if facts.cuts or facts.extras.get("truncated"):
        meta["truncated"] = True
    if length == 2:
        return meta
    if facts.token_usage is not None:
        meta["tokenUsage"] = dict(facts.token_usage)
    if facts.rate_limit is not None:
        meta["rateLimit"] = dict(facts.rate_limit)
    return meta


def _left_out(facts: Facts, length: int) -> str:
    hint = facts.next_step() if length < 2 else None
    return notice.sentence(facts, min(length, 1), beside_handle=False) + (f" {hint[:200]}" if hint else "")


def _content(job: Job, truncated: bool) -> tuple[Lane, bool]:
    """The text lane, and whether any of it was shortened: to the usual length, or further if it must be."""
    characters = INLINE_CHARACTERS
    links = len(job.facts.links)
    while True:
        blocks, is_shorter = _shown(job, truncated, characters, links)
        lane = job.lane(b"[%b]" % b",".join(blocks), ())
        if lane.fits(job.limit) or (characters < 40 and not links):
            return lane, is_shorter or links < len(job.facts.links)
        if characters >= 40:
            characters = min(characters * job.limit // lane.used, characters - 20)
        else:
            links -= 1


def _shown(job: Job, truncated: bool, characters: int, links: int) -> tuple[list[bytes], bool]:
    facts = job.facts
    assert facts.status is not None
    texts = [f"{EMOJI[facts.status]} {facts.summary}"]
    if facts.show_details:
        texts += [*facts.details, *(f"Warning: {warning}" for warning in facts.warnings)]
    texts += facts.texts
    problem = facts.error or facts.miss
    if problem is not None:
        # The headline is short; the whole message and the next step follow it.
        texts += [words for words in (problem.message, problem.hint) if words and words != facts.summary]
    is_shorter = False
    if not facts.texts and facts.error is None and not job.payload.is_empty:
        # Nobody wrote a preview: the data itself is one, as JSON, as far as it goes.
        fitter = Fitter(job.payload.as_node(), FREE, job.rankings, job.base)
        spare = characters - sum(map(len, texts))
        preview = fitter.fit(max(spare, 0))
        is_shorter = preview is None or bool(preview.cuts)
        if preview is not None and preview.cuts:
            note = _left_out(replace(facts, cuts=preview.cuts), 1)
            preview = fitter.fit(max(spare - len(note), 0)) or preview
            note = _left_out(replace(facts, cuts=preview.cuts), 1)
            texts += [preview.json.decode(), note]
        elif preview is not None:
            texts.append(preview.json.decode())
    left = characters
    shown: list[bytes] = []
    for text in texts:
        raw = text.encode()
        if len(text) > left:
            is_shorter = True
            fitted = fit_text(raw, max(left, 0))
            if shown and (fitted is None or left < 40):
                break
            raw = fitted.text if fitted is not None else raw[:0]
        left -= len(raw.decode())
        shown.append(text_block(raw.decode()))
    if (truncated or is_shorter or links < len(facts.links)) and facts.handle is not None:
        whole = {"type": "resource_link", "uri": f"envelope://{facts.handle}", "name": "The whole result"}
        shown.append(encode(whole))
    return [*shown, *(encode(dict(link)) for link in facts.links[:links])], is_shorter
