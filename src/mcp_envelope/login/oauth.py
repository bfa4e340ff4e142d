"""The protocol of a login: OAuth 2.1 as the MCP specification has it, done by the SDK's own client.

Strategy: the SDK's flow is written for the requests of a client. Here it gets a request of its own that goes
nowhere: the answer to it is what the server said when it refused, and the flow does the rest (metadata,
registration, PKCE, `resource`, `state`, `iss`, the token). Its other requests leave through the proxy's own
connections, so that the same certificates and proxies hold, and each is looked at before: nothing goes out in clear
except to this computer, and redirects stay within their origin. What went out is never quoted in an error. Only
this module imports the SDK, and only when somebody logs in or a token is renewed.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import anyio
import httpx2
import msgspec
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.utils import issuers_match
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp.shared.exceptions import MCPDeprecationWarning
from msgspec.structs import replace

from .. import __version__
from ..proxy.connections import Headers, Pool, Unanswered
from ..proxy.headers import MESSAGE_HEADERS
from ..proxy.upstream import small_body
from .challenge import challenge_of
from .redirect import Listener
from .store import Challenge, Grant, Login, Secrets, canonical, is_safe

_TIMEOUT: Final = 30.0
_NAME: Final = "mcp-envelope"
_VERSION: Final = "2025-11-25"
_HELLO: Final = msgspec.json.encode(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": _VERSION,
            "capabilities": {},
            "clientInfo": {"name": _NAME, "version": __version__},
        },
    }
)
# Headers that the connection writes itself.
_OWN: Final = ("host", "content-length", "connection", "accept-encoding", "transfer-encoding")
_SECRETS: Final = ("code", "code_verifier", "refresh_token", "client_secret", "client_assertion", "token")
# The errors of RFC 6749 after which only a new login helps.
_FINAL: Final = ("invalid_grant", "invalid_client", "unauthorized_client", "invalid_scope", "invalid_target")
_LONGEST: Final = 300

Show = Callable[[str], Awaitable[None]]


class Refused(Exception):
    """The login failed. The message is for people, and holds no secret."""


class Unavailable(Exception):
    """The authorization server does not answer as it should just now; the login may still be good."""


@dataclass(frozen=True)
class Wanted:
    """What a login should be, where that isn't left to the server."""

    url: str
    grant: Grant = "authorization_code"
    scope: str = ""
    issuer: str = ""
    client_id: str = ""
    client_secret: str = ""
    client_metadata_url: str = ""
    key_file: str = ""


# -- logging in ---------------------------------------------------------------------------------------------


async def log_in(wanted: Wanted, known: Login | None, listener: Listener | None, show: Show) -> Login:
    """Log in; `show` gets the address that a person has to open, and `listener` the answer to it.

    Raises `Refused` or `Unavailable`.
    """
    url = canonical(wanted.url)
    if not is_safe(url):
        raise Refused(f"{url} is not encrypted: whoever is on the way could read the token (use https)")
    async with _FlowTransport() as wire:
        said = None if known is None else known.challenge
        said, asks = (await wire.challenge(wanted.url)) if said is None else (said, True)
        if wanted.scope:
            said = replace(said, scope=wanted.scope)
        old = _still_good(wanted, known, listener, said.scope)
        flow = _Flow(wire, url, wanted, old, listener, show)
        try:
            return await flow.run(said)
        except OAuthRegistrationError:
            if not asks and not flow.knows_metadata:
                raise Refused("the server does not ask for a login, and says nowhere how to log in") from None
            raise Refused(
                f"the authorization server did not register this program{wire.status}; register it there by hand, "
                "and pass --client-id"
            ) from None
        except OAuthTokenError:
            raise Refused(f"the authorization server gave no token{wire.reason()}") from None
        except OAuthFlowError as error:
            raise Refused(_one_line(str(error))) from None


def _still_good(wanted: Wanted, known: Login | None, listener: Listener | None, scope: str) -> Login | None:
    """What is known of an earlier login, as far as it fits the one that is wanted."""
    if (
        known is None
        or known.grant != wanted.grant
        or known.client_metadata_url != wanted.client_metadata_url
    ):
        return None
    if known.is_registered_by_hand or wanted.client_id:
        return known if known.client.get("client_id") == wanted.client_id else None
    port = urlsplit(listener.redirect_uri).port if listener else 0
    is_registered_elsewhere = known.redirect_port != port and not known.client_metadata_url
    # With a keyring, the secret may go as well.
    wants_secret = str(known.client.get("token_endpoint_auth_method")).startswith("client_secret")
    is_incomplete = wants_secret and not known.secrets.client_secret
    # An authorization server may hold a client to the scopes that it was registered with.
    registered = str(known.client.get("scope") or "").split()
    is_too_little = bool(registered) and not {*scope.split()} <= {*registered}
    return replace(known, client={}) if is_registered_elsewhere or is_incomplete or is_too_little else known


