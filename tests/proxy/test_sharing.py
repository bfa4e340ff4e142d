"""Whose a message is when several clients share a server."""

from __future__ import annotations

import json
from typing import Any

from mcp_envelope.proxy.sharing import SUBSCRIPTION, Sharing

from .harness import call, frame, request, result


def _read(data: bytes) -> Any:
    return json.loads(data)


def _note(method: str, **params: Any) -> bytes:
    return frame({"jsonrpc": "2.0", "method": method, "params": params})


def _sent(sharing: Sharing[str], client: str, data: bytes) -> Any:
    back, [onward] = sharing.from_client(client, data)
    assert not back
    return _read(onward)


def _heard(sharing: Sharing[str], data: bytes) -> list[tuple[str, Any]]:
    to_clients, to_server = sharing.from_server(data)
    assert not to_server
    return [(client, _read(each)) for client, each in to_clients]


def test_the_same_ids_do_not_meet() -> None:
    sharing: Sharing[str] = Sharing()
    first = _sent(sharing, "a", call(7, "t"))["id"]
    second = _sent(sharing, "b", call("7", "t"))["id"]
    assert first != second
    [(client, answer)] = _heard(sharing, result(second, content=[]))
    assert (client, answer["id"]) == ("b", "7")
    [(client, answer)] = _heard(sharing, result(first, content=[]))
    assert (client, answer["id"]) == ("a", 7)
    # It was answered already.
    assert _heard(sharing, result(first, content=[])) == []


def test_progress_goes_where_its_token_came_from() -> None:
    sharing: Sharing[str] = Sharing()
    tokens = [
        _sent(sharing, client, call(1, "t", _meta={"progressToken": "p", "own": 1}))["params"]["_meta"]
        for client in ("a", "b")
    ]
    assert [each["own"] for each in tokens] == [1, 1]
    told = _note("notifications/progress", progressToken=tokens[1]["progressToken"], progress=1)
    [(client, heard)] = _heard(sharing, told)
    assert (client, heard["params"]["progressToken"]) == ("b", "p")
    assert _heard(sharing, _note("notifications/progress", progressToken="p", progress=1)) == []


def test_a_client_cancels_its_own_requests_only() -> None:
    sharing: Sharing[str] = Sharing()
    _sent(sharing, "a", call(1, "t"))
    number = _sent(sharing, "b", call(1, "t"))["id"]
    cancelled = _sent(sharing, "b", _note("notifications/cancelled", requestId=1, reason="late"))
    assert cancelled["params"] == {"requestId": number, "reason": "late"}
    assert sharing.from_client("c", _note("notifications/cancelled", requestId=1)) == ([], [])


def test_a_question_goes_to_the_client_that_called() -> None:
    sharing: Sharing[str] = Sharing()
    sharing.from_client("a", _note("notifications/initialized"))
    _sent(sharing, "b", call(1, "t"))
    asked = request("q", "sampling/createMessage", messages=[])
    assert _heard(sharing, asked) == [("b", _read(asked))]
    reply = result("q", role="assistant")
    # Nobody else may answer it, and it is answered once.
    assert sharing.from_client("a", reply) == ([], [])
    assert sharing.from_client("b", reply) == ([], [reply])
    assert sharing.from_client("b", reply) == ([], [])


def test_a_question_that_may_be_anybodys_is_refused() -> None:
    sharing: Sharing[str] = Sharing()
    _sent(sharing, "a", call(1, "t"))
    _sent(sharing, "b", call(1, "t"))
    to_clients, [refused] = sharing.from_server(request("q", "elicitation/create", message="?"))
    assert to_clients == []
    assert _read(refused)["error"]["message"].startswith("The proxy cannot tell")
    assert _heard(sharing, _note("notifications/message", level="error", data="what b said")) == []


def test_a_ping_is_answered_for_all() -> None:
    sharing: Sharing[str] = Sharing()
    assert sharing.from_server(request("p", "ping")) == (
        [],
        [frame({"jsonrpc": "2.0", "id": "p", "result": {}})],
    )


