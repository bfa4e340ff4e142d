"""The map: what imports lead to, what a build reads again, and what it leaves out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from codemap.files import is_ignored, list_files
from codemap.graph import Graph
from codemap.index import Index

from codemap import cli, index
from mcp_envelope.anchors import NodeId

from .harness import FILES, Project, write


def users(project: Project, node: str) -> set[str]:
    with project.index.open() as connection:
        graph = Graph(connection)
        found = graph.find(NodeId.parse(node))
        assert found is not None, node
        return {str(edge.node.id) for edge in graph.incoming(found) if edge.kind != "contains"}


def test_which_files_are_read(project: Project) -> None:
    listing = list_files(project.root)
    assert {found.path for found in listing.files} == {
        path for path in FILES if path.endswith((".py", ".ts", ".js", ".go")) and "ignored" not in FILES[path]
    }
    assert set(listing.packages) == {"", "packages/ui", "packages/app", "services/api"}
    assert is_ignored(project.root, "build/deep/x.py")
    assert not is_ignored(project.root, "shop/core.py")


def test_gitignore_below_and_exceptions(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            ".gitignore": "*.py\n!keep.py\n",
            "a/.gitignore": "!mine.py\n",
            "a/mine.py": "",
            "a/other.py": "",
            "keep.py": "",
            "mine.py": "",
            ".git/hook.py": "",
        },
    )
    os.symlink(tmp_path, tmp_path / "a" / "loop")
    assert [found.path for found in list_files(tmp_path).files] == ["a/mine.py", "keep.py"]


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        # Through the package that passes the name on, and under another name.
        ("py:shop/core.py#total", {"py:shop/core.py#forgotten", "py:shop/web.py#handle"}),
        ("py:shop/core.py#RATE", {"py:shop/core.py#total", "py:shop/web.py#render"}),
        ("py:shop/helpers.py#log", {"py:shop/web.py#handle"}),
        ("py:shop/web.py#handle", {"py:shop/app.py"}),
        # `self.price()`, and an attribute of something unknown that only one symbol has.
        ("py:shop/core.py#Basket.price", {"py:shop/core.py#Basket.grö𐐷e", "py:shop/core.py#total"}),
        ("py:shop/core.py", {"py:shop/__init__.py", "py:shop/web.py"}),
        ("ts:packages/ui/src/button.ts#Button", {"js:packages/app/src/main.js"}),
        (
            "ts:packages/ui/src/theme.ts#colour",
            {
                "js:packages/app/src/main.js",
                "ts:packages/ui/src/button.ts#Button.paint",
                "ts:packages/ui/src/button.ts#label",
            },
        ),
        ("go:services/api/store/store.go#Open", {"go:services/api/main.go#main"}),
        ("go:services/api/serve.go#serve", {"go:services/api/main.go#main"}),
        ("go:services/api/store/store.go#Store.Close", {"go:services/api/serve.go#serve"}),
    ],
)
def test_who_uses_what(project: Project, node: str, expected: set[str]) -> None:
    assert users(project, node) == expected


def test_only_what_changed_is_read_again(project: Project) -> None:
    files = len(list_files(project.root).files)
    assert (project.built.indexed, project.built.unchanged) == (files, 0)
    assert project.index.build().indexed == 0
    core = project.root / "shop/core.py"
    os.utime(core, (1, 1))
    assert project.index.build().indexed == 0
    core.write_text(core.read_text().replace("total", "summed"))
    built = project.index.build()
    assert (built.indexed, built.unchanged, built.deleted) == (1, files - 1, 0)
    assert users(project, "py:shop/core.py#summed") == {"py:shop/core.py#forgotten"}
    assert project.index.build(full=True).indexed == files


def test_imports_follow_files_that_come_and_go(project: Project) -> None:
    (project.root / "shop/core.py").rename(project.root / "shop/basket.py")
    built = project.index.build()
    # The file itself, and the two that import it.
    assert (built.indexed, built.deleted) == (3, 1)
    assert users(project, "py:shop/basket.py#total") == {"py:shop/basket.py#forgotten"}
    (project.root / "shop/basket.py").rename(project.root / "shop/core.py")
    project.index.build()
    assert users(project, "py:shop/core.py#total") == {"py:shop/core.py#forgotten", "py:shop/web.py#handle"}


def test_several_processes_find_the_same(
    tmp_path: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "_MANY", 1)
    other = Index(project.root, tmp_path / "other.db")
    other.build()

    def dump(each: Index) -> list[tuple[object, ...]]:
        with each.open() as connection:
            query = "SELECT f.path, u.name, u.kind, u.line, u.col, t.name FROM uses u JOIN files f ON f.id = u.file"
            return sorted(connection.execute(f"{query} LEFT JOIN units t ON t.id = u.target"), key=repr)

    assert dump(other) == dump(project.index)


def test_an_index_of_another_version_is_made_anew(project: Project) -> None:
    with project.index.open() as connection:
        connection.execute("PRAGMA user_version = 99")
    assert not project.index.is_built
    assert project.index.build().indexed > 0


def test_the_command(project: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["index", "--root", str(project.root), "--db", str(tmp_path / "new" / "map.db")]
    cli.main(arguments)
    shown = capsys.readouterr()
    assert "warning: broken.py: line 1:" in shown.err
    assert "14 files indexed, 0 unchanged" in shown.out
    cli.main(arguments)
    assert "0 files indexed, 14 unchanged" in capsys.readouterr().out
    for wrong, said in (
        (["--root", "/nowhere"], "not a directory"),
        (["--listen", "here"], "HOST:PORT"),
        (["--language-server", "go"], "LANG=COMMAND"),
    ):
        with pytest.raises(SystemExit, match=said):
            cli.main(wrong)
