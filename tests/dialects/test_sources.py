"""A dialect's own variables and files hold, however the dialect was chosen."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcp_envelope import seal
from mcp_envelope.config import Settings
from mcp_envelope.gateway import Call, Gateway
from mcp_envelope.payload import Result
from mcp_envelope.proxy.interceptor import Interceptor
from tests.cli.harness import process
from tests.servers.harness import ask, enveloped_server, wire

PAYLOAD: dict[str, Any] = {"results": [{"id": n, "text": "x" * 20} for n in range(400)], "total": 400}
TOOL = "scan"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("CTXO_RESPONSE_LIMIT", "SCALPEL_MCP_INFO", "MCP_ENVELOPE_DIALECT", "MCP_ENVELOPE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def by_seal(dialect: str) -> dict[str, Any]:
    return seal(PAYLOAD, dialect=dialect, tool=TOOL).to_result()


def by_gateway(dialect: str) -> dict[str, Any]:
    gateway = Gateway(Settings(interval=0), vault="none", ledger=False, dialect=dialect)
    call = Call(tool=TOOL, policy=gateway.policy(TOOL))
    sealed = gateway.finish(Result([json.dumps({"type": "text", "text": ""}).encode()], _encoded()), call)
    assert sealed is not None
    return sealed.to_result()


def by_variable(dialect: str) -> dict[str, Any]:
    settings = Settings(environ={**os.environ, "MCP_ENVELOPE_DIALECT": dialect})
    return seal(PAYLOAD, policy=settings.policy(TOOL), tool=TOOL).to_result()


def by_proxy(dialect: str) -> dict[str, Any]:
    proxy = Interceptor(Gateway(Settings(interval=0), vault="none", ledger=False, dialect=dialect))
    proxy.from_client(_frame(id=1, method="tools/list"))
    proxy.from_server(_frame(id=1, result={"tools": [{"name": TOOL, "inputSchema": {"type": "object"}}]}))
    proxy.from_client(_frame(id=2, method="tools/call", params={"name": TOOL, "arguments": {}}))
    text = [{"type": "text", "text": json.dumps(PAYLOAD)}]
    answer = proxy.from_server(_frame(id=2, result={"content": text, "structuredContent": PAYLOAD}))
    result: dict[str, Any] = json.loads(answer.to_client[0])["result"]
    return result


def by_fastmcp(dialect: str) -> dict[str, Any]:
    return _asked("fastmcp", dialect)


def by_mcpserver(dialect: str) -> dict[str, Any]:
    return _asked("mcpserver", dialect)


def by_command(dialect: str) -> dict[str, Any]:
    Path("payload.json").write_text(json.dumps(PAYLOAD))
    outcome = process("seal", "payload.json", "--dialect", dialect, "--tool", TOOL, "--vault", "none")
    result: dict[str, Any] = json.loads(outcome.out)
    return result


def _asked(library: str, dialect: str) -> dict[str, Any]:
    result = ask(enveloped_server(library, scan, dialect=dialect), TOOL)
    shown: dict[str, Any] = json.loads(wire(result))
    return shown


def scan() -> dict[str, Any]:
    return PAYLOAD


def _encoded() -> bytes:
    return json.dumps(PAYLOAD).encode()


def _frame(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


WAYS = (by_seal, by_gateway, by_variable, by_proxy, by_fastmcp, by_mcpserver, by_command)
Way = Callable[[str], dict[str, Any]]


@pytest.mark.parametrize("way", WAYS)
def test_ctxo_has_its_limit(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CTXO_RESPONSE_LIMIT", "900")
    text = way("ctxo")["content"][0]["text"]
    assert 700 < len(text.encode()) <= 900
    monkeypatch.setenv("CTXO_RESPONSE_LIMIT", "1500")
    assert 1300 < len(way("ctxo")["content"][0]["text"].encode()) <= 1500


@pytest.mark.parametrize("way", WAYS)
def test_scalpel_has_its_debug_mode(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(way("scalpel")["structuredContent"]) == ["data"]
    monkeypatch.setenv("SCALPEL_MCP_INFO", "debug")
    shown = way("scalpel")["structuredContent"]
    assert list(shown) == [
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


@pytest.mark.parametrize("way", WAYS)
def test_scalpel_has_its_file(way: Way, folder: Path) -> None:
    (folder / ".code-scalpel").mkdir()
    config = folder / ".code-scalpel" / "response_config.json"
    config.write_text('{"tool_overrides": {"scan": {"include_only": ["total"]}}} // only this')
    assert way("scalpel")["structuredContent"] == {"data": {"total": 400}}


def test_plain_seal_reads_nothing_of_ours(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "mcp-envelope.toml").write_text('profile = "debug"\nexclude_fields = ["total"]')
    monkeypatch.setenv("MCP_ENVELOPE_PROFILE", "debug")
    assert list(by_seal("scalpel")["structuredContent"]) == ["data"]
    assert "total" in by_seal("scalpel")["structuredContent"]["data"]


def test_arguments_are_stronger_than_a_dialects_own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CTXO_RESPONSE_LIMIT", "900")
    sealed = seal(PAYLOAD, dialect="ctxo", max_bytes=2000)
    assert 1800 < len(sealed.to_result()["content"][0]["text"].encode()) <= 2000


def test_a_changed_file_applies_to_the_next_call(folder: Path) -> None:
    gateway = Gateway(Settings(interval=0), vault="none", ledger=False, dialect="scalpel")
    assert gateway.policy(TOOL).detail == "minimal"
    (folder / ".code-scalpel").mkdir()
    config = folder / ".code-scalpel" / "response_config.json"
    for profile in ("debug", "standard"):
        config.write_text(json.dumps({"global": {"profile": profile}}))
        assert gateway.policy(TOOL).detail == profile
    config.unlink()
    assert gateway.policy(TOOL).detail == "minimal"
