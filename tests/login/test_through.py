"""A client that logs in for itself, through a proxy that listens: the SDK's own, as is the authorization server."""

from __future__ import annotations

import asyncio
import json
import subprocess
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)

from ..proxy import programs, talks
from ..servers.node.install import NODE, ready
from . import sites
from .sites import Site, gone, members, moved, opened, parameters

_REDIRECT = "http://127.0.0.1:33418/callback"
_PROTECTED = "/.well-known/oauth-protected-resource"
_AUTHORITY = "/.well-known/oauth-authorization-server"
# A server that takes tokens for its own address alone, an authorization server that names itself, and both.
_KINDS = {
    "binds tokens": {"names_issuer": False, "checks": True},
    "names itself": {"names_issuer": True, "checks": False},
    "both": {"names_issuer": True, "checks": True},
}


class _Memory:
    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


def _provider(url: str) -> OAuthClientProvider:
    answers: list[dict[str, str]] = []

    async def show(address: str) -> None:
        while not address.startswith(_REDIRECT):
            address = await anyio.to_thread.run_sync(opened, address)
        answers.append(parameters(address))

    async def answer() -> AuthorizationCodeResult:
        said = answers.pop()
        return AuthorizationCodeResult(code=said["code"], state=said["state"], iss=said.get("iss"))

    metadata = OAuthClientMetadata.model_validate({"redirect_uris": [_REDIRECT], "client_name": "a client"})
    return OAuthClientProvider(url, metadata, _Memory(), show, answer)


def _talk(url: str, mode: str, talk: Any, auth: OAuthClientProvider | None = None) -> None:
    async def main() -> None:
        with anyio.fail_after(60):
            async with (
                httpx2.AsyncClient(auth=auth or _provider(url), timeout=20) as http,
                Client(streamable_http_client(url, http_client=http), mode=mode) as client,
            ):
                await talk(client)

    asyncio.run(main())


async def _hello(client: Any) -> None:
    assert talks.said(await client.call_tool("hello", {"name": "you"})) == "Hello, you!"


@pytest.fixture
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    with sites.site(**getattr(request, "param", _KINDS["binds tokens"])) as found:
        yield found


@pytest.fixture
def front(site: Site, tmp_path: Path) -> Iterator[str]:
    """The address of a proxy in front of the server."""
    with programs.listening(tmp_path, "front", "--url", site.url) as listening:
        yield listening.url


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("path", ["/mcp", "/"])
@pytest.mark.parametrize("site", _KINDS.values(), ids=_KINDS, indirect=True)
def test_a_client_logs_in(site: Site, front: str, path: str, mode: str) -> None:
    _talk(front + path, mode, _hello)
    [asked] = site.provider.asked
    assert asked.resource == site.url
    assert len(site.provider.tokens) == 1


