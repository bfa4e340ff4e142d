"""The dialect `gel`: a short text for the model, and `{meta, data}` for machines.

Strategy: the text lane has a headline with an emoji for the status, the details, further texts and links; its
texts stay under about two thousand characters in total. The structured lane has `meta` and the data, which is
fitted into the budget. If anything is left out, `meta.truncated` says so, and a link leads to the whole
payload.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from ..codes import CATALOGUE
from ..fit.documents import Cut, Fitter
from ..fit.text import fit_text
from ..jsontext.document import Buffer, Node, encode, from_members, text_block, written
from ..lanes import Keeper, Lane, Lanes, Plan, first_that_fits, fit_data
from ..outcome import Outcome, Status, current_remarks, sendable, shortened
from ..payload import Payload, new_handle, to_json
from ..schema import FREE
from ..schema.widening import embed
from . import Dialect, fields_as, fields_of, member_schema, notice

EMOJI: Final[Mapping[str, str]] = {"ok": "✅", "info": "ℹ️", "warn": "⚠️", "error": "❌"}
SUMMARY_LENGTH: Final = 80
INLINE_CHARACTERS: Final = 2000
# The beginning of a text is not shown if it would be shorter than this.
_LEAST_TEXT: Final = 40


class Gel(Dialect):
    name = "gel"
    most_inline = INLINE_CHARACTERS
    shows_texts = True

    def output_schema(self, data: Mapping[str, Any] | bool | None) -> dict[str, Any] | None:
        return tool_response_envelope_schema(True if data is None else data)

    def recognise(self, payload: Payload, outcome: Outcome) -> tuple[Outcome, Payload] | None:
        whole = fields_of(payload, ("content", "structuredContent", "isError"))
        if whole is not None and "structuredContent" in whole:
            # What `compose_tool_payload` returns.
            result = fields_as(_GelResult, whole, "structuredContent")
            if result is None:
                return None
            payload = Payload(node=Node(whole["structuredContent"]), blocks=tuple(result.content))
            outcome = replace(outcome, is_error=result.is_error)
        fields = fields_of(payload, ("meta", "data"))
        spoken = None if fields is None else fields_as(_GelEnvelope, fields, "data")
        if fields is None or spoken is None:
            return None
        meta = spoken.meta
        outcome = replace(
            outcome,
            status=meta.status,
            summary=meta.summary,
            details=meta.details or (),
            next_steps=meta.next_steps or (),
            token_usage=meta.token_usage or outcome.token_usage,
            rate_limit=meta.rate_limit or outcome.rate_limit,
            extras={"truncated": True} if meta.truncated else {},
        )
        data = Payload() if "data" not in fields else Payload(node=Node(fields["data"]))
        return _composed(outcome, data, payload.blocks) if payload.blocks else (outcome, data)

    def data_schema(self, schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return member_schema(schema, "meta", "data", known=("meta", "data"))

    def fit(self, plan: Plan) -> Lanes:
        plan = replace(plan, outcome=_completed(plan.outcome))
        structured = _structured(plan)
        if structured is None:
            failed = replace(plan.outcome, error=plan.too_large(), status="error", summary=None)
            plan = replace(plan, outcome=_completed(failed))
            structured = _structured(plan)
            assert structured is not None
        content, shown = _content(plan, bool(structured.cuts))
        # What a failure says is in its data, too.
        keeps_texts = shown.texts_cut and plan.outcome.error is None and plan.outcome.handle is not None
        if keeps_texts and not plan.base:
            # The texts are stored beside the data, so that is where the paths lead.
            return self.fit(replace(plan, base="/structuredContent"))
        if shown.is_shorter and not structured.cuts:
            plan = _truncated(plan)
            structured = _structured(plan) or structured
        is_error = plan.outcome.status == "error" if plan.is_error is None else plan.is_error
        stored = tuple(_texts(plan.outcome)[1:]) if keeps_texts else ()
        return Lanes(content, structured, is_error, plan.outcome, None, stored)


class _ToolMeta(msgspec.Struct, rename="camel"):
    status: Status
    summary: str
    details: tuple[str, ...] | None = None
    next_steps: tuple[str, ...] | None = None
    truncated: bool | None = None
    token_usage: dict[str, Any] | None = None
    rate_limit: dict[str, Any] | None = None


class _GelEnvelope(msgspec.Struct):
    """The envelope of a tool that makes it itself."""

    meta: _ToolMeta


class _GelResult(msgspec.Struct, rename="camel"):
    content: list[msgspec.Raw]
    is_error: bool | None = None


def _composed(outcome: Outcome, data: Payload, blocks: Sequence[Buffer]) -> tuple[Outcome, Payload]:
    """Return what a tool composed itself: after the headline and the details, its own texts, links and images."""
    texts: list[str] = []
    links: list[Mapping[str, Any]] = []
    others: list[Buffer] = []
    for raw in blocks:
        block = msgspec.json.decode(raw)
        if block.keys() == {"type", "text"} and block["type"] == "text":
            texts.append(block["text"])
        elif block.get("type") == "resource_link":
            links.append(block)
        else:
            others.append(raw)
    if texts[:1] == [f"{EMOJI[outcome.status or 'ok']} {headline(outcome.summary or '')}"]:
        del texts[0]
    shows = texts[: len(outcome.details)] == list(outcome.details)
    outcome = replace(
        outcome,
        texts=tuple(texts[len(outcome.details) :] if shows else texts),
        links=tuple(links),
        show_details=shows,
        said={"composed": True},
    )
    return outcome, replace(data, blocks=tuple(others) or None)


def tool_response_envelope_schema(data: Mapping[str, Any] | bool | type) -> dict[str, Any]:
    """Return the output schema of `{meta, data}`. A failure has an `errorCode` for data."""
    if isinstance(data, type):
        # pydantic models know their own schema; msgspec makes those of dataclasses, attrs classes and TypedDicts.
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
    # A failure has a code for data, and a reply without data has null.
    failure = {"type": ["object", "null"], "properties": {"errorCode": text}, "required": ["errorCode"]}
    return embed(data, "data", before={"meta": meta}, after={}, required=["meta", "data"], instead=failure)


def compose_tool_payload(
    meta: Mapping[str, Any],
    data: Any = None,
    additional_text: Sequence[str] = (),
    resource_links: Sequence[Mapping[str, Any]] = (),
    omit_meta_details: bool = False,
    is_error: bool | None = None,
    vault: Keeper | None = None,
) -> dict[str, Any]:
    """Return `{content, structuredContent, isError}` from a meta block and data, as in the contract.

    The texts stay under about 2,000 characters. Past that, `meta.truncated` is true, and a link leads to all of it,
    which is stored in `vault`: by default that of the running call, or else the user's own.
    """
    status = str(meta.get("status", "ok"))
    if status not in EMOJI:
        raise ValueError(f"status is one of {', '.join(EMOJI)}; got {status!r}")
    shown = {**meta, "status": status, "summary": headline(str(meta.get("summary", "")))}
    texts = [f"{EMOJI[status]} {shown['summary']}"]
    if not omit_meta_details:
        texts += [str(detail) for detail in meta.get("details") or ()]
    texts += additional_text
    links = [dict(link) for link in resource_links]
    written_data = to_json(data)
    inline = _inline(texts, INLINE_CHARACTERS)
    if inline != texts:
        shown["truncated"] = True
        structured = from_members({"meta": written(shown), "data": written_data})
        whole = Payload(node=structured, blocks=tuple(text_block(sendable(text) or "") for text in texts))
        if (handle := _stored(whole, vault)) is not None:
            links.insert(0, _link(handle))
    return {
        "content": [*({"type": "text", "text": text} for text in inline), *links],
        "structuredContent": {"meta": shown, "data": msgspec.json.decode(written_data)},
        "isError": status == "error" if is_error is None else is_error,
    }


def _stored(whole: Payload, vault: Keeper | None) -> str | None:
    """Store all that is not shown; return its handle, unless there is no place for it."""
    remarks = current_remarks()
    if vault is None and remarks is not None and remarks.keeper is not None:
        vault = remarks.keeper()
        if vault is None:
            return None
    if vault is not None:
        handle, _ = vault.promise()
        return handle if vault.keep(handle, whole, None) is None else None
    # No call is running. The gateway, far above this module, knows the user's own vault.
    gateway = import_module("mcp_envelope.gateway").Gateway(ledger=False)
    try:
        handle, vault = new_handle(), gateway.keeping(None)
        return handle if vault is not None and vault.keep(handle, whole, None) is None else None
    finally:
        gateway.close()


def _link(handle: str) -> dict[str, Any]:
    return {"type": "resource_link", "uri": f"envelope://{handle}", "name": "The whole result"}


def _inline(texts: Sequence[str], characters: int) -> list[str]:
    """Return the first texts, the last of them shortened, that have at most so many characters."""
    shown: list[str] = []
    left = characters
    for text in texts:
        if len(text) > left:
            fitted = fit_text((sendable(text) or "").encode(), max(left, 0))
            if shown and (fitted is None or left < _LEAST_TEXT):
                break
            text = fitted.text.decode() if fitted is not None else ""
        left -= len(text)
        shown.append(text)
    return shown


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
    """Return a summary as text and the typed data, from a status and a title, as older callers give them."""
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
    """Return a response with text for data. Deprecated: use `build_structured_response`."""
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
    """Return a summary as one line of at most eighty characters, cut at a word boundary."""
    line = " ".join(summary.split())
    if len(line) <= SUMMARY_LENGTH:
        return line
    head = line[: SUMMARY_LENGTH - 1]
    at = head.rfind(" ")
    return (head[:at] if at > SUMMARY_LENGTH // 2 else head).rstrip(" ,;:.-") + "…"


def _completed(outcome: Outcome) -> Outcome:
    """Return the outcome with a status and a summary, which every result must have."""
    status: Status = outcome.status or "ok"
    if outcome.error is not None:
        status = "error"
    summary = outcome.summary
    if not summary:
        problem = outcome.error or outcome.miss
        summary = problem.message if problem else f"{outcome.tool or 'Tool'} returned a result."
    steps = outcome.next_steps
    problem = outcome.error or outcome.miss
    if problem is not None and problem.hint and problem.hint not in steps:
        steps = (*steps, problem.hint)
    if outcome.warnings and status == "ok":
        status = "warn"
    return replace(outcome, status=status, summary=headline(summary), next_steps=steps)


def _structured(plan: Plan) -> Lane | None:
    outcome = plan.outcome
    if outcome.error is not None or outcome.miss is not None:
        return first_that_fits(lambda length: _failed(plan, length), plan.limit)
    if plan.payload.is_empty:
        return first_that_fits(lambda length: _framed(plan, b"null", (), length), plan.limit)
    return fit_data(plan, lambda fitted, length: _framed(plan, fitted.json, fitted.cuts, length))


def _failed(plan: Plan, length: int) -> Lane:
    problem = plan.outcome.error or plan.outcome.miss
    assert problem is not None
    data: dict[str, Any] = {"errorCode": CATALOGUE.name(problem.code)}
    if length < 2:
        data["message"] = problem.message if length == 0 else shortened(problem.message, 120)
    if length == 0:
        data = {**(problem.details or {}), **data}
    if plan.hidden is not None:
        data.update(plan.hidden)
        plan = _truncated(plan)
    return _framed(plan, written(data), (), length)


def _truncated(plan: Plan) -> Plan:
    """Return the plan with `truncated` in its meta, whether or not the data is cut."""
    return replace(plan, outcome=replace(plan.outcome, extras={"truncated": True}))


def _framed(plan: Plan, data: bytes, cuts: tuple[Cut, ...], length: int) -> Lane:
    meta = written(_meta(plan.with_cuts(cuts), length))
    return plan.lane(b'{"meta":%b,"data":%b}' % (meta, data), cuts, data)


def _meta(outcome: Outcome, length: int) -> dict[str, Any]:
    most = (50, 5, 0)[length]
    # The shortest form has little text from the tool, which may be long in any script.
    summary = (outcome.summary or "")[: SUMMARY_LENGTH if length < 2 else 16]
    meta: dict[str, Any] = {"status": outcome.status, "summary": summary}
    details = [*outcome.details, *(f"Warning: {warning}" for warning in outcome.warnings)]
    if length < 2 and (len(details) > most or len(outcome.next_steps) > most):
        meta["truncated"] = True
    if details and most:
        meta["details"] = [detail[:1000] for detail in details[:most]]
    steps = [step[:500] for step in outcome.next_steps[:most]]
    if outcome.cuts:
        # What was left out and how to read it becomes a next step; there is no other place for it.
        steps.insert(0, _left_out(outcome, length))
    if steps:
        meta["nextSteps"] = steps
    if outcome.cuts or outcome.lacking or outcome.extras.get("truncated"):
        meta["truncated"] = True
    if length == 2:
        return meta
    if outcome.token_usage is not None:
        meta["tokenUsage"] = dict(outcome.token_usage)
    if outcome.rate_limit is not None:
        meta["rateLimit"] = dict(outcome.rate_limit)
    return meta


def _left_out(outcome: Outcome, length: int) -> str:
    hint = notice.next_step(outcome) if length < 2 else None
    return notice.sentence(outcome, min(length, 1), beside_handle=False) + (f" {hint[:200]}" if hint else "")


class _Shown(NamedTuple):
    """The blocks of the text lane, and what is missing from them."""

    blocks: list[bytes]
    preview_cut: bool
    texts_cut: bool

    @property
    def is_shorter(self) -> bool:
        return self.preview_cut or self.texts_cut


def _content(plan: Plan, truncated: bool) -> tuple[Lane, _Shown]:
    """Return the text lane, cut to its usual length or further if needed."""
    characters = INLINE_CHARACTERS
    links = len(plan.outcome.links)
    while True:
        shown = _shown(plan, truncated, characters, links)
        lane = plan.content(shown.blocks, ())
        if lane.fits(plan.limit) or (characters < _LEAST_TEXT and not links):
            return lane, shown
        if characters >= _LEAST_TEXT:
            characters = min(characters * plan.limit // lane.load, characters - 20)
        else:
            links -= 1


def _texts(outcome: Outcome) -> list[str]:
    """Return what the text lane says: the headline, the details, further texts, and all of a failure."""
    assert outcome.status is not None
    texts = [f"{EMOJI[outcome.status]} {outcome.summary}"]
    if outcome.show_details:
        texts += [*outcome.details, *(f"Warning: {warning}" for warning in outcome.warnings)]
    texts += outcome.texts
    problem = outcome.error or outcome.miss
    if problem is not None:
        # The headline is short; the whole message and the next step follow it.
        texts += [text for text in (problem.message, problem.hint) if text and text != outcome.summary]
    return texts


def _shown(plan: Plan, truncated: bool, characters: int, links: int) -> _Shown:
    outcome = plan.outcome
    texts = _texts(outcome)
    is_hidden = outcome.error is not None and bool(plan.hidden)
    if is_hidden and outcome.handle is not None:
        # Many clients show the text of a failure alone.
        texts.insert(1, notice.read_it(outcome.handle))
    inline = _inline(texts, characters)
    texts_cut = inline != texts or links < len(outcome.links)
    preview_cut = False
    if not (outcome.texts or outcome.said or outcome.error) and not plan.payload.is_empty:
        # The tool gave no preview, so show as much of the data, as JSON, as fits.
        page = plan.payload.page
        fit = page.as_json if page else Fitter(plan.payload.as_node(), FREE, plan.rankings, plan.base).fit
        spare = characters - sum(map(len, inline))
        preview = fit(max(spare, 0))
        preview_cut = preview is None or bool(preview.cuts)
        if preview is not None and preview.cuts:
            note = _left_out(replace(outcome, cuts=preview.cuts), 1)
            preview = fit(max(spare - len(note), 0)) or preview
            note = _left_out(replace(outcome, cuts=preview.cuts), 1)
            inline += _inline([preview.json.decode(), note], spare)
        elif preview is not None:
            inline.append(preview.json.decode())
    blocks = [text_block(text) for text in inline]
    if (truncated or preview_cut or texts_cut or is_hidden) and outcome.handle is not None:
        blocks.append(encode(_link(outcome.handle)))
    return _Shown([*blocks, *(encode(dict(link)) for link in outcome.links[:links])], preview_cut, texts_cut)
