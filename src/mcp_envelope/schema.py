"""What a JSON Schema lets us cut, and whether a result still conforms.

Strategy: a schema document is read once into a graph, one `Node` for each subschema, with its references
resolved inside the document (nothing is ever fetched). A `Place` is the set of nodes that can apply at one
spot of a payload; it answers "what must stay here?" with the strictest of them all. So a place errs on the
side of keeping, and what it can't foresee (two `oneOf` branches that come to overlap, say) is caught by the
validation that follows every cut. Places are made on demand and shared, so asking is cheap.

Schemas come from strangers. Before one reaches the validator we count, on the graph, how often a single spot
of a payload could be evaluated; a document that multiplies without bound is refused.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import islice
from threading import Lock
from typing import Any, ClassVar, Final, TypeAlias
from urllib.parse import unquote, urljoin

import jsonschema_rs
import msgspec

from .jsontree import Buffer, Kind, mend_surrogates

__all__ = ["FREE", "Kind", "Place", "Schema", "SchemaError"]

Body: TypeAlias = dict[str, Any]

# The validator stops at 255 containers in one another; the rest is for what widening puts around a schema.
MAX_SCHEMA_DEPTH: Final = 200
# How often one spot of a payload may be evaluated: about 20 ns each, or 80 µs when errors are collected.
MAX_EVALUATIONS: Final = 20_000
MAX_EVALUATIONS_FOR_ERRORS: Final = 2_000
# The validator calls itself, on the thread's own stack: levels of the payload times applicators at one spot.
MAX_FRAMES: Final = 20_000
MAX_FRAMES_FOR_ERRORS: Final = 1_000
# Beyond this many levels nobody looks whether evaluations still multiply.
MAX_WIDTH_LEVELS: Final = 64
# The validator remembers what it found at a recursive reference, but only after unrolling it once.
MAX_UNROLLED: Final = 3_000
# References that lead back to the spot they came from: senseless, harmless when few, 2^n when many.
MAX_IDLE_CYCLES: Final = 16
# A member larger than this is never compared with a constant.
MAX_COMPARED: Final = 200
# Caches are emptied at this size, so that a payload with endless keys can't fill the memory.
MAX_CACHED: Final = 4_096

_REGEX_LIMIT: Final = 1 << 22
_LINEAR: Final = jsonschema_rs.RegexOptions(size_limit=_REGEX_LIMIT, dfa_size_limit=_REGEX_LIMIT)
_BACKTRACKING: Final = jsonschema_rs.FancyRegexOptions(
    backtrack_limit=10_000, size_limit=_REGEX_LIMIT, dfa_size_limit=_REGEX_LIMIT
)

# Where subschemas live, by the shape of the keyword's value.
ONE: Final = (
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
MANY: Final = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
NAMED: Final = ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")

_KIND_OF_TYPE: Final[dict[str, Kind]] = {
    "object": "object",
    "array": "array",
    "string": "string",
    "number": "number",
    "integer": "number",
    "boolean": "boolean",
    "null": "null",
}
_STRING_RULES: Final = ("pattern", "format", "contentEncoding", "contentMediaType", "contentSchema")


class SchemaError(ValueError):
    """The schema itself is unusable; `pointer` says where, if that is known."""

    def __init__(self, reason: str, pointer: str = "") -> None:
        super().__init__(f"{reason} (at #{pointer})" if pointer else reason)
        self.pointer = pointer


def pointer_of(path: Sequence[str | int]) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


# -- the document and its references ------------------------------------------------------------------------


class Document:
    """A schema document with every `$id` and anchor known, so that references resolve without I/O."""

    def __init__(self, document: Mapping[str, Any] | bool) -> None:
        _check_shape(document)
        self.root: Body = document if isinstance(document, dict) else {} if document else {"not": {}}
        named = str(self.root.get("$schema", ""))
        # Up to draft-07 nothing beside a `$ref` counts.
        self.is_old = any(f"draft-0{number}" in named for number in (3, 4, 6, 7))
        self._resources: dict[str, Body] = {}
        self._anchors: dict[tuple[str, str], Body] = {}
        self._bases: dict[int, str] = {}
        self.dynamic: dict[str, list[Body]] = {}
        self._index(self.root, "")
        self.root_base = self._bases[id(self.root)]
        self._resources.setdefault("", self.root)

    def base_of(self, body: Body) -> str:
        return self._bases.get(id(body), self.root_base)

    def is_overridden(self, body: Body) -> bool:
        return self.is_old and isinstance(body.get("$ref"), str)

    def resolve(self, reference: str, base: str) -> Body | bool | None:
        """The subschema that a reference names, or None if it isn't in this document."""
        try:
            target = base + reference if reference.startswith("#") else urljoin(base, reference)
        except ValueError:
            return None
        address, _, fragment = target.partition("#")
        resource = self._resources.get(address)
        if resource is None:
            return None
        fragment = unquote(fragment)
        if fragment and not fragment.startswith("/"):
            return self._anchors.get((address, fragment))
        found: Any = resource
        for part in fragment.split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and part in found:
                found = found[part]
            elif isinstance(found, list) and part.isascii() and part.isdigit() and int(part) < len(found):
                found = found[int(part)]
            else:
                return None
        if isinstance(found, dict) and id(found) not in self._bases:
            self._index(found, address)
        return found if isinstance(found, dict | bool) else None

    def _index(self, body: Body, base: str) -> None:
        waiting = [(body, base)]
        while waiting:
            body, base = waiting.pop()
            if id(body) in self._bases:
                continue
            own = body.get("$id", body.get("id") if self.is_old else None)
            overridden = self.is_overridden(body) and body is not self.root
            if isinstance(own, str) and not overridden:
                try:
                    address, _, fragment = urljoin(base, own).partition("#")
                except ValueError:
                    address, fragment = base, ""
                if own.startswith("#"):
                    self._anchors.setdefault((base, fragment), body)
                else:
                    base = address
                    self._resources.setdefault(base, body)
            for keyword in ("$anchor", "$dynamicAnchor"):
                name = body.get(keyword)
                if isinstance(name, str):
                    self._anchors.setdefault((base, name), body)
                    if keyword == "$dynamicAnchor":
                        self.dynamic.setdefault(name, []).append(body)
            self._bases[id(body)] = base
            waiting.extend((part, base) for _, _, part in subschemas(body) if isinstance(part, dict))


