"""The command `mcp-envelope vault`, as a person meets it: real SQLite files, and a look at what is left of them."""

from __future__ import annotations

import json
import os
import re
import shlex
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcp_envelope.cli.main import main
from mcp_envelope.payload import new_handle, read_payload
from mcp_envelope.vault.sqlite import SQLiteStore
from mcp_envelope.vault.vault import Vault

from .harness import COMMAND, Run, at_terminal, environment, process, runner, unprivileged

Stored = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    monkeypatch.setenv("MCP_ENVELOPE_VAULT", "vault.db")
    return runner("vault", tmp_path, monkeypatch, capfdbinary)


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    def put(payload: Any, tool: str | None = None, ttl: float = 7290.0, owner: str | None = None) -> str:
        vault = Vault(SQLiteStore(tmp_path / "vault.db"), ttl)
        handle = new_handle()
        assert vault.keep(handle, read_payload(payload), tool, owner) is None
        vault.close()
        return handle

    return put


def handles(run: Run) -> list[str]:
    return [line.split("\t")[0] for line in run("list").out.decode().splitlines()]


# -- looking ------------------------------------------------------------------------------------------------


def test_a_pipe_gets_lines_with_tabs_newest_first(run: Run, stored: Stored) -> None:
    first = stored({"a": [1, 2]}, "find")
    second = stored("some text")
    outcome = run("list")
    assert (outcome.code, outcome.err) == (0, "")
    lines = [line.split("\t") for line in outcome.out.decode().splitlines()]
    assert [line[:4] for line in lines] == [[second, "text", "9", "-"], [first, "json", "11", "find"]]
    for *_, age, left in lines:
        assert re.fullmatch(r"\d+s", age)
        assert left == "2h 1m"


def test_a_terminal_gets_a_table(stored: Stored, tmp_path: Path) -> None:
    handle = stored({"a": "x" * 3000}, "find\x1b[31m" + "d" * 60)
    stored("text", "t")
    code, shown = at_terminal([*COMMAND, "vault", "list", "--vault", "vault.db"], tmp_path, NO_COLOR="1")
    head, *rows = shown.replace("\r\n", "\n").splitlines()
    assert code == 0
    assert head.split() == ["handle", "kind", "size", "tool", "age", "expires", "in"]
    assert rows[1].startswith(f"{handle}  json  2.9 KiB  find\\x1b[31m")
    assert "…" in rows[1]
    assert [row[head.index("age") :][:1].isdigit() for row in rows] == [True, True]
    assert [row[head.index("expires") :] for row in rows] == ["2h 1m", "2h 1m"]
    code, shown = at_terminal([*COMMAND, "vault", "list", "--vault", "vault.db"], tmp_path)
    assert shown.startswith("\x1b[2mhandle")


def test_the_list_as_json(run: Run, stored: Stored) -> None:
    handle = stored({"a": [1, 2]}, "find")
    (entry,) = json.loads(run("list", "--json").out)
    assert entry.pop("expires") - entry.pop("created") == pytest.approx(7290)
    assert entry.pop("stored") > 0
    assert entry == {"handle": handle, "kind": "json", "size": 11, "tool": "find"}


@pytest.mark.parametrize("words", [[], ["stats"]])
def test_the_figures(run: Run, stored: Stored, words: list[str]) -> None:
    stored({"a": "x" * 10_000})
    stored({"a": "y" * 10_000})
    rows = dict(line.split("\t") for line in run(*words).out.decode().splitlines())
    assert list(rows) == ["place", "entries", "payloads", "stored", "ratio", "cap", "oldest", "newest"]
    assert (rows["place"], rows["entries"], rows["cap"]) == ("vault.db", "2", str(1 << 30))
    assert int(rows["payloads"]) == 2 * len('{"a":""}') + 20_000
    assert float(rows["ratio"]) == pytest.approx(int(rows["payloads"]) / int(rows["stored"]), rel=0.01)
    assert re.fullmatch(r"\d+s ago", rows["oldest"])
    figures = json.loads(run("stats", "--json").out)
    assert figures["exists"] is True
    assert figures["entries"] == 2
    assert figures["oldest"] < figures["newest"] <= time.time()


