"""Comments that silence findings, read as flake8 reads them."""

from __future__ import annotations

import pytest

from mcp_envelope.lint import Source, lint

from .marked import in_tool

QUIET = [
    "return json.dumps(rows)  # noqa",
    "return json.dumps(rows)  # NOQA",
    "return json.dumps(rows)  # noqa: ENV003",
    "return json.dumps(rows)  # noqa:E501,ENV003",
    "return json.dumps(rows)  # noqa: E501 ENV003 the client wants text",
    "return json.dumps(rows)  # noqa: ENV0",
    "return json.dumps(rows)  # type: ignore  # noqa: ENV003",
    'return json.dumps(rows, indent="""\n\n""")  # noqa: ENV003',
    "return \\\n    json.dumps(rows)  # noqa: ENV003",
    'return f"""\n\n{text[:4000]}\n\n"""  # noqa: ENV004',
]
LOUD = [
    "return json.dumps(rows)  # noqa: ENV001",
    "return json.dumps(rows)  # noqa: E501",
    'return json.dumps(rows, indent="# noqa")',
    "# noqa\nreturn json.dumps(rows)",
    "return json.dumps(rows)\n# noqa",
    "return json.dumps(rows)  # quiet please",
    "return json.dumps(rows)  # mcp-envelope: offline",
]


def count(code: str) -> int:
    return len(lint(Source(code.encode())))


@pytest.mark.parametrize("body", QUIET)
def test_quiet(body: str) -> None:
    assert count(in_tool(body)) == 0


@pytest.mark.parametrize("body", LOUD)
def test_loud(body: str) -> None:
    assert count(in_tool(body)) == 1


def test_a_line_speaks_for_itself() -> None:
    assert count(in_tool("if rows:\n    return json.dumps(rows)  # noqa\nreturn json.dumps(text)")) == 1


def test_kinder_than_flake8() -> None:
    assert count(in_tool("return json.dumps(rows)  # noqa: env003")) == 0
    assert count(in_tool("return json.dumps(rows)  #noqa")) == 0


def test_a_whole_file() -> None:
    code = in_tool("return json.dumps(rows)")
    assert count("# mcp-envelope: off\n" + code) == 0
    assert count(code + "# MCP-Envelope: OFF\n") == 0
    assert count("'# mcp-envelope: off'\n" + code) == 1
