"""Our own dialect where its conditions end: both lanes in one budget, failures that no schema binds, figures."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_envelope import Cut, Reply, seal
from mcp_envelope.budget import Budget
from mcp_envelope.dialects.native import Native
from mcp_envelope.fit.pages import Page
from mcp_envelope.jsontext.document import encode, parse, text_block
from mcp_envelope.lanes import Lanes, Plan
from mcp_envelope.outcome import Outcome
from mcp_envelope.payload import Payload
from mcp_envelope.schema import Schema


def lanes(payload: Payload, limit: int, **more: Any) -> Lanes:
    return Native().fit(Plan(payload=payload, budget=Budget.of(max_bytes=limit), outcome=Outcome(), **more))


def test_both_lanes_pass_up_to_the_last_byte_of_the_budget_that_they_share() -> None:
    raw = encode({"a": "x" * 1000})
    for limit, passes in [(2 * len(raw), True), (2 * len(raw) - 1, False)]:
        made = lanes(Payload(node=parse(raw), source=raw), limit, shares=True)
        assert (made.content.measured == raw) == passes
        assert made.structured is not None
        assert made.structured.json == raw, "there is room for one"


def test_a_structure_that_its_text_does_not_repeat_has_to_fit_as_well() -> None:
    node = parse(encode(list(range(1000, 1200))))
    beside = lanes(Payload(node=node, blocks=(text_block("short"),)), 600, schema=Schema({}))
    # With the name of its member, it is larger than the text alone.
    wrapped = lanes(Payload(node=node), node.size, schema=Schema({}), wrap=True)
    for made, limit in ((beside, 600), (wrapped, node.size)):
        assert made.structured is not None
        assert made.structured.cuts
        assert made.structured.used <= limit


def test_the_text_of_a_failure_is_not_bound_by_the_schema() -> None:
    rows = {"type": "array", "items": {"type": "string"}}
    schema = {
        "type": "object",
        "properties": {"a": {**rows, "minItems": 90}, "b": rows},
        "additionalProperties": False,
    }
    value = {"a": ["x" * 20] * 100, "b": ["y" * 20] * 100}
    sealed = seal(value, schema=schema, is_error=True, max_bytes=3000)
    structure = json.loads(sealed.structured or b"")
    assert len(structure["a"]) >= 90
    text = json.loads(json.loads(sealed.content)[0]["text"])
    assert abs(len(text["a"]) - len(text["b"])) <= 1
    bound = seal(value, schema=schema, max_bytes=3000)
    assert len(json.loads(json.loads(bound.content)[0]["text"])["a"]) >= 90


def test_what_cannot_be_cut_is_a_failure_with_its_size() -> None:
    number = b"1" * 9000
    sealed = seal(number, max_bytes=1000, handle="h")
    assert sealed.is_error
    assert sealed.content_cuts == (Cut("", "bytes", 0, 9000, 0),)
    made = lanes(Payload(page=Page("/n", "whole", 3, 9, text=number)), 1000)
    assert made.is_error
    assert made.cuts == (Cut("/n", "bytes", 0, 9000, 3),)
    assert "RESULT_TOO_LARGE" in made.content.json.decode()


def test_what_is_nested_too_deeply_to_be_opened_is_left_out() -> None:
    deep = b'{"a":%b%b}' % (b"[" * 5000, b"]" * 5000)
    sealed = seal(deep, max_bytes=1000)
    assert sealed.is_error
    assert sealed.structured is None
    assert "RESULT_TOO_LARGE" in sealed.content.decode()


def test_an_envelope_of_the_payloads_own_is_left_out_as_a_whole() -> None:
    sealed = seal({"_envelope": {"a": 1}, "rows": list(range(900))}, max_bytes=1000)
    assert Cut("/_envelope", "bytes", 0, len('{"a":1}'), 0) in sealed.cuts


@pytest.mark.parametrize("wrap", [False, True])
def test_a_tool_without_data_gets_the_least_that_its_schema_allows(wrap: bool) -> None:
    least = {"result": None} if wrap else {}
    schema = {"type": "object", **({"required": ["result"]} if wrap else {})}
    sealed = seal(Reply(texts=["Done."]), schema=schema, wrap=wrap)
    assert json.loads(sealed.structured or b"") == least
    assert not sealed.is_error
    schema = {"type": "object", "required": ["rows"]}
    failed = seal(Reply(texts=["Done."]), schema=schema, wrap=False)
    assert failed.structured is None
    assert "BAD_RESULT" in failed.content.decode()
