"""What a schema says of one place in a payload.

Strategy: a `Place` is the set of nodes that can apply at one spot, their limits folded into the strictest. So
it errs on the side of keeping, and what it can't foresee (two `oneOf` branches that come to overlap, say) is
caught by the validation that follows every cut. Once a value is seen, its place narrows to the branches that
it can match. Places are made on demand and shared through `Places`, so asking is cheap.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from ..jsontree import Buffer, Kind
from .graph import MAX_COMPARED, Node
from .validator import may_match

# Caches are emptied at this size, so that a payload with endless keys can't fill the memory.
MAX_CACHED: Final = 4_096


class Place:
    """What the schema says of one place in the payload; the strictest of all that can apply there."""

    __slots__ = (
        "_always_required",
        "_dependent",
        "_is_narrow",
        "_item_cache",
        "_known",
        "_member_cache",
        "_narrow_cache",
        "_places",
        "_prefix_length",
        "_signals",
        "frozen",
        "frozen_items",
        "frozen_string",
        "min_items",
        "min_length",
        "min_properties",
        "nodes",
        "seeds",
        "unique",
    )

    def __init__(
        self,
        places: Places | None,
        nodes: tuple[Node, ...],
        held: frozenset[str] = frozenset(),
        frozen: bool = False,
        *,
        seeds: tuple[Node, ...] = (),
    ) -> None:
        self._places = places
        self.nodes = nodes
        self.frozen = frozen or any(node.frozen for node in nodes)
        self.frozen_items = self.frozen or any(node.frozen_items for node in nodes)
        self.frozen_string = self.frozen or any(node.frozen_string for node in nodes)
        self.unique = any(node.unique for node in nodes)
        self.min_items = max((node.min_items for node in nodes), default=0)
        self.min_length = max((node.min_length for node in nodes), default=0)
        self.min_properties = max((node.min_properties for node in nodes), default=0)
        self._always_required = held.union(*(node.required for node in nodes))
        self._dependent = [pair for node in nodes for pair in node.dependent.items()]
        # Where narrowing starts from; a place that is narrow already has none.
        self.seeds = seeds
        self._is_narrow = not seeds or not any(
            node.choices or node.conditions or node.triggered or node.negated for node in nodes
        )
        # Keys that patterns don't touch and that no node names all lead to one and the same place.
        self._known = (
            None
            if any(node.patterns for node in nodes)
            else frozenset(key for node in nodes for key in node.properties)
        )
        self._prefix_length = max((len(node.prefix) for node in nodes), default=0)
        self._member_cache: dict[str | None, Place] = {}
        self._item_cache: dict[int, Place] = {}
        self._narrow_cache: dict[object, Place] = {}
        self._signals: tuple[tuple[str, bool], ...] | None = None

    def required(self, keys: Collection[str]) -> frozenset[str]:
        """Those of the given keys that may not be dropped while the others stay."""
        needed = self._always_required.intersection(keys)
        if self._dependent:
            present = keys if isinstance(keys, set | frozenset | dict) else frozenset(keys)
            for key, names in self._dependent:
                if key in present:
                    needed = needed.union(names.intersection(present))
        return needed

    def narrow(self, kind: Kind, members: Mapping[str, Buffer] | None = None) -> Place:
        """The same place, once the value's kind and an object's members are known."""
        if self._is_narrow or self._places is None:
            return self
        signature: object = kind
        if kind == "object" and members is not None:
            if self._signals is None:
                self._signals = _signals(self.nodes)
            get = members.get
            signature = tuple([_sign(get(key), compared) for key, compared in self._signals])
        found = self._narrow_cache.get(signature)
        if found is None:
            if len(self._narrow_cache) >= MAX_CACHED:
                self._narrow_cache.clear()
            found = self._places.narrowed(self, kind, members)
            self._narrow_cache[signature] = found
        return found

    def member(self, key: str) -> Place:
        if self._places is None:
            return self
        name = None if self._known is not None and key not in self._known else key
        found = self._member_cache.get(name)
        if found is None:
            if len(self._member_cache) >= MAX_CACHED:
                self._member_cache.clear()
            found = self._member_cache[name] = self._places.of(self._member_nodes(key))
        return found

    def item(self, index: int) -> Place:
        if self._places is None:
            return self
        index = min(index, self._prefix_length)
        found = self._item_cache.get(index)
        if found is None:
            found = self._item_cache[index] = self._places.of(self._item_nodes(index))
        return found

    def _member_nodes(self, key: str) -> list[Node]:
        found: list[Node] = []
        is_evaluated = False
        for node in self.nodes:
            matching = [child for pattern, child in node.patterns if may_match(pattern, key)]
            if key in node.properties:
                matching.append(node.properties[key])
            if not matching and node.other_properties is not None:
                matching.append(node.other_properties)
            is_evaluated = is_evaluated or bool(matching)
            found += matching
        if not is_evaluated:
            found += [node.unevaluated_properties for node in self.nodes if node.unevaluated_properties]
        return found

    def _item_nodes(self, index: int) -> list[Node]:
        found: list[Node] = []
        for node in self.nodes:
            if index < len(node.prefix):
                found.append(node.prefix[index])
            elif node.other_items is not None:
                found.append(node.other_items)
        if not found:
            found += [node.unevaluated_items for node in self.nodes if node.unevaluated_items]
        # Shrinking the item that `contains` looks for would lose it.
        found += [node.contains for node in self.nodes if node.contains]
        return found


FREE: Final = Place(None, ())


class Places:
    """The places of one schema that were made so far."""

    def __init__(self) -> None:
        self._made: dict[object, Place] = {}

    def of(self, nodes: Sequence[Node]) -> Place:
        if not any(node.matters for node in nodes):
            return FREE
        key = frozenset(map(id, nodes))
        place = self._made.get(key)
        if place is None:
            place = Place(self, *_gather(nodes, None, None), seeds=tuple(nodes))
            self._keep(key, place)
        return place

    def narrowed(self, place: Place, kind: Kind, members: Mapping[str, Buffer] | None) -> Place:
        nodes, held, frozen = _gather(place.seeds, kind, members)
        if not frozen and not held and not any(node.matters_itself for node in nodes):
            return FREE
        key = (frozenset(map(id, nodes)), held, frozen)
        found = self._made.get(key)
        if found is None:
            found = Place(self, nodes, held, frozen)
            self._keep(key, found)
        return found

    def _keep(self, key: object, place: Place) -> None:
        if len(self._made) >= MAX_CACHED:
            self._made.clear()
        self._made[key] = place


def _gather(
    seeds: Sequence[Node], kind: Kind | None, members: Mapping[str, Buffer] | None
) -> tuple[tuple[Node, ...], frozenset[str], bool]:
    """The nodes that can apply at a spot, the keys their choice depends on, and whether it is all frozen."""
    found: dict[int, Node] = {}
    held: set[str] = set()
    frozen = False
    waiting = list(seeds)
    while waiting:
        node = waiting.pop()
        if id(node) in found:
            continue
        found[id(node)] = node
        waiting.extend(node.together)
        for branches, exactly_one in node.choices:
            left, keys = _still_possible(branches, kind, members)
            waiting.extend(left)
            if exactly_one:
                # Without the member that ruled a branch out, the value might match that branch as well.
                held |= keys
        for test, then, otherwise in node.conditions:
            differing = None if kind is None else test.excludes(kind, members)
            if differing is None:
                waiting.append(test)
                waiting.extend(part for part in (then, otherwise) if part is not None)
            elif otherwise is not None:
                waiting.append(otherwise)
            for tested in test.always():
                held.update(tested.properties)
        for key, child in node.triggered.items():
            if members is None or key in members:
                waiting.append(child)
        for child in node.negated:
            if kind is None or not _is_other_kind(child, kind):
                frozen = True
    return tuple(found.values()), frozenset(held), frozen


def _still_possible(
    branches: list[Node], kind: Kind | None, members: Mapping[str, Buffer] | None
) -> tuple[list[Node], set[str]]:
    if kind is None:
        return branches, set()
    left, keys = [], set()
    for branch in branches:
        differing = branch.excludes(kind, members)
        if differing is None:
            left.append(branch)
        elif differing:
            keys.add(differing)
    return (left, keys) if left else (branches, set())


def _is_other_kind(node: Node, kind: Kind) -> bool:
    return any(part.kinds is not None and kind not in part.kinds for part in node.always())


def _sign(raw: Buffer | None, compared: bool) -> bytes | bool:
    if raw is None:
        return False
    return bytes(raw) if compared and len(raw) <= MAX_COMPARED else True


def _signals(nodes: Sequence[Node]) -> tuple[tuple[str, bool], ...]:
    """The keys that tell branches apart, and whether by their value or only by being there."""
    signals: dict[str, bool] = {}
    seen: set[int] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        waiting.extend(node.in_place())
        for key in (*node.required, *node.triggered):
            signals.setdefault(key, False)
        for key in node.constants:
            signals[key] = True
    return tuple(signals.items())
