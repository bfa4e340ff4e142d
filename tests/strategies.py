"""Payloads and schemas to try the promises on: mostly larger than the budget, of every awkward kind.

A shape is a schema together with a strategy for values that are valid under it, so that schema and payload
grow up together and values can be made as large as needed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

MIN_TOKENS, MIN_BYTES = 128, 512

words = st.text(
    st.one_of(st.characters(codec="utf-8"), st.sampled_from('aZ0 _-"\\/\n\té…漢😀')), min_size=0, max_size=12
)
numbers = st.one_of(
    st.integers(-(10**6), 10**6),
    st.integers(-(10**30), 10**30),
    st.floats(allow_nan=False, allow_infinity=False),
)
scalars: st.SearchStrategy[Any] = st.one_of(st.none(), st.booleans(), numbers, words)


def long_texts(most: int = 4000) -> st.SearchStrategy[str]:
    return st.builds(lambda word, count: (word * count)[:most], words.filter(bool), st.integers(1, 800))


small_values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(words, inner, max_size=4)),
    max_leaves=8,
)


@st.composite
def large_lists(draw: st.DrawFn, most: int = 300) -> list[Any]:
    seeds = draw(st.lists(small_values, min_size=1, max_size=4))
    return (seeds * draw(st.integers(1, most)))[: draw(st.integers(1, most))]


@st.composite
def large_maps(draw: st.DrawFn) -> dict[str, Any]:
    values = draw(st.lists(small_values, min_size=1, max_size=3))
    return {
        f"{draw(words)}{index}": values[index % len(values)] for index in range(draw(st.integers(1, 200)))
    }


large_values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(large_lists(), large_maps(), long_texts(), large_lists(40).map(json.dumps), small_values),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(words, inner, max_size=4),
        inner.map(lambda value: json.dumps(value, ensure_ascii=False)),
    ),
    max_leaves=4,
)


@dataclass(frozen=True)
class Shape:
    schema: Any
    values: st.SearchStrategy[Any]


def _string_shapes() -> st.SearchStrategy[Shape]:
    return st.one_of(
        st.just(Shape({"type": "string"}, long_texts())),
        st.integers(0, 300).map(
            lambda least: Shape(
                {"type": "string", "minLength": least}, long_texts().map(lambda text: text.ljust(least, "x"))
            )
        ),
        st.just(Shape({"type": "string", "maxLength": 900}, long_texts(900))),
        st.just(
            Shape({"type": "string", "pattern": "^[a-z]+$"}, st.integers(1, 300).map(lambda n: "abc" * n))
        ),
        st.just(
            Shape(
                {"type": "string", "format": "uri"}, st.integers(1, 200).map(lambda n: "http://a/" + "b" * n)
            )
        ),
        st.lists(words, min_size=1, max_size=4, unique=True).map(
            lambda options: Shape({"enum": options}, st.sampled_from(options))
        ),
        long_texts(600).map(lambda text: Shape({"const": text}, st.just(text))),
    )


_plain_shapes: st.SearchStrategy[Shape] = st.one_of(
    st.just(Shape({"type": "integer"}, st.integers(-(10**12), 10**12))),
    st.just(Shape({"type": "number", "minimum": 0}, st.floats(0, 1e12))),
    st.just(Shape({"type": "boolean"}, st.booleans())),
    st.just(Shape({"type": "null"}, st.none())),
    st.just(Shape(True, small_values)),
    st.just(Shape({}, large_values)),
    _string_shapes(),
)


@st.composite
def _many(draw: st.DrawFn, shape: Shape, least: int, most: int) -> list[Any]:
    """A list with few distinct items and as many of them as wanted: large, and quick to make."""
    seeds = draw(st.lists(shape.values, min_size=1, max_size=3))
    count = draw(st.integers(least, max(least, most)))
    return (seeds * (count + 1))[:count]


@st.composite
def _array_shapes(draw: st.DrawFn, inner: st.SearchStrategy[Shape]) -> Shape:
    item = draw(inner)
    schema: dict[str, Any] = {"type": "array", "items": item.schema}
    kind = draw(st.sampled_from(["plain", "least", "contains", "tuple", "old tuple", "unique"]))
    most = draw(st.sampled_from([3, 30, 200]))
    if kind == "least":
        schema["minItems"] = least = draw(st.integers(0, 8))
        return Shape(schema, _many(item, least, most))
    if kind == "contains":
        needle = draw(st.integers(10**13, 10**14))
        schema = {"type": "array", "contains": {"const": needle}}
        return Shape(schema, _many(item, 0, most).map(lambda items: [*items, needle]))
    if kind in ("tuple", "old tuple"):
        first = draw(inner)
        if kind == "tuple":
            schema = {"type": "array", "prefixItems": [first.schema], "items": item.schema, "minItems": 1}
        else:
            schema = {"type": "array", "items": [first.schema], "additionalItems": item.schema, "minItems": 1}
            if kind == "old tuple":
                schema = {"type": "array", "prefixItems": [first.schema], "items": item.schema}
        return Shape(
            schema, st.tuples(first.values, _many(item, 0, most)).map(lambda pair: [pair[0], *pair[1]])
        )
    if kind == "unique":
        schema = {"type": "array", "uniqueItems": True, "items": {"type": "integer"}}
        return Shape(schema, st.integers(0, 400).map(lambda count: list(range(count))))
    return Shape(schema, _many(item, 0, most))


@st.composite
def _object_shapes(draw: st.DrawFn, inner: st.SearchStrategy[Shape]) -> Shape:
    keys = draw(st.lists(words, min_size=1, max_size=5, unique=True))
    shapes = {key: draw(inner) for key in keys}
    required = draw(st.lists(st.sampled_from(keys), unique=True))
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {key: shape.schema for key, shape in shapes.items()},
        "required": required,
    }
    closed = draw(st.sampled_from([None, False, "typed", "dependent", "count"]))
    extra: st.SearchStrategy[dict[str, Any]] = st.just({})
    if closed is False:
        schema["additionalProperties"] = False
    elif closed == "typed":
        more = draw(inner)
        schema["additionalProperties"] = more.schema
        extra = _many(more, 0, 60).map(lambda items: {f"extra {i}": item for i, item in enumerate(items)})
    elif closed == "dependent":
        schema["dependentRequired"] = {keys[0]: [keys[-1]]}
    elif closed == "count":
        schema["minProperties"] = 1
    fixed = st.fixed_dictionaries({key: shape.values for key, shape in shapes.items()})
    values = st.builds(
        lambda own, more: {**{k: v for k, v in more.items() if k not in own}, **own}, fixed, extra
    )
    return Shape(schema, values)


@st.composite
def _combined_shapes(draw: st.DrawFn, inner: st.SearchStrategy[Shape]) -> Shape:
    kind = draw(st.sampled_from(["anyOf", "tagged", "allOf", "optional", "if"]))
    one, two = draw(inner), draw(inner)
    if kind == "anyOf":
        return Shape({"anyOf": [one.schema, two.schema]}, st.one_of(one.values, two.values))
    if kind == "optional":
        return Shape({"anyOf": [one.schema, {"type": "null"}]}, st.one_of(one.values, st.none()))
    if kind == "tagged":
        variants = [
            {
                "type": "object",
                "properties": {"tag": {"const": tag}, "value": shape.schema},
                "required": ["tag", "value"],
            }
            for tag, shape in (("one", one), ("two", two))
        ]
        return Shape(
            {"oneOf": variants},
            st.one_of(
                one.values.map(lambda value: {"tag": "one", "value": value}),
                two.values.map(lambda value: {"tag": "two", "value": value}),
            ),
        )
    if kind == "allOf":
        parts = [
            {"type": "object", "properties": {"a": one.schema}, "required": ["a"]},
            {"properties": {"b": two.schema}},
        ]
        return Shape({"allOf": parts}, st.fixed_dictionaries({"a": one.values, "b": two.values}))
    schema = {
        "type": "object",
        "properties": {"flag": {"type": "boolean"}, "a": one.schema},
        "if": {"properties": {"flag": {"const": True}}, "required": ["flag"]},
        "then": {"required": ["a"]},
    }
    return Shape(schema, st.fixed_dictionaries({"flag": st.booleans(), "a": one.values}))


shapes: st.SearchStrategy[Shape] = st.recursive(
    _plain_shapes,
    lambda inner: st.one_of(_array_shapes(inner), _object_shapes(inner), _combined_shapes(inner)),
    max_leaves=5,
)
object_shapes: st.SearchStrategy[Shape] = _object_shapes(shapes)


@st.composite
def recursive_shapes(draw: st.DrawFn) -> Shape:
    """A tree that refers to itself, and a list of such trees."""
    leaf = draw(_string_shapes())
    schema = {
        "$ref": "#/$defs/tree",
        "$defs": {
            "tree": {
                "type": "object",
                "properties": {
                    "name": leaf.schema,
                    "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
                },
                "required": ["name", "children"],
                "additionalProperties": draw(st.booleans()),
            }
        },
    }
    values = st.recursive(
        leaf.values.map(lambda name: {"name": name, "children": []}),
        lambda inner: st.builds(
            lambda name, children, times: {"name": name, "children": children * times},
            leaf.values,
            st.lists(inner, max_size=3),
            st.integers(1, 30),
        ),
        max_leaves=5,
    )
    return Shape(schema, values)


budgets: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.builds(lambda n: {"max_bytes": n}, st.one_of(st.integers(MIN_BYTES, 1500), st.integers(1, 20_000))),
    st.builds(
        lambda n, meter: {"tokens": n, "meter": meter},
        st.one_of(st.integers(MIN_TOKENS, 500), st.integers(1, 5_000)),
        st.sampled_from(["estimate", "chars4", "exact"]),
    ),
)

blocks: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, st.one_of(long_texts(), words)),
    st.builds(lambda value: {"type": "text", "text": json.dumps(value)}, large_values),
    st.builds(
        lambda size, kind: {"type": kind, "data": "QUJD" * size, "mimeType": f"{kind}/x"},
        st.integers(0, 2000),
        st.sampled_from(["image", "audio"]),
    ),
    st.builds(lambda name: {"type": "resource_link", "uri": "file:///x", "name": name}, words),
    st.builds(
        lambda text: {
            "type": "resource",
            "resource": {"uri": "file:///t", "text": text, "mimeType": "text/x"},
        },
        long_texts(),
    ),
    st.builds(
        lambda size: {"type": "resource", "resource": {"uri": "file:///b", "blob": "QUJD" * size}},
        st.integers(0, 2000),
    ),
    st.builds(
        lambda text: {"type": "text", "text": text, "annotations": {"audience": ["user"], "priority": 0.5}},
        long_texts(),
    ),
)
