"""The fitter by itself: shares, and cuts that were tried and given up."""

from __future__ import annotations

import gc
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_envelope.fit.documents import FitNode, Fitter, first_gap, ranges, share
from mcp_envelope.fit.ranking import rank
from mcp_envelope.jsontext.document import MAX_DEPTH, encode, parse
from mcp_envelope.schema.validation import Schema


@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=1, max_size=12),
    st.integers(0, 3000),
)
def test_shares_are_fair_and_within_the_room(pairs: list[tuple[int, int]], room: int) -> None:
    sizes = [max(pair) for pair in pairs]
    floors = [min(pair) for pair in pairs]
    shares = share(sizes, floors, room)
    if sum(floors) > room:
        assert shares is None
        return
    assert shares is not None

    def at(level: int) -> list[int]:
        return [min(size, max(floor, level)) for size, floor in zip(sizes, floors, strict=True)]

    # There is one level for all, and the next one would be too high.
    assert sum(shares) <= room
    level = max(level for level in range(max(sizes) + 1) if sum(at(level)) <= room)
    assert shares == at(level)


def test_what_was_tried_and_given_up_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [{"rows": list(range(300))}, {"s": json.dumps(list(range(600)))}, {"rows": [1]}]
    monkeypatch.setattr(Fitter, "_fit_json_string", lambda *_: None)
    fitted = Fitter(parse(encode(items))).fit(1500)
    assert fitted is not None
    assert json.loads(fitted.json) == items[:1]
    assert [(cut.path, cut.kept, cut.total) for cut in fitted.cuts] == [("", 1, 3)]


def test_what_was_fitted_is_let_go_at_once() -> None:
    """A payload may be large: it must not stay until somebody looks for rings of references."""
    node = parse(json.dumps({"a": [{"b": json.dumps([{"c": "x" * 50}] * 50)}] * 20}).encode())
    gc.collect()
    gc.disable()
    try:
        fitter = Fitter(node)
        assert fitter.fit(400) is not None
        assert any(isinstance(each, FitNode) for each in gc.get_objects())
        del fitter
        assert not any(isinstance(each, FitNode) for each in gc.get_objects())
    finally:
        gc.enable()


def fitted_to(room: int, document: Any, **more: Any) -> tuple[Any, list[tuple[str, int, int]]]:
    fitted = Fitter(parse(encode(document)), **more).fit(room)
    assert fitted is not None
    assert len(fitted.json) <= room
    return json.loads(fitted.json), [(cut.path, cut.kept, cut.total) for cut in fitted.cuts]


def test_a_list_of_which_nothing_fits_keeps_its_name() -> None:
    node = parse(encode({"rows": ["x" * 90] * 300, "title": "t" * 400, "total": 300}))
    fitted = Fitter(node).fit(40)
    assert fitted is not None
    assert json.loads(fitted.json) == {"rows": [], "total": 300}
    assert [(cut.path, cut.kind, cut.kept, cut.total) for cut in fitted.cuts] == [
        ("/rows", "items", 0, 300),
        ("", "properties", 2, 3),
    ]


def test_a_list_whose_items_cannot_be_cut_is_left_empty() -> None:
    assert fitted_to(100, [10**200, 10**200]) == ([], [("", 0, 2)])


@pytest.mark.parametrize("count", [2, 8])
def test_a_few_large_items_share_the_room(count: int) -> None:
    shown, cuts = fitted_to(1000, ["x" * 2000] * count)
    assert len(shown) == count
    lengths = [len(item) for item in shown]
    assert max(lengths) - min(lengths) <= 8
    assert sum(lengths) > 900 - 12 * count
    assert [cut[0] for cut in cuts] == [f"/{index}" for index in range(count)]


def test_a_ranking_is_for_its_path_alone() -> None:
    by_n = rank("-n")
    rows = [{"n": number} for number in range(50)]
    best = list(range(49, -1, -1))

    def kept(pattern: str, document: Any) -> list[int]:
        shown, _ = fitted_to(200, document, rankings={pattern: by_n})
        while isinstance(shown, dict):
            shown = next(iter(shown.values()))
        return sorted((row["n"] for row in shown), reverse=True)

    for pattern in ("/a", "a", "/*"):
        found = kept(pattern, {"a": rows})
        assert found == best[: len(found)]
    found = kept("/*/rows", {"a": {"rows": rows}})
    assert found == best[: len(found)]
    # A longer or a shorter path, or another name, is another list.
    for pattern in ("/a/rows", "/*/*", "/b", ""):
        assert 0 in kept(pattern, {"a": rows})


