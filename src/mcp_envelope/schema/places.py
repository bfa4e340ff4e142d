"""What a schema says about one place in a payload.

Strategy: a `Place` is the set of subschemas that can apply at one spot, their limits folded into the strictest.
So it errs on the side of keeping, and what it can't foresee (two `oneOf` branches that come to overlap, say) is
caught by the validation that follows every cut. Once a value has been seen, its place narrows to the branches
that the value can match. Places are made on demand and shared through `Places`, so asking is cheap.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from ..jsontext.document import Buffer, Kind
from .document import Body, Document, leading_to, pointer_of, reachable, subschemas
from .validator import may_match
from .widening import ENVELOPE_KEY, ENVELOPE_PATTERN


class _Cache(dict[object, "Place"]):
    """Places by what was asked. Emptied when full, so that a payload with endless keys can't fill the memory."""

    SIZE: Final = 4_096

    def keep(self, key: object, place: Place) -> Place:
        if len(self) >= self.SIZE:
            self.clear()
        self[key] = place
        return place


class Place:
    """What the schema says about one place in the payload: the strictest of all that can apply there."""

    def __init__(
        self,
        places: Places | None,
        nodes: tuple[Subschema, ...],
        held: frozenset[str] = frozenset(),
        frozen: bool = False,
        *,
        seeds: tuple[Subschema, ...] = (),
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
        # Where narrowing starts; a place that is narrow already has none.
        self.seeds = seeds
        self._is_narrow = not seeds or not any(
            node.choices or node.conditions or node.triggered or node.negated for node in nodes
        )
        # Without patterns, all keys that no node names lead to the same place.
        self._has_patterns = any(node.patterns for node in nodes)
        self._names = frozenset(key for node in nodes for key in node.properties)
        self.prefix_length = max((len(node.prefix) for node in nodes), default=0)
        self._members, self._items, self._narrowed = _Cache(), _Cache(), _Cache()
        self._signals: tuple[tuple[str, bool], ...] | None = None

    def required(self, keys: Collection[str]) -> frozenset[str]:
        """Return those of the given keys that may not be dropped while the others stay."""
        needed = self._always_required.intersection(keys)
        if self._dependent:
            present = keys if isinstance(keys, set | frozenset | dict) else frozenset(keys)
            for key, names in self._dependent:
                if key in present:
                    needed = needed.union(names.intersection(present))
        return needed

    def narrow(self, kind: Kind, members: Mapping[str, Buffer] | None = None) -> Place:
        """Return the same place for a value whose kind and, if it is an object, whose members are known."""
        if self._is_narrow or self._places is None:
            return self
        signature: object = kind
        if kind == "object" and members is not None:
            if self._signals is None:
                self._signals = _signals(self.nodes)
            get = members.get
            signature = tuple([_sign(get(key), compared) for key, compared in self._signals])
        found = self._narrowed.get(signature)
        return found or self._narrowed.keep(signature, self._places.narrowed(self, kind, members))

    def member(self, key: str) -> Place:
        if self._places is None:
            return self
        name = key if self._has_patterns or key in self._names else None
        return self._members.get(name) or self._members.keep(name, self._places.of(self._member_nodes(key)))

    def item(self, index: int) -> Place:
        if self._places is None:
            return self
        index = min(index, self.prefix_length)
        return self._items.get(index) or self._items.keep(index, self._places.of(self._item_nodes(index)))

    def _member_nodes(self, key: str) -> list[Subschema]:
        found: list[Subschema] = []
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

    def _item_nodes(self, index: int) -> list[Subschema]:
        found: list[Subschema] = []
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
        self._made = _Cache()

    def of(self, nodes: Sequence[Subschema]) -> Place:
        if not any(node.matters for node in nodes):
            return FREE
        key = frozenset(map(id, nodes))
        found = self._made.get(key)
        return found or self._made.keep(key, Place(self, *_gather(nodes, None, None), seeds=tuple(nodes)))

    def narrowed(self, place: Place, kind: Kind, members: Mapping[str, Buffer] | None) -> Place:
        nodes, held, frozen = _gather(place.seeds, kind, members)
        if not frozen and not held and not any(node.matters_itself for node in nodes):
            return FREE
        key = (frozenset(map(id, nodes)), held, frozen)
        return self._made.get(key) or self._made.keep(key, Place(self, nodes, held, frozen))


def _gather(
    seeds: Sequence[Subschema], kind: Kind | None, members: Mapping[str, Buffer] | None
) -> tuple[tuple[Subschema, ...], frozenset[str], bool]:
    """Return the nodes that can apply at a spot, the keys that decide which, and whether all is frozen."""
    held: set[str] = set()
    frozen = False

    def applied_by(node: Subschema) -> Iterator[Subschema]:
        nonlocal frozen
        yield from node.together
        for branches, exactly_one in node.choices:
            left, keys = _still_possible(branches, kind, members)
            yield from left
            if exactly_one:
                # Without the member that ruled a branch out, the value might match that branch as well.
                held.update(keys)
        for test, then, otherwise in node.conditions:
            if kind is None or test.excludes(kind, members) is None:
                yield from (part for part in (test, then, otherwise) if part is not None)
            elif otherwise is not None:
                yield otherwise
            for tested in test.always():
                held.update(tested.properties)
        yield from (child for key, child in node.triggered.items() if members is None or key in members)
        frozen = frozen or any(kind is None or not _is_other_kind(child, kind) for child in node.negated)

    return tuple(reachable(seeds, applied_by)), frozenset(held), frozen


def _still_possible(
    branches: list[Subschema], kind: Kind | None, members: Mapping[str, Buffer] | None
) -> tuple[list[Subschema], set[str]]:
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


def _is_other_kind(node: Subschema, kind: Kind) -> bool:
    return any(part.kinds is not None and kind not in part.kinds for part in node.always())


def _sign(raw: Buffer | None, compared: bool) -> bytes | bool:
    if raw is None:
        return False
    return bytes(raw) if compared and len(raw) <= MAX_COMPARED else True


def _signals(nodes: Iterable[Subschema]) -> tuple[tuple[str, bool], ...]:
    """Return the keys that tell branches apart, and whether by their value or only by being there."""
    signals: dict[str, bool] = {}
    for node in reachable(nodes, Subschema.in_place):
        for key in (*node.required, *node.triggered):
            signals.setdefault(key, False)
        signals.update(dict.fromkeys(node.constants, True))
    return tuple(signals.items())


# A member larger than this is never compared with a constant.
MAX_COMPARED: Final = 200

_TYPES: Final = ("object", "array", "string", "number", "boolean", "null")
_STRING_RULES: Final = ("pattern", "format", "contentEncoding", "contentMediaType", "contentSchema")


class Subschema:
    """One subschema: what it demands of a value, and which others it brings in."""

    def __init__(self, body: Body | bool, pointer: str) -> None:
        self.body: Body = body if isinstance(body, dict) else {}
        self.pointer = pointer
        self.kinds: frozenset[str] | None = None if body is not False else frozenset()
        self.min_items = self.min_length = self.min_properties = 0
        self.frozen = self.frozen_items = self.frozen_string = self.unique = False
        self.required: frozenset[str] = frozenset()
        self.dependent: dict[str, frozenset[str]] = {}
        self.constants: dict[str, list[Any]] = {}
        # at the same spot
        self.together: list[Subschema] = []
        self.choices: list[tuple[list[Subschema], bool]] = []  # (branches, exactly one)
        self.conditions: list[tuple[Subschema, Subschema | None, Subschema | None]] = []
        self.triggered: dict[str, Subschema] = {}
        self.negated: list[Subschema] = []
        self.idle: list[Subschema] = []  # evaluated, but no cut changes the outcome
        # below
        self.properties: dict[str, Subschema] = {}
        self.patterns: list[tuple[str, Subschema]] = []
        self.other_properties: Subschema | None = None
        self.unevaluated_properties: Subschema | None = None
        self.prefix: list[Subschema] = []
        self.other_items: Subschema | None = None
        self.contains: Subschema | None = None
        self.unevaluated_items: Subschema | None = None
        self.matters = False  # something here, at the same spot or below limits a cut
        self.matters_itself = False  # the same, without what else applies at this spot
        self._always: list[Subschema] | None = None

    def in_place(self) -> Iterator[Subschema]:
        yield from self.together
        for branches, _ in self.choices:
            yield from branches
        for condition in self.conditions:
            yield from (part for part in condition if part is not None)
        yield from self.triggered.values()
        yield from self.negated
        yield from self.idle

    def below(self) -> Iterator[Subschema]:
        yield from self.properties.values()
        yield from (node for _, node in self.patterns)
        yield from self.prefix
        rest = (self.other_properties, self.unevaluated_properties, self.other_items, self.unevaluated_items)
        yield from (node for node in (*rest, self.contains) if node is not None)

    def limits(self) -> bool:
        """Whether this subschema by itself rules out some cut."""
        counts = self.min_items or self.min_length or self.min_properties or self.required or self.dependent
        return bool(counts or self.unique or self.frozen or self.frozen_items or self.frozen_string)

    def always(self) -> list[Subschema]:
        """Return this node and those that apply whenever it does."""
        if self._always is None:
            self._always = reachable([self], lambda node: node.together)
        return self._always

    def excludes(self, kind: Kind, members: Mapping[str, Buffer] | None) -> str | None:
        """Return None if such a value may conform, else the member that rules it out, if it is a member, or ""."""
        for node in self.always():
            if node.kinds is not None and kind not in node.kinds:
                return ""
            if kind == "object" and members is not None:
                if not all(key in members for key in node.required):
                    return ""
                for key, constants in node.constants.items():
                    if key in members and not _is_one_of(members[key], constants):
                        return key
        return None


class Graph:
    """All subschemas that the root leads to."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self._nodes: dict[int, Subschema] = {}
        self._unread: list[tuple[Subschema, Body]] = []
        self._true, self._false = Subschema(True, ""), Subschema(False, "")
        self.root = self._node(document.root, "")
        while self._unread:
            self._read(*self._unread.pop())
        self.nodes = list(self._nodes.values())
        self._find_what_matters()

    def _node(self, body: Body | bool, pointer: str) -> Subschema:
        if isinstance(body, bool):
            return self._true if body else self._false
        node = self._nodes.get(id(body))
        if node is None:
            node = self._nodes[id(body)] = Subschema(body, pointer)
            self._unread.append((node, body))
        return node

    def _referred(self, body: Body) -> Iterator[Subschema | None]:
        base = self.document.base_of(body)
        for keyword in ("$ref", "$recursiveRef", "$dynamicRef"):
            reference = body.get(keyword)
            if not isinstance(reference, str):
                continue
            target = self.document.resolve(reference, base)
            pointer = reference.partition("#")[2]
            yield None if target is None else self._node(target, pointer)
            if keyword == "$dynamicRef":
                # Which anchor is meant depends on the path taken; all candidates apply.
                yield from (self._node(other, pointer) for other in self.document.dynamic.get(pointer, ()))

    def _read(self, node: Subschema, body: Body) -> None:
        for target in self._referred(body):
            if target is None:
                node.frozen = True
            else:
                node.together.append(target)
        if self.document.is_overridden(body):
            return

        parts: dict[str, Any] = {}
        for keyword, name, part in subschemas(body):
            path = (keyword,) if name is None else (keyword, name)
            child = self._node(part, node.pointer + pointer_of(path))
            if name is None:
                parts[keyword] = child
            elif isinstance(name, str):
                parts.setdefault(keyword, {})[name] = child
            else:
                parts.setdefault(keyword, []).append(child)

        self._read_value_rules(node, body)
        self._read_same_spot(node, body, parts)
        self._read_below(node, body, parts)

    def _read_value_rules(self, node: Subschema, body: Body) -> None:
        types = body.get("type")
        if types is not None:
            names = types if isinstance(types, list | tuple) else [types]
            kinds = ("number" if name == "integer" else name for name in names)
            node.kinds = frozenset(kind for kind in kinds if kind in _TYPES)
        allowed = _allowed_values(body)
        if allowed is not None:
            node.frozen = node.frozen_items = node.frozen_string = True
            allowed_kinds = frozenset(map(_kind_of_value, allowed))
            node.kinds = allowed_kinds if node.kinds is None else node.kinds & allowed_kinds
        if any(rule in body for rule in _STRING_RULES):
            node.frozen_string = True
        node.min_length = _count(body, "minLength")
        node.min_items = _count(body, "minItems")
        node.min_properties = _count(body, "minProperties")
        node.unique = body.get("uniqueItems") is True
        if isinstance(body.get("required"), list | tuple):
            node.required = frozenset(name for name in body["required"] if isinstance(name, str))
        for keyword in ("dependentRequired", "dependencies"):
            if isinstance(body.get(keyword), dict):
                for key, names in body[keyword].items():
                    if isinstance(names, list | tuple):
                        node.dependent[key] = node.dependent.get(key, frozenset()) | frozenset(names)

    def _read_same_spot(self, node: Subschema, body: Body, parts: dict[str, Any]) -> None:
        node.together += parts.get("allOf", ())
        for keyword in ("anyOf", "oneOf"):
            if parts.get(keyword):
                node.choices.append((parts[keyword], keyword == "oneOf"))
        if "if" in parts:
            node.conditions.append((parts["if"], parts.get("then"), parts.get("else")))
        for keyword in ("dependentSchemas", "dependencies"):
            for key, child in parts.get(keyword, {}).items():
                # Two of the same key can only come from a document that mixes drafts.
                if key in node.triggered:
                    node.together.append(child)
                node.triggered[key] = child
        if "not" in parts:
            if _survives_cuts(body["not"]):
                node.idle.append(parts["not"])
            else:
                node.negated.append(parts["not"])

    def _read_below(self, node: Subschema, body: Body, parts: dict[str, Any]) -> None:
        node.properties = parts.get("properties", {})
        for key, child in node.properties.items():
            allowed = _allowed_values(child.body)
            if allowed is not None and not any(isinstance(value, dict | list | tuple) for value in allowed):
                node.constants[key] = allowed
        node.patterns = list(parts.get("patternProperties", {}).items())
        if [pattern for pattern, _ in node.patterns] == [ENVELOPE_PATTERN] and not node.properties:
            # A widened map. With that key known by name, no other key has to be matched against the pattern.
            node.properties, node.patterns = {ENVELOPE_KEY: node.patterns[0][1]}, []
        node.other_properties = parts.get("additionalProperties")
        node.unevaluated_properties = parts.get("unevaluatedProperties")
        node.unevaluated_items = parts.get("unevaluatedItems")
        if isinstance(body.get("items"), list | tuple):
            node.prefix, node.other_items = parts.get("items", []), parts.get("additionalItems")
        else:
            node.prefix, node.other_items = parts.get("prefixItems", []), parts.get("items")
        node.contains = parts.get("contains")
        if node.contains is not None and body.get("minContains", 1) != 0:
            node.frozen_items = True

    def _find_what_matters(self) -> None:
        matters = leading_to(
            lambda node: node.limits() or node.negated or node.conditions,
            self.nodes,
            lambda node: (*node.in_place(), *node.below()),
        )
        for node in self.nodes:
            node.matters = id(node) in matters
        for node in self.nodes:
            node.matters_itself = node.limits() or any(child.matters for child in node.below())


def _survives_cuts(body: Body | bool) -> bool:
    """Whether a value that fails this subschema still fails it after any cut: fewer members, same kind."""
    if isinstance(body, bool):
        return True
    for keyword, value in body.items():
        if keyword in ("allOf", "anyOf"):
            if not all(_survives_cuts(part) for part in value):
                return False
        elif keyword in ("const", "enum"):
            values = value if keyword == "enum" else [value]
            if any(isinstance(part, str | dict | list | tuple) for part in values):
                return False
        elif keyword not in ("type", "required", "title", "description", "$comment"):
            return False
    return True


def _allowed_values(body: Body) -> list[Any] | None:
    if "const" in body:
        return [body["const"]]
    values = body.get("enum")
    return list(values) if isinstance(values, list | tuple) else None


def _kind_of_value(value: object) -> Kind:
    match value:
        case bool():
            return "boolean"
        case None:
            return "null"
        case str():
            return "string"
        case dict():
            return "object"
        case list() | tuple():
            return "array"
    return "number"


def _is_one_of(raw: Buffer, constants: list[Any]) -> bool:
    if len(raw) > MAX_COMPARED:
        return True
    try:
        value = msgspec.json.decode(raw)
    except (ValueError, RecursionError):
        return True
    # In Python, unlike JSON, True equals 1.
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in constants)


def _count(body: Body, keyword: str) -> int:
    value = body.get(keyword, 0)
    return int(value) if isinstance(value, int | float) and value > 0 else 0
