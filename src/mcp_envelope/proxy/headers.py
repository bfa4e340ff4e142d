"""The rules for HTTP headers: which ones the proxy forwards, changes and adds, and the URLs in them.

Strategy: headers are pairs in their order, with names in lower case. What concerns one hop stays behind, a content
coding is offered only if the proxy can decode it, and a redirect within the server leads through the proxy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin, urlsplit, urlunsplit

if TYPE_CHECKING:
    from .connections import Headers

JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
SESSION_HEADER: Final = "mcp-session-id"
MESSAGE_HEADERS: Final = [("content-type", JSON), ("accept", f"{JSON}, {EVENT_STREAM}")]
# Headers that concern one hop, or that are set anew for the next.
_HOP_BY_HOP: Final = frozenset(
    (
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te"),
        *("trailer", "trailers", "transfer-encoding", "upgrade", "host", "content-length", "expect"),
    )
)
_CODINGS: Final = ("gzip", "deflate", "identity")
_CHARSET: Final = re.compile(r"charset([*\d]*)\s*=[\s\"']*([^\s\"';,]*)")
_LIKE_ASCII: Final = re.compile(r"utf-?8|(us-)?ascii|iso-?8859-?\d+|latin-?1|(windows-|cp)125\d|")
_CREDENTIALS: Final = ("authorization", "x-api-key", "api-key", "x-auth-token")


@lru_cache(256)
def message_type(content_type: str) -> str:
    """What clients read a body as: JSON, a stream of events, or nothing; both, if that depends on the client.

    Some clients go by how the header begins, and older ones by any part of it. Some decode as they are told to, so
    an encoding in which ASCII means something else is named, too.
    """
    said = content_type.lower()
    kinds = ", ".join(kind for kind in (JSON, EVENT_STREAM) if kind in said)
    named = _CHARSET.findall(said)
    strange = [name for starred, name in named if starred or not _LIKE_ASCII.fullmatch(name)]
    return f"{kinds} in {strange[0]:.80}" if kinds and strange else kinds


def credential(headers: Mapping[str, str]) -> str | None:
    """What tells one caller from another; only a digest of it is ever stored."""
    found = [f"{name}: {headers[name]}" for name in _CREDENTIALS if headers.get(name)]
    return "\n".join(found) or None


def end_to_end(headers: Headers) -> Headers:
    """The headers that are meant for the other end. Their names are lower case."""
    kept = [pair for pair in headers if pair[0] not in _HOP_BY_HOP]
    if len(kept) == len(headers):
        return kept
    connection = ",".join(value for name, value in headers if name == "connection")
    named = {part.strip().lower() for part in connection.split(",")}
    return [pair for pair in kept if pair[0] not in named]


def decodable(headers: Headers) -> Headers:
    """The same headers, asking only for content codings that the proxy can decode."""
    return [
        (name, _decodable_codings(value)) if name == "accept-encoding" else (name, value)
        for name, value in headers
    ]


@lru_cache(64)
def _decodable_codings(accepted: str) -> str:
    parts = [part.strip() for part in accepted.split(",")]
    kept = [part for part in parts if part.partition(";")[0].strip().lower() in _CODINGS]
    return ", ".join(kept) or "identity"


def without_encoding(headers: Headers) -> Headers:
    """The body is not compressed any more."""
    return [pair for pair in headers if pair[0] != "content-encoding"]


def redirected(headers: Headers, url: str) -> Headers:
    """Redirects within the server lead through us; those to elsewhere, such as a login, stay as they are."""

    def shown(location: str) -> str:
        there = resolve(url, location)
        is_within = there is not None and origin(there) == origin(url)
        return relative(location) if is_within else location

    return [(name, shown(value) if name == "location" else value) for name, value in headers]


# -- challenges ---------------------------------------------------------------------------------------------

_BEARER: Final = re.compile(r"(?:^|,)\s*bearer(?=\s|,|$)", re.IGNORECASE)
_PARAMETER: Final = re.compile(
    r"[\s,]*([!#$%&'*+\-.^_`|~0-9A-Za-z]+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s,\"]+))"
)
# Where a server says that its metadata are (RFC 9728).
RESOURCE_METADATA: Final = re.compile(
    r"(\bresource_metadata\s*=\s*)(?:\"([^\"\\]*)\"|([^\s,\"]+))", re.IGNORECASE
)


def bearer_parameters(challenge: str) -> dict[str, str]:
    """What a WWW-Authenticate header says of bearer tokens; the first of equal names counts."""
    found: dict[str, str] = {}
    begin = _BEARER.search(challenge)
    at = begin.end() if begin else len(challenge)
    while (match := _PARAMETER.match(challenge, at)) is not None:
        quoted, plain = match[2], match[3]
        found.setdefault(match[1].lower(), plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        at = match.end()
    return found


# -- URLs ---------------------------------------------------------------------------------------------------


def is_loopback(host: str | None) -> bool:
    """Whether a host is this computer, whatever a name server says."""
    return host in LOOPBACK or re.fullmatch(r"127(\.\d+){3}", host or "") is not None


def relative(url: str) -> str:
    """The same path and query, without a host."""
    split = urlsplit(url)
    path = split.path or ("/" if split.netloc else "")
    return urlunsplit(("", "", rooted(path), split.query, ""))


def rooted(target: str) -> str:
    """A path that names no host: what follows two slashes, or what some take for them, would be one."""
    return f"/.{target}" if target[:2] in ("//", "/\\", "\\/", "\\\\") else target


def origin(url: str) -> tuple[str, str, int]:
    split = urlsplit(url)
    return split.scheme, split.hostname or "", split.port or {"https": 443}.get(split.scheme, 80)


def resolve(url: str, to: str) -> str | None:
    """Resolve a reference against a URL; None if that is not a URL."""
    try:
        there = urljoin(url, to)
        origin(there)
    except ValueError:
        return None
    return there
