"""Our own shape: in place, and weightless until it has something to say.

Strategy: a payload that fits goes out byte for byte. Otherwise each lane is fitted for itself, since escaping
makes the text larger than the structure, and each says what *it* leaves out. The structured lane is checked
against the schema after the cut. A payload that cannot be cut for it becomes the coded outcome
RESULT_TOO_LARGE: no structured lane, and in the text, which no schema binds, as much as fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from ..blocks import TEXT_CLOSE, TEXT_OPEN, Block, TextBlock, fit_blocks, read_blocks, text_block
from ..budget import Budget
from ..codes import CATALOGUE
from ..facts import Facts
from ..fitting import Cut, Fitter
from ..job import Job, Lanes
from ..jsontree import Node, TooDeep, encode, parse, sniff
from ..page import Page
from ..payload import Payload, to_json
from ..rooms import Lane
from ..schema import FREE, Place, Schema, widen
from ..schema.wrapping import either, envelope_schema
from ..text import Ends
from . import notice

_MISS: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "found": {"const": False},
        "hint": {"type": "string"},
        notice.ENVELOPE_KEY: envelope_schema(),
    },
    "required": ["found", "hint"],
}
# A payload of more bytes than this to one unit of the budget is not tried as it is.
_HOPELESS: Final = 16


class Native:
    name = "native"

    def budget(self, tokens: int | None, max_bytes: int | None, meter: str | None) -> Budget:
        return Budget.of(tokens=tokens, max_bytes=max_bytes, meter=meter)

    def output_schema(self, data: Mapping[str, Any] | bool | None) -> dict[str, Any] | None:
        """The data's own schema with room for a notice, or that of a miss. A failure has no structure."""
        return None if data is None else either(widen(data).schema, _MISS)

    def seal(self, job: Job) -> Lanes:
        if job.payload.page is not None:
            return _page(job, job.payload.page)
        unstructured = False
        if (miss := job.facts.miss) is not None:
            said = {**(miss.details or {}), "found": False, "hint": miss.hint}
            job.payload = Payload(node=parse(to_json({"found": False, "hint": miss.hint, **said})))
            job.wrap = False
            if job.schema is not None and not job.schema.is_valid(job.payload.original()):
                # Clients were not told of a miss: they would throw such a structure away.
                job.schema, job.is_error, unstructured = None, True, True
        if job.profile != "minimal":
            job.facts = replace(job.facts, extras=_extras(job))
        if job.payload.is_empty and job.facts.error is None:
            if job.schema is None:
                return _words_alone(job)
            _stand_in(job, job.schema)
        if untouched := _untouched(job):
            return replace(untouched, structured=None) if unstructured else untouched
        structured: Lane | None = None
        node = job.payload.node
        if node is not None and job.facts.error is None and not unstructured and _has_structure(job, node):
            structured = _structured(job, node)
            if structured is None:
                _fail(job)
        if job.facts.error is not None:
            job.is_error = True
        content = None if job.payload.is_empty else _content(job)
        if content is None and job.facts.error is not None and job.payload.is_empty:
            content = _last_word(job, ())
        if content is None:
            _fail(job)
            structured, content = None, _last_word(job, (Cut("", "bytes", 0, job.payload.size, 0),))
        main = structured if structured and structured.cuts else content
        both = job.payload.blocks is not None and main is structured
        facts = job.with_cuts((*main.cuts, *content.cuts) if both else main.cuts)
        if facts.extras:
            budget = {**facts.extras["budget"], "used": (structured or content).used}
            facts = replace(facts, extras={**facts.extras, "budget": budget})
        return Lanes(content, structured, bool(job.is_error), job.facts, notice.meta(facts))


def _words_alone(job: Job) -> Lanes:
    """A reply without data: what it says besides."""

    def finish(length: int) -> Lane:
        def render(facts: Facts) -> Lane:
            return job.lane(b"[%b]" % b",".join(_around([], facts, length)), ())

        return _with_figures(job, (), length, render)

    content = job.first_that_fits(finish)
    return Lanes(content, None, bool(job.is_error), job.facts, notice.meta(job.facts))


