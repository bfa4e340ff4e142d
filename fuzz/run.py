"""The promises over many more examples than `make test` takes: `make fuzz FUZZ_EXAMPLES=50000`.

A failure prints the smallest payload that shows it. Put that into a test before mending it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    examples = os.environ.get("FUZZ_EXAMPLES", "10000")
    if not examples.isdigit():
        print(f"FUZZ_EXAMPLES is a number of examples, got {examples!r}", file=sys.stderr)
        return 2
    print(f"{examples} examples for each promise; this takes a while ...", file=sys.stderr)
    command = [sys.executable, "-m", "pytest", "-n", "auto", "-v", "tests/test_promises.py", *sys.argv[1:]]
    # Without CI in the environment the examples are new ones every time.
    environment = {key: value for key, value in os.environ.items() if key != "CI"}
    return subprocess.run(
        command, cwd=ROOT, env={**environment, "FUZZ_EXAMPLES": examples}, check=False
    ).returncode


if __name__ == "__main__":
    raise SystemExit(main())
