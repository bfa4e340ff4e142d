"""Lazy JSON: exact bytes for what is not changed, a clear answer for what is not JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_envelope.jsontext import document as jsontree
from mcp_envelope.jsontext.document import from_members, parse, sniff
from mcp_envelope.jsontext.errors import JSONError, diagnose, replace_lone_surrogates

from ..strategies import large_values, small_values


def members(raw: bytes) -> list[tuple[str, bytes, bytes]]:
    return [(m.key, m.raw_key, bytes(m.value)) for m in parse(raw).members()]


def test_values_keep_their_spelling() -> None:
    raw = b'{"a":1.0,"b":1e400,"c":123456789012345678901234567890,"d":"\\u0041\\/","e":{"x":1,"x":2},"f":-0}'
    assert [value for _, _, value in members(raw)] == [
        b"1.0",
        b"1e400",
        b"123456789012345678901234567890",
        b'"\\u0041\\/"',
        b'{"x":1,"x":2}',
        b"-0",
    ]


def test_keys_keep_their_spelling() -> None:
    assert members(b'{"a\\u0041":1,"b\\/":2,"c":3}') == [
        ("aA", b'"a\\u0041"', b"1"),
        ("b/", b'"b\\/"', b"2"),
        ("c", b'"c"', b"3"),
    ]
    assert members(b'{ "a\\u0041" : 1 ,\n "b" : [ 2 ] }') == [
        ("aA", b'"a\\u0041"', b"1"),
        ("b", b'"b"', b"[2]"),
    ]


def test_of_equal_keys_the_last_counts() -> None:
    assert members(b'{"a":1,"b":2,"a":3,"c":4}') == [
        ("a", b'"a"', b"3"),
        ("b", b'"b"', b"2"),
        ("c", b'"c"', b"4"),
    ]


@pytest.mark.parametrize(
    ("raw", "line", "column", "says"),
    [
        (b"", 1, 1, "ends too early"),
        (b'{"a": 1,\n "b": }', 2, 7, "expected a value, found '}'"),
        (b'{"a": 1,\n  }', 2, 3, "expected a key"),
        (b'{"a" 1}', 1, 6, "expected ':'"),
        (b"[1 2]", 1, 4, "expected ',' or ']'"),
        (b"[1,2", 1, 5, "ends too early"),
        (b"{} {}", 1, 4, "follows the end"),
        (b"[01]", 1, 3, "expected ','"),
        (b"[NaN]", 1, 2, "unexpected 'NaN]'"),
        (b'["a\tb"]', 1, 4, "control character"),
        (b'["a\\x"]', 1, 4, "invalid escape"),
        (b'{"a":"b', 1, 6, "never ends"),
        (b'\n\n ["\xff"]', 3, 4, "invalid UTF-8"),
        ('["漢字", x]'.encode(), 1, 8, "unexpected 'x]'"),
    ],
)
def test_what_is_not_json_is_named_with_its_place(raw: bytes, line: int, column: int, says: str) -> None:
    with pytest.raises(JSONError) as caught:
        parse(raw)
    assert (caught.value.line, caught.value.column) == (line, column), str(caught.value)
    assert says in str(caught.value)
    assert sniff(raw) is None


def test_half_a_surrogate_pair_is_mended() -> None:
    raw = rb'["\ud83d","\\ud83d","\ud83d\ude00","\ude00x"]'
    mended, count = replace_lone_surrogates(raw)
    assert count == 2
    assert mended == rb'["\ufffd","\\ud83d","\ud83d\ude00","\ufffdx"]'
    assert json.loads(bytes(parse(raw).raw)) == ["\ufffd", "\\ud83d", "😀", "\ufffdx"]


@pytest.mark.parametrize("depth", [100, 1_000, 10_000, 200_000])
def test_deep_nesting_is_json_and_no_crash(depth: int) -> None:
    raw = b"[" * depth + b"]" * depth
    assert bytes(parse(raw).raw) == raw
    with pytest.raises(JSONError, match="ends too early"):
        parse(raw[:-1])


@given(small_values)
def test_diagnose_finds_nothing_wrong_with_json(value: object) -> None:
    assert diagnose(json.dumps(value).encode()) is None
    assert diagnose(json.dumps(value, indent=1, ensure_ascii=False).encode()) is None


@given(st.binary(max_size=60) | st.text('[]{},:"\\ \n01eE+-.truefalsn', max_size=30).map(str.encode))
def test_parse_agrees_with_the_standard_library(raw: bytes) -> None:
    try:
        json.loads(raw.decode(), parse_constant=lambda name: int("x"))
        expected = True
    except ValueError:
        expected = False
    except RecursionError:
        return
    try:
        parse(raw)
        found = True
    except JSONError:
        found = False
    if raw.startswith(b"\xef\xbb\xbf"):
        return
    assert found == expected


@given(large_values.filter(lambda value: isinstance(value, dict)))
def test_an_object_put_together_is_the_object(value: dict[str, object]) -> None:
    node = from_members({key: jsontree.encode(member) for key, member in value.items()})
    assert node.raw == jsontree.encode(value)
    assert node.size == len(node.raw)


@pytest.mark.parametrize("item", [7, {"a": [{"b": 1}, {"b": 2}]}, "},{", ["x" * 9_000]])
def test_of_a_list_whose_length_is_known_only_the_beginning_is_opened(
    item: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = jsontree.encode([item] * 5_000)
    node = from_members({"rows": raw, "more": b"1"}, {"rows": 5_000}).child(0)
    opened: list[int] = []
    real = jsontree._open

    def watched(decoder: Any, raw: jsontree.Buffer) -> Any:
        opened.append(len(raw))
        return real(decoder, raw)

    monkeypatch.setattr(jsontree, "_open", watched)
    assert node.total() == 5_000
    for room in (100, 2_000, 1_000, 6_000):
        head = node.items(room)
        assert [json.loads(bytes(raw)) for raw in head] == [item] * len(head)
        assert len(head) == 5_000 or sum(len(raw) + 1 for raw in head) > room
    if len(jsontree.encode(item)) < 1_000:
        assert max(opened) <= 12_000
    assert node.all_items() == parse(raw).all_items()


@pytest.mark.parametrize(
    "item",
    [7, [1, 2.5], 'a","b', {"a": 1, "b": [{"c": 1}, {"c": "},{"}]}, None, "x" * 50],
)
def test_a_long_array_is_opened_in_windows(item: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsontree, "LARGE", 2_000)
    monkeypatch.setattr(jsontree, "_WINDOW", 300)
    value = [item] * 997
    node = parse(jsontree.encode(value))
    assert node.total() == 997
    head = node.items(500)
    assert [json.loads(bytes(raw)) for raw in head] == value[: len(head)]
    assert sum(len(raw) + 1 for raw in head) >= 500
    assert len(node.all_items()) == 997


@given(st.lists(small_values, min_size=30, max_size=60), st.integers(40, 400))
def test_windows_together_are_the_array(value: list[object], window: int) -> None:
    raw = jsontree.encode(value)
    before = jsontree._WINDOW
    jsontree._WINDOW = window  # type: ignore[misc]
    try:
        parts = [json.loads(part) for part, _ in jsontree.windows(raw)]
    finally:
        jsontree._WINDOW = before  # type: ignore[misc]
    assert [item for part in parts for item in part] == json.loads(raw)


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" ,\n ", " : ")])
@pytest.mark.parametrize("item", [{"a": [1, {"b": 2}], "c": "},{"}, [1, [2], "],["], 'a","b', 12345678901])
def test_a_large_list_is_opened_in_windows_however_it_is_spaced(
    separators: tuple[str, str], item: object
) -> None:
    raw = json.dumps([item] * 30_000, separators=separators).encode()
    opened = list(jsontree.windows(raw))
    assert len(opened) > 1
    assert max(len(window) for window, _ in opened) < 600_000
    items = [json.loads(bytes(each)) for _, items in opened for each in items]
    assert items == [item] * 30_000


def test_a_single_large_item_is_not_copied() -> None:
    raw = b'["%b"]' % (b"x" * 1_000_000)
    [(window, items)] = jsontree.windows(raw)
    assert window is raw
    assert len(items) == 1
    assert not jsontree.is_dense(raw)


@given(st.one_of(large_values.map(lambda value: json.dumps(value).encode()), st.binary(max_size=30)))
def test_whether_a_text_holds_json_is_told_as_sniffing_tells_it(data: bytes) -> None:
    try:
        data.decode()
    except UnicodeDecodeError:
        return
    assert jsontree.holds_json(data) == (sniff(data) is not None)


@pytest.mark.parametrize("opened", [False, True])
def test_a_few_items_are_picked_from_a_long_array(opened: bool) -> None:
    items = [b'{"id":%d,"name":"row %d"}' % (number, number) for number in range(100_000)]
    node = parse(b"[%b]" % b", ".join(items))
    if opened:
        node.all_items()
    chosen = [0, 1, 17, 50_000, 99_998, 99_999]
    assert node.picked(chosen) == [items[index] for index in chosen]
    assert node.picked([]) == []
    large = parse(b"[%b]" % b",".join(b'"%b"' % (b"x" * 70_000) for _ in range(8)))
    assert [len(item) for item in large.picked([2, 7])] == [70_002, 70_002]
