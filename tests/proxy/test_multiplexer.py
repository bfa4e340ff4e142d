"""Whose a message is when several clients share a server."""

from __future__ import annotations

import json
from typing import Any

from mcp_envelope.proxy.multiplexer import SUBSCRIPTION, Multiplexer

from .harness import call, frame, request, result


def _read(data: bytes) -> Any:
    return json.loads(data)


def _note(method: str, **params: Any) -> bytes:
    return frame({"jsonrpc": "2.0", "method": method, "params": params})


def _sent(multiplexer: Multiplexer[str], client: str, data: bytes) -> Any:
    back, [onward] = multiplexer.from_client(client, data)
    assert not back
    return _read(onward)


def _heard(multiplexer: Multiplexer[str], data: bytes) -> list[tuple[str, Any]]:
    to_clients, to_server = multiplexer.from_server(data)
    assert not to_server
    return [(client, _read(each)) for client, each in to_clients]


def test_the_same_ids_do_not_meet() -> None:
    multiplexer: Multiplexer[str] = Multiplexer()
    first = _sent(multiplexer, "a", call(7, "t"))["id"]
    second = _sent(multiplexer, "b", call("7", "t"))["id"]
    assert first != second
    [(client, answer)] = _heard(multiplexer, result(second, content=[]))
    assert (client, answer["id"]) == ("b", "7")
    [(client, answer)] = _heard(multiplexer, result(first, content=[]))
    assert (client, answer["id"]) == ("a", 7)
    # It was answered already.
    assert _heard(multiplexer, result(first, content=[])) == []


def test_a_server_may_spell_ids_as_strings() -> None:
    multiplexer: Multiplexer[str] = Multiplexer()
    number = _sent(multiplexer, "a", call(7, "t"))["id"]
    [(client, answer)] = _heard(multiplexer, result(str(number), content=[]))
    assert (client, answer["id"]) == ("a", 7)


def test_a_request_has_one_id_for_readers_that_disregard_case() -> None:
    multiplexer: Multiplexer[str] = Multiplexer()
    mine = _sent(multiplexer, "a", call(7, "t"))["id"]
    for spelled in ({"ID": mine, "id": 8}, {"ID": mine}):
        asked = {"jsonrpc": "2.0", **spelled, "method": "tools/call", "params": {"name": "t"}}
        sent = _sent(multiplexer, "b", frame(asked))
        assert sent["id"] != mine
        assert "ID" not in sent
    told = _note("notifications/cancelled", requestId=8, RequestId=mine)
    _, [onward] = multiplexer.from_client("b", told)
    assert b"RequestId" not in onward


def test_progress_goes_where_its_token_came_from() -> None:
    multiplexer: Multiplexer[str] = Multiplexer()
    tokens = [
        _sent(multiplexer, client, call(1, "t", _meta={"progressToken": "p", "own": 1}))["params"]["_meta"]
        for client in ("a", "b")
    ]
    assert [each["own"] for each in tokens] == [1, 1]
    told = _note("notifications/progress", progressToken=tokens[1]["progressToken"], progress=1)
    [(client, heard)] = _heard(multiplexer, told)
    assert (client, heard["params"]["progressToken"]) == ("b", "p")
    assert _heard(multiplexer, _note("notifications/progress", progressToken="p", progress=1)) == []


def test_a_client_cancels_its_own_requests_only() -> None:
    multiplexer: Multiplexer[str] = Multiplexer()
    _sent(multiplexer, "a", call(1, "t"))
    number = _sent(multiplexer, "b", call(1, "t"))["id"]
    cancelled = _sent(multiplexer, "b", _note("notifications/cancelled", requestId=1, reason="late"))
    assert cancelled["params"] == {"requestId": number, "reason": "late"}
    assert multiplexer.from_client("c", _note("notifications/cancelled", requestId=1)) == ([], [])


def test_a_question_goes_to_the_client_that_called() -> None:
    multiplexer: Multiplexer[str] = Multiplexer()
    multiplexer.from_client("a", _note("notifications/initialized"))
    _sent(multiplexer, "b", call(1, "t"))
    asked = request("q", "sampling/createMessage", messages=[])
    assert _heard(multiplexer, asked) == [("b", _read(asked))]
    reply = result("q", role="assistant")
    # Nobody else may answer it, and it is answered once.
    assert multiplexer.from_client("a", reply) == ([], [])
    assert multiplexer.from_client("b", reply) == ([], [reply])
    assert multiplexer.from_client("b", reply) == ([], [])


def test_a_question_that_may_be_anybodys_is_refused() -> None:
    multiplexer: Multiplexer[str] = Multiplexer()
    _sent(multiplexer, "a", call(1, "t"))
    _sent(multiplexer, "b", call(1, "t"))
    to_clients, [refused] = multiplexer.from_server(request("q", "elicitation/create", message="?"))
    assert to_clients == []
    assert _read(refused)["error"]["message"].startswith("The proxy cannot tell")
    assert _heard(multiplexer, _note("notifications/message", level="error", data="what b said")) == []


