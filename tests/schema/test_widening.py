"""One more optional property, or a wrapping: exact cases for each keyword, then generated schemas."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mcp_envelope.schema import ENVELOPE_KEY, Schema, SchemaError, Widened, widen
from tests.conftest import examples

from .instances import from_schema

DRAFT_07 = "http://json-schema.org/draft-07/schema#"
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"
both_drafts = pytest.mark.parametrize("draft", [DRAFT_07, DRAFT_2020])

ENVELOPES: list[dict[str, Any]] = [{}, {"truncated": True, "dropped": [{"path": "/a"}]}]


def accepts(schema: Any, instance: Any) -> bool:
    """Ask two validators, which must agree."""
    ours = Schema(schema).is_valid(json.dumps(instance).encode())
    cls = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    theirs = cls(schema).is_valid(instance)
    assert ours == theirs, (schema, instance)
    return ours


def check(
    document: Any, *, valid: list[Any], invalid: list[Any], wrapped: bool = False, same: bool = False
) -> Widened:
    """Check that widening changes no verdict, with or without `_envelope`; `same` that it changes nothing."""
    before = copy.deepcopy(document)
    widened = widen(document)
    assert document == before
    assert list(json.dumps(document)) == list(json.dumps(before))
    assert widened.wrapped is wrapped, widened.reason
    assert bool(widened.reason) is wrapped
    assert widened.schema["type"] == "object"
    for instance, expected in [(i, True) for i in valid] + [(i, False) for i in invalid]:
        assert accepts(document, instance) is expected, instance
        inside = {"result": instance} if wrapped else instance
        assert accepts(widened.schema, inside) is expected, instance
        for envelope in ENVELOPES:
            assert accepts(widened.schema, {**inside, ENVELOPE_KEY: envelope}) is expected, instance
        assert accepts(widened.schema, {**inside, ENVELOPE_KEY: "text"}) is (same and expected)
    assert (widened.schema == document) is same
    return widened


def test_the_property_is_small_and_open() -> None:
    schema = widen({"type": "object", "properties": {"a": {}}}).schema
    assert list(schema) == ["type", "properties"]
    envelope = schema["properties"][ENVELOPE_KEY]
    assert envelope["type"] == "object"
    assert set(envelope) == {"type", "description"}


@both_drafts
def test_an_open_root_keeps_its_order(draft: str) -> None:
    document = {
        "$schema": draft,
        "title": "T",
        "type": "object",
        "required": ["a"],
        "properties": {"b": {}, "a": {"type": "string"}},
        "description": "D",
    }
    widened = check(document, valid=[{"a": "x"}, {"a": "x", "z": 1}], invalid=[{}, {"a": 1}])
    assert list(widened.schema) == list(document)
    assert list(widened.schema["properties"]) == ["b", "a", ENVELOPE_KEY]


@both_drafts
@pytest.mark.parametrize("values", [True, False, {}, {"type": "integer"}])
def test_a_map_gets_no_properties(draft: str, values: Any) -> None:
    """Clients generate a class for a schema with properties, and use a dictionary for a map.

    A map of any values has room for the notice as it is.
    """
    document = {"$schema": draft, "type": "object", "additionalProperties": values}
    one = [{"a": 1}] if values is not False else []
    is_any = values in (True, {})
    widened = check(document, valid=[{}, *one], invalid=[] if is_any else [{"a": "x"}], same=is_any)
    assert "properties" not in widened.schema
    assert widened.schema["additionalProperties"] == values
    place = Schema(widened.schema).root
    assert place.member("a") is place.member("b")


def test_a_map_with_patterns() -> None:
    numbers = {"^_": {"type": "integer"}}
    document = {"type": "object", "patternProperties": numbers, "additionalProperties": False}
    check(document, valid=[{}, {"_a": 1}, {"__envelope": 1}], invalid=[{"_a": "x"}, {"a": 1}])


@both_drafts
@pytest.mark.parametrize("closing", [False, {"type": "integer"}, {"$ref": "#/definitions/n"}])
def test_additional_properties(draft: str, closing: Any) -> None:
    document = {
        "$schema": draft,
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "additionalProperties": closing,
        "definitions": {"n": {"type": "integer"}},
    }
    check(document, valid=[{}, {"a": "x"}], invalid=[{"a": 1}, {"b": "x"}])


@pytest.mark.parametrize("closing", [False, {"type": "integer"}])
def test_unevaluated_properties(closing: Any) -> None:
    document = {
        "type": "object",
        "allOf": [{"properties": {"a": {"type": "string"}}}],
        "unevaluatedProperties": closing,
    }
    check(document, valid=[{}, {"a": "x"}], invalid=[{"a": 1}, {"b": "x"}])


def test_unevaluated_properties_in_a_branch() -> None:
    document = {
        "type": "object",
        "allOf": [{"properties": {"a": {"type": "string"}}, "unevaluatedProperties": False}],
    }
    check(document, valid=[{}, {"a": "x"}], invalid=[{"a": 1}, {"b": "x"}])


@both_drafts
@pytest.mark.parametrize("closed", [False, True])
def test_root_reference(draft: str, closed: bool) -> None:
    document = {
        "$schema": draft,
        "$ref": "#/definitions/A",
        "definitions": {
            "A": {
                "type": "object",
                "properties": {"a": {"type": "string"}, "next": {"$ref": "#/definitions/A"}},
                **({"additionalProperties": False} if closed else {}),
            }
        },
    }
    widened = check(
        document,
        valid=[{}, {"a": "x", "next": {"a": "y"}}, *([] if closed else [{"next": {ENVELOPE_KEY: 5}}])],
        invalid=[{"a": 1}, {"next": {"a": 1}}, *([{"next": {ENVELOPE_KEY: {}}}] if closed else [])],
    )
    # Other users of the definition find it unchanged.
    assert widened.schema["definitions"]["A"] == document["definitions"]["A"]  # type: ignore[index]


def test_draft_07_ignores_what_stands_beside_the_root_reference() -> None:
    document = {
        "$schema": DRAFT_07,
        "title": "kept",
        "$ref": "#/definitions/A",
        "required": ["ignored"],
        "maxProperties": 0,
        "definitions": {"A": {"type": "object", "required": ["a"]}},
    }
    widened = check(document, valid=[{"a": 1}, {"a": 1, "b": 2}], invalid=[{}])
    assert widened.schema["title"] == "kept"


def test_chains_of_references() -> None:
    definitions: dict[str, Any] = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(50)}
    definitions["d50"] = {"type": "object", "properties": {"a": {}}, "additionalProperties": False}
    check({"$ref": "#/$defs/d0", "$defs": definitions}, valid=[{}, {"a": 1}], invalid=[{"b": 1}])


def test_a_chain_of_ten_thousand_references() -> None:
    definitions: dict[str, Any] = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(10_000)}
    definitions["d10000"] = {"type": "object", "additionalProperties": False}
    assert not widen({"$ref": "#/$defs/d0", "$defs": definitions}).wrapped


@both_drafts
@pytest.mark.parametrize("closed", [False, True])
def test_a_root_that_refers_to_itself(draft: str, closed: bool) -> None:
    document = {
        "$schema": draft,
        "type": "object",
        "properties": {"a": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}},
        **({"additionalProperties": False} if closed else {}),
    }
    check(
        document,
        valid=[{}, {"children": [{"a": "x", "children": []}]}]
        + ([] if closed else [{"children": [{ENVELOPE_KEY: 5}]}]),
        invalid=[{"children": [{"a": 1}]}] + ([{"children": [{ENVELOPE_KEY: {}}]}] if closed else []),
    )


def test_a_part_of_the_root_that_others_use() -> None:
    document = {
        "type": "object",
        "allOf": [{"properties": {"a": {}, "b": {"$ref": "#/allOf/0"}}, "additionalProperties": False}],
    }
    check(document, valid=[{"a": 1, "b": {"a": 1}}], invalid=[{"c": 1}, {"b": {ENVELOPE_KEY: {}}}])


def test_identities_and_anchors_keep_working() -> None:
    document = {
        "$schema": DRAFT_2020,
        "$id": "https://example.org/root",
        "type": "object",
        "properties": {"a": {"$ref": "#name"}, "b": {"$ref": "other"}},
        "additionalProperties": False,
        "$defs": {
            "x": {"$anchor": "name", "type": "string"},
            "y": {"$id": "other", "$ref": "#/$defs/z", "$defs": {"z": {"type": "integer"}}},
        },
    }
    widened = check(document, valid=[{"a": "x", "b": 1}], invalid=[{"a": 1}, {"b": "x"}, {"c": 1}])
    assert widened.schema["$id"] == document["$id"]


OPEN_A = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
CLOSED_A = {**OPEN_A, "additionalProperties": False}
CLOSED_B = {"type": "object", "properties": {"b": {}}, "required": ["b"], "additionalProperties": False}


@both_drafts
@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
@pytest.mark.parametrize("shared", [False, True])
def test_branches(draft: str, keyword: str, shared: bool) -> None:
    branches = [{"$ref": "#/definitions/A"}, {"$ref": "#/definitions/B"}] if shared else [CLOSED_A, CLOSED_B]
    document = {"$schema": draft, keyword: branches, "definitions": {"A": CLOSED_A, "B": CLOSED_B}}
    check(document, valid=[{"a": 1}, {"b": 1}], invalid=[{}, {"a": "x"}, {"a": 1, "b": 1}])


def test_one_of_an_open_and_a_closed_branch() -> None:
    document = {"oneOf": [OPEN_A, CLOSED_B]}
    check(document, valid=[{"a": 1}, {"a": 1, "b": 1}, {"b": 1}], invalid=[{}, {"b": 1, "c": 1}])


def test_all_of_closed_branches() -> None:
    inner = {"type": "object", "properties": {"a": {}, "b": {}}, "additionalProperties": False}
    document = {"allOf": [inner, {**inner, "properties": {"a": {"type": "integer"}}}]}
    check(document, valid=[{}, {"a": 1}], invalid=[{"b": 1}, {"a": "x"}])


@both_drafts
def test_conditions(draft: str) -> None:
    document = {
        "$schema": draft,
        "type": "object",
        "if": {"properties": {"a": {"const": 1}}, "maxProperties": 1, "required": ["a"]},
        "then": {"additionalProperties": False, "properties": {"a": {}}},
        "else": {"required": ["b"]},
    }
    check(document, valid=[{"a": 1}, {"b": 1, "a": 1}, {"b": 1}], invalid=[{}, {"a": 2}, {"a": 1, "c": 1}])


@both_drafts
@pytest.mark.parametrize("rule", [{"pattern": "^[a-z]+$"}, {"maxLength": 1}, {"enum": ["a"]}])
def test_property_names(draft: str, rule: dict[str, Any]) -> None:
    document = {"$schema": draft, "type": "object", "propertyNames": rule}
    check(document, valid=[{}, {"a": 1}], invalid=[{"AA": 1}])


@both_drafts
@pytest.mark.parametrize("pattern", ["^_", "env|x", "", ".*", "^.{9}$"])
@pytest.mark.parametrize("closed", [False, True])
def test_patterns_that_match_the_name(draft: str, pattern: str, closed: bool) -> None:
    document = {
        "$schema": draft,
        "type": "object",
        "patternProperties": {pattern: {"type": "integer"}, "^k": {"type": "integer"}},
        **({"additionalProperties": False} if closed else {}),
    }
    invalid = {"^_": "_a", "env|x": "ax", "": "a", ".*": "a", "^.{9}$": "123456789"}[pattern]
    check(document, valid=[{}, {"k": 1}, {invalid: 1}], invalid=[{invalid: "s"}, {"k": "s"}])


@both_drafts
def test_counted_properties(draft: str) -> None:
    document = {"$schema": draft, "type": "object", "minProperties": 1, "maxProperties": 2}
    check(document, valid=[{"a": 1}, {"a": 1, "b": 1}], invalid=[{}, {"a": 1, "b": 1, "c": 1}])


def test_dependent_schemas_and_required() -> None:
    document = {
        "type": "object",
        "dependentSchemas": {"a": {"maxProperties": 1}},
        "dependentRequired": {"b": ["c"]},
    }
    check(document, valid=[{"a": 1}, {"b": 1, "c": 1}], invalid=[{"a": 1, "c": 1}, {"b": 1}])


def test_draft_07_dependencies() -> None:
    document = {
        "$schema": DRAFT_07,
        "type": "object",
        "dependencies": {"a": {"maxProperties": 1}, "b": ["c"]},
    }
    check(document, valid=[{"a": 1}, {"b": 1, "c": 1}], invalid=[{"a": 1, "c": 1}, {"b": 1}])


@pytest.mark.parametrize(
    "negated",
    [
        {"maxProperties": 1},
        {"properties": {"a": {}}, "additionalProperties": False},
        {"propertyNames": {"maxLength": 1}},
    ],
)
def test_not_is_exact(negated: dict[str, Any]) -> None:
    check({"type": "object", "not": negated}, valid=[{"a": 1, "bb": 1}], invalid=[{}, {"a": 1}])


@both_drafts
def test_what_speaks_of_properties_counts_as_an_object(draft: str) -> None:
    assert not widen({"$schema": draft, "properties": {"a": {}}}).wrapped
    assert not widen({"$schema": draft, "required": ["a"], "anyOf": [{"required": ["b"]}]}).wrapped


# -- wrapping -----------------------------------------------------------------------------------------------


@both_drafts
@pytest.mark.parametrize(
    ("rule", "valid", "invalid"),
    [
        ({"type": "array", "items": {"type": "integer"}}, [1], ["x"]),
        ({"type": ["object", "null"]}, None, 1),
        ({"type": "string"}, "x", 1),
        ({"anyOf": [{"type": "object"}, {"type": "null"}]}, None, 1),
        ({"const": {"a": 1}}, {"a": 1}, {}),
        ({"type": "object", "enum": [{}]}, {}, {"a": 1}),
        ({"type": "object", "properties": {ENVELOPE_KEY: {"type": "string"}}}, {}, {ENVELOPE_KEY: 1}),
        ({"type": "object", "required": [ENVELOPE_KEY]}, {ENVELOPE_KEY: 1}, {}),
        ({"type": "object", "anyOf": [{"enum": [{}]}, {"required": ["a"]}]}, {"a": 1}, {"b": 1}),
    ],
)
def test_wrapped(draft: str, rule: dict[str, Any], valid: Any, invalid: Any) -> None:
    widened = check({"$schema": draft, **rule}, valid=[valid], invalid=[invalid], wrapped=True)
    assert widened.schema["$schema"] == draft
    assert not accepts(widened.schema, {})
    assert widened.reason.endswith(".")


@pytest.mark.parametrize("document", [True, False, {}])
def test_wrapped_without_anything_to_go_by(document: Any) -> None:
    widened = widen(document)
    assert widened.wrapped
    assert accepts(widened.schema, {"result": 1}) is (document is not False)


@both_drafts
def test_wrapping_keeps_references(draft: str) -> None:
    document = {
        "$schema": draft,
        "type": "array",
        "items": {
            "anyOf": [{"$ref": "#/definitions/n"}, {"$ref": "#"}, {"$ref": "#/definitions/deep/items"}],
            "default": {"$ref": "#/unchanged"},
        },
        "contains": {"$ref": "#/items/anyOf/0"},
        "definitions": {"n": {"type": "integer"}, "deep": {"items": {"type": "null"}}},
    }
    widened = check(
        document, valid=[[1], [1, [2]], [1, None]], invalid=[[], ["x"], [[1]], [1, [[2]]]], wrapped=True
    )
    result = widened.schema["properties"]["result"]
    assert result["items"]["default"] == {"$ref": "#/unchanged"}
    assert result["items"]["anyOf"][1] == {"$ref": "#/properties/result"}
    assert widened.schema["definitions"] == document["definitions"]


def test_wrapping_leaves_embedded_resources_alone() -> None:
    document = {
        "$id": "https://example.org/root",
        "type": "array",
        "items": {"$ref": "item"},
        "$defs": {
            "item": {"$id": "item", "$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}},
            "back": {"$ref": "https://example.org/root#/items"},
        },
        "contains": {"$ref": "#/$defs/back"},
    }
    widened = check(document, valid=[[1]], invalid=[[], ["x"]], wrapped=True)
    assert widened.schema["$defs"]["item"] == document["$defs"]["item"]  # type: ignore[index]


def test_wrapping_a_draft_07_reference_with_an_identity() -> None:
    document = {
        "$schema": DRAFT_07,
        "$id": "https://example.org/root",
        "$ref": "#/definitions/A",
        "definitions": {
            "A": {"type": "array", "items": {"$ref": "#/definitions/B"}},
            "B": {"type": "integer"},
        },
    }
    check(document, valid=[[], [1]], invalid=[["x"], 1], wrapped=True)


def test_definitions_in_an_unusual_place() -> None:
    schemas = {"A": {"type": "array", "items": {"$ref": "#/components/B"}}, "B": {"type": "integer"}}
    document = {"$ref": "#/components/A", "components": schemas}
    check(document, valid=[[1]], invalid=[["x"], 1], wrapped=True)
    closed = {
        "type": "object",
        "properties": {"b": {"$ref": "#/components/B"}},
        "additionalProperties": False,
    }
    document = {"$ref": "#/components/A", "components": {"A": closed, "B": {"type": "integer"}}}
    check(document, valid=[{"b": 1}], invalid=[{"b": "x"}, {"c": 1}])


def test_dynamic_and_recursive_references_are_wrapped() -> None:
    dynamic = {
        "$dynamicAnchor": "node",
        "type": "object",
        "properties": {"a": {"type": "integer"}, "next": {"$dynamicRef": "#node"}},
        "additionalProperties": False,
    }
    check(dynamic, valid=[{"next": {"a": 1}}], invalid=[{"next": {"b": 1}}], wrapped=True)
    recursive = {
        "$schema": DRAFT_2019,
        "$recursiveAnchor": True,
        "type": "object",
        "properties": {"a": {"type": "integer"}, "next": {"$recursiveRef": "#"}},
        "additionalProperties": False,
    }
    check(recursive, valid=[{"next": {"a": 1}}], invalid=[{"next": {"b": 1}}], wrapped=True)


def test_what_lies_outside_is_wrapped_and_not_fetched() -> None:
    widened = widen({"$ref": "https://example.org/elsewhere"})
    assert widened.wrapped
    assert widened.schema["properties"]["result"] == {"$ref": "https://example.org/elsewhere"}
    assert not widen({"type": "object", "properties": {"a": {"$ref": "https://example.org/x"}}}).wrapped


def test_a_reference_into_what_would_move_is_wrapped() -> None:
    document = {
        "type": "object",
        "patternProperties": {"^_": {"type": "integer"}},
        "properties": {"a": {"$ref": "#/patternProperties/%5E_"}},
    }
    check(document, valid=[{"a": 1}], invalid=[{"a": "x"}, {"_b": "x"}], wrapped=True)


@pytest.mark.parametrize("keyword", ["properties", "items", "allOf", "const"])
def test_ten_thousand_levels(keyword: str) -> None:
    schema: Any = {}
    for _ in range(10_000):
        inside = {"a": schema} if keyword == "properties" else [schema] if keyword == "allOf" else schema
        schema = {keyword: inside}
    with pytest.raises(SchemaError, match="levels deep"):
        widen(schema)


def test_as_deep_as_a_schema_may_be() -> None:
    schema: Any = {"type": "object", "additionalProperties": False}
    for _ in range(90):
        schema = {"allOf": [schema]}
    check(schema, valid=[{}], invalid=[{"a": 1}])


def test_a_bomb_is_widened_promptly() -> None:
    definitions: dict[str, Any] = {
        f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]} for i in range(60)
    }
    definitions["d60"] = {"type": "object", "additionalProperties": False}
    assert not widen({"$ref": "#/$defs/d0", "$defs": definitions}).wrapped


def test_the_result_shares_nothing_with_the_input() -> None:
    document = {"type": "object", "required": ["a"], "properties": {"a": {"enum": [[1]]}}, "examples": [{}]}
    widened = widen(document).schema
    widened["required"].append("b")
    widened["properties"]["a"]["enum"][0].append(2)
    widened["examples"].append(1)
    assert document == {
        "type": "object",
        "required": ["a"],
        "properties": {"a": {"enum": [[1]]}},
        "examples": [{}],
    }


# -- the promises, over generated schemas -------------------------------------------------------------------

names = st.sampled_from(["a", "b", "_x"])
leaves = st.sampled_from([True, {"type": "integer"}, {"type": "string"}, {"enum": [1, "x"]}])
small = st.integers(0, 3)


def rules(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return object schemas that contain each other."""
    members = st.one_of(leaves, inner)
    return st.fixed_dictionaries(
        {"type": st.just("object")},
        optional={
            "properties": st.dictionaries(names, members, max_size=3),
            "required": st.lists(names, unique=True, max_size=2),
            "additionalProperties": st.one_of(st.booleans(), leaves),
            "patternProperties": st.dictionaries(st.sampled_from(["^_", "a", "e$"]), leaves, max_size=1),
            "propertyNames": st.sampled_from([{"maxLength": 1}, {"pattern": "^[a-z]"}, True]),
            "maxProperties": small,
            "minProperties": small,
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
        },
    )


