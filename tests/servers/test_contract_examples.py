"""The published documents' own examples, through servers and the proxy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_envelope import Failure
from mcp_envelope.config import Settings
from mcp_envelope.gateway import Gateway
from mcp_envelope.proxy.interceptor import Interceptor

from .harness import LIBRARIES, connected, enveloped_server, run

DATA = {"risk_level": "high", "vulnerabilities": list[str]()}


def security_scan() -> dict[str, Any]:
    return DATA


def extract_code(file: str, how: str = "raised") -> dict[str, Any]:
    if how == "failed":
        raise Failure("NOT_FOUND", f"File not found: {file}")
    with open(file):
        return {}


def call(library: str, tool: str, arguments: dict[str, Any], meta: dict[str, Any] | None = None) -> Any:
    async def main() -> Any:
        async with connected(server) as session:
            result = await session.call(tool, arguments, meta=meta)
            return json.loads(result.content[0].text)

    server = enveloped_server(library, security_scan, extract_code, dialect="scalpel")
    return run(main)


@pytest.mark.parametrize("library", LIBRARIES)
def test_minimal_is_the_data_alone(library: str) -> None:
    assert call(library, "security_scan", {}) == {"data": DATA}
    assert call(library, "security_scan", {}, {"progressToken": 3}) == {"data": DATA}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", ["request_id", "requestId"])
@pytest.mark.parametrize("value", ["8b3e", 17])
def test_a_clients_request_id_is_echoed(library: str, name: str, value: object) -> None:
    assert call(library, "security_scan", {}, {name: value}) == {"request_id": str(value), "data": DATA}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("how", ["raised", "failed"])
def test_the_error_example(library: str, how: str) -> None:
    shown = call(library, "extract_code", {"file": "/missing.py", "how": how})
    assert shown == {"error": {"error": "File not found: /missing.py", "error_code": "not_found"}}


@pytest.mark.parametrize(
    ("meta", "shown"),
    [
        ({}, {"data": DATA}),
        ({"progressToken": 5}, {"data": DATA}),
        ({"request_id": True}, {"data": DATA}),
        ({"request_id": "8b3e"}, {"request_id": "8b3e", "data": DATA}),
        ({"requestId": 17}, {"request_id": "17", "data": DATA}),
    ],
)
def test_the_proxy_echoes_what_the_client_sent(meta: dict[str, Any], shown: dict[str, Any]) -> None:
    gateway = Gateway(Settings("/dev/null"), vault="none", ledger=False, dialect="scalpel")
    proxy = Interceptor(gateway)
    params = {"name": "security_scan", "arguments": {}, "_meta": meta}
    proxy.from_client(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode())
    tools = {"tools": [{"name": "security_scan", "inputSchema": {"type": "object"}}]}
    proxy.from_server(json.dumps({"jsonrpc": "2.0", "id": 1, "result": tools}).encode())
    asked = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params}
    proxy.from_client(json.dumps(asked).encode())
    result = {"content": [{"type": "text", "text": json.dumps(DATA)}], "structuredContent": DATA}
    answer = proxy.from_server(json.dumps({"jsonrpc": "2.0", "id": 9, "result": result}).encode())
    assert json.loads(answer.to_client[0])["result"]["structuredContent"] == shown
