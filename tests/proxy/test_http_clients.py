"""The official SDK's client and server, with the proxy between them over HTTP, in both eras."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from . import sdk, sites, talks

_ERAS = ("legacy", "auto")


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The addresses of proxies in front of each kind of server."""
    with ExitStack() as stack:
        found: dict[str, str] = {}
        for kind in ("http", "json", "stateless", "resumable", "sse"):
            url = stack.enter_context(sites.serving(sdk.app(kind), lifespan="on"))
            path = "/sse" if kind == "sse" else "/mcp"
            proxy = sites.proxied(url + path, tmp_path_factory.mktemp(kind))
            found[kind] = stack.enter_context(proxy)[0] + path
        yield found


@pytest.mark.parametrize("kind", ["http", "json", "stateless", "resumable"])
@pytest.mark.parametrize("mode", _ERAS)
def test_large_results(ways: dict[str, str], kind: str, mode: str) -> None:
    talks.hold(talks.large_results, ways[kind], mode)


@pytest.mark.parametrize("kind", ["http", "resumable"])
@pytest.mark.parametrize("mode", _ERAS)
def test_progress(ways: dict[str, str], kind: str, mode: str) -> None:
    talks.hold(talks.progress, ways[kind], mode)


@pytest.mark.parametrize(
    ("kind", "mode"), [("http", "legacy"), ("http", "auto"), ("json", "legacy"), ("json", "auto")]
)
def test_a_cancelled_call_ends_at_the_server(ways: dict[str, str], kind: str, mode: str) -> None:
    talks.hold(talks.cancellation, ways[kind], mode)


def test_questions_of_the_server(ways: dict[str, str]) -> None:
    talks.hold(talks.questions, ways["http"], "legacy")


def test_notifications(ways: dict[str, str]) -> None:
    talks.hold(talks.notifications, ways["http"], "legacy")


def test_a_stream_is_taken_up_again(ways: dict[str, str]) -> None:
    talks.hold(talks.resumption, ways["resumable"], "legacy")


@pytest.mark.parametrize(
    "talk", [talks.large_results, talks.progress, talks.cancellation, talks.questions, talks.notifications]
)
def test_the_oldest_transport(ways: dict[str, str], talk: talks.Talk) -> None:
    talks.hold(talk, sse_client(ways["sse"]), "legacy")


@pytest.mark.parametrize(("kind", "mode"), [("http", "legacy"), ("http", "auto"), ("sse", "legacy")])
def test_a_budget_before_any_list(kind: str, mode: str, tmp_path: Path) -> None:
    path = "/sse" if kind == "sse" else "/mcp"
    with (
        sites.serving(sdk.app(kind), lifespan="on") as url,
        # Nobody has asked this one for anything yet.
        sites.proxied(url + path, tmp_path) as (address, _),
    ):
        target = sse_client(address + path) if kind == "sse" else address + path
        talks.hold(talks.a_budget_before_any_list, target, mode)


@pytest.mark.parametrize("mode", _ERAS)
def test_headers_of_the_caller_arrive(ways: dict[str, str], mode: str) -> None:
    async def talk(target: Any, mode: str) -> None:
        async with Client(target, mode=mode) as client:
            seen = talks.said(await client.call_tool("headers"))
        assert "authorization: Bearer mine" in seen
        assert "x-tenant: a" in seen
        if mode == "auto":
            assert "mcp-method: tools/call" in seen
            assert "mcp-name: headers" in seen
            assert "mcp-session-id" not in seen
        else:
            assert "mcp-session-id: " in seen
            assert "mcp-protocol-version: 2025-11-25" in seen

    async def run() -> None:
        headers = {"authorization": "Bearer mine", "x-tenant": "a"}
        async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
            await talk(streamable_http_client(ways["http"], http_client=http), mode)

    asyncio.run(run())


def test_a_session_that_is_deleted_is_gone(ways: dict[str, str]) -> None:
    hello = sites.request(
        "initialize", protocolVersion=sites.OLD, capabilities={}, clientInfo={"name": "t", "version": "1"}
    )
    address = ways["http"].removesuffix("/mcp")
    session = {"mcp-session-id": sites.post(address, hello).headers["mcp-session-id"]}
    assert sites.post(address, sites.request("tools/list"), session).status_code == 200
    with sites.client() as client:
        assert client.delete(ways["http"], headers=session).status_code == 200
    gone = sites.post(address, sites.request("tools/list"), session)
    assert gone.status_code == 404
    assert gone.json()["error"]["message"] == "Session not found"


def test_streams_that_merely_listen_end_when_the_proxy_does(tmp_path: Path) -> None:
    """Otherwise a replica that is to end would wait for every client that listens."""

    async def listen(address: str, leave: Any) -> list[bytes]:
        async with (
            httpx2.AsyncClient(timeout=10) as client,
            client.stream("GET", f"{address}/mcp") as response,
        ):
            leave()
            return [chunk async for chunk in response.aiter_raw()]

    server = sites.Scripted(lambda seen: sites.stream_reply(b": hello\n\n", 60.0))
    with (
        sites.serving(server, lifespan="off") as url,
        sites.proxied(f"{url}/mcp", tmp_path) as (address, proxy),
    ):
        assert asyncio.run(listen(address, proxy.leave)) in ([], [b": hello\n\n"])


def test_many_calls_at_a_time_on_one_connection_each(ways: dict[str, str]) -> None:
    """Clients of both eras beside each other; every one gets its own answer."""
    sites.call_at_once([Client(ways["http"], mode=_ERAS[number % 2]) for number in range(8)])
