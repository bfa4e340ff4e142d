"""Comments go, everything else stays where it was, and its position is found."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_envelope.jsontext.scanner import NotJSON, ValueSpan, comments, place, plain_json, scan, string_values

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
    """Return the value as JSON with comments between all tokens and, sometimes, a trailing comma."""

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


@settings(max_examples=examples(150))
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


@settings(max_examples=examples(150))
@given(VALUES)
def test_plain_json_is_not_touched(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=1)
    assert plain_json(text) == text


@settings(max_examples=examples(150))
@given(st.text(st.sampled_from('"\\/*[]{},: \n1a'), max_size=30))
def test_nothing_raises_and_no_mistake_is_hidden(text: str) -> None:
    plain = plain_json(text)
    assert len(plain) == len(text)
    assert plain_json(plain) == plain


@pytest.mark.parametrize("text", ["[,]", "{,}", "[1,,]", "[1,,2]", '{"a":,}', "/* [1]", '["a', ",", "[1] /"])
def test_mistakes_stay_mistakes(text: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        json.loads(plain_json(text))


def check(value: Any, found: ValueSpan, text: str) -> None:
    """The span of every value, item and key contains its text."""
    plain = plain_json(text)
    assert json.loads(plain[found.start : found.end]) == value
    for item, inside in zip(value if isinstance(value, list) else [], found.items, strict=True):
        check(item, inside, text)
    for name, item in value.items() if isinstance(value, dict) else ():
        member = found.member(name)
        assert member is not None
        assert json.loads(plain[slice(*member.keys[-1])]) == name
        check(item, member.value, text)


@settings(max_examples=examples(150))
@given(st.data())
def test_every_position_is_found(data: st.DataObject) -> None:
    value = data.draw(VALUES)
    text = data.draw(GAPS) + written(value, data.draw) + data.draw(GAPS)
    found = scan(text, lambda path: True)
    assert found.meaning == value
    check(value, found.root, text)
    assert all(text[start:end].startswith(("//", "/*")) for start, end in comments(text))
    blank = list(found.plain)
    for start, end in comments(text):
        assert not "".join(blank[start:end]).strip()
    assert all(isinstance(json.loads(found.plain[slice(*span)]), str) for span in string_values(found.plain))


def test_keys() -> None:
    text = '{"a": {"b": [1, {"c": 2}], "é": {"d": null}},\n  "a\\"b" : 3}'
    found = dict(scan(text, lambda path: True).root.key_offsets())
    assert found == {("a",): 1, ("a", "b"): 7, ("a", "é"): 27, ("a", "é", "d"): 33, ('a"b',): 48}
    assert place(text, found[('a"b',)]) == "line 2, column 3"
    assert place(text, 0) == "line 1, column 1"


def test_only_what_is_asked_for_is_opened() -> None:
    root = scan('{"a": {"b": {"c": 1}}, "x": {"y": [1]}}', lambda path: path in [(), ("a",)]).root
    assert [path for path, _ in root.key_offsets()] == [("a",), ("a", "b"), ("x",)]


def test_the_last_of_equal_keys_counts() -> None:
    member = scan('{"a": 1, "a": 2}', lambda path: True).root.member("a")
    assert member is not None
    assert member.keys == [(9, 12)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1,\n "b" 2}', "line 2, column 6: not JSON: expecting ':' delimiter"),
        ('{"a": NaN}', "not JSON: there is no NaN in JSON"),
        ('{"a":' * 100_000, "not JSON: nested too deeply"),
        ("9" * 10_000, "not JSON: exceeds the limit"),
        ("/* " * 200_000, "line 1, column 1: not JSON"),
        ('"' + '\\"' * 200_000, "line 1, column 1: not JSON"),
    ],
)
def test_what_is_not_json(text: str, said: str) -> None:
    with pytest.raises(NotJSON) as error:
        scan(text, lambda path: True)
    assert str(error.value).startswith(said)
