"""The command `mcp-envelope config`, as a person meets it."""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema_rs
import pytest

from mcp_envelope.cli.main import main
from mcp_envelope.config import SETTINGS

FILE = """\
tokens = 3000
[tools."search_*"]
hint = "narrow it"
[lists]
items = ["-score"]
"""


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def rows(self) -> dict[str, tuple[str, str]]:
        rows = [line.split("\t") for line in self.out.splitlines()]
        return {name: (value, source) for name, value, source in rows}

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Outcome]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))  # the file is the user's own
    for name in list(os.environ):
        if name.startswith("MCP_ENVELOPE_"):
            monkeypatch.delenv(name)
    (tmp_path / "mcp-envelope.toml").write_text(FILE)

    def go(*arguments: str) -> Outcome:
        code = main(["config", *arguments])
        out, err = capfdbinary.readouterr()
        return Outcome(code, out.decode(), err.decode())

    return go


def test_a_pipe_gets_lines_with_tabs(run: Run) -> None:
    outcome = run("search_code")
    assert (outcome.code, outcome.err) == (0, "")
    assert list(outcome.rows) == list(SETTINGS)
    assert outcome.rows["tokens"] == ("3000", "file mcp-envelope.toml:1")
    assert outcome.rows["hint"] == ("narrow it", "tool search_* (mcp-envelope.toml:3)")
    assert outcome.rows["lists"] == ('{"items": ["-score"]}', "file mcp-envelope.toml:4")
    assert outcome.rows["bytes"] == ("-", "built-in")
    assert outcome.rows["max_tokens"] == ("10000", "built-in")
    assert outcome.rows["meter"] == ("exact", "built-in")
    assert run().rows["hint"] == ("-", "built-in")


