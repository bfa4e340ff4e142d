"""The reader of `make answers`, over data made here: two calls answer everything, nothing is answered wrongly."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from answers.__main__ import asked
from answers.contestants import Contestant, Ours, head_and_tail, prefix, preview
from answers.data import DataSet, columns
from answers.questions import Question, is_right, questions
from answers.reader import NOT_KNOWN, Field, Reply, first_answer, further_call, means, second_answer
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_envelope.fit.records import Records, profile
from mcp_envelope.jsontext.document import parse
from mcp_envelope.vault.vault import Vault, open_vault

from .conftest import examples


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    opened = open_vault(str(tmp_path / "vault.db"))
    assert opened is not None
    return opened


def table() -> DataSet:
    random = Random(3)
    rows: list[dict[str, Any]] = [
        {
            "id": number,
            "title": f"{random.choice(('Crash', 'Delay', 'Typo'))} in part {number * 7919 % 10_007}",
            "state": random.choices(("open", "closed", "failed"), (6, 3, 1))[0],
            "urgent": random.random() < 0.1,
            "owner": {"login": f"user{random.randrange(40)}", "team": random.choice("ABC")},
            "hours": round(random.expovariate(0.1), 2) if random.random() < 0.9 else None,
            "opened": f"2026-{random.randrange(1, 13):02}-{random.randrange(1, 29):02}",
            "labels": random.sample(("bug", "ui", "api"), random.randrange(3)),
        }
        for number in range(800)
    ]
    payload = json.dumps({"tickets": rows, "total": len(rows)}).encode()
    return DataSet("tickets", "made here", False, payload, path="/tickets", columns=columns(rows))


def log() -> DataSet:
    random = Random(4)
    codes = [2304, *random.choices((2339, 7005, 7006), (5, 3, 2), k=700)]
    told = [
        f"file{random.randrange(9)}.ts({index},7): error TS{code}: wrong" for index, code in enumerate(codes)
    ]
    lines = [
        line for each in told for line in (each, *["  in the expression that follows"] * random.randrange(3))
    ]
    return DataSet("build", "made here", False, "\n".join(lines) + "\n", "log")


@pytest.mark.parametrize("data", [table(), log()], ids=lambda data: data.name)
def test_two_calls_answer_every_question(data: DataSet, vault: Vault) -> None:
    ways: dict[str, Contestant] = {"ours": Ours(vault), "plain": Ours(vault, plain=True)}
    outcomes = list(asked(data, ways))
    assert len({outcome.question.sort for outcome in outcomes}) >= 9
    assert [outcome for outcome in outcomes if outcome.verdict != "right"] == []


@pytest.mark.parametrize("data", [table(), log()], ids=lambda data: data.name)
def test_nothing_is_concluded_from_a_part(data: DataSet) -> None:
    outcomes = list(asked(data, {"both": head_and_tail, "head": prefix, "preview": preview}))
    assert [outcome for outcome in outcomes if outcome.first == "wrong"] == []
    assert any(outcome.first == "not known" for outcome in outcomes)


def test_a_profile_answers_what_rows_do_not(vault: Vault) -> None:
    def right(way: Ours) -> set[str]:
        return {each.question.sort for each in asked(table(), {"it": way}) if each.first == "right"}

    more = right(Ours(vault)) - right(Ours(vault, plain=True))
    assert more >= {"sum", "mean", "median", "max", "mode", "group count", "last date"}


def test_a_wrong_figure_is_noticed(vault: Vault) -> None:
    """The referee itself: a reply that tells something false is found out."""
    texts = Ours(vault)(table(), 2_000)
    (mean,) = [each for each in questions(table()) if each.sort == "mean" and each.column == "hours"]
    assert is_right(first_answer(mean, Reply(texts)), mean)
    told = first_answer(mean, Reply([texts[0].replace("mean ", "mean 1")]))
    assert told is not NOT_KNOWN
    assert not is_right(told, mean)


def test_a_call_names_only_what_the_reply_names(vault: Vault) -> None:
    reply = Reply(Ours(vault)(table(), 2_000))
    unseen = Question("tickets", False, "sum", "", 0, "/tickets", "never_shown")
    assert further_call(unseen, reply) is None
    assert second_answer(unseen, ['{"_envelope": {"error": {"code": "BAD_QUERY"}}}']) is NOT_KNOWN


# -- every figure that a profile tells, against the same by hand ------------------------------------------------

_TEXTS = st.sampled_from(["", "a", "b", "min 3", "7 null", "x, y:2", "1", "true", "é…", 'say "a"', "a" * 50])
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "whole": st.integers(-50, 10**6),
    "few": st.integers(0, 3),
    "part": st.floats(-1e6, 1e6).map(lambda number: round(number, 3) + 0.0),
    "text": _TEXTS,
    "flag": st.booleans(),
    "mixed": _TEXTS | st.integers(0, 2),
    "day": st.dates().map(str),
    "list": st.lists(st.integers(), max_size=3),
}


@st.composite
def _records(draw: st.DrawFn) -> list[dict[str, Any]]:
    names = draw(st.lists(st.sampled_from(sorted(_VALUES)), min_size=1, max_size=8, unique=True))
    nullable = {name: _VALUES[name] | st.none() if draw(st.booleans()) else _VALUES[name] for name in names}
    rows = draw(st.lists(st.fixed_dictionaries(nullable), min_size=5, max_size=40))
    return [{"in": row} if draw(st.just(len(names) == 1)) else row for row in rows]


def _close(told: float, right: float, digits: int) -> bool:
    return math.isclose(told, right, rel_tol=10.0**-digits, abs_tol=1e-12)


@given(rows=_records(), room=st.integers(60, 3000))
@settings(max_examples=examples(150))
def test_a_profile_tells_only_what_is_so(rows: list[dict[str, Any]], room: int) -> None:
    records = Records.of(parse(json.dumps(rows).encode()))
    assert records is not None
    made = profile(records).within(room)
    assert len(json.dumps(made, separators=(",", ":"), ensure_ascii=False).encode()) <= room
    if not made:
        return
    assert made["rows"] == len(rows)
    every = columns_of(rows)
    assert len(made["fields"]) + made.get("more", 0) == len(every)
    for name, line in made["fields"].items():
        values = every[name]
        given = [value for value in values if value is not None]
        field = Field(line)
        told_nulls = re.search(r"(?:^|, )(\d+) null$", line)
        assert (int(told_nulls[1]) if told_nulls else 0) == len(values) - len(given)
        if given and name.endswith("list"):
            assert (
                f"lists of {min(map(len, given))} to {max(map(len, given))}, {sum(map(len, given))} items"
                in line
            )
            continue
        if field.figures:
            assert field.figures["min"] == min(given)
            assert field.figures["max"] == max(given)
            assert _close(field.figures.get("mean", _mean(given)), _mean(given), 5)
            assert _close(field.figures.get("median", statistics.median(given)), statistics.median(given), 5)
            assert _close(field.figures.get("sum", math.fsum(given)), math.fsum(given), 11)
            for sort, row in re.findall(r"(min|max) \S+ \(row (\d+)", line):
                assert values[int(row)] == field.figures[sort]
        if field.first:
            assert [field.first, field.last] == [min(given), max(given)]
        counts = Counter((type(value), value) for value in given)
        if field.distinct is not None:
            assert field.distinct == len(counts)
        counted = {**field.values, **field.top}
        assert all(
            counts.total()
            and counted[text] in [count for (_, value), count in counts.items() if _is(text, value)]
            for text in counted
        )
        if field.values:
            assert sum(field.values.values()) == len(given)
        if field.top:
            most = [count for _, count in counts.most_common(len(field.top))]
            assert list(field.top.values()) == most
    for by, lines in made.get("meansBy", {}).items():
        for name, line in lines.items():
            groups: dict[str, list[float]] = {}
            for group, value in zip(every[by], every[name], strict=True):
                if group is not None and value is not None:
                    groups.setdefault(str(group).lower() if type(group) is bool else str(group), []).append(
                        value
                    )
            told = means(line)
            assert told.keys() == groups.keys()
            assert all(_close(told[group], _mean(groups[group]), 5) for group in groups)


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def _is(text: str, value: Any) -> bool:
    shown = str(value).lower() if type(value) is bool else str(value)
    return text == shown or (text.endswith("…") and shown.startswith(text[:-1]))


def columns_of(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    if set(rows[0]) == {"in"}:
        rows = [{f"in.{name}": value for name, value in row["in"].items()} for row in rows]
    return {name: [row[name] for row in rows] for name in rows[0]}
