"""What `--fix` does to a source: only that, right, and no more the second time."""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastmcp import Client, FastMCP
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client as SdkClient

from mcp_envelope.lint import SourceFile, fix, lint

from ..conftest import examples
from .marked import FASTMCP, SDK, in_tool

TYPES = "import mcp_types as types\nfrom mcp_types import CallToolResult, TextContent\n"
BEFORE = FASTMCP + TYPES + "from fastmcp.tools import ToolResult\n"


def fixed(code: str) -> str:
    """The fixed source; what was announced with the findings must be what happens."""
    source = SourceFile(code.encode())
    promised = sum(finding.fixable for finding in lint(source))
    result = fix(source)
    assert (result.fixed >= promised) if promised else (result.data == source.data)
    again = fix(SourceFile(result.data))
    assert again == (result.data, 0)
    assert not any(finding.fixable for finding in lint(SourceFile(result.data)))
    return result.data.decode()


def change(body: str, returns: str = "", before: str = BEFORE) -> tuple[str, str]:
    """The header and the body of a tool after fixing; everything before it stays as it is."""
    code = in_tool(body, before, returns)
    out = fixed(code)
    head, _, tool = out.partition("@mcp.tool()\n")
    assert head == code.partition("@mcp.tool()\n")[0]
    header, _, rest = tool.partition("\n")
    lines = rest.removesuffix("\n").split("\n")
    return header.partition(")")[2].strip(), "\n".join(line.removeprefix("    ") for line in lines)


TEXT = 'TextContent(type="text", text=text)'
SIMPLE = {
    "json": ("return json.dumps(rows)", "return rows"),
    "its looks": (
        "return json.dumps(rows, indent=2, ensure_ascii=False, sort_keys=True, separators=(',', ':'))",
        "return rows",
    ),
    "a display": (
        'return json.dumps({"rows": rows, "n": len(rows)})',
        'return {"rows": rows, "n": len(rows)}',
    ),
    "a result": (f"return CallToolResult(content=[{TEXT}])", "return text"),
    "a result that says it is none": (
        f"return types.CallToolResult(content=[{TEXT}], isError=False)",
        "return text",
    ),
    "a tool result": (f"return ToolResult(content=[{TEXT}])", "return text"),
    "a tool result by place": (f"return ToolResult([{TEXT}])", "return text"),
    "blocks": (f"return [{TEXT}]", "return text"),
    "one block": (f"return {TEXT}", "return text"),
    "json in blocks": ('return [TextContent(type="text", text=json.dumps(rows, indent=2))]', "return rows"),
    "glued": (f"return[{TEXT}]", "return text"),
    "in parentheses": ("return (json.dumps(rows))", "return (rows)"),
    "an inner parenthesis": ("return json.dumps((rows))", "return rows"),
    "a tuple": ("return json.dumps((rows, text))", "return (rows, text)"),
    "two lines": ("return json.dumps(rows or\n    text)", "return (rows or\n    text)"),
    "a walrus": ("return json.dumps(found := rows)", "return (found := rows)"),
    "a comment behind it": ("return json.dumps(rows)  # all", "return rows  # all"),
    "a comment inside": (
        'return json.dumps(\n    {\n        "a": rows,  # all\n    },\n    indent=2,\n)',
        'return {\n        "a": rows,  # all\n    }',
    ),
    "other characters": ('é = "ä😀"; return json.dumps({"é": é})', 'é = "ä😀"; return {"é": é}'),
    "a long text": (
        'return CallToolResult(content=[TextContent(type="text", text=f"""a\n{text}\n  b""")])',
        'return f"""a\n{text}\n  b"""',
    ),
}
LEFT = {
    "a default": "return json.dumps(rows, default=str)",
    "an encoder": "return json.dumps(rows, cls=Mine)",
    "keywords": "return json.dumps(rows, **looks)",
    "work in a keyword": "return json.dumps(rows, indent=int(text))",
    "a comment that would be lost": "return json.dumps(\n    rows,  # all\n    indent=2,\n)",
    "a constant": "return json.dumps(None)",
    "two blocks": f"return [{TEXT}, {TEXT}]",
    "annotations": 'return [TextContent(type="text", text=text, annotations=rows)]',
    "structure": f"return ToolResult(content=[{TEXT}], structured_content=rows)",
    "further up": "out = json.dumps(rows)\nreturn out",
    "one way of two": 'return json.dumps(rows) if rows else "Nothing."',
    "an error": 'return json.dumps({"error": text})',
    "an error in blocks": 'return [TextContent(type="text", text=f"Error: {text}")]',
    "a cut": "return rows[:500]",
    "silenced": "return json.dumps(rows)  # noqa: ENV003",
}


