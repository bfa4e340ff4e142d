"""Lists and results over HTTP: what is changed, for whom, and what the proxy asks the server for that.

The server is scripted, so that every request that it gets can be looked at.
"""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import jsonschema_rs
import msgspec
import pytest

from mcp_envelope.proxy import sessions, upstream
from mcp_envelope.proxy.http import HttpProxy

from . import sites
from .sites import Reply, Scripted, Seen, call, event, json_reply, post, problem, request, result, structured

_BOTH_ERAS = pytest.mark.parametrize("modern", [False, True], ids=["old", "modern"])
_BOTH_BODIES = pytest.mark.parametrize("streams", [False, True], ids=["json", "sse"])
_NOTE = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}


def _replies(
    streams: bool, count: int = 3000, listed: Callable[[Seen], Any] | None = None
) -> Callable[[Seen], Reply]:
    """A server with a tool `rows`."""

    def script(seen: Seen) -> Reply:
        asked = seen.json
        if "id" not in asked:
            return Reply(202, [("content-length", "0")])
        value: Any = sites.rows(count)
        if asked["method"] == "tools/list":
            value = sites.tools() if listed is None else listed(seen)
        elif asked["method"] == "initialize":
            return json_reply(
                result(asked["id"], {"protocolVersion": sites.OLD}), 200, ("mcp-session-id", "s-1")
            )
        reply = result(asked["id"], value)
        return sites.stream_reply(event(_NOTE), event(reply, None)) if streams else json_reply(reply)

    return script


@contextmanager
def _between(
    script: Callable[[Seen], Reply], folder: Path, **options: Any
) -> Iterator[tuple[str, Scripted, HttpProxy]]:
    server = Scripted(script)
    with (
        sites.serving(server, lifespan="off") as url,
        sites.proxied(f"{url}/mcp", folder, **options) as (address, proxy),
    ):
        yield address, server, proxy


def _methods(server: Scripted) -> list[str]:
    return [seen.json["method"] for seen in server.seen]


@_BOTH_ERAS
@_BOTH_BODIES
def test_a_list_tells_what_results_may_look_like(modern: bool, streams: bool, tmp_path: Path) -> None:
    with _between(_replies(streams), tmp_path) as (address, _, _proxy):
        said = sites.messages(post(address, request("tools/list", 7, modern), modern=modern))[-1]
    assert said["id"] == 7
    rows, ours = said["result"]["tools"]
    assert "_envelope" in rows["outputSchema"]["properties"]
    assert "tokenBudget" in rows["inputSchema"]["properties"]
    assert ours["name"] == "envelope_read"


@_BOTH_ERAS
@_BOTH_BODIES
def test_a_large_result_fits_and_can_be_read_on(modern: bool, streams: bool, tmp_path: Path) -> None:
    with _between(_replies(streams), tmp_path) as (address, server, _):
        listed = sites.messages(post(address, request("tools/list", 1, modern), modern=modern))[-1]
        response = post(address, call(identifier="x", modern=modern), modern=modern)
        before = len(server.seen)
        notice = structured(response)["_envelope"]
        reading = call("envelope_read", 3, modern, handle=notice["handle"], path="/rows", offset=2990)
        page = post(address, reading, modern=modern)
        assert len(server.seen) == before, "what is read on never runs a tool"
    said = sites.messages(response)
    assert [each.get("method") for each in said] == (["notifications/message", None] if streams else [None])
    assert said[-1]["id"] == "x"
    assert len(response.content) < 20_000
    assert notice["dropped"][0]["total"] == 3000
    jsonschema_rs.validate(listed["result"]["tools"][0]["outputSchema"], structured(response))
    assert page.headers["content-type"] == "application/json"
    assert '"name":"row 2999"' in page.json()["result"]["content"][-1]["text"]
    assert page.json()["result"].get("resultType") == ("complete" if modern else None)


