"""A low-level `Server`, which makes its results itself; and what is peculiar to an `MCPServer`."""

from __future__ import annotations

import json
from typing import Any

import anyio
import mcp
import mcp_types as types
import pytest
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.exceptions import MCPError

from mcp_envelope import Failure, Miss, Reply, warn
from mcp_envelope.servers.sdk import envelope
from tests.pairwise import pairwise

from .harness import DIALECTS, ERAS, ask, budgeted, connected, listed, notice, put, run, wire
from .test_outcomes import code

ARRAY = {"type": "array", "items": {"type": "integer"}}
OBJECT = {
    "type": "object",
    "properties": {"rows": ARRAY},
    "required": ["rows"],
    "additionalProperties": False,
}


def made(
    value: Any,
    schema: dict[str, Any] | None = None,
    *,
    content: list[Any] | None = None,
    as_dict: bool = False,
    pages: bool = False,
    error: Exception | None = None,
    outcome: Reply | Miss | None = None,
    **fields: Any,
) -> Server[Any]:
    """A server with one tool, `tool`, that answers with this structure."""

    async def on_list(ctx: Any, params: Any) -> types.ListToolsResult:
        tool = types.Tool(name="tool", input_schema={"type": "object"}, output_schema=schema)
        other = types.Tool(name="other", input_schema={"type": "object"})
        if not pages:
            return types.ListToolsResult(tools=[tool, other])
        if params is None or params.cursor is None:
            return types.ListToolsResult(tools=[other], next_cursor="2")
        return types.ListToolsResult(tools=[tool])

    async def on_call(ctx: Any, params: Any) -> Any:
        if error is not None:
            raise error
        if outcome is not None:
            warn("careful")
            return outcome
        assert not {"tokenBudget", "token_budget"} & {*(params.arguments or {})}
        text: list[Any] = [types.TextContent(type="text", text=json.dumps(value))]
        result = types.CallToolResult(content=content or text, structured_content=value, **fields)
        return result.model_dump(by_alias=True, exclude_none=True) if as_dict else result

    return Server("test", on_list_tools=on_list, on_call_tool=on_call)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("as_dict", [False, True])
def test_what_fits_is_the_very_same(era: str, as_dict: bool) -> None:
    value = {"rows": [1, 2]}
    plain = wire(ask(made(value, OBJECT, as_dict=as_dict), "tool", era=era))
    server = made(value, OBJECT, as_dict=as_dict)
    put(server)
    assert wire(ask(server, "tool", era=era)) == plain
    assert wire(ask(server, "tool", {"tokenBudget": 500}, era=era)) == plain


@pairwise(dialect=DIALECTS, pages=[False, True], era=ERAS)
def test_what_does_not(dialect: str, pages: bool, era: str, vault: str) -> None:
    """Whether or not the client asked for the list before, and however long the list is."""
    server = made({"rows": list(range(20_000))}, OBJECT, pages=pages)
    put(server, dialect=dialect, vault=vault)

    async def main() -> None:
        async with connected(server, era) as session:
            result = await session.call("tool", budgeted(dialect, 500))
            assert not result.is_error
            if dialect == "native":
                assert 0 < len(result.structured_content["rows"]) < 500
                assert await session.read_list(notice(result)["handle"], "/rows") == list(range(20_000))
            elif dialect != "ctxo":
                assert 0 < len(result.structured_content["data"]["rows"]) < 500

    run(main)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("small", "large", "schema"),
    [
        ([1, 2], list(range(9000)), ARRAY),
        ("text", "text\n" * 20_000, {"type": "string"}),
        (7, None, {"type": "integer"}),
        ([1], list(range(9000)), {"anyOf": [ARRAY, {"type": "string"}]}),
        ({"rows": [1]}, {"rows": list(range(9000))}, {"anyOf": [ARRAY, OBJECT]}),
    ],
    ids=["array", "string", "integer", "union", "object in a union"],
)
def test_roots_that_are_no_objects(
    small: Any, large: Any, schema: dict[str, Any], dialect: str, era: str
) -> None:
    """They are wrapped in both eras, and so the list is fit for both."""
    for value in (small, large):
        if value is None:
            continue
        server = made(value, schema)
        put(server, dialect=dialect)
        result = ask(server, "tool", era=era)
        if dialect == "ctxo":
            assert result.structured_content is None
            continue
        shown = result.structured_content["result" if dialect == "native" else "data"]
        if value is small:
            assert shown == small
            if dialect == "native":
                assert result.structured_content == {"result": small}
                assert result.content[0].text == json.dumps(small), "the text is as it was"
        elif dialect != "scalpel":
            assert len(json.dumps(shown)) < len(json.dumps(large))


