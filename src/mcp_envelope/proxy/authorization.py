"""A client's own login at the server behind, through a proxy that listens.

Strategy: clients log in only where the server's metadata (RFC 9728) have the address that they use, so there they
get ours. A token has to be for the server's own address, though. So its authorization servers look like ours, too:
with their own metadata, but our addresses for the two endpoints that are told a `resource`, where it is put right.
One that names itself in its redirects (RFC 9207) stays as it is, since clients would notice. Only what the server
names is ever asked, and nothing is kept that another replica could not find out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from time import monotonic
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

import anyio
import msgspec

from ..jsontext.document import encode
from .connections import Headers, Pool, Unanswered
from .headers import JSON, RESOURCE_METADATA, end_to_end, origin, resolve, without_encoding
from .upstream import BROKEN, Upstream, small_body

PROTECTED: Final = "/.well-known/oauth-protected-resource"
_AUTHORITY: Final = "/.well-known/oauth-authorization-server"
_OPENID: Final = "/.well-known/openid-configuration"
# Where authorization servers seem to be: /0 is the first that the server names, /own the server itself.
_FRONT: Final = "/mcp-envelope/login"
_FRONT_METADATA: Final = re.compile(
    rf"(?:{re.escape(_AUTHORITY)}|{re.escape(_OPENID)}){_FRONT}/(\w+)|{_FRONT}/(\w+){re.escape(_OPENID)}"
)
_FRONT_ENDPOINT: Final = re.compile(rf"{_FRONT}/(\w+)/(authorize|token)")
_OWN: Final = "own"
# Members of metadata that would lead past our endpoints, or that vouch for what we change.
_LEFT_OUT: Final = (
    "signed_metadata",
    "pushed_authorization_request_endpoint",
    "device_authorization_endpoint",
    "mtls_endpoint_aliases",
)
_HOST: Final = re.compile(r"[A-Za-z0-9._\-]+(?::\d+)?|\[[0-9A-Fa-f:.]+\](?::\d+)?")
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_FORM: Final = "application/x-www-form-urlencoded"
_LARGEST_FORM: Final = 1 << 16
# Seconds that metadata are remembered for, and that anybody has to answer.
_FRESH: Final = 60.0
_TIMEOUT: Final = 15.0
_MOST_DOCUMENTS: Final = 64
_NO_STORE: Final = ("cache-control", "no-store")

Members = dict[str, Any]


class HttpResponse(NamedTuple):
    """What a client gets."""

    status: int
    headers: Headers
    body: bytes


class LoginFront:
    """The documents and endpoints of a login at the server behind, as its clients have to see them."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._pool = Pool()
        self._documents: dict[str, tuple[float, Members]] = {}
        # Where the server last said that its metadata are.
        self._named = ""

    async def aclose(self) -> None:
        await self._pool.aclose()

    # -- what the server says, with our addresses -------------------------------------------------------------

    def challenged(self, headers: Headers, base: str, path: str) -> Headers:
        """The headers of a refusal, with the metadata at our address."""

        def shown(match: re.Match[str]) -> str:
            there = resolve(self._upstream.url, match[2] or match[3])
            if not base or there is None or not self._is_servers(there) or PROTECTED not in there:
                return match[0]
            self._named = there
            where = urlsplit(there).path
            if where == self._place():
                where = f"{PROTECTED}/mcp" if path == "/mcp" else f"{PROTECTED}/"
            return f'{match[1]}"{base}{where}"'

        return [
            (name, RESOURCE_METADATA.sub(shown, value) if name == "www-authenticate" else value)
            for name, value in headers
        ]

    def path_of(self, path: str) -> str:
        """Where the server has what we have at a path."""
        return self._place() if path in (f"{PROTECTED}/mcp", f"{PROTECTED}/") else path

    @staticmethod
    def changes(path: str) -> bool:
        """Whether what is at a path has to be looked at."""
        return PROTECTED in path or path in (_AUTHORITY, _OPENID)

    async def changed(self, path: str, base: str, body: bytes) -> bytes:
        """The server's metadata, with our addresses; anything else as it is."""
        found = _members(body)
        if not base or found is None:
            return body
        if PROTECTED in path:
            if not self._is_about_server(found):
                return body
            issuers: list[str] = []
            for number, issuer in enumerate(self._issuers(found)):
                known = await self._discovered(issuer)
                issuers.append(issuer if known is None else f"{base}{_FRONT}/{number}")
            root = path in (PROTECTED, f"{PROTECTED}/")
            kept = {name: value for name, value in found.items() if name not in _LEFT_OUT}
            shown = {"resource": f"{base}/" if root else f"{base}/mcp", "authorization_servers": issuers}
            return encode({**kept, **shown})
        # Before there were other metadata, a server was its own authorization server.
        is_own = str(found.get("issuer")).rstrip("/") == self._server_issuer()
        if not is_own or not self._can_be_fronted(found):
            return body
        return encode({**_fronted(found, f"{base}{_FRONT}/{_OWN}"), "issuer": base})

    # -- our own endpoints ------------------------------------------------------------------------------------

    async def answer(
        self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes
    ) -> HttpResponse | None:
        """Answer what a client asks of an authorization server that looks like ours; None if it isn't that."""
        base = base_of(headers)
        if not base or _FRONT not in path:
            return None
        if method == "GET" and (match := _FRONT_METADATA.fullmatch(path)):
            which = match[1] or match[2]
            found = await self._metadata(which)
            if found is not None:
                shown = encode(_fronted(found, f"{base}{_FRONT}/{which}"))
                return HttpResponse(200, [("content-type", JSON), _NO_STORE], shown)
        if match := _FRONT_ENDPOINT.fullmatch(path):
            metadata = await self._metadata(match[1])
            if metadata is not None and method == "GET" and match[2] == "authorize":
                there = metadata["authorization_endpoint"]
                asked = await self._with_resource(query, base)
                location = there + ("&" if urlsplit(there).query else "?") + asked
                return HttpResponse(302, [("location", location), _NO_STORE], b"")
            if metadata is not None and method == "POST" and match[2] == "token":
                return await self._token(metadata["token_endpoint"], headers, body, base)
        return None

    # -- the server's metadata ------------------------------------------------------------------------------

    def _place(self) -> str:
        """The path at which a server's metadata are, as the standard has it."""
        return PROTECTED + urlsplit(self._upstream.url).path.rstrip("/")

    def _is_about_server(self, metadata: Members) -> bool:
        resource = metadata.get("resource")
        return isinstance(resource, str) and self._is_servers(resource)

    async def _known(self) -> Members | None:
        """What the server says of itself, wherever it does."""
        for place in filter(None, dict.fromkeys([self._named, self._place(), PROTECTED])):
            found = await self._document(resolve(self._upstream.url, place) or "")
            if found is not None and self._is_about_server(found):
                return found
        return None

    def _issuers(self, protected: Members) -> list[str]:
        named = protected.get("authorization_servers")
        found = [each for each in named if isinstance(each, str)] if isinstance(named, list) else []
        return found or [self._server_issuer()]

    def _server_issuer(self) -> str:
        split = urlsplit(self._upstream.url)
        return f"{split.scheme}://{split.netloc}"

    def _is_servers(self, url: str) -> bool:
        try:
            return origin(url) == origin(self._upstream.url)
        except ValueError:
            return False

    # -- authorization servers ------------------------------------------------------------------------------

    async def _metadata(self, which: str) -> Members | None:
        """What an authorization server says of itself; None if there is none, or if it has to stay as it is."""
        if which == _OWN:
            return await self._discovered(self._server_issuer())
        known = await self._known()
        issuers = [] if known is None else self._issuers(known)
        return await self._discovered(issuers[int(which)]) if which in map(str, range(len(issuers))) else None

    async def _discovered(self, issuer: str) -> Members | None:
        path = urlsplit(issuer).path.rstrip("/")
        places = [_AUTHORITY + path, _OPENID + path, *([path + _OPENID] if path else [])]
        for place in places:
            found = await self._document(resolve(issuer, place) or "")
            if found is not None and str(found.get("issuer")).rstrip("/") == issuer.rstrip("/"):
                return found if self._can_be_fronted(found) else None
        return None

    def _can_be_fronted(self, metadata: Members) -> bool:
        endpoints = [metadata.get("authorization_endpoint"), metadata.get("token_endpoint")]
        return (
            all(isinstance(each, str) and self._is_safe(each) for each in endpoints)
            and metadata.get("authorization_response_iss_parameter_supported") is not True
            and metadata.get("require_pushed_authorization_requests") is not True
        )

    async def _with_resource(self, form: str, base: str) -> str:
        """A form, with the server's own address where it has ours."""
        known = await self._known()
        resource = self._upstream.url if known is None else str(known["resource"])
        return urlencode(
            [
                (name, resource if name == "resource" and value.startswith(base) else value)
                for name, value in parse_qsl(form, keep_blank_values=True)
            ]
        )

    async def _token(
        self, url: str, headers: Mapping[str, str], body: bytes, base: str
    ) -> HttpResponse | None:
        if len(body) > _LARGEST_FORM or headers.get("content-type", "").partition(";")[0] != _FORM:
            return HttpResponse(415, [_NO_STORE], b"")
        form = (await self._with_resource(body.decode("latin-1"), base)).encode()
        sent = [
            (name, headers[name]) for name in ("authorization", "accept", "user-agent") if name in headers
        ]
        try:
            return await self._ask("POST", url, [*sent, ("content-type", _FORM)], form)
        except (Unanswered, TimeoutError):
            return HttpResponse(
                502, [("content-type", JSON), _NO_STORE], b'{"error":"temporarily_unavailable"}'
            )

    # -- requests -------------------------------------------------------------------------------------------

    def _is_safe(self, url: str) -> bool:
        """Whether a client's secrets may go there: not in clear, unless the server is on this computer, too."""
        try:
            split, server = urlsplit(url), urlsplit(self._upstream.url)
            is_here = split.hostname in _LOOPBACK and server.hostname in _LOOPBACK
        except ValueError:
            return False
        return split.scheme == "https" or (split.scheme == "http" and is_here)

    async def _document(self, url: str) -> Members | None:
        """A JSON object at an address; None if there is none. Redirects are not followed."""
        if not (self._is_safe(url) or self._is_servers(url)):
            return None
        known = self._documents.get(url)
        if known is not None and known[0] > monotonic():
            return known[1]
        try:
            answer = await self._ask("GET", url, [("accept", JSON)], b"")
        except (*BROKEN, TimeoutError):
            return None
        found = _members(answer.body) if answer.status == 200 else None
        if found is None:
            return None
        if len(self._documents) >= _MOST_DOCUMENTS:
            self._documents.clear()
        self._documents[url] = monotonic() + _FRESH, found
        return found

    async def _ask(self, method: str, url: str, headers: Headers, body: bytes) -> HttpResponse:
        with anyio.fail_after(_TIMEOUT):
            response = await self._pool.send(method, url, headers, body)
            try:
                return HttpResponse(
                    response.status,
                    without_encoding(end_to_end(response.headers)),
                    await small_body(response),
                )
            finally:
                response.release()


def base_of(headers: Mapping[str, str]) -> str:
    """Our own address, as a client wrote it; nothing if it can't be told."""
    host = headers.get("host", "")
    # Whoever takes TLS off before us says so.
    scheme = "https" if headers.get("x-forwarded-proto") == "https" else "http"
    return f"{scheme}://{host}" if _HOST.fullmatch(host) else ""


def _fronted(metadata: Members, issuer: str) -> Members:
    kept = {name: value for name, value in metadata.items() if name not in _LEFT_OUT}
    endpoints = {"authorization_endpoint": f"{issuer}/authorize", "token_endpoint": f"{issuer}/token"}
    return {**kept, "issuer": issuer, **endpoints}


def _members(body: bytes) -> Members | None:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