@_BOTH_ERAS
@_BOTH_BODIES
def test_an_event_of_twenty_megabytes(modern: bool, streams: bool, tmp_path: Path) -> None:
    with _between(_replies(streams, 300_000), tmp_path) as (address, server, _):
        response = post(address, call(modern=modern), modern=modern)
        assert server.sent > 20_000_000
        notice = structured(response)["_envelope"]
        page = post(address, call("envelope_read", 2, handle=notice["handle"], path="/rows/299999"))
    assert notice["dropped"][0]["total"] == 300_000
    assert "row 299999" in page.text


# -- the list that the proxy asks for itself ----------------------------------------------------------------


@_BOTH_ERAS
@_BOTH_BODIES
def test_it_is_asked_for_as_the_caller_would(modern: bool, streams: bool, tmp_path: Path) -> None:
    mine = {
        "authorization": "Bearer t",
        "cookie": "c=1",
        "x-tenant": "a",
        "mcp-session-id": "s-9",
        "mcp-param-q": "1",
    }
    if modern:
        del mine["mcp-session-id"]
    with _between(_replies(streams), tmp_path) as (address, server, _):
        response = post(address, call(modern=modern), mine, modern=modern)
    assert "_envelope" in structured(response)
    assert _methods(server) == ["tools/call", "tools/list"]
    asked = server.seen[1]
    for name, value in mine.items():
        assert asked.header(name) == (None if name == "mcp-param-q" else value)
    assert asked.header("accept") == "application/json, text/event-stream"
    assert asked.header("content-type") == "application/json"
    assert asked.header("mcp-protocol-version") == (sites.MODERN if modern else sites.OLD)
    assert asked.header("mcp-method") == ("tools/list" if modern else None)
    assert asked.header("mcp-name") is None
    params = asked.json.get("params")
    assert params == ({"_meta": sites.meta()} if modern else None)
    assert [each.get("id") for each in sites.messages(response)][-1] == 1, "its answer is not the client's"
    assert len(sites.messages(response)) == (2 if streams else 1), "nor is what came along with it"


@_BOTH_BODIES
def test_many_at_a_time_ask_once(streams: bool, tmp_path: Path) -> None:
    gate = threading.Barrier(12)

    def ask(number: int) -> Any:
        gate.wait(10)
        return structured(post(address, call(identifier=number)))

    with _between(_replies(streams), tmp_path) as (address, server, _), ThreadPoolExecutor(12) as pool:
        found = list(pool.map(ask, range(12)))
    assert all("_envelope" in each for each in found)
    assert sorted(_methods(server)) == ["tools/call"] * 12 + ["tools/list"]


def test_a_list_of_many_pages_is_read_to_its_end(tmp_path: Path) -> None:
    def listed(seen: Seen) -> Any:
        page = int(seen.json.get("params", {}).get("cursor", 0))
        entry = {"name": f"tool {page}", "inputSchema": {"type": "object"}}
        return sites.tools() if page == 3 else {"tools": [entry], "nextCursor": str(page + 1)}

    with _between(_replies(False, listed=listed), tmp_path) as (address, server, _):
        assert "_envelope" in structured(post(address, call()))
        assert "_envelope" in structured(post(address, call()))
    assert _methods(server) == ["tools/call", *["tools/list"] * 4, "tools/call"]


@pytest.mark.parametrize("trouble", [401, 500, "broken", "silent"])
def test_without_a_list_a_typed_result_is_not_cut_into_what_breaks_its_promise(
    trouble: Any, tmp_path: Path
) -> None:
    plain = _replies(False)

    def script(seen: Seen) -> Reply:
        if seen.json["method"] != "tools/list":
            return plain(seen)
        if trouble == "broken":
            return Reply(200, [("content-type", "application/json")], [b"{", None])
        return json_reply(_NOTE) if trouble == "silent" else json_reply({"error": "no"}, trouble)

    with _between(script, tmp_path) as (address, _server, _):
        said = post(address, call()).json()
        assert problem(said) == "RESULT_TOO_LARGE"
        assert "structuredContent" not in said["result"]
        handle = said["result"]["_meta"]["io.github.mcp-envelope/notice"]["handle"]
        page = post(address, call("envelope_read", 2, handle=handle, path="/rows/2999"))
        assert "row 2999" in page.text, "nothing is lost"


