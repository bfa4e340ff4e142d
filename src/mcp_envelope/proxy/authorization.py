"""A client's own login at the server behind, through a proxy that listens.

Strategy: clients log in only where the server's metadata (RFC 9728) have the address that they use, so there they
get ours. A token has to be for the server's own address, though. So its authorization servers look like ours, too:
with their own metadata, but our addresses for the two endpoints that are told a `resource`, where it is put right.
One that names itself in its redirects (RFC 9207) redirects to us first, where the name is put right, too. That
address is registered for the client and has the client's own in it, so that the authorization server itself sees to
it that a code goes nowhere else; and it leads to loopback alone, since whoever says yes is shown our address.
Only what the server names is ever asked, and nothing is kept that another replica could not find out.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from contextlib import aclosing
from time import monotonic
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

import anyio
import msgspec

from ..jsontext.document import encode
from .connections import Headers, Pool, Unanswered
from .headers import (
    JSON,
    RESOURCE_METADATA,
    end_to_end,
    is_loopback,
    origin,
    resolve,
    without_encoding,
)
from .upstream import BROKEN, Upstream, small_body

PROTECTED: Final = "/.well-known/oauth-protected-resource"
_AUTHORITY: Final = "/.well-known/oauth-authorization-server"
_OPENID: Final = "/.well-known/openid-configuration"
# Where authorization servers seem to be: /0 is the first that the server names, /own the server itself.
_FRONT: Final = "/mcp-envelope/login"
_FRONT_METADATA: Final = re.compile(
    rf"(?:{re.escape(_AUTHORITY)}|{re.escape(_OPENID)}){_FRONT}/(\w+)|{_FRONT}/(\w+){re.escape(_OPENID)}"
)
_FRONT_ENDPOINT: Final = re.compile(rf"{_FRONT}/(\w+)/(authorize|token|register)")
_FRONT_REDIRECT: Final = re.compile(rf"{_FRONT}/(\w+)/redirect/([\w-]+)")
_NAMES_ITSELF: Final = "authorization_response_iss_parameter_supported"
_OWN: Final = "own"
# Members of metadata that would lead past our endpoints, or that vouch for what we change.
_LEFT_OUT: Final = (
    "signed_metadata",
    "pushed_authorization_request_endpoint",
    "device_authorization_endpoint",
    "mtls_endpoint_aliases",
)
_HOST: Final = re.compile(r"[A-Za-z0-9._\-]+(?::\d+)?|\[[0-9A-Fa-f:.]+\](?::\d+)?")
_FORM: Final = "application/x-www-form-urlencoded"
_LARGEST_FORM: Final = 1 << 16
# An address without anything that a browser and we could read differently.
_PLAIN: Final = re.compile(r"http://[A-Za-z0-9.:\[\]]+(?:/[\w.~%/\-]*)?(?:\?[\w.~%/\-=&]*)?")
_ELSEWHERE: Final = (
    b'{"error":"invalid_redirect_uri","error_description":"Through mcp-envelope, a login at a server that names '
    b"itself in its redirects (RFC 9207) can end on this computer only (http://127.0.0.1). "
    b'Start a proxy of your own instead: mcp-envelope proxy --url URL"}'
)
_MIXED_UP: Final = (
    b"This answer is not from the authorization server that was asked. Begin the login again.\n"
)
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
        self._documents: dict[str, tuple[float, Members]] = {}
        # Where the server last said that its metadata are.
        self._named = ""

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
        if method == "GET" and (match := _FRONT_REDIRECT.fullmatch(path)):
            return await self._redirect(match[1], match[2], query, base)
        if match := _FRONT_ENDPOINT.fullmatch(path):
            metadata = await self._metadata(match[1])
            if metadata is not None and method == "GET" and match[2] == "authorize":
                there = metadata["authorization_endpoint"]
                asked = await self._put_right(query, base, match[1], metadata)
                return _moved(there, asked)
            if metadata is not None and method == "POST" and match[2] == "token":
                return await self._token(metadata, headers, body, base, match[1])
            if metadata is not None and method == "POST" and match[2] == "register":
                return await self._register(metadata, body, base, match[1])
        return None

    async def _register(self, metadata: Members, body: bytes, base: str, which: str) -> HttpResponse:
        """Register a client, with redirects to us that lead on to its own."""
        if not metadata.get(_NAMES_ITSELF):
            return HttpResponse(404, [_NO_STORE], b"")
        asked = _members(body) if len(body) <= _LARGEST_FORM else None
        named = None if asked is None else asked.get("redirect_uris")
        if asked is None or not isinstance(named, list) or not all(map(_is_loopback, named)):
            return HttpResponse(400, [("content-type", JSON), _NO_STORE], _ELSEWHERE)
        changed = encode({**asked, "redirect_uris": [_redirect_of(base, which, each) for each in named]})
        answer = await self._answer(metadata["registration_endpoint"], [("content-type", JSON)], changed)
        told = _members(answer.body)
        if told is None or "redirect_uris" not in told:
            return answer
        return answer._replace(body=encode({**told, "redirect_uris": named}))

    async def _redirect(self, which: str, place: str, query: str, base: str) -> HttpResponse | None:
        """Send a browser on to its client, which is told the issuer that it knows."""
        metadata = await self._metadata(which)
        there = _decoded(place)
        if metadata is None or there is None:
            return None
        said = parse_qsl(query, keep_blank_values=True)
        if [value for name, value in said if name == "iss"] != [metadata["issuer"]]:
            return HttpResponse(400, [("content-type", "text/plain"), _NO_STORE], _MIXED_UP)
        ours = base if which == _OWN else f"{base}{_FRONT}/{which}"
        told = urlencode([(name, ours if name == "iss" else value) for name, value in said])
        return _moved(there, told)

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
        if metadata.get(_NAMES_ITSELF) is True:
            endpoints.append(metadata.get("registration_endpoint"))
        return (
            all(isinstance(each, str) and self._is_safe(each) for each in endpoints)
            and metadata.get("require_pushed_authorization_requests") is not True
        )

    async def _put_right(self, form: str, base: str, which: str, metadata: Members) -> str:
        """A form, with the server's own address where it has ours, and redirects as they were registered."""
        known = await self._known()
        resource = self._upstream.url if known is None else str(known["resource"])
        shown: list[tuple[str, str]] = []
        for name, value in parse_qsl(form, keep_blank_values=True):
            if name == "resource" and value.startswith(base):
                value = resource
            elif name == "redirect_uri" and metadata.get(_NAMES_ITSELF) is True:
                value = _redirect_of(base, which, value)
            shown.append((name, value))
        return urlencode(shown)

    async def _token(
        self, metadata: Members, headers: Mapping[str, str], body: bytes, base: str, which: str
    ) -> HttpResponse | None:
        if len(body) > _LARGEST_FORM or headers.get("content-type", "").partition(";")[0] != _FORM:
            return HttpResponse(415, [_NO_STORE], b"")
        form = (await self._put_right(body.decode("latin-1"), base, which, metadata)).encode()
        sent = [
            (name, headers[name]) for name in ("authorization", "accept", "user-agent") if name in headers
        ]
        return await self._answer(metadata["token_endpoint"], [*sent, ("content-type", _FORM)], form)

    async def _answer(self, url: str, headers: Headers, body: bytes) -> HttpResponse:
        try:
            return await self._ask("POST", url, headers, body)
        except (Unanswered, TimeoutError):
            return HttpResponse(
                502, [("content-type", JSON), _NO_STORE], b'{"error":"temporarily_unavailable"}'
            )

    # -- requests -------------------------------------------------------------------------------------------

    def _is_safe(self, url: str) -> bool:
        """Whether a client's secrets may go there: not in clear, unless the server is on this computer, too."""
        try:
            split, server = urlsplit(url), urlsplit(self._upstream.url)
            is_here = is_loopback(split.hostname) and is_loopback(server.hostname)
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
        async with aclosing(Pool()) as pool:
            # No connection is used again: what comes late on one, such as a token, is not for the next caller.
            with anyio.fail_after(_TIMEOUT):
                response = await pool.send(method, url, headers, body)
                try:
                    said = end_to_end(response.headers)
                    return HttpResponse(response.status, without_encoding(said), await small_body(response))
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
    if metadata.get(_NAMES_ITSELF) is True:
        # Its redirects have to be registered through us.
        kept.pop("client_id_metadata_document_supported", None)
        endpoints["registration_endpoint"] = f"{issuer}/register"
    return {**kept, "issuer": issuer, **endpoints}


def _moved(there: str, query: str) -> HttpResponse:
    location = there + ("&" if urlsplit(there).query else "?") + query
    return HttpResponse(302, [("location", location), _NO_STORE], b"")


def _redirect_of(base: str, which: str, there: str) -> str:
    """Our address that leads on to a client's."""
    return f"{base}{_FRONT}/{which}/redirect/{urlsafe_b64encode(there.encode()).decode().rstrip('=')}"


def _decoded(place: str) -> str | None:
    """The client's address in ours; None if it is not one that we lead to."""
    try:
        there = urlsafe_b64decode(place + "=" * (-len(place) % 4)).decode()
    except ValueError:
        return None
    return there if _is_loopback(there) else None


def _is_loopback(there: object) -> bool:
    try:
        return (
            isinstance(there, str)
            and _PLAIN.fullmatch(there) is not None
            and urlsplit(there).scheme == "http"
            and is_loopback(urlsplit(there).hostname)
        )
    except ValueError:
        return False


def _members(body: bytes) -> Members | None:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
