"""The command `mcp-envelope stats`: sums of a real ledger, for people and for programs."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from mcp_envelope.cli.proxy import short_name
from mcp_envelope.config import Settings
from mcp_envelope.gateway import Call, Gateway
from mcp_envelope.payload import Result
from mcp_envelope.vault.ledger import Ledger, LedgerEntry

from .harness import COMMAND, Run, at_terminal, runner


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return runner("stats", tmp_path, monkeypatch, capfdbinary)


def noted(*entries: LedgerEntry) -> None:
    ledger = Ledger()
    for entry in entries:
        ledger.record(entry)
    ledger.close()


def cut(
    tool: str, before: int, after: int, result: str = "", ago: float = 0, observed: bool = False
) -> LedgerEntry:
    return LedgerEntry(
        at=time.time() - ago,
        tool=tool,
        before=before,
        after=after,
        cuts=int(before > after),
        stored=bool(result),
        result=result,
        observed=observed,
    )


def read(result: str, tokens: int) -> LedgerEntry:
    return LedgerEntry(at=time.time(), tool="envelope_read", result=result, before=tokens, after=tokens)


def rows(out: bytes) -> list[list[str]]:
    return [line.split("\t") for line in out.decode().splitlines()]


def test_nothing_was_recorded(run: Run, tmp_path: Path) -> None:
    outcome = run()
    assert (outcome.code, outcome.out) == (0, b"")
    assert "no calls have been recorded yet" in outcome.err
    assert not list(tmp_path.rglob("*.db"))
    assert json.loads(run("--json").out)["calls"] == []


def test_savings_are_net_of_what_was_read_back(run: Run) -> None:
    noted(
        cut("find", 9000, 1000, "a"),
        cut("find", 5000, 1000, "b"),
        cut("list", 50, 50),
        read("a", 300),
        read("a", 200),
    )
    assert rows(run().out) == [["all", "3", "2", "1 of 2", "0", "14050", "2550", "11500 (82%)"]]
    assert rows(run("--by", "tool").out) == [
        ["find", "2", "2", "1 of 2", "0", "14000", "2500", "11500 (82%)"],
        ["list", "1", "0", "-", "0", "50", "50", "0 (0%)"],
    ]
    [total] = json.loads(run("--json").out)["calls"]
    assert (total["reads"], total["tokensRead"], total["tokensSaved"]) == (2, 500, 11_500)


def test_a_result_that_is_read_through_the_gateway(run: Run) -> None:
    """What a model reads back is found again, though the ledger knows no handle."""
    gateway = Gateway(Settings(environ={}))
    policy = gateway.policy("find")
    whole = json.dumps({"rows": [{"id": number, "text": "word " * 9} for number in range(4000)]}).encode()
    sealed = gateway.finish(Result([], whole), Call(tool="find", policy=policy))
    assert sealed is not None
    page = gateway.read(
        {"handle": sealed.handle, "path": "/rows", "offset": 3000}, Call(tool="envelope_read", policy=policy)
    )
    gateway.close()
    [total] = json.loads(run("--json").out)["calls"]
    assert (total["calls"], total["stored"], total["read"], total["reads"]) == (1, 1, 1, 1)
    assert total["tokensRead"] == page.report.used
    assert sealed.handle is not None
    assert all(sealed.handle.encode() not in file.read_bytes() for file in Path("state").rglob("ledger.db*"))


def test_days_in_order_and_a_time_to_start_from(run: Run) -> None:
    noted(cut("a", 900, 100), cut("a", 90_000, 100, ago=3 * 86_400))
    days = [row[0] for row in rows(run("--by", "day").out)]
    assert len(days) == 2
    assert days == sorted(days)
    assert rows(run("--since", "2d").out)[0][1] == "1"
    wrong = run("--since", "soon")
    assert wrong.code == 2
    assert "'soon' is not a duration such as 7d" in wrong.err
    assert "did you mean tool?" in run("--by", "tol").err


def test_calls_that_were_only_observed_stand_apart(run: Run) -> None:
    noted(cut("a", 900, 100), cut("b", 5000, 100, observed=True))
    assert [(row[0], row[-1]) for row in rows(run("--by", "tool").out)] == [
        ("a", "800 (89%)"),
        ("b", "observed"),
    ]


def test_a_terminal_gets_a_table_with_bars(run: Run, tmp_path: Path) -> None:
    noted(cut("find", 80_000, 20_000, "a"), cut("list", 40_000, 40_000))
    code, shown = at_terminal(
        [*COMMAND, "stats", "--by", "tool"], tmp_path, XDG_STATE_HOME=str(tmp_path / "state")
    )
    assert code == 0
    heading, find, listed = shown.splitlines()
    assert "saved" in heading
    assert "60,000 (75%)" in find
    assert find.rstrip().endswith("█" * 6 + "░" * 18)
    assert listed.rstrip().endswith(" " + "█" * 12)


def test_a_file_that_is_no_ledger(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "state" / "mcp-envelope" / "ledger.db"
    place.parent.mkdir(parents=True)
    place.write_text("something else " * 500)
    outcome = run()
    assert outcome.code == 3
    assert "the ledger cannot be read" in outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("npx -y @modelcontextprotocol/server-filesystem .", "server-filesystem"),
        ("/usr/bin/python3.11 /srv/my_server.py --x", "my_server.py"),
        ("python -m mcp_server_git", "mcp_server_git"),
        ("/opt/bin/search-server --port 1", "search-server"),
        ("npx", "npx"),
        ("npx .", "."),
        ("node /opt/server-filesystem/dist/index.js .", "server-filesystem"),
        ("node index.js", "index.js"),
        ("python /main.py", "main.py"),
        ("uv run tickets.py", "tickets.py"),
    ],
)
def test_the_name_of_a_server(command: str, name: str) -> None:
    assert short_name(command.split()) == name