def test_a_server_without_lists_promises_nothing(tmp_path: Path) -> None:
    plain = _replies(False)

    def script(seen: Seen) -> Reply:
        if seen.json["method"] != "tools/list":
            return plain(seen)
        return json_reply(
            {"jsonrpc": "2.0", "id": seen.json["id"], "error": {"code": -32601, "message": "no"}}, 404
        )

    with _between(script, tmp_path) as (address, _server, _):
        assert structured(post(address, call()))["_envelope"]["truncated"] is True


# -- who may see what ---------------------------------------------------------------------------------------


def test_what_one_caller_sees_is_not_held_against_another(tmp_path: Path) -> None:
    """Two callers have a tool of the same name with different results; one may not be cut at all."""
    closed = {**sites.ROWS_SCHEMA, "properties": {"rows": {"type": "array", "minItems": 3000}}}
    own_budget = {"type": "object", "properties": {"tokenBudget": {"type": "string"}}}

    def listed(seen: Seen) -> Any:
        if seen.header("authorization") == "Bearer a":
            return sites.tools()
        return sites.tools({"name": "rows", "inputSchema": own_budget, "outputSchema": closed})

    with _between(_replies(False, listed=listed), tmp_path) as (address, server, _):
        for who in ("a", "b"):
            post(address, request("tools/list"), {"authorization": f"Bearer {who}"})
        a, b = (
            post(address, call(tokenBudget="500"), {"authorization": f"Bearer {who}"}) for who in ("a", "b")
        )
    assert "_envelope" in structured(a)
    assert problem(b.json()) == "RESULT_TOO_LARGE"
    sent = [seen.json["params"]["arguments"] for seen in server.seen[2:]]
    assert sent == [{}, {"tokenBudget": "500"}], "an argument that the tool has itself is the tool's"


def test_sessions_of_one_caller_may_see_different_tools(tmp_path: Path) -> None:
    def listed(seen: Seen) -> Any:
        entry = {"name": "rows", "inputSchema": {"type": "object"}}
        return sites.tools() if seen.header("mcp-session-id") == "typed" else sites.tools(entry)

    with _between(_replies(False, listed=listed), tmp_path) as (address, server, _):
        for session in ("typed", "untyped"):
            post(address, call(), {"mcp-session-id": session})
    assert _methods(server) == ["tools/call", "tools/list"] * 2


def test_a_handle_belongs_to_the_credential_that_made_it(tmp_path: Path) -> None:
    def read(handle: str, **headers: str) -> Any:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return post(address, call("envelope_read", 2, handle=handle), sent).json()

    with _between(_replies(False), tmp_path) as (address, _server, _):
        handle = structured(post(address, call(), {"authorization": "Bearer a"}))["_envelope"]["handle"]
        keyed = structured(post(address, call(), {"x-api-key": "k"}))["_envelope"]["handle"]
        assert "row 0" in str(read(handle, authorization="Bearer a"))
        assert "row 0" in str(read(keyed, x_api_key="k"))
        for other in ({}, {"authorization": "Bearer b"}, {"authorization": "Bearer a", "x_api_key": "k"}):
            assert problem(read(handle, **other)) == "HANDLE_UNKNOWN"
        assert problem(read(keyed, x_api_key="other")) == "HANDLE_UNKNOWN"
        uri = f"envelope://{handle}"
        mine = post(address, request("resources/read", uri=uri), {"authorization": "Bearer a"}).json()
        theirs = post(address, request("resources/read", uri=uri), {"authorization": "Bearer b"}).json()
    assert "row 0" in str(mine["result"])
    assert "HANDLE_UNKNOWN" in theirs["error"]["message"]


