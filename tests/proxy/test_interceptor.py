"""The interceptor on the frames that concern it: tool lists, calls, results, `envelope_read`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from mcp_envelope.proxy import frames
from mcp_envelope.proxy.interceptor import Pending, Requests
from mcp_envelope.proxy.streamable_http import request_key
from mcp_envelope.vault.ledger import Ledger

from .harness import META, NOTICE, ROWS, Talk, call, count, frame, request, result, rows, texts, tool, typed


@pytest.fixture
def talk(tmp_path: Path) -> Talk:
    return Talk(tmp_path)


def schema_of(entries: list[dict[str, Any]], name: str) -> Any:
    return next(entry["outputSchema"] for entry in entries if entry["name"] == name)


# -- lists --------------------------------------------------------------------------------------------------


def test_a_tool_list_announces_what_results_will_have(talk: Talk) -> None:
    plain, closed, own = talk.listed(tool("plain", x={"type": "integer"}), tool("closed", ROWS))
    assert plain["inputSchema"]["properties"]["tokenBudget"]["type"] == "integer"
    assert plain["inputSchema"]["properties"]["x"] == {"type": "integer"}
    assert "outputSchema" not in plain
    assert "_envelope" in closed["outputSchema"]["properties"]
    assert closed["outputSchema"]["additionalProperties"] is False
    assert own["name"] == "envelope_read"


def test_every_page_is_rewritten_and_our_tool_is_on_the_first_only(talk: Talk) -> None:
    talk.send(request(1, "tools/list"))
    [first], _ = talk.reply(result(1, tools=[tool("a", ROWS)], nextCursor=""))
    talk.send(request(2, "tools/list", cursor=""))
    [second], _ = talk.reply(result(2, tools=[tool("b", ROWS)]))
    names = [[entry["name"] for entry in json.loads(page)["result"]["tools"]] for page in (first, second)]
    assert names == [["a", "envelope_read"], ["b"]]
    assert b"_envelope" in second


def test_the_rest_of_a_tool_list_keeps_its_bytes(talk: Talk) -> None:
    talk.send(request(1, "tools/list"))
    entry = (
        rb'{"name":"t\u0061","inputSchema":{"type":"object","properties":{"n":{"minimum":1.0}}},"x":1e400}'
    )
    [shown], _ = talk.reply(b'{"id":1,"result":{"ttlMs":1.50,"tools":[%b]},"jsonrpc":"2.0"}' % entry)
    assert shown.startswith(b'{"id":1,"result":{"ttlMs":1.50,"tools":[{"name":"t\\u0061","inputSchema":')
    assert b'{"minimum":1.0}' in shown
    assert b'"x":1e400' in shown


def test_a_tool_keeps_a_token_budget_of_its_own(talk: Talk) -> None:
    talk.listed(tool("own", tokenBudget={"type": "string"}), tool("ours"))
    _, [onward] = talk.send(call(1, "own", {"tokenBudget": "mine"}))
    assert json.loads(onward)["params"]["arguments"] == {"tokenBudget": "mine"}
    _, [onward] = talk.send(call(2, "ours", {"a": 1, "tokenBudget": 200}))
    assert json.loads(onward)["params"]["arguments"] == {"a": 1}


def test_malformed_entries_do_not_affect_the_others(talk: Talk) -> None:
    deep: Any = {}
    for _ in range(300):
        deep = {"properties": {"a": deep}}
    strange = [
        5,
        {"name": 5},
        tool("odd", {"type": 17}),
        tool("deep", {"type": "object", **deep}),
        tool("good", ROWS),
    ]
    shown = talk.listed(*strange)  # type: ignore[arg-type]
    assert shown[:2] == strange[:2]
    assert shown[2]["outputSchema"] == {"type": 17}
    assert "_envelope" in schema_of(shown[4:], "good")["properties"]


def test_a_tool_with_a_schema_that_we_fail_on_is_listed_unchanged(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = talk.gateway.publish

    def broken(name: str, *more: Any) -> Any:
        if name == "bad":
            raise ZeroDivisionError
        return publish(name, *more)

    monkeypatch.setattr(talk.gateway, "publish", broken)
    bad, good, _ = talk.listed(tool("bad", ROWS), tool("good", ROWS))
    assert bad == tool("bad", ROWS)
    assert "_envelope" in good["outputSchema"]["properties"]


def test_a_tool_list_that_is_an_error_or_malformed_passes(talk: Talk) -> None:
    for answer in (
        frame({"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "no"}}),
        result(1, tools=5),
        frame({"id": 1, "result": []}),
    ):
        talk.send(request(1, "tools/list"))
        assert talk.reply(answer) == ([answer], [])


# -- results ------------------------------------------------------------------------------------------------


def test_a_result_that_fits_passes_byte_for_byte(talk: Talk) -> None:
    talk.listed(tool("t", ROWS))
    talk.send(call(1, "t"))
    answer = (
        b' {"id":1.0, "result" :{"content":[ ],"structuredContent": {"rows":[],"total":0.0}} ,"x":1e400}\r'
    )
    assert talk.reply(answer) == ([answer], [])


def test_a_typed_result_is_cut_in_both_lanes_and_valid(talk: Talk) -> None:
    entries = talk.listed(tool("t", ROWS))
    data = rows(2000)
    got = talk.called("t", {**typed(data), "_meta": {"mine": 1}, "extra": [1.0]})
    assert count(got["content"]) <= talk.tokens
    assert count(got["structuredContent"]) <= talk.tokens
    assert jsonschema_rs.is_valid(schema_of(entries, "t"), got["structuredContent"])
    kept = got["structuredContent"]["rows"]
    assert kept == data["rows"][: len(kept)]
    assert kept
    assert got["extra"] == [1.0]
    assert got["_meta"]["mine"] == 1
    notice = got["structuredContent"]["_envelope"]
    assert notice["dropped"] == [{"path": "/rows", "kept": len(kept), "total": 2000}]
    assert json.loads(got["content"][0]["text"])["_envelope"]["handle"] == notice["handle"]
    page = talk.read(notice["handle"], path="/rows", offset=len(kept))
    assert json.loads(page["content"][-1]["text"])[0] == data["rows"][len(kept)]


def test_rows_that_match_the_words_of_the_call_stay(talk: Talk) -> None:
    talk.listed(tool("t"))
    found = [{"n": n, "title": "Printer on fire" if n == 1500 else f"Ticket {n}"} for n in range(2000)]
    for arguments, stays in (({"query": "printer"}, True), ({"query": "scanner"}, False)):
        got = talk.called("t", typed({"found": found}), arguments)
        assert (1500 in [row["n"] for row in got["structuredContent"]["found"]]) == stays


def test_a_root_that_is_not_an_object_is_always_wrapped(talk: Talk) -> None:
    entries = talk.listed(tool("t", {"type": "array", "items": {"type": "integer"}}))
    schema = schema_of(entries, "t")
    for data in ([1, 2], list(range(5000))):
        got = talk.called("t", typed(data))
        assert got["structuredContent"]["result"][:2] == data[:2]
        assert jsonschema_rs.is_valid(schema, got["structuredContent"])
        assert count(got["structuredContent"]) <= talk.tokens


def test_images_and_links_are_kept(talk: Talk) -> None:
    talk.listed(tool("t"))
    image = {"type": "image", "data": "QUJD", "mimeType": "image/png"}
    link = {"type": "resource_link", "uri": "file:///x", "name": "x"}
    got = talk.called("t", {"content": [*texts("word " * 5000), image, link]})
    assert image in got["content"]
    assert link in got["content"]
    assert count(got["content"]) <= talk.tokens
    large = {**image, "data": "QUJD" * 5000}
    got = talk.called("t", {"content": [large, *texts("small")]})
    assert "image/png left out" in got["content"][1]["text"]
    assert got["content"][2]["text"] == "small"


def test_json_in_strings_stays_json(talk: Talk) -> None:
    talk.listed(
        tool("t", {"type": "object", "properties": {"result": {"type": "string"}}, "required": ["result"]})
    )
    inner = json.dumps([{"n": n, "text": "some words"} for n in range(1000)])
    got = talk.called("t", {"content": texts(inner), "structuredContent": {"result": inner}})
    assert json.loads(got["structuredContent"]["result"])[0] == {"n": 0, "text": "some words"}
    assert count(got["structuredContent"]) <= talk.tokens
    got = talk.called("t", {"content": texts(inner)})
    assert json.loads(got["content"][1]["text"])[0] == {"n": 0, "text": "some words"}


def test_a_closed_draft_07_schema(talk: Talk) -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"r": ROWS},
        "$ref": "#/definitions/r",
    }
    entries = talk.listed(tool("t", schema))
    got = talk.called("t", typed(rows(1000)))
    assert "_envelope" in got["structuredContent"]
    assert jsonschema_rs.is_valid(schema_of(entries, "t"), got["structuredContent"])


def test_error_results_are_fitted_too(talk: Talk) -> None:
    talk.listed(tool("t", ROWS))
    trace = "".join(f"line {n} of the trace\n" for n in range(3000)) + "the cause"
    got = talk.called("t", {"content": texts(trace), "isError": True})
    assert got["isError"] is True
    assert got["content"][1]["text"].startswith("line 0")
    assert "the cause" in got["content"][1]["text"]
    assert count(got["content"]) <= talk.tokens
    # A failure's structure is not held to the schema; a cut one might be, by some clients, so there is none.
    got = talk.called("t", {"content": texts("it broke"), "structuredContent": rows(2000), "isError": True})
    assert "structuredContent" not in got
    assert got["isError"] is True
    assert got["content"][1]["text"] == "it broke"
    assert count(got["content"]) <= talk.tokens
    handle = got["_meta"][NOTICE]["handle"]
    assert talk.read(handle, path="/content/1/text/total")["content"][-1]["text"] == "2000"


def test_a_json_rpc_error_is_cut_and_stored_whole(talk: Talk) -> None:
    talk.listed(tool("t"))
    talk.send(call(1, "t"))
    error = {"code": -32000, "message": "start " + "x" * 20_000 + " end", "data": {"a": 1}}
    [shown], _ = talk.reply(frame({"jsonrpc": "2.0", "id": 1, "error": error}))
    got = json.loads(shown)["error"]
    assert got["code"] == -32000
    assert got["message"].startswith("start xxx")
    assert count(got) <= talk.tokens
    handle = got["message"].split('handle="')[1].split('"')[0]
    assert talk.read_all(handle, "/message") == error["message"]
    assert json.loads(talk.read(handle, path="/data")["content"][0]["text"]) == error["data"]


def test_an_error_that_is_nested_too_deeply_to_be_opened_is_cut(talk: Talk) -> None:
    talk.send(call(1, "t"))
    deep = "[" * 5000 + "]" * 5000
    answer = f'{{"jsonrpc":"2.0","id":1,"more":{deep},"error":{{"code":5,"message":"{"x" * 20_000}"}}}}'
    [shown], _ = talk.reply(answer.encode())
    got = json.loads(shown)
    assert (got["id"], got["error"]["code"]) == (1, 5)
    assert count(got["error"]) <= talk.tokens


def test_a_large_tool_list_that_the_proxy_requested_itself_is_not_for_the_client(talk: Talk) -> None:
    shown, [asked] = talk.send(call(1, "t", {"tokenBudget": 300, "x": "a"}))
    assert (shown, json.loads(asked)["method"]) == ([], "tools/list")
    entry = tool("t", x={"type": "string", "description": "d" * 5000})
    shown, [sent] = talk.reply(result(json.loads(asked)["id"], tools=[entry]))
    assert shown == []
    assert json.loads(sent)["params"]["arguments"] == {"x": "a"}


def test_it_is_known_whether_the_client_still_waits(talk: Talk) -> None:
    waits = [talk.wire.expects_answers]
    talk.send(call(1, "t"))
    waits.append(talk.wire.expects_answers)
    talk.reply(result(1, content=[]))
    assert [*waits, talk.wire.expects_answers] == [False, True, False]


@pytest.mark.parametrize(
    "answer",
    [
        {"toolResult": "x" * 50_000},
        {"content": "x" * 50_000},
        {"content": None, "structuredContent": {"a": "x" * 50_000}},
        {"content": [5, None, "x" * 50_000]},
        {"content": [{"type": "text", "text": 7, "more": "x" * 50_000}], "isError": "no"},
        {"structuredContent": "x" * 50_000},
        {"resultType": 5, "content": [{"type": "unheard of", "data": "x" * 50_000}]},
    ],
)
def test_malformed_results_are_fitted_as_well(talk: Talk, answer: dict[str, Any]) -> None:
    talk.listed(tool("t", ROWS), tool("u"))
    for name in ("t", "u"):
        got = talk.called(name, answer)
        assert count(got["content"]) <= talk.tokens
        assert count(got.get("structuredContent")) <= talk.tokens
        assert "toolResult" not in got
        if name == "t":
            assert "structuredContent" not in got


@pytest.mark.parametrize(
    "kind", [{"resultType": "input_required"}, {"resultType": "task"}, {"task": {"taskId": "a"}}]
)
def test_what_is_not_a_result_yet_passes(talk: Talk, kind: dict[str, Any]) -> None:
    talk.listed(tool("t", ROWS))
    talk.send(call(1, "t"))
    answer = result(1, **kind, inputRequests={"x": "y" * 50_000})
    assert talk.reply(answer) == ([answer], [])


def test_the_result_of_a_task_is_a_result(talk: Talk) -> None:
    entries = talk.listed(tool("t", ROWS))
    talk.send(call(1, "t", task={"ttl": 1}))
    talk.reply(result(1, task={"taskId": "a", "status": "working"}))
    talk.send(request(2, "tasks/result", taskId="a"))
    [shown], _ = talk.reply(result(2, **typed(rows(2000))))
    got = json.loads(shown)["result"]
    assert count(got["structuredContent"]) <= talk.tokens
    assert jsonschema_rs.is_valid(schema_of(entries, "t"), got["structuredContent"])
    talk.send(call(3, "t"))
    talk.reply(result(3, resultType="task", taskId="b", status="working"))
    talk.send(request(4, "tasks/get", taskId="b"))
    working = result(4, resultType="complete", taskId="b", status="working")
    assert talk.reply(working) == ([working], [])
    talk.send(request(5, "tasks/get", taskId="b"))
    [shown], _ = talk.reply(result(5, taskId="b", status="completed", result=typed(rows(2000))))
    got = json.loads(shown)["result"]
    assert got["status"] == "completed"
    assert count(got["result"]["structuredContent"]) <= talk.tokens


def test_a_budget_for_one_call(talk: Talk) -> None:
    talk.listed(tool("t"))
    small = talk.called("t", {"content": texts("word " * 5000)}, {"tokenBudget": 150})
    large = talk.called("t", {"content": texts("word " * 5000)}, {"tokenBudget": 2000})
    assert count(small["content"]) <= 150
    assert 1500 < count(large["content"]) <= 2000
    strange = talk.called("t", {"content": texts("fine")}, {"tokenBudget": "lots"})
    assert "not a number" in json.dumps(strange)


# -- envelope_read ------------------------------------------------------------------------------------------


def test_envelope_read_is_answered_by_the_proxy(talk: Talk) -> None:
    talk.listed(tool("t"))
    text = "".join(f"line {n}\n" for n in range(5000))
    got = talk.called("t", {"content": texts(text)})
    handle = got["_meta"][NOTICE]["handle"]
    assert handle in got["content"][0]["text"]
    assert talk.read_all(handle, "/content/0/text") == text
    # Without a path all of it is meant: a text so long that only its beginning is loaded.
    back, onward = talk.send(call(9, "envelope_read", {"handle": handle}, _meta=META))
    assert not onward
    assert json.loads(back[0])["result"]["content"][-1]["text"].startswith("line 0\nline 1\n")
    assert json.loads(back[0])["result"]["resultType"] == "complete"


@pytest.mark.parametrize(
    "arguments",
    [{}, {"handle": 5}, {"handle": "nobody"}, {"handle": "x", "offset": -1}, {"handle": "x", "path": []}],
)
def test_envelope_read_reports_wrong_arguments(talk: Talk, arguments: dict[str, Any]) -> None:
    talk.listed(tool("t"))
    [back], _ = talk.send(call(9, "envelope_read", arguments))
    assert json.loads(back)["result"]["isError"] is True


def test_envelope_read_accepts_any_bytes(talk: Talk) -> None:
    talk.listed(tool("t"))
    for arguments in (
        b"null",
        b"5",
        b'{"handle":1e400}',
        b'{"handle":"\xff"}',
        b'{"handle":' + b"[" * 5000 + b"]" * 5000 + b"}",
    ):
        sent = b'{"id":1,"method":"tools/call","params":{"name":"envelope_read","arguments":%b}}' % arguments
        back, onward = talk.send(sent)
        assert len(back) + len(onward) == 1


def test_stored_results_are_resources(talk: Talk) -> None:
    talk.listed(tool("t"))
    got = talk.called("t", {"content": texts("word " * 5000)})
    uri = f"envelope://{got['_meta'][NOTICE]['handle']}/content/0"
    [back], onward = talk.send(request(3, "resources/read", uri=uri, _meta=META))
    assert not onward
    read = json.loads(back)["result"]
    assert read["contents"][0]["text"] == "word " * 5000
    assert read["resultType"] == "complete"
    [back], onward = talk.send(request(4, "resources/read", uri="envelope://nobody"))
    assert json.loads(back)["error"]["code"] == -32602
    other = request(5, "resources/read", uri="file:///x")
    assert talk.send(other) == ([], [other])


def test_a_server_with_an_envelope_is_left_alone(talk: Talk, tmp_path: Path) -> None:
    talk.send(request(1, "tools/list"))
    listed = result(1, tools=[tool("t", ROWS), tool("envelope_read")])
    assert talk.reply(listed) == ([listed], [])
    for sent in (call(2, "envelope_read", {"handle": "x"}), call(3, "t", {"tokenBudget": 200})):
        assert talk.send(sent) == ([], [sent])
    answer = result(3, content=texts("x" * 100_000))
    assert talk.reply(answer) == ([answer], [])


def test_a_proxy_in_front_of_a_proxy(tmp_path: Path) -> None:
    """The outer one asks the inner one before it says that it does not know a handle."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    inner, outer = Talk(tmp_path / "a"), Talk(tmp_path / "b")
    inner.listed(tool("t"))
    handle = inner.called("t", {"content": texts("word " * 5000)})["_meta"][NOTICE]["handle"]
    back, [own] = outer.send(call(5, "envelope_read", {"handle": handle}))
    assert not back
    _, [own] = inner.send(own)
    [listed], _ = inner.reply(result(json.loads(own)["id"], tools=[tool("t")]))
    back, [onward] = outer.reply(listed)
    assert not back
    assert onward == call(5, "envelope_read", {"handle": handle})


