"""What docs/configuration.md says is what the code does.

The table of settings is made by the code: `UPDATE_DOCS=1 pytest tests/config/test_documentation.py` writes it.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path

import jsonschema_rs
import msgspec
import pytest

from mcp_envelope import dialects
from mcp_envelope.config import SETTINGS, Setting, Settings
from mcp_envelope.config.schema import own_file_schema, settings_schema
from mcp_envelope.dialects.scalpel import Scalpel
from mcp_envelope.jsontext.scanner import plain_json

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
TABLE = re.compile(r"(<!-- settings:.*?-->\n)(.*?)(<!-- end -->)", re.DOTALL)
# What the names and the values in a table are.
TABLES = {
    "lists": "table: path or field → ranking keys",
    "hints": "table: path or field → string",
    "errors": "table: words → code",
    "redact_patterns": "table: name → regular expression",
    "reply": "table: summary, warnings, …",
    "workspace": "table: root, package?",
}
# The example of the published contract, as it stands there.
PUBLISHED = """{
  "global": {
    "profile": "minimal"  // or "standard", "debug"
  },
  "tool_overrides": {
    "analyze_code": {
      "include_only": ["functions", "classes", "complexity"]
    }
  }
}"""


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert found
    return found[1]


def kind(setting: Setting) -> str:
    """Return in words what a setting takes: from its schema, as far as that tells."""
    if setting.units:
        number = {"time": "seconds", "size": "bytes"}[setting.units.noun]
        return f"{number}, or a {setting.units.noun} such as `{setting.units.example}`"
    schema = settings_schema()["$defs"][setting.name]
    names = schema.get("enum") or [name for each in schema.get("anyOf", ()) for name in each.get("enum", ())]
    listed = ", ".join(f"`{name}`" for name in names)
    if names:
        return f"one of {listed}" if "enum" in schema else f"{listed} or a name of your own"
    if schema["type"] == "integer":
        return f"whole number, {schema['minimum']:,} to {schema['maximum']:,}"
    return TABLES.get(setting.name) or {"string": "string", "array": "list of names"}[schema["type"]]


def markdown_table() -> str:
    rows = ["| setting | kind | default | environment | what it does |", "|---|---|---|---|---|"]
    for each in SETTINGS.values():
        default = msgspec.to_builtins(each.default) if each.default else ""
        shown = f"`{str(default).lower() if default is True else default}`" if default else ""
        rows.append(f"| `{each.name}` | {kind(each)} | {shown} | `{each.variable}` | {each.doc} |")
    return "\n".join(rows) + "\n"


def test_the_table_is_the_table() -> None:
    text = PAGE.read_text()
    if os.environ.get("UPDATE_DOCS"):
        text = TABLE.sub(lambda found: found[1] + markdown_table() + found[3], text)
        PAGE.write_text(text)
    found = TABLE.search(text)
    assert found
    assert found[2] == markdown_table(), "run UPDATE_DOCS=1 pytest tests/config/test_documentation.py"


def test_the_example_file_has_no_problem(tmp_path: Path) -> None:
    (tmp_path / "mcp-envelope.toml").write_text(block("toml"))
    said: list[str] = []
    settings = Settings(environ={}, start=tmp_path, say=said.append)
    code, index = settings.policy("search_code"), settings.policy("legacy_index")
    assert said == []
    assert (code.tokens, code.meter, code.profile, code.detail) == (8000, "chars4", "team", "standard")
    assert code.hint == "Search for a longer word, or in one folder."
    assert (index.dialect, index.tokens, index.bytes) == ("ctxo", None, 16_384)
    assert code.with_budget(10**6).tokens == 20_000


def test_the_python_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block("python"), "configuration.md", "exec"), {})
    assert capsys.readouterr().out == "1500 call\n"


def test_the_example_in_pyproject(tmp_path: Path) -> None:
    inside = re.sub(r"^\[", "[tool.mcp-envelope.", block("toml"), flags=re.MULTILINE)
    (tmp_path / "pyproject.toml").write_text(f"[project]\nname = 'x'\n[tool.mcp-envelope]\n{inside}")
    said: list[str] = []
    settings = Settings(environ={}, start=tmp_path, say=said.append)
    assert settings.policy("search_code").sources["tokens"].startswith("tool search_code (pyproject.toml:")
    assert settings.policy("search_code").tokens == 8000
    assert said == []


def test_the_budgets_of_the_dialects() -> None:
    text = PAGE.read_text()
    for dialect in dialects.NAMES:
        limits = dialects.dialect(dialect).limits
        in_bytes = f"{limits.bytes:,} bytes" if limits.bytes else "no limit"
        budget = f"{limits.tokens:,} tokens" if limits.tokens else in_bytes
        assert f"| `{dialect}` | {budget} |" in text


def test_the_schemas_accept_the_examples() -> None:
    validator = jsonschema_rs.Draft202012Validator(settings_schema(), validate_formats=True)
    assert list(validator.iter_errors(tomllib.loads(block("toml")))) == []
    assert block("jsonc").strip() == PUBLISHED
    published = json.loads(plain_json(PUBLISHED))
    assert jsonschema_rs.is_valid(own_file_schema(Scalpel.file), published)
    for schema in (settings_schema(), own_file_schema(Scalpel.file)):
        jsonschema_rs.meta.validate(schema)
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize(
    "document",
    [
        {"tokns": 1},
        {"tokens": "many"},
        {"tokens": 5},
        {"tokens": 500, "bytes": 5000},
        {"dialect": "nativ"},
        {"tools": {"a": {"tokens": 500, "bytes": 5000}}},
        {"tools": {"a": {"tols": 1}}},
        {"profiles": {"mine": {"profile": "debug"}}},
        {"profiles": {"debug": {"base": "minimal"}}},
        {"workspace": {}},
        {"lists": {"a": ["-"]}},
    ],
)
def test_the_schema_refuses_what_the_loader_complains_about(document: object, tmp_path: Path) -> None:
    assert not jsonschema_rs.is_valid(settings_schema(), document)


@pytest.mark.parametrize(
    "document",
    [{"$schema": "x"}, {"profiles": {"mine": {"base": "debug"}}}, {"tools": {"a*": {}}}, {"profile": "x"}],
)
def test_the_schema_takes_what_the_loader_takes(document: object) -> None:
    assert jsonschema_rs.is_valid(settings_schema(), document)


def test_every_setting_is_described() -> None:
    for name, definition in settings_schema()["$defs"].items():
        assert definition["description"].endswith(".")
        assert "type" in definition or "enum" in definition or "anyOf" in definition
        assert name in SETTINGS
    assert set(settings_schema()["$defs"]) == set(SETTINGS)


@pytest.mark.parametrize("name", ["native", "ctxo", "transcend", "gel", "scalpel"])
def test_the_table_says_what_counts_each_dialects_budget(name: str) -> None:
    row = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{name}` | "))
    _, said, meter, _ = row.split(" | ")
    # One without a limit counts a budget that is set.
    budget = dialects.dialect(name).budget(1000 if said == "no limit" else None, None, None)
    assert meter.strip("`") == budget.meter.name
    assert said in ("no limit", f"{budget.limit:,} {budget.unit}")
