"""Fits a JSON value into a number of bytes, its room, and reports the cuts.

Strategy: what may be given up comes in steps (`Give`): list items, then long strings (first those that a
dialect names), then optional properties, then everything that the schema doesn't require. The first step whose
least size is within the room is used. The room is then shared out from the top down: small children stay whole,
large ones get equal shares (`share`), and whatever one leaves unused goes to the next. A value that fits its
share is copied as it came, so the work is proportional to the room, not to the payload. The fitter knows bytes
only, no meters or notes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Literal

from ..jsontext.document import MAX_DEPTH, Buffer, Kind, Member, Node, TooDeep, encode, readable
from ..schema import FREE, Place
from .ranking import Ranking
from .text import string_head

if TYPE_CHECKING:
    from .survey import Survey

CutKind = Literal["items", "properties", "characters", "blocks", "bytes", "pixels"]

# A list with at most this many items, or of which fewer than this fit, shares its room among its items instead
# of keeping the first ones whole, as long as each gets a useful share.
FEW_ITEMS: Final = 8
FEW_FIT: Final = 4
USEFUL_SHARE: Final = 512
# An object with more members is a map: it keeps whole members rather than a little of each.
_MANY_MEMBERS: Final = 256
# How much of the JSON in a string is looked at to tell how many escapes it has.
_ESCAPES_IN: Final = 4096
# How often JSON in a string may be fitted again because its escapes took more than their share.
_TRIES: Final = 60
# After this many members that are too large, the rest of a map is skipped.
_MISSES: Final = 64
_LINE: Final = 100
# The smallest possible member: `"":0,`
_SMALLEST_MEMBER: Final = 5


@dataclass(frozen=True, slots=True)
class Cut:
    """One omission. The path leads into the original; `offset` is where to read on, at the first thing left out.

    `rows` tells which items of a list are kept, such as `0-16, 212`, if those are not only the first ones and they
    are in their original order; `form` how they are spelled, if not as they came, and `columns` their keys.
    `at_least` says that the total may be larger, as not all were counted. Of an image, `said` says what is shown,
    and `way` what a call for the rest is for, which asks for a `region`.
    """

    path: str
    kind: CutKind
    kept: int
    total: int
    offset: int
    rows: str = ""
    said: str = ""
    way: str = ""
    region: str = ""
    form: str = ""
    columns: tuple[str, ...] = ()
    at_least: bool = False

    @property
    def dropped(self) -> int:
        # What is before a page was not left out by it.
        return self.total - (self.kept if self.kind == "bytes" else max(self.kept, self.offset))

    @property
    def loss(self) -> int:
        """How much is lost, in characters: an item or a member counts like a short line of them."""
        return self.dropped * (1 if self.kind in ("characters", "bytes") else _LINE)


@dataclass(frozen=True, slots=True)
class Fitted:
    """Below a room of `next_room` bytes, the result would be the same."""

    json: bytes
    cuts: tuple[Cut, ...]
    next_room: int = 0


class Give(IntEnum):
    """What may be given up. Each step allows one thing more than the step before it."""

    ITEMS = 1
    SOFT_STRINGS = 2
    STRINGS = 3
    PROPERTIES = 4
    EVERYTHING = 5


# A string is not cut below this while anything else can be given up: a shorter one would say nothing.
STRING_FLOOR: Final = 48
_BARE_STRING: Final = 5


class FitNode:
    __slots__ = (
        "_children",
        "_inner",
        "_least",
        "_open_place",
        "_order",
        "_selected",
        "above",
        "depth",
        "frozen",
        "in_order",
        "node",
        "place",
        "rankings",
        "rigid",
        "shown",
        "soft",
        "step",
    )

    def __init__(
        self,
        node: Node,
        place: Place,
        above: FitNode | None,
        step: str,
        rankings: Mapping[str, Ranking],
        soft: frozenset[str] = frozenset(),
    ) -> None:
        self.node = node
        self.place = place
        self.above = above
        self.step = step
        self.depth: int = 0 if above is None else above.depth + 1
        self.rankings = rankings
        # Names of strings that are cut before all others.
        self.soft = soft
        self.frozen = place.frozen or self.depth >= MAX_DEPTH
        self.rigid = False
        self._open_place: Place | None = None
        self._order: Sequence[int] | None = None
        self._selected = False
        # Whether items are kept in their original order, and which are, once some are left out.
        self.in_order = False
        self.shown: Sequence[int] | None = None
        self._children: dict[int, FitNode] = {}
        self._inner: FitNode | None = None
        self._least: dict[Give, int] = {}

    def release(self) -> None:
        """Release everything below."""
        for child in self._children.values():
            child.release()
        self._children.clear()
        if self._inner is not None:
            self._inner.release()
            self._inner = None

    @property
    def path(self) -> str:
        """The path, built on demand: keys may be long, and most paths are never needed."""
        steps: list[str] = []
        value: FitNode | None = self
        while value is not None:
            steps.append(value.step)
            value = value.above
        return "".join(reversed(steps))

    @property
    def kind(self) -> Kind:
        return self.node.kind

    @property
    def open_place(self) -> Place:
        """The place in the schema, narrowed to the alternatives that this value's kind and members allow."""
        if self._open_place is None:
            if self.place is FREE:
                self._open_place = FREE
            elif self.kind == "object":
                members = {member.key: member.value for member in self.node.members()}
                self._open_place = self.place.narrow("object", members)
            else:
                self._open_place = self.place.narrow(self.kind)
        return self._open_place

    def child(self, index: int) -> FitNode:
        value = self._children.get(index)
        if value is None:
            if self.kind == "object":
                key = self.node.members()[index].key
                place = self.open_place.member(key)
                step = key.replace("~", "~0").replace("/", "~1")
            else:
                place = self.open_place.item(index)
                step = str(index)
            value = FitNode(self.node.child(index), place, self, f"/{step}", self.rankings, self.soft)
            self._children[index] = value
        return value

    def inner(self) -> FitNode | None:
        """Return the JSON inside a string, if any. Its path continues the string's own."""
        if self._inner is None and self.node.size > _BARE_STRING and (node := self.node.inner()):
            self._inner = FitNode(node, FREE, self, "", self.rankings, self.soft)
        return self._inner

    def in_string(self, size: int) -> int:
        """Return about how many bytes so much of this JSON takes in a string, judging by its beginning."""
        head = bytes(memoryview(self.node.raw)[:_ESCAPES_IN])
        return 2 + size * (len(head) + head.count(b'"') + head.count(b"\\")) // len(head)

    def order(self, room: int) -> Sequence[int]:
        """Return the indices of the items that could fit the room, best first if the list is ranked."""
        if self.rankings and self._order is None and (ranking := self._ranking()):
            self.node.all_items()
            self._order = ranking.order(self.node)
        if self._order is not None:
            return self._order
        return range(len(self.node.items(room)))

    def select(self, survey: Survey) -> None:
        """Let rows that are worth keeping go first, unless the list is ranked or the schema wants several items."""
        if not self._selected and self._order is None and self.must_keep(Give.EVERYTHING) <= 1:
            self._selected = True
            order = survey.order(self.path, self.node)
            if order is not None and not self.open_place.prefix_length:
                self._order, self.in_order = order, True

    def arranged(self, chosen: Sequence[int], parts: Sequence[Buffer]) -> list[Buffer]:
        """Take note of the items that are kept, and return their parts as they are shown."""
        self.shown = sorted(chosen) if self.in_order else chosen
        if not self.in_order:
            return list(parts)
        by_place = dict(zip(chosen, parts, strict=True))
        return [by_place[index] for index in self.shown]

    def cut(self, chosen: Sequence[int], total: int) -> Cut:
        offset = first_gap(chosen)
        rows = ranges(sorted(chosen)) if self.in_order and offset < len(chosen) else ""
        return Cut(self.path, "items", len(chosen), total, offset, rows)

    def _ranking(self) -> Ranking | None:
        path = self.path
        if path in self.rankings:
            return self.rankings[path]
        steps = path.split("/")
        if steps[-1] in self.rankings:
            return self.rankings[steps[-1]]
        for pattern, ranking in self.rankings.items():
            wanted = pattern.split("/")
            if len(wanted) == len(steps) and all(w in ("*", s) for w, s in zip(wanted, steps, strict=True)):
                return ranking
        return None

    def must_keep(self, give: Give) -> int:
        """Return how many items of a list must stay: at least one, until whole members of objects are given up."""
        total = self.node.total()
        if self.rigid or self.open_place.frozen_items:
            return total
        return min(total, max(self.open_place.min_items, 1 if give < Give.PROPERTIES else 0))

    def must_have(self, give: Give) -> Sequence[int]:
        """Return the members of an object that must stay: those the schema requires, and as many as it requires."""
        members = self.node.members()
        if self.rigid or give < Give.PROPERTIES:
            return range(len(members))
        place = self.open_place
        if place is FREE:
            return []
        required = place.required([member.key for member in members])
        must = [index for index, member in enumerate(members) if member.key in required]
        missing = place.min_properties - len(must)
        if missing > 0:
            others = [index for index, member in enumerate(members) if member.key not in required]
            must = sorted(must + others[:missing])
        return must

    def least(self, give: Give, cap: int) -> int:
        """Return the fewest bytes this value can take. Above `cap`, the number only means "more than `cap`"."""
        size = self.node.size
        if size <= _BARE_STRING or self.frozen or self.kind in ("number", "boolean", "null"):
            return size
        known = self._least.get(give)
        if known is None:
            if self.kind == "string":
                known = self._least_string(give, cap)
            elif self.kind == "array":
                known = self._least_array(give, cap)
            else:
                known = self._least_object(give, cap)
            if known <= cap:
                self._least[give] = known
        return known

    def least_child(self, index: int, raw: Buffer, give: Give, cap: int) -> int:
        return len(raw) if len(raw) <= _BARE_STRING else self.child(index).least(give, cap)

    def may_be_cut(self, give: Give) -> bool:
        """Whether a string may be shortened at this step."""
        return give >= Give.STRINGS or (give == Give.SOFT_STRINGS and self.step[1:] in self.soft)

    def _least_string(self, give: Give, cap: int) -> int:
        size = self.node.size
        if self.open_place.frozen_string:
            return size
        if inner := self.inner():
            least = inner.least(give, cap)
            return min(size, 2 + least * size // inner.node.size, inner.in_string(least))
        if not self.may_be_cut(give):
            return size
        floor = STRING_FLOOR if give < Give.EVERYTHING else _BARE_STRING
        # A character takes at most six bytes, as an escape.
        return min(size, floor + 6 * self.open_place.min_length)

    def _least_array(self, give: Give, cap: int) -> int:
        keep = self.must_keep(give)
        order = self.order(cap)
        if keep > len(order):
            return cap + 1
        items = self.node.items(cap)
        return max(2, self._sum(((0, index, items[index]) for index in order[:keep]), give, cap))

    def _least_object(self, give: Give, cap: int) -> int:
        members = self.node.members()
        return max(2, self._sum((_weighed(members, index) for index in self.must_have(give)), give, cap))

    def _sum(self, children: Iterable[tuple[int, int, Buffer]], give: Give, cap: int) -> int:
        least = 1
        for around, index, raw in children:
            least += around + 1
            if least > cap:
                break
            least += self.least_child(index, raw, give, cap)
            if least > cap:
                break
        return least

    def forget(self) -> None:
        """Discard the cached least sizes, here and below: they change once something is protected."""
        self._least.clear()
        for child in self._children.values():
            child.forget()
        if self._inner is not None:
            self._inner.forget()


def _weighed(members: list[Member], index: int) -> tuple[int, int, Buffer]:
    member = members[index]
    return len(member.raw_key) + 1, index, member.value


class Fitter:
    """Fits one document, repeatedly if needed, into different numbers of bytes."""

    def __init__(
        self,
        root: Node,
        place: Place = FREE,
        rankings: Mapping[str, Ranking] | None = None,
        base: str = "",
        soft: frozenset[str] = frozenset(),
        survey: Survey | None = None,
    ) -> None:
        # A bare name isn't a path: it means every list of that name.
        ranked = {
            base + path if path[:1] in ("", "/") else path: ranking
            for path, ranking in (rankings or {}).items()
        }
        self._root = FitNode(root, place, None, base, ranked, soft)
        self._steps = [give for give in Give if soft or give is not Give.SOFT_STRINGS]
        self._survey = survey
        if survey is not None:
            survey.roots.setdefault(base, root)
        self._cuts: list[Cut] = []
        # How many bytes each list that was cut lacks for one more item.
        self._lacking: dict[Cut, int] = {}
        self._tries = 0

    def __del__(self) -> None:
        # Nodes refer to their parents; without this, the cycles would keep a large payload alive.
        self._root.release()

    def fit(self, room: int) -> Fitted | None:
        """Return the document in at most `room` bytes, or None if that is impossible."""
        if self._root.node.size <= room:
            return Fitted(self._spelled(self._root.node.raw), ())
        for give in self._steps:
            self._cuts = []
            self._lacking = {}
            self._tries = _TRIES
            try:
                if self._root.least(give, room) > room:
                    continue
                body = self._fit(self._root, room, give)
            except (TooDeep, RecursionError):
                return None
            if body is not None:
                # Other cuts, and several that share the room, may change with every byte.
                lacking = self._lacking.get(self._cuts[0], 1) if len(self._cuts) == 1 else 1
                return Fitted(self._spelled(body), tuple(self._cuts), room + lacking)
        return None

    def _spelled(self, body: Buffer) -> bytes:
        return readable(self._root.node.spelled(body))

    def grown(self, fitted: Fitted, cut: Cut, count: int) -> Fitted:
        """Return the fitted document with so many more items in a list."""
        value = self._find(cut)
        assert value is not None
        kept = cut.kept + count
        items, order = value.node.items(0), value.order(0)
        steps = cut.path.removeprefix(self._root.step).split("/")[1:]

        def longer(body: bytes) -> bytes:
            # Items that share the room may be cut themselves, so those that are shown stay as they are.
            shown = Node(body).all_items() if cut.kept else []
            before = sorted(order[: cut.kept]) if value.in_order else order[: cut.kept]
            chosen = [*before, *order[cut.kept : kept]]
            more = [items[index] for index in order[cut.kept : kept]]
            return b"[%b]" % b",".join(value.arranged(chosen, [*shown, *more]))

        body = self._spelled(_with_changed(fitted.json, steps, longer))
        cuts = tuple(value.cut(order[:kept], cut.total) if each is cut else each for each in fitted.cuts)
        return Fitted(body, tuple(each for each in cuts if each.dropped))

    def following(self, cut: Cut, room: int) -> int:
        """Return how many more items of a list that was cut would fit into `room` bytes by themselves.

        None for a list inside another one, whose items may be elsewhere in the fitted document.
        """
        value = self._find(cut)
        if value is None:
            return 0
        shown = sum(map(len, value.node.items(0)[: cut.kept])) + cut.kept
        items = value.node.items(shown + room)
        return _whole_prefix(items, value.order(shown + room)[cut.kept :], room)[0]

    def opened(self, cut: Cut, room: int) -> tuple[FitNode, Sequence[int], bytes, bytes] | None:
        """Return a list that was cut, its items in order of preference, and the whole document around it."""
        value = self._find(cut)
        if value is None:
            return None
        value.order(room)
        if self._survey is not None:
            value.select(self._survey)
        steps = cut.path.removeprefix(self._root.step).split("/")[1:]
        before, _, after = _with_changed(bytes(self._root.node.raw), steps, lambda _: b"\0").partition(b"\0")
        return value, value.order(room), before, after

    def _find(self, cut: Cut) -> FitNode | None:
        value = self._root
        for step in cut.path.removeprefix(value.step).split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            members = value.node.members() if value.kind == "object" else []
            found = [index for index, member in enumerate(members) if member.key == key]
            if not found:
                return None
            value = value.child(found[0])
        return value if value.kind == "array" and cut.kind == "items" else None

    def protect(self, pointer: str) -> bool:
        """Prevent further cuts at a place in the fitted document where validation failed.

        The first time keeps all members or items there, the second keeps the value as it is.
        Return False if there is nothing left to protect.
        """
        value = self._resolve(pointer)
        if value.frozen:
            return False
        if value.rigid or value.kind not in ("object", "array"):
            value.frozen = True
        value.rigid = True
        self._root.forget()
        return True

    def _resolve(self, pointer: str) -> FitNode:
        value = self._root
        for step in pointer.split("/")[1:]:
            if value.kind == "object":
                key = step.replace("~1", "/").replace("~0", "~")
                found = [index for index, member in enumerate(value.node.members()) if member.key == key]
            elif value.kind == "array":
                shown = value.order(0) if value.shown is None else value.shown
                found = list(shown[int(step) : int(step) + 1])
            else:
                found = []
            if not found:
                break
            value = value.child(found[0])
        return value

    def _fit(self, value: FitNode, room: int, give: Give) -> bytes | None:
        if value.node.size <= room:
            return bytes(value.node.raw)
        if value.frozen:
            return None
        if value.kind == "array":
            return self._fit_array(value, room, give)
        if value.kind == "object":
            return self._fit_object(value, room, give)
        return self._fit_string(value, room, give) if value.kind == "string" else None

    # -- lists ----------------------------------------------------------------------------------------------

    def _fit_array(self, value: FitNode, room: int, give: Give) -> bytes | None:
        total = value.node.total()
        must = value.must_keep(give)
        if self._survey is not None:
            value.select(self._survey)
        items = value.node.items(room)
        order = value.order(room)
        whole, used = _whole_prefix(items, order, room)
        chosen = order[:whole]
        parts: list[Buffer] | None = None
        if whole < total and (total <= FEW_ITEMS or whole < FEW_FIT):
            # Few large items share the room, so that a long list in one doesn't hide the next. As long as any
            # item fits whole, only lists inside them are cut; otherwise everything that may be.
            several = total if total <= FEW_ITEMS else min(len(items), room // USEFUL_SHARE)
            if several > whole and several >= must:
                inside = give if whole == 0 else Give.ITEMS
                parts = self._fit_items(value, order[:several], room, inside)
                if parts is not None:
                    chosen = order[:several]
        if parts is None and whole >= max(must, 1):
            parts = [items[index] for index in chosen]
            if whole < len(order) and room - used > room // 4:
                # The next item is very large: show its beginning rather than leave the room unused.
                giant = self._fit_items(value, order[whole : whole + 1], room - used, Give.STRINGS)
                if giant:
                    parts += giant
                    chosen = order[: whole + 1]
        if parts is None:
            chosen = order[: max(must, 1)]
            parts = self._fit_items(value, chosen, room, give)
        if parts is None and not must:
            chosen, parts = [], []
        if parts is None or len(chosen) < must:
            return None
        if len(chosen) < total:
            parts = value.arranged(chosen, parts)
            cut = value.cut(chosen, total)
            self._cuts.append(cut)
            if self._survey is not None:
                self._survey.cut_list(cut.path, value.node)
            if FEW_FIT <= len(chosen) == whole < len(order) and total > FEW_ITEMS:
                # With the next item, or with the beginning of one that is very large.
                next_room = min(used + len(items[order[whole]]) + 1, used * 4 // 3 + 1)
                self._lacking[cut] = max(next_room - room, 1)
        return b"[%b]" % b",".join(parts)

    def _fit_items(self, value: FitNode, chosen: Sequence[int], room: int, give: Give) -> list[Buffer] | None:
        """Return the chosen items, each cut to its share of the room."""
        items = value.node.items(room)
        children = [(index, items[index]) for index in chosen]
        return self._fit_children(value, children, room - 1 - len(children), give)

    # -- objects --------------------------------------------------------------------------------------------

    def _fit_object(self, value: FitNode, room: int, give: Give) -> bytes | None:
        members = value.node.members()
        chosen: Sequence[int] = range(len(members))
        if give >= Give.PROPERTIES and not value.rigid:
            as_strings = value.least(Give.STRINGS, room)
            if as_strings > room or len(members) > _MANY_MEMBERS:
                chosen = self._choose_members(value, room, give)
        children = [(index, members[index].value) for index in chosen]
        for_values = room - 1 - sum([len(members[index].raw_key) + 2 for index in chosen])
        parts = self._fit_children(value, children, for_values, give) if children else []
        if parts is None:
            return None
        total = value.node.total()
        if len(chosen) < total:
            self._cuts.append(Cut(value.path, "properties", len(chosen), total, first_gap(chosen)))
            if self._survey is not None:
                self._survey.cut_members(value.path, value.node)
        return b"{%b}" % b",".join(
            [b"%b:%b" % (members[index].raw_key, part) for index, part in zip(chosen, parts, strict=True)]
        )

    def _choose_members(self, value: FitNode, room: int, give: Give) -> list[int]:
        """Return the required members, then whole ones in order while they fit; at least one, if possible."""
        members = value.node.members()
        chosen = set(value.must_have(give))
        left = room - 1
        for index in chosen:
            member = members[index]
            left -= len(member.raw_key) + 2 + value.least_child(index, member.value, give, room)
        misses = 0
        first_miss = -1
        for index, member in enumerate(members):
            if left < _SMALLEST_MEMBER or misses == _MISSES:
                break
            if index in chosen:
                continue
            around = len(member.raw_key) + 2
            if around + len(member.value) <= left:
                left -= around + len(member.value)
                chosen.add(index)
            elif (
                # Crumbs of the many lists in a map would look like whole ones, as no notice could list them all.
                len(members) <= _MANY_MEMBERS
                # What is not loaded is known by its node alone.
                and value.node.child(index).kind == "array"
                and (least := around + value.least_child(index, member.value, give, room)) <= left
            ):
                # Its name stays, if only to tell how many items it had.
                left -= least
                chosen.add(index)
            elif not chosen and around + value.least_child(index, member.value, give, room) <= left:
                left = 0
                chosen.add(index)
            else:
                misses += 1
                first_miss = index if first_miss < 0 else first_miss
        if first_miss >= 0 and left > room // 4:
            # Much room is left, and a member was too large for it: show part of that one.
            member = members[first_miss]
            least = len(member.raw_key) + 2 + value.least_child(first_miss, member.value, give, room)
            if least <= left:
                chosen.add(first_miss)
        return sorted(chosen)

    # -- what lists and objects share -----------------------------------------------------------------------

    def _fit_children(
        self, value: FitNode, children: list[tuple[int, Buffer]], room: int, give: Give
    ) -> list[Buffer] | None:
        sizes = [len(raw) for _, raw in children]
        if sum(sizes) <= room:
            return [raw for _, raw in children]
        floors = [value.least_child(index, raw, give, room) for index, raw in children]
        shares = share(sizes, floors, room)
        if shares is None:
            return None
        made = len(self._cuts)
        parts: list[Buffer] = []
        slack = 0
        for (index, raw), size, granted in zip(children, sizes, shares, strict=True):
            part: Buffer | None = raw
            if size > granted + slack:
                part = self._fit(value.child(index), granted + slack, give)
            if part is None:
                # Another attempt may follow, so the cuts of this one don't count.
                del self._cuts[made:]
                return None
            slack += granted - len(part)
            parts.append(part)
        return parts

    # -- strings --------------------------------------------------------------------------------------------

    def _fit_string(self, value: FitNode, room: int, give: Give) -> bytes | None:
        if value.open_place.frozen_string:
            return None
        if inner := value.inner():
            return self._fit_json_string(value, inner, room, give)
        if not value.may_be_cut(give):
            return None
        total = value.node.length()
        fitted = string_head(value.node.raw, total, room, value.open_place.min_length)
        if fitted is None:
            return None
        body, kept = fitted
        self._cuts.append(Cut(value.path, "characters", kept, total, kept))
        return body

    def _fit_json_string(self, value: FitNode, inner: FitNode, room: int, give: Give) -> bytes | None:
        """Fit the JSON in a string, so that the string still holds JSON."""
        if inner.node.size <= room:
            # The string may owe its size to whitespace alone.
            whole = encode(readable(bytes(inner.node.raw)).decode())
            if len(whole) <= room:
                return whole
        inside = (room - 2) * inner.node.size // inner.in_string(inner.node.size)
        made = len(self._cuts)
        # All levels of JSON in JSON share the tries, or each level would multiply them.
        while self._tries > 0:
            self._tries -= 1
            body = self._fit(inner, inside, give)
            if body is None:
                return None
            escaped = encode(readable(body).decode())
            if len(escaped) <= room:
                # How much more JSON a larger string holds depends on its escapes.
                self._lacking.clear()
                return escaped
            del self._cuts[made:]
            inside = min(inside * room // len(escaped), len(body) - 1)
        return None


def share(sizes: Sequence[int], floors: Sequence[int], room: int) -> list[int] | None:
    """Return equal shares of the room, each between its floor and its size; None if the floors exceed the room."""
    total = sum(floors)
    if total > room:
        return None
    # Raise a water level from 0. A child starts to fill at its floor and is full at its size, so the total as a
    # function of the level is a line with bends at those points; follow it until the room is used up.
    bends = sorted([(floor, 1) for floor in floors] + [(size, -1) for size in sizes])
    level = slope = 0
    for bend, change in bends:
        if total + slope * (bend - level) > room:
            level += (room - total) // slope
            break
        total += slope * (bend - level)
        level = bend
        slope += change
    return [min(size, max(floor, level)) for size, floor in zip(sizes, floors, strict=True)]


def _whole_prefix(items: Sequence[Buffer], order: Sequence[int], room: int) -> tuple[int, int]:
    """Return how many items fit whole, and the bytes they take with brackets and commas."""
    used = 1
    for count, index in enumerate(order):
        after = used + len(items[index]) + 1
        if after > room:
            return count, used
        used = after
    return len(order), used


def _with_changed(body: bytes, steps: Sequence[str], change: Callable[[bytes], bytes]) -> bytes:
    """Return a document with the value changed that the steps lead to."""
    if not steps:
        return change(body)
    key = steps[0].replace("~1", "/").replace("~0", "~")
    return b"{%b}" % b",".join(
        [
            b"%b:%b"
            % (
                member.raw_key,
                _with_changed(bytes(member.value), steps[1:], change) if member.key == key else member.value,
            )
            for member in Node(body).members()
        ]
    )


def ranges(indices: Sequence[int]) -> str:
    """Return ascending indices as text: `0-16, 212`."""
    ends = [place for place, index in enumerate(indices) if indices[place + 1 : place + 2] != [index + 1]]
    starts = [0, *[end + 1 for end in ends[:-1]]]
    pairs = [(indices[start], indices[end]) for start, end in zip(starts, ends, strict=True)]
    return ", ".join([f"{first}-{last}" if last > first else str(first) for first, last in pairs])


def first_gap(chosen: Sequence[int]) -> int:
    """Return the first index that was not chosen."""
    if isinstance(chosen, range):
        return len(chosen)
    gap = 0
    for index in sorted(chosen):
        if index != gap:
            break
        gap += 1
    return gap
