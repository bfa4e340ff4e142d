"""What a reading of the contracts found wanting, one test each."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema_rs
import pydantic
import pytest

from mcp_envelope import Failure, Miss, Reply, seal, upgrade, widen
from mcp_envelope.anchors import Anchor, NodeId
from mcp_envelope.config import Settings
from mcp_envelope.dialects import NAMES, dialect
from mcp_envelope.dialects.gel import compose_tool_payload, tool_response_envelope_schema
from mcp_envelope.outcome import collect_remarks
from mcp_envelope.vault.read_tool import read
from mcp_envelope.vault.vault import open_vault

SECRET = "glpat-" + "a1B2-c3D4e5_F6g7H8i9"
TRACE = (
    "Traceback (most recent call last):\n"
    '  File "/home/ada/app/x.py", line 3, in f\n'
    '    return os.environ["KEY"]\n'
)


def result_of(sealed: Any) -> Any:
    return json.loads(sealed.structured or json.loads(sealed.content)[0]["text"])


def policy_of(tmp_path: Path, config: str) -> Any:
    (tmp_path / "mcp-envelope.toml").write_text(config)
    return Settings(tmp_path / "mcp-envelope.toml", {}, tmp_path).policy("t")


def test_a_miss_says_so_with_data_too() -> None:
    miss = Miss("Try b.", data={"near": ["b"], "found": True})
    assert result_of(seal(miss)) == {"found": False, "hint": "Try b.", "near": ["b"]}
    assert result_of(seal(miss, dialect="ctxo"))["found"] is False


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("failure", [Miss, Failure])
def test_what_a_miss_or_a_failure_says_besides_is_stored(name: str, failure: Any, tmp_path: Path) -> None:
    data = {"candidates": [{"id": number, "name": f"name {number}"} for number in range(3000)]}
    answer = Miss("Try b", data=data) if failure is Miss else Failure("NOT_FOUND", "No a", "Try b", data)
    vault = open_vault(str(tmp_path / "vault.db"))
    assert vault is not None
    sealed = seal(answer, dialect=name, tokens=300, vault=vault.of(None))
    assert sealed.report.used <= 300
    [handle] = set(re.findall(r"\b[0-9A-Za-z]{22}\b", json.dumps(sealed.to_result())))
    page = read(vault, {"handle": handle, "path": "/candidates", "offset": 2998})
    assert json.loads(page.to_result()["content"][-1]["text"]) == data["candidates"][2998:]
    vault.close()


@pytest.mark.parametrize("tokens", [30, 60, 100, 128, 150])
def test_a_miss_with_many_words_is_stored(tokens: int, tmp_path: Path) -> None:
    vault = open_vault(str(tmp_path / "vault.db"))
    assert vault is not None
    sealed = seal(Miss("q7! " * 120), tokens=tokens, vault=vault.of(None))
    shown = result_of(sealed)
    assert shown["found"] is False
    page = read(vault, {"handle": shown["_envelope"]["handle"], "path": "/hint"})
    assert "q7! " * 100 in json.dumps(page.to_result())
    vault.close()


@pytest.mark.parametrize(
    "data", [{"type": "array"}, {"type": "string"}, {"type": "object", "required": ["a"]}]
)
@pytest.mark.parametrize("name", ["native", "transcend", "gel", "scalpel"])
def test_the_published_schema_covers_a_miss(name: str, data: Any) -> None:
    published = dialect(name).output_schema(data)
    assert published is not None
    wrapped = widen(data).wrapped and name == "native"
    schema = published if name == "native" else data
    for miss in (Miss("look elsewhere"), Miss("look", data={"near": 1})):
        sealed = seal(miss, dialect=name, schema=schema, wrap=wrapped)
        assert jsonschema_rs.is_valid(published, json.loads(sealed.structured or b"null")), sealed.structured


@pytest.mark.parametrize("words", ["\x01" * 5000, "𝒳\x01" * 3000, '"' * 9000, "漢" * 5000])
def test_transcend_keeps_its_budget_whatever_the_words(words: str) -> None:
    outcomes: list[Any] = [
        Miss(words, words),
        Failure("TIMEOUT", words, words),
        Reply({"a": 1}, warnings=[words] * 5),
    ]
    for outcome in outcomes:
        figures = result_of(seal(outcome, dialect="transcend", tokens=100))["tokenBudget"]
        assert figures["used"] <= figures["requested"]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_shown_holds_a_trace_or_a_path(name: str) -> None:
    outcomes: list[Any] = [Miss(TRACE, TRACE), Reply({"a": 1}, warnings=[TRACE]), Failure("TIMEOUT", TRACE)]
    for outcome in outcomes:
        said = seal(outcome, dialect=name, profile="debug").to_json().decode()
        assert "/home/ada" not in said
        assert "os.environ" not in said


@pytest.mark.parametrize("name", NAMES)
def test_secrets_are_masked_in_every_word(name: str, tmp_path: Path) -> None:
    policy = policy_of(
        tmp_path,
        f'redact = "tokens"\ndialect = "{name}"\nprofile = "debug"\ntokens = 4000\n[hints]\nrows = "{SECRET}"',
    )
    with collect_remarks() as context:
        context.tier = context.tool_version = SECRET
        context.capabilities = (SECRET,)
        context.rate_limit = context.token_usage = context.workspace = {"root": SECRET}
        upgrade(SECRET, SECRET, SECRET)
        link = {"type": "resource_link", "uri": f"x://{SECRET}", "name": SECRET}
        reply = Reply({"rows": list(range(20_000))}, links=[link], texts=["x"])
        assert SECRET not in seal(reply, policy=policy).to_json().decode()
        assert (
            SECRET
            not in seal(Failure("TIMEOUT", "m", details={"n": SECRET}), policy=policy).to_json().decode()
        )


def test_the_policy_of_the_dialect_that_is_spoken(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, "profile = 'minimal'")
    big = {"results": list(range(9000))}
    assert seal(big, policy=policy, dialect="ctxo").report.limit == 8192
    assert seal(big, policy=policy, dialect="transcend").report.meter == "chars4"
    assert not seal(big, policy=policy, dialect="scalpel").truncated
    small = policy_of(tmp_path, "tokens = 300")
    assert seal(big, policy=small, meter="chars4").report.limit == 300


def test_details_cannot_pass_for_the_code() -> None:
    failure = Failure("TIMEOUT", "m", "h", {"code": 7, "message": {}, "errorCode": 5, "hint": 3, "n": 1})
    error = result_of(seal(failure, dialect="transcend"))["error"]
    assert (error["code"], error["message"], error["hint"], error["n"]) == ("LSP_TIMEOUT", "m", "h", 1)
    assert error["reason"] == "TIMEOUT", "of codes, the contract knows ten"
    data = result_of(seal(failure, dialect="gel"))["data"]
    assert (data["errorCode"], data["message"]) == ("TIMEOUT", "m")


def test_chosen_fields_keep_what_the_schema_requires(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, 'include_only = ["b"]')
    schema = {"type": "object", "required": ["a"]}
    assert result_of(seal({"a": 1, "b": 2, "c": 3}, policy=policy, schema=schema)) == {"a": 1, "b": 2}


def test_scalpel_keeps_a_budget_that_is_set() -> None:
    assert seal({"a": 1}, dialect="scalpel", request_id="q" * 5000, max_bytes=512).report.used <= 512
    with collect_remarks():
        for n in range(200):
            upgrade(f"feature {n}", "pro", "words " * 20)
        sealed = seal({"a": 1}, dialect="scalpel", max_bytes=512)
    assert sealed.report.used <= 512
    assert result_of(sealed)["data"] == {"a": 1}


def test_anchors_and_ids_have_their_wire_form() -> None:
    value = {"at": [Anchor("a.py", 1, 2), Anchor("b.py", 3, 4, end_line=5)], "id": NodeId("py", "a.py", "f")}
    assert json.loads(seal(value).structured or b"") == {
        "at": [{"file": "a.py", "line": 1, "col": 2}, {"file": "b.py", "line": 3, "col": 4, "endLine": 5}],
        "id": "py:a.py#f",
    }


def test_gel_tells_all_of_a_failure() -> None:
    message = "a long message " * 20
    sealed = seal(Failure("TIMEOUT", message.strip(), "Try again later."), dialect="gel")
    texts = [block["text"] for block in json.loads(sealed.content)]
    assert message.strip() in texts
    assert "Try again later." in texts
    many = seal(Reply({"a": 1}, next_steps=[f"step {n}" for n in range(60)]), dialect="gel")
    assert result_of(many)["meta"]["truncated"] is True


def test_lists_of_transcend_have_their_order() -> None:
    references = [{"file": f"{'zyx'[n % 3]}.py", "line": 500 - n} for n in range(300)]
    kept = result_of(seal({"found": {"references": references}}, dialect="transcend", tokens=300))
    shown = [(item["file"], item["line"]) for item in kept["data"]["found"]["references"]]
    assert shown == sorted((item["file"], item["line"]) for item in references)[: len(shown)]


def test_a_bare_name_means_the_list_wherever_it_is(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, 'tokens = 300\n[lists]\nhits = ["-score"]')
    result = result_of(seal({"data": {"hits": [{"score": n} for n in range(900)]}}, policy=policy))
    assert result["data"]["hits"][0] == {"score": 899}


@dataclass
class Found:
    count: int


class Model(pydantic.BaseModel):
    count: int


def test_schemas_and_payloads_from_types() -> None:
    for kind in (Found, Model):
        schema = tool_response_envelope_schema(kind)
        result = compose_tool_payload({"status": "ok", "summary": "s"}, kind(count=1))["structuredContent"]
        assert jsonschema_rs.is_valid(schema, json.loads(json.dumps(result)))
        assert not jsonschema_rs.is_valid(schema, {**result, "data": {"count": "x"}})


def test_wrong_replies_are_named() -> None:
    with pytest.raises(ValueError, match="status is one of"):
        Reply({}, status="fatal")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="warnings is a list"):
        Reply({}, warnings="oops")
    with pytest.raises(TypeError, match="whole number"):
        seal({}, dialect="transcend", tokens=2.5)  # type: ignore[arg-type]
    for name in NAMES:
        seal(
            Reply({"a": 1}, summary="\ud800", warnings=["\ud800"], details=["\ud800"]), dialect=name
        ).to_json()


def test_ctxo_counts_the_whole_document() -> None:
    payload = {"results": list(range(1000))}
    whole = len(json.loads(seal(payload, dialect="ctxo", max_bytes=10_000).content)[0]["text"])
    assert not seal(payload, dialect="ctxo", max_bytes=whole).truncated
    assert seal(payload, dialect="ctxo", max_bytes=whole - 1).truncated
    own = result_of(seal({"a": 1, "_meta": {"x": 1}}, dialect="ctxo"))
    assert own["_meta"]["totalBytes"] == len(b'{"a":1}')


def test_snippets_go_before_other_strings() -> None:
    anchor = {"file": "a.py", "line": 1, "title": "t" * 300, "snippet": "s" * 2000}
    result = result_of(seal({"references": [anchor]}, dialect="transcend", tokens=250))
    (shown,) = result["data"]["references"]
    assert shown["title"] == anchor["title"]
    assert len(shown["snippet"]) < 700
    assert result["dropped"]["kind"] == "snippet"
    tiny = result_of(seal({"references": [anchor]}, dialect="transcend", tokens=120))
    assert len(tiny["data"]["references"][0]["title"]) < 300
