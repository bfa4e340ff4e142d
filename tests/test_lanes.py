"""The search for the fullest lane, over lanes whose size is known for every room."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from mcp_envelope.budget import Budget
from mcp_envelope.envelope import seal
from mcp_envelope.fit.documents import Cut, CutKind
from mcp_envelope.fit.pages import Page
from mcp_envelope.lanes import Lane, Plan, _are_neighbours, _next_room, first_that_fits, largest_room
from mcp_envelope.outcome import Outcome
from mcp_envelope.payload import Payload
from mcp_envelope.schema import Schema

BUDGET = Budget.of(max_bytes=10_000)


def searched(
    size_at: Callable[[int], int | None], limit: int, guess: int, most: int, step: int = 0
) -> tuple[Lane | None, list[int]]:
    """Return what the search finds, and the rooms that it tried."""
    tried: list[int] = []

    def attempt(room: int) -> Lane | None:
        tried.append(room)
        size = size_at(room)
        if size is None:
            return None
        kept = size // step if step else size
        cuts = (Cut("/rows", "items" if step else "characters", kept, most, kept),)
        return Lane(b"x" * size, cuts, BUDGET)

    return largest_room(attempt, limit, guess, most), tried


@pytest.mark.parametrize("guess", [1, 500, 3000, 9_999, 40_000])
@pytest.mark.parametrize(("limit", "rate"), [(1000, 3), (8000, 1), (5000, 2), (700, 7)])
def test_a_straight_line_is_followed_to_the_limit(guess: int, limit: int, rate: int) -> None:
    lane, tried = searched(lambda room: -(-room // rate), limit, guess, 50_000)
    assert lane is not None
    assert limit * 0.998 <= lane.used <= limit
    assert len(tried) <= (8 if guess == 1 else 5)
    assert len(set(tried)) == len(tried)


def test_a_lane_that_uses_the_limit_is_not_improved_upon() -> None:
    assert searched(lambda room: room, 1000, 1000, 50_000)[1] == [1000]
    assert searched(lambda room: room, 1000, 998, 50_000)[1] == [998]
    # The whole payload is the most that there is.
    assert searched(lambda room: room, 1000, 5000, 600)[1] == [600]


def test_the_search_reaches_the_whole_payload() -> None:
    lane, tried = searched(lambda room: room, 1000, 50, 100)
    assert lane is not None
    assert lane.used == max(tried) == 100


def test_the_next_room_lies_between_those_that_were_tried() -> None:
    for low, high in [(100, 102), (100, 110), (100, 400), (0, 1000)]:
        for load_high in (61, 500, 100_000):
            assert low < _next_room(low, 59, high, load_high, 60) < high


def test_the_limit_itself_is_allowed_and_nothing_beyond_it() -> None:
    # Steps of 100 bytes: only a whole number of them can be used.
    for limit, used in [(1000, 1000), (999, 900), (1001, 1000)]:
        lane, _ = searched(lambda room: room // 100 * 100, limit, 300, 50_000)
        assert lane is not None
        assert lane.used == used


def test_rooms_that_cannot_be_made_lie_below_the_others() -> None:
    lane, tried = searched(lambda room: None if room < 700 else room, 1000, 1, 5000)
    assert lane is not None
    # After eight tries, two per cent will do.
    assert 980 <= lane.used <= 1000
    assert len(tried) <= 13
    assert searched(lambda _: None, 1000, 10, 5000)[0] is None
    assert searched(lambda room: 1001 + room, 1000, 10, 5000)[0] is None


def test_items_that_are_neighbours_end_the_search() -> None:
    """Between n and n + 1 whole items there is nothing to be found."""
    lane, tried = searched(lambda room: room // 400 * 400, 1000, 1100, 50_000, step=400)
    assert lane is not None
    assert lane.used == 800
    assert len(tried) <= 3


def test_a_frame_of_fixed_size_is_no_part_of_the_line() -> None:
    """With a frame of 600 bytes and items of 100, a line through the origin leads past the limit repeatedly."""
    tried: list[int] = []

    def attempt(room: int) -> Lane:
        tried.append(room)
        body = b"x" * (room // 100 * 100)
        cuts = (Cut("/rows", "items", len(body) // 100, 900, len(body) // 100),)
        return Lane(b"f" * 600 + body, cuts, BUDGET, body)

    lane = largest_room(attempt, 1990, 2000, 50_000)
    assert lane is not None
    assert lane.used == 1900
    assert len(tried) <= 3


def test_neighbours_differ_by_one_item_of_the_same_list() -> None:
    def lane(kept: int, path: str = "/a", kind: CutKind = "items") -> Lane:
        return Lane(b"", (Cut(path, kind, kept, 9, kept),), BUDGET)

    assert [_are_neighbours(lane(3), lane(kept)) for kept in (2, 3, 4, 5)] == [False, True, True, False]
    assert not _are_neighbours(lane(3), lane(4, "/b"))
    assert not _are_neighbours(lane(3, kind="characters"), lane(4, kind="characters"))
    assert not _are_neighbours(None, lane(4))
    assert not _are_neighbours(lane(3), None)


def test_the_longest_notice_that_fits_is_taken() -> None:
    def finish(length: int) -> Lane:
        return Lane(b"x" * (900 - 300 * length), (), BUDGET)

    assert [first_that_fits(finish, limit).used for limit in (900, 899, 600, 599, 299)] == [
        900,
        600,
        600,
        300,
        300,
    ]


@pytest.mark.parametrize("dialect", ["gel", "scalpel", "transcend"])
def test_framed_data_that_was_cut_and_still_conforms_is_a_success(dialect: str) -> None:
    rows = {"type": "array", "items": {"type": "integer"}}
    schema = {"type": "object", "properties": {"rows": rows}, "required": ["rows"]}
    sealed = seal({"rows": list(range(5000))}, schema=schema, dialect=dialect, tokens=500)
    assert not sealed.is_error
    assert sealed.cuts
    assert b"0,1,2,3" in (sealed.structured or sealed.content).replace(b" ", b"")
    assert json.loads(sealed.content)


@pytest.mark.parametrize("dialect", ["native", "gel", "scalpel", "transcend", "ctxo"])
def test_a_payload_that_breaks_its_schema_uncut_is_passed_on(dialect: str) -> None:
    schema = {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]}
    sealed = seal({"a": 5}, schema=schema, dialect=dialect, tokens=500)
    assert not sealed.is_error
    shown = json.loads(sealed.structured or json.loads(sealed.content)[0]["text"])
    assert shown.get("data", shown)["a"] == 5


@pytest.mark.parametrize(("others", "place"), [({}, "its root"), ({"b": 5}, "/b")])
def test_a_payload_that_cannot_be_cut_says_where_it_breaks_its_schema(
    others: dict[str, Any], place: str
) -> None:
    schema = {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]}
    for size, said in [(9000, f" (at {place})."), (300_000, "")]:
        sealed = seal({**others, "a": "x" * size}, schema=schema, tokens=500)
        assert sealed.is_error
        text = json.loads(json.loads(sealed.content)[0]["text"])
        message = text["_envelope"]["error"]["message"]
        # A large one isn't looked at: that could take too long.
        assert message.partition("which it breaks even uncut")[2] == said


def test_data_is_lacking_where_there_is_none_and_null_would_be_invalid() -> None:
    def lacks_data(schema: Any, payload: Payload | None = None) -> bool:
        bound = None if schema is None else Schema(schema)
        return Plan(payload=payload or Payload(), budget=BUDGET, outcome=Outcome(), schema=bound).lacks_data

    assert lacks_data({"type": "object"})
    assert not lacks_data({"type": ["object", "null"]})
    assert not lacks_data(None)
    assert not lacks_data({"type": "object"}, Payload(text=b""))


def test_half_of_a_plan_has_half_of_what_is_reserved() -> None:
    plan = Plan(
        payload=Payload(), budget=Budget.of(tokens=1000), outcome=Outcome(), reserved=300, shares=True
    )
    half = plan.halved()
    assert (half.limit, half.reserved, half.shares) == (350, 150, False)


def test_a_page_offers_its_call_for_its_own_list_alone() -> None:
    page = Page("/rows", "array", 0, 900)
    page.offer = lambda: 'sql="SELECT 1"'

    def offered(path: str, kind: CutKind = "items", handle: str | None = "h") -> Any:
        plan = Plan(payload=Payload(page=page), budget=BUDGET, outcome=Outcome(handle=handle))
        return plan.with_cuts((Cut(path, kind, 1, 900, 1),)).examples

    assert offered("/rows") == {"/rows": 'sql="SELECT 1"'}
    assert not any([offered("/rows/3"), offered("/row"), offered("/rows", "characters")])
    assert not offered("/rows", handle=None)


def test_lanes_with_another_number_of_cuts_are_no_neighbours() -> None:
    rows, text = Cut("/rows", "items", 1, 9, 1), Cut("/text", "characters", 1, 9, 1)
    for one, other in (((rows,), (rows, text)), ((rows, text), (rows,))):
        assert not _are_neighbours(Lane(b"", one, BUDGET), Lane(b"", other, BUDGET))


def test_a_lane_is_counted_where_its_bytes_do_not_tell() -> None:
    budget = Budget.of(tokens=200)
    assert Lane(b"word " * 180, (), budget).fits(200)
    assert not Lane(b"word " * 220, (), budget).fits(200)
