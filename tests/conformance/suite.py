"""The official conformance suite, run against an address or a client, and two of its runs compared.

Strategy: the suite writes what it found into one file for each scenario; those are read, not its words. A run
through a proxy may have lost nothing that a direct run passed. Some scenarios wait for things for half a second
only; so that a busy machine is no loss, a scenario that lost something is run once more.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from ..servers.node.install import NODE, NotInstalled, installed
from ..warm import warm

_PACKAGE: Final = Path(__file__).resolve().with_name("package.json")
_RECORD: Final = _PACKAGE.with_name("clients.json")
_FOLDER: Final = _PACKAGE.parents[2] / ".venv" / "conformance"
_RESULTS: Final = re.compile(r"(?:server-)?(.+)-\d{4}-\d\d-\d\dT[\d-]+Z")
# The longest that a run may take, in seconds. The suite itself gives each scenario thirty.
_PATIENCE: Final = 180
# With more scenarios than this, it is not the machine.
_MISHAPS: Final = 5


class Suite(NamedTuple):
    """One line of the suite at one revision of the protocol: everything that it has for it."""

    package: str
    everything: tuple[str, ...]
    single: tuple[str, ...]


_RELEASED: Final = ("--spec-version", "2025-11-25")
SUITES: Final = {
    "2025-11-25, released": Suite("conformance", (*_RELEASED, "--suite", "all"), _RELEASED),
    "2025-11-25": Suite(
        "conformance-next",
        ("--requirements", "2025-11-25"),
        ("--spec-version", "2025-11-25", "--force"),
    ),
    "2026-07-28": Suite(
        "conformance-next",
        ("--requirements", "2026-07-28"),
        ("--spec-version", "2026-07-28", "--force"),
    ),
}


class Check(NamedTuple):
    scenario: str
    id: str
    name: str
    status: str
    reason: str = ""

    @property
    def told(self) -> str:
        return f"{self.scenario}: {self.id} ({self.name}): {self.reason or self.status}"


class Broken(Exception):
    """The suite did not run. Says what it said."""


def prepared() -> Path:
    """The folder with both lines of the suite."""
    return installed(_PACKAGE, _FOLDER)


def run(suite: Suite, url: str, results: Path, scenario: str | None = None) -> list[Check]:
    """Every check of every scenario, or of one; `results` is an empty folder for the suite's files."""
    script = prepared() / "node_modules" / suite.package / "dist" / "index.js"
    which = suite.everything if scenario is None else (*suite.single, "--scenario", scenario)
    command = [str(NODE), str(script), "server", "--url", url, *which, "--output-dir", str(results)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        raise Broken(f"the suite did not end within {_PATIENCE} seconds") from None
    checks = [check for folder in sorted(results.glob("server-*")) for check in _read(folder)]
    if not checks:
        raise Broken(f"the suite found nothing:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return checks


# -- client scenarios: the suite starts the client ------------------------------------------------------------

# Revisions, and the scenarios of clients that they have besides those that they require.
CLIENT_SCENARIOS: Final = {
    "2025-03-26": ("auth/2025-03-26-oauth-metadata-backcompat", "auth/2025-03-26-oauth-endpoint-fallback"),
    "2025-11-25": ("auth/client-credentials-jwt", "auth/client-credentials-basic"),
    "2026-07-28": (
        "auth/client-credentials-jwt",
        "auth/client-credentials-basic",
        "json-schema-2020-12-preservation",
    ),
}
_REQUIRED: Final = re.compile(r"^client:\n((?:  - .+\n)+)", re.MULTILINE)


def client_scenarios(revision: str) -> list[str]:
    """What a revision requires of clients, and what else there is that the SDK's client can do."""
    requirements = prepared() / "node_modules" / "conformance-next" / "requirements" / f"{revision}.yaml"
    required = _REQUIRED.search(requirements.read_text()) if requirements.exists() else None
    names = [line.strip().removeprefix("- ") for line in required[1].splitlines()] if required else []
    return [*names, *CLIENT_SCENARIOS[revision]]


def run_client(revision: str, scenario: str, way: str, results: Path) -> list[Check]:
    """Every check of a scenario, with the client in `client` going this way."""
    script = prepared() / "node_modules" / "conformance-next" / "dist" / "index.js"
    program = " ".join(warm("tests.conformance.client", way))
    which = ("--scenario", scenario, "--spec-version", revision, "--force")
    command = [str(NODE), str(script), "client", "--command", program, *which, "--output-dir", str(results)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE, cwd=_PACKAGE.parents[2]
        )
    except subprocess.TimeoutExpired:
        raise Broken(f"{scenario} did not end within {_PATIENCE} seconds") from None
    found = sorted(results.rglob("checks.json"))
    if not found:
        raise Broken(f"{scenario} found nothing:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return [check._replace(scenario=scenario) for file in found for check in _read(file.parent)]


def record(alone: Mapping[str, list[Check]]) -> None:
    """Write down what the client passes alone, by revision: a run behind our bridge is compared with that."""
    found = {
        revision: [[*check, count] for check, count in sorted(passed(checks).items())]
        for revision, checks in alone.items()
    }
    lines = ",\n".join(
        f" {json.dumps(name)}: [\n" + ",\n".join(f"  {json.dumps(check)}" for check in checks) + "\n ]"
        for name, checks in found.items()
    )
    _RECORD.write_text(f'{{"suite": {json.dumps(_version())}, "passed": {{\n{lines}\n}}}}\n')


def recorded(revision: str, scenario: str) -> list[Check]:
    """What the client passes alone in a scenario."""
    found = json.loads(_RECORD.read_text())
    if found["suite"] != _version():
        raise Broken(f"{_RECORD.name} is of another version; run python -m tests.conformance.table")
    return [
        Check(name, id_, title, "SUCCESS")
        for name, id_, title, count in found["passed"][revision]
        if name == scenario
        for _ in range(count)
    ]


def _version() -> str:
    version: str = json.loads(_PACKAGE.read_text())["dependencies"]["conformance-next"]
    return version


def _read(folder: Path) -> list[Check]:
    match = _RESULTS.fullmatch(folder.name)
    scenario = match[1] if match else folder.name
    file = folder / "checks.json"
    if not file.exists():
        return [Check(scenario, "scenario", "Scenario", "FAILURE", "it broke off before it found anything")]
    return [
        Check(scenario, each["id"], each["name"], each["status"], each.get("errorMessage") or "")
        for each in json.loads(file.read_text())
    ]


def problems(checks: list[Check]) -> list[Check]:
    return [check for check in checks if check.status in ("FAILURE", "WARNING")]


def passed(checks: list[Check]) -> Counter[tuple[str, str, str]]:
    """How often each check succeeded: some are made several times."""
    return Counter((check.scenario, check.id, check.name) for check in checks if check.status == "SUCCESS")


def scenarios(checks: list[Check]) -> dict[str, bool]:
    """Whether each scenario that judged anything passed: nothing failed, as the suite itself counts."""
    judged = {check.scenario: True for check in checks if check.status in ("SUCCESS", "FAILURE", "WARNING")}
    return judged | {check.scenario: False for check in checks if check.status == "FAILURE"}


def lost(direct: list[Check], through: list[Check]) -> list[Check]:
    """What succeeds directly and not through a proxy, and what is wrong only there, with the reasons."""
    gone = passed(direct) - passed(through)
    known = Counter((check.scenario, check.id, check.name) for check in problems(direct))
    found: list[Check] = []
    for check in problems(through):
        key = check.scenario, check.id, check.name
        if known[key]:
            known[key] -= 1
        else:
            found.append(check)
            gone[key] -= 1
    for (scenario, id_, name), count in gone.items():
        if count > 0:
            found.append(Check(scenario, id_, name, "LOST", _reason(scenario, id_, through)))
    return found


def _reason(scenario: str, id_: str, through: list[Check]) -> str:
    for check in through:
        if (check.scenario, check.id) == (scenario, id_) and check.status != "SUCCESS":
            return f"{check.status} {check.reason}".rstrip()
    return (
        "the scenario did not get that far"
        if any(check.scenario == scenario for check in through)
        else "not run"
    )


def lost_twice(
    suite: Suite, direct: list[Check], through: list[Check], url: str, folder: Path
) -> list[Check]:
    """What is lost, and lost again when its scenario is run alone."""
    gone = lost(direct, through)
    again: list[Check] = []
    names = sorted({check.scenario for check in gone})
    if len(names) > _MISHAPS:
        return gone
    for scenario in names:
        results = folder / f"again-{scenario}"
        results.mkdir(parents=True)
        wanted = [check for check in direct if check.scenario == scenario]
        again += lost(wanted, run(suite, url, results, scenario))
    return again


if __name__ == "__main__":
    try:
        prepared()
    except NotInstalled as problem:
        sys.exit(f"tests/conformance: {problem}")
