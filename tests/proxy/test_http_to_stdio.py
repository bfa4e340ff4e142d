"""Servers that speak in lines, over HTTP: the SDK's client, in both eras, with a process each or one for all."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client

from . import programs, sites, talks
from .harness import OBLIGING

_ROOT = Path(__file__).resolve().parents[2]
_SDK = (sys.executable, "-m", "tests.proxy.sdk", "stdio")
_OLD = "2025-11-25"


def _listening(folder: Path, name: str, *arguments: str, server: tuple[str, ...] = _SDK) -> Any:
    vault = str(folder / f"{name}.db")
    more = ("--vault", vault, *arguments, "--", *server)
    return programs.listening(folder, name, *more, PYTHONPATH=str(_ROOT))


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("listening")
        yield {
            name: f"{stack.enter_context(_listening(folder, name, *options)).url}/mcp"
            for name, options in {"own": (), "shared": ("--share",)}.items()
        }


@pytest.mark.parametrize("kind", ["own", "shared"])
@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize(
    "talk", [talks.large_results, talks.progress, talks.cancellation, talks.a_budget_before_any_list]
)
def test_conversations(ways: dict[str, str], talk: talks.Talk, kind: str, mode: str) -> None:
    talks.hold(talk, ways[kind], mode)


@pytest.mark.parametrize(
    ("kind", "talk"),
    # Updates that nobody subscribed to reach nobody at a shared server.
    [("own", talks.questions), ("shared", talks.questions), ("own", talks.notifications)],
)
def test_what_the_server_says_of_its_own_accord(ways: dict[str, str], talk: talks.Talk, kind: str) -> None:
    talks.hold(talk, ways[kind], "legacy")


@pytest.mark.parametrize("kind", ["own", "shared"])
def test_every_client_gets_its_own_answers(ways: dict[str, str], kind: str) -> None:
    """The clients use the same ids, and both eras go on beside each other."""
    sites.call_at_once([Client(ways[kind], mode=("legacy", "auto")[number % 2]) for number in range(6)])


# -- sessions, by hand --------------------------------------------------------------------------------------


class _Caller:
    """A session of the older era."""

    def __init__(self, url: str, **headers: str) -> None:
        self._url = f"{url}/mcp"
        self._headers = {"accept": "application/json, text/event-stream", **headers}
        params: dict[str, Any] = {
            "protocolVersion": _OLD,
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        self.hello = self.post("initialize", **params)
        if self.hello.status_code == 200:
            self._headers["mcp-session-id"] = self.hello.headers["mcp-session-id"]

    def post(self, method: str, identifier: int = 1, **params: Any) -> httpx2.Response:
        message = {"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}
        return self._send("POST", json=message)

    def call(self, tool: str, **arguments: Any) -> Any:
        return self.post("tools/call", name=tool, arguments=arguments).json()["result"]

    def told(self, tool: str = "self", **arguments: Any) -> Any:
        return json.loads(self.call(tool, **arguments)["content"][0]["text"])

    def delete(self) -> int:
        return self._send("DELETE").status_code

    def _send(self, method: str, **more: Any) -> httpx2.Response:
        with httpx2.Client(timeout=30, trust_env=False) as http:
            return http.request(method, self._url, headers=self._headers, **more)


def _gone(*pids: int) -> bool:
    return all(map(programs.is_gone, pids))


def test_a_session_has_a_process_of_its_own(tmp_path: Path) -> None:
    with _listening(tmp_path, "own", server=OBLIGING) as proxy:
        first, second = _Caller(proxy.url), _Caller(proxy.url)
        pids = first.told()["pid"], second.told()["pid"]
        assert pids[0] != pids[1]
        assert first.told()["pid"] == pids[0]
        assert first.delete() == 204
        assert _gone(pids[0])
        assert first.post("ping").status_code == 404
        assert second.told()["pid"] == pids[1]
    assert _gone(pids[1])


def test_shared_it_is_one_process(tmp_path: Path) -> None:
    with _listening(tmp_path, "shared", "--share", server=OBLIGING) as proxy:
        first, second = _Caller(proxy.url), _Caller(proxy.url)
        assert first.told()["pid"] == second.told()["pid"]
        assert first.delete() == 204
        assert second.told()["pid"]


def test_a_process_that_dies_is_replaced(tmp_path: Path) -> None:
    """What was under way gets a coded failure; the next call is answered by a new one, which was introduced."""
    with _listening(tmp_path, "own", server=OBLIGING) as proxy:
        caller = _Caller(proxy.url)
        before = caller.told()["pid"]
        died = caller.call("die", signal=int(signal.SIGKILL))
        assert died["isError"] is True
        assert "UPSTREAM_DIED" in died["content"][0]["text"]
        assert "SIGKILL" in died["content"][0]["text"]
        after = caller.told()["pid"]
        assert after != before


def test_what_a_server_started_ends_with_it(tmp_path: Path) -> None:
    with _listening(tmp_path, "own", server=OBLIGING) as proxy:
        caller = _Caller(proxy.url)
        family = caller.told("family")
        assert caller.delete() == 204
        assert _gone(*family)


def test_nothing_outlives_a_proxy_that_is_killed(tmp_path: Path) -> None:
    with _listening(tmp_path, "own", server=OBLIGING) as proxy:
        pids = [pid for caller in (_Caller(proxy.url), _Caller(proxy.url)) for pid in caller.told("family")]
        proxy.process.kill()
        assert _gone(*pids)


def test_there_is_a_most_of_processes(tmp_path: Path) -> None:
    with _listening(tmp_path, "own", "--processes", "1", server=OBLIGING) as proxy:
        first = _Caller(proxy.url)
        assert first.hello.status_code == 200
        refused = _Caller(proxy.url).hello.json()["error"]["message"]
        assert refused == "1 server is running, which is the most allowed."
        assert first.delete() == 204
        assert _Caller(proxy.url).told()["pid"]


def test_a_session_that_nobody_uses_ends(tmp_path: Path) -> None:
    with _listening(tmp_path, "own", "--idle", "1", server=OBLIGING) as proxy:
        caller = _Caller(proxy.url)
        assert _gone(caller.told()["pid"])
        assert caller.post("ping").status_code == 404


def test_a_session_belongs_to_the_credential_that_began_it(tmp_path: Path) -> None:
    with _listening(tmp_path, "own", server=OBLIGING) as proxy:
        mine = _Caller(proxy.url, authorization="Bearer mine")
        theirs = _Caller(proxy.url, authorization="Bearer theirs")
        theirs._headers["mcp-session-id"] = mine.hello.headers["mcp-session-id"]
        assert theirs.post("ping").status_code == 404
        assert mine.post("ping").status_code == 200


def test_a_server_that_ends_at_once(tmp_path: Path) -> None:
    with _listening(tmp_path, "own", server=(sys.executable, "-c", "raise SystemExit(3)")) as proxy:
        said = _Caller(proxy.url).hello.json()["error"]["message"]
        assert said == "The server ended (exit code 3) before it answered."
