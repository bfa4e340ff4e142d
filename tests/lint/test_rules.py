"""Each rule: what it must find, and what it must leave alone."""

from __future__ import annotations

import pytest

from mcp_envelope.lint import RULES, SourceFile, lint, lint_tree

from .marked import FASTMCP, SDK, check, in_tool

HAND_MADE = {
    "a result": 'return types.CallToolResult(content=[types.TextContent(type="text", text=text)])  # >> ENV001',
    "a result with data": "return ToolResult(structured_content=rows)  # >> ENV001",
    "with both": 'return ToolResult(content="12 rows", structured_content=rows)  # >> ENV001',
    "text that isn't in a block": "return ToolResult(content=json.dumps(rows))  # >> ENV001",
    "empty": "return ToolResult(content=[], structured_content=rows)  # >> ENV001",
    "a dictionary": 'return {"content": [{"type": "text", "text": text}]}  # >> ENV001',
    "further up": """
        content = [types.TextContent(type="text", text=text)]
        return types.CallToolResult(content=content)  # >> ENV001
        """,
    "block by block": """
        content = []
        for row in rows:
            content.append(types.TextContent(type="text", text=row))
        return types.CallToolResult(content=content)  # >> ENV001
        """,
    "blocks": 'return [types.TextContent(type="text", text=text)]  # >> ENV002',
    "one block": 'return types.TextContent(type="text", text=text)  # >> ENV002',
    "many blocks": 'return [types.TextContent(type="text", text=row) for row in rows]  # >> ENV002',
    "dictionaries": 'return [{"type": "text", "text": text}]  # >> ENV002',
    "gathered": """
        content = [types.TextContent(type="text", text=text)]  # >> ENV002
        content.append(types.TextContent(type="text", text=text))
        return content  # >> ENV002
        """,
    "the first is an error": """
        return [types.TextContent(type="text", text="Error: "), types.TextContent(text=text)]  # >> ENV002
        """,
    "one way of two": """
        return rows if rows else [types.TextContent(type="text", text="nothing")]  # >> ENV002
        """,
}
NOT_HAND_MADE = {
    "our own words": "return Reply(rows, summary='12 rows')",
    "a sealed result": "return types.CallToolResult.model_validate_json(seal(rows).to_json())",
    "the same as keywords": "return types.CallToolResult(**seal(rows).to_result())",
    "an image": 'return types.ImageContent(type="image", data=text, mimeType="image/png")',
    "images": 'return [types.ImageContent(type="image", data=text, mimeType="image/png")]',
    "an image and its caption": """
        return [types.TextContent(type="text", text=text), types.ImageContent(type="image", data=text)]
        """,
    "the same, gathered": """
        content = [types.TextContent(type="text", text=text)]
        for row in rows:
            content.append(types.ImageContent(type="image", data=row, mimeType="x"))
        return content
        """,
    "the same, in a result": """
        content = [types.TextContent(type="text", text=text)]
        content.extend(pictures(rows))
        return types.CallToolResult(content=content)
        """,
    "a link": 'return ToolResult(content=[types.ResourceLink(type="resource_link", uri=text, name="x")])',
    "metadata": 'return ToolResult(content=[types.TextContent(type="text", text=text)], meta={"cost": 3})',
    "content from elsewhere": "return ToolResult(content=render(rows))",
    "somebody else's class": "return CallToolResult(content=[TextContent(type='text', text=text)])",
    "what a client gets": "return Got(content=[], structured_content=rows)",
    "data about content": 'return {"content": rows, "type": "text"}',
    "a block that is passed on": 'log(types.TextContent(type="text", text=text)); return rows',
}
AS_TEXT = {
    "json": "return json.dumps(rows)  # >> ENV003",
    "with settings": "return json.dumps(rows, indent=2, default=str)  # >> ENV003",
    "orjson": "import orjson\nreturn orjson.dumps(rows).decode()  # >> ENV003",
    "a model": "return rows.model_dump_json(indent=2)  # >> ENV003",
    "printed": "return str({'a': text})  # >> ENV003",
    "printed, further up": "found = [row for row in rows]\nreturn str(found)  # >> ENV003",
    "pretty": "import pprint\nreturn pprint.pformat(rows)  # >> ENV003",
    "further up": "out = json.dumps(rows)  # >> ENV003\nreturn out",
    "in one branch": """
        if rows:
            out = json.dumps(rows)  # >> ENV003
        else:
            out = "Nothing."
        return out
        """,
    "awaited": "return await_it or json.dumps(rows)  # >> ENV003",
    "in a match": """
        match text:
            case "a":
                return json.dumps(rows)  # >> ENV003
            case _:
                return "Nothing."
        """,
    "in a with": "with open(text) as file:\n    return json.dumps(file.read())  # >> ENV003",
}
NOT_AS_TEXT = {
    "prose": 'return "Done."',
    "a sentence": 'return f"Deleted {text} and {len(rows)} rows."',
    "a variable": "return text",
    "a file": "return open(text).read()",
    "a number": "return str(limit + 1)",
    "an object": "return str(rows)",
    "words": "return ' '.join(rows)",
    "data": "return rows",
    "json in a member": 'return {"raw": json.dumps(rows)}',
    "json for somebody else": "send(json.dumps(rows)); return {'sent': True}",
    "overwritten": "out = json.dumps(rows)\nsend(out)\nout = {'sent': True}\nreturn out",
    "overwritten on the way": """
        if rows:
            out = json.dumps(rows)
            send(out)
            out = {"sent": True}
        else:
            out = {}
        return out
        """,
    "a nested function": "def key(row):\n    return json.dumps(row)\nreturn sorted(rows, key=key)",
    "a lambda": "return sorted(rows, key=lambda row: json.dumps(row))",
    "a generator": "yield json.dumps(rows)\nreturn json.dumps(rows)",
    "no value": "return",
}
RECORDS = {
    "a comprehension": r"""return "\n".join(f"{row.file}: {row.score}" for row in rows)  # >> ENV007""",
    "with a heading": r"""return "All:\n" + "\n".join([f"{row['a']}: {row['b']}" for row in rows])  # >> ENV007""",
    "lines": r"""
        lines = ["Found:"]
        for row in rows:
            lines.append(f"Title: {row.title}")
            lines.append(f"Address: {row.get('url')}")
        return "\n".join(lines).strip()  # >> ENV007
        """,
    "a growing text": r"""
        out = ""
        for row in rows:
            out += f"{row['title']} ({row['year']})\n"
        return out  # >> ENV007
        """,
    "a mapping": r"""return "\n".join(f"{key}: {value}" for key, value in rows.items())  # >> ENV007""",
    "format": r"""return "\n".join("{}: {}".format(row.a, row.b) for row in rows)  # >> ENV007""",
    "in a sentence": r"""return f"All {len(rows)}: {', '.join(f'{row.a}={row.b}' for row in rows)}"  # >> ENV007""",
}
NOT_RECORDS = {
    "words": r"""return "\n".join(rows)""",
    "a list of words": r"""return "\n".join(f"- {row}" for row in rows)""",
    "one field": r"""return "\n".join(row.name for row in rows)""",
    "one field in a text": r"""return "\n".join(f"- {row.name}" for row in rows)""",
    "text rearranged": r"""return "\n".join(line.strip() for line in text.splitlines() if line.strip())""",
    "numbered lines": r"""return "\n".join(f"{n}: {line}" for n, line in enumerate(text.splitlines(), 1))""",
    "methods": r"""return "\n".join(f"{row.strip()}{row.upper()}" for row in rows)""",
    "keys": r"""return "\n".join(f"- {key}" for key, value in rows.items())""",
    "a password": """return "".join(f"{row.a}{row.b}" for row in rows)""",
    "records as data": """
        found = []
        for row in rows:
            found.append(f"{row.a} {row.b}")
        return found
        """,
    "sums": "total = 0\nfor row in rows:\n    total += row.a + row.b\nreturn total",
}
CUT = {
    "a list": "return rows[:100]  # >> ENV004",
    "a text": "return text[0:4000]  # >> ENV004",
    "a constant": "return text[:MAX_CHARS]  # >> ENV004",
    "a constant from elsewhere": "return text[:settings.max_chars]  # >> ENV004",
    "a product": "return text[: 50 * 1024]  # >> ENV004",
    "a local limit": "most = 500\nreturn rows[:most]  # >> ENV004",
    "a member": 'return {"rows": rows[:500], "total": len(rows)}  # >> ENV004',
    "said to be": 'return text[:20] + "… (truncated)"  # >> ENV004',
    "said in a sentence": 'return f"{text[:20]} [truncated, {len(text)} in all]"  # >> ENV004',
    "much in a sentence": 'return f"Found: {text[:4000]}"  # >> ENV004',
    "if too long": """
        if len(text) > 4000:
            text = text[:4000] + "\\n[truncated]"  # >> ENV004
        return text
        """,
    "before json": "return json.dumps(rows[:200])  # >> ENV003 ENV004",
    "after json": "return json.dumps(rows)[:2000]  # >> ENV004",
    "in a comprehension": "return [row.name for row in rows[:100]]  # >> ENV004",
    "in a loop": """
        found = []
        for row in rows[:100]:  # >> ENV004
            found.append(row.name)
        return found
        """,
    "shortened": "import textwrap\nreturn textwrap.shorten(text, 500)  # >> ENV004",
    "lines": r"""return "\n".join(text.splitlines()[:200])  # >> ENV004""",
    "in a reply": "return Reply(rows[:100])  # >> ENV004",
}
NOT_CUT = {
    "a page": "return rows[:limit]",
    "a page with bounds": "return rows[: min(limit, 100)]",
    "a later page": "return rows[limit : limit + 100]",
    "ten": "return sorted(rows)[:10]",
    "a small constant": "return rows[:TOP]",
    "a tail": "return rows[-200:]",
    "a preview": 'return {"id": text, "preview": text[:500]}',
    "fields": 'return [{"name": row.name[:80]} for row in rows]',
    "what is searched": "found = rows[:500]\nreturn rate(found)",
    "every other": "return rows[:500:2]",
    "computed": "most = budget(rows)\nreturn rows[:most]",
    "computed, with a name": "max_rows = budget(rows)\nreturn rows[:max_rows]",
    "a middle": "return rows[100:500]",
    "told by another service": 'return {"rows": rows, "truncated": rows.more}',
    "a word": 'return f"Table {text} truncated."',
    "an excerpt in a sentence": 'return f"It begins with {text[:500]}…"',
    "a variable called preview": "b64_preview = text[:100]\nreturn [b64_preview, limit]",
    "a key": 'return rows["first"]',
}
ERRORS = {
    "text": 'return "Error: no such file"  # >> ENV005',
    "with a value": 'return f"Error: {text}"  # >> ENV005',
    "with a sign": 'return f"❌ Error fetching {text}"  # >> ENV005',
    "a service": 'return "API error: " + text  # >> ENV005',
    "failed": 'return "Failed to open %s" % text  # >> ENV005',
    "formatted": 'return "An error occurred while reading {}".format(text)  # >> ENV005',
    "what was caught": """
        try:
            return read(text)
        except OSError as error:
            return f"Could not read it ({error})"  # >> ENV005
        """,
    "nothing but that": """
        try:
            return read(text)
        except OSError as error:
            return str(error)  # >> ENV005
        """,
    "a traceback": """
        import traceback
        try:
            return read(text)
        except OSError:
            return "Sorry: " + traceback.format_exc()  # >> ENV005
        """,
    "further up": """
        try:
            out = read(text)
        except OSError as error:
            out = f"Sorry, {error}"  # >> ENV005
        return out
        """,
    "a dictionary": 'return {"error": text}  # >> ENV005',
    "with a code": 'return {"error": "not found", "code": 404}  # >> ENV005',
    "no success": 'return {"success": False, "message": text}  # >> ENV005',
    "a status": 'return {"status": "error", "message": text, "rows": []}  # >> ENV005',
    "json": 'return json.dumps({"error": text})  # >> ENV005',
    "a result": "return types.CallToolResult(content=[], isError=True)  # >> ENV005",
    "a tool result": "return ToolResult(content=text, is_error=True)  # >> ENV005",
    "blocks": 'return [types.TextContent(type="text", text=f"Error: {text}")]  # >> ENV005',
    "for the wire": 'return {"content": [{"type": "text", "text": text}], "isError": True}  # >> ENV005',
}
NOT_ERRORS = {
    "raised": 'raise Failure("TIMEOUT", "Too slow.")',
    "raised by the library": 'raise ToolError(f"Error: {text}")',
    "a miss": 'return Miss("Build the index first.")',
    "nothing there": 'return "Nothing found."',
    "a measure": 'return f"Mean error: {limit}"',
    "errors of a file": 'return f"Errors found: {len(rows)}"',
    "an error rate": 'return "Error rate 5%"',
    "no error": 'return {"rows": rows, "error": None}',
    "what a program said": 'return {"code": rows.code, "output": rows.out, "error": rows.err}',
    "and more": 'return {"error": text, **rows}',
    "only no error": 'return {"error": None}',
    "a number": 'return {"success": 0, "message": text}',
    "what was caught, worked on": """
        try:
            return read(text)
        except OSError as error:
            return near(error)
        """,
    "either": 'return {"success": rows.ok, "error": rows.err}',
    "a failed test": 'return {"success": False, "tests": rows}',
    "data about a bad input": """
        try:
            return parse(text)
        except ValueError as error:
            return {"valid": False, "line": error.lineno}
        """,
    "a success with a warning": """
        try:
            read(text)
        except OSError as error:
            return f"{text} was saved. Warning: not indexed ({error})"
        """,
    "a fallback": """
        try:
            return read(text)
        except OSError:
            return "Nothing."
        """,
}
BEFORE = """
import mcp_types as types
from fastmcp.tools import ToolResult
from mcp_envelope import Reply, Miss, Failure, seal
from fastmcp.client.client import CallToolResult as Got
from .mine import TextContent, CallToolResult
MAX_CHARS = 4000
TOP = 5
"""


