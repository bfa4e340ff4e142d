"""The one door everything goes through: a payload in, a result that fits out.

Strategy: the payload is read once. If both lanes are within the budget and there is nothing to say, its
bytes go out as they came. Otherwise each lane is finished on its own: the largest room whose finished text
(payload, notice, escaping, every block) the meter accepts. A lane's text is what stands on the wire: the JSON
of `structuredContent`, the JSON of `content`. The structured lane is checked against the schema after the
cut; a cut that the schema does not take is undone and another one made. What cannot be cut becomes the coded
outcome RESULT_TOO_LARGE: no structured lane, and as much of the payload as fits in the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any, Final, Literal

from .blocks import TEXT_CLOSE, TEXT_OPEN, TextBlock, fit_blocks, read_blocks, text_block
from .budget import Budget
from .dialects import native
from .facts import Facts, Problem
from .fitting import Cut, Fitter
from .jsontree import Node, compact, encode, sniff
from .payload import As, Payload, read_payload
from .ranking import Ranking
from .rooms import Lane, largest_room
from .schema import FREE, Schema
from .text import Ends

Profile = Literal["minimal", "standard", "debug"]
PROFILES: Final[tuple[Profile, ...]] = ("minimal", "standard", "debug")

# A cut that the schema refuses is undone so many times before the result counts as one that cannot be cut.
_REFUSALS: Final = 24
# Bytes to a token of JSON: where the search starts.
_TYPICAL_RATE: Final = 3.0
# What a handle may look like: the smallest budget must have room for it, and a call must be able to name it.
_HANDLE: Final = re.compile(r"[A-Za-z0-9._~-]{1,43}")


@dataclass(frozen=True, slots=True)
class Report:
    """What the result uses of its budget. `total` is the payload before any cut, in the budget's unit."""

    limit: int
    unit: str
    meter: str
    used: int
    total: int
    content_used: int
    structured_used: int | None


class Sealed:
    """A result, ready for the wire."""

    def __init__(
        self,
        content: Lane,
        structured: Lane | None,
        *,
        is_error: bool,
        facts: Facts,
        budget: Budget,
        payload: Payload,
    ) -> None:
        self._content = content
        self._structured = structured
        self._facts = facts
        self._budget = budget
        self._payload = payload
        self.is_error = is_error

    @property
    def content(self) -> bytes:
        """The JSON of `content`, as it was measured."""
        return self._content.json

    @property
    def structured(self) -> bytes | None:
        """The JSON of `structuredContent`, as it was measured, if there is any."""
        return self._structured.json if self._structured else None

    @property
    def content_cuts(self) -> tuple[Cut, ...]:
        return self._content.cuts

    @property
    def structured_cuts(self) -> tuple[Cut, ...]:
        return self._structured.cuts if self._structured else ()

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._facts.warnings

    @property
    def meta(self) -> Mapping[str, Any] | None:
        """The facts for machines, under one key of ours."""
        return native.meta(replace(self._facts, cuts=self.cuts))

    @cached_property
    def report(self) -> Report:
        """Made when asked for: a result that fits by its bytes alone is never counted otherwise."""
        content, structured = self._content, self._structured
        used = max(content.used, structured.used if structured else 0)
        return Report(
            limit=self._budget.limit,
            unit=self._budget.unit,
            meter=self._budget.meter.name,
            used=used,
            total=max(used, self._total()),
            content_used=content.used,
            structured_used=structured.used if structured else None,
        )

    def _total(self) -> int:
        """The payload's size in the budget's unit: measured if it is whole, else reckoned from a part."""
        lane = self._structured or self._content
        size = self._payload.size
        if not lane.cuts or self._budget.unit == "bytes":
            return size if lane.cuts else 0
        sample = self._payload.sample() if self._facts.error else lane.json
        return round(size * self._budget.meter.count(sample) / max(len(sample), 1))

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """What was left out of the structured lane, or of the text where that lane is whole or absent."""
        return self.structured_cuts or self.content_cuts

    @property
    def truncated(self) -> bool:
        return bool(self.cuts)

    def to_json(self) -> bytes:
        """The `CallToolResult` as one line of JSON, the lanes byte for byte as they were measured."""
        parts = [b'"content":%b' % self.content]
        if self.structured is not None:
            # A message is one line on stdio, so what came with line breaks is sent without.
            body = self.structured
            if b"\n" in body or b"\r" in body:
                body = compact(body)
            parts.append(b'"structuredContent":%b' % body)
        if self.is_error:
            parts.append(b'"isError":true')
        if self.meta:
            parts.append(b'"_meta":%b' % encode(self.meta))
        return b"{%b}" % b",".join(parts)

    def to_result(self) -> dict[str, Any]:
        """The `CallToolResult` as Python objects. `to_json` keeps the spelling of numbers, this does not."""
        result: dict[str, Any] = json.loads(self.to_json(), parse_float=_number)
        return result