def test_a_terminal_gets_a_table(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    head, blank, *rows = run("search_code").out.splitlines()
    assert (head, blank) == ("tool search_code, mcp-envelope.toml", "")
    assert rows[0].split() == ["setting", "value", "from"]
    columns = {row.index(source) for row, source in zip(rows[1:], map(_source, rows[1:]), strict=True)}
    assert columns == {rows[0].index("from")}


def test_sizes_times_and_places_at_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("MCP_ENVELOPE_VAULT_TTL", "5400")
    monkeypatch.delenv("MCP_ENVELOPE_VAULT", raising=False)
    monkeypatch.setenv("HOME", str(Path.cwd()))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    shown = dict(re.split(r"  +", row)[:2] for row in run().out.splitlines()[3:])
    assert (shown["program_bytes"], shown["vault_size"]) == ("32.0 MiB", "1.0 GiB")
    assert (shown["vault_ttl"], shown["image_tokens"]) == ("1h 30m", "8,000")
    assert shown["vault"].startswith("~")
    assert shown["vault"].endswith("vault.db")


def _source(row: str) -> str:
    return row[row.rindex("  ") + 2 :]


def test_colours_on_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    rows = run().out.splitlines()
    assert rows[3].startswith("\x1b[2mdialect")
    assert rows[4].startswith("tokens")


def test_json(run: Run) -> None:
    said = run("search_code", "--json").json
    assert said["tool"] == "search_code"
    assert said["file"] == "mcp-envelope.toml"
    assert said["detail"] == "minimal"
    assert said["problems"] == []
    assert said["settings"]["lists"] == {"value": {"items": ["-score"]}, "source": "file mcp-envelope.toml:4"}
    assert said["settings"]["include_only"]["value"] == []


def test_what_the_dialect_comes_to(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    (Path.cwd() / "mcp-envelope.toml").unlink()
    monkeypatch.setenv("MCP_ENVELOPE_DIALECT", "ctxo")
    rows = run().rows
    assert rows["dialect"] == ("ctxo", "environment MCP_ENVELOPE_DIALECT")
    assert (rows["bytes"], rows["tokens"]) == (("8192", "built-in"), ("-", "built-in"))
    monkeypatch.setenv("CTXO_RESPONSE_LIMIT", "16k")
    outcome = run()
    assert outcome.code == 0
    assert outcome.err == "warning: CTXO_RESPONSE_LIMIT: '16k' is not a positive integer; it is ignored\n"


def test_a_problem_in_the_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mcp-envelope.toml").write_text("tokens = 600\ntokns = 5\n")
    outcome = run("--json")
    assert outcome.code == 3
    assert outcome.err == (
        "error: mcp-envelope.toml, line 2, column 1: there is no setting 'tokns', did you mean tokens?\n"
    )
    assert outcome.json["settings"]["tokens"]["value"] == 600
    assert len(outcome.json["problems"]) == 1
    (tmp_path / "mcp-envelope.toml").write_text("tokens = \n")
    broken = run()
    assert broken.code == 3
    assert broken.err.startswith("error: mcp-envelope.toml, line 1, column 10: not TOML: invalid value")
    assert broken.err.count("\n") == 1
    assert broken.rows["tokens"] == ("8000", "built-in")


def test_a_problem_in_the_file_of_scalpel(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".code-scalpel").mkdir()
    (tmp_path / ".code-scalpel" / "response_config.json").write_text('{"globl": {}}')
    assert run().code == 0
    monkeypatch.setenv("MCP_ENVELOPE_DIALECT", "scalpel")
    outcome = run()
    assert outcome.code == 3
    assert (
        "response_config.json, line 1, column 2: there is no key 'globl', did you mean global?" in outcome.err
    )


def test_a_variable_that_names_no_setting(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_ENVELOPE_TOKEN", "5")
    outcome = run()
    assert outcome.code == 0
    assert "warning: environment: there is no variable MCP_ENVELOPE_TOKEN, did you mean" in outcome.err


def test_another_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("tokens = 444")
    assert run("--config", "other.toml").rows["tokens"] == ("444", "file other.toml:1")
    missing = run("--config", "nope.toml")
    assert (missing.code, missing.out) == (3, "")
    assert missing.err == "error: cannot read nope.toml: no such file or directory\n"
    folder = run("--config", ".")
    assert (folder.code, folder.out, folder.err) == (3, "", "error: cannot read .: is a directory\n")


def test_a_file_that_was_only_found(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "mcp-envelope.toml"
    path.write_text('vault = "x.db"\ntokens = 20_000\n[tools.t]\ntokens = 300\n')
    outcome = run("t")
    assert outcome.code == 0
    assert outcome.rows["tokens"] == ("300", "tool t (mcp-envelope.toml:4)")
    assert outcome.rows["vault"] == ("-", "built-in")
    assert (
        "warning: mcp-envelope.toml: ignored: vault; a file that was merely found, not named, may"
        in outcome.err
    )
    assert f"mcp-envelope trust {path}" in outcome.err
    assert "tokens = 20000 is ignored: it may not exceed 8000 tokens" in run().err
    assert run("--config", "mcp-envelope.toml").err == ""


def test_the_schema(run: Run) -> None:
    schema = run("schema").json
    jsonschema_rs.meta.validate(schema)
    assert jsonschema_rs.is_valid(schema, tomllib.loads(FILE))
    assert not jsonschema_rs.is_valid(schema, {"tokns": 5})
    response = run("schema", "--dialect", "scalpel").json
    assert jsonschema_rs.is_valid(response, {"global": {"profile": "debug"}})
    assert run("--tool", "schema", "--json").json["tool"] == "schema"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a", "b"], "at most one tool; unexpected argument 'b'"),
        (["a", "--tool", "b"], "at most one tool; unexpected argument 'b'"),
        (["--dialect", "scalpel"], "--dialect works with schema"),
        (["schema", "--json"], "schema takes only the option --dialect"),
        (["schema", "--dialect", "scalple"], "did you mean scalpel?"),
        (["--jsn"], "there is no option '--jsn', did you mean --json?"),
        (["\udcff"], "is not valid UTF-8"),
    ],
)
def test_wrong_usage(run: Run, arguments: list[str], said: str) -> None:
    outcome = run(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err
    assert outcome.err.count("\n") == 1


def test_help_has_examples(run: Run) -> None:
    outcome = run("--help")
    assert outcome.code == 0
    assert "examples:\n  mcp-envelope config\n" in outcome.out


def test_control_characters_stay_out_of_the_terminal(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mcp-envelope.toml").write_text('hint = "a\\u001b[31m\\tb"')
    assert run().rows["hint"] == (r"a\x1b[31m\tb", "file mcp-envelope.toml:1")
