"""Each shape that the four published documents show, key for key and in their order."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest

from mcp_envelope import Failure, Miss, Reply, seal
from mcp_envelope.dialects.gel import (
    build_structured_response,
    build_tool_response,
    compose_tool_payload,
    tool_response_envelope_schema,
)
from mcp_envelope.outcome import collect_remarks, describe_call


def outline(value: Any) -> Any:
    """Keys in their order, values by their type."""
    if isinstance(value, dict):
        return [(key, outline(member)) for key, member in value.items()]
    return type(value).__name__


def text_of(sealed: Any) -> Any:
    (block,) = json.loads(sealed.content)
    assert block["type"] == "text"
    assert ": " not in block["text"].split('"')[0]
    return json.loads(block["text"])


# -- ctxo -----------------------------------------------------------------------------------------------------


def test_ctxo_success() -> None:
    importers = [{"file": f"src/module{n}.ts", "kind": "import", "line": n} for n in range(42)]
    sealed = seal({"importers": importers}, dialect="ctxo")
    result = text_of(sealed)
    assert list(result) == ["importers", "_meta"]
    assert result["_meta"] == {
        "totalItems": 42,
        "returnedItems": 42,
        "truncated": False,
        "totalBytes": len(json.dumps({"importers": importers}, separators=(",", ":"))),
    }
    assert list(result["_meta"]) == ["totalItems", "returnedItems", "truncated", "totalBytes"]
    assert sealed.structured is None
    assert set(sealed.to_result()) == {"content"}


def test_ctxo_truncated() -> None:
    with collect_remarks():
        describe_call(workspace={"root": "repo", "package": "core"}, hint="Search for a narrower name.")
        result = text_of(seal({"results": [{"name": f"symbol{n}"} for n in range(2000)]}, dialect="ctxo"))
    assert outline(result["_meta"]) == [
        ("totalItems", "int"),
        ("returnedItems", "int"),
        ("truncated", "bool"),
        ("totalBytes", "int"),
        ("hint", "str"),
        ("workspace", [("root", "str"), ("package", "str")]),
    ]
    assert result["_meta"]["hint"] == "Search for a narrower name."


def test_ctxo_miss() -> None:
    sealed = seal(Miss("Build the index first."), dialect="ctxo")
    assert text_of(sealed) == {"found": False, "hint": "Build the index first."}
    assert not sealed.is_error


def test_ctxo_error() -> None:
    sealed = seal(Failure("BAD_ARGS", "symbolId: at least 1 character is needed"), dialect="ctxo")
    assert list(text_of(sealed).items()) == [
        ("error", True),
        ("message", "symbolId: at least 1 character is needed"),
    ]
    assert not sealed.is_error


# -- transcend ------------------------------------------------------------------------------------------------


def test_transcend_success() -> None:
    data = {"references": [{"file": f"src/file{n}.py", "line": n, "col": 1} for n in range(100)]}
    sealed = seal(
        data, dialect="transcend", tokens=800, hint="Pass fileFilter.", warnings=["3 files changed."]
    )
    result = text_of(sealed)
    assert outline({**result, "data": None}) == [
        ("ok", "bool"),
        ("data", "NoneType"),
        ("tokenBudget", [("requested", "int"), ("used", "int"), ("max", "int")]),
        ("truncated", "bool"),
        ("dropped", [("kind", "str"), ("count", "int"), ("note", "str")]),
        ("warnings", "list"),
    ]
    assert (result["ok"], result["truncated"], result["dropped"]["kind"]) == (True, True, "references")
    assert result["dropped"]["count"] == 100 - len(result["data"]["references"])
    assert result["dropped"]["note"] == (
        f"Dropped {result['dropped']['count']} references to fit tokenBudget=800. Pass fileFilter."
    )
    assert result["warnings"] == ["3 files changed."]
    assert result["tokenBudget"] == {"requested": 800, "used": result["tokenBudget"]["used"], "max": 10_000}
    assert json.loads(sealed.structured or b"") == result


def test_transcend_failure() -> None:
    failure = Failure("LSP_UNAVAILABLE", "the server is not on PATH", "Install it.", language="py")
    sealed = seal(failure, dialect="transcend")
    assert outline(text_of(sealed)) == [
        ("ok", "bool"),
        ("error", [("code", "str"), ("message", "str"), ("language", "str"), ("hint", "str")]),
        ("tokenBudget", [("requested", "int"), ("used", "int"), ("max", "int")]),
        ("truncated", "bool"),
        ("warnings", "list"),
    ]
    assert text_of(sealed)["tokenBudget"]["requested"] == 2000
    assert sealed.is_error


# -- gel ------------------------------------------------------------------------------------------------------


def test_gel_payload() -> None:
    link = {"type": "resource_link", "uri": "docs://match/1", "name": "Full excerpt"}
    meta = {"status": "ok", "summary": "Found 1 match", "details": ["in one file"], "nextSteps": ["open it"]}
    result = compose_tool_payload(meta, {"matches": 1}, ["a preview"], [link])
    assert result == {
        "content": [
            {"type": "text", "text": "✅ Found 1 match"},
            {"type": "text", "text": "in one file"},
            {"type": "text", "text": "a preview"},
            link,
        ],
        "structuredContent": {"meta": meta, "data": {"matches": 1}},
        "isError": False,
    }
    assert list(result) == ["content", "structuredContent", "isError"]
    assert [block.get("text") for block in compose_tool_payload(meta, omit_meta_details=True)["content"]] == [
        "✅ Found 1 match"
    ]


def test_gel_older_helpers() -> None:
    result = build_structured_response(
        status="warn", title="Partly done", data={"n": 1}, details=["one left"]
    )
    assert result["structuredContent"] == {
        "meta": {"status": "warn", "summary": "Partly done", "details": ["one left"]},
        "data": {"n": 1},
    }
    assert [block["text"] for block in result["content"]] == ["⚠️ Partly done", "one left"]
    with pytest.warns(DeprecationWarning, match="build_structured_response"):
        older = build_tool_response(title="Done", lines=["a", "b"])
    assert older["structuredContent"]["data"] == {"title": "Done", "lines": ["a", "b"]}
    schema = tool_response_envelope_schema({"type": "object", "required": ["n"]})
    assert jsonschema_rs.is_valid(schema, result["structuredContent"])
    assert not jsonschema_rs.is_valid(schema, older["structuredContent"])


def test_gel_a_long_summary_is_cut_at_a_word() -> None:
    result = compose_tool_payload({"status": "ok", "summary": "many words " * 20})
    summary = result["structuredContent"]["meta"]["summary"]
    assert len(summary) <= 80
    assert summary.endswith(("many…", "words…"))
    with pytest.raises(ValueError, match="ok, info, warn, error"):
        compose_tool_payload({"status": "great", "summary": "x"})


def test_gel_sealed() -> None:
    reply = Reply(
        {"matches": 1},
        summary="Found 1 match",
        details=["in one file"],
        next_steps=["open it"],
        texts=["a preview"],
        links=[{"type": "resource_link", "uri": "docs://match/1", "name": "Full excerpt"}],
    )
    with collect_remarks():
        describe_call(token_usage={"used": 5}, rate_limit={"remaining": 3})
        sealed = seal(reply, dialect="gel")
    assert [block.get("text", block.get("uri")) for block in json.loads(sealed.content)] == [
        "✅ Found 1 match",
        "in one file",
        "a preview",
        "docs://match/1",
    ]
    assert list(json.loads(sealed.structured or b"").items()) == [
        (
            "meta",
            {
                "status": "ok",
                "summary": "Found 1 match",
                "details": ["in one file"],
                "nextSteps": ["open it"],
                "tokenUsage": {"used": 5},
                "rateLimit": {"remaining": 3},
            },
        ),
        ("data", {"matches": 1}),
    ]


def test_gel_failure() -> None:
    sealed = seal(Failure("NOT_FOUND", "no such page", "List the pages."), dialect="gel")
    result = json.loads(sealed.structured or b"")
    assert result["meta"] == {"status": "error", "summary": "no such page", "nextSteps": ["List the pages."]}
    assert result["data"]["errorCode"] == "NOT_FOUND"
    assert sealed.is_error


# -- scalpel --------------------------------------------------------------------------------------------------

DATA = {"risk_level": "high", "vulnerabilities": []}


def described(outcome: Any, **options: Any) -> Any:
    with collect_remarks():
        describe_call(tier="pro", tool_version="3.3.0", capabilities=("envelope-v1",))
        return seal(outcome, dialect="scalpel", **options)


def test_scalpel_minimal() -> None:
    sealed = described(DATA)
    assert sealed.structured == b'{"data":{"risk_level":"high","vulnerabilities":[]}}'
    assert text_of(sealed) == {"data": DATA}


def test_scalpel_debug() -> None:
    sealed = described(DATA, profile="debug", tool="security_scan", request_id="8b3e", duration_ms=27)
    assert list(text_of(sealed).items()) == [
        ("tier", "pro"),
        ("tool_version", "3.3.0"),
        ("tool_id", "security_scan"),
        ("request_id", "8b3e"),
        ("capabilities", ["envelope-v1"]),
        ("duration_ms", 27),
        ("error", None),
        ("upgrade_hints", []),
        ("data", DATA),
    ]


def test_scalpel_error_minimal() -> None:
    sealed = described(Failure("NOT_FOUND", "File not found: missing.py"))
    assert text_of(sealed) == {"error": {"error": "File not found: missing.py", "error_code": "not_found"}}
    assert not sealed.is_error


def test_scalpel_error_debug() -> None:
    sealed = described(
        Failure("NOT_FOUND", "File not found: missing.py"),
        profile="debug",
        tool="extract_code",
        request_id="0a46",
        duration_ms=3,
    )
    result = text_of(sealed)
    assert list(result) == [
        "tier",
        "tool_version",
        "tool_id",
        "request_id",
        "capabilities",
        "duration_ms",
        "error",
        "upgrade_hints",
        "data",
    ]
    assert list(result["error"].items()) == [
        ("error", "File not found: missing.py"),
        ("error_code", "not_found"),
        ("error_details", None),
    ]
    assert result["data"] is None


@pytest.mark.parametrize("profile", ["minimal", "standard", "debug"])
def test_scalpel_echoes_the_clients_request_id(profile: Any) -> None:
    assert text_of(described(DATA, profile=profile, request_id="r7"))["request_id"] == "r7"


def test_scalpel_debug_has_every_field_even_if_nothing_is_known() -> None:
    sealed = seal(Failure("NOT_FOUND", "Nothing there."), dialect="scalpel", profile="debug")
    assert list(text_of(sealed).items()) == [
        ("tier", None),
        ("tool_version", None),
        ("tool_id", None),
        ("request_id", None),
        ("capabilities", ["envelope-v1"]),
        ("duration_ms", 0),
        ("error", {"error": "Nothing there.", "error_code": "not_found", "error_details": None}),
        ("upgrade_hints", []),
        ("data", None),
    ]


def test_a_path_from_the_calls_arguments_is_said_back() -> None:
    failure = Failure("NOT_FOUND", "File not found: /missing.py (looked in /srv/app/files/x.py)")
    shown = text_of(seal(failure, dialect="scalpel", arguments={"files": ["/missing.py"]}))
    assert shown["error"]["error"] == "File not found: /missing.py (looked in x.py)"