@pytest.mark.parametrize("name", ["authorization", "x-api-key", "api-key", "x-auth-token"])
def test_each_header_that_is_a_credential_tells_callers_apart(name: str, tmp_path: Path) -> None:
    with _between(_replies(False), tmp_path) as (address, _server, _):
        handle = structured(post(address, call(), {name: "mine"}))["_envelope"]["handle"]
        asked = call("envelope_read", 2, handle=handle)
        assert "row 0" in post(address, asked, {name: "mine"}).text
        for headers in ({name: "theirs"}, {}):
            assert problem(post(address, asked, headers).json()) == "HANDLE_UNKNOWN"


def test_what_is_known_of_tools_is_asked_for_again_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [sites.tools()]
    with _between(_replies(False, listed=lambda seen: entries[0]), tmp_path) as (address, server, _):
        post(address, request("tools/list"))
        assert "_envelope" in structured(post(address, call()))
        # Another replica told the caller of a newer tool.
        closed = {**sites.ROWS_SCHEMA, "properties": {"rows": {"type": "array", "minItems": 3000}}}
        entries[0] = sites.tools({"name": "rows", "inputSchema": {"type": "object"}, "outputSchema": closed})
        monkeypatch.setattr(sessions, "_FRESH", 0.0)
        assert problem(post(address, call()).json()) == "RESULT_TOO_LARGE"
    assert _methods(server) == ["tools/list", "tools/call", "tools/call", "tools/list"]


def test_our_tool_stays_ours_when_the_list_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = iter(
        [sites.tools(), sites.tools(sites.tools()["tools"][0], {"name": "envelope_read", "inputSchema": {}})]
    )
    with _between(_replies(False, listed=lambda seen: next(lists)), tmp_path) as (address, server, _):
        post(address, request("tools/list"))
        monkeypatch.setattr(sessions, "_FRESH", 0.0)
        post(address, request("tools/list"))
        monkeypatch.undo()
        found = structured(post(address, call()))
        post(address, call("envelope_read", handle="x" * 26))
    assert found["_envelope"]["truncated"]
    assert _methods(server) == ["tools/list", "tools/list", "tools/call"]


def test_if_it_cannot_be_had_again_what_was_known_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    down = [False]
    plain = _replies(False)

    def script(seen: Seen) -> Reply:
        lists = seen.json["method"] == "tools/list"
        return json_reply({}, 503) if lists and down[0] else plain(seen)

    with _between(script, tmp_path) as (address, _server, _):
        post(address, request("tools/list"))
        down[0] = True
        monkeypatch.setattr(sessions, "_FRESH", 0.0)
        for _ in range(2):
            assert "_envelope" in structured(post(address, call()))


# -- what is answered here ----------------------------------------------------------------------------------


@_BOTH_ERAS
def test_a_budget_that_is_asked_for_counts_and_is_not_sent_on(modern: bool, tmp_path: Path) -> None:
    with _between(_replies(False), tmp_path) as (address, server, _):
        response = post(address, call(modern=modern, tokenBudget=300, a=1), modern=modern)
    assert len(response.content) < 4000
    # Whether the argument is ours, only the list tells; so it comes first.
    assert _methods(server) == ["tools/list", "tools/call"]
    assert server.seen[1].json["params"]["arguments"] == {"a": 1}


