"""Random search: every property test over new random examples. `make fuzz FUZZ_EXAMPLES=50000 ARGS=tests/vault`

`make test` tries the same few examples in every run; this tries other ones each time. A failure prints the
smallest payload that shows it: put that into a test before you fix it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEFAULT = "2000"


def main() -> int:
    examples = os.environ.get("FUZZ_EXAMPLES", DEFAULT)
    if not examples.isdigit() or int(examples) == 0:
        print(f"FUZZ_EXAMPLES must be a positive number, got {examples!r}", file=sys.stderr)
        return 2
    print(f"{examples} examples for each property ...", file=sys.stderr)
    command = [sys.executable, "-m", "pytest", "-n", "auto", "-v", "-m", "hypothesis", *sys.argv[1:]]
    environment = {**os.environ, "FUZZ_EXAMPLES": examples}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
