"""The dialect `native`, our own: it adds nothing to a result unless there is something to report.

Strategy: a payload that fits goes out byte for byte. Otherwise the structured lane is fitted, with the notice as
its first property, and validated; the text repeats it, or is fitted on its own, with the notice as its first block,
where the payload is text or the schema has no place for a notice. The notice comes first because clients that cut
a result again drop its end. Once it is known which records a text shows as JSON, they may be spelled in fewer bytes
(`table`), unless a schema binds them. A payload that can't be cut without breaking its schema becomes the failure
RESULT_TOO_LARGE: no structured lane, and as much as fits in the text, to which no schema applies.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeGuard

import msgspec
from msgspec.structs import replace

from ..codes import CATALOGUE
from ..fit.blocks import Block, TextBlock, best_first, fit_blocks, is_text, read_blocks
from ..fit.documents import Cut, Fitted, Fitter
from ..fit.pages import FittedPage, Page
from ..fit.record_formats import WORTHWHILE, RecordTable, joined
from ..fit.text import Ends
from ..jsontext.document import (
    TEXT_CLOSE,
    TEXT_OPEN,
    Member,
    Node,
    TooDeep,
    encode,
    is_bare,
    parse,
    readable,
    sniff,
    text_block,
)
from ..jsontext.errors import WHITESPACE
from ..lanes import Lane, Lanes, Plan, conforming, first_that_fits, fullest
from ..outcome import Outcome
from ..payload import Payload, as_document
from ..schema import FREE, Place, Schema, widen
from ..schema.widening import either, envelope_schema
from . import Dialect, notice

_IN_STRUCTURE: Final = "The result is in structuredContent."
# The path of a block that is left out as a whole: a text is cut at `/content/0/text`.
_WHOLE_BLOCK: Final = re.compile(r"/content/\d+")
# How many times larger records may be than their values.
_KEYS: Final = 8
_MISS: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "found": {"const": False},
        "hint": {"type": "string"},
        notice.ENVELOPE_KEY: envelope_schema(),
    },
    "required": ["found", "hint"],
}


class Native(Dialect):
    name = "native"
    in_place = True

    def output_schema(self, data: Mapping[str, Any] | bool | None) -> dict[str, Any] | None:
        """Return the data's own schema, widened for a notice, or that of a miss. A failure has no structure."""
        return None if data is None else either(widen(data).schema, _MISS)

    def fit(self, plan: Plan) -> Lanes:
        if plan.payload.page is not None:
            return _page(plan, plan.payload.page)
        plan, unstructured = _with_miss(plan.as_error() if plan.is_error else plan)
        # What a profile adds is no reason to replace an `_envelope` of the payload's own.
        if plan.profile != "minimal" and not _has_own_envelope(plan.payload.node):
            plan = replace(plan, outcome=replace(plan.outcome, extras=_extras(plan)))
        if plan.payload.is_empty and plan.outcome.error is None:
            if plan.schema is None:
                return _without_data(plan)
            plan = _with_placeholder(plan, plan.schema)
        if untouched := _untouched(plan):
            return replace(untouched, structured=None) if unstructured else untouched
        structured: Lane | None = None
        content: Lane | None = None
        node = plan.payload.node
        if (
            node is not None
            and plan.outcome.error is None
            and not unstructured
            and _has_structure(plan, node)
        ):
            if plan.shares:
                structured, content = _once(plan, node)
                plan = replace(plan, reserved=plan.reserved + content.load) if content else plan.halved()
            structured = structured or _structured(plan, node)
            if structured is None:
                plan = plan.failed(plan.too_large())
        if plan.outcome.error is not None:
            plan = plan.as_error()
        if content is None and not plan.payload.is_empty:
            content = _content(plan, structured)
            if content is not None and _is_respelled(plan.payload, content):
                plan = replace(plan, outcome=plan.outcome.warned(notice.respelled(plan.outcome.handle)))
                content = _content(plan, structured)
        if structured is not None and content is not None and node is not None:
            # Many clients show the structure alone, and beside it only what isn't text.
            hidden = tuple([cut for cut in content.cuts if _WHOLE_BLOCK.fullmatch(cut.path)])
            telling = replace(plan, image_cuts=(*plan.image_cuts, *hidden))
            structured = (_structured(telling, node) if hidden else None) or structured
        if content is None and plan.outcome.error is not None and plan.payload.is_empty:
            content = _failure_only(plan, ())
        if content is None:
            plan, structured = plan.failed(plan.too_large()), None
            content = _failure_only(plan, (Cut("", "bytes", 0, plan.payload.size, 0),))
        if plan.table != "json" and structured is None and len(content.cuts) == 1:
            plan, content = _as_table(plan, content)
        main = structured if structured and structured.cuts else content
        both = plan.payload.blocks is not None and main is structured
        outcome = plan.with_cuts((*main.cuts, *content.cuts) if both else main.cuts)
        if outcome.extras:
            budget = {**outcome.extras["budget"], "used": (structured or content).used}
            outcome = replace(outcome, extras={**outcome.extras, "budget": budget})
        return Lanes(content, structured, bool(plan.is_error), plan.outcome, notice.meta(outcome))