class _Flow:
    """One run of the SDK's flow, and the login that comes of it."""

    def __init__(
        self,
        wire: _FlowTransport,
        url: str,
        wanted: Wanted,
        old: Login | None,
        listener: Listener | None,
        show: Show | None,
    ) -> None:
        self._wire = wire
        self._wanted = wanted
        self._listener = listener
        self._show = show
        self._old = old
        self.storage = _Storage(old, wanted)
        self._provider = wire.provider = self._make_provider(url)
        if old is not None:
            self._restore(old)

    def _make_provider(self, url: str) -> OAuthClientProvider:
        wanted, storage = self._wanted, self.storage
        if wanted.grant == "client_credentials":
            with warnings.catch_warnings():
                # The first login trusts the server's word for who gives the tokens; later ones hold it to that.
                warnings.simplefilter("ignore", MCPDeprecationWarning)
                issuer = wanted.issuer or None
                if wanted.key_file:
                    signed = _signing(wanted.client_id, wanted.key_file)
                    return PrivateKeyJWTOAuthProvider(url, storage, wanted.client_id, signed, issuer=issuer)
                return ClientCredentialsOAuthProvider(
                    url, storage, wanted.client_id, wanted.client_secret, issuer=issuer
                )
        redirect = self._listener.redirect_uri if self._listener else "http://127.0.0.1/callback"
        metadata = OAuthClientMetadata.model_validate({"redirect_uris": [redirect], "client_name": _NAME})
        return OAuthClientProvider(
            url,
            metadata,
            storage,
            redirect_handler=self._shown,
            callback_handler=self._answered,
            client_metadata_url=wanted.client_metadata_url or None,
        )

    def _restore(self, login: Login) -> None:
        """What the SDK would have forgotten since the login: where tokens come from."""
        context = self._provider.context
        if login.server:
            context.oauth_metadata = OAuthMetadata.model_validate(login.server)
        if login.protected:
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(login.protected)
            context.auth_server_url = login.issuer or None

    @property
    def knows_metadata(self) -> bool:
        context = self._provider.context
        return context.protected_resource_metadata is not None or context.oauth_metadata is not None

    async def run(self, challenge: Challenge) -> Login:
        """A whole login, from what the server said when it refused."""
        # What was known of the servers is asked for again: it may be long ago.
        context = self._provider.context
        context.oauth_metadata = context.protected_resource_metadata = context.auth_server_url = None
        await self._drive(403 if challenge.wants_more else 401, challenge)
        return self._login()

    async def refresh(self) -> Login | None:
        """A new token for the old refresh token; None if the authorization server gave none."""
        context = self._provider.context
        # Long past, whatever the server thinks.
        context.token_expiry_time = 1.0
        await self._drive(200, None)
        return self._login() if context.is_token_valid() else None

    async def _drive(self, status: int, challenge: Challenge | None) -> None:
        own = httpx2.Request("POST", "http://localhost/", headers={"mcp-protocol-version": _VERSION})
        self._wire.expect(own, status, challenge)
        with _quiet():
            async with httpx2.AsyncClient(transport=self._wire, trust_env=False) as client:
                await client.send(own, auth=self._provider)

    def _login(self) -> Login:
        context = self._provider.context
        token, client = context.current_tokens, context.client_info
        if token is None or client is None or not token.access_token:
            raise Refused("the authorization server gave no token")
        metadata, protected = context.oauth_metadata, context.protected_resource_metadata
        kept = client.model_dump(mode="json", exclude_none=True)
        secret = kept.pop("client_secret", "")
        return Login(
            url=context.server_url,
            grant=self._wanted.grant,
            resource=context.get_resource_url(),
            issuer=str(metadata.issuer) if metadata else context.auth_server_url or "",
            scope=token.scope or "",
            expires=None if token.expires_in is None else time.time() + token.expires_in,
            lifetime=token.expires_in or 0,
            client=kept,
            is_registered_by_hand=bool(self._wanted.client_id),
            client_metadata_url=self._wanted.client_metadata_url,
            key_file=self._wanted.key_file,
            redirect_port=urlsplit(self._listener.redirect_uri).port or 0 if self._listener else 0,
            server=metadata.model_dump(mode="json", exclude_none=True) if metadata else {},
            protected=protected.model_dump(mode="json", exclude_none=True) if protected else {},
            secrets=Secrets(token.access_token, token.refresh_token or "", secret),
        )

    async def _shown(self, address: str) -> None:
        metadata = self._provider.context.oauth_metadata
        issuer = self._wanted.issuer
        if issuer and (metadata is None or not issuers_match(str(metadata.issuer), issuer)):
            named = "another authorization server" if metadata is None else str(metadata.issuer)
            raise Refused(_one_line(f"the server names {named}, and not the --issuer"))
        if not is_safe(address):
            raise Refused(_one_line(f"the login would be in clear: {_origin(address)}"))
        assert self._listener is not None
        assert self._show is not None
        self._listener.expect(address)
        await self._show(address)

    async def _answered(self) -> AuthorizationCodeResult:
        assert self._listener is not None
        answer = await self._listener.answer()
        if answer.error:
            raise Refused(f"the authorization server refused: {_error_name(answer.error)}")
        return AuthorizationCodeResult(code=answer.code, state=answer.state, iss=answer.issuer)