@pytest.mark.parametrize(("sdk", "version"), [(1, None), (2, None), (2, "2026-07-28")])
@pytest.mark.parametrize("site", _KINDS.values(), ids=_KINDS, indirect=True)
def test_a_client_of_the_typescript_sdk_logs_in(
    site: Site, front: str, sdk: int, version: str | None
) -> None:
    about = {"sdk": sdk, "version": version, "url": f"{front}/mcp", "redirect": _REDIRECT}
    call = {"call": "hello", "arguments": {"name": "you"}}
    done = subprocess.run(
        [str(NODE), str(ready()), json.dumps(about)],
        input=json.dumps(call) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["result"]["content"][0]["text"] == "Hello, you!"


def test_a_client_whose_token_ran_out_logs_in_again(site: Site, front: str) -> None:
    async def talk(client: Any) -> None:
        await _hello(client)
        site.provider.expire()
        await _hello(client)

    _talk(f"{front}/mcp", "auto", talk)


def test_a_token_is_renewed_through_the_front(site: Site, front: str) -> None:
    auth = _provider(f"{front}/mcp")

    async def talk(client: Any) -> None:
        await _hello(client)
        # As if its time were over.
        auth.context.token_expiry_time = 1.0
        await _hello(client)

    _talk(f"{front}/mcp", "legacy", talk, auth)
    assert site.provider.refreshes >= 1
    assert {each.resource for each in site.provider.refreshers.values()} == {site.url}


def test_what_the_documents_say(site: Site, front: str) -> None:
    refused = httpx2.post(f"{front}/mcp", json={})
    assert refused.status_code == 401
    assert f'resource_metadata="{front}{_PROTECTED}/mcp"' in refused.headers["www-authenticate"]
    protected = httpx2.get(f"{front}{_PROTECTED}/mcp").json()
    assert protected["resource"] == f"{front}/mcp"
    [issuer] = protected["authorization_servers"]
    assert issuer.startswith(front)
    told = httpx2.get(f"{front}{_AUTHORITY}{issuer.removeprefix(front)}").json()
    honest = httpx2.get(f"{site.issuer}{_AUTHORITY}").json()
    assert told["issuer"] == issuer
    changed = {name for name in honest if honest[name] != told.get(name)}
    assert changed == {"issuer", "authorization_endpoint", "token_endpoint"}
    query = urlencode({"client_id": "x", "resource": f"{front}/mcp", "scope": "a b"})
    sent = httpx2.get(f"{told['authorization_endpoint']}?{query}", follow_redirects=False)
    assert sent.headers["location"].startswith(f"{site.issuer}/authorize?")
    assert parameters(sent.headers["location"]) == {"client_id": "x", "resource": site.url, "scope": "a b"}


def test_behind_tls_the_documents_say_so(front: str) -> None:
    named = {"x-forwarded-proto": "https", "host": front.removeprefix("http://")}
    secure = front.replace("http://", "https://")
    assert httpx2.get(f"{front}{_PROTECTED}/mcp", headers=named).json()["resource"] == f"{secure}/mcp"


@pytest.mark.parametrize(
    "site", [{"names_issuer": False, "checks": False, "wants_resource": False}], indirect=True
)
def test_a_server_of_before_there_were_such_metadata(site: Site, front: str) -> None:
    """It is its own authorization server, and says nothing else."""
    told = {**httpx2.get(f"{site.issuer}{_AUTHORITY}").json(), "issuer": site.origin}
    site.server.changes[_PROTECTED + "/mcp"] = site.server.changes[_PROTECTED] = gone
    site.server.changes[_AUTHORITY] = lambda *_: (
        200,
        {"content-type": "application/json"},
        json.dumps(told).encode(),
    )
    _talk(f"{front}/mcp", "legacy", _hello)
    assert len(site.provider.tokens) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"resource": "https://honest.example/mcp"},
        {"resource": None},
    ],
)
def test_metadata_about_somebody_else_pass_as_they_are(
    site: Site, front: str, changes: dict[str, Any]
) -> None:
    site.server.changes[_PROTECTED + "/mcp"] = members(**changes)
    direct = httpx2.get(f"{site.origin}{_PROTECTED}/mcp")
    assert httpx2.get(f"{front}{_PROTECTED}/mcp").content == direct.content
    if changes["resource"]:
        with pytest.raises(Exception) as failed:  # noqa: PT011
            _talk(f"{front}/mcp", "legacy", _hello)
        error: BaseException = failed.value
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        assert isinstance(error, OAuthFlowError)


@pytest.mark.parametrize(
    "changes",
    [
        {"issuer": "https://honest.example"},
        {"token_endpoint": "http://honest.example/token"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"require_pushed_authorization_requests": True},
        {"authorization_response_iss_parameter_supported": True, "registration_endpoint": None},
    ],
)
def test_an_authorization_server_that_cannot_be_fronted_stays_as_it_is(
    site: Site, front: str, changes: dict[str, Any]
) -> None:
    site.authority.changes[_AUTHORITY] = members(**{"issuer": site.issuer, **changes})
    protected = httpx2.get(f"{front}{_PROTECTED}/mcp").json()
    assert protected["authorization_servers"] == [site.issuer]


def test_nobody_is_asked_whom_the_server_did_not_name(site: Site, front: str) -> None:
    elsewhere = front + "/mcp-envelope/login/1/token"
    assert httpx2.post(elsewhere, data={"code": "secret"}).status_code == 404
    assert not site.authority.requests("/token")


def test_metadata_that_redirect_are_not_followed(site: Site, front: str) -> None:
    site.authority.changes[_AUTHORITY] = moved(f"{site.issuer}/elsewhere")
    protected = httpx2.get(f"{front}{_PROTECTED}/mcp").json()
    assert protected["authorization_servers"] == [site.issuer]
    assert not site.authority.requests("/elsewhere")


