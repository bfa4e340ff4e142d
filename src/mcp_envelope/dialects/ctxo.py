"""The dialect `ctxo`: the payload's own keys, then `_meta`, in one text block of limited size.

Strategy: a payload at or under the limit goes out verbatim, with `_meta` behind it. Over it, lists with known
names are cut, and nothing else. The one with the most items is cut first, to the longest prefix with which the
whole document, `_meta` included, is within the limit; if not even none of them is enough, the lists share the
limit. A payload without such a list is returned whole under the contract's own limit, as the contract says;
under a budget that somebody set, it becomes an error that says how to read it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import accumulate, takewhile
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from ..budget import Budget, check_whole, meter_named
from ..codes import Problem
from ..fit.completeness import opposite
from ..fit.documents import Cut, Fitted
from ..fit.pages import Page
from ..jsontext.document import Buffer, Member, Node, TooDeep, assembled, encode, kind_of, text_block, written
from ..lanes import Lane, Lanes, Plan, fit_data
from ..outcome import Outcome, shortened
from ..payload import Payload, to_json
from . import BudgetRange, Dialect, Variable, fields_as, notice

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
_LARGEST: Final = 1_000_000_000


def _limit(text: str) -> dict[str, Any]:
    """The original reads `16k` as 16. Here, what is not a positive integer says nothing."""
    digits = text.strip().lstrip("0")
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError("is not a positive integer")
    return {"bytes": min(int(digits[:18]), _LARGEST)}


# The least that a budget can be, so that an error and a handle fit. The contract's own limit may be less.
_LEAST: Final = 128
# How much of a message or a hint an error or a miss shows, until it is within the limit.
_CHARACTERS: Final = (1 << 20, 1000, 300, 120, 60, 24, 0)


class Ctxo(Dialect):
    name = "ctxo"
    keeps_beginnings = True
    names_handles = False
    shows_warnings = False
    failure_data = "nowhere"
    limits = BudgetRange(bytes=DEFAULT_LIMIT, least_bytes=_LEAST)
    variables = (Variable("CTXO_RESPONSE_LIMIT", _limit),)

    def budget(self, tokens: int | None, max_bytes: int | None, meter: str | None) -> Budget:
        check_whole(tokens=tokens, max_bytes=max_bytes)
        if tokens is not None:
            return Budget.of(tokens=tokens, meter=meter)
        if max_bytes is None:
            return Budget(DEFAULT_LIMIT, meter_named("bytes"), is_own=True)
        raised = None if max_bytes >= _LEAST else f"max_bytes={max_bytes} is out of range; using {_LEAST}."
        return Budget(max(_LEAST, max_bytes), meter_named("bytes"), raised)

    def recognise(self, payload: Payload, outcome: Outcome) -> tuple[Outcome, Payload] | None:
        node = payload.node
        members = None if node is None else _members(node)
        fields = {member.key: member.value for member in members or ()}
        # A miss and an error are small: whatever else holds a list or an object is data.
        if all(kind_of(value) not in ("array", "object") for value in fields.values()):
            if (miss := fields_as(_Miss, fields)) is not None and not miss.found:
                problem = Problem("NOT_FOUND", "Not found.", miss.hint, _others(fields, _Miss))
                return replace(outcome, miss=problem, status="info", hint=miss.hint), Payload()
            if (error := fields_as(_CtxoError, fields)) is not None and error.error:
                problem = Problem("TOOL_FAILED", error.message)
                said = _others(fields, _CtxoError)
                return replace(outcome, error=problem, status="error", said=said), Payload()
        if "_meta" in fields and members is not None and not payload.partial:
            meta = fields_as(_Counts, {"_meta": fields["_meta"]})
            if meta is not None:
                data = assembled([member for member in members if member.key != "_meta"])
                said = msgspec.json.decode(fields["_meta"])
                return replace(outcome, said=said), Payload(node=data, blocks=payload.blocks)
        return None

    def fit(self, plan: Plan) -> Lanes:
        cuts: tuple[Cut, ...] = ()
        counted: bytes | None = None
        if (page := plan.payload.page) is not None:
            lane = fit_data(plan, partial(_page, plan, page))
            if lane is not None:
                return Lanes(lane, None, False, plan.outcome, notice.meta(plan.with_cuts(lane.cuts)))
            plan = plan.failed(plan.too_large())
        elif plan.outcome.error is None and plan.outcome.miss is None:
            document = _Document(plan)
            text, cuts = document.sealed()
            if plan.budget.is_own and len(text) > plan.limit >= document.size:
                # The contract's limit is on the payload: `_meta` comes on top.
                counted = document.verbatim()
            elif not plan.budget.is_own and not document.fits(text):
                plan, cuts = plan.failed(_too_large(plan)), ()
        if (error := plan.outcome.error) is not None:
            text = _first_that_fits(plan, lambda most: _error(plan, error, most))
        elif (miss := plan.outcome.miss) is not None:
            text = _first_that_fits(plan, lambda most: _miss(plan, miss, most))
        content = plan.lane(b"[%b]" % text_block(text.decode()), cuts, measured=counted or text)
        # The contract has no place for a handle or warnings; programs find them in the result's `_meta`.
        is_noted = plan.outcome.warnings or (cuts and plan.outcome.handle is not None)
        meta = notice.meta(plan.with_cuts(cuts)) if is_noted else None
        return Lanes(content, None, False, plan.outcome, meta)


def _page(plan: Plan, page: Page, fitted: Fitted, length: int) -> Lane:
    """Return a part of a stored payload as a document. `_meta.hint` says how to read on."""
    key = "results" if page.shape == "array" else "result"
    kept = next((cut.kept for cut in fitted.cuts if cut.path == page.path), page.total - page.offset)
    is_list = page.shape == "array"
    meta: dict[str, Any] = {
        "totalItems": page.total if is_list else 0,
        "returnedItems": kept if is_list else 0,
        "truncated": bool(fitted.cuts),
        "totalBytes": page.bytes_in_all or page.size,
    }
    if fitted.cuts:
        meta["hint"] = notice.sentence(plan.with_cuts(fitted.cuts), min(length, 1), beside_handle=False)
    text = b'{"%b":%b,"_meta":%b}' % (key.encode(), fitted.json, encode(meta))
    return plan.lane(b"[%b]" % text_block(text.decode()), fitted.cuts, measured=text)


def _too_large(plan: Plan) -> Problem:
    size = f"The result has {plan.payload.size} bytes, and nothing in it may be cut"
    return Problem("RESULT_TOO_LARGE", f"{size} to the budget of {plan.budget.limit} {plan.budget.unit}.")


def _error(plan: Plan, error: Problem, most: int) -> bytes:
    message = shortened(error.message, most) if most else "Failed."
    message = _with_way(message, plan)
    said = plan.outcome.said if most >= _CHARACTERS[0] else {}
    return written({"error": True, "message": message, **said})


def _with_way(words: str, plan: Plan) -> str:
    """The words, and how to read what isn't shown."""
    if not plan.hidden:
        return words
    end = "" if not words or words[-1] in ".!?" else "."
    return f'{words}{end} The whole: {notice.READ_TOOL}(handle="{plan.outcome.handle}").'.lstrip()


