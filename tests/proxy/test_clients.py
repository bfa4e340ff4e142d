"""Clients are known by the names they give themselves, and get what their model reads."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from mcp_envelope.clients import known as clients

from .harness import ROWS, Talk, call, count, frame, request, result, rows, texts, tool, typed
from .screens import screenshot


def test_every_entry_names_its_source() -> None:
    for name, entry in clients.table().items():
        assert name == name.strip()
        assert len(entry.source) > 20
        # The default is meant for those of whom nothing is known; nobody's own limit is far from it.
        assert (entry.tokens or 8000) <= 25_000
        assert (entry.max_bytes or 8000) >= 4000


@pytest.mark.parametrize(
    ("name", "lane"),
    [
        ("claude-code", "structured"),
        ("claude-ai", "content"),
        ("claude-ai (via mcp-remote 0.1.37)", "content"),
        ("codex-mcp-client", "structured"),
        ("Visual Studio Code", "structured"),
        ("Visual Studio Code - Insiders", "structured"),
        ("visual-studio-code", "structured"),
        ("cursor-vscode", "unknown"),
        ("gemini-cli-mcp-client", "content"),
        ("gemini-cli-mcp-client-my server", "content"),
        ("github-copilot-developer", "both"),
        ("JetBrains-IU-copilot-intellij", "both"),
        ("opencode", "content"),
        ("mcp", "unknown"),
        ("", "unknown"),
        ("x" * 100_000, "unknown"),
    ],
)
def test_names_that_clients_give_themselves(name: str, lane: str) -> None:
    known = clients.client(name, "1.2.3")
    assert known.lane == lane
    assert known.version == "1.2.3"
    assert known.name == name[:200]


def test_the_budget_is_that_of_the_client_unless_one_is_set(tmp_path: Path) -> None:
    talk = Talk(tmp_path)
    talk.meet("Visual Studio Code")
    talk.listed(tool("t"))
    set_by_hand = talk.called("t", {"content": texts("word " * 20_000)})
    assert count(set_by_hand["content"]) <= talk.tokens
    free = Talk(tmp_path, tokens=0)
    free.gateway.settings = type(free.gateway.settings)(None, {}, start=tmp_path)
    free.meet("Visual Studio Code")
    free.listed(tool("t"))
    known = free.called("t", {"content": texts("word " * 20_000)})
    assert 6000 < count(known["content"], "bytes") <= 8000


def test_in_the_stateless_era_each_request_says_who_asks(tmp_path: Path) -> None:
    talk = Talk(tmp_path)
    talk.meet("claude-code")
    talk.listed(tool("t", ROWS))
    meta = {"io.modelcontextprotocol/clientInfo": {"name": "github-copilot-developer", "version": "1"}}
    talk.send(call(1, "t", _meta=meta))
    [shown], _ = talk.reply(result(1, **typed(rows(2000))))
    got = json.loads(shown)["result"]
    assert count(got["content"]) + count(got["structuredContent"]) <= talk.tokens


@pytest.mark.parametrize("strange", [5, None, [], {"name": 5}, {"name": None, "version": 1}, {}])
def test_a_client_that_says_nothing_of_use(tmp_path: Path, strange: Any) -> None:
    talk = Talk(tmp_path)
    hello = frame({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"clientInfo": strange}})
    assert talk.send(hello) == ([], [hello])
    bare = b'{"jsonrpc":"2.0","id":0,"method":"initialize"}'
    assert talk.send(bare) == ([], [bare])
    assert talk.wire.client.lane == "unknown"


@pytest.mark.parametrize("name", ["github-copilot-developer", "claude-code", "somebody"])
def test_who_reads_both_lanes_does_not_pay_twice(tmp_path: Path, name: str) -> None:
    """The budget of both lanes together is that of one, once something has to be cut."""
    talk = Talk(tmp_path, tokens=1000)
    talk.meet(name)
    entries = talk.listed(tool("t", ROWS))
    both = name.startswith("github")
    for size in (1, 5, 12, 25, 60, 2000):
        data = rows(size)
        whole = count(typed(data)["content"]) + count(data)
        got = talk.called("t", typed(data))
        lanes = count(got["content"]), count(got["structuredContent"])
        assert jsonschema_rs.is_valid(entries[0]["outputSchema"], got["structuredContent"])
        assert max(lanes) <= 1000
        if both:
            assert sum(lanes) <= 1000
            assert (got["content"] == typed(data)["content"]) == (whole <= 1000)
            # The model reads the data once, with what was left out of it.
            if whole > 1000:
                assert got["content"] == texts("The result is in structuredContent.")
                assert ("_envelope" in got["structuredContent"]) == (count(data) > 990)
                assert count(got["structuredContent"]) > 940 or got["structuredContent"] == data
    text = talk.called("t", {"content": texts("word " * 5000), "isError": True})
    assert count(text["content"]) > 800


@pytest.mark.parametrize("name", ["github-copilot-developer", "ChatGPT"])
@pytest.mark.parametrize("size", [3, 2000])
def test_who_reads_both_lanes_does_not_pay_twice_beside_a_picture(
    tmp_path: Path, name: str, size: int
) -> None:
    talk = Talk(tmp_path, tokens=1000)
    talk.meet(name)
    talk.listed(tool("t", ROWS))
    shot = {"type": "image", "data": b64encode(screenshot(20_000)).decode(), "mimeType": "image/png"}
    sound = {"type": "audio", "data": "aGk=" * 9000, "mimeType": "audio/wav"}
    answer = typed(rows(size))
    for others in ([shot], [shot, sound]):
        got = talk.called("t", {**answer, "content": [*answer["content"], *others]})
        said = [block for block in got["content"] if block["type"] == "text"]
        assert count(said) + count(got["structuredContent"]) <= 1000
        assert (shot in got["content"]) == (name == "ChatGPT")
        if size == 3:
            assert got["structuredContent"]["rows"] == answer["structuredContent"]["rows"]
        else:
            assert "row number" not in json.dumps(said)
            assert texts("The result is in structuredContent.")[0] in said
            told = got["structuredContent"]["_envelope"]
            assert "of 2000 items" in told["note"]
            assert count(got["structuredContent"]) > 600
            read = talk.read(told["handle"], path="/structuredContent/rows", offset=1999)
            assert "row number 1999" in read["content"][-1]["text"]


def test_two_lanes_that_differ_get_half_each(tmp_path: Path) -> None:
    talk = Talk(tmp_path, tokens=1000)
    talk.meet("copilot-cli")
    talk.listed(tool("t", ROWS))
    got = talk.called("t", {**typed(rows(2000)), "content": texts("something else entirely " * 900)})
    used = count(got["content"]), count(got["structuredContent"])
    assert sum(used) <= 1000
    assert min(used) > 450
    assert "something else" in json.dumps(got["content"])


def test_a_budget_that_cannot_be_halved(tmp_path: Path) -> None:
    talk = Talk(tmp_path, tokens=150)
    talk.meet("copilot-cli")
    talk.listed(tool("t", ROWS))
    got = talk.called("t", typed(rows(2000)))
    assert count(got["content"]) + count(got["structuredContent"]) <= 150
    got = talk.called("t", {**typed(rows(2000)), "content": texts("something else entirely " * 900)})
    assert max(count(got["content"]), count(got["structuredContent"])) <= 128
    assert "raised" not in json.dumps(got)


def test_links_for_those_who_can_follow_them(tmp_path: Path) -> None:
    image = {"type": "image", "data": "QUJD" * 5000, "mimeType": "image/png"}
    for name, links in (("Visual Studio Code", 1), ("claude-code", 0)):
        talk = Talk(tmp_path)
        talk.meet(name)
        talk.listed(tool("t"))
        got = talk.called("t", {"content": [image]})
        found = [block for block in got["content"] if block["type"] == "resource_link"]
        assert len(found) == links
        for link in found:
            [back], _ = talk.send(request(9, "resources/read", uri=link["uri"]))
            assert json.loads(back)["result"]["contents"][0]["blob"] == image["data"]
