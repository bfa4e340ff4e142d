"""What importing costs: fresh interpreters, taking turns, compiled files warm."""

import os
import subprocess
import sys
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from benchmarks.report import Table, progress

_STATEMENTS = {
    "import json, argparse": "import json, argparse",
    "import mcp_envelope, nothing used": "import mcp_envelope",
    "from mcp_envelope import seal": "from mcp_envelope import seal",
    "the command line, no command yet": "import mcp_envelope.cli.main",
    "the command line and its seal": "import mcp_envelope.cli.main, mcp_envelope.cli.seal",
    "import msgspec, jsonschema_rs": "import msgspec, jsonschema_rs",
}
_YARDSTICK = "import json, argparse"


def startup(rounds: int) -> Table:
    progress(f"imports, {rounds} rounds of {len(_STATEMENTS)} fresh interpreters")
    alone: dict[str, list[float]] = {name: [] for name in _STATEMENTS}
    whole: dict[str, list[float]] = {name: [] for name in _STATEMENTS}
    with TemporaryDirectory() as compiled:
        for number in range(rounds + 1):
            for name, statement in _STATEMENTS.items():
                inside, took = _import(statement, compiled)
                if number:  # the first round writes the compiled files
                    alone[name].append(inside)
                    whole[name].append(took)
    table = Table(
        name="import",
        title="Import time in a fresh interpreter",
        columns={
            "import ms": "{:.1f}",
            "× yardstick": "{:.2f}",
            "process ms": "{:.1f}",
            "× yardstick ": "{:.2f}",
        },
        note=f"Median of {rounds}. The yardstick is `{_YARDSTICK}`; the process includes the interpreter's\n"
        "own start. The design names no figure here.",
    )
    for name in _STATEMENTS:
        one, all_of_it = median(alone[name]), median(whole[name])
        table.add(
            name,
            1e3 * one,
            one / median(alone[_YARDSTICK]),
            1e3 * all_of_it,
            all_of_it / median(whole[_YARDSTICK]),
        )
    return table


def _import(statement: str, compiled: str) -> tuple[float, float]:
    """Seconds for the import alone, and for the whole process."""
    script = f"from time import perf_counter as t\na=t()\n{statement}\nprint(t()-a)"
    # Compiled files of our own, so that neither a stale one nor a setting that forbids them gets in the way.
    env = {**os.environ, "PYTHONPYCACHEPREFIX": compiled}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    start = perf_counter()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=env)
    return float(done.stdout), perf_counter() - start
