"""A server whose tools each break a promise that `mcp-envelope check` looks at."""

from __future__ import annotations

import json
import struct
import sys
import zlib
from base64 import b64encode
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from benchmarks.secret_formats import FORMATS

ROWS = {
    "type": "object",
    "properties": {"rows": {"type": "array", "items": {"type": "object"}}},
    "required": ["rows"],
}
COUNT = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
NOTHING: dict[str, Any] = {"type": "object"}
READS = types.ToolAnnotations(read_only_hint=True)
TOOLS = [
    types.Tool(name="rows", input_schema=COUNT, output_schema=ROWS, annotations=READS),
    types.Tool(name="wrong", input_schema=NOTHING, output_schema=ROWS, annotations=READS),
    types.Tool(name="leak", input_schema=NOTHING, annotations=READS),
    types.Tool(name="crash", input_schema=NOTHING, annotations=READS),
    types.Tool(name="picture", input_schema=NOTHING, annotations=READS),
    types.Tool(name="write", input_schema=NOTHING),
]


def png() -> str:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = zlib.compress(b"\0\0\0\0" * 1)
    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    return b64encode(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", lines) + chunk(b"IEND", b"")
    ).decode()


def answer(name: str, arguments: dict[str, Any]) -> types.CallToolResult:
    if name == "rows":
        if not isinstance(arguments.get("count"), int):
            return types.CallToolResult(content=[text("count is a number")], is_error=True)
        rows = {"rows": [{"id": n, "name": f"row {n}"} for n in range(arguments["count"])]}
        return types.CallToolResult(content=[text(json.dumps(rows))], structured_content=rows)
    if name == "wrong":
        return types.CallToolResult(content=[text("{}")], structured_content={"lines": []})
    if name == "crash":
        trace = 'Traceback (most recent call last):\n  File "x.py", line 1\nValueError: no'
        return types.CallToolResult(content=[text(trace)], is_error=True)
    if name == "picture":
        return types.CallToolResult(
            content=[types.ImageContent(type="image", data=png(), mime_type="image/png")]
        )
    if name == "leak":
        secret = next(each for each in FORMATS if each.title == "GitHub personal").example()[0]
        return types.CallToolResult(content=[text(f"token: {secret}")])
    raise AssertionError(f"{name} was called")


def text(words: str) -> types.TextContent:
    return types.TextContent(type="text", text=words)


async def on_list(context: Any, parameters: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=TOOLS)


async def on_call(context: Any, parameters: Any) -> types.CallToolResult:
    return answer(parameters.name, parameters.arguments or {})


async def main() -> None:
    server = Server("flawed", on_list_tools=on_list, on_call_tool=on_call)
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