@_BOTH_BODIES
def test_a_batch_of_which_some_is_ours_gets_one_answer(streams: bool, tmp_path: Path) -> None:
    def script(seen: Seen) -> Reply:
        asked = seen.json
        if isinstance(asked, list):
            replies = [result(each["id"], sites.rows(3000)) for each in asked if "id" in each]
            return sites.stream_reply(*map(event, replies)) if streams else json_reply(replies)
        return _replies(False)(seen)

    with _between(script, tmp_path) as (address, server, _):
        batch = [
            call(identifier=1),
            call("envelope_read", 2, handle="x" * 22),
            call(identifier=3, tokenBudget=400),
        ]
        post(address, request("tools/list"))
        response = post(address, [*batch, {"jsonrpc": "2.0", "method": "notifications/x"}])
        said = sites.messages(response) if streams else response.json()
        only = post(address, [batch[1]]).json()
    by_id = {each["id"]: each for each in said}
    assert problem(by_id[2]) == "HANDLE_UNKNOWN"
    for number in (1, 3):
        assert "_envelope" in by_id[number]["result"]["structuredContent"]
    assert [each.get("id") for each in server.seen[1].json] == [1, 3, None]
    assert server.seen[1].json[1]["params"]["arguments"] == {}
    assert problem(only[0]) == "HANDLE_UNKNOWN"


def test_the_limit_of_a_known_client_counts_in_an_older_session(tmp_path: Path) -> None:
    said: dict[str, Any] = {
        "clientInfo": {"name": "Visual Studio Code", "version": "1"},
        "capabilities": {},
        "protocolVersion": "x",
    }
    with _between(_replies(False), tmp_path, tokens=None) as (address, _server, _):
        session = post(address, request("initialize", **said)).headers["mcp-session-id"]
        large = len(post(address, call()).content)
        small = len(post(address, call(), {"mcp-session-id": session}).content)
    # 8,000 bytes for each lane, and not 8,000 tokens.
    assert small < 20_000 < large


@pytest.mark.parametrize("method", ["tasks/get", "tasks/result"])
def test_the_result_of_a_task_that_another_replica_began_fits(method: str, tmp_path: Path) -> None:
    def script(seen: Seen) -> Reply:
        asked = seen.json
        done = sites.rows(3000)
        return json_reply(
            result(asked["id"], {"status": "completed", "result": done} if method == "tasks/get" else done)
        )

    with _between(script, tmp_path) as (address, _server, _):
        response = post(address, request(method, taskId="t-1"))
    assert len(response.content) < 20_000


def test_the_result_of_a_task_is_held_to_its_own_tool(tmp_path: Path) -> None:
    def script(seen: Seen) -> Reply:
        asked = seen.json
        if asked["method"] == "tools/call":
            return json_reply(result(asked["id"], {"resultType": "task", "taskId": "t-1"}))
        return _replies(False)(seen)

    with _between(script, tmp_path) as (address, _server, _):
        post(address, call(modern=True), modern=True)
        response = post(address, request("tasks/result", 2, True, taskId="t-1"), modern=True)
        other = post(address, request("tasks/result", 2, True, taskId="t-2"), modern=True)
    assert "_envelope" in structured(response)
    assert problem(other.json()) == "RESULT_TOO_LARGE"


def test_headers_that_the_proxy_is_given_go_before_those_of_the_caller(tmp_path: Path) -> None:
    own = {"Authorization": "Bearer ours", "X-Own": "1"}
    with _between(_replies(False), tmp_path, headers=own) as (address, server, _):
        a = structured(post(address, call(), {"authorization": "Bearer a"}))["_envelope"]["handle"]
        b = post(address, call("envelope_read", handle=a), {"authorization": "Bearer b"}).json()
    for seen in server.seen:
        assert (seen.headers_of("authorization"), seen.header("x-own")) == (["Bearer ours"], "1")
    assert problem(b) == "HANDLE_UNKNOWN", "callers are still told apart by what they sent"


def test_cookies_of_one_caller_are_not_sent_for_another(tmp_path: Path) -> None:
    def script(seen: Seen) -> Reply:
        reply = _replies(False, 3)(seen)
        return Reply(
            reply.status, [*reply.headers, ("set-cookie", "session=secret-of-a; Path=/")], reply.parts
        )

    with _between(script, tmp_path) as (address, server, _):
        for _ in range(3):
            post(address, call())
    assert [seen.header("cookie") for seen in server.seen if seen.json["method"] == "tools/call"] == [
        None
    ] * 3