@pytest.mark.parametrize("name", SIMPLE)
def test_simple_cases(name: str) -> None:
    body, wanted = SIMPLE[name]
    assert change(body) == (":", wanted)


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_alone(name: str) -> None:
    body = LEFT[name]
    assert change(body, " -> str") == ("-> str:", body)


ANNOTATIONS = {
    "removed": (" -> str", "return json.dumps(rows)", ":", None),
    "a text": (' -> "str"', "return json.dumps(rows)", ":", None),
    "in parentheses": (" -> (str)", "return json.dumps(rows)", ":", None),
    "an object": (
        " -> str",
        'return json.dumps({"a": rows})',
        "-> dict[str, object]:",
        "-> dict[str, object]:",
    ),
    "a list": (" -> str", "return json.dumps([row for row in rows])", "-> list[object]:", "-> list[object]:"),
    "other keys": (" -> str", "return json.dumps({1: rows})", ":", None),
    "more members": (" -> str", "return json.dumps({'a': 1, **rows})", ":", None),
    "words": (" -> CallToolResult", f"return CallToolResult(content=[{TEXT}])", "-> str:", "-> str:"),
    "words in blocks": (" -> list[types.TextContent]", f"return [{TEXT}]", "-> str:", "-> str:"),
    "already words": (" -> str", f"return [{TEXT}]", "-> str:", "-> str:"),
    "anything": (" -> Any", "return json.dumps(rows)", "-> Any:", None),
    "none": ("", 'return json.dumps({"a": rows})', ":", ":"),
}


@pytest.mark.parametrize("name", ANNOTATIONS)
def test_annotations(name: str) -> None:
    """In the official SDK an unannotated list is sent item by item: there, what is not known is left alone."""
    returns, body, fastmcp, sdk = ANNOTATIONS[name]
    assert change(body, returns)[0] == fastmcp
    assert change(body, returns)[1] != body
    header, after = change(body, returns, SDK + TYPES)
    if sdk is None:
        assert (header, after) == (f"{returns}:".strip(), body)
    else:
        assert header == sdk
        assert after != body


def test_wide_characters_before_an_annotation() -> None:
    code = FASTMCP + '@mcp.tool\ndef a(text="ä😀") -> str: return json.dumps(text)\n'
    assert fixed(code) == code.replace(" -> str", "").replace("json.dumps(text)", "text")


def test_several_returns() -> None:
    body = 'if rows:\n    return json.dumps({"a": rows})\nreturn json.dumps({"b": text})'
    assert change(body, " -> str") == (
        "-> dict[str, object]:",
        body.replace("json.dumps({", "{").replace("})", "}"),
    )
    mixed = 'if rows:\n    return json.dumps({"a": rows})\nreturn "Nothing."'
    assert change(mixed, " -> str") == (":", 'if rows:\n    return {"a": rows}\nreturn "Nothing."')
    assert change(mixed, " -> str", SDK) == ("-> str:", mixed)


@pytest.mark.parametrize(
    "tool",
    [
        "@mcp.tool\n@cached\ndef a() -> str: return json.dumps(rows)",
        "@mcp.tool(output_schema=SCHEMA)\ndef a() -> str: return json.dumps(rows)",
        "@mcp.tool(**settings)\ndef a() -> str: return json.dumps(rows)",
        "@mcp.tool\ndef a() -> str: return json.dumps(rows)\ndef b(): return json.loads(a())",
        "@mcp.tool\ndef a() -> Annotated[str, 'json']: return json.dumps(rows)",
        "@mcp.tool\ndef a() -> str | None: return json.dumps(rows)",
        "def text(): return json.dumps(rows)\n@mcp.tool\ndef a(): return text()",
        "@mcp.tool\ndef a() -> (  # always\n    str\n): return json.dumps(rows)",
    ],
)
def test_tools_that_others_depend_on(tool: str) -> None:
    code = FASTMCP + tool + "\n"
    assert lint(SourceFile(code.encode()))
    assert fixed(code) == code


