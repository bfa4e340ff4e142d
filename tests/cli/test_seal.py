"""The command `mcp-envelope seal`, as a person meets it.

Strategy: most paths run `main()` in this process. Whatever belongs to the process itself (locale, pipes,
signals, terminals, what is imported) runs as a real one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

import mcp_envelope
from mcp_envelope.budget import meter_named as meter
from mcp_envelope.cli import settings
from mcp_envelope.cli.main import main
from mcp_envelope.vault.sqlite import SQLiteStore
from mcp_envelope.vault.vault import Vault

from .harness import COMMAND, Run, at_terminal, environment, process, runner, unprivileged

HITS = {"hits": [{"id": number, "score": number % 7} for number in range(2000)]}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    return runner("seal", tmp_path, monkeypatch, capfdbinary)


@pytest.fixture
def hits(tmp_path: Path) -> str:
    (tmp_path / "hits.json").write_text(json.dumps(HITS))
    return "hits.json"


# -- what it does -------------------------------------------------------------------------------------------


def test_a_payload_that_fits_comes_out_as_it_came(run: Run) -> None:
    outcome = run("--tokens", "500", stdin=b'{"a":1.0,"b":1e400}')
    assert outcome.code == 0
    assert outcome.out == (
        b'{"content":[{"type":"text","text":"{\\"a\\":1.0,\\"b\\":1e400}"}],'
        b'"structuredContent":{"a":1.0,"b":1e400}}\n'
    )
    assert re.fullmatch(r"sealed: \d+ of 500 tokens; nothing was cut\n", outcome.err)


def test_a_payload_that_does_not_fit_is_cut_and_says_so(run: Run, hits: str) -> None:
    outcome = run(hits, "--tokens", "500")
    kept = len(outcome.result["structuredContent"]["hits"])
    assert outcome.code == 0
    assert 0 < kept < 2000
    for lane in ("content", "structuredContent"):
        assert 480 < meter("exact").count(outcome.shown(lane)) <= 500
    assert outcome.result["structuredContent"]["_envelope"]["truncated"] is True
    assert re.fullmatch(
        rf"sealed: \d+ of 500 tokens, from about [\d,]+; kept {kept} of 2,000 items at /hits\n", outcome.err
    )


def test_a_budget_in_bytes_is_kept_to_the_byte(run: Run, hits: str) -> None:
    outcome = run(hits, "--bytes", "1000", "--meter", "bytes")
    for lane in ("content", "structuredContent"):
        assert 970 < len(outcome.shown(lane)) <= 1000
    assert "of 1,000 bytes" in outcome.err


def test_text_is_cut_at_a_line_after_a_note(run: Run) -> None:
    outcome = run("--tokens", "200", stdin="\n".join(map(str, range(5000))).encode())
    first, last = [block["text"] for block in outcome.result["content"]]
    assert first.startswith("Showing ")
    assert last.startswith("0\n1\n2\n")
    assert "structuredContent" not in outcome.result
    assert outcome.err.startswith("sealed:")


def test_the_failures_text_keeps_both_ends(run: Run) -> None:
    lines = [f"line {number}" for number in range(3000)]
    outcome = run("--error", "--tokens", "300", stdin="\n".join(lines).encode())
    text = outcome.result["content"][1]["text"]
    assert outcome.code == 0
    assert outcome.result["isError"] is True
    assert text.startswith("line 0\n")
    assert text.endswith("line 2999")


def test_a_closed_schema_is_widened_for_the_notice(run: Run, hits: str, tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"hits": {"type": "array"}}, "additionalProperties": False}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    wide = run(hits, "--tokens", "500", "--schema", "schema.json", "--widen").result["structuredContent"]
    assert wide.pop("_envelope")["truncated"]
    assert jsonschema_rs.is_valid(schema, wide)
    narrow = run(hits, "--tokens", "500", "--schema", "schema.json").result["structuredContent"]
    assert jsonschema_rs.is_valid(schema, narrow)


def test_widening_wraps_a_list(run: Run, tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text('{"type": "array"}')
    outcome = run(
        "--schema", "schema.json", "--widen", "--tokens", "300", stdin=json.dumps(list(range(3000))).encode()
    )
    structured = outcome.result["structuredContent"]
    assert structured["result"][:3] == [0, 1, 2]
    assert structured["_envelope"]["truncated"] is True
    assert 'note: the payload is wrapped as {"result": …}' in outcome.err


def test_wrapping_without_a_schema(run: Run) -> None:
    assert run("--wrap", stdin=b"[1]").result["structuredContent"] == {"result": [1]}


def test_a_ranking_decides_what_is_kept(run: Run, hits: str) -> None:
    outcome = run(hits, "--tokens", "400", "--rank", "/hits:-score,id")
    assert {hit["score"] for hit in outcome.result["structuredContent"]["hits"]} == {6}
    assert "warning" not in outcome.err


def test_what_the_notice_is_told(run: Run, hits: str) -> None:
    outcome = run(
        *(hits, "--tokens", "600", "--handle", "h-1", "--hint", "narrow it", "--warning", "one"),
        *("--warning", "zwei: ü", "--tool", "find", "--profile", "debug"),
    )
    said = outcome.result["structuredContent"]["_envelope"]
    assert said["handle"] == "h-1"
    assert said["hint"] == "narrow it"
    assert said["warnings"] == ["one", "zwei: ü"]
    assert said["tool"] == "find"
    assert said["budget"]["meter"] == "exact"
    assert "zwei" not in outcome.err


def test_content_blocks(run: Run) -> None:
    blocks = [{"type": "text", "text": "hello"}, {"type": "image", "data": "AA==", "mimeType": "image/png"}]
    outcome = run("--as", "blocks", stdin=json.dumps(blocks).encode())
    assert outcome.result == {"content": blocks}


def test_the_result_can_go_to_a_file(run: Run, tmp_path: Path) -> None:
    outcome = run("--output", "result.json", stdin=b"{}")
    assert (outcome.code, outcome.out) == (0, b"")
    assert json.loads((tmp_path / "result.json").read_bytes())["structuredContent"] == {}


def test_quiet_leaves_warnings(run: Run, hits: str) -> None:
    assert run(hits, "--quiet", "--tokens", "500").err == ""
    assert run(hits, "-q", "--tokens", "5").err.startswith("warning: ")


@pytest.mark.parametrize("stdin", [b'\xef\xbb\xbf{"a": 1}\r\n', b' {"a":1}'])
def test_what_editors_add_is_no_part_of_the_payload(run: Run, stdin: bytes) -> None:
    assert run(stdin=stdin).result["structuredContent"] == {"a": 1}


@pytest.mark.parametrize("budget", ["1", "127"])
def test_a_budget_out_of_range_is_raised_with_a_warning(run: Run, hits: str, budget: str) -> None:
    outcome = run(hits, "--tokens", budget)
    warning = f"the budget of {budget} tokens was raised to 128, the smallest"
    assert outcome.code == 0
    assert outcome.notice["warnings"] == [warning]
    assert f"warning: {warning}\n" in outcome.err


def test_too_large_is_printed_and_has_its_own_exit_code(run: Run, tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text('{"required": ["a"], "properties": {"a": {"pattern": "^x*$"}}}')
    payload = json.dumps({"a": "x" * 9000}).encode()
    outcome = run("--bytes", "600", "--schema", "schema.json", stdin=payload)
    assert outcome.code == 4
    assert outcome.result["isError"] is True
    assert outcome.notice["error"]["code"] == "RESULT_TOO_LARGE"
    assert "error: RESULT_TOO_LARGE: " in outcome.err


# -- how the payload is read --------------------------------------------------------------------------------


def test_what_looked_like_json_is_text_with_a_word_about_it(run: Run) -> None:
    outcome = run(stdin=b'{"a": 1,\n "b": tru}')
    assert outcome.code == 0
    assert outcome.result == {"content": [{"type": "text", "text": '{"a": 1,\n "b": tru}'}]}
    assert "note: taken as text; not valid JSON: unexpected 'tru}' (line 2, column 7)\n" in outcome.err


@pytest.mark.parametrize("text", ["hello", "Sum: 3", "<a>"])
def test_plain_text_needs_no_word(run: Run, text: str) -> None:
    assert run("--as", "auto", "-", stdin=text.encode()).err.count("\n") == 1


def test_an_empty_payload(run: Run) -> None:
    outcome = run()
    assert outcome.result == {"content": [{"type": "text", "text": ""}]}
    assert "note: the payload is empty\n" in outcome.err


def test_json_can_be_taken_as_text(run: Run) -> None:
    assert "structuredContent" not in run("--as", "text", stdin=b'{"a":1}').result
    assert "structuredContent" not in run("--error", stdin=b'{"a":1}').result


# -- doubts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rank", "said"),
    [
        ("/hist:-score", "--rank /hist: there is nothing at this path"),
        ("/hits/3/x:a", "--rank /hits/3/x: there is nothing at this path"),
        ("/hits/0:a", "--rank /hits/0: this is not a list"),
        ("/hits:-scor", "no item has the field 'scor', did you mean score?"),
    ],
)
def test_a_ranking_that_finds_nothing(run: Run, hits: str, rank: str, said: str) -> None:
    outcome = run(hits, "--rank", rank)
    assert outcome.code == 0
    assert f"warning: {said}" in outcome.err or f"warning: --rank /hits: {said}" in outcome.err


def test_options_without_effect(run: Run, tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text("{}")
    err = run("--schema", "schema.json", "--rank", "/a:b", stdin=b"text").err
    assert "warning: --schema has no effect: the payload is text" in err
    assert "warning: --rank has no effect: the payload is text" in err


def test_a_payload_that_breaks_its_own_schema(run: Run, tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text('{"properties": {"a": {"items": {"type": "string"}}}}')
    outcome = run("--schema", "schema.json", stdin=b'{"a": ["x",\n  5]}')
    assert outcome.code == 0
    assert "warning: standard input, line 2, column 3: the payload does not match the schema" in outcome.err


# -- mistakes -----------------------------------------------------------------------------------------------

USAGE = {
    "tokens abc": (["--tokens", "abc"], "argument --tokens: 'abc' is not a whole number"),
    "tokens 16k": (["--tokens", "16k"], "'16k' is not a whole number"),
    "tokens huge": (["--tokens", "9" * 30], "argument --tokens"),
    "tokens digits": (["--tokens", "9" * 5000], "is not a whole number"),
    "no number": (["--tokens"], "argument --tokens: expected one argument"),
    "both": (["--tokens", "500", "--bytes", "500"], "not allowed with argument"),
    "meter": (["--meter", "exat"], "did you mean exact?"),
    "meter of tokens": (["--bytes", "900", "--meter", "chars4"], "counted by the meter bytes, not by chars4"),
    "meter of bytes": (
        ["--tokens", "900", "--meter", "bytes"],
        "the meter bytes works only with a budget in bytes",
    ),
    "profile": (["--profile", "std"], "did you mean standard?"),
    "as": (["--as", "block"], "did you mean blocks?"),
    "option": (["--token", "5"], "there is no option '--token', did you mean --tokens?"),
    "two files": (["a", "b"], "at most one file; unexpected argument 'b'"),
    "rank": (["--rank", "items"], "a ranking is PATH:KEY"),
    "rank path": (["--rank", "items:-score"], "PATH a JSON pointer"),
    "rank key": (["--rank", "/items:-"], "needs the name of a field"),
    "rank twice": (["--rank", "/a:b", "--rank", "/a:c"], "/a is ranked twice"),
    "handle": (["--handle", "no spaces"], "argument --handle: a handle has"),
    "hint": (["--hint", "\udcff"], "is not valid UTF-8"),
    "widen": (["--widen"], "--widen needs a schema"),
    "wrap": (["--widen", "--wrap", "--schema", "s"], "--widen wraps where necessary"),
    "stdin twice": (["--schema", "-"], "cannot both come from standard input"),
}


@pytest.mark.parametrize(("arguments", "said"), USAGE.values(), ids=USAGE)
def test_wrong_usage(run: Run, arguments: list[str], said: str) -> None:
    outcome = run(*arguments, stdin=b"{}")
    assert (outcome.code, outcome.out) == (2, b"")
    assert said in outcome.err
    assert outcome.err.startswith("error: ")
    assert outcome.err.endswith("(see mcp-envelope seal --help)\n")
    assert outcome.err.count("\n") == 1


FILES = {
    "fine.json": b"{}",
    "bad.json": b'{"a": 1,\n "b": tru}',
    "empty.json": b"",
    "utf16.json": "{}".encode("utf-16"),
    "binary": b"ab\n\xc3\xa4\xff",
    "result.json": b'{"content": [{"type": "text"}]}',
    "deep result.json": b'{"content": ' + b"[" * 9000 + b"]" * 9000 + b"}",
    "numbers.json": b"[1]",
    "type.json": b'{"type": "object",\n "properties": {\n  "a/b": [],\n  "c": {"type": "objekt"}}}',
    "remote.json": b'{"$ref": "https://example.com/schema"}',
    "deep.json": b'{"not":' * 9000 + b"{}" + b"}" * 9000,
}
BAD_INPUT = {
    "not JSON": (["bad.json"], "bad.json, line 2, column 7: not JSON: unexpected 'tru}'"),
    "not JSON, as json": (["binary", "--as", "json"], "binary, line 2, column 2: not UTF-8 (byte 0xff)"),
    "stdin as json": (["--as", "json"], "standard input, line 1, column 1: not JSON"),
    "empty": (["empty.json"], "empty.json, line 1, column 1: not JSON: the document ends too early"),
    "binary": (["binary"], "binary, line 2, column 2: not UTF-8 (byte 0xff)"),
    "UTF-16": (["utf16.json"], "utf16.json is UTF-16; save it as UTF-8"),
    "missing": (["nope.json"], "cannot read nope.json: no such file or directory"),
    "control characters": (["no\x1b[31mpe"], r"cannot read no\x1b[31mpe: no such file"),
    "NUL": (["no\0pe"], "cannot read no\\x00pe: embedded null"),
    "folder": (["."], "cannot read .: is a directory"),
    "blocks": (["numbers.json", "--as", "blocks"], "content blocks must be a list of objects"),
    "a whole result": (
        ["result.json", "--as", "blocks"],
        "this looks like a whole result: pass only its `content`",
    ),
    "a deep result": (["deep result.json", "--as", "blocks"], "content blocks must be a list of objects"),
    "schema missing": (["fine.json", "--schema", "nope"], "cannot read nope: no such file"),
    "schema not JSON": (["fine.json", "--schema", "bad.json"], "bad.json, line 2, column 7: not JSON"),
    "schema a list": (["fine.json", "--schema", "numbers.json"], "a schema is an object, or true or false"),
    "schema wrong": (
        ["fine.json", "--schema", "type.json"],
        "type.json, line 3, column 10: not a usable schema",
    ),
    "schema remote": (["fine.json", "--schema", "remote.json"], "remote.json: not a usable schema"),
    "schema deep": (["fine.json", "--schema", "deep.json"], "deep.json: "),
    "output a folder": (["fine.json", "--output", "."], "cannot write .: is a directory"),
}


@pytest.mark.parametrize(("arguments", "said"), BAD_INPUT.values(), ids=BAD_INPUT)
def test_bad_input(run: Run, tmp_path: Path, arguments: list[str], said: str) -> None:
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    outcome = run(*arguments)
    assert (outcome.code, outcome.out) == (3, b"")
    assert outcome.err.startswith(f"error: {said}") or said in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_file_that_may_not_be_read(hits: str, tmp_path: Path) -> None:
    (tmp_path / hits).chmod(0)
    outcome = unprivileged("seal", str(tmp_path / hits))
    assert outcome.code == 3
    assert "hits.json: permission denied" in outcome.err


def test_control_characters_of_a_payload_do_not_reach_the_terminal(run: Run) -> None:
    payload = {"\x1b[2J\n": list(range(3000))}
    err = run("--tokens", "300", stdin=json.dumps(payload).encode()).err
    assert r"at /\x1b[2J\n" in err
    assert "\x1b" not in err


# -- the command around it ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no command was given"),
        (["sael"], "there is no command 'sael', did you mean seal?"),
        (["--verison"], "there is no option '--verison', did you mean --version?"),
    ],
)
def test_no_such_command(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err


def test_help_names_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["seal", "--help"]) == 0
    said = capsys.readouterr().out
    for code in ("0", "2", "3", "4", "130", "141"):
        assert re.search(rf"^  {code} +\S", said, re.MULTILINE)
    assert said.isascii()  # it must print under any locale
    assert max(map(len, said.splitlines())) <= 80
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    assert "seal" in said
    assert said.isascii()


@pytest.mark.skipif(os.name == "nt", reason="the examples are for a POSIX shell")
def test_the_examples_of_the_help_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    main(["seal", "--help"])
    examples = capsys.readouterr().out.partition("examples:\n")[2]
    assert examples.count("mcp-envelope seal") == 5
    # A shell function has no hyphen in its name.
    script = f"""set -e; sealer() {{ "{sys.executable}" -m mcp_envelope "$@"; }}\n{examples}"""
    script = script.replace("mcp-envelope seal", "sealer seal")
    done = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, env=environment(), capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == 5
    assert b"error" not in done.stderr
    assert b"warning" not in done.stderr


def test_the_payload_is_not_overwritten(run: Run, hits: str, tmp_path: Path) -> None:
    before = (tmp_path / hits).read_bytes()
    outcome = run(hits, "--output", hits)
    assert outcome.code == 2
    assert "would overwrite the payload" in outcome.err
    assert (tmp_path / hits).read_bytes() == before


def test_a_closed_schema_is_pointed_out(run: Run) -> None:
    payload = json.dumps({"rows": list(range(3000))}).encode()
    Path("closed.json").write_text(
        '{"type": "object", "properties": {"rows": {}}, "additionalProperties": false}'
    )
    outcome = run("--schema", "closed.json", "--tokens", "300", stdin=payload)
    assert list(outcome.result["structuredContent"]) == ["rows"]
    assert "--widen makes room" in outcome.err


@pytest.mark.parametrize(
    ("dialect", "first"),
    [("native", "rows"), ("ctxo", "rows"), ("transcend", "ok"), ("scalpel", "data")],
)
def test_every_dialect_is_spoken(run: Run, dialect: str, first: str) -> None:
    outcome = run("--dialect", dialect, stdin=b'{"rows": [1, 2]}')
    assert outcome.code == 0
    assert next(iter(json.loads(outcome.result["content"][0]["text"]))) == first


def test_gel_is_spoken(run: Run) -> None:
    outcome = run("--dialect", "gel", "--tool", "rows", stdin=b'{"rows": [1, 2]}')
    assert list(outcome.result["structuredContent"]) == ["meta", "data"]


def test_settings_of_a_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mcp-envelope.toml").write_text('dialect = "transcend"\n[tools.find]\ntokens = 300\n')
    payload = json.dumps({"rows": list(range(3000))}).encode()
    outcome = run("--config", "mcp-envelope.toml", "--tool", "find", stdin=payload)
    assert json.loads(outcome.result["content"][0]["text"])["tokenBudget"]["requested"] == 300
    outcome = run("--config", "mcp-envelope.toml", "--tool", "find", "--tokens", "400", stdin=payload)
    assert json.loads(outcome.result["content"][0]["text"])["tokenBudget"]["requested"] == 400
    (tmp_path / "mcp-envelope.toml").write_text('dialekt = "transcend"')
    outcome = run("--config", "mcp-envelope.toml", stdin=b"{}")
    assert outcome.code == 0
    assert "dialect" in outcome.err
    assert run("--config", "nowhere.toml", stdin=b"{}").code == 3


def test_a_wrong_dialect(run: Run) -> None:
    outcome = run("--dialect", "transcent", stdin=b"{}")
    assert outcome.code == 2
    assert "transcend" in outcome.err


# -- the vault ----------------------------------------------------------------------------------------------


def test_what_is_cut_is_kept(run: Run, hits: str, tmp_path: Path) -> None:
    outcome = run(hits, "--tokens", "500", "--vault", "my vault.db", "--tool", "find")
    handle = outcome.notice["handle"]
    kept = len(outcome.result["structuredContent"]["hits"])
    assert outcome.code == 0
    assert re.fullmatch("[A-Za-z0-9]{22}", handle)
    assert outcome.result["structuredContent"]["_envelope"]["handle"] == handle
    assert outcome.notice["expires"] == pytest.approx(time.time() + 24 * 3600, abs=60)
    assert outcome.err.splitlines()[1:] == [
        f"read on: mcp-envelope read {handle} --path /hits --offset {kept} --vault 'my vault.db'"
    ]
    vault = Vault(SQLiteStore(tmp_path / "my vault.db"))
    stored = vault.open(handle)
    assert b"".join(stored.stream()) == (tmp_path / hits).read_bytes()
    assert stored.entry.tool == "find"
    vault.close()


@pytest.mark.parametrize("dialect", ["native", "transcend", "gel", "scalpel"])
def test_every_dialect_keeps_what_is_cut(run: Run, hits: str, dialect: str) -> None:
    outcome = run(hits, "--tokens", "500", "--vault", "vault.db", "--dialect", dialect, "--tool", "find")
    (handle,) = re.findall("^read on: mcp-envelope read ([A-Za-z0-9]{22}) ", outcome.err, re.MULTILINE)
    vault = Vault(SQLiteStore("vault.db"))
    assert json.loads(b"".join(vault.open(handle).stream())) == HITS
    vault.close()


def test_an_explicit_budget_is_kept_and_a_contracts_exception_is_announced(run: Run) -> None:
    payload = json.dumps({"tree": "word " * 10_000}).encode()
    outcome = run("--dialect", "ctxo", "--tokens", "200", "--vault", "vault.db", stdin=payload)
    assert outcome.code == 4
    assert "RESULT_TOO_LARGE" in outcome.err
    assert "nothing was cut" not in outcome.err
    message = json.loads(outcome.result["content"][0]["text"])["message"]
    assert "envelope_read(handle=" in message
    outcome = run("--dialect", "ctxo", stdin=payload)
    assert outcome.code == 0
    assert "exceed the 8,192 of ctxo" in outcome.err


def test_what_cannot_be_cut_is_kept_too(run: Run, tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text('{"required": ["a"], "properties": {"a": {"pattern": "^x*$"}}}')
    payload = json.dumps({"a": "x" * 9000}).encode()
    outcome = run("--bytes", "600", "--schema", "schema.json", "--vault", "vault.db", stdin=payload)
    assert outcome.code == 4
    assert f"read on: mcp-envelope read {outcome.notice['handle']}" in outcome.err


def test_what_fits_touches_no_vault(
    run: Run, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MCP_ENVELOPE_VAULT")
    assert run(stdin=b'{"a": 1}').result == {
        "content": [{"type": "text", "text": '{"a": 1}'}],
        "structuredContent": {"a": 1},
    }
    assert run("--vault", "vault.db", stdin=b'{"a": 1}').code == 0
    assert list(tmp_path.iterdir()) == list(home.iterdir()) == []


@pytest.mark.parametrize(
    "address", [None, "vault.db", "sqlite:///vault.db", "valkey://localhost:1", "rediss://u:p@h/1"]
)
def test_what_fits_loads_no_vault(tmp_path: Path, address: str | None) -> None:
    if "COVERAGE_PROCESS_CONFIG" in os.environ:
        pytest.skip("coverage itself loads sqlite3")
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "mcp_envelope", "seal"],
        input=b'{"a": 1}',
        cwd=tmp_path,
        env=environment(MCP_ENVELOPE_VAULT=address),
        capture_output=True,
        timeout=60,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()}
    assert "mcp_envelope.envelope" in imported
    heavy = (
        "sqlite3",
        "backports",
        "valkey",
        "mcp_envelope.config",
        "mcp_envelope.vault.vault",
    )
    assert not [name for name in imported if name.startswith(heavy)]


def test_the_variable_alone_changes_nothing_else(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secret = "glpat-" + "a1B2-c3D4e5_F6g7H8i9"
    payload = json.dumps({"token": secret, "rows": list(range(3000))}).encode()
    plain = run("--tokens", "300", stdin=payload).result["structuredContent"]
    monkeypatch.setenv("MCP_ENVELOPE_VAULT", str(tmp_path / "vault.db"))
    monkeypatch.setenv("MCP_ENVELOPE_VAULT_TTL", "1h")
    outcome = run("--tokens", "300", stdin=payload)
    kept = outcome.result["structuredContent"]
    assert plain["token"] == kept["token"] == secret
    assert plain["rows"][:20] == kept["rows"][:20]
    assert outcome.notice["expires"] == pytest.approx(time.time() + 3600, abs=60)
    assert "read on: mcp-envelope read" in outcome.err
    assert "--vault" not in outcome.err


def test_settings_of_the_vault_in_a_file(
    run: Run, hits: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MCP_ENVELOPE_VAULT")
    (tmp_path / "mine.toml").write_text('vault = "here.db"\nvault_ttl = "2h"')
    outcome = run(hits, "--tokens", "500", "--config", "mine.toml")
    assert outcome.notice["expires"] == pytest.approx(time.time() + 7200, abs=60)
    assert outcome.err.rstrip().endswith(" --config mine.toml")
    assert (tmp_path / "here.db").exists()


def test_secrets_are_masked_before_they_are_stored(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('redact = "tokens"\nvault = "here.db"')
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0".translate(str.maketrans("abcde", "xqvzk")) + "mN5pQ7rT2wY4uZ8s"
    payload = json.dumps({"token": secret, "rows": list(range(3000))}).encode()
    outcome = run("--tokens", "300", "--config", "mine.toml", "--vault", "here.db", stdin=payload)
    vault = Vault(SQLiteStore(tmp_path / "here.db"))
    whole = b"".join(vault.open(outcome.notice["handle"]).stream())
    vault.close()
    assert json.loads(whole)["rows"] == list(range(3000))
    assert secret.encode() not in whole


def test_a_handle_of_ones_own_needs_no_vault(run: Run, hits: str, tmp_path: Path) -> None:
    outcome = run(hits, "--tokens", "500", "--handle", "mine", "--vault", "vault.db")
    assert outcome.notice["handle"] == "mine"
    assert not (tmp_path / "vault.db").exists()
    assert "warning: --vault has no effect" in outcome.err
    assert "mcp-envelope read" not in outcome.err


def test_without_a_vault_the_rest_is_not_kept(run: Run, hits: str, home: Path) -> None:
    for none in ("none", "OFF"):
        outcome = run(hits, "--tokens", "500", "--vault", none)
        assert "handle" not in outcome.notice
        assert "The rest was not kept" in outcome.notice["note"]
    assert list(home.iterdir()) == []


def test_a_vault_that_cannot_be_used(run: Run, hits: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "damaged.db").write_bytes(b"this is no database at all " * 500)
    for place in ("file/vault.db", "damaged.db", "."):
        outcome = run(hits, "--tokens", "500", "--vault", place)
        assert outcome.code == 0
        assert "handle" not in outcome.notice
        assert "The rest was not kept" in outcome.notice["note"]
        assert "The whole result was not stored: " in outcome.notice["warnings"][0]
        assert re.match("^warning: the whole result was not stored: .+\n", outcome.err)
        assert outcome.err.count("\n") == 2
        assert meter("exact").count(outcome.lane("structuredContent")) <= 500
    # What is told in a result does not tell the folders of the machine.
    outcome = run(hits, "--tokens", "500", "--vault", str(tmp_path / "file" / "vault.db"))
    assert str(tmp_path) in outcome.err
    assert str(tmp_path).encode() not in outcome.out


def test_a_folder_that_may_not_be_written(hits: str, tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    outcome = unprivileged(
        "seal", str(tmp_path / hits), "--tokens", "500", "--vault", str(folder / "vault.db")
    )
    assert outcome.code == 0
    assert "handle" not in outcome.notice
    assert "warning: the whole result was not stored: " in outcome.err
    assert "permission denied" in outcome.err
    assert outcome.err.count("\n") == 2  # once is enough: the log is silent
    assert list(folder.iterdir()) == []


def test_a_file_that_may_not_be_written(hits: str, tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    vault = str(folder / "vault.db")
    assert process("seal", str(tmp_path / hits), "--tokens", "500", "--vault", vault).code == 0
    before = Path(vault).read_bytes()
    Path(vault).chmod(0o400)
    folder.chmod(0o500)
    outcome = unprivileged("seal", str(tmp_path / hits), "--tokens", "500", "--vault", vault)
    folder.chmod(0o700)
    assert outcome.code == 0
    assert "handle" not in outcome.notice
    assert "warning: the whole result was not stored: " in outcome.err
    assert Path(vault).read_bytes() == before


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (
            "ftp://x",
            "argument --vault: a vault cannot have an address like ftp://…; use a file, sqlite:///PATH",
        ),
        ("sqlite://x", "a SQLite vault is written sqlite:///PATH"),
        ("valkey://host:port", "argument --vault: "),
    ],
)
def test_a_wrong_address(run: Run, monkeypatch: pytest.MonkeyPatch, address: str, said: str) -> None:
    outcome = run("--vault", address, stdin=b"{}")
    assert (outcome.code, outcome.out) == (2, b"")
    assert said in outcome.err
    assert outcome.err.count("\n") == 1
    monkeypatch.setenv("MCP_ENVELOPE_VAULT", address)
    outcome = run(stdin=b"{}")
    assert outcome.code == 2
    assert outcome.err.startswith("error: MCP_ENVELOPE_VAULT: ")


def test_a_server_that_is_not_there(run: Run, hits: str) -> None:
    outcome = run(hits, "--tokens", "500", "--vault", "valkey://user:hunter2@127.0.0.1:1")
    assert outcome.code == 0
    assert "warning: the whole result was not stored: " in outcome.err
    assert "hunter2" not in outcome.err + outcome.out.decode()


def test_an_address_that_turns_out_wrong_when_it_is_needed(run: Run, hits: str) -> None:
    assert run("--vault", "valkey://host:99999", stdin=b"{}").code == 0
    outcome = run(hits, "--tokens", "500", "--vault", "valkey://host:99999")
    assert outcome.code == 0
    assert "handle" not in outcome.notice
    assert outcome.err.startswith("warning: the whole result was not stored: ")


def test_a_server_without_its_library(run: Run, hits: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkey", None)
    for address in ("valkey://host", "rediss://host:1/2", "unix:///run/valkey.sock"):
        outcome = run(hits, "--tokens", "500", "--vault", address)
        assert (outcome.code, outcome.out) == (2, b"")
        assert "pip install 'mcp-envelope[valkey]'" in outcome.err


def test_passwords_are_not_shown() -> None:
    place = settings.vault_address("rediss://user:hunter2@host/1", None, None)
    assert place.address == "rediss://user:hunter2@host/1"
    assert place.again == ("--vault", "rediss://user:***@host/1")


# -- as a process -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_what_needs_little_imports_little(option: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "mcp_envelope", option],
        env=environment(),
        capture_output=True,
        timeout=60,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()}
    assert "mcp_envelope.cli.main" in imported
    heavy = ("msgspec", "jsonschema_rs", "mcp_envelope.cli.seal", "mcp_envelope.envelope", "difflib")
    assert not [name for name in imported if name.startswith(heavy)]


def test_the_module_and_its_version() -> None:
    outcome = process("--version")
    assert outcome == (0, f"mcp-envelope {mcp_envelope.__version__}\n".encode(), "")


def test_utf8_whatever_the_locale() -> None:
    payload = '{"größe":"速い 🚀 é"}'
    outcome = process(
        "seal", stdin=payload.encode(), LC_ALL="C", LANG=None, PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"
    )
    assert outcome.code == 0
    assert outcome.result["structuredContent"] == {"größe": "速い 🚀 é"}
    assert payload.encode() in outcome.out


@pytest.mark.skipif(os.name == "nt", reason="pipes end differently there")
def test_a_reader_that_goes_away() -> None:
    payload = json.dumps(["x" * 1000] * 2000).encode()
    with subprocess.Popen(
        [*COMMAND, "seal", "--tokens", "10000000"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as started:
        assert started.stdin and started.stdout and started.stderr  # noqa: PT018
        started.stdout.close()
        started.stdin.write(payload)
        started.stdin.close()
        said = started.stderr.read()
        assert started.wait(60) == 141
    assert said == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device here")
def test_a_full_disk() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, "seal"],
            input=b"{}",
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
            check=False,
        )
    assert done.returncode == 3
    assert done.stderr == b"error: cannot write to standard output: no space left on device\n"


# -- at a terminal ------------------------------------------------------------------------------------------


def test_colour_at_a_terminal_unless_it_is_unwanted(hits: str, tmp_path: Path) -> None:
    command = [*COMMAND, "seal", hits, "--tokens", "5", "--output", "out.json"]
    code, shown = at_terminal(command, tmp_path)
    assert code == 0
    assert "\x1b[33mwarning:\x1b[0m the budget" in shown
    assert "\x1b[32msealed:\x1b[0m 1" in shown
    assert "\x1b" not in at_terminal(command, tmp_path, NO_COLOR="1")[1]


def test_an_interrupt_is_quiet(tmp_path: Path) -> None:
    code, shown = at_terminal([*COMMAND, "seal"], tmp_path, NO_COLOR="1")
    assert code == 130
    assert (
        shown.replace("^C", "").strip() == "note: reading the payload from the terminal; end it with Ctrl-D"
    )


@pytest.mark.parametrize(
    ("dialect", "variable", "value", "holds"),
    [
        ("ctxo", "CTXO_RESPONSE_LIMIT", "300", lambda text: len(text) <= 300),
        ("scalpel", "SCALPEL_MCP_INFO", "DEBUG", lambda text: len(json.loads(text)) == 9),
        ("native", "MCP_ENVELOPE_BYTES", "900", lambda text: len(text) <= 900),
    ],
)
def test_variables_count_without_a_file(
    run: Run, monkeypatch: pytest.MonkeyPatch, dialect: str, variable: str, value: str, holds: Any
) -> None:
    monkeypatch.setenv(variable, value)
    payload = json.dumps({"results": list(range(3000)) if dialect != "scalpel" else []}).encode()
    outcome = run("--dialect", dialect, stdin=payload)
    assert holds(outcome.result["content"][0]["text"])


def test_variables_do_not_mask_anything(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "ghp_" + "a1B2" * 9
    monkeypatch.setenv("MCP_ENVELOPE_TOKENS", "900")
    assert run(stdin=json.dumps({"token": secret}).encode()).result["structuredContent"] == {"token": secret}
    monkeypatch.setenv("MCP_ENVELOPE_TOKENS", "many")
    assert "warning: MCP_ENVELOPE_TOKENS = 'many': expected a whole number\n" in run(stdin=b"{}").err