# -- observing ----------------------------------------------------------------------------------------------


def test_observing_only_counts(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    talk = Talk(tmp_path, observe=True, ledger=ledger, vault="none")
    for sent in (
        request(1, "tools/list"),
        call(2, "t", {"tokenBudget": 100}),
        call(3, "envelope_read", {"handle": "x"}),
        request(4, "resources/read", uri="envelope://x"),
    ):
        assert talk.send(sent) == ([], [sent])
    for answer in (
        result(2, **typed(rows(2000))),
        result(1, tools=[tool("t", ROWS)]),
        result(3, content=texts("x" * 90_000)),
        frame({"id": 4, "error": {"code": 1, "message": "x" * 90_000}}),
    ):
        assert talk.reply(answer) == ([answer], [])
    talk.send(call(5, "t"))
    assert talk.wire.lost("gone") == []
    ledger.flush()
    assert ledger.totals() == [], "nothing was saved"
    [total] = ledger.totals(observed=True)
    assert total.calls == 2
    assert total.cut == 2
    assert total.tokens_saved > 20_000
    assert all(entry.observed for entry in ledger.calls())
    ledger.close()


# -- frames that are not quite as they should be -------------------------------------------------------------

LONG = {"content": [{"type": "text", "text": "a line of words\n" * 3000}]}


@pytest.mark.parametrize(
    "spelled",
    [
        b'{"jsonrpc":"2.0","id":7,"result":%b,"error":null}',
        b'{"jsonrpc":"2.0","id":7,"error":null,"result":%b}',
        b'{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"x"},"result":%b}',
        b'{"jsonrpc":"2.0","id":7,"result":%b,"mean":NaN}',
        b'{"jsonrpc":"2.0","id":7,"result":%b,"least":-Infinity,"text":"a \\" NaN"}',
        b'[{"jsonrpc":"2.0","id":7,"result":%b,"mean":NaN}]',
    ],
)
def test_nothing_escapes_the_budget(talk: Talk, spelled: bytes) -> None:
    talk.send(call(7, "log"))
    [shown], _ = talk.reply(spelled % json.dumps(LONG).encode())
    assert len(shown) < 4 * talk.tokens + 600


SHORT = {"content": [{"type": "text", "text": "short"}]}


@pytest.mark.parametrize(
    "message",
    [
        {"id": 7, "Result": LONG},
        {"id": 7, "result": SHORT, "Result": LONG},
        {"id": 7, "RESULT": LONG, "result": SHORT},
        {"id": 7, "re\u017fult": LONG},
        {"ID": 7, "result": LONG},
        {"id": 7, "Error": {"code": 1, "message": "a line of words\n" * 3000}},
        {"id": 7, "result": {"Content": LONG["content"]}},
        {"id": 7, "result": {**SHORT, "CONTENT": LONG["content"]}},
        {"id": 7, "result": {"Content": LONG["content"], **SHORT}},
        {"id": 7, "result": {**SHORT, "resultType": "task", "taskId": "t", "Content": LONG["content"]}},
        {"id": 7, "result": {**SHORT, "StructuredContent": {"a": "a line of words\n" * 3000}}},
        {"id": 7, "result": {**SHORT, "\u017ftructuredContent": {"a": "a line of words\n" * 3000}}},
        {"id": 7, "result": {**SHORT, "deep": json.loads("[" * 300 + "]" * 300)}, "Result": LONG},
    ],
)
def test_nothing_escapes_for_readers_that_disregard_case(talk: Talk, message: dict[str, Any]) -> None:
    """As Go's `encoding/json` does (CVE-2026-27896)."""
    talk.listed(tool("log"))
    talk.send(call(7, "log"))
    [shown], _ = talk.reply(frame({"jsonrpc": "2.0", **message}))
    assert len(shown) < 4 * talk.tokens + 1200
    for holder in (json.loads(shown), json.loads(shown).get("result", {})):
        assert len({name.casefold() for name in holder}) == len(holder)


def test_other_members_beside_those_of_the_protocol_keep_their_bytes(talk: Talk) -> None:
    for answer in (
        frame({"jsonrpc": "2.0", "id": 7, "result": {**SHORT, "Contents": 1}, "Results": 1}),
        b'{"jsonrpc": "2.0","id":7,"x\xff":1,"result":{"content":[],"y\xff":2}}',
    ):
        talk.send(call(7, "log"))
        assert talk.reply(answer) == ([answer], [])


def test_nan_and_infinity_become_null_only_in_a_result_that_is_cut(talk: Talk) -> None:
    small = b'{"jsonrpc":"2.0","id":7,"result":{"content":[],"structuredContent":{"mean":NaN}}}'
    talk.listed({"name": "mean", "inputSchema": {}})
    talk.send(call(7, "mean"))
    assert talk.reply(small) == ([small], [])
    talk.send(call(8, "mean"))
    many = b",".join([b"-Infinity"] * 5000)
    large = b'{"id":8,"result":{"content":[],"structuredContent":{"means":[NaN,%b],"say":"NaN"}}}' % many
    [shown], _ = talk.reply(large)
    means = json.loads(shown)["result"]["structuredContent"]
    assert set(means["means"]) == {None}
    assert means["say"] == "NaN"


def test_a_tool_list_with_infinity_is_rewritten(talk: Talk) -> None:
    talk.send(request(1, "tools/list"))
    [shown], _ = talk.reply(
        b'{"id":1,"result":{"tools":[{"name":"a","inputSchema":{"properties":{"most":{"default":Infinity}}}}]}}'
    )
    assert [tool["name"] for tool in json.loads(shown)["result"]["tools"]] == ["a", "envelope_read"]


def test_a_call_with_nan_is_a_call(talk: Talk) -> None:
    asked = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"log","arguments":{"x":NaN}}}'
    assert talk.send(asked) == ([], [asked])
    [shown], _ = talk.reply(result(7, **LONG))
    assert len(shown) < 4 * talk.tokens + 600


