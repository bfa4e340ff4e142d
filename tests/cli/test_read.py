"""The command `mcp-envelope read`, as a person meets it: real results, real SQLite files."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcp_envelope.cli import console
from mcp_envelope.cli.main import main
from mcp_envelope.payload import new_handle, read_payload
from mcp_envelope.vault.sqlite import SQLiteStore
from mcp_envelope.vault.vault import Vault

from .harness import COMMAND, Outcome, Run, at_terminal, environment, process, runner, unprivileged

PICTURE = bytes(range(256)) * 200
ITEMS = [{"id": number, "name": f"item {number}", "text": "word " * 12} for number in range(400)]
DOCUMENT = {
    "items": ITEMS,
    "log": "a line of a log\n" * 9000,
    "held": json.dumps({"rows": list(range(9000))}),
}
BLOCKS = [
    {"type": "text", "text": "hello\n" * 4000},
    {"type": "image", "data": base64.b64encode(PICTURE).decode(), "mimeType": "image/png"},
    {"type": "image", "data": "aGk=", "mimeType": "image/png"},
    {"type": "resource", "resource": {"uri": "file:///a", "blob": "AAEC"}},
    {"type": "resource", "resource": {"uri": "file:///b", "text": "plain"}},
    {"type": "resource_link", "uri": "file:///c", "name": "c"},
]
# What is stored, and how it is read.
PAYLOADS: dict[str, tuple[bytes, Any]] = {
    "document": (json.dumps(DOCUMENT, indent=1).encode(), "json"),
    "list": (json.dumps(list(range(20_000))).encode(), "json"),
    "number": (b"7" * 60_000, "json"),
    "string": (json.dumps("ü\n" * 20_000).encode(), "json"),
    "equal keys": (b'{"x": {' + b",".join(b'"k":%d' % n for n in range(9000)) + b"}}", "json"),
    "deep": (b"[" * 3000 + b"]" * 3000, "json"),
    "text": (("Zeile ü 速い 🚀\n" * 5000).encode(), "text"),
}


Stored = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    monkeypatch.setenv("MCP_ENVELOPE_VAULT", "vault.db")
    return runner("read", tmp_path, monkeypatch, capfdbinary)


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    """Stores a payload in `vault.db` and gives its handle."""

    def put(
        payload: Any = DOCUMENT, read_as: Any = "auto", ttl: float = 60.0, owner: str | None = None
    ) -> str:
        vault = Vault(SQLiteStore(tmp_path / "vault.db"), ttl)
        handle = new_handle()
        assert vault.keep(handle, read_payload(payload, read_as), "find", owner) is None
        vault.close()
        return handle

    return put


def commands(outcome: Outcome) -> list[list[str]]:
    """The commands that it offers for reading on, as a shell would read them."""
    found = re.findall(r"^read on: mcp-envelope read (.*)$", outcome.err, re.MULTILINE)
    return [shlex.split(words) for words in found]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--grep", "nowhere in it"], "note: no matches\n"),
        (["--query", "items[?id == `-1`]"], "note: nothing selected\n"),
        (["--query", "nosuch"], "note: nothing selected\n"),
        (["--sql", "SELECT * FROM items WHERE id < 0"], "note: no rows\n"),
        (["--sql", "SELECT * FROM items LIMIT 1"], ""),
        (["--grep", "nowhere in it", "--json"], ""),
    ],
)
def test_that_nothing_was_found_is_said(run: Run, stored: Stored, asked: list[str], said: str) -> None:
    outcome = run(stored(), *asked)
    assert (outcome.code, outcome.err) == (0, said)


# -- pages --------------------------------------------------------------------------------------------------


def test_a_page_is_printed_exactly_and_the_next_one_is_a_command_away(run: Run, stored: Stored) -> None:
    handle = stored()
    outcome = run(handle, "--path", "/items", "--offset", "30", "--tokens", "300")
    page = json.loads(outcome.out)
    after = 30 + len(page)
    assert outcome.code == 0
    assert page == ITEMS[30:after]
    assert not outcome.out.endswith(b"\n")
    assert outcome.err == (
        f"page: items 30 to {after - 1} of 400 at /items\n"
        f"read on: mcp-envelope read {handle} --path /items --offset {after} --tokens 300\n"
    )


def test_following_the_commands_gives_the_whole_list(run: Run, stored: Stored) -> None:
    words = [stored(), "--path", "/items", "--tokens", "2000"]
    items: list[Any] = []
    while True:
        outcome = run(*words)
        items += json.loads(outcome.out)
        if not (follow := commands(outcome)):
            break
        (words,) = follow
    assert items == ITEMS
    assert outcome.err == ""


def test_following_the_commands_gives_the_whole_text(run: Run, stored: Stored) -> None:
    data, read_as = PAYLOADS["text"]
    words, text = [stored(data, read_as), "--bytes", "20000"], b""
    while words:
        outcome = run(*words)
        text += outcome.out
        words = next(iter(commands(outcome)), [])
    assert text == data


def test_an_item_that_is_too_large_has_a_command_of_its_own(run: Run, stored: Stored) -> None:
    handle = stored([{"body": "x" * 50_000}, 1, 2])
    outcome = run(handle, "--tokens", "200")
    rest, inside = commands(outcome)
    assert rest[:3] == [handle, "--offset", "1"]
    assert inside[:3] == [handle, "--path", "/0/body"]
    assert json.loads(run(*rest).out) == [1, 2]
    body = json.loads(outcome.out)[0]["body"]
    assert inside[3:5] == ["--offset", str(body.count("x"))]


@pytest.mark.parametrize(
    "key", ["a b", "it's", "$(date)`id`", "new\nline\t\x1b[0m", "-x", "ü", "\u202eabc", "~/"]
)
def test_a_command_can_be_pasted_whatever_is_in_it(stored: Stored, tmp_path: Path, key: str) -> None:
    """Through a real shell: what it prints is run by it."""
    handle = stored({key: list(range(2000))})
    path = "/" + key.replace("~", "~0").replace("/", "~1")
    vault = f"{tmp_path}/vault.db"
    outcome = process("read", handle, "--path", path, "--tokens", "150", "--vault", vault)
    (line,) = re.findall(r"^read on: (.*)$", outcome.err, re.MULTILINE)
    script = line.replace("mcp-envelope", shlex.join(COMMAND), 1)
    done = subprocess.run(
        ["bash", "-c", script], env=environment(), capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0] == len(json.loads(outcome.out))


def test_a_value_is_not_taken_for_an_option() -> None:
    assert console.option("--grep", "-x y") == ["--grep=-x y"]
    assert console.command("a", *console.option("--grep", "-x y")) == "a '--grep=-x y'"


def test_what_was_asked_for_is_asked_for_again(run: Run, stored: Stored) -> None:
    handle = stored()
    outcome = run(
        handle, "--query", "items[].{n: id}", "--tokens", "200", "--meter", "chars4", "--vault", "./vault.db"
    )
    (words,) = commands(outcome)
    assert json.loads(run(*words).out)[0]["n"] == len(json.loads(outcome.out))
    assert words[-2:] == ["--vault", "./vault.db"]
    assert words[words.index("--meter") + 1] == "chars4"


def test_a_search(run: Run, stored: Stored) -> None:
    handle = stored()
    outcome = run(handle, "--grep", "-?item 39[5-9]", "--path", "/items")
    assert outcome.code == 0
    assert [match["path"] for match in json.loads(outcome.out)] == [
        f"/items/{n}/name" for n in range(395, 400)
    ]
    outcome = run(handle, "--grep", "item", "--tokens", "300")
    (words,) = commands(outcome)
    assert words[1:3] == ["--grep", "item"]
    again = json.loads(run(*words).out)
    assert again[0]["path"] == f"/items/{len(json.loads(outcome.out))}/name"
    assert json.loads(run(handle, "--grep=-nothing-").out) == []


def test_sql_over_what_a_query_or_a_search_finds(run: Run, stored: Stored) -> None:
    handle = stored()
    for way in (["--query", "items[?id < `300`]"], ["--grep", "^item [12]?[0-9]?[0-9]$"]):
        outcome = run(handle, *way, "--sql", "SELECT count(*) AS n FROM data")
        assert json.loads(outcome.out) == [{"n": 300}]
    outcome = run(handle, *way, "--sql", "SELECT * FROM data", "--tokens", "300")
    (words,) = commands(outcome)
    assert json.loads(run(*words).out)[0]["text"] == f"item {len(json.loads(outcome.out))}"


def test_a_selection_can_be_a_single_value(run: Run, stored: Stored) -> None:
    assert run(stored(), "--query", "items[3].name").out == b"item 3"


def test_json_is_what_the_tool_answers(run: Run, stored: Stored) -> None:
    outcome = run(stored(), "--path", "/items/0/name", "--json")
    assert outcome.result == {"content": [{"type": "text", "text": "item 0"}]}
    failed = run("nobody", "--json")
    assert failed.code == 5
    assert failed.result["isError"] is True
    assert failed.err.startswith("error: HANDLE_UNKNOWN: ")


def test_a_page_can_go_to_a_file(run: Run, stored: Stored, tmp_path: Path) -> None:
    outcome = run(stored(), "--path", "/items/0/name", "--output", "name.txt")
    assert (outcome.code, outcome.out, outcome.err) == (0, b"", "")
    assert (tmp_path / "name.txt").read_bytes() == b"item 0"


def test_a_budget_out_of_range_is_raised_with_a_warning(run: Run, stored: Stored) -> None:
    outcome = run(stored(), "--tokens", "5", "--path", "/items")
    assert outcome.code == 0
    assert "warning: the budget of 5 tokens was raised to 128, the smallest\n" in outcome.err
    assert json.loads(outcome.out)
    assert run(stored(), "--tokens", "5", "--path", "/items/0/name").out == b"item 0"


def test_the_budget_of_the_environment(run: Run, stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = stored()
    monkeypatch.setenv("MCP_ENVELOPE_BYTES", "900")
    assert len(run(handle, "--path", "/items").out) < 900
    assert len(run(handle, "--path", "/items", "--bytes", "3000").out) > 1500


# -- content blocks -----------------------------------------------------------------------------------------


def test_blocks_that_are_not_text_are_printed_as_json(run: Run, stored: Stored) -> None:
    handle = stored(BLOCKS)
    assert json.loads(run(handle, "--path", "/content/2").out) == BLOCKS[2]
    lines = run(handle, "--path", "/content", "--offset", "2").out.splitlines()
    assert [json.loads(line) for line in lines] == BLOCKS[2:]
    assert run(handle, "--path", "/content/0/text", "--bytes", "100000").out == b"hello\n" * 4000


@pytest.mark.parametrize(
    ("path", "file"), [("/content/1", PICTURE), ("/2", b"hi"), ("/3", b"\0\1\2"), ("/4", b"plain")]
)
def test_a_file_is_written_decoded(run: Run, stored: Stored, tmp_path: Path, path: str, file: bytes) -> None:
    outcome = run(stored(BLOCKS), "--path", path, "--output", "file")
    assert (outcome.code, outcome.out, outcome.err) == (0, b"", "")
    assert (tmp_path / "file").read_bytes() == file


def test_the_only_block_of_a_page_is_written_decoded(run: Run, stored: Stored, tmp_path: Path) -> None:
    handle = stored(BLOCKS[:3])
    assert run(handle, "--path", "/content", "--offset", "2", "--output", "file").code == 0
    assert (tmp_path / "file").read_bytes() == b"hi"


def test_what_is_no_file_is_written_as_it_is(run: Run, stored: Stored, tmp_path: Path) -> None:
    bad = {"type": "image", "data": "no base64!", "mimeType": "image/png"}
    handle = stored([BLOCKS[5], bad])
    for index, block in enumerate((BLOCKS[5], bad)):
        assert run(handle, "--path", f"/content/{index}", "--output", "file").code == 0
        assert json.loads((tmp_path / "file").read_bytes()) == block


# -- all of it ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAYLOADS)
def test_all_is_what_was_stored(run: Run, stored: Stored, tmp_path: Path, name: str) -> None:
    data, read_as = PAYLOADS[name]
    handle = stored(data, read_as)
    outcome = run(handle, "--all")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == data
    (tmp_path / "original").write_bytes(data)
    assert run(handle, "--all", "--output", "copy").code == 0
    assert subprocess.run(["cmp", "copy", "original"], cwd=tmp_path, check=False).returncode == 0


@pytest.mark.parametrize("name", PAYLOADS)
def test_every_kind_of_payload_has_a_first_page(run: Run, stored: Stored, name: str) -> None:
    data, read_as = PAYLOADS[name]
    outcome = run(stored(data, read_as), "--tokens", "500")
    assert outcome.code == 0
    assert outcome.out


def test_all_of_one_value(run: Run, stored: Stored) -> None:
    data = PAYLOADS["document"][0]
    handle = stored(data)
    items = run(handle, "--all", "--path", "/items").out
    assert items in data
    assert json.loads(items) == ITEMS
    assert json.loads(run(handle, "--all", "--path", "/items/7").out) == ITEMS[7]
    log = run(handle, "--all", "--path", "/log").out
    assert log in data
    assert json.loads(log) == DOCUMENT["log"]
    # A string is a string, also if it holds JSON; a path goes on inside of that.
    assert json.loads(run(handle, "--all", "--path", "/held").out) == DOCUMENT["held"]
    assert run(handle, "--all", "--path", "/held/rows").out.decode() == str(list(range(9000)))
    assert json.loads(run(handle, "--all", "--path", "/held/rows").out) == list(range(9000))
    assert json.loads(run(stored(BLOCKS), "--all", "--path", "/1").out) == BLOCKS[1]


def test_all_is_never_held_in_memory(stored: Stored, tmp_path: Path) -> None:
    """48 MB pass through a process that has room for no more than a fraction of them, besides itself."""
    pytest.importorskip("resource")
    data = json.dumps({"a": "0123456789abcdef" * 3_000_000}).encode()
    handle = stored(data)
    for more in ([], ["--path", "/a"]):
        script = (
            "import resource, sys\nfrom mcp_envelope.cli.main import main\n"
            "main(['read', 'nobody', '--vault', 'vault.db'])\n"
            "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
            f"code = main({['read', handle, '--vault', 'vault.db', '--all', '--output', 'copy', *more]!r})\n"
            "print(code, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
        )
        done = subprocess.run(
            [COMMAND[0], "-c", script],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            timeout=60,
            check=True,
        )
        code, grown = map(int, done.stdout.split())
        assert code == 0
        assert (tmp_path / "copy").read_bytes() == (data[6:-1] if more else data)
        assert grown < 20_000  # kilobytes


@pytest.mark.skipif(os.name == "nt", reason="pipes end differently there")
def test_a_reader_that_goes_away(stored: Stored, tmp_path: Path) -> None:
    handle = stored(b"x" * 5_000_000, "text")
    command = [*COMMAND, "read", handle, "--all", "--vault", str(tmp_path / "vault.db")]
    script = f'{shlex.join(command)} | head -c 10; echo " ${{PIPESTATUS[0]}}"'
    done = subprocess.run(
        ["bash", "-c", script], env=environment(), capture_output=True, timeout=60, check=False
    )
    assert done.stdout == b"xxxxxxxxxx 141\n"
    assert done.stderr == b""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as started:
        assert started.stdout and started.stderr  # noqa: PT018
        started.stdout.close()
        assert started.stderr.read() == b""
        assert started.wait(60) == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device here")
def test_a_full_disk(stored: Stored, run: Run) -> None:
    outcome = run(stored(), "--all", "--output", "/dev/full")
    assert outcome.code == 3
    assert outcome.err == "error: cannot write /dev/full: no space left on device\n"


# -- what cannot be read ------------------------------------------------------------------------------------

FAILURES = {
    "unknown": (["nobody"], "HANDLE_UNKNOWN", "Copy the handle exactly"),
    "path": (["HANDLE", "--path", "/itms"], "BAD_PATH", "items, log, held"),
    "path of all": (["HANDLE", "--all", "--path", "/itms"], "BAD_PATH", "items, log, held"),
    "not a pointer": (["HANDLE", "--path", "items"], "BAD_PATH", "begins with a slash"),
    "offset": (["HANDLE", "--path", "/items", "--offset", "400"], "BAD_OFFSET", "nothing more to read"),
    "negative": (["HANDLE", "--offset", "-1"], "BAD_OFFSET", "Count from 0"),
    "query": (["HANDLE", "--query", "items[?"], "BAD_QUERY", "position"),
    "grep": (["HANDLE", "--grep", "a(b"], "BAD_QUERY", "position"),
    "all of unknown": (["nobody", "--all"], "HANDLE_UNKNOWN", "Copy the handle exactly"),
    "no vault": (["HANDLE", "--vault", "none"], "HANDLE_UNKNOWN", ""),
    "no vault at all": (["HANDLE", "--vault", "none", "--all"], "HANDLE_UNKNOWN", "--vault"),
    "control characters": (["no\x1b[31mbody"], "HANDLE_UNKNOWN", ""),
}


@pytest.mark.parametrize(("arguments", "code", "told"), FAILURES.values(), ids=FAILURES)
def test_failures(run: Run, stored: Stored, arguments: list[str], code: str, told: str) -> None:
    handle = stored()
    outcome = run(*[handle if word == "HANDLE" else word for word in arguments])
    assert (outcome.code, outcome.out) == (5, b"")
    first, second = outcome.err.splitlines()
    assert first.startswith(f"error: {code}: ")
    assert second.startswith("hint: ")
    assert told in outcome.err
    assert "\x1b" not in outcome.err


def test_a_failure_leaves_the_output_alone(run: Run, stored: Stored, tmp_path: Path) -> None:
    handle = stored()
    (tmp_path / "file").write_bytes(b"before")
    for arguments in (
        ["nobody"],
        ["nobody", "--all"],
        [handle, "--all", "--path", "/x"],
        ["nobody", "--path", "/1"],
    ):
        assert run(*arguments, "--output", "file").code == 5
    assert (tmp_path / "file").read_bytes() == b"before"


def test_an_expired_handle(run: Run, stored: Stored) -> None:
    handle = stored(ttl=0.05)
    time.sleep(0.1)
    outcome = run(handle)
    assert outcome.code == 5
    assert outcome.err.startswith("error: HANDLE_EXPIRED: The stored result expired at ")


def test_a_deleted_handle(run: Run, stored: Stored, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    handle = stored()
    assert main(["vault", "purge", "--yes"]) == 0
    capfdbinary.readouterr()
    assert run(handle).err.startswith("error: HANDLE_DELETED: ")


def test_the_handle_of_somebody_else(run: Run, stored: Stored) -> None:
    assert run(stored(owner="somebody")).err.startswith("error: HANDLE_UNKNOWN: ")


def test_reading_creates_nothing(
    run: Run, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = run("nobody", "--vault", "nowhere/vault.db")
    assert outcome.code == 5
    assert "there is no vault at nowhere/vault.db" in outcome.err
    monkeypatch.delenv("MCP_ENVELOPE_VAULT")
    assert run("nobody").code == 5
    assert list(tmp_path.iterdir()) == list(home.iterdir()) == []


def test_a_file_that_is_no_vault(run: Run, stored: Stored, tmp_path: Path) -> None:
    handle = stored()
    (tmp_path / "vault.db").write_bytes(b"this is no database at all " * 500)
    for more in ([], ["--all"]):
        outcome = run(handle, *more)
        assert (outcome.code, outcome.out) == (5, b"")
        assert outcome.err.startswith("error: VAULT_UNAVAILABLE: vault.db was not made by mcp-envelope")


def test_a_damaged_payload(run: Run, stored: Stored, tmp_path: Path) -> None:
    sqlite3 = pytest.importorskip("sqlite3")
    handle = stored()
    connection = sqlite3.connect(tmp_path / "vault.db", isolation_level=None)
    connection.execute("UPDATE blobs SET data = x'00' WHERE id = (SELECT min(id) + 1 FROM blobs)")
    connection.close()
    (tmp_path / "file").write_bytes(b"before")
    for more in (["--all"], ["--all", "--output", "file"], ["--path", "/log"]):
        outcome = run(handle, *more)
        assert (outcome.code, outcome.out) == (5, b"")
        assert outcome.err.startswith("error: HANDLE_DAMAGED: ")
    assert (tmp_path / "file").read_bytes() == b"before"


@pytest.mark.parametrize("bit", [3, 40, 70, 99, 150])
def test_a_single_bit_of_the_index(run: Run, stored: Stored, tmp_path: Path, bit: int) -> None:
    sqlite3 = pytest.importorskip("sqlite3")
    handle = stored()
    connection = sqlite3.connect(tmp_path / "vault.db", isolation_level=None)
    number, data = connection.execute("SELECT id, data FROM blobs ORDER BY id DESC LIMIT 1").fetchone()
    rotten = bytearray(data)
    rotten[bit // 8] ^= 1 << bit % 8
    connection.execute("UPDATE blobs SET data = ? WHERE id = ?", (bytes(rotten), number))
    connection.close()
    for more in (["--path", "/log"], ["--all", "--path", "/log"], ["--grep", "line"]):
        outcome = run(handle, *more)
        assert (outcome.code, outcome.out) == (5, b"")
        assert outcome.err.startswith("error: HANDLE_DAMAGED: ")


def test_exact(run: Run, tmp_path: Path) -> None:
    held = json.dumps({"rows": ["ü"] * 9000}, indent=2, ensure_ascii=False)
    data = json.dumps({"small": "[1,  2]", "held": held, "n": [1, 2]}, indent=1).encode()
    vault = Vault(SQLiteStore(tmp_path / "vault.db"))
    handle = new_handle()
    assert vault.keep(handle, read_payload(data, "json")) is None
    vault.close()

    whole = run(handle, "--exact", "--bytes", "1000")
    assert whole.out == data[: len(whole.out)]
    assert f"--offset {len(whole.out)} --bytes 1000 --exact" in whole.err
    assert run(handle, "--exact", "--path", "/small").out == b"[1,  2]"
    assert run(handle, "--path", "/small").out == b"[1,2]"
    second = run(handle, "--exact", "--path", "/held", "--offset", "12", "--tokens", "500")
    assert held[12:].startswith(second.out.decode())
    inside = run(handle, "--exact", "--path", "/held/rows", "--all")
    assert inside.out.decode() == held[held.index("[") : held.rindex("]") + 1]

    # A string has its quotes, whatever it holds, and with --exact it has none.
    assert run(handle, "--all", "--path", "/small").out == b'"[1,  2]"'
    assert run(handle, "--all", "--path", "/held").out == json.dumps(held).encode()
    assert run(handle, "--all", "--exact", "--path", "/held").out.decode() == held
    assert run(handle, "--all", "--exact").out == data
    assert run(handle, "--all", "--path", "/n").out == b"[\n  1,\n  2\n ]"
    for more in (["--query", "n"], ["--grep", "n"]):
        outcome = run(handle, "--exact", *more)
        assert outcome.code == 2
        assert "--exact cannot be combined with" in outcome.err


def test_a_file_that_may_not_be_read(stored: Stored, tmp_path: Path) -> None:
    handle = stored()
    (tmp_path / "vault.db").chmod(0)
    outcome = unprivileged("read", handle, "--vault", str(tmp_path / "vault.db"))
    assert outcome.code == 5
    assert outcome.err.startswith("error: VAULT_UNAVAILABLE: ")
    assert outcome.err.count("\n") == 2


def test_the_vault_is_not_overwritten(run: Run, stored: Stored) -> None:
    handle = stored()
    for more in ([], ["--all"]):
        outcome = run(handle, *more, "--output", "vault.db")
        assert outcome.code == 2
        assert "would overwrite the vault" in outcome.err
    assert run(handle).code == 0


USAGE = {
    "no handle": ([], "the following arguments are required: HANDLE"),
    "two handles": (["a", "b"], "at most one handle; unexpected argument 'b'"),
    "both": (["a", "--query", "b", "--grep", "c"], "not allowed with argument"),
    "lines and sql": (["a", "--lines", "1", "--sql", "c"], "--sql cannot be combined with --lines"),
    "all and sql": (["a", "--all", "--sql", "c"], "it cannot be combined with --sql"),
    "all and grep": (["a", "--all", "--grep", "c"], "not allowed with argument"),
    "all and offset": (
        ["a", "--all", "--offset", "3"],
        "--all prints everything, so it cannot be combined with --offset",
    ),
    "all and offset 0": (["a", "--all", "--offset", "0"], "it cannot be combined with --offset"),
    "all and json": (["a", "--all", "--json"], "it cannot be combined with --json"),
    "all and tokens": (["a", "--all", "--tokens", "300"], "it cannot be combined with --tokens"),
    "context": (["a", "--context", "3"], "--context needs --grep"),
    "empty query": (["a", "--query", ""], "argument --query: it is empty"),
    "offset": (["a", "--offset", "x"], "'x' is not a whole number"),
    "option": (["a", "--pth", "/x"], "there is no option '--pth', did you mean --path?"),
    "vault": (["a", "--vault", "ftp://x"], "argument --vault: a vault cannot have an address like ftp://"),
    "sqlite": (["a", "--vault", "sqlite://x"], "a SQLite vault is written sqlite:///PATH"),
    "meter": (["a", "--bytes", "900", "--meter", "chars4"], "counted by the meter bytes, not by chars4"),
}


@pytest.mark.parametrize(("arguments", "said"), USAGE.values(), ids=USAGE)
def test_wrong_usage(run: Run, arguments: list[str], said: str) -> None:
    outcome = run(*arguments)
    assert (outcome.code, outcome.out) == (2, b"")
    assert said in outcome.err
    assert outcome.err.startswith("error: ")
    assert outcome.err.endswith("(see mcp-envelope read --help)\n")
    assert outcome.err.count("\n") == 1


def test_help_names_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["read", "--help"]) == 0
    said = capsys.readouterr().out
    for code in ("0", "2", "3", "5", "130", "141"):
        assert re.search(rf"^  {code} +\S", said, re.MULTILINE)
    assert said.isascii()
    assert max(map(len, said.splitlines())) <= 80


@pytest.mark.skipif(os.name == "nt", reason="the examples are for a POSIX shell")
def test_the_examples_of_the_help_run(
    capsys: pytest.CaptureFixture[str], stored: Stored, tmp_path: Path
) -> None:
    handle = stored({"items": [{"name": f"n{n}", "size": n, "why": "timed out"} for n in range(40)]})
    main(["read", "--help"])
    examples = capsys.readouterr().out.partition("examples,")[2].partition("\n")[2]
    assert examples.count("mcp-envelope read HANDLE") == 7
    script = "set -e\n" + examples.replace("mcp-envelope read HANDLE", f"{shlex.join(COMMAND)} read {handle}")
    env = environment(MCP_ENVELOPE_VAULT=str(tmp_path / "vault.db"))
    done = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, env=env, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert b"error" not in done.stderr
    assert len(json.loads((tmp_path / "whole.json").read_bytes())["items"]) == 40


# -- between processes, and at a terminal -------------------------------------------------------------------


def test_two_processes_and_the_default_place(home: Path) -> None:
    payload = json.dumps({"rows": list(range(5000))}).encode()
    sealed = process("seal", "--tokens", "300", stdin=payload, MCP_ENVELOPE_VAULT=None)
    handle = sealed.notice["handle"]
    assert (home / "state" / "mcp-envelope" / "vault.db").stat().st_mode & 0o777 == 0o600
    whole = process("read", handle, "--all", MCP_ENVELOPE_VAULT=None)
    assert whole.out == payload
    (words,) = [shlex.split(line[9:])[2:] for line in sealed.err.splitlines() if line.startswith("read on: ")]
    page = process("read", *words, MCP_ENVELOPE_VAULT=None)
    assert json.loads(page.out)[0] == len(sealed.result["structuredContent"]["rows"])


def test_a_terminal_gets_no_control_characters(stored: Stored, tmp_path: Path) -> None:
    handle = stored("red \x1b[31m\x9b1m bell \x07 \u202e ü\r\nend", "text")
    for more in ([], ["--all"]):
        command = [*COMMAND, "read", handle, "--vault", "vault.db", *more]
        code, shown = at_terminal(command, tmp_path, PYTHONUTF8="1")
        assert code == 0
        assert shown == r"red \x1b[31m\x9b1m bell \x07 \u202e ü\r" + "\r\nend\r\n"
    code, shown = at_terminal(
        [*COMMAND, "read", handle, "--vault", "vault.db", "--json"], tmp_path, PYTHONUTF8="1"
    )
    assert code == 0
    assert r"\x9b1m" in shown
    assert "\x9b" not in shown


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0s"),
        (-5, "0s"),
        (59.6, "1m"),
        (61, "1m 1s"),
        (3600, "1h"),
        (7261, "2h 1m"),
        (90_000, "1d 1h"),
        (86_460, "1d"),
    ],
)
def test_times_for_people(seconds: float, said: str) -> None:
    assert console.human_time(seconds) == said


@pytest.mark.parametrize(
    ("size", "said"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 30, "3.0 GiB")]
)
def test_sizes_for_people(size: int, said: str) -> None:
    assert console.human_size(size) == said
