"""What the wheel depends on: `python scripts/sbom.py` writes sbom.cdx.json, `--check` audits it (`make audit`).

Strategy: the dependencies of the package and of the extras that people install, as far as they go, at the versions
in constraints.txt, on Linux with Python 3.11, from the metadata of what is installed here. The file is CycloneDX
and has no time and no serial number, so it only changes if a dependency does; the wheel carries it (PEP 770). The
audit needs no network: the file is current, each version is pinned, each licence is known, and what is installed
fits together (`pip check`). Known vulnerabilities are for a service to tell: `pip-audit -r constraints.txt` asks
one. It is not in CI, because where it can't reach the service it succeeds without having looked.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement

ROOT: Final = Path(__file__).resolve().parents[1]
SBOM: Final = ROOT / "sbom.cdx.json"
NAME: Final = "mcp-envelope"
EXTRAS: Final = frozenset({"fastmcp", "http", "images", "login", "sdk", "valkey"})
MACHINE: Final = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "python_full_version": "3.11.9",
    "python_version": "3.11",
    "sys_platform": "linux",
}
LICENCES: Final = (
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "MIT-0",
    "MIT-CMU",
    "PSF-2.0",
    "Unlicense",
)
# What packages wrote before licences had identifiers.
SPELLED: Final = {
    "Apache Software License": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def required(of: Distribution, extras: frozenset[str]) -> list[Requirement]:
    found = map(Requirement, of.requires or [])
    return [
        each
        for each in found
        if each.marker is None
        or any(each.marker.evaluate({**MACHINE, "extra": extra}) for extra in {"", *extras})
    ]


def closure() -> dict[str, set[str]]:
    """Each package, and what it needs itself; ours is the first."""
    needed: dict[str, set[str]] = {}
    waiting: list[tuple[str, frozenset[str]]] = [(NAME, EXTRAS)]
    done: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in done:
            continue
        done.add((name, extras))
        needed.setdefault(name, set())
        for each in required(distribution(name), extras):
            needed[name].add(normal(each.name))
            waiting.append((normal(each.name), frozenset(each.extras)))
    return needed


def licence(of: Distribution) -> str:
    """As an SPDX expression, if it is known."""
    said: Any = of.metadata
    if expression := said.get("License-Expression"):
        return str(expression)
    words = [(said.get("License") or "").strip()]
    words += [
        line.rpartition(" :: ")[2] for line in said.get_all("Classifier") or [] if line.startswith("License")
    ]
    known = [SPELLED.get(word, word) for word in words]
    return next((word for word in known if word in LICENCES), "unknown")


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.partition("==") for line in lines if "==" in line)
    return {normal(name): version for name, _, version in pairs}


def document() -> dict[str, Any]:
    versions, needed = pinned(), closure()
    ours = distribution(NAME)

    def reference(name: str) -> str:
        return f"pkg:pypi/{name}@{ours.version if name == NAME else versions.get(name, '')}"

    def component(name: str) -> dict[str, Any]:
        found = distribution(name)
        return {
            "type": "application" if name == NAME else "library",
            "bom-ref": reference(name),
            "name": name,
            "version": ours.version if name == NAME else versions.get(name, ""),
            "purl": reference(name),
            "licenses": [{"expression": licence(found)}],
        }

    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": component(NAME)},
        "components": [component(name) for name in sorted(needed) if name != NAME],
        "dependencies": [
            {"ref": reference(name), "dependsOn": sorted(map(reference, needed[name]))}
            for name in sorted(needed)
        ],
    }


def problems(made: dict[str, Any]) -> list[str]:
    """What is wrong with the dependencies."""
    found = []
    for each in made["components"]:
        said = each["licenses"][0]["expression"]
        if not each["version"]:
            found.append(f"{each['name']} is not in constraints.txt")
        if not any(part in LICENCES for part in re.split(r"[\s()]+", said)):
            found.append(f"{each['name']}: licence {said}")
    if not SBOM.exists() or json.loads(SBOM.read_text()) != made:
        found.append("sbom.cdx.json is not current: run python scripts/sbom.py")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="What the wheel depends on.")
    parser.add_argument("--check", action="store_true", help="write nothing; say what is wrong")
    made = document()
    if not parser.parse_args().check:
        SBOM.write_text(json.dumps(made, indent=1) + "\n")
        return 0
    wrong = problems(made)
    print("\n".join(wrong) or f"{len(made['components'])} dependencies: pinned, with known licences, listed")
    fits = subprocess.run([sys.executable, "-m", "pip", "check"], check=False).returncode
    return int(bool(wrong) or fits != 0)


if __name__ == "__main__":
    sys.exit(main())
