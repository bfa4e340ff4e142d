"""The command as anybody runs it, over stdio and HTTP, in each dialect, with the clients that people use."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ..ports import free_port
from ..servers.talkers import CLIENTS, Place, Talker
from ..warm import warm
from .harness import DIALECTS, Project

pytestmark = pytest.mark.process

CODEMAP = Path(__file__).parents[2] / "examples" / "codemap"
RATE = {"node": "py:shop/core.py#RATE"}
# Over stdio and HTTP, each dialect meets another client.
CLIENT_NAMES = [*CLIENTS]


def command(project: Project, dialect: str, *more: str) -> list[str]:
    where = ("--root", str(project.root), "--db", str(project.database), "--no-build")
    return [*warm(str(CODEMAP)), *where, "--dialect", dialect, "--language-server", "py=", *more]


def environment(folder: Path) -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(folder),
        "XDG_STATE_HOME": str(folder / "state"),
        "MCP_ENVELOPE_CONFIG": os.devnull,
        "FASTMCP_CHECK_FOR_UPDATES": "off",
    }


def data(result: dict[str, Any], dialect: str) -> Any:
    """The tool's data in a result of this dialect, from the lane that has it."""
    document = result.get("structuredContent") or json.loads(result["content"][0]["text"])
    if dialect in ("transcend", "gel", "scalpel"):
        return document["data"]
    return {key: value for key, value in document.items() if key not in ("_meta", "_envelope")}


async def converse(talker: Talker, project: Project, dialect: str) -> None:
    assert len(await talker.tools()) == 15
    impact = await talker.call("get_blast_radius", RATE)
    expected = json.loads(json.dumps(await asyncio.to_thread(project.data, "get_blast_radius", RATE)))
    assert data(impact, dialect) == expected
    fallback = await talker.call("nav_references", RATE)
    assert data(fallback, dialect)["via"] == "fallback-map"
    failed = await talker.call("map_neighbors", {"node": "py:shop/core.py#RATES"})
    assert "The map has no node py:shop/core.py#RATES." in json.dumps(failed)
    missed = await talker.call("map_search", {"query": "zzz"})
    assert "Try fewer or shorter words." in json.dumps(missed)


@pytest.mark.parametrize(("dialect", "client"), list(zip(DIALECTS, CLIENT_NAMES, strict=True)))
def test_over_stdio(project: Project, tmp_path: Path, dialect: str, client: str) -> None:
    place = Place(command=tuple(command(project, dialect)), env=environment(tmp_path), cwd=str(tmp_path))

    async def talk() -> None:
        async with CLIENTS[client](place) as talker:
            await converse(talker, project, dialect)

    asyncio.run(talk())


@pytest.mark.parametrize(
    ("dialect", "client"), list(zip(DIALECTS, [*CLIENT_NAMES[2:], *CLIENT_NAMES[:2]], strict=True))
)
def test_over_http(project: Project, tmp_path: Path, dialect: str, client: str) -> None:
    async def talk() -> None:
        async with served(project, tmp_path, dialect) as place, CLIENTS[client](place) as talker:
            await converse(talker, project, dialect)

    asyncio.run(talk())


@asynccontextmanager
async def served(project: Project, folder: Path, dialect: str) -> AsyncIterator[Place]:
    port = free_port()
    listen = command(project, dialect, "--listen", f"127.0.0.1:{port}")
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            listen,
            cwd=folder,
            env=environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        deadline = time.monotonic() + 60
        while True:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                break
            except OSError:
                await asyncio.sleep(0.05)
        writer.close()
        await writer.wait_closed()
        yield Place(url=f"http://127.0.0.1:{port}/mcp")
    finally:
        process.terminate()
        process.wait(30)


def test_the_first_build_happens_beside_the_calls(project: Project, tmp_path: Path) -> None:
    project.database.unlink()
    started = [each for each in command(project, "transcend") if each != "--no-build"]
    place = Place(command=tuple(started), env=environment(tmp_path), cwd=str(tmp_path))

    async def talk() -> None:
        async with CLIENTS["fastmcp"](place) as talker:
            while True:
                answer = (await talker.call("map_search", {"query": "total"}))["structuredContent"]
                if answer["ok"]:
                    assert answer["data"]["results"][0]["id"] == "py:shop/core.py#total"
                    return
                assert answer["error"]["code"] == "MAP_NOT_BUILT"
                assert answer["error"]["message"].startswith("The map is being built")
                await asyncio.sleep(0.05)

    asyncio.run(asyncio.wait_for(talk(), 60))
