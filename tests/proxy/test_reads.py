"""Reads from the vault run in the background: nothing waits behind them, and no response is lost."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_envelope.gateway import Gateway
from mcp_envelope.proxy import stdio
from mcp_envelope.proxy.frames import Outgoing
from mcp_envelope.proxy.reads import Work
from mcp_envelope.proxy.stdio import Background

from .harness import PATIENCE, Running, Talk, call, frame, obliging, request, rows, typed

# Takes most of a second on rows of 8 MB, without finding anything.
SLOW = "length(rows[?contains(to_string(@), 'nowhere')])"


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Running]:
    with obliging(tmp_path, "--tokens", "300") as running:
        yield running


def stored(proxy: Running, size: int = 8 << 20) -> str:
    """The handle of a large result."""
    proxy.ask(request(0, "tools/list"))
    got = proxy.ask(call(1, "typed", {"bytes": size}))
    handle: str = got["result"]["structuredContent"]["_envelope"]["handle"]
    return handle


def search(identifier: Any, handle: str) -> bytes:
    return call(identifier, "envelope_read", {"handle": handle, "query": SLOW})


def is_found(answer: Any) -> bool:
    """What the search gives; on a machine with much else to do it may take longer than a search may."""
    text = answer["content"][-1]["text"]
    return text == "0" or "QUERY_TOO_COSTLY" in text


def cancelled(identifier: Any) -> bytes:
    params = {"requestId": identifier}
    return frame({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})


# -- the process --------------------------------------------------------------------------------------------


def test_nobody_waits_behind_a_slow_search(proxy: Running) -> None:
    handle = stored(proxy)
    proxy.say(search(2, handle))
    proxy.say(request(3, "ping"))
    proxy.say(call(4, "envelope_read", {"handle": handle, "path": "/rows/0"}))
    proxy.say(request(5, "resources/read", uri=f"envelope://{handle}/structuredContent/rows/0/id"))
    answers = [json.loads(proxy.hear()) for _ in range(4)]
    assert [answer["id"] for answer in answers][-1] == 2
    assert {answer["id"] for answer in answers} == {2, 3, 4, 5}
    assert is_found(answers[-1]["result"])


def test_the_input_may_end_right_after_a_read(proxy: Running) -> None:
    handle = stored(proxy)
    for number in range(2, 5):
        proxy.say(search(number, handle))
    proxy.end_input()
    answers = [json.loads(proxy.hear()) for _ in range(3)]
    assert {answer["id"] for answer in answers} == {2, 3, 4}
    assert all(is_found(answer["result"]) for answer in answers)
    assert proxy.hear() == b""
    assert proxy.wait() == 0


def test_the_input_may_end_after_a_read_that_needs_a_list(proxy: Running) -> None:
    """Until a list was seen, a handle that is not known may be meant for a tool of the server's."""
    proxy.say(call(1, "envelope_read", {"handle": "unheard"}))
    proxy.end_input()
    assert "HANDLE_UNKNOWN" in json.loads(proxy.hear())["result"]["content"][0]["text"]
    assert proxy.hear() == b""
    assert proxy.wait() == 0


def test_the_server_may_end_before_a_read(proxy: Running) -> None:
    handle = stored(proxy)
    proxy.say(search(2, handle))
    proxy.say(call(3, "exit", {"code": 4}))
    answers = {answer["id"]: answer["result"] for answer in (json.loads(proxy.hear()) for _ in range(2))}
    assert is_found(answers[2])
    assert "UPSTREAM_DIED" in answers[3]["content"][0]["text"]
    assert proxy.wait() == 4


def test_a_cancelled_read_gets_no_response(proxy: Running) -> None:
    handle = stored(proxy)
    proxy.say(search(2, handle))
    proxy.say(cancelled(2))
    proxy.say(request(3, "ping"))
    proxy.end_input()
    assert json.loads(proxy.hear())["id"] == 3
    assert proxy.hear() == b""
    assert proxy.wait() == 0


# -- what is put off ----------------------------------------------------------------------------------------


