"""The proxy as a process: it takes the place of the server and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from mcp_envelope.proxy.stdio import Writer, lines_and_ends

from .harness import (
    OBLIGING,
    PATIENCE,
    call,
    count,
    environment,
    is_stuck,
    obliging,
    proxied,
    request,
    started,
    until,
)

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks into /proc")


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def memory(pid: int, what: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in status if line.startswith(what))


def said(result: Any) -> Any:
    return json.loads(result["result"]["content"][0]["text"])


# -- starting and ending ------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 3, 255])
def test_the_exit_code_is_the_servers(tmp_path: Path, code: int) -> None:
    with obliging(tmp_path) as proxy:
        got = proxy.ask(call(1, "exit", {"code": code}))
        assert "UPSTREAM_DIED" in got["result"]["content"][0]["text"]
        assert f"exit code {code}" in got["result"]["content"][0]["text"]
        assert proxy.hear() == b""
        assert proxy.wait() == code


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGUSR2])
def test_a_server_that_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    """Each pending request is answered, and the proxy ends as the server did."""
    with obliging(tmp_path) as proxy:
        proxy.say(call("a", "silence"))
        proxy.say(call("b", "silence"))
        proxy.say(call("c", "die", {"signal": number}))
        answers = [json.loads(proxy.hear()) for _ in range(3)]
        assert [answer["id"] for answer in answers] == ["a", "b", "c"]
        assert all(number.name in answer["result"]["content"][0]["text"] for answer in answers)
        assert proxy.wait() == -number


def test_a_server_that_dies_in_the_middle_of_a_line(tmp_path: Path) -> None:
    with obliging(tmp_path) as proxy:
        proxy.say(call(1, "die", {"signal": 9, "half": True}))
        assert proxy.hear() == b'{"jsonrpc":"2.0","id":\n'
        assert json.loads(proxy.hear())["result"]["isError"] is True


def test_the_end_of_input_is_the_end(tmp_path: Path) -> None:
    """Requests that were sent in one go are all answered, one with a budget before any list included."""
    with obliging(tmp_path) as proxy:
        proxy.say(call(1, "text", {"bytes": 50_000, "tokenBudget": 300}))
        proxy.say(request(2, "ping"))
        proxy.end_input()
        answers = {message["id"]: message for message in (json.loads(proxy.hear()) for _ in range(2))}
        assert set(answers) == {1, 2}
        assert not answers[1]["result"].get("isError")
        assert count(answers[1]["result"]["content"]) <= 300
        assert proxy.wait() == 0


def test_the_server_ends_when_the_client_is_gone(tmp_path: Path) -> None:
    with obliging(tmp_path, reading=False) as proxy:
        assert proxy.process.stdout is not None
        proxy.say(call(1, "self"))
        server = said(json.loads(proxy.process.stdout.readline()))["pid"]
        proxy.process.stdout.close()
        proxy.say(call(2, "text", {"bytes": 1000}))
        assert proxy.wait() == 0
        assert until(lambda: not lives(server))


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (("no-such-command-anywhere",), 127, "cannot start 'no-such-command-anywhere': no such file"),
        (("/",), 126, "cannot start '/'"),
    ],
)
def test_a_command_that_cannot_be_run(
    tmp_path: Path, command: tuple[str, ...], code: int, words: str
) -> None:
    with started(proxied(*command), tmp_path, err=subprocess.PIPE) as proxy:
        assert proxy.wait() == code
        assert proxy.process.stderr is not None
        told = proxy.process.stderr.read().decode()
        assert words in told
        assert "Traceback" not in told


def test_signals_are_forwarded_and_standard_error_is_shared(tmp_path: Path) -> None:
    with obliging(tmp_path, err=subprocess.PIPE) as proxy:
        told = said(proxy.ask(call(1, "self")))
        assert told["group"] == told["pid"] != os.getpgid(proxy.pid)
        proxy.process.send_signal(signal.SIGUSR1)
        proxy.process.send_signal(signal.SIGHUP)
        assert proxy.process.stderr is not None
        heard = {proxy.process.stderr.readline() for _ in range(3)}
        assert heard == {
            b"words for people\n",
            b"caught %d\n" % signal.SIGUSR1,
            b"caught %d\n" % signal.SIGHUP,
        }
        assert proxy.ask(request(2, "ping")) == {"jsonrpc": "2.0", "id": 2, "result": {}}
        proxy.process.send_signal(signal.SIGTERM)
        assert proxy.wait() == -signal.SIGTERM
        assert until(lambda: not lives(told["pid"]))


@pytest.mark.parametrize("group", [False, True])
def test_nothing_is_left_behind_when_the_proxy_is_killed(tmp_path: Path, group: bool) -> None:
    with obliging(tmp_path, group=0) as proxy:
        family = said(proxy.ask(call(1, "family")))
        assert len(family) == 3
        assert all(map(lives, family))
        if group:
            os.killpg(proxy.pid, signal.SIGKILL)
        else:
            proxy.process.kill()
        proxy.wait()
        assert until(lambda: not any(map(lives, family)), 10)


def test_the_proxy_ends_with_the_server_even_if_a_child_holds_its_output(tmp_path: Path) -> None:
    """Its child has the other end of the pipe, and says nothing."""
    server = (
        "import os, subprocess, sys\n"
        "sys.stdin.readline()\n"
        "sleeps = [sys.executable, '-c', 'import time; time.sleep(120)']\n"
        "child = subprocess.Popen(sleeps, stdin=subprocess.DEVNULL)\n"
        'print(\'{"jsonrpc":"2.0","method":"%d"}\' % child.pid, flush=True)\n'
        "os._exit(5)\n"
    )
    with started(proxied(sys.executable, "-c", server), tmp_path) as proxy:
        proxy.say(call(1, "t"))
        child = int(json.loads(proxy.hear())["method"])
        try:
            assert "UPSTREAM_DIED" in proxy.hear().decode()
            assert proxy.wait() == 5
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("ends", ["by the signal", "by itself"])
def test_a_signal_while_the_client_does_not_read(tmp_path: Path, ends: str) -> None:
    heeds = "signal.signal(signal.SIGTERM, lambda *_: os._exit(4))" if ends == "by itself" else ""
    server = f'import os, signal, sys\n{heeds}\nwhile True: os.write(1, b\'{{"method":"x"}}\\n\' * 999)'
    with started(proxied(sys.executable, "-c", server), tmp_path, reading=False) as proxy:
        assert proxy.process.stdout is not None
        assert proxy.process.stdout.readline()
        assert until(lambda: is_stuck(proxy.process.stdout))
        proxy.process.send_signal(signal.SIGTERM)
        assert proxy.wait() == (4 if ends == "by itself" else -signal.SIGTERM)


def test_a_server_that_never_lists_its_tools(tmp_path: Path) -> None:
    server = (
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    asked = json.loads(line)\n"
        "    if asked.get('method') == 'tools/call':\n"
        "        result = {'content': [], 'structuredContent': {'a': 1}}\n"
        "        print(json.dumps({'jsonrpc': '2.0', 'id': asked['id'], 'result': result}), flush=True)\n"
    )
    impatient = (
        "import sys\n"
        "from mcp_envelope.cli.main import main\n"
        "from mcp_envelope.proxy import stdio\n"
        "stdio._PATIENCE_FOR_LISTS = 0.5\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    with started(
        [sys.executable, "-c", impatient, "proxy", "--", sys.executable, "-c", server], tmp_path
    ) as proxy:
        for number in range(3):
            assert proxy.ask(call(number, "t"))["result"]["structuredContent"] == {"a": 1}


def test_other_descriptors_reach_the_server(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    server = f"import os; os.write({writing}, b'here')"
    command = proxied(sys.executable, "-c", server)
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        env=environment(tmp_path),
        pass_fds=[writing],
        timeout=60,
        check=False,
    )
    os.close(writing)
    assert done.returncode == 0
    assert os.read(reading, 100) == b"here"
    # Nobody is left who could say more.
    assert os.read(reading, 100) == b""
    os.close(reading)


# -- large frames, and sides that do not read ---------------------------------------------------------------


# The exact meter's, which stays loaded.
VOCABULARY = 50 << 20


@pytest.mark.parametrize("kind", ["text", "json", "typed", "wide", "typed in other words"])
def test_a_frame_of_100_megabytes(tmp_path: Path, kind: str) -> None:
    size = 100 << 20
    with obliging(tmp_path, "--tokens", "2000") as proxy:
        proxy.ask(request(0, "tools/list"))
        got = proxy.ask(call(1, kind, {"bytes": size}))
        assert memory(proxy.pid, "VmHWM") <= 3.5 * size
        # The second one finds the vocabulary loaded.
        proxy.ask(call(2, kind, {"bytes": size}))
        assert memory(proxy.pid, "VmHWM") <= 3.5 * size + VOCABULARY
        assert count(got["result"]["content"]) <= 2000
        assert got["result"]["_meta"]
        assert ("structuredContent" in got["result"]) == kind.startswith("typed")
        # And it is not held on to.
        assert until(lambda: memory(proxy.pid, "VmRSS") < (80 << 20) + VOCABULARY)


def test_an_error_of_100_megabytes(tmp_path: Path) -> None:
    with obliging(tmp_path, "--tokens", "2000") as proxy:
        got = proxy.ask(call(1, "error", {"bytes": 100 << 20}))
        assert memory(proxy.pid, "VmHWM") <= 3.5 * (100 << 20)
        assert count(got["error"]) <= 2000


@pytest.mark.skipif("COVERAGE_PROCESS_CONFIG" in os.environ, reason="coverage takes memory of its own")
def test_a_large_frame_that_does_not_concern_us_passes(tmp_path: Path) -> None:
    with obliging(tmp_path) as proxy:
        sent = request(1, "ping", padding="x" * (30 << 20))
        proxy.say(sent)
        assert json.loads(proxy.hear())["id"] == 1
        assert memory(proxy.pid, "VmHWM") <= 2 * len(sent)


def test_a_client_that_does_not_read(tmp_path: Path) -> None:
    """The server gets no further than the pipes are wide, and nothing piles up in between."""
    with obliging(tmp_path, "--tokens", "9000000", reading=False, MCP_ENVELOPE_MAX_TOKENS="9000000") as proxy:
        before = memory(proxy.pid, "VmRSS")
        for number in range(200):
            proxy.say(call(number, "text", {"bytes": 1 << 20}))
        assert until(lambda: is_stuck(proxy.process.stdout))
        assert memory(proxy.pid, "VmHWM") - before < 60 << 20
        assert proxy.process.stdout is not None
        assert [json.loads(proxy.process.stdout.readline())["id"] for _ in range(200)] == list(range(200))


@pytest.mark.parametrize("arguments", [{}, {"tokenBudget": 500}])
def test_a_server_that_does_not_read(tmp_path: Path, arguments: dict[str, Any]) -> None:
    with obliging(tmp_path) as proxy:
        proxy.say(call("h", "hang"))
        flood = call(1, "none", {**arguments, "padding": "x" * 10_000})
        sent = [0]

        def send() -> None:
            try:
                for _ in range(10_000):
                    proxy.say(flood)
                    sent[0] += 1
            except OSError:
                pass

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        sender.join(1.5)
        assert sent[0] < 1000
        assert memory(proxy.pid, "VmHWM") < 100 << 20
        proxy.process.kill()
        sender.join(PATIENCE)


def test_reading_from_the_server_never_waits_for_it_to_read(tmp_path: Path) -> None:
    """A result makes us ask for a list, while the server says more than the pipe holds and its input is full."""
    with obliging(tmp_path, "--tokens", "300") as proxy:
        proxy.say(call(1, "chatty", {"bytes": 4 << 20}))
        sender = threading.Thread(target=proxy.say, args=(request(2, "ping", padding="x" * (2 << 20)),))
        sender.start()
        heard = [json.loads(proxy.hear()).get("id") for _ in range(3)]
        assert sorted(map(str, heard)) == ["1", "2", "None"]
        sender.join(PATIENCE)


def test_neither_side_waits_for_the_other_forever(tmp_path: Path) -> None:
    """Large answers, large requests and a question of our own at the same time."""
    with obliging(tmp_path, "--tokens", "300") as proxy:

        def send() -> None:
            for number in range(60):
                proxy.say(call(number, "typed", {"bytes": 300_000, "padding": "x" * 100_000}))

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        answers = {json.loads(proxy.hear())["id"] for _ in range(60)}
        assert answers == set(range(60))
        sender.join(PATIENCE)


# -- what is loaded -----------------------------------------------------------------------------------------


def test_no_mcp_library_is_loaded(tmp_path: Path) -> None:
    command = proxied(*OBLIGING, options=("--tokens", "300"))
    command.insert(1, "-Ximporttime")
    with (tmp_path / "err").open("wb") as err, started(command, tmp_path, err=err) as proxy:
        proxy.ask(request(0, "tools/list"))
        got = proxy.ask(call(1, "typed", {"bytes": 300_000}))
        handle = got["result"]["structuredContent"]["_envelope"]["handle"]
        assert not proxy.ask(call(2, "envelope_read", {"handle": handle}))["result"].get("isError")
        proxy.end_input()
        proxy.wait()
    loaded = {line.rpartition("|")[2].strip() for line in (tmp_path / "err").read_text().splitlines()}
    assert "mcp_envelope.proxy.interceptor" in loaded
    roots = {name.partition(".")[0] for name in loaded}
    assert not roots & {"mcp", "mcp_types", "fastmcp", "pydantic", "anyio", "asyncio", "httpx2", "starlette"}


# -- lines --------------------------------------------------------------------------------------------------


def test_lines_of_any_length_and_their_ends() -> None:
    data = b"a\n\n" + b"b" * 3_000_000 + b"\r\n" + b"c\n" * 5000 + b"last"
    reading, writing = os.pipe()

    def write() -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(writing, view[:70_001]) :]
        os.close(writing)

    writer = threading.Thread(target=write)
    writer.start()
    read = list(lines_and_ends(reading))
    writer.join()
    os.close(reading)
    assert b"".join([line + end for line, end in read]) == data
    assert read[0] == (b"a", b"\n")
    assert read[-1] == (b"last", b"")
    assert len(read) == 5004


def test_a_writer_whose_reader_is_gone() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    writer = Writer(writing)
    writer.write([b"x"])
    assert writer.is_broken
    writer.write([b"y" * 1_000_000])
    assert writer.close()
    os.close(writing)


def test_the_default_vault_is_the_default_vault() -> None:
    from mcp_envelope.cli import proxy
    from mcp_envelope.vault import vault

    assert proxy._DEFAULT_VAULT == vault.DEFAULT_ADDRESS


def test_later_writes_are_in_order_and_finish_before_the_end() -> None:
    reading, writing = os.pipe()
    writer = Writer(writing)
    large = b"x" * (1 << 20)
    for number in range(20):
        writer.write_later([b"%d" % number, large] if number < 2 else [b"%d" % number])
    closing = threading.Thread(target=writer.close)
    closing.start()
    with os.fdopen(reading, "rb") as file:
        heard = file.read().splitlines()
    closing.join()
    assert [line for line in heard if line != large] == [b"%d" % number for number in range(20)]
    assert heard[1] == heard[3] == large
