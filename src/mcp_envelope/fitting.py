"""A JSON value and a room in bytes give fitted bytes and the cuts that were made.

Strategy: what may be given up comes in steps (`Give`): list items, then long strings (first those that a
dialect names), then optional properties, then everything that the schema lets go. The first step whose least
size is within the room is the one that is used. Inside it the room is shared out from the top down: small
children stay whole, large ones get equal shares (`share`), and what one leaves over goes to the next. Whatever
fits its share is copied as the bytes it came in, so the work is proportional to the room and not to the
payload. The fitter knows nothing of meters or notes: bytes only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from .jsontree import Buffer, Node, TooDeep, encode
from .ranking import Ranking
from .schema import FREE, Place
from .spots import Give, Spot
from .text import string_head

CutKind = Literal["items", "properties", "characters", "blocks", "bytes"]

# A list of so few items, or of which so few fit, shares its room among its items instead of keeping a prefix.
_FEW_ITEMS: Final = 8
_FEW_FIT: Final = 4
_USEFUL_SHARE: Final = 512
# An object with more members is a map: whole members are kept rather than a crumb of each.
_MANY_MEMBERS: Final = 256
# How often JSON in strings is fitted again because its escapes took more than their share.
_TRIES: Final = 60
# So many members may be too large before the rest of a map isn't looked at any more.
_MISSES: Final = 64
# The smallest member that there can be: `"":0,`
_SMALLEST_MEMBER: Final = 5


@dataclass(frozen=True, slots=True)
class Cut:
    """One omission. The path leads into the original; `offset` is the first thing left out: read on there."""

    path: str
    kind: CutKind
    kept: int
    total: int
    offset: int

    @property
    def dropped(self) -> int:
        return self.total - self.kept


@dataclass(frozen=True, slots=True)
class Fitted:
    json: bytes
    cuts: tuple[Cut, ...]


class Fitter:
    """Fits one document, as often as asked, into rooms of different size."""

    def __init__(
        self,
        root: Node,
        place: Place = FREE,
        rankings: Mapping[str, Ranking] | None = None,
        base: str = "",
        soft: frozenset[str] = frozenset(),
    ) -> None:
        # A bare name is no path: it means every list of that name.
        ranked = {
            base + path if path[:1] in ("", "/") else path: ranking
            for path, ranking in (rankings or {}).items()
        }
        self._root = Spot(root, place, None, base, ranked, soft)
        self._steps = [give for give in Give if soft or give is not Give.SOFT_STRINGS]
        self._cuts: list[Cut] = []
        self._tries = 0

    def __del__(self) -> None:
        # Spots know what is above them. Such rings would keep a large payload until somebody looks for them.
        self._root.release()

    def fit(self, room: int) -> Fitted | None:
        """The document in at most `room` bytes, or None if the schema or its nature does not allow it."""
        if self._root.node.size <= room:
            return Fitted(bytes(self._root.node.raw), ())
        for give in self._steps:
            self._cuts = []
            self._tries = _TRIES
            try:
                if self._root.least(give, room) > room:
                    continue
                body = self._fit(self._root, room, give)
            except (TooDeep, RecursionError):
                return None
            if body is not None:
                return Fitted(body, tuple(self._cuts))
        return None

    def protect(self, pointer: str) -> bool:
        """Make no such cut again at the place (in the fitted document) where a validator complained.

        The first complaint keeps the members or items there, the second keeps the value as it is.
        False when there is nothing left to protect.
        """
        spot = self._resolve(pointer)
        if spot.frozen:
            return False
        if spot.rigid or spot.kind not in ("object", "array"):
            spot.frozen = True
        spot.rigid = True
        self._root.forget()
        return True

    def _resolve(self, pointer: str) -> Spot:
        spot = self._root
        for step in pointer.split("/")[1:]:
            if spot.kind == "object":
                key = step.replace("~1", "/").replace("~0", "~")
                found = [index for index, member in enumerate(spot.node.members()) if member.key == key]
            elif spot.kind == "array" and step.isdigit():
                found = list(spot.order(0)[int(step) : int(step) + 1])
            else:
                found = []
            if not found:
                break
            spot = spot.child(found[0])
        return spot

    def _fit(self, spot: Spot, room: int, give: Give) -> bytes | None:
        if spot.node.size <= room:
            return bytes(spot.node.raw)
        if spot.frozen:
            return None
        if spot.kind == "array":
            return self._fit_array(spot, room, give)
        if spot.kind == "object":
            return self._fit_object(spot, room, give)
        return self._fit_string(spot, room, give) if spot.kind == "string" else None

    # -- lists ----------------------------------------------------------------------------------------------

    def _fit_array(self, spot: Spot, room: int, give: Give) -> bytes | None:
        total = spot.node.total()
        must = spot.must_keep(give)
        items = spot.node.items(room)
        order = spot.order(room)
        whole, used = _whole_prefix(items, order, room)
        chosen = order[:whole]
        parts: list[Buffer] | None = None
        if whole < total and (total <= _FEW_ITEMS or whole < _FEW_FIT):
            # Few and large items share the room, so that a list in one does not hide the next. As long as
            # any fits whole only lists inside them are cut; when none does, everything that may be.
            several = total if total <= _FEW_ITEMS else min(len(items), room // _USEFUL_SHARE)
            if several > whole and several >= must:
                inside = give if whole == 0 else Give.ITEMS
                parts = self._fit_items(spot, order[:several], room, inside)
                if parts is not None:
                    chosen = order[:several]
        if parts is None and whole >= max(must, 1):
            parts = [items[index] for index in chosen]
            if whole < len(order) and room - used > room // 4:
                # The next item is a giant: show its beginning rather than leave the room empty.
                giant = self._fit_items(spot, order[whole : whole + 1], room - used, Give.STRINGS)
                if giant:
                    parts += giant
                    chosen = order[: whole + 1]
        if parts is None:
            chosen = order[: max(must, 1)]
            parts = self._fit_items(spot, chosen, room, give)
        if parts is None and not must:
            chosen, parts = [], []
        if parts is None or len(chosen) < must:
            return None
        if len(chosen) < total:
            self._cuts.append(Cut(spot.path, "items", len(chosen), total, _first_gap(chosen)))
        return b"[%b]" % b",".join(parts)

    def _fit_items(self, spot: Spot, chosen: Sequence[int], room: int, give: Give) -> list[Buffer] | None:
        """Each chosen item, shrunk as far as its share of the room asks for."""
        items = spot.node.items(room)
        children = [(index, items[index]) for index in chosen]
        return self._fit_children(spot, children, room - 1 - len(children), give)

    # -- objects --------------------------------------------------------------------------------------------

    def _fit_object(self, spot: Spot, room: int, give: Give) -> bytes | None:
        members = spot.node.members()
        chosen: Sequence[int] = range(len(members))
        if give >= Give.PROPERTIES and not spot.rigid:
            as_strings = spot.least(Give.STRINGS, room)
            if as_strings > room or len(members) > _MANY_MEMBERS:
                chosen = self._choose_members(spot, room, give)
        children = [(index, members[index].value) for index in chosen]
        for_values = room - 1 - sum([len(members[index].raw_key) + 2 for index in chosen])
        parts = self._fit_children(spot, children, for_values, give) if children else []
        if parts is None:
            return None
        total = spot.node.total()
        if len(chosen) < total:
            self._cuts.append(Cut(spot.path, "properties", len(chosen), total, _first_gap(chosen)))
        return b"{%b}" % b",".join(
            [b"%b:%b" % (members[index].raw_key, part) for index, part in zip(chosen, parts, strict=True)]
        )

    def _choose_members(self, spot: Spot, room: int, give: Give) -> list[int]:
        """What the schema requires, then whole members in order while they fit; one at least, if it can."""
        members = spot.node.members()
        chosen = set(spot.must_have(give))
        left = room - 1
        for index in chosen:
            member = members[index]
            left -= len(member.raw_key) + 2 + spot.least_child(index, member.value, give, room)
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
            elif not chosen and around + spot.least_child(index, member.value, give, room) <= left:
                left = 0
                chosen.add(index)
            else:
                misses += 1
                first_miss = index if first_miss < 0 else first_miss
        if first_miss >= 0 and left > room // 4:
            # Much is left, and a member was too large for it: show some of that one.
            member = members[first_miss]
            least = len(member.raw_key) + 2 + spot.least_child(first_miss, member.value, give, room)
            if least <= left:
                chosen.add(first_miss)
        return sorted(chosen)

    # -- what lists and objects share -----------------------------------------------------------------------

    def _fit_children(
        self, spot: Spot, children: list[tuple[int, Buffer]], room: int, give: Give
    ) -> list[Buffer] | None:
        sizes = [len(raw) for _, raw in children]
        if sum(sizes) <= room:
            return [raw for _, raw in children]
        floors = [spot.least_child(index, raw, give, room) for index, raw in children]
        shares = share(sizes, floors, room)
        if shares is None:
            return None
        made = len(self._cuts)
        parts: list[Buffer] = []
        slack = 0
        for (index, raw), size, granted in zip(children, sizes, shares, strict=True):
            part: Buffer | None = raw
            if size > granted + slack:
                part = self._fit(spot.child(index), granted + slack, give)
            if part is None:
                # Another way may be tried next: what was cut for this one does not count.
                del self._cuts[made:]
                return None
            slack += granted - len(part)
            parts.append(part)
        return parts

    # -- strings --------------------------------------------------------------------------------------------

    def _fit_string(self, spot: Spot, room: int, give: Give) -> bytes | None:
        if spot.open_place.frozen_string:
            return None
        if inner := spot.inner():
            return self._fit_json_string(spot, inner, room, give)
        if not spot.may_be_cut(give):
            return None
        total = spot.node.length()
        fitted = string_head(spot.node.raw, total, room, spot.open_place.min_length)
        if fitted is None:
            return None
        body, kept = fitted
        self._cuts.append(Cut(spot.path, "characters", kept, total, kept))
        return body

    def _fit_json_string(self, spot: Spot, inner: Spot, room: int, give: Give) -> bytes | None:
        """A string that holds JSON stays a string that holds JSON."""
        inside = (room - 2) * inner.node.size // spot.node.size
        made = len(self._cuts)
        # JSON in JSON in JSON shares the tries, or each level would multiply them.
        while self._tries > 0:
            self._tries -= 1
            body = self._fit(inner, inside, give)
            if body is None:
                return None
            escaped = encode(body.decode())
            if len(escaped) <= room:
                return escaped
            del self._cuts[made:]
            inside = min(inside * room // len(escaped), len(body) - 1)
        return None


def share(sizes: Sequence[int], floors: Sequence[int], room: int) -> list[int] | None:
    """Equal shares of the room: nobody gets more than its size or less than its floor. None: too little."""
    total = sum(floors)
    if total > room:
        return None
    # The water level rises from 0. A child joins in at its floor and leaves at its size, so what a level
    # costs is a line with bends there; walk along it until the room is used up.
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
    """How many items fit whole, and the bytes that they take with brackets and commas."""
    used = 1
    for count, index in enumerate(order):
        after = used + len(items[index]) + 1
        if after > room:
            return count, used
        used = after
    return len(order), used


def _first_gap(chosen: Sequence[int]) -> int:
    """The first index that is not among the chosen ones."""
    if isinstance(chosen, range):
        return len(chosen)
    gap = 0
    for index in sorted(chosen):
        if index != gap:
            break
        gap += 1
    return gap