def test_a_ping_is_answered_for_all() -> None:
    multiplexer: Multiplexer[str] = Multiplexer()
    assert multiplexer.from_server(request("p", "ping")) == (
        [],
        [frame({"jsonrpc": "2.0", "id": "p", "result": {}})],
    )


def test_there_is_one_handshake() -> None:
    multiplexer: Multiplexer[str] = Multiplexer()
    number = _sent(multiplexer, "a", request(0, "initialize"))["id"]
    assert multiplexer.from_client("b", request("x", "initialize")) == ([], [])
    heard = _heard(multiplexer, result(number, protocolVersion="v"))
    assert [(client, each["id"], each["result"]) for client, each in heard] == [
        ("a", 0, {"protocolVersion": "v"}),
        ("b", "x", {"protocolVersion": "v"}),
    ]
    [late], onward = multiplexer.from_client("c", request(5, "initialize"))
    assert (_read(late)["id"], _read(late)["result"], onward) == (5, {"protocolVersion": "v"}, [])
    note = _note("notifications/initialized")
    assert [multiplexer.from_client(client, note)[1] for client in "abc"] == [[note], [], []]


def test_updates_go_to_subscribers() -> None:
    multiplexer: Multiplexer[str] = Multiplexer()
    _sent(multiplexer, "a", request(1, "resources/subscribe", uri="u"))
    [back], onward = multiplexer.from_client("b", request(1, "resources/subscribe", uri="u"))
    assert (_read(back)["result"], onward) == ({}, [])
    multiplexer.from_client("c", _note("notifications/initialized"))
    updated = _note("notifications/resources/updated", uri="u")
    assert [client for client, _ in _heard(multiplexer, updated)] == ["a", "b"]
    assert [client for client, _ in _heard(multiplexer, _note("notifications/tools/list_changed"))] == [
        "a",
        "b",
        "c",
    ]
    # The last one who leaves ends it at the server.
    assert not [each for each in multiplexer.leave("a") if b"unsubscribe" in each]
    [ended] = [each for each in multiplexer.leave("b") if b"unsubscribe" in each]
    assert _read(ended)["params"] == {"uri": "u"}


def test_a_client_that_leaves_cancels() -> None:
    multiplexer: Multiplexer[str] = Multiplexer()
    number = _sent(multiplexer, "a", call(1, "t"))["id"]
    other = _sent(multiplexer, "b", call(1, "t"))["id"]
    [told] = multiplexer.leave("a")
    assert _read(told)["params"]["requestId"] == number
    assert _heard(multiplexer, result(number, content=[])) == []
    assert [client for client, _ in _heard(multiplexer, result(other, content=[]))] == ["b"]


def test_a_subscription_of_the_stateless_era_keeps_its_name() -> None:
    multiplexer: Multiplexer[str] = Multiplexer()
    number = _sent(multiplexer, "a", request("listen-1", "subscriptions/listen", notifications={}))["id"]
    _sent(multiplexer, "b", request("listen-1", "subscriptions/listen", notifications={}))
    told = _note("notifications/tools/list_changed", _meta={SUBSCRIPTION: number})
    [(client, heard)] = _heard(multiplexer, told)
    assert (client, heard["params"]["_meta"][SUBSCRIPTION]) == ("a", "listen-1")
    [(client, ended)] = _heard(multiplexer, result(number, _meta={SUBSCRIPTION: number}))
    assert (client, ended["id"], ended["result"]["_meta"][SUBSCRIPTION]) == ("a", "listen-1", "listen-1")


def test_the_log_level_is_that_of_whoever_wants_most() -> None:
    multiplexer: Multiplexer[str] = Multiplexer()
    _sent(multiplexer, "a", request(1, "logging/setLevel", level="debug"))
    [back], onward = multiplexer.from_client("b", request(1, "logging/setLevel", level="error"))
    assert (_read(back)["result"], onward) == ({}, [])
    _sent(multiplexer, "b", call(2, "t"))
    multiplexer.from_server(result(1))
    assert _heard(multiplexer, _note("notifications/message", level="info", data="x")) == []
    [(client, _)] = _heard(multiplexer, _note("notifications/message", level="error", data="x"))
    assert client == "b"


def test_a_request_that_was_never_sent_is_given_back() -> None:
    multiplexer: Multiplexer[str] = Multiplexer()
    _, [onward] = multiplexer.from_client("a", call("mine", "t"))
    [(client, back)] = multiplexer.withdrawn(onward)
    assert (client, _read(back)["id"]) == ("a", "mine")
    assert multiplexer.withdrawn(onward) == []
