"""The headers that a request of the stateless era has over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_envelope.wire import frames, headers


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
def test_what_a_request_is_about_is_named(method: str, params: dict[str, Any], name: str | None) -> None:
    params["_meta"] = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    data = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    made = headers.modern(frames.read(data), lambda _: {})
    assert made is not None
    said = dict(made)
    assert said["mcp-method"] == method
    assert said.get("mcp-name") == name