def _number(text: str) -> float | Decimal:
    number = float(text)
    return Decimal(text) if number in (float("inf"), float("-inf")) else number


def seal(
    payload: Any,
    *,
    tokens: int | None = None,
    max_bytes: int | None = None,
    meter: str | None = None,
    budget: Budget | None = None,
    schema: Schema | Mapping[str, Any] | bool | None = None,
    wrap: bool = False,
    rank: Mapping[str, Ranking] | None = None,
    profile: Profile = "minimal",
    handle: str | None = None,
    hint: str | None = None,
    warnings: Iterable[str] = (),
    tool: str | None = None,
    request_id: str | None = None,
    duration_ms: float | None = None,
    is_error: bool = False,
    read_as: As = "auto",
) -> Sealed:
    """Fit a tool's payload into a budget.

    `schema` is the output schema that clients were told; if it was made by `widen` and wrapped, say `wrap`.
    `rank` maps the path of a list to its ranking. `handle` names the stored payload, if it was stored.
    """
    if budget is None:
        budget = Budget.of(tokens=tokens, max_bytes=max_bytes, meter=meter)
    if handle is not None and not _HANDLE.fullmatch(handle):
        raise ValueError(f"a handle has 1 to 43 letters, digits or . _ ~ -, got {handle[:60]!r}")
    if profile not in PROFILES:
        raise ValueError(f"profile is one of {', '.join(PROFILES)}; got {profile!r}")
    said = (*warnings, *([budget.warning] if budget.warning else []))
    facts = Facts(handle=handle, hint=hint, warnings=said)
    read = read_payload(payload, read_as)
    if profile != "minimal":
        facts = replace(facts, extras=_extras(profile, budget, read, tool, request_id, duration_ms))
    if schema is not None and not isinstance(schema, Schema):
        schema = Schema.of(schema)
    return _Sealing(read, budget, facts, schema, wrap, rank or {}, is_error).run()


def _extras(
    profile: Profile,
    budget: Budget,
    payload: Payload,
    tool: str | None,
    request_id: str | None,
    duration_ms: float | None,
) -> dict[str, Any]:
    # What is used is known at the end; until then the limit keeps its place.
    extras: dict[str, Any] = {"budget": {"limit": budget.limit, "unit": budget.unit, "used": budget.limit}}
    if tool is not None:
        extras["tool"] = tool
    if request_id is not None:
        extras["requestId"] = request_id
    if profile == "debug":
        extras["budget"]["meter"] = budget.meter.name
        extras["durationMs"] = duration_ms
        extras["totalBytes"] = payload.size
    elif duration_ms is not None:
        extras["durationMs"] = duration_ms
    return extras


