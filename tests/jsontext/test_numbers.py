"""Numbers are measured as Python's libraries will write them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json as pydantic_json

from mcp_envelope.budget import meter_named as meter
from mcp_envelope.config import Policy
from mcp_envelope.envelope import seal
from mcp_envelope.jsontext.document import respelled
from mcp_envelope.payload import to_json

values = st.recursive(
    st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([1e16, -1e16, 9999999999999998.0, 1e22, 1e100, 1e-5, 1e-7, -0.0, 10**30, True, None])
    | st.text('1e2,]}:"\\\n ', max_size=12),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('1e2,]"\\', max_size=8), inner),
)


@given(values)
def test_as_pydantic_writes_them(value: Any) -> None:
    assert to_json(value) == pydantic_json(value)


@pytest.mark.parametrize("value", [1e16, [1e16], {"a": 1e300}, ["1e16,", 1e16], {'"1e16,': '\\",1e16]'}])
def test_some_of_them(value: Any) -> None:
    assert respelled(msgspec.json.encode(value)) == pydantic_json(value)


@pytest.mark.parametrize("name", ["estimate", "chars4", "exact"])
@pytest.mark.parametrize("dialect", ["native", "transcend", "gel", "scalpel"])
def test_a_result_written_anew_is_as_large_as_it_was_measured(dialect: str, name: str) -> None:
    """With one handle it was within the budget, with another it was not."""
    for number in range(15):
        handle = f"{number * 7919:022x}"
        sealed = seal(
            {"rows": [1e22, 2.5e17, 3] * 800}, dialect=dialect, tokens=2497, meter=name, handle=handle
        )
        assert sealed.truncated
        anew = pydantic_json(sealed.to_result()["structuredContent"])
        assert anew == sealed.structured
        assert meter(name).count(anew) <= 2497


_LARGE = [1e22, 2.5e17, 3]
_PAYLOADS: dict[str, Any] = {
    "small": {"rows": _LARGE, "x": 1e16},
    "a list and another": {"rows": _LARGE * 800, "others": _LARGE * 20, "x": 1e300},
    "nested": {"data": {"rows": [{"id": number, "x": _LARGE} for number in range(500)]}},
    "with a notice of its own": {"rows": _LARGE * 800, "_envelope": {"x": 1e22}},
    "transcend's own": {"ok": True, "data": {"rows": _LARGE * 800}, "truncated": False, "warnings": []},
    "gel's own": {"meta": {"status": "ok", "summary": "Done"}, "data": {"rows": _LARGE * 800}},
    "a map": {f"key-{number}": 1e22 for number in range(2_000)},
    "a list": _LARGE * 800,
}


@pytest.mark.parametrize("policy", [Policy(tokens=1500), Policy(tokens=1500, exclude_fields=("x", "others"))])
@pytest.mark.parametrize("dialect", ["native", "transcend", "gel", "scalpel"])
@pytest.mark.parametrize("name", _PAYLOADS)
def test_however_they_get_in(name: str, dialect: str, policy: Policy) -> None:
    wrap = isinstance(_PAYLOADS[name], list) and dialect == "native"
    sealed = seal(_PAYLOADS[name], dialect=dialect, policy=policy, wrap=wrap, handle="h")
    assert pydantic_json(sealed.to_result()["structuredContent"]) == sealed.structured


def test_what_came_as_json_keeps_its_spelling() -> None:
    raw = b'{"a":1e22,"b":1E5,"c":[1.50,1e400]}'
    assert seal(raw).structured == raw
    assert json.loads(json.loads(seal(raw).content)[0]["text"]) == json.loads(raw)
