"""The tables of docs/conformance.md, measured anew.

python -m tests.conformance.table
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from . import routes
from .suite import (
    CLIENT_SCENARIOS,
    SUITES,
    Check,
    client_scenarios,
    lost,
    lost_twice,
    problems,
    record,
    run,
    run_client,
    scenarios,
)

_ROUTES: dict[str, routes.Route] = {
    "directly": routes.direct,
    "through `mcp-envelope proxy`": routes.through_us,
    "through FastMCP's proxy": routes.through_fastmcp,
}


def main() -> None:
    details: list[str] = []
    print(f"| revision | {' | '.join(_ROUTES)} |\n|---|{'---|' * len(_ROUTES)}")
    for name, suite in SUITES.items():
        row: list[str] = []
        direct: list[Check] = []
        for route, opened in _ROUTES.items():
            with tempfile.TemporaryDirectory() as temporary:
                folder = Path(temporary)
                (folder / "results").mkdir()
                with opened(folder) as url:
                    checks = run(suite, url, folder / "results")
                    if not direct:
                        direct = checks
                        details += [f"{name}, {route}: {check.told}" for check in problems(checks)]
                    elif lost(direct, checks):
                        gone = lost_twice(suite, direct, checks, url, folder)
                        details += [f"{name}, {route}: {check.told}" for check in gone]
            row.append(_cell(checks))
        print(f"| {name} | {' | '.join(row)} |", flush=True)
    print("\n" + "\n".join(f"- {detail}" for detail in details))
    clients()


def clients() -> None:
    """The client scenarios: a client alone, and the same one behind our bridge."""
    details: list[str] = []
    alone: dict[str, list[Check]] = {}
    print("| revision | the client alone | behind `mcp-envelope proxy --url` |\n|---|---|---|")
    for revision in CLIENT_SCENARIOS:
        found: dict[str, list[Check]] = {"direct": [], "bridge": []}
        for scenario in client_scenarios(revision):
            for way, checks in found.items():
                with tempfile.TemporaryDirectory() as temporary:
                    checks += run_client(revision, scenario, way, Path(temporary) / "results")
        alone[revision] = found["direct"]
        details += [f"{revision}, {way}: {each.told}" for way in found for each in problems(found[way])]
        print(f"| {revision} | {_cell(found['direct'])} | {_cell(found['bridge'])} |", flush=True)
    print("\n" + "\n".join(f"- {detail}" for detail in details))
    record(alone)


def _cell(checks: list[Check]) -> str:
    """Scenarios that passed, of those that judged anything; then the same for checks."""
    verdicts = scenarios(checks)
    count = {status: sum(check.status == status for check in checks) for status in ("SUCCESS", "FAILURE")}
    return f"{sum(verdicts.values())} of {len(verdicts)} · {count['SUCCESS']} of {sum(count.values())}"


if __name__ == "__main__":
    main()
