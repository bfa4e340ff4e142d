"""What a fuzzer once found, tried again: `fuzz/targets.py` says what must hold for each input."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from fuzz.targets import SEEDS, TARGETS, Mistakes, queries

FOUND = Path(__file__).parent / "found"
INPUTS = [(name, path.read_bytes()) for name in TARGETS for path in sorted((FOUND / name).glob("*"))]


@pytest.fixture(autouse=True)
def watched() -> Iterator[None]:
    """A mistake of ours never loses a frame, so it would go unseen: here it does not."""
    log, handler = logging.getLogger("mcp_envelope"), Mistakes()
    log.addHandler(handler)
    yield
    log.removeHandler(handler)


@pytest.mark.parametrize(("name", "data"), INPUTS)
def test_what_was_found_is_found_no_more(name: str, data: bytes) -> None:
    TARGETS[name](data)


@pytest.mark.parametrize("name", TARGETS)
def test_the_inputs_that_a_fuzzer_starts_from_keep_every_promise(name: str) -> None:
    for data in SEEDS[name]:
        TARGETS[name](data)


def test_the_queries_that_a_fuzzer_starts_from_find_something() -> None:
    [other] = [query for query in SEEDS["queries"] if b"^" in query]
    for query in SEEDS["queries"]:
        [answer] = queries(query)
        assert answer["result"].get("isError", False) is (query == other)


def test_everything_found_belongs_to_a_target() -> None:
    assert {path.name for path in FOUND.iterdir()} <= set(TARGETS)