def test_secrets_in_a_json_rpc_error_are_masked(tmp_path: Path) -> None:
    talk = Talk(tmp_path, REDACT="tokens", vault="none")
    token = "glpat-" + "a1B2-c3D4e5_F6g7H8i9"
    talk.send(call(7, "log"))
    [shown], _ = talk.reply(frame({"id": 7, "error": {"code": 1, "message": f"denied for {token}"}}))
    assert json.loads(shown)["error"] == {"code": 1, "message": "denied for [redacted:gitlab-token]"}


def test_our_tool_is_listed_once_if_the_server_has_it_on_a_later_page(talk: Talk) -> None:
    talk.send(request(1, "tools/list"))
    [first], _ = talk.reply(result(1, tools=[{"name": "a", "inputSchema": {}}], nextCursor="x"))
    talk.send(request(2, "tools/list", cursor="x"))
    later = [{"name": "b", "inputSchema": {}}, {"name": "envelope_read", "inputSchema": {}}]
    [second], _ = talk.reply(result(2, tools=later))
    names = [tool["name"] for page in (first, second) for tool in json.loads(page)["result"]["tools"]]
    assert sorted(names) == ["a", "b", "envelope_read"]
    # It is ours: the client was told so.
    back, onward = talk.send(call(3, "envelope_read", {"handle": "x"}))
    assert back
    assert not onward


