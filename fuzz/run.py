"""Random search. `make fuzz FUZZ_EXAMPLES=50000 FUZZ_RUNS=1000000 ARGS=tests/vault`

First every property test over new random examples: `make test` tries the same few in every run. A failure prints
the smallest payload that shows it; put that into a test before you fix it. Then each target of `fuzz/targets.py`,
as often as FUZZ_RUNS says, guided by what code an input reaches (`fuzz/guided.py`). ARGS chooses tests,
FUZZ_TARGETS targets.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from fuzz.targets import TARGETS  # noqa: E402


def number(name: str, default: int) -> int:
    said = os.environ.get(name, str(default))
    if not said.isdigit() or int(said) == 0:
        sys.exit(f"{name} must be a positive number, got {said!r}")
    return int(said)


def main() -> int:
    examples, runs = number("FUZZ_EXAMPLES", 2000), number("FUZZ_RUNS", 20_000)
    targets = os.environ.get("FUZZ_TARGETS", " ".join(TARGETS)).split()
    print(f"{examples} examples for each property ...", file=sys.stderr)
    command = [sys.executable, "-m", "pytest", "-n", "auto", "-v", "-m", "hypothesis", *sys.argv[1:]]
    environment = {**os.environ, "FUZZ_EXAMPLES": str(examples)}
    failed = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    for target in targets:
        print(f"{target}: {runs} executions ...", file=sys.stderr)
        guided = [sys.executable, str(ROOT / "fuzz" / "guided.py"), target, f"-runs={runs}", "-verbosity=0"]
        with tempfile.TemporaryDirectory() as folder:
            code = subprocess.run(guided, cwd=folder, check=False).returncode
            for found in Path(folder).iterdir():
                (ROOT / ".fuzz" / f"{target}-{found.name}").write_bytes(found.read_bytes())
                print(f"{target}: see .fuzz/{target}-{found.name}", file=sys.stderr)
        failed = failed or code
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
