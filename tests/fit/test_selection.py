"""The rows that are kept besides the beginning of a list."""

from __future__ import annotations

import json
from typing import Any

from mcp_envelope.fit.columns import Records
from mcp_envelope.fit.selection import Words, select
from mcp_envelope.jsontext.document import parse


def chosen(rows: list[Any], arguments: dict[str, Any] | None = None, count: int = 12) -> list[int] | None:
    node = parse(json.dumps(rows).encode())
    records = Records.of(node)
    assert records is not None
    order = select(records, node.all_items(), Words(arguments))
    if order is None:
        return None
    assert sorted(order) == list(range(len(rows)))
    return sorted(order[:count])


def test_the_one_failed_row_stays() -> None:
    rows = [{"n": number, "status": "ok"} for number in range(300)]
    assert chosen(rows) is None
    rows[217]["status"] = "failed"
    assert chosen(rows) == [*range(11), 217]
    passed: list[Any] = [{"n": number, "passed": number != 99} for number in range(300)]
    assert chosen(passed) == [*range(11), 99]


def test_a_status_that_is_rare_stays_whatever_its_name() -> None:
    rows = [{"n": number, "state": "blue" if number == 50 else "green"} for number in range(300)]
    assert chosen(rows) == [*range(11), 50]
    # An ordinary field with a rare value is not a status.
    assert (
        chosen([{"n": number, "colour": "blue" if number == 50 else "green"} for number in range(300)])
        is None
    )


def test_rows_that_match_the_call_stay() -> None:
    rows = [{"n": number, "text": f"entry {number}"} for number in range(200)]
    rows[150]["text"] = "the payment gateway was slow"
    rows[160]["text"] = "a gateway"
    assert chosen(rows, {"query": "payment gateway"}) == [*range(10), 150, 160]
    # What is in every row says nothing.
    assert chosen(rows, {"query": "entry"}) is None


def test_extremes_of_the_numbers_that_the_call_names_stay() -> None:
    rows = [{"n": number, "price": 1000 + (number * 37) % 500} for number in range(500)]
    prices = [row["price"] for row in rows]
    kept = chosen(rows, {"sort_by": "price"})
    assert kept is not None
    assert prices.index(max(prices)) in kept
    assert prices.index(min(prices)) in kept
    assert chosen(rows, {"sort_by": "name"}) is None


def test_most_of_what_is_kept_is_the_beginning() -> None:
    rows = [{"n": number, "level": "error" if number % 100 == 99 else "info"} for number in range(1000)]
    for count in (3, 6, 12, 24):
        kept = chosen(rows, count=count)
        assert kept is not None
        assert sum(rows[index]["level"] == "info" for index in kept) * 2 > count
