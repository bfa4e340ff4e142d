"""What isn't fatal is said where a dialect has words for it: warnings, misses, tiers, rates, workspaces, links."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

import anyio
import fastmcp
import pytest
from codemap.server import create_server

from .harness import DIALECTS, Project, fake, shown

TOTAL = {"node": "py:shop/core.py#total"}


def warnings(result: Any, dialect: str) -> list[str]:
    said = shown(result)
    if dialect == "native":
        return list(said.get("_envelope", {}).get("warnings", []))
    if dialect == "transcend":
        return list(said["warnings"])
    assert dialect == "gel"
    details = said["meta"].get("details", [])
    return [each.removeprefix("Warning: ") for each in details if each.startswith("Warning: ")]


@pytest.mark.parametrize("dialect", ["native", "transcend", "gel"])
def test_stale_files(project: Project, dialect: str) -> None:
    (project.root / "shop/web.py").write_text("# nothing left\n")
    (result,) = project.calls(("map_neighbors", TOTAL), dialect=dialect)
    (warning,) = warnings(result, dialect)
    assert warning.startswith("1 file changed since the last index; entries from it are marked stale: true.")
    marked = {each for each in json.dumps(shown(result)).split("{") if '"stale": true' in each}
    assert len(marked) == 1
    project.data("map_rebuild")
    (result,) = project.calls(("map_neighbors", TOTAL), dialect=dialect)
    assert warnings(result, dialect) == []


def test_files_that_are_gone(project: Project) -> None:
    (project.root / "shop/web.py").unlink()
    envelope = project.call("map_neighbors", TOTAL)
    assert envelope["warnings"] == [
        "1 file(s) in this answer are gone from the disk since the last index. Call map_rebuild."
    ]
    assert {each["id"]: each.get("stale") for each in envelope["data"]["neighbors"]}["py:shop/web.py#handle"]


def test_a_changed_time_is_no_change(project: Project) -> None:
    (project.root / "shop/web.py").touch()
    assert project.call("map_neighbors", TOTAL)["warnings"] == []


def test_the_age_of_the_index(project: Project) -> None:
    with project.index.open() as connection, connection:
        connection.execute("UPDATE facts SET value = value - 2.5 * 86400 WHERE name = 'built'")
    (warning,) = project.call("map_neighbors", TOTAL)["warnings"]
    assert warning.startswith("The index is 2 days old")
    assert "Confirm hot paths with nav_references before editing" in warning
    assert project.call("map_neighbors", TOTAL, oldest=1e9)["warnings"] == []


@pytest.mark.parametrize("dialect", ["native", "transcend", "gel"])
@pytest.mark.parametrize(
    ("tool", "what"),
    [
        ("nav_definition", "The definition"),
        ("nav_references", "The references"),
        ("nav_call_hierarchy", "The call hierarchy"),
    ],
)
def test_the_map_stands_in_for_the_language_server(
    project: Project, tool: str, what: str, dialect: str
) -> None:
    (result,) = project.calls((tool, TOTAL), dialect=dialect)
    (warning,) = warnings(result, dialect)
    assert warning.startswith(f"{what} came from fallback-map instead: treat it as approximate.")
    assert "No language server is set up for py." in warning
    said = shown(result)
    assert (said if dialect == "native" else said["data"])["via"] == "fallback-map"


def test_what_only_shares_its_name_is_left_out(project: Project) -> None:
    classes = "".join(f"class C{n}:\n    def price(self): pass\n" for n in range(5))
    (project.root / "many.py").write_text(classes)
    project.index.build()
    envelope = project.call("get_blast_radius", {"node": "py:shop/core.py#Basket.price"})
    assert [each["certain"] for each in envelope["data"]["impactedSymbols"]] == [True]
    (warning,) = envelope["warnings"]
    assert warning.startswith("Many symbols are called price; 1 uses of the name")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_miss_is_an_answer(project: Project, dialect: str) -> None:
    (result,) = project.calls(("map_search", {"query": "zzz"}), dialect=dialect)
    # transcend has only failures for what is missing.
    assert result.is_error == (dialect == "transcend")
    assert "Try fewer or shorter words." in json.dumps(shown(result))
    if dialect == "ctxo":
        assert shown(result) == {
            "found": False,
            "hint": "Try fewer or shorter words. If the code is new, call map_rebuild.",
        }


def test_the_workspace_of_a_monorepo(project: Project) -> None:
    for node, workspace in (
        ("ts:packages/ui/src/theme.ts#colour", {"root": "shop-repo", "package": "packages/ui"}),
        ("go:services/api/main.go", {"root": "shop-repo", "package": "services/api"}),
        ("py:shop/core.py", {"root": "shop-repo"}),
    ):
        (result,) = project.calls(("find_importers", {"node": node}), dialect="ctxo")
        (other,) = project.calls(("map_neighbors", {"node": node}), dialect="ctxo")
        assert shown(other)["_meta"]["workspace"] == workspace
        assert "_meta" in shown(result) or shown(result)["found"] is False


@pytest.mark.parametrize(
    ("tier", "deepest", "packages", "hints"),
    [
        (
            "community",
            2,
            ["packages/ui"],
            {"impact beyond 2 steps": "pro", "impact across packages": "enterprise"},
        ),
        ("pro", 2, ["packages/ui"], {"impact across packages": "enterprise"}),
        ("enterprise", 2, ["packages/app", "packages/ui"], {}),
    ],
)
def test_tiers(project: Project, tier: str, deepest: int, packages: list[str], hints: dict[str, str]) -> None:
    asked = {"node": "ts:packages/ui/src/theme.ts#colour", "depth": 3}
    (result,) = project.calls(("get_blast_radius", asked), dialect="scalpel", tier=tier)
    said = result.structured_content
    assert said["data"]["packages"] == packages
    assert {each["feature"]: each["tier"] for each in said.get("upgrade_hints", [])} == hints
    assert all(each["reason"] for each in said.get("upgrade_hints", []))


def test_the_debug_profile_names_tier_and_version(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALPEL_MCP_INFO", "DEBUG")
    (result,) = project.calls(("map_status", {}), dialect="scalpel", tier="pro")
    said = result.structured_content
    assert (said["tier"], said["tool_version"], said["tool_id"]) == ("pro", "0.1.0", "map_status")
    assert said["upgrade_hints"] == []
    assert said["error"] is None


def test_rate_limit_and_token_usage(project: Project) -> None:
    calls = [("map_neighbors", TOTAL)] * 3
    results = project.calls(*calls, dialect="gel", calls_per_minute=2)
    metas = [result.structured_content["meta"] for result in results]
    assert [meta["rateLimit"]["remaining"] for meta in metas] == [1, 0, 0]
    assert [meta["status"] for meta in metas] == ["ok", "ok", "error"]
    assert 1 <= metas[0]["rateLimit"]["resetSeconds"] <= 60
    usage = metas[0]["tokenUsage"]
    assert usage["files"] == 2
    files = ("shop/core.py", "shop/web.py")
    assert usage["tokensInFiles"] == sum(len((project.root / each).read_text()) for each in files) // 4
    data = results[2].structured_content["data"]
    assert data["errorCode"] == "RATE_LIMITED"
    assert 1 <= data["retryAfterSeconds"] <= 60


@pytest.mark.parametrize("dialect", ["native", "gel"])
def test_links_lead_to_the_source(project: Project, dialect: str) -> None:
    node = "py:shop/core.py#Basket.grö𐐷e"

    async def main() -> tuple[str, str]:
        server = create_server(project.options(dialect=dialect))
        async with fastmcp.Client(server) as client:
            result = await client.call_tool_mcp("get_blast_radius", {"node": node})
            (link,) = [block for block in result.content if block.type == "resource_link"]
            (read,) = await client.read_resource(str(link.uri))
            return str(link.uri), read.text

    uri, text = anyio.run(main)
    assert unquote(uri) == f"codemap://source/{node}"
    assert text == "    def grö𐐷e(self): return self.price()"


def test_what_is_cut_can_be_read(project: Project, tmp_path: Any) -> None:
    lines = "".join(f"def f{n}(): return total()\n" for n in range(400))
    (project.root / "zoo.py").write_text(f"from shop import total\n{lines}")
    project.index.build()

    async def main(dialect: str) -> None:
        server = create_server(project.options(dialect=dialect, vault=str(tmp_path / "vault.db")))
        async with fastmcp.Client(server) as client:
            cut = await client.call_tool_mcp("get_blast_radius", TOTAL)
            if dialect == "gel":
                links = [block for block in cut.content if block.type == "resource_link"]
                whole = next(link for link in links if str(link.uri).startswith("envelope:"))
                (read,) = await client.read_resource(str(whole.uri))
                assert read.text.count("py:zoo.py#f") == 400
                return
            notice = cut.structured_content["_envelope"]
            asked = {"handle": notice["handle"], "path": "/impactedSymbols/400/id"}
            page = await client.call_tool_mcp("envelope_read", asked)
            assert page.content[-1].text == "py:zoo.py#f399"

    anyio.run(main, "native")
    anyio.run(main, "gel")


def test_live_answers_need_no_warning(project: Project) -> None:
    envelope = project.call("nav_definition", TOTAL, language_server=fake("work"))
    assert envelope["data"]["via"] == "language server"
    assert envelope["warnings"] == ["1 more outside of the repository: typing.pyi."]