@pytest.mark.parametrize(
    "register",
    [
        "server = Server('x', on_call_tool=call)",
        "server.add_request_handler('tools/call', types.Params, call)",
    ],
)
def test_handlers_keep_their_results(register: str) -> None:
    code = f"{TYPES}from mcp.server import Server\nasync def call(text):\n    return [{TEXT}]\n{register}\n"
    assert "ENV002" in {finding.rule for finding in lint(SourceFile(code.encode()))}
    assert fixed(code) == code


def test_only_the_rules_that_were_asked_for() -> None:
    code = in_tool(f"if rows:\n    return json.dumps(rows)\nreturn [{TEXT}]", BEFORE)
    out = fix(SourceFile(code.encode()), {"ENV002"}).data.decode()
    assert "return json.dumps(rows)" in out
    assert "return text\n" in out


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_bytes_are_kept(end: str, mark: bytes) -> None:
    code = in_tool('x = "a\\\nb"  # é\f\nreturn json.dumps({\n    "a": 1,\n})', returns=" -> str").replace(
        "\n", end
    )
    wanted = code.replace("json.dumps({", "{").replace("})", "}").replace("-> str", "-> dict[str, object]")
    assert wanted != code
    assert fix(SourceFile(mark + code.encode())).data == mark + wanted.encode()


def test_other_encodings() -> None:
    code = "# coding: latin-1\n" + in_tool('return json.dumps({"é": text})')
    # Nobody wants a fix that changes other bytes: such a file is read and never written.
    assert lint(SourceFile(code.encode("latin-1")))
    assert fix(SourceFile(code.encode("latin-1"))).data == code.encode("latin-1")


SERVER = '''
import json
from fastmcp import FastMCP
from fastmcp.tools import ToolResult
from mcp_types import CallToolResult, TextContent

mcp = FastMCP("library")
BOOKS = [{"title": "Emma", "year": 1815}, {"title": "Ulysses", "year": 1922}]

@mcp.tool
def books() -> str:
    """All books."""
    return json.dumps({"books": BOOKS}, indent=2)

@mcp.tool
def titles() -> str:
    return json.dumps([book["title"] for book in BOOKS])

@mcp.tool
def find(title: str) -> str:
    found = [book for book in BOOKS if book["title"] == title]
    if not found:
        return f"There is no {title}."
    return json.dumps(found[0])

@mcp.tool
def hello() -> ToolResult:
    return ToolResult(content=[TextContent(type="text", text="hello")])

@mcp.tool
def bye() -> list[TextContent]:
    return [TextContent(type="text", text="bye")]
'''


def test_the_fixed_server_runs() -> None:
    """A real server, before and after: data where there was text."""

    async def call(code: str) -> dict[str, tuple[str, Any]]:
        names: dict[str, Any] = {}
        exec(compile(code, "server", "exec"), names)
        server: FastMCP[Any] = names["mcp"]
        found = {}
        async with Client(server) as client:
            for name, arguments in CALLS:
                result = await client.call_tool(name, arguments)
                found[f"{name} {arguments.get('title', '')}".strip()] = (
                    result.content[0].text,
                    result.structured_content,
                )
        return found

    before, after = asyncio.run(call(SERVER)), asyncio.run(call(fixed(SERVER)))
    books = [{"title": "Emma", "year": 1815}, {"title": "Ulysses", "year": 1922}]
    assert isinstance(before["books"][1]["result"], str)
    assert after["books"][1] == {"books": books}
    assert json.loads(after["books"][0]) == {"books": books}
    assert after["titles"][1] == {"result": ["Emma", "Ulysses"]}
    assert after["find Emma"][1] == books[0]
    assert after["find Faust"] == ("There is no Faust.", None)
    assert [after[name][0] for name in ("hello", "bye")] == ["hello", "bye"]
    assert [before[name][0] for name in ("hello", "bye")] == ["hello", "bye"]


CALLS: list[tuple[str, dict[str, str]]] = [
    ("books", {}),
    ("titles", {}),
    ("find", {"title": "Emma"}),
    ("find", {"title": "Faust"}),
    ("hello", {}),
    ("bye", {}),
]


