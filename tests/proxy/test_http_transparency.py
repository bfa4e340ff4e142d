"""What is neither a tool list nor a result over its budget passes over HTTP as if nobody stood in between.

Strategy: the same request is made to a scripted server directly and through the proxy. What the client gets and
what the server saw must be the same: status, headers, body. With `observe` that holds for lists and large results.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from . import sites
from .sites import Reply, Seen, event, json_reply, result, stream_reply

# Different on each connection, by their nature.
_OF_THE_HOP = {"host", "connection", "transfer-encoding", "keep-alive"}
_ODD = '{"jsonrpc":"2.0", "id" : 1.0,"result":{"content":[],"x":1e400,"y":"\\ud83d","z":12345678901234567890123}}'
_FITS = result(1, sites.rows(3))
_LIST = result(1, sites.tools())
_LARGE = result(1, sites.rows(3000))
_NOTE = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}}
_ASKS = {"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": {}}

_REPLIES: dict[str, Reply] = {
    "a result": json_reply(_FITS),
    "odd spelling": json_reply(_ODD.encode()),
    "no JSON": json_reply(b"oh no"),
    "nothing": json_reply(b""),
    "an error": json_reply({"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "no"}}, 400),
    "input is asked for": json_reply(result(1, {"resultType": "input_required", "inputRequests": {"a": {}}})),
    "accepted": Reply(202, [("content-length", "0")]),
    "no content": Reply(204, []),
    "who are you": Reply(
        401,
        [
            ("www-authenticate", 'Bearer resource_metadata="https://mcp.example/.well-known/x", scope="a"'),
            ("www-authenticate", "Basic"),
            ("content-type", "application/json"),
            # Whether a body is sent in chunks is a matter of each hop; a JSON body leaves us in one piece.
            ("content-length", "26"),
        ],
        [b'{"error": "invalid_token"}'],
    ),
    "gone": json_reply({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Session"}}, 404),
    "busy": Reply(
        503,
        [("retry-after", "3"), ("content-type", "text/html; charset=latin-1"), ("content-length", "5")],
        [b"<p>h\xe9"],
    ),
    "elsewhere": Reply(302, [("location", "https://login.example/authorize?x=1"), ("content-length", "0")]),
    "cookies": json_reply(
        _FITS, 200, ("set-cookie", "a=1; Path=/"), ("set-cookie", "b=2"), ("mcp-session-id", "s")
    ),
    "compressed": Reply(
        200,
        [("content-type", "text/plain"), ("content-encoding", "gzip")],
        [gzip.compress(b"x" * 99, mtime=0)],
    ),
    "odd headers": json_reply(
        _FITS, 200, ("x-latin", "h\xe9llo"), ("x-utf8", "\xc3\xbc\xf0\x9f\x98\x80"), ("X-Empty", "")
    ),
    "many pieces": Reply(
        200, [("content-type", "application/octet-stream")], [b"\0" * 70_000, b"", b"\xff" * 9]
    ),
    "a stream": stream_reply(event(_NOTE), event(_ASKS, "7"), event(_FITS, "8")),
    "an odd stream": stream_reply(
        b"\xef\xbb\xbf: hello\r\n\r\n",
        b"retry: 5\r\nid: 1\r\ndata:\r\n\r",
        b"\n",
        b"event:  message \ndata: not json\n\n\n\n",
        b"event: message\rdata: {\rdata: }\r\r",
        b"event: other\ndata: {}\nx: y\n\n",
        event(_FITS),
        b": the end is not ended",
    ),
    "a stream in small pieces": stream_reply(*[b"%c" % byte for byte in event(_FITS, "1")]),
}
_CHANGED: dict[str, Reply] = {
    "a list": json_reply(_LIST),
    "a list in a stream": stream_reply(event(_LIST)),
    "a large result": json_reply(_LARGE),
    "a large result in a stream": stream_reply(event(_NOTE), event(_LARGE, "1"), event(_NOTE)),
    "a batch": json_reply([_LARGE, result(2, {})]),
}
_HEADERS = [
    ("authorization", "Bearer of-one-caller"),
    ("x-api-key", "k"),
    ("cookie", "c=1"),
    ("x-twice", "1"),
    ("x-twice", "2"),
    ("x-empty", ""),
    ("user-agent", "mine"),
    ("accept", "application/json, text/event-stream"),
    ("accept-encoding", "gzip"),
    ("origin", "http://localhost:6274"),
    ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
]
_OLD = [("mcp-session-id", "s-1"), ("mcp-protocol-version", sites.OLD)]
_MODERN = [
    ("mcp-protocol-version", sites.MODERN),
    ("mcp-method", "tools/call"),
    ("mcp-name", "rows"),
    ("mcp-param-a", "=?base64?w7w=?="),
]


class _Pair:
    """A server, and the proxy in front of it."""

    def __init__(self, server: sites.Scripted, direct: str, through: str) -> None:
        self.server, self.direct, self.through = server, direct, through
        self.reply = Reply()

    def compare(
        self, reply: Reply, method: str, path: str, headers: list[tuple[str, str]], body: bytes
    ) -> None:
        self.reply = reply
        got, seen = [], []
        for address in (self.direct, self.through):
            before = len(self.server.seen)
            got.append(_ask(address, method, path, headers, body))
            requests = self.server.seen[before:]
            assert len(requests) == 1
            request = requests[0]
            seen.append((request.method, request.path, request.query, _kept(request.headers), request.body))
        # No `==` in the assertion: pytest would spend a minute on the difference of two large results.
        same = got[1] == got[0]
        assert same, f"the client got {got[1]!r:.2000}\ninstead of {got[0]!r:.2000}"
        assert seen[1] == seen[0]


def _kept(headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return sorted((name, value) for name, value in headers if name not in _OF_THE_HOP)


def _ask(address: str, method: str, path: str, headers: list[tuple[str, str]], body: bytes) -> Any:
    with (
        sites.client() as client,
        client.stream(method, address + path, headers=headers, content=body or None) as response,
    ):
        raw = b"".join(response.iter_raw())
        return response.status_code, _kept(response.headers.multi_items()), raw


@pytest.fixture(scope="module", params=["normal", "observe"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Pair]:
    server = sites.Scripted(lambda seen: found[0].reply)
    with sites.serving(server, lifespan="off") as url:
        folder = tmp_path_factory.mktemp("proxy")
        with sites.proxied(f"{url}/mcp", folder, observe=request.param == "observe") as (address, _):
            found = [_Pair(server, url, address)]
            yield found[0]


def _body(modern: bool, method: str = "tools/call") -> bytes:
    asked = sites.request(method, 1, modern, name="rows", arguments={"a": "ü", "n": 1.0})
    # With spaces, so that a body that was put together anew would show.
    return msgspec.json.format(msgspec.json.encode(asked), indent=1)


@pytest.mark.parametrize("name", _REPLIES)
@pytest.mark.parametrize("modern", [False, True], ids=["old", "modern"])
def test_a_call_passes(pair: _Pair, name: str, modern: bool) -> None:
    era = _MODERN if modern else _OLD
    headers = [*_HEADERS, *era, ("content-type", "application/json")]
    # Had the proxy to ask for a list, the server would see one request more.
    pair.reply = json_reply(_LIST)
    listing = sites.request("tools/list", 1, modern)
    sites.post(
        pair.through, listing, {"authorization": "Bearer of-one-caller", "x-api-key": "k", **dict(era)}
    )
    pair.compare(_REPLIES[name], "POST", "/mcp", headers, _body(modern))


@pytest.mark.parametrize(
    "method", ["initialize", "prompts/get", "no/such", "ping", "server/discover", "resources/read"]
)
@pytest.mark.parametrize("name", ["a result", "a stream", "an error", "a large result"])
def test_other_methods_pass(pair: _Pair, method: str, name: str) -> None:
    reply = {**_REPLIES, **_CHANGED}[name]
    pair.compare(
        reply, "POST", "/mcp", [*_HEADERS, ("content-type", "application/json")], _body(False, method)
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"grant_type=client_credentials&x=%20",
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
        b'{"jsonrpc":"2.0","id":4,"result":{"role":"assistant","content":[]}}',
        b'[{"jsonrpc":"2.0","id":1,"method":"ping"}, {"jsonrpc":"2.0","id":2,"method":"ping"}]',
        b'{"client_name": "x", "redirect_uris": []}',
        b"\xff\xfe\0" * 2000,
    ],
)
def test_other_bodies_pass(pair: _Pair, body: bytes) -> None:
    for name in ("accepted", "a result"):
        pair.compare(_REPLIES[name], "POST", "/mcp", [*_HEADERS, *_OLD, ("content-type", "text/x")], body)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/mcp"),
        ("DELETE", "/mcp"),
        ("OPTIONS", "/mcp"),
        ("PUT", "/mcp?a=1&b=%2F"),
        ("GET", "/.well-known/oauth-protected-resource/mcp"),
        ("GET", "/.well-known/oauth-authorization-server"),
        ("GET", "/authorize?client_id=x&redirect_uri=http%3A%2F%2Flocalhost%2Fdone"),
        ("GET", "/a%2Fb/%C3%BC;x=1"),
        ("POST", "/token"),
    ],
)
@pytest.mark.parametrize(
    "name", ["a result", "who are you", "elsewhere", "no content", "compressed", "many pieces", "a stream"]
)
def test_other_requests_pass(pair: _Pair, method: str, path: str, name: str) -> None:
    body = b"grant_type=x" if path == "/token" else b""
    pair.compare(_REPLIES[name], method, path, [*_HEADERS, *_OLD, ("last-event-id", "7")], body)


@pytest.mark.parametrize("name", ["a result", "elsewhere", "nothing"])
def test_what_has_no_body_by_its_nature_passes(pair: _Pair, name: str) -> None:
    pair.compare(_REPLIES[name], "HEAD", "/mcp", _HEADERS, b"")


@pytest.mark.parametrize("pair", ["observe"], indirect=True)
@pytest.mark.parametrize("name", _CHANGED)
@pytest.mark.parametrize("modern", [False, True], ids=["old", "modern"])
def test_who_observes_changes_nothing(pair: _Pair, name: str, modern: bool) -> None:
    method = "tools/list" if "list" in name else "tools/call"
    headers = [*_HEADERS, *(_MODERN if modern else _OLD)]
    pair.compare(_CHANGED[name], "POST", "/mcp", headers, _body(modern, method))


@pytest.mark.parametrize("pair", ["observe"], indirect=True)
def test_who_observes_leaves_our_own_words_to_the_server(pair: _Pair) -> None:
    for tool in ("envelope_read", "rows"):
        body = msgspec.json.encode(sites.call(tool, handle="x", tokenBudget=300))
        pair.compare(json_reply(_FITS), "POST", "/mcp", _HEADERS, body)


@pytest.mark.parametrize("pair", ["normal"], indirect=True)
def test_the_comparison_can_fail(pair: _Pair) -> None:
    for name in _CHANGED:
        method = "tools/list" if "list" in name else "tools/call"
        with pytest.raises(AssertionError):
            pair.compare(_CHANGED[name], "POST", "/mcp", _HEADERS, _body(False, method))


def test_a_redirect_within_the_server_leads_through_the_proxy(pair: _Pair) -> None:
    pair.reply = Reply(307, [("location", f"{pair.direct}/mcp/?x=1"), ("content-length", "0")])
    with sites.client() as client:
        response = client.post(f"{pair.through}/mcp", content=b"{}")
    assert response.status_code == httpx2.codes.TEMPORARY_REDIRECT
    assert response.headers["location"] == "/mcp/?x=1"


def test_json_that_came_compressed_is_the_same_json(pair: _Pair) -> None:
    packed = gzip.compress(msgspec.json.encode(_FITS))
    pair.reply = Reply(200, [("content-type", "application/json"), ("content-encoding", "gzip")], [packed])
    response = sites.post(pair.through, sites.call(), {"accept-encoding": "gzip, br, zstd;q=0.5"})
    assert response.json() == _FITS
    assert pair.server.seen[-1].header("accept-encoding") == "gzip", "only what we can undo is asked for"


@pytest.mark.parametrize("pair", ["observe"], indirect=True)
def test_what_we_cannot_undo_passes_if_we_merely_observe(pair: _Pair) -> None:
    pair.reply = Reply(
        200, [("content-type", "application/json"), ("content-encoding", "br")], [b"\x0b\x02\x80"]
    )
    headers = {"content-type": "application/json"}
    with (
        sites.client() as client,
        client.stream("POST", f"{pair.through}/mcp", content=_body(False), headers=headers) as got,
    ):
        assert got.headers["content-encoding"] == "br"
        assert b"".join(got.iter_raw()) == b"\x0b\x02\x80"


def test_the_address_of_the_server_may_have_a_path_and_a_query_of_its_own(tmp_path: Path) -> None:
    def script(seen: Seen) -> Reply:
        return json_reply({"path": seen.path, "query": seen.query})

    with (
        sites.serving(sites.Scripted(script), lifespan="off") as url,
        sites.proxied(f"{url}/v1/tools?key=7", tmp_path) as (address, _),
        sites.client() as client,
    ):
        found = {
            path: client.get(address + path).json() for path in ("/", "/mcp?a=b", "/v1/tools", "/other?a=b")
        }
    assert found["/"] == {"path": "/v1/tools", "query": "key=7"}
    assert found["/mcp?a=b"] == {"path": "/v1/tools", "query": "key=7&a=b"}
    assert found["/v1/tools"] == {"path": "/v1/tools", "query": "key=7"}
    assert found["/other?a=b"] == {"path": "/other", "query": "a=b"}, "the key is not for other pages"
