"""The command `mcp-envelope check`, on a real server with flaws and behind the real proxy."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_envelope.check.probe import Called, Probe, made_up
from mcp_envelope.check.score import scores

from ..cli.harness import Outcome, Run, runner
from ..ports import refusing_port
from ..proxy.real import node
from ..warm import warm

# Stands for the command of the server with flaws.
SERVER = str(Path(__file__).with_name("flawed_server.py"))
pytestmark = pytest.mark.process


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("MCP_ENVELOPE_VAULT", str(tmp_path / "vault.db"))
    (tmp_path / "arguments.json").write_text('{"rows": [{"count": 5000}, {"count": 3}]}')
    check = runner("check", tmp_path, monkeypatch, capfdbinary)

    def run(*arguments: str, **more: Any) -> Outcome:
        return check(
            *(word for each in arguments for word in (warm(SERVER) if each == SERVER else (each,))), **more
        )

    return run


def figures(outcome: Outcome) -> dict[str, tuple[int, int]]:
    return {each["name"]: (each["passed"], each["of"]) for each in json.loads(outcome.out)["checks"]}


def test_a_server_with_flaws(run: Run) -> None:
    outcome = run("--format", "json", "--arguments", "arguments.json", "--", SERVER)
    assert outcome.code == 1
    found = figures(outcome)
    assert found["fits claude-code"] == (4, 5)
    assert found["valid"] == (2, 3)
    assert found["pictures"] == (1, 1)
    assert found["reachable"] == (0, 1)
    assert found["noted"] == (0, 0)
    # A wrong argument of `rows` is answered properly, `crash` is not.
    assert found["errors"] == (1, 2)
    assert found["secrets"] == (4, 5)
    assert found["weight"] == (1, 1)
    said = json.loads(outcome.out)
    assert said["notCalled"] == ["write"]
    assert any('redact = "tokens"' in line for line in said["suggestions"])
    (in_front,) = [line for line in said["suggestions"] if "mcp-envelope proxy" in line]
    assert f"mcp-envelope proxy --redact tokens -- {' '.join(warm(SERVER))};" in in_front
    assert "not called (not marked read-only): write" in outcome.err


def test_the_same_behind_the_envelope(run: Run) -> None:
    chosen = ("--arguments", "arguments.json", "--tools", "rows,picture")
    outcome = run("--envelope", "--format", "json", *chosen, "--", SERVER)
    assert outcome.code == 0, outcome.out
    found = figures(outcome)
    assert {name: figure for name, figure in found.items() if name.startswith("fits")} == {
        f"fits {name}": (3, 3)
        for name in (
            "claude-code",
            "codex-mcp-client",
            "gemini-cli-mcp-client",
            "opencode",
            "github-copilot-cli",
        )
    }
    assert (found["valid"], found["pictures"], found["reachable"], found["noted"]) == (
        (2, 2),
        (1, 1),
        (1, 1),
        (1, 1),
    )


def test_what_is_tried_leaves_nothing_behind(run: Run, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    assert run("--envelope", "--arguments", "arguments.json", "--tools", "rows", "--", SERVER).code == 0
    left = [path.name for path in sorted(tmp_path.rglob("*")) if path not in before]
    assert [name for name in left if "vault" in name or "ledger" in name] == []


def test_a_result_that_is_cut_for_some_clients_alone(run: Run, tmp_path: Path) -> None:
    """Behind the proxy each client gets as much as it takes, so nothing is lost."""
    (tmp_path / "between.json").write_text('{"rows": {"count": 780}}')
    chosen = ("--arguments", "between.json", "--tools", "rows", "--format", "json")
    bare = figures(run(*chosen, "--", SERVER))
    assert {bare[f"fits {name}"] for name in ("claude-code", "github-copilot-cli")} == {(1, 1), (0, 1)}
    found = figures(run("--envelope", *chosen, "--", SERVER))
    assert (found["reachable"], found["noted"]) == ((1, 1), (1, 1))


def test_a_server_that_is_behind_the_envelope_already(run: Run) -> None:
    """The suggested command, checked in turn, is asked as each client, too, and no second proxy is suggested."""
    chosen = ("--arguments", "arguments.json", "--tools", "rows", "--format", "json")
    proxy = (sys.executable, "-m", "mcp_envelope", "proxy", "--")
    outcome = run(*chosen, "--", *proxy, SERVER)
    assert outcome.code == 0, outcome.out
    assert json.loads(outcome.out)["suggestions"] == []
    strict = run(*chosen, "--", *proxy[:-1], "--vault", "none", "--", SERVER)
    assert figures(strict)["reachable"] == (0, 1)
    assert not any("mcp-envelope proxy" in line for line in json.loads(strict.out)["suggestions"])


@pytest.mark.parametrize(
    ("text", "is_error", "refusing"),
    [("x\n" * 2500, False, "opencode"), ("no such row " * 1000, True, "claude-code")],
)
def test_lines_and_the_text_of_errors_have_limits_too(text: str, is_error: bool, refusing: str) -> None:
    result = {"content": [{"type": "text", "text": text}], "isError": is_error}
    found = {score.name: score for score in scores(Probe([], [Called({"name": "t"}, {}, result)], []))}
    failing = {name for name, score in found.items() if name.startswith("fits") and not score.is_pass}
    assert failing == {f"fits {refusing}"}


def test_both_side_by_side(run: Run) -> None:
    outcome = run("--compare", "--arguments", "arguments.json", "--tools", "rows", "--", SERVER)
    rows = {row[1]: row[2:] for row in (line.split("\t") for line in outcome.out.decode().splitlines())}
    assert outcome.code == 1, "what the server does itself decides"
    assert rows["the rest of a large result can be read"] == ["0 of 1 ✗", "1 of 1 ✓"]


def test_a_real_server_in_every_format(run: Run, tmp_path: Path) -> None:
    # One of its tools takes as long as it is told to, and ten seconds otherwise.
    quick = {"trigger-long-running-operation": [{"duration": 0.1, "steps": 1}]}
    (tmp_path / "quick.json").write_text(json.dumps(quick))
    command = ("--arguments", "quick.json", "--", *node("server-everything"))
    table = run("--badge", "badge.svg", *command)
    assert table.code == 0, table.out
    assert "MCP results: 10 of 10" in (tmp_path / "badge.svg").read_text()
    assert ET.parse(tmp_path / "badge.svg").getroot().get("role") == "img"
    markdown = run("--format", "markdown", *command).out.decode()
    assert "| ✅ | no secrets are exposed |" in markdown
    assert run("--format", "junit", "--output", "check.xml", *command).out == b""
    suite = ET.parse(tmp_path / "check.xml").getroot()
    assert (suite.get("failures"), suite.get("name")) == ("0", "server-everything")
    assert len(suite) == int(suite.get("tests") or 0) > 8


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--", "no-such-program"], 1, "used: cannot start 'no-such-program': no such file or directory\n"),
        (
            ["--", sys.executable, "-c", "import sys; print('hello'); sys.exit('no database')"],
            1,
            "the server cannot be used: Connection closed; it said: no database\n",
        ),
        ([], 2, "name one server"),
        (["--url", "http://x", "--", "y"], 2, "name one server"),
        (["--tools", "rosw", "--", SERVER], 2, "no tool 'rosw', did you mean rows?"),
        (["--arguments", "broken.json", "--", SERVER], 3, "expected arguments by tool"),
        (["--arguments", "missing.json", "--", SERVER], 3, "cannot read missing.json"),
        (["--badge", "nowhere/x.svg", "--tools", "picture", "--", SERVER], 3, "cannot write nowhere/x.svg"),
        (["--compare", "--envelope", "--", SERVER], 2, "cannot be combined with --envelope"),
        (["--format", "xml", "--", SERVER], 2, "'xml' is not one of table"),
    ],
)
def test_mistakes(run: Run, tmp_path: Path, arguments: list[str], code: int, told: str) -> None:
    (tmp_path / "broken.json").write_text('{"rows": 5}')
    outcome = run(*arguments)
    assert outcome.code == code
    assert told in outcome.err
    assert "Traceback" not in outcome.err


def test_progress_at_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    shown = run("--arguments", "arguments.json", "--tools", "rows", "--", SERVER).err.split("\r")
    said = [each.rstrip() for each in shown]
    assert said[1] == "starting the server, as mcp-envelope"
    assert said[2:4] == [
        f"{'░' * 20} 0 of 3  rows, as mcp-envelope",
        f"{'█' * 6:░<20} 1 of 3  rows, as mcp-envelope",
    ]
    broken = run("--", sys.executable, "-c", "exit(3)").err
    assert f"{' ' * 79}\r" in broken.partition("the server cannot be used")[0], (
        "the line is cleared for the error"
    )


def test_a_server_that_is_not_there(run: Run) -> None:
    with refusing_port() as port:
        outcome = run("--url", f"http://127.0.0.1:{port}/mcp")
    assert outcome.code == 1
    assert outcome.err.startswith("error: the server cannot be used: ")


SCHEMAS: list[dict[str, Any]] = [
    {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
    {"type": "object", "properties": {"a": {"enum": ["x", "y"]}, "b": {"const": 3}}, "required": ["a", "b"]},
    {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "number"}, "minItems": 2}},
        "required": ["a"],
    },
    {
        "type": "object",
        "properties": {"a": {"anyOf": [{"type": "null"}, {"type": "string"}]}},
        "required": ["a"],
    },
    {"type": "object", "properties": {"a": {"type": ["boolean", "null"]}}, "required": ["a"]},
    {"type": "object", "properties": {"a": {"type": "string", "minLength": 4}}, "required": ["a"]},
]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_arguments_made_from_a_schema_conform_to_it(schema: dict[str, Any]) -> None:
    assert jsonschema_rs.is_valid(schema, made_up(schema))


_KEYS = (
    "type",
    "properties",
    "required",
    "items",
    "enum",
    "anyOf",
    "minItems",
    "minimum",
    "minLength",
    "default",
)
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 9)
    | st.sampled_from(["object", "array", "string", "number", "a"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*_KEYS, "a"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(_VALUES)
def test_anything_may_stand_in_a_schema(schema: Any) -> None:
    json.dumps(made_up(schema))