def _with_miss(plan: Plan) -> tuple[Plan, bool]:
    """Return the plan with a miss, if there is one, as its payload, and whether the schema doesn't allow that."""
    if plan.outcome.miss is None:
        return plan, False
    payload = plan.whole
    if plan.schema is not None and not plan.schema.is_valid(payload.original()):
        # The advertised schema doesn't allow a miss, so clients would reject the structure.
        return replace(plan, payload=payload, wrap=False, schema=None, is_error=True), True
    return replace(plan, payload=payload, wrap=False), False


def _without_data(plan: Plan) -> Lanes:
    """Return the lanes of a reply without data: its other fields as text."""

    def finish(length: int) -> Lane:
        def render(outcome: Outcome) -> Lane:
            return plan.content(_around([], outcome, length), ())

        return _with_figures(plan, (), length, render)

    content = first_that_fits(finish, plan.limit)
    return Lanes(content, None, bool(plan.is_error), plan.outcome, notice.meta(plan.outcome))


def _with_placeholder(plan: Plan, schema: Schema) -> Plan:
    """Return the plan of a tool that returned no data with the least that its schema allows, or with a failure."""
    bare = b"null" if plan.wrap else b"{}"
    if schema.is_valid(b'{"result":null}' if plan.wrap else bare):
        return replace(plan, payload=Payload(node=parse(bare)))
    message = "The tool returned no data, but its output schema requires some."
    return replace(plan, outcome=replace(plan.outcome, error=CATALOGUE.problem("BAD_RESULT", message)))


def _around(parts: list[bytes], outcome: Outcome, length: int) -> list[bytes]:
    """Return the notice as text, then the payload's blocks, then the reply's texts and links."""
    note = notice.text_note(outcome, length)
    return [*([text_block(note)] if note else []), *parts, *notice.extra_blocks(outcome, length)]


def _extras(plan: Plan) -> dict[str, Any]:
    """Return what the profiles standard and debug add."""
    outcome, budget = plan.outcome, plan.budget
    # The amount used is known only at the end; until then the limit is its placeholder.
    extras: dict[str, Any] = {"budget": {"limit": budget.limit, "unit": budget.unit, "used": budget.limit}}
    if outcome.tool is not None:
        extras["tool"] = outcome.tool
    if outcome.request_id is not None:
        extras["requestId"] = outcome.request_id
    if outcome.duration_ms is not None or plan.profile == "debug":
        extras["durationMs"] = outcome.duration_ms
    if plan.profile == "debug":
        extras["budget"]["meter"] = budget.meter.name
        extras["totalBytes"] = plan.payload.size
    return extras


def _has_structure(plan: Plan, node: Node) -> bool:
    return node.kind == "object" or plan.schema is not None or plan.wrap


