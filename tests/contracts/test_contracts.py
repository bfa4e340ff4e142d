"""Each sentence of the four documents, by each way in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from . import ctxo, gel, scalpel, transcend
from .page import page
from .table import Row, Table
from .ways import Talk, World

TABLES = (ctxo.says, transcend.says, gel.says, scalpel.says)
DOCUMENT = Path(__file__).parents[2] / "docs" / "contracts.md"


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with start_blocking_portal() as portal, ExitStack() as stack:
        yield World(tmp_path_factory.mktemp("contracts"), portal, stack)


def _checks() -> Iterator[object]:
    for table in TABLES:
        for row in table.rows:
            for way in row.ways:
                name = f"{table.dialect}-{row.section.replace(' ', '_')}-{row.number}-{way}"
                yield pytest.param(table, row, way, id=name)


@pytest.mark.parametrize(("table", "row", "way"), [*_checks()])
def test_it_holds(table: Table, row: Row, way: str, world: World) -> None:
    assert row.check is not None
    talk = Talk(way, table.dialect, world)
    assert row.check(talk), f"{row.said}: {talk.heard[-2:]}"


def test_the_page_is_made_from_the_tables() -> None:
    text = DOCUMENT.read_text()
    made = page(text, TABLES)
    if os.environ.get("UPDATE_DOCS"):
        DOCUMENT.write_text(made)
    assert text == made or os.environ.get("UPDATE_DOCS"), "run UPDATE_DOCS=1 pytest tests/contracts -k page"