@pytest.mark.parametrize("told", ["a list", "a handle"])
def test_a_server_that_lists_our_tool_in_mid_session_gets_nothing(talk: Talk, told: str) -> None:
    large = {"content": texts("word " * 5000)}
    if told == "a list":
        talk.listed(tool("t"))
    handle = talk.called("t", large)["_meta"][NOTICE]["handle"]
    named = [each["name"] for each in talk.listed(tool("t"), tool("envelope_read"), identifier="again")]
    assert named == ["t", "envelope_read"]
    assert "word" in talk.read(handle)["content"][-1]["text"]
    for asked in (call(8, "envelope_read", {"handle": "x" * 26}), call(9, "envelope_read", {})):
        back, onward = talk.send(asked)
        assert back
        assert not onward
    [_shown], onward = talk.send(request(10, "resources/read", uri=f"envelope://{handle}"))
    assert not onward
    assert talk.called("t", large)["_meta"][NOTICE]["truncated"]


def test_a_server_with_an_envelope_is_not_sent_our_handles(talk: Talk, tmp_path: Path) -> None:
    """Another replica may have made them."""
    handle = talk.called("t", {"content": texts("word " * 5000)})["_meta"][NOTICE]["handle"]
    other = Talk(tmp_path)
    other.listed(tool("t"), tool("envelope_read"))
    assert "word" in other.read(handle)["content"][-1]["text"]
    [_shown], onward = other.send(request(10, "resources/read", uri=f"envelope://{handle}"))
    assert not onward
    asked = request(11, "resources/read", uri="envelope://theirs")
    assert other.send(asked) == ([], [asked])


