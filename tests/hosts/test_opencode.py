"""The plugin for opencode, run by Node, and its command. `make lab ARGS=--inside` runs the real opencode."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lab.server import TOOLS, lines, result

from mcp_envelope.budget import Budget
from mcp_envelope.config import Settings
from mcp_envelope.gateway import Gateway
from mcp_envelope.hosts import opencode

from ..cli.harness import environment
from ..servers.node.install import NODE
from ..shown import shown

PLUGIN = Path(opencode.__file__).parent / "plugins" / "opencode.js"
# Loads the plugin as opencode does, and prints what it makes of a result and of the configuration.
PROGRAM = """
(async () => {
const { McpEnvelope } = await import(process.argv[1])
const hooks = await McpEnvelope({ directory: process.argv[2] })
const { tool, output } = JSON.parse(require("node:fs").readFileSync(0, "utf8"))
await hooks["tool.execute.after"]({ tool, sessionID: "s", callID: "c", args: { size: 1 } }, output)
const config = { mcp: { mine: { type: "local" } } }
await hooks.config(config)
console.log(JSON.stringify({ output, config }))
})()
"""


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    return Gateway(Settings(None, {}, tmp_path), vault=str(tmp_path / "vault.db"), ledger=False)


def answer(gateway: Gateway, tool: str, output: Any) -> Any:
    said = opencode.answer(json.dumps({"tool": tool, "args": {}, "output": output}).encode(), gateway)
    return None if said is None else json.loads(said)


def wire(tool: str, size: int) -> Any:
    return result(tool, size).model_dump(mode="json", by_alias=True, exclude_none=True)


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("size", [2_000, 120_000])
def test_what_opencode_gets(gateway: Gateway, tool: str, size: int) -> None:
    whole = wire(tool, size)
    said = answer(gateway, f"lab_{tool}", whole)
    small = ("lanes", "picture", "picture_and_rows", "embedded_image", "resource_link")
    is_large = size > 100_000 and tool not in small
    assert (said is not None) == is_large
    if said is None:
        return
    assert list(said) == ["content", "isError"]
    assert said["isError"] == whole["isError"]
    text = shown(json.dumps(said["content"]).encode())
    assert len(text) <= 50_000
    assert text.count(b"\n") < 2_000
    assert b"Read on: envelope_read(handle=" in text


def test_tools_of_its_own(gateway: Gateway, tmp_path: Path) -> None:
    printed = "\n".join(map(str, range(1, 40_001)))
    folder = tmp_path / "tool-output"
    folder.mkdir()
    file = folder / "tool_1"
    file.write_text(printed)
    elsewhere = tmp_path / "tool_1"
    elsewhere.write_text(printed)
    cut = {"title": "seq", "output": "…\n40000", "metadata": {"truncated": True, "outputPath": str(file)}}
    said = answer(gateway, "bash", cut)
    assert list(said) == ["output"]
    assert f" of {len(printed)} characters" in said["output"]
    assert said["output"].count("\n") < 2_000
    cut["metadata"] = {"outputPath": str(elsewhere)}
    assert answer(gateway, "bash", cut) is None
    assert answer(gateway, "bash", {"output": "hi", "metadata": {}}) is None
    assert answer(gateway, "read", {"output": lines(200_000), "metadata": {}}) is None
    assert answer(gateway, "webfetch", {"output": lines(200_000)}) is not None
    assert answer(gateway, "results_envelope_read", wire("long_text", 200_000)) is None


def loaded(tmp_path: Path, output: Any, **env: str) -> Any:
    done = subprocess.run(
        [str(NODE), "--input-type=commonjs", "--eval", PROGRAM, PLUGIN.as_uri(), str(tmp_path)],
        input=json.dumps({"tool": "lab_tool", "output": output}).encode(), capture_output=True, timeout=60,
        env=environment(HOME=str(tmp_path), XDG_STATE_HOME=str(tmp_path), MCP_ENVELOPE_VAULT=None, **env),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.mark.process
def test_the_plugin_puts_back_what_it_gets(tmp_path: Path) -> None:
    command = str(Path(sys.executable).with_name("mcp-envelope"))
    whole = wire("typed_rows", 120_000)
    said = loaded(tmp_path, whole, MCP_ENVELOPE_COMMAND=command)
    assert Budget.of(max_bytes=50_000).holds(shown(json.dumps(said["output"]["content"]).encode()))
    assert said["output"]["structuredContent"] == whole["structuredContent"]
    servers = said["config"]["mcp"]
    assert servers == {"results": {"type": "local", "command": [command, "serve"]}, "mine": {"type": "local"}}


@pytest.mark.process
def test_whatever_goes_wrong_the_result_stays(tmp_path: Path) -> None:
    whole = wire("typed_rows", 120_000)
    assert loaded(tmp_path, whole, MCP_ENVELOPE_COMMAND=str(tmp_path / "missing"))["output"] == whole
    assert loaded(tmp_path, whole, MCP_ENVELOPE_COMMAND="false")["output"] == whole
