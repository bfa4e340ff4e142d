"""Published servers behind the proxy, with published clients: results fit, clients take them, nothing is lost.

Each is visited behind a proxy of its own, then behind a gateway with two others.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ..servers.talkers import CLIENTS, Place, Talker
from ..warm import warm
from .harness import NOTICE, count, environment, proxied
from .real import node

TOKENS = 1500
PLAIN = str(Path(__file__).parents[1] / "contracts" / "plain.py")
Visit = Callable[[Talker, Talker], Awaitable[None]]


class Through:
    """A server behind the gateway, under the name `one`."""

    def __init__(self, gateway: Talker) -> None:
        self._gateway = gateway

    async def tools(self) -> list[dict[str, Any]]:
        listed = await self._gateway.tools()
        others = [tool["name"].partition("__")[0] for tool in listed if not tool["name"].startswith("one__")]
        assert set(others) == {"two", "three", "envelope_read"}
        mine = ("one__", "envelope_read")
        return [
            {**tool, "name": tool["name"].removeprefix("one__")}
            for tool in listed
            if tool["name"].startswith(mine)
        ]

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        name = tool if tool == "envelope_read" else f"one__{tool}"
        return await self._gateway.call(name, arguments)


def behind_gateway(folder: Path, server: tuple[str, ...], is_stateless: bool) -> tuple[str, ...]:
    """The command of a gateway in front of a server and two others, which speak the client's era."""
    other = warm(PLAIN, "sdk") if is_stateless else (sys.executable, PLAIN)
    servers = {"one": server, "two": other, "three": other}
    file = folder / "servers.json"
    entries: dict[str, dict[str, Any]] = {
        name: {"command": words[0], "args": words[1:]} for name, words in servers.items()
    }
    file.write_text(json.dumps({"mcpServers": entries}))
    return (sys.executable, "-m", "mcp_envelope", "gateway", str(file), "--tokens", str(TOKENS))


def visited(folder: Path, server: tuple[str, ...], client: str, visit: Visit, **more: str) -> None:
    """Talk to a server as it is, and at once through the proxy, then through the gateway."""
    env = {**environment(folder), **more}
    behind = Place(command=server, env=env, cwd=str(folder))
    proxy = tuple(proxied(*server, options=("--tokens", str(TOKENS))))
    gateway = behind_gateway(folder, server, "2026" in client)

    async def both() -> None:
        connect = CLIENTS[client]
        async with asyncio.timeout(60), connect(behind) as direct:
            async with connect(Place(command=proxy, env=env, cwd=str(folder))) as talker:
                await visit(direct, talker)
            async with connect(Place(command=gateway, env=env, cwd=str(folder))) as talker:
                await visit(direct, Through(talker))

    asyncio.run(both())


async def the_same(direct: Talker, proxied: Talker, tool: str, arguments: dict[str, Any]) -> Any:
    """A result that fits passes as it is."""
    there = await direct.call(tool, arguments)
    assert await proxied.call(tool, arguments) == there
    return there


async def cut(direct: Talker, proxied: Talker, tool: str, arguments: dict[str, Any]) -> tuple[Any, Any]:
    """A result that does not: within the budget in both lanes, and taken by the client, which validates it."""
    there, here = await direct.call(tool, arguments), await proxied.call(tool, arguments)
    assert count(there["content"]) > TOKENS
    assert count(here["content"]) <= TOKENS
    assert count(here["content"]) > TOKENS // 2
    assert ("structuredContent" in here) == ("structuredContent" in there)
    assert bool(here.get("isError")) == bool(there.get("isError"))
    if "structuredContent" in here:
        assert count(here["structuredContent"]) <= TOKENS
        assert here["structuredContent"]["_envelope"]["handle"] == here["_meta"][NOTICE]["handle"]
    return there, here


def announced(here: Any) -> str:
    """Where the structure says that it was cut."""
    path: str = here["structuredContent"]["_envelope"]["dropped"][0]["path"]
    return path


async def read_back(proxied: Talker, here: Any, path: str) -> str:
    """All of a text, page by page."""
    handle = here["_meta"][NOTICE]["handle"]
    parts: list[str] = []
    offset = 0
    while True:
        asked = {"handle": handle, "path": path, "offset": offset, "tokenBudget": 10_000}
        page = await proxied.call("envelope_read", asked)
        assert not page.get("isError"), page
        assert count(page["content"]) <= 10_000
        parts.append(page["content"][-1]["text"])
        cuts = page.get("_meta", {}).get(NOTICE, {}).get("dropped", [])
        if not cuts:
            return "".join(parts)
        assert cuts[0]["offset"] > offset
        offset = cuts[0]["offset"]


async def listed_alike(direct: Talker, proxied: Talker) -> dict[str, Any]:
    """The same tools in the same order, and ours."""
    there, here = await direct.tools(), await proxied.tools()
    assert [tool["name"] for tool in here] == [*[tool["name"] for tool in there], "envelope_read"]
    for old, new in zip(there, here, strict=False):
        assert new["description"] == old["description"]
        assert new.get("annotations") == old.get("annotations")
        assert "tokenBudget" in new["inputSchema"]["properties"]
        assert set(new.get("outputSchema", {}).get("properties", {})) == (
            {*old["outputSchema"]["properties"], "_envelope"} if "outputSchema" in old else set()
        )
    return {tool["name"]: tool for tool in here}


