"""Unusual source files: never a traceback, and a position wherever one is known; comments that silence findings."""

from __future__ import annotations

import ast
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcp_envelope.lint import NotPython, SourceFile, fix, lint, lint_tree

from ..conftest import examples
from .marked import FASTMCP, in_tool

TOOL = in_tool("return json.dumps(rows)").encode()
NOT_PYTHON = {
    "a null byte": (b"x = 1\0\n" + TOOL, "null bytes", 1, None),
    "a wrong encoding": (b"# coding: klingon\nx = 1\n", "unknown encoding", 1, 0),
    "no text encoding": (b"# coding: rot13\nx = 1\n", "", 1, None),
    "other bytes": (b"x = 1\ny = '\xff'\n", "utf-8", 2, None),
    "other bytes than it says": (b"# coding: ascii\n\n# \xc3\xa9\n", "ascii", 3, None),
    "a syntax error": (b"x = 1\ndef f(:\n", "invalid syntax", 2, 6),
    "an open string": (b"x = '\n", "unterminated string", 1, 4),
    "indentation": (b"if x:\nreturn\n", "indented block", 2, 0),
    "deep parentheses": (b"(" * 5000 + b")" * 5000, "nested", 1, None),
    "deep operators": (b"x = " + b"-" * 200_000 + b"1\n", "nested", 1, None),
    "UTF-16": ("x = 1\n".encode("utf-16"), "", 1, None),
    "Python 2": (b"print 'x'\n", "Missing parentheses", 1, 0),
}


@pytest.mark.parametrize("name", NOT_PYTHON)
def test_not_python(name: str) -> None:
    data, words, line, column = NOT_PYTHON[name]
    with pytest.raises(NotPython) as caught:
        lint(SourceFile(data))
    assert words in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.line == line
    assert column is None or caught.value.column == column


@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"\xef\xbb\xbf", b"\f\n", b"# only a comment", b"'\\d'\n", b"x = 1 is 1\n", b"\r\r\n"],
)
def test_files_with_little_in_them(data: bytes) -> None:
    assert lint(SourceFile(data)) == []
    assert fix(SourceFile(data)).data == data


@pytest.mark.parametrize("before", [b"\xef\xbb\xbf", b"# coding: utf-8\n", b"\f\n", b"'\\d'\n"])
def test_a_tool_behind_something_odd(before: bytes) -> None:
    (finding,) = lint(SourceFile(before + TOOL))
    assert finding.line == TOOL.count(b"\n") + before.count(b"\n")


@pytest.mark.parametrize(
    "body",
    [
        "return " + " + ".join(["text"] * 500),
        "return " + "{'a': " * 80 + "rows" + "}" * 80,
        "return " + "(" * 80 + "json.dumps(rows)" + ")" * 80,
        "return text" + ".strip()" * 400,
        "\n".join(f"x{n} = x{n + 1} if text else x{n + 2}" for n in range(300)) + "\nreturn x0",
        "x = x\nx = x or x\nreturn x",
        "return " + " if text else ".join(["json.dumps(rows)"] * 200),
        "while True:\n    text = text[:500]\n    return text",
    ],
)
def test_tools_nested_deeply(body: str) -> None:
    lint(SourceFile(in_tool(body).encode()))


def test_a_tree_too_deep_for_us_is_said() -> None:
    """The parser took it; whoever walks it may not be able to."""
    code = in_tool("return " + " + ".join(["text"] * 2500))
    try:
        source = SourceFile(code.encode())
    except NotPython:
        pytest.skip("this Python's parser does not take it either")
    with suppress(NotPython):
        lint(source)
    lint_tree(source.tree)


def test_recursion_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def deep(*_: object) -> None:
        raise RecursionError

    source = SourceFile(TOOL)
    monkeypatch.setattr("mcp_envelope.lint.findings", deep)
    with pytest.raises(NotPython, match="nested too deeply"):
        lint(source)
    assert lint_tree(source.tree) == []


def test_loops_of_names() -> None:
    code = FASTMCP + "a = b\nb = a\nclass C(C): pass\nclass D(E): pass\nclass E(D): pass\n"
    code += "@a.tool\ndef f(): return f()\n@mcp.tool\ndef g(): return h()\ndef h(): return g()\n"
    code += "E().tool(f)\nC().tool(a)\n"
    assert lint(SourceFile(code.encode())) == []


@settings(max_examples=examples(300))
@given(st.binary(max_size=200))
@example(b"# coding: undefined\n\xff")
@example(b"# coding: idna\n\xff")
@example(b"# coding: utf-8-sig\nx")
@example(b"# coding: utf-16\nx")
@example(b"# coding: unicode_escape\n'\\ud800'\n@mcp.tool()\n")
def test_any_bytes(data: bytes) -> None:
    try:
        source = SourceFile(data)
    except NotPython:
        return
    assert lint(source) == []
    assert fix(source).data == data


WORDS = (
    *(
        "mcp",
        "FastMCP",
        "@",
        ".",
        "tool",
        "(",
        ")",
        ":",
        "def",
        "f",
        "return",
        "json",
        "dumps",
        "[",
        "]",
        "{",
        "}",
    ),
    *(
        "'",
        '"',
        "text",
        "=",
        "TextContent",
        "content",
        ",",
        "\n   ",
        "await",
        "lambda",
        "if",
        "else",
        "for",
        "in",
    ),
    *(
        "not",
        "*",
        "**",
        "->",
        "str",
        "x",
        "class",
        "Server",
        "async",
        "with",
        "as",
        "try",
        "except",
        "import",
    ),
    *("from", "0", "500"),
)


@settings(max_examples=examples(300))
@given(st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join))
def test_any_words(text: str) -> None:
    try:
        source = SourceFile((FASTMCP + text).encode())
    except NotPython:
        return
    ast.parse(fix(source).data)
    lint(source)


# -- comments that silence findings, read as flake8 reads them -----------------------------------------------

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
    return len(lint(SourceFile(code.encode())))


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