def _samples(*groups: dict[str, str]) -> list[object]:
    return [pytest.param(body, id=name) for group in groups for name, body in group.items()]


ALL = _samples(
    HAND_MADE, NOT_HAND_MADE, AS_TEXT, NOT_AS_TEXT, RECORDS, NOT_RECORDS, CUT, NOT_CUT, ERRORS, NOT_ERRORS
)


@pytest.mark.parametrize("body", ALL)
def test_in_fastmcp(body: str) -> None:
    check(in_tool(body, FASTMCP + BEFORE))


@pytest.mark.parametrize("body", ALL)
def test_in_the_official_sdk(body: str) -> None:
    check(in_tool(body, SDK + BEFORE))


@pytest.mark.parametrize("body", ALL)
def test_an_async_tool_that_is_a_method(body: str) -> None:
    tool = in_tool(body, "").replace("def answer(", "async def answer(self, ")
    check(FASTMCP + BEFORE + "class Tools:\n" + "\n".join(f"    {line}" for line in tool.splitlines()))


HANDLER = """
import json
import mcp_types as types
from mcp.server import Server
{envelope}
async def call(context, params):
    text = params.arguments["text"]
    {body}
server = Server("x", on_call_tool=call)
"""
SEALED = "from mcp_envelope.servers.sdk import envelope"
IN_HANDLERS = {
    "words": ('types.CallToolResult(content=[types.TextContent(type="text", text=text)])', "ENV001", ""),
    "words in blocks": ('[types.TextContent(type="text", text=text)]', "ENV002", ""),
    "data": (
        'types.CallToolResult(content=[types.TextContent(type="text", text=json.dumps(text))])',
        "ENV003",
        "ENV003",
    ),
    "data beside structure": (
        'types.CallToolResult(content=[types.TextContent(type="text", text="1")], structured_content={"a": 1})',
        "",
        "",
    ),
    "an error": (
        'types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)',
        "",
        "ENV005",
    ),
    "an error that nobody calls one": (
        '[types.TextContent(type="text", text=f"Error: {text}")]',
        "ENV005",
        "ENV005",
    ),
    "an image": (
        'types.CallToolResult(content=[types.ImageContent(type="image", data=text, mime_type="x")])',
        "",
        "",
    ),
    "sealed": ("seal(text).to_result()", "", ""),
}


