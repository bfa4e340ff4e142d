"""Speed, memory and quality of the core, as ratios of runs made side by side. `make bench` runs this.

    python benchmarks/run.py                    # everything, under three minutes
    python benchmarks/run.py --quick            # fewer rounds, growth up to 23 MB
    python benchmarks/run.py --only fits        # one part
    python benchmarks/run.py --json FILE        # the figures for a program, too

docs/benchmarks.md says what each line means. The exit code is 0 whether or not the demands are met.
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter

# The script runs as a file; its neighbours are imported as the package that they are.
sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.core import fits, forms, memory, quality, shapes, typed
from benchmarks.gateway import gateway
from benchmarks.growth import growth
from benchmarks.over_http import http
from benchmarks.proxy import proxy
from benchmarks.report import Table
from benchmarks.servers import servers
from benchmarks.startup import startup
from benchmarks.vault import vault

PARTS: dict[str, Callable[[bool], list[Table]]] = {
    "330kb": lambda quick: [
        typed("330 KB", 0.5 if quick else 4, most_encodes=4, most_described=12, least_faster=4)
    ],
    "23mb": lambda quick: [
        typed("23 MB", 3 if quick else 14, most_encodes=2.5, most_described=3, least_faster=5),
        memory("23 MB", most=3),
    ],
    "fits": lambda quick: [fits(0.5 if quick else 3)],
    "growth": lambda quick: [growth(0.2 if quick else 0.8, most="23 MB" if quick else "200 MB")],
    "shapes": lambda quick: [shapes(0.2 if quick else 0.8)],
    "quality": lambda quick: [quality(), forms()],
    "import": lambda quick: [startup(5 if quick else 15)],
    "vault": vault,
    "servers": lambda quick: servers(2 if quick else 20),
    "proxy": proxy,
    "gateway": gateway,
    "http": http,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="speed, memory and quality, as ratios of runs side by side")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, growth up to 23 MB")
    parser.add_argument("--only", choices=PARTS, action="append", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    asked = parser.parse_args()
    start = perf_counter()
    about = _about()
    print(", ".join(f"{name} {what}" for name, what in about.items()))
    tables: list[Table] = []
    for name in asked.only or PARTS:
        for table in PARTS[name](asked.quick):
            table.show()
            sys.stdout.flush()
            tables.append(table)
    checks = [check for table in tables for check in table.checks]
    missed = [check.what for check in checks if not check.met]
    print(f"\n{len(checks) - len(missed)} of {len(checks)} demands met, in {perf_counter() - start:.0f} s.")
    if missed:
        print("Not met: " + "; ".join(missed) + ".")
    if asked.json:
        figures = {"about": about, "tables": [table.to_json() for table in tables]}
        asked.json.write_text(json.dumps(figures, indent=2, ensure_ascii=False) + "\n")
    return 0


def _about() -> dict[str, str]:
    about = {"Python": platform.python_version(), "on": f"{platform.machine()} with {os.cpu_count()} cores"}
    for name in ("msgspec", "shrinkfit", "fastmcp"):
        try:
            about[name] = version(name)
        except PackageNotFoundError:
            about[name] = "not installed"
    return about


if __name__ == "__main__":
    sys.exit(main())
