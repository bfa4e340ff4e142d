"""Room for large frames: it is shared, whoever stands still holds up nobody, and yet there is an end to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest

from mcp_envelope.wire import room
from mcp_envelope.wire.room import Place, Room

_MB = 1 << 20


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_STILL", 0.02)
    monkeypatch.setattr(room, "_PATIENCE", 0.1)


def _run(what: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with anyio.fail_after(20):
            await what()

    anyio.run(bounded)


def test_whoever_stands_still_is_passed_by_the_next() -> None:
    async def run() -> None:
        shared = Room(2 * _MB)
        with shared.place() as first, shared.place() as second, shared.place() as third:
            await first.settle(3 * _MB)
            await second.settle(_MB)
            await third.settle(_MB)
            await first.settle(4 * _MB)
        assert shared.used == 0

    _run(run)


@pytest.mark.parametrize("why", ["it waits", "we work", "it moves"])
def test_whoever_gets_on_is_not_passed(why: str) -> None:
    async def run() -> None:
        shared = Room(2 * _MB)
        passed: list[Place] = []

        async def follow(place: Place) -> None:
            await place.settle(_MB)
            passed.append(place)

        with shared.place() as first, shared.place() as second, shared.place() as third:
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
        shared = Room(128 * _MB)
        with shared.place() as first, shared.place() as second:
            await first.settle(200 * _MB)
            with first.working():
                await second.settle(_MB // 2)

    _run(run)


def test_beyond_a_few_times_the_room_who_stands_still_is_given_up() -> None:
    async def run() -> None:
        shared = Room(_MB)
        given_up: list[str] = []
        places = {name: shared.place() for name in ("a", "b", "c")}

        def end(name: str) -> None:
            given_up.append(name)
            places[name].__exit__()

        for name, place in places.items():
            place.give_up = lambda name=name: end(name)
            await place.settle(2 * _MB)
        assert given_up == ["a"], "the third was too much"
        assert shared.used == 4 * _MB

    _run(run)