def test_the_figures_at_a_terminal(stored: Stored, tmp_path: Path) -> None:
    stored({"a": "x" * 10_000})
    code, shown = at_terminal([*COMMAND, "vault", "--vault", "vault.db"], tmp_path)
    assert code == 0
    assert "payloads  9.8 KiB\r\n" in shown
    assert "cap       1.0 GiB\r\n" in shown


def test_settings_of_the_vault(
    run: Run, stored: Stored, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stored({"a": 1})
    monkeypatch.setenv("MCP_ENVELOPE_VAULT_SIZE", "3MiB")
    assert json.loads(run("--json").out)["cap"] == 3 << 20
    monkeypatch.setenv("MCP_ENVELOPE_VAULT_SIZE", "3 pounds")
    outcome = run("--json")
    assert json.loads(outcome.out)["cap"] == 1 << 30
    assert outcome.err.startswith(
        "warning: MCP_ENVELOPE_VAULT_SIZE = '3 pounds': expected a size such as 1GiB"
    )
    monkeypatch.delenv("MCP_ENVELOPE_VAULT_SIZE")
    monkeypatch.delenv("MCP_ENVELOPE_VAULT")
    (tmp_path / "mine.toml").write_text('vault = "sqlite:///vault.db"\nvault_size = "2MB"')
    figures = json.loads(run("--json", "--config", "mine.toml").out)
    assert (figures["entries"], figures["cap"]) == (1, 2_000_000)
    assert run("--config", "nowhere.toml").code == 3


@pytest.mark.parametrize("action", ["list", "stats", "purge"])
def test_looking_creates_nothing(run: Run, tmp_path: Path, home: Path, action: str) -> None:
    more = ["--yes"] if action == "purge" else []
    outcome = run(action, *more)
    assert (outcome.code, outcome.out) == (0, b"")
    assert outcome.err == "note: nothing is stored yet: there is no vault at vault.db\n"
    assert run(action, *more, "--vault", "none").err.startswith("note: there is no vault: ")
    assert list(tmp_path.iterdir()) == list(home.iterdir()) == []
    if action != "purge":
        assert json.loads(run(action, "--json").out) == (
            []
            if action == "list"
            else {"place": "vault.db", "exists": False, "entries": 0, "size": 0, "stored": 0, "cap": 1 << 30}
        )


# -- deleting -----------------------------------------------------------------------------------------------


def test_everything_is_deleted(run: Run, stored: Stored, tmp_path: Path) -> None:
    big = os.urandom(1 << 20).hex()
    stored({"a": big})
    stored({"a": 1})
    before = (tmp_path / "vault.db").stat().st_size
    outcome = run("purge", "--yes")
    assert (outcome.code, outcome.out) == (0, b"")
    assert outcome.err == "deleted: 2 results, 2.0 MiB\n"
    assert handles(run) == []
    assert (tmp_path / "vault.db").stat().st_size < before / 2
    assert big[:1000].encode() not in (tmp_path / "vault.db").read_bytes()
    assert run("purge", "--yes").err == "deleted: 0 results, 0 B\n"


def test_one_is_deleted(run: Run, stored: Stored) -> None:
    gone, left = stored({"a": 1}), stored({"a": 2})
    assert run("purge", "--handle", gone, "--yes").err == "deleted: 1 result, 7 B\n"
    assert handles(run) == [left]
    outcome = run("purge", "--handle", gone, "--yes")
    assert outcome.code == 5
    assert outcome.err.startswith("error: HANDLE_DELETED: ")
    outcome = run("purge", "--handle", "nobody", "--yes")
    assert outcome.code == 5
    assert outcome.err.startswith("error: HANDLE_UNKNOWN: ")


def test_one_of_somebody_else_is_deleted(run: Run, stored: Stored) -> None:
    handle = stored({"a": 1}, owner="somebody")
    assert handles(run) == [handle]
    assert run("purge", "--handle", handle, "--yes").err == "deleted: 1 result, 7 B\n"
    assert handles(run) == []


def test_what_has_expired_is_deleted(run: Run, stored: Stored) -> None:
    left = stored({"a": 2})
    stored({"a": 1}, ttl=0.05)
    time.sleep(0.1)
    assert run("purge", "--expired", "--yes").err == "deleted: 1 result, 7 B\n"
    assert handles(run) == [left]


@pytest.mark.parametrize("more", [[], ["--expired"], ["--handle", "HANDLE"]])
def test_in_a_pipe_it_must_be_meant(run: Run, stored: Stored, more: list[str]) -> None:
    handle = stored({"a": 1})
    outcome = run("purge", *[handle if word == "HANDLE" else word for word in more], stdin=b"y\n")
    assert outcome.code == 2
    assert "add --yes" in outcome.err
    assert handles(run) == [handle]


@pytest.mark.parametrize(
    ("answer", "left"), [(b"y\n", 0), (b"yes\n", 0), (b"n\n", 1), (b"\n", 1), (b"\x04", 1)]
)
def test_at_a_terminal_it_is_asked(
    run: Run, stored: Stored, tmp_path: Path, answer: bytes, left: int
) -> None:
    stored({"a": 1})
    command = [*COMMAND, "vault", "purge", "--vault", "vault.db"]
    code, shown = at_terminal(command, tmp_path, answer=answer, NO_COLOR="1")
    assert code == 0
    assert "Delete 1 result (7 B) at vault.db? [y/N] " in shown
    assert ("nothing was deleted" if left else "deleted: 1 result") in shown
    assert len(handles(run)) == left


# -- trouble ------------------------------------------------------------------------------------------------


def test_a_file_that_is_no_vault_is_told_and_kept(run: Run, tmp_path: Path) -> None:
    words = b"these are my notes " * 500
    (tmp_path / "vault.db").write_bytes(words)
    for action in (["list"], ["stats"], ["purge", "--yes"], ["purge", "--expired", "--yes"]):
        outcome = run(*action)
        assert (outcome.code, outcome.out) == (5, b"")
        assert outcome.err.startswith("error: VAULT_UNAVAILABLE: vault.db was not made by mcp-envelope")
    assert (tmp_path / "vault.db").read_bytes() == words


def test_a_damaged_file_is_told_and_removed(run: Run, stored: Stored, tmp_path: Path) -> None:
    for _ in range(30):
        stored({"a": os.urandom(2000).hex()})
    data = bytearray((tmp_path / "vault.db").read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    (tmp_path / "vault.db").write_bytes(data)
    outcome = run("list")
    assert outcome.code == 5
    assert outcome.err.startswith("error: VAULT_UNAVAILABLE: vault.db is damaged")
    assert "`mcp-envelope vault purge`, with the same --vault, removes it" in outcome.err
    assert run("purge", "--yes").err == "removed: vault.db was damaged, and everything in it is gone\n"
    assert list(tmp_path.glob("vault.db*")) == []
    handle = stored({"a": 1})
    assert handles(run) == [handle]


def test_the_file_of_another_version(run: Run, stored: Stored, tmp_path: Path) -> None:
    stored({"a": 1})
    connection = sqlite3.connect(tmp_path / "vault.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    for words in (["list"], ["purge", "--yes"]):
        outcome = run(*words)
        assert outcome.code == 5
        assert "another version" in outcome.err
    assert (tmp_path / "vault.db").exists()


def test_a_place_below_a_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome = run("--vault", "file/vault.db")
    assert outcome.code == 0
    assert "there is no vault at file/vault.db" in outcome.err
    outcome = run("--vault", ".")
    assert outcome.code == 5
    assert outcome.err.startswith("error: VAULT_UNAVAILABLE: cannot use .: ")


def test_a_file_that_may_not_be_read(stored: Stored, tmp_path: Path) -> None:
    stored({"a": 1})
    (tmp_path / "vault.db").chmod(0)
    for words in (["list"], ["stats"], ["purge", "--yes"]):
        outcome = unprivileged("vault", *words, "--vault", str(tmp_path / "vault.db"))
        assert outcome.code == 5, outcome
        assert outcome.err.startswith("error: VAULT_UNAVAILABLE: ")
        assert outcome.err.count("\n") == 2
    assert (tmp_path / "vault.db").exists()


def test_a_reader_that_goes_away(stored: Stored, tmp_path: Path) -> None:
    for number in range(3):
        stored({"a": number})
    command = [*COMMAND, "vault", "list", "--vault", str(tmp_path / "vault.db")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as started:
        assert started.stdout and started.stderr  # noqa: PT018
        started.stdout.close()
        assert started.stderr.read() == b""
        assert started.wait(60) == 141


def test_two_processes_see_the_same(tmp_path: Path) -> None:
    payload = json.dumps({"rows": list(range(5000))}).encode()
    vault = f"sqlite:///{tmp_path}/vault.db"
    sealed = process("seal", "--tokens", "300", "--tool", "rows", "--vault", vault, stdin=payload)
    listed = process("vault", "list", "--json", "--vault", str(tmp_path / "vault.db"))
    (entry,) = json.loads(listed.out)
    assert (entry["handle"], entry["tool"], entry["size"]) == (sealed.notice["handle"], "rows", len(payload))


USAGE = {
    "word": (["lst"], "'lst' is not one of list, stats, purge, did you mean list?"),
    "two words": (["list", "stats"], "at most one word; unexpected argument 'stats'"),
    "handle": (["list", "--handle", "a"], "--handle works with purge"),
    "expired": (["--expired"], "--expired works with purge"),
    "yes": (["--yes"], "--yes works with purge"),
    "json": (["purge", "--json", "--yes"], "--json works with list and stats"),
    "both": (["purge", "--handle", "a", "--expired"], "not allowed with argument"),
    "option": (["--vualt=x"], "there is no option '--vualt', did you mean --vault?"),
    "address": (["--vault", "http://x"], "a vault cannot have an address like http://"),
}


@pytest.mark.parametrize(("arguments", "said"), USAGE.values(), ids=USAGE)
def test_wrong_usage(run: Run, arguments: list[str], said: str) -> None:
    outcome = run(*arguments)
    assert (outcome.code, outcome.out) == (2, b"")
    assert said in outcome.err
    assert outcome.err.endswith("(see mcp-envelope vault --help)\n")
    assert outcome.err.count("\n") == 1


def test_help_names_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["vault", "--help"]) == 0
    said = capsys.readouterr().out
    for code in ("0", "2", "3", "5", "130", "141"):
        assert re.search(rf"^  {code} +\S", said, re.MULTILINE)
    assert said.isascii()
    assert max(map(len, said.splitlines())) <= 80


@pytest.mark.skipif(os.name == "nt", reason="the examples are for a POSIX shell")
def test_the_examples_of_the_help_run(
    capsys: pytest.CaptureFixture[str], stored: Stored, tmp_path: Path
) -> None:
    stored({"a": 1})
    main(["vault", "--help"])
    examples = capsys.readouterr().out.partition("examples:\n")[2]
    assert examples.count("mcp-envelope vault") == 4
    script = "set -e\n" + examples.replace("mcp-envelope vault", f"{shlex.join(COMMAND)} vault")
    env = environment(MCP_ENVELOPE_VAULT=None)
    done = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, env=env, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert b"error" not in done.stderr