plain = st.fixed_dictionaries(
    {"type": st.just("object")},
    optional={
        "properties": st.dictionaries(names, leaves, max_size=2),
        "additionalProperties": st.booleans(),
        "maxProperties": small,
        "required": st.lists(names, unique=True, max_size=1),
    },
)
object_schemas = st.recursive(plain, rules, max_leaves=5)
referring = st.builds(
    lambda draft, definition, others: {
        "$schema": draft,
        "$ref": "#/definitions/A",
        "definitions": {"A": {**definition, **others}},
    },
    st.sampled_from([DRAFT_07, DRAFT_2020]),
    object_schemas,
    st.sampled_from(
        [{}, {"properties": {"a": {"$ref": "#/definitions/A"}}}, {"properties": {"b": {"$ref": "#"}}}]
    ),
)
documents = st.one_of(
    object_schemas,
    referring,
    st.builds(lambda schema: {**schema, "unevaluatedProperties": False}, object_schemas),
)
anything = st.dictionaries(
    st.sampled_from(["a", "b", "_x", "ccc"]),
    st.sampled_from([1, "x", None, {}, {"a": 1}, {"b": "x"}]),
    max_size=4,
)
quick = settings(max_examples=examples(100))


def promises_hold(document: dict[str, Any], instance: dict[str, Any]) -> None:
    assume(ENVELOPE_KEY not in instance)
    before = json.dumps(document)
    widened = widen(document)
    assert json.dumps(document) == before
    inside = {"result": instance} if widened.wrapped else instance
    expected = accepts(document, instance)
    assert accepts(widened.schema, inside) is expected
    for envelope in ENVELOPES:
        assert accepts(widened.schema, {**inside, ENVELOPE_KEY: envelope}) is expected


