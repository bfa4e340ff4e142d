"""What goes wrong over HTTP: a server that is down, broken or too generous, and callers that should not be."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from mcp_envelope.proxy import connections as upstream_connections
from mcp_envelope.proxy import http, memory, upstream
from mcp_envelope.proxy.headers import is_loopback
from tests.ports import refusing_port

from . import sites
from .sites import Reply, Scripted, Seen, call, event, json_reply, post, problem, request, result

_BOTH_ERAS = pytest.mark.parametrize("modern", [False, True], ids=["old", "modern"])
_NOTE = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}}


@contextmanager
def _between(script: Callable[[Seen], Reply], folder: Path, **options: Any) -> Iterator[tuple[str, Scripted]]:
    server = Scripted(script)
    with (
        sites.serving(server, lifespan="off") as url,
        sites.proxied(f"{url}/mcp", folder, **options) as (address, _),
    ):
        yield address, server


def _until(happened: Callable[[], Any], what: str) -> None:
    for _ in range(1000):
        if happened():
            return
        time.sleep(0.01)
    pytest.fail(f"it never came about: {what}")


# -- the server -----------------------------------------------------------------------------------------------


@_BOTH_ERAS
def test_a_server_that_is_down(modern: bool, tmp_path: Path) -> None:
    with refusing_port() as port, sites.proxied(f"http://127.0.0.1:{port}/mcp", tmp_path) as (address, _):
        called = post(address, call(identifier="c", modern=modern), modern=modern)
        asked = post(address, request("prompts/list", 5, modern), modern=modern)
        noted = post(address, {"jsonrpc": "2.0", "method": "notifications/x"})
        with sites.client() as client:
            listened = client.get(f"{address}/mcp")
    assert called.status_code == 200
    assert problem(called.json()) == "UPSTREAM_UNAVAILABLE"
    assert called.json()["id"] == "c"
    assert called.json()["result"].get("resultType") == ("complete" if modern else None)
    assert asked.status_code == noted.status_code == listened.status_code == 502
    assert asked.json() == {
        "jsonrpc": "2.0",
        "id": 5,
        "error": {"code": -32603, "message": "The server cannot be reached."},
    }
    assert noted.json()["id"] is listened.json()["id"] is None


@_BOTH_ERAS
@pytest.mark.parametrize("when", ["before", "within"])
def test_a_server_that_dies_before_the_whole_answer_is_there(modern: bool, when: str, tmp_path: Path) -> None:
    server = Scripted(lambda seen: Reply(200, [("content-type", "application/json")], [b'{"jsonrpc":', None]))
    with (
        sites.hanging_up() if when == "before" else sites.serving(server, lifespan="off") as url,
        sites.proxied(f"{url}/mcp", tmp_path) as (address, _),
    ):
        called = post(address, call(modern=modern), modern=modern)
        asked = post(address, request("prompts/list", 5, modern), modern=modern)
    assert called.status_code == 200
    assert problem(called.json()) == "UPSTREAM_DIED"
    assert "may have taken effect" in called.text
    assert (asked.status_code, asked.json()["id"]) == (502, 5)


@_BOTH_ERAS
@pytest.mark.parametrize("end", [None, b"", b"event: message\ndata: {"], ids=["broken", "ended", "halfway"])
def test_a_server_that_dies_within_a_stream(modern: bool, end: bytes | None, tmp_path: Path) -> None:
    with _between(lambda seen: sites.stream_reply(event(_NOTE), end), tmp_path) as (address, _):
        called = sites.messages(post(address, call(identifier=8, modern=modern), modern=modern))
        asked = sites.messages(post(address, request("prompts/list", 9, modern), modern=modern))
    assert called[0] == asked[0] == _NOTE
    assert problem(called[-1]) == "UPSTREAM_DIED"
    assert called[-1]["id"] == 8
    assert asked[-1]["error"]["code"] == -32603
    assert asked[-1]["id"] == 9


@pytest.mark.parametrize("end", [None, b""], ids=["broken", "ended"])
def test_a_stream_that_can_be_taken_up_again_just_ends(end: bytes | None, tmp_path: Path) -> None:
    first, rest = event(_NOTE, "1"), event(result(8, sites.rows(3000)), "2")

    def script(seen: Seen) -> Reply:
        if seen.method == "GET":
            assert seen.header("last-event-id") == "1"
            return sites.stream_reply(rest)
        return (
            json_reply(result(seen.json["id"], sites.tools()))
            if b"list" in seen.body
            else sites.stream_reply(first, end)
        )

    headers = {"mcp-session-id": "s", "authorization": "Bearer a"}
    with _between(script, tmp_path) as (address, _), sites.client() as client:
        broken = post(address, call(identifier=8), headers)
        assert broken.content == first
        taken_up = client.get(f"{address}/mcp", headers={**headers, "last-event-id": "1"})
        notice = sites.structured(taken_up)["_envelope"]
        page = post(address, call("envelope_read", handle=notice["handle"]), headers)
    assert notice["dropped"][0]["total"] == 3000, "the call is remembered, and so its tool is known"
    assert "row 0" in page.text, "the handle is the caller's"


def test_a_stream_that_another_replica_began_is_held_to_what_is_certain(tmp_path: Path) -> None:
    def script(seen: Seen) -> Reply:
        return sites.stream_reply(
            event(result(8, sites.rows(3000)), "2"), event(result(9, sites.rows(2)), "3")
        )

    headers = {"mcp-session-id": "s", "authorization": "Bearer a", "last-event-id": "1"}
    with _between(script, tmp_path) as (address, server), sites.client() as client:
        large, small = sites.messages(client.get(f"{address}/mcp", headers=headers))
        handle = large["result"]["_meta"]["io.github.mcp-envelope/notice"]["handle"]
        page = post(address, call("envelope_read", handle=handle), headers)
    assert problem(large) == "RESULT_TOO_LARGE"
    assert small == result(9, sites.rows(2))
    assert "row 0" in page.text
    assert len(server.seen) == 1


def test_who_merely_observes_says_nothing_of_its_own_in_a_stream(tmp_path: Path) -> None:
    with _between(lambda seen: sites.stream_reply(event(_NOTE), None), tmp_path, observe=True) as (
        address,
        _,
    ):
        assert post(address, call()).content == event(_NOTE)


def test_other_calls_of_the_session_go_on_when_one_fails(tmp_path: Path) -> None:
    def script(seen: Seen) -> Reply:
        if seen.json["id"] == 1:
            return sites.stream_reply(event(_NOTE), 0.5, event(result(1, sites.rows(2))))
        return Reply(200, [("content-type", "application/json")], [b"{", None])

    headers = {"mcp-session-id": "s"}
    with _between(script, tmp_path) as (address, _):
        slow: list[Any] = []
        thread = threading.Thread(target=lambda: slow.append(post(address, call(identifier=1), headers)))
        thread.start()
        time.sleep(0.1)
        failed = post(address, call(identifier=2), headers)
        thread.join(20)
    assert (failed.json()["id"], problem(failed.json())) == (2, "UPSTREAM_DIED")
    assert sites.messages(slow[0])[-1] == result(1, sites.rows(2))


@pytest.mark.parametrize("end", [None, b""], ids=["broken", "ended"])
def test_the_one_stream_of_the_oldest_transport_ends(
    end: bytes | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def script(seen: Seen) -> Reply:
        if seen.method == "GET":
            return sites.stream_reply(b"event: endpoint\ndata: /messages?s=1\n\n", 1.0, end)
        return Reply(202, [("content-length", "8")], [b"Accepted"])

    with _between(script, tmp_path) as (address, _), sites.client() as client:
        with client.stream("GET", f"{address}/sse") as response:
            reading = response.iter_raw()
            assert next(reading) == b"event: endpoint\ndata: /messages?s=1\n\n"
            assert post(address, call(identifier=9), path="/messages?s=1").status_code == 202
            told = b"".join(reading)
        samples = client.get(f"{address}/metrics").text
    (line,) = [line for line in told.split(b"\n") if line.startswith(b"data: ")]
    assert problem(msgspec.json.decode(line[6:])) == "UPSTREAM_DIED"
    assert f"mcp_envelope_upstream_errors_total {int(end is None)}\n" in samples
    assert "could not be served" not in caplog.text


# -- limits -----------------------------------------------------------------------------------------------------


@_BOTH_ERAS
@pytest.mark.parametrize("streams", [False, True], ids=["json", "sse"])
def test_a_reply_that_is_too_large(
    modern: bool, streams: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream, "MOST", 100_000)
    reply = result(1, sites.rows(3000))
    with _between(
        lambda seen: sites.stream_reply(event(reply)) if streams else json_reply(reply), tmp_path
    ) as (address, _):
        called = sites.messages(post(address, call(modern=modern), modern=modern))[-1]
        asked = post(address, request("prompts/get", 5, modern), modern=modern)
    assert problem(called) == "FRAME_TOO_LARGE"
    assert asked.status_code == (200 if streams else 502)
    assert sites.messages(asked)[-1]["error"]["message"] == "The server's reply is too large."


@pytest.mark.parametrize("chunked", [False, True])
def test_a_request_that_is_too_large(chunked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LARGEST_REQUEST", 100_000)
    piece = b"x" * 50_000
    with _between(lambda seen: json_reply({}), tmp_path) as (address, server), sites.client() as client:
        body = iter([piece] * 3) if chunked else piece * 3
        refused = client.post(f"{address}/mcp", content=body)
        taken = client.post(f"{address}/mcp", content=piece)
    assert refused.status_code == 413
    assert refused.json()["error"]["message"] == "The request is larger than the proxy takes."
    assert taken.status_code == 200
    assert len(server.seen) == 1


def test_a_request_that_says_how_large_it_will_be_is_not_waited_for(tmp_path: Path) -> None:
    with _between(lambda seen: json_reply({}), tmp_path) as (address, server):
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), 10) as talking:
            talking.sendall(
                f"POST /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Length: {1 << 40}\r\n\r\n".encode()
            )
            assert talking.recv(1000).startswith(b"HTTP/1.1 413 ")
    assert server.seen == []


def test_headers_may_have_any_bytes_that_headers_may_have(tmp_path: Path) -> None:
    with _between(lambda seen: json_reply({}), tmp_path) as (address, server):
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), 10) as talking:
            said = b"x-latin: h\xe9\r\nx-utf8: \xc3\xbc\xf0\x9f\x98\x80\r\n"
            talking.sendall(b"GET /mcp HTTP/1.1\r\nHost: localhost\r\n" + said + b"\r\n")
            assert talking.recv(1000).startswith(b"HTTP/1.1 200 ")
    assert server.seen[0].header("x-latin") == "h\xe9"
    assert server.seen[0].header("x-utf8") == "\xc3\xbc\xf0\x9f\x98\x80"


def test_a_client_that_reads_slowly_makes_the_server_wait(tmp_path: Path) -> None:
    piece = event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x" * 60_000}})
    with _between(lambda seen: sites.stream_reply(*[piece] * 1000), tmp_path) as (address, server):
        with sites.client() as client, client.stream("GET", f"{address}/mcp") as response:
            reading = response.iter_raw()
            next(reading)
            last, still = -1, 0
            while still < 20:
                still = still + 1 if server.sent == last else 0
                last = server.sent
                time.sleep(0.02)
            # What the sockets of two connections hold; the rest waits at the server.
            assert last < 20_000_000
            got = sum(map(len, reading))
        assert got > 59_000_000
        assert server.sent == 1000 * len(piece)


@pytest.mark.parametrize("streams", [False, True], ids=["json", "sse"])
def test_a_large_answer_takes_room_until_its_client_took_it_and_holds_up_nobody(
    streams: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_STILL", 0.05)
    large = msgspec.json.encode(result(1, {"contents": [{"uri": "a:b", "text": "x" * 30_000_000}]}))
    other = msgspec.json.encode(result(2, {"contents": [{"uri": "a:b", "text": "y" * 300_000}]}))

    def script(seen: Seen) -> Reply:
        message = large if seen.json["id"] == 1 else other
        return sites.stream_reply(event(message)) if streams else json_reply(message)

    asked = msgspec.json.encode(request("resources/read", 1, uri="a:b"))
    with (
        sites.serving(Scripted(script), lifespan="off") as url,
        sites.proxied(f"{url}/mcp", tmp_path) as (address, proxy),
        contextlib.ExitStack() as stack,
    ):
        shared = proxy.upstream.memory
        shared._size = 1 << 20
        host, port = address.removeprefix("http://").split(":")
        talking = stack.enter_context(socket.create_connection((host, int(port)), 20))
        head = f"POST /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(asked)}\r\n\r\n"
        talking.sendall(head.encode() + asked)
        _until(lambda: shared.used > 29_000_000, "the large answer is there")
        shared._size = 10 << 20
        found = post(address, request("resources/read", 2, uri="a:b"))
        assert sites.messages(found) == [msgspec.json.decode(other)]
        assert shared.used > 29_000_000, "it still waits to be taken"
        taken = 0
        while taken < len(large):
            taken += len(talking.recv(1 << 20))
        _until(lambda: shared.used == 0, "it was taken")


# -- clients that go away ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [False, True], ids=["json", "sse"])
def test_a_client_that_goes_away_takes_its_request_along(streams: bool, tmp_path: Path) -> None:
    reply = (
        sites.stream_reply(event(_NOTE), 60.0)
        if streams
        else Reply(200, [("content-type", "application/json")], [60.0])
    )
    with _between(lambda seen: reply, tmp_path) as (address, server):
        host, port = address.removeprefix("http://").split(":")
        body = msgspec.json.encode(call())
        with socket.create_connection((host, int(port))) as talking:
            head = f"POST /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
            talking.sendall(head.encode() + body)
            _until(lambda: server.seen, "the request arrives")
            assert server.gone == 0
        _until(lambda: server.gone == 1, "the server is told that nobody waits")


# -- who may call -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1", None, 200),
        ("localhost:8900", None, 200),
        ("[::1]:80", None, 200),
        ("LOCALHOST", "http://localhost:6274", 200),
        ("localhost", "https://127.0.0.1", 200),
        ("evil.example", None, 421),
        ("evil.example:8900", "http://evil.example:8900", 421),
        ("localhost.evil.example", None, 421),
        ("", None, 421),
        ("localhost", "https://evil.example", 403),
        ("localhost", "null", 403),
        ("localhost", "", 403),
        ("localhost", "http://localhost.evil.example", 403),
        ("localhost", "http://[", 403),
    ],
)
@pytest.mark.parametrize("path", ["/mcp", "/health", "/metrics"])
def test_pages_of_other_sites_may_not_call(
    host: str, origin: str | None, status: int, path: str, gated: tuple[str, Scripted]
) -> None:
    address, server = gated
    before = len(server.seen)
    headers = {"host": host, **({} if origin is None else {"origin": origin})}
    with sites.client() as client:
        assert client.get(address + path, headers=headers).status_code == status
    assert len(server.seen) - before == (status == 200 and path == "/mcp")


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Scripted]]:
    with _between(lambda seen: json_reply({}), tmp_path_factory.mktemp("gated")) as (address, server):
        yield address, server


def test_names_that_are_allowed(tmp_path: Path) -> None:
    with (
        _between(lambda seen: json_reply({}), tmp_path, hosts=("Tools.example",)) as (address, _),
        sites.client() as client,
    ):
        for host, origin, status in (
            ("tools.example", "https://tools.example", 200),
            ("tools.example:80", None, 200),
            ("other.example", None, 421),
        ):
            headers = {"host": host, **({} if origin is None else {"origin": origin})}
            assert client.get(f"{address}/mcp", headers=headers).status_code == status


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.10", "::1"])
def test_addresses_of_this_computer(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["127.elsewhere.example", "127.1", "10.0.0.1", "localhost.example", "", None]
)
def test_addresses_that_may_be_anywhere(host: str | None) -> None:
    assert not is_loopback(host)


def test_what_listens_to_the_world_may_have_any_name_but_pages_may_not_call(tmp_path: Path) -> None:
    with (
        _between(lambda seen: json_reply({}), tmp_path, is_open=True) as (address, _),
        sites.client() as client,
    ):
        assert client.get(f"{address}/mcp", headers={"host": "pod-17.cluster"}).status_code == 200
        headers = {"host": "evil.example", "origin": "http://evil.example"}
        assert client.post(f"{address}/mcp", headers=headers).status_code == 403


def test_credentials_are_never_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    secret = "s3cr3t-token-of-somebody"
    headers = {"authorization": f"Bearer {secret}", "x-api-key": secret, "cookie": f"c={secret}"}
    caplog.set_level(logging.DEBUG)
    # The libraries below may tell what they do to whoever asks for it; who runs the proxy is not asked.
    for name in ("httpcore2", "httpx2", "hpack", "asyncio"):
        logging.getLogger(name).setLevel(logging.WARNING)
    replies = [
        json_reply(result(1, sites.rows(3000))),
        Reply(200, [("content-type", "application/json")], [b"{", None]),
        sites.stream_reply(event(_NOTE), None),
        json_reply(b"oh", 500),
    ]
    for reply in replies:
        with _between(lambda seen, reply=reply: reply, tmp_path) as (address, _):  # type: ignore[misc]
            post(address, call(), headers)
            post(address, request("x/y"), headers)
    with sites.proxied("http://127.0.0.1:9/mcp", tmp_path) as (address, _):
        post(address, call(), headers)
    assert caplog.text, "failures are told"
    assert secret not in caplog.text


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed_on_behalf_of_a_caller(status: int, tmp_path: Path) -> None:
    elsewhere = Scripted(lambda seen: json_reply({}))
    with sites.serving(elsewhere, lifespan="off") as other:
        reply = Reply(status, [("location", f"{other}/steal"), ("content-length", "0")])
        with _between(lambda seen: reply, tmp_path) as (address, _):
            response = post(address, call(), {"authorization": "Bearer a"})
    assert (response.status_code, response.headers["location"]) == (status, f"{other}/steal")
    assert elsewhere.seen == []


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("{server}//evil.example/x?y=1", "/.//evil.example/x?y=1"),
        ("{server}/\\evil.example/x", "/./\\evil.example/x"),
        ("{server}/a//b", "/a//b"),
        ("{server}?x=1", "/?x=1"),
        ("?x=1", "?x=1"),
        ("//evil.example/x", "//evil.example/x"),
    ],
)
def test_a_redirect_within_the_server_does_not_become_one_to_elsewhere(
    location: str, shown: str, tmp_path: Path
) -> None:
    def script(seen: Seen) -> Reply:
        said = location.format(server=f"http://{seen.header('host')}")
        return Reply(307, [("location", said), ("content-length", "0")])

    with _between(script, tmp_path) as (address, server):
        assert post(address, call()).headers["location"] == shown
        if shown.startswith("/./"):
            post(address, call(), path=shown.removeprefix("/."))
            assert server.seen[-1].path + "?" + server.seen[-1].query in (f"{shown[2:]}", f"{shown[2:]}?")


@pytest.mark.parametrize("location", ["http://[bad", "//["])
def test_a_redirect_to_nowhere_passes_as_it_is(location: str, tmp_path: Path) -> None:
    reply = Reply(307, [("location", location), ("content-length", "0")])
    with _between(lambda seen: reply, tmp_path) as (address, _):
        found = post(address, call())
    assert (found.status_code, found.headers["location"]) == (307, location)


@pytest.mark.parametrize("taken", ["/.//127.0.0.1/messages", "//127.0.0.1/messages"])
def test_the_oldest_transport_does_not_lead_elsewhere(taken: str, tmp_path: Path) -> None:
    def script(seen: Seen) -> Reply:
        if seen.method == "GET":
            named = f"http://{seen.header('host')}//127.0.0.1/messages"
            return sites.stream_reply(b"event: endpoint\ndata: %b\n\n" % named.encode(), 2.0)
        return Reply(202, [("content-length", "8")], [b"Accepted"])

    with (
        _between(script, tmp_path) as (address, server),
        sites.client() as client,
        client.stream("GET", f"{address}/sse") as response,
    ):
        # Kept, since the connection goes with it.
        reading = response.iter_raw()
        assert next(reading) == b"event: endpoint\ndata: /.//127.0.0.1/messages\n\n"
        host, port = address.removeprefix("http://").split(":")
        body = msgspec.json.encode(call(tokenBudget=1000))
        with socket.create_connection((host, int(port)), 10) as talking:
            head = f"POST {taken} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
            talking.sendall(head.encode() + body)
            assert talking.recv(1000).startswith(b"HTTP/1.1 202 ")
        assert server.seen[-1].path == "//127.0.0.1/messages"


def test_what_speaks_of_one_connection_stays_there(tmp_path: Path) -> None:
    reply = json_reply({}, 200, ("connection", "x-hop"), ("x-hop", "1"), ("x-end", "1"))
    with _between(lambda seen: reply, tmp_path) as (address, server):
        response = post(
            address, request("ping"), {"connection": "keep-alive, x-own", "x-own": "1", "te": "trailers"}
        )
    assert response.status_code == httpx2.codes.OK
    assert "x-hop" not in response.headers
    assert response.headers["x-end"] == "1"
    assert server.seen[0].header("x-own") is server.seen[0].header("te") is None


def _answer(words: bytes, *headers: bytes) -> bytes:
    body = b'{"jsonrpc":"2.0","id":1,"result":{"of":"%b"}}' % words
    lines = [
        b"HTTP/1.1 200 OK",
        b"Content-Type: application/json",
        *headers,
        b"Content-Length: %d" % len(body),
    ]
    return b"\r\n".join([*lines, b"", body])


@pytest.mark.parametrize(
    "header", ["authorization", "mcp-session-id", "x-api-key", "cookie", "x-forwarded-for", None]
)
def test_what_comes_late_never_reaches_another_caller(header: str | None, tmp_path: Path) -> None:
    """It arrives once the next request is under way, so nothing tells it from the reply to that one.

    The callers have headers of their own on one connection of, say, a balancer, or connections of their own.
    """

    def talk(talking: socket.socket) -> None:
        late = b""
        while b"\r\n\r\n" in (asked := talking.recv(1 << 16)):
            answer = _answer(b"A" if b"/a " in asked else b"B")
            talking.sendall(late + answer)
            late = answer

    with sites.talking(talk) as (url, connections), sites.proxied(url, tmp_path) as (address, _):
        with sites.client() as client:
            got = [
                post(
                    address,
                    request("prompts/get"),
                    {header: caller} if header else {},
                    path=f"/{caller}",
                    through=client if header else None,
                ).json()["result"]["of"]
                for caller in "ab"
            ]
        assert got == ["A", "B"]
        assert len(connections) == 2


def test_a_connection_to_the_server_ends_with_that_of_its_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_connections, "_IDLE_SECONDS", 1e9)
    ended = threading.Event()

    def talk(talking: socket.socket) -> None:
        while talking.recv(1 << 16):
            talking.sendall(_answer(b"x"))
        ended.set()

    with sites.talking(talk) as (url, connections), sites.proxied(url, tmp_path) as (address, _):
        with sites.client() as client:
            for _ in range(2):
                assert post(address, request("prompts/get"), through=client).status_code == 200
            assert len(connections) == 1
            assert not ended.is_set()
        assert ended.wait(10)


@pytest.mark.parametrize("late", [False, True], ids=["at once", "a moment later"])
def test_what_follows_a_reply_never_reaches_the_next_caller(late: bool, tmp_path: Path) -> None:
    """A server that says more than it announced, on a connection that the next caller could get."""
    surplus = _answer(b"secret of A", b"Set-Cookie: session=of-a")
    answered, followed = threading.Event(), threading.Event()

    def talk(talking: socket.socket) -> None:
        while b"\r\n\r\n" in (asked := talking.recv(1 << 16)):
            talking.sendall(_answer(b"A" if b"/a " in asked else b"B") + (b"" if late else surplus))
            if late:
                answered.wait(10)
                talking.sendall(surplus)
            followed.set()

    with sites.talking(talk) as (url, connections), sites.proxied(url, tmp_path) as (address, _):
        with sites.client() as client:
            first = post(address, request("prompts/get"), path="/a", through=client)
            answered.set()
            # It is there before the connection could be used again, though perhaps nobody has read it.
            followed.wait(10)
            second = post(address, request("prompts/get"), path="/b", through=client)
        assert first.json()["result"] == {"of": "A"}
        assert second.json()["result"] == {"of": "B"}
        assert "set-cookie" not in second.headers
        assert len(connections) == 2
