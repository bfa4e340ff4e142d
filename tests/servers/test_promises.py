"""Any value, any annotation or schema, any budget, any dialect: within the budget, valid, and nothing lost."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import mcp_types
import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mcp.server.lowlevel import Server
from pydantic_core import to_json

from mcp_envelope import Failure
from mcp_envelope.budget import Budget
from mcp_envelope.config import Settings
from mcp_envelope.vault.vault import open_vault
from tests.conftest import examples
from tests.pairwise import pairwise
from tests.shown import shown
from tests.strategies import Shape, large_values, shapes, small_values

from .harness import (
    DIALECTS,
    ERAS,
    LIBRARIES,
    ask,
    bare,
    budgeted,
    connected,
    enveloped_server,
    notice,
    put,
    run,
    wire,
)
from .test_large import budget_of, encoded

ANNOTATIONS: list[Any] = [
    None,
    Any,
    dict[str, Any],
    list[Any],
    str,
    dict[str, Any] | list[Any] | str | int | float | bool | None,
]
budgets = st.one_of(st.none(), st.integers(128, 3000))


def thorough(count: int) -> settings:
    return settings(max_examples=examples(count))


def suits(value: Any, annotation: Any) -> bool:
    if annotation == dict[str, Any]:
        return isinstance(value, dict)
    if annotation == list[Any]:
        return isinstance(value, list)
    return annotation is not str or isinstance(value, str)


def check(result: Any, dialect: str, tokens: int | None) -> None:
    """Both lanes are within the budget, each by the text that its dialect measures."""
    budget = budget_of(dialect, tokens)
    if dialect == "ctxo" or budget is None:
        return  # the one may overrun, the other has none
    blocks = [block.model_dump(by_alias=True, exclude_none=True, mode="json") for block in result.content]
    assert budget.meter.count(shown(blocks)) <= budget.limit
    if result.structured_content is not None:
        # As the libraries write it: what counts is what went over the wire.
        assert budget.meter.count(to_json(result.structured_content)) <= budget.limit


def lowlevel(value: Any) -> Server[Any]:
    """A server that makes its result itself."""

    async def on_list(ctx: Any, params: Any) -> mcp_types.ListToolsResult:
        return mcp_types.ListToolsResult(tools=[mcp_types.Tool(name="tool", input_schema={"type": "object"})])

    async def on_call(ctx: Any, params: Any) -> mcp_types.CallToolResult:
        words = mcp_types.TextContent(type="text", text=json.dumps(value))
        return mcp_types.CallToolResult(content=[words], structured_content=value)

    return Server("test", on_list_tools=on_list, on_call_tool=on_call)


# The libraries write these in another way than our encoder does: 1e+22 and 1e22.
LARGE_NUMBERS = {"rows": [1e22, 1.7976931348623157e308, "1e22,", 5] * 1000}


@pairwise(library=[*LIBRARIES, "lowlevel"], dialect=["native", "transcend", "gel", "scalpel"], era=ERAS)
def test_large_numbers_are_counted_as_they_are_sent(library: str, dialect: str, era: str, vault: str) -> None:
    def tool() -> dict[str, Any]:
        return LARGE_NUMBERS

    server = lowlevel(LARGE_NUMBERS) if library == "lowlevel" else bare(library, tool)
    put(server, dialect=dialect, vault=vault)
    for tokens in (2497, 700, 311):
        check(ask(server, "tool", budgeted(dialect, tokens), era), dialect, tokens)


@pytest.mark.parametrize("dialect", ["transcend", "gel", "scalpel"])
def test_large_numbers_in_a_failure_are_counted_as_they_are_sent(dialect: str) -> None:
    def tool() -> dict[str, Any]:
        raise Failure("NOT_NOW", "Later.", numbers=[1e22] * 100)

    server = enveloped_server("mcpserver", tool, dialect=dialect)
    for tokens in range(380, 540, 10):
        check(ask(server, "tool", budgeted(dialect, tokens)), dialect, tokens)


def test_what_fits_is_counted_as_it_is_sent() -> None:
    """A result is passed on as it came only if the library's own spelling of it is within the budget."""
    value = {"rows": [1e22] * 100}
    server = lowlevel(value)
    put(server)
    for tokens in range(300, 900, 20):
        check(ask(server, "tool", {"tokenBudget": tokens}), "native", tokens)


STDIO_SERVER = """
from mcp.server.mcpserver import MCPServer
from mcp_envelope.servers.sdk import envelope
import mcp_types
server = MCPServer("test")
envelope(server, vault="none", ledger=False)
@server.tool(structured_output=False)
def tool():
    return mcp_types.CallToolResult(content=[], structured_content={"rows": [1e22] * 5000})
server.run()
"""