def test_memory_for_many_large_frames_is_shared(tmp_path: Path) -> None:
    """More than there is memory for at a time: all are answered, and none holds up the others for good."""
    most = [0]
    with (
        _between(_replies(True, 40_000), tmp_path) as (address, _server, proxy),
        ThreadPoolExecutor(12) as pool,
    ):
        memory = proxy.upstream.memory
        memory._size = 4 << 20
        put = memory._put

        def noted(reservation: Any, size: int) -> None:
            put(reservation, size)
            most[0] = max(most[0], memory.used)

        memory._put = noted  # type: ignore[method-assign]
        found = list(pool.map(lambda number: structured(post(address, call(identifier=number))), range(24)))
        assert memory.used == 0
    assert all("_envelope" in each for each in found)
    one = len(msgspec.json.encode(result(1, sites.rows(40_000))))
    assert one < most[0] < (4 << 20) + one + 12 * (2 << 16), "the shared size, and what one frame may have"


def test_frames_are_looked_at_beside_the_loop_if_they_may_take_long(tmp_path: Path) -> None:
    threads: set[tuple[bool, int]] = set()
    with _between(_replies(False, 3), tmp_path) as (address, _server, proxy):
        loop: list[int] = []
        look = upstream.Upstream.intercept

        async def noted(self: Any, what: Any, frame: bytes, *more: Any) -> Any:
            loop.append(threading.get_ident())

            def inside(*given: Any) -> Any:
                threads.add((b"envelope" in frame, threading.get_ident()))
                return what(*given)

            return await look(self, inside, frame, *more)

        proxy.upstream.intercept = noted.__get__(proxy.upstream)  # type: ignore[method-assign]
        post(address, call())
        post(address, call("envelope_read", handle="x" * 22))
    assert {ours for ours, thread in threads if thread == loop[0]} == {False}
    assert {ours for ours, thread in threads if thread != loop[0]} >= {True}


# -- whatever an SDK would read is fitted ---------------------------------------------------------------------

_JSON_TYPES = [
    [("content-type", "application/json-rpc")],
    [("content-type", "application/json, text/plain")],
    [("content-type", "text/plain, application/json")],
    [("content-type", "application/json"), ("content-type", "text/plain")],
    [("content-type", "text/plain"), ("content-type", "application/json")],
    [("content-type", "Application/JSON;charset=utf-8;x")],
    [("content-type", 'application/json; charset="ISO-8859-1"')],
    [("content-type", "application/json"), ("content-encoding", "identity")],
    [("content-type", "application/json"), ("content-encoding", "x-gzip")],
]


def _once_listed(answer: Callable[[Any], Reply]) -> Callable[[Seen], Reply]:
    def script(seen: Seen) -> Reply:
        asked = {} if seen.method == "GET" else seen.json
        if asked.get("method") == "tools/list":
            return json_reply(result(asked["id"], sites.tools()))
        return answer(asked)

    return script


def _is_small(response: httpx2.Response) -> bool:
    return len(response.content) < 20_000 and b"envelope_read" in response.content


@pytest.mark.parametrize("headers", _JSON_TYPES, ids=str)
def test_json_under_any_name_that_clients_read(headers: list[tuple[str, str]], tmp_path: Path) -> None:
    def answer(asked: Any) -> Reply:
        body = msgspec.json.encode(result(asked["id"], sites.rows(3000)))
        packed = gzip.compress(body) if ("content-encoding", "x-gzip") in headers else body
        return Reply(200, [*headers, ("content-length", str(len(packed)))], [packed])

    with _between(_once_listed(answer), tmp_path) as (address, _, _):
        response = post(address, call())
    assert _is_small(response)
    assert msgspec.json.decode(response.content)["result"]["structuredContent"]["_envelope"]["truncated"]


