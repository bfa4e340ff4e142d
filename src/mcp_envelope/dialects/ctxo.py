"""The dialect `ctxo`: the payload's own keys, then `_meta`, in one text part of a limited size.

Strategy: bytes are counted, so nothing has to be searched for. Only lists under known names are cut: the one
with the most items first, to the longest prefix for which the whole document, `_meta` included, is within the
limit, one item at least; if that is not enough, the next one. What has no such list is returned whole, as the
document says.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import accumulate, takewhile
from typing import Any, Final

from msgspec.structs import replace

from ..blocks import text_block
from ..budget import Budget, check_whole
from ..facts import Facts
from ..fitting import Cut
from ..job import Job, Lanes
from ..jsontree import Buffer, Member, Node, TooDeep, assembled, encode
from ..meters import meter as meter_of
from ..payload import to_json
from . import notice

DEFAULT_LIMIT: Final = 8192
TRUNCATABLE: Final = frozenset(
    {
        "impactedSymbols",
        "importers",
        "deadSymbols",
        "unusedExports",
        "results",
        "rankings",
        "context",
        "hierarchies",
        "scaffolding",
        "deadFiles",
        "files",
    }
)
_HINT: Final = "Narrow the query, or raise CTXO_RESPONSE_LIMIT."


class Ctxo:
    name = "ctxo"

    def budget(self, tokens: int | None, max_bytes: int | None, meter: str | None) -> Budget:
        check_whole(tokens=tokens, max_bytes=max_bytes)
        if tokens is not None:
            return Budget.of(tokens=tokens, meter=meter)
        return Budget(DEFAULT_LIMIT if max_bytes is None else max(1, max_bytes), meter_of("bytes"))

    def output_schema(self, data: Mapping[str, Any] | bool | None) -> dict[str, Any] | None:
        """There is no structured lane, so there is nothing to promise."""
        return None

    def seal(self, job: Job) -> Lanes:
        facts = job.facts
        cuts: tuple[Cut, ...] = ()
        if facts.error is not None:
            text = encode({"error": True, "message": facts.error.message})
        elif facts.miss is not None:
            said = {"found": False, "hint": facts.miss.hint}
            text = to_json({**said, **(facts.miss.details or {}), **said})
        else:
            text, cuts = _Document(job).sealed()
        content = job.lane(b"[%b]" % text_block(text.decode()), cuts, measured=text)
        # The document has no place for a handle; what reads results as a program finds it beside.
        meta = notice.meta(job.with_cuts(cuts)) if cuts and facts.handle is not None else None
        return Lanes(content, None, False, facts, meta)


class _Document:
    """The payload as an object, and how many items of its lists are shown."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.facts: Facts = job.facts
        node = job.payload.as_node()
        members = _members(node)
        self.has_own_keys = members is not None
        if members is not None:
            self.members = [member for member in members if member.key != "_meta"]
            self.size = assembled(self.members).size
        else:
            # The payload's own keys come first, so what has none gets one.
            key = "results" if node.kind == "array" else "result"
            self.members = [Member(key, encode(key), node.raw)]
            self.size = len(key) + 5 + node.size
        self.lists: dict[int, list[Buffer]] = {}
        if job.payload.partial:
            # The beginning of a long list: the rest went by, and was counted.
            self.lists[0] = node.items(0)
        else:
            self._find_lists(TRUNCATABLE | set(job.truncatable))
        self.kept = {index: len(items) for index, items in self.lists.items()}
        self.totals = {**self.kept, 0: node.total()} if job.payload.partial else dict(self.kept)
        # The most items first; of equal ones the first.
        self.order = sorted(self.lists, key=lambda index: -len(self.lists[index]))

    def _find_lists(self, names: frozenset[str]) -> None:
        for index, member in enumerate(self.members):
            if member.key in names and memoryview(member.value)[0] == ord("["):
                with suppress(TooDeep):
                    self.lists[index] = Node(member.value).all_items()

    def sealed(self) -> tuple[bytes, tuple[Cut, ...]]:
        if self.kept == self.totals and self._fits(text := self._text(truncated=False)):
            return text, ()
        for index in self.order:
            if self.kept[index] <= 1:
                continue
            low, high = 1, self._at_most(self.lists[index])
            while low < high:
                self.kept[index] = (low + high + 1) // 2
                if self._fits(self._text(truncated=True)):
                    low = self.kept[index]
                else:
                    high = self.kept[index] - 1
            self.kept[index] = low
            if self._fits(self._text(truncated=True)):
                break
        cuts = tuple(
            Cut(self._path(index), "items", self.kept[index], total, self.kept[index])
            for index, total in self.totals.items()
            if self.kept[index] < total
        )
        return self._text(truncated=bool(cuts)), cuts

    def _path(self, index: int) -> str:
        """Where a list is in what is stored, which doesn't know of a key that was made up here."""
        return f"{self.job.base}/{self.members[index].key}" if self.has_own_keys else self.job.base

    def _at_most(self, items: list[Buffer]) -> int:
        """How many items could fit if nothing else were there: no need to look beyond."""
        sizes = accumulate(len(item) + 1 for item in items)
        limit = self.job.limit if self.job.budget.unit == "bytes" else self.job.limit * 128
        return max(1, sum(1 for _ in takewhile(lambda size: size <= limit, sizes)))

    def _fits(self, text: bytes) -> bool:
        return self.job.budget.meter.count(text) <= self.job.limit

    def _text(self, truncated: bool) -> bytes:
        parts = [
            b"%b:%b" % (member.raw_key, self._value(index, member))
            for index, member in enumerate(self.members)
        ]
        parts.append(b'"_meta":%b' % encode(self._meta(truncated)))
        return b"{%b}" % b",".join(parts)

    def _value(self, index: int, member: Member) -> Buffer:
        items = self.lists.get(index)
        if items is None or self.kept[index] == self.totals[index]:
            return member.value
        return b"[%b]" % b",".join(items[: self.kept[index]])

    def _meta(self, truncated: bool) -> dict[str, Any]:
        largest = self.order[0] if self.order else None
        meta: dict[str, Any] = {
            "totalItems": 0 if largest is None else self.totals[largest],
            "returnedItems": 0 if largest is None else self.kept[largest],
            "truncated": truncated,
            "totalBytes": self.size,
        }
        if truncated:
            cuts = [Cut(f"/{self.members[largest].key}", "items", 0, 1, 0)] if largest is not None else []
            meta["hint"] = replace(self.facts, cuts=tuple(cuts)).next_step() or _HINT
        if self.facts.workspace is not None:
            meta["workspace"] = dict(self.facts.workspace)
        return meta


def _members(node: Node) -> list[Member] | None:
    try:
        return node.members() if node.kind == "object" else None
    except TooDeep:
        return None
