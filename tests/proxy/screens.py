"""A server that returns screenshots and long pages, over stdio; `app` over HTTP."""

from __future__ import annotations

import base64
from functools import cache
from io import BytesIO
from random import Random
from typing import Any

import mcp.types as types
from mcp.server.mcpserver import MCPServer
from PIL import Image, ImageDraw, ImageFont


@cache
def screenshot(size: int) -> bytes:
    """1280×800 pixels in about so many bytes: an even page with a patch of noise."""
    image = Image.new("RGB", (1280, 800), (240, 240, 235))
    side = round((size / 3) ** 0.5)
    noise = Random(size).randbytes(3 * side * side)
    image.paste(Image.frombytes("RGB", (side, side), noise), (0, 0))
    return _png(image)


@cache
def page(height: int) -> bytes:
    """A page with a line of text every 40 pixels, which says where it is."""
    image = Image.new("RGB", (1280, height), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(24)
    for y in range(0, height, 40):
        draw.text(
            (40, y), f"line {y // 40} at {y}: the quick brown fox jumps over the lazy dog", "black", font
        )
    return _png(image)


def _png(image: Image.Image) -> bytes:
    out = BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def _content(data: bytes) -> list[types.ContentBlock]:
    image = types.ImageContent(type="image", data=base64.b64encode(data).decode(), mime_type="image/png")
    return [types.TextContent(type="text", text="What it looks like:"), image]


def make() -> MCPServer[Any]:
    server = MCPServer[Any]("screens")

    @server.tool(structured_output=False)
    def shot(size: int) -> list[types.ContentBlock]:
        return _content(screenshot(size))

    @server.tool(structured_output=False)
    def long_page(height: int, words: int = 0) -> list[types.ContentBlock]:
        return [*_content(page(height)), types.TextContent(type="text", text="a word " * words)]

    return server


if __name__ == "__main__":
    make().run("stdio")
