"""The connections of clients, byte by byte: what clients do with HTTP that is not a request and its answer."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_envelope.wire import door

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
    pytest.fail("it never came about")


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


def test_whether_to_send_a_body_is_answered_when_it_is_its_turn(tmp_path: Path) -> None:
    script = Scripted(
        lambda seen: _echo(seen) if seen.path == "/b" else Reply(200, [], [b"first", 0.3, b"last"])
    )
    with _talking(tmp_path, script) as talking:
        talking.sendall(_request(b"/a", b"{}"))
        data = _read(talking, b"first")
        asked = _request(b"/b", b"body", b"Expect: 100-continue")
        talking.sendall(asked[:-4])
        data += _read(talking, b"HTTP/1.1 100 Continue\r\n\r\n")
        assert data.endswith(b"4\r\nlast\r\n0\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n")
        talking.sendall(asked[-4:])
        assert _read(talking, b"POST /b body").startswith(b"HTTP/1.1 200 OK\r\n")


def test_whether_to_send_a_body_that_came_already_is_not_answered(tmp_path: Path) -> None:
    with _talking(tmp_path) as talking:
        talking.sendall(_request(b"/a", b"{}") + _request(b"/b", b"body", b"Expect: 100-continue"))
        assert b"100 Continue" not in _read(talking, b"POST /b body")


def test_a_head_that_begins_behind_a_large_body(tmp_path: Path) -> None:
    with _talking(tmp_path) as talking:
        follows = _request(b"/b", b"more")
        talking.sendall(_request(b"/a", b"x" * 300_000) + follows[:30])
        time.sleep(0.2)
        talking.sendall(follows[30:])
        assert b"POST /b more" in _read(talking, b"POST /b more")


@pytest.mark.parametrize("before", [b"", _request(b"/a", b"{}")])
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


def test_whoever_hangs_up_while_another_request_waits_is_noticed(tmp_path: Path) -> None:
    script = Scripted(lambda seen: Reply(200, [("content-type", "text/plain")], [60.0]))
    with _talking(tmp_path, script) as talking:
        talking.sendall(_request(b"/a", b"{}") * 5)
        _until(lambda: script.seen)
        talking.close()
        _until(lambda: script.gone)
    assert len(script.seen) == 1


def test_whoever_does_not_wait_for_answers_is_not_read_without_end(tmp_path: Path) -> None:
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


def test_thousands_of_offers_of_another_protocol_at_once(tmp_path: Path) -> None:
    offer = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
    with _talking(tmp_path) as talking:
        talking.sendall(offer * 2900 + _request(b"/a", b"the end"))
        data = _read(talking, b"the end")
    assert data.count(b'{"status":"ok"}') == 2900


@pytest.mark.parametrize("said", [b"POST /a HT", _request(b"/a", b"body")[:-1]], ids=["head", "body"])
def test_a_request_whose_rest_does_not_come(
    said: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "_SILENCE", 0.3)
    with _talking(tmp_path) as talking:
        talking.sendall(said)
        assert _read(talking).startswith(b"HTTP/1.1 408 ")


def test_a_request_that_comes_slowly_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than a connection may be idle, and longer than a silence may last."""
    monkeypatch.setattr(door, "_SILENCE", 2.0)
    asked = _request(b"/a", b"body")
    with _talking(tmp_path) as talking:
        for start in range(0, len(asked), 6):
            talking.sendall(asked[start : start + 6])
            time.sleep(0.5)
        assert b"POST /a body" in _read(talking, b"POST /a body")


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
