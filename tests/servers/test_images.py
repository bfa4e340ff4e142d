"""Pictures that a tool returns as its library's own: small ones pass, a long page comes in tiles."""

from __future__ import annotations

import base64
from io import BytesIO
from typing import Any

import fastmcp.utilities.types
import mcp.server.mcpserver
import pytest
from PIL import Image

from ..proxy import screens
from .harness import DIALECTS, LIBRARIES, connected, enveloped_server, run

PICTURES = {"fastmcp": fastmcp.utilities.types.Image, "mcpserver": mcp.server.mcpserver.Image}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_pictures_stay_pictures(library: str, dialect: str, tmp_path: Any) -> None:
    picture, sent, long = PICTURES[library], screens.screenshot(200_000), screens.page(9000)

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
