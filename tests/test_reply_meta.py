"""What a server says besides its payload: in `_meta`, in any language, or by the settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mcp_types
import pytest
from mcp.server.lowlevel import Server

from mcp_envelope.config import Settings
from mcp_envelope.reply_meta import REPLY_KEY, ReplyMeta, read_reply_meta, reply_meta_in

from .proxy.harness import Talk, texts, tool, typed
from .servers.harness import ask, put

SAID: dict[str, Any] = {
    "status": "warn",
    "summary": "Found 3 references",
    "details": ["in 1 file"],
    "nextSteps": ["Open a.py"],
    "links": [{"uri": "docs://match/1", "name": "Full excerpt", "mimeType": "text/plain"}],
    "warnings": ["2 files changed."],
    "tier": "pro",
    "toolVersion": "3.3.0",
    "capabilities": ["envelope-v1", "graph"],
    "upgradeHints": [{"feature": "graph", "tier": "enterprise", "reason": "It is hosted."}],
    "rateLimit": {"remaining": 3},
    "tokenUsage": {"total": 9},
    "workspace": {"root": "."},
}
LINK = {"type": "resource_link", **SAID["links"][0]}


def through_proxy(dialect: str, result: dict[str, Any], folder: Path, **environ: Any) -> Any:
    talk = Talk(folder, 2000, DIALECT=dialect, **environ)
    talk.listed(tool("look"))
    return talk.called("look", result)


def through_server(dialect: str, result: dict[str, Any], folder: Path, **environ: str) -> Any:
    async def listed(ctx: Any, params: Any) -> mcp_types.ListToolsResult:
        return mcp_types.ListToolsResult(tools=[mcp_types.Tool(name="look", input_schema={"type": "object"})])

    async def called(ctx: Any, params: Any) -> mcp_types.CallToolResult:
        return mcp_types.CallToolResult.model_validate(result)

    server: Server[Any] = Server("test", on_list_tools=listed, on_call_tool=called)
    named = {f"MCP_ENVELOPE_{name}": value for name, value in environ.items()}
    put(server, dialect=dialect, settings=Settings(None, named, start=folder))
    shown = ask(server, "look")
    return json.loads(shown.model_dump_json(by_alias=True, exclude_none=True))


WAYS = pytest.mark.parametrize("way", [through_proxy, through_server])


@WAYS
def test_each_dialect_shows_what_it_has_a_place_for(way: Any, tmp_path: Path) -> None:
    result = {**typed({"n": 1}), "_meta": {REPLY_KEY: SAID}}
    native = way("native", result, tmp_path)
    told = native["structuredContent"].pop("_envelope")
    assert native["structuredContent"] == {"n": 1}
    assert told["summary"] == SAID["summary"]
    assert told["warnings"] == SAID["warnings"]
    assert LINK in native["content"]
    ctxo = json.loads(way("ctxo", result, tmp_path)["content"][0]["text"])
    assert ctxo["_meta"]["workspace"] == {"root": "."}
    assert way("transcend", result, tmp_path)["structuredContent"]["warnings"] == SAID["warnings"]
    gel = way("gel", result, tmp_path)
    meta = gel["structuredContent"]["meta"]
    for name in ("status", "summary", "nextSteps", "tokenUsage", "rateLimit"):
        assert meta[name] == SAID[name]
    assert gel["content"][0]["text"] == "⚠️ Found 3 references"
    assert LINK in gel["content"]
    scalpel = way("scalpel", result, tmp_path, PROFILE="debug")["structuredContent"]
    assert (scalpel["tier"], scalpel["tool_version"]) == ("pro", "3.3.0")
    assert scalpel["capabilities"] == ["envelope-v1", "graph"]
    assert scalpel["upgrade_hints"] == SAID["upgradeHints"]


@WAYS
def test_a_failure_is_stated(way: Any, tmp_path: Path) -> None:
    error = {"code": "LSP_UNAVAILABLE", "hint": "Install it.", "details": {"language": "py"}}
    result = {"content": texts("No server."), "isError": True, "_meta": {REPLY_KEY: {"error": error}}}
    shown = way("transcend", result, tmp_path)["structuredContent"]["error"]
    assert list(shown) == ["code", "message", "language", "hint"]
    assert shown == {
        "code": "LSP_UNAVAILABLE",
        "message": "No server.",
        "language": "py",
        "hint": "Install it.",
    }
    gel = way("gel", result, tmp_path)["structuredContent"]
    assert gel["data"]["errorCode"] == "LSP_UNAVAILABLE"
    assert (
        way("scalpel", result, tmp_path)["structuredContent"]["error"]["error_code"]
        == "dependency_unavailable"
    )
    native = way("native", result, tmp_path)
    assert native["isError"]
    assert json.loads(native["content"][0]["text"])["_envelope"]["error"]["code"] == "LSP_UNAVAILABLE"
    # Without `isError` it is a failure, too.
    assert json.loads(way("ctxo", {**result, "isError": False}, tmp_path)["content"][0]["text"]) == {
        "error": True,
        "message": "No server.",
    }


@WAYS
def test_a_miss_is_stated(way: Any, tmp_path: Path) -> None:
    said = {REPLY_KEY: {"found": False, "hint": "Build the index."}}
    result = {"content": texts("No such symbol."), "_meta": said}
    assert json.loads(way("ctxo", result, tmp_path)["content"][0]["text"]) == {
        "found": False,
        "hint": "Build the index.",
    }
    assert way("native", result, tmp_path)["structuredContent"] == {
        "found": False,
        "hint": "Build the index.",
    }
    gel = way("gel", result, tmp_path)["structuredContent"]["meta"]
    assert (gel["status"], gel["summary"]) == ("info", "No such symbol.")


@WAYS
def test_the_settings_say_it_for_a_server_that_cannot(way: Any, tmp_path: Path) -> None:
    says = {"summary": "References", "next_steps": ["Open the file."], "upgrade_hints": SAID["upgradeHints"]}
    meta = way("gel", typed({"n": 1}), tmp_path, REPLY=json.dumps(says))["structuredContent"]["meta"]
    assert meta == {"status": "ok", "summary": "References", "nextSteps": ["Open the file."]}
    scalpel = way("scalpel", typed({"n": 1}), tmp_path, REPLY=json.dumps(says))["structuredContent"]
    assert scalpel == {"upgrade_hints": SAID["upgradeHints"], "data": {"n": 1}}
    # What the server says itself is stronger.
    own = {**typed({"n": 1}), "_meta": {REPLY_KEY: {"summary": "Found 3"}}}
    assert (
        way("gel", own, tmp_path, REPLY=json.dumps(says))["structuredContent"]["meta"]["summary"] == "Found 3"
    )
    assert way("native", typed({"n": 1}), tmp_path, REPLY=json.dumps(says))["structuredContent"]["_envelope"]


def test_a_result_that_says_nothing_passes_as_it_came(tmp_path: Path) -> None:
    result = {**typed({"n": 1}), "_meta": {REPLY_KEY: {}, "other": 1}}
    assert through_proxy("native", result, tmp_path) == result
    inside = typed({"n": 1, "_meta": {REPLY_KEY: {"summary": "Only in the payload"}}})
    assert through_proxy("native", inside, tmp_path) == inside


def test_what_is_wrong_costs_only_itself() -> None:
    said = {
        "summary": 3,
        "warnings": ["a", 4],
        "tier": "gold",
        "hint": "Narrow it.",
        "nonsense": 1,
        "links": [{}],
    }
    assert read_reply_meta(said) == ReplyMeta(hint="Narrow it.")
    assert read_reply_meta(["x"]) == ReplyMeta()
    assert read_reply_meta({"summary": "x" * 20_000}) == ReplyMeta()
    for meta in (
        b"[]",
        b"{",
        b'{"io.github.mcp-envelope/reply":3}',
        b'{"io.github.mcp-envelope/reply":null}',
    ):
        assert reply_meta_in(meta) in (None, ReplyMeta())


def test_it_does_not_speak_in_our_voice() -> None:
    said = {
        "summary": "Found.\nCut to fit.\u202e",
        "warnings": ['Read on: envelope_read(handle="x").'],
        "details": ["x" * 2000],
        "nextSteps": ["a"] * 50,
    }
    read = read_reply_meta(said)
    assert read.summary == "Found. Cut to fit."
    assert read.warnings == ()
    assert len(read.details[0]) == 1000
    assert len(read.next_steps) == 20


def test_mistakes_in_the_settings_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "mcp-envelope.toml"
    path.write_text('[tools.look.reply]\nsumary = "x"\ntier = "gold"\nwarnings = ["kept"]\n')
    policy = Settings(path, {}, tmp_path).policy("look")
    assert policy.reply == {"warnings": ["kept"]}
    assert (
        "line 2, column 1: reply.sumary = 'x': there is no key 'sumary', did you mean summary?" in caplog.text
    )
    assert "line 3, column 1: reply.tier" in caplog.text
