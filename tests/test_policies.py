"""A policy's settings reach the result: dialect, budget, fields, rankings, hints, redaction."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_envelope import Failure, Reply, seal
from mcp_envelope.config import Settings

SECRET = "glpat-" + "a1B2-c3D4e5_F6g7H8i9"


def sealed_by(config: str, payload: Any, tmp_path: Path, tool: str = "search", environ: Any = None) -> Any:
    path = tmp_path / "mcp-envelope.toml"
    path.write_text(config)
    policy = Settings(path, environ or {}, tmp_path).policy(tool)
    assert policy.problems == ()
    return seal(payload, policy=policy, tool=tool)


def result_of(sealed: Any) -> Any:
    return json.loads(sealed.structured or json.loads(sealed.content)[0]["text"])


def test_the_file_chooses_dialect_and_budget(tmp_path: Path) -> None:
    rows = {"rows": list(range(9000))}
    sealed = sealed_by('dialect = "transcend"\n[tools.search]\ntokens = 300', rows, tmp_path)
    assert result_of(sealed)["tokenBudget"]["requested"] == 300
    native = sealed_by("bytes = 2000", rows, tmp_path)
    assert (native.report.limit, native.report.unit) == (2000, "bytes")


def test_what_is_given_goes_first(tmp_path: Path) -> None:
    (tmp_path / "mcp-envelope.toml").write_text("tokens = 5000\ndialect = 'transcend'\nprofile = 'debug'")
    policy = Settings(tmp_path / "mcp-envelope.toml", {}, tmp_path).policy("t")
    sealed = seal({"a": 1}, policy=policy, tokens=300, dialect="native", profile="minimal")
    assert sealed.report.limit == 300
    assert sealed.structured == b'{"a":1}'


def test_lists_are_ranked_and_hints_given(tmp_path: Path) -> None:
    config = """
        tokens = 300
        [tools.search.lists]
        rows = ["-n"]
        [tools.search.hints]
        "/rows" = "Pass a smaller range."
    """
    result = result_of(sealed_by(config, {"rows": [{"n": n} for n in range(900)]}, tmp_path))
    assert result["rows"][0] == {"n": 899}
    assert result["_envelope"]["hint"] == "Pass a smaller range."
    tool = config.replace("tokens = 300", 'tokens = 300\nhint = "Ask again."')
    assert (
        result_of(sealed_by(tool, {"rows": list(range(9000))}, tmp_path))["_envelope"]["hint"] == "Ask again."
    )


def test_fields_are_chosen_at_the_top(tmp_path: Path) -> None:
    payload = {"functions": [{"name": "f", "code": 1}], "classes": [], "noise": {"functions": 1}}
    only = sealed_by('[tools.search]\ninclude_only = ["functions", "classes"]', payload, tmp_path)
    assert list(result_of(only)) == ["functions", "classes"]
    without = sealed_by('exclude_fields = ["noise"]', payload, tmp_path)
    assert list(result_of(without)) == ["functions", "classes"]
    failure = sealed_by('dialect = "scalpel"\ninclude_only = ["a"]', Failure("NOT_FOUND", "no"), tmp_path)
    assert result_of(failure)["error"]["error_code"] == "not_found"


def test_secrets_are_masked_before_anything_else(tmp_path: Path) -> None:
    payload = {"log": f"token {SECRET} used", "n": 1.0, "nested": json.dumps({"t": SECRET})}
    sealed = sealed_by('redact = "tokens"', payload, tmp_path)
    assert SECRET not in sealed.to_json().decode()
    assert sum(sealed.report.redacted.values()) == 2
    assert b'"n":1.0' in sealed.structured
    json.loads(result_of(sealed)["nested"])
    assert SECRET in sealed_by("", payload, tmp_path).to_json().decode()


@pytest.mark.parametrize("dialect", ["native", "ctxo", "transcend", "gel", "scalpel"])
def test_secrets_are_masked_wherever_they_are_said(dialect: str, tmp_path: Path) -> None:
    reply = Reply(
        {"a": SECRET},
        summary=SECRET,
        details=[SECRET],
        texts=[SECRET],
        warnings=[SECRET],
        next_steps=[SECRET],
    )
    failure = Failure("INTERNAL", f"bad {SECRET}", f"drop {SECRET}", {"token": SECRET, "n": [SECRET]})
    for outcome in (reply, failure, [{"type": "text", "text": SECRET}], f"text {SECRET}"):
        sealed = sealed_by(f'redact = "tokens"\ndialect = "{dialect}"\nprofile = "debug"', outcome, tmp_path)
        assert SECRET not in sealed.to_json().decode()


def test_own_patterns(tmp_path: Path) -> None:
    config = "redact = 'tokens'\n[redact_patterns]\nticket = 'TCK-[0-9]+'"
    sealed = sealed_by(config, {"a": "see TCK-123"}, tmp_path)
    assert result_of(sealed)["a"] == "see [redacted:ticket]"


def test_what_is_clean_and_fits_is_untouched(tmp_path: Path) -> None:
    raw = b'{"a": 1.0,  "b": [1e400, "\\u0041"]}'
    assert sealed_by("", raw, tmp_path).structured == raw


def test_the_variables_of_the_dialects(tmp_path: Path) -> None:
    rows = {"results": list(range(9000))}
    small = sealed_by("dialect = 'ctxo'", rows, tmp_path, environ={"CTXO_RESPONSE_LIMIT": "1000"})
    assert len(json.loads(small.content)[0]["text"]) <= 1000
    wrong = sealed_by("dialect = 'ctxo'", rows, tmp_path, environ={"CTXO_RESPONSE_LIMIT": "16"})
    assert result_of(wrong)["_meta"]["returnedItems"] == 0
    loud = sealed_by("dialect = 'scalpel'", {"a": 1}, tmp_path, environ={"SCALPEL_MCP_INFO": "DEBUG"})
    assert len(result_of(loud)) == 9


def test_the_published_configuration_works(tmp_path: Path) -> None:
    folder = tmp_path / ".code-scalpel"
    folder.mkdir()
    (folder / "response_config.json").write_text(
        """{
          "global": {
            "profile": "minimal"  // or "standard", "debug"
          },
          "tool_overrides": {
            "analyze_code": {
              "include_only": ["functions", "classes", "complexity"]
            }
          }
        }"""
    )
    payload = {"functions": [], "classes": [], "complexity": 3, "imports": []}
    sealed = sealed_by("dialect = 'scalpel'", payload, tmp_path, tool="analyze_code")
    assert result_of(sealed) == {"data": {"functions": [], "classes": [], "complexity": 3}}
    assert "imports" in result_of(sealed_by("dialect = 'scalpel'", payload, tmp_path, tool="other"))["data"]


def test_a_masked_value_that_breaks_its_schema_is_a_coded_outcome(tmp_path: Path) -> None:
    (tmp_path / "mcp-envelope.toml").write_text('redact = "tokens"')
    policy = Settings(tmp_path / "mcp-envelope.toml", {}, tmp_path).policy("t")
    schema = {"type": "object", "properties": {"token": {"type": "string", "pattern": "^ghp_"}}}
    sealed = seal({"token": SECRET, "n": 1}, policy=policy, schema=schema)
    assert sealed.is_error
    assert sealed.structured is None
    said = json.loads(json.loads(sealed.content)[0]["text"])
    assert said["_envelope"]["error"]["code"] == "RESULT_REDACTED"
    assert said["n"] == 1
    assert SECRET not in sealed.to_json().decode()
