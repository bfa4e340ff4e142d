"""Samples that say themselves what must be found: `# >> ENV003` stands on the line of a finding."""

from __future__ import annotations

import re
from textwrap import dedent

from mcp_envelope.lint import SourceFile, lint

_MARK = re.compile(r"# >> ((?:ENV\d{3} ?)+)")

FASTMCP = """
import json
from fastmcp import FastMCP
from mcp_envelope.servers.fastmcp import EnvelopeMiddleware

mcp = FastMCP("sample")
mcp.add_middleware(EnvelopeMiddleware())
"""
SDK = """
import json
import mcp_types as types
from mcp.server import MCPServer
from mcp_envelope.servers.sdk import envelope

mcp = MCPServer("sample")
envelope(mcp)
"""


def expected(code: str) -> list[tuple[int, str]]:
    return [
        (number, rule)
        for number, line in enumerate(code.splitlines(), 1)
        for mark in _MARK.findall(line)
        for rule in mark.split()
    ]


def found(code: str) -> list[tuple[int, str]]:
    return sorted((finding.line, finding.rule) for finding in lint(SourceFile(code.encode())))


def check(code: str, before: str = "") -> None:
    code = before + dedent(code)
    assert found(code) == sorted(expected(code)), code


def in_tool(body: str, before: str = FASTMCP, returns: str = "") -> str:
    """A module with one tool that has this body."""
    lines = dedent(body).strip("\n").splitlines()
    return "\n".join(
        [before, "@mcp.tool()", f"def answer(limit, rows, text){returns}:", *(f"    {x}" for x in lines), ""]
    )
