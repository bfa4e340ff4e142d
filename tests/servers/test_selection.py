"""Fields that the settings leave out, of tools that promise them: the advertised schema allows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from mcp_envelope.config import Settings
from mcp_envelope.gateway import Gateway
from mcp_envelope.proxy.interceptor import Interceptor
from mcp_envelope.schema import Schema
from mcp_envelope.schema.widening import without_required

from .harness import LIBRARIES, connected, enveloped_server, run


class Part(BaseModel):
    name: str


class Code(BaseModel):
    functions: list[Part]
    complexity: int
    parent: Code | None = None


def analyze_code() -> Code:
    return Code(functions=[Part(name="f")], complexity=3)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".code-scalpel").mkdir()
    return tmp_path


def write(folder: Path, **settings: Any) -> None:
    config = folder / ".code-scalpel" / "response_config.json"
    config.write_text(json.dumps({"tool_overrides": {"analyze_code": settings}}))


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_typed_tool_of_a_server(library: str, folder: Path) -> None:
    async def main() -> list[Any]:
        shown = []
        async with connected(server) as session:
            # The client holds every result to the schema that it was told at the beginning.
            await session.tools()
            for settings in (
                {"include_only": ["complexity"]},
                {"exclude_fields": ["complexity", "parent"]},
                {},
            ):
                write(folder, **settings)
                shown.append((await session.call("analyze_code")).structured_content)
        return shown

    settings = Settings(interval=0)
    server = enveloped_server(library, analyze_code, dialect="scalpel", settings=settings)
    assert run(main) == [
        {"data": {"complexity": 3}},
        {"data": {"functions": [{"name": "f"}]}},
        {"data": {"functions": [{"name": "f"}], "complexity": 3, "parent": None}},
    ]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dialect", ["native", "transcend"])
def test_by_our_own_settings(library: str, dialect: str, folder: Path) -> None:
    async def main() -> Any:
        async with connected(server) as session:
            await session.tools()
            return (await session.call("analyze_code")).structured_content

    (folder / "mcp-envelope.toml").write_text('[tools.analyze_code]\ninclude_only = ["functions"]')
    server = enveloped_server(library, analyze_code, dialect=dialect)
    shown = run(main)
    assert shown.get("data", shown) == {"functions": [{"name": "f"}]}


def test_a_typed_tool_behind_the_proxy(folder: Path) -> None:
    proxy = Interceptor(Gateway(Settings(interval=0), vault="none", ledger=False, dialect="scalpel"))
    schema = Code.model_json_schema()
    tool = {"name": "analyze_code", "inputSchema": {"type": "object"}, "outputSchema": schema}
    ask(proxy, 1, "tools/list")
    advertised = answer(proxy, 1, {"tools": [tool]})["tools"][0]["outputSchema"]
    data = analyze_code().model_dump()
    for number, settings in enumerate(
        ({"include_only": ["complexity"]}, {"exclude_fields": ["complexity"]}), 2
    ):
        write(folder, **settings)
        ask(proxy, number, "tools/call", name="analyze_code", arguments={})
        shown = answer(proxy, number, {"content": [], "structuredContent": data})["structuredContent"]
        assert ("complexity" in shown["data"]) == ("include_only" in settings)
        assert Schema.of(advertised).first_error(json.dumps(shown).encode()) is None


def ask(proxy: Interceptor, identifier: int, method: str, **params: Any) -> None:
    frame = {"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}
    proxy.from_client(json.dumps(frame).encode())


def answer(proxy: Interceptor, identifier: int, result: dict[str, Any]) -> dict[str, Any]:
    sent = proxy.from_server(json.dumps({"jsonrpc": "2.0", "id": identifier, "result": result}).encode())
    shown: dict[str, Any] = json.loads(sent.to_client[0])["result"]
    return shown


def test_a_schema_without_requirements() -> None:
    part = {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a", "b"], "minProperties": 2}
    assert without_required(part, lambda name: name == "a") == {
        "type": "object",
        "properties": {"a": {}, "b": {}},
        "required": ["b"],
    }
    union = {"oneOf": [{"$ref": "#/$defs/part"}, {"required": ["c"]}], "$defs": {"part": part}}
    relaxed = without_required(union, lambda name: True)
    assert relaxed == {
        "anyOf": [{"type": "object", "properties": {"a": {}, "b": {}}}, {}],
        "$defs": {"part": part},
    }
    looped = {"$ref": "#"}
    assert without_required(looped, lambda name: True) == looped