def test_kept_rows_are_told_asranges() -> None:
    assert ranges([0, 1, 2, 5, 8, 9]) == "0-2, 5, 8-9"
    assert ranges([3]) == "3"
    assert ranges([0, 2]) == "0, 2"
    assert [first_gap(each) for each in ([2, 0, 1], [1, 2], [0, 1, 3], range(4))] == [3, 0, 2, 4]


def test_a_map_keeps_what_is_required_and_fills_the_rest_of_its_room() -> None:
    members = {f"k{number:03}": "x" * 20 for number in range(300)}
    schema = {"type": "object", "required": ["k299", "k298"], "additionalProperties": {"type": "string"}}
    place = Schema.of(schema).root
    for room in range(150, 200):
        kept, _ = fitted_to(room, members, place=place)
        assert {"k298", "k299"} <= set(kept)
        # `"k000":"xxxxxxxxxxxxxxxxxxxx",` has 30 bytes, and the braces need one more than the last comma.
        assert len(kept) == (room - 1) // 30, room


def test_a_map_has_no_crumbs_of_its_lists() -> None:
    """More cuts than a notice can list would leave lists that look whole."""
    value = {f"l{n}": ["a", "b"] for n in range(2000)}
    for room in range(900, 1000):
        fitted = Fitter(parse(json.dumps(value, separators=(",", ":")).encode())).fit(room)
        assert fitted is not None
        assert [cut.kind for cut in fitted.cuts] == ["properties"]
        assert all(each == ["a", "b"] for each in json.loads(fitted.json).values())


@pytest.mark.parametrize("depth", [1, 40, MAX_DEPTH - 1])
def test_a_list_is_cut_at_any_depth(depth: int) -> None:
    value: Any = list(range(1000))
    for _ in range(depth):
        value = {"a": value}
    _, cuts = fitted_to(1000, value)
    assert [cut[0] for cut in cuts] == ["/a" * depth]


def test_a_run_of_any_length_is_one_range() -> None:
    assert ranges(list(range(9))) == "0-8"
    assert ranges([3, 4, 5, 6, 9, 11, 12, 13, 14]) == "3-6, 9, 11-14"


def test_all_of_few_items_are_shown_even_if_most_fit_whole() -> None:
    """Two are lists, since only lists are cut as long as any item fits whole."""
    rows = ["x" * 40] * 100
    shown, _ = fitted_to(800, [1, 2, 3, 4, 5, rows, rows])
    assert len(shown) == 7
    assert all(len(each) > 4 for each in shown[-2:])


@pytest.mark.parametrize(
    "document",
    [
        [f"item {number}" * (number % 7) for number in range(60)],
        {"rows": [{"n": number} for number in range(60)], "text": "t" * 40},
        {"one": list(range(60)), "other": list(range(1000, 1060))},
        {"rows": json.dumps([f'"{number}"' for number in range(60)])},
        ["x" * 10] * 9 + ["y" * 5000] * 9,
        [["x" * 10] * 9, ["y" * 50] * 9],
    ],
    ids=["list", "records", "two lists", "JSON in a string", "very large items", "lists in a list"],
)
def test_below_the_next_room_nothing_changes(document: Any) -> None:
    fitter = Fitter(parse(encode(document)))
    for room in range(60, 300):
        fitted = fitter.fit(room)
        assert fitted is not None
        for larger in range(room + 1, fitted.next_room):
            other = fitter.fit(larger)
            assert other is not None
            assert (other.json, other.cuts) == (fitted.json, fitted.cuts)


def test_the_next_room_of_a_list_has_one_item_more() -> None:
    fitter = Fitter(parse(encode([1000 + number for number in range(60)])))
    for kept in (9, 20, 59):
        # Five bytes for each item and its comma, and one for the brackets.
        for room in range(5 * kept + 1, 5 * kept + 6):
            fitted = fitter.fit(room)
            assert fitted is not None
            assert (fitted.cuts[0].kept, fitted.next_room) == (kept, 5 * kept + 6)


