"""Servers that speak in lines, over HTTP: the SDK's client, in both eras, with a process each or one for all."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client

from mcp_envelope.proxy.frames import id_key
from mcp_envelope.proxy.http_to_stdio import StatefulSession
from mcp_envelope.proxy.processes import ProcessGuard
from mcp_envelope.proxy.shared_servers import SharedServers
from mcp_envelope.proxy.supervisor import ServerCallbacks, Supervisor

from ..pairwise import pairwise
from ..warm import warm
from . import programs, sites, talks
from .harness import META, OBLIGING, frame, result

_ROOT = Path(__file__).resolve().parents[2]
_OLD = "2025-11-25"


def _listening(folder: Path, name: str, *arguments: str, server: tuple[str, ...] = ()) -> Any:
    vault = str(folder / f"{name}.db")
    more = ("--vault", vault, *arguments, "--", *(server or warm("tests.proxy.sdk", "stdio")))
    return programs.listening(folder, name, *more, PYTHONPATH=str(_ROOT))


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("listening")
        yield {
            name: f"{stack.enter_context(_listening(folder, name, *options)).url}/mcp"
            for name, options in {"own": (), "shared": ("--share",)}.items()
        }


@pairwise(
    talk=[talks.large_results, talks.progress, talks.cancellation, talks.a_budget_before_any_list],
    kind=["own", "shared"],
    mode=["legacy", "auto"],
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


def test_an_answer_that_nobody_awaits_is_not_that_to_another_request() -> None:
    """Python's client takes any answer in the stream of its request for the answer to it."""

    async def run() -> None:
        session = StatefulSession("s", None)
        stream = session.open([id_key(b"1")])
        stream.is_attached = True
        await session.deliver([result(2, content=[]), frame({"method": "notifications/x"}), result(1)])
        taken = [await stream.take(0), await stream.take(0)]
        assert [each and json.loads(each[1]).get("id") for each in taken] == [None, 1]
        assert await session.listener.take(0) == (1, result(2, content=[]))

    asyncio.run(run())


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


# -- who is slow --------------------------------------------------------------------------------------------

_MB = 1 << 20


def _peak(process: subprocess.Popen[bytes]) -> int:
    """The most memory that a process has had."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def _written(process: subprocess.Popen[bytes]) -> int:
    """How much the servers behind a proxy have written."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return sum(int(Path(f"/proc/{pid}/io").read_text().split()[3]) for pid in children)


def _standing(process: subprocess.Popen[bytes]) -> None:
    """Wait until the servers write no more, or have written everything."""
    before = -1
    while before != (before := _written(process)):
        time.sleep(0.5)


