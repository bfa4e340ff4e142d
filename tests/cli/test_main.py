"""The command line itself: help, version, suggestions, and exit codes for wrong usage."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from mcp_envelope import __version__
from mcp_envelope.cli.main import COMMANDS, main


@pytest.mark.parametrize("flag", ["-V", "--version"])
@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_version(capsys: pytest.CaptureFixture[str], command: list[str], flag: str) -> None:
    assert main([*command, flag]) == 0
    assert capsys.readouterr() == (f"mcp-envelope {__version__}\n", "")


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    out = capsys.readouterr().out
    for other in (["--help"], ["help", "help"], ["help", "--help"]):
        assert main(other) == 0
        assert capsys.readouterr().out == out
    assert all(f"\n  {name} " in out for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_for_a_command(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert main(["help", command]) == 0
    out = capsys.readouterr().out
    assert main([command, "--help"]) == 0
    assert capsys.readouterr().out == out
    assert out.startswith(f"usage: mcp-envelope {command} ")
    assert "\nexamples" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["hlep"], "there is no command 'hlep', did you mean help?"),
        (["halp"], "there is no command 'halp', did you mean help?"),
        (["help", "sael"], "there is no command 'sael', did you mean seal?"),
        (["banana"], "there is no command 'banana'"),
        (["-x"], "there is no option '-x'"),
        (["-v"], "there is no option '-v'"),
        (["--verson"], "there is no option '--verson', did you mean --version?"),
        (["seal", "-x"], "there is no option '-x'"),
        (["lint", "-x", "."], "there is no option '-x'"),
        (["vault", "-x"], "there is no option '-x'"),
        (["seal", "--tokn", "5"], "there is no option '--tokn', did you mean --tokens?"),
        (
            ["proxy", "--transport", "htp"],
            "argument --transport: 'htp' is not one of http, sse, auto, did you mean http?",
        ),
        (["proxy", "-q", "--", "true"], "there is no option '-q'"),
    ],
)
def test_suggestions(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {message} (see mcp-envelope ")


def test_without_a_command_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert all(f"\n  {name} " in err for name in COMMANDS)
    assert err.endswith("error: no command was given (see mcp-envelope --help)\n")


@pytest.mark.parametrize(
    "command", [["seal"], ["read", "a"], ["proxy", "--", "true"], ["wrap", "cursor"]], ids=" ".join
)
@pytest.mark.parametrize("option", ["--tokens", "--bytes"])
@pytest.mark.parametrize("value", ["-5", "0"])
def test_a_budget_must_be_positive(
    capsys: pytest.CaptureFixture[str], command: list[str], option: str, value: str
) -> None:
    assert main([command[0], option, value, *command[1:]]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"argument {option}: {value} is not a positive number" in err


@pytest.mark.parametrize(
    "command",
    [["seal"], ["read", "a"], ["vault"], ["proxy", "--", "true"], ["wrap", "cursor"], ["config"]],
    ids=lambda command: command[0],
)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tokens = = 5\n", "broken.toml, line 1, column 10: not TOML: invalid value"),
        ("[" * 50_000, "broken.toml"),
        ("tokens = '\udcff'", "broken.toml, line 1, column 11: not UTF-8"),
    ],
    ids=["not TOML", "too deep", "not UTF-8"],
)
def test_a_settings_file_that_is_named_must_parse(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
    text: str,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.toml").write_text(text, errors="surrogateescape")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"{}")))
    assert main([command[0], "--config", "broken.toml", *command[1:]]) == 3
    assert f"error: {message}" in capsys.readouterr().err
