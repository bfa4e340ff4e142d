"""A tool that speaks a contract itself is fitted in place; JSON that came as text is the document it spells."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_envelope import Reply, seal
from mcp_envelope.dialects import NAMES, dialect
from mcp_envelope.dialects.gel import compose_tool_payload
from mcp_envelope.payload import read_result

FRAMED = [name for name in NAMES if name != "native"]
ROWS = [{"file": f"src/{n}.py", "line": n} for n in range(400)]


def text_of(sealed: Any) -> str:
    return str(json.loads(sealed.content)[0]["text"])


def envelope_of(sealed: Any) -> Any:
    return json.loads(sealed.structured or text_of(sealed))


def sealed_result(content: list[Any], structure: Any = None, **options: Any) -> Any:
    raws = [json.dumps(block).encode() for block in content]
    return seal(read_result(raws, None if structure is None else json.dumps(structure).encode()), **options)


def text(said: str) -> dict[str, str]:
    return {"type": "text", "text": said}


# -- a contract that is spoken already -------------------------------------------------------------------------

SPOKEN: dict[str, list[Any]] = {
    "ctxo": [
        {"found": False, "hint": 'Run "ctxo index" to build the codebase index.'},
        {"found": False, "hint": "Look elsewhere.", "symbol": "a.b"},
        {"error": True, "message": "symbolId: String must contain at least 1 character(s)"},
        {"error": True, "message": "no", "line": 3},
        {
            "importers": [1, 2],
            "_meta": {
                "totalItems": 9,
                "returnedItems": 2,
                "truncated": True,
                "totalBytes": 3194,
                "hint": "Narrow.",
            },
        },
    ],
    "scalpel": [
        {"data": {"risk_level": "high", "vulnerabilities": []}},
        {"data": None},
        {"tier": "pro", "data": [1, 2]},
        {"error": {"error": "File not found: /missing.py", "error_code": "not_found"}},
        {
            "error": {"error": "no", "error_code": "forbidden", "error_details": {"need": "pro"}},
            "upgrade_hints": [{"feature": "f", "tier": "pro", "reason": "r"}],
            "data": {"partial": [1]},
        },
    ],
    "gel": [
        {"meta": {"status": "ok", "summary": "Found 2"}, "data": {"rows": [1, 2]}},
        {
            "meta": {"status": "error", "summary": "No", "nextSteps": ["Go"]},
            "data": {"errorCode": "E_MINE", "n": 1},
        },
        {"meta": {"status": "info", "summary": "Part", "truncated": True}, "data": {"truncated": True}},
    ],
}


@pytest.mark.parametrize(("name", "spoken"), [(name, spoken) for name in SPOKEN for spoken in SPOKEN[name]])
@pytest.mark.parametrize("transport", ["value", "text", "structure", "both"])
def test_what_speaks_the_contract_is_left_as_it_is(name: str, spoken: Any, transport: str) -> None:
    raw = json.dumps(spoken, indent=2)
    if transport == "value":
        sealed = seal(spoken, dialect=name)
    else:
        structure = None if transport == "text" else spoken
        sealed = sealed_result([] if transport == "structure" else [text(raw)], structure, dialect=name)
    assert envelope_of(sealed) == spoken
    assert sealed.is_error == (name == "gel" and spoken["meta"]["status"] == "error")


def test_transcend_is_recognised_and_counted_anew() -> None:
    spoken = {
        "ok": True,
        "data": {"references": ROWS},
        "tokenBudget": {"requested": 9000, "used": 8000, "max": 10000},
        "truncated": True,
        "dropped": {"kind": "references", "count": 20, "note": "Dropped 20 references."},
        "warnings": ["3 files changed."],
    }
    whole = envelope_of(seal(spoken, dialect="transcend", tokens=10_000))
    assert whole["data"] == spoken["data"]
    assert whole["dropped"] == spoken["dropped"]
    assert whole["warnings"] == spoken["warnings"]
    cut = envelope_of(seal(spoken, dialect="transcend", tokens=500))
    assert cut["tokenBudget"]["used"] <= 500
    assert 0 < len(cut["data"]["references"]) < 400
    assert cut["dropped"]["note"].endswith("Dropped 20 references.")
    assert cut["dropped"]["count"] == 400 - len(cut["data"]["references"])
    failed = {
        "ok": False,
        "error": {
            "code": "LSP_UNAVAILABLE",
            "message": "Not on PATH.",
            "language": "py",
            "hint": "Install it.",
        },
        "tokenBudget": {"requested": 2000, "used": 61, "max": 10000},
        "truncated": False,
        "warnings": [],
    }
    sealed = seal(failed, dialect="transcend")
    assert sealed.is_error
    shown = envelope_of(sealed)
    assert {**shown, "tokenBudget": 0} == {**failed, "tokenBudget": 0}


@pytest.mark.parametrize(
    ("name", "payload"),
    [
        ("transcend", {"ok": True, "items": [1]}),
        ("transcend", {"ok": "yes", "data": 1}),
        ("transcend", {"ok": True, "data": 1, "page": 2}),
        ("transcend", {"data": [1]}),
        ("transcend", {"ok": False, "data": 1}),
        ("gel", {"meta": {"page": 1}, "data": [1]}),
        ("gel", {"meta": {"status": "done", "summary": "s"}, "data": [1]}),
        ("gel", {"data": [1]}),
        ("scalpel", {"data": [1, 2]}),
        ("scalpel", {"data": {"a": 1}, "next": 2}),
        ("scalpel", {"data": {"a": 1}, "error": "no"}),
        ("scalpel", {"tier": "gold"}),
        ("ctxo", {"found": False, "hint": "h", "results": [1]}),
        ("ctxo", {"found": True, "hint": "h"}),
        ("ctxo", {"error": "x", "message": "m"}),
        ("ctxo", {"error": True, "message": {"a": 1}}),
    ],
)
def test_ordinary_data_is_not_taken_for_the_contract(name: str, payload: Any) -> None:
    shown = envelope_of(seal(payload, dialect=name))
    if name == "ctxo":
        assert shown.pop("_meta")["truncated"] is False
        assert shown == payload
    else:
        assert shown["data"] == payload


def test_a_reply_is_never_looked_into() -> None:
    payload = {"data": {"a": 1}}
    assert envelope_of(seal(Reply(payload), dialect="scalpel"))["data"] == payload


def test_the_schema_of_the_data_tells_an_envelope_from_data_that_looks_like_one() -> None:
    payload = {"data": {"a": 1}}
    schema = {"type": "object", "properties": {"data": {"type": "object"}}, "required": ["data"]}
    assert envelope_of(seal(payload, dialect="scalpel", schema=schema)) == {"data": payload}
    inner = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    assert envelope_of(seal(payload, dialect="scalpel", schema=inner)) == payload


def test_a_large_one_is_cut_in_its_own_shape() -> None:
    for name, spoken in (
        ("gel", {"meta": {"status": "ok", "summary": "Rows"}, "data": {"rows": ROWS, "truncated": False}}),
        ("scalpel", {"tier": "pro", "data": {"rows": ROWS, "truncated": False}}),
    ):
        sealed = seal(spoken, dialect=name, tokens=600, handle="abc")
        shown = envelope_of(sealed)
        assert list(shown) == list(spoken)
        assert 0 < len(shown["data"]["rows"]) < 400
        assert shown["data"]["truncated"] is True
        assert sealed.cuts[0].path == "/rows"
        assert sealed.report.used <= 600


def test_what_compose_tool_payload_makes_is_kept_with_its_texts_and_links() -> None:
    link = {"type": "resource_link", "uri": "docs://match/1", "name": "Full excerpt"}
    meta = {"status": "warn", "summary": "Found 400", "details": ["in 20 files"], "nextSteps": ["Open one"]}
    made = compose_tool_payload(meta, {"rows": ROWS[:3]}, ["a preview"], [link])
    for sealed in (
        seal(made, dialect="gel"),
        sealed_result(made["content"], made["structuredContent"], dialect="gel"),
    ):
        assert json.loads(sealed.content) == made["content"]
        assert json.loads(sealed.structured or b"") == made["structuredContent"]
    short = compose_tool_payload(
        {"status": "ok", "summary": "Done", "details": ["d"]}, {"n": 1}, omit_meta_details=True
    )
    assert json.loads(seal(short, dialect="gel").content) == [text("✅ Done")]
    odd = compose_tool_payload({"status": "error", "summary": "No"}, {"n": 1}, is_error=False)
    assert not seal(odd, dialect="gel").is_error


@pytest.mark.parametrize("name", FRAMED[1:])
def test_a_schema_of_the_envelope_is_not_wrapped_again(name: str) -> None:
    spoken = dialect(name)
    data = {"type": "object", "properties": {"n": {"type": "integer"}}}
    own = spoken.output_schema(data)
    assert own is not None
    found = spoken.data_schema(own)
    assert found is not None
    assert spoken.output_schema({"type": "object", "properties": {"data": data, "page": {}}}) is not None
    assert spoken.data_schema({"type": "object", "properties": {"data": data, "page": {}}}) is None


@pytest.mark.parametrize("name", FRAMED)
def test_a_flag_that_says_that_nothing_is_missing_is_not_left_standing(name: str) -> None:
    inner = {"rows": ROWS, "hasMore": False, "note": {"truncated": False}}
    payload = {"results": ROWS, "truncated": False, "is_complete": True, "partial": None, "page": inner}
    shown = envelope_of(seal(payload, dialect=name, max_bytes=20_000 if name == "ctxo" else 3000))
    data = shown if name == "ctxo" else shown["data"]
    assert len(data["results"]) < 400
    assert (data["truncated"], data["is_complete"], data["partial"]) == (True, False, None)
    if name != "ctxo":
        assert data["page"]["hasMore"] is True
        assert data["page"]["note"] == {"truncated": False}, "it says nothing of the list"
    whole = envelope_of(seal({"results": [1], "truncated": False}, dialect=name))
    assert (whole if name == "ctxo" else whole["data"])["truncated"] is False


@pytest.mark.parametrize("name", ["transcend", "gel", "scalpel"])
def test_a_flag_beside_members_that_were_left_out_is_corrected(name: str) -> None:
    value = {"truncated": False, **{f"key {n}": {"truncated": False, "n": n} for n in range(300)}}
    shown = envelope_of(seal(value, dialect=name, tokens=400))["data"]
    assert shown["truncated"] is True
    assert shown["key 0"]["truncated"] is False


def test_a_flag_that_the_schema_fixes_stays() -> None:
    schema = {"type": "object", "properties": {"rows": {"type": "array"}, "truncated": {"const": False}}}
    sealed = seal({"rows": ROWS, "truncated": False}, dialect="transcend", tokens=500, schema=schema)
    assert envelope_of(sealed)["ok"]
    assert envelope_of(sealed)["data"]["truncated"] is False


# -- JSON as text ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FRAMED)
def test_json_that_came_as_text_is_cut_by_its_items(name: str) -> None:
    payload = {"results": ROWS}
    for sealed in (
        seal(json.dumps(payload), dialect=name, max_bytes=2000),
        sealed_result([text(json.dumps(payload, indent=4))], dialect=name, max_bytes=2000),
    ):
        shown = envelope_of(sealed)
        data = shown if name == "ctxo" else shown["data"]
        assert data["results"] == ROWS[: len(data["results"])]
        assert len(data["results"]) > 5
        assert sealed.cuts[0].path == "/results"


def test_several_texts_of_json_are_a_list_and_a_plain_text_is_a_string() -> None:
    blocks = [text(json.dumps(row)) for row in ROWS[:3]]
    assert envelope_of(sealed_result(blocks, dialect="transcend"))["data"] == ROWS[:3]
    assert envelope_of(sealed_result([text("hello")], dialect="transcend"))["data"] == "hello"
    mixed = [text("Found 3:"), *blocks]
    assert envelope_of(sealed_result(mixed, dialect="transcend"))["data"] == mixed


def test_read_as_text_stays_a_text() -> None:
    assert envelope_of(seal("[1]", dialect="scalpel", read_as="text")) == {"data": "[1]"}


@pytest.mark.parametrize("name", FRAMED)
@pytest.mark.parametrize(
    ("said", "structure"),
    [
        ("some words\nof a file", {"content": "some words\nof a file"}),
        ('{\n    "a" : [ 1,\t2 ]\n}', {"a": [1, 2]}),
        ("[1, 2]", {"result": [1, 2]}),
        ("caf\u00e9 " * 40, {"content": "caf\u00e9 " * 40, "size": 240}),
        ('["\u00e9\u00e9\u00e9\u00e9"]', {"rows": ["\u00e9\u00e9\u00e9\u00e9"], "total": 1}),
    ],
)
def test_text_that_only_repeats_the_structure_is_not_worth_a_warning(
    name: str, said: str, structure: Any
) -> None:
    sealed = sealed_result([text(said)], structure, dialect=name)
    assert not sealed.warnings
    if name == "gel":
        assert envelope_of(sealed)["meta"]["status"] == "ok"


def test_text_that_says_something_else_is_told_of() -> None:
    sealed = sealed_result([text("Two rows, both old.")], {"rows": [1, 2]}, dialect="transcend")
    assert "not shown" in envelope_of(sealed)["warnings"][0]
    shown = sealed_result([text("Two rows, both old.")], {"rows": [1, 2]}, dialect="gel", tool="t")
    assert json.loads(shown.content) == [text("✅ t returned a result."), text("Two rows, both old.")]
    assert not shown.warnings