@dataclass
class _Flood:
    """A call with more news than its client takes, over HTTP/1.1 by hand."""

    caller: _Caller
    stateless: bool = False
    count: int = 120

    def __enter__(self) -> _Flood:
        meta: dict[str, Any] = {"progressToken": "news", **(META if self.stateless else {})}
        params = {"name": "flood", "arguments": {"count": self.count, "bytes": _MB}, "_meta": meta}
        body = frame({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        self._http = httpx2.Client(timeout=60, trust_env=False)
        self._stream = self._http.stream("POST", self.caller._url, content=body, headers=self._headers())
        self._reply = self._stream.__enter__()
        return self

    def _headers(self) -> dict[str, str]:
        shown = {**self.caller._headers, "content-type": "application/json"}
        if self.stateless:
            del shown["mcp-session-id"]
            shown |= {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "flood"}
        return shown

    def read(self) -> list[Any]:
        """All messages; news is as short as its number."""
        lines = (line for line in self._reply.iter_lines() if line.startswith("data:"))
        read = [json.loads(line.removeprefix("data:")) for line in lines]
        return [each["params"]["progress"] if "params" in each else each for each in read]

    def __exit__(self, *_: object) -> None:
        self._stream.__exit__(None, None, None)
        self._http.close()


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("way", ["own", "shared", "stateless"])
def test_a_client_that_reads_slowly(tmp_path: Path, way: str) -> None:
    """It costs little memory and holds up nobody. A process of its own waits for it; else it loses some news."""
    options = ("--share",) if way == "shared" else ()
    with _listening(tmp_path, "slow", *options, server=OBLIGING) as proxy:
        slow, other = _Caller(proxy.url), _Caller(proxy.url)
        pids = slow.told()["pid"], other.told()["pid"]
        before = _peak(proxy.process)
        with _Flood(slow, way == "stateless") as flood:
            _standing(proxy.process)
            assert other.told()["pid"] == pids[1]
            *news, result = flood.read()
        assert result["result"]["content"][0]["text"] == "that is all"
        assert news == sorted(news)
        assert news[0] == 0
        assert _peak(proxy.process) - before < 50 * _MB
        if way == "own":
            assert news == list(range(120))
        assert slow.told()["pid"] == pids[0]
    assert _gone(*pids)


def test_many_calls_at_once_to_a_slow_server(tmp_path: Path) -> None:
    with _listening(tmp_path, "many", server=OBLIGING) as proxy:
        busy, other = _Caller(proxy.url), _Caller(proxy.url)
        pids = busy.told()["pid"], other.told()["pid"]
        with ThreadPoolExecutor(101) as pool:
            late = pool.submit(busy.call, "late", seconds=2)
            calls = [
                pool.submit(busy.post, "tools/call", number, name="none", arguments={"x": "x" * 100_000})
                for number in range(2, 102)
            ]
            assert other.told()["pid"] == pids[1]
            assert late.result()["content"][0]["text"] == "at last"
            answers = [each.result().json() for each in calls]
        assert [each["id"] for each in answers] == list(range(2, 102))
        assert all(each["result"]["content"] == [] for each in answers)
    assert _gone(*pids)


def test_a_server_that_reads_nothing(tmp_path: Path) -> None:
    """What it cannot be sent any more fails at once, with a code; the proxy holds no more than 64 MB for it."""
    with _listening(tmp_path, "deaf", server=OBLIGING) as proxy:
        caller, other = _Caller(proxy.url), _Caller(proxy.url)
        pids = caller.told()["pid"], other.told()["pid"]
        with ThreadPoolExecutor(72) as pool:
            calls = [
                pool.submit(caller.post, "tools/call", number, name="hang", arguments={"x": "x" * _MB})
                for number in range(1, 73)
            ]
            done, _ = wait(calls, 30, FIRST_COMPLETED)
            assert done
            for each in done:
                assert "UPSTREAM_TIMEOUT" in each.result().json()["result"]["content"][0]["text"]
            assert other.told()["pid"] == pids[1]
            assert caller.delete() == 204
            assert _gone(pids[0])
    assert _gone(pids[1])


def test_what_is_lost_of_very_much_that_waits_for_one_client() -> None:
    """News first; then an answer, and its call fails instead of waiting for ever."""
    heard: list[Any] = []

    async def run() -> None:
        may_go_on, is_over = asyncio.Event(), asyncio.Event()

        async def received(data: bytes) -> None:
            await may_go_on.wait()
            heard.append(json.loads(data))
            if heard[-1].get("id") == 69:
                is_over.set()

        async def nothing(*_: object) -> None: ...

        guard = ProcessGuard()
        connection = SharedServers(Supervisor(guard), {}).connect(
            "", ServerCallbacks(received, nothing, nothing)
        )
        for number in range(70):
            connection.put(frame({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}))
            connection.put(result(number, text="x" * _MB))
        may_go_on.set()
        async with asyncio.timeout(30):
            await is_over.wait()
        guard.dismiss()

    asyncio.run(run())
    answers = [each for each in heard if "id" in each]
    assert [each["id"] for each in answers] == list(range(70))
    assert all("result" in each for each in answers[:60])
    assert "Call again" in answers[-1]["error"]["message"]
    assert 10 < len(heard) - len(answers) < 20