def subschemas(body: Body) -> Iterator[tuple[str, str | int | None, Body | bool]]:
    """Every subschema directly below: its keyword, its name or number there (if any), and itself."""
    for keyword in ONE:
        part = body.get(keyword)
        if isinstance(part, dict | bool):
            yield keyword, None, part
    for keyword in MANY:
        parts = body.get(keyword)
        if isinstance(parts, list | tuple):
            yield from ((keyword, i, part) for i, part in enumerate(parts) if isinstance(part, dict | bool))
    for keyword in NAMED:
        parts = body.get(keyword)
        if isinstance(parts, dict):
            yield from ((keyword, k, part) for k, part in parts.items() if isinstance(part, dict | bool))


def _check_shape(document: object) -> None:
    if not isinstance(document, dict | bool):
        raise SchemaError(f"a schema is an object or a boolean, not {type(document).__name__}")
    level: list[Any] = [] if isinstance(document, bool) else [document]
    for _ in range(MAX_SCHEMA_DEPTH):
        level = _one_level_down(level)
        if not level:
            return
    raise SchemaError(f"the schema is nested more than {MAX_SCHEMA_DEPTH} levels deep")


def _one_level_down(containers: list[Any]) -> list[Any]:
    return [
        part
        for value in containers
        for part in (value.values() if isinstance(value, dict) else value)
        if isinstance(part, dict | list | tuple)
    ]


# -- the graph ----------------------------------------------------------------------------------------------


