"""An MCP server that wants a login, and the authorization server that gives it: the SDK's own, on loopback.

Strategy: both are the SDK's real applications, on ports of their own. `Provider` is the part that the SDK leaves to
the operator: it keeps clients, codes and tokens, says yes to everyone who opens its address, and remembers what it
was asked. Hostile variants change the one answer that they are about, at the edge of the application.
"""

from __future__ import annotations

import json
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    AuthorizeError,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    TokenVerifier,
)
from mcp.server.auth.routes import create_auth_routes
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette

from ..proxy.sites import App, serving

SCOPES = ["read", "write"]
# Turns (status, headers, body) of one path into something else.
Change = Callable[[int, dict[str, str], bytes], tuple[int, dict[str, str], bytes]]


@dataclass
class Provider(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """An authorization server in memory. `life` is that of its tokens; a refresh token is good for one use."""

    issuer: str = ""
    life: int = 3600
    clients: dict[str, OAuthClientInformationFull] = field(default_factory=dict)
    codes: dict[str, AuthorizationCode] = field(default_factory=dict)
    tokens: dict[str, AccessToken] = field(default_factory=dict)
    refreshers: dict[str, RefreshToken] = field(default_factory=dict)
    asked: list[AuthorizationParams] = field(default_factory=list)
    refreshes: int = 0
    revoked: list[str] = field(default_factory=list)
    names_issuer: bool = True
    wants_resource: bool = True
    # The resource that its tokens are for, whatever was asked.
    resource: str | None = None
    given: list[str] = field(default_factory=list)

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        self.asked.append(params)
        if params.resource is None and self.wants_resource:
            raise AuthorizeError("invalid_target", "which server?")
        code = secrets.token_urlsafe(32)
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or SCOPES[:1],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.given.append(code)
        said = {"code": code, "state": params.state or ""}
        if self.names_issuer:
            said["iss"] = self.issuer
        return f"{params.redirect_uri}?{urlencode(said)}"

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self.make(client.client_id, authorization_code.scopes, authorization_code.resource)

    def make(self, client: str, scopes: list[str], resource: str | None) -> OAuthToken:
        access, refresh = f"access-{secrets.token_urlsafe(24)}", f"refresh-{secrets.token_urlsafe(24)}"
        self.given += [access, refresh]
        resource = self.resource or resource
        self.tokens[access] = AccessToken(
            token=access,
            client_id=client,
            scopes=scopes,
            expires_at=int(time.time()) + self.life,
            resource=resource,
        )
        self.refreshers[refresh] = RefreshToken(
            token=refresh, client_id=client, scopes=scopes, resource=resource
        )
        return OAuthToken(
            access_token=access, expires_in=self.life, scope=" ".join(scopes), refresh_token=refresh
        )

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        return self.refreshers.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        self.refreshes += 1
        del self.refreshers[refresh_token.token]
        return self.make(client.client_id, scopes, refresh_token.resource)

    async def load_access_token(self, token: str) -> AccessToken | None:
        found = self.tokens.get(token)
        return found if found is not None and (found.expires_at or 0) > time.time() else None

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.revoked.append(token.token)
        self.tokens.pop(token.token, None)
        self.refreshers.pop(token.token, None)

    def expire(self) -> None:
        """All access tokens run out at once; refresh tokens stay."""
        self.tokens.clear()


class Verifier(TokenVerifier):
    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    async def verify_token(self, token: str) -> AccessToken | None:
        return await self._provider.load_access_token(token)


class Edge:
    """An application whose answers a test may change, by path; it remembers what it was sent."""

    def __init__(self) -> None:
        self.app: App | None = None
        self.changes: dict[str, Change] = {}
        # Paths where the application is not reached at all.
        self.down: set[str] = set()
        self.seen: list[tuple[str, str, dict[str, str]]] = []

    def requests(self, path: str) -> list[dict[str, str]]:
        return [headers for _, seen, headers in self.seen if seen == path]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert self.app is not None
        change = None
        if scope["type"] == "http":
            headers = {name.decode().lower(): value.decode("latin-1") for name, value in scope["headers"]}
            self.seen.append((scope["method"], scope["path"], headers))
            change = self.changes.get(scope["path"])
            if scope["path"] in self.down:
                await send({"type": "http.response.start", "status": 503, "headers": []})
                await send({"type": "http.response.body", "body": b""})
                return
        if change is None:
            await self.app(scope, receive, send)
            return
        heads: list[Any] = []
        body = b""

        async def keep(message: Any) -> None:
            nonlocal body
            if message["type"] == "http.response.start":
                heads.append(message)
            else:
                body += message.get("body", b"")

        await self.app(scope, receive, keep)
        said = {name.decode().lower(): value.decode("latin-1") for name, value in heads[0]["headers"]}
        status, said, body = change(heads[0]["status"], said, body)
        said["content-length"] = str(len(body))
        raw = [(name.encode(), value.encode("latin-1")) for name, value in said.items()]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": body})


@dataclass
class Site:
    """A server behind a login."""

    url: str
    issuer: str
    provider: Provider
    server: Edge
    authority: Edge

    @property
    def origin(self) -> str:
        return self.url.removesuffix("/mcp")


def members(**changes: Any) -> Change:
    """Change some members of a JSON body; None removes one."""

    def change(status: int, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        found = {**json.loads(body), **changes}
        kept = {name: value for name, value in found.items() if value is not None}
        return status, headers, json.dumps(kept).encode()

    return change


def moved(to: str, status: int = 307) -> Change:
    return lambda _, headers, body: (status, {"location": to}, b"")


def gone(status: int, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
    return 404, {"content-type": "text/plain"}, b"no"


@contextmanager
def authority(provider: Provider, edge: Edge) -> Iterator[str]:
    """An authorization server; its address is its issuer."""
    with serving(edge, lifespan="off") as url:
        provider.issuer = url
        routes = create_auth_routes(
            provider,
            issuer_url=AnyHttpUrl(url),
            client_registration_options=ClientRegistrationOptions(
                enabled=True, valid_scopes=SCOPES, default_scopes=SCOPES[:1]
            ),
            revocation_options=RevocationOptions(enabled=True),
        )
        edge.app = Starlette(routes=routes)
        # The SDK's server writes its issuer with a slash, and does not say that it names itself in redirects.
        edge.changes["/.well-known/oauth-authorization-server"] = members(
            issuer=url, authorization_response_iss_parameter_supported=provider.names_issuer or None
        )
        yield url


@contextmanager
def site(*, required: tuple[str, ...] = ("read",), checks: bool = True, **facts: Any) -> Iterator[Site]:
    """A server and its authorization server. With `checks`, it takes tokens for itself alone."""
    provider, guard, edge = Provider(**facts), Edge(), Edge()
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    with authority(provider, guard) as issuer:
        edge.app = make(provider, issuer, f"{url}/mcp", list(required), checks).streamable_http_app()
        metadata = "/.well-known/oauth-protected-resource/mcp"
        edge.changes[metadata] = members(authorization_servers=[issuer])
        with serving(edge, lifespan="on", listening=listening):
            yield Site(f"{url}/mcp", issuer, provider, edge, guard)


def make(provider: Provider, issuer: str, url: str, required: list[str], checks: bool) -> MCPServer:
    server = MCPServer(
        "behind",
        log_level="CRITICAL",
        token_verifier=Verifier(provider),
        auth=AuthSettings(
            issuer_url=AnyHttpUrl(issuer),
            resource_server_url=AnyHttpUrl(url),
            required_scopes=required,
            validate_token_resource=checks,
        ),
    )

    @server.tool(structured_output=False)
    def hello(name: str) -> str:
        return f"Hello, {name}!"

    @server.tool(structured_output=False)
    def lines(count: int) -> str:
        return "\n".join(f"line {number} of many" for number in range(count))

    return server


# -- the person at the browser ------------------------------------------------------------------------------


def opened(address: str) -> str:
    """Open an address and say yes: the address that the browser is sent to."""
    response = httpx2.get(address, follow_redirects=False)
    assert response.status_code in (302, 307), (response.status_code, response.text)
    return response.headers["location"]


def logged_in(address: str) -> httpx2.Response:
    """Log in as a browser does, up to the page at the end."""
    return httpx2.get(opened(address))


def parameters(address: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
