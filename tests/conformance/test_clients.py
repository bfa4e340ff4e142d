"""A client behind our bridge passes every client scenario of the official suite that it passes without us.

What it passes without us is written down by `python -m tests.conformance.table`. The scenarios of a revision are
shared out over a few tests, so that they run beside each other.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .suite import CLIENT_SCENARIOS, client_scenarios, lost, recorded, run_client

_SHARES = 5


@pytest.mark.parametrize("share", range(_SHARES))
@pytest.mark.parametrize("revision", CLIENT_SCENARIOS)
def test_a_client_loses_nothing_behind_the_bridge(revision: str, share: int, tmp_path: Path) -> None:
    for scenario in client_scenarios(revision)[share::_SHARES]:
        name = scenario.replace("/", "-")
        direct = recorded(revision, scenario)
        through = run_client(revision, scenario, "bridge", tmp_path / f"{name}-bridge")
        if lost(direct, through):
            # Some wait for half a second only.
            through = run_client(revision, scenario, "bridge", tmp_path / f"{name}-again")
        gone = lost(direct, through)
        assert not gone, "lost behind the bridge:\n" + "\n".join(check.told for check in gone)
