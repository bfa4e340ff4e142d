"""A client behind our bridge passes every client scenario of the official suite that it passes without us.

What it passes without us is written down by `python -m tests.conformance.table`, which runs every scenario at every
revision. Here each runs once: one that two revisions have, at one of them. They are shared out over a few tests, so
that they run beside each other.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .suite import CLIENT_SCENARIOS, client_scenarios, lost, recorded, run_client

_SHARES = 10


@pytest.mark.parametrize("share", range(_SHARES))
def test_a_client_loses_nothing_behind_the_bridge(share: int, tmp_path: Path) -> None:
    for scenario, revision in _each_once()[share::_SHARES]:
        name = scenario.replace("/", "-")
        direct = recorded(revision, scenario)
        through = run_client(revision, scenario, "bridge", tmp_path / f"{name}-bridge")
        if lost(direct, through):
            # Some wait for half a second only.
            through = run_client(revision, scenario, "bridge", tmp_path / f"{name}-again")
        gone = lost(direct, through)
        assert not gone, f"lost behind the bridge ({revision}):\n" + "\n".join(check.told for check in gone)


def _each_once() -> list[tuple[str, str]]:
    """Every scenario with a revision that has it, and as many at one revision as at another."""
    found: dict[str, list[str]] = {}
    for revision in CLIENT_SCENARIOS:
        for scenario in client_scenarios(revision):
            found.setdefault(scenario, []).append(revision)
    return [(name, having[place % len(having)]) for place, (name, having) in enumerate(sorted(found.items()))]
