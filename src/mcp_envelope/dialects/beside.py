"""Blocks that are no text, beside the document of a dialect that has no place for them.

Strategy: the other projects' documents are JSON in a text part, and an image is no JSON. So a block that is no text
stays a content block, behind the dialect's own parts; in the data stands its label. Document and blocks share one
budget: the blocks get what the document leaves, or half of it if that is more, and the document is made again for
the rest. A block for which there is no room becomes a line that says what was there; a note tells how to get it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from ..blocks import Block, fit_blocks, is_text, label, read_block, text_block
from ..budget import MIN_BYTES, MIN_TOKENS, Budget
from ..fitting import Cut
from ..job import Dialect, Job, Lanes, most_bytes
from ..jsontree import Node, encode
from ..payload import Payload
from ..rooms import Lane, largest_room
from . import notice

# What two texts count for together may be a little more than what each does.
_SEAM: Final = 8


class Beside:
    """A dialect whose document is JSON, with room for content blocks behind it."""

    def __init__(self, inner: Dialect) -> None:
        self._inner = inner
        self.name = inner.name

    def budget(self, tokens: int | None, max_bytes: int | None, meter: str | None) -> Budget:
        return self._inner.budget(tokens, max_bytes, meter)

    def output_schema(self, data: Mapping[str, Any] | bool | None) -> dict[str, Any] | None:
        return self._inner.output_schema(data)

    def seal(self, job: Job) -> Lanes:
        payload = job.payload
        job.base, job.reserved = "", 0
        if payload.blocks is None:
            return self._inner.seal(job)
        job.base = "/content" if payload.node is None else "/structuredContent"
        job.payload = _data(payload)
        blocks = [
            read_block(raw, f"/content/{index}", handle=job.facts.link_to)
            for index, raw in enumerate(payload.blocks)
            if not is_text(raw)
        ]
        facts = job.facts
        lanes = self._inner.seal(job)
        if not blocks:
            return lanes
        room = _room(job, lanes.content)
        while room > 0:
            parts = _fitted(job, blocks, room)
            if parts is None:
                break
            if (whole := _joined(job, lanes, parts)) is not None:
                return whole
            # The document took too much: it is made again, for what the blocks leave.
            job.facts, job.reserved = facts, parts.used + _SEAM
            lanes = self._inner.seal(job)
            # ctxo's document may be larger than its limit, and nothing can be done about it.
            if (whole := _joined(job, lanes, parts, must=not lanes.content.fits(job.limit))) is not None:
                return whole
            room = room * 3 // 4 - _SEAM
        return self._left_out(job, len(blocks))

    def _left_out(self, job: Job, count: int) -> Lanes:
        """No room for as much as a line about each: the document says so, if it can."""
        words = f"{count} content block{'s' if count > 1 else ''} left out to fit."
        job.facts, job.reserved = replace(job.facts, warnings=(*job.facts.warnings, words)), 0
        lanes = self._inner.seal(job)
        cuts = (*lanes.content.cuts, Cut("/content", "blocks", 0, count, 0))
        content = lanes.content.with_cuts(cuts)
        return replace(lanes, content=content, meta=notice.meta(replace(lanes.facts, cuts=cuts)))


def _data(payload: Payload) -> Payload:
    """What a document can hold: the structure, or the texts, and of any other block its label."""
    if payload.node is not None:
        return Payload(node=payload.node, source=payload.source, partial=payload.partial)
    shown = [raw if is_text(raw) else encode(label(raw)) for raw in payload.blocks or ()]
    return Payload(node=Node(b"[%b]" % b",".join(shown)))


def _room(job: Job, document: Lane) -> int:
    """What blocks may use, in the budget's unit. The smallest document has to stay possible."""
    limit = job.budget.limit
    least = MIN_BYTES if job.budget.unit == "bytes" else MIN_TOKENS
    return min(max(limit - document.used - _SEAM, limit // 2), limit - min(least, document.used + _SEAM))


def _fitted(job: Job, blocks: Sequence[Block], limit: int) -> Lane | None:
    """The blocks, without brackets around them, and a note if not all of them are whole."""
    size = sum(block.size for block in blocks) + len(blocks) + 1

    def attempt(room: int) -> Lane | None:
        cuts: list[Cut] = []
        parts = fit_blocks(blocks, room, cuts)
        if parts is None:
            return None
        if cuts:
            note = notice.sentence(job.with_cuts(tuple(cuts)), 1, beside_handle=False)
            parts.append(text_block(note))
        return job.lane(b",".join(parts), tuple(cuts))

    most = min(size, most_bytes(job.budget))
    whole = attempt(size) if size <= most else None
    if whole is not None and whole.fits(limit):
        return whole
    return largest_room(attempt, limit, min(limit * 3, most), most)


def _joined(job: Job, lanes: Lanes, parts: Lane, must: bool = False) -> Lanes | None:
    """The document and its blocks in one lane, if that is within the budget."""
    document = lanes.content
    inside = [part for part in (document.json[1:-1], parts.json) if part]
    cuts = (*document.cuts, *parts.cuts)
    content = job.lane(
        b"[%b]" % b",".join(inside), cuts, document.body, document.measured + b"," + parts.json
    )
    if not must and not content.fits(job.budget.limit):
        return None
    meta = notice.meta(replace(lanes.facts, cuts=cuts)) if parts.cuts else lanes.meta
    return replace(lanes, content=content, meta=meta)