def test_a_string_says_something_while_a_member_can_go() -> None:
    document = {"title": "t" * 100, "number": 10**60}
    shown, cuts = fitted_to(90, document)
    assert list(shown) == ["title"]
    assert [cut[0] for cut in cuts] == ["/title", ""]
    # What the schema requires stays, and the string is as short as that takes.
    place = Schema({"type": "object", "required": ["title", "number"]}).root
    shown, cuts = fitted_to(110, document, place=place)
    assert shown["number"] == 10**60
    assert [cut[0] for cut in cuts] == ["/title"]
    assert len(shown["title"]) < 48


def test_a_member_that_cannot_be_cut_goes() -> None:
    for digits in (98, 200):
        assert fitted_to(100, {"a": 1, "b": 10**digits}) == ({"a": 1}, [("", 1, 2)])


def test_objects_in_a_list_keep_their_members_while_strings_can_be_cut() -> None:
    shown, _ = fitted_to(420, [{"n": 10**200}, {"a": "x" * 300, "b": "y" * 300}])
    assert [list(each) for each in shown] == [["n"], ["a", "b"]]


@pytest.mark.parametrize(
    ("document", "least"),
    [
        ({"rows": ["item"] * 50, "n": 12345}, {"rows": ["item"], "n": 12345}),
        ({"rows": ["item"] * 50, "other": ["thing"] * 50}, {"rows": ["item"], "other": ["thing"]}),
        ([{"rows": ["item"] * 50, "n": 12345}], [{"rows": ["item"], "n": 12345}]),
    ],
)
def test_each_list_keeps_an_item_as_long_as_there_is_room(document: Any, least: Any) -> None:
    size = len(encode(least))
    assert fitted_to(size, document)[0] == least
    shown, cuts = fitted_to(size - 1, document)
    assert "[]" in json.dumps(shown)
    assert 0 in [kept for _, kept, _ in cuts]


def test_no_member_goes_before_each_string_is_at_its_shortest() -> None:
    document = {"a": "x" * 100, "b": "y" * 100}
    # Each has 48 bytes, its key, a colon and a comma or a brace.
    for room, count in [(1 + 2 * (48 + 5), 2), (2 * (48 + 5), 1)]:
        shown, cuts = fitted_to(room, document)
        assert len(shown) == count
        assert len([cut for cut in cuts if cut[0]]) == count


def test_json_in_a_string_loses_its_whitespace_before_anything_else() -> None:
    # The beginning has many escapes, so a guess by it is too low for the rest.
    inner = ["a"] * 1000 + ["x" * 20_000]
    plain = encode({"s": encode(inner).decode()})
    fitted = Fitter(parse(encode({"s": json.dumps(inner, indent=8)}))).fit(len(plain))
    assert fitted is not None
    assert (fitted.json, fitted.cuts) == (plain, ())


def test_the_beginning_of_a_very_large_item_is_shown_once_a_quarter_of_the_room_is_left() -> None:
    document = ["x" * 10] * 30 + ["y" * 5000] * 9
    whole = len(encode(document[:30]))
    for room in range(whole, 2 * whole):
        shown, cuts = fitted_to(room, document)
        assert len(shown) == (31 if room - whole > room // 4 else 30)
        assert cuts[-1] == ("", len(shown), 39)
        assert len(encode(shown)) >= room * 3 // 4


@pytest.mark.parametrize(("room", "count"), [(300, 1), (1023, 1), (1024, 2), (1535, 2), (1536, 3)])
def test_of_many_large_items_each_gets_a_share_that_says_something(room: int, count: int) -> None:
    shown, cuts = fitted_to(room, ["x" * 2000] * 20)
    assert len(shown) == count
    assert len(encode(shown)) > 0.9 * room
    assert cuts[-1] == ("", count, 20)


@pytest.mark.parametrize("empty", [[], {}])
def test_a_name_stays_while_there_is_room_for_nothing_in_it(empty: Any) -> None:
    value = ["item"] * 50 if empty == [] else {"item": "x" * 50}
    assert fitted_to(len('{"a":[]}'), {"a": value})[0] == {"a": empty}
    assert fitted_to(len('{"a":[]}') - 1, {"a": value})[0] == {}
    assert fitted_to(2, value)[0] == empty
    assert Fitter(parse(encode(value))).fit(1) is None
