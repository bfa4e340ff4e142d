"""What a tool says (a reply, a miss, a failure, a warning) and whatever goes wrong, over the wire."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import mcp_types
import pytest
from fastmcp.exceptions import ToolError
from fastmcp.utilities.types import Image as FastMCPImage
from mcp.server.mcpserver.exceptions import ToolError as SDKToolError
from mcp.server.mcpserver.utilities.types import Image
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, Field

from mcp_envelope import Failure, Miss, Reply, rank, warn
from mcp_envelope.dialects.transcend import CODES
from mcp_envelope.outcome import Link
from tests.pairwise import pairwise

from .harness import DIALECTS, ERAS, LIBRARIES, ask, connected, enveloped_server, listed, notice, run, wire


class Rows(BaseModel):
    rows: list[int]


def says(result: Any) -> str:
    return "\n".join(getattr(block, "text", "") for block in result.content)


def code(result: Any, dialect: str = "native") -> str:
    """The code of the failure that a result tells of."""
    if dialect == "native":
        return str(json.loads(result.content[0].text)["_envelope"]["error"]["code"])
    if dialect == "transcend":
        error = result.structured_content["error"]
        assert error["code"] in CODES
        return str(error.get("reason", error["code"]))
    if dialect == "gel":
        return str(result.structured_content["data"]["errorCode"])
    if dialect == "scalpel":
        return str(result.structured_content["error"]["error_code"])
    return "" if json.loads(result.content[0].text).get("error") is True else "none"


def sync_reply() -> Rows | Miss:
    warn("from a thread")
    return Reply(Rows(rows=[3, 1, 2]), hint="narrow it", warnings=["of its own"])  # type: ignore[return-value]


async def async_reply() -> Rows | Miss:
    warn("from a thread")
    return Reply({"rows": [3, 1, 2]}, warnings=["of its own"])  # type: ignore[return-value]


def sync_miss() -> Rows | Miss:
    return Miss("Build the index first.", data={"near": ["a"]})


async def async_miss() -> Rows | Miss:
    return Miss("Build the index first.", data={"near": ["a"]})


def unannounced_miss() -> Rows:
    return Miss("Build the index first.")  # type: ignore[return-value]


def sync_failure() -> Rows:
    raise Failure("LSP_UNAVAILABLE", "pyright is not on PATH.", "Install it.", language="py")


async def async_failure() -> Rows:
    raise Failure("LSP_UNAVAILABLE", "pyright is not on PATH.", "Install it.", language="py")


@pairwise(function=[sync_reply, async_reply], library=LIBRARIES, era=ERAS)
def test_a_reply_and_its_warnings(function: Callable[..., Any], library: str, era: str) -> None:
    result = ask(enveloped_server(library, function), function.__name__, era=era)
    assert not result.is_error
    assert result.structured_content["rows"] == [3, 1, 2]
    assert result.structured_content["_envelope"]["warnings"] == ["of its own", "from a thread"]
    assert notice(result)["warnings"] == ["of its own", "from a thread"]
    assert json.loads(result.content[0].text)["_envelope"]["warnings"] == ["of its own", "from a thread"]


@pairwise(function=[sync_miss, async_miss], library=LIBRARIES, era=ERAS)
def test_a_miss_is_a_success(function: Callable[..., Any], library: str, era: str) -> None:
    result = ask(enveloped_server(library, function), function.__name__, era=era)
    assert not result.is_error
    assert result.structured_content == {"found": False, "hint": "Build the index first.", "near": ["a"]}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_miss_that_nobody_announced_has_no_structure(library: str) -> None:
    result = ask(enveloped_server(library, unannounced_miss), "unannounced_miss")
    assert result.structured_content is None
    assert json.loads(result.content[0].text)["hint"] == "Build the index first."


@pairwise(dialect=DIALECTS, function=[sync_failure, async_failure], library=LIBRARIES)
def test_a_failure_has_its_code(dialect: str, function: Callable[..., Any], library: str) -> None:
    result = ask(enveloped_server(library, function, dialect=dialect), function.__name__)
    spelled = {"ctxo": "", "scalpel": "dependency_unavailable"}
    assert code(result, dialect) == spelled.get(dialect, "LSP_UNAVAILABLE")
    assert result.is_error == (dialect not in ("ctxo", "scalpel"))
    assert "pyright is not on PATH." in says(result)


@pairwise(function=[sync_reply, sync_miss], dialect=DIALECTS, library=LIBRARIES)
def test_outcomes_in_each_dialect(dialect: str, function: Callable[..., Any], library: str) -> None:
    """The client checks them against the schema that it was told."""
    result = ask(enveloped_server(library, function, dialect=dialect), function.__name__)
    if dialect == "ctxo":
        assert result.structured_content is None
    elif function is sync_reply and dialect != "native":
        assert result.structured_content["data"] == {"rows": [3, 1, 2]}
    assert ("Build the index first." in says(result)) == (function is sync_miss) or dialect == "scalpel"


def test_outcomes_are_no_part_of_the_published_data() -> None:
    for library in LIBRARIES:
        told = listed(enveloped_server(library, sync_miss))["sync_miss"].output_schema
        assert "rows" in json.dumps(told)
        assert "found" in json.dumps(told)
        assert "NOT_FOUND" not in json.dumps(told), "the fields of Miss itself"


def bare_reply() -> Reply:
    return Reply({"rows": [1]})


def typed_reply() -> Reply[Rows]:
    return Reply(Rows(rows=[1]))


async def async_typed_reply() -> Reply[Rows]:
    return Reply[Rows](Rows(rows=[1]))


def typed_reply_or_miss() -> Reply[Rows] | Miss:
    return Reply(Rows(rows=[1]))


def list_reply() -> Reply[list[int]]:
    return Reply([1])


def only_a_miss() -> Miss:
    return Miss("Build the index first.")


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_reply_says_what_its_data_is(library: str, era: str) -> None:
    """`-> Reply[Rows]` publishes the schema of `Rows`; the client holds the result to it."""
    functions = typed_reply, async_typed_reply, typed_reply_or_miss, list_reply, bare_reply, only_a_miss
    server = enveloped_server(library, *functions)
    tools = listed(server, era)
    for function in functions[:3]:
        told = tools[function.__name__].output_schema
        assert "rows" in json.dumps(told)
        assert "next_steps" not in json.dumps(told), "the fields of Reply itself"
        assert ask(server, function.__name__, era=era).structured_content == {"rows": [1]}
    assert ask(server, "list_reply", era=era).structured_content == {"result": [1]}
    assert tools["bare_reply"].output_schema is None
    assert ask(server, "bare_reply", era=era).structured_content == {"rows": [1]}


@pytest.mark.parametrize("function", [bare_reply, typed_reply, typed_reply_or_miss, list_reply, only_a_miss])
def test_the_sdk_has_nothing_to_complain_of(
    function: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        enveloped_server("mcpserver", function)
    assert "Cannot create schema" not in caplog.text


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_what_a_reply_says_besides(library: str, era: str) -> None:
    link = Link("file:///books/1", "The book")

    def lend() -> Reply[dict[str, int]]:
        return Reply({"weeks": 4}, summary="Lent", next_steps=["Bring it back."], links=[link])

    def listing():  # type: ignore[no-untyped-def]
        return Reply([1, 2], summary="Two", details=["in all"], texts=["a preview"], links=[link])

    def done() -> Reply:
        return Reply(summary="Done")

    server = enveloped_server(library, lend, listing, done)
    lent = ask(server, "lend", era=era)
    said = {"summary": "Lent", "nextSteps": ["Bring it back."]}
    assert lent.structured_content == {"weeks": 4, "_envelope": said}
    assert json.loads(lent.content[0].text) == {"weeks": 4, "_envelope": said}
    assert [block.type for block in lent.content] == ["text", "resource_link"]
    shown = ask(server, "listing", era=era).content
    assert [block.type for block in shown] == ["text", "text", "text", "resource_link"]
    assert (shown[0].text, json.loads(shown[1].text), shown[2].text) == ("Two\nin all", [1, 2], "a preview")
    alone = ask(server, "done", era=era)
    assert not alone.is_error
    assert says(alone) == "Done"


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("around", ["one", "list", "result", "helper"])
def test_blocks_in_a_reply_stay_blocks(around: str, library: str) -> None:
    picture = mcp_types.ImageContent(type="image", data="aGk=", mime_type="image/png")

    def shot():  # type: ignore[no-untyped-def]
        if around == "helper":
            helper = Image if library == "mcpserver" else FastMCPImage
            return Reply(helper(data=b"hi", format="png"), summary="A shot")
        made = {
            "one": picture,
            "list": ["words", picture],
            "result": mcp_types.CallToolResult(content=[picture]),
        }
        return Reply(made[around], summary="A shot")

    result = ask(enveloped_server(library, shot), "shot")
    assert "image" in [block.type for block in result.content]
    assert result.content[0].text == "A shot"


def test_a_reply_ranks_its_list() -> None:
    def ranked() -> dict[str, Any]:
        return Reply(
            {"hits": [{"score": n, "text": "x" * 50} for n in range(900)]}, rank={"hits": rank("-score")}
        )  # type: ignore[return-value]

    for library in LIBRARIES:
        result = ask(enveloped_server(library, ranked), "ranked", {"tokenBudget": 400})
        assert result.structured_content["hits"][0]["score"] == 899


# -- what goes wrong ------------------------------------------------------------------------------------------


def crash() -> Rows:
    raise KeyError("secret /home/somebody/file.py")


async def async_crash() -> Rows:
    raise RuntimeError("secret /home/somebody/file.py")


def yields_and_crashes() -> Any:
    yield 1
    raise RuntimeError("secret /home/somebody/file.py")


async def async_yields_and_crashes() -> Any:
    yield 1
    raise RuntimeError("secret /home/somebody/file.py")


def add(a: int, b: int = 1) -> int:
    return a + b


@pairwise(
    function=[crash, async_crash, yields_and_crashes, async_yields_and_crashes], library=LIBRARIES, era=ERAS
)
def test_an_unexpected_exception_shows_nothing_of_itself(
    function: Callable[..., Any], library: str, era: str, caplog: pytest.LogCaptureFixture
) -> None:
    result = ask(enveloped_server(library, function), function.__name__, era=era)
    assert result.is_error
    assert result.structured_content is None
    assert code(result) == "INTERNAL"
    assert "secret" not in says(result)
    assert "Traceback" not in says(result)
    correlation = json.loads(result.content[0].text)["_envelope"]["error"]["details"]["correlationId"]
    assert correlation in caplog.text
    assert "secret" in caplog.text


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("function", [crash, async_crash])
def test_an_unexpected_exception_is_logged_once(
    function: Callable[..., Any], library: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With its traceback; where the library has logged that, only the correlation id is added."""
    logging.getLogger("fastmcp").addHandler(caplog.handler)
    try:
        ask(enveloped_server(library, function), function.__name__)
    finally:
        logging.getLogger("fastmcp").removeHandler(caplog.handler)
    assert len([record for record in caplog.records if record.exc_info]) == 1
    assert len([record for record in caplog.records if "correlation id" in record.getMessage()]) == 1


