"""Redaction in Python servers: the model never sees a secret, and the tool's function gets the original."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from benchmarks.secret_formats import FORMATS

from .harness import LIBRARIES, connected, enveloped_server, notice, run, wire

TOKEN = next(each.example()[0] for each in FORMATS if each.title == "GitHub personal")
PLACEHOLDER = re.compile(r"\[redacted:[a-z-]+:[a-z2-7]{6,}\]")


@pytest.fixture
def vault(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MCP_ENVELOPE_REDACT", "tokens")
    monkeypatch.chdir(tmp_path)
    return str(tmp_path / "vault.db")


def read() -> dict[str, str]:
    return {"text": f"key = {TOKEN}\n"}


def items():  # type: ignore[no-untyped-def]
    for _ in range(4000):
        yield {"key": TOKEN}


class Disk:
    def __init__(self) -> None:
        self.written: list[Any] = []

    def write(self, text: str, parts: list[dict[str, str]]) -> str:
        self.written.append((text, parts))
        return f"written: {text}"


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_function_gets_the_original(library: str, vault: str) -> None:
    disk = Disk()

    def write(text: str, parts: list[dict[str, str]]) -> str:
        return disk.write(text, parts)

    server = enveloped_server(library, read, items, write, vault=vault)

    async def main() -> None:
        async with connected(server) as session:
            got = await session.call("read")
            assert TOKEN not in wire(got)
            [mark] = set(PLACEHOLDER.findall(wire(got)))
            assert "1 secret" in wire(got)
            many = await session.call("items")
            assert set(PLACEHOLDER.findall(wire(many))) == {mark}
            assert "secrets are masked" in json.dumps(notice(many)["warnings"])
            page = await session.call("envelope_read", {"handle": notice(many)["handle"]})
            assert TOKEN not in wire(page)
            done = await session.call("write", {"text": f"a {mark} b", "parts": [{"x": mark}]})
            assert TOKEN not in wire(done)
            assert mark in wire(done)
            unknown = await session.call("write", {"text": "[redacted:jwt:aaaaaa]", "parts": []})
            assert "MASK_UNKNOWN" in wire(unknown)

    run(main)
    assert disk.written == [(f"a {TOKEN} b", [{"x": TOKEN}])]
