"""Images, audio and other content blocks, for dialects whose document has no place for them.

Strategy: the published contracts put JSON into a text block, and an image isn't JSON. So such a block stays a
content block, after the dialect's own, and the data holds a label for it. Document and blocks share one budget:
the blocks get what the document leaves, or half of the budget if that is more, and the document is then fitted
to the rest. A block that doesn't fit is replaced by a line that describes it, and a note says how to read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from ..budget import MIN_BYTES, MIN_TOKENS
from ..fit.blocks import Block, fit_blocks, is_text, label, read_block, read_blocks
from ..fit.documents import Cut
from ..jsontext.document import Node, encode, text_block
from ..lanes import Lane, Lanes, Plan, largest_room
from ..payload import Payload, as_document, shown
from . import Dialect, notice

# Two texts together may count for slightly more than the sum of both.
_SEAM: Final = 8


def fit_with_attachments(dialect: Dialect, plan: Plan) -> Lanes:
    """Return the lanes with the dialect's document and, after it, the payload's other content blocks."""
    payload = plan.payload
    if payload.blocks is None:
        return dialect.fit(plan)
    base = "/content" if payload.node is None else "/structuredContent"
    every = read_blocks(payload.blocks, handle=plan.outcome.link_to, known=plan.image_cuts)
    # Our own shape has a place for texts beside the data, unless they only repeat it.
    texts = tuple(raw for raw in payload.blocks if is_text(raw))
    keeps_texts = dialect.in_place and as_document(replace(payload, blocks=texts)).blocks is not None
    blocks = [
        block for block, raw in zip(every, payload.blocks, strict=True) if keeps_texts or not is_text(raw)
    ]
    if (
        not dialect.in_place
        and payload.node is not None
        and (size := sum(len(raw) for raw in payload.blocks if is_text(raw)))
    ):
        warning = _hidden_text(size, plan.outcome.handle)
        if dialect.shows_warnings:
            plan = _lacking(plan, warning)
        else:
            blocks.insert(0, read_block(text_block(warning), "/content"))
    image_cuts = plan.image_cuts
    if not dialect.in_place:
        plan = replace(plan, image_cuts=())
        if dialect.shows_warnings:
            plan = _lacking(plan, *notice.image_sentences(image_cuts, plan.outcome))
            image_cuts = ()
    plan = replace(plan, base=base, payload=_data(payload))
    lanes = dialect.fit(plan)
    if not blocks:
        return lanes
    bare, told = plan, ""
    # Many clients show their models the structure alone, so a dialect that has warnings has the note there.
    noted = not dialect.in_place and dialect.shows_warnings
    room = _room(plan, lanes.content)
    while room > 0:
        parts = _fitted(plan, blocks, room, () if dialect.in_place else image_cuts, noted=noted)
        if parts is None:
            break
        if noted and parts.cuts and (said := _told(plan, parts.cuts)) != told:
            told, plan = said, _lacking(bare, said, count=len(parts.cuts))
            lanes = dialect.fit(plan)
        whole = _joined(plan, lanes, parts)
        if whole is None:
            # The document took too much: fit it again to what the blocks leave.
            smaller = replace(plan, reserved=parts.load + _SEAM)
            lanes = dialect.fit(smaller)
            # ctxo's document may exceed its limit, as its contract says.
            must = plan.budget.is_own and not lanes.content.fits(smaller.limit)
            whole = _joined(plan, lanes, parts, must=must)
        if whole is not None and (not told or _says(whole, told)):
            return whole
        if whole is None:
            room = room * 3 // 4 - _SEAM
        else:
            # The document has no room for the note, so it stands behind the blocks.
            noted, told, plan = False, "", _lacking(bare, count=len(parts.cuts))
            lanes = dialect.fit(plan)
    return _without(dialect, bare, len(blocks))


def _lacking(plan: Plan, *warnings: str, count: int | None = None) -> Plan:
    """Return the plan with what it leaves out beside the data, as warnings; `count` blocks, else one for each."""
    outcome = plan.outcome
    for warning in warnings:
        outcome = outcome.warned(warning)
    lacking = len(warnings) if count is None else count
    return replace(plan, outcome=replace(outcome, lacking=outcome.lacking + lacking))


def _told(plan: Plan, cuts: tuple[Cut, ...]) -> str:
    return notice.sentence(replace(plan.outcome, cuts=cuts), 1, beside_handle=False)


def _says(lanes: Lanes, told: str) -> bool:
    shown = (lanes.structured or lanes.content).measured
    return told.encode() in shown or encode(told)[1:-1] in shown


def _hidden_text(size: int, handle: str | None) -> str:
    """Return the warning of a text beside the structure, for which most dialects have no place."""
    rest = "It was not kept." if handle is None else notice.read_it(handle, "/content")
    return f"The text that came with the structure ({size} bytes) is not shown. {rest}"


def _without(dialect: Dialect, plan: Plan, count: int) -> Lanes:
    """Return the document without the blocks, not even described, and with a warning where the dialect shows it."""
    handle = plan.outcome.handle
    rest = "It was not kept." if handle is None else notice.read_it(handle, "/content")
    warning = f"{count} content block{'s' if count > 1 else ''} left out to fit. {rest}"
    lanes = dialect.fit(_lacking(plan, warning, count=count))
    cuts = (*lanes.content.cuts, Cut("/content", "blocks", 0, count, 0))
    content = lanes.content.with_cuts(cuts)
    return replace(lanes, content=content, meta=notice.meta(replace(lanes.outcome, cuts=cuts)))


def _data(payload: Payload) -> Payload:
    """Return what a document can hold: the structure, or the texts with a label for every other block."""
    if payload.node is not None:
        return Payload(node=payload.node, source=payload.source, partial=payload.partial)
    listed = [raw if is_text(raw) else encode(label(raw)) for raw in payload.blocks or ()]
    return Payload(node=Node(b"[%b]" % b",".join(listed)))


def _room(plan: Plan, document: Lane) -> int:
    """Return what the blocks may use, in the budget's unit, so that the smallest document is still possible."""
    limit = plan.budget.limit
    least = MIN_BYTES if plan.budget.unit == "bytes" else MIN_TOKENS
    return min(max(limit - document.load - _SEAM, limit // 2), limit - min(least, document.load + _SEAM))


def _fitted(
    plan: Plan, blocks: Sequence[Block], limit: int, image_cuts: Sequence[Cut], *, noted: bool
) -> Lane | None:
    """Return the blocks, without brackets, and a note if not all of them are whole and it isn't elsewhere."""
    size = sum(block.size for block in blocks) + len(blocks) + 1

    def attempt(room: int) -> Lane | None:
        cuts: list[Cut] = []
        parts = fit_blocks(blocks, room, cuts)
        if parts is None:
            return None
        if (cuts or image_cuts) and not noted:
            parts.append(text_block(_told(plan, (*image_cuts, *cuts))))
        return plan.lane(b",".join(parts), tuple(cuts), measured=shown(parts))

    most = min(size, plan.budget.most_json)
    whole = attempt(size) if size <= most else None
    if whole is not None and whole.fits(limit):
        return whole
    return largest_room(attempt, limit, min(limit * 3, most), most)


def _joined(plan: Plan, lanes: Lanes, parts: Lane, must: bool = False) -> Lanes | None:
    """Return the document and its blocks in one lane, if that is within the budget."""
    document = lanes.content
    inside = [part for part in (document.json[1:-1], parts.json) if part]
    cuts = (*document.cuts, *parts.cuts)
    content = plan.lane(
        b"[%b]" % b",".join(inside), cuts, document.body, document.measured + b"\n" + parts.measured
    )
    if not must and not content.fits(plan.budget.limit):
        return None
    meta = notice.meta(replace(lanes.outcome, cuts=cuts)) if parts.cuts else lanes.meta
    return replace(lanes, content=content, meta=meta)