@pairwise(arguments=[{"a": "many"}, {}, {"a": None}], dialect=DIALECTS, library=LIBRARIES, era=ERAS)
def test_arguments_that_are_wrong(dialect: str, library: str, era: str, arguments: dict[str, Any]) -> None:
    result = ask(enveloped_server(library, add, dialect=dialect), "add", arguments, era=era)
    assert code(result, dialect) == {"ctxo": "", "scalpel": "invalid_argument"}.get(dialect, "BAD_ARGS")
    assert "a:" in says(result), "the argument is named"


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_model_that_cannot_be_made_inside_is_not_the_callers_mistake(library: str) -> None:
    def upstream(query: str) -> Rows:
        return Rows.model_validate({"rows": "none"})

    def checks(rows: str) -> Rows:
        return Rows.model_validate({"rows": rows})

    server = enveloped_server(library, upstream, checks)
    assert code(ask(server, "upstream", {"query": "x"})) == "INTERNAL"
    assert code(ask(server, "checks", {"rows": "x"})) == "BAD_ARGS"


@pytest.mark.parametrize("library", LIBRARIES)
def test_words_meant_for_the_caller_are_shown(library: str) -> None:
    def refuses() -> str:
        raise (ToolError if library == "fastmcp" else SDKToolError)("The branch is locked.")

    result = ask(enveloped_server(library, refuses), "refuses")
    assert code(result) == "TOOL_FAILED"
    assert "The branch is locked." in says(result)
    assert "Error executing" not in says(result)


