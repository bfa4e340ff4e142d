"""Mistakes on the proxy's command line are told before anything is started."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .harness import COMMAND, at_terminal, environment

# A server that tells that it was started.
STARTED = [sys.executable, "-c", "import sys; sys.stderr.write('started')"]


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--vault", "foo://bar", "--", *STARTED], 2, "a vault cannot have an address like foo://"),
        (["--vault", "sqlite:///", "--", *STARTED], 2, "with three slashes"),
        (["python"], 2, "put -- before the server's command: mcp-envelope proxy -- python"),
        (
            ["--tokens", "4000", "python", "-c", "1"],
            2,
            "mcp-envelope proxy --tokens 4000 -- python -c 1 (see",
        ),
        (["--config=a b", "python", "--tokens", "5"], 2, "proxy '--config=a b' -- python --tokens 5 (see"),
        (["--vault", "python", "python", "--observe"], 2, "proxy --vault python -- python --observe (see"),
        (["--bogus", "--", *STARTED], 2, "there is no option '--bogus'"),
        (["--tokns=5", "--", *STARTED], 2, "there is no option '--tokns', did you mean --tokens?"),
        (
            ["--meter", "bytes", "--tokens", "500", "--", *STARTED],
            2,
            "--meter: the meter bytes works only with",
        ),
        (
            ["--meter", "exact", "--bytes", "900", "--", *STARTED],
            2,
            "--meter: a budget in bytes is counted by",
        ),
        ([], 2, "name one server"),
        (["--url", "http://127.0.0.1:1/mcp", "--", *STARTED], 2, "name one server"),
        (["--listen", "127.0.0.1", "--", *STARTED], 2, "--listen must be HOST:PORT"),
        (["--share", "--", *STARTED], 2, "--share needs --listen"),
        (
            ["--listen", "127.0.0.1:0", "--url", "http://127.0.0.1:1/mcp", "--idle", "5"],
            2,
            "--idle works with a command, not with --url",
        ),
        (
            ["--listen", "127.0.0.1:0", "--", "a-command-that-is-not-there"],
            127,
            "cannot start 'a-command-that-is-not-there'",
        ),
        (["--config", "nowhere.toml", "--", *STARTED], 3, "cannot read nowhere.toml"),
        (["--", "a-command-that-is-not-there"], 127, "cannot start 'a-command-that-is-not-there'"),
        (["--", "/"], 126, "cannot start '/'"),
        (["--", "npx -y server ."], 127, "do not quote the whole command"),
    ],
)
def test_mistakes(tmp_path: Path, arguments: list[str], code: int, told: str) -> None:
    done = subprocess.run(
        [*COMMAND, "proxy", *arguments],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code
    assert told in done.stderr
    assert "started" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_budget_that_is_too_small_is_raised_once(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "proxy", "--tokens", "5", "--", *STARTED],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert done.stderr.count("warning") == 1
    assert "--tokens: 5 is too small; 128 is used" in done.stderr


def test_what_was_observed_is_told_at_the_end(tmp_path: Path) -> None:
    large = {"content": [{"type": "text", "text": "a line\n" * 5000}]}
    server = (
        "import json, sys\n"
        "for line in sys.stdin:\n"
        f"    answer = {{'jsonrpc': '2.0', 'id': json.loads(line)['id'], 'result': {large!r}}}\n"
        "    print(json.dumps(answer), flush=True)"
    )
    asked = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"log"}}\n'
    done = subprocess.run(
        [*COMMAND, "proxy", "--observe", "--tokens", "500", "--", sys.executable, "-c", server],
        cwd=tmp_path,
        env=environment() | {"XDG_STATE_HOME": str(tmp_path)},
        input=asked,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert json.loads(done.stdout)["result"] == large
    told = re.fullmatch(
        r"note: observed 1 call, 1 of them over the budget: ([\d,]+) of ([\d,]+) tokens would have been saved\n",
        done.stderr.decode(),
    )
    assert told, done.stderr
    saved, before = (int(number.replace(",", "")) for number in told.groups())
    assert before - 500 <= saved < before


@pytest.mark.parametrize(("command", "advice"), [("gateway", "wrap CLIENT --gateway"), ("serve", "serve")])
def test_servers_that_wait_for_a_client_say_so(tmp_path: Path, command: str, advice: str) -> None:
    (tmp_path / ".mcp.json").write_text('{"mcpServers": {"a": {"command": "true"}}}')
    _, shown = at_terminal([*COMMAND, command], tmp_path, until=b"Ctrl-C ends it", MCP_ENVELOPE_VAULT="none")
    assert "waiting for an MCP client on standard input" in shown
    assert f"mcp-envelope {advice}" in shown


def test_a_person_at_a_terminal_is_told_what_it_waits_for(tmp_path: Path) -> None:
    """The server ends at once, so the proxy does too."""
    code, shown = at_terminal([*COMMAND, "proxy", "--", "true"], tmp_path, MCP_ENVELOPE_VAULT="none")
    assert code == 0
    assert "waiting for an MCP client on standard input" in shown
    assert "mcp-envelope wrap CLIENT" in shown