# -- an authorization server that names itself --------------------------------------------------------------


@pytest.fixture
def named(tmp_path: Path) -> Iterator[tuple[Site, str]]:
    """Such a server, and the address at which its authorization server seems to be."""
    with (
        sites.site(names_issuer=True) as site,
        programs.listening(tmp_path, "front", "--url", site.url) as listening,
    ):
        yield site, f"{listening.url}/mcp-envelope/login/0"


def _leading_to(there: str) -> str:
    return urlsafe_b64encode(there.encode()).decode().rstrip("=")


def test_a_redirect_leads_on_and_says_who_we_seem_to_be(named: tuple[Site, str]) -> None:
    site, issuer = named
    asked = f"{issuer}/redirect/{_leading_to(_REDIRECT)}"
    said = httpx2.get(asked, params={"code": "c", "state": "a b", "iss": site.issuer})
    assert said.status_code == 302
    assert said.headers["location"].startswith(f"{_REDIRECT}?")
    assert parameters(said.headers["location"]) == {"code": "c", "state": "a b", "iss": issuer}


@pytest.mark.parametrize(
    "iss", [[], ["https://elsewhere.example"], ["", "{issuer}"], ["{issuer}", "{issuer}"]]
)
def test_an_answer_of_somebody_else_leads_nowhere(named: tuple[Site, str], iss: list[str]) -> None:
    site, issuer = named
    said = [("code", "c"), *(("iss", each.replace("{issuer}", site.issuer)) for each in iss)]
    answer = httpx2.get(f"{issuer}/redirect/{_leading_to(_REDIRECT)}?{urlencode(said)}")
    assert answer.status_code == 400
    assert "location" not in answer.headers


@pytest.mark.parametrize(
    "there",
    [
        "https://elsewhere.example/callback",
        "http://127.0.0.1@elsewhere.example/callback",
        "http://127.0.0.1.elsewhere.example/",
        "http://127.0.0.1\\@elsewhere.example/",
        "http://127.0.0.1/\r\nset-cookie: a=b",
        "javascript://127.0.0.1/%0aalert(1)",
        "//127.0.0.1/callback",
    ],
)
def test_codes_stay_on_this_computer(named: tuple[Site, str], there: str) -> None:
    """A person who says yes is shown our address, so it must not lead anywhere else."""
    site, issuer = named
    said = urlencode({"code": "c", "iss": site.issuer})
    answer = httpx2.get(f"{issuer}/redirect/{_leading_to(there)}?{said}")
    assert "location" not in answer.headers
    assert answer.status_code in (400, 401, 404)
    refused = httpx2.post(f"{issuer}/register", json={"redirect_uris": [_REDIRECT, there]})
    assert refused.status_code == 400
    assert refused.json()["error"] == "invalid_redirect_uri"
    assert "mcp-envelope proxy --url" in refused.json()["error_description"]
    assert not site.authority.requests("/register")


def test_only_what_was_registered_is_led_to(named: tuple[Site, str]) -> None:
    site, issuer = named
    registered = httpx2.post(
        f"{issuer}/register", json={"redirect_uris": [_REDIRECT], "token_endpoint_auth_method": "none"}
    )
    assert registered.json()["redirect_uris"] == [_REDIRECT]
    client = registered.json()["client_id"]
    query = {"response_type": "code", "client_id": client, "code_challenge": "x" * 43, "resource": site.url}
    query["code_challenge_method"] = "S256"
    for there, status in ((_REDIRECT, 302), ("http://127.0.0.1:1/other", 400)):
        asked = httpx2.get(f"{issuer}/authorize", params={**query, "redirect_uri": there})
        assert httpx2.get(asked.headers["location"]).status_code == status


def test_clients_of_a_metadata_document_register_instead(named: tuple[Site, str]) -> None:
    """The redirects in such a document are not ours."""
    site, issuer = named
    site.authority.changes[_AUTHORITY] = members(
        issuer=site.issuer,
        authorization_response_iss_parameter_supported=True,
        client_id_metadata_document_supported=True,
    )
    front = issuer.removesuffix("/mcp-envelope/login/0")
    told = httpx2.get(f"{front}{_AUTHORITY}/mcp-envelope/login/0").json()
    assert "client_id_metadata_document_supported" not in told
    assert told["registration_endpoint"] == f"{issuer}/register"
