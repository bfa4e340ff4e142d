"""The page's server: who may ask, and what it answers."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import pytest

from .page_server import CALLS, MARKUP, make_calls, page, wait_for_calls

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("ui")
    make_calls(folder, *CALLS)
    wait_for_calls(folder, len(CALLS))
    with page(folder) as address:
        yield address


def ask(url: str, what: str, /, **values: object) -> Any:
    with urllib.request.urlopen(f"{url}{what}?{urlencode(values)}", timeout=30) as response:
        return json.loads(response.read())


def status(url: str, **headers: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def call_of(url: str, tool: str) -> dict[str, Any]:
    found: dict[str, Any] = next(call for call in ask(url, "calls") if call["tool"] == tool)
    return found


def test_the_token_is_needed(url: str) -> None:
    split = urlsplit(url)
    origin = f"{split.scheme}://{split.netloc}"
    assert status(url) == 200
    assert status(f"{origin}/") == 404
    assert status(f"{origin}/calls") == 404
    assert status(f"{origin}/{'x' * 22}/calls") == 404
    assert status(f"{origin}{split.path.rstrip('/')}x/calls") == 404


def test_other_hosts_and_other_pages_are_refused(url: str) -> None:
    origin = url[: url.index("/", 8)]
    assert status(f"{url}calls", Host="example.com") == 421
    assert status(f"{url}calls", Origin="http://example.com") == 403
    assert status(f"{url}calls", Origin="null") == 403
    assert status(f"{url}calls", Origin=origin) == 200


@pytest.mark.parametrize("address", ["", "calls", "nothing"])
def test_nothing_is_loaded_from_elsewhere(url: str, address: str) -> None:
    try:
        headers = urllib.request.urlopen(f"{url}{address}", timeout=30).headers
    except urllib.error.HTTPError as error:
        headers = error.headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


def test_it_listens_on_loopback_only(url: str) -> None:
    port = urlsplit(url).port
    assert port is not None
    addresses = {str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for address in addresses - {"127.0.0.1", "127.0.1.1"}:
        with pytest.raises(OSError, match=r"refused|timed out"):
            socket.create_connection((address, port), timeout=2)


def test_calls_have_handles_of_what_was_stored(url: str) -> None:
    calls = {call["tool"]: call for call in ask(url, "calls")}
    assert calls.keys() == {name for name, _ in CALLS}
    assert calls["list_tickets"]["handle"]
    assert calls["list_tickets"]["budget"] == 1500
    assert not calls["count"]["handle"]
    newest = max(call["number"] for call in calls.values())
    assert len(ask(url, "calls", before=newest)) == len(CALLS) - 1


def test_new_calls_are_events(url: str) -> None:
    with urllib.request.urlopen(f"{url}events?after=1", timeout=30) as stream:
        lines = iter(stream)
        data = [
            json.loads(line[6:]) for line in (next(lines) for _ in range(10)) if line.startswith(b"data: ")
        ]
    assert [call["number"] for call in data][:2] == [2, 3]


def test_a_tree_is_read_in_parts(url: str) -> None:
    handle = call_of(url, "list_tickets")["handle"]
    root = ask(url, "tree", handle=handle)
    assert [(child["name"], child["kind"], child["total"]) for child in root["children"]] == [
        ("tickets", "array", 1200)
    ]
    first = ask(url, "tree", handle=handle, path="/tickets")
    assert [child["name"] for child in first["children"]] == list(range(100))
    assert first["more"] == 100
    last = ask(url, "tree", handle=handle, path="/tickets", offset=1150)
    assert [child["name"] for child in last["children"]] == list(range(1150, 1200))
    assert last["more"] is None
    title = ask(url, "tree", handle=handle, path="/tickets/417/state")
    assert (title["kind"], title["text"]) == ("string", "failed")


def test_lanes_are_those_of_any_client(url: str) -> None:
    handle = call_of(url, "list_tickets")["handle"]
    made = ask(url, "lanes", handle=handle, tokens=1500)
    assert made["used"] <= made["limit"] == 1500
    (cut,) = made["structuredCuts"]
    assert (cut["path"], cut["total"]) == ("/tickets", 1200)
    assert json.loads(made["structured"])["_envelope"]["handle"] == handle
    assert ask(url, "lanes", handle=handle, client="claude-code")["shows"] == "structured"
    assert json.loads(ask(url, "lanes", handle=handle, dialect="gel")["structured"])["meta"]["status"]


def test_questions_are_those_of_a_model(url: str) -> None:
    handle = call_of(url, "list_tickets")["handle"]
    counted = ask(
        url, "read", handle=handle, sql="SELECT state, count(*) AS n FROM tickets GROUP BY 1 ORDER BY 1"
    )
    assert json.loads(counted["content"][-1]["text"])[1] == {"state": "failed", "n": 1}
    wrong = ask(url, "read", handle=handle, sql="SELECT colour FROM tickets")
    assert wrong["isError"]
    log = call_of(url, "read_log")["handle"]
    assert "request 1234 " in json.dumps(ask(url, "read", handle=log, lines="1235"))


def test_what_is_wrong_is_said(url: str) -> None:
    for address in (
        "tree?handle=nothing",
        f"tree?handle={call_of(url, 'list_tickets')['handle']}&path=/none",
        "totals?by=colour",
        "calls?before=x",
    ):
        with pytest.raises(urllib.error.HTTPError) as caught:
            ask(url, quote(address, safe="?=&/") + "&x=")
        assert caught.value.code == 400
        assert json.loads(caught.value.read())["message"]


def test_totals_and_settings(url: str) -> None:
    totals = {total["group"]: total for total in ask(url, "totals", by="tool")}
    assert totals["list_tickets"]["tokensSaved"] > 10_000
    found = {each["name"]: each for each in ask(url, "settings", tool="list_tickets")["settings"]}
    assert found["select"]["source"] == "built-in"
    assert {"native", "ctxo"} <= {*ask(url, "about")["dialects"]}


def test_markup_stays_text(url: str) -> None:
    """Only JSON carries payloads, and browsers take it for nothing else."""
    handle = call_of(url, "markup")["handle"]
    with urllib.request.urlopen(f"{url}tree?handle={handle}", timeout=30) as response:
        assert response.headers["content-type"] == "application/json"
        assert json.loads(response.read())["children"][0]["name"] == MARKUP


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "mcp_envelope", "ui", "--port", port]
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 1
    assert port in run.stderr
    assert "Traceback" not in run.stderr


def test_an_interrupt_ends_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mcp_envelope", "ui", "--no-browser"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert status(address) == 200
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
