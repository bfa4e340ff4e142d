"""Where the front keeps what it cuts, and who may say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_envelope.front import Front
from mcp_envelope.policy import Settings


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("MCP_ENVELOPE_VAULT", raising=False)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "mcp-envelope.toml").write_text(f'vault = "{folder}/elsewhere.db"\ntokens = 500\n')
    monkeypatch.chdir(folder)
    return folder


def place(front: Front) -> str:
    assert front.vault is not None
    found = Path(front.vault.store.place).name
    front.close()
    return found


def test_a_file_that_was_only_found_may_not_say_where_results_are_kept(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    front = Front(Settings(environ={}), ledger=False)
    # It counts otherwise.
    assert front.policy("any").tokens == 500
    assert place(front) == "vault.db"
    assert "only found" in caplog.text


def test_one_that_was_named_may(project: Path) -> None:
    named = project / "mcp-envelope.toml"
    assert place(Front(Settings(named, {}), ledger=False)) == "elsewhere.db"
    environ = {"MCP_ENVELOPE_CONFIG": str(named)}
    assert place(Front(Settings(environ=environ), ledger=False)) == "elsewhere.db"


def test_so_may_the_environment_and_the_program(project: Path) -> None:
    environ = {"MCP_ENVELOPE_VAULT": str(project / "mine.db")}
    assert place(Front(Settings(environ=environ), ledger=False)) == "mine.db"
    assert place(Front(Settings(environ={}), vault=str(project / "given.db"), ledger=False)) == "given.db"
    assert Front(Settings(environ={}), vault="none", ledger=False).vault is None
