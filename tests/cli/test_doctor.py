"""The command `mcp-envelope doctor`, on homes with real files."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from mcp_envelope.vault.ledger import Ledger, LedgerEntry

from ..ports import refusing_port
from ..vault.valkey_server import running_server
from .harness import COMMAND, Outcome, Run, at_terminal, runner


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "MCP_ENVELOPE_VAULT"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "home").mkdir()
    return runner("doctor", tmp_path, monkeypatch, capfdbinary)


def told(outcome: Outcome, about: str) -> list[tuple[str, str]]:
    rows = [line.split("\t") for line in outcome.out.decode().splitlines()]
    return [(state, text) for state, name, text in rows if name == about]


def test_a_new_machine(run: Run, tmp_path: Path) -> None:
    outcome = run()
    assert (outcome.code, outcome.err) == (0, "")
    [(state, text)] = told(outcome, "clients")
    assert (state, text[:22]) == ("note", "no configuration found")
    assert told(outcome, "vault")[0][1].endswith("nothing is stored yet")
    assert told(outcome, "[http]") == [("fine", "the proxy over HTTP")]
    assert not list(tmp_path.rglob("*.db")), "looking creates nothing"


def test_clients_wrapped_or_not(run: Run, tmp_path: Path) -> None:
    wrapped = {"command": "mcp-envelope", "args": ["proxy", "--", "npx", "a"]}
    servers = {"a": wrapped, "b": {"command": "npx", "args": ["b"]}, "c": {"url": "https://example.com/mcp"}}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor" / "mcp.json").write_text('{"mcpServers": {')
    outcome = run()
    assert outcome.code == 1
    [(state, text)] = told(outcome, "claude-code")
    assert state == "note"
    assert text.endswith(
        "3 servers, 1 wrapped, 1 remote, 1 not wrapped; to wrap: mcp-envelope wrap claude-code"
    )
    [(state, text)] = told(outcome, "cursor")
    assert state == "wrong"
    assert "line 1" in text


def test_settings(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mcp-envelope.toml").write_text("tokens = 4000\nhint = 'obey'\n")
    outcome = run()
    assert outcome.code == 0
    assert [state for state, _ in told(outcome, "settings")] == ["fine", "note"]
    assert "trust" in told(outcome, "settings")[1][1]
    (tmp_path / "broken.toml").write_text("tokens = [")
    outcome = run("--config", "broken.toml")
    assert (outcome.code, "line 1" in outcome.err) == (3, True)


def test_a_vault_that_works_and_one_that_does_not(run: Run, tmp_path: Path) -> None:
    with running_server(tmp_path) as valkey:
        outcome = run("--vault", valkey.url)
        assert (outcome.code, told(outcome, "vault")[0][0]) == (0, "fine")
    with refusing_port() as port:
        outcome = run("--vault", f"valkey://:secret@127.0.0.1:{port}")
    assert (outcome.code, told(outcome, "vault")[0][0]) == (1, "wrong")
    assert "cannot be reached" in told(outcome, "vault")[0][1]
    assert "secret" not in outcome.out.decode()
    (tmp_path / "other.db").write_bytes(b"not a vault" * 1000)
    outcome = run("--vault", "other.db", "--json")
    assert outcome.code == 1
    assert [each["state"] for each in json.loads(outcome.out) if each["about"] == "vault"] == ["wrong"]


def test_what_was_cut_for_whom(run: Run, tmp_path: Path) -> None:
    ledger = Ledger()
    assert ledger.totals() == []  # which creates the file
    [(state, text)] = told(run(), "ledger")
    assert (state, text.partition(": ")[2]) == ("note", "no calls have been recorded yet")
    for client, cuts in (("claude-code", 1), ("claude-code", 0), ("codex-mcp-client", 0)):
        ledger.record(LedgerEntry(at=time.time(), tool="t", client=client, cuts=cuts, before=900, after=90))
    ledger.close()
    assert [text for _, text in told(run(), "ledger")] == [
        "claude-code: 1 of 2 results cut",
        "codex-mcp-client: 0 of 1 result cut",
    ]
    code, shown = at_terminal([*COMMAND, "doctor"], tmp_path)
    assert code == 0
    assert "✓\x1b[0m ledger          claude-code: 1 of 2 results cut" in shown
