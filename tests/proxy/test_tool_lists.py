"""Results and calls that need a tool list which nobody has requested yet, and servers that die meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .harness import META, ROWS, Talk, call, count, frame, request, result, rows, texts, tool, typed


@pytest.fixture
def talk(tmp_path: Path) -> Talk:
    return Talk(tmp_path)


def only(moves: tuple[list[bytes], list[bytes]], side: int) -> bytes:
    assert not moves[1 - side]
    [data] = moves[side]
    return data


def asked(data: bytes) -> Any:
    message = json.loads(data)
    assert message["method"] == "tools/list"
    assert isinstance(message["id"], str)
    return message


def test_a_typed_result_before_any_list(talk: Talk) -> None:
    talk.send(call(1, "t"))
    own = asked(only(talk.reply(result(1, **typed(rows(2000)))), 1))
    assert "params" not in own
    shown = only(talk.reply(result(own["id"], tools=[tool("t", ROWS)])), 0)
    got = json.loads(shown)["result"]
    assert count(got["structuredContent"]) <= talk.tokens
    assert got["structuredContent"]["_envelope"]["truncated"] is True
    # Now it is known, and nobody is asked again.
    assert talk.called("t", typed(rows(2000)))["structuredContent"]["total"] == 2000


def test_a_small_typed_result_waits_too_because_it_may_have_to_be_wrapped(talk: Talk) -> None:
    talk.send(call(1, "t"))
    own = asked(only(talk.reply(result(1, **typed([1, 2]))), 1))
    shown = only(talk.reply(result(own["id"], tools=[tool("t", {"type": "array"})])), 0)
    assert json.loads(shown)["result"]["structuredContent"] == {"result": [1, 2]}


def test_text_does_not_wait(talk: Talk) -> None:
    talk.send(call(1, "t"))
    shown = only(talk.reply(result(1, content=texts("x" * 50_000))), 0)
    assert count(json.loads(shown)["result"]["content"]) <= talk.tokens


def test_a_stateless_list_request_says_who_sends_it(talk: Talk) -> None:
    meta = {**META, "progressToken": 5, "io.modelcontextprotocol/related-task": {"taskId": "a"}}
    talk.send(call(1, "t", _meta=meta))
    own = asked(only(talk.reply(result(1, **typed(rows(2000)), resultType="complete")), 1))
    assert own["params"] == {"_meta": META}
    second = asked(only(talk.reply(result(own["id"], tools=[], nextCursor="b")), 1))
    assert second["params"] == {"cursor": "b", "_meta": META}
    assert second["id"] != own["id"]
    shown = only(talk.reply(result(second["id"], tools=[tool("t", ROWS)])), 0)
    assert json.loads(shown)["result"]["structuredContent"]["_envelope"]["truncated"] is True


def test_many_wait_for_one_list_and_proceed_in_order(talk: Talk) -> None:
    talk.send(call(1, "t"))
    own = asked(only(talk.reply(result(1, **typed(rows(500)))), 1))
    for number in range(2, 6):
        talk.send(call(number, "t"))
        assert talk.reply(result(number, **typed(rows(500)))) == ([], [])
    assert talk.send(call(6, "t", {"tokenBudget": 200})) == ([], [])
    back, onward = talk.reply(result(own["id"], tools=[tool("t", ROWS)]))
    assert [json.loads(each)["id"] for each in back] == [1, 2, 3, 4, 5]
    assert onward == [call(6, "t", {})]


@pytest.mark.parametrize(
    "answer",
    [
        {"error": {"code": 1, "message": "no"}},
        {"error": {"code": 1, "message": "not now (-32601)", "data": {"code": -32601}}},
        {"error": {"message": "a code of -32601, but none that is said"}},
        {"result": {"tools": 5}},
        {"result": 7},
    ],
)
def test_nobody_waits_after_a_list_request_has_failed(talk: Talk, answer: dict[str, Any]) -> None:
    talk.send(call(1, "t"))
    own = asked(only(talk.reply(result(1, **typed(rows(2000)))), 1))
    shown = only(talk.reply(frame({"jsonrpc": "2.0", "id": own["id"], **answer})), 0)
    got = json.loads(shown)["result"]
    # Nobody knows what the tool promised, so nothing is promised to conform.
    assert "structuredContent" not in got
    assert count(got["content"]) <= talk.tokens
    assert json.loads(got["content"][0]["text"])["rows"][0] == {"id": 0, "name": "row number 0"}
    # A refusal says nothing of the tools: the next one asks again.
    talk.send(call(2, "t"))
    asked(only(talk.reply(result(2, **typed(rows(2000)))), 1))


def test_a_server_without_tool_lists_has_no_schemas(talk: Talk) -> None:
    talk.send(call(1, "t"))
    own = asked(only(talk.reply(result(1, **typed(rows(2000)))), 1))
    refused = {"jsonrpc": "2.0", "id": own["id"], "error": {"message": "no such method", "code": -32601.0}}
    shown = only(talk.reply(frame(refused)), 0)
    assert json.loads(shown)["result"]["structuredContent"]["_envelope"]["truncated"] is True
    # It is not asked again.
    assert "structuredContent" in talk.called("t", typed(rows(2000)))


def test_a_server_whose_pages_never_end(talk: Talk) -> None:
    talk.send(call(1, "t"))
    [own] = [asked(only(talk.reply(result(1, **typed(rows(2000)))), 1))]
    for turn in range(2):
        back, onward = talk.reply(result(own["id"], tools=[], nextCursor=""))
        assert bool(back) == bool(turn)
        own = json.loads(onward[0]) if onward else own


def test_a_second_response_to_a_list_request_is_ignored(talk: Talk) -> None:
    talk.send(call(1, "t"))
    own = asked(only(talk.reply(result(1, **typed(rows(2000)))), 1))
    answer = result(own["id"], tools=[tool("t", ROWS)])
    assert len(talk.reply(answer)[0]) == 1
    assert talk.reply(answer) == ([], [])
    # Nor does it answer the next question.
    talk.reply(frame({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))
    talk.send(call(2, "new"))
    again = asked(only(talk.reply(result(2, **typed(rows(2000)))), 1))
    assert talk.reply(answer) == ([], [])
    assert len(talk.reply(result(again["id"], tools=[tool("new", ROWS)]))[0]) == 1


def test_a_call_with_a_budget_waits_until_the_tool_is_known(talk: Talk) -> None:
    own = asked(only(talk.send(call(1, "mine", {"tokenBudget": 150})), 1))
    assert talk.send(call(2, "ours", {"tokenBudget": 150})) == ([], [])
    holding = [talk.wire.list_requests.holds_requests]
    tools = [tool("mine", tokenBudget={"type": "integer"}), tool("ours")]
    back, onward = talk.reply(result(own["id"], tools=tools))
    assert not back
    assert onward == [call(1, "mine", {"tokenBudget": 150}), call(2, "ours", {})]
    assert [*holding, talk.wire.list_requests.holds_requests] == [True, False]
    [shown], _ = talk.reply(result(2, content=texts("x " * 20_000)))
    assert count(json.loads(shown)["result"]["content"]) <= 150


def test_a_call_that_waits_can_be_cancelled(talk: Talk) -> None:
    own = asked(only(talk.send(call("a", "t", {"tokenBudget": 150})), 1))
    cancelled = frame({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "a"}})
    assert talk.send(cancelled) == ([], [])
    assert talk.reply(result(own["id"], tools=[tool("t")])) == ([], [])


def test_a_cancelled_call_that_is_answered_anyway_is_fitted(talk: Talk) -> None:
    talk.listed(tool("t"))
    talk.send(call(1, "t"))
    cancelled = frame({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1.0}})
    assert talk.send(cancelled) == ([], [cancelled])
    [shown], _ = talk.reply(result(1, content=texts("x" * 50_000)))
    assert len(shown) < 5000


def test_a_tool_list_that_changes(talk: Talk) -> None:
    talk.listed(tool("t"))
    changed = frame({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    assert talk.reply(changed) == ([changed], [])
    talk.send(call(1, "new"))
    own = asked(only(talk.reply(result(1, **typed(rows(2000)))), 1))
    shown = only(talk.reply(result(own["id"], tools=[tool("new", ROWS)])), 0)
    assert json.loads(shown)["result"]["structuredContent"]["_envelope"]["truncated"] is True


# -- the end ------------------------------------------------------------------------------------------------


def test_every_pending_request_is_answered_when_the_server_dies(talk: Talk) -> None:
    talk.listed(tool("t", ROWS))
    talk.send(call(1, "t"))
    talk.send(call("b", "t", _meta=META))
    talk.send(request(3, "resources/list"))
    talk.send(call(4, "t"))
    talk.send(frame({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 4}}))
    talk.send(request(5, "ping"))
    talk.reply(result(5))
    one, two, three = [json.loads(each) for each in talk.wire.lost("The server ended (exit code 1).")]
    assert (one["id"], two["id"], three["id"]) == (1, "b", 3)
    assert one["result"]["isError"] is True
    assert "UPSTREAM_DIED" in one["result"]["content"][0]["text"]
    assert "exit code 1" in one["result"]["content"][0]["text"]
    assert "resultType" not in one["result"]
    assert two["result"]["resultType"] == "complete"
    assert three["error"]["code"] == -32603
    assert talk.wire.lost("again") == []


def test_a_result_that_waits_for_a_list_survives_the_server(talk: Talk) -> None:
    talk.send(call(1, "t"))
    asked(only(talk.reply(result(1, **typed(rows(2000)))), 1))
    talk.send(call(2, "t", {"tokenBudget": 200}))
    one, two = [json.loads(each) for each in talk.wire.lost("The server ended.")]
    assert json.loads(one["result"]["content"][0]["text"])["rows"][0] == {"id": 0, "name": "row number 0"}
    assert count(one["result"]["content"]) <= talk.tokens
    assert two["id"] == 2
    assert "was not sent" in two["result"]["content"][0]["text"]


def test_a_request_that_could_not_be_forwarded(talk: Talk) -> None:
    talk.send(call(1, "t"))
    failed = talk.wire.failed(call(1, "t"), "Nobody there.", "UPSTREAM_UNAVAILABLE")
    assert failed is not None
    assert "UPSTREAM_UNAVAILABLE" in json.loads(failed)["result"]["content"][0]["text"]
    failed = talk.wire.failed(request(2, "ping"), "Nobody there.", "UPSTREAM_UNAVAILABLE")
    assert failed is not None
    assert json.loads(failed)["error"]["message"] == "Nobody there."
    assert talk.wire.failed(b'{"method":"x"}', "Nobody there.", "X") is None
    assert talk.wire.lost("gone") == []


def test_requests_without_responses_do_not_pile_up(talk: Talk) -> None:
    talk.send(call("kept", "t"))
    for number in range(25_000):
        talk.send(request(number, "unheard/of"))
    answers = talk.wire.lost("gone")
    assert json.loads(answers[0])["id"] == "kept"
    assert 1000 < len(answers) < 12_000


def test_a_bug_of_ours_loses_no_frame(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    talk.listed(tool("t"))
    talk.send(call(1, "t"))
    monkeypatch.setattr(talk.gateway, "seal", broken)
    answer = result(1, content=texts("x" * 50_000))
    # What could not be looked at does not pass; the call is answered all the same.
    (said,), _ = talk.reply(answer)
    assert b"INTERNAL" in said
    assert len(said) < 1000
    monkeypatch.setattr(talk.gateway, "policy", broken)
    sent = call(2, "t")
    assert talk.send(sent) == ([], [sent])


@pytest.mark.parametrize("where", ["_from_client", "_from_server"])
def test_a_bug_before_a_call_is_understood_loses_no_frame(
    talk: Talk, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    talk.listed(tool("t"))
    sent, answer = call(1, "t"), result(1, content=texts("x" * 50_000))
    if where == "_from_client":
        monkeypatch.setattr(talk.wire, "_call", broken)
        assert talk.send(sent) == ([], [sent])
        # The answer is fitted all the same.
        assert len(only(talk.reply(answer), 0)) < 5000
    else:
        talk.send(sent)
        monkeypatch.setattr(talk.wire, "_answered", broken)
        assert talk.reply(answer) == ([answer], [])


def test_a_server_that_ignores_list_requests(talk: Talk) -> None:
    """Whoever waits goes on after a while, and nobody waits again."""
    talk.send(call(1, "t"))
    question = only(talk.reply(result(1, content=[], structuredContent={"a": 1})), 1)
    assert talk.wire.list_requests.unanswered(question.replace(b'-1"', b'-0"')) == ([], [])
    assert json.loads(only(talk.wire.list_requests.unanswered(question), 0))["id"] == 1
    assert talk.wire.list_requests.unanswered(question) == ([], [])
    talk.send(call(2, "t"))
    shown = only(talk.reply(result(2, content=[], structuredContent={"a": 1})), 0)
    assert json.loads(shown)["result"]["structuredContent"] == {"a": 1}
    # It may come late.
    assert talk.reply(frame({"id": asked(question)["id"], "result": {"tools": []}})) == ([], [])