def test_an_empty_cursor_is_a_cursor(talk: Talk) -> None:
    talk.send(request(1, "tools/list"))
    talk.reply(result(1, tools=[{"name": "a", "inputSchema": {}}], nextCursor=""))
    talk.send(call(2, "b"))
    shown, asked = talk.reply(result(2, content=[], structuredContent=[1]))
    assert not shown
    assert json.loads(asked[0])["method"] == "tools/list"


def test_a_failure_has_no_structure_that_breaks_the_published_schema(talk: Talk) -> None:
    talk.listed({"name": "five", "inputSchema": {}, "outputSchema": {"type": "integer"}})
    failed = talk.called("five", {"content": [], "structuredContent": 5, "isError": True})
    assert failed["isError"] is True
    assert "structuredContent" not in failed
    assert "5" in failed["content"][0]["text"]


# -- when the proxy itself fails ----------------------------------------------------------------------------


@pytest.mark.parametrize("observe", [False, True])
def test_a_bug_of_ours_does_not_let_a_result_pass_unseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, observe: bool
) -> None:
    def broken(*_: object, **__: object) -> object:
        raise RuntimeError("a bug of ours")

    talk = Talk(tmp_path, observe=observe)
    monkeypatch.setattr(talk.gateway, "seal", broken)
    talk.send(call(7, "log"))
    answer = result(7, content=texts("ghp_secret " * 90_000))
    [shown], _ = talk.reply(answer)
    if observe:
        assert shown == answer
        return
    # Nothing passes unseen.
    got = json.loads(shown)
    assert got["id"] == 7
    assert got["result"]["isError"] is True
    assert json.loads(got["result"]["content"][0]["text"])["_envelope"]["error"]["code"] == "INTERNAL"
    assert b"ghp_" not in shown