class Odd:
    def __repr__(self) -> str:
        raise RuntimeError("not even that")


def circular() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


def half_a_character() -> str:
    return "\ud800"


def bad_bytes() -> dict[str, Any]:
    return {"raw": b"\xff\xfe"}


def not_promised() -> Rows:
    return {"rows": ["none"]}  # type: ignore[return-value]


def unwritable() -> dict[str, Any]:
    return {"odd": Odd()}


def large_and_unwritable() -> dict[str, Any]:
    return {"many": ["x" * 100] * 9000, "odd": Odd()}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dialect", ["native", "transcend"])
@pytest.mark.parametrize(
    "function", [circular, half_a_character, bad_bytes, unwritable, large_and_unwritable]
)
def test_results_that_cannot_be_sent(dialect: str, function: Callable[..., Any], library: str) -> None:
    result = ask(enveloped_server(library, function, dialect=dialect), function.__name__)
    assert result.is_error, result
    assert code(result, dialect) == "BAD_RESULT"
    assert "Traceback" not in says(result)


@pytest.mark.parametrize("dialect", ["native", "gel"])
def test_a_result_that_the_sdk_refuses(dialect: str) -> None:
    result = ask(enveloped_server("mcpserver", not_promised, dialect=dialect), "not_promised")
    assert code(result, dialect) == "BAD_RESULT"
    assert "none" not in says(result), "values are not shown"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_protocol_errors_stay_protocol_errors(library: str, era: str) -> None:
    """An unknown tool is no tool of ours; a tool of the SDK may raise a protocol error on purpose."""

    def on_purpose() -> str:
        raise MCPError(code=-32042, message="open this page first")

    async def main() -> None:
        async with connected(enveloped_server(library, on_purpose), era) as session:
            if library == "fastmcp":
                result = await session.call("no_such_tool")
                assert result.is_error
                assert "Unknown tool" in says(result)
                masked = await session.call("on_purpose")
                assert code(masked) == "TOOL_FAILED"
                assert "open this page first" in says(masked)
            else:
                with pytest.raises(MCPError, match="open this page first"):
                    await session.call("on_purpose")

    run(main)


