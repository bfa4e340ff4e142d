"""The commands `mcp-envelope wrap` and `unwrap`, as a person meets them."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from mcp_envelope.cli import proxy
from mcp_envelope.cli.main import main

PROGRAM = "/opt/tools/bin/mcp-envelope"
SERVERS = """\
{
  // mine
  "mcpServers": {
    "fs": {"command": "npx", "args": ["-y", "fs", "."], "env": {"TOKEN": "hunter2"}},
    "hub": {"type": "http", "url": "https://hub.example/mcp", "headers": {"Authorization": "Bearer hunter2"}},
    "git": {"command": "uvx"}, // last
  },
  "account": "hunter2"
}
"""
CODEX = '[mcp_servers.docs] # d\ncommand = "npx"\nargs = ["-y", "docs"]\nenv = { KEY = "hunter2" }\n'
SUFFIX = ".mcp-envelope-backup"


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    (folder / "site").mkdir(parents=True)
    monkeypatch.chdir(folder / "site")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("USERPROFILE", str(folder))
    program = folder / "bin" / "mcp-envelope"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(program)])
    for name in ("CODEX_HOME", "CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME", "APPDATA", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def run(home: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    def go(*arguments: str, answer: str | None = None) -> Outcome:
        if answer is not None:
            stdin = io.StringIO(answer)
            monkeypatch.setattr(stdin, "isatty", lambda: True)
            monkeypatch.setattr(sys, "stdin", stdin)
        code = main(list(arguments))
        out, err = capfdbinary.readouterr()
        return Outcome(code, out.decode(), err.decode())

    return go


@pytest.fixture
def file(home: Path) -> Path:
    path = home / "site" / ".mcp.json"
    path.write_text(SERVERS, newline="")
    return path


def value(path: Path, name: str) -> Any:
    from mcp_envelope.jsontext.scanner import plain_json

    return json.loads(plain_json(path.read_text()))["mcpServers"][name]


def test_there_and_back(run: Run, file: Path) -> None:
    outcome = run("wrap", "claude-code", "--command", PROGRAM, "--yes")
    assert outcome.code == 0
    backup = file.with_name(file.name + SUFFIX)
    assert backup.read_text() == SERVERS
    assert value(file, "fs")["args"] == ["proxy", "--", "npx", "-y", "fs", "."]
    assert value(file, "fs")["command"] == PROGRAM
    assert value(file, "hub")["url"] == "https://hub.example/mcp"
    assert outcome.err.splitlines() == [
        "note: remote, skipped without --remote: hub",
        f"Wrapped in {file}: fs, git.",
        f"Backup: {backup}. To undo: mcp-envelope unwrap claude-code",
        "Restart the client to use it.",
    ]
    wrapped = file.read_bytes()
    again = run("wrap", "claude-code", "--yes")
    assert (again.code, again.out) == (0, "")
    assert "already wrapped: fs, git" in again.err
    assert file.read_bytes() == wrapped
    assert run("unwrap", "claude-code", "--yes").err == f"Unwrapped in {file}: fs, git.\n"
    assert file.read_text() == SERVERS
    assert not backup.exists()
    assert run("unwrap", "claude-code", "--yes").err == f"Nothing to unwrap in {file}.\n"


@pytest.mark.parametrize("lacking", ["uvicorn is missing", None])
@pytest.mark.parametrize(("variable", "value_of"), [("PATH", "."), ("UV", "uv")])
def test_from_uvx_the_client_starts_it_by_uvx(
    run: Run, file: Path, monkeypatch: pytest.MonkeyPatch, lacking: str | None, variable: str, value_of: str
) -> None:
    """What uvx installs for one run is in a cache, which is emptied sooner or later."""
    uvx = file.parent / "uvx"
    uvx.write_text("#!/bin/sh\n")
    uvx.chmod(0o755)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv(variable, str(file.parent / value_of))
    monkeypatch.setattr(sys, "prefix", "/home/ada/.cache/uv/archive-v0/sgrsUCHVwGxGgFv7")
    monkeypatch.setattr(proxy, "missing_extra", lambda serves=False: lacking)
    assert run("wrap", str(file), "--yes").code == 0
    source = [] if lacking else ["--from", "mcp-envelope[http]"]
    assert value(file, "git") == {
        "command": str(uvx),
        "args": [*source, "mcp-envelope", "proxy", "--", "uvx"],
    }
    assert run("wrap", str(file), "--yes").err.startswith("note: ")
    assert run("unwrap", str(file), "--yes").code == 0
    assert file.read_text() == SERVERS


def test_the_change_is_shown_without_secrets(run: Run, file: Path) -> None:
    shown = run("wrap", str(file), "--command", PROGRAM, "--remote", "--tokens", "4000", "--dry-run")
    assert shown.code == 0
    assert shown.err == "note: nothing was written (--dry-run)\n"
    assert "hunter2" not in shown.out
    lines = shown.out.splitlines()
    assert lines[:2] == [f"--- {file}", f"+++ {file}"]
    assert '-    "git": {"command": "uvx"}, // last' in lines
    args = '["proxy", "--tokens", "4000", "--", "uvx"]'
    assert f'+    "git": {{"command": "{PROGRAM}", "args": {args}}}, // last' in lines
    assert '"Authorization=MCP_ENVELOPE_HEADER_1"' in shown.out
    assert '"env": {"MCP_ENVELOPE_HEADER_1": "***"}' in shown.out
    assert "\x1b" not in shown.out
    assert file.read_text() == SERVERS
    assert os.listdir(file.parent) == [file.name]


def test_colours_on_a_terminal(run: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    lines = run("wrap", str(file), "--dry-run").out.splitlines()
    assert lines[2].startswith("\x1b[36m@@")
    assert any(line.startswith("\x1b[32m+") and line.endswith("\x1b[0m") for line in lines)


def test_nobody_to_ask(run: Run, file: Path) -> None:
    outcome = run("wrap", str(file))
    assert outcome.code == 2
    assert outcome.out
    assert "add --yes" in outcome.err
    assert file.read_text() == SERVERS


def test_a_question(run: Run, file: Path) -> None:
    for answer in ("n\n", "\n", ""):
        outcome = run("wrap", str(file), answer=answer)
        assert outcome.code == 1
        assert f"Write this to {file}? [y/N] " in outcome.err
        assert file.read_text() == SERVERS
    assert run("wrap", str(file), answer="y\n").code == 0
    assert file.read_text() != SERVERS
    assert run("unwrap", str(file), answer="Yes\n").code == 0
    assert file.read_text() == SERVERS


def test_headers_go_into_the_environment(run: Run, file: Path) -> None:
    run("wrap", str(file), "--remote", "--yes")
    hub = value(file, "hub")
    assert hub["env"] == {"MCP_ENVELOPE_HEADER_1": "Bearer hunter2"}
    assert "hunter2" not in " ".join(hub["args"])
    file.with_name(file.name + SUFFIX).unlink()
    assert "hunter2" not in run("unwrap", str(file), "--yes").out
    assert file.read_text() == SERVERS


def test_a_server_that_may_want_a_login(run: Run, file: Path) -> None:
    file.write_text(
        '{"mcpServers": {"wiki": {"url": "https://wiki.example/mcp"}, "git": {"command": "uvx"}}}'
    )
    for more in ((), ("--gateway",)):
        said = run("wrap", str(file), "--remote", "--yes", *more).err.splitlines()
        assert [line for line in said if "login" in line] == [
            "If wiki requires a login, run this first (it opens your browser): mcp-envelope login https://wiki.example/mcp"
        ]
        assert run("unwrap", str(file), "--yes").code == 0


def test_the_choice(run: Run, file: Path) -> None:
    run("wrap", str(file), "--servers", "fs, hub", "--yes")
    assert value(file, "git") == {"command": "uvx"}
    assert value(file, "fs")["args"][0] == "proxy"
    run("wrap", str(file), "--except", "fs", "--yes", "--tokens", "700")
    assert value(file, "git")["args"] == ["proxy", "--tokens", "700", "--", "uvx"]
    assert value(file, "fs")["args"][:2] == ["proxy", "--"]
    assert file.with_name(file.name + SUFFIX).read_text() == SERVERS
    run("unwrap", str(file), "--servers", "git", "--yes")
    assert value(file, "git") == {"command": "uvx"}
    assert file.with_name(file.name + SUFFIX).read_text() == SERVERS
    run("unwrap", str(file), "--yes")
    assert file.read_text() == SERVERS
    wrong = run("wrap", str(file), "--servers", "gt")
    assert wrong.code == 2
    assert "there is no server 'gt'" in wrong.err
    assert "did you mean git?" in wrong.err


def test_options_are_passed_on_and_set_again(run: Run, file: Path, home: Path) -> None:
    options = ("--bytes", "9000", "--dialect", "ctxo", "--config", "e.toml", "--vault", "v.db")
    Path("e.toml").touch()
    run("wrap", str(file), *options, "--yes")
    config, vault = str(home / "site" / "e.toml"), str(home / "site" / "v.db")
    expected = ["--bytes", "9000", "--dialect", "ctxo", "--config", config, "--vault", vault]
    assert value(file, "git")["args"] == ["proxy", *expected, "--", "uvx"]
    run("wrap", str(file), "--tokens", "500", "--dialect", "gel", "--yes")
    expected = ["--dialect", "gel", "--config", config, "--vault", vault, "--tokens", "500"]
    assert value(file, "git")["args"] == ["proxy", *expected, "--", "uvx"]
    run("wrap", str(file), "--vault", "none", "--servers", "git", "--yes")
    assert value(file, "git")["args"][6] == "none"
    run("unwrap", str(file), "--yes")
    assert file.read_text() == SERVERS


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["wrap"], "name a client (claude-code, "),
        (["wrap", "x.json", "--scope", "user"], "--scope applies to a client"),
        (["wrap", "claude-desktop", "--scope", "project"], "has no project configuration"),
        (["wrap", "x.json", "--tokens", "0"], "0 is not a positive number"),
        (["wrap", "x.json", "--tokens", "5", "--bytes", "5"], "not allowed with"),
        (["wrap", "x.json", "--dialect", "ctx"], "did you mean ctxo?"),
        (["wrap", "x.json", "--command", "/bin/other"], "must be named mcp-envelope"),
        (["wrap", "x.json", "--vault", "valkey://:hunter2@host/0"], "--vault has a password"),
        (["unwrap", "x.json", "--tokens", "5"], "there is no option '--tokens'"),
    ],
)
def test_wrong_usage(run: Run, arguments: list[str], said: str) -> None:
    outcome = run(*arguments)
    assert outcome.code == 2
    assert said in outcome.err
    assert "hunter2" not in outcome.err
    assert outcome.err.count("\n") == 1


def test_no_file(run: Run, home: Path) -> None:
    outcome = run("wrap", "cursor")
    assert outcome.code == 3
    project, user = home / "site" / ".cursor" / "mcp.json", home / ".cursor" / "mcp.json"
    assert outcome.err == f"error: no configuration found for cursor; looked for {project}, {user}\n"
    assert run("wrap", "cursr").err == "error: there is no client or file named cursr, did you mean cursor?\n"


def test_a_file_without_servers(run: Run, file: Path) -> None:
    for text in ("{}", '{"mcpServers": {}}', "[]", '{"mcpServers": null}'):
        file.write_text(text)
        outcome = run("wrap", str(file))
        assert outcome == Outcome(0, "", f"No servers in {file}; nothing to do.\n")
        assert run("unwrap", str(file)).code == 0


def test_a_file_that_cannot_be_parsed(run: Run, file: Path) -> None:
    file.write_text('{\n  "mcpServers": {"a" 1}}')
    for command in ("wrap", "unwrap"):
        outcome = run(command, str(file), "--yes")
        assert outcome.code == 3
        assert outcome.err == f"error: {file}, line 2, column 22: not JSON: expecting ':' delimiter\n"
    file.write_bytes(b"\xff\xfe{\x00}\x00")
    assert "not UTF-8" in run("wrap", str(file)).err


def test_the_project_comes_first_if_it_has_servers(run: Run, home: Path) -> None:
    project, user = home / "site" / ".gemini" / "settings.json", home / ".gemini" / "settings.json"
    for path in (project, user):
        path.parent.mkdir()
        path.write_text('{"mcpServers": {"a": {"command": "a"}}}')
    run("wrap", "gemini", "--yes")
    assert "proxy" in project.read_text()
    assert "proxy" not in user.read_text()
    run("wrap", "gemini", "--scope", "user", "--yes")
    assert "proxy" in user.read_text()
    project.write_text('{"theme": "x"}')
    run("unwrap", "gemini", "--yes")
    assert "proxy" not in user.read_text()


def test_every_client(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mcp_envelope.clients.locations import CLIENTS, locations

    for client in CLIENTS:
        [path, *_] = locations(client, "user")
        assert home in path.parents
        path.parent.mkdir(parents=True, exist_ok=True)
        text = CODEX if client == "codex" else SERVERS
        if client == "vscode":
            text = text.replace("mcpServers", "servers")
        if client == "continue":
            text = CONTINUE.replace(
                "mcpServers:", "mcpServers:\n  - {name: x, command: npx, env: {A: hunter2}}"
            )
        if client == "goose":
            text = "extensions:\n  x: {type: stdio, name: x, cmd: npx, args: [], envs: {A: hunter2}}\n"
        path.write_text(text)
        outcome = run("wrap", client, "--yes")
        assert outcome.code == 0, outcome.err
        assert "hunter2" not in outcome.out + outcome.err
        assert ("Claude Code writes to this file" in outcome.err) == (client == "claude-code")
        assert "proxy" in path.read_text()
        assert run("unwrap", client, "--yes").code == 0
        assert path.read_text() == text


def test_what_changed_meanwhile_stays(run: Run, file: Path) -> None:
    run("wrap", str(file), "--remote", "--yes")
    file.write_text(file.read_text().replace('"account": "hunter2"', '"account": "other"'))
    outcome = run("unwrap", str(file), "--yes")
    backup = file.with_name(file.name + SUFFIX)
    assert file.read_text() == SERVERS.replace('"account": "hunter2"', '"account": "other"')
    assert f"the backup is kept: {backup}" in outcome.err
    assert backup.read_text() == SERVERS
    now = file.read_text()
    run("wrap", str(file), "--yes")
    assert backup.read_text() == now
    backup.write_text("{")
    outcome = run("unwrap", str(file), "--yes")
    assert "cannot be read; continuing without it" in outcome.err
    assert file.read_text() == now


def test_bytes_that_editors_add(run: Run, file: Path) -> None:
    data = b"\xef\xbb\xbf" + SERVERS.replace("\n", "\r\n").encode()
    file.write_bytes(data)
    run("wrap", str(file), "--remote", "--yes")
    wrapped = file.read_bytes()
    assert wrapped.startswith(b"\xef\xbb\xbf{\r\n")
    assert wrapped.count(b"\n") == wrapped.count(b"\r\n")
    file.with_name(file.name + SUFFIX).unlink()
    run("unwrap", str(file), "--yes")
    assert file.read_bytes() == data


@pytest.mark.skipif(sys.platform == "win32", reason="links and modes of POSIX")
def test_a_link_to_dotfiles(run: Run, home: Path) -> None:
    real = home / "dotfiles" / "codex.conf"
    real.parent.mkdir()
    real.write_text(CODEX)
    real.chmod(0o600)
    link = home / ".codex" / "config.toml"
    link.parent.mkdir()
    link.symlink_to(real)
    run("wrap", "codex", "--yes")
    assert link.is_symlink()
    backup = real.with_name(real.name + SUFFIX)
    assert [path.stat().st_mode & 0o777 for path in (real, backup)] == [0o600, 0o600]
    run("unwrap", "codex", "--yes")
    assert real.read_text() == CODEX
    assert os.listdir(real.parent) == [real.name]


def test_a_folder_that_cannot_be_written(run: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*arguments: object, **more: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "mkstemp", denied)
    outcome = run("wrap", str(file), "--yes")
    assert outcome.code == 3
    assert f"error: cannot write {file}: permission denied; the file is unchanged\n" in outcome.err
    assert file.read_text() == SERVERS
    assert os.listdir(file.parent) == [file.name]


def test_another_program_writes_while_we_ask(run: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = io.StringIO()

    def answer() -> str:
        file.write_text("{}")
        return "y\n"

    monkeypatch.setattr(stdin, "isatty", lambda: True)
    monkeypatch.setattr(stdin, "readline", answer)
    monkeypatch.setattr(sys, "stdin", stdin)
    outcome = run("wrap", str(file))
    assert outcome.code == 3
    assert "another program has just changed" in outcome.err
    assert file.read_text() == "{}"


def test_runs_at_once(home: Path, file: Path) -> None:
    command = [sys.executable, "-m", "mcp_envelope", "wrap", str(file), "--yes"]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)]
    codes = []
    for one in runs:
        one.communicate()
        codes.append(one.returncode)
    assert 0 in codes
    assert set(codes) <= {0, 3}
    assert value(file, "git") == {
        "command": sys.executable,
        "args": ["-m", "mcp_envelope", "proxy", "--", "uvx"],
    }
    assert file.with_name(file.name + SUFFIX).read_text() == SERVERS


def test_what_the_client_starts(run: Run, file: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = home / "bin" / "mcp-envelope"

    def started(argument: str, *more: str) -> str:
        monkeypatch.setattr(sys, "argv", [argument])
        run("wrap", str(file), "--yes", *more)
        command: str = value(file, "git")["command"]
        run("unwrap", str(file), "--yes")
        return command

    assert started(str(program)) == str(program)
    assert started("../bin/mcp-envelope") == str(program)
    monkeypatch.setenv("PATH", str(program.parent))
    assert started("mcp-envelope") == str(program)
    assert started("/somewhere/__main__.py") == sys.executable
    assert started(str(program), "--command", "mcp-envelope") == "mcp-envelope"
    assert started(str(program), "--command", "~/bin/mcp-envelope") == str(program)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--config", "nowhere.toml"], 3, "cannot read nowhere.toml"),
        (["--vault", "foo://bar"], 2, "a vault cannot have an address like foo://"),
        (["--vault", "valkey://127.0.0.1:1"], 2, "pip install"),
        (["--remote"], 2, "--remote: needs the extra [http]: pip install 'mcp-envelope[http]'"),
    ],
)
def test_what_the_proxy_would_refuse(
    run: Run,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    said: str,
) -> None:
    monkeypatch.setattr(proxy, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "valkey", None)
    outcome = run("wrap", str(file), "--yes", *arguments)
    assert outcome.code == code
    assert said in outcome.err
    assert file.read_text() == SERVERS


def test_a_budget_that_is_too_small(run: Run, file: Path) -> None:
    outcome = run("wrap", str(file), "--yes", "--tokens", "5")
    assert "warning: --tokens: 5 is too small; 128 is used" in outcome.err
    assert value(file, "git")["args"][-5:] == ["proxy", "--tokens", "128", "--", "uvx"]


def test_what_cannot_be_edited_safely(run: Run, file: Path) -> None:
    text = '{"servers": {"odd": {"type": "sse", "url": "https://x", "type": "http"}, "ok": {"command": "a"}}}'
    file.write_text(text)
    outcome = run("wrap", str(file), "--remote", "--yes")
    assert outcome.code == 3
    assert "odd cannot be edited without changing other settings" in outcome.err
    assert file.read_text() == text
    assert run("wrap", str(file), "--remote", "--except", "odd", "--yes").code == 0


@pytest.mark.parametrize("command", ["wrap", "unwrap"])
def test_help(run: Run, command: str) -> None:
    outcome = run(command, "--help")
    assert outcome.code == 0
    for word in ("examples:", "exit codes:", "--dry-run", "--yes", "--servers", "--except"):
        assert word in outcome.out
    assert all(len(line) <= 80 for line in outcome.out.splitlines())


CONTINUE = """\
name: mine  # the assistant
models:
  - &fast {provider: openai, model: small}
  - <<: *fast
    name: Fast
