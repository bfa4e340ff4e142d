"""The official conformance suite finds through the proxy whatever it finds directly, in both eras."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from . import routes
from .suite import SUITES, Check, lost, lost_twice, problems, run

# What the suite finds wrong with the fixture server itself. The released line says that it speaks 2025-03-26
# where it tests something of 2025-11-25, and the SDK answers accordingly.
_KNOWN = {
    "2025-11-25, released": {
        ("server-sse-polling", "server-sse-priming-event"),
        ("server-sse-polling", "server-sse-retry-field"),
    }
}
# What a gateway can't have from a server over HTTP: that is another connection, with streams of its own. It answers
# at once what is known at once, where the fixture answers with streams, and it never breaks one off.
_STREAMS = {"server-sse-multiple-streams", "server-sse-polling"}


@pytest.mark.parametrize("name", ["2025-11-25", "2026-07-28"])
def test_nothing_is_lost_through_the_gateway(name: str, tmp_path: Path) -> None:
    suite = SUITES[name]
    places = [tmp_path / "direct", tmp_path / "gateway"]
    for place in places:
        (place / "results").mkdir(parents=True)
    with routes.direct(places[0]) as address:
        direct = run(suite, address, places[0] / "results")
    with routes.through_gateway(places[1]) as gateway:
        through = run(suite, gateway, places[1] / "results")
        gone = lost_twice(suite, direct, through, gateway, places[1])
    gone = [check for check in gone if check.scenario not in _STREAMS]
    assert not gone, "lost through the gateway:\n" + _told(gone)


@pytest.mark.parametrize("name", SUITES)
def test_nothing_is_lost_through_the_proxy(name: str, tmp_path: Path) -> None:
    suite = SUITES[name]
    places = [tmp_path / "direct", tmp_path / "proxy"]
    for place in places:
        (place / "results").mkdir(parents=True)
    with (
        routes.direct(places[0]) as address,
        routes.through_us(places[1]) as proxy,
        ThreadPoolExecutor() as pool,
    ):
        running = [
            pool.submit(run, suite, url, place / "results")
            for url, place in zip((address, proxy), places, strict=True)
        ]
        direct, through = (each.result() for each in running)
        wrong = {(check.scenario, check.id) for check in problems(direct)}
        if wrong - _KNOWN.get(name, set()):
            direct = run(suite, address, _made(places[0] / "again"))
        gone = lost_twice(suite, direct, through, proxy, places[1])
    found = [check for check in problems(direct) if (check.scenario, check.id) not in _KNOWN.get(name, set())]
    assert not found, "the fixture server itself fails:\n" + _told(found)
    assert not gone, "lost through the proxy:\n" + _told(gone)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def _told(checks: list[Check]) -> str:
    return "\n".join(f"  {check.told}" for check in checks)


# -- the comparison -----------------------------------------------------------------------------------------

_GOOD = Check("ping", "ping", "Ping", "SUCCESS")
_BAD = Check("ping", "ping", "Ping", "FAILURE", "no answer")
_INFO = Check("ping", "ping", "Ping", "INFO")


@pytest.mark.parametrize(
    ("direct", "through", "reasons"),
    [
        ([_GOOD], [_GOOD], []),
        ([_BAD], [_BAD], []),
        ([_BAD], [_GOOD], []),
        ([_GOOD], [_BAD], ["no answer"]),
        ([_GOOD, _GOOD], [_GOOD, _BAD], ["no answer"]),
        ([_GOOD, _BAD], [_BAD, _BAD], ["no answer"]),
        ([_GOOD], [_INFO], ["INFO"]),
        ([_GOOD, _GOOD], [_GOOD], ["the scenario did not get that far"]),
        ([_GOOD], [], ["not run"]),
        ([_GOOD], [_GOOD, _BAD._replace(id="other")], ["no answer"]),
        ([_GOOD], [_BAD._replace(id="ping-setup")], ["no answer", "the scenario did not get that far"]),
    ],
)
def test_a_loss_is_found(direct: list[Check], through: list[Check], reasons: list[str]) -> None:
    assert [check.reason for check in lost(direct, through)] == reasons
