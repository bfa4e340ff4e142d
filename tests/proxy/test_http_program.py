"""`mcp-envelope proxy --listen` as people run it: what it says, how it ends, and a thousand calls at a time."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
from contextlib import AsyncExitStack
from pathlib import Path

import httpx2
import msgspec
import pytest

from . import programs, sites
from .sites import Reply, Scripted, Seen, call, event, json_reply, result

_LARGE = msgspec.json.encode(sites.rows(60_000))


def _script(seen: Seen) -> Reply:
    """Small answers, large ones, very large ones, as JSON and as events; the call says which."""
    if seen.method == "GET":
        return sites.stream_reply(b": hello\n\n", 60.0)
    asked = seen.json
    if asked["method"] == "tools/list":
        return json_reply(result(asked["id"], sites.tools()))
    count = asked["params"]["arguments"]["count"]
    identifier = b"%d" % asked["id"]
    value = _LARGE if count == 60_000 else msgspec.json.encode(sites.rows(count))
    message = b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (identifier, value)
    return sites.stream_reply(event(message)) if asked["id"] % 3 else json_reply(message)


def _most_memory(process: subprocess.Popen[bytes]) -> int:
    """The most bytes that it ever had."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) << 10


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell")
def test_a_thousand_calls_at_a_time(tmp_path: Path) -> None:
    counts = [60_000 if number % 25 == 0 else 3000 if number % 10 == 0 else 2 for number in range(1000)]
    cut = sum(count > 2 for count in counts) + 1

    async def run(url: str) -> list[httpx2.Response]:
        async with AsyncExitStack() as stack:
            # The library looks through all connections of a client for each request, so there are many clients.
            made = [httpx2.AsyncClient(timeout=120, trust_env=False) for _ in range(40)]
            clients = [await stack.enter_async_context(client) for client in made]
            # Loaded, and with whatever is loaded once.
            await clients[0].post(f"{url}/mcp", content=msgspec.json.encode(call(count=3000)))
            asked = [
                msgspec.json.encode(call(identifier=number, count=count))
                for number, count in enumerate(counts)
            ]
            return await asyncio.gather(
                *[clients[number % 40].post(f"{url}/mcp", content=body) for number, body in enumerate(asked)]
            )

    server = Scripted(_script)
    with (
        sites.serving(server, lifespan="off") as behind,
        programs.listening(
            tmp_path, "proxy", "--vault", str(tmp_path / "v.db"), "--url", f"{behind}/mcp"
        ) as proxy,
    ):
        before = _most_memory(proxy.process)
        responses = asyncio.run(run(proxy.url))
        grown = _most_memory(proxy.process) - before
        with sites.client() as client:
            samples = client.get(f"{proxy.url}/metrics").text
        words = proxy.words
    for number, (count, response) in enumerate(zip(counts, responses, strict=True)):
        assert response.status_code == 200, response.text[:500]
        (said,) = sites.messages(response)
        assert said["id"] == number
        assert said["result"]["structuredContent"]["rows"][0] == {"id": 0, "name": "row 0"}
        assert ("_envelope" in said["result"]["structuredContent"]) == (count > 2)
    assert "mcp_envelope_upstream_errors_total 0\n" in samples
    assert f'mcp_envelope_calls_total{{outcome="cut"}} {cut}\n' in samples
    assert "mcp_envelope_requests_in_flight 0\n" in samples
    # 50 MB are the exact meter's, which is loaded with the first result that is cut.
    assert grown < 700 << 20
    assert "Traceback" not in words


def test_what_it_says(tmp_path: Path) -> None:
    secret = "s3cr3t-in-an-address"
    address = f"http://user:{secret}@127.0.0.1:9/mcp?key={secret}"
    with programs.listening(tmp_path, "proxy", "--url", address, "--bearer-env", "T", T=secret) as proxy:
        sites.post(proxy.url, call(), {"authorization": f"Bearer {secret}"})
        with sites.client() as client:
            assert client.get(f"{proxy.url}/health").json() == {"status": "ok"}
        proxy.process.terminate()
        assert proxy.process.wait(15) in (0, -signal.SIGTERM)
        assert secret not in proxy.words
        assert "in front of http://127.0.0.1:9/mcp\n" in proxy.words
        assert "the server behind did not answer" in proxy.words


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (("--listen", "127.0.0.1:x"), "--listen must be HOST:PORT"),
        (("--listen", "127.0.0.1:\xb2"), "--listen must be HOST:PORT"),
        (("--listen", "8900"), "--listen must be HOST:PORT"),
        (("--listen", "127.0.0.1:99999"), "--listen must be HOST:PORT"),
        (("--listen", "\xe4..b:8900"), "--listen must be HOST:PORT"),
        (("--listen", f"{'a' * 70}.b:8900"), "--listen must be HOST:PORT"),
        (("--allow-host", "a.example"), "--allow-host needs --listen"),
        (("--connections", "10"), "--connections needs --listen"),
        (("--request-memory", "0", "--listen", "127.0.0.1:0"), "0 is not a positive number"),
        (("--bearer-env", "NOT_THERE"), "the environment variable NOT_THERE is not set"),
        (("--header-env", "X-Key"), "--header-env must be NAME=VARIABLE"),
        (("--header-env", "X Key=T"), "'X Key' is not a header name"),
        (
            ("--header-env", "X-Key=TWO_LINES"),
            "the value of the environment variable TWO_LINES cannot be sent",
        ),
        (("--bearer-env", "TWO_LINES"), "the value of the environment variable TWO_LINES cannot be sent"),
        (("--url", "ftp://127.0.0.1/mcp"), "--url must be an address"),
        (("--url", "http://127.0.0.1:x/mcp"), "--url must be an address"),
    ],
)
def test_bad_usage_gets_one_line(said: tuple[str, ...], words: str, tmp_path: Path) -> None:
    done = subprocess.run(
        programs.command("--url", "http://127.0.0.1:9/mcp", *said),
        env=programs.environment(tmp_path, TWO_LINES="s3cr3t\nX-More: 1"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 2
    assert words in done.stderr
    assert "s3cr3t" not in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_port_that_is_taken_gets_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        there = f"127.0.0.1:{taken.getsockname()[1]}"
        done = subprocess.run(
            programs.command("--url", "http://127.0.0.1:9/mcp", "--listen", there),
            env=programs.environment(tmp_path),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=30,
        )
    assert (done.returncode, done.stderr) == (1, f"error: cannot listen on {there}: address already in use\n")


@pytest.mark.skipif(not Path("/proc/self/limits").exists(), reason="the system does not tell")
def test_as_many_connections_as_the_system_allows(tmp_path: Path) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(200, hard), hard))
    try:
        with programs.listening(tmp_path, "proxy", "--url", "http://127.0.0.1:9/mcp") as proxy:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            limits = Path(f"/proc/{proxy.process.pid}/limits").read_text()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    found = re.search(r"Max open files +(\d+) +(\d+)", limits)
    assert found is not None
    assert found[1] == found[2] == str(hard)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the system does not tell")
