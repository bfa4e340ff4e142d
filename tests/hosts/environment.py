"""Environments with the libraries of hosts. `python -m tests.hosts.environment` makes the one for `make test`.

Strategy: one virtual environment for each list of requirements, beside the one that tests run in. Our own package
is read from its source; what it needs is installed. A stamp tells what is there; a lock lets one process install.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FRAMEWORKS = "frameworks"


class NotInstalled(Exception):
    """pip could not do it; the message says what it said."""


def python(name: str = FRAMEWORKS) -> Path:
    """The interpreter of an environment, ready to be run."""
    folder = ROOT / ".venv" / name
    folder.mkdir(parents=True, exist_ok=True)
    own = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    wanted = (HERE / f"{name}.txt").read_text() + "\n".join(own)
    stamp, interpreter = folder / "installed.txt", folder / "bin" / "python"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            _run(sys.executable, "-m", "venv", str(folder))
            pip = (str(interpreter), "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
            _run(*pip, "-r", str(HERE / f"{name}.txt"), *own)
            stamp.write_text(wanted)
    return interpreter


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        raise NotInstalled(done.stderr.strip()[-2000:])


if __name__ == "__main__":
    try:
        python(*sys.argv[1:])
    except NotInstalled as problem:
        sys.exit(f"tests/hosts: {problem}")
