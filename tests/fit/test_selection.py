"""The rows that are kept besides the beginning of a list."""

from __future__ import annotations

import json
import math
import random
from typing import Any

from mcp_envelope.fit.records import Records
from mcp_envelope.fit.survey import Words, select, standing_out
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
    # Without that, the largest stays.
    kept = chosen(rows, {"sort_by": "name"})
    assert kept is not None
    assert prices.index(max(prices)) in kept
    assert 490 not in kept


def test_most_of_what_is_kept_is_the_beginning() -> None:
    rows = [{"n": number, "level": "error" if number % 100 == 99 else "info"} for number in range(1000)]
    for count in (3, 6, 12, 24):
        kept = chosen(rows, count=count)
        assert kept is not None
        assert sum(rows[index]["level"] == "info" for index in kept) * 2 > count


def order_of(rows: list[Any], arguments: dict[str, Any] | None = None) -> list[int] | None:
    node = parse(json.dumps(rows).encode())
    records = Records.of(node)
    assert records is not None
    return select(records, node.all_items(), Words(arguments))


def jobs(count: int, **failed: int) -> list[dict[str, Any]]:
    rows = [{"n": number, "status": "ok"} for number in range(count)]
    for status, index in failed.items():
        rows[index]["status"] = status
    return rows


def test_two_of_the_beginning_then_two_after_each_row_that_stands_out() -> None:
    order = order_of(jobs(100, failed=40, error=60, denied=80))
    assert order is not None
    assert order[:12] == [0, 1, 40, 2, 3, 60, 4, 5, 80, 6, 7, 8]


def test_bad_rows_go_before_those_that_are_only_rare() -> None:
    order = order_of(jobs(100, skipped=20, failed=40))
    assert order is not None
    assert order[:6] == [0, 1, 40, 2, 3, 20]


def test_a_value_is_rare_in_one_row_of_twenty() -> None:
    for count, is_rare in [(5, True), (6, False)]:
        rows = jobs(100)
        for index in range(50, 50 + count):
            rows[index]["status"] = "failed"
        assert (order_of(rows) is not None) == is_rare


def test_at_most_eight_rows_of_a_kind_stand_out() -> None:
    rows = jobs(400)
    for index in range(200, 220):
        rows[index]["status"] = "failed"
    order = order_of(rows)
    assert order is not None
    assert [index for index in order[:60] if index >= 200] == list(range(200, 208))


def test_a_status_may_have_sixteen_values_that_are_not_bad() -> None:
    for values, stands_out in [(16, True), (17, False)]:
        rows = [{"n": number, "status": f"s{min(number, values - 1)}"} for number in range(200)]
        assert (order_of(rows) is not None) == stands_out


def test_a_long_text_is_no_status() -> None:
    for length, is_status in [(40, True), (41, False)]:
        assert (order_of(jobs(100, **{"failed".ljust(length, "!"): 50})) is not None) == is_status


def test_extremes_need_numbers_in_most_rows() -> None:
    for numbers, is_known in [(51, True), (50, False)]:
        rows = [{"price": 100 + number if number < numbers else "none"} for number in range(100)]
        assert (order_of(rows, {"sort": "price"}) is not None) == is_known


def test_the_words_of_a_call() -> None:
    assert Words({"id": 999}).values == ()
    assert Words({"id": 1000}).values == ("1000",)
    assert Words({"a": {"b": {"c": "inner"}}}).values == ("inner",)
    assert Words({"a": {"b": {"c": {"d": "too deep"}}}}).values == ()
    assert Words({"a": [f"word{number}" for number in range(30)]}).values == tuple(
        [f"word{number}" for number in range(16)]
    )
    assert "word19" in Words({"a": [f"word{number}" for number in range(30)]}).all
    assert "word20" not in Words({"a": [f"word{number}" for number in range(30)]}).all
    assert Words({"a": "ab"}).values == ("ab",)
    assert Words({"a": "to be or not to be, that is the question"}).values[-1].startswith("to be")
    assert (
        "to be or not to be, that is the questions"
        not in Words({"a": "to be or not to be, that is the questions"}).values
    )


def test_the_best_match_goes_first() -> None:
    rows = [{"n": number, "text": "x" * 40} for number in range(200)]
    rows[50]["text"] = "gateway" + "y" * 300
    rows[90]["text"] = "gateway"
    rows[120]["text"] = "gateway gateway gateway"
    order = order_of(rows, {"query": "gateway"})
    assert order is not None
    assert [index for index in order[:12] if index > 20] == [120, 90, 50]


def test_rows_are_ordered_as_bm25_orders_them() -> None:
    chosen = random.Random(5)
    words = ("gateway", "payment")
    for _ in range(20):
        rows = [["x"] * chosen.randrange(5, 60) for _ in range(200)]
        for index in range(7, 200, 30):
            rows[index] += ["gateway"] * chosen.randrange(1, 4) + ["payment"] * chosen.choice([0, 0, 1, 2])
        items = [json.dumps(row).encode() for row in rows]
        node = parse(b"[%b]" % b",".join(items))
        records = Records.of(node)
        assert records is not None
        average = sum(len(item) + 1 for item in items) / len(items)
        scores = dict.fromkeys(range(200), 0.0)
        for word in words:
            having = [index for index, row in enumerate(rows) if word in row]
            rarity = math.log(1 + (200 - len(having) + 0.5) / (len(having) + 0.5))
            for index in having:
                count, length = rows[index].count(word), 0.25 + 0.75 * len(items[index]) / average
                scores[index] += rarity * count / (count + 1.2 * length)
        found, _ = standing_out(records, items, Words({"query": " ".join(words)}))
        assert found == sorted([index for index in scores if scores[index]], key=scores.__getitem__)[::-1]


def test_a_word_in_more_than_one_row_of_sixteen_says_nothing() -> None:
    for count, tells in [(20, True), (21, False)]:
        rows = [{"n": number, "text": "gateway" if number >= 320 - count else "x"} for number in range(320)]
        assert (order_of(rows, {"query": "gateway"}) is not None) == tells
    # Twice in each row is still one row.
    rows = [{"n": number, "text": "gateway gateway" if number >= 300 else "x"} for number in range(320)]
    assert order_of(rows, {"query": "gateway"}) is not None


def test_a_status_that_differs_in_most_rows_is_none() -> None:
    for values, is_status in [(20, True), (21, False)]:
        rows = [{"n": number, "status": f"failed {number % values}"} for number in range(40)]
        assert (order_of(rows) is not None) == is_status


def test_the_largest_of_each_number_stays() -> None:
    """The record with the most of something is what is asked for most."""
    rows: list[dict[str, Any]] = [
        {"id": n, "size": n * 37 % 501, "age": n * 91 % 503, "same": 5, "up": 7 * n, "status": "ok"}
        for n in range(400)
    ]
    order = order_of(rows)
    assert order is not None
    size, age = [max(range(400), key=lambda index: rows[index][name]) for name in ("size", "age")]
    assert order[:7] == [0, 1, size, 2, age, 3, 4]
    # Rows that stand out for another reason go first.
    rows[200]["status"] = "failed"
    order = order_of(rows)
    assert order is not None
    assert order[:8] == [0, 1, 200, 2, 3, size, 4, age]


def test_there_is_no_largest_if_several_are_or_most_rows_have_none() -> None:
    rows: list[dict[str, Any]] = [{"id": n, "size": min(n, 50)} for n in range(100)]
    assert order_of(rows) is None
    assert order_of([{"id": n, "size": 900 - n if 10 < n < 50 else None} for n in range(100)]) is None
    assert order_of([n * 37 % 101 for n in range(100)]) is None