class Node:
    """One subschema: what it asks of a value, and which others it brings in."""

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
        self.together: list[Node] = []
        self.choices: list[tuple[list[Node], bool]] = []  # (branches, exactly one)
        self.conditions: list[tuple[Node, Node | None, Node | None]] = []
        self.triggered: dict[str, Node] = {}
        self.negated: list[Node] = []
        self.idle: list[Node] = []  # evaluated, but of no consequence for a cut
        # below
        self.properties: dict[str, Node] = {}
        self.patterns: list[tuple[str, Node]] = []
        self.other_properties: Node | None = None
        self.unevaluated_properties: Node | None = None
        self.prefix: list[Node] = []
        self.other_items: Node | None = None
        self.contains: Node | None = None
        self.unevaluated_items: Node | None = None
        self.matters = False  # something here, at the same spot or below limits a cut
        self.matters_itself = False  # the same, leaving aside what else applies at this spot
        self._always: tuple[Node, ...] | None = None

    def in_place(self) -> Iterator[Node]:
        yield from self.together
        for branches, _ in self.choices:
            yield from branches
        for condition in self.conditions:
            yield from (part for part in condition if part is not None)
        yield from self.triggered.values()
        yield from self.negated
        yield from self.idle

    def below(self) -> Iterator[Node]:
        yield from self.properties.values()
        yield from (node for _, node in self.patterns)
        yield from self.prefix
        for node in (self.other_properties, self.unevaluated_properties, self.other_items, self.contains):
            if node is not None:
                yield node
        if self.unevaluated_items is not None:
            yield self.unevaluated_items

    def limits(self) -> bool:
        """Whether this subschema by itself stands in the way of some cut."""
        counts = self.min_items or self.min_length or self.min_properties or self.required or self.dependent
        return bool(counts or self.unique or self.frozen or self.frozen_items or self.frozen_string)

    def always(self) -> tuple[Node, ...]:
        """This node and those that apply whenever it does."""
        if self._always is None:
            found: dict[int, Node] = {}
            waiting = [self]
            while waiting:
                node = waiting.pop()
                if id(node) not in found:
                    found[id(node)] = node
                    waiting.extend(node.together)
            self._always = tuple(found.values())
        return self._always

    def excludes(self, kind: Kind, members: Mapping[str, Buffer] | None) -> str | None:
        """Why no such value conforms: the member that differs, or "" for another cause; None if one may."""
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
    """All nodes that the root leads to, and the places made from them so far."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self._nodes: dict[int, Node] = {}
        self._unread: list[tuple[Node, Body]] = []
        self._true, self._false = Node(True, ""), Node(False, "")
        self.root = self._node(document.root, "")
        while self._unread:
            self._read(*self._unread.pop())
        self.nodes = list(self._nodes.values())
        self._find_what_matters()
        self.places: dict[object, Place] = {}

    def place(self, nodes: Sequence[Node]) -> Place:
        if not any(node.matters for node in nodes):
            return FREE
        key = frozenset(map(id, nodes))
        place = self.places.get(key)
        if place is None:
            place = Place(self, *_gather(nodes, None, None), seeds=tuple(nodes))
            self._keep(key, place)
        return place

    def narrowed(self, place: Place, kind: Kind, members: Mapping[str, Buffer] | None) -> Place:
        nodes, held, frozen = _gather(place.seeds, kind, members)
        if not frozen and not held and not any(node.matters_itself for node in nodes):
            return FREE
        key = (frozenset(map(id, nodes)), held, frozen)
        found = self.places.get(key)
        if found is None:
            found = Place(self, nodes, held, frozen)
            self._keep(key, found)
        return found

    def _keep(self, key: object, place: Place) -> None:
        if len(self.places) >= MAX_CACHED:
            self.places.clear()
        self.places[key] = place

    def _node(self, body: Body | bool, pointer: str) -> Node:
        if isinstance(body, bool):
            return self._true if body else self._false
        node = self._nodes.get(id(body))
        if node is None:
            node = self._nodes[id(body)] = Node(body, pointer)
            self._unread.append((node, body))
        return node

    def _referred(self, body: Body) -> Iterator[Node | None]:
        base = self.document.base_of(body)
        for keyword in ("$ref", "$recursiveRef", "$dynamicRef"):
            reference = body.get(keyword)
            if not isinstance(reference, str):
                continue
            target = self.document.resolve(reference, base)
            pointer = reference.partition("#")[2]
            yield None if target is None else self._node(target, pointer)
            if keyword == "$dynamicRef":
                # Which anchor is meant depends on the way here; all that could be are heeded.
                yield from (self._node(other, pointer) for other in self.document.dynamic.get(pointer, ()))

    def _read(self, node: Node, body: Body) -> None:
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

    def _read_value_rules(self, node: Node, body: Body) -> None:
        types = body.get("type")
        if types is not None:
            names = types if isinstance(types, list | tuple) else [types]
            node.kinds = frozenset(_KIND_OF_TYPE[name] for name in names if name in _KIND_OF_TYPE)
        allowed = _allowed_values(body)
        if allowed is not None:
            node.frozen = node.frozen_items = node.frozen_string = True
            kinds = frozenset(_kind_of_value(value) for value in allowed)
            node.kinds = kinds if node.kinds is None else node.kinds & kinds
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

    def _read_same_spot(self, node: Node, body: Body, parts: dict[str, Any]) -> None:
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

    def _read_below(self, node: Node, body: Body, parts: dict[str, Any]) -> None:
        node.properties = parts.get("properties", {})
        for key, child in node.properties.items():
            allowed = _allowed_values(child.body)
            if allowed is not None and not any(isinstance(value, dict | list | tuple) for value in allowed):
                node.constants[key] = allowed
        node.patterns = list(parts.get("patternProperties", {}).items())
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
        users: dict[int, list[Node]] = {}
        for node in self.nodes:
            for used in (*node.in_place(), *node.below()):
                users.setdefault(id(used), []).append(node)
        waiting = [node for node in self.nodes if node.limits() or node.negated or node.conditions]
        while waiting:
            node = waiting.pop()
            if not node.matters:
                node.matters = True
                waiting.extend(users.get(id(node), ()))
        for node in self.nodes:
            node.matters_itself = node.limits() or any(child.matters for child in node.below())


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
    if isinstance(value, bool):
        return "boolean"
    if value is None:
        return "null"
    if isinstance(value, str):
        return "string"
    if isinstance(value, dict):
        return "object"
    return "array" if isinstance(value, list | tuple) else "number"


def _is_one_of(raw: Buffer, constants: list[Any]) -> bool:
    if len(raw) > MAX_COMPARED:
        return True
    try:
        value = msgspec.json.decode(raw)
    except (ValueError, RecursionError):
        return True
    # In Python, but not in JSON, True equals 1.
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in constants)


def _count(body: Body, keyword: str) -> int:
    value = body.get(keyword, 0)
    return int(value) if isinstance(value, int | float) and value > 0 else 0


@lru_cache(maxsize=1024)
def _pattern(pattern: str) -> jsonschema_rs.Validator | None:
    """A linear-time matcher: keys come from the payload, patterns from the schema, neither is trusted."""
    for options in (_LINEAR, _BACKTRACKING):
        try:
            return jsonschema_rs.validator_for({"pattern": pattern}, offline=True, pattern_options=options)
        except ValueError:
            continue
    return None


def may_match(pattern: str, key: str) -> bool:
    """Whether a key matches a pattern, or can't be told."""
    matcher = _pattern(pattern)
    try:
        return matcher is None or matcher.is_valid(key)
    except ValueError:
        return True


