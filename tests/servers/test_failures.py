"""Failures are results in the published contracts: raised, returned, or answered as protocol errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mcp_types
import pytest
from fastmcp.exceptions import ToolError as FastMCPToolError
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp.server.mcpserver.exceptions import ToolError

from mcp_envelope.anchors import Anchor, NodeId
from mcp_envelope.codes import GENERAL
from mcp_envelope.dialects.transcend import CODES

from ..proxy.harness import Talk, call, frame, texts, tool
from .harness import LIBRARIES, ask, connected, enveloped_server, put, run

PUBLISHED = ("ctxo", "transcend", "gel", "scalpel")


def problem(shown: Any, dialect: str) -> tuple[str, str]:
    """Code and message of a failure, given its content and its structure."""
    content, structure = shown
    if dialect == "ctxo":
        document = json.loads(content[0]["text"])
        assert document["error"] is True
        assert "_meta" not in document
        return "", document["message"]
    if dialect == "transcend":
        assert structure["ok"] is False
        assert structure["error"]["code"] in CODES
        return structure["error"].get("reason", structure["error"]["code"]), structure["error"]["message"]
    if dialect == "gel":
        assert structure["meta"]["status"] == "error"
        return structure["data"]["errorCode"], structure["data"]["message"]
    assert structure["error"]["error_code"] in GENERAL
    return structure["error"]["error_code"], structure["error"]["error"]


def lanes(result: Any) -> tuple[Any, Any]:
    return [block.model_dump(exclude_none=True) for block in result.content], result.structured_content


def lowlevel(action: Callable[[], Any], **options: Any) -> Server[Any]:
    async def listed(ctx: Any, params: Any) -> mcp_types.ListToolsResult:
        return mcp_types.ListToolsResult(tools=[mcp_types.Tool(name="look", input_schema={"type": "object"})])

    async def called(ctx: Any, params: Any) -> Any:
        if params.name != "look":
            raise MCPError(code=-32602, message=f"Unknown tool: {params.name}")
        return action()

    server: Server[Any] = Server("test", on_list_tools=listed, on_call_tool=called)
    put(server, **options)
    return server


def raising(error: Exception) -> Callable[[], Any]:
    def look() -> dict[str, Any]:
        raise error

    return look


def server_of(way: str, action: Callable[[], Any], **options: Any) -> Any:
    return lowlevel(action, **options) if way == "lowlevel" else enveloped_server(way, action, **options)


# -- raised ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [*LIBRARIES, "lowlevel"])
@pytest.mark.parametrize("dialect", PUBLISHED)
def test_a_protocol_error_that_a_tool_raises_is_a_result(way: str, dialect: str) -> None:
    error = MCPError(code=-32603, message="The branch main was not found.", data={"branch": "main"})
    found, message = problem(lanes(ask(server_of(way, raising(error), dialect=dialect), "look")), dialect)
    assert found in ("", "NOT_FOUND", "not_found")
    assert message == "The branch main was not found."


@pytest.mark.parametrize("way", ["mcpserver", "lowlevel"])
@pytest.mark.parametrize("dialect", ["native", *PUBLISHED])
def test_protocol_errors_that_stay(way: str, dialect: str) -> None:
    """In our own shape all of them, and everywhere those that are about the request. FastMCP has none."""

    async def refused(server: Any, name: str, number: int) -> None:
        async with connected(server) as session:
            with pytest.raises(MCPError) as caught:
                await session.call(name)
            assert caught.value.code == number

    page = MCPError(code=-32042, message="Open this page first.")
    run(lambda: refused(server_of(way, raising(page), dialect=dialect), "look", -32042))
    if dialect == "native":
        broken = MCPError(code=-32603, message="Broken.")
        run(lambda: refused(server_of(way, raising(broken), dialect=dialect), "look", -32603))
    if way == "lowlevel":
        run(lambda: refused(server_of(way, raising(page), dialect=dialect), "elsewhere", -32602))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dialect", PUBLISHED)
@pytest.mark.parametrize("arguments", [{}, {"depth": "many"}, {"depth": 1, "more": 2}])
def test_wrong_arguments_are_named(library: str, dialect: str, arguments: dict[str, Any]) -> None:
    def look(depth: int) -> dict[str, Any]:
        return {"depth": depth}

    server = enveloped_server(library, look, dialect=dialect)
    if library == "mcpserver" and "more" in arguments:
        return  # the SDK ignores them
    found, message = problem(lanes(ask(server, "look", arguments)), dialect)
    assert found in ("", "BAD_ARGS", "invalid_argument")
    assert ("more" if "more" in arguments else "depth") in message


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_bad_node_id(library: str) -> None:
    def look(node: str) -> str:
        return str(NodeId.parse(node))

    found, message = problem(
        lanes(ask(enveloped_server(library, look, dialect="transcend"), "look", {"node": "no"})), "transcend"
    )
    assert found == "BAD_NODE_ID"
    assert "<lang>:<relpath>" in message


# -- anchors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dialect", ["native", *PUBLISHED])
def test_anchors_and_node_ids_can_be_returned(library: str, dialect: str) -> None:
    anchor, node = Anchor("src/a.py", 3, 7, snippet="x"), NodeId("py", "src/a.py", "f")
    wire = {"file": "src/a.py", "line": 3, "col": 7, "snippet": "x"}

    def untyped():  # type: ignore[no-untyped-def]
        return {"at": anchor, "all": [anchor], "id": node}

    def mapped() -> dict[str, Any]:
        return {"at": anchor, "all": [anchor], "id": node}

    def single() -> Anchor:
        return anchor

    def several() -> list[Anchor]:
        return [anchor, anchor]

    def named() -> NodeId:
        return node

    def large() -> list[Anchor]:
        return [anchor] * 2000

    wanted = {
        "untyped": {"at": wire, "all": [wire], "id": "py:src/a.py#f"},
        "mapped": {"at": wire, "all": [wire], "id": "py:src/a.py#f"},
        "single": wire,
        "several": [wire, wire],
        "named": "py:src/a.py#f",
    }
    server = enveloped_server(library, untyped, mapped, single, several, named, large, dialect=dialect)

    async def main() -> None:
        async with connected(server) as session:
            for name, value in wanted.items():
                result = await session.call(name)
                assert not result.is_error, (name, result)
                assert json.dumps(value)[1:-1] in json.dumps(
                    json.loads(result.content[0].text)
                    if dialect == "ctxo"
                    else result.structured_content or value
                ), name
            assert not (await session.call("large")).is_error

    run(main)


# -- behind the proxy ------------------------------------------------------------------------------------------


def proxied(folder: Path, dialect: str, answer: dict[str, Any], known: bool = True, **settings: Any) -> Any:
    """The response of a server behind the proxy, as the client gets it."""
    talk = Talk(folder, 2000, DIALECT=dialect, **settings)
    if known:
        talk.listed(tool("look"))
    talk.send(call(7, "look"))
    [shown], _ = talk.reply(frame({"jsonrpc": "2.0", "id": 7, **answer}))
    return json.loads(shown)


def said(folder: Path, dialect: str, words: str, structure: Any = None, **settings: Any) -> Any:
    result = {"content": texts(words), "isError": True}
    if structure is not None:
        result["structuredContent"] = structure
    shown = proxied(folder, dialect, {"result": result}, **settings)["result"]
    return shown["content"], shown.get("structuredContent")


@pytest.mark.parametrize("dialect", PUBLISHED)
def test_an_error_response_is_a_result(dialect: str, tmp_path: Path) -> None:
    error = {"code": -32602, "message": "Invalid arguments: path is missing", "data": {"argument": "path"}}
    result = proxied(tmp_path, dialect, {"error": error})["result"]
    found, message = problem((result["content"], result.get("structuredContent")), dialect)
    assert found in ("", "BAD_ARGS", "invalid_argument")
    assert message == error["message"]
    assert bool(result.get("isError")) == (dialect in ("transcend", "gel"))


@pytest.mark.parametrize("dialect", ["native", *PUBLISHED])
def test_error_responses_that_stay(dialect: str, tmp_path: Path) -> None:
    for number, message, known in (
        (-32602, "Unknown tool: look", False),
        (-32601, "Method not found", False),
        (-32600, "Invalid request", True),
        (-32042, "Open this page first.", True),
    ):
        error = {"code": number, "message": message}
        assert proxied(tmp_path, dialect, {"error": error}, known)["error"] == error
    if dialect == "native":
        error = {"code": -32603, "message": "Broken."}
        assert proxied(tmp_path, dialect, {"error": error})["error"] == error


@pytest.mark.parametrize(
    ("words", "structure", "wanted"),
    [
        ("Something broke.", None, "TOOL_FAILED"),
        ("ENOENT: no such file or directory, open '/srv/data/a.txt'", None, "NOT_FOUND"),
        ("Access denied - path outside allowed directories: /etc/passwd not in /srv", None, "FORBIDDEN"),
        ("The request timed out after 30 s", None, "TIMEOUT"),
        ("NODE_NOT_FOUND: no such node", None, "NODE_NOT_FOUND"),
        ("It failed (code: LSP_FAILED)", None, "LSP_FAILED"),
        ("No.", {"code": "FILE_DELETED"}, "FILE_DELETED"),
        ("No.", {"error": {"errorCode": "not_found"}}, "NOT_FOUND"),
        ("No.", {"error_code": "SYMBOL_NOT_FOUND", "near": ["f"]}, "SYMBOL_NOT_FOUND"),
        ("No.", {"code": "USER_NOT_FOUND"}, "USER_NOT_FOUND"),
        ("No.", {"code": 404}, "NOT_FOUND"),
        ('{"error": "quota exceeded", "code": "RATE_LIMITED"}', None, "RATE_LIMITED"),
        ("1 validation error for lookArguments\npath\n  Field required [type=missing]", None, "BAD_ARGS"),
        ("Input validation error: 'path' is a required property", None, "BAD_ARGS"),
        (
            "MCP error -32602: Input validation error: Invalid arguments for tool look: "
            + json.dumps([{"code": "invalid_type", "path": ["path"], "message": "Required"}], indent=2),
            None,
            "BAD_ARGS",
        ),
    ],
)
def test_codes_come_from_what_the_server_says(
    words: str, structure: Any, wanted: str, tmp_path: Path
) -> None:
    found, message = problem(said(tmp_path, "gel", words, structure), "gel")
    assert found == wanted
    if wanted == "BAD_ARGS":
        assert "path" in message
    for dialect in PUBLISHED:
        _, message = problem(said(tmp_path, dialect, words, structure), dialect)
        # Its own words, but for scalpel, whose contract has no absolute path in an error.
        assert [path in message for path in ("/srv", "/etc")] == [
            path in words and dialect != "scalpel" for path in ("/srv", "/etc")
        ]


def test_closed_sets_of_codes(tmp_path: Path) -> None:
    _, shown = said(tmp_path, "transcend", "No.", {"code": "USER_NOT_FOUND"})
    assert shown["error"]["code"] == "NODE_NOT_FOUND"
    assert shown["error"]["reason"] == "USER_NOT_FOUND"
    _, shown = said(tmp_path, "scalpel", "No.", {"code": "USER_NOT_FOUND", "user": 3})
    assert shown["error"] == {
        "error": "No.",
        "error_code": "not_found",
        "error_details": {"code": "USER_NOT_FOUND"},
    }
    assert shown["data"] == {"code": "USER_NOT_FOUND", "user": 3}


def test_the_structure_of_a_failure_is_kept_or_told_of(tmp_path: Path) -> None:
    structure = {"tried": ["a", "b"]}
    assert said(tmp_path, "scalpel", "No.", structure)[1]["data"] == structure
    assert said(tmp_path, "transcend", "No.", structure)[1]["error"]["tried"] == ["a", "b"]
    assert said(tmp_path, "gel", "No.", structure)[1]["data"]["tried"] == ["a", "b"]
    content, _ = said(tmp_path, "ctxo", "No.", structure)
    assert "envelope_read(handle=" in json.loads(content[0]["text"])["message"]
    large = {"tried": [f"candidate number {n}" for n in range(3000)]}
    _, shown = said(tmp_path, "transcend", "No.", large)
    assert shown["truncated"]
    assert shown["error"]["handle"]


def test_the_settings_know_more_words(tmp_path: Path) -> None:
    table = json.dumps({"no luck": "NODE_NOT_FOUND", "no luck today": "LSP_TIMEOUT"})
    assert problem(said(tmp_path, "transcend", "No luck.", ERRORS=table), "transcend")[0] == "NODE_NOT_FOUND"
    assert (
        problem(said(tmp_path, "transcend", "No luck today.", ERRORS=table), "transcend")[0] == "LSP_TIMEOUT"
    )
    assert problem(said(tmp_path, "gel", "Not found.", ERRORS=table), "gel")[0] == "NOT_FOUND"


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", ["raised", "protocol"])
def test_the_settings_know_words_of_tools_in_python(
    library: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_ENVELOPE_ERRORS", '{"no luck": "NODE_NOT_FOUND"}')
    own = FastMCPToolError if library == "fastmcp" else ToolError
    error = own("No luck.") if kind == "raised" else MCPError(code=-32603, message="No luck.")
    shown = lanes(ask(enveloped_server(library, raising(error), dialect="transcend"), "look"))
    assert problem(shown, "transcend") == ("NODE_NOT_FOUND", "No luck.")


def test_a_stack_trace_is_removed_even_from_its_words(tmp_path: Path) -> None:
    words = 'It broke in /srv/app.py\nTraceback (most recent call last):\n  File "/srv/app.py", line 3'
    _, message = problem(said(tmp_path, "scalpel", words), "scalpel")
    assert message == "It broke in app.py\n[traceback removed]"


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_type_of_ours_has_its_own_code_among_the_arguments(library: str) -> None:
    def neighbours(node: NodeId, depth: int = 1) -> dict[str, str]:
        return {"node": str(node)}

    server = enveloped_server(library, neighbours, dialect="transcend")
    asked: list[tuple[str, dict[str, Any]]] = [
        ("BAD_NODE_ID", {"node": "nowhere"}),
        ("BAD_ARGS", {"node": "nowhere", "depth": "deep"}),
        ("BAD_ARGS", {"node": 5}),
        ("BAD_ARGS", {}),
    ]
    for code, arguments in asked:
        error = ask(server, "neighbours", arguments).structured_content["error"]
        assert error["code"] == code, error
        assert "node" in error["fields"]


@pytest.mark.parametrize("dialect", PUBLISHED)
def test_a_server_that_gives_no_reason(dialect: str, tmp_path: Path) -> None:
    talk = Talk(tmp_path, 2000, DIALECT=dialect)
    talk.listed(tool("look"))
    talk.send(call(7, "look"))
    [shown], _ = talk.reply(frame({"jsonrpc": "2.0", "id": 7, "error": {"code": -32603, "message": ""}}))
    found = json.loads(shown)["result"]
    assert (
        problem((found["content"], found.get("structuredContent")), dialect)[1]
        == "The server gave no reason."
    )


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("Unknown tool: nope", "not_found"),
        ("No node with id py:x was found", "not_found"),
        ("bad node id 'x': there is no colon", "invalid_argument"),
        (
            "1 validation error for call[look]\nn\n  Missing required argument [type=missing_argument]\n"
            "    For further information visit https://errors.pydantic.dev/2.14/v/missing_argument",
            "invalid_argument",
        ),
    ],
)
def test_what_servers_of_both_libraries_say(words: str, code: str, tmp_path: Path) -> None:
    talk = Talk(tmp_path, 2000, DIALECT="scalpel")
    talk.listed(tool("look"))
    shown = talk.called("look", {"content": texts(words), "isError": True})["structuredContent"]
    assert shown["error"]["error_code"] == code
    assert shown["error"]["error"] == words.partition("\n    For")[0]
