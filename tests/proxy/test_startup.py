"""The first frames pass before the interceptor is loaded, and it sees them later."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from mcp_envelope.proxy.interceptor import Interceptor
from mcp_envelope.proxy.stdio import Startup

from .harness import OBLIGING, PATIENCE, Talk, call, frame, obliging, request, result, started

HELLO = request(0, "initialize", clientInfo={"name": "claude-code", "version": "2"}, capabilities={})


class Loading:
    """An interceptor that is there when a test says so."""

    def __init__(self, folder: Path) -> None:
        self.talk = Talk(folder)
        self.done = threading.Event()
        self.startup = Startup(self._make, lambda: None)

    def _make(self) -> Interceptor:
        self.done.wait(PATIENCE)
        return self.talk.wire


@pytest.mark.parametrize(
    ("line", "passes"),
    [
        (HELLO, True),
        (request(0, "ping"), False),
        (call(0, "initialize"), False),
        (frame([json.loads(HELLO)]), False),
        (HELLO[:-1], False),
        (b"\xff initialize", False),
        (request(0, "initialize", padding="x" * 100_000), False),
        (b"", False),
    ],
)
def test_only_initialize_passes_at_once(tmp_path: Path, line: bytes, passes: bool) -> None:
    loading = Loading(tmp_path)
    assert loading.startup.takes_first(line) is passes
    loading.done.set()


def test_the_interceptor_sees_what_has_passed(tmp_path: Path) -> None:
    loading = Loading(tmp_path)
    startup, wire = loading.startup, loading.talk.wire
    assert startup.passes(frame({"jsonrpc": "2.0", "method": "notifications/message"}))
    assert startup.takes_first(HELLO)
    assert startup.passes(result(0, capabilities={}))
    loading.done.set()
    assert startup.finish() is wire
    # The client is known, and its request was answered.
    assert wire.client.name == "claude-code"
    assert not wire.awaits(("n", 0))
    assert wire.lost("The server is gone.") == []
    assert not startup.passes(result(0, capabilities={}))
    assert startup.result() is wire


def test_an_unanswered_initialize_is_pending(tmp_path: Path) -> None:
    loading = Loading(tmp_path)
    assert loading.startup.takes_first(HELLO)
    loading.done.set()
    loading.startup.finish()
    [answer] = loading.startup.result().lost("The server is gone.")
    assert json.loads(answer)["id"] == 0


def test_a_failure_to_load_is_raised() -> None:
    def broken() -> Interceptor:
        raise RuntimeError("a mistake of ours")

    given_up = threading.Event()
    startup = Startup(broken, given_up.set)
    assert startup.finish() is None
    assert given_up.is_set()
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        startup.result()


# -- the process --------------------------------------------------------------------------------------------

# A proxy whose interceptor takes as long to load as there is a file.
SLOW = textwrap.dedent("""
    import os, sys, time
    from mcp_envelope.cli import proxy
    make = proxy._interceptor
    def slowly(*given):
        while os.path.exists(sys.argv[1]):
            time.sleep(0.01)
        if len(sys.argv) > 4:
            raise RuntimeError("a mistake of ours")
        return make(*given)
    proxy._interceptor = slowly
    sys.exit(proxy.run(["--tokens", "300", "--", *sys.argv[2:4]]))
""")


def slow(folder: Path, *more: str) -> tuple[list[str], Path]:
    held = folder / "held"
    held.touch()
    return [sys.executable, "-c", SLOW, str(held), *OBLIGING, *more], held


def test_the_first_reply_does_not_wait_for_loading(tmp_path: Path) -> None:
    command, held = slow(tmp_path)
    with started(command, tmp_path) as proxy:
        assert proxy.ask(HELLO) == {"jsonrpc": "2.0", "id": 0, "result": {}}
        proxy.say(request(1, "tools/list"))
        proxy.say(call(2, "text", {"bytes": 50_000}))
        held.unlink()
        tools = json.loads(proxy.hear())["result"]["tools"]
        assert tools[-1]["name"] == "envelope_read"
        assert json.loads(proxy.hear())["result"]["_meta"]
        proxy.end_input()
        assert proxy.hear() == b""
        assert proxy.wait() == 0


@pytest.mark.parametrize("first", [HELLO, request(0, "ping")])
def test_the_input_may_end_before_loading_is_done(tmp_path: Path, first: bytes) -> None:
    command, held = slow(tmp_path)
    with started(command, tmp_path) as proxy:
        proxy.say(first)
        proxy.end_input()
        held.unlink()
        assert json.loads(proxy.hear())["id"] == 0
        assert proxy.hear() == b""
        assert proxy.wait() == 0


def test_the_client_may_send_nothing(tmp_path: Path) -> None:
    with obliging(tmp_path) as proxy:
        proxy.end_input()
        assert proxy.hear() == b""
        assert proxy.wait() == 0


def test_a_proxy_that_cannot_load_ends_and_says_why(tmp_path: Path) -> None:
    command, held = slow(tmp_path, "fail")
    with started(command, tmp_path, err=subprocess.PIPE) as proxy:
        proxy.ask(HELLO)
        held.unlink()
        assert proxy.wait() == 1
        assert proxy.process.stderr is not None
        assert b"a mistake of ours" in proxy.process.stderr.read()