# -- items that are yielded -----------------------------------------------------------------------------------


def some() -> Iterator[int]:
    warn("approximate")
    yield 1
    raise Failure("RATE_LIMITED", "Too fast.")


async def async_some() -> AsyncIterator[int]:
    warn("approximate")
    yield 1
    raise Failure("RATE_LIMITED", "Too fast.")


@pytest.mark.parametrize("function", [some, async_some])
def test_failures_among_items(function: Callable[..., Any]) -> None:
    function.__annotations__.pop("return", None)
    for library in LIBRARIES:
        assert code(ask(enveloped_server(library, function), function.__name__)) == "RATE_LIMITED"


# -- warnings -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    "value",
    [{"a": 1}, [1, 2], "text", 7, None, Rows(rows=[1])],
    ids=["object", "list", "text", "int", "null", "model"],
)
def test_a_warning_beside_any_value(library: str, value: Any) -> None:
    def tool() -> Any:
        warn("stale")
        return value

    result = ask(enveloped_server(library, tool), "tool")
    assert not result.is_error
    assert notice(result) == {"warnings": ["stale"]}
    assert "stale" in says(result)


def test_a_warning_beside_typed_values() -> None:
    def rows() -> list[int]:
        warn("stale")
        return [1, 2]

    for library in LIBRARIES:
        result = ask(enveloped_server(library, rows), "rows")
        assert result.structured_content == {"result": [1, 2], "_envelope": {"warnings": ["stale"]}}


