"""Wrapping a schema: an object with the original below `result`, and room for `_envelope` beside it.

Strategy: the original moves one level down, and definitions move up to the new root, so that most references
can stay as they are. Those that pointed at or into the old root are led to where it is now.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from .document import DEFINITIONS, MANY, NAMED, ONE, Body, Document, subschemas
from .references import copied, map_references, mentions

ENVELOPE_KEY: Final = "_envelope"
RESULT_KEY: Final = "result"

_DESCRIPTION: Final = "Present when the result was shortened or failed: what was left out, and how to get it."


def wrap(document: Document, original: Body | bool) -> Body:
    """An object with the original below `result`; definitions move up, so most references can stay."""
    above: Body = {}
    result: Any = original
    below: Body = {}
    if isinstance(original, dict):
        lifted = {*DEFINITIONS, *_places_of_schemas(document)}
        above = {key: original[key] for key in ("$schema", "$id", "id") if isinstance(original.get(key), str)}
        if mentions(original, "$recursiveRef"):
            # It means the root of its resource, so the original has to stay one.
            above.pop("$id", None)
            result = {"$id": "urn:mcp-envelope:result", **copied(original)}
            result.pop("$schema", None)
        else:
            result = map_references(
                original, lambda body, keyword: _moved(document, body, body[keyword], lifted)
            )
            below = {key: result[key] for key in result if key in lifted}
            result = {key: part for key, part in result.items() if key not in above and key not in below}
    return {
        **above,
        "type": "object",
        "properties": {RESULT_KEY: result, ENVELOPE_KEY: envelope_schema()},
        "required": [RESULT_KEY],
        **below,
    }


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


def _moved(document: Document, body: Body, reference: str, lifted: set[str]) -> str:
    address, _, fragment = reference.partition("#")
    base = document.base_of(body)
    if base != document.root_base and not address:
        return reference
    if address and document.resolve(address, base) is not document.root:
        return reference
    is_name = fragment and not fragment.startswith("/")
    if is_name or fragment.split("/")[1:2] in [[name] for name in lifted]:
        return reference
    return f"{address}#/properties/{RESULT_KEY}{fragment}"
