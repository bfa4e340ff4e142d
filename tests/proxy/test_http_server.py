"""Clients' connections, byte by byte: the limits that uvicorn leaves to us, and what must hold end to end."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_envelope.proxy import server

from . import sites
from .sites import Reply, Scripted, Seen


def _echo(seen: Seen) -> Reply:
    said = b"%b %b %b" % (seen.method.encode(), seen.path.encode(), seen.body)
    return Reply(200, [("content-type", "text/plain"), ("content-length", str(len(said)))], [said])


@contextlib.contextmanager
def _talking(folder: Path, script: Scripted | None = None) -> Iterator[socket.socket]:
    with (
        sites.serving(script or Scripted(_echo), lifespan="off") as url,
        sites.proxied(f"{url}/mcp", folder) as (address, _),
    ):
        host, _, port = address.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), 10) as talking:
            yield talking


def _read(talking: socket.socket, *until: bytes) -> bytes:
    """What comes, until all of these came, or the end."""
    data = b""
    while not until or not all(each in data for each in until):
        if not (more := talking.recv(1 << 16)):
            break
        data += more
    return data


def _until(happened: Callable[[], Any]) -> None:
    for _ in range(1000):
        if happened():
            return
        time.sleep(0.01)
    pytest.fail("it never happened")


def _request(path: bytes, body: bytes = b"", *headers: bytes, version: bytes = b"1.1") -> bytes:
    lines = [b"POST %b HTTP/%b" % (path, version), b"Host: localhost", *headers]
    return b"\r\n".join([*lines, b"Content-Length: %d" % len(body), b"", body])


def test_a_request_in_many_pieces(tmp_path: Path) -> None:
    with _talking(tmp_path) as talking:
        for byte in _request(b"/a", b"body"):
            talking.sendall(bytes([byte]))
        assert _read(talking, b"POST /a body").startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_disconnect_is_noticed_while_another_request_is_queued(tmp_path: Path) -> None:
    script = Scripted(lambda seen: Reply(200, [("content-type", "text/plain")], [60.0]))
    with _talking(tmp_path, script) as talking:
        talking.sendall(_request(b"/a", b"{}") * 5)
        _until(lambda: script.seen)
        talking.close()
        _until(lambda: script.gone)
    assert len(script.seen) == 1


def test_a_client_that_waits_for_no_response_is_not_read_without_end(tmp_path: Path) -> None:
    script = Scripted(lambda seen: Reply(200, [("content-type", "text/plain")], [60.0]))
    with _talking(tmp_path, script) as talking:
        talking.setblocking(False)
        left, still = memoryview(_request(b"/a", b"x" * 100_000) * 500), 0
        while still < 20:
            try:
                left = left[talking.send(left) :]
                still = 0
            except BlockingIOError:
                still += 1
                time.sleep(0.02)
        assert left


def test_a_body_that_breaks_off_is_not_taken_for_whole(tmp_path: Path) -> None:
    script = Scripted(
        lambda seen: Reply(200, [("content-type", "text/plain"), ("content-length", "9")], [b"half", None])
    )
    with _talking(tmp_path, script) as talking:
        talking.sendall(_request(b"/a", b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}'))
        data = _read(talking)
    assert data.endswith(b"\r\ncontent-length: 9\r\n\r\nhalf")


def test_an_idle_connection_is_closed(tmp_path: Path) -> None:
    with _talking(tmp_path) as talking:
        talking.sendall(_request(b"/a", b"body"))
        _read(talking, b"POST /a body")
        talking.settimeout(60)
        assert talking.recv(10) == b""


# -- heads ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"BREW /pot HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"CONNECT a.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nbody",
        b"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length : 4\r\n\r\nbody",
        b"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nz\r\nbody\r\n0\r\n\r\n",
    ],
)
def test_a_malformed_request_never_reaches_the_server(sent: bytes, tmp_path: Path) -> None:
    script = Scripted(_echo)
    with _talking(tmp_path, script) as talking:
        talking.sendall(sent + b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert _read(talking).startswith(b"HTTP/1.1 400 ")
    assert script.seen == []


@pytest.mark.parametrize("before", [b"", _request(b"/a", b"x" * 300_000)])
@pytest.mark.parametrize("pieces", [1, 20])
def test_a_head_without_end_is_refused(before: bytes, pieces: int, tmp_path: Path) -> None:
    with _talking(tmp_path) as talking, contextlib.suppress(ConnectionError):
        talking.sendall(before)
        for _ in range(pieces):
            talking.sendall(b"GET /b HTTP/1.1\r\nx: " + b"y" * (400_000 // pieces))
            time.sleep(0.01)
        data = _read(talking)
        assert before or b" 431 " in data
        assert b"/b" not in data


def test_a_head_may_begin_behind_a_large_body(tmp_path: Path) -> None:
    with _talking(tmp_path) as talking:
        follows = _request(b"/b", b"more")
        talking.sendall(_request(b"/a", b"x" * 300_000) + follows[:30])
        time.sleep(0.2)
        talking.sendall(follows[30:])
        assert b"POST /b more" in _read(talking, b"POST /b more")


@pytest.mark.parametrize("said", [b"", b"POST /a HT"], ids=["nothing", "a part"])
@pytest.mark.parametrize("follows", [False, True])
def test_a_head_that_takes_too_long(
    said: bytes, follows: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_HEAD_TIME", 0.5)
    with _talking(tmp_path) as talking:
        if follows:
            talking.sendall(_request(b"/a", b"body"))
            _read(talking, b"POST /a body")
            said = said or b"P"
        # However it drips.
        for byte in said:
            talking.sendall(bytes([byte]))
            time.sleep(0.03)
        assert _read(talking).startswith(b"HTTP/1.1 408 ")


# -- bodies ---------------------------------------------------------------------------------------------------


def test_a_body_that_stops_coming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_SILENCE", 0.3)
    with _talking(tmp_path) as talking:
        talking.sendall(_request(b"/a", b"body")[:-1])
        assert _read(talking).startswith(b"HTTP/1.1 408 ")


def test_a_body_may_come_slowly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_SILENCE", 1.5)
    monkeypatch.setattr(server, "_HEAD_TIME", 0.5)
    asked = _request(b"/a", b"slow body")
    with _talking(tmp_path) as talking:
        talking.sendall(asked[:-9])
        for byte in asked[-9:]:
            time.sleep(0.2)
            talking.sendall(bytes([byte]))
        assert b"POST /a slow body" in _read(talking, b"POST /a slow body")


def test_a_client_that_asks_whether_to_send_a_body(tmp_path: Path) -> None:
    with _talking(tmp_path) as talking:
        asked = _request(b"/a", b"body", b"Expect: 100-continue")
        talking.sendall(asked[:-4])
        assert _read(talking, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        talking.sendall(asked[-4:])
        assert _read(talking, b"POST /a body").startswith(b"HTTP/1.1 200 OK\r\n")


def test_an_unknown_expectation_is_ignored(tmp_path: Path) -> None:
    with _talking(tmp_path) as talking:
        talking.sendall(_request(b"/a", b"body", b"Expect: banana"))
        assert _read(talking, b"POST /a body").startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("chunked", [False, True])
def test_a_client_that_offers_http_2_is_answered_in_http_1(chunked: bool, tmp_path: Path) -> None:
    """As Java's client does with every request. The connection is closed after the response."""
    offer = [b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAEAAA"]
    asked = _request(b"/a", b"the body", *offer)
    if chunked:
        asked = asked.replace(b"Content-Length: 8", b"Transfer-Encoding: chunked")
        asked = asked.replace(b"the body", b"4\r\nthe \r\n4\r\nbody\r\n0\r\n\r\n")
    script = Scripted(_echo)
    with _talking(tmp_path, script) as talking:
        talking.sendall(_request(b"/b", b"before"))
        assert b"POST /b before" in _read(talking, b"POST /b before")
        talking.sendall(asked[:-3])
        time.sleep(0.05)
        talking.sendall(asked[-3:] + _request(b"/c", b"not read"))
        data = _read(talking)
    assert data.endswith(b"POST /a the body")
    assert [seen.path for seen in script.seen] == ["/b", "/a"]


def test_a_request_in_http_1_0(tmp_path: Path) -> None:
    with _talking(tmp_path) as talking:
        talking.sendall(_request(b"/a", b"{}", version=b"1.0"))
        data = _read(talking)
    assert data.endswith(b"\r\n\r\nPOST /a {}")
    assert b"chunked" not in data


def test_an_absolute_url_after_a_response_without_a_body(tmp_path: Path) -> None:
    with _talking(tmp_path) as talking:
        talking.sendall(b"HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"\r\ncontent-length: 15\r\n" in _read(talking, b"\r\n\r\n")
        talking.sendall(b"GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert _read(talking, b"ok").endswith(b'{"status":"ok"}')


# -- limits in sum --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("follows", [False, True])
def test_line_ends_between_requests_keep_no_connection_open(
    follows: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_HEAD_TIME", 0.5)
    with _talking(tmp_path) as talking:
        if follows:
            talking.sendall(_request(b"/a", b"body"))
            _read(talking, b"POST /a body")
        talking.settimeout(0.1)
        for _ in range(200):
            with contextlib.suppress(TimeoutError, ConnectionError):
                talking.sendall(b"\r\n")
                if talking.recv(1000) in (b"",) or not follows:
                    return
    pytest.fail("the connection was never closed")


def test_a_body_that_drips_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_BODY_TIME", 0.3, raising=False)
    with _talking(tmp_path) as talking:
        talking.sendall(_request(b"/a", b"x" * 1000)[:-999])
        talking.settimeout(0.05)
        for _ in range(100):
            with contextlib.suppress(TimeoutError):
                talking.sendall(b"x")
                assert talking.recv(1000).startswith(b"HTTP/1.1 408 ")
                return
    pytest.fail("the body was never refused")


@pytest.mark.parametrize("name", [b"Host", b"Origin"])
@pytest.mark.parametrize("second", [b"localhost", b"evil.example"])
def test_two_hosts_or_origins_are_refused(name: bytes, second: bytes, tmp_path: Path) -> None:
    prefix = b"http://" if name == b"Origin" else b""
    values = [prefix + b"localhost", prefix + second]
    script = Scripted(_echo)
    with _talking(tmp_path, script) as talking:
        lines = [b"%b: %b" % (name, value) for value in (values if name == b"Origin" else values[1:])]
        talking.sendall(_request(b"/a", b"body", *lines))
        assert _read(talking, b"\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert script.seen == []


@pytest.mark.parametrize("line", [b"Host: evil.example", b"Origin: http://evil.example"])
def test_a_stranger_is_refused_before_the_body_is_read(line: bytes, tmp_path: Path) -> None:
    with _talking(tmp_path) as talking:
        asked = _request(b"/a", b"x" * (1 << 20), line)
        if line.startswith(b"Host"):
            asked = asked.replace(b"Host: localhost\r\n", b"", 1)
        talking.sendall(asked[:-1000])
        assert _read(talking, b"header").startswith((b"HTTP/1.1 421 ", b"HTTP/1.1 403 "))


def test_a_refused_body_is_not_read_without_end(tmp_path: Path) -> None:
    with _talking(tmp_path) as talking:
        talking.sendall(b"POST /a HTTP/1.1\r\nHost: evil.example\r\nTransfer-Encoding: chunked\r\n\r\n")
        endless = b"10000\r\n%b\r\n" % (b"x" * 0x10000) * 1000
        with pytest.raises(ConnectionError):
            talking.sendall(endless)


def test_there_is_a_most_of_connections(tmp_path: Path) -> None:
    with (
        sites.serving(Scripted(_echo), lifespan="off") as url,
        sites.proxied(f"{url}/mcp", tmp_path, connections=3) as (address, _),
    ):
        host, _, port = address.removeprefix("http://").partition(":")
        with contextlib.ExitStack() as stack:
            opened = [stack.enter_context(socket.create_connection((host, int(port)), 10)) for _ in range(3)]
            for each in opened:
                each.sendall(_request(b"/a", b"body"))
                assert b"POST /a body" in _read(each, b"POST /a body")
            one_more = stack.enter_context(socket.create_connection((host, int(port)), 10))
            assert _read(one_more).startswith(b"HTTP/1.1 503 ")
            opened[0].sendall(_request(b"/b", b"body"))
            assert b"POST /b body" in _read(opened[0], b"POST /b body")


def test_half_sent_bodies_are_bounded_in_sum_and_freed_on_hang_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve clients send 2 MB of 3 MB each where 4 MB are allowed, and go away."""
    limit, most = 4 << 20, [0]
    with (
        sites.serving(Scripted(_echo), lifespan="off") as url,
        sites.proxied(f"{url}/mcp", tmp_path, request_memory=limit) as (address, app),
    ):
        memory = app.request_memory
        put = memory._put

        def noted(reservation: Any, size: int) -> None:
            put(reservation, size)
            most[0] = max(most[0], memory.used)

        memory._put = noted  # type: ignore[method-assign]
        host, _, port = address.removeprefix("http://").partition(":")
        with contextlib.ExitStack() as stack:
            for _ in range(12):
                talking = stack.enter_context(socket.create_connection((host, int(port)), 10))
                talking.setblocking(False)
                left, still = memoryview(_request(b"/a", b"x" * (3 << 20)))[: 2 << 20], 0
                while left and still < 10:
                    try:
                        left, still = left[talking.send(left) :], 0
                    except BlockingIOError:
                        still += 1
                        time.sleep(0.01)
            _until(lambda: memory.used > limit // 8)
        _until(lambda: memory.used == 0)
        with socket.create_connection((host, int(port)), 10) as talking:
            talking.sendall(_request(b"/a", b"x" * (3 << 20)))
            assert b"POST /a xxx" in _read(talking, b"POST /a xxx")
    assert most[0] < limit + 12 * (1 << 18)