def _miss(plan: Plan, miss: Problem, most: int) -> bytes:
    hint = shortened(miss.hint, most) if most else ""
    found = {"found": False, "hint": _with_way(hint, plan)}
    details = (miss.details or {}) if most >= _CHARACTERS[0] else {}
    return to_json({**found, **details, **found})


def _first_that_fits(plan: Plan, shape: Callable[[int], bytes]) -> bytes:
    for most in _CHARACTERS:
        text = shape(most)
        if plan.budget.load(text, plan.budget.meter.count(text)) <= plan.limit:
            break
    return text


class _Miss(msgspec.Struct):
    found: bool
    hint: str


class _CtxoError(msgspec.Struct):
    error: bool
    message: str


class _Meta(msgspec.Struct):
    total: int = msgspec.field(name="totalItems")
    returned: int = msgspec.field(name="returnedItems")
    truncated: bool
    size: int = msgspec.field(name="totalBytes", default=0)
    hint: str = ""


class _Counts(msgspec.Struct):
    meta: _Meta = msgspec.field(name="_meta")


def _others(fields: dict[str, Buffer], kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the fields that a tool added to the contract's own."""
    return {
        key: msgspec.json.decode(value) for key, value in fields.items() if key not in kind.__struct_fields__
    }


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
        self.names_handle = False
        if plan.payload.partial:
            # This is the beginning of a long list; the rest was only counted.
            self.lists[0] = node.items(0)
        else:
            ranked = {path.removeprefix("/") for path in plan.rankings}
            self._find_lists(TRUNCATABLE | ranked | set(plan.truncatable))
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
        text = self._text(truncated=False)
        is_whole = self.kept == self.totals
        if is_whole and (self.fits(text) or (self.plan.budget.is_own and self.size <= self.plan.limit)):
            return text, ()
        if self.order:
            self._cut()
        for index, items in self.lists.items():
            if self.kept[index] < len(items):
                self.plan.survey.cut_list(self._path(index), Node(self.members[index].value))
        cuts = tuple(
            Cut(self._path(index), "items", self.kept[index], total, self.kept[index])
            for index, total in self.totals.items()
            if self.kept[index] < total
        )
        if cuts and not any(self.kept.values()):
            # Where nothing is shown, the hint has to say how to go on.
            self.names_handle = True
            self.names_handle = self.fits(self._text(truncated=True))
        return (self._text(truncated=True) if cuts else text), cuts

    def _cut(self) -> None:
        """Cut the list with the most items; if that is not enough, all of them to one length, then fill up."""
        largest = self.order[0]
        self._search(lambda count: self.kept.update({largest: count}), self._at_most(largest))
        if self.fits(self._text(truncated=True)):
            return

        def level(count: int) -> None:
            self.kept = {index: min(count, len(items)) for index, items in self.lists.items()}

        self._search(level, max(map(self._at_most, self.order)))
        for index in self.order:
            fill = partial(self.kept.__setitem__, index)
            self._search(fill, max(self.kept[index], self._at_most(index)), self.kept[index])

    def _search(self, keep: Callable[[int], None], most: int, least: int = 0) -> None:
        """Keep as many items as fit, at least `least`."""
        while least < most:
            middle = (least + most + 1) // 2
            keep(middle)
            if self.fits(self._text(truncated=True)):
                least = middle
            else:
                most = middle - 1
        keep(least)

    def verbatim(self) -> bytes:
        return bytes(assembled(self.members).raw)

    def _path(self, index: int) -> str:
        """Return the path of a list in the stored payload, which doesn't have the key that was added here."""
        return f"{self.plan.base}/{self.members[index].key}" if self.has_own_keys else self.plan.base

    def _at_most(self, index: int) -> int:
        """Return how many items of a list would fit on their own: an upper bound for the search."""
        sizes = accumulate(len(item) + 1 for item in self.lists[index])
        limit = self.plan.limit if self.plan.budget.unit == "bytes" else self.plan.limit * 128
        return sum(1 for _ in takewhile(lambda size: size <= limit, sizes))

    def fits(self, text: bytes) -> bool:
        budget = self.plan.budget
        return budget.load(text, budget.meter.count(text)) <= self.plan.limit

    def _text(self, truncated: bool) -> bytes:
        parts = [
            b"%b:%b" % (member.raw_key, self._value(index, member, truncated))
            for index, member in enumerate(self.members)
        ]
        parts.append(b'"_meta":%b' % encode(self._meta(truncated)))
        return b"{%b}" % b",".join(parts)

    def _value(self, index: int, member: Member, truncated: bool) -> Buffer:
        items = self.lists.get(index)
        if items is None or self.kept[index] == self.totals[index]:
            return (opposite(member) if truncated else None) or member.value
        return b"[%b]" % b",".join(items[: self.kept[index]])

    def _meta(self, truncated: bool) -> dict[str, Any]:
        said, workspace = self.outcome.said, self.outcome.workspace
        largest = self.order[0] if self.order else None
        # The tool counted before it left anything out itself.
        meta: dict[str, Any] = {
            "totalItems": max(0 if largest is None else self.totals[largest], said.get("totalItems", 0)),
            "returnedItems": 0 if largest is None else self.kept[largest],
            "truncated": truncated,
            "totalBytes": max(self.size, said.get("totalBytes", 0)),
        }
        if truncated:
            cuts = [Cut(f"/{self.members[largest].key}", "items", 0, 1, 0)] if largest is not None else []
            hint = notice.next_step(replace(self.outcome, cuts=tuple(cuts)))
            meta["hint"] = hint or said.get("hint") or _HINT
            if self.names_handle:
                meta["hint"] = _with_way(meta["hint"], self.plan)
        elif said:
            meta = dict(said)
        if workspace is not None or "workspace" in said:
            meta["workspace"] = said["workspace"] if workspace is None else dict(workspace)
        return {**meta, **{name: value for name, value in said.items() if name not in meta}}


def _members(node: Node) -> list[Member] | None:
    try:
        return node.members() if node.kind == "object" else None
    except TooDeep:
        return None