def _stand_in(job: Job, schema: Schema) -> None:
    """A reply without data, of a tool that promised some: the least that is valid, or a failure."""
    bare = b"null" if job.wrap else b"{}"
    if schema.is_valid(b'{"result":null}' if job.wrap else bare):
        job.payload = Payload(node=parse(bare))
        return
    message = "The tool replied without data, and its output schema asks for some."
    job.facts = replace(job.facts, error=CATALOGUE.problem("BAD_RESULT", message))


def _around(parts: list[bytes], facts: Facts, length: int) -> list[bytes]:
    """The blocks of a payload, then what was said besides, then the notice as words."""
    note = notice.text_note(facts, length)
    return [*parts, *notice.beside(facts, length), *([text_block(note)] if note else [])]


def _fail(job: Job) -> None:
    job.facts = replace(job.facts, error=job.too_large())
    job.is_error = True


def _extras(job: Job) -> dict[str, Any]:
    """What the profiles standard and debug show besides."""
    facts, budget = job.facts, job.budget
    # What is used is known at the end; until then the limit keeps its place.
    extras: dict[str, Any] = {"budget": {"limit": budget.limit, "unit": budget.unit, "used": budget.limit}}
    if facts.tool is not None:
        extras["tool"] = facts.tool
    if facts.request_id is not None:
        extras["requestId"] = facts.request_id
    if facts.duration_ms is not None or job.profile == "debug":
        extras["durationMs"] = facts.duration_ms
    if job.profile == "debug":
        extras["budget"]["meter"] = budget.meter.name
        extras["totalBytes"] = job.payload.size
    return extras


def _has_structure(job: Job, node: Node) -> bool:
    return node.kind == "object" or job.schema is not None or job.wrap


def _takes_notice(node: Node) -> bool:
    try:
        return node.kind == "object" and all(member.key != notice.ENVELOPE_KEY for member in node.members())
    except TooDeep:
        return False


def _untouched(job: Job) -> Lanes | None:
    """The payload byte for byte, if it fits and there is nothing to say."""
    payload, limit = job.payload, job.budget.limit
    if payload.is_empty or payload.partial or payload.size > _HOPELESS * limit:
        return None
    if notice.notice(job.facts, 0) or job.facts.texts or job.facts.links:
        return None
    structured: Lane | None = None
    if payload.node is not None:
        original = payload.original()
        if _has_structure(job, payload.node):
            structured = job.lane(b'{"result":%b}' % original if job.wrap else original, ())
    if payload.blocks is not None:
        text = b"[%b]" % b",".join(payload.blocks)
    elif payload.node is not None:
        text = b"[%b%b%b]" % (TEXT_OPEN, encode(payload.original().decode()), TEXT_CLOSE)
    elif payload.text is not None:
        text = b"[%b%b%b]" % (TEXT_OPEN, encode(payload.text.decode()), TEXT_CLOSE)
    else:
        return None
    content = job.lane(text, ())
    if not content.fits(limit):
        return None
    if structured is not None and not _is_lighter(job, structured) and not structured.fits(limit):
        return None
    return Lanes(content, structured, bool(job.is_error), job.facts, None)


def _is_lighter(job: Job, structured: Lane) -> bool:
    """Whether the structure needs no counting of its own, because the text has the same and escapes besides."""
    return job.budget.meter.escapes_add and not job.wrap and job.payload.blocks is None


# -- structuredContent --------------------------------------------------------------------------------------


def _structured(job: Job, node: Node) -> Lane | None:
    schema = job.schema
    place = FREE
    if schema is not None:
        place = schema.root.member("result") if job.wrap else schema.root
    # Beside blocks the structure is one of two parts of what is stored.
    base = "" if job.payload.blocks is None else "/structuredContent"
    fitter = Fitter(node, place, job.rankings, base)
    with_notice = job.wrap or _takes_notice(node)

    def finish(room: int, length: int) -> Lane | None:
        fitted = fitter.fit(room)
        if fitted is None:
            return None
        body = b'{"result":%b}' % fitted.json if job.wrap else fitted.json
        if not with_notice:
            return job.lane(body, fitted.cuts, body)

        def render(facts: Facts) -> Lane:
            return job.lane(notice.join(body, notice.notice(facts, length)), fitted.cuts, body)

        return _with_figures(job, fitted.cuts, length, render)

    def accept(lane: Lane) -> Lane | None:
        assert schema is not None
        if schema.is_valid(lane.json):
            return lane
        # A closed schema that nobody widened: the notice stays out of this lane. And what is whole and does
        # not conform is the tool's own doing.
        if not lane.cuts or schema.is_valid(lane.body):
            return job.lane(lane.body, lane.cuts, lane.body)
        return None

    return job.conforming(fitter, lambda: job.search(node.size, finish), accept)