@pytest.mark.parametrize("value", [[1, {"a": 2}], "text", 7, False])
def test_structures_without_a_schema(value: Any) -> None:
    """Legal in the stateless era."""
    plain = wire(ask(made(value), "tool"))
    server = made(value)
    put(server)
    assert wire(ask(server, "tool")) == plain


def test_a_long_array_without_a_schema(vault: str) -> None:
    server = made(list(range(9000)))
    put(server, vault=vault)

    async def main() -> None:
        async with connected(server) as session:
            result = await session.call("tool")
            assert await session.read_list(notice(result)["handle"]) == list(range(9000))

    run(main)


@pytest.mark.parametrize("era", ERAS)
def test_other_fields_stay(era: str) -> None:
    server = made({"rows": list(range(9000))}, OBJECT, _meta={"mine": 1})
    put(server)
    result = ask(server, "tool", era=era)
    assert result.meta["mine"] == 1
    assert notice(result)["truncated"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_errors_of_its_own(dialect: str) -> None:
    words = types.TextContent(type="text", text="It broke: " + "x" * 90_000 + " the end")
    server = made(None, OBJECT, content=[words], is_error=True)
    put(server, dialect=dialect)
    result = ask(server, "tool")
    shown = "".join(block.text for block in result.content)
    assert "It broke" in shown
    assert "the end" in shown or dialect != "native"
    assert result.is_error == (dialect not in ("ctxo", "scalpel"))
    assert len(shown) < 90_000 or dialect in ("ctxo", "scalpel"), "which have no budget for errors"
    if dialect not in ("native", "ctxo"):
        wanted = "internal_error" if dialect == "scalpel" else "TOOL_FAILED"
        assert code(result, dialect) == wanted


@pytest.mark.parametrize("era", ERAS)
def test_exceptions(era: str) -> None:
    for error, wanted in (
        (RuntimeError("secret"), "INTERNAL"),
        (Failure("RATE_LIMITED", "Too fast."), "RATE_LIMITED"),
        (ValueError("No such branch."), "BAD_ARGS"),
    ):
        server = made({}, OBJECT, error=error)
        put(server)
        result = ask(server, "tool", era=era)
        assert code(result) == wanted
        assert "secret" not in wire(result)


@pytest.mark.parametrize("era", ERAS)
def test_a_reply_of_a_handler(era: str) -> None:
    server = made(None, OBJECT, outcome=Reply({"rows": [1]}, summary="One row"))
    put(server)
    result = ask(server, "tool", era=era)
    assert not result.is_error
    said = {"summary": "One row", "warnings": ["careful"]}
    assert result.structured_content == {"rows": [1], "_envelope": said}
    assert json.loads(result.content[0].text) == {"rows": [1], "_envelope": said}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("outcome", "schema"),
    [
        (Reply({"rows": [1]}), OBJECT),
        (Reply({"rows": [1]}), None),
        (Reply([1, 2]), ARRAY),
        (Reply([1, 2]), None),
        (Reply("words"), None),
        (Reply(summary="done"), None),
        (Reply(summary="done"), OBJECT),
        (Reply(summary="done"), {"type": "object"}),
        (Miss("Look elsewhere."), None),
        (Miss("Look elsewhere."), OBJECT),
    ],
)
def test_outcomes_of_a_handler(
    outcome: Reply | Miss, schema: dict[str, Any] | None, dialect: str, era: str
) -> None:
    """The client raises where a result breaks what was listed, and at a protocol error."""
    server = made(None, schema, outcome=outcome)
    put(server, dialect=dialect)
    result = ask(server, "tool", era=era)
    if isinstance(outcome, Miss):
        assert "Look elsewhere." in wire(result) or dialect == "scalpel"
        assert result.is_error == (dialect == "transcend" or (dialect == "native" and schema is not None))
    elif outcome.data is None and dialect == "native" and schema is OBJECT:
        assert code(result) == "BAD_RESULT", "data was promised"
    else:
        assert not result.is_error
        assert dialect in ("ctxo", "scalpel") or "careful" in wire(result)


@pytest.mark.parametrize("era", ERAS)
def test_a_large_reply_of_a_handler(era: str, vault: str) -> None:
    rows = list(range(20_000))
    server = made(None, OBJECT, outcome=Reply({"rows": rows}))
    put(server, vault=vault)

    async def main() -> None:
        async with connected(server, era) as session:
            result = await session.call("tool")
            assert result.structured_content["_envelope"]["truncated"]
            assert await session.read_list(notice(result)["handle"], "/rows") == rows

    run(main)


