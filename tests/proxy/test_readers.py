"""Who reads a result: a program gets it whole, a model as much as its client shows."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from lab.cases import way_back

from mcp_envelope.dialects import NAMES

from .harness import ROWS, Talk, call, count, result, rows, texts, tool, typed

CODEX = "codex-mcp-client"
EXEC = {"callId": "exec-3f2a", "progressToken": 3}
READER = "io.github.mcp-envelope/reader"


def answered(talk: Talk, answer: dict[str, Any], meta: Any = None, arguments: Any = None) -> Any:
    return json.loads(sent(talk, answer, meta, arguments))["result"]


def sent(talk: Talk, answer: dict[str, Any], meta: Any = None, arguments: Any = None) -> bytes:
    talk.send(call(7, "t", arguments, **({} if meta is None else {"_meta": meta})))
    [shown], _ = talk.reply(result(7, **answer))
    return shown


def meeting(folder: Path, name: str, **more: Any) -> Talk:
    talk = Talk(folder, **more)
    talk.meet(name)
    talk.listed(tool("t", ROWS), tool("text"))
    return talk


@pytest.mark.parametrize(
    "answer",
    [
        typed(rows(9000)),
        {"content": texts("line of a log\n" * 20_000)},
        {"content": texts("why it failed " * 9000), "isError": True},
        {"content": texts(*[json.dumps({"n": n}) for n in range(3000)])},
        {"content": [{"type": "image", "data": "QUJD" * 90_000, "mimeType": "image/png"}] * 6},
    ],
    ids=["rows", "text", "error", "blocks", "images"],
)
def test_a_program_gets_the_whole_result_byte_for_byte(tmp_path: Path, answer: dict[str, Any]) -> None:
    talk = meeting(tmp_path, CODEX)
    assert sent(talk, answer, EXEC) == result(7, **answer)
    assert sent(talk, answer, {"callId": "call_3f2a"}) != result(7, **answer)


@pytest.mark.parametrize(
    ("name", "setting", "meta", "whole"),
    [
        (CODEX, "auto", EXEC, True),
        (CODEX, "auto", {"callId": "call_1"}, False),
        (CODEX, "auto", {"callId": ["exec-"]}, False),
        (CODEX, "auto", None, False),
        (CODEX, "model", EXEC, False),
        ("somebody", "auto", EXEC, False),
        ("somebody", "auto", {READER: "program"}, True),
        ("somebody", "model", {READER: "program"}, True),
        ("somebody", "auto", {READER: 5}, False),
        ("somebody", "program", None, True),
        ("somebody", "program", {READER: "model"}, False),
        (CODEX, "auto", {**EXEC, READER: "model"}, False),
    ],
)
def test_who_says_that_a_program_reads(
    tmp_path: Path, name: str, setting: str, meta: Any, whole: bool
) -> None:
    """The call itself, else the settings, else what is known of the client."""
    talk = meeting(tmp_path, name, READER=setting)
    got = answered(talk, typed(rows(2000)), meta)
    assert (got == typed(rows(2000))) == whole
    assert "exec-" not in json.dumps(got)


def test_what_is_too_much_for_a_program_cannot_be_taken_for_data(tmp_path: Path) -> None:
    talk = meeting(tmp_path, CODEX, PROGRAM_BYTES="1MiB")
    answer = typed(rows(40_000))
    got = answered(talk, answer, EXEC)
    assert got["isError"] is True
    assert "structuredContent" not in got
    said = json.loads(got["content"][0]["text"])
    assert list(said) == ["_envelope"]
    assert said["_envelope"]["error"]["code"] == "RESULT_TOO_LARGE"
    assert "row number" not in json.dumps(got)
    read = talk.read(said["_envelope"]["handle"], sql="SELECT count(*) AS n FROM rows")
    assert '[{"n":40000}]' in read["content"][-1]["text"]


@pytest.mark.parametrize("dialect", NAMES)
def test_what_is_too_much_for_a_program_can_be_read_in_every_dialect(dialect: str, tmp_path: Path) -> None:
    talk = meeting(tmp_path, CODEX, PROGRAM_BYTES="1MiB", DIALECT=dialect)
    got = answered(talk, typed(rows(40_000)), EXEC)
    assert "row number" not in json.dumps(got)
    told = way_back("\n".join(block["text"] for block in got["content"]))
    assert told is not None, got
    read = talk.read(told["handle"], sql="SELECT count(*) AS n FROM rows")
    assert "40000" in json.dumps(read["content"])


@pytest.mark.parametrize("dialect", NAMES)
def test_the_text_of_a_failure_that_was_cut_names_its_handle(dialect: str, tmp_path: Path) -> None:
    talk = meeting(tmp_path, "somebody", DIALECT=dialect)
    got = answered(talk, {"content": texts("why it failed " * 9000), "isError": True})
    told = way_back("\n".join(block["text"] for block in got["content"] if block["type"] == "text"))
    assert told is not None, got
    assert "why it failed" in json.dumps(talk.read(told["handle"])["content"])
    if got.get("structuredContent", {}).get("meta", {}).get("truncated"):
        assert got["content"][-1]["uri"] == f"envelope://{told['handle']}"


def test_a_program_that_asks_for_a_budget_gets_it(tmp_path: Path) -> None:
    got = answered(meeting(tmp_path, CODEX), typed(rows(2000)), EXEC, {"tokenBudget": 500})
    assert count(got["structuredContent"]) <= 500


def test_a_program_reads_on_in_large_pages(tmp_path: Path) -> None:
    talk = meeting(tmp_path, CODEX)
    handle = answered(talk, typed(rows(9000)))["structuredContent"]["_envelope"]["handle"]
    [page], _ = talk.send(call(1, "envelope_read", {"handle": handle, "path": "/rows"}, _meta=EXEC))
    assert json.loads(json.loads(page)["result"]["content"][-1]["text"]) == rows(9000)["rows"]


def test_secrets_are_masked_for_programs_too(tmp_path: Path) -> None:
    talk = meeting(tmp_path, CODEX, REDACT="tokens")
    data = rows(2000)
    data["rows"][7]["name"] = "glpat-" + "a1B2-c3D4e5_F6g7H8i9"
    got = answered(talk, typed(data), EXEC)["structuredContent"]
    assert "glpat-" not in json.dumps(got)
    assert len(got["rows"]) == 2000


@pytest.mark.parametrize(
    ("model", "most"),
    [("gpt-5.5", 47_000), ("gpt-6.1-sol", 47_000), ("scripted", 11_500), (7, 40_000), (None, 40_000)],
)
def test_the_limit_is_that_of_the_model_that_codex_names(tmp_path: Path, model: Any, most: int) -> None:
    talk = meeting(tmp_path, CODEX, tokens=0)
    talk.gateway.settings = type(talk.gateway.settings)(None, {}, start=tmp_path)
    turn = {"model": model} if model is not None else {}
    got = answered(talk, typed(rows(9000)), {"x-codex-turn-metadata": turn})
    assert most * 0.97 < count(got["structuredContent"], "bytes") <= most
    text = answered(talk, {"content": texts("line of a log\n" * 9000)}, {"x-codex-turn-metadata": turn})
    assert most * 0.97 < count(text["content"], "bytes") <= most


@pytest.mark.parametrize("dialect", ["native", "ctxo", "transcend", "gel", "scalpel"])
@pytest.mark.parametrize(
    "meta", [EXEC, {"callId": "call_leak", "x-codex-turn-metadata": {"model": "leaked"}}]
)
def test_what_a_request_says_of_itself_is_in_no_result(tmp_path: Path, dialect: str, meta: Any) -> None:
    talk = meeting(tmp_path, CODEX, DIALECT=dialect, PROFILE="debug")
    for answer in (typed(rows(1)), typed(rows(2000)), {"content": texts("no"), "isError": True}):
        shown = json.dumps(answered(talk, answer, {**meta, "secretive": "kept-back"}))
        for word in ("callId", "exec-3f2a", "call_leak", "leaked", "kept-back"):
            assert word not in shown
    with sqlite3.connect(tmp_path / "vault.db") as vault:
        assert not any("call_leak" in line for line in vault.iterdump())
