"""What a schema lets us cut, keyword by keyword; hostile schemas; and how often a permitted cut is valid."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_envelope.schema import FREE, Kind, Place, Schema, SchemaError
from tests.conftest import examples

from .instances import from_schema

DRAFT_07 = "http://json-schema.org/draft-07/schema#"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"
both_drafts = pytest.mark.parametrize("draft", [DRAFT_07, DRAFT_2020])


def root(schema: Any, draft: str = DRAFT_2020) -> Place:
    return Schema({"$schema": draft, **schema}).root


def raw(**members: Any) -> dict[str, msgspec.Raw]:
    return {key: msgspec.Raw(json.dumps(value).encode()) for key, value in members.items()}


# -- keyword by keyword -------------------------------------------------------------------------------------


@both_drafts
def test_counts(draft: str) -> None:
    place = root({"minItems": 2, "minLength": 3, "minProperties": 4, "uniqueItems": True}, draft)
    assert (place.min_items, place.min_length, place.min_properties) == (2, 3, 4)
    assert place.unique
    assert (place.frozen, place.frozen_items, place.frozen_string) == (False, False, False)


def test_counts_may_be_written_as_floats() -> None:
    assert root({"minItems": 2.0}).min_items == 2


@both_drafts
@pytest.mark.parametrize(
    "rule", [{"pattern": "^a"}, {"format": "uri"}, {"contentEncoding": "base64"}, {"contentMediaType": "a/b"}]
)
def test_strings_that_must_stay_whole(draft: str, rule: dict[str, Any]) -> None:
    place = root(rule, draft)
    assert place.frozen_string
    assert not place.frozen_items
    assert not place.frozen


@pytest.mark.parametrize("rule", [{"const": [1, 2]}, {"enum": [{"a": 1}, "x"]}])
def test_listed_values_stay_whole(rule: dict[str, Any]) -> None:
    place = root(rule)
    assert place.frozen
    assert place.frozen_items
    assert place.frozen_string


@both_drafts
def test_contains_keeps_the_items_and_what_they_hold(draft: str) -> None:
    place = root({"contains": {"minLength": 3}}, draft)
    assert place.frozen_items
    assert place.item(0).min_length == 3


def test_contains_that_asks_for_none_keeps_nothing() -> None:
    assert not root({"minItems": 1, "contains": {"type": "string"}, "minContains": 0}).frozen_items


def test_required_and_dependent_keys() -> None:
    place = root({"required": ["a", "z"], "dependentRequired": {"b": ["c", "y"]}})
    assert place.required(["a", "b", "c", "d"]) == {"a", "c"}
    assert place.required({"c": 1, "d": 2}) == frozenset()


def test_draft_07_dependencies() -> None:
    place = root({"dependencies": {"b": ["c"], "d": {"required": ["e"]}}}, DRAFT_07)
    assert place.required(["b", "c"]) == {"c"}
    assert place.narrow("object", raw(d=1, e=2)).required(["d", "e"]) == {"e"}
    assert place.narrow("object", raw(e=2)).required(["e"]) == frozenset()


def test_dependent_schemas_apply_when_their_key_is_there() -> None:
    place = root({"dependentSchemas": {"d": {"required": ["e"]}}})
    assert place.required(["e"]) == {"e"}
    assert place.narrow("object", raw(d=1, e=2)).required(["d", "e"]) == {"e"}
    assert place.narrow("object", raw(e=2)).required(["e"]) == frozenset()


@both_drafts
def test_members(draft: str) -> None:
    place = root(
        {
            "properties": {"a": {"minItems": 1}},
            "patternProperties": {"^x": {"minItems": 2}, "y$": {"minItems": 3}},
            "additionalProperties": {"minItems": 4},
        },
        draft,
    )
    found = {key: place.member(key).min_items for key in ("a", "x", "xy", "other")}
    assert found == {"a": 1, "x": 2, "xy": 3, "other": 4}


def test_unevaluated_properties_and_items() -> None:
    place = root(
        {
            "allOf": [{"properties": {"a": {"type": "array"}}}],
            "unevaluatedProperties": {"minItems": 5},
            "prefixItems": [{"minLength": 1}],
            "unevaluatedItems": {"minLength": 6},
        }
    )
    assert place.member("a") is FREE
    assert place.member("b").min_items == 5
    assert place.item(0).min_length == 1
    assert place.item(1).min_length == 6


def test_items_of_2020() -> None:
    place = root({"prefixItems": [{"minLength": 1}, {"minLength": 2}], "items": {"minLength": 3}})
    assert [place.item(index).min_length for index in (0, 1, 2, 99)] == [1, 2, 3, 3]


def test_items_of_draft_07() -> None:
    place = root({"items": [{"minLength": 1}], "additionalItems": {"minLength": 3}}, DRAFT_07)
    assert [place.item(index).min_length for index in (0, 1, 99)] == [1, 3, 3]
    assert root({"items": {"minLength": 4}}, DRAFT_07).item(7).min_length == 4


def test_all_of_takes_the_strictest() -> None:
    place = root({"allOf": [{"minItems": 2, "required": ["a"]}, {"minItems": 5, "required": ["b"]}]})
    assert place.min_items == 5
    assert place.required("abc") == {"a", "b"}


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
def test_branches_are_narrowed_by_kind(keyword: str) -> None:
    place = root({keyword: [{"type": "null"}, {"type": "array", "minItems": 3}, {"const": "x"}]})
    assert place.frozen
    assert place.narrow("null") is FREE
    narrow = place.narrow("array")
    assert narrow.min_items == 3
    assert not narrow.frozen
    assert place.narrow("string").frozen_string
    # None of the branches takes a number: all are kept.
    assert place.narrow("number").frozen


def test_branches_are_narrowed_by_constants_and_keys() -> None:
    place = root(
        {
            "oneOf": [
                {"$ref": "#/$defs/cat"},
                {"$ref": "#/$defs/dog"},
                {"required": ["wings"], "minProperties": 9},
            ],
            "$defs": {
                "cat": {"properties": {"kind": {"const": "cat"}, "lives": {"minItems": 9}}},
                "dog": {"properties": {"kind": {"enum": ["dog"]}, "tricks": {"minItems": 2}}},
            },
        }
    )
    cat = place.narrow("object", raw(kind="cat", lives=[], tricks=[]))
    assert cat.member("lives").min_items == 9
    assert cat.member("tricks") is FREE
    assert cat.min_properties == 0
    # Without `kind` it might be a dog as well, and `oneOf` would fail.
    assert "kind" in cat.required(["kind", "lives"])
    assert cat is place.narrow("object", raw(kind="cat", lives=[1]))
    assert place.narrow("object", raw(kind="cow")).member("tricks").min_items == 2
    assert place.narrow("object", raw(kind="c" * 500)).member("tricks").min_items == 2


def test_true_is_not_one() -> None:
    place = root({"anyOf": [{"properties": {"a": {"const": 1}}, "minProperties": 7}, {"required": ["a"]}]})
    assert place.narrow("object", raw(a=True)).min_properties == 0
    assert place.narrow("object", raw(a=1.0)).min_properties == 7


@both_drafts
def test_conditions(draft: str) -> None:
    place = root(
        {
            "if": {"properties": {"kind": {"const": "a"}}, "required": ["kind"]},
            "then": {"required": ["x"]},
            "else": {"required": ["y"]},
        },
        draft,
    )
    assert place.required("xy") == {"x", "y"}
    assert place.narrow("object", raw(kind="b", x=1, y=2)).required(["kind", "x", "y"]) == {"kind", "y"}
    assert place.narrow("object", raw(kind="a", x=1)).required(["kind", "x"]) == {"kind", "x"}


@pytest.mark.parametrize(
    ("negated", "frozen"),
    [
        ({"required": ["a"]}, False),
        ({"type": "string"}, False),
        ({"anyOf": [{"required": ["a"]}, {"const": 5}]}, False),
        ({"const": ""}, True),
        ({"maxItems": 3}, True),
        ({"properties": {"a": {"const": 1}}}, True),
    ],
)
def test_not_freezes_unless_no_cut_can_matter(negated: dict[str, Any], frozen: bool) -> None:
    assert root({"not": negated, "minItems": 1}).frozen is frozen


def test_not_of_another_kind_is_no_obstacle() -> None:
    place = root({"not": {"type": "array", "maxItems": 3}, "minLength": 2})
    assert place.frozen
    assert not place.narrow("string").frozen
    assert place.narrow("array").frozen


# -- references ---------------------------------------------------------------------------------------------


@both_drafts
def test_references(draft: str) -> None:
    schema = {"definitions": {"a/b": {"minItems": 2}}, "properties": {"x": {"$ref": "#/definitions/a~1b"}}}
    assert root(schema, draft).member("x").min_items == 2


def test_draft_07_ignores_what_stands_beside_a_reference() -> None:
    schema = {
        "definitions": {"a": {"minItems": 2}},
        "properties": {"x": {"$ref": "#/definitions/a", "minItems": 9}},
    }
    assert root(schema, DRAFT_07).member("x").min_items == 2
    assert root(schema, DRAFT_2020).member("x").min_items == 9


def test_recursive_references_walk_on_and_on() -> None:
    place = root({"properties": {"next": {"$ref": "#"}, "items": {"minItems": 1}}})
    for _ in range(10_000):
        place = place.member("next")
    assert place.member("items").min_items == 1
    assert place is place.member("next")


def test_anchors_identities_and_dynamic_references() -> None:
    place = root(
        {
            "$id": "https://example.org/root",
            "properties": {
                "anchor": {"$ref": "#here"},
                "identity": {"$ref": "other"},
                "inner": {"$ref": "other#/$defs/deep"},
                "dynamic": {"$dynamicRef": "#node"},
            },
            "$defs": {
                "x": {"$anchor": "here", "minItems": 1},
                "y": {
                    "$id": "other",
                    "minItems": 2,
                    "$defs": {"deep": {"$ref": "#/$defs/deeper"}, "deeper": {"minItems": 3}},
                },
                "z": {"$dynamicAnchor": "node", "minItems": 4},
            },
        }
    )
    names = ("anchor", "identity", "inner", "dynamic")
    assert [place.member(name).min_items for name in names] == [1, 2, 3, 4]


def test_a_reference_that_only_the_validator_knows_freezes() -> None:
    assert root({"properties": {"s": {"$ref": DRAFT_2020}}}).member("s").frozen


# -- free places --------------------------------------------------------------------------------------------


def test_free_is_free_all_the_way() -> None:
    assert FREE.member("a") is FREE
    assert FREE.item(3) is FREE
    assert FREE.narrow("object", raw(a=1)) is FREE
    assert FREE.required(["a"]) == frozenset()
    assert [FREE.frozen, FREE.frozen_items, FREE.frozen_string, FREE.unique] == [False] * 4
    assert (FREE.min_items, FREE.min_length, FREE.min_properties) == (0, 0, 0)


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}},
        {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False},
    ],
)
def test_a_schema_that_limits_nothing_is_free(schema: Any) -> None:
    assert Schema(schema).root is FREE


def test_places_are_shared_and_endless_keys_cost_one() -> None:
    place = root({"additionalProperties": {"required": ["a"]}})
    assert place.member("x") is place.member("y")
    patterned = root({"patternProperties": {"^a": {"minItems": 1}}})
    for number in range(10_000):
        assert patterned.member(f"a{number}").min_items == 1


# -- validation ---------------------------------------------------------------------------------------------


def test_is_valid() -> None:
    schema = Schema({"type": "object", "properties": {"n": {"type": "number"}}})
    assert schema.is_valid(b'{"n": 1.0}')
    assert schema.is_valid(b'{"n": 1e400}')
    assert schema.is_valid(b'{"n": ' + b"1" * 5_000 + b"}")
    assert schema.is_valid(b'{"s": "\\ud800"}')
    assert not schema.is_valid(b'{"n": "1"}')
    assert not schema.is_valid(b'{"n": NaN}')
    assert not schema.is_valid(b'{"n": ')
    assert not schema.is_valid(b"")
    assert not schema.is_valid(b"[" * 100_000)


def test_first_error_leads_to_the_culprit() -> None:
    schema = Schema(
        {
            "properties": {
                "a/b": {
                    "anyOf": [
                        {"type": "null"},
                        {
                            "type": "array",
                            "items": {"oneOf": [{"type": "string"}, {"type": "integer", "minimum": 3}]},
                        },
                    ]
                }
            }
        }
    )
    assert schema.first_error(b'{"a/b": [4, "x"]}') is None
    assert schema.first_error(b'{"a/b": [4, 1]}') == ("/a~1b/1", "the value is less than the minimum of 3")
    assert schema.first_error(b'{"a/b": {}}') is not None
    found = schema.first_error(b"{")
    assert found is not None
    assert found[1].startswith("not JSON")


def test_messages_are_short_and_show_no_values() -> None:
    schema = Schema({"enum": ["x" * 1_000]})
    found = schema.first_error(b'"secret"')
    assert found is not None
    assert len(found[1]) <= 200
    assert "secret" not in found[1]


def test_of_makes_each_schema_once() -> None:
    one, two = {"minItems": 2, "type": "array"}, {"type": "array", "minItems": 2}
    assert Schema.of(one) is Schema.of(two)
    assert Schema.of(True).is_valid(b"1")
    assert not Schema.of(False).is_valid(b"1")


def test_of_keeps_the_schemas_used_last() -> None:
    kept = Schema.of({"title": "kept"})
    first = Schema.of({"title": "first"})
    for number in range(Schema._CACHE_SIZE + 10):
        Schema.of({"title": f"other {number}"})
        assert Schema.of({"title": "kept"}) is kept
    assert Schema.of({"title": "first"}) is not first
    assert len(Schema._cache) <= Schema._CACHE_SIZE


@pytest.mark.parametrize(
    "document", [[], msgspec.Raw(b"{}"), {"const": object()}, {"const": {1: {(1, 2): 3}}}]
)
def test_of_refuses_what_is_not_a_schema(document: Any) -> None:
    Schema.of({})
    with pytest.raises(SchemaError):
        Schema.of(document)


@pytest.mark.process
def test_the_validator_is_imported_when_a_schema_is_made() -> None:
    script = """
