"""The rules inside a real flake8, and ruff's half of the work, as docs/lint.md shows it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from mcp_envelope.lint import RULES, SourceFile, lint
from mcp_envelope.lint.report import Linted, render

from .marked import in_tool
from .test_source import LOUD, QUIET

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "lint.md"
pytestmark = pytest.mark.process
TABLE = re.compile(r"<!-- rules -->\n(.*?)<!-- end -->", re.DOTALL)


def flake8(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "flake8", "--isolated", "--select", "ENV", "-j", "1", *arguments, "."],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert not done.stderr
    return done.stdout


def test_flake8_finds_the_same(tmp_path: Path) -> None:
    samples = {
        **{f"quiet{number}.py": in_tool(body) for number, body in enumerate(QUIET)},
        # flake8 also believes a string that looks like a comment.
        **{f"loud{number}.py": in_tool(body) for number, body in enumerate(LOUD) if '"# noqa"' not in body},
        "wide.py": in_tool("é = 'ä'; return json.dumps(rows)"),
        "off.py": "# mcp-envelope: off\n" + in_tool("return json.dumps(rows)"),
        "cut.py": in_tool("return [row for row in rows[:500]]"),
    }
    wanted = []
    for name, code in samples.items():
        (tmp_path / name).write_text(code)
        wanted += [
            f"./{name}:{finding.line}: {finding.rule} {finding.message}"
            for finding in lint(SourceFile(code.encode()))
        ]
    found = re.sub(r"(?m)^(\S+:\d+):\d+:", r"\1:", flake8(tmp_path)).splitlines()
    assert sorted(found) == sorted(wanted)
    assert len(wanted) == len(LOUD) + 1


def test_flake8_has_the_place(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(in_tool("return json.dumps(rows)"))
    assert re.search(r"server.py:\d+:12: ENV003 tool 'answer' returns data as text", flake8(tmp_path))
    assert flake8(tmp_path, "--extend-ignore", "ENV003") == ""


def test_the_table_is_the_catalogue() -> None:
    rows = ["| rule | name | what is found | `--fix` |", "|---|---|---|---|"]
    for rule in RULES.values():
        fixed = "simple cases" if rule.fixable else ""
        rows.append(f"| {rule.id} | {rule.name} | {rule.message} | {fixed} |")
    found = TABLE.search(PAGE.read_text())
    assert found
    assert found[1].splitlines() == rows


def test_every_rule_has_its_words() -> None:
    for rule in RULES.values():
        assert f"{rule.id} " in PAGE.read_text()
        assert rule.why.endswith(".")
        assert rule.advice.endswith(".")
        assert rule.before != rule.after


def ruff_setting() -> str:
    found = re.search(r"^```toml\n(.*?banned-api.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert found
    return found[1]


IMPORTS = [
    "from mcp_types import CallToolResult",
    "from mcp_types import TextContent as Text",
    "from mcp.types import CallToolResult, TextContent",
    "import mcp.types as types\nx = types.TextContent",
    "import mcp_types as types\nx = types.CallToolResult",
    "from fastmcp.tools import ToolResult",
    "from fastmcp.tools.base import ToolResult",
    "from mcp.types import ImageContent",
    "from fastmcp import FastMCP",
]


@pytest.mark.parametrize("code", IMPORTS[:-2])
def test_what_ruff_bans_exists(code: str) -> None:
    exec(code, {})


def test_the_ruff_setting_works(tmp_path: Path) -> None:
    setting = ruff_setting()
    assert tomllib.loads(setting)["tool"]["ruff"]["lint"]["external"] == ["ENV"]
    (tmp_path / "pyproject.toml").write_text(setting)
    for number, code in enumerate(IMPORTS):
        (tmp_path / f"sample{number}.py").write_text(code + "\n")
    (tmp_path / "quiet.py").write_text("x = 1  # noqa: ENV003\n")
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format", "json", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "warning" not in done.stderr
    found = [(Path(each["filename"]).name, each["code"]) for each in json.loads(done.stdout)]
    assert {name for name, code in found if code == "TID251"} == {
        f"sample{n}.py" for n in range(len(IMPORTS) - 2)
    }
    assert all(name != "quiet.py" for name, _ in found)


def test_the_hook() -> None:
    text = (ROOT / ".pre-commit-hooks.yaml").read_text()
    assert re.findall(r"(\w+): (.*)", text) == [
        ("id", "mcp-envelope-lint"),
        ("name", "mcp-envelope lint"),
        ("description", "Find MCP tools that bypass the envelope."),
        ("entry", "mcp-envelope lint"),
        ("language", "python"),
        ("types", "[python]"),
    ]


def test_the_examples_of_the_page() -> None:
    """What the page shows as found is found, and what it shows as better is clean."""
    blocks = re.findall(r"^```py\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    before, after = blocks[:2]
    shown = re.search(r"lint src\n(.*?)1 file, 4 findings", PAGE.read_text(), re.DOTALL)
    assert shown
    assert shown[1] == render("text", [Linted("src/server.py", lint(SourceFile(before.encode())))])
    assert lint(SourceFile(after.encode())) == []
