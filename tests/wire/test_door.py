"""The connections of clients, byte by byte: what clients do with HTTP that is not a request and its answer."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

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


def _request(path: bytes, body: bytes = b"", *headers: bytes, version: bytes = b"1.1") -> bytes:
    lines = [b"POST %b HTTP/%b" % (path, version), b"Host: localhost", *headers]
    return b"\r\n".join([*lines, b"Content-Length: %d" % len(body), b"", body])


def test_requests_that_do_not_wait_for_each_other_are_answered_in_their_order(tmp_path: Path) -> None:
    with _talking(tmp_path) as talking:
        talking.sendall(b"".join(_request(b"/%d" % number, b"%d" % number) for number in range(20)))
        data = _read(talking, b"POST /19 19")
    assert [data.index(b"POST /%d %d" % (number, number)) for number in range(20)] == sorted(
        data.index(b"POST /%d %d" % (number, number)) for number in range(20)
    )


def test_a_request_in_many_pieces(tmp_path: Path) -> None:
    with _talking(tmp_path) as talking:
        for byte in _request(b"/a", b"body"):
            talking.sendall(bytes([byte]))
        assert _read(talking, b"POST /a body").startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("chunked", [False, True])
def test_whoever_offers_another_protocol_is_answered_in_this_one(chunked: bool, tmp_path: Path) -> None:
    """As Java's client does with every request."""
    offer = [b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAEAAA"]
    asked = _request(b"/a", b"the body", *offer)
    if chunked:
        asked = asked.replace(b"Content-Length: 8", b"Transfer-Encoding: chunked")
        asked = asked.replace(b"the body", b"4\r\nthe \r\n4\r\nbody\r\n0\r\n\r\n")
    with _talking(tmp_path) as talking:
        talking.sendall(asked[:-3])
        time.sleep(0.05)
        talking.sendall(asked[-3:])
        assert b"POST /a the body" in _read(talking, b"POST /a the body")
        talking.sendall(_request(b"/b", b"and more") + asked + _request(b"/c", b"the end"))
        assert b"POST /c the end" in _read(talking, b"POST /b and more", b"the body", b"POST /c the end")


def test_whoever_asks_first_whether_to_send_a_body(tmp_path: Path) -> None:
    with _talking(tmp_path) as talking:
        asked = _request(b"/a", b"body", b"Expect: 100-continue")
        talking.sendall(asked[:-4])
        assert _read(talking, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        talking.sendall(asked[-4:])
        assert _read(talking, b"POST /a body").startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("sized", [False, True])
def test_an_old_client_reads_to_the_end(sized: bool, tmp_path: Path) -> None:
    sizes = [("content-length", "4")] if sized else []
    script = Scripted(lambda seen: Reply(200, [("content-type", "text/plain"), *sizes], [b"bo", b"dy"]))
    with _talking(tmp_path, script) as talking:
        talking.sendall(_request(b"/a", b"{}", version=b"1.0"))
        data = _read(talking)
    assert data.endswith(b"\r\nconnection: close\r\n\r\nbody")
    assert b"chunked" not in data


def test_a_body_that_breaks_off_is_not_taken_for_whole(tmp_path: Path) -> None:
    script = Scripted(
        lambda seen: Reply(200, [("content-type", "text/plain"), ("content-length", "9")], [b"half", None])
    )
    with _talking(tmp_path, script) as talking:
        talking.sendall(_request(b"/a", b"{}"))
        data = _read(talking)
    assert data.endswith(b"\r\ncontent-length: 9\r\n\r\nhalf")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"400"),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", b"400"),
        (b"CONNECT a.example:443 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", b"501"),
        (b"BREW /pot HTTP/1.1\r\nHost: localhost\r\n\r\n", b"501"),
        (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000, b"431"),
    ],
)
def test_what_cannot_be_read_ends_the_connection(sent: bytes, status: bytes, tmp_path: Path) -> None:
    script = Scripted(_echo)
    with _talking(tmp_path, script) as talking:
        talking.sendall(sent)
        assert _read(talking).startswith(b"HTTP/1.1 %b " % status)
    assert script.seen == []


def test_an_answer_without_a_body_keeps_the_connection(tmp_path: Path) -> None:
    with _talking(tmp_path) as talking:
        talking.sendall(b"HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = _read(talking, b"\r\n\r\n")
        assert head.endswith(b"content-length: 15\r\n\r\n")
        talking.sendall(b"GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert _read(talking, b"ok").endswith(b'{"status":"ok"}')


def test_a_connection_that_nobody_uses_is_closed(tmp_path: Path) -> None:
    with _talking(tmp_path) as talking:
        talking.sendall(_request(b"/a", b"body"))
        _read(talking, b"POST /a body")
        begun = time.monotonic()
        assert talking.recv(10) == b""
        assert 4 < time.monotonic() - begun < 9