@pytest.mark.parametrize("era", ERAS)
def test_protocol_errors_pass(era: str) -> None:
    server = made({}, OBJECT, error=MCPError(code=-32042, message="open this page first"))
    put(server)

    async def main() -> None:
        async with connected(server, era) as session:
            with pytest.raises(MCPError, match="open this page first"):
                await session.call("tool")

    run(main)


def test_input_that_is_asked_for_passes() -> None:
    asked = types.ElicitRequest(
        params=types.ElicitRequestFormParams(
            message="Name?", requested_schema={"type": "object", "properties": {}}
        )
    )

    async def on_list(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="tool", input_schema={"type": "object"})])

    async def on_call(ctx: Any, params: Any) -> Any:
        if params.input_responses:
            return types.CallToolResult(content=[types.TextContent(type="text", text="thanks")])
        return types.InputRequiredResult(input_requests={"name": asked}, request_state="one")

    server: Server[Any] = Server("test", on_list_tools=on_list, on_call_tool=on_call)
    put(server, dialect="gel")

    async def on_elicit(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={})

    async def main() -> None:
        async with mcp.Client(server, mode="2026-07-28", elicitation_callback=on_elicit) as client:
            result = await client.call_tool("tool", {})
            assert "thanks" in wire(result)

    run(main)


def test_the_line_twice_and_without_handlers() -> None:
    server = made({}, OBJECT)
    envelope(server, ledger=False)
    with pytest.raises(ValueError, match="already has an envelope"):
        envelope(server, ledger=False)
    with pytest.raises(ValueError, match="no handler for tools/list yet"):
        envelope(Server("bare"), ledger=False)


def test_pages_of_the_list() -> None:
    server = made({}, OBJECT, pages=True)
    put(server)

    async def main() -> None:
        async with mcp.Client(server, mode="2026-07-28") as client:
            first = await client.list_tools()
            assert [tool.name for tool in first.tools] == ["other"]
            second = await client.list_tools(cursor="2")
            assert [tool.name for tool in second.tools] == ["tool", "envelope_read"]

    run(main)


# -- MCPServer ------------------------------------------------------------------------------------------------


def test_the_context_of_the_sdk() -> None:
    heard = []
    server: MCPServer[Any] = MCPServer("test")

    @server.tool()
    async def busy(count: int, ctx: Context[Any, Any]) -> dict[str, int]:
        await ctx.report_progress(1, 2, "half")
        return {"count": count}

    put(server)

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async def main() -> None:
        async with mcp.Client(server, mode="2026-07-28") as client:
            result = await client.call_tool(
                "busy", {"count": 3, "tokenBudget": 400}, progress_callback=on_progress
            )
            assert result.structured_content == {"count": 3}

    run(main)
    assert heard == [(1, 2, "half")]


def test_tools_added_and_removed_later() -> None:
    server: MCPServer[Any] = MCPServer("test")
    put(server)

    def late() -> dict[str, int] | Miss:
        return Reply({"a": 1})  # type: ignore[return-value]

    server.add_tool(late)
    assert set(listed(server)) == {"late", "envelope_read"}
    assert ask(server, "late").structured_content == {"a": 1}
    server.remove_tool("late")
    assert set(listed(server)) == {"envelope_read"}


def test_a_tool_that_calls_another() -> None:
    """In the same process, and so without an envelope: it gets the plain data, all of it."""
    server: MCPServer[Any] = MCPServer("test")

    @server.tool()
    def inner() -> dict[str, Any] | Miss:
        return Reply({"rows": list(range(20_000))})  # type: ignore[return-value]

    @server.tool()
    async def outer() -> dict[str, int]:
        result = await server.call_tool("inner", {})
        assert isinstance(result, types.CallToolResult)
        assert result.structured_content is not None
        return {"rows": len(result.structured_content["rows"])}

    put(server)
    assert ask(server, "outer").structured_content == {"rows": 20_000}
    alone: Any = anyio.run(server.call_tool, "outer", {})
    assert alone.structured_content == {"rows": 20_000}


def test_unstructured_tools() -> None:
    server: MCPServer[Any] = MCPServer("test")

    def words(count: int) -> dict[str, Any]:
        warn("stale") if count == 1 else None
        return {"rows": list(range(count))}

    server.add_tool(words, structured_output=False)
    put(server)
    assert ask(server, "words", {"count": 0}).structured_content is None
    assert "stale" in ask(server, "words", {"count": 1}).content[0].text
    assert notice(ask(server, "words", {"count": 9000}))["truncated"]
