"""The headers of stateless requests. Sessions and streams are tested through the bridge."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_envelope.proxy.frames import read
from mcp_envelope.proxy.streamable_http import encoded, stateless_headers


@pytest.mark.parametrize(
    "value", ["plain", "", " edge", "ü", "a\nb", "=?base64?eA==?=", "with space inside", "~!"]
)
def test_header_values_are_encoded_as_the_sdk_does(value: str) -> None:
    from mcp.shared.inbound import decode_header_value, encode_header_value

    assert encoded(value) == encode_header_value(value)
    assert decode_header_value(encoded(value)) == value


@pytest.mark.parametrize(
    "params", ['{"_meta":7}', '{"_meta":{"io.modelcontextprotocol/protocolVersion":7}}', "[]", '{"name":7}']
)
def test_other_messages_have_no_stateless_headers(params: str) -> None:
    frame = read(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%b}' % params.encode())
    assert stateless_headers(frame, lambda tool: {}) is None


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", {"name": "search"}, "search"),
        ("prompts/get", {"name": "greet"}, "greet"),
        ("resources/read", {"uri": "file:///a"}, "file:///a"),
        ("tasks/get", {"taskId": "t1"}, "t1"),
        ("tasks/update", {"taskId": "t1"}, "t1"),
        ("tasks/cancel", {"taskId": "t1"}, "t1"),
        ("tools/list", {}, None),
    ],
)
def test_the_name_header(method: str, params: dict[str, Any], name: str | None) -> None:
    params["_meta"] = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    data = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    made = stateless_headers(read(data), lambda _: {})
    assert made is not None
    said = dict(made)
    assert said["mcp-method"] == method
    assert said.get("mcp-name") == name
