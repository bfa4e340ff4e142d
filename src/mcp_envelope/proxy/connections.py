"""HTTP/1.1 connections to a server: connecting, TLS, environment proxies, keep-alive, and replies as they arrive.

Strategy: aiohappyeyeballs tries the addresses of a name, httptools (Node's parser) reads the bytes, a request is
written in one piece, and a reply is handed over as it arrives. Nothing else stands in between: a proxied call may
cost half a millisecond, and a general-purpose client takes longer than that. A reader that falls behind makes the
server wait. A connection is reused only by the same caller, and only if its reply was whole and nothing followed
it; any error closes it, and a request is sent again only if the server cannot have got all of it. A reply that
breaks off raises after everything that arrived, so that nobody takes it for whole. TLS and `urllib` are loaded on
demand.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import sys
import zlib
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import suppress
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import SplitResult, quote, unquote, urlsplit

import aiohappyeyeballs
import httptools

if TYPE_CHECKING:
    import ssl

Headers = list[tuple[str, str]]
# Once this many bytes of a body wait for their reader, no more are read from the server.
_READ_AHEAD: Final = 1 << 16
# A body of at most this size is worth waiting for, and is written together with its head.
_SMALL: Final = 1 << 16
_CODINGS: Final = ("gzip", "x-gzip", "deflate")
_INFLATE_STEP: Final = 1 << 20
# The most bytes of headers or trailers, or of anything else that is not body.
_MAX_HEAD: Final = 1 << 18
# Servers often close connections that were idle for five seconds; stay clear of that.
_IDLE_SECONDS: Final = 3.0
_CONNECT_TIMEOUT: Final = 30.0
# How long the server may accept nothing of what is written to it.
_WRITE_TIMEOUT: Final = 30.0
# When to try the next address of a name, as RFC 8305 suggests.
_NEXT_ADDRESS_DELAY: Final = 0.25
_PORTS: Final = {"http": 80, "https": 443}
_VISIBLE_ASCII: Final = "".join(map(chr, range(0x21, 0x7F)))
# Platforms where proxies are system settings, too, and not just environment variables.
_HAS_SYSTEM_PROXIES: Final[bool] = sys.platform in ("win32", "darwin")


class Unanswered(Exception):
    """The server sent no reply, or only part of one."""


class Unreadable(Unanswered):
    """The reply is in a form that some clients could read, but not the proxy."""


class Unreachable(Unanswered):
    """There is no connection to the server, so nothing was sent."""


class _Premature(Unanswered):
    """Something came before all of the request was sent, so it need not be the answer."""


# -- replies ------------------------------------------------------------------------------------------------


class Response:
    """A reply, complete with its head. Header names are lower case; `named` joins repeated headers.

    Call `release` when done, so that the connection can be reused or closed.
    """

    def __init__(self, connection: _Connection, method: str, url: str) -> None:
        self.method = method
        self.url = url
        self.status = 0
        self.reason = ""
        self.headers: Headers = []
        self.named: dict[str, str] = {}
        self._connection = connection
        # One for each reply, so that nothing is carried over from the one before.
        self._parser: Any = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._size = 0
        self._is_whole = False
        self._error: Unanswered | None = None
        self._is_reusable = False
        # Bytes received since the last piece of the body.
        self._overhead = 0
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_redirect(self) -> bool:
        return self.status in (301, 302, 303, 307, 308) and "location" in self.named

    @property
    def is_over(self) -> bool:
        return self._is_whole or self._error is not None

    @property
    def codings(self) -> list[str]:
        """The content codings that were applied, in order."""
        if "content-encoding" not in self.named:
            return []
        parts = [part.strip().lower() for part in self.named["content-encoding"].split(",")]
        return [part for part in parts if part not in ("", "identity")]

    @property
    def is_decodable(self) -> bool:
        return all(coding in _CODINGS for coding in self.codings)

    def get(self, name: str, default: str = "") -> str:
        return self.named.get(name, default)

    async def head(self) -> None:
        """Wait for the head."""
        while not self.status:
            await self._wait()

    def take(self) -> bytes | None:
        """The whole body if it has arrived and is small; None if it has to be read with `chunks`."""
        return None if not self._is_whole or self._size > _SMALL or self.codings else self._taken()

    def _taken(self) -> bytes:
        parts, self._parts, self._size = self._parts, [], 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def raw(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives."""
        while True:
            if self._parts:
                taken = self._taken()
                self._connection.resume_reading()
                yield taken
            elif self._is_whole:
                return
            else:
                await self._wait()

    def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives, decompressed."""
        chunks = self.raw()
        for _ in self.codings:
            chunks = _decompressed(chunks)
        return chunks

    def release(self) -> None:
        self._parser = None
        self._connection.release(self._is_reusable)

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -- called by the connection --

    def feed(self, data: memoryview) -> None:
        self._overhead += len(data)
        try:
            if data[-1] in b"\r\n":
                # The parser silently skips line ends after a reply: check whether it was over before the last one.
                self._parser.feed_data(data[:-1])
                is_followed = self._is_whole
                self._parser.feed_data(data[-1:])
                self._is_reusable = self._is_reusable and not is_followed
            else:
                self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.fail("the server switched protocols")
        except httptools.HttpParserError as error:
            self.fail(f"the reply is not valid HTTP: {error}")
        if self._overhead > _MAX_HEAD:
            self.fail("the head of the reply is too large")

    def fail(self, message: str, kind: type[Unanswered] = Unanswered) -> None:
        self._is_reusable = False
        if not self.is_over:
            self._error = kind(message)
            self._wake()
        self._connection.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.status and exc is None and not {"content-length", "transfer-encoding"} & self.named.keys():
            self._end()
        self.fail("the server closed the connection before it answered")

    # -- called by the parser --

    def on_message_begin(self) -> None:
        # Whole already, if this is a second reply.
        self._is_reusable = False
        if not self.status:
            self.headers, self.reason = [], ""

    def on_status(self, reason: bytes) -> None:
        if not self.status:
            self.reason += reason.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:
            self.headers.append((name.decode("latin-1").lower(), value.decode("latin-1").rstrip(" \t")))

    def on_headers_complete(self) -> None:
        status, named = self._parser.get_status_code(), self.named
        if status < 200 or self.status:
            return
        self.status = status
        for name, value in self.headers:
            named[name] = f"{named[name]}, {value}" if name in named else value
        size = named.get("content-length", "")
        if self.method == "HEAD":
            # The parser expects a body, so that the connection cannot be reused.
            self._end()
        elif not size.isdigit() or int(size) > _SMALL:
            # A small body follows in a moment, and then one wake-up is enough for both.
            self._wake()

    def on_body(self, body: bytes) -> None:
        if self._is_whole:
            return
        self._parts.append(body)
        self._size += len(body)
        self._overhead = 0
        self._wake()
        if self._size > _READ_AHEAD:
            self._connection.pause_reading()

    def on_message_complete(self) -> None:
        if self.status and not self._is_whole:
            self._is_reusable = self._parser.should_keep_alive()
            self._end()

    def _end(self) -> None:
        self._is_whole = True
        self._wake()


async def _decompressed(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Decompress in steps, since a few bytes may expand to very many."""
    # gzip or zlib: the data says itself which it is.
    inflater, is_begun = zlib.decompressobj(zlib.MAX_WBITS | 32), False
    try:
        async for chunk in chunks:
            step = b""
            while chunk or step:
                step = inflater.decompress(chunk, _INFLATE_STEP)
                is_begun = True
                if step:
                    yield step
                chunk = b"" if inflater.eof else inflater.unconsumed_tail
            if inflater.unused_data:
                raise Unanswered("something follows the compressed reply")
    except zlib.error as error:
        raise Unanswered(f"the reply cannot be decompressed: {error}") from None
    if is_begun and not inflater.eof:
        raise Unanswered("the compressed reply is incomplete")