def _takes_notice(node: Node | None) -> TypeGuard[Node]:
    try:
        return node is not None and node.kind == "object" and node.members() is not None
    except TooDeep:
        return False


def _has_own_envelope(node: Node | None) -> bool:
    return _takes_notice(node) and any(map(_is_own_envelope, node.members()))


def _is_own_envelope(member: Member) -> bool:
    # Some readers disregard case.
    return member.key.casefold() == notice.ENVELOPE_KEY


class _WithoutOwn(Fitter):
    """Fits an object without the `_envelope` of its own, which a notice takes the place of: that is a cut, too."""

    def __init__(self, node: Node, place: Place, plan: Plan, base: str) -> None:
        own = list(filter(_is_own_envelope, node.members()))
        kept = [member for member in node.members() if not _is_own_envelope(member)]
        body = b"{%b}" % b",".join(b"%b:%b" % (member.raw_key, member.value) for member in kept)
        super().__init__(Node(body, is_own=node.is_own), place, plan.rankings, base, survey=plan.survey)
        self._own = [Cut(f"{base}/{member.key}", "bytes", 0, len(member.value), 0) for member in own]

    def fit(self, room: int) -> Fitted | None:
        fitted = super().fit(room)
        return fitted and dataclasses.replace(fitted, cuts=(*fitted.cuts, *self._own))


def _fitter(node: Node, place: Place, plan: Plan, base: str = "") -> Fitter:
    if _has_own_envelope(node):
        return _WithoutOwn(node, place, plan, base)
    return Fitter(node, place, plan.rankings, base, survey=plan.survey)


def _untouched(plan: Plan) -> Lanes | None:
    """Return the payload byte for byte, if it fits and there is nothing to report."""
    payload, limit = plan.payload, plan.budget.limit
    if payload.is_empty or payload.partial or payload.size > plan.budget.most_json or plan.image_cuts:
        return None
    if notice.notice(plan.outcome, 0) or plan.outcome.texts or plan.outcome.links:
        return None
    structured: Lane | None = None
    original = b"" if payload.node is None else payload.original()
    if payload.node is not None and _has_structure(plan, payload.node):
        whole = b'{"result":%b}' % original if plan.wrap else original
        structured = plan.lane(whole, (), measured=readable(whole))
    if payload.blocks is not None:
        content = plan.content(payload.blocks, ())
    else:
        text = original if payload.text is None else payload.text
        content = plan.lane(b"[%b%b%b]" % (TEXT_OPEN, encode(text.decode()), TEXT_CLOSE), (), measured=text)
    if not content.fits(limit):
        return None
    if plan.shares and structured is not None and content.load + structured.load > limit:
        return None
    # A text that repeats the structure has its size.
    is_repeated = payload.blocks is None and not plan.wrap
    if structured is not None and not is_repeated and not structured.fits(limit):
        return None
    return Lanes(content, structured, bool(plan.is_error), plan.outcome, None)


# -- structuredContent --------------------------------------------------------------------------------------


def _once(plan: Plan, node: Node) -> tuple[Lane | None, Lane | None]:
    """Return the structure, and a text that refers to it, for a client that shows both lanes.

    There are none if the text has something else to say, or if the schema has no place for the notice.
    """
    line, payload = text_block(_IN_STRUCTURE), plan.payload
    if plan.outcome.texts or plan.outcome.links:
        return None, None
    content: Lane | None = plan.content([line], ())
    if payload.blocks is not None:
        others = as_document(payload).blocks or ()
        said = [index for index, block in enumerate(payload.blocks) if is_text(block)]
        if len(said) > 1 or any(map(is_text, others)):
            return None, None
        # In its place, so that the paths of images stay as they are.
        blocks = [line if index in said else block for index, block in enumerate(payload.blocks)]
        shared = plan.halved()
        content = _blocks(shared, read_blocks(blocks, "head", plan.outcome.link_to, None, plan.image_cuts))
    if content is None:
        return None, None
    structured = _structured(replace(plan, reserved=plan.reserved + content.load), node)
    if structured is None or (structured.cuts and structured.json is structured.body):
        return None, None
    return structured, content


