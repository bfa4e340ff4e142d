"""How a connection to a server is made: its address, TLS, and the proxies that the surroundings name.

Strategy: an address is read once. A name that has several addresses is tried at each of them, the next one a moment
after the last, and the first to answer is taken. What `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` say
holds as it does everywhere; what knows them, and TLS, is loaded when it is needed.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from base64 import b64encode
from collections import deque
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import SplitResult, quote, unquote, urlsplit

if TYPE_CHECKING:
    import ssl

# How long a connection may take, in seconds, and how much later the next address of a name is tried, too.
_PATIENCE: Final = 30.0
_HEAD_START: Final = 0.25
# Whether certificates and proxies are the system's to tell, and not only files' and the environment's.
_ASKS_THE_SYSTEM: Final[bool] = sys.platform in ("win32", "darwin")
_PORTS: Final = {"http": 80, "https": 443}
# What a target is made of goes on as it is written; the rest cannot be sent.
_SAFE: Final = "".join(map(chr, range(0x21, 0x7F)))
_ANSWER: Final = 1 << 14
# Where certificates are, should Python have been built for another place.
_CERTIFICATES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
_Found = tuple[int, int, int, Any]


class Unanswered(Exception):
    """The server did not answer, or not to the end."""


class Unreachable(Unanswered):
    """There is no connection to the server."""


class Address(NamedTuple):
    scheme: str
    host: str
    port: int
    # As the server is told by which name it is called.
    authority: str


class Way(NamedTuple):
    """What a request says besides if it goes through a proxy: what its target begins with, and a header."""

    prefix: str = ""
    header: str = ""


@lru_cache(256)
def address(url: str) -> tuple[Address, str]:
    """Where to connect, and what to ask for there."""
    try:
        split = urlsplit(url)
        host, port = split.hostname or "", split.port or _PORTS[split.scheme]
        if not host.isascii():
            host = host.encode("idna").decode()
    except (ValueError, KeyError) as error:
        raise Unreachable(f"not an address: {error}") from None
    shown = f"[{host}]" if ":" in host else host
    authority = shown if port == _PORTS[split.scheme] else f"{shown}:{port}"
    target = (split.path or "/") + (f"?{split.query}" if split.query else "")
    return Address(split.scheme, host, port, authority), quote(target, safe=_SAFE)


def credentials(url: str) -> tuple[str, str | None]:
    """An address without the name and password in it, and the header that says these."""
    split = urlsplit(url)
    said, at, netloc = split.netloc.rpartition("@")
    if not at:
        return url, None
    return split._replace(netloc=netloc).geturl(), _basic(said)


def _basic(said: str) -> str:
    name, _, password = said.partition(":")
    return f"Basic {b64encode(f'{unquote(name)}:{unquote(password)}'.encode()).decode()}"


async def connect(to: Address, protocol: asyncio.BaseProtocol) -> Way:
    """Connect the protocol to the server."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_PATIENCE):
            return await _connect(loop, to, protocol)
    except TimeoutError:
        raise Unreachable("the server does not answer") from None
    except (OSError, UnicodeError) as error:
        raise Unreachable(str(error) or type(error).__name__) from None


async def _connect(loop: asyncio.AbstractEventLoop, to: Address, protocol: asyncio.BaseProtocol) -> Way:
    way, secured = Way(), to
    outer = _outer(to.scheme, to.host, to.port)
    if outer is None:
        found = await _reach(loop, to.host, to.port)
    else:
        through = _through(outer)
        if through.scheme not in ("http", "https") or (through.scheme == to.scheme == "https"):
            raise Unreachable(f"no way through a proxy of this kind: {through.scheme}")
        said = (
            f"proxy-authorization: {_basic(through.netloc.rpartition('@')[0])}\r\n"
            if through.username
            else ""
        )
        name = through.hostname or ""
        found = await _reach(loop, name, through.port or _PORTS[through.scheme])
        if to.scheme == "https":
            await _tunnel(loop, found, to, said)
        else:
            way = Way(f"http://{to.authority}", said)
            secured = Address(through.scheme, name, 0, "")
    try:
        if secured.scheme == "https":
            await loop.create_connection(
                lambda: protocol, sock=found, ssl=trusted(), server_hostname=secured.host
            )
        else:
            await loop.create_connection(lambda: protocol, sock=found)
    except BaseException:
        found.close()
        raise
    return way


