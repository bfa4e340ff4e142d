"""Where the front keeps what it cuts, and who may say so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_envelope.budget import METERS, meter_named
from mcp_envelope.clients.known import client
from mcp_envelope.config import Policy, Settings
from mcp_envelope.gateway import Call, Gateway, Publisher
from mcp_envelope.jsontext.document import encode, text_block
from mcp_envelope.payload import Result

from .shown import shown


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("MCP_ENVELOPE_VAULT", raising=False)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "mcp-envelope.toml").write_text(f'vault = "{folder}/elsewhere.db"\ntokens = 500\n')
    monkeypatch.chdir(folder)
    return folder


def place(gateway: Gateway) -> str:
    assert gateway.vault is not None
    found = Path(gateway.vault.store.place).name
    gateway.close()
    return found


def test_a_file_that_was_only_found_may_not_say_where_results_are_kept(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = Gateway(Settings(environ={}), ledger=False)
    # It counts otherwise.
    assert gateway.policy("any").tokens == 500
    assert place(gateway) == "vault.db"
    assert "not named explicitly" in caplog.text


def test_one_that_was_named_may(project: Path) -> None:
    named = project / "mcp-envelope.toml"
    assert place(Gateway(Settings(named, {}), ledger=False)) == "elsewhere.db"
    environ = {"MCP_ENVELOPE_CONFIG": str(named)}
    assert place(Gateway(Settings(environ=environ), ledger=False)) == "elsewhere.db"


def test_so_may_the_environment_and_the_program(project: Path) -> None:
    environ = {"MCP_ENVELOPE_VAULT": str(project / "mine.db")}
    assert place(Gateway(Settings(environ=environ), ledger=False)) == "mine.db"
    assert place(Gateway(Settings(environ={}), vault=str(project / "given.db"), ledger=False)) == "given.db"
    assert Gateway(Settings(environ={}), vault="none", ledger=False).vault is None


def test_a_failure_is_within_the_clients_limit_for_failures() -> None:
    gateway, asking = Gateway(Settings(environ={}), vault="none", ledger=False), client("qwen-code")
    call = Call(tool="t", policy=gateway.policy("t", client=asking), client=asking)
    sealed = gateway.finish(Result([text_block("abc \n" * 2700)], None, True), call)
    assert sealed is not None
    # The limit is in characters, and a mark in the text has three bytes.
    assert len(shown(sealed.content).decode()) <= 13_000


@pytest.mark.parametrize("meter", METERS)
def test_a_result_passes_up_to_the_last_token_of_its_budget(meter: str, tmp_path: Path) -> None:
    """And one token more doesn't, however it is counted."""
    text = "Nothing here is certain by its length: à la carte, 1234567890. " * 30
    size = meter_named(meter).count(text.encode())
    for spare in (1, 0, -1):
        limit = {"bytes": size + spare} if meter == "bytes" else {"tokens": size + spare, "meter": meter}
        written = "\n".join(f"{name} = {value!r}" for name, value in limit.items())
        (tmp_path / "mcp-envelope.toml").write_text(written)
        gateway = Gateway(Settings(tmp_path / "mcp-envelope.toml"), vault="none", ledger=False)
        call = Call(tool="t", policy=gateway.policy("t"))
        sealed = gateway.finish(Result([text_block(text)]), call)
        assert (sealed is None) == (spare >= 0)
        if sealed is not None:
            assert not sealed.is_error
            assert meter_named(meter).count(shown(sealed.content)) <= size + spare
            assert json.loads(sealed.content)[-1]["text"].startswith("Nothing here is certain")


def test_published_schemas_are_forgotten_by_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 60_000
    monkeypatch.setattr("mcp_envelope.gateway._MOST_PUBLISHED", most)
    publisher, shape = Publisher(), Policy().shape

    def schema(number: int) -> dict[str, Any]:
        return {"type": "object", "properties": {f"{number}, {each}": {} for each in range(500)}}

    first = publisher.of(shape, schema(0))
    assert publisher.of(shape, schema(0)) is first
    for number in range(1, 20):
        publisher.of(shape, schema(number))
        assert 0 < sum(len(text) for _, text, _, _ in publisher._published) <= most
        assert len(publisher._by_id) <= most // len(encode(schema(0)))
    assert publisher.of(shape, schema(0)) == first
