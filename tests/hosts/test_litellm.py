"""The guardrail in LiteLLM's own gateway, in front of a server that floods its clients."""

from __future__ import annotations

import asyncio
import json
import secrets
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from mcp.types import TextContent

from mcp_envelope.budget import Budget

from ..ports import free_port
from . import environment
from .agents import ROOT

pytestmark = pytest.mark.process
TICKETS = str(ROOT / "src" / "mcp_envelope" / "demo" / "tickets.py")
BUDGET = 2000


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client[StreamableHttpTransport]]:
    folder = tmp_path_factory.mktemp("litellm")
    key, port = f"sk-{secrets.token_hex(24)}", free_port()
    # The configuration of docs/hosts.md, with a server to flood it and without uvx.
    [text] = [
        block.partition("```")[0]
        for block in (ROOT / "docs" / "hosts.md").read_text().split("```yaml\n")[1:]
        if block.startswith("guardrails:")
    ]
    config = yaml.safe_load(text.replace("budget: 4000", f"budget: {BUDGET}"))
    results = config["mcp_servers"]["results"]
    results |= {"command": sys.executable, "args": ["-m", *results["args"]]}
    results["args"][1] = "mcp_envelope"
    config["mcp_servers"]["tickets"] = {"transport": "stdio", "command": sys.executable, "args": [TICKETS]}
    config["general_settings"] = {"master_key": key}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    program = environment.python("litellm").with_name("litellm")
    variables = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
        "XDG_STATE_HOME": str(folder),
        "PYTHONPATH": str(ROOT / "src"),
        "MCP_ENVELOPE_VAULT": str(folder / "vault.db"),
        "LITELLM_ENABLE_MCP_STDIO": "true",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    for server in config["mcp_servers"].values():
        server["env"] = {name: variables[name] for name in ("PYTHONPATH", "MCP_ENVELOPE_VAULT")}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    command = [str(program), "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, env=variables, stdout=log, stderr=log)
    try:
        _wait(f"http://127.0.0.1:{port}/health/liveliness", process, folder / "log")
        headers = {"x-litellm-api-key": f"Bearer {key}"}
        yield Client(StreamableHttpTransport(f"http://127.0.0.1:{port}/mcp", headers=headers))
    finally:
        process.terminate()
        process.wait(60)


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 180
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()[-2000:]
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    raise AssertionError(log.read_text()[-2000:])


def test_a_result_is_cut_and_read_on(gateway: Client[StreamableHttpTransport]) -> None:
    asyncio.run(_cut_and_read_on(gateway))


async def _cut_and_read_on(gateway: Client[StreamableHttpTransport]) -> None:
    async with gateway:
        names = {tool.name for tool in await gateway.list_tools()}
        assert names == {"tickets-list_tickets", "tickets-restart", "results-envelope_read"}
        result = await gateway.call_tool("tickets-list_tickets", {})
        [block] = result.content
        assert isinstance(block, TextContent)
        assert Budget.of(tokens=BUDGET).holds(block.text.encode())
        # The structure passes as it is: a guardrail cannot change it.
        tickets = (result.structured_content or {})["tickets"]
        assert len(tickets) == 1500
        handle = block.text.partition('envelope_read(handle="')[2].partition('"')[0]
        query = "SELECT count(*) FROM tickets"
        read = {"handle": handle, "path": "/content/0/text", "sql": query}
        page = await gateway.call_tool(
            "results-envelope_read", {name: read[name] for name in ("handle", "sql")}
        )
        assert isinstance(page.content[-1], TextContent)
        assert "1500" in json.dumps(json.loads(page.content[-1].text))
