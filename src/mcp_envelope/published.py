"""What clients are told of results: the output schema of a tool, as the dialect emits it.

Strategy: a dialect makes the schema of what it emits from the schema of the data. Both are the same for every
call, so they are made once, and found again by the identity of the tool's schema, or by its text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from . import dialects
from .jsontree import encode
from .policy.table import BUDGET_ARGUMENT, budget_argument
from .schema import Schema, SchemaError, widen

_WRAPPED: Final = "x-fastmcp-wrap-result"
# So many published schemas are remembered.
_REMEMBERED: Final = 4096


class Published(msgspec.Struct, frozen=True):
    """What clients are told of a result: the document, and what results are held to."""

    document: dict[str, Any] | None = None
    schema: Schema | None = None
    # The payload goes into a member `result`: the tool's own root is no object.
    wrap: bool = False
    # The tool's own result is {"result": …} around a value that is no object, and the dialect takes the value.
    unwrap: bool = False
    # What a call's own budget is called.
    budget_argument: str = BUDGET_ARGUMENT


class Publisher:
    def __init__(self) -> None:
        self._published: dict[tuple[str, bytes, bool, bool], Published] = {}
        # By identity, which is quick; the schema is kept beside, so that its id cannot come to mean another one.
        self._told: dict[tuple[str, int, bool, bool], tuple[object, Published]] = {}

    def of(
        self, dialect: str, schema: Mapping[str, Any] | None, misses: bool = False, wrapped: bool = False
    ) -> Published:
        told = self._told.get((dialect, id(schema), misses, wrapped))
        if told is not None and told[0] is schema:
            return told[1]
        key = dialect, b"" if schema is None else encode(schema), misses, wrapped
        known = self._published.get(key)
        if known is None:
            if len(self._published) >= _REMEMBERED:
                self._published.clear()
            made = _publish(dialect, schema, misses, wrapped)
            known = self._published[key] = replace(made, budget_argument=budget_argument(dialect))
        if len(self._told) >= _REMEMBERED:
            self._told.clear()
        self._told[dialect, id(schema), misses, wrapped] = schema, known
        return known


def _publish(name: str, schema: Mapping[str, Any] | None, misses: bool, wrapped: bool) -> Published:
    spoken = dialects.dialect(name)
    try:
        if name == "native":
            if schema is None:
                return Published()
            widened = widen(schema)
            if misses:
                document = spoken.output_schema(schema)
                assert document is not None
                return Published(document, Schema.of(document), widened.wrapped)
            return Published(dict(widened.schema), Schema.of(widened.schema), widened.wrapped)
        data = None if schema is None else _unwrapped(schema, wrapped)
        held = None if data is None else Schema.of(data)
        return Published(spoken.output_schema(data), held, unwrap=schema is not None and data is not schema)
    except SchemaError:
        # A schema that nobody can use is not made better by us: it is passed on, and nothing is held to it.
        if name != "native":
            return Published(spoken.output_schema(None), unwrap=wrapped)
        return Published(None if schema is None else dict(schema))


def _unwrapped(schema: Mapping[str, Any], wrapped: bool) -> Mapping[str, Any]:
    """The schema of the data alone, where a server library put it into a member of its own."""
    properties = schema.get("properties")
    wrapped = wrapped or bool(schema.get(_WRAPPED))
    if not wrapped or not isinstance(properties, Mapping) or "result" not in properties:
        return schema
    inner = properties["result"]
    if not isinstance(inner, Mapping):
        return schema
    shared = {name: schema[name] for name in ("$defs", "definitions", "$schema") if name in schema}
    return {**shared, **inner}
