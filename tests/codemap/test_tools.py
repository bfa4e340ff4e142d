"""The fourteen tools, on the small monorepo."""

from __future__ import annotations

import json
from typing import Any

import anyio
import fastmcp
import jsonschema_rs
import pytest
from codemap.server import create_server

from .harness import DIALECTS, Project, fake, shown, write

TOTAL = "py:shop/core.py#total"
FOURTEEN = {
    *(
        "map_overview",
        "map_search",
        "map_neighbors",
        "map_path",
        "map_status",
        "map_rebuild",
        "nav_definition",
    ),
    *(
        "nav_references",
        "nav_symbols",
        "nav_type",
        "nav_call_hierarchy",
        "find_importers",
        "get_blast_radius",
    ),
    "find_dead_code",
}


def ids(entries: list[dict[str, Any]]) -> list[str]:
    return [entry["id"] for entry in entries]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_all_tools_are_typed(project: Project, dialect: str) -> None:
    async def main() -> list[Any]:
        async with fastmcp.Client(create_server(project.options(dialect=dialect))) as client:
            tools: list[Any] = await client.list_tools()
            return tools

    tools = {tool.name: tool for tool in anyio.run(main)}
    assert tools.keys() == FOURTEEN | {"envelope_read"}
    for name in FOURTEEN:
        assert tools[name].description
        budget = "token_budget" if dialect == "scalpel" else "tokenBudget"
        assert budget in tools[name].input_schema["properties"]
        # ctxo has only text, so it has nothing that a schema could describe.
        assert (tools[name].output_schema is None) == (dialect == "ctxo")
        if dialect != "ctxo":
            assert jsonschema_rs.validator_for(tools[name].output_schema)


def test_overview(project: Project) -> None:
    data = project.data("map_overview")
    assert {each["lang"]: each["files"] for each in data["languages"]} == {"py": 7, "ts": 3, "js": 1, "go": 3}
    assert {each["path"] for each in data["folders"]} >= {"shop", "services/api/store", "."}
    assert {each["id"]: each["hub"] for each in data["hubs"]}["ts:packages/ui/src/theme.ts#colour"] == 3
    assert [each["hub"] for each in data["hubs"]] == sorted(
        (each["hub"] for each in data["hubs"]), reverse=True
    )
    only = project.data("map_overview", {"focus": "services/"})
    assert {each["lang"] for each in only["languages"]} == {"go"}
    assert {each["anchor"]["file"].partition("/")[0] for each in only["hubs"]} == {"services"}


def test_search(project: Project) -> None:
    results = project.data("map_search", {"query": "total"})["results"]
    assert results[0]["id"] == TOTAL
    assert results[0]["anchor"] == {
        "file": "shop/core.py",
        "line": 16,
        "col": 5,
        "endLine": 17,
        "snippet": "def total(basket):",
    }
    assert (
        ids(project.data("map_search", {"query": "basket.price"})["results"])[0]
        == "py:shop/core.py#Basket.price"
    )
    assert ids(project.data("map_search", {"query": "orphan", "kind": "file"})["results"]) == [
        "py:shop/orphan.py"
    ]
    assert project.code("map_search", {"query": "total", "fileFilter": "services/"}) == "NOT_FOUND"
    # Nothing in a query is a wildcard.
    assert project.code("map_search", {"query": "t_tal"}) == "NOT_FOUND"
    assert project.code("map_search", {"query": "%"}) == "NOT_FOUND"


def test_columns_count_utf16_units(project: Project) -> None:
    (found,) = project.data("map_search", {"query": "grö𐐷e"})["results"]
    assert (found["id"], found["anchor"]["col"]) == ("py:shop/core.py#Basket.grö𐐷e", 9)
    answer = project.data("nav_references", {"node": "py:shop/core.py#Basket.price"})
    places = {(each["anchor"]["line"], each["anchor"]["col"]) for each in answer["references"]}
    # After a letter that takes two units: `def grö𐐷e(self): return self.price()`.
    assert places == {(13, 35), (17, 19)}


def test_neighbors(project: Project) -> None:
    data = project.data("map_neighbors", {"node": TOTAL})
    found = {(each["id"], each["edge"], each["direction"]) for each in data["neighbors"]}
    assert found == {
        ("py:shop/web.py#handle", "calls", "in"),
        ("py:shop/core.py#forgotten", "calls", "in"),
        ("py:shop/core.py", "contains", "in"),
        ("py:shop/core.py#RATE", "references", "out"),
        ("py:shop/core.py#Basket.price", "calls", "out"),
    }
    narrow = project.data(
        "map_neighbors", {"node": TOTAL, "direction": "in", "edgeKinds": ["calls"], "depth": 2}
    )
    assert {(each["id"], each["depth"]) for each in narrow["neighbors"]} == {
        ("py:shop/core.py#forgotten", 1),
        ("py:shop/web.py#handle", 1),
        ("py:shop/app.py", 2),
    }


def test_path(project: Project) -> None:
    data = project.data("map_path", {"source": "py:shop/app.py", "target": "py:shop/core.py"})
    assert ids(data["path"]) == ["py:shop/app.py", "py:shop/web.py", "py:shop/core.py"]
    assert [step.get("edge") for step in data["path"]] == [None, "imports", "imports"]
    back = {"source": "py:shop/core.py", "target": "py:shop/app.py"}
    assert project.code("map_path", back) == "NOT_FOUND"


