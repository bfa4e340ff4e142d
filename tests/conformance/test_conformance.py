"""The official conformance suite finds through proxy and gateway whatever it finds directly, in both eras."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
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


@pytest.mark.parametrize("name", SUITES)
def test_nothing_is_lost(name: str, tmp_path: Path) -> None:
    suite = SUITES[name]
    # The released line has nothing for a gateway that the next one lacks.
    ways = {"proxy": routes.through_us, **({} if "released" in name else {"gateway": routes.through_gateway})}
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        addresses = {
            way: stack.enter_context(opened(_made(tmp_path / way)))
            for way, opened in {"direct": routes.direct, **ways}.items()
        }
        running = {
            way: pool.submit(run, suite, url, _made(tmp_path / way / "results"))
            for way, url in addresses.items()
        }
        found = {way: each.result() for way, each in running.items()}
        direct = found["direct"]
        if _wrong(direct, name):
            direct = run(suite, addresses["direct"], _made(tmp_path / "again"))
        gone = {way: lost_twice(suite, direct, found[way], addresses[way], tmp_path / way) for way in ways}
    wrong = _wrong(direct, name)
    assert not wrong, "the fixture server itself fails:\n" + _told(wrong)
    for way, checks in gone.items():
        checks = [check for check in checks if way == "proxy" or check.scenario not in _STREAMS]
        assert not checks, f"lost through the {way}:\n" + _told(checks)


def _wrong(direct: list[Check], name: str) -> list[Check]:
    return [check for check in problems(direct) if (check.scenario, check.id) not in _KNOWN.get(name, set())]


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
