"""The server whose tools the clients call: every kind of result, each of a size that the call asks for.

Strategy: every row, line and block carries a mark (`#00042`), so that one can count what of a result a model was
shown. It's made with the low-level server of the official SDK, which sends results as they are given.
"""

from __future__ import annotations

import base64
import json
import random
import struct
import zlib
from functools import cache
from typing import Any

import anyio
import mcp.types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

_ROW: dict[str, Any] = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "customer": {"type": "string"}, "total": {"type": "number"}},
    "required": ["id", "customer", "total"],
}
_ROWS: dict[str, Any] = {
    "type": "object",
    "properties": {"rows": {"type": "array", "items": _ROW}, "count": {"type": "integer"}},
    "required": ["rows", "count"],
}
_LANES: dict[str, Any] = {
    "type": "object",
    "properties": {"words": {"type": "string"}},
    "required": ["words"],
}
TOOLS: dict[str, tuple[str, dict[str, Any] | None]] = {
    "lanes": ("Says different things in its two lanes.", _LANES),
    "typed_rows": ("Orders, as structure and as the same text.", _ROWS),
    "untyped_rows": ("Orders, as a JSON array in a text block.", None),
    "long_text": ("A log.", None),
    "short_lines": ("A log of very short lines.", None),
    "one_line": ("A long text without a line break.", None),
    "failure": ("Fails, and says why at length.", None),
    "picture": ("A screenshot.", None),
    "picture_and_rows": ("A screenshot, and orders as structure.", _ROWS),
    "text_blocks": ("Orders, one text block each.", None),
    "resource_link": ("A link to a report.", None),
    "embedded_resource": ("A report, embedded.", None),
    "embedded_image": ("A screenshot, embedded.", None),
    "audio": ("A recording.", None),
    "archive": ("A report, packed.", None),
}


def rows(size: int) -> list[dict[str, Any]]:
    """Rows that are `size` characters as compact JSON, or a few less."""
    return [
        {
            "id": f"#{number:05d}",
            "customer": f"Customer {number * 7919 % 1000:03d}",
            "total": number * 31 % 977 + 0.5,
        }
        for number in range(max(1, size // 56))
    ]


def lines(size: int) -> str:
    return "\n".join(
        f"#{number:05d} worker {number * 7919 % 89:02d} finished its part"
        for number in range(max(1, size // 35))
    )


@cache
def screenshot(size: int, width: int = 1280, height: int = 800) -> str:
    """A PNG of about `size` bytes, as base64: an even page with a patch of noise."""
    noise, side = random.Random(13), max(1, round((size / 3) ** 0.5))
    scanlines = []
    for y in range(height):
        left = noise.randbytes(3 * side) if y < side else b""
        scanlines.append(b"\0" + left + bytes((240, 240, 235)) * (width - len(left) // 3))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"".join(scanlines))) + chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode()


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _text(text: str) -> types.TextContent:
    return types.TextContent(type="text", text=text)


@cache
def recording(size: int) -> str:
    """A WAV file of `size` bytes or a few more, as base64: noise."""
    header = struct.pack(
        "<4sI8sIHHIIHH4sI", b"RIFF", 36 + size, b"WAVEfmt ", 16, 1, 1, 8000, 8000, 1, 8, b"data", size
    )
    return base64.b64encode(header + random.Random(13).randbytes(size)).decode()


def _image(size: int) -> types.ImageContent:
    return types.ImageContent(type="image", data=screenshot(size), mime_type="image/png")


def result(tool: str, size: int) -> types.CallToolResult:
    listed = rows(size)
    typed = {"rows": listed, "count": len(listed)}
    few = {"rows": rows(300), "count": len(rows(300))}
    content: list[types.ContentBlock]
    structure: dict[str, Any] | None = None
    match tool:
        case "lanes":
            content, structure = [_text("SHOWN-TEXT")], {"words": "SHOWN-STRUCTURE"}
        case "typed_rows":
            content, structure = [_text(_compact(typed))], typed
        case "untyped_rows":
            content = [_text(_compact(listed))]
        case "long_text" | "failure":
            content = [_text(lines(size))]
        case "short_lines":
            content = [_text("\n".join(f"#{number:05d}" for number in range(max(1, size // 7))))]
        case "one_line":
            content = [_text(lines(size).replace("\n", "; "))]
        case "picture":
            content = [_image(size)]
        case "picture_and_rows":
            content, structure = [_text(_compact(few)), _image(size)], few
        case "text_blocks":
            content = [_text(_compact(row)) for row in listed]
        case "resource_link":
            content = [_text("#00000 The report:")]
            content.append(types.ResourceLink(type="resource_link", uri="lab://report", name="report-link"))
        case "embedded_resource":
            report = types.TextResourceContents(uri="lab://report", mime_type="text/plain", text=lines(size))
            content = [types.EmbeddedResource(type="resource", resource=report)]
        case "embedded_image":
            shot = types.BlobResourceContents(uri="lab://shot", mime_type="image/png", blob=screenshot(size))
            content = [_text("#00000 The page:"), types.EmbeddedResource(type="resource", resource=shot)]
        case "audio":
            sound = types.AudioContent(type="audio", data=recording(size), mime_type="audio/wav")
            content = [_text("#00000 The call:"), sound]
        case "archive":
            packed = base64.b64encode(random.Random(13).randbytes(size)).decode()
            zipped = types.BlobResourceContents(uri="lab://zip", mime_type="application/zip", blob=packed)
            content = [_text("#00000 The report:"), types.EmbeddedResource(type="resource", resource=zipped)]
        case _:
            raise ValueError(f"There is no tool {tool}.")
    return types.CallToolResult(content=content, structured_content=structure, is_error=tool == "failure")


async def _list(context: object, params: object) -> types.ListToolsResult:
    given = {
        "type": "object",
        "properties": {"size": {"type": "integer", "description": "characters, or bytes"}},
    }
    return types.ListToolsResult(
        tools=[
            types.Tool(name=name, description=about, input_schema=given, output_schema=schema)
            for name, (about, schema) in TOOLS.items()
        ]
    )


async def _call(context: object, params: types.CallToolRequestParams) -> types.CallToolResult:
    return result(params.name, int((params.arguments or {}).get("size", 1000)))


async def main() -> None:
    server = Server[Any]("fixture", version="1", on_list_tools=_list, on_call_tool=_call)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