@pytest.mark.parametrize(
    "kind",
    [
        "text/event-stream;x",
        "text/event-streaming",
        "text/plain, text/event-stream",
        "text/event-stream;charset=UTF8",
    ],
)
def test_a_stream_under_any_name_that_clients_read(kind: str, tmp_path: Path) -> None:
    def answer(asked: Any) -> Reply:
        return Reply(200, [("content-type", kind)], [event(result(asked["id"], sites.rows(3000)))])

    with _between(_once_listed(answer), tmp_path) as (address, _, _):
        assert _is_small(post(address, call()))


def test_a_stream_that_is_listened_to_is_one_whatever_it_is_called(tmp_path: Path) -> None:
    """TypeScript's client reads whatever answers its GET as events."""
    body = event(result(1, sites.rows(3000)))
    reply = Reply(200, [("content-type", "application/json"), ("content-length", str(len(body)))], [body])
    with _between(_once_listed(lambda asked: reply), tmp_path) as (address, _, _), sites.client() as client:
        response = client.get(f"{address}/mcp", headers={"accept": "text/event-stream"})
    assert _is_small(response)


@pytest.mark.parametrize(
    "headers",
    [
        [("content-type", "application/json, text/event-stream")],
        [("content-type", "application/json"), ("content-encoding", "br")],
        [("content-type", "application/json"), ("content-encoding", "banana")],
        [("content-type", "text/event-stream"), ("content-encoding", "zstd")],
        # Python's client decodes a stream as it is told to.
        [("content-type", "text/event-stream; charset=utf-16")],
        [("content-type", 'text/event-stream;x;Charset = "UTF-7"')],
        [("content-type", "text/event-stream; charset*=utf-8''utf-16")],
        [("content-type", "application/json; charset=utf-8, text/plain; charset=cp037")],
    ],
    ids=str,
)
def test_what_clients_might_read_and_we_cannot_is_refused(
    headers: list[tuple[str, str]], tmp_path: Path
) -> None:
    def answer(asked: Any) -> Reply:
        return Reply(200, headers, [msgspec.json.encode(result(asked["id"], sites.rows(3000)))])

    with _between(_once_listed(answer), tmp_path) as (address, _, _), sites.client() as client:
        called = post(address, call())
        with client.stream("POST", f"{address}/mcp", content=msgspec.json.encode(request("ping"))) as asked:
            assert asked.status_code == 502
    assert problem(called.json()) == "UPSTREAM_BAD_REPLY"


_LONG = "what went wrong? " * 10_000


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/plain", _LONG.encode()),
        ("text/html", b"\xff" + _LONG.encode()),
        ("", _LONG.encode()),
        ("application/json", msgspec.json.encode({"detail": _LONG})),
        ("application/json", b"{" + _LONG.encode()),
        (
            "application/json",
            msgspec.json.encode({"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": _LONG}}),
        ),
    ],
)
@pytest.mark.parametrize("status", [302, 400, 500])
def test_the_text_of_an_error_status_is_fitted(kind: str, body: bytes, status: int, tmp_path: Path) -> None:
    reply = Reply(status, [("content-type", kind), ("retry-after", "3")], [body])
    with _between(_once_listed(lambda asked: reply), tmp_path) as (address, _, _):
        response = post(address, call(identifier="a"))
        assert _is_small(response)
        found = response.json()
        handle = found["error"]["message"].split('handle="')[1].split('"')[0]
        page = post(address, call("envelope_read", handle=handle, path="/message")).json()["result"][
            "content"
        ]
    assert (response.status_code, response.headers["retry-after"]) == (status, "3")
    assert found["id"] == (None if b'"id"' in body else "a")
    assert response.headers["content-type"] == "application/json"
    assert "what went wrong?" in page[-1]["text"]


