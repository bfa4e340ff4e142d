"""Any number of replicas behind any balancer with one Valkey: no replica keeps what another needs.

Three proxies run as programs; every request goes to one of them at random, in both eras.
"""

from __future__ import annotations

import asyncio
import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from ..vault.valkey_server import running_server
from . import programs, sdk, sites, talks
from .programs import Listening

_HELLO: dict[str, Any] = {"protocolVersion": sites.OLD, "capabilities": {}}


class Balancer(httpx2.AsyncBaseTransport):
    """Takes a replica at random for each request, and another one if nobody is there."""

    def __init__(self, urls: list[str], seed: int = 0) -> None:
        self._urls = [httpx2.URL(url) for url in urls]
        self._random = random.Random(seed)
        self._inner = httpx2.AsyncHTTPTransport(trust_env=False)
        self.used: set[int | None] = set()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        for url in self._random.sample(self._urls, len(self._urls)):
            request.url = request.url.copy_with(host=url.host, port=url.port)
            request.headers["host"] = f"{url.host}:{url.port}"
            try:
                response = await self._inner.handle_async_request(request)
            except httpx2.ConnectError:
                continue
            self.used.add(url.port)
            return response
        raise httpx2.ConnectError("no replica is left")

    async def aclose(self) -> None:
        await self._inner.aclose()


class Site:
    def __init__(self, replicas: list[Listening], valkey: Any) -> None:
        self.replicas = replicas
        self.valkey = valkey

    @property
    def urls(self) -> list[str]:
        return [replica.url for replica in self.replicas if replica.process.poll() is None]

    def post(self, message: Any, headers: dict[str, str] | None = None, **more: Any) -> httpx2.Response:
        """To a replica at random; again to another one if that one died meanwhile, as any client would."""
        while True:
            try:
                return sites.post(random.choice(self.urls), message, headers, **more)
            except httpx2.TransportError:
                time.sleep(0.02)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with sites.serving(sdk.app("http"), lifespan="on") as url:
        yield url


@pytest.fixture
def site(server: str, tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        valkey = stack.enter_context(running_server(tmp_path / "valkey"))
        stores = ("--vault", valkey.url, "--url", f"{server}/mcp")
        with ThreadPoolExecutor(3) as pool:
            starting = [
                programs.listening(tmp_path, f"replica-{n}", *stores, MCP_ENVELOPE_TOKENS="")
                for n in range(3)
            ]
            replicas = list(pool.map(stack.enter_context, starting))
        yield Site(replicas, valkey)


def test_clients_of_both_eras_find_everything_at_every_replica(site: Site) -> None:
    async def one(mode: str, seed: int, replicas: set[int | None]) -> None:
        balancer = Balancer(site.urls, seed)
        async with (
            httpx2.AsyncClient(transport=balancer, timeout=30) as http,
            Client(streamable_http_client(f"{site.urls[0]}/mcp", http_client=http), mode=mode) as client,
        ):
            for step in range(4):
                # The client holds what it gets to what it was told, whichever replica said which.
                result = await client.call_tool("rows", {"count": 3000, "tag": f"{seed}-{step}"})
                notice = result.structured_content["_envelope"]
                for offset in (2990, 1500):
                    asked = {"handle": notice["handle"], "path": "/rows", "offset": offset}
                    page = await client.call_tool("envelope_read", asked)
                    assert msgspec.json.decode(talks.page_of(page))[0]["name"] == f"{seed}-{step} {offset}"
        replicas |= balancer.used

    async def run() -> None:
        used: set[int | None] = set()
        await asyncio.gather(*[one("legacy" if seed % 2 else "auto", seed, used) for seed in range(6)])
        assert len(used) == 3

    asyncio.run(run())


def test_one_is_killed_in_the_middle(site: Site) -> None:
    """Sessions of the older era live at the server, and results in the store: nothing is lost but the replica."""
    done: list[tuple[str, str]] = []
    half = threading.Event()
    wrong: list[str] = []

    def work(number: int) -> None:
        modern = number % 2 == 0
        headers: dict[str, str] = {}
        if not modern:
            hello = sites.request("initialize", **_HELLO, clientInfo={"name": "t", "version": "1"})
            headers["mcp-session-id"] = site.post(hello).headers["mcp-session-id"]
            site.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, headers)
        for step in range(12):
            tag = f"{number}-{step}"
            count = 2500 if step % 3 == 0 else 3
            response = site.post(
                sites.call("rows", step, modern, count=count, tag=tag), headers, modern=modern
            )
            if response.status_code != 200 or sites.structured(response)["rows"][0]["name"] != f"{tag} 0":
                wrong.append(response.text[:300])
            elif count > 3:
                done.append((tag, sites.structured(response)["_envelope"]["handle"]))
            if step == 4:
                half.set()

    with ThreadPoolExecutor(8) as pool:
        working = [pool.submit(work, number) for number in range(8)]
        half.wait(60)
        victim = site.replicas[0].process
        victim.kill()
        victim.wait(10)
        for each in working:
            each.result(60)
    assert victim.returncode == -signal.SIGKILL
    assert wrong == []
    assert len(done) == 8 * 4
    for tag, handle in done:
        # Made by any of them, the dead one included.
        page = site.post(sites.call("envelope_read", handle=handle, path="/rows/2499"))
        assert f"{tag} 2499" in page.text


def test_a_handle_of_one_credential_is_unknown_to_another_everywhere(site: Site) -> None:
    mine, other = {"authorization": "Bearer a"}, {"authorization": "Bearer b"}
    session = sites.post(
        site.urls[0], sites.request("initialize", **_HELLO, clientInfo={"name": "t", "version": "1"}), mine
    )
    named = {"mcp-session-id": session.headers["mcp-session-id"]}
    made = sites.post(site.urls[1], sites.call(count=2500), {**mine, **named})
    handle = sites.structured(made)["_envelope"]["handle"]
    for url in site.urls:
        assert "row 0" in sites.post(url, sites.call("envelope_read", handle=handle), mine).text
        for stranger in (other, {}):
            refused = sites.post(
                url, sites.call("envelope_read", handle=handle), {**stranger, **named}
            ).json()
            assert sites.problem(refused) == "HANDLE_UNKNOWN"
    client = site.valkey.client()
    try:
        kept = b"".join(client.keys("*"))
    finally:
        client.close()
    assert b"Bearer" not in kept


def test_what_is_known_of_a_client_is_known_everywhere(site: Site) -> None:
    """An older session says who its client is once, to one replica; its limit holds at all of them."""
    sizes = []
    for name in ("Visual Studio Code", "somebody"):
        hello = sites.request("initialize", **_HELLO, clientInfo={"name": name, "version": "1"})
        session = {"mcp-session-id": sites.post(site.urls[0], hello).headers["mcp-session-id"]}
        for url in site.urls:
            found = sites.structured(sites.post(url, sites.call(count=2500), session))
            sizes.append(len(msgspec.json.encode(found)))
    assert max(sizes[:3]) <= 8000 < 16_000 < min(sizes[3:])


def test_without_its_store_a_replica_still_answers(site: Site) -> None:
    site.valkey.kill()
    found = sites.structured(site.post(sites.call(count=2500, modern=True), modern=True))
    assert "handle" not in found["_envelope"]
    assert any("not stored" in warning for warning in found["_envelope"]["warnings"])
    page = site.post(sites.call("envelope_read", handle="x" * 22)).json()
    assert sites.problem(page) == "VAULT_UNAVAILABLE"
    with sites.client() as client:
        assert client.get(f"{site.urls[0]}/health").json() == {"status": "ok"}