import sys
from mcp_envelope import seal, widen
seal({"a": ["x"] * 1000}, max_bytes=1000)
widen({"type": "object"})
assert "jsonschema_rs" not in sys.modules
seal({"a": 1}, max_bytes=1000, schema={"type": "object"})
assert "jsonschema_rs" in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    ("schema", "words", "pointer"),
    [
        ([], "object or a boolean", ""),
        ({"type": "nope"}, "not one of", "/type"),
        ({"properties": {"a": {"minItems": "x"}}}, "integer", "/properties/a/minItems"),
        ({"$ref": "#/$defs/none"}, "does not exist", ""),
        ({"pattern": "("}, "regex", "/pattern"),
        ({"$schema": "https://example.org/unknown"}, "example.org", ""),
    ],
)
def test_unusable_schemas(schema: Any, words: str, pointer: str) -> None:
    with pytest.raises(SchemaError, match=words) as caught:
        Schema(schema)
    assert caught.value.pointer == pointer


def test_lookarounds_are_still_understood() -> None:
    schema = Schema({"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"pattern": "^(?!x)."}}})
    assert schema.is_valid(b'{"a": "y"}')
    assert not schema.is_valid(b'{"a": "x"}')


# -- hostile schemas ----------------------------------------------------------------------------------------


def test_a_remote_reference_is_never_fetched() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        address = f"http://127.0.0.1:{server.getsockname()[1]}/schema"
        for schema in ({"$ref": address}, {"properties": {"a": {"$ref": address}}}, {"$schema": address}):
            with pytest.raises(SchemaError):
                Schema(schema)
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.parametrize("keyword", ["properties", "items", "allOf", "not", "const"])
def test_ten_thousand_levels(keyword: str) -> None:
    schema: Any = {}
    for _ in range(10_000):
        schema = {
            keyword: {"a": schema} if keyword == "properties" else [schema] if keyword == "allOf" else schema
        }
    with pytest.raises(SchemaError, match="levels deep"):
        Schema(schema)
    with pytest.raises(SchemaError, match="levels deep"):
        Schema.of(schema)


def test_a_chain_of_ten_thousand_references() -> None:
    schema = {
        "$ref": "#/$defs/d0",
        "$defs": {
            **{f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(200)},
            "d200": {"properties": {"x": {"minItems": 2}}},
        },
    }
    assert Schema(schema).root.member("x").min_items == 2
    schema["$defs"] = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(10_000)}
    schema["$defs"]["d10000"] = {"minItems": 2}  # type: ignore[index]
    long = Schema(schema)
    assert long.is_valid(b"[1, 2]")
    assert not long.is_valid(b"[]")
    # Ten thousand calls at each level would overrun the stack of a thread: not checked, so not valid.
    assert not long.is_valid(b"[[[]], 1]")
    assert long.first_error(b"[[[]], 1]") is not None


def chain(length: int, link: Any, end: Any) -> dict[str, Any]:
    definitions = {f"d{i}": link({"$ref": f"#/$defs/d{i + 1}"}) for i in range(length)}
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{length}": end}}


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_bombs_at_one_spot_are_refused(keyword: str) -> None:
    with pytest.raises(SchemaError, match="steps"):
        Schema(chain(60, lambda following: {keyword: [following, following]}, {"type": "object"}))


def test_a_bomb_below_a_property_is_refused() -> None:
    bomb = chain(60, lambda following: {"allOf": [following, following]}, {})
    with pytest.raises(SchemaError, match="steps"):
        Schema({"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": bomb["$defs"]})


def nested(depth: int, kind: Kind, leaf: str = "1") -> bytes:
    opening, closing = ('{"a":', "}") if kind == "object" else ("[", "]")
    return (opening * depth + leaf + closing * depth).encode()


def test_a_bomb_that_grows_with_the_payload_is_not_lit() -> None:
    schema = Schema(chain(60, lambda following: {"items": following, "contains": following}, {}))
    assert schema.is_valid(nested(5, "array"))
    assert not schema.is_valid(nested(60, "array"))
    found = schema.first_error(nested(60, "array"))
    assert found is not None
    assert "costly" in found[1]


def test_a_recursive_union_is_checked_at_any_depth() -> None:
    branches = [
        {"type": "object", "properties": {"a": {"$ref": "#"}, "kind": {"const": number}}}
        for number in range(30)
    ]
    schema = Schema({"anyOf": [{"type": "integer"}, *branches]})
    assert schema.is_valid(nested(60, "object"))
    assert not schema.is_valid(nested(60, "object", '"x"'))
    assert schema.first_error(nested(60, "object", '"x"')) is not None


def test_definitions_that_all_use_each_other() -> None:
    names = [f"d{i}" for i in range(14)]
    inside = {
        name: {"anyOf": [{"type": "object", "properties": {"a": {"$ref": f"#/$defs/{n}"}}} for n in names]}
        for name in names
    }
    assert not Schema({"$ref": "#/$defs/d0", "$defs": inside}).is_valid(nested(60, "object"))
    idle = {name: {"allOf": [{"$ref": f"#/$defs/{n}"} for n in names]} for name in names}
    with pytest.raises(SchemaError, match="back to themselves"):
        Schema({"$ref": "#/$defs/d0", "$defs": idle})


@pytest.mark.parametrize(
    "schema", [{"$ref": "#"}, {"allOf": [{"$ref": "#"}]}, {"anyOf": [{}, {"$ref": "#"}]}]
)
def test_references_to_the_same_spot_are_borne(schema: Any) -> None:
    assert Schema({**schema, "minItems": 2}).root.min_items == 2
    assert Schema(schema).is_valid(b"1")


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_deep_payloads_do_not_overrun_the_stack(keyword: str) -> None:
    inner: Any = {"properties": {"a": {"$ref": "#"}}, "additionalProperties": False}
    for _ in range(60):
        inner = {keyword: [inner]}
    schema = Schema(inner)
    for depth in (10, 100, 300, 900):
        assert not schema.is_valid(nested(depth, "object", '{"q": 1}'))
        assert schema.first_error(nested(depth, "object", '{"q": 1}')) is not None


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(?=a)(a|a)+\\1$", "((a{1000}){1000}){1000}"])
def test_hostile_patterns(pattern: str) -> None:
    try:
        schema = Schema({"patternProperties": {pattern: {"minItems": 1}}})
    except SchemaError:
        return
    key = "a" * 5_000 + "b"
    schema.root.member(key)
    schema.is_valid(json.dumps({key: []}).encode())


# -- a cut that a place permits is nearly always valid ------------------------------------------------------

names = st.sampled_from(["a", "b", "c", "d"])
scalars = st.sampled_from(
    [
        {"type": "integer"},
        {"type": "string"},
        {"type": "string", "minLength": 2},
        {"type": ["string", "null"]},
        {"enum": ["x", "y", 3]},
        {"const": "z"},
        {"type": "string", "pattern": "^[a-z]+$"},
        True,
    ]
)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    small = st.integers(0, 2)
    arrays = st.fixed_dictionaries(
        {"type": st.just("array"), "items": inner},
        optional={"minItems": small, "uniqueItems": st.booleans(), "contains": inner},
    )
    tuples = st.fixed_dictionaries(
        {"type": st.just("array"), "prefixItems": st.lists(inner, min_size=1, max_size=2), "items": inner},
        optional={"minItems": small},
    )
    objects = st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(names, inner, max_size=4)},
        optional={
            "required": st.lists(names, unique=True, max_size=2),
            "minProperties": small,
            "additionalProperties": st.one_of(st.booleans(), inner),
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "d$"]), inner, max_size=1),
            "dependentRequired": st.dictionaries(names, st.lists(names, unique=True, max_size=2), max_size=1),
            "not": st.fixed_dictionaries({"required": st.lists(names, min_size=2, max_size=2, unique=True)}),
        },
    )
    combined = st.builds(
        lambda keyword, parts: {keyword: parts},
        st.sampled_from(["anyOf", "oneOf", "allOf"]),
        st.lists(inner, min_size=1, max_size=3),
    )
    return st.one_of(arrays, tuples, objects, objects, combined)


