"""A schema document: where its subschemas are, and what its references mean.

Strategy: walk the document once and note each `$id`, each anchor, and the base address of every subschema.
Afterwards a reference resolves by lookup alone; nothing is ever fetched, and what isn't in the document is
simply not there. Bodies are told apart by identity, since equal ones may stand at different addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, urljoin

Body: TypeAlias = dict[str, Any]

# The validator stops at 255 containers in one another; the rest is for what widening puts around a schema.
MAX_SCHEMA_DEPTH: Final = 200

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
DEFINITIONS: Final = ("$defs", "definitions")


class SchemaError(ValueError):
    """The schema itself is unusable; `pointer` says where, if that is known."""

    def __init__(self, reason: str, pointer: str = "") -> None:
        super().__init__(f"{reason} (at #{pointer})" if pointer else reason)
        self.pointer = pointer


def pointer_of(path: Sequence[str | int]) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


class Document:
    """A schema document with every `$id` and anchor known, so that references resolve without I/O."""

    def __init__(self, document: Mapping[str, Any] | bool) -> None:
        check_root(document)
        check_depth(document)
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


def check_root(document: object) -> None:
    if not isinstance(document, dict | bool):
        raise SchemaError(f"a schema is an object or a boolean, not {type(document).__name__}")


def check_depth(document: object) -> None:
    level: list[Any] = [] if isinstance(document, bool) else [document]
    for _ in range(MAX_SCHEMA_DEPTH):
        level = one_level_down(level)
        if not level:
            return
    raise SchemaError(f"the schema is nested more than {MAX_SCHEMA_DEPTH} levels deep")


def one_level_down(containers: list[Any]) -> list[Any]:
    return [
        part
        for value in containers
        for part in (value.values() if isinstance(value, dict) else value)
        if isinstance(part, dict | list | tuple)
    ]
