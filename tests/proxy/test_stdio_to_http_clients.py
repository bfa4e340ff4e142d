"""The official SDK's client on stdio, its server over HTTP, and the bridge between them, in every era."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import stdio_client

from . import programs, sdk, sites, talks


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, str]]:
    with ExitStack() as stack:
        kinds = ("http", "json", "stateless", "resumable", "sse")
        started = {kind: stack.enter_context(sites.serving(sdk.app(kind), lifespan="on")) for kind in kinds}
        yield {kind: url + ("/sse" if kind == "sse" else "/mcp") for kind, url in started.items()}


def _target(url: str, folder: Path, *arguments: str, **more: str) -> Any:
    return stdio_client(programs.parameters(folder, "--url", url, *arguments, **more))


@pytest.mark.parametrize(
    ("kind", "mode"),
    [("http", "legacy"), ("http", "auto"), ("json", "legacy"), ("json", "auto"), ("stateless", "legacy")],
)
def test_large_results(servers: dict[str, str], kind: str, mode: str, tmp_path: Path) -> None:
    talks.hold(talks.large_results, _target(servers[kind], tmp_path), mode)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("talk", [talks.progress, talks.cancellation])
def test_what_runs(servers: dict[str, str], talk: talks.Talk, mode: str, tmp_path: Path) -> None:
    talks.hold(talk, _target(servers["http"], tmp_path), mode)


@pytest.mark.parametrize("talk", [talks.questions, talks.notifications])
def test_messages_from_the_server(servers: dict[str, str], talk: talks.Talk, tmp_path: Path) -> None:
    talks.hold(talk, _target(servers["http"], tmp_path), "legacy")


def test_a_stream_is_resumed(servers: dict[str, str], tmp_path: Path) -> None:
    talks.hold(talks.resumption, _target(servers["resumable"], tmp_path), "legacy")


@pytest.mark.parametrize(
    ("talk", "said", "mode"),
    [
        (talks.large_results, (), "legacy"),
        (talks.large_results, (), "auto"),
        (talks.large_results, ("--transport", "sse"), "legacy"),
        (talks.a_budget_before_any_list, (), "legacy"),
        (talks.cancellation, (), "legacy"),
        (talks.questions, ("--transport", "sse"), "legacy"),
        (talks.notifications, (), "legacy"),
    ],
)
def test_the_legacy_transport(
    servers: dict[str, str], talk: talks.Talk, said: tuple[str, ...], mode: str, tmp_path: Path
) -> None:
    """Detected, or chosen with `--transport`."""
    talks.hold(talk, _target(servers["sse"], tmp_path, *said), mode)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_headers(servers: dict[str, str], mode: str, tmp_path: Path) -> None:
    """Those that an HTTP client would send, and those that the command line names."""
    said = ("--bearer-env", "TOKEN", "--header-env", "X-Tenant=TENANT")

    async def talk(target: Any, mode: str) -> None:
        async with Client(target, mode=mode) as client:
            seen = talks.said(await client.call_tool("headers")).splitlines()
        assert "authorization: Bearer t-1" in seen
        assert "x-tenant: a" in seen
        assert "content-type: application/json" in seen
        assert "accept: application/json, text/event-stream" in seen
        named = {line.partition(":")[0] for line in seen if line.startswith("mcp-")}
        if mode == "auto":
            assert {"mcp-method: tools/call", "mcp-name: headers"} <= set(seen)
            assert named == {"mcp-method", "mcp-name", "mcp-protocol-version"}
        else:
            assert named == {"mcp-session-id", "mcp-protocol-version"}

    talks.hold(talk, _target(servers["http"], tmp_path, *said, TOKEN="t-1", TENANT="a"), mode)
