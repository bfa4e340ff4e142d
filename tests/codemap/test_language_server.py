"""Real processes that answer, crash, hang and refuse; and the real basedpyright."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .harness import Project, fake

pytestmark = pytest.mark.process

TOTAL = {"node": "py:shop/core.py#total"}


def test_answers(project: Project) -> None:
    server = {"language_server": fake("work")}
    definition = project.data("nav_definition", TOTAL, **server)["definitions"]
    assert definition[0]["anchor"] == {
        "file": "shop/core.py",
        "line": 1,
        "col": 5,
        "endLine": 1,
        "snippet": '"""Baskets."""',
    }
    assert definition[0]["inside"] == "py:shop/core.py"
    assert project.data("nav_type", TOTAL, **server)["type"] == "the type of: def total(basket):"
    outline = project.data("nav_symbols", {"file": "shop/core.py"}, **server)["symbols"]
    assert [(each["id"], each["kind"]) for each in outline] == [
        ("py:shop/core.py#Live", "class"),
        ("py:shop/core.py#Live.run", "method"),
    ]
    calls = project.data("nav_call_hierarchy", {**TOTAL, "direction": "outgoing"}, **server)["calls"]
    assert [(each["id"], each["calls"]) for each in calls] == [("py:shop/core.py#total", 2)]


def test_the_files_as_they_are_now(project: Project) -> None:
    core = project.root / "shop/core.py"
    core.write_text("# a line more\n" + core.read_text())
    answer = project.data("nav_type", TOTAL, language_server=fake("work"))
    assert answer["anchor"]["line"] == 17
    assert answer["type"] == "the type of: def total(basket):"


def test_a_server_that_is_still_reading_the_project(project: Project) -> None:
    """It answers that there is nothing, while the map knows better."""
    asked: list[tuple[str, dict[str, Any]]] = [("nav_references", TOTAL), ("nav_call_hierarchy", TOTAL)]
    answers = project.calls(*asked, dialect="transcend", language_server=fake("still-reading"))
    for answer, key in zip(answers, ("references", "calls"), strict=True):
        data = answer.structured_content["data"]
        assert data["via"] == "fallback-map"
        assert data[key]
        assert "still reading the project" in answer.structured_content["warnings"][0]
    unused = {"node": "py:shop/orphan.py#Lonely"}
    (miss,) = project.calls(("nav_references", unused), dialect="ctxo", language_server=fake("still-reading"))
    assert "found" in miss.content[0].text


@pytest.mark.parametrize("how", ["slow-reader", "narrow"])
def test_a_server_that_has_read_only_a_part(project: Project, how: str) -> None:
    """It is asked again, since the map is certain of uses elsewhere, and in the end that is said."""
    answer = project.call("nav_references", TOTAL, language_server=fake(how))
    assert answer["data"]["via"] == "language server"
    files = {each["anchor"]["file"] for each in answer["data"]["references"]}
    if how == "slow-reader":
        assert files == {"shop/core.py", "shop/web.py", "shop/__init__.py"}
        assert answer["warnings"] == []
    else:
        assert files == {"shop/core.py"}
        (warning,) = answer["warnings"]
        assert warning.startswith("The map has uses in other files, too: shop/web.py.")


def test_a_server_that_has_read_only_a_part_and_no_map(project: Project) -> None:
    project.database.unlink()
    answer = project.call("nav_references", TOTAL, language_server=fake("slow-reader"))
    assert len(answer["data"]["references"]) == 3


def test_a_crash_is_survived(project: Project, tmp_path: Path) -> None:
    server = fake("crash-once", str(tmp_path / "crashed"))
    answer, status = project.calls(
        ("nav_definition", TOTAL), ("map_status", {}), dialect="transcend", language_server=server
    )
    assert answer.structured_content["data"]["via"] == "language server"
    (state,) = status.structured_content["data"]["languageServers"]
    assert (state["state"], state["crashes"]) == ("running", 1)
    assert state["stderr"] == ["Fatal: the stack of the type checker is gone"]


@pytest.mark.parametrize("how", ["crash", "crash-at-start"])
def test_repeated_crashes_are_the_end(project: Project, how: str) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("nav_references", TOTAL),
        ("nav_type", TOTAL),
        ("map_status", {}),
    ]
    references, kind, status = project.calls(*calls, dialect="transcend", language_server=fake(how))
    assert references.structured_content["data"]["via"] == "fallback-map"
    assert "crashed 3 times" in references.structured_content["warnings"][0]
    assert kind.structured_content["error"]["code"] == "LSP_FAILED"
    (state,) = status.structured_content["data"]["languageServers"]
    assert (state["state"], state["crashes"]) == ("given up", 3)
    assert state["stderr"] == ["Fatal: the stack of the type checker is gone"] * 3


def test_a_server_that_hangs(project: Project) -> None:
    answer = project.call("nav_references", TOTAL, language_server=fake("hang"), deadline=1.5)
    assert answer["data"]["via"] == "fallback-map"
    assert "did not answer within 1.5 s" in answer["warnings"][0]


@pytest.mark.parametrize(("how", "why"), [("bare", "does not answer"), ("refuse", "refused: still loading")])
def test_a_server_that_does_not_answer(project: Project, how: str, why: str) -> None:
    answer = project.call("nav_references", TOTAL, language_server=fake(how))
    assert answer["data"]["via"] == "fallback-map"
    assert why in answer["warnings"][0]


def test_basedpyright(project: Project) -> None:
    node = {"node": "py:shop/core.py#Basket.price"}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("nav_definition", {"file": "shop/web.py", "line": 8, "col": 20}),
        ("nav_references", TOTAL),
        ("nav_type", TOTAL),
        ("nav_symbols", {"file": "shop/core.py"}),
        ("nav_call_hierarchy", node),
        ("nav_call_hierarchy", {"node": "py:shop/core.py#forgotten", "direction": "outgoing"}),
        # Of a parameter without a type, only the map has a guess.
        ("nav_call_hierarchy", {**TOTAL, "direction": "outgoing"}),
    ]
    server = "basedpyright-langserver --stdio"
    results = project.calls(*calls, dialect="transcend", language_server=server, deadline=60)
    assert all(result.structured_content["ok"] for result in results), results
    definition, references, kind, outline, incoming, outgoing, guessed = (
        result.structured_content["data"] for result in results
    )
    assert definition["definitions"][0]["inside"] == "py:shop/core.py#total"
    places = {(each["anchor"]["file"], each["anchor"]["line"]) for each in references["references"]}
    assert places >= {("shop/core.py", 21), ("shop/web.py", 8), ("shop/web.py", 2), ("shop/__init__.py", 1)}
    assert kind["type"].startswith("(function) def total")
    assert "py:shop/core.py#Basket.price" in [each["id"] for each in outline["symbols"]]
    assert [each["id"] for each in incoming["calls"]] == ["py:shop/core.py#Basket.grö𐐷e"]
    assert outgoing["via"] == "language server"
    assert "py:shop/core.py#total" in [each["id"] for each in outgoing["calls"]]
    assert guessed["via"] == "fallback-map"
    assert "can't tell" in results[-1].structured_content["warnings"][0]
