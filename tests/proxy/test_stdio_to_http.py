"""stdio in front of HTTP, line by line: headers, refusals, lost sessions, and the end."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.ports import refusing_port

from . import programs, sites
from .programs import Talking
from .sites import Reply, Scripted, Seen, call, event, json_reply, problem, request, result

_HELLO = request(
    "initialize", 1, protocolVersion=sites.OLD, capabilities={}, clientInfo={"name": "t", "version": "1"}
)
_READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}
_WELCOME = {"protocolVersion": sites.OLD, "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
_SAMPLE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "sampling/createMessage",
    "params": {"messages": [], "maxTokens": 1},
}


def _note(number: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": number}}


class _Old:
    """A scripted server with sessions; `more` answers everything but the handshake."""

    def __init__(self, more: Callable[[Seen], Reply | None] = lambda seen: None) -> None:
        self._more = more
        self.session = "s-1"
        self.listening: list[Reply] = []

    def __call__(self, seen: Seen) -> Reply:
        if seen.method == "GET":
            return self.listening.pop(0) if self.listening else Reply(405, [("content-length", "0")])
        if seen.method == "DELETE":
            return Reply(200, [("content-length", "0")])
        asked = seen.json
        if asked.get("method") == "initialize":
            return json_reply(result(asked["id"], _WELCOME), 200, ("mcp-session-id", self.session))
        if seen.header("mcp-session-id") != self.session:
            return json_reply(
                {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Session not found"}}, 404
            )
        found = self._more(seen)
        if found is not None:
            return found
        if "id" not in asked or "method" not in asked:
            return Reply(202, [("content-length", "0")])
        if asked["method"] == "tools/list":
            return json_reply(result(asked["id"], sites.tools()))
        return json_reply(result(asked["id"], sites.rows(3)))


@contextmanager
def _before(
    script: Callable[[Seen], Reply], folder: Path, *said: str, **env: str
) -> Iterator[tuple[Talking, Scripted]]:
    server = Scripted(script)
    with (
        sites.serving(server, lifespan="off") as url,
        programs.bridge(folder, f"{url}/mcp", *said, **env) as talking,
    ):
        yield talking, server


def _begin(talking: Talking) -> None:
    assert talking.ask(_HELLO)["result"] == _WELCOME
    talking.say(_READY)


def _until(happened: Callable[[], Any], what: str) -> None:
    for _ in range(1500):
        if happened():
            return
        time.sleep(0.01)
    pytest.fail(f"this never happened: {what}")


def _posted(server: Scripted) -> list[Any]:
    return [seen.json for seen in server.seen if seen.method == "POST"]


# -- headers --------------------------------------------------------------------------------------------------


def test_session_and_version_headers(tmp_path: Path) -> None:
    with _before(_Old(), tmp_path) as (talking, server):
        _begin(talking)
        talking.ask(call(identifier=2))
        _until(lambda: any(seen.method == "GET" for seen in server.seen), "it listens")
        assert talking.close() == 0
    hello, *others = server.seen
    assert hello.header("mcp-session-id") is hello.header("mcp-protocol-version") is None
    for seen in others:
        assert seen.header("mcp-session-id") == "s-1"
        assert seen.header("mcp-protocol-version") == sites.OLD
    assert others[-1].method == "DELETE"


def test_a_stateless_request_repeats_its_body_in_headers(tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "deep": {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}},
            "flag": {"type": "boolean", "x-mcp-header": "Flag"},
            "none": {"type": "string", "x-mcp-header": "None"},
        },
    }

    def script(seen: Seen) -> Reply:
        value: Any = {"tools": [{"name": "wähle", "inputSchema": schema}]}
        return json_reply(result(seen.json["id"], value if "list" in seen.json["method"] else sites.rows(1)))

    with _before(script, tmp_path) as (talking, server):
        talking.ask(call("wähle", "c", True, region=" x", deep={"n": 7}, flag=True))
        talking.ask(request("resources/read", 3, True, uri="test://a"))
    # Only a tool list says which arguments go into headers, so the proxy requests one.
    listed, called, read_ = server.seen
    assert listed.json["method"] == listed.header("mcp-method") == "tools/list"
    assert listed.json["params"]["_meta"] == sites.meta()
    assert called.header("mcp-protocol-version") == sites.MODERN
    assert called.header("mcp-method") == "tools/call"
    assert called.header("mcp-name") == "=?base64?d8OkaGxl?="
    assert called.header("mcp-param-region") == "=?base64?IHg=?="
    assert called.header("mcp-param-n") == "7"
    assert called.header("mcp-param-flag") == "true"
    assert called.header("mcp-param-none") is called.header("mcp-session-id") is None
    assert (read_.header("mcp-method"), read_.header("mcp-name")) == ("resources/read", "test://a")


# -- order ----------------------------------------------------------------------------------------------------


def test_notifications_keep_their_order(tmp_path: Path) -> None:
    def slow(seen: Seen) -> Reply | None:
        return Reply(202, [], [0.05]) if "id" not in seen.json else None

    with _before(_Old(slow), tmp_path) as (talking, server):
        _begin(talking)
        talking.say(*[_note(number) for number in range(10)])
        talking.ask(request("ping", 2))
    said = [seen for seen in server.seen if seen.method == "POST"][2:]
    assert [seen.json["params"]["data"] for seen in said[:10]] == list(range(10))
    assert said[10].json["method"] == "ping"
    assert {seen.beside for seen in said} == {0}, "each waits until the one before was accepted"


def test_messages_on_a_stream_keep_their_order(tmp_path: Path) -> None:
    many = [event(_note(number)) for number in range(50)]
    stream = sites.stream_reply(*many, event(result(2, sites.rows(1))))
    with _before(_Old(lambda seen: stream if seen.json.get("id") == 2 else None), tmp_path) as (talking, _):
        _begin(talking)
        talking.say(call(identifier=2))
        heard = [talking.hear() for _ in range(51)]
    assert heard == [*[_note(number) for number in range(50)], result(2, sites.rows(1))]


def test_requests_run_concurrently(tmp_path: Path) -> None:
    gate = threading.Event()

    def held(seen: Seen) -> Reply | None:
        if seen.json.get("id") == 2:
            return sites.stream_reply(0.6, event(result(2, sites.rows(1))))
        gate.set()
        return None

    with _before(_Old(held), tmp_path) as (talking, _):
        _begin(talking)
        talking.say(call(identifier=2), request("ping", 3))
        assert [talking.hear()["id"], talking.hear()["id"]] == [3, 2]


def test_a_batch_stays_a_batch(tmp_path: Path) -> None:
    def batch(seen: Seen) -> Reply | None:
        if isinstance(seen.json, list):
            return json_reply([result(each["id"], sites.rows(3000)) for each in seen.json])
        return None

    class Batches(_Old):
        def __call__(self, seen: Seen) -> Reply:
            if seen.method == "POST" and isinstance(seen.json, list):
                found = batch(seen)
                assert found is not None
                return found
            return super().__call__(seen)

    with _before(Batches(), tmp_path) as (talking, server):
        _begin(talking)
        talking.ask(request("tools/list", 2))
        talking.say([call(identifier=3), call("envelope_read", 4, handle="x" * 22), call(identifier=5)])
        ours, theirs = talking.hear(), talking.hear()
    assert problem(ours) == "HANDLE_UNKNOWN"
    assert [each["id"] for each in theirs] == [3, 5]
    assert all("_envelope" in each["result"]["structuredContent"] for each in theirs)
    assert [each["id"] for each in _posted(server)[-1]] == [3, 5]


# -- requests from the server ---------------------------------------------------------------------------------


@pytest.mark.parametrize("listens", [True, False], ids=["on the listening stream", "within a call"])
def test_requests_from_the_server(listens: bool, tmp_path: Path) -> None:
    """Both sides may use the same ids."""
    script = _Old(
        lambda seen: calling if seen.json.get("id") == 1 and seen.json.get("method") == "tools/call" else None
    )
    calling = sites.stream_reply(*([] if listens else [event(_SAMPLE)]), 0.5, event(result(1, sites.rows(1))))
    if listens:
        script.listening = [sites.stream_reply(event(_SAMPLE), 20.0)]
    with _before(script, tmp_path) as (talking, server):
        talking.ask({**_HELLO, "id": 0})
        talking.say(call(identifier=1), _READY)
        assert talking.hear() == _SAMPLE
        answer = result(1, {"role": "assistant", "model": "m", "content": {"type": "text", "text": "4"}})
        talking.say(answer)
        assert talking.hear() == result(1, sites.rows(1))
        _until(lambda: answer in _posted(server), "the answer arrives")


# -- refusals and failures ------------------------------------------------------------------------------------


def test_a_server_that_is_down(tmp_path: Path) -> None:
    with refusing_port() as port, programs.bridge(tmp_path, f"http://127.0.0.1:{port}/mcp") as talking:
        assert problem(talking.ask(call(identifier=1))) == "UPSTREAM_UNAVAILABLE"
        assert talking.ask(request("ping", 2))["error"]["code"] == -32603
        talking.say(_READY)
        assert talking.close() == 0


@pytest.mark.parametrize(
    ("reply", "code", "words"),
    [
        (Reply(401, [("www-authenticate", "Bearer")], [b"{}"]), "LOGIN_REQUIRED", "mcp-envelope login"),
        (Reply(403, [("content-type", "text/html")], [b"<p>no"]), "FORBIDDEN", "HTTP 403 Forbidden"),
        (Reply(429, [("retry-after", "5")]), "RATE_LIMITED", "HTTP 429"),
        (Reply(413, []), "TOO_LARGE", "HTTP 413"),
        (
            Reply(500, [("content-type", "application/json")], [b'{"error":"no"}']),
            "UPSTREAM_UNAVAILABLE",
            "HTTP 500",
        ),
        (
            Reply(302, [("location", "https://other.example/mcp?key=1")]),
            "UPSTREAM_UNAVAILABLE",
            "https://other.example/mcp.",
        ),
        (
            Reply(200, [("content-type", "application/json")], [b'{"jsonrpc"', None]),
            "UPSTREAM_DIED",
            "broke off",
        ),
        (sites.stream_reply(event(_note(1)), None), "UPSTREAM_DIED", "broke off"),
        (sites.stream_reply(event(_note(1))), "UPSTREAM_DIED", "broke off"),
        (json_reply(b"no json"), "UPSTREAM_DIED", "broke off"),
    ],
)
def test_a_refusal_has_a_code(reply: Reply, code: str, words: str, tmp_path: Path) -> None:
    with _before(_Old(lambda seen: reply if seen.json.get("id") in (2, 3) else None), tmp_path) as (
        talking,
        _,
    ):
        _begin(talking)
        called = talking.ask(call(identifier=2))
        asked = talking.ask(request("prompts/list", 3))
    assert problem(called) == code
    assert words in called["result"]["content"][0]["text"]
    assert words in asked["error"]["message"]


@pytest.mark.parametrize("identifier", [None, "server-error", 2])
def test_a_json_rpc_error_answers_the_request_that_caused_it(identifier: Any, tmp_path: Path) -> None:
    said = {"code": -32602, "message": "no", "data": {"x": 1.0}}
    reply = json_reply({"jsonrpc": "2.0", "id": identifier, "error": said}, 400)
    with _before(_Old(lambda seen: reply if seen.json.get("id") == 2 else None), tmp_path) as (talking, _):
        _begin(talking)
        assert talking.ask(call(identifier=2)) == {"jsonrpc": "2.0", "id": 2, "error": said}


def test_only_redirects_within_the_server_are_followed(tmp_path: Path) -> None:
    elsewhere = Scripted(lambda seen: json_reply(result(1, {})))

    def script(seen: Seen) -> Reply:
        if seen.path == "/mcp":
            return Reply(307, [("location", "/mcp/"), ("content-length", "0")])
        if seen.json["id"] == 1:
            return json_reply(result(1, _WELCOME))
        return Reply(307, [("location", f"{other}/steal"), ("content-length", "0")])

    with (
        sites.serving(elsewhere, lifespan="off") as other,
        _before(script, tmp_path, "--bearer-env", "T", T="t") as (talking, server),
    ):
        assert talking.ask(_HELLO)["result"] == _WELCOME
        assert "somewhere else" in talking.ask(request("ping", 2))["error"]["message"]
    assert [seen.header("authorization") for seen in server.seen] == ["Bearer t"] * len(server.seen)
    assert elsewhere.seen == []


def test_a_legacy_endpoint_on_another_server_gets_no_credentials(tmp_path: Path) -> None:
    elsewhere = Scripted(lambda seen: Reply(202))

    def script(seen: Seen) -> Reply:
        if seen.method == "POST":
            return Reply(405, [("content-length", "0")])
        return sites.stream_reply(b"event: endpoint\ndata: %b/steal\n\n" % other.encode(), 20.0)

    with (
        sites.serving(elsewhere, lifespan="off") as other,
        _before(script, tmp_path, "--bearer-env", "T", T="t") as (talking, _),
    ):
        assert "405" in talking.ask(_HELLO)["error"]["message"]
    assert elsewhere.seen == []


# -- cancellation ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("modern", [False, True], ids=["old", "modern"])
def test_cancellation_in_both_eras(modern: bool, tmp_path: Path) -> None:
    held = sites.stream_reply(event(_note(1)), 20.0)

    def script(seen: Seen) -> Reply:
        if modern:
            return held if seen.json["id"] == 2 else json_reply(result(seen.json["id"], sites.tools()))
        return old(seen)

    old = _Old(lambda seen: held if seen.json.get("id") == 2 else None)
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}
    with _before(script, tmp_path) as (talking, server):
        if not modern:
            _begin(talking)
        talking.say(call(identifier=2, modern=modern))
        assert talking.hear() == _note(1)
        talking.say(cancelled)
        if modern:
            _until(lambda: server.gone == 1, "the connection is closed")
            talking.say({**cancelled, "params": {"requestId": 77}})
            assert talking.ask(request("tools/list", 3, True))["id"] == 3
        else:
            _until(lambda: cancelled in _posted(server), "the notification is sent on")
            assert server.gone == 0
        assert (cancelled in _posted(server)) is not modern
        assert not modern or len([each for each in _posted(server) if "id" not in each]) == 0


def test_cancelling_a_request_that_waits_for_a_tool_list(tmp_path: Path) -> None:
    held = Reply(200, [("content-type", "application/json")], [20.0])
    with _before(lambda seen: held, tmp_path) as (talking, server):
        talking.say(call(identifier=2, modern=True))
        _until(lambda: server.seen, "the list is requested")
        talking.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}})
        _until(lambda: server.gone == 1, "the list is no longer awaited")
        assert [each["method"] for each in _posted(server)] == ["tools/list"]


# -- lost sessions and streams --------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["404", "400"])
def test_a_forgotten_session_is_renewed(words: str, tmp_path: Path) -> None:
    script = _Old()

    def forgetful(seen: Seen) -> Reply:
        reply = script(seen)
        if reply.status == 404 and words == "400":
            return Reply(
                400, [("content-type", "text/plain")], [b"Bad Request: No valid session ID provided"]
            )
        return reply

    script.listening = [sites.stream_reply(event(_note(1)), 20.0), sites.stream_reply(event(_note(2)), 20.0)]
    with _before(forgetful, tmp_path) as (talking, server):
        _begin(talking)
        assert talking.hear() == _note(1)
        script.session = "s-2"
        talking.say(*[call(identifier=number) for number in (5, 6, 7)])
        heard = [talking.hear() for _ in range(4)]
        talking.close()
    answers = [each for each in heard if "id" in each]
    assert sorted(each["id"] for each in answers) == [5, 6, 7]
    assert all(each["result"] == sites.rows(3) for each in answers)
    assert _note(2) in heard, "it listens again"
    hellos = [each for each in _posted(server) if each.get("method") == "initialize"]
    assert len(hellos) == 2, "once, however many requests were refused"
    assert hellos[1]["params"] == _HELLO["params"]
    assert _posted(server).count(_READY) == 2
    assert server.seen[-1].header("mcp-session-id") == "s-2"


def test_a_session_that_cannot_be_renewed(tmp_path: Path) -> None:
    script = _Old()
    refuses = [False]

    def strict(seen: Seen) -> Reply:
        if refuses[0] and seen.method == "POST" and seen.json.get("method") == "initialize":
            return Reply(503, [("content-length", "0")])
        return script(seen)

    with _before(strict, tmp_path) as (talking, _):
        _begin(talking)
        script.session, refuses[0] = "s-2", True
        assert problem(talking.ask(call(identifier=2))) == "UPSTREAM_UNAVAILABLE"
        refuses[0] = False
        assert talking.ask(call(identifier=3))["result"] == sites.rows(3)


def test_the_listening_stream_is_resumed(tmp_path: Path) -> None:
    script = _Old()
    script.listening = [
        sites.stream_reply(b"retry: 20\n\n", event(_note(1), "e-1")),
        sites.stream_reply(event(_note(2), "e-2"), None),
        Reply(503, [("content-length", "0")]),
        sites.stream_reply(event(_note(3), "e-3"), 20.0),
    ]
    with _before(script, tmp_path) as (talking, server):
        _begin(talking)
        assert [talking.hear(), talking.hear(), talking.hear()] == [_note(1), _note(2), _note(3)]
    listened = [seen.header("last-event-id") for seen in server.seen if seen.method == "GET"]
    assert listened == [None, "e-1", "e-2", "e-2"]


@pytest.mark.parametrize("end", [None, b""], ids=["broken", "ended"])
def test_a_broken_stream_is_resumed(end: bytes | None, tmp_path: Path) -> None:
    script = _Old(lambda seen: broken if seen.json.get("id") in (2, 3) else None)
    broken = sites.stream_reply(b"retry: 20\nid: e-1\ndata:\n\n", event(_note(1), "e-2"), end)
    with _before(script, tmp_path) as (talking, server):
        _begin(talking)
        _until(lambda: any(seen.method == "GET" for seen in server.seen), "it listens")
        script.listening = [
            sites.stream_reply(event(_note(2), "e-3"), None),
            sites.stream_reply(event(result(2, sites.rows(3000)))),
        ]
        talking.ask(request("tools/list", 9))
        talking.say(call(identifier=2))
        assert [talking.hear(), talking.hear()] == [_note(1), _note(2)]
        assert "_envelope" in talking.hear()["result"]["structuredContent"]
        # Requests other than calls are resumed, too; a stream that cannot be resumed fails in the end.
        script.listening = [sites.stream_reply(event(result(3, {"prompts": []})))]
        talking.say(request("prompts/list", 3))
        assert [talking.hear(), talking.hear()] == [_note(1), result(3, {"prompts": []})]
        assert problem(talking.ask(call(identifier=2))) == "UPSTREAM_DIED"
    taken_up = [seen.header("last-event-id") for seen in server.seen if seen.method == "GET"][1:]
    assert taken_up == ["e-2", "e-3", "e-2", "e-2"]


def test_a_stream_is_resumed_without_a_session(tmp_path: Path) -> None:
    def script(seen: Seen) -> Reply:
        if seen.method == "GET" and seen.header("last-event-id"):
            return sites.stream_reply(event(result(2, {"content": []}), "e-2"))
        if seen.method == "GET":
            return Reply(405, [("content-length", "0")])
        if seen.json["method"] == "initialize":
            return json_reply(result(1, _WELCOME))
        if "id" not in seen.json:
            return Reply(202, [("content-length", "0")])
        return sites.stream_reply(b"retry: 20\nid: e-1\ndata:\n\n")

    with _before(script, tmp_path) as (talking, server):
        _begin(talking)
        assert talking.ask(call(identifier=2))["result"] == {"content": []}
    asked = [seen for seen in server.seen if seen.method == "GET"][-1]
    assert (asked.header("last-event-id"), asked.header("mcp-protocol-version")) == ("e-1", sites.OLD)
    assert asked.header("mcp-session-id") is None


def test_a_stream_that_breaks_after_the_answer(tmp_path: Path) -> None:
    script = _Old(
        lambda seen: (
            sites.stream_reply(event(result(2, {"content": []})), None) if seen.json.get("id") == 2 else None
        )
    )
    with _before(script, tmp_path) as (talking, _):
        _begin(talking)
        talking.say(call(identifier=2))
        assert talking.hear() == result(2, {"content": []})
        assert talking.hears_nothing(0.3)


def test_a_lost_legacy_stream_is_reopened(tmp_path: Path) -> None:
    count = [0]

    def script(seen: Seen) -> Reply:
        if seen.method == "GET":
            count[0] += 1
            opening = b"event: endpoint\ndata: /messages?n=%d\n\n" % count[0]
            welcome = result(1 if count[0] == 1 else "mcp-envelope-again-1", _WELCOME)
            last = [0.4, None] if count[0] == 1 else [0.3, event(result(3, {"content": []})), 20.0]
            return sites.stream_reply(opening, 0.3, event(welcome), *last)
        if seen.path == "/mcp":
            return Reply(405, [("content-length", "0")])
        return Reply(202, [("content-length", "0")])

    with _before(script, tmp_path) as (talking, server):
        _begin(talking)
        assert problem(talking.ask(call(identifier=2))) == "UPSTREAM_DIED"
        assert talking.ask(call(identifier=3))["result"] == {"content": []}
    said = [(seen.query, seen.json.get("method")) for seen in server.seen if seen.path == "/messages"]
    assert said == [
        ("n=1", "initialize"),
        ("n=1", "notifications/initialized"),
        ("n=1", "tools/call"),
        ("n=2", "initialize"),
        ("n=2", "notifications/initialized"),
        ("n=2", "tools/call"),
    ]


def test_several_refused_requests_open_one_legacy_stream(tmp_path: Path) -> None:
    def script(seen: Seen) -> Reply:
        if seen.method == "GET":
            answers = [event(result(number, {"content": []})) for number in (1, 2)]
            return sites.stream_reply(0.2, b"event: endpoint\ndata: /messages\n\n", 0.5, *answers, 20.0)
        return Reply(405 if seen.path == "/mcp" else 202, [("content-length", "0")])

    with _before(script, tmp_path) as (talking, server):
        talking.say(call(identifier=1), call(identifier=2))
        assert [talking.hear()["id"], talking.hear()["id"]] == [1, 2]
    assert [seen.method for seen in server.seen].count("GET") == 1
    assert [seen.path for seen in server.seen].count("/messages") == 2


# -- results --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fails", [False, True])
def test_a_typed_result_before_any_tool_list(fails: bool, tmp_path: Path) -> None:
    def more(seen: Seen) -> Reply | None:
        if seen.json.get("method") == "tools/list":
            return Reply(500) if fails else None
        return json_reply(result(2, sites.rows(3000))) if seen.json.get("id") == 2 else None

    with _before(_Old(more), tmp_path) as (talking, server):
        _begin(talking)
        heard = talking.ask(call(identifier=2))
        assert talking.hears_nothing(0.2), "the proxy's own request stays hidden"
    if fails:
        assert problem(heard) == "RESULT_TOO_LARGE"
    else:
        assert "_envelope" in heard["result"]["structuredContent"]
    asked = [
        seen for seen in server.seen if seen.method == "POST" and seen.json.get("method") == "tools/list"
    ]
    assert [seen.header("mcp-session-id") for seen in asked] == ["s-1"]


def test_every_message_is_written_as_one_line(tmp_path: Path) -> None:
    pretty = msgspec.json.format(msgspec.json.encode(result(2, sites.rows(2))), indent=2)
    in_lines = b"".join(b"data: %b\n" % line for line in pretty.replace(b": 2", b": 3").splitlines()) + b"\n"
    replies = {2: json_reply(pretty.replace(b"\n", b"\r\n")), 3: sites.stream_reply(in_lines)}
    with _before(_Old(lambda seen: replies.get(seen.json.get("id"))), tmp_path) as (talking, _):
        _begin(talking)
        talking.ask(request("tools/list", 9))
        for number in (2, 3):
            assert talking.ask(call(identifier=number)) == result(number, sites.rows(2))


def test_an_event_of_twenty_megabytes(tmp_path: Path) -> None:
    data = msgspec.json.encode(result(2, sites.rows(300_000)))
    assert len(data) > 20_000_000
    script = _Old(lambda seen: sites.stream_reply(event(data)) if seen.json.get("id") == 2 else None)
    with _before(script, tmp_path) as (talking, _):
        _begin(talking)
        notice = talking.ask(call(identifier=2))["result"]["structuredContent"]["_envelope"]
        assert notice["dropped"][0]["total"] == 300_000
        page = talking.ask(call("envelope_read", 3, handle=notice["handle"], path="/rows/299999"))
    assert "row 299999" in str(page)


def test_observing_changes_nothing(tmp_path: Path) -> None:
    large = result(2, sites.rows(3000))
    script = _Old(lambda seen: json_reply(large) if seen.json.get("id") == 2 else None)
    with _before(script, tmp_path, "--observe") as (talking, server):
        _begin(talking)
        assert talking.ask(call(identifier=2, tokenBudget=300)) == large
        assert talking.ask(request("tools/list", 3))["result"] == sites.tools()
    assert [each.get("method") for each in _posted(server)] == [
        "initialize",
        "notifications/initialized",
        "tools/call",
        "tools/list",
    ]


# -- the end --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["closed", "SIGTERM", "SIGINT", "deaf"])
def test_the_end(how: str, tmp_path: Path) -> None:
    """Whatever runs is cancelled, the session is deleted, and the program ends."""
    script = _Old(
        lambda seen: sites.stream_reply(event(_note(1)), 30.0) if seen.json.get("id") == 2 else None
    )
    script.listening = [sites.stream_reply(b": hello\n\n", 30.0)]
    with _before(script, tmp_path) as (talking, server):
        _begin(talking)
        talking.say(call(identifier=2))
        assert talking.hear() == _note(1)
        process = talking.process
        if how == "closed":
            assert talking.close() == 0
        elif how == "deaf":
            # The client stops reading; nothing has to be said to it for the proxy to notice.
            talking.deaf = True
            talking.ask(request("ping", 3))
            assert process.wait(15) == 0
        else:
            number = getattr(signal, how)
            process.send_signal(number)
            assert process.wait(15) == 128 + number
        _until(lambda: server.gone == 2, "both connections are closed")
        assert server.seen[-1].method == "DELETE"
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()


def test_requests_before_the_end_of_input_are_answered(tmp_path: Path) -> None:
    """As when requests are piped in. A request that never ends is not waited for."""

    def slow(seen: Seen) -> Reply | None:
        if seen.json.get("method") == "subscriptions/listen":
            return sites.stream_reply(b": hello\n\n", 30.0)
        return sites.stream_reply(0.5, event(result(2, sites.rows(3)))) if seen.json.get("id") == 2 else None

    with _before(_Old(slow), tmp_path) as (talking, _):
        _begin(talking)
        talking.say(request("subscriptions/listen", 3), call(identifier=2))
        assert talking.close() == 0
        assert talking.hear()["id"] == 2


def test_a_server_that_does_not_end_the_session(tmp_path: Path) -> None:
    script = _Old()

    def stuck(seen: Seen) -> Reply:
        return Reply(200, [], [60.0]) if seen.method == "DELETE" else script(seen)

    with _before(stuck, tmp_path) as (talking, _):
        _begin(talking)
        assert talking.close() == 0


def test_credentials_are_never_shown(tmp_path: Path) -> None:
    secret = "s3cr3t-of-somebody"
    script = _Old(lambda seen: Reply(401, [], [b"no"]) if seen.json.get("id") == 2 else None)
    with _before(script, tmp_path, "--bearer-env", "T", "--header-env", "X-Key=T", T=secret) as (talking, _):
        _begin(talking)
        heard = talking.ask(call(identifier=2))
        talking.close()
        assert talking.process.stderr is not None
        assert secret not in talking.process.stderr.read().decode() + str(heard)