class _Storage:
    """What the SDK may read of an earlier login. What it writes is read from its context when it is done."""

    def __init__(self, old: Login | None, wanted: Wanted) -> None:
        self._old = old
        self._wanted = wanted

    async def get_tokens(self) -> OAuthToken | None:
        if self._old is None or not self._old.has_token:
            return None
        secrets = self._old.secrets
        return OAuthToken(
            access_token=secrets.access_token,
            refresh_token=secrets.refresh_token or None,
            scope=self._old.scope or None,
        )

    async def set_tokens(self, tokens: OAuthToken) -> None:
        pass

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        wanted, old = self._wanted, self._old
        if wanted.client_id:
            secret = wanted.client_secret or None
            return OAuthClientInformationFull(
                client_id=wanted.client_id,
                client_secret=secret,
                token_endpoint_auth_method="client_secret_basic" if secret else "none",
            )
        if old is None or not old.client:
            return None
        known = OAuthClientInformationFull.model_validate(old.client)
        known.client_secret = old.secrets.client_secret or None
        return known

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        if self._wanted.client_id:
            raise Refused("the authorization server is not the one that the --client-id was registered with")


def _signing(client_id: str, key_file: str) -> Callable[[str], Awaitable[str]]:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        pem = Path(key_file).read_bytes()
        key = load_pem_private_key(pem, None)
    except OSError as error:
        raise Refused(f"cannot read the private key in {key_file}: {error.strerror}") from None
    except (ValueError, TypeError):
        raise Refused(f"{key_file} is not a private key in PEM, without a password") from None
    algorithm = "RS256"
    if isinstance(key, ec.EllipticCurvePrivateKey):
        algorithm = {384: "ES384", 521: "ES512"}.get(key.curve.key_size, "ES256")
    elif isinstance(key, ed25519.Ed25519PrivateKey):
        algorithm = "EdDSA"
    signed = SignedJWTParameters(
        issuer=client_id, subject=client_id, signing_key=pem.decode(), signing_algorithm=algorithm
    )
    return signed.create_assertion_provider()


# -- afterwards ---------------------------------------------------------------------------------------------


async def renewed(login: Login) -> Login:
    """The login with a new token. Raises `Refused` if only a new login helps, or `Unavailable`."""
    wanted = Wanted(
        login.url,
        login.grant,
        login.scope,
        login.issuer,
        str(login.client.get("client_id", "")) if login.is_registered_by_hand else "",
        login.secrets.client_secret if login.is_registered_by_hand else "",
        login.client_metadata_url,
        login.key_file,
    )
    async with _FlowTransport() as wire:
        flow = _Flow(wire, login.url, wanted, login, None, None)
        try:
            if login.grant == "client_credentials":
                found: Login | None = await flow.run(login.challenge or Challenge(scope=login.scope))
            else:
                found = await flow.refresh()
        except OAuthFlowError:
            found = None
        if found is not None:
            # What a person has to grant is still to be asked for.
            is_open = login.grant == "authorization_code" and login.challenge and login.challenge.wants_more
            challenge = login.challenge if is_open else None
            return replace(found, redirect_port=login.redirect_port, challenge=challenge)
        if wire.is_final:
            raise Refused(f"the authorization server gave no new token{wire.reason()}")
        raise Unavailable(f"the authorization server gave no new token just now{wire.status}")


async def revoke(login: Login) -> bool:
    """Tell the authorization server that the token is of no use any more; returns whether it took note."""
    endpoint = login.server.get("revocation_endpoint")
    token = login.secrets.refresh_token or login.secrets.access_token
    if not endpoint or not token:
        return False
    async with _FlowTransport() as wire:
        flow = _Flow(wire, login.url, Wanted(login.url, login.grant), login, None, None)
        try:
            context = flow._provider.context
            context.client_info = await flow.storage.get_client_info()
            data = {"token": token, "client_id": str(login.client.get("client_id", ""))}
            data, headers = context.prepare_token_auth(data, {})
            response = await wire.handle_async_request(
                httpx2.Request("POST", str(endpoint), data=data, headers=headers)
            )
        except (OAuthFlowError, Refused, Unavailable):
            return False
        return response.status_code == 200


