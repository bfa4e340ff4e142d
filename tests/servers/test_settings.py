"""Where the settings of a call come from: the tool, the file, the client; and the warnings of `strict`."""

from __future__ import annotations

import json
import logging
from functools import partial
from pathlib import Path
from typing import Any

import mcp_types
import pytest
from fastmcp import FastMCP
from fastmcp.tools import ToolResult
from mcp.server.mcpserver import MCPServer
from msgspec.json import encode

from mcp_envelope import enveloped, rank
from mcp_envelope.budget import meter_named as meter
from mcp_envelope.clients.known import UNKNOWN, Client
from mcp_envelope.gateway import Gateway
from mcp_envelope.servers.fastmcp import EnvelopeMiddleware
from mcp_envelope.servers.sdk import envelope
from mcp_envelope.vault.ledger import Ledger
from tests.shown import shown

from .harness import ERAS, LIBRARIES, ask, connected, enveloped_server, listed, notice, run, wire


def found(count: int = 3000) -> dict[str, Any]:
    return {"references": [{"file": f"{n % 7}.py", "line": 3000 - n} for n in range(count)], "total": count}


def plain_found(count: int = 3000) -> dict[str, Any]:
    return found(count)


declared = enveloped(budget=300, lists={"references": rank("file", "line")}, hint="Pass `count`.")(found)