# -- connections --------------------------------------------------------------------------------------------


class Address(NamedTuple):
    scheme: str
    host: str
    port: int
    # The Host header.
    authority: str


class Caller(NamedTuple):
    """Whoever gets a connection that was used before: nobody else does.

    What a server sends too late after one reply can't be told from the next.
    """

    named: tuple[str | None, ...] = ()
    # Set if a caller is known by nothing but its connection: it is done when that ends.
    gone: asyncio.Future[None] | None = None


ANYONE: Final = Caller()


class Via(NamedTuple):
    """What a forward proxy needs in each request: a prefix of its target, and further header lines."""

    prefix: str = ""
    lines: tuple[str, ...] = ()


class _Connection(asyncio.BufferedProtocol):
    """One connection, with at most one request under way."""

    def __init__(self, pool: Pool, address: Address, caller: Caller) -> None:
        self.user = caller, address
        self.via = Via()
        self.idle_since = 0.0
        self._gone = caller.gone
        self._is_used = False
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._poll: select.poll | None = None
        self._response: Response | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    @property
    def is_usable(self) -> bool:
        """Whether an idle connection is still open, and the server has sent nothing on it."""
        transport, poll = self._transport, self._poll
        return transport is not None and not transport.is_closing() and not (poll and poll.poll(0))

    def send(self, response: Response, head: bytes, body: bytes) -> None:
        if self._transport is None:
            raise Unreachable("the server closed the connection")
        self._response = response
        if len(body) < _SMALL:
            # In one packet.
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._transport.write(body)

    def release(self, is_reusable: bool) -> None:
        self._response = None
        if is_reusable and self._transport is not None and not (self._gone and self._gone.done()):
            self._is_used = True
            self.resume_reading()
            self._pool.put(self)
        else:
            self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    # -- called by the transport --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        opened = transport.get_extra_info("socket")
        if opened is not None and hasattr(select, "poll"):
            self._poll = select.poll()
            self._poll.register(opened.fileno(), select.POLLIN)
        if self._gone is not None:
            self._gone.add_done_callback(self._caller_gone)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._pool.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._response is None:
            # Nobody asked for this.
            self.abort()
        elif self._response.is_over:
            self._response.fail("something follows the reply")
        elif self._is_used and self._transport is not None and self._transport.get_write_buffer_size():
            self._response.fail("something came before the request was sent", _Premature)
        else:
            self._response.feed(self._pool.buffer[:nbytes])

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._gone is not None:
            self._gone.remove_done_callback(self._caller_gone)
        self._pool.discard(self)
        self.resume_writing()
        if self._response is not None:
            self._response.connection_lost(exc)

    def _caller_gone(self, gone: asyncio.Future[None]) -> None:
        if self._response is None:
            self.abort()

    def pause_writing(self) -> None:
        self._watch_writing(None)

    def resume_writing(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _watch_writing(self, before: int | None) -> None:
        """Give up unless something was written since the last look, when `before` bytes were left."""
        if self._transport is None or self._response is None:
            return
        left = self._transport.get_write_buffer_size()
        if before is not None and left >= before:
            self._response.fail("the server does not accept the request")
        else:
            loop = asyncio.get_running_loop()
            self._write_timer = loop.call_later(_WRITE_TIMEOUT, self._watch_writing, left)


class Pool:
    """The connections of one program, to any servers."""

    def __init__(self) -> None:
        # In the order in which they became idle; the most recent is used first.
        self._idle: dict[tuple[Caller, Address], list[_Connection]] = {}
        self._sweeping: asyncio.TimerHandle | None = None
        # Shared by all connections: whatever is read is parsed at once.
        self.buffer = memoryview(bytearray(_READ_AHEAD))

    async def send(
        self, method: str, url: str, headers: Headers, body: bytes, caller: Caller = ANYONE
    ) -> Response:
        """Send a request and return its reply, to be released."""
        while True:
            with suppress(_Premature):
                return await self._send(method, url, headers, body, caller)

    async def _send(self, method: str, url: str, headers: Headers, body: bytes, caller: Caller) -> Response:
        address, target = _address(url)
        connection = self._idle_connection(caller, address)
        if connection is None:
            connection = _Connection(self, address, caller)
            connection.via = await _connect(address, connection)
        via = connection.via
        lines = [f"{method} {via.prefix}{target} HTTP/1.1", f"host: {address.authority}", *via.lines]
        lines += [f"{name}: {value}" for name, value in headers]
        if body or method in ("POST", "PUT", "PATCH"):
            lines.append(f"content-length: {len(body)}")
        head = "\r\n".join([*lines, "", ""])
        response = Response(connection, method, url)
        try:
            if not head.count("\r") == head.count("\n") == len(lines) + 1:
                raise Unanswered("a header has more than one line")
            connection.send(response, head.encode("latin-1"), body)
            await response.head()
        except BaseException:
            connection.abort()
            raise
        return response

    def _idle_connection(self, caller: Caller, address: Address) -> _Connection | None:
        idle = self._idle.get((caller, address))
        while idle:
            connection = idle.pop()
            if connection.is_usable and _now() - connection.idle_since < _IDLE_SECONDS:
                return connection
            connection.abort()
        return None

    def put(self, connection: _Connection) -> None:
        connection.idle_since = _now()
        self._idle.setdefault(connection.user, []).append(connection)
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._sweep)

    def discard(self, connection: _Connection) -> None:
        with suppress(KeyError, ValueError):
            self._idle[connection.user].remove(connection)

    def _sweep(self) -> None:
        """Close connections that were idle for too long."""
        for connection in self._all_idle():
            if connection.idle_since <= _now() - _IDLE_SECONDS:
                connection.abort()
        self._idle = {user: idle for user, idle in self._idle.items() if idle}
        self._sweeping = None
        if self._idle:
            self._sweeping = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._sweep)

    async def aclose(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connection in self._all_idle():
            connection.abort()
        # TLS connections close in the next iteration of the loop.
        await asyncio.sleep(0)

    def _all_idle(self) -> list[_Connection]:
        return [connection for idle in self._idle.values() for connection in idle]


def _now() -> float:
    return asyncio.get_running_loop().time()


# -- connecting ---------------------------------------------------------------------------------------------


@lru_cache(256)
def _address(url: str) -> tuple[Address, str]:
    """Where to connect, and what to request there."""
    try:
        split = urlsplit(url)
        host, port = split.hostname or "", split.port or _PORTS[split.scheme]
        if not host.isascii():
            host = host.encode("idna").decode()
    except (ValueError, KeyError) as error:
        raise Unreachable(f"not a URL: {error}") from None
    shown = f"[{host}]" if ":" in host else host
    authority = shown if port == _PORTS[split.scheme] else f"{shown}:{port}"
    target = (split.path or "/") + (f"?{split.query}" if split.query else "")
    return Address(split.scheme, host, port, authority), quote(target, safe=_VISIBLE_ASCII)


def basic_auth(userinfo: str) -> str:
    """The Authorization header for a `name:password` out of a URL."""
    name, _, password = userinfo.partition(":")
    return f"Basic {b64encode(f'{unquote(name)}:{unquote(password)}'.encode()).decode()}"


async def _connect(address: Address, protocol: asyncio.BaseProtocol) -> Via:
    """Connect the protocol to the server, or to the proxy on the way to it."""
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT):
            proxy = _environment_proxy(address)
            if proxy is None:
                await _attach(protocol, await _open_socket(address.host, address.port), address)
                return Via()
            return await _connect_through(proxy, address, protocol)
    except TimeoutError:
        raise Unreachable("the server does not answer") from None
    except (OSError, UnicodeError) as error:
        raise Unreachable(str(error) or type(error).__name__) from None


