"""Wrapping a schema: an object with the original below one key, and other properties beside it.

Strategy: the original moves one level down, and definitions move up to the new root, so that most references
can stay as they are. Those that pointed at or into the old root are led to where it is now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from .document import DEFINITIONS, MANY, NAMED, ONE, Body, Document, subschemas
from .references import copied, map_references, mentions

ENVELOPE_KEY: Final = "_envelope"
# The same as a pattern, for a root that is a map.
ENVELOPE_PATTERN: Final = f"^{ENVELOPE_KEY}$"
RESULT_KEY: Final = "result"

_DESCRIPTION: Final = "Present when the result was shortened or failed: what was left out, and how to get it."


def wrap(document: Document, original: Body | bool) -> Body:
    """An object with the original below `result`, and room for a notice beside it."""
    above, result, below = _moved_below(document, original, f"/properties/{RESULT_KEY}")
    properties = {RESULT_KEY: result, ENVELOPE_KEY: envelope_schema()}
    return {**above, "type": "object", "properties": properties, "required": [RESULT_KEY], **below}


def embed(
    schema: Mapping[str, Any] | bool,
    key: str,
    *,
    before: Body,
    after: Body,
    required: list[str],
    instead: Body | None = None,
) -> Body:
    """An object schema of some properties of ours, with the given schema as one of them.

    `instead` is what may stand in its place.
    """
    document = Document(schema)
    pointer = f"/properties/{key}/anyOf/0" if instead is not None else f"/properties/{key}"
    above, moved, below = _moved_below(
        document, schema if isinstance(schema, bool) else document.root, pointer
    )
    inner = moved if instead is None else {"anyOf": [moved, instead]}
    properties = {**before, key: inner, **after}
    return {**above, "type": "object", "properties": properties, "required": required, **below}


def either(schema: Mapping[str, Any] | bool, other: Body) -> Body:
    """An object schema that takes what the one or the other takes."""
    document = Document(schema)
    original = schema if isinstance(schema, bool) else document.root
    above, moved, below = _moved_below(document, original, "/anyOf/0")
    return {**above, "type": "object", "anyOf": [moved, other], **below}


def _moved_below(document: Document, original: Body | bool, pointer: str) -> tuple[Body, Any, Body]:
    """What stays above, the original at its new place, and the definitions, which move up.

    So most references can stay.
    """
    if not isinstance(original, dict):
        return {}, original, {}
    lifted = {*DEFINITIONS, *_places_of_schemas(document)}
    above = {name: original[name] for name in ("$schema", "$id", "id") if isinstance(original.get(name), str)}
    if mentions(original, "$recursiveRef"):
        # It means the root of its resource, so the original has to stay one.
        above.pop("$id", None)
        moved = {"$id": "urn:mcp-envelope:result", **copied(original)}
        moved.pop("$schema", None)
        return above, moved, {}
    moved = map_references(
        original, lambda body, keyword: _led(document, body, body[keyword], lifted, pointer)
    )
    below = {name: moved[name] for name in moved if name in lifted}
    return (
        above,
        {name: part for name, part in moved.items() if name not in above and name not in below},
        below,
    )


def envelope_schema() -> Body:
    return {"type": "object", "description": _DESCRIPTION}


def _places_of_schemas(document: Document) -> Iterator[str]:
    """Members of the root that mean nothing to JSON Schema but hold definitions, as `components` may."""
    waiting = [document.root]
    while waiting:
        body = waiting.pop()
        reference = body.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/"):
            name = reference.split("/")[1]
            if name in document.root and name not in ONE + MANY + NAMED:
                yield name
        waiting.extend(part for _, _, part in subschemas(body) if isinstance(part, dict))


def _led(document: Document, body: Body, reference: str, lifted: set[str], pointer: str) -> str:
    address, _, fragment = reference.partition("#")
    base = document.base_of(body)
    if base != document.root_base and not address:
        return reference
    if address and document.resolve(address, base) is not document.root:
        return reference
    is_name = fragment and not fragment.startswith("/")
    if is_name or fragment.split("/")[1:2] in [[name] for name in lifted]:
        return reference
    return f"{address}#{pointer}{fragment}"