def test_what_is_not_utf8_beside_a_cut_result_is_replaced(talk: Talk) -> None:
    talk.send(call(7, "log"))
    reply = result(7, content=texts("x" * 9000), _meta={"who": "HERE"}).replace(b"HERE", b"\xff\xfe")
    [shown], _ = talk.reply(reply)
    assert json.loads(shown)["result"]["_meta"]["who"] == "\ufffd\ufffd"


@pytest.mark.parametrize("key", [b"\xff", b"\xed\xa0\x80"])
def test_a_key_that_is_not_utf8_costs_a_cut_result_no_other_member(talk: Talk, key: bytes) -> None:
    talk.send(call(7, "log"))
    members = {"isError": True, "KEY": 1, "good": 2, "_meta": {"KEY": 1, "progress": 3}}
    reply = result(7, **members, content=texts("x" * 9000)).replace(b"KEY", key)
    [shown], _ = talk.reply(reply)
    found = json.loads(shown)["result"]
    assert (found["isError"], found["good"], found["_meta"]["progress"]) == (True, 2, 3)


@pytest.mark.parametrize(
    ("asked", "answered"),
    [(5, "5"), ("5", 5), (5, "05"), (5, " 5"), (0, ""), (-1, "-1"), (5, "5.0"), (5, "0x5")],
)
def test_an_id_in_another_spelling_is_the_same_to_clients(talk: Talk, asked: Any, answered: Any) -> None:
    talk.send(call(asked, "t"))
    [shown], _ = talk.reply(result(answered, content=texts("x" * 50_000)))
    assert count(json.loads(shown)["result"]["content"]) <= talk.tokens
    assert json.loads(shown)["id"] == answered


