"""One value of the payload, what the schema says of it, and how small it can become.

Strategy: a `Spot` ties together a node of the tree, its place in the schema and its path, and remembers what
was found out about them, because the same document is fitted into several rooms. `least` answers how few
bytes the value can take when a given kind of thing may be given up; it stops counting as soon as the answer
is "more than the room", so an object with a hundred thousand members costs what the room has space for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final

from .jsontree import MAX_DEPTH, Buffer, Kind, Member, Node
from .ranking import Ranking
from .schema import FREE, Place


class Give(IntEnum):
    """What may be given up: each step allows what the steps before it allow, and one thing more."""

    ITEMS = 1
    SOFT_STRINGS = 2
    STRINGS = 3
    PROPERTIES = 4
    EVERYTHING = 5


# A string is not cut below this while there is anything else to give up: shorter says nothing.
STRING_FLOOR: Final = 48
_BARE_STRING: Final = 5


class Spot:
    __slots__ = (
        "_children",
        "_inner",
        "_least",
        "_open_place",
        "_order",
        "above",
        "depth",
        "frozen",
        "node",
        "place",
        "rankings",
        "rigid",
        "soft",
        "step",
    )

    def __init__(
        self,
        node: Node,
        place: Place,
        above: Spot | None,
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
        # Names of strings that go before other strings do.
        self.soft = soft
        self.frozen = place.frozen or self.depth >= MAX_DEPTH
        self.rigid = False
        self._open_place: Place | None = None
        self._order: Sequence[int] | None = None
        self._children: dict[int, Spot] = {}
        self._inner: Spot | None = None
        self._least: dict[Give, int] = {}

    def release(self) -> None:
        """Let go of everything below."""
        for child in self._children.values():
            child.release()
        self._children.clear()
        if self._inner is not None:
            self._inner.release()
            self._inner = None

    @property
    def path(self) -> str:
        """Put together when it is asked for: a key may be long, and most paths are never told."""
        steps: list[str] = []
        spot: Spot | None = self
        while spot is not None:
            steps.append(spot.step)
            spot = spot.above
        return "".join(reversed(steps))

    @property
    def kind(self) -> Kind:
        return self.node.kind

    @property
    def open_place(self) -> Place:
        """The place, with the value's kind and members known: alternatives that can't apply are out."""
        if self._open_place is None:
            if self.place is FREE:
                self._open_place = FREE
            elif self.kind == "object":
                members = {member.key: member.value for member in self.node.members()}
                self._open_place = self.place.narrow("object", members)
            else:
                self._open_place = self.place.narrow(self.kind)
        return self._open_place

    def child(self, index: int) -> Spot:
        spot = self._children.get(index)
        if spot is None:
            if self.kind == "object":
                key = self.node.members()[index].key
                place = self.open_place.member(key)
                step = key.replace("~", "~0").replace("/", "~1")
            else:
                place = self.open_place.item(index)
                step = str(index)
            spot = Spot(self.node.child(index), place, self, f"/{step}", self.rankings, self.soft)
            self._children[index] = spot
        return spot

    def inner(self) -> Spot | None:
        """The JSON inside a string. Its path goes on from the string's own."""
        if self._inner is None and self.node.size > _BARE_STRING and (node := self.node.inner()):
            self._inner = Spot(node, FREE, self, "", self.rankings, self.soft)
        return self._inner

    def order(self, room: int) -> Sequence[int]:
        """The indices of the items that could stand in the room, best first if the list is ranked."""
        if self.rankings and self._order is None and (ranking := self._ranking()):
            self.node.all_items()
            self._order = ranking.order(self.node)
        if self._order is not None:
            return self._order
        return range(len(self.node.items(room)))

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
        """How many items of a list have to stay: one, as long as anything else can go instead."""
        total = self.node.total()
        if self.rigid or self.open_place.frozen_items:
            return total
        return min(total, max(self.open_place.min_items, 1 if give < Give.EVERYTHING else 0))

    def must_have(self, give: Give) -> Sequence[int]:
        """The members of an object that have to stay: what the schema requires, and as many as it counts."""
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
        """The fewest bytes this value can take. An answer above `cap` only says that it is more than that."""
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
            return min(size, 2 + inner.least(give, cap) * size // inner.node.size)
        if not self.may_be_cut(give):
            return size
        floor = STRING_FLOOR if give < Give.EVERYTHING else _BARE_STRING
        # A character takes six bytes at most, as an escape.
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
        """Least sizes are no longer true, here and below, once something was protected."""
        self._least.clear()
        for child in self._children.values():
            child.forget()
        if self._inner is not None:
            self._inner.forget()


def _weighed(members: list[Member], index: int) -> tuple[int, int, Buffer]:
    member = members[index]
    return len(member.raw_key) + 1, index, member.value