def test_the_fixed_official_server_runs() -> None:
    code = SERVER.replace(
        "from fastmcp import FastMCP\nfrom fastmcp.tools import ToolResult",
        "from mcp.server import MCPServer",
    )
    code = (
        code.replace("FastMCP(", "MCPServer(")
        .replace("@mcp.tool", "@mcp.tool()")
        .replace("ToolResult", "CallToolResult")
    )
    code = code.replace("CallCallToolResult", "CallToolResult")
    out = fixed(code)

    async def call() -> dict[str, Any]:
        names: dict[str, Any] = {}
        exec(compile(out, "server", "exec"), names)
        async with SdkClient(names["mcp"]) as client:
            return {name: (await client.call_tool(name)) for name in ("books", "titles", "hello", "bye")}

    found = asyncio.run(call())
    assert found["books"].structured_content["books"][0] == {"title": "Emma", "year": 1815}
    assert found["titles"].structured_content == {"result": ["Emma", "Ulysses"]}
    assert [found[name].content[0].text for name in ("hello", "bye")] == ["hello", "bye"]
    # One way gives a text, the other would give data without a schema: that is for a person to decide.
    assert "return json.dumps(found[0])" in out


DATA = st.sampled_from(
    [
        "rows",
        "rows[:9]",
        '{"a": rows}',
        "[rows, text]",
        "rows or\n        text",
        "(rows)",
        "lambda: 1",
        "{1: 2}",
        '{\n    "a": 1,  # one\n}',
        "[row for row in rows]",
        "f'{text}'",
        '"""a\nb"""',
        "rows if text else {}",
        "-limit",
    ]
)


@st.composite
def wrapped(draw: st.DrawFn) -> str:
    value = draw(DATA)
    for _ in range(draw(st.integers(0, 3))):
        space = draw(st.sampled_from(["", " ", "\n        ", "  # why\n        "]))
        shape = draw(
            st.sampled_from(
                [
                    "json.dumps({})",
                    "json.dumps({}, indent=2)",
                    "json.dumps({}, default=str)",
                    "({})",
                    "str({})",
                    'TextContent(type="text", text={})',
                    '[TextContent(type="text", text={})]',
                    'CallToolResult(content=[TextContent(text={}, type="text")])',
                    "[{}]",
                    "{} + text",
                ]
            )
        )
        value = shape.replace("{}", f"{space}{value}{space}")
    return value


@st.composite
def modules(draw: st.DrawFn) -> str:
    def lines() -> Iterator[str]:
        yield draw(st.sampled_from([FASTMCP, SDK])) + TYPES
        for number in range(draw(st.integers(1, 3))):
            yield draw(st.sampled_from(["@mcp.tool()", '@mcp.tool(name="x")  # é', "# no tool"]))
            returns = draw(
                st.sampled_from(["", " -> str", " -> CallToolResult", " -> list[TextContent]", " -> dict"])
            )
            yield f"def tool{number}(rows, limit, text={{}}){returns}:"
            for _ in range(draw(st.integers(0, 2))):
                noqa = draw(st.sampled_from(["", "  # noqa", "  # a comment"]))
                yield f"    if text:\n        return {draw(wrapped())}{noqa}"
            yield f"    return {draw(wrapped())}"

    return "\n".join(lines()).replace("\n", draw(st.sampled_from(["\n", "\r\n"]))) + draw(
        st.sampled_from(["", "\n"])
    )


def _parses(code: str) -> bool:
    try:
        ast.parse(code)
    except SyntaxError:
        return False
    return True


@settings(max_examples=examples(75))
@given(modules().filter(_parses))
def test_fixing_twice_is_fixing_once(code: str) -> None:
    out = fixed(code)
    before, after = ast.parse(code), ast.parse(out)
    assert len(before.body) == len(after.body)
    assert _comments(code) == _comments(out)
    for one, other in zip(before.body, after.body, strict=True):
        if not isinstance(one, ast.FunctionDef):
            assert ast.get_source_segment(code, one) == ast.get_source_segment(out, other)
        else:
            assert isinstance(other, ast.FunctionDef)
            assert ast.dump(one.args) == ast.dump(other.args)


def _comments(code: str) -> list[str]:
    return [token.string for token in SourceFile(code.encode()).tokens if token.string.startswith("#")]