@pytest.mark.parametrize("name", IN_HANDLERS)
def test_handlers(name: str) -> None:
    """A handler has no other way to say words: with the envelope, they are fine."""
    value, before, after = IN_HANDLERS[name]
    plain = HANDLER.format(envelope="", body=f"return {value}" + (f"  # >> {before}" if before else ""))
    check(plain.replace("on_call_tool=call)", "on_call_tool=call)  # >> ENV006"))
    sealed = HANDLER.format(envelope=SEALED, body=f"return {value}" + (f"  # >> {after}" if after else ""))
    check(sealed + "envelope(server)\n")


def test_places_are_in_characters() -> None:
    (finding,) = lint(SourceFile(in_tool("é = 'ä😀'; return json.dumps(rows)").encode()))
    assert (finding.column, finding.end_column) == (21, 37)
    assert finding.line == finding.end_line


def test_a_finding_is_told_once() -> None:
    code = in_tool("out = json.dumps(rows)  # >> ENV003\nif text:\n    return out\nreturn out")
    check(code)
    assert len(lint_tree(SourceFile(code.encode()).tree)) == 1


LEGACY = """
from mcp_envelope.dialects.gel import build_structured_response, build_tool_response  # >> ENV008
from mcp_envelope.dialects import gel
from .utils import buildToolResponse as made  # >> ENV008

old = gel.build_tool_response(title="x")  # >> ENV008
new = gel.build_structured_response(title="x", data={})
"""


def test_text_for_data_is_found_where_it_is_imported() -> None:
    source = SourceFile(LEGACY.encode())
    found = [(each.rule, each.line) for each in lint(source)]
    marked = [("ENV008", number) for number, line in enumerate(LEGACY.splitlines(), 1) if ">>" in line]
    assert found == marked
    assert RULES["ENV008"].name == "no-raw-mcp-text"
    assert lint(SourceFile(LEGACY.replace("  # >> ENV008", "  # noqa: ENV008").encode())) == []