@pytest.mark.parametrize("client", ["fastmcp", "typescript-1"])
def test_filesystem(tmp_path: Path, client: str) -> None:
    folder = tmp_path / "files"
    (folder / "many").mkdir(parents=True)
    text = "".join(f'{n}: grüße 漢 😀 \\ "quoted" \t line\n' for n in range(6000))
    (folder / "large.txt").write_text(text)
    (folder / "small.txt").write_text("hello\r\nworld")
    for n in range(400):
        (folder / "many" / f"file-{n:03}.txt").touch()

    async def visit(direct: Talker, proxied: Talker) -> None:
        await listed_alike(direct, proxied)
        small = {"path": str(folder / "small.txt")}
        got = await the_same(direct, proxied, "read_text_file", small)
        assert got["structuredContent"] == {"content": "hello\r\nworld"}
        there, here = await cut(direct, proxied, "read_text_file", {"path": str(folder / "large.txt")})
        assert there["content"][0]["text"] == text
        assert here["content"][1]["text"].startswith("0: grüße")
        assert await read_back(proxied, here, announced(here)) == text
        there, here = await cut(direct, proxied, "list_directory", {"path": str(folder / "many")})
        assert await read_back(proxied, here, announced(here)) == there["structuredContent"]["content"]
        # JSON in a text, and in the string of a structure that holds the same.
        there, here = await cut(direct, proxied, "directory_tree", {"path": str(folder)})
        assert json.loads(here["content"][-1]["text"])
        kept = json.loads(here["structuredContent"]["content"])
        assert kept[0]["name"] == json.loads(there["structuredContent"]["content"])[0]["name"]
        failed = await proxied.call("read_text_file", {"path": str(tmp_path / "elsewhere")})
        assert failed["isError"] is True
        assert (
            failed["content"]
            == (await direct.call("read_text_file", {"path": str(tmp_path / "elsewhere")}))["content"]
        )

    visited(tmp_path, node("server-filesystem", str(folder)), client, visit)


@pytest.mark.parametrize("client", ["mcp-legacy", "typescript-1"])
def test_everything(tmp_path: Path, client: str) -> None:
    long = {f"LONG_{n:03}": "some value " * 4 for n in range(200)}

    async def visit(direct: Talker, proxied: Talker) -> None:
        tools = await listed_alike(direct, proxied)
        await the_same(direct, proxied, "echo", {"message": "héllo"})
        await the_same(direct, proxied, "get-sum", {"a": 1, "b": 2.5})
        weather = await the_same(direct, proxied, "get-structured-content", {"location": "Chicago"})
        assert weather["structuredContent"]
        links = await the_same(direct, proxied, "get-resource-links", {"count": 3})
        assert {block["type"] for block in links["content"]} == {"text", "resource_link"}
        assert "tokenBudget" in tools["get-tiny-image"]["inputSchema"]["properties"]
        image = await proxied.call("get-tiny-image", {"tokenBudget": 10_000})
        assert image["content"] == (await direct.call("get-tiny-image", {}))["content"]
        there, here = await cut(direct, proxied, "get-env", {})
        shown = json.loads(here["content"][-1]["text"])
        assert set(shown) < {*json.loads(there["content"][0]["text"]), "_envelope"}
        back = await proxied.call(
            "envelope_read", {"handle": here["_meta"][NOTICE]["handle"], "path": "/content/0/text/LONG_199"}
        )
        assert back["content"][0]["text"] == long["LONG_199"]

    visited(tmp_path, node("server-everything"), client, visit, **long)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    (folder / "file.txt").write_text("".join(f"line {n} ünïcode\n" for n in range(5000)))
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    for command in (
        ("init", "-q", "-b", "main"),
        ("add", "."),
        ("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "-m", "all of it"),
    ):
        subprocess.run(["git", *command], cwd=folder, check=True, env=env)
    return folder


@pytest.mark.parametrize("client", ["mcp-2026-07-28", "typescript-2-2026-07-28"])
def test_git(tmp_path: Path, repository: Path, client: str) -> None:
    async def visit(direct: Talker, proxied: Talker) -> None:
        await listed_alike(direct, proxied)
        where = {"repo_path": str(repository)}
        await the_same(direct, proxied, "git_status", where)
        there, here = await cut(direct, proxied, "git_show", {**where, "revision": "HEAD"})
        assert "structuredContent" not in here
        assert here["content"][1]["text"].startswith("commit ")
        assert await read_back(proxied, here, "/content/0/text") == there["content"][0]["text"]
        found = await proxied.call(
            "envelope_read", {"handle": here["_meta"][NOTICE]["handle"], "grep": "line 4321 "}
        )
        assert "line 4321" in found["content"][-1]["text"]

    visited(tmp_path, warm("mcp_server_git"), client, visit)


@pytest.mark.parametrize("client", ["mcp-legacy", "typescript-2-2026-07-28"])
def test_time(tmp_path: Path, client: str) -> None:
    async def visit(direct: Talker, proxied: Talker) -> None:
        await listed_alike(direct, proxied)
        asked = {"source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        got = await the_same(direct, proxied, "convert_time", asked)
        assert got["structuredContent"]
        budgeted = await proxied.call("convert_time", {**asked, "tokenBudget": 500})
        assert budgeted["structuredContent"] == got["structuredContent"]
        wrong = {**asked, "source_timezone": "Nowhere"}
        assert await proxied.call("convert_time", wrong) == await direct.call("convert_time", wrong)

    visited(tmp_path, warm("mcp_server_time", "--local-timezone", "UTC"), client, visit)