@cache
def trusted() -> ssl.SSLContext:
    """Whom to trust: as the environment says, else whom the system does. Made once: it reads many certificates."""
    import ssl

    if _ASKS_THE_SYSTEM and not {"SSL_CERT_FILE", "SSL_CERT_DIR"} & os.environ.keys():
        # There the system itself has to be asked.
        import truststore

        return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    if not paths.cafile and not paths.capath:
        for name in filter(os.path.isfile, _CERTIFICATES):
            context.load_verify_locations(name)
            break
    return context


# -- sockets ------------------------------------------------------------------------------------------------


async def _reach(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return await _try(loop, (family, socket.SOCK_STREAM, 0, (host, port)))
    listed = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    found: list[_Found] = [(family, kind, proto, where) for family, kind, proto, _, where in listed]
    first = [each for each in found if each[0] == found[0][0]]
    others = [each for each in found if each[0] != found[0][0]]
    # The second to try is of the other family: one of them may lead nowhere.
    return await _race(loop, deque([*first[:1], *others[:1], *first[1:], *others[1:]]))


async def _race(loop: asyncio.AbstractEventLoop, left: deque[_Found]) -> socket.socket:
    running: set[asyncio.Task[socket.socket]] = set()
    error: BaseException = OSError("the name has no address")
    try:
        while left or running:
            if left:
                running.add(loop.create_task(_try(loop, left.popleft())))
            wait = _HEAD_START if left else None
            done, _ = await asyncio.wait(running, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                running.discard(task)
                if (failed := task.exception()) is None:
                    return task.result()
                error = failed
        raise error
    finally:
        for task in running:
            task.add_done_callback(_close)
            task.cancel()


def _close(task: asyncio.Task[socket.socket]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()


async def _try(loop: asyncio.AbstractEventLoop, found: _Found) -> socket.socket:
    family, kind, proto, where = found
    made = socket.socket(family, kind, proto)
    try:
        made.setblocking(False)
        await loop.sock_connect(made, where)
    except BaseException:
        made.close()
        raise
    return made


# -- proxies ------------------------------------------------------------------------------------------------


def _outer(scheme: str, host: str, port: int) -> str | None:
    """The proxy through which this server is reached, if the surroundings name one."""
    if not _ASKS_THE_SYSTEM and not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib.request import getproxies, proxy_bypass

    named = getproxies()
    outer = named.get(scheme) or named.get("all")
    return None if not outer or proxy_bypass(f"{host}:{port}") else outer


def _through(outer: str) -> SplitResult:
    try:
        split = urlsplit(outer if "://" in outer else f"http://{outer}")
        # To ask for the port is to find out whether it is one; and a name may be none that can be looked up.
        if split.hostname and split.port != 0 and split.hostname.encode("idna"):
            return split
    except ValueError:
        pass
    # There may be a password in it.
    raise Unreachable("the proxy that the environment names has no address that can be read")


async def _tunnel(loop: asyncio.AbstractEventLoop, found: socket.socket, to: Address, said: str) -> None:
    where = f"[{to.host}]:{to.port}" if ":" in to.host else f"{to.host}:{to.port}"
    try:
        asked = f"CONNECT {where} HTTP/1.1\r\nhost: {where}\r\n{said}\r\n"
        await loop.sock_sendall(found, asked.encode("latin-1"))
        reply = b""
        while b"\r\n\r\n" not in reply and len(reply) < _ANSWER:
            more = await loop.sock_recv(found, _ANSWER)
            if not more:
                break
            reply += more
        words = reply.partition(b"\r\n")[0].split(b" ", 2)
        if len(words) < 2 or words[1][:1] != b"2":
            shown = b" ".join(words[1:]).decode("latin-1")
            raise Unreachable(f"the proxy in between refused: {shown or 'no answer'}")
    except BaseException:
        found.close()
        raise