schemas = st.recursive(scalars, containers, max_leaves=8).filter(lambda schema: isinstance(schema, dict))


def kind_of(value: Any) -> Kind:
    if isinstance(value, bool):
        return "boolean"
    if value is None:
        return "null"
    kinds: dict[type, Kind] = {dict: "object", list: "array", str: "string", int: "number", float: "number"}
    return kinds[type(value)]


def permitted_cuts(value: Any, place: Place) -> list[Any]:
    """Yield every value that differs by one cut that the place permits."""
    place = place.narrow(kind_of(value), raw(**value) if isinstance(value, dict) else None)
    if place.frozen:
        return []
    found: list[Any] = []
    if isinstance(value, str):
        if not place.frozen_string and len(value) > place.min_length:
            found.append(value[: place.min_length])
    elif isinstance(value, list):
        if not place.frozen_items:
            found += [value[:kept] for kept in range(place.min_items, len(value))]
        if not place.unique:
            for index, item in enumerate(value):
                for smaller in permitted_cuts(item, place.item(index)):
                    found.append([*value[:index], smaller, *value[index + 1 :]])
    elif isinstance(value, dict):
        needed = place.required(value)
        for key in value:
            if key not in needed and len(value) > place.min_properties:
                found.append({name: part for name, part in value.items() if name != key})
            found += [{**value, key: smaller} for smaller in permitted_cuts(value[key], place.member(key))]
    return found