def handle_of(talk: Talk) -> str:
    talk.listed({"name": "rows", "inputSchema": {"type": "object"}})
    text: str = talk.called("rows", typed(rows(2000)))["structuredContent"]["_envelope"]["handle"]
    return text


def test_work_is_deferred_only_on_request(tmp_path: Path) -> None:
    talk = Talk(tmp_path)
    sent = call(5, "envelope_read", {"handle": handle_of(talk)})
    now = talk.wire.from_client(sent)
    later: list[Work] = []
    assert talk.wire.from_client(sent, later=later) == Outgoing([], [])
    assert [work() for work in later] == [now]


def test_a_batch_goes_on_without_the_deferred_read(tmp_path: Path) -> None:
    talk = Talk(tmp_path)
    read = json.loads(call(5, "envelope_read", {"handle": handle_of(talk)}))
    before, after = json.loads(request(1, "ping")), json.loads(request(2, "ping"))
    later: list[Work] = []
    moves = talk.wire.from_client(frame([before, read, after]), later=later)
    assert not moves.to_client
    assert [json.loads(each) for each in moves.to_server] == [[before, after]]
    [answer] = later[0]().to_client
    assert json.loads(answer)["id"] == 5


def test_the_server_does_not_see_the_cancellation_of_a_read(tmp_path: Path) -> None:
    talk = Talk(tmp_path)
    later: list[Work] = []
    talk.wire.from_client(call(5, "envelope_read", {"handle": handle_of(talk)}), later=later)
    assert talk.wire.from_client(cancelled(5)) == Outgoing([], [])
    assert later[0]() == Outgoing([], [])
    # Afterwards it is an id as any other.
    assert talk.wire.from_client(cancelled(5)).to_server


def test_a_read_that_we_fail_on_is_forwarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    talk = Talk(tmp_path)
    sent = call(5, "envelope_read", {"handle": handle_of(talk)})

    def broken(*_: object) -> object:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(Gateway, "read", broken)
    later: list[Work] = []
    talk.wire.from_client(sent, later=later)
    assert later[0]() == Outgoing([], [sent])


def test_searches_take_turns_but_pages_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search has a few seconds; another one at the same time would use them up."""
    talk = Talk(tmp_path)
    handle = handle_of(talk)
    inside, most = [0], [0]
    lock, hold = threading.Lock(), threading.Event()
    read = Gateway.read

    def slowly(gateway: Gateway, arguments: Any, call: Any) -> Any:
        if "query" in arguments:
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
            hold.wait(PATIENCE)
            with lock:
                inside[0] -= 1
        return read(gateway, arguments, call)

    monkeypatch.setattr(Gateway, "read", slowly)
    answered: list[Outgoing] = []
    work = Background(answered.append)
    later: list[Work] = []
    for number in range(3):
        talk.wire.from_client(search(number, handle), later=later)
    for each in later:
        work.start(each)
    page: list[Work] = []
    talk.wire.from_client(call("page", "envelope_read", {"handle": handle}), later=page)
    assert json.loads(page[0]().to_client[0])["id"] == "page"
    hold.set()
    assert work.wait(PATIENCE)
    assert len(answered) == 3
    assert most == [1]


# -- doing it -----------------------------------------------------------------------------------------------


def test_too_much_work_blocks_the_caller() -> None:
    hold = threading.Event()
    sent: list[Outgoing] = []
    work = Background(sent.append)

    def slow() -> Outgoing:
        hold.wait(PATIENCE)
        return Outgoing([b"x"], [])

    for _ in range(stdio._MOST_READS):
        work.start(slow)
    one_more = threading.Thread(target=work.start, args=(slow,), daemon=True)
    one_more.start()
    one_more.join(0.2)
    assert one_more.is_alive()
    assert not work.wait(0.05)
    hold.set()
    one_more.join(PATIENCE)
    assert not one_more.is_alive()
    assert work.wait(PATIENCE)
    assert len(sent) == stdio._MOST_READS + 1


def test_failed_work_counts_as_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _failure: None)

    def broken() -> Outgoing:
        raise RuntimeError("a mistake of ours")

    work = Background(lambda _moves: None)
    work.start(broken)
    assert work.wait(PATIENCE)