# -- requests -----------------------------------------------------------------------------------------------


class _FlowTransport(httpx2.AsyncBaseTransport):
    """Sends what the flow wants to send, and answers the one request that goes nowhere."""

    def __init__(self) -> None:
        self._pool = Pool()
        self._own: httpx2.Request | None = None
        self._replies: list[httpx2.Response] = []
        self._last = 0
        self._last_body = b""
        self._sent: list[str] = []
        self.provider: OAuthClientProvider | None = None

    async def __aenter__(self) -> _FlowTransport:
        return self

    async def __aexit__(self, *error: Any) -> None:
        # The client that uses it comes and goes before.
        await self._pool.aclose()

    async def aclose(self) -> None:
        pass

    def expect(self, own: httpx2.Request, status: int, challenge: Challenge | None) -> None:
        headers = [] if challenge is None else [("www-authenticate", _header(challenge))]
        self._own = own
        self._replies = [httpx2.Response(200), httpx2.Response(status, headers=headers)]

    async def challenge(self, url: str) -> tuple[Challenge, bool]:
        """What the server asks of somebody without a token, and whether it asks at all."""
        headers = [*MESSAGE_HEADERS, ("user-agent", _NAME)]
        status, found, _ = await self._exchange("POST", url, headers, _HELLO)
        said = dict(found).get("www-authenticate", "")
        return challenge_of(url, status, said) or Challenge(), status == 401

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request is self._own:
            return self._replies.pop() if len(self._replies) > 1 else self._replies[0]
        url = str(request.url)
        if not is_safe(url):
            raise Refused(f"the login would be in clear: {_origin(url)}")
        headers = [(name, value) for name, value in request.headers.items() if name not in _OWN]
        named = {name for name, _ in headers}
        # Some answer in another form unless they are asked for this one.
        headers += [
            pair for pair in (("accept", "application/json"), ("user-agent", _NAME)) if pair[0] not in named
        ]
        body = await request.aread()
        if request.headers.get("content-type") == "application/x-www-form-urlencoded":
            self._sent += [value for name, value in parse_qsl(body.decode()) if name in _SECRETS]
        self._last, found, self._last_body = await self._exchange(request.method, url, headers, body)
        self._learn()
        kept = [pair for pair in found if pair[0] not in (*_OWN, "content-encoding")]
        return httpx2.Response(self._last, headers=kept, content=self._last_body, request=request)

    async def _exchange(
        self, method: str, url: str, headers: Headers, body: bytes
    ) -> tuple[int, Headers, bytes]:
        try:
            with anyio.fail_after(_TIMEOUT):
                response = await self._pool.send(method, url, headers, body)
                try:
                    return response.status, response.headers, await small_body(response)
                finally:
                    response.release()
        except (Unanswered, TimeoutError):
            raise Unavailable(f"{_origin(url)} does not answer") from None

    def _learn(self) -> None:
        """How the authorization server wants a client to show that it is itself, before the client does."""
        client = None if self.provider is None else self.provider.context.client_info
        if client is None or not client.client_secret or client.issuer is not None:
            return
        methods = _members(self._last_body).get("token_endpoint_auth_methods_supported")
        if (
            isinstance(methods, list)
            and "client_secret_basic" not in methods
            and "client_secret_post" in methods
        ):
            client.token_endpoint_auth_method = "client_secret_post"

    @property
    def status(self) -> str:
        return f" (HTTP {self._last})" if self._last else ""

    @property
    def is_final(self) -> bool:
        """Whether asking again would be of no use."""
        return self._last in (400, 401, 403) and _members(self._last_body).get("error") in _FINAL

    def reason(self) -> str:
        """What the authorization server said of its refusal."""
        said = _members(self._last_body)
        name, words = _error_name(said.get("error")), said.get("error_description")
        if not isinstance(words, str) or any(secret in words for secret in self._sent):
            words = ""
        return f": {name}" + (f" ({_one_line(words)})" if words else "")


@contextmanager
def _quiet() -> Iterator[None]:
    """The SDK logs what it stumbles over, with all that was said."""
    logger = logging.getLogger("mcp.client.auth")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


def _header(challenge: Challenge) -> str:
    said = {
        "error": "insufficient_scope" if challenge.wants_more else "",
        "scope": challenge.scope,
        "resource_metadata": challenge.metadata,
    }
    return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in said.items() if value)


def _members(body: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _error_name(said: object) -> str:
    is_name = isinstance(said, str) and len(said) < 60 and said.replace("_", "").isalnum() and said.isascii()
    return str(said) if is_name else "no reason was given"


def _origin(url: str) -> str:
    split = urlsplit(url)
    return f"{split.scheme}://{split.netloc.rpartition('@')[2]}"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_LONGEST]