def test_a_failure_is_told_when_not_one_more_file_can_be_opened(tmp_path: Path) -> None:
    import resource

    with programs.listening(tmp_path, "proxy", "--url", "http://127.0.0.1:9/mcp") as proxy:
        with sites.client() as client:
            client.get(f"{proxy.url}/health")
            opened = {int(each.name) for each in Path(f"/proc/{proxy.process.pid}/fd").iterdir()}
            most = next(number for number in range(1 << 20) if number not in opened)
            resource.prlimit(proxy.process.pid, resource.RLIMIT_NOFILE, (most, most))
            # On the same connection.
            response = client.post(f"{proxy.url}/mcp", content=msgspec.json.encode(call()))
        words = proxy.words
    assert sites.problem(response.json()) == "UPSTREAM_UNAVAILABLE"
    assert "Traceback" not in words


def test_the_end_waits_for_what_runs_and_not_for_what_listens(tmp_path: Path) -> None:
    server = Scripted(
        lambda seen: (
            _script(seen)
            if seen.method == "GET"
            else sites.stream_reply(1.0, event(result(1, sites.rows(1))))
        )
    )

    async def run(url: str, process: subprocess.Popen[bytes]) -> httpx2.Response:
        async with (
            httpx2.AsyncClient(timeout=20, trust_env=False) as client,
            client.stream("GET", f"{url}/mcp") as listening,
        ):
            running = asyncio.create_task(
                client.post(f"{url}/mcp", content=msgspec.json.encode(sites.request("ping")))
            )
            while len(server.seen) < 2:
                await asyncio.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            async for _ in listening.aiter_raw():
                pass
            return await running

    with (
        sites.serving(server, lifespan="off") as behind,
        programs.listening(tmp_path, "proxy", "--vault", "none", "--url", f"{behind}/mcp") as proxy,
    ):
        response = asyncio.run(run(proxy.url, proxy.process))
        code = proxy.process.wait(20)
        # What it would say if it had waited for the stream until it had enough.
        assert "Cancel" not in proxy.words
    assert sites.messages(response) == [result(1, sites.rows(1))]
    assert code in (0, -signal.SIGTERM)


def test_what_is_not_answered_in_time_is_told_so_at_the_end(tmp_path: Path) -> None:
    def script(seen: Seen) -> Reply:
        if seen.json["id"] == 3:
            return sites.stream_reply(b": hello\n\n", 60.0)
        return Reply(200, [("content-type", "application/json")], [60.0])

    async def run(url: str, process: subprocess.Popen[bytes]) -> list[httpx2.Response]:
        async with httpx2.AsyncClient(timeout=30, trust_env=False) as client:
            asked = [call(identifier=1), sites.request("ping", 2), call(identifier=3)]
            running = [
                asyncio.create_task(client.post(f"{url}/mcp", content=msgspec.json.encode(each)))
                for each in asked
            ]
            while len(server.seen) < 3:
                await asyncio.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            return await asyncio.gather(*running)

    server = Scripted(script)
    with (
        sites.serving(server, lifespan="off") as behind,
        programs.listening(tmp_path, "proxy", "--vault", "none", "--url", f"{behind}/mcp") as proxy,
    ):
        called, asked, streamed = asyncio.run(run(proxy.url, proxy.process))
        assert proxy.process.wait(20) in (0, -signal.SIGTERM)
        assert "Traceback" not in proxy.words
    assert (called.status_code, sites.problem(called.json())) == (200, "UPSTREAM_DIED")
    assert "The proxy ended before the server answered." in called.text
    assert (asked.status_code, asked.json()["id"]) == (502, 2)
    assert sites.problem(sites.messages(streamed)[-1]) == "UPSTREAM_DIED"
