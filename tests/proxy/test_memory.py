"""Memory for large frames is shared; one that makes no progress holds up nobody; and yet there is a limit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest

from mcp_envelope.proxy import memory
from mcp_envelope.proxy.memory import Reservation, SharedMemory

_MB = 1 << 20


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_STILL", 0.02)
    monkeypatch.setattr(memory, "_PATIENCE", 0.1)


def _run(what: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with anyio.fail_after(20):
            await what()

    anyio.run(bounded)


def test_one_that_makes_no_progress_is_overtaken() -> None:
    async def run() -> None:
        shared = SharedMemory(2 * _MB)
        with shared.reserve() as first, shared.reserve() as second, shared.reserve() as third:
            await first.settle(3 * _MB)
            await second.settle(_MB)
            await third.settle(_MB)
            await first.settle(4 * _MB)
        assert shared.used == 0

    _run(run)


@pytest.mark.parametrize("why", ["it waits", "we work", "it moves"])
def test_one_that_makes_progress_is_not_overtaken(why: str) -> None:
    async def run() -> None:
        shared = SharedMemory(2 * _MB)
        passed: list[Reservation] = []

        async def follow(place: Reservation) -> None:
            await place.settle(_MB)
            passed.append(place)

        with shared.reserve() as first, shared.reserve() as second, shared.reserve() as third:
            async with anyio.create_task_group() as group:
                await first.settle(3 * _MB)
                if why == "it waits":
                    # The second does, behind the first: the third has to wait for both.
                    with first.working():
                        group.start_soon(follow, second)
                        await anyio.sleep(0.1)
                        group.start_soon(follow, third)
                        await anyio.sleep(0.1)
                        assert passed == []
                elif why == "we work":
                    with first.working():
                        group.start_soon(follow, second)
                        await anyio.sleep(0.1)
                        assert passed == []
                else:
                    group.start_soon(follow, second)
                    for _ in range(200):
                        first.moved()
                        await anyio.sleep(0)
                    assert passed == []
            assert passed[:1] == [second]

    _run(run)


def test_a_little_one_does_not_wait_behind_large_ones() -> None:
    async def run() -> None:
        shared = SharedMemory(128 * _MB)
        with shared.reserve() as first, shared.reserve() as second:
            await first.settle(200 * _MB)
            with first.working():
                await second.settle(_MB // 2)

    _run(run)


def test_beyond_a_few_times_the_size_one_that_makes_no_progress_is_given_up() -> None:
    async def run() -> None:
        shared = SharedMemory(_MB)
        given_up: list[str] = []
        places = {name: shared.reserve() for name in ("a", "b", "c")}

        def end(name: str) -> None:
            given_up.append(name)
            places[name].__exit__()

        for name, place in places.items():
            place.give_up = lambda name=name: end(name)
            await place.settle(2 * _MB)
        assert given_up == ["a"], "the third was too much"
        assert shared.used == 4 * _MB

    _run(run)