def test_ids_that_differ_in_spelling_alone_are_told_apart(talk: Talk) -> None:
    talk.send(call(5, "t"))
    talk.send(request("5", "prompts/list"))
    prompts = result("5", prompts=["x" * 50_000])
    assert talk.reply(prompts) == ([prompts], [])
    [shown], _ = talk.reply(result(5, content=texts("x" * 50_000)))
    assert len(shown) < 10_000


@pytest.mark.parametrize("kind", ["x-unheard-of", "input_required", "task", "Complete", ""])
def test_lanes_are_fitted_whatever_the_result_type(talk: Talk, kind: str) -> None:
    got = talk.called("t", {"resultType": kind, "content": texts("x" * 50_000)})
    assert count(got["content"]) <= talk.tokens


def test_an_unknown_result_type_without_lanes_is_fitted(talk: Talk) -> None:
    got = talk.called("t", {"resultType": "x-unheard-of", "more": "x" * 50_000})
    assert count(got) <= talk.tokens + 400
    small = result(7, resultType="x-unheard-of", more="x")
    talk.send(call(7, "t"))
    assert talk.reply(small) == ([small], [])


def test_the_result_of_an_unknown_task_is_fitted(talk: Talk) -> None:
    talk.send(request(2, "tasks/result", taskId="forgotten"))
    [shown], _ = talk.reply(result(2, content=texts("x" * 50_000)))
    assert count(json.loads(shown)["result"]["content"]) <= talk.tokens


@pytest.mark.parametrize("dialect", ["native", "ctxo", "transcend", "gel", "scalpel"])
@pytest.mark.parametrize("profile", ["minimal", "debug"])
def test_the_metadata_of_a_request_is_not_repeated_in_its_result(
    dialect: str, profile: str, tmp_path: Path
) -> None:
    talk = Talk(tmp_path, DIALECT=dialect, PROFILE=profile)
    meta = {"callId": "call-ours", "progressToken": "p-token", "io.example/trace": {"user": "u-1234"}}
    talk.send(call(7, "t", _meta=meta))
    shown, asked = talk.reply(result(7, **typed(rows(2000))))
    for own in asked:
        assert b"call-ours" not in own
        shown, _ = talk.reply(result(json.loads(own)["id"], tools=[tool("t", ROWS)]))
    assert len(shown) == 1
    for secret in (b"call-ours", b"p-token", b"u-1234"):
        assert secret not in shown[0]


