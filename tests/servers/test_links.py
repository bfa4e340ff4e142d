"""Links to stored results: whatever names one, `resources/read` follows it, on every server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from mcp_envelope import Reply
from mcp_envelope.dialects.gel import compose_tool_payload

from .harness import LIBRARIES, connected, enveloped_server, put, run


def rows() -> dict[str, Any]:
    return {"rows": [{"n": n, "text": "some words"} for n in range(4000)]}


def preview() -> dict[str, Any]:
    return {"rows": [{"n": n, "text": "some words"} for n in range(100)]}


def words() -> Any:
    return Reply({"n": 1}, texts=["word " * 2000])


def only_words() -> Any:
    return Reply(texts=["word " * 2000])


async def followed(session: Any, uri: str) -> str:
    found = await session.client.read_resource(uri)
    contents = found if isinstance(found, list) else found.contents
    return str(contents[0].text)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("tool", [rows, preview, words, only_words])
def test_a_link_leads_to_all_of_it(library: str, tool: Any, vault: str) -> None:
    async def main() -> None:
        server = enveloped_server(library, tool, dialect="gel", vault=vault)
        async with connected(server) as session:
            result = await session.call(tool.__name__)
            [link] = [block for block in result.content if block.type == "resource_link"]
            assert result.structured_content["meta"]["truncated"] is True
            assert sum(len(block.text) for block in result.content if block.type == "text") <= 2000
            whole = json.loads(await followed(session, str(link.uri)))
            if tool in (rows, preview):
                assert whole == tool()
            else:
                assert whole["content"][0]["text"] == "word " * 2000
                assert whole.get("structuredContent") == ({"n": 1} if tool is words else None)

    run(main)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_payload_composed_by_hand_links_to_the_vault_of_its_call(library: str, vault: str) -> None:
    composed: dict[str, Any] = {}

    def tool() -> dict[str, Any]:
        composed.update(compose_tool_payload({"summary": "s"}, {"n": 1}, ["word " * 2000]))
        return {"done": True}

    async def main() -> None:
        async with connected(enveloped_server(library, tool, dialect="gel", vault=vault)) as session:
            await session.call("tool")
            [link] = [block for block in composed["content"] if block["type"] == "resource_link"]
            whole = json.loads(await followed(session, link["uri"]))
            assert whole["content"][1]["text"] == "word " * 2000
            assert whole["structuredContent"]["data"] == {"n": 1}

    run(main)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_link_to_nothing_is_an_error_with_its_reason(library: str, vault: str) -> None:
    async def main() -> None:
        async with connected(enveloped_server(library, rows, vault=vault)) as session:
            with pytest.raises(MCPError, match="HANDLE_UNKNOWN"):
                await followed(session, "envelope://neverstored")

    run(main)


def test_a_low_level_server_without_resources_stays_one(vault: str) -> None:
    import mcp_types

    async def tools(ctx: Any, params: Any) -> Any:
        return mcp_types.ListToolsResult(tools=[mcp_types.Tool(name="t", input_schema={"type": "object"})])

    async def call(ctx: Any, params: Any) -> Any:
        block = mcp_types.TextContent(type="text", text=json.dumps(rows()))
        return mcp_types.CallToolResult(content=[block])

    server: Server[Any] = Server("low", on_list_tools=tools, on_call_tool=call)
    put(server, dialect="gel", vault=vault)

    async def main() -> None:
        async with connected(server, "legacy") as session:
            result = await session.call("t")
            [link] = [block for block in result.content if block.type == "resource_link"]
            assert "some words" in await followed(session, link.uri)
            with pytest.raises(MCPError, match="not found"):
                await followed(session, "file:///other")
            assert session.client.server_capabilities.resources is None

    run(main)
