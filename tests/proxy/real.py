"""Real servers, as they are published, from npm and PyPI. `python -m tests.proxy.real` installs the former."""

from __future__ import annotations

import sys
from pathlib import Path

from ..servers.node.install import NODE, NotInstalled, installed

_PACKAGE = Path(__file__).resolve().parent / "node" / "package.json"
_FOLDER = _PACKAGE.parents[3] / ".venv" / "servers"


def node(name: str, *arguments: str) -> tuple[str, ...]:
    """The command of a server that is written for Node."""
    modules = installed(_PACKAGE, _FOLDER) / "node_modules" / "@modelcontextprotocol"
    return (str(NODE), str(modules / name / "dist" / "index.js"), *arguments)


def python(module: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", module, *arguments)


if __name__ == "__main__":
    try:
        installed(_PACKAGE, _FOLDER)
    except NotInstalled as problem:
        sys.exit(f"tests/proxy/node: {problem}")