@pytest.mark.parametrize("library", LIBRARIES)
def test_settings_at_the_tool(library: str) -> None:
    server = enveloped_server(library, declared, plain_found)
    result = ask(server, "found")
    shown = result.structured_content["references"]
    assert 0 < len(shown) < 60
    assert shown == sorted(shown, key=lambda row: (row["file"], row["line"]))
    assert shown[0] == {"file": "0.py", "line": 4}
    assert notice(result)["hint"] == "Pass `count`."
    other = ask(server, "plain_found").structured_content["references"]
    assert other[0] == {"file": "0.py", "line": 3000}
    assert len(other) > 100


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_call_may_ask_for_more_than_the_tool_states(library: str) -> None:
    few = ask(enveloped_server(library, declared), "found").structured_content["references"]
    more = ask(enveloped_server(library, declared), "found", {"tokenBudget": 3000}).structured_content
    assert len(more["references"]) > 3 * len(few)


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_file_goes_before_the_tool(library: str, tmp_path: Path) -> None:
    (tmp_path / "mcp-envelope.toml").write_text(
        '[tools.found]\ntokens = 1500\nhint = "From the file."\n[tools.found.lists]\nreferences = ["-line"]\n'
    )
    result = ask(enveloped_server(library, declared), "found")
    shown = result.structured_content["references"]
    assert len(shown) > 60
    assert shown[0]["line"] == 3000
    assert notice(result)["hint"] == "From the file."


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_list_by_its_path_at_the_tool_and_by_its_name_in_the_file(library: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('[lists]\nreferences = ["-line"]\n')
    tool = enveloped(budget=300, lists={"/references": rank("line")})(plain_found)
    try:
        result = ask(enveloped_server(library, tool, config=str(tmp_path / "mine.toml")), "plain_found")
    finally:
        del plain_found.__enveloped__  # type: ignore[attr-defined]
    assert result.structured_content["references"][0]["line"] == 3000


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_dialect_of_a_tool_from_the_file(library: str, tmp_path: Path) -> None:
    (tmp_path / "mcp-envelope.toml").write_text('[tools.found]\ndialect = "gel"\n')

    async def main() -> None:
        async with connected(enveloped_server(library, found, plain_found)) as session:
            assert "meta" in (await session.call("found", {"count": 1})).structured_content
            assert "meta" not in (await session.call("plain_found", {"count": 1})).structured_content

    run(main)


@pytest.mark.parametrize("library", LIBRARIES)
def test_profiles_speak_on_every_result(library: str, tmp_path: Path) -> None:
    (tmp_path / "mcp-envelope.toml").write_text('profile = "standard"\n')
    result = ask(enveloped_server(library, plain_found), "plain_found", {"count": 1})
    said = result.structured_content["_envelope"]
    assert said["tool"] == "plain_found"
    assert said["budget"]["limit"] == 8000
    assert said["durationMs"] > 0


@pytest.mark.parametrize("library", LIBRARIES)
def test_chosen_fields(library: str, tmp_path: Path) -> None:
    (tmp_path / "mcp-envelope.toml").write_text('[tools.found]\nexclude_fields = ["total"]\n')
    assert set(ask(enveloped_server(library, found), "found", {"count": 1}).structured_content) == {
        "references"
    }


@pytest.mark.parametrize(
    "bad", [{"budget": 5}, {"budget": True}, {"max_bytes": "2"}, {"budget": 500, "max_bytes": 900}]
)
def test_mistakes_at_the_tool(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"budget|max_bytes"):
        enveloped(**bad)
    with pytest.raises(TypeError, match="rank"):
        enveloped(lists={"a": "line"})  # type: ignore[dict-item]


# -- clients --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_the_name_of_the_client_settles_its_budget(library: str, era: str) -> None:
    """A known client gets what it takes; the file and the tool go before."""
    server = enveloped_server(library, plain_found, declared)

    async def size(client: str, tool: str = "plain_found") -> int:
        async with connected(server, era, client) as session:
            result = await session.call(tool)
            return len(json.dumps(result.structured_content, separators=(",", ":")))

    async def main() -> None:
        unknown = await size("tester")
        assert await size("claude-code") > 1.1 * unknown, "10,000 tokens"
        assert await size("Visual Studio Code") < 8200, "8,000 bytes"
        assert await size("claude-code", "found") < 3000, "what the tool says"

    run(main)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_calls_are_noted(library: str, era: str, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    server = enveloped_server(library, plain_found, ledger=ledger, vault=str(tmp_path / "vault.db"))

    async def main() -> None:
        async with connected(server, era, "claude-code") as session:
            await session.call("plain_found", {"count": 1})
            await session.call("plain_found")
            await session.call("plain_found", {"count": "x"})

    run(main)
    ledger.flush()
    failed, cut, small = ledger.calls()
    ledger.close()
    assert {call.client for call in (failed, cut, small)} == {"claude-code"}
    assert small.cuts == 0
    assert 0 < small.bytes_before == small.bytes_after
    assert cut.stored
    assert cut.before > 2 * cut.after
    assert failed.code == "BAD_ARGS"


# -- strict ---------------------------------------------------------------------------------------------------


def by_hand() -> mcp_types.CallToolResult:
    return mcp_types.CallToolResult(content=[mcp_types.TextContent(type="text", text="x")])


def fastmcp_by_hand() -> ToolResult:
    return ToolResult(content="x")


def test_strict_warns_once_of_each_tool(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "mcp_envelope")
    for library, tools in (("fastmcp", [by_hand, fastmcp_by_hand]), ("mcpserver", [by_hand])):
        caplog.clear()
        server = enveloped_server(library, *tools, found, strict=True)
        for _ in range(3):
            for tool in tools:
                assert "x" in wire(ask(server, tool.__name__))
            ask(server, "found")
        said = [record.getMessage() for record in caplog.records if "by hand" in record.getMessage()]
        assert len(said) == len(tools)
        assert "by_hand" in said[0]


def test_others_are_not_warned(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "mcp_envelope")
    for library in LIBRARIES:
        ask(enveloped_server(library, by_hand), "by_hand")
    assert "by hand" not in caplog.text


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_budget_in_the_one_line(library: str, tmp_path: Path) -> None:
    """It is the weakest that anybody said: the tool's own goes before it, and the file before that."""
    file = tmp_path / "settings.toml"
    file.write_text("[tools.in_file]\ntokens = 900\n")

    def in_file(count: int = 3000) -> dict[str, Any]:
        return found(count)

    server = enveloped_server(
        library, plain_found, declared, in_file, budget=600, config=str(file), vault=str(tmp_path / "v.db")
    )
    for tool, least, most in (("plain_found", 500, 600), ("found", 200, 300), ("in_file", 800, 900)):
        used = meter("exact").count(encode(ask(server, tool).structured_content))
        assert least < used <= most, tool


@pytest.mark.parametrize("put", [EnvelopeMiddleware, lambda **more: envelope(MCPServer("x"), **more)])
def test_mistakes_in_the_one_line(put: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="budget must be a whole number, 128 or more; got 5"):
        put(budget=5)
    with pytest.raises(ValueError, match="not both"):
        put(budget=500, max_bytes=5000)
    with pytest.raises(FileNotFoundError, match="there is no settings file"):
        put(config=str(tmp_path / "nowhere.toml"))


def test_an_envelope_for_something_else() -> None:
    with pytest.raises(
        TypeError, match=r"not a FastMCP; for FastMCP: server\.add_middleware\(EnvelopeMiddlew"
    ):
        envelope(FastMCP("x"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes an MCPServer or a low-level Server, not a object"):
        envelope(object())  # type: ignore[arg-type]


@pytest.mark.parametrize("library", LIBRARIES)
def test_strict_warns_of_blocks_and_of_json_as_text(library: str, caplog: pytest.LogCaptureFixture) -> None:
    def blocks() -> list[mcp_types.TextContent]:
        return [mcp_types.TextContent(type="text", text="by hand")]

    def written() -> str:
        return '{"rows": [1, 2, 3]}'

    def words() -> str:
        return "[a note] in words"

    server = enveloped_server(library, blocks, written, words, strict=True)
    for tool in ("blocks", "written", "words", "blocks"):
        ask(server, tool)
    warned = [record.getMessage() for record in caplog.records if "by hand" in record.getMessage()]
    assert len(warned) == 2
    assert "the tool blocks" in warned[0]
    assert "the tool written" in warned[1]


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_tool_with_settings_of_its_own_keeps_to_the_client(library: str) -> None:
    """What is known of the client holds where the tool says nothing of a budget."""

    @enveloped(hint="Ask for less.")
    def words() -> str:
        return "17, " * 3000

    server = enveloped_server(library, words)

    async def main(name: str) -> bool:
        async with connected(server, name=name) as session:
            return bool(notice(await session.call("words")))

    assert run(partial(main, "tester"))
    assert not run(partial(main, "claude-code"))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("count", [30, 3000])
def test_a_client_that_reads_both_lanes_pays_for_both(library: str, count: int, tmp_path: Path) -> None:
    """Together they are within the budget, whether they are cut or not."""

    async def main() -> Any:
        async with connected(server, name="ChatGPT") as session:
            return await session.call("plain_found", {"count": count})

    server = enveloped_server(library, plain_found, budget=1000, vault=str(tmp_path / "v.db"))
    result = run(main)
    content = [block.model_dump(by_alias=True, exclude_none=True) for block in result.content]
    used = [meter("exact").count(lane) for lane in (shown(content), encode(result.structured_content))]
    assert sum(used) <= 1000
    assert ("_envelope" in result.structured_content) == (count == 3000)


@pytest.mark.parametrize(("era", "known"), [("legacy", "sessions"), ("2026-07-28", "stateless")])
@pytest.mark.parametrize("library", LIBRARIES)
def test_the_clients_name_and_era_are_known_to_the_policy(
    library: str, era: str, known: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Client] = []
    policy = Gateway.policy

    def spy(self: Gateway, tool: str, requested: object = None, client: Client = UNKNOWN, *more: Any) -> Any:
        asked.append(client)
        return policy(self, tool, requested, client, *more)

    async def main() -> None:
        async with connected(server, era, name="somebody") as session:
            await session.call("plain_found", {"count": 1})

    server = enveloped_server(library, plain_found)
    monkeypatch.setattr(Gateway, "policy", spy)
    run(main)
    assert {(client.name, client.era) for client in asked if client.name} == {("somebody", known)}


@pytest.mark.parametrize("library", LIBRARIES)
def test_our_tool_asks_not_to_be_hidden_behind_a_search(library: str) -> None:
    meta = listed(enveloped_server(library, plain_found))["envelope_read"].meta
    assert meta is not None
    assert meta["anthropic/alwaysLoad"] is True