# -- places -------------------------------------------------------------------------------------------------


class Place:
    """What the schema says of one place in the payload; the strictest of all that can apply there."""

    __slots__ = (
        "_always_required",
        "_dependent",
        "_graph",
        "_is_narrow",
        "_item_cache",
        "_known",
        "_member_cache",
        "_narrow_cache",
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
        graph: Graph | None,
        nodes: tuple[Node, ...],
        held: frozenset[str] = frozenset(),
        frozen: bool = False,
        *,
        seeds: tuple[Node, ...] = (),
    ) -> None:
        self._graph = graph
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
        if self._is_narrow or self._graph is None:
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
            found = self._graph.narrowed(self, kind, members)
            self._narrow_cache[signature] = found
        return found

    def member(self, key: str) -> Place:
        if self._graph is None:
            return self
        name = None if self._known is not None and key not in self._known else key
        found = self._member_cache.get(name)
        if found is None:
            if len(self._member_cache) >= MAX_CACHED:
                self._member_cache.clear()
            found = self._member_cache[name] = self._graph.place(self._member_nodes(key))
        return found

    def item(self, index: int) -> Place:
        if self._graph is None:
            return self
        index = min(index, self._prefix_length)
        found = self._item_cache.get(index)
        if found is None:
            found = self._item_cache[index] = self._graph.place(self._item_nodes(index))
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


# -- how often the validator would look ---------------------------------------------------------------------


class Effort:
    """Bounds on the work that validating costs, by the depth of the payload."""

    def __init__(self, graph: Graph) -> None:
        self._root = graph.root
        order = _inner_first(graph)
        sizes: dict[int, int] = {}
        heights: dict[int, int] = {}
        for node in order:
            inner = list(node.in_place())
            sizes[id(node)] = 1 + sum(sizes.get(id(part), 1) for part in inner)
            heights[id(node)] = 1 + max((heights.get(id(part), 1) for part in inner), default=0)
            if sizes[id(node)] > MAX_EVALUATIONS:
                raise SchemaError(
                    f"checking one value would take more than {MAX_EVALUATIONS} steps", node.pointer
                )
        self._frames = max(heights.values(), default=1)
        self._widths, self._is_settled = _widths(order, sizes, graph.root)
        self._unrolled: bool | None = None

    def allows(self, depth: int) -> bool:
        if depth * self._frames > MAX_FRAMES:
            return False
        return self._width(depth) <= MAX_EVALUATIONS or self._unrolls()

    def allows_errors(self, depth: int) -> bool:
        return depth * self._frames <= MAX_FRAMES_FOR_ERRORS and (
            self._width(depth) <= MAX_EVALUATIONS_FOR_ERRORS
        )

    def _width(self, depth: int) -> int:
        if depth < len(self._widths):
            return self._widths[depth]
        return self._widths[-1] if self._is_settled else MAX_EVALUATIONS + 1

    def _unrolls(self) -> bool:
        """Whether the schema stays small when each recursive reference is followed once."""
        if self._unrolled is None:
            self._unrolled = _unrolled_size(self._root, MAX_UNROLLED) <= MAX_UNROLLED
        return self._unrolled