def _structured(plan: Plan, node: Node) -> Lane | None:
    schema = plan.schema
    place = FREE
    if schema is not None:
        place = schema.root.member("result") if plan.wrap else schema.root
    # With blocks, the structure is one of two parts of the stored payload.
    base = "" if plan.payload.blocks is None else "/structuredContent"
    if plan.wrap:
        fitter = Fitter(node, place, plan.rankings, base, survey=plan.survey)
    else:
        fitter = _fitter(node, place, plan, base)
    with_notice = plan.wrap or _takes_notice(node)

    def finish(room: int, length: int) -> Lane | None:
        fitted = fitter.fit(room)
        if fitted is None:
            return None
        body = b'{"result":%b}' % fitted.json if plan.wrap else fitted.json
        if not with_notice:
            return plan.lane(body, fitted.cuts, body, next_room=fitted.next_room)

        def render(outcome: Outcome) -> Lane:
            told = notice.join(notice.notice(outcome, length), body)
            return plan.lane(told, fitted.cuts, body, next_room=fitted.next_room)

        return _with_figures(plan, fitted.cuts, length, render)

    def accept(lane: Lane) -> Lane | None:
        assert schema is not None
        if schema.is_valid(lane.json):
            return lane
        # If the schema is closed and wasn't widened, this lane goes without a notice. And if nothing was cut,
        # the tool itself broke the schema.
        if not lane.cuts or schema.is_valid(lane.body):
            return plan.lane(lane.body, lane.cuts, lane.body)
        return None

    return conforming(plan, fitter, lambda: fullest(plan, node.size, finish), accept)


# -- content ------------------------------------------------------------------------------------------------


def _content(plan: Plan, structured: Lane | None) -> Lane | None:
    """Return the text lane, given the structured one, if there is one."""
    payload = plan.payload
    ends: Ends = "both" if plan.is_error else plan.survey.ends
    if payload.node is not None and payload.blocks is None:
        if structured is not None and _repeats(plan, structured):
            text = b"[%b]" % text_block(structured.json.decode())
            return plan.lane(text, structured.cuts, measured=structured.json)
        place = FREE if plan.schema is None or plan.is_error or plan.wrap else plan.schema.root
        lane = _document_text(plan, payload.node, place, structured)
        if lane is not None or place is FREE:
            return lane
        return _document_text(plan, payload.node, FREE, structured)
    if payload.text is not None:
        held = sniff(payload.text)
        if held is not None and held.kind == "object":
            return _document_text(plan, held, FREE)
        return _blocks(plan, [TextBlock.of_text(payload.text, held, ends, plan.survey)])
    blocks = payload.blocks or ()
    return _blocks(plan, read_blocks(blocks, ends, plan.outcome.link_to, plan.survey, plan.image_cuts))


def _repeats(plan: Plan, structured: Lane) -> bool:
    """Whether the text can be the structure as it is: it has the notice in it, and nothing else is to be shown."""
    has_notice = structured.json is not structured.body
    return has_notice and not plan.wrap and not plan.outcome.texts and not plan.outcome.links


def _is_respelled(payload: Payload, lane: Lane) -> bool:
    """Whether a text that is shown whole is JSON without the whitespace it had."""
    if payload.text is not None:
        # The notice may stand behind an opening brace.
        return not lane.cuts and payload.text.strip(WHITESPACE)[1:] not in lane.measured
    if payload.blocks is None or any(cut.kind == "blocks" and cut.rows for cut in lane.cuts):
        return False  # no text of its own, or whole blocks, as they came
    named = {cut.path.split("/")[2] for cut in lane.cuts if cut.path.startswith("/content/")}
    shown = min((cut.kept for cut in lane.cuts if cut.path == "/content"), default=None)
    blocks = enumerate(read_blocks(payload.blocks[:shown]))
    texts = [
        bytes(block.node.raw)
        for index, block in blocks
        if isinstance(block, TextBlock) and block.node and str(index) not in named
    ]
    return not all(text in lane.json for text in texts)


