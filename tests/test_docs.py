"""What the documents show is run as it stands there."""

from __future__ import annotations

import ast
import gc
import json
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Iterator
from functools import cache
from itertools import takewhile
from pathlib import Path

import pytest
import yaml
from scripts import exit_codes

import mcp_envelope
from mcp_envelope.dialects import DIALECTS, NAMES

ROOT = Path(__file__).resolve().parent.parent
# Its examples need other libraries, and are run by tests/hosts/test_frameworks.py.
ELSEWHERE = "docs/hosts.md"
OURS = tuple(
    f"https://{host}/mcp-envelope/mcp-envelope/{branch}/"
    for host, branch in (("github.com", "blob/main"), ("raw.githubusercontent.com", "main"))
)
EXAMPLES = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
BLOCKS = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)

DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ("", "docs/", "examples/")
    for path in ROOT.glob(f"{folder}*.md")
)


@pytest.mark.parametrize(
    "document",
    [
        document
        for document in DOCUMENTS
        if document != ELSEWHERE and EXAMPLES.search((ROOT / document).read_text())
    ],
)
def test_python_examples_run(document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # What servers store by themselves goes into the folder too.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    names: dict[str, object] = {}
    for example in EXAMPLES.findall((ROOT / document).read_text()):
        exec(compile(example, document, "exec"), names)
    with warnings.catch_warnings():
        # Servers in examples are never stopped, so nobody closes their vaults.
        warnings.simplefilter("ignore", ResourceWarning)
        names.clear()
        gc.collect()
    # No other test should know the dialects that examples register.
    for name in [name for name in DIALECTS if name not in NAMES]:
        del DIALECTS[name]


def targets(path: Path) -> list[str]:
    """Where the links of a document lead, without the places in a page."""
    text = path.read_text()
    found = re.findall(r"\]\(([^)]+)\)", text) + re.findall(r"^\[[^\]]+\]: (\S+)$", text, re.M)
    found += re.findall(r'<(?:img|a)[^>]+(?:src|href)="([^"]+)"', text)
    return [target.partition("#")[0] for target in found if not target.startswith("#")]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    path = ROOT / document
    for target in targets(path):
        # README.md is read on PyPI too, so its links are absolute.
        inside = next((target.removeprefix(ours) for ours in OURS if target.startswith(ours)), None)
        if inside is not None:
            assert (ROOT / inside).exists(), f"{document} links to {target}"
        elif ":" not in target:
            assert (path.parent / target).exists(), f"{document} links to {target}"


def test_the_readme_can_be_read_anywhere() -> None:
    assert [target for target in targets(ROOT / "README.md") if not target.startswith("https://")] == []


@pytest.mark.parametrize("document", ["docs/security.md", "docs/reliability.md"])
def test_tests_that_are_named_exist(document: str) -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / document).read_text()))
    sources = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert named
    assert named <= set(re.findall(r"def (test_\w+)\(", sources))


def test_every_threat_and_every_promise_has_a_test() -> None:
    for document in ("docs/security.md", "docs/reliability.md"):
        lines = (ROOT / document).read_text().splitlines()
        first = next(number for number, line in enumerate(lines) if line.startswith("|"))
        table = list(takewhile(lambda line: line.startswith("|"), lines[first:]))[2:]
        assert len(table) > 5
        assert [row for row in table if "`test_" not in row.split("|")[-2]] == []
    threats = (ROOT / "docs/security.md").read_text()
    for source in (
        "a hostile server",
        "a hostile client",
        "neighbours on the machine",
        "other tenants of a gateway",
        "a stranger's repository",
        "prompt injection",
    ):
        assert f"\n| {source} |" in threats


def blocks(document: str) -> Iterator[tuple[str, str]]:
    for _, language, text in BLOCKS.findall((ROOT / document).read_text()):
        yield language, text


@pytest.mark.parametrize("document", DOCUMENTS)
def test_data_can_be_read(document: str) -> None:
    for language, text in blocks(document):
        if language == "json":
            json.loads(text)
        elif language == "toml":
            tomllib.loads(text)
        elif language == "yaml":
            yaml.safe_load(text)


def commands(document: str) -> Iterator[list[str]]:
    """Our own commands in a document, each up to the command of another program."""
    for language, text in blocks(document):
        if language in ("", "console", "sh"):
            for line in text.replace("\\\n", " ").splitlines():
                for part in re.split(r" \| | > |\$\(|\)| +# ", line):
                    found = re.search(r"(?:^|uvx |/)mcp-envelope (.*)", part.strip())
                    if found is not None:
                        # Quoted arguments say nothing about options, and may hold what looks like the next command.
                        yield re.sub(r"'[^']*'?|\"[^\"]*\"?", "", found[1].partition(" -- ")[0]).split()


@cache
def help_of(command: str) -> str:
    run = [sys.executable, "-m", "mcp_envelope", command, "--help"]
    return subprocess.run(run, capture_output=True, text=True, check=True).stdout


@pytest.mark.process
@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_and_options_exist(document: str) -> None:
    for command, *words in commands(document):
        if command in ("help", "-V", "--version", "COMMAND"):
            continue
        known = help_of(command)
        for word in words:
            if word.startswith("--"):
                assert re.search(rf"{re.escape(word.partition('=')[0])}\b", known), (command, word)


# What only this package and a shell are needed for; clients, servers and networks are for other tests.
_ALONE = re.compile(
    r"(?:mcp-envelope (?:seal|read|vault|config|stats|trust)|seq|echo|python3) |HANDLE=|mcp-envelope vault$"
)


def shell(document: str) -> str:
    """The commands of a document that can run by themselves, in their order."""
    found = [text for language, text in blocks(document) if language in ("", "console", "sh")]
    return "".join(text for text in found if all(map(_ALONE.match, text.splitlines())))


@pytest.mark.process
@pytest.mark.parametrize("document", [document for document in DOCUMENTS if shell(document)])
def test_shell_examples_run(document: str, tmp_path: Path) -> None:
    (tmp_path / "mcp-envelope.toml").write_text("tokens = 4000\n")
    program = tmp_path / "bin" / "mcp-envelope"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mcp_envelope "$@"\n')
    program.chmod(0o755)
    environ = {
        "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT / "src"),
    }
    run = ["bash", "--norc", "-ec", shell(document)]
    done = subprocess.run(
        run, cwd=tmp_path, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.process
def test_the_page_of_exit_codes_is_what_help_says() -> None:
    assert exit_codes.page() == exit_codes.PAGE.read_text()


def test_every_page_is_in_the_navigation() -> None:
    named = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))
    assert named == {path.name for path in (ROOT / "docs").glob("*.md")}


def test_examples_use_public_names_alone() -> None:
    """Those of the package, and those that the reference lists."""
    reference = (ROOT / "docs" / "api.md").read_text()
    listed = set(re.findall(r"^::: (\S+)", reference, re.MULTILINE))
    for module, members in re.findall(
        r"^::: (\S+)\n +options:\s+members:\s+\[([^\]]+)\]", reference, re.MULTILINE
    ):
        listed |= {f"{module}.{name.strip()}" for name in members.split(",")}
    listed |= {f"mcp_envelope.{name}" for name in mcp_envelope.__all__}
    for name in sorted(listed):
        pkgutil.resolve_name(name)
    used = {
        f"{node.module}.{alias.name}"
        for path in (ROOT / "examples").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mcp_envelope")
        for alias in node.names
    }
    assert len(used) > 15
    assert used <= listed
