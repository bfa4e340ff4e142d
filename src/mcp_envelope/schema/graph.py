"""What each subschema says: a graph of nodes, one for each, with the references followed.

Strategy: starting at the root, each subschema that is reached becomes a `Node`. It is read once, into plain
attributes: what it asks of a value, which others apply at the same spot, and which apply below. Then what
limits a cut is carried backwards along the edges, so that whole regions without a limit need no second look.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from ..jsontree import Buffer, Kind
from .document import Body, Document, pointer_of, subschemas
from .wrapping import ENVELOPE_KEY, ENVELOPE_PATTERN

# A member larger than this is never compared with a constant.
MAX_COMPARED: Final = 200

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
    """All nodes that the root leads to."""

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
        if [pattern for pattern, _ in node.patterns] == [ENVELOPE_PATTERN] and not node.properties:
            # A widened map. One key by its name spares all the others the pattern.
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