mcpServers:
  # files
  - name: fs
    command: npx
    args:
      - "-y"
      - fs
  - name: git
    command: uvx   # no arguments
  - name: hub
    type: streamable-http
    url: https://hub.example/mcp
    requestOptions:
      headers: {Authorization: "Bearer x"}
"""


def test_continue_has_many_files(run: Run, home: Path) -> None:
    folder = home / "site" / ".continue" / "mcpServers"
    folder.mkdir(parents=True)
    mine, one, two = home / ".continue" / "config.yaml", folder / "one.json", folder / "two.yaml"
    mine.parent.mkdir()
    mine.write_text(CONTINUE)
    one.write_text('{"mcpServers": {"one": {"command": "npx"}}}')
    two.write_text("mcpServers:\n- {name: two, command: npx, args: []}\n")
    before = {path: path.read_bytes() for path in (mine, one, two)}
    outcome = run("wrap", "continue", "--command", PROGRAM, "--yes", "--remote")
    assert outcome.code == 0, outcome.err
    assert "hub has requestOptions, which only the client can handle; left as it is" in outcome.err
    wrapped = yaml.safe_load(mine.read_text())
    was = yaml.safe_load(CONTINUE)
    told = {server["name"]: server for server in wrapped["mcpServers"]}
    assert told["fs"] == {"name": "fs", "command": PROGRAM, "args": ["proxy", "--", "npx", "-y", "fs"]}
    assert told["git"] == {"name": "git", "command": PROGRAM, "args": ["proxy", "--", "uvx"]}
    assert told["hub"] == was["mcpServers"][2]
    assert wrapped["models"] == was["models"]
    assert "# no arguments" in mine.read_text()
    assert value(one, "one")["args"] == ["proxy", "--", "npx"]
    assert yaml.safe_load(two.read_text())["mcpServers"][0]["args"] == ["proxy", "--", "npx"]
    assert run("unwrap", "continue", "--yes").code == 0
    assert {path: path.read_bytes() for path in before} == before


def test_a_list_of_servers_gets_no_gateway(run: Run, home: Path) -> None:
    path = home / "site" / "mcp.yaml"
    path.write_text(CONTINUE)
    outcome = run("wrap", str(path), "--gateway", "--yes")
    assert outcome.code == 0
    assert (
        "fs is in a list, in YAML or alone in its file, which --gateway cannot edit; left as it is"
        in outcome.err
    )
    text = "mcpServers:\n- {name: a, command: mcp-envelope, args: [gateway]}\n"
    path.write_text(text)
    assert run("unwrap", str(path), "--yes").code == 0
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [1", "line 1, column 6: not YAML: expected ',' or ']', but got '<stream end>'"),
        ("a: &a [*a]\n", "not YAML: its aliases stand for too much"),
        (
            "a0: &a0 [1,1,1,1,1,1,1,1,1]\n"
            + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)),
            "not YAML: its aliases stand for too much",
        ),
        ("a: " + "[" * 5000 + "]" * 5000, "not YAML: nested too deeply"),
        ("a: 2026-99-99\n", "not YAML: month must be in 1..12"),
        ("? [a]\n: b\n", "line 1, column 3: not YAML: found unhashable key"),
        ("a: !!python/object:os.system x\n", "could not determine a constructor"),
        ("a: \x07\n", "not YAML: unacceptable character"),
    ],
)
def test_yaml_that_cannot_be_read(run: Run, home: Path, text: str, problem: str) -> None:
    path = home / "site" / "mcp.yaml"
    path.write_text(text)
    outcome = run("wrap", str(path), "--yes")
    assert (outcome.code, outcome.out) == (3, "")
    assert problem in outcome.err
    assert path.read_text() == text


def test_a_server_with_a_merge_key_is_left_to_its_owner(run: Run, home: Path) -> None:
    path = home / "site" / "mcp.yaml"
    text = "base: &base\n  command: npx\nmcpServers:\n- <<: *base\n  name: one\n- name: two\n  command: uvx\n"
    path.write_text(text)
    outcome = run("wrap", str(path), "--yes", "--command", PROGRAM)
    assert outcome.code == 3
    assert "one cannot be edited without changing other settings; nothing was changed" in outcome.err
    assert path.read_text() == text
    assert run("wrap", str(path), "--yes", "--command", PROGRAM, "--except", "one").code == 0
    assert yaml.safe_load(path.read_text())["mcpServers"][1]["args"] == ["proxy", "--", "uvx"]


def test_all_clients_there_and_back(run: Run, file: Path, home: Path) -> None:
    cursor, codex = home / ".cursor" / "mcp.json", home / ".codex" / "config.toml"
    broken, empty = home / ".gemini" / "settings.json", home / ".lmstudio" / "mcp.json"
    texts = {
        file: SERVERS,
        cursor: '{"mcpServers": {"one": {"command": "npx"}}}',
        codex: '[mcp_servers.two]\ncommand = "npx"\n',
        broken: "{",
        empty: "{}",
    }
    for path, text in texts.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, newline="")
    refused = run("wrap", "--all", "--except", "git")
    assert refused.code == 2
    assert (
        refused.err.count("nothing was written: no terminal to ask for confirmation")
        == refused.out.count("--- ")
        == 1
    )
    outcome = run("wrap", "--all", "--yes", "--except", "git", "--command", PROGRAM)
    assert outcome.code == 0, outcome.err
    assert f"warning: {broken}, line 1" in outcome.err
    assert "To undo: mcp-envelope unwrap --all" in outcome.err
    assert value(cursor, "one")["args"] == ["proxy", "--", "npx"]
    assert value(file, "git") == {"command": "uvx"}
    assert 'args = ["proxy", "--", "npx"]' in codex.read_text()
    assert run("unwrap", "--all", "--yes").code == 0
    assert {path: path.read_text() for path in texts} == texts
    assert run("wrap", "--all", "--yes", "--servers", "nobody").code == 2
    assert run("wrap", "--all", "cursor").code == 2


def test_all_clients_of_which_there_are_none(run: Run) -> None:
    outcome = run("wrap", "--all", "--yes")
    assert (outcome.code, outcome.err) == (3, "error: no client configuration with servers was found\n")
