"""Pictures that a tool returns as its library's own: small ones pass, a long page comes in tiles."""

from __future__ import annotations

import base64
from io import BytesIO
from typing import Any

import fastmcp.utilities.types
import mcp.server.mcpserver
import mcp_types as types
import pytest
from lab.cases import way_back
from mcp.server.lowlevel import Server
from PIL import Image

from mcp_envelope.servers.sdk import envelope

from ..proxy import screens
from .harness import DIALECTS, LIBRARIES, connected, enveloped_server, run

PICTURES = {"fastmcp": fastmcp.utilities.types.Image, "mcpserver": mcp.server.mcpserver.Image}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_pictures_stay_pictures(library: str, dialect: str, tmp_path: Any) -> None:
    picture, sent, long = PICTURES[library], screens.screenshot(200_000), screens.page(5400)

    def shot():  # type: ignore[no-untyped-def]
        return picture(data=sent, format="png")

    def page():  # type: ignore[no-untyped-def]
        return picture(data=long, format="png")

    async def main() -> None:
        vault = str(tmp_path / "vault.db")
        async with connected(enveloped_server(library, shot, page, dialect=dialect, vault=vault)) as session:
            seen = await session.call("shot")
            assert [base64.b64decode(each.data) for each in seen.content if each.type == "image"] == [sent]
            seen = await session.call("page")
            (tile,) = [base64.b64decode(each.data) for each in seen.content if each.type == "image"]
            assert Image.open(BytesIO(tile)).size == (1280, 1800)
            assert any("0,1800,1280,1800" in each.text for each in seen.content if each.type == "text")

    run(main)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_pictures_of_a_low_level_server_stay_pictures(dialect: str, tmp_path: Any) -> None:
    sent = {"shot": screens.screenshot(200_000), "page": screens.page(5400)}

    async def on_list(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[types.Tool(name=name, input_schema={"type": "object"}) for name in sent]
        )

    async def on_call(ctx: Any, params: Any) -> types.CallToolResult:
        data = base64.b64encode(sent[params.name]).decode()
        return types.CallToolResult(
            content=[
                types.TextContent(type="text", text="a word " * 9000),
                types.ImageContent(type="image", data=data, mime_type="image/png"),
            ]
        )

    server = Server[Any]("screens", on_list_tools=on_list, on_call_tool=on_call)
    envelope(server, dialect=dialect, vault=str(tmp_path / "vault.db"), budget=2000)

    async def main() -> None:
        async with connected(server) as session:
            seen = await session.call("shot")
            assert [base64.b64decode(each.data) for each in seen.content if each.type == "image"] == [
                sent["shot"]
            ]
            assert sum(len(each.text) for each in seen.content if each.type == "text") < 12_000
            seen = await session.call("page")
            (tile,) = [base64.b64decode(each.data) for each in seen.content if each.type == "image"]
            assert Image.open(BytesIO(tile)).size == (1280, 1800)
            said = "".join(each.text for each in seen.content if each.type == "text")
            assert "0,1800,1280,1800" in said
            assert way_back(said)

    run(main)
