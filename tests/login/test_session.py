"""The proxy in front of a server that wants a login: tokens, renewal in mid-session, and what it says without."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from mcp.client.stdio import stdio_client
from mcp_types import ElicitRequestURLParams, ElicitResult

from mcp_envelope.login import session
from mcp_envelope.login.session import LoginSession

from ..proxy import programs, talks
from ..proxy.sites import request
from . import sites
from .sites import Site
from .test_login import log_in, run, status

_ERAS = ("legacy", "auto")


@pytest.fixture
def site() -> Iterator[Site]:
    with sites.site() as found:
        yield found


def _target(site: Site, folder: Path, *said: str, **more: str) -> Any:
    return stdio_client(programs.parameters(folder, "--url", site.url, *said, **more))


def _talk(target: Any, mode: str, talk: Any, **more: Any) -> None:
    async def main() -> None:
        with anyio.fail_after(60):
            async with Client(target, mode=mode, **more) as client:
                await talk(client)

    asyncio.run(main())


@pytest.mark.parametrize("mode", _ERAS)
def test_a_stored_login_is_used(site: Site, mode: str, tmp_path: Path) -> None:
    assert log_in(tmp_path, site.url)[0] == 0

    async def talk(client: Any) -> None:
        assert talks.said(await client.call_tool("hello", {"name": "you"})) == "Hello, you!"

    _talk(_target(site, tmp_path), mode, talk)


@pytest.mark.parametrize("mode", _ERAS)
def test_a_token_that_expires_is_renewed_and_the_call_goes_on(site: Site, mode: str, tmp_path: Path) -> None:
    assert log_in(tmp_path, site.url)[0] == 0

    async def talk(client: Any) -> None:
        for number in range(3):
            site.provider.expire()
            said = talks.said(await client.call_tool("hello", {"name": f"number {number}"}))
            assert said == f"Hello, number {number}!"

    _talk(_target(site, tmp_path), mode, talk)
    assert site.provider.refreshes == 3


def test_many_calls_at_once_renew_the_token_once(site: Site, tmp_path: Path) -> None:
    """Two proxies, each with many calls: a refresh token is good for one use."""
    assert log_in(tmp_path, site.url)[0] == 0

    async def main() -> None:
        async with (
            Client(_target(site, tmp_path), mode="auto") as one,
            Client(_target(site, tmp_path), mode="auto") as other,
        ):
            for client in (one, other):
                await client.call_tool("hello", {"name": "first"})
            site.provider.expire()
            said: list[str] = []

            async def call(client: Any, number: int) -> None:
                said.append(talks.said(await client.call_tool("hello", {"name": str(number)})))

            async with anyio.create_task_group() as group:
                for number in range(20):
                    group.start_soon(call, one if number % 2 else other, number)
            assert sorted(said) == sorted(f"Hello, {number}!" for number in range(20))

    asyncio.run(main())
    assert site.provider.refreshes == 1


@pytest.mark.parametrize("mode", _ERAS)
def test_without_a_login_the_failure_says_which_command_to_run(site: Site, mode: str, tmp_path: Path) -> None:
    """Then the command is run in another window, and the next try succeeds."""

    async def main() -> None:
        async with Client(_target(site, tmp_path), mode=mode):
            pass

    with pytest.raises(Exception) as failed:  # noqa: PT011
        asyncio.run(main())
    error: BaseException = failed.value
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, MCPError)
    assert f"mcp-envelope login {site.url}" in str(error)
    assert status(tmp_path)[0]["state"] == "login needed"


def test_a_call_without_a_login_is_a_coded_failure(site: Site, tmp_path: Path) -> None:
    assert log_in(tmp_path, site.url)[0] == 0

    async def talk(client: Any) -> None:
        await client.call_tool("hello", {"name": "first"})
        assert (await anyio.to_thread.run_sync(run, tmp_path, "logout", site.url)).returncode == 0
        result = await client.call_tool("hello", {"name": "second"})
        assert result.is_error
        said = talks.said(result)
        assert "LOGIN_REQUIRED" in said
        assert f"mcp-envelope login {site.url}" in said
        await anyio.to_thread.run_sync(log_in, tmp_path, site.url)
        assert talks.said(await client.call_tool("hello", {"name": "third"})) == "Hello, third!"

    _talk(_target(site, tmp_path), "auto", talk)


def test_a_login_for_more_rights_than_the_program_was_registered_for(site: Site, tmp_path: Path) -> None:
    """The authorization server holds a client to the scopes of its registration."""
    assert log_in(tmp_path, site.url)[0] == 0
    refusal = {"www-authenticate": 'Bearer error="insufficient_scope", scope="write"'}

    async def talk(client: Any) -> None:
        await client.call_tool("hello", {"name": "first"})
        site.server.changes["/mcp"] = lambda status_code, headers, body: (403, refusal, b"")
        assert "wants more rights" in talks.said(await client.call_tool("hello", {"name": "second"}))
        assert status(tmp_path)[0]["state"] == "more scopes needed"
        del site.server.changes["/mcp"]
        code, words = await anyio.to_thread.run_sync(log_in, tmp_path, site.url)
        assert code == 0, words
        assert set(site.provider.asked[-1].scopes or ()) == {"read", "write"}
        assert talks.said(await client.call_tool("hello", {"name": "third"})) == "Hello, third!"

    _talk(_target(site, tmp_path), "auto", talk)
    assert status(tmp_path)[0]["scope"] == "read write"
    assert len(site.provider.clients) == 2
    # One that was registered for enough is used again.
    assert log_in(tmp_path, site.url)[0] == 0
    assert len(site.provider.clients) == 2


def test_a_stateless_client_is_shown_an_address(site: Site, tmp_path: Path) -> None:
    assert log_in(tmp_path, site.url)[0] == 0
    shown: list[str] = []

    async def elicit(context: Any, params: Any) -> ElicitResult:
        assert isinstance(params, ElicitRequestURLParams)
        shown.append(params.url)
        await anyio.to_thread.run_sync(sites.logged_in, params.url)
        return ElicitResult(action="accept")

    async def talk(client: Any) -> None:
        await client.call_tool("hello", {"name": "first"})
        await anyio.to_thread.run_sync(run, tmp_path, "logout", site.url)
        assert talks.said(await client.call_tool("hello", {"name": "second"})) == "Hello, second!"

    _talk(_target(site, tmp_path), "auto", talk, elicitation_callback=elicit)
    assert len(shown) == 1
    assert shown[0].startswith(f"{site.issuer}/authorize?")


def test_a_stateless_client_that_declines_gets_the_failure(site: Site, tmp_path: Path) -> None:
    assert log_in(tmp_path, site.url)[0] == 0

    async def elicit(context: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="decline")

    async def talk(client: Any) -> None:
        await client.call_tool("hello", {"name": "first"})
        await anyio.to_thread.run_sync(run, tmp_path, "logout", site.url)
        assert "LOGIN_REQUIRED" in talks.said(await client.call_tool("hello", {"name": "second"}))

    _talk(_target(site, tmp_path), "auto", talk, elicitation_callback=elicit)


def test_a_client_with_a_session_is_shown_an_address_and_told_of_the_end(site: Site, tmp_path: Path) -> None:
    hello = request(
        "initialize",
        1,
        protocolVersion="2025-11-25",
        capabilities={"elicitation": {"url": {}}},
        clientInfo={"name": "t", "version": "1"},
    )
    with programs.bridge(tmp_path, site.url) as talking:
        error = talking.ask(hello)["error"]
        assert error["code"] == -32042
        [asked] = error["data"]["elicitations"]
        assert asked["mode"] == "url"
        sites.logged_in(asked["url"])
        note = talking.hear()
        assert note["method"] == "notifications/elicitation/complete"
        assert note["params"] == {"elicitationId": asked["elicitationId"]}
        assert talking.ask(hello)["result"]["serverInfo"]["name"] == "behind"


def test_without_the_libraries_there_is_no_address_to_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the failure says which command to run, and that command what to install."""

    async def lacking() -> None:
        raise ModuleNotFoundError("No module named 'httpx2'")

    async def main() -> None:
        found = LoginSession("https://example.com/mcp")
        async with anyio.create_task_group() as group:
            assert await found.invite(group) is None

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(session, "_oauth", lacking)
    anyio.run(main)


def test_credentials_of_ones_own_take_the_place_of_a_login(site: Site, tmp_path: Path) -> None:
    assert log_in(tmp_path, site.url)[0] == 0
    token = site.provider.make("me", ["read"], site.url).access_token

    async def talk(client: Any) -> None:
        assert talks.said(await client.call_tool("hello", {"name": "you"})) == "Hello, you!"

    _talk(_target(site, tmp_path, "--bearer-env", "TOKEN", TOKEN=token), "auto", talk)
    sent = {headers.get("authorization") for headers in site.server.requests("/mcp")} - {None}
    assert sent == {f"Bearer {token}"}