def instances(schema: Any) -> st.SearchStrategy[Any]:
    """Return values that probably conform to a schema generated as above."""
    if isinstance(schema, bool):
        return st.sampled_from([1, "word", None, [1, 2], {"a": 1, "b": 2}])
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return st.one_of([instances(part) for part in schema[keyword]])
    if "allOf" in schema:
        return instances(schema["allOf"][0])
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum", [schema.get("const")]))
    kind = schema["type"][0] if isinstance(schema["type"], list) else schema["type"]
    if kind == "array":
        gateway = [instances(part) for part in schema.get("prefixItems", ())]
        rest = st.lists(instances(schema["items"]), min_size=schema.get("minItems", 0), max_size=4)
        return st.tuples(st.tuples(*gateway), rest).map(lambda parts: [*parts[0], *parts[1]])
    if kind == "object":
        members = {key: instances(part) for key, part in schema["properties"].items()}
        other = schema.get("additionalProperties", True)
        if other is not False:
            needed = [*schema.get("required", ()), "c", "d"]
            members = {**{key: instances(other) for key in needed}, **members}
        must = {key: members.pop(key) for key in schema.get("required", ()) if key in members}
        return st.fixed_dictionaries(must, optional=members)
    return st.sampled_from([1, 22] if kind == "integer" else ["xy", "word", "zzz"])