def _inner_first(graph: Graph) -> list[Node]:
    """All nodes, each after those that it applies at the same spot; counts the ways back to the same spot."""
    order: list[Node] = []
    state: dict[int, int] = {}  # 1 while being visited, 2 when done
    cycles = 0
    for start in graph.nodes:
        waiting: list[tuple[Node, Iterator[Node]]] = []
        if id(start) not in state:
            state[id(start)] = 1
            waiting.append((start, start.in_place()))
        while waiting:
            node, rest = waiting[-1]
            inner = next(rest, None)
            if inner is None:
                waiting.pop()
                state[id(node)] = 2
                order.append(node)
            elif id(inner) not in state:
                state[id(inner)] = 1
                waiting.append((inner, inner.in_place()))
            elif state[id(inner)] == 1:
                cycles += 1
                if cycles > MAX_IDLE_CYCLES:
                    raise SchemaError("references lead back to themselves in too many ways", node.pointer)
    return order


def _widths(order: list[Node], sizes: dict[int, int], root: Node) -> tuple[list[int], bool]:
    """For each depth of a payload, how often its deepest spot may be evaluated; and whether that settles.

    An upper bound: of the members (or items) below, each node is taken to meet the one that costs it most.
    """
    ceiling = MAX_EVALUATIONS + 1
    widths = dict(sizes)
    found = [widths[id(root)]]

    def width(node: Node | None) -> int:
        return 0 if node is None else widths.get(id(node), 1)

    for _ in range(MAX_WIDTH_LEVELS):
        reached: dict[int, int] = {}
        for node in order:
            named = max(map(width, node.properties.values()), default=0)
            members = max(named, width(node.other_properties)) + width(node.unevaluated_properties)
            members += sum(width(child) for _, child in node.patterns)
            listed = max(map(width, node.prefix), default=0)
            items = max(listed, width(node.other_items)) + width(node.unevaluated_items)
            items += width(node.contains)
            inner = sum(reached.get(id(part), 0) for part in node.in_place())
            reached[id(node)] = min(ceiling, max(members, items) + inner)
        following = {key: max(sizes[key], reached[key], widths[key]) for key in sizes}
        if following == widths:
            return found, True
        widths = following
        found.append(widths[id(root)])
        if found[-1] >= ceiling:
            break
    return found, False


def _unrolled_size(root: Node, limit: int) -> int:
    size = 1
    open_nodes = {id(root)}
    waiting: list[tuple[Node, Iterator[Node]]] = [(root, iter((*root.in_place(), *root.below())))]
    while waiting and size <= limit:
        node, rest = waiting[-1]
        inner = next(rest, None)
        if inner is None:
            waiting.pop()
            open_nodes.discard(id(node))
            continue
        size += 1
        if id(inner) not in open_nodes:
            open_nodes.add(id(inner))
            waiting.append((inner, iter((*inner.in_place(), *inner.below()))))
    return size


# -- the schema ---------------------------------------------------------------------------------------------


