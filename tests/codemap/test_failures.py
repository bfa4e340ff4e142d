"""Every code of the contracts, caused by what really goes wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcp_envelope.codes import GENERAL
from mcp_envelope.dialects.transcend import CODES

from .harness import DIALECTS, Project, fake, shown

TOTAL = {"node": "py:shop/core.py#total"}
AT_LINE_1 = {"file": "shop/helpers.py", "line": 1, "col": 5}


def nothing(project: Project) -> None:
    pass


def remove_map(project: Project) -> None:
    project.database.unlink()


def delete_file(project: Project) -> None:
    (project.root / "shop/core.py").unlink()


def rename_symbol(project: Project) -> None:
    core = project.root / "shop/core.py"
    core.write_text(core.read_text().replace("def total", "def summed"))


def damage_map(project: Project) -> None:
    with project.index.open() as connection:
        connection.execute("DROP TABLE uses")


def make_huge(project: Project) -> None:
    (project.root / "huge.py").write_text("x = 1\n" * 400_000)


def link_out(project: Project) -> None:
    os.symlink("/etc/hostname", project.root / "shop/secret.py")


Cause = tuple[Callable[[Project], None], str, dict[str, Any], dict[str, Any]]
# What is done, the tool and its arguments, and the server's options.
CAUSES: dict[str, Cause] = {
    "MAP_NOT_BUILT": (remove_map, "map_search", {"query": "total"}, {}),
    "NODE_NOT_FOUND": (nothing, "map_neighbors", {"node": "py:shop/core.py#totals"}, {}),
    "BAD_NODE_ID": (nothing, "get_blast_radius", {"node": "shop/core.py"}, {}),
    "FILE_DELETED": (delete_file, "nav_references", TOTAL, {}),
    "SYMBOL_NOT_FOUND": (rename_symbol, "nav_definition", TOTAL, {}),
    "LSP_UNAVAILABLE": (nothing, "nav_type", TOTAL, {"language_server": "no-such-language-server --stdio"}),
    "LSP_FAILED": (nothing, "nav_type", TOTAL, {"language_server": fake("crash")}),
    "LSP_TIMEOUT": (nothing, "nav_type", TOTAL, {"language_server": fake("hang"), "deadline": 1.5}),
    "BAD_ARGS": (nothing, "nav_references", {"file": "shop/core.py"}, {}),
    "INTERNAL": (damage_map, "map_neighbors", TOTAL, {}),
    "NOT_FOUND": (nothing, "nav_symbols", {"file": "shop/nowhere.py"}, {}),
    "INVALID_PATH": (nothing, "nav_symbols", {"file": "../outside.py"}, {}),
    "FORBIDDEN": (nothing, "nav_symbols", {"file": "build/out.py"}, {}),
    "TOO_LARGE": (make_huge, "nav_symbols", {"file": "huge.py"}, {}),
    "NOT_IMPLEMENTED": (nothing, "nav_type", TOTAL, {"language_server": fake("bare")}),
    "UPGRADE_REQUIRED": (nothing, "find_dead_code", {"unusedExports": True}, {"tier": "community"}),
    "RATE_LIMITED": (nothing, "map_status", {}, {"calls_per_minute": 0}),
    "TOOL_FAILED": (nothing, "nav_type", TOTAL, {"language_server": fake("refuse")}),
}
# The general code of each; together with the timeout, all that the contract has.
IN_GENERAL = {
    "MAP_NOT_BUILT": "dependency_unavailable",
    "NODE_NOT_FOUND": "not_found",
    "BAD_NODE_ID": "invalid_argument",
    "INTERNAL": "internal_error",
    "INVALID_PATH": "invalid_path",
    "FORBIDDEN": "forbidden",
    "LSP_TIMEOUT": "timeout",
    "TOO_LARGE": "too_large",
    "RATE_LIMITED": "resource_exhausted",
    "NOT_IMPLEMENTED": "not_implemented",
    "UPGRADE_REQUIRED": "upgrade_required",
}


def fail(project: Project, code: str, dialect: str) -> Any:
    prepare, tool, arguments, options = CAUSES[code]
    prepare(project)
    (result,) = project.calls((tool, arguments), dialect=dialect, **options)
    return result


def test_the_closed_sets_are_complete() -> None:
    assert set(CODES) <= CAUSES.keys()
    assert set(IN_GENERAL.values()) == GENERAL


@pytest.mark.parametrize("code", CAUSES)
def test_codes(project: Project, code: str) -> None:
    envelope = fail(project, code, "transcend").structured_content
    assert envelope["ok"] is False
    error = envelope["error"]
    assert (error.get("reason") or error["code"]) == code
    assert error["message"]
    assert error["hint"]
    # No absolute path, no source, no traceback.
    assert str(project.root) not in json.dumps(envelope)
    assert "Traceback" not in json.dumps(envelope)


@pytest.mark.parametrize("code", IN_GENERAL)
def test_general_codes(project: Project, code: str) -> None:
    result = fail(project, code, "scalpel")
    assert result.structured_content["error"]["error_code"] == IN_GENERAL[code]
    assert not result.is_error
    # The hint at the tier comes along where there is one.
    assert ("upgrade_hints" in result.structured_content) == (code == "UPGRADE_REQUIRED")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_failure_in_each_dialect(project: Project, dialect: str) -> None:
    result = fail(project, "NODE_NOT_FOUND", dialect)
    said = shown(result)
    assert result.is_error == (dialect in ("native", "transcend", "gel"))
    message = "The map has no node py:shop/core.py#totals."
    error: dict[str, Any]
    if dialect in ("native", "transcend"):
        error = said["_envelope"]["error"] if dialect == "native" else said["error"]
    elif dialect == "gel":
        error = {"code": said["data"]["errorCode"], "message": said["data"]["message"]}
    else:
        # Their documents have no place for this code.
        error = {"code": "NODE_NOT_FOUND", "message": said["message" if dialect == "ctxo" else "error"]}
        error["message"] = error["message"]["error"] if dialect == "scalpel" else error["message"]
    assert (error["code"], error["message"]) == ("NODE_NOT_FOUND", message)


def test_what_failures_say(project: Project) -> None:
    missing = project.call("map_neighbors", {"node": "py:shop/core.py#totals"})["error"]
    assert missing["similar"][0] == "py:shop/core.py#total"
    unavailable = project.call("nav_type", TOTAL, language_server="no-such-language-server")["error"]
    assert unavailable["language"] == "py"
    assert "pip install basedpyright" in unavailable["hint"]
    rename_symbol(project)
    renamed = project.call("nav_definition", TOTAL)["error"]
    assert "summed" in renamed["sameFile"]


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        ("INVALID_PATH", {"file": "shop"}),
        ("INVALID_PATH", {"file": "/etc/passwd"}),
        ("FORBIDDEN", {"file": "shop/secret.py"}),
        ("FORBIDDEN", {"file": ".git/hooks/x.py"}),
        ("NOT_IMPLEMENTED", {"file": "pyproject.toml"}),
    ],
)
def test_files_that_are_not_shown(project: Project, code: str, arguments: dict[str, Any]) -> None:
    link_out(project)
    assert project.code("nav_symbols", arguments) == code


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"line": 3},
        {**TOTAL, "line": 3},
        {"file": "shop/core.py", "line": 0},
        {"file": "shop/core.py", "line": 400},
        {"file": "shop/core.py", "line": 1, "col": 400},
        {"node": 5},
        {"nodes": "x"},
    ],
)
def test_bad_arguments(project: Project, arguments: dict[str, Any]) -> None:
    assert project.code("nav_definition", arguments) == "BAD_ARGS"


def test_a_first_build_that_is_still_running(tmp_path: Path) -> None:
    project = Project(tmp_path, built=False)
    assert project.code("map_overview") == "MAP_NOT_BUILT"
    # The nav tools need no map, but nothing can stand in for a language server either.
    assert project.code("nav_references", TOTAL, language_server=fake("crash")) == "LSP_FAILED"
    live = project.data("nav_references", TOTAL, language_server=fake("work"))
    assert live["via"] == "language server"
    project.data("map_rebuild")
    assert project.data("map_search", {"query": "total"})["results"]