LONG = "The query failed.\n\nLine 3: unknown column 'foo'\nSee /usr/share/doc/x. " + "word " * 300 + "END"


def said_by_fastmcp() -> None:
    raise ToolError(LONG)


def said_by_the_sdk() -> None:
    raise SDKToolError(LONG)


def said_by_a_failure() -> None:
    raise Failure("BAD_QUERY", LONG)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("library", "function"),
    [
        ("fastmcp", said_by_fastmcp),
        ("mcpserver", said_by_the_sdk),
        ("fastmcp", said_by_a_failure),
        ("mcpserver", said_by_a_failure),
    ],
)
def test_what_was_written_for_the_caller_is_shown(library: str, function: Any, dialect: str) -> None:
    """All of its lines, scrubbed; under a small budget as much as fits, and a mark."""
    shown = wire(ask(enveloped_server(library, function, dialect=dialect), function.__name__))
    assert "unknown column 'foo'" in shown
    assert "END" in shown
    assert "/usr/share" not in shown
    if dialect != "ctxo":
        small = enveloped_server(library, function, dialect=dialect, budget=300)
        cut = ask(small, function.__name__)
        assert "unknown column 'foo'" in wire(cut)
        assert "…" in wire(cut)
        assert "END" not in cut.content[0].text


class AtLeast(BaseModel):
    rows: list[int] = Field(min_length=5000)


def uncuttable() -> AtLeast:
    return AtLeast(rows=list(range(9000)))


def error_by_hand() -> mcp_types.CallToolResult:
    lines = "".join(f"line {n}\n" for n in range(9000))
    return mcp_types.CallToolResult(content=[mcp_types.TextContent(type="text", text=lines)], is_error=True)


@pairwise(library=LIBRARIES, dialect=["transcend", "gel", "scalpel"], budget=[128, 400, 8000])
def test_a_failure_that_hides_a_result_names_its_handle(
    library: str, dialect: str, budget: int, tmp_path: Path
) -> None:
    place = str(tmp_path / "vault.db")
    server = enveloped_server(library, uncuttable, error_by_hand, dialect=dialect, budget=budget, vault=place)

    async def main() -> None:
        async with connected(server) as session:
            for tool, path, last in (
                ("uncuttable", "/rows/8999", "8999"),
                ("error_by_hand", "", "line 8999"),
            ):
                result = await session.call(tool)
                found = re.search(r'"?handle\\*"?[:=] ?\\*"(\w{22})', wire(result))
                if budget == 8000 and tool == "uncuttable" and found is None:
                    continue
                assert found, wire(result)
                if dialect == "transcend":
                    assert result.structured_content["truncated"] is True
                if dialect == "gel":
                    assert result.structured_content["meta"]["truncated"] is True
                where = {"handle": found[1], "path": path} if path else {"handle": found[1], "grep": last}
                read = await session.call("envelope_read", where)
                assert last in read.content[-1].text

    run(main)
