"""`mcp-envelope serve`: one tool, for real clients of both eras."""

from __future__ import annotations

import json
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from mcp_envelope import seal
from mcp_envelope.config import Settings
from mcp_envelope.gateway import Gateway
from mcp_envelope.hosts.reader import serve
from mcp_envelope.vault.vault import open_vault

from ..cli.harness import COMMAND, environment


@pytest.mark.process
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_lists_and_calls_it(tmp_path: Path, mode: Any) -> None:
    address = str(tmp_path / "vault.db")
    vault = open_vault(address)
    assert vault is not None
    sealed = seal({"rows": list(range(10_000))}, tokens=300, vault=vault.of(None))
    vault.close()

    async def talk() -> None:
        env = environment(HOME=str(tmp_path), MCP_ENVELOPE_VAULT=address)
        command = StdioServerParameters(command=sys.executable, args=[*COMMAND[1:], "serve"], env=env)
        async with Client(stdio_client(command), mode=mode) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["envelope_read"]
            page = await client.call_tool("envelope_read", {"handle": sealed.handle, "path": "/rows/7"})
            assert page.content[-1].text == "7"  # type: ignore[union-attr]
            lost = await client.call_tool("envelope_read", {"handle": "none"})
            assert lost.is_error

    anyio.run(talk)


def test_whatever_else_comes_in() -> None:
    requests: list[Any] = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": {"protocolVersion": "1999-01-01"}},
        {"jsonrpc": "2.0", "id": 3, "method": "ping"},
        {"jsonrpc": "2.0", "id": 4, "method": "resources/list"},
        {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "another", "arguments": {}}},
        {
            "jsonrpc": "2.0",
            "id": 6,
            "method": "tools/call",
            "params": {"name": "envelope_read", "arguments": {}},
        },
    ]
    lines = [json.dumps(request).encode() for request in requests] + [b"no JSON", b""]
    responses = BytesIO()
    serve(Gateway(Settings(None, {}), vault="none", ledger=False), BytesIO(b"\n".join(lines)), responses)
    said = {each["id"]: each for each in map(json.loads, responses.getvalue().splitlines())}
    assert said[1]["result"]["protocolVersion"] == "2025-06-18"
    assert said[2]["result"]["protocolVersion"] == "2025-11-25"
    assert said[3]["result"] == {}
    assert {said[number]["error"]["code"] for number in (4, 5)} == {-32601}
    assert said[6]["result"]["isError"] is True
    assert list(said) == [1, 2, 3, 4, 5, 6]
