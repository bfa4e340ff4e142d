"""The command `mcp-envelope lint`, as a person meets it."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mcp_envelope.cli.main import main
from mcp_envelope.lint import RULES

SERVER = """\
import json
from fastmcp import FastMCP
from mcp_envelope.servers.fastmcp import EnvelopeMiddleware

mcp = FastMCP("x", middleware=[EnvelopeMiddleware()])

@mcp.tool
def rows() -> str:
    return json.dumps({"rows": [1, 2]}, indent=2)
"""
FIXED = SERVER.replace('json.dumps({"rows": [1, 2]}, indent=2)', '{"rows": [1, 2]}').replace(
    "-> str", "-> dict[str, object]"
)
ERROR = SERVER + '\n@mcp.tool\ndef fail():\n    return "Error: no"\n'
FOUND = "ENV003 [*] tool 'rows' returns data as text; return the data"


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Outcome]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "clean.py").write_text("x = 1\n")

    def go(*arguments: str, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        code = main(["lint", *arguments])
        out, err = capfdbinary.readouterr()
        return Outcome(code, out.decode(), err.decode())

    return go


def test_findings(run: Run) -> None:
    assert run("server.py") == (
        1,
        f"server.py:9:12: {FOUND}\n",
        "1 file, 1 finding, 1 of them fixable with --fix\n",
    )
    assert run("clean.py") == (0, "", "1 file, nothing found\n")
    assert run(".").out == f"server.py:9:12: {FOUND}\n"
    assert run(".", "server.py", "./clean.py").err.startswith("2 files, 1 finding,")
    assert run("clean.py", "--format", "text", "server.py").err.startswith("2 files, 1 finding,")


def test_a_terminal_gets_colours(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run("server.py").out.startswith("\x1b[1mserver.py:9:12:\x1b[0m \x1b[31mENV003\x1b[0m")


def test_folders_are_walked(run: Run, tmp_path: Path) -> None:
    for name in ("a/b", ".hidden", "node_modules", "build/lib", "env", "a/__pycache__", "venv"):
        (tmp_path / "src" / name).mkdir(parents=True)
        (tmp_path / "src" / name / "server.py").write_text(SERVER)
    (tmp_path / "src" / "env" / "pyvenv.cfg").touch()
    (tmp_path / "src" / "a" / "text.txt").write_text(SERVER)
    (tmp_path / "src" / "a" / "loop").symlink_to(tmp_path / "src")
    (tmp_path / "src" / "a" / "self.py").symlink_to("self.py")
    os.mkfifo(tmp_path / "src" / "a" / "pipe.py")
    outcome = run("src")
    assert outcome.out == f"src/a/b/server.py:9:12: {FOUND}\n"
    assert run("src/build").out.startswith("src/build/lib/server.py:9:12:")
    assert run("src/a/text.txt").out.startswith("src/a/text.txt:9:12:")
    (tmp_path / "empty").mkdir()
    assert run("empty") == (0, "", "no Python files found\n")


def test_fix(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "server.py"
    path.chmod(0o640)
    clean = (tmp_path / "clean.py").stat().st_mtime_ns
    assert run(".", "--fix") == (0, "", "2 files, 1 fixed, 0 left\n")
    assert path.read_text() == FIXED
    assert path.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "clean.py").stat().st_mtime_ns == clean
    assert run("--fix", ".") == (0, "", "2 files, 0 fixed, 0 left\n")
    assert path.read_text() == FIXED


def test_fix_tells_what_is_left(run: Run, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_bytes(ERROR.replace("\n", "\r\n").encode())
    outcome = run("server.py", "--fix")
    assert (outcome.code, outcome.err) == (1, "1 file, 1 fixed, 1 left\n")
    assert outcome.out.startswith("server.py:13:12: ENV005 tool 'fail'")
    assert b"\r\n    return {" in (tmp_path / "server.py").read_bytes()


def test_fix_leaves_what_was_not_asked_for(run: Run, tmp_path: Path) -> None:
    assert run("server.py", "--fix", "--ignore", "ENV003").code == 0
    assert run("server.py", "--fix", "--select", "ENV001,env002").code == 0
    assert (tmp_path / "server.py").read_text() == SERVER


def test_diff(run: Run, tmp_path: Path) -> None:
    outcome = run("--diff", "server.py", "clean.py")
    assert outcome.code == 1
    lines = outcome.out.splitlines()
    assert lines[:2] == ["--- server.py", "+++ server.py"]
    assert "-def rows() -> str:" in lines
    assert "+def rows() -> dict[str, object]:" in lines
    assert (tmp_path / "server.py").read_text() == SERVER
    (tmp_path / "server.py").write_text(SERVER.removesuffix("\n"))
    assert "\\ No newline at end of file" in run("--diff", "server.py").out
    (tmp_path / "server.py").write_text(FIXED)
    assert run("--diff", "server.py") == (0, "", "1 file, nothing found\n")


def test_the_diff_is_a_patch(run: Run, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_bytes(SERVER.replace('"x"', '"\f\x1cé"').encode())
    patch = run("--diff", "server.py").out
    subprocess.run(["git", "apply", "-p0"], cwd=tmp_path, input=patch.encode(), check=True)
    assert (tmp_path / "server.py").read_text() == FIXED.replace('"x"', '"\f\x1cé"')


def test_standard_input(run: Run) -> None:
    assert run("-", stdin=SERVER.encode()).out == f"stdin:9:12: {FOUND}\n"
    assert run("-", "--stdin-filename", "a.py", stdin=SERVER.encode()).out == f"a.py:9:12: {FOUND}\n"
    assert run("-", "--fix", stdin=SERVER.encode()) == (0, FIXED, "1 file, 1 fixed, 0 left\n")
    outcome = run("-", "--fix", "--stdin-filename", "a.py", stdin=ERROR.encode())
    assert outcome.code == 1
    assert outcome.out == ERROR.replace(SERVER, FIXED)
    assert outcome.err.startswith("warning: a.py:13:12: ENV005 ")
    assert "--- a.py\n" in run("-", "--diff", "--stdin-filename", "a.py", stdin=SERVER.encode()).out


def test_formats(run: Run) -> None:
    assert run("server.py", "--format", "json").json["findings"][0]["rule"] == "ENV003"
    assert run("server.py", "--format", "github").out.startswith("::error file=server.py,line=9,col=12,")
    sarif = run("server.py", "--format", "sarif")
    assert sarif.code == 1
    assert sarif.json["runs"][0]["results"][0]["ruleId"] == "ENV003"
    assert run("clean.py", "--format", "json").json == {"findings": [], "problems": [], "files": 1}


def test_select_and_ignore(run: Run, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(ERROR)

    def rules(*arguments: str) -> list[str]:
        return [each["rule"] for each in run("server.py", "--format", "json", *arguments).json["findings"]]

    assert rules() == ["ENV003", "ENV005"]
    assert rules("--select", "ENV005") == ["ENV005"]
    assert rules("--select", "ENV003", "--select", "ENV005") == ["ENV003", "ENV005"]
    assert rules("--ignore", "ENV005,ENV006") == ["ENV003"]
    assert rules("--select", "ENV", "--ignore", "ENV003") == ["ENV005"]


def test_the_others_are_linted_all_the_same(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("x = 1\ndef f(:\n")
    (tmp_path / "nul.py").write_bytes(b"x = 1\0")
    (tmp_path / "coded.py").write_bytes(b"# coding: klingon\n")
    outcome = run(".", "missing.py", "--fix")
    assert outcome.code == 3
    assert "error: bad.py:2:7: not Python: invalid syntax\n" in outcome.err
    assert re.search(
        r"^error: nul.py:1:1: not Python: source code (string )?cannot contain null", outcome.err, re.M
    )
    assert "error: coded.py:1:1: not Python: unknown encoding: klingon\n" in outcome.err
    assert "error: cannot read missing.py: no such file or directory\n" in outcome.err
    assert outcome.err.count("\n") == 5
    assert (tmp_path / "server.py").read_text() == FIXED
    problems = run(".", "missing.py", "--format", "json").json["problems"]
    assert [each["path"] for each in problems] == ["bad.py", "coded.py", "nul.py", "missing.py"]


def test_a_file_that_may_not_be_read(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = open

    def refuse(path: Any, *arguments: Any, **settings: Any) -> Any:
        if str(path).endswith("server.py"):
            raise PermissionError(13, "Permission denied", path)
        return real(path, *arguments, **settings)

    monkeypatch.setattr("builtins.open", refuse)
    outcome = run(".")
    assert (outcome.code, outcome.err) == (
        3,
        "error: cannot read server.py: permission denied\n1 file, nothing found\n",
    )


def test_a_folder_that_may_not_be_read(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.scandir

    def refuse(path: Any) -> Any:
        if str(path).endswith("secret"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    (tmp_path / "secret").mkdir()
    monkeypatch.setattr("os.scandir", refuse)
    outcome = run(".")
    assert outcome.code == 3
    assert "error: cannot read ./secret: permission denied\n" in outcome.err
    assert "server.py:9:12" in outcome.out


def test_a_file_that_may_not_be_written(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = open

    def refuse(path: Any, mode: str = "r", **settings: Any) -> Any:
        if mode == "wb":
            raise PermissionError(13, "Permission denied", path)
        return real(path, mode, **settings)

    monkeypatch.setattr("builtins.open", refuse)
    outcome = run("server.py", "--fix")
    assert (outcome.code, outcome.err) == (3, "error: cannot write server.py: permission denied\n")


WRONG = {
    "nothing": ([], "name a file or a folder"),
    "an option": (["--fixx", "."], "there is no option '--fixx', did you mean --fix?"),
    "a format": ([".", "--format", "xml"], "'xml' is not one of text, json, github, sarif"),
    "a rule": ([".", "--select", "ENV009"], "there is no rule 'ENV009', did you mean ENV00"),
    "a rule to explain": (
        ["--explain", "data-text"],
        "there is no rule 'data-text', did you mean data-as-text?",
    ),
    "both": ([".", "--fix", "--diff"], "choose one"),
    "more than -": (["-", "a.py"], "- cannot be combined"),
    "a name for nothing": (["a.py", "--stdin-filename", "b.py"], "--stdin-filename needs -"),
    "a path to explain": (["a.py", "--list"], "take no paths"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_usage(run: Run, name: str) -> None:
    arguments, words = WRONG[name]
    outcome = run(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert words in outcome.err
    assert outcome.err.count("\n") == 1


def test_rules_are_told(run: Run) -> None:
    assert [line.split()[0] for line in run("--list").out.splitlines()] == list(RULES)
    for rule in RULES.values():
        for name in (rule.id, rule.id.lower(), rule.name):
            out = run("--explain", name).out
            assert out.startswith(f"{rule.id} {rule.name}: ")
            assert f"    {rule.before.splitlines()[0]}\n" in out


def test_help_has_examples_that_work(run: Run, tmp_path: Path) -> None:
    text = run("--help").out
    (tmp_path / "src").mkdir()
    examples = [line.strip() for line in text.partition("examples:\n")[2].splitlines() if line.strip()]
    assert len(examples) >= 5
    for example in examples:
        words = example.partition(" >")[0].partition(" <")[0].split()
        assert words[:2] == ["mcp-envelope", "lint"]
        assert run(*words[2:]).code in (0, 1), example


def test_no_mcp_library_is_imported(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    code = (
        "import sys; from mcp_envelope.cli.main import main; code = main(['lint', 'server.py']);"
        "sys.exit(9 if {'mcp', 'fastmcp', 'mcp_types'} & set(sys.modules) else code)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, timeout=60)
    assert done.returncode == 1