@pytest.mark.parametrize("method", ["tools/call", "notifications/x", 7, None])
@pytest.mark.parametrize("member", ["result", "error"])
def test_a_response_with_a_method_is_fitted_because_some_read_it(
    talk: Talk, method: Any, member: str
) -> None:
    words = "word " * 9000
    outcome = {"content": texts(words)} if member == "result" else {"code": -32000, "message": words}
    talk.listed(tool("f"))
    talk.send(call(5, "f"))
    [shown], _ = talk.reply(frame({"jsonrpc": "2.0", "id": 5, "method": method, member: outcome}))
    assert len(shown) < 4000


def test_what_a_stream_for_one_request_says_under_another_id_is_its_answer(talk: Talk) -> None:
    """Clients take it for that."""
    talk.listed(tool("rows", ROWS))
    asked = call(7, "rows")
    talk.send(asked)
    foreign = result(8, structuredContent=rows(2000), content=[])
    [shown], _ = talk.reply(foreign)
    assert shown == foreign
    talk.wire.answers = request_key(frames.read(asked))
    [shown], _ = talk.reply(foreign)
    assert len(shown) < len(foreign)
    assert json.loads(shown)["id"] == 8
    assert json.loads(shown)["result"]["structuredContent"]["_envelope"]["truncated"]


@pytest.mark.parametrize("rest", [b"}", b" x", b'\n{"jsonrpc":"2.0"}'])
def test_a_result_with_something_after_it_is_fitted(rest: bytes, talk: Talk) -> None:
    """Java's client takes no notice of what follows a message."""
    talk.listed(tool("rows"))
    talk.send(call(1, "rows"))
    [shown], _ = talk.reply(result(1, **rows(3000)) + rest)
    assert len(shown) < 20_000
    assert json.loads(shown)["id"] == 1
    talk.send(call(2, "rows"))
    small = result(2, **rows(1)) + rest
    assert talk.reply(small) == ([small], [])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"listening\r", b""),
        (b'{"jsonrpc":"2.0","method":"notifications/x"}\r', b"\r"),
        (b'[{"jsonrpc":"2.0","method":"notifications/x"}]\r\r', b"\rdone"),
        (b'{"jsonrpc":"2.0","method":"notifications/x","params":\r', b"\r}\r"),
    ],
)
def test_nothing_escapes_to_readers_that_end_a_line_at_a_carriage_return(
    before: bytes, after: bytes, talk: Talk
) -> None:
    """Java's client does, as do C#'s and Go's."""
    talk.listed(tool("f"))
    talk.send(call(5, "f"))
    shown, _ = talk.wire.from_line(before + result(5, content=texts("word " * 9000)) + after)
    read = [line for each in shown for line in each.removesuffix(b"\r").split(b"\r")]
    assert not any(line.startswith(b'{"jsonrpc":"2.0","id":5') and len(line) > 4000 for line in read)
    assert b"notifications/x" not in before or any(b"notifications/x" in line for line in read)


def test_a_carriage_return_at_the_end_of_a_line_stays(talk: Talk) -> None:
    for line in (result(5, content=texts("words")) + b"\r", b"listening\r", b"\r", b""):
        assert talk.wire.from_line(line) == ([line], [])


def test_a_request_that_was_answered_is_forgotten() -> None:
    requests, key = Requests(), frames.id_key(b"1")
    pending = [Pending("tools/call", b"1"), Pending("tools/call", b"1")]
    for each in pending:
        requests.add(key, each)
    # Ids should not be used twice; if one is, answers are taken in the order of the requests.
    assert [requests.take(key) for _ in range(4)] == [*pending, None, None]
    assert not requests
    assert key not in requests


def test_a_client_may_use_an_id_again_and_again() -> None:
    requests, key = Requests(), frames.id_key(b"1")
    for number in range(10_001):
        pending = Pending("tools/list", b"1", is_first_page=number % 2 == 0)
        requests.add(key, pending)
        assert requests.take(key) is pending


def test_only_the_latest_ten_thousand_requests_wait_for_what_never_comes() -> None:
    requests, first, other = Requests(), frames.id_key(b"1"), frames.id_key(b"2")
    requests.add(first, Pending("ping", b"1"))
    for _ in range(10_001):
        requests.add(other, Pending("ping", b"2"))
    assert first not in requests
    taken = 0
    while requests.take(other):
        taken += 1
    assert taken == 10_000
