"""Files that nobody expects: never a traceback, and a place wherever one is known."""

from __future__ import annotations

import ast
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcp_envelope.lint import NotPython, Source, lint, mend
from mcp_envelope.lint.run import lint_tree

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
    "UTF-16": ("x = 1\n".encode("utf-16"), "encoding", 1, None),
    "Python 2": (b"print 'x'\n", "Missing parentheses", 1, 0),
}


@pytest.mark.parametrize("name", NOT_PYTHON)
def test_not_python(name: str) -> None:
    data, words, line, column = NOT_PYTHON[name]
    with pytest.raises(NotPython) as caught:
        lint(Source(data))
    assert words in caught.value.reason
    assert "\n" not in caught.value.reason
    assert caught.value.line == line
    assert column is None or caught.value.column == column


@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"\xef\xbb\xbf", b"\f\n", b"# only a comment", b"'\\d'\n", b"x = 1 is 1\n", b"\r\r\n"],
)
def test_files_with_little_in_them(data: bytes) -> None:
    assert lint(Source(data)) == []
    assert mend(Source(data)).data == data


@pytest.mark.parametrize("before", [b"\xef\xbb\xbf", b"# coding: utf-8\n", b"\f\n", b"'\\d'\n"])
def test_a_tool_behind_something_odd(before: bytes) -> None:
    (finding,) = lint(Source(before + TOOL))
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
    lint(Source(in_tool(body).encode()))


def test_a_tree_too_deep_for_us_is_said() -> None:
    """The parser took it; whoever walks it may not be able to."""
    code = in_tool("return " + " + ".join(["text"] * 2500))
    try:
        source = Source(code.encode())
    except NotPython:
        pytest.skip("this Python's parser does not take it either")
    with suppress(NotPython):
        lint(source)
    lint_tree(source.tree)


def test_recursion_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def deep(*_: object) -> None:
        raise RecursionError

    source = Source(TOOL)
    monkeypatch.setattr("mcp_envelope.lint.run.Checks.spots", deep)
    with pytest.raises(NotPython, match="nested too deeply"):
        lint(source)
    assert lint_tree(source.tree) == []


def test_loops_of_names() -> None:
    code = FASTMCP + "a = b\nb = a\nclass C(C): pass\nclass D(E): pass\nclass E(D): pass\n"
    code += "@a.tool\ndef f(): return f()\n@mcp.tool\ndef g(): return h()\ndef h(): return g()\n"
    code += "E().tool(f)\nC().tool(a)\n"
    assert lint(Source(code.encode())) == []


@settings(max_examples=examples(300))
@given(st.binary(max_size=200))
@example(b"# coding: undefined\n\xff")
@example(b"# coding: idna\n\xff")
@example(b"# coding: utf-8-sig\nx")
@example(b"# coding: utf-16\nx")
@example(b"# coding: unicode_escape\n'\\ud800'\n@mcp.tool()\n")
def test_any_bytes(data: bytes) -> None:
    try:
        source = Source(data)
    except NotPython:
        return
    assert lint(source) == []
    assert mend(source).data == data


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
        source = Source((FASTMCP + text).encode())
    except NotPython:
        return
    ast.parse(mend(source).data)
    lint(source)