def test_there_is_one_handshake() -> None:
    sharing: Sharing[str] = Sharing()
    number = _sent(sharing, "a", request(0, "initialize"))["id"]
    assert sharing.from_client("b", request("x", "initialize")) == ([], [])
    heard = _heard(sharing, result(number, protocolVersion="v"))
    assert [(client, each["id"], each["result"]) for client, each in heard] == [
        ("a", 0, {"protocolVersion": "v"}),
        ("b", "x", {"protocolVersion": "v"}),
    ]
    [late], onward = sharing.from_client("c", request(5, "initialize"))
    assert (_read(late)["id"], _read(late)["result"], onward) == (5, {"protocolVersion": "v"}, [])
    note = _note("notifications/initialized")
    assert [sharing.from_client(client, note)[1] for client in "abc"] == [[note], [], []]


def test_updates_go_to_subscribers() -> None:
    sharing: Sharing[str] = Sharing()
    _sent(sharing, "a", request(1, "resources/subscribe", uri="u"))
    [back], onward = sharing.from_client("b", request(1, "resources/subscribe", uri="u"))
    assert (_read(back)["result"], onward) == ({}, [])
    sharing.from_client("c", _note("notifications/initialized"))
    updated = _note("notifications/resources/updated", uri="u")
    assert [client for client, _ in _heard(sharing, updated)] == ["a", "b"]
    assert [client for client, _ in _heard(sharing, _note("notifications/tools/list_changed"))] == [
        "a",
        "b",
        "c",
    ]
    # The last one who leaves ends it at the server.
    assert not [each for each in sharing.leave("a") if b"unsubscribe" in each]
    [ended] = [each for each in sharing.leave("b") if b"unsubscribe" in each]
    assert _read(ended)["params"] == {"uri": "u"}


def test_a_client_that_leaves_cancels() -> None:
    sharing: Sharing[str] = Sharing()
    number = _sent(sharing, "a", call(1, "t"))["id"]
    other = _sent(sharing, "b", call(1, "t"))["id"]
    [told] = sharing.leave("a")
    assert _read(told)["params"]["requestId"] == number
    assert _heard(sharing, result(number, content=[])) == []
    assert [client for client, _ in _heard(sharing, result(other, content=[]))] == ["b"]


def test_a_subscription_of_the_stateless_era_keeps_its_name() -> None:
    sharing: Sharing[str] = Sharing()
    number = _sent(sharing, "a", request("listen-1", "subscriptions/listen", notifications={}))["id"]
    _sent(sharing, "b", request("listen-1", "subscriptions/listen", notifications={}))
    told = _note("notifications/tools/list_changed", _meta={SUBSCRIPTION: number})
    [(client, heard)] = _heard(sharing, told)
    assert (client, heard["params"]["_meta"][SUBSCRIPTION]) == ("a", "listen-1")
    [(client, ended)] = _heard(sharing, result(number, _meta={SUBSCRIPTION: number}))
    assert (client, ended["id"], ended["result"]["_meta"][SUBSCRIPTION]) == ("a", "listen-1", "listen-1")


def test_the_log_level_is_that_of_whoever_wants_most() -> None:
    sharing: Sharing[str] = Sharing()
    _sent(sharing, "a", request(1, "logging/setLevel", level="debug"))
    [back], onward = sharing.from_client("b", request(1, "logging/setLevel", level="error"))
    assert (_read(back)["result"], onward) == ({}, [])
    _sent(sharing, "b", call(2, "t"))
    sharing.from_server(result(1))
    assert _heard(sharing, _note("notifications/message", level="info", data="x")) == []
    [(client, _)] = _heard(sharing, _note("notifications/message", level="error", data="x"))
    assert client == "b"


def test_a_request_that_was_never_sent_is_given_back() -> None:
    sharing: Sharing[str] = Sharing()
    _, [onward] = sharing.from_client("a", call("mine", "t"))
    [(client, back)] = sharing.withdrawn(onward)
    assert (client, _read(back)["id"]) == ("a", "mine")
    assert sharing.withdrawn(onward) == []
