"""Comments go, everything else stays where it was."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_envelope.policy.comments import plain_json

from ..conftest import examples

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-99, 99)
    # Strings full of what looks like comments, ends of strings and trailing commas.
    | st.text(st.sampled_from('a"\\/*,]}\n\r \u2028é😀'), max_size=12)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4) | st.just("//"), inner, max_size=4)
    ),
    max_leaves=12,
)
GAPS = st.lists(
    st.sampled_from([" ", "\n", "\t", "\r\n"])
    | st.text(st.sampled_from('ab"\\*/ ,]}é'), max_size=8).map(lambda words: f"//{words}\n")
    | st.text(st.sampled_from('ab"\\/\n ,]}😀'), max_size=8).map(lambda words: f"/*{words}*/"),
    max_size=3,
).map("".join)


def written(value: Any, draw: Any) -> str:
    """The value as JSON with comments between all tokens and, at times, a trailing comma."""

    def gap() -> str:
        return str(draw(GAPS))

    def comma(members: list[str]) -> str:
        tail = f"{gap()},{gap()}" if members and draw(st.booleans()) else ""
        return f"{gap()},{gap()}".join(members) + tail

    if isinstance(value, list):
        return f"[{gap()}{comma([written(item, draw) for item in value])}{gap()}]"
    if isinstance(value, dict):
        members = [f"{json.dumps(key)}{gap()}:{gap()}{written(item, draw)}" for key, item in value.items()]
        return f"{{{gap()}{comma(members)}{gap()}}}"
    return json.dumps(value, ensure_ascii=draw(st.booleans()))


@settings(max_examples=examples(300))
@given(st.data())
def test_the_value_and_every_place_stay(data: st.DataObject) -> None:
    value = data.draw(VALUES)
    text = data.draw(GAPS) + written(value, data.draw) + data.draw(GAPS)
    plain = plain_json(text)
    assert json.loads(plain) == value
    assert len(plain) == len(text)
    assert all(new in (old, " ") for new, old in zip(plain, text, strict=True))
    assert [match.start() for match in re.finditer("[\r\n]", plain)] == [
        match.start() for match in re.finditer("[\r\n]", text)
    ]


@settings(max_examples=examples(300))
@given(VALUES)
def test_plain_json_is_not_touched(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=1)
    assert plain_json(text) == text


@settings(max_examples=examples(300))
@given(st.text(st.sampled_from('"\\/*[]{},: \n1a'), max_size=30))
def test_nothing_raises_and_no_mistake_is_hidden(text: str) -> None:
    plain = plain_json(text)
    assert len(plain) == len(text)
    assert plain_json(plain) == plain


@pytest.mark.parametrize("text", ["[,]", "{,}", "[1,,]", "[1,,2]", '{"a":,}', "/* [1]", '["a', ",", "[1] /"])
def test_mistakes_stay_mistakes(text: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        json.loads(plain_json(text))
