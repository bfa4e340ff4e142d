"""Completion in real shells."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from mcp_envelope.cli.main import COMMANDS

from .harness import Run, runner


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    return runner("completion", tmp_path, monkeypatch, capfdbinary)


def completed(script: bytes, *words: str) -> set[str]:
    """What bash offers for the last word."""
    line = " ".join(f"'{word}'" for word in words)
    asked = f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _mcp_envelope; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(
        ["bash", "--norc", "-c", f"{script.decode()}\n{asked}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(done.stdout.split())


def test_bash(run: Run) -> None:
    script = run("bash").out
    assert completed(script, "mcp-envelope", "") == {*COMMANDS, "help"}
    assert completed(script, "mcp-envelope", "--v") == {"--version"}
    assert completed(script, "mcp-envelope", "sta") == {"stats", "status"}
    assert completed(script, "mcp-envelope", "wrap", "claude") == {"claude-code", "claude-desktop"}
    assert completed(script, "mcp-envelope", "seal", "--tok") == {"--tokens"}
    assert completed(script, "mcp-envelope", "proxy", "--", "-") == set()
    assert completed(script, "mcp-envelope", "help", "v") == {"vault"}
    assert completed(script, "mcp-envelope", "check", "--format", "") == {
        "table",
        "json",
        "markdown",
        "junit",
    }
    assert completed(script, "mcp-envelope", "proxy", "--meter", "e") == {"estimate", "exact"}
    for words in (("seal", ""), ("check", "--arguments", "")):
        assert completed(script, "mcp-envelope", *words) == set(), "so that bash offers files"


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("wrap claude", {"claude-code", "claude-desktop"}),
        ("help v", {"vault"}),
        ("check --format ", {"table", "json", "markdown", "junit"}),
        ("check --arguments arg", {"arguments.json"}),
        ("seal --tok", {"--tokens"}),
    ],
)
def test_fish(run: Run, tmp_path: Path, line: str, offered: set[str]) -> None:
    (tmp_path / "arguments.json").touch()
    (tmp_path / "script").write_bytes(run("fish").out)
    asked = f"source script; complete -C'mcp-envelope {line}'"
    done = subprocess.run(
        ["fish", "--no-config", "-c", asked],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert {each.partition("\t")[0] for each in done.stdout.splitlines()} == offered


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_accept_the_script(run: Run, tmp_path: Path, shell: str) -> None:
    script = run(shell).out
    for command in COMMANDS:
        assert command.encode() in script
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_bytes(script)
    subprocess.run([program, "-n", str(tmp_path / "script")], check=True, timeout=60)


def test_mistakes(run: Run) -> None:
    assert "did you mean bash?" in run("basch").err
    assert run().code == 2
