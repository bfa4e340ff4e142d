"""Tools that yield their items: stopped if they may be, and never held in memory as a whole."""

from __future__ import annotations

import gc
import json
import random
import sqlite3
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from mcp_envelope import enveloped
from mcp_envelope.vault.vault import open_vault
from tests.pairwise import pairwise

from .harness import DIALECTS, LIBRARIES, ask, connected, enveloped_server, notice, run, wire
from .test_outcomes import code

COUNT = 60_000


class Source:
    """Items, and how many of them are alive at most."""

    def __init__(self, count: int = COUNT) -> None:
        self.count = count
        self.alive: weakref.WeakSet[Any] = weakref.WeakSet()
        self.most = self.taken = 0
        self.closed = False


def rows_of(source: Source, is_async: bool) -> Callable[..., Any]:
    class Row(BaseModel):
        n: int
        text: str

    def made(number: int) -> Any:
        source.taken += 1
        row = Row(n=number, text=f"row {number}")
        source.alive.add(row)
        source.most = max(source.most, len(source.alive))
        return row

    def rows():  # type: ignore[no-untyped-def]
        try:
            for number in range(source.count):
                yield made(number)
        finally:
            source.closed = True

    async def async_rows():  # type: ignore[no-untyped-def]
        try:
            for number in range(source.count):
                yield made(number)
        finally:
            source.closed = True

    # Models can be told apart only by identity, so that a set can watch them.
    Row.__hash__ = object.__hash__  # type: ignore[method-assign]
    Row.__eq__ = object.__eq__  # type: ignore[method-assign]
    async_rows.__name__ = "rows"
    return async_rows if is_async else rows


def wanted(count: int = COUNT) -> list[Any]:
    return [{"n": number, "text": f"row {number}"} for number in range(count)]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("library", LIBRARIES)
def test_the_rest_goes_to_the_vault(library: str, is_async: bool, vault: str) -> None:
    source = Source()
    server = enveloped_server(library, rows_of(source, is_async), vault=vault)

    async def main() -> None:
        async with connected(server) as session:
            result = await session.call("rows")
            assert source.taken == COUNT
            assert source.closed
            assert source.most < 5000, "items in memory at once"
            said = notice(result)
            assert said["dropped"][0]["total"] == COUNT
            assert len(wire(result)) < 100_000
            found: list[Any] = []
            asked = {"handle": said["handle"], "path": said["dropped"][0]["path"], "tokenBudget": 10_000}
            for offset in (0, 1, 777, 43_210, COUNT - 3):
                page = await session.call("envelope_read", {**asked, "offset": offset})
                shown = json.loads(page.content[-1].text)
                assert shown == wanted(offset + len(shown))[offset:]
                found.append(len(shown))
            assert found[-1] == 3

    run(main)


@pytest.mark.parametrize("library", LIBRARIES)
def test_exactly_what_was_yielded_is_stored(library: str, vault: str) -> None:
    server = enveloped_server(library, rows_of(Source(), False), vault=vault)
    said = notice(ask(server, "rows"))
    kept = open_vault(vault)
    assert kept is not None
    stored = json.loads(b"".join(kept.open(said["handle"]).stream()))
    kept.close()
    assert (stored if isinstance(stored, list) else stored["result"]) == wanted()


@pairwise(dialect=DIALECTS, library=LIBRARIES, is_async=[False, True])
def test_a_stoppable_tool_is_stopped(dialect: str, library: str, is_async: bool, vault: str) -> None:
    source = Source()
    tool = enveloped(stoppable=True, budget=500)(rows_of(source, is_async))
    result = ask(enveloped_server(library, tool, vault=vault, dialect=dialect), "rows")
    assert not result.is_error
    assert source.taken < 500
    assert source.closed, "the tool could clean up"
    if dialect != "ctxo":
        assert f"stopped after {source.taken} items" in wire(result) or dialect == "scalpel"


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dialect", [dialect for dialect in DIALECTS if dialect != "scalpel"])
def test_no_dialect_holds_all_of_it(dialect: str, library: str, vault: str) -> None:
    """But scalpel, which has no budget and shows everything."""
    source = Source(20_000)
    result = ask(enveloped_server(library, rows_of(source, False), vault=vault, dialect=dialect), "rows")
    gc.collect()
    assert source.taken == 20_000
    assert source.most < 5000
    assert not result.is_error
    if dialect == "ctxo":
        meta = json.loads(result.content[0].text)["_meta"]
        assert meta["totalItems"] == 20_000
        assert meta["returnedItems"] == len(json.loads(result.content[0].text)["results"]) > 10
        assert len(result.content[0].text.encode()) <= 8192
    else:
        assert len(wire(result)) < 100_000
        assert "20000" in wire(result) or "dropped" in wire(result)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("count", [0, 1, 3, 1000, 2000, 2500, 4000])
def test_around_the_edge(library: str, count: int, vault: str) -> None:
    """As many as just fit, and a few more: the same items in all cases, none lost."""
    server = enveloped_server(library, rows_of(Source(count), True), vault=vault)

    async def main() -> None:
        async with connected(server) as session:
            result = await session.call("rows")
            assert not result.is_error
            if notice(result):
                path = notice(result)["dropped"][0]["path"]
                assert await session.read_list(notice(result)["handle"], path) == wanted(count)
            else:
                assert [item for block in result.content for item in json.loads(block.text)] == wanted(count)

    run(main)


@pytest.mark.parametrize("library", LIBRARIES)
def test_without_a_vault_the_rest_is_said_to_be_lost(library: str) -> None:
    result = ask(enveloped_server(library, rows_of(Source(20_000), False), vault="none"), "rows")
    assert "not kept" in notice(result)["note"]
    assert "handle" not in notice(result)


def test_a_vault_that_breaks_while_items_come(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = tmp_path / "a folder"
    place.mkdir()
    result = ask(enveloped_server("fastmcp", rows_of(Source(20_000), False), vault=str(place)), "rows")
    assert not result.is_error
    assert "was not stored" in wire(result)
    assert str(tmp_path) not in wire(result)
    assert "handle" not in notice(result)


@pairwise(library=LIBRARIES, is_async=[False, True], after=[3, 20_000])
def test_what_fails_midway_leaves_nothing(library: str, is_async: bool, after: int, vault: str) -> None:
    """Not even what was written before, which nobody would see."""
    closed = []
    some = random.Random(1)

    def items() -> Iterator[Any]:
        try:
            for number in range(after):
                yield {"n": number, "text": some.randbytes(300).hex()}
            yield {"odd": b"\xff"}
        finally:
            closed.append(True)

    def rows():  # type: ignore[no-untyped-def]
        yield from items()

    async def async_rows():  # type: ignore[no-untyped-def]
        for item in items():
            yield item

    async_rows.__name__ = "rows"
    result = ask(enveloped_server(library, async_rows if is_async else rows, vault=vault), "rows")
    assert code(result) == "BAD_RESULT"
    assert closed
    if after > 3:
        with closing(sqlite3.connect(vault)) as file:
            assert file.execute("SELECT count(*) FROM entries").fetchone() == (0,)
            assert file.execute("SELECT count(*) FROM blobs").fetchone() == (0,)