def test_status_and_rebuild(project: Project) -> None:
    status = project.data("map_status", language_server=fake("work"))
    assert (status["files"], status["changed"], status["added"], status["deleted"]) == (14, 0, 0, 0)
    assert [each["file"] for each in status["problems"]] == ["broken.py"]
    assert status["languageServers"][0]["state"] == "not started"
    (project.root / "shop/helpers.py").write_text("def log(what): pass\n")
    (project.root / "shop/new.py").write_text("from .helpers import log\n")
    (project.root / "shop/orphan.py").unlink()
    status = project.data("map_status")
    assert (status["changed"], status["added"], status["deleted"]) == (1, 1, 1)
    envelope = project.call("map_rebuild")
    assert (envelope["data"]["indexed"], envelope["data"]["deleted"]) == (2, 1)
    assert "could not be read" in envelope["warnings"][0]
    assert project.data("map_rebuild")["indexed"] == 0


def test_rebuild_reports_progress(project: Project) -> None:
    seen = []

    async def main() -> None:
        async def progress(done: float, total: float | None, message: str | None) -> None:
            seen.append((done, total))

        async with fastmcp.Client(create_server(project.options())) as client:
            await client.call_tool("map_rebuild", {"full": True}, progress_handler=progress)

    anyio.run(main)
    assert seen[-1] == (14, 14)


def test_importers(project: Project) -> None:
    data = project.data("find_importers", {"node": "ts:packages/ui/src/button.ts"})
    assert [(each["id"], each["anchor"]["line"]) for each in data["importers"]] == [
        ("ts:packages/ui/src/index.ts", 1)
    ]
    by_name = project.data("find_importers", {"node": TOTAL})
    assert set(ids(by_name["importers"])) == {"py:shop/__init__.py", "py:shop/web.py"}
    assert project.code("find_importers", {"node": "py:shop/orphan.py"}) == "NOT_FOUND"


def test_blast_radius(project: Project) -> None:
    data = project.data("get_blast_radius", {"node": "py:shop/core.py#RATE", "depth": 3})
    assert {(each["id"], each["depth"], each["through"]) for each in data["impactedSymbols"]} == {
        (TOTAL, 1, "py:shop/core.py#RATE"),
        ("py:shop/web.py#render", 1, "py:shop/core.py#RATE"),
        ("py:shop/core.py#forgotten", 2, TOTAL),
        ("py:shop/web.py#handle", 2, TOTAL),
        ("py:shop/app.py", 3, "py:shop/web.py#handle"),
    }
    assert (data["direct"], data["impacted"], data["files"], data["risk"]) == (2, 5, 3, "low")
    across = project.data("get_blast_radius", {"node": "ts:packages/ui/src/theme.ts#colour"})
    assert across["packages"] == ["packages/app", "packages/ui"]
    here = {"node": "ts:packages/ui/src/theme.ts#colour", "acrossPackages": False}
    assert project.data("get_blast_radius", here)["packages"] == ["packages/ui"]


def test_dead_code(project: Project) -> None:
    data = project.data("find_dead_code", {"unusedExports": True})
    assert set(ids(data["deadSymbols"])) == {
        "py:shop/core.py#Basket.grö𐐷e",
        "py:shop/core.py#forgotten",
        "py:shop/orphan.py#Lonely",
        "ts:packages/ui/src/theme.ts#unused",
    }
    assert ids(data["deadFiles"]) == ["py:shop/orphan.py"]
    assert "py:shop/web.py#render" in ids(data["unusedExports"])
    assert ids(project.data("find_dead_code", {"fileFilter": "packages/"})["deadSymbols"]) == [
        "ts:packages/ui/src/theme.ts#unused"
    ]


def test_lists_are_ranked_before_they_are_cut(project: Project) -> None:
    lines = "".join(f"def f{n}(): return core.total(core.RATE)\n" for n in range(80))
    (project.root / "zoo.py").write_text(f"import shop.core as core\n{lines}")
    project.index.build()
    whole = project.call("nav_references", {"node": TOTAL, "tokenBudget": 10_000})["data"]["references"]
    assert len(whole) == 82
    cut = project.call("nav_references", {"node": TOTAL, "tokenBudget": 600})
    shown = [(each["anchor"]["file"], each["anchor"]["line"]) for each in cut["data"]["references"]]
    assert cut["truncated"]
    assert cut["dropped"]["kind"] == "references"
    assert cut["dropped"]["count"] == 82 - len(shown)
    assert "fileFilter" in cut["dropped"]["note"]
    ranked = sorted((each["anchor"]["file"], each["anchor"]["line"]) for each in whole)
    assert shown == ranked[: len(shown)]
    impact = project.call("get_blast_radius", {"node": "py:shop/core.py#RATE", "tokenBudget": 700})
    assert impact["truncated"]
    assert {each["depth"] for each in impact["data"]["impactedSymbols"]} == {1}
    assert impact["data"]["impacted"] > len(impact["data"]["impactedSymbols"])


@pytest.mark.parametrize("tool", ["map_overview", "map_neighbors", "nav_references", "get_blast_radius"])
def test_no_dialect_returns_it_all(project: Project, tool: str) -> None:
    folders = {f"zoo{n}/a.py": f"from shop import total\ndef f{n}(): return total()\n" for n in range(400)}
    write(project.root, folders)
    project.index.build()
    asked: dict[str, Any] = {} if tool == "map_overview" else {"node": TOTAL}
    for dialect in DIALECTS:
        (result,) = project.calls((tool, asked), dialect=dialect)
        most = 8192 if dialect in ("ctxo", "transcend") else 33_000
        size = len(json.dumps(shown(result), ensure_ascii=False, separators=(",", ":")))
        assert most / 5 < size <= most, dialect