@pytest.mark.parametrize("identifier", [999, None, "x"])
@pytest.mark.parametrize("kind", ["result", "error"])
def test_an_answer_with_an_id_of_its_own_is_fitted(identifier: Any, kind: str, tmp_path: Path) -> None:
    """Python's client takes any answer in the stream of its request for the answer to it."""
    bodies = {"result": sites.rows(3000), "error": {"code": -32000, "message": _LONG}}
    wrong = {"jsonrpc": "2.0", "id": identifier, kind: bodies[kind]}

    def answer(asked: Any) -> Reply:
        return sites.stream_reply(event(wrong), event(result(asked["id"], sites.rows(3000))))

    with _between(_once_listed(answer), tmp_path) as (address, _, _):
        response = post(address, call())
    first, second = sites.messages(response)
    assert len(msgspec.json.encode(first)) < 20_000
    assert first["id"] == identifier
    assert second["result"]["structuredContent"]["_envelope"]["truncated"]
    assert len(response.content) < 40_000


@pytest.mark.parametrize(
    "disguise",
    [
        lambda body: body.decode().encode("utf-16"),
        lambda body: body + b"}",
        lambda body: body + b"\n" + body,
        lambda body: b"/**/" + body,
        lambda body: b"data: " + body + b"\n\n",
        lambda body: body[:-1] + b",}",
    ],
    ids=["UTF-16", "rest", "two", "comment", "event", "comma"],
)
def test_json_that_only_lenient_clients_read_is_fitted(
    disguise: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    """C#'s client decodes UTF-16, Java's ignores what follows, Ruby's skips comments."""

    def answer(asked: Any) -> Reply:
        return json_reply(disguise(msgspec.json.encode(result(asked["id"], sites.rows(3000)))))

    with _between(_once_listed(answer), tmp_path) as (address, _, _):
        response = post(address, call(identifier="a"))
    assert _is_small(response)
    assert response.json()["id"] == "a"


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_without_an_id_is_fitted(stream: bool, tmp_path: Path) -> None:
    wrong = {"jsonrpc": "2.0", "result": sites.rows(3000)}

    def answer(asked: Any) -> Reply:
        right = event(result(asked["id"], {"content": []}))
        return sites.stream_reply(event(wrong), right) if stream else json_reply(msgspec.json.encode(wrong))

    with _between(_once_listed(answer), tmp_path) as (address, _, _):
        assert _is_small(post(address, call()))


@pytest.mark.parametrize("first", [{"content": []}, sites.rows(3000)], ids=["small", "large"])
def test_a_second_answer_is_fitted_too(first: dict[str, Any], tmp_path: Path) -> None:
    """Some clients read a stream to its end and take the last."""

    def answer(asked: Any) -> Reply:
        events = [event(result(asked["id"], each)) for each in (first, sites.rows(3000), sites.rows(3000))]
        return sites.stream_reply(*events)

    with _between(_once_listed(answer), tmp_path) as (address, _, _):
        response = post(address, call())
    assert len(sites.messages(response)) == 3
    assert len(response.content) < 60_000


def test_a_byte_order_mark_hides_nothing(tmp_path: Path) -> None:
    def answer(asked: Any) -> Reply:
        return json_reply(b"\xef\xbb\xbf" + msgspec.json.encode(result(asked["id"], sites.rows(3000))))

    with _between(_once_listed(answer), tmp_path) as (address, _, _):
        assert _is_small(post(address, call()))


@pytest.mark.parametrize(
    "members",
    [
        {"result": {"structuredContent": sites.rows(3000)["structuredContent"]}},
        {"error": {"code": -32000, "message": _LONG}},
    ],
    ids=["structure alone", "error"],
)
def test_what_a_stream_brings_for_a_request_nobody_knows_is_fitted(
    members: dict[str, Any], tmp_path: Path
) -> None:
    reply = sites.stream_reply(event({"jsonrpc": "2.0", "id": 77, **members}))
    with _between(_once_listed(lambda asked: reply), tmp_path) as (address, _, _), sites.client() as client:
        response = client.get(f"{address}/mcp", headers={"accept": "text/event-stream", "last-event-id": "1"})
    assert _is_small(response)
