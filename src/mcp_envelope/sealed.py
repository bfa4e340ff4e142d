"""What comes out of the door: a result, ready for the wire, and a report on it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import Any

from .budget import Budget
from .facts import Facts, Problem
from .fitting import Cut
from .jsontree import compact, encode
from .payload import Payload
from .rooms import Lane


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
    # Secrets that were masked, by the name of the pattern that found them.
    redacted: Mapping[str, int] = field(default_factory=dict)


class Sealed:
    """A result, ready for the wire."""

    def __init__(
        self,
        content: Lane,
        structured: Lane | None,
        *,
        is_error: bool,
        facts: Facts,
        meta: Mapping[str, Any] | None,
        budget: Budget,
        payload: Payload,
        redacted: Mapping[str, int] | None = None,
        in_place: bool = True,
    ) -> None:
        self._content = content
        self._structured = structured
        self._facts = facts
        self._budget = budget
        self._payload = payload
        self._redacted = redacted or {}
        # Whether the dialect leaves a payload that fits as it is, without a shape of its own around it.
        self._in_place = in_place
        self.is_error = is_error
        self.meta = meta

    def __repr__(self) -> str:
        lanes = "content and structuredContent" if self._structured else "content"
        return f"<Sealed: {lanes}, {len(self.cuts)} cuts{', an error' if self.is_error else ''}>"

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
        """What was left out of the text lane; its escapes cost room, so it holds less than the other."""
        return self._content.cuts

    @property
    def structured_cuts(self) -> tuple[Cut, ...]:
        """What was left out of the structured lane."""
        return self._structured.cuts if self._structured else ()

    @property
    def problem(self) -> Problem | None:
        """The coded failure that the result tells of, if it does."""
        return self._facts.error

    @property
    def untouched(self) -> bool:
        """Whether the payload went out as it came, with nothing to say about it."""
        quiet = self.meta is None and not self._redacted and not self.cuts and self._facts.error is None
        return quiet and self._in_place

    @property
    def handle(self) -> str | None:
        """The name of the stored payload, if the result tells one."""
        return self._facts.handle if self.cuts or self._facts.error is not None else None

    @property
    def payload_size(self) -> int:
        """Bytes of the payload before any cut."""
        return self._payload.size

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._facts.warnings

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
            redacted=dict(self._redacted),
        )

    def _total(self) -> int:
        """The payload's size in the budget's unit: measured if it is whole, else reckoned from a part."""
        if not self._content.cuts and not self.structured_cuts:
            return 0
        payload = self._payload
        if payload.node is not None and payload.blocks is not None:
            # The larger lane counts, as it does in what is used.
            inside = Payload(blocks=payload.blocks)
            payload = max(
                inside, Payload(node=payload.node, partial=payload.partial), key=lambda lane: lane.size
            )
        if self._budget.unit == "bytes":
            return payload.size
        # Of a payload that is not all here, what is shown tells the most.
        sample = payload.sample() if not payload.partial else (self._structured or self._content).json
        return round(payload.size * self._budget.meter.count(sample) / max(len(sample), 1))

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """What was left out of the structured lane, or of the text where that lane is whole or absent."""
        return self.structured_cuts or self.content_cuts

    @property
    def truncated(self) -> bool:
        return bool(self.cuts)

    def to_json(self) -> bytes:
        """The `CallToolResult` as one line of JSON; a structure that came with line breaks goes without."""
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
        """The `CallToolResult` as Python objects. `to_json` keeps the spelling of numbers, this does not.

        So a payload that came as JSON and spells numbers in another way than Python has another size when it is
        written anew.
        """
        result: dict[str, Any] = json.loads(self.to_json(), parse_float=_number, parse_int=_integer)
        return result


def _number(text: str) -> float | Decimal:
    number = float(text)
    if number not in (float("inf"), float("-inf")):
        return number
    try:
        return Decimal(text)
    except InvalidOperation:
        return number


def _integer(text: str) -> int | Decimal:
    # Python refuses to read very long integers, for fear of what it would cost.
    return int(text) if len(text) < 4000 else Decimal(text)
