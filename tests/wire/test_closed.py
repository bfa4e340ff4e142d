"""When the proxy itself fails, nothing passes that was not looked at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mcp_envelope.front import Front
from mcp_envelope.policy import Settings
from mcp_envelope.wire.interceptor import Interceptor

CALL = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"log","arguments":{}}}'
ANSWER = b'{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"%b"}]}}' % (
    b"ghp_secret " * 90_000
)


def interceptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, observe: bool = False) -> Interceptor:
    front = Front(Settings(environ={}), vault=str(tmp_path / "vault.db"), ledger=False)

    def broken(*_: object, **__: object) -> object:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(front, "seal", broken)
    made = Interceptor(front, observe=observe)
    made.from_client(CALL)
    return made


def test_a_result_that_we_fail_on_is_a_coded_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (answer,) = interceptor(tmp_path, monkeypatch).from_server(ANSWER).to_client
    said = json.loads(answer)
    assert said["id"] == 7
    assert said["result"]["isError"]
    assert json.loads(said["result"]["content"][0]["text"])["_envelope"]["error"]["code"] == "INTERNAL"
    assert b"ghp_" not in answer


def test_who_only_observes_changes_nothing_even_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert interceptor(tmp_path, monkeypatch, observe=True).from_server(ANSWER).to_client == [ANSWER]