def _document_text(plan: Plan, node: Node, place: Place, like: Lane | None = None) -> Lane | None:
    fitter = _fitter(node, place, plan)
    inside = _takes_notice(node)

    def finish(room: int, length: int) -> Lane | None:
        fitted = fitter.fit(room)
        if fitted is None:
            return None

        def render(outcome: Outcome) -> Lane:
            if inside:
                body = notice.join(notice.notice(outcome, length), fitted.json)
                blocks = [text_block(body.decode()), *notice.extra_blocks(outcome, length)]
            else:
                blocks = _around([text_block(fitted.json.decode())], outcome, length)
            return plan.content(blocks, fitted.cuts, fitted.next_room)

        return _with_figures(plan, fitted.cuts, length, render)

    return fullest(plan, node.size, finish, like)


def _blocks(plan: Plan, blocks: Sequence[Block]) -> Lane | None:
    @cache
    def order() -> Sequence[int] | None:
        # Beside a structure they are no table in the stored payload.
        return best_first(blocks, plan.survey) if plan.payload.node is None else None

    def finish(room: int, length: int) -> Lane | None:
        cuts: list[Cut] = []
        parts = fit_blocks(blocks, room, cuts, order)
        if parts is None:
            return None

        def render(outcome: Outcome) -> Lane:
            return plan.content(_around(parts, outcome, length), tuple(cuts))

        return _with_figures(plan, tuple(cuts), length, render)

    return fullest(plan, sum(block.size for block in blocks) + len(blocks) + 1, finish)


def _as_table(plan: Plan, lane: Lane) -> tuple[Plan, Lane]:
    """Return the lane with its list in the form that the plan asks for, if more of its records fit that way.

    What JSON would show has been found: the form starts from those rows and takes more, in the same order.
    """
    cut, payload = lane.cuts[0], plan.payload
    is_bound = plan.schema is not None or plan.is_error or payload.partial
    document = None if is_bound else _document(payload)
    if document is None or cut.kind != "items" or not cut.kept:
        return plan, lane
    root, opening, closing, base, rankings = *document, plan.rankings
    inside = not base and root.kind == "object"
    if base or (payload.text is not None and not inside):
        rankings = {}  # as for any list in a block
    fitter = Fitter(root, FREE, rankings, base, survey=plan.survey)
    room = plan.budget.most_bytes
    found = fitter.opened(cut, _KEYS * room)
    if found is None:
        return plan, lane
    value, order, before, after = found
    # The form says more than that whitespace was left out.
    remarks = tuple(each for each in plan.outcome.warnings if each != notice.respelled(plan.outcome.handle))
    bare = replace(plan, outcome=replace(plan.outcome, warnings=remarks))
    table = RecordTable(value.node.items(_KEYS * room), order, room)

    def make(count: int, form: str) -> tuple[Plan, Lane]:
        header, *rows = lines[: count + 1]
        text = joined([header, *map(bytes, value.arranged(order[:count], rows))], form)
        if form == "rows" or before:
            text = readable(before + (encode(text.decode()) if form == "csv" else text) + after)
        changed = dataclasses.replace(
            value.cut(order[:count], cut.total), form=form, columns=tuple(table.columns)
        )
        told, cuts = bare, (changed,) if changed.dropped else ()
        if not cuts:
            warning = notice.whole_table(changed, plan.outcome.handle)
            told = replace(bare, outcome=bare.outcome.warned(warning))

        def render(outcome: Outcome) -> Lane:
            if inside:
                body = notice.join(notice.notice(outcome, lane.length), text)
                blocks = [text_block(body.decode()), *notice.extra_blocks(outcome, lane.length)]
            else:
                block = b"%b%b%b" % (opening, encode(text.decode()), closing)
                blocks = _around([block], outcome, lane.length)
            return plan.content(blocks, cuts)

        return told, _with_figures(told, cuts, lane.length, render)

    best, most = (plan, lane), cut.kept
    for form in ("rows", "csv") if plan.table == "auto" else (plan.table,):
        lines = table.lines(form)
        # Only the longest notice says in full that a whole list is spelled differently.
        low, high = most, min(len(table.rows), cut.total - (lane.length > 0))
        while low < high:
            middle = (low + high + 1) // 2
            made = make(middle, form)
            if made[1].fits(plan.limit):
                low, best = middle, made
            else:
                high = middle - 1
        most = low
    if plan.table == "auto" and most < WORTHWHILE * cut.kept:
        return plan, lane
    return best


