"""Lines of a stored text, by their numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_envelope.budget import Budget
from mcp_envelope.payload import new_handle, read_payload
from mcp_envelope.vault.read_tool import read
from mcp_envelope.vault.vault import Vault, open_vault

TEXT = "".join(f"línea {number}\n" for number in range(1, 200_001))


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Vault:
    opened = open_vault(str(Path(tmp_path_factory.mktemp("lines")) / "vault.db"))
    assert opened is not None
    return opened


def stored(vault: Vault, payload: Any, read_as: Any = "auto") -> str:
    handle = new_handle()
    assert vault.keep(handle, read_payload(payload, read_as)) is None
    return handle


def texts(vault: Vault, handle: str, lines: str, path: str = "", tokens: int = 8000) -> str:
    asked = {"handle": handle, "lines": lines, "path": path}
    result = read(vault, asked, budget=Budget.of(tokens=tokens)).to_result()
    assert not result["isError"] if "isError" in result else True
    return "\n".join(block["text"] for block in result["content"])


@pytest.mark.parametrize(
    ("lines", "first", "last"), [("1-3", 1, 3), ("150000-150002", 150000, 150002), ("7", 7, 7)]
)
def test_lines_by_their_numbers(vault: Vault, lines: str, first: int, last: int) -> None:
    wanted = "".join(f"línea {number}\n" for number in range(first, last + 1))
    in_blocks = [{"type": "text", "text": TEXT}]
    for payload, path in (
        (TEXT, ""),
        ({"log": TEXT}, "/log"),
        (in_blocks, ""),
        (in_blocks, "/content/0/text"),
    ):
        shown = texts(
            vault, stored(vault, payload, "blocks" if payload is in_blocks else "auto"), lines, path
        )
        assert wanted in shown
        assert f"línea {last + 1}\n" not in shown


def test_the_last_lines_and_more_than_fit(vault: Vault) -> None:
    handle = stored(vault, TEXT)
    assert texts(vault, handle, "199999-300000") == "línea 199999\nlínea 200000\n"
    shown = texts(vault, handle, "100-100000", tokens=300)
    assert "línea 100\n" in shown
    assert "envelope_read" in shown


@pytest.mark.parametrize("lines", ["0-3", "5-2", "x", "1-", "-5", "1,2"])
def test_a_bad_range_is_refused(vault: Vault, lines: str) -> None:
    problem = read(vault, {"handle": stored(vault, "a\nb\n"), "lines": lines}).problem
    assert problem is not None
    assert problem.code == "BAD_ARGS"


def test_what_has_no_such_lines(vault: Vault) -> None:
    for payload, lines, code in (("a\nb\n", "3", "BAD_OFFSET"), ({"a": 1}, "1", "BAD_ARGS")):
        problem = read(
            vault,
            {
                "handle": stored(vault, json.dumps(payload) if isinstance(payload, dict) else payload),
                "lines": lines,
            },
        ).problem
        assert problem is not None
        assert problem.code == code
