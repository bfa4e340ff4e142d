"""Connections to a server: replies are read as HTTP has it, and an incomplete one is never taken for whole."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import gzip
import ipaddress
import socket
import ssl
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from mcp_envelope.proxy import connections
from mcp_envelope.proxy.connections import Response, Unanswered, Unreachable
from mcp_envelope.proxy.upstream import Upstream

from .sites import talking as talking_to

# The HTTP proxy runs on uvloop if it is installed, the bridge on asyncio's own loop.
_LOOP: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop]
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture(params=["asyncio", "uvloop"], autouse=True)
def _loop(request: pytest.FixtureRequest) -> None:
    _LOOP[0] = asyncio.new_event_loop
    if request.param == "uvloop":
        _LOOP[0] = pytest.importorskip("uvloop").new_event_loop


_PAUSE = b"\0pause\0"


class Script:
    """A server that sends exactly these bytes, one reply per request. `None` hangs up; a reply may have pauses."""

    def __init__(self, *replies: bytes | None) -> None:
        self.replies = list(replies)
        self.asked: list[bytes] = []
        self.connections = 0
        # How many replies have been sent, with whatever follows them.
        self.done = 0

    def talk(self, talking: socket.socket) -> None:
        self.connections += 1
        with talking, contextlib.suppress(OSError):
            while self.replies:
                if not (asked := _head_and_body(talking)):
                    return
                self.asked.append(asked)
                reply = self.replies.pop(0)
                for part in (reply or b"").split(_PAUSE):
                    talking.sendall(part)
                    time.sleep(0.01 if reply and _PAUSE in reply else 0)
                if hangs_up := bool(self.replies) and self.replies[0] is None:
                    self.replies.pop(0)
                    talking.close()
                self.done += 1
                if hangs_up:
                    return


def _head_and_body(talking: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        if not (more := talking.recv(1 << 16)):
            return b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    size = next(
        (int(line[15:]) for line in head.lower().split(b"\r\n") if line[:15] == b"content-length:"), 0
    )
    while len(body) < size:
        body += talking.recv(1 << 16)
    return head + b"\r\n\r\n" + body


# By port.
_SCRIPTS: dict[int | None, Script] = {}


@contextlib.contextmanager
def serving(script: Script, secure: ssl.SSLContext | None = None) -> Iterator[int]:
    listening = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                talking, _ = listening.accept()
                if secure is not None:
                    talking = secure.wrap_socket(talking, server_side=True)
                script.talk(talking)

    threading.Thread(target=accept, daemon=True).start()
    port = listening.getsockname()[1]
    _SCRIPTS[port] = script
    try:
        yield port
    finally:
        del _SCRIPTS[port]
        # Closing alone does not wake a thread that waits in `accept`.
        with contextlib.suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()


async def _asked(upstream: Upstream, method: str = "POST", body: bytes = b"{}") -> tuple[Response, bytes]:
    async with upstream.send(method, upstream.url, [("x-a", "1")], body, follow=True) as response:
        return response, b"".join([chunk async for chunk in response.chunks()])


def ask(
    url: str, times: int = 1, method: str = "POST", *, cookies: bool = False
) -> list[tuple[Response, bytes]]:
    async def run() -> list[tuple[Response, bytes]]:
        upstream = Upstream(url, cookies=cookies)
        script = _SCRIPTS.get(urlsplit(url).port)
        try:
            found: list[tuple[Response, bytes]] = []
            for _ in range(times):
                found.append(await _asked(upstream, method, b"" if method in ("GET", "HEAD") else b"{}"))
                # Notice what the server does after its reply.
                while script and script.done < len(found) < times:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.05)
            return found
        finally:
            await upstream.aclose()

    with asyncio.Runner(loop_factory=_LOOP[0]) as runner:
        return runner.run(run())


@pytest.mark.parametrize(
    ("reply", "connections"),
    [
        (_OK, 1),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1;x=y\r\nk\r\n0\r\nX-T: 1\r\n\r\n",
            1,
        ),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + _OK, 1),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", 2),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 2),
        (_OK + b"HTTP/1.1 408 Too late\r\nContent-Length: 0\r\n\r\n", 2),
    ],
)
def test_a_connection_is_reused_after_a_whole_reply(reply: bytes, connections: int) -> None:
    script = Script(reply, reply) if connections == 1 else Script(reply, None, reply)
    with serving(script) as port:
        found = ask(f"http://127.0.0.1:{port}/mcp?a=b", 2)
    assert [(response.status, body) for response, body in found] == [(200, b"ok")] * 2
    assert script.connections == connections
    head = f"POST /mcp?a=b HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nx-a: 1\r\ncontent-length: 2\r\n\r\n{{}}"
    assert script.asked == [head.encode()] * 2


_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
_EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"


@pytest.mark.parametrize(
    ("reply", "body"),
    [
        (_OK, b"ok"),
        (_OK + _PAUSE, b"ok"),
        (_OK[:-2] + b"\r\n", b"\r\n"),
        (_CHUNKED, b"ok"),
        (_EMPTY, b""),
    ],
)
@pytest.mark.parametrize(
    "extra",
    [
        b"\r",
        b"\r\n\r\n",
        b"x",
        b"HTTP/1.1 20",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno",
        b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\n\r\n",
    ],
)
def test_a_connection_with_bytes_left_over_is_never_reused(reply: bytes, body: bytes, extra: bytes) -> None:
    """Whatever follows a reply would be taken for the answer to the next request."""
    script = Script(reply + extra, reply)
    with serving(script) as port:
        found = ask(f"http://127.0.0.1:{port}/mcp", 2)
    assert script.connections == 2
    assert [received for _, received in found] == [body] * 2


def test_what_comes_before_all_of_a_request_is_sent_is_not_its_answer() -> None:
    """It was on its way already, so the request is sent again on a connection that was never used."""
    # More than a connection takes as long as nobody reads it.
    body = b"x" * (16 << 20)
    sizes: list[int] = []
    is_over = threading.Event()

    def talk(talking: socket.socket) -> None:
        if len(connections) == 1:
            _head_and_body(talking)
            talking.sendall(_OK)
            talking.recv(1)
            talking.sendall(_OK.replace(b"ok", b"no"))
            is_over.wait(30)
        else:
            reading = talking.makefile("rb")
            while reading.readline().strip():
                pass
            sizes.append(len(reading.read(len(body))))
            talking.sendall(_OK)

    async def run() -> list[bytes]:
        upstream = Upstream(url)
        try:
            return [(await _asked(upstream, body=each))[1] for each in (b"{}", body)]
        finally:
            await upstream.aclose()

    with talking_to(talk) as (url, connections), asyncio.Runner(loop_factory=_LOOP[0]) as runner:
        assert runner.run(run()) == [b"ok", b"ok"]
        is_over.set()
    assert sizes == [len(body)]


@pytest.mark.parametrize("reply", [_OK, _CHUNKED, _EMPTY])
def test_a_reply_may_come_byte_by_byte(reply: bytes) -> None:
    script = Script(*[_PAUSE.join(reply[at : at + 1] for at in range(len(reply)))] * 2)
    with serving(script) as port:
        found = ask(f"http://127.0.0.1:{port}/mcp", 2)
    assert script.connections == 1
    assert [body for _, body in found] == [b"" if reply is _EMPTY else b"ok"] * 2


def test_a_body_may_end_with_the_connection() -> None:
    with serving(Script(b"HTTP/1.1 200 OK\r\n\r\nall of it", None)) as port:
        assert ask(f"http://127.0.0.1:{port}")[0][1] == b"all of it"


def test_a_body_that_ends_with_a_reset_is_not_whole() -> None:
    class Reset(Script):
        def talk(self, talking: socket.socket) -> None:
            _head_and_body(talking)
            talking.sendall(b"HTTP/1.1 200 OK\r\n\r\nall that ca")
            # Long enough for it to be read.
            time.sleep(0.1)
            talking.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            talking.close()

    with serving(Reset()) as port, pytest.raises(Unanswered):
        ask(f"http://127.0.0.1:{port}")


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\nok\n0\n\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"x: y\r\n" * 100_000,
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok",
    ],
)
def test_incomplete_and_invalid_replies(reply: bytes) -> None:
    with serving(Script(reply, None)) as port, pytest.raises(Unanswered) as caught:
        ask(f"http://127.0.0.1:{port}")
    assert not isinstance(caught.value, Unreachable)


@pytest.mark.parametrize(
    ("method", "head"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"),
        ("DELETE", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\n\r\n"),
    ],
)
def test_replies_without_a_body(method: str, head: bytes) -> None:
    with serving(Script(head, head)) as port:
        found = ask(f"http://127.0.0.1:{port}", 1, method)
    assert [body for _, body in found] == [b""]


_CODINGS = pytest.mark.parametrize("coding", ["gzip", "deflate", "gzip, deflate"])


def _packed(text: bytes, coding: str) -> bytes:
    for each in coding.split(", "):
        text = gzip.compress(text) if each == "gzip" else zlib.compress(text)
    return text


def _encoded(packed: bytes, coding: str) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nContent-Length: {len(packed)}\r\n\r\n"
    return head.encode() + packed


@_CODINGS
def test_compressed_bodies(coding: str) -> None:
    text = b"many words " * 500_000
    with serving(Script(_encoded(_packed(text, coding), coding))) as port:
        assert ask(f"http://127.0.0.1:{port}")[0][1] == text
    for body in (text, b""):
        with serving(Script(_encoded(body, "identity"))) as port:
            assert ask(f"http://127.0.0.1:{port}")[0][1] == body
    with serving(Script(_encoded(b"", coding))) as port:
        assert ask(f"http://127.0.0.1:{port}")[0][1] == b""


@_CODINGS
@pytest.mark.parametrize("lacking", [1, 9, 40])
def test_incomplete_compressed_bodies(coding: str, lacking: int) -> None:
    packed = _packed(bytes(range(256)) * 50, coding)[:-lacking]
    with serving(Script(_encoded(packed, coding))) as port, pytest.raises(Unanswered):
        ask(f"http://127.0.0.1:{port}")


def test_what_follows_a_compressed_body_is_not_lost_silently() -> None:
    packed = gzip.compress(b"some " * 300_000) + gzip.compress(b"more")
    with serving(Script(_encoded(packed, "gzip"))) as port, pytest.raises(Unanswered):
        ask(f"http://127.0.0.1:{port}")


@pytest.mark.parametrize("location", [b"http://[bad", b"http://127.0.0.1:x/", b"//["])
def test_a_redirect_to_an_invalid_url_is_not_followed(location: bytes) -> None:
    reply = b"HTTP/1.1 307 Elsewhere\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % location
    with serving(Script(reply)) as port:
        assert ask(f"http://127.0.0.1:{port}")[0][0].status == 307


@pytest.mark.parametrize("value", ["1\r\nx-b: 2", "1\nx-b: 2", "1\rx-b: 2"])
def test_a_header_of_two_lines_is_not_sent(value: str) -> None:
    script = Script(_OK)

    async def run(url: str) -> None:
        upstream = Upstream(url)
        async with upstream.send("POST", url, [("x-a", value)], b"{}"):
            pass

    with serving(script) as port, pytest.raises(Unanswered):
        asyncio.run(run(f"http://127.0.0.1:{port}"))
    assert script.asked == []


def test_an_unreachable_server() -> None:
    for url in ("http://127.0.0.1:9/", "http://localhost:9/", "http://nowhere.invalid/"):
        with pytest.raises(Unreachable):
            ask(url)


def test_all_addresses_of_a_name_are_tried() -> None:
    with serving(Script(_OK)) as port:
        assert ask(f"http://localhost:{port}/")[0][1] == b"ok"


def test_a_name_and_password_in_the_url() -> None:
    script = Script(_OK)
    with serving(script) as port:
        ask(f"http://an%40n:pass@127.0.0.1:{port}/x")
    assert b"\r\nAuthorization: Basic YW5AbjpwYXNz\r\n" in script.asked[0]
    assert f"host: 127.0.0.1:{port}\r\n".encode() in script.asked[0]


def test_cookies_are_kept_only_on_request() -> None:
    set_two = b"Set-Cookie: a=1; Path=/\r\nSet-Cookie: b=2; Path=/else\r\n"
    reply = b"HTTP/1.1 200 OK\r\n" + set_two + b"Content-Length: 0\r\n\r\n"
    for cookies in (False, True):
        script = Script(reply, reply)
        with serving(script) as port:
            ask(f"http://127.0.0.1:{port}/mcp", 2, cookies=cookies)
        assert [b"cookie: a=1\r\n" in each for each in script.asked] == [False, cookies]


# -- proxies and certificates ---------------------------------------------------------------------------------


def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_environment_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    _no_proxies(monkeypatch)
    script = Script(_OK, _OK)
    with serving(script) as port:
        monkeypatch.setenv("HTTP_PROXY", f"http://me:word@127.0.0.1:{port}")
        assert ask("http://server.invalid:81/mcp?x=1")[0][1] == b"ok"
        monkeypatch.setenv("NO_PROXY", "server.invalid")
        with pytest.raises(Unreachable):
            ask("http://server.invalid:81/mcp")
    head = b"POST http://server.invalid:81/mcp?x=1 HTTP/1.1\r\nhost: server.invalid:81\r\n"
    assert script.asked[0].startswith(head + b"proxy-authorization: Basic bWU6d29yZA==\r\n")


@pytest.mark.parametrize(
    "said",
    ["http://127.0.0.1:abc", "http://[bad", "http://127.0.0.1:99999", "[bad", "http://", "http://a..b:1"],
)
@pytest.mark.parametrize("url", ["http://server.invalid/mcp", "https://server.invalid/mcp"])
def test_an_invalid_environment_proxy(said: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _no_proxies(monkeypatch)
    monkeypatch.setenv("ALL_PROXY", said)
    with pytest.raises(Unreachable, match="the proxy that the environment names"):
        ask(url)


def test_a_proxy_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    _no_proxies(monkeypatch)
    script = Script(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n")
    with serving(script) as port:
        monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{port}")
        with pytest.raises(Unreachable, match="407 Who are you"):
            ask("https://server.invalid/mcp")
    assert script.asked == [b"CONNECT server.invalid:443 HTTP/1.1\r\nhost: server.invalid:443\r\n\r\n"]
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    with pytest.raises(Unreachable, match="socks5"):
        ask("https://server.invalid/mcp")


def test_certificates_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _no_proxies(monkeypatch)
    secure = _certificate(tmp_path)
    script = Script(_OK, _OK)
    with serving(script, secure) as port:
        url = f"https://127.0.0.1:{port}/mcp"
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        connections.tls_context.cache_clear()
        assert [body for _, body in ask(url, 2)] == [b"ok"] * 2
        assert script.connections == 1
    with serving(Script(_OK), secure) as port:
        monkeypatch.delenv("SSL_CERT_FILE")
        connections.tls_context.cache_clear()
        with pytest.raises(Unreachable, match="certificate"):
            ask(f"https://127.0.0.1:{port}/mcp")


def test_tls_through_a_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _no_proxies(monkeypatch)
    secure, script = _certificate(tmp_path), Script(_OK)

    class Tunnel(Script):
        def talk(self, talking: socket.socket) -> None:
            self.asked.append(_head_and_body(talking))
            talking.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            script.talk(secure.wrap_socket(talking, server_side=True))

    tunnel = Tunnel()
    with serving(tunnel) as port:
        monkeypatch.setenv("HTTPS_PROXY", f"127.0.0.1:{port}")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        connections.tls_context.cache_clear()
        assert ask("https://127.0.0.1:44444/mcp")[0][1] == b"ok"
    connections.tls_context.cache_clear()
    assert tunnel.asked[0].startswith(b"CONNECT 127.0.0.1:44444 HTTP/1.1\r\n")
    assert script.asked[0].startswith(b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:44444\r\n")


def _certificate(folder: Path) -> ssl.SSLContext:
    """A self-signed certificate for 127.0.0.1; `cert.pem` in the folder is what clients have to trust."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(made.public_bytes(pem))
    kind = serialization.PrivateFormat.PKCS8
    (folder / "key.pem").write_bytes(key.private_bytes(pem, kind, serialization.NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context