async def _attach(protocol: asyncio.BaseProtocol, opened: socket.socket, peer: Address) -> None:
    try:
        tls, name = (tls_context(), peer.host) if peer.scheme == "https" else (None, None)
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: protocol, sock=opened, ssl=tls, server_hostname=name)
    except BaseException:
        opened.close()
        raise


@cache
def tls_context() -> ssl.SSLContext:
    """Trust what the environment says, else what the system trusts. Made once, as it reads many certificates."""
    import ssl

    if {"SSL_CERT_FILE", "SSL_CERT_DIR"} & os.environ.keys():
        return ssl.create_default_context()
    import truststore

    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


async def _open_socket(host: str, port: int) -> socket.socket:
    try:
        # Without a thread, if the host is an address.
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return await aiohappyeyeballs.start_connection(infos, happy_eyeballs_delay=_NEXT_ADDRESS_DELAY)


# -- environment proxies ------------------------------------------------------------------------------------


def _environment_proxy(to: Address) -> SplitResult | None:
    """The proxy that HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY (or the system) name for a server."""
    if not _HAS_SYSTEM_PROXIES and not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    named = proxies.get(to.scheme) or proxies.get("all")
    if not named or proxy_bypass(f"{to.host}:{to.port}"):
        return None
    try:
        split = urlsplit(named if "://" in named else f"http://{named}")
        # `port` raises if it is not a number, `encode` if the name cannot be looked up.
        if split.hostname and split.port != 0 and split.hostname.encode("idna"):
            return split
    except ValueError:
        pass
    # It may contain a password, so it is not shown.
    raise Unreachable("the proxy that the environment names is not a valid URL")