# -- content ------------------------------------------------------------------------------------------------


def _content(job: Job) -> Lane | None:
    payload = job.payload
    ends: Ends = "both" if job.is_error else "head"
    if payload.node is not None and payload.blocks is None:
        place = FREE if job.schema is None or job.is_error or job.wrap else job.schema.root
        lane = _document_text(job, payload.node, place)
        return lane if lane is not None or place is FREE else _document_text(job, payload.node, FREE)
    if payload.text is not None:
        held = sniff(payload.text)
        if held is not None and held.kind == "object":
            return _document_text(job, held, FREE)
        return _blocks(job, [TextBlock.of_text(payload.text, held, ends)])
    return _blocks(job, read_blocks(payload.blocks or (), ends, job.facts.link_to))


def _document_text(job: Job, node: Node, place: Place) -> Lane | None:
    fitter = Fitter(node, place, job.rankings)
    inside = _takes_notice(node)

    def finish(room: int, length: int) -> Lane | None:
        fitted = fitter.fit(room)
        if fitted is None:
            return None

        def render(facts: Facts) -> Lane:
            if inside:
                body = notice.join(fitted.json, notice.notice(facts, length))
                shown = [text_block(body.decode()), *notice.beside(facts, length)]
            else:
                shown = _around([text_block(fitted.json.decode())], facts, length)
            return job.lane(b"[%b]" % b",".join(shown), fitted.cuts)

        return _with_figures(job, fitted.cuts, length, render)

    return job.search(node.size, finish)


def _blocks(job: Job, blocks: Sequence[Block]) -> Lane | None:
    def finish(room: int, length: int) -> Lane | None:
        cuts: list[Cut] = []
        parts = fit_blocks(blocks, room, cuts)
        if parts is None:
            return None

        def render(facts: Facts) -> Lane:
            return job.lane(b"[%b]" % b",".join(_around(parts, facts, length)), facts.cuts)

        return _with_figures(job, tuple(cuts), length, render)

    return job.search(sum(block.size for block in blocks) + len(blocks) + 1, finish)


def _page(job: Job, page: Page) -> Lanes:
    """A page is shown as it is, JSON or text, and what follows it is told in a block of its own."""
    job.facts = replace(job.facts, reading=page.reading)

    def finish(room: int, length: int) -> Lane | None:
        fitted = page.fit(room)
        if fitted is None:
            return None
        shown = list(fitted.blocks) if fitted.text is None else [text_block(fitted.text.decode())]
        facts = job.with_cuts(fitted.cuts)
        if note := notice.text_note(facts, length):
            shown.append(text_block(note))
        return job.lane(b"[%b]" % b",".join(shown), fitted.cuts)

    content = job.search(page.size, finish)
    if content is None:
        _fail(job)
        content = _last_word(job, (Cut(page.path, "bytes", 0, page.size, page.offset),))
    return Lanes(content, None, bool(job.is_error), job.facts, notice.meta(job.with_cuts(content.cuts)))


def _last_word(job: Job, cuts: tuple[Cut, ...]) -> Lane:
    """Nothing of the payload is there: the coded outcome alone."""

    def finish(length: int) -> Lane:
        def render(facts: Facts) -> Lane:
            said = notice.join(b"{}", notice.notice(facts, length))
            return job.lane(b"[%b]" % text_block(said.decode()), cuts)

        return _with_figures(job, cuts, length, render)

    return job.first_that_fits(finish)


def _with_figures(job: Job, cuts: tuple[Cut, ...], length: int, render: Callable[[Facts], Lane]) -> Lane:
    """The lane with the figure of what it uses in it, which is part of what it uses: written until it is true."""
    facts = job.with_cuts(cuts)
    if not facts.extras or length > 0:
        return render(facts)
    used = job.budget.limit
    for _ in range(5):
        budget = {**facts.extras["budget"], "used": used}
        lane = render(replace(facts, extras={**facts.extras, "budget": budget}))
        if lane.used == used:
            break
        used = lane.used
    return lane