def cut_everywhere(schema: Schema, instance: Any) -> tuple[int, int]:
    """Return how many permitted cuts were tried, and how many of them made the value invalid."""
    cuts = permitted_cuts(instance, schema.root)[:50]
    return len(cuts), sum(not schema.is_valid(json.dumps(smaller).encode()) for smaller in cuts)


def test_permitted_cuts_are_nearly_always_valid() -> None:
    tally = [0, 0]

    @settings(max_examples=examples(150))
    @given(st.data())
    def count(data: st.DataObject) -> None:
        document: Any = data.draw(schemas)
        schema = Schema(document)
        instance = data.draw(instances(document))
        if schema.is_valid(json.dumps(instance).encode()):
            tried, wrong = cut_everywhere(schema, instance)
            tally[0] += tried
            tally[1] += wrong

    count()
    print(f"{tally[0] - tally[1]} of {tally[0]} permitted cuts were valid")
    assert tally[0] > examples(150)
    assert tally[1] <= tally[0] * 0.05


# What servers actually declare; here no permitted cut may fail.
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "mail": {"anyOf": [{"type": "string", "pattern": "^[a-z]+@[a-z]+$"}, {"type": "null"}]},
        "tags": {"type": "array", "items": {"enum": ["x", "y"]}, "minItems": 1},
    },
    "required": ["name"],
    "additionalProperties": False,
}
USUAL: dict[str, dict[str, Any]] = {
    "records": {
        "type": "object",
        "properties": {"rows": {"type": "array", "items": PERSON}, "total": {"type": "integer"}},
        "required": ["rows", "total"],
    },
    "map": {"type": "object", "additionalProperties": PERSON, "minProperties": 1},
    "tuple": {"type": "array", "items": [{"type": "string"}, PERSON], "minItems": 2, "$schema": DRAFT_07},
    "union": {
        "oneOf": [
            {
                "type": "object",
                "properties": {"k": {"const": "a"}, "v": {"type": "string"}},
                "required": ["k"],
            },
            {"type": "object", "properties": {"k": {"const": "b"}, "w": PERSON}, "required": ["k", "w"]},
        ]
    },
    "nullable": {"anyOf": [PERSON, {"type": "null"}]},
    "contained": {"type": "array", "contains": {"const": 5}, "items": {"type": "integer"}},
}


@pytest.mark.parametrize("name", USUAL)
def test_permitted_cuts_of_usual_schemas_are_valid(name: str) -> None:
    schema = Schema(USUAL[name])

    @settings(max_examples=examples(40))
    @given(from_schema(USUAL[name]))
    def hold(instance: Any) -> None:
        assert schema.is_valid(json.dumps(instance).encode())
        assert cut_everywhere(schema, instance)[1] == 0

    hold()


def test_a_number_that_python_does_not_take_is_an_error_like_any_other() -> None:
    found = Schema.of({"type": "object"}).first_error(b"1" * 9000)
    assert found is not None