def _document(payload: Payload) -> tuple[Node, bytes, bytes, str] | None:
    """Return the document in a text lane, the block around its text, and its path; None if there isn't just one."""
    if payload.blocks is None:
        node = payload.node if payload.text is None else sniff(payload.text)
        return None if node is None else (node, TEXT_OPEN, TEXT_CLOSE, "")
    if len(payload.blocks) != 1 or not is_text(payload.blocks[0]):
        return None
    block = read_blocks(payload.blocks)[0]
    if not isinstance(block, TextBlock) or block.node is None or (node := block.node.inner()) is None:
        return None
    return node, block.before, block.after, block.path


def _page(plan: Plan, page: Page) -> Lanes:
    """Return a note on how to continue in a block of its own, then the page as JSON or text."""

    def finish(room: int, length: int) -> Lane | None:
        fitted = page.fit(room)
        if fitted is None:
            return None
        blocks = list(fitted.blocks) if fitted.text is None else [text_block(fitted.text.decode())]
        if not fitted.cuts and (note := _whole_note(page, fitted)):
            blocks.insert(0, text_block(note))
        return plan.content(
            _around(blocks, plan.with_cuts(fitted.cuts), length), fitted.cuts, fitted.next_room
        )

    content = fullest(plan, page.size, finish)
    if content is None:
        plan = plan.failed(plan.too_large())
        content = _failure_only(plan, (Cut(page.path, "bytes", 0, page.size, page.offset),))
    meta = notice.meta(plan.with_cuts(content.cuts))
    is_whole = page.shape == "array" or content.json.startswith(b"[" + text_block(notice.WHOLE))
    noted = bool(content.cuts or plan.outcome.warnings or is_whole)
    return Lanes(content, None, bool(plan.is_error), plan.outcome, meta, noted=noted)


def _whole_note(page: Page, fitted: FittedPage) -> str:
    """Return what comes before a whole page: Gemini CLI refuses a first block that is JSON, but no object."""
    if page.shape == "array":
        return notice.last_items(page.offset, page.total)
    first = fitted.text
    if first is None and fitted.blocks and is_text(fitted.blocks[0]):
        first = msgspec.json.decode(fitted.blocks[0], type=_Words).text.encode()
    return "" if first is None or not is_bare(first) else notice.WHOLE


class _Words(msgspec.Struct):
    text: str = ""


def _failure_only(plan: Plan, cuts: tuple[Cut, ...]) -> Lane:
    """Return a lane with nothing of the payload: the failure alone."""

    def finish(length: int) -> Lane:
        def render(outcome: Outcome) -> Lane:
            body = notice.join(notice.notice(outcome, length), b"{}")
            return plan.content([text_block(body.decode())], cuts)

        return _with_figures(plan, cuts, length, render)

    return first_that_fits(finish, plan.limit)


def _with_figures(plan: Plan, cuts: tuple[Cut, ...], length: int, render: Callable[[Outcome], Lane]) -> Lane:
    """Return the lane with its own size in it. The figure is part of the text, so repeat until it is right."""
    outcome = plan.with_cuts(cuts)
    if not outcome.extras or length > 0:
        return render(outcome)
    used = plan.budget.limit
    for _ in range(5):
        budget = {**outcome.extras["budget"], "used": used}
        lane = render(replace(outcome, extras={**outcome.extras, "budget": budget}))
        if lane.used == used:
            break
        used = lane.used
    return lane