class _Sealing:
    """The work on one result."""

    def __init__(
        self,
        payload: Payload,
        budget: Budget,
        facts: Facts,
        schema: Schema | None,
        wrap: bool,
        rankings: Mapping[str, Ranking],
        is_error: bool,
    ) -> None:
        self.payload = payload
        self.budget = budget
        self.facts = facts
        self.schema = schema
        self.wrap = wrap
        self.rankings = rankings
        self.is_error = is_error
        self.ends: Ends = "both" if is_error else "head"
        self.carries_notice = True
        # Bytes to one unit of the budget, learned from whatever was measured last.
        self.rate = 1.0 if budget.unit == "bytes" else _TYPICAL_RATE

    def run(self) -> Sealed:
        node = self.payload.node
        structured: Lane | None = None
        if untouched := self._untouched():
            return self._sealed(*untouched)
        if node is not None and self._has_structure(node):
            structured = self._structured(node)
            if structured is None:
                self.facts = replace(self.facts, error=self._too_large())
                self.is_error = True
        content = self._content()
        if content is None:
            self.facts = replace(self.facts, error=self._too_large())
            self.is_error = True
            structured = None
            content = self._last_word()
        return self._sealed(content, structured)

    def _untouched(self) -> tuple[Lane, Lane | None] | None:
        """The payload byte for byte, if it fits and there is nothing to say."""
        if native.notice(self.facts, 0):
            return None
        payload = self.payload
        if payload.size > 16 * self.budget.limit:
            return None
        structured: Lane | None = None
        if payload.node is not None:
            original = payload.original()
            if self._has_structure(payload.node):
                body = b'{"result":%b}' % original if self.wrap else original
                structured = self._lane(body, ())
            text = b"[%b%b%b]" % (TEXT_OPEN, encode(original.decode()), TEXT_CLOSE)
        elif payload.text is not None:
            text = b"[%b%b%b]" % (TEXT_OPEN, encode(payload.text.decode()), TEXT_CLOSE)
        else:
            text = b"[%b]" % b",".join(payload.blocks or ())
        content = self._lane(text, ())
        lanes = [content, structured] if structured else [content]
        return (content, structured) if all(lane.fits(self.budget.limit) for lane in lanes) else None

    def _has_structure(self, node: Node) -> bool:
        return node.kind == "object" or self.schema is not None or self.wrap

    def _sealed(self, content: Lane, structured: Lane | None) -> Sealed:
        return Sealed(
            content,
            structured,
            is_error=self.is_error,
            facts=self.facts,
            budget=self.budget,
            payload=self.payload,
        )

    def _too_large(self) -> Problem:
        message = f"The result has {self.payload.size} bytes and cannot be cut to the budget"
        if self.schema is not None and self.payload.node is not None and not self.wrap:
            broken = self.schema.first_error(bytes(self.payload.node.raw))
            message += " without breaking its output schema"
            if broken:
                message += f", to which it does not conform as it is (at {broken[0] or 'its root'})"
        ask = "ask for less, or for a larger budget."
        hint = f"Read it in parts with the handle, {ask}" if self.facts.handle else ask.capitalize()
        return Problem(code="RESULT_TOO_LARGE", message=f"{message}.", hint=hint)

    # -- structuredContent ----------------------------------------------------------------------------------

    def _structured(self, node: Node) -> Lane | None:
        place = FREE
        if self.schema is not None:
            place = self.schema.root.member("result") if self.wrap else self.schema.root
        fitter = Fitter(node, place, self.rankings)
        self.carries_notice = self.wrap or (
            node.kind == "object" and all(m.key != native.ENVELOPE_KEY for m in node.members())
        )
        for _ in range(_REFUSALS):
            lane = self._search(node.size, lambda room, length: self._finish_document(fitter, room, length))
            if lane is None or self.schema is None or self.schema.is_valid(lane.json):
                return lane
            if not lane.cuts and not self.carries_notice:
                # Whole and unchanged: that it does not conform is the tool's own doing.
                return lane
            if self.carries_notice and (not lane.cuts or self.schema.is_valid(native.part(lane.json))):
                # A closed schema that nobody widened: the notice stays out of this lane.
                self.carries_notice = False
                continue
            error = self.schema.first_error(lane.json)
            pointer = error[0] if error else ""
            if not fitter.protect(pointer.removeprefix("/result") if self.wrap else pointer):
                return None
        return None

    def _finish_document(
        self, fitter: Fitter, room: int, length: int
    ) -> tuple[bytes, tuple[Cut, ...]] | None:
        fitted = fitter.fit(room)
        if fitted is None:
            return None
        body = b'{"result":%b}' % fitted.json if self.wrap else fitted.json
        if self.carries_notice:
            body = native.join(body, native.notice(replace(self.facts, cuts=fitted.cuts), length))
        return body, fitted.cuts

    # -- content --------------------------------------------------------------------------------------------

    def _content(self) -> Lane | None:
        node = self.payload.node
        if node is not None:
            place = FREE if self.schema is None or self.is_error or self.wrap else self.schema.root
            lane = self._document_text(node, place)
            return lane if lane is not None or place is FREE else self._document_text(node, FREE)
        if self.payload.text is not None:
            held = sniff(self.payload.text)
            if held is not None and held.kind == "object":
                return self._document_text(held, FREE)
            return self._blocks([TextBlock.of_text(self.payload.text, held, self.ends)])
        assert self.payload.blocks is not None
        return self._blocks(read_blocks(self.payload.blocks, self.ends))

    def _document_text(self, node: Node, place: Any) -> Lane | None:
        fitter = Fitter(node, place, self.rankings)
        inside = node.kind == "object" and all(m.key != native.ENVELOPE_KEY for m in node.members())

        def finish(room: int, length: int) -> tuple[bytes, tuple[Cut, ...]] | None:
            fitted = fitter.fit(room)
            if fitted is None:
                return None
            facts = replace(self.facts, cuts=fitted.cuts)
            body, blocks = fitted.json, b""
            if inside:
                body = native.join(body, native.notice(facts, length))
            elif note := native.text_note(facts, length):
                blocks = b"," + text_block(note)
            text = encode(body.decode())
            return b"[%b%b%b%b]" % (TEXT_OPEN, text, TEXT_CLOSE, blocks), fitted.cuts

        return self._search(node.size, finish)

    def _blocks(self, blocks: Any) -> Lane | None:
        def finish(room: int, length: int) -> tuple[bytes, tuple[Cut, ...]] | None:
            cuts: list[Cut] = []
            parts = fit_blocks(blocks, room, cuts)
            if parts is None:
                return None
            note = native.text_note(replace(self.facts, cuts=tuple(cuts)), length)
            if note:
                parts.append(text_block(note))
            return b"[%b]" % b",".join(parts), tuple(cuts)

        return self._search(sum(block.size for block in blocks) + len(blocks) + 1, finish)

    def _last_word(self) -> Lane:
        """Nothing of the payload fits: the coded outcome alone."""
        size = self.payload.size
        facts = replace(self.facts, cuts=(Cut("", "bytes", 0, size, 0),))
        lane = None
        for length in native.LENGTHS:
            said = native.join(b"{}", native.notice(facts, length))
            lane = self._lane(b"[%b]" % text_block(said.decode()), facts.cuts)
            if lane.fits(self.budget.limit):
                break
        assert lane is not None
        return lane

    # -- both -----------------------------------------------------------------------------------------------

    def _lane(self, text: bytes, cuts: tuple[Cut, ...]) -> Lane:
        return Lane(text, cuts, self.budget.meter)

    def _search(
        self, size: int, finish: Callable[[int, int], tuple[bytes, tuple[Cut, ...]] | None]
    ) -> Lane | None:
        limit = self.budget.limit
        for length in native.LENGTHS:

            def attempt(room: int, length: int = length) -> Lane | None:
                finished = finish(room, length)
                return None if finished is None else self._lane(*finished)

            # Whole, if it can be: always worth one try when it is not hopeless.
            if size <= limit * 8:
                lane = attempt(size)
                if lane is not None and lane.fits(limit):
                    return self._stamped(lane)
            lane = largest_room(attempt, limit, int(min(limit, size) * self.rate), size)
            if lane is not None:
                self.rate = len(lane.json) / max(lane.used, 1)
                return self._stamped(lane)
        return None

    def _stamped(self, lane: Lane) -> Lane:
        """The lane with the figure of what it uses in it, which is part of what it uses."""
        if not self.facts.extras:
            return lane
        limit = b'"used":%d' % self.budget.limit
        for place in (limit, limit.replace(b'"', b'\\"')):
            head, found, tail = lane.json.rpartition(place)
            if not found:
                continue
            used = lane.used
            for _ in range(4):
                stamp = place.replace(b"%d" % self.budget.limit, b"%d" % used)
                stamped = self._lane(head + stamp + tail, lane.cuts)
                if stamped.used == used:
                    return stamped
                used = stamped.used
        return lane