class Schema:
    """A schema document, checked: where it lets us cut, and whether an instance conforms."""

    _cache: ClassVar[OrderedDict[bytes, Schema]] = OrderedDict()
    _cache_lock: ClassVar[Lock] = Lock()
    _CACHE_SIZE: ClassVar[int] = 128

    def __init__(self, document: Mapping[str, Any] | bool) -> None:
        self.document = document
        graph = Graph(Document(document))
        self._effort = Effort(graph)
        self._validator = _compile(document)
        self.root: Place = graph.place([graph.root])

    @classmethod
    def of(cls, document: Mapping[str, Any] | bool) -> Schema:
        """The schema for this document, made once."""
        _check_shape(document)
        try:
            key = msgspec.json.encode(document, order="deterministic")
        except (TypeError, ValueError) as error:
            raise SchemaError(f"the schema is not JSON: {error}") from None
        with cls._cache_lock:
            schema = cls._cache.get(key)
            if schema is not None:
                cls._cache.move_to_end(key)
                return schema
        schema = cls(document)
        with cls._cache_lock:
            cls._cache[key] = schema
            if len(cls._cache) > cls._CACHE_SIZE:
                cls._cache.popitem(last=False)
        return schema

    def is_valid(self, instance_json: bytes) -> bool:
        """Whether the instance conforms; no, too, if it isn't JSON or would cost too much to check."""
        try:
            instance = _decode(instance_json)
        except (ValueError, RecursionError):
            return False
        return self._is_affordable(instance, instance_json) and self._validator.is_valid(instance)

    def first_error(self, instance_json: bytes) -> tuple[str, str] | None:
        """Where an instance fails, as a JSON pointer, and why; None if it conforms."""
        try:
            instance = _decode(instance_json)
        except RecursionError:
            return "", "nested too deeply to be checked"
        except ValueError as error:
            return "", f"not JSON: {error}"
        if not self._is_affordable(instance, instance_json):
            return "", "too costly to check: the schema multiplies at this depth"
        if self._validator.is_valid(instance):
            return None
        if not self._effort.allows_errors(_depth(instance)):
            return "", "does not conform to the schema, which is too entangled to say where"
        found = [_culprit(error) for error in islice(self._validator.iter_errors(instance), 50)]
        if not found:
            return "", "does not conform to the schema"
        worst = max(found, key=lambda error: len(error.instance_path))
        return pointer_of(worst.instance_path), _shortened(worst.message)

    def _is_affordable(self, instance: Any, instance_json: bytes) -> bool:
        # There can't be more levels than brackets, and these are quickly counted.
        brackets = instance_json.count(b"{") + instance_json.count(b"[")
        return self._effort.allows(brackets) or self._effort.allows(_depth(instance))


def _compile(document: Mapping[str, Any] | bool) -> jsonschema_rs.Validator:
    failure: ValueError | None = None
    body = document if isinstance(document, bool) else dict(document)
    for options in (_LINEAR, _BACKTRACKING):
        try:
            # The mask keeps the payload's values out of messages that may be shown or logged.
            return jsonschema_rs.validator_for(body, offline=True, pattern_options=options, mask="the value")
        except jsonschema_rs.ValidationError as error:
            culprit = _culprit(error)
            failure = SchemaError(_shortened(culprit.message), pointer_of(culprit.instance_path))
            if '"regex"' not in error.message:
                break
        except ValueError as error:
            failure = SchemaError(_shortened(str(error)))
            break
    assert failure is not None
    raise failure


def _culprit(error: jsonschema_rs.ValidationError) -> jsonschema_rs.ValidationError:
    """The error inside the branch that the instance came nearest to matching."""
    kinds = jsonschema_rs.ValidationErrorKind
    while isinstance(error.kind, kinds.AnyOf | kinds.OneOfNotValid):
        here = len(error.instance_path)
        deepest: jsonschema_rs.ValidationError | None = None
        fewest = 0
        for branch in error.kind.context:
            # A branch for another type, or another constant, isn't the one that was meant.
            if not branch or any(
                isinstance(part.kind, kinds.Type) and len(part.instance_path) == here for part in branch
            ):
                continue
            if any(isinstance(part.kind, kinds.Constant) for part in branch) and deepest is not None:
                continue
            candidate = max(branch, key=lambda part: len(part.instance_path))
            if deepest is None or (len(candidate.instance_path), -len(branch)) > (
                len(deepest.instance_path),
                -fewest,
            ):
                deepest, fewest = candidate, len(branch)
        if deepest is None:
            break
        error = deepest
    return error


def _shortened(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= 200 else line[:199] + "…"


def _decode(instance_json: bytes) -> Any:
    try:
        return msgspec.json.decode(instance_json)
    except ValueError:
        # msgspec refuses numbers beyond a double and halves of surrogate pairs; JSON doesn't.
        mended, _ = mend_surrogates(instance_json)
        return json.loads(mended, parse_float=Decimal, parse_int=_integer, parse_constant=_no_constant)


def _integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits) < 4_000 else Decimal(digits)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _depth(instance: Any) -> int:
    depth = 0
    level = [instance] if isinstance(instance, dict | list) else []
    while level:
        depth += 1
        level = _one_level_down(level)
    return depth
