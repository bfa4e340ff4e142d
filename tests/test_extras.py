"""What an extra lacks is said as it is, by the commands that need it too."""

from __future__ import annotations

import importlib.metadata
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from mcp_envelope import extras
from mcp_envelope.hosts.adapter import missing_library

from .cli.harness import runner

ROOT = Path(__file__).resolve().parent.parent
OLD = {"mcp": "1.30.0", "fastmcp-slim": "3.4.10"}


def has(monkeypatch: pytest.MonkeyPatch, versions: Mapping[str, str]) -> None:
    def version(name: str) -> str:
        try:
            return versions[name]
        except KeyError:
            raise importlib.metadata.PackageNotFoundError(name) from None

    monkeypatch.setattr(importlib.metadata, "version", version)


def test_old_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, OLD)
    assert extras.lacking("sdk") == extras.lacking("login") == "mcp: found 1.30.0, needs 2.2"
    assert extras.lacking("fastmcp") == "fastmcp: found 3.4.10, needs 4.1"
    assert extras.lacking("http") is None


def test_the_oldest_versions_are_those_that_pip_asks_for() -> None:
    optional = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert [f"{library}>={version}" for library, version in extras.OLDEST.items()] == [
        *optional["fastmcp"],
        *optional["sdk"],
    ]


def test_new_and_missing_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, {"mcp": "2.2.0", "fastmcp": "4.1.0"})
    assert extras.lacking("sdk") is extras.lacking("fastmcp") is None
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "keyring" else name)
    assert extras.lacking("login") == "keyring is not installed"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("check", "--", "true"), "check needs the extra [sdk] (mcp: found 1.30.0, needs 2.2): pip install"),
        (
            ("login", "http://127.0.0.1:9/mcp"),
            "a login needs the extra [login] (mcp: found 1.30.0, needs 2.2)",
        ),
        (("demo",), "the demo needs the extra [demo] (mcp: found 1.30.0, needs 2.2)"),
    ],
)
def test_commands_with_an_old_sdk(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
    arguments: tuple[str, ...],
    said: str,
) -> None:
    has(monkeypatch, OLD)
    command, *rest = arguments
    outcome = runner(command, tmp_path, monkeypatch, capfdbinary)(*rest)
    assert (outcome.code, outcome.out) == (2, b"")
    assert said in outcome.err


def test_doctor_with_an_old_sdk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    has(monkeypatch, OLD)
    shown = runner("doctor", tmp_path, monkeypatch, capfdbinary)().out.decode()
    assert (
        "note\t[sdk]\tmcp: found 1.30.0, needs 2.2: servers made with the official SDK (pip install" in shown
    )
    assert "note\t[login]\tmcp: found 1.30.0, needs 2.2: " in shown
    assert "note\t[fastmcp]\tfastmcp: found 3.4.10, needs 4.1: " in shown


@pytest.mark.parametrize(
    ("versions", "state"),
    [
        ({}, "it is not installed"),
        ({"litellm": "1.2.3"}, "found 1.2.3, but it can't be imported (no such name)"),
    ],
)
def test_adapters_of_hosts(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str], state: str) -> None:
    has(monkeypatch, versions)
    error = missing_library("litellm", ImportError("no such name"))
    assert str(error) == f"litellm is needed here ({state})"
