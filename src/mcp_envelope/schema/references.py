"""References in a subschema: copies that have others in their place, and those that lead nowhere.

Strategy: a copy follows the keywords that hold subschemas and takes everything else as data, so that a `$ref`
inside a `const`, `default` or `examples` stays what it is. A copy shares nothing with its original.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .document import MANY, NAMED, ONE, Body, Document, subschemas

REFERENCES: Final = ("$ref", "$dynamicRef")


def map_references(body: Any, reference_of: Callable[[Body, str], str]) -> Any:
    """A copy of a subschema; data (`const`, `default`, `examples` …) is not mistaken for schemas."""
    if not isinstance(body, dict):
        return body
    return {keyword: map_keyword(keyword, value, reference_of, body) for keyword, value in body.items()}


def map_keyword(
    keyword: str, value: Any, reference_of: Callable[[Body, str], str], body: Body | None = None
) -> Any:
    if keyword in REFERENCES and isinstance(value, str) and body is not None:
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


def mentions(body: Body, keyword: str) -> bool:
    waiting: list[Any] = [body]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if isinstance(part.get(keyword), str):
                return True
            waiting.extend(part.values())
        elif isinstance(part, list | tuple):
            waiting.extend(part)
    return False


def unresolved(document: Document) -> set[str]:
    """The references that lead out of the document, or nowhere."""
    found: set[str] = set()
    waiting = [document.root]
    while waiting:
        body = waiting.pop()
        for keyword in REFERENCES:
            reference = body.get(keyword)
            if isinstance(reference, str) and document.resolve(reference, document.base_of(body)) is None:
                found.add(reference)
        waiting.extend(part for _, _, part in subschemas(body) if isinstance(part, dict))
    return found