@quick
@given(documents, anything)
def test_any_object_stays_as_valid_as_it_was(document: dict[str, Any], instance: dict[str, Any]) -> None:
    promises_hold(document, instance)


# hypothesis-jsonschema trips over some generated schemas (its own assertions fail), so it gets chosen ones.
CHOSEN: dict[str, dict[str, Any]] = {
    "open": OPEN_A,
    "closed": CLOSED_A,
    "counted": {"type": "object", "minProperties": 1, "maxProperties": 2},
    "named": {"type": "object", "propertyNames": {"maxLength": 1}},
    "patterns": {"type": "object", "patternProperties": {"^_": {"type": "integer"}}},
    "any": {"anyOf": [OPEN_A, CLOSED_B]},
    "one": {"oneOf": [CLOSED_A, CLOSED_B]},
    "all": {"allOf": [OPEN_A, {"type": "object", "maxProperties": 3}]},
    "not": {"type": "object", "not": {"required": ["a"]}, "maxProperties": 2},
    "if": {"type": "object", "if": {"required": ["a"]}, "then": CLOSED_A, "else": {"maxProperties": 1}},
    "referring": {"$ref": "#/$defs/A", "$defs": {"A": CLOSED_A}},
    "mixed": {
        "type": "object",
        "properties": {"list": {"type": "array", "items": CLOSED_A}, "text": {"type": "string"}},
        "required": ["list"],
        "additionalProperties": {"type": "integer"},
    },
}


@pytest.mark.parametrize("name", CHOSEN)
def test_conforming_objects_stay_valid(name: str) -> None:
    @settings(max_examples=examples(30))
    @given(from_schema(CHOSEN[name]))
    def hold(instance: Any) -> None:
        assert accepts(CHOSEN[name], instance)
        promises_hold(CHOSEN[name], instance)

    hold()


def test_generated_objects_need_no_wrapping() -> None:
    tally = {True: 0, False: 0}

    @quick
    @given(documents)
    def count(document: dict[str, Any]) -> None:
        tally[widen(document).wrapped] += 1

    count()
    assert tally[True] == 0, tally
