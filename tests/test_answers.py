"""The reader of `make answers`, over data made here: two calls answer everything, nothing is answered wrongly."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from answers.__main__ import asked
from answers.contestants import Contestant, Ours, head_and_tail, prefix, preview
from answers.data import DataSet, columns
from answers.questions import Question, is_right, questions
from answers.reader import NOT_KNOWN, Reply, first_answer, further_call, second_answer

from mcp_envelope.vault.vault import Vault, open_vault


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