def test_the_line_on_the_wire_is_what_was_measured() -> None:
    """Nothing in between: the bytes that a server writes."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    call = {"name": "tool", "arguments": {"tokenBudget": 2497}}
    with subprocess.Popen(
        [sys.executable, "-c", STDIO_SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def asked(method: str, params: dict[str, Any]) -> bytes:
            assert process.stdin is not None
            assert process.stdout is not None
            message = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
            process.stdin.write(encoded(message) + b"\n")
            process.stdin.flush()
            return process.stdout.readline()

        asked("initialize", hello)
        process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        line = asked("tools/call", call)
        process.stdin.close()
    members = msgspec.json.Decoder(dict[str, msgspec.Raw])
    structured = bytes(members.decode(members.decode(line)["result"])["structuredContent"])
    assert b"1e+22" in structured
    assert Budget.of(tokens=2497).meter.count(structured) <= 2497


def whole(folder: str, result: Any) -> Any:
    """What is stored for a result."""
    vault = open_vault(f"{folder}/vault.db")
    assert vault is not None
    try:
        return json.loads(b"".join(vault.open(notice(result)["handle"]).stream()))
    finally:
        vault.close()


def nothing_lost(stored: Any, value: Any, plain: Any) -> bool:
    """Whether what is stored is the value, or the whole result that the server gives without an envelope.

    The library decides how a value becomes a result: the SDK, for one, makes a block of each item of a list.
    """
    blocks = [block.model_dump(by_alias=True, exclude_none=True, mode="json") for block in plain.content]
    structured = plain.structured_content
    forms = [value, structured, {"content": blocks}, {"content": blocks, "structuredContent": structured}]
    if len(blocks) == 1:
        forms += [blocks[0]["text"], held(blocks[0]["text"])]
    return stored in forms


def held(text: str) -> Any:
    """The JSON in a text, or the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def numbers_stay(value: Any) -> bool:
    """Whether JSON through Python's own numbers gives the same again."""
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except ValueError:
        return False


@given(
    value=st.one_of(large_values, small_values),
    annotation=st.sampled_from(ANNOTATIONS),
    tokens=budgets,
    dialect=st.sampled_from(DIALECTS),
    library=st.sampled_from(LIBRARIES),
    era=st.sampled_from(ERAS),
    is_async=st.booleans(),
)
@thorough(60)
def test_any_value(
    value: Any, annotation: Any, tokens: int | None, dialect: str, library: str, era: str, is_async: bool
) -> None:
    assume(suits(value, annotation))

    def tool() -> Any:
        return value

    async def async_tool() -> Any:
        return value

    made = async_tool if is_async else tool
    made.__annotations__ = {} if annotation is None else {"return": annotation}
    made.__name__ = "tool"
    with tempfile.TemporaryDirectory() as folder:
        server = enveloped_server(
            library,
            made,
            dialect=dialect,
            vault=f"{folder}/vault.db",
            settings=Settings(environ={}, start=Path(folder)),
        )

        async def main() -> Any:
            async with connected(server, era) as session:
                return await session.call("tool", budgeted(dialect, tokens))

        result = run(main)
        check(result, dialect, tokens)
        if dialect == "native" and "handle" in notice(result):
            plain = ask(bare(library, made), "tool", era=era)
            assert nothing_lost(whole(folder, result), value, plain)
        elif dialect == "native" and not result.is_error and result.structured_content is not None:
            shown = result.structured_content
            assert value in (shown, shown.get("result"))


@given(
    shape=shapes,
    data=st.data(),
    tokens=budgets,
    dialect=st.sampled_from(DIALECTS),
    era=st.sampled_from(ERAS),
)
@thorough(60)
def test_any_schema(shape: Shape, data: st.DataObject, tokens: int | None, dialect: str, era: str) -> None:
    """A low-level server may publish any schema. The client raises where a result breaks what was listed."""
    value = data.draw(shape.values)
    assume(value is not None)
    assume(isinstance(shape.schema, dict))
    # Through the handshake of the older era only objects go, and both ends read numbers as Python does.
    text = json.dumps(value)
    assume(numbers_stay(value))

    async def on_list(ctx: Any, params: Any) -> mcp_types.ListToolsResult:
        tool = mcp_types.Tool(name="tool", input_schema={"type": "object"}, output_schema=shape.schema)
        return mcp_types.ListToolsResult(tools=[tool])

    async def on_call(ctx: Any, params: Any) -> mcp_types.CallToolResult:
        words = mcp_types.TextContent(type="text", text=text)
        return mcp_types.CallToolResult(content=[words], structured_content=value)

    with tempfile.TemporaryDirectory() as folder:
        server: Server[Any] = Server("test", on_list_tools=on_list, on_call_tool=on_call)
        put(
            server,
            dialect=dialect,
            vault=f"{folder}/vault.db",
            settings=Settings(environ={}, start=Path(folder)),
        )

        async def main() -> Any:
            async with connected(server, era) as session:
                return await session.call("tool", budgeted(dialect, tokens))

        result = run(main)
        check(result, dialect, tokens)
        if dialect == "native":
            if "handle" in notice(result):
                assert whole(folder, result) == value
            else:
                assert result.structured_content in (value, {"result": value}), wire(result)[:500]