async def _connect_through(proxy: SplitResult, to: Address, protocol: asyncio.BaseProtocol) -> Via:
    if proxy.scheme not in ("http", "https") or proxy.scheme == to.scheme == "https":
        raise Unreachable(f"proxies of this kind are not supported: {proxy.scheme}")
    userinfo = proxy.netloc.rpartition("@")[0]
    lines = (f"proxy-authorization: {basic_auth(userinfo)}",) if proxy.username else ()
    host = proxy.hostname or ""
    opened = await _open_socket(host, proxy.port or _PORTS[proxy.scheme])
    if to.scheme == "https":
        await _tunnel(opened, to, lines)
        await _attach(protocol, opened, to)
        return Via()
    await _attach(protocol, opened, Address(proxy.scheme, host, 0, ""))
    return Via(f"http://{to.authority}", lines)


async def _tunnel(opened: socket.socket, to: Address, lines: tuple[str, ...]) -> None:
    loop = asyncio.get_running_loop()
    target = f"[{to.host}]:{to.port}" if ":" in to.host else f"{to.host}:{to.port}"
    try:
        request = "\r\n".join([f"CONNECT {target} HTTP/1.1", f"host: {target}", *lines, "", ""])
        await loop.sock_sendall(opened, request.encode("latin-1"))
        reply = b""
        # Nothing follows the head: in TLS the client speaks first.
        while b"\r\n\r\n" not in reply and len(reply) < _MAX_HEAD:
            if not (received := await loop.sock_recv(opened, _READ_AHEAD)):
                break
            reply += received
        status = reply.partition(b"\r\n")[0].split(b" ", 2)[1:]
        if not status or not status[0].startswith(b"2"):
            shown = b" ".join(status).decode("latin-1") or "no answer"
            raise Unreachable(f"the environment's proxy refused: {shown}")
    except BaseException:
        opened.close()
        raise
