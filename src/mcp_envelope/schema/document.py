"""A schema document: where its subschemas are, and what its references mean.

Strategy: walk the document once and note each `$id`, each anchor, and the base address of every subschema.
Afterwards a reference resolves by lookup alone: nothing is ever fetched, and what isn't in the document doesn't
exist. Bodies are told apart by identity, since equal ones may have different addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import unquote, urljoin

_T = TypeVar("_T")
Body: TypeAlias = dict[str, Any]

# The validator stops at 255 nested containers; the rest is for what widening puts around a schema.
MAX_SCHEMA_DEPTH: Final = 200

# The keywords that hold subschemas, by the shape of their value: one, a list, or an object with one for each name.
ONE: Final = (
    *("additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not"),
    *("propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"),
)
MANY: Final = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
NAMED: Final = ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")
_LEADING: Final = frozenset((*ONE, *MANY, *NAMED))
DEFINITIONS: Final = ("$defs", "definitions")
REFERENCES: Final = ("$ref", "$dynamicRef")


class SchemaError(ValueError):
    """The schema itself is unusable; `pointer` says where, if known."""

    def __init__(self, reason: str, pointer: str = "") -> None:
        super().__init__(f"{reason} (at #{pointer})" if pointer else reason)
        self.pointer = pointer


def pointer_of(path: Sequence[str | int]) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


class Document:
    """A schema document whose `$id`s and anchors are all known, so that references resolve without I/O."""

    def __init__(self, document: Mapping[str, Any] | bool) -> None:
        check(document)
        self.root: Body = document if isinstance(document, dict) else {} if document else {"not": {}}
        named = str(self.root.get("$schema", ""))
        # Up to draft-07 nothing next to a `$ref` counts.
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
        """Whether a `$ref` makes the other keywords of this subschema meaningless."""
        return self.is_old and isinstance(body.get("$ref"), str)

    def resolve(self, reference: str, base: str) -> Body | bool | None:
        """Return the subschema that a reference names, or None if it isn't in this document."""
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
            waiting.extend((part, base) for part in bodies_below(body))


def subschemas(body: Body) -> Iterator[tuple[str, str | int | None, Body | bool]]:
    """Yield every subschema directly below: its keyword, its name or number there (if any), and itself."""
    if body.keys().isdisjoint(_LEADING):
        # Most have none.
        return
    for keyword in ONE:
        if isinstance(part := body.get(keyword), dict | bool):
            yield keyword, None, part
    for keyword in MANY:
        if isinstance(parts := body.get(keyword), list | tuple):
            yield from ((keyword, i, part) for i, part in enumerate(parts) if isinstance(part, dict | bool))
    for keyword in NAMED:
        if isinstance(parts := body.get(keyword), dict):
            yield from ((keyword, k, part) for k, part in parts.items() if isinstance(part, dict | bool))


def bodies_below(body: Body) -> Iterator[Body]:
    """Yield the subschemas directly below that are objects."""
    return (part for _, _, part in subschemas(body) if isinstance(part, dict))


def reachable(starts: Iterable[_T], parts: Callable[[_T], Iterable[_T]]) -> list[_T]:
    """Return the given nodes and all that they lead to, each once."""
    found: dict[int, _T] = {}
    waiting = list(starts)
    while waiting:
        node = waiting.pop()
        if id(node) not in found:
            found[id(node)] = node
            waiting.extend(parts(node))
    return list(found.values())


def leading_to(
    wanted: Callable[[_T], object], nodes: Sequence[_T], parts: Callable[[_T], Iterable[_T]]
) -> set[int]:
    """Return the identities of the nodes that are wanted or lead to one that is."""
    users: dict[int, list[_T]] = {}
    for node in nodes:
        for part in parts(node):
            users.setdefault(id(part), []).append(node)
    return set(map(id, reachable(filter(wanted, nodes), lambda node: users.get(id(node), ()))))


def check(document: object) -> None:
    """Raise SchemaError unless this is an object or a boolean of a depth that the validator can take."""
    if not isinstance(document, dict | bool):
        raise SchemaError(f"a schema is an object or a boolean, not {type(document).__name__}")
    if depth(document, MAX_SCHEMA_DEPTH + 1) > MAX_SCHEMA_DEPTH:
        raise SchemaError(f"the schema is nested more than {MAX_SCHEMA_DEPTH} levels deep")


def depth(value: object, limit: int | None = None) -> int:
    """Return how deep a value's containers are nested, counting to `limit`."""
    level: list[Any] = [value] if isinstance(value, dict | list | tuple) else []
    found = 0
    while level and found != limit:
        found += 1
        level = [
            part
            for container in level
            for part in (container.values() if isinstance(container, dict) else container)
            if isinstance(part, dict | list | tuple)
        ]
    return found


def map_references(body: Any, reference_of: Callable[[Body, str], str]) -> Any:
    """Return a copy with the references that `reference_of` gives for a body and its keyword.

    Data (`const`, `default`, `examples` …) isn't mistaken for schemas.
    """
    if not isinstance(body, dict):
        return body
    return {keyword: map_keyword(body, keyword, reference_of) for keyword in body}


def map_keyword(body: Body, keyword: str, reference_of: Callable[[Body, str], str]) -> Any:
    """Return a copy of one keyword's value."""
    value = body[keyword]
    if keyword in REFERENCES and isinstance(value, str):
        return reference_of(body, keyword)
    if keyword in ONE and isinstance(value, dict):
        return map_references(value, reference_of)
    if keyword in MANY and isinstance(value, list | tuple):
        return [map_references(part, reference_of) for part in value]
    if keyword in NAMED and isinstance(value, dict):
        return {
            name: map_references(part, reference_of) if isinstance(part, dict) else copied(part)
            for name, part in value.items()
        }
    return copied(value)


def copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: copied(part) for key, part in value.items()}
    return [copied(part) for part in value] if isinstance(value, list | tuple) else value


def mentions(value: object, keyword: str) -> bool:
    """Whether a keyword has a string as its value anywhere inside, even in data."""
    if isinstance(value, dict):
        return isinstance(value.get(keyword), str) or any(mentions(part, keyword) for part in value.values())
    return isinstance(value, list | tuple) and any(mentions(part, keyword) for part in value)


def unresolved(document: Document) -> set[str]:
    """Return the references that lead out of the document, or nowhere."""
    return {
        body[keyword]
        for body in reachable([document.root], bodies_below)
        for keyword in REFERENCES
        if isinstance(body.get(keyword), str)
        and document.resolve(body[keyword], document.base_of(body)) is None
    }
