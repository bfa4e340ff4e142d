"""The gateway as a program: the official SDK's client, and servers behind it, one of them over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from ..pairwise import pairwise
from ..warm import warm
from . import programs, sdk, sites, talks
from .harness import OBLIGING, call, environment, is_stuck, request, started, until

_ROOT = str(Path(__file__).resolve().parents[2])
_TIME: dict[str, Any] = {
    "command": sys.executable,
    "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"],
}
_PLAIN: dict[str, Any] = {"command": sys.executable, "args": [f"{_ROOT}/tests/contracts/plain.py"]}
_OBLIGING: dict[str, Any] = {"command": OBLIGING[0], "args": [*OBLIGING[1:]]}


_HELLO = request(
    0,
    "initialize",
    protocolVersion="2025-11-25",
    capabilities={},
    clientInfo={"name": "tests", "version": "1"},
)


def _sdk() -> dict[str, Any]:
    command, *arguments = warm("tests.proxy.sdk", "stdio")
    return {"command": command, "args": arguments}


def _file(folder: Path, **servers: dict[str, Any]) -> str:
    path = folder / "servers.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return str(path)


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "mcp_envelope", "gateway", *arguments]


def _target(folder: Path, *arguments: str) -> Any:
    program, *rest = _command(*arguments, "--vault", str(folder / "vault.db"))
    env = programs.environment(folder)
    return stdio_client(StdioServerParameters(command=program, args=rest, env=env, cwd=folder))


@pytest.fixture(scope="module")
def http() -> Iterator[str]:
    """The SDK's server, over HTTP."""
    with sites.serving(sdk.app("http"), lifespan="on") as url:
        yield f"{url}/mcp"


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Gateways that listen, in front of the same servers."""
    with ExitStack() as stack:
        found = {}
        for name, options in {"own": (), "shared": ("--share",)}.items():
            folder = tmp_path_factory.mktemp(name)
            file = _file(folder, sdk=_sdk(), plain=_PLAIN)
            more = ("--names", "short", "--vault", str(folder / "vault.db"), *options)
            listening = programs.listening(folder, name, file, *more, command="gateway")
            found[name] = f"{stack.enter_context(listening).url}/mcp"
        yield found


@pairwise(
    talk=[talks.large_results, talks.progress, talks.cancellation, talks.a_budget_before_any_list],
    way=["stdio", "own", "shared"],
    mode=["legacy", "auto"],
)
def test_conversations(
    request: pytest.FixtureRequest, talk: talks.Talk, way: str, mode: str, tmp_path: Path
) -> None:
    if way == "stdio":
        file = _file(tmp_path, sdk=_sdk(), plain=_PLAIN)
        talks.hold(talk, _target(tmp_path, file, "--names", "short"), mode)
    else:
        talks.hold(talk, request.getfixturevalue("ways")[way], mode)


@pytest.mark.parametrize("talk", [talks.questions, talks.notifications])
def test_what_a_server_says_of_its_own_accord(talk: talks.Talk, tmp_path: Path) -> None:
    file = _file(tmp_path, sdk=_sdk(), plain=_PLAIN)
    talks.hold(talk, _target(tmp_path, file, "--names", "short"), "legacy")


@pytest.mark.parametrize("talk", [talks.large_results, talks.progress, talks.cancellation, talks.questions])
def test_a_server_with_a_url(http: str, talk: talks.Talk, tmp_path: Path) -> None:
    file = _file(tmp_path, remote={"type": "http", "url": http}, plain=_PLAIN)
    talks.hold(talk, _target(tmp_path, file, "--names", "short"), "legacy")


@pytest.mark.parametrize("kind", ["own", "shared"])
def test_clients_of_both_eras_at_a_time(ways: dict[str, str], kind: str) -> None:
    async def one(number: int) -> None:
        async with Client(ways[kind], mode=("legacy", "auto")[number % 2]) as client:
            for step in range(4):
                tag = f"{number}-{step}"
                rows, failure = await asyncio.gather(
                    client.call_tool("rows", {"count": 2, "tag": tag}),
                    client.call_tool("look", {"case": "read_file", "file": tag}),
                )
                assert rows.structured_content["rows"][1]["name"] == f"{tag} 1"
                assert f"File not found: {tag}" in talks.said(failure)

    async def run() -> None:
        await asyncio.gather(*[one(number) for number in range(4)])

    asyncio.run(run())


def test_a_server_that_does_not_start_costs_its_own_tools(tmp_path: Path) -> None:
    broken = {"command": sys.executable, "args": ["-c", "exit(7)"]}
    file = _file(tmp_path, fine=_OBLIGING, broken=broken, nowhere={"url": "ftp://nowhere.example"})
    with started(_command(file), tmp_path) as gateway:
        assert gateway.ask(_HELLO)["result"]["capabilities"]["tools"] == {"listChanged": True}
        names = [tool["name"] for tool in gateway.ask(request(1, "tools/list"))["result"]["tools"]]
        assert {name.partition("__")[0] for name in names} == {"fine", "envelope_read"}
        failed = gateway.ask(call(2, "broken__anything"))["result"]
        assert failed["isError"] is True
        assert "broken: The server ended (exit code 7)" in failed["content"][0]["text"]
        told = gateway.ask(call(3, "fine__self"))["result"]["content"][0]["text"]
        pid = json.loads(told)["pid"]
        gateway.end_input()
        assert gateway.wait() == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def _wrapping(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "mcp_envelope", *arguments, "--yes"],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout + done.stderr


def test_it_is_put_into_a_configuration_and_taken_out_again(tmp_path: Path) -> None:
    file = Path(_file(tmp_path, fine=_OBLIGING, plain=_PLAIN))
    before = file.read_bytes()
    _wrapping(tmp_path, "wrap", str(file), "--gateway", "--tokens", "3000")
    [entry] = json.loads(file.read_text())["mcpServers"].values()
    with started([entry["command"], *entry["args"]], tmp_path) as gateway:
        gateway.ask(_HELLO)
        names = [tool["name"] for tool in gateway.ask(request(1, "tools/list"))["result"]["tools"]]
        assert {"fine__self", "plain__look", "envelope_read"} <= set(names)
    # Nothing more to do, and what the gateway reads stays.
    assert "Nothing to do" in _wrapping(tmp_path, "wrap", str(file), "--gateway")
    assert "Nothing to do" in _wrapping(tmp_path, "wrap", str(file))
    _wrapping(tmp_path, "unwrap", str(file))
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.glob("servers.json*")] == ["servers.json"]


def test_what_is_wrapped_already_is_not_gathered(tmp_path: Path) -> None:
    file = _file(tmp_path, fine=_OBLIGING, time=_TIME)
    _wrapping(tmp_path, "wrap", file, "--servers", "fine")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        _wrapping(tmp_path, "wrap", file, "--gateway")
    assert failed.value.returncode == 3
    assert "some servers are already wrapped; first run: mcp-envelope unwrap" in failed.value.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["nowhere.json"], 3, "cannot read nowhere.json"),
        (["servers.json", "--servers", "tima"], 2, "there is no server 'tima' in servers.json"),
        (["servers.json", "--except", "time"], 3, "servers.json has no server that can be started"),
        (["servers.json", "--share"], 2, "--share needs --listen"),
        (["servers.json", "--names", "long"], 2, "--names"),
        (["servers.json", "--listen", "here"], 2, "--listen must be HOST:PORT"),
    ],
)
def test_mistakes(tmp_path: Path, arguments: list[str], code: int, told: str) -> None:
    _file(tmp_path, time=_TIME)
    done = subprocess.run(
        _command(*arguments),
        cwd=tmp_path,
        env=environment(tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert told in done.stderr


def test_what_is_remembered_is_private(tmp_path: Path) -> None:
    file = _file(tmp_path, fine=_OBLIGING)
    with started(_command(file), tmp_path) as gateway:
        gateway.ask(_HELLO)
    [kept] = (Path(environment(tmp_path)["XDG_STATE_HOME"]) / "mcp-envelope" / "servers").iterdir()
    assert kept.stat().st_mode & 0o077 == 0
    assert kept.parent.stat().st_mode & 0o077 == 0


def test_nothing_outlives_a_gateway_that_is_killed(tmp_path: Path) -> None:
    file = _file(tmp_path, fine=_OBLIGING)
    with started(_command(file), tmp_path) as gateway:
        gateway.ask(_HELLO)
        family = json.loads(gateway.ask(call(1, "fine__family"))["result"]["content"][0]["text"])
        gateway.process.kill()
        gateway.process.wait()
        assert all(map(programs.is_gone, family))


def test_a_signal_ends_it(tmp_path: Path) -> None:
    file = _file(tmp_path, fine=_OBLIGING)
    with started(_command(file), tmp_path) as gateway:
        gateway.ask(_HELLO)
        pid = json.loads(gateway.ask(call(1, "fine__self"))["result"]["content"][0]["text"])["pid"]
        gateway.process.terminate()
        assert gateway.wait() == 143
        assert programs.is_gone(pid)


def test_a_client_that_reads_late_gets_everything(tmp_path: Path) -> None:
    file = _file(tmp_path, fine=_OBLIGING)
    with started(_command(file, "--tokens", "100000"), tmp_path, reading=False) as gateway:
        assert gateway.process.stdout is not None
        for line in (
            _HELLO,
            call(1, "fine__text", {"bytes": 60_000}),
            call(2, "fine__text", {"bytes": 60_000}),
        ):
            gateway.say(line)
        gateway.end_input()
        assert until(lambda: is_stuck(gateway.process.stdout))
        said = [json.loads(line) for line in gateway.process.stdout]
        assert {each["id"] for each in said} == {0, 1, 2}
        assert gateway.wait() == 0


def test_a_signal_ends_it_if_the_client_reads_nothing(tmp_path: Path) -> None:
    file = _file(tmp_path, fine=_OBLIGING)
    with started(_command(file, "--tokens", "100000"), tmp_path, reading=False) as gateway:
        for line in (_HELLO, *(call(each, "fine__text", {"bytes": 60_000}) for each in range(1, 9))):
            gateway.say(line)
        assert until(lambda: is_stuck(gateway.process.stdout))
        gateway.process.terminate()
        assert gateway.wait() == 143


def test_a_client_that_stops_reading_ends_it(tmp_path: Path) -> None:
    file = _file(tmp_path, fine=_OBLIGING)
    with started(_command(file), tmp_path, reading=False) as gateway:
        assert gateway.process.stdout is not None
        gateway.say(_HELLO)
        gateway.process.stdout.readline()
        gateway.process.stdout.close()
        assert gateway.wait() == 0
