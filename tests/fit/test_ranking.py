"""Orderings before a cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_envelope import rank, seal
from mcp_envelope.fit.ranking import Key, Ranking, parse_rank
from mcp_envelope.jsontext.document import encode, parse

from ..strategies import small_values


def ordered(ranking: Ranking, items: list[Any]) -> list[Any]:
    return [items[index] for index in ranking.order(parse(encode(items)))]


def test_up_down_and_several_keys() -> None:
    items = [{"f": "b", "l": 2}, {"f": "a", "l": 9}, {"f": "b", "l": 1}]
    assert ordered(rank("f", "l"), items) == [items[1], items[2], items[0]]
    assert ordered(rank("-l"), items) == [items[1], items[0], items[2]]
    assert ordered(rank("-f", "l"), items) == [items[2], items[0], items[1]]


def test_groups_come_in_the_order_of_their_best_member() -> None:
    items = [{"f": "x", "s": 1}, {"f": "y", "s": 9}, {"f": "x", "s": 5}, {"f": "y", "s": 2}]
    assert ordered(rank("@f"), items) == [items[0], items[2], items[1], items[3]]
    assert ordered(rank("@f", "-s"), items) == [items[1], items[3], items[2], items[0]]


def test_what_has_no_such_field_comes_last_and_order_is_stable() -> None:
    items: list[Any] = [{"x": 1}, 5, {"s": None}, {"s": 2}, "text", {"s": 1}, {"s": 2, "t": 1}]
    assert ordered(rank("-s"), items) == [
        {"s": 2},
        {"s": 2, "t": 1},
        {"s": 1},
        {"x": 1},
        5,
        {"s": None},
        "text",
    ]


def test_fields_inside_fields() -> None:
    items = [{"at": {"line": 3}}, {"at": {"line": 1}}, {"at": 7}]
    assert ordered(rank("at.line"), items) == [items[1], items[0], items[2]]


@given(st.lists(st.fixed_dictionaries({}, optional={"a": small_values, "b": small_values}) | small_values))
def test_any_list_has_an_order(items: list[Any]) -> None:
    for ranking in (rank("a", "-b"), rank("@a", "b")):
        order = ranking.order(parse(encode(items)))
        assert sorted(order) == list(range(len(items)))


def test_the_best_ones_stay() -> None:
    rows: list[dict[str, Any]] = [
        {"score": n * 37 % 101, "text": "some words to fill the line"} for n in range(500)
    ]
    sealed = seal({"rows": rows}, max_bytes=2000, rank={"/rows": rank("-score")})
    assert sealed.structured is not None
    kept = [row["score"] for row in json.loads(sealed.structured)["rows"]]
    assert kept == sorted((row["score"] for row in rows), reverse=True)[: len(kept)]
    assert len(kept) > 5


def test_lists_inside_items_by_a_pattern() -> None:
    groups = [{"name": name, "rows": [{"n": n} for n in range(400)]} for name in "ab"]
    sealed = seal({"groups": groups}, max_bytes=1500, rank={"/groups/*/rows": rank("-n")})
    assert sealed.structured is not None
    for group in json.loads(sealed.structured)["groups"]:
        assert [row["n"] for row in group["rows"]][:3] == [399, 398, 397]


def test_a_list_that_fits_keeps_its_order() -> None:
    assert (
        seal({"rows": [{"n": 1}, {"n": 2}]}, rank={"/rows": rank("-n")}).structured
        == b'{"rows":[{"n":1},{"n":2}]}'
    )


def test_spelling() -> None:
    assert parse_rank("/a/b:@file,-score,line") == (
        "/a/b",
        Ranking((Key("file", "group"), Key("score", "down"), Key("line", "up"))),
    )
    assert parse_rank(":n") == ("", rank("n"))
    for wrong in ("items", "items:n", "/items:", "/items:a,,b", "/items:-"):
        with pytest.raises(ValueError, match="ranking"):
            parse_rank(wrong)
    with pytest.raises(ValueError, match="at least one field"):
        rank()
