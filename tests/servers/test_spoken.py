"""Tools that speak a contract themselves, or answer with JSON as text, in every server and behind the proxy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import mcp_types
import pytest
from mcp.server.lowlevel import Server

from mcp_envelope.dialects.gel import compose_tool_payload

from ..proxy.harness import Talk, texts, tool
from .harness import LIBRARIES, ask, enveloped_server, put

WAYS = (*LIBRARIES, "lowlevel", "proxy")
ROWS = [{"file": f"src/{n}.py", "line": n} for n in range(400)]
SPOKEN = [
    ("ctxo", {"found": False, "hint": "Build the index."}),
    ("ctxo", {"error": True, "message": "symbolId: too short"}),
    ("scalpel", {"data": {"risk_level": "high"}}),
    ("scalpel", {"tier": "pro", "error": {"error": "no", "error_code": "forbidden"}, "data": {"seen": 1}}),
    ("gel", {"meta": {"status": "error", "summary": "No"}, "data": {"errorCode": "X", "n": 1}}),
]


def answer(way: str, dialect: str, value: Any, folder: Path, as_text: bool = False) -> tuple[Any, Any]:
    """The text and the structure that a client gets."""
    written = json.dumps(value, indent=1)
    content = texts(written)
    if way == "proxy":
        talk = Talk(folder, 2000, DIALECT=dialect)
        talk.listed(tool("look"))
        shown = talk.called(
            "look", {"content": content} if as_text else {"content": content, "structuredContent": value}
        )
        return json.loads(json.dumps(shown["content"])), shown.get("structuredContent")
    if way == "lowlevel":
        made = mcp_types.CallToolResult.model_validate(
            {"content": content} if as_text else {"content": content, "structuredContent": value}
        )

        async def listed(ctx: Any, params: Any) -> mcp_types.ListToolsResult:
            return mcp_types.ListToolsResult(
                tools=[mcp_types.Tool(name="look", input_schema={"type": "object"})]
            )

        async def called(ctx: Any, params: Any) -> mcp_types.CallToolResult:
            return made

        server: Any = Server("test", on_list_tools=listed, on_call_tool=called)
        put(server, dialect=dialect, budget=2000)
    elif as_text:

        def look() -> str:
            return written

        server = enveloped_server(way, look, dialect=dialect, budget=2000)
    else:

        def look() -> dict[str, Any]:  # type: ignore[misc]
            return value  # type: ignore[no-any-return]

        server = enveloped_server(way, look, dialect=dialect, budget=2000)
    result = ask(server, "look")
    return [block.model_dump(exclude_none=True) for block in result.content], result.structured_content


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize(("dialect", "spoken"), SPOKEN)
def test_it_is_not_wrapped_twice(way: str, as_text: bool, dialect: str, spoken: Any, tmp_path: Path) -> None:
    content, structure = answer(way, dialect, spoken, tmp_path, as_text)
    assert (json.loads(content[0]["text"]) if structure is None else structure) == spoken


@pytest.mark.parametrize("way", WAYS)
def test_transcend_is_counted_anew(way: str, tmp_path: Path) -> None:
    _, shown = answer(
        way, "transcend", {"ok": True, "data": {"references": ROWS}, "warnings": ["w"]}, tmp_path
    )
    assert shown["ok"]
    assert shown["warnings"] == ["w"]
    assert shown["truncated"]
    assert 0 < len(shown["data"]["references"]) < 400


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dialect", ["ctxo", "transcend", "gel", "scalpel"])
def test_json_as_text_is_cut_by_its_items(way: str, dialect: str, tmp_path: Path) -> None:
    content, structure = answer(way, dialect, {"results": ROWS, "truncated": False}, tmp_path, as_text=True)
    shown = json.loads(content[0]["text"]) if structure is None else structure
    data = shown if dialect == "ctxo" else shown["data"]
    assert data["results"] == ROWS[: len(data["results"])]
    assert 0 < len(data["results"]) < 400
    assert data["truncated"] is True


@pytest.mark.parametrize("way", LIBRARIES)
def test_what_compose_tool_payload_makes(way: str) -> None:
    made = compose_tool_payload({"status": "ok", "summary": "Two"}, {"rows": [1, 2]}, ["a preview"])

    def look() -> mcp_types.CallToolResult:
        return mcp_types.CallToolResult.model_validate(made)

    result = ask(enveloped_server(way, look, dialect="gel"), "look")
    assert [block.text for block in result.content] == ["✅ Two", "a preview"]
    assert result.structured_content == made["structuredContent"]


TEXT = {"type": "string", "title": "Result"}
MARKED: dict[str, Any] = {
    "type": "object",
    "x-fastmcp-wrap-result": True,
    "properties": {"result": {}},
    "required": ["result"],
}
WRAPPER: dict[str, Any] = {
    "type": "object",
    "title": "lookOutput",
    "properties": {"result": {"title": "Result"}},
    "required": ["result"],
}


@pytest.mark.parametrize("dialect", ["ctxo", "transcend", "gel", "scalpel"])
@pytest.mark.parametrize(
    "value", ["line\n" * 3, [{"n": 1}], [{"n": 1}, {"n": 2}], [], 3, {"a": {"b": 1}}], ids=str
)
def test_what_a_library_put_into_a_member_is_the_data(dialect: str, value: Any, tmp_path: Path) -> None:
    """As servers of both libraries send it, without an envelope."""
    items = value if isinstance(value, list) else [value]
    content = texts(*[item if isinstance(item, str) else json.dumps(item, indent=2) for item in items])
    for number, schema in enumerate((MARKED, WRAPPER)):
        talk = Talk(tmp_path / str(number), 2000, DIALECT=dialect)
        talk.listed(tool("look", schema))
        shown = talk.called("look", {"content": content, "structuredContent": {"result": value}})
        text = shown["content"][0]["text"]
        envelope = shown.get("structuredContent") or json.loads(text)
        if dialect == "ctxo":
            # The payload's own keys, or one that it lacks.
            own = (
                value
                if isinstance(value, dict)
                else {"results" if isinstance(value, list) else "result": value}
            )
            assert {name: envelope[name] for name in envelope if name != "_meta"} == own
        else:
            assert envelope["data"] == value
        # Text that only repeats it is not warned of.
        assert "envelope_read" not in json.dumps(shown)
        assert len(shown["content"]) == (2 if dialect == "gel" else 1)


@pytest.mark.parametrize("kept", ["structure", "both"])
@pytest.mark.parametrize(("dialect", "spoken"), SPOKEN)
def test_json_as_text_that_a_library_put_into_a_member(
    dialect: str, spoken: Any, kept: str, tmp_path: Path
) -> None:
    """What a tool `-> str` of either library returns, without an envelope of ours."""
    for number, schema in enumerate((MARKED, WRAPPER)):
        talk = Talk(tmp_path / str(number), 2000, DIALECT=dialect)
        [entry, *_] = talk.listed(tool("look", {**schema, "properties": {"result": TEXT}}))
        for index, value in enumerate((spoken, {"results": ROWS})):
            said = json.dumps(value, indent=2)
            content = texts(said) if kept == "both" else []
            answer = {"content": content, "structuredContent": {"result": said}}
            shown = talk.called("look", answer, identifier=index)
            envelope = shown.get("structuredContent") or json.loads(shown["content"][0]["text"])
            if "outputSchema" in entry:
                jsonschema_rs.validate(entry["outputSchema"], envelope)
            if value is spoken:
                assert envelope == spoken
            else:
                rows = (envelope if dialect == "ctxo" else envelope["data"])["results"]
                assert rows == ROWS[: len(rows)]
                assert 0 < len(rows) < 400


def test_a_text_that_a_library_put_into_a_member_stays_one_if_it_was_promised(tmp_path: Path) -> None:
    schema = {**MARKED, "properties": {"result": {**TEXT, "minLength": 2}}}
    talk = Talk(tmp_path, 2000, DIALECT="transcend")
    talk.listed(tool("look", schema))
    shown = talk.called("look", {"content": texts("[1]"), "structuredContent": {"result": "[1]"}})
    assert shown["structuredContent"]["data"] == "[1]"


@pytest.mark.parametrize("data", [[1, 1], "text", {"n": 1}, None])
def test_a_tool_that_promises_any_dictionary_may_speak_the_contract(data: Any, tmp_path: Path) -> None:
    envelope = {"ok": True, "data": data, "truncated": False, "warnings": []}
    talk = Talk(tmp_path, 2000, DIALECT="transcend")
    [entry, *_] = talk.listed(tool("look", {"type": "object", "additionalProperties": True}))
    content = texts(json.dumps(envelope))
    shown = talk.called("look", {"content": content, "structuredContent": envelope})["structuredContent"]
    assert shown["data"] == data
    jsonschema_rs.validate(entry["outputSchema"], shown)
