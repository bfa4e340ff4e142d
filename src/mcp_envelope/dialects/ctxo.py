"""The dialect `ctxo`: the payload's own keys, then `_meta`, in one text block of limited size.

Strategy: only lists with known names are cut. The one with the most items is cut first, to the longest prefix
with which the whole document, `_meta` included, is within the limit, but to one item at least; if that is not
enough, the next one follows. A payload without such a list is returned whole, as the contract says.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import accumulate, takewhile
from typing import Any, Final

from msgspec.structs import replace

from ..budget import Budget, check_whole, meter_named
from ..fit.documents import Cut
from ..jsontext.document import Buffer, Member, Node, TooDeep, assembled, encode, text_block
from ..lanes import Lanes, Plan
from ..outcome import Outcome
from ..payload import to_json
from . import BudgetRange, Dialect, notice

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


class Ctxo(Dialect):
    name = "ctxo"
    names_handles = False
    limits = BudgetRange(tokens=None, bytes=DEFAULT_LIMIT, least_bytes=1)

    def budget(self, tokens: int | None, max_bytes: int | None, meter: str | None) -> Budget:
        check_whole(tokens=tokens, max_bytes=max_bytes)
        if tokens is not None:
            return Budget.of(tokens=tokens, meter=meter)
        return Budget(DEFAULT_LIMIT if max_bytes is None else max(1, max_bytes), meter_named("bytes"))

    def fit(self, plan: Plan) -> Lanes:
        outcome = plan.outcome
        cuts: tuple[Cut, ...] = ()
        if outcome.error is not None:
            text = encode({"error": True, "message": outcome.error.message})
        elif outcome.miss is not None:
            miss = {"found": False, "hint": outcome.miss.hint}
            text = to_json({**miss, **(outcome.miss.details or {}), **miss})
        else:
            text, cuts = _Document(plan).sealed()
        content = plan.lane(b"[%b]" % text_block(text.decode()), cuts, measured=text)
        # The contract has no place for a handle; programs find it in the result's `_meta`.
        meta = notice.meta(plan.with_cuts(cuts)) if cuts and outcome.handle is not None else None
        return Lanes(content, None, False, outcome, meta)


class _Document:
    """The payload as an object, and how many items of its lists are shown."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.outcome: Outcome = plan.outcome
        node = plan.payload.as_node()
        members = _members(node)
        self.has_own_keys = members is not None
        if members is not None:
            self.members = [member for member in members if member.key != "_meta"]
            self.size = assembled(self.members).size
        else:
            # The contract expects keys, so a payload without any gets one.
            key = "results" if node.kind == "array" else "result"
            self.members = [Member(key, encode(key), node.raw)]
            self.size = len(key) + 5 + node.size
        self.lists: dict[int, list[Buffer]] = {}
        if plan.payload.partial:
            # This is the beginning of a long list; the rest was only counted.
            self.lists[0] = node.items(0)
        else:
            self._find_lists(TRUNCATABLE | set(plan.truncatable))
        self.kept = {index: len(items) for index, items in self.lists.items()}
        self.totals = {**self.kept, 0: node.total()} if plan.payload.partial else dict(self.kept)
        # The list with the most items first; among equals, the first one.
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
        """Return the path of a list in the stored payload, which doesn't have the key that was added here."""
        return f"{self.plan.base}/{self.members[index].key}" if self.has_own_keys else self.plan.base

    def _at_most(self, items: list[Buffer]) -> int:
        """Return how many items would fit on their own: an upper bound for the search."""
        sizes = accumulate(len(item) + 1 for item in items)
        limit = self.plan.limit if self.plan.budget.unit == "bytes" else self.plan.limit * 128
        return max(1, sum(1 for _ in takewhile(lambda size: size <= limit, sizes)))

    def _fits(self, text: bytes) -> bool:
        return self.plan.budget.meter.count(text) <= self.plan.limit

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
            meta["hint"] = replace(self.outcome, cuts=tuple(cuts)).next_step() or _HINT
        if self.outcome.workspace is not None:
            meta["workspace"] = dict(self.outcome.workspace)
        return meta


def _members(node: Node) -> list[Member] | None:
    try:
        return node.members() if node.kind == "object" else None
    except TooDeep:
        return None
