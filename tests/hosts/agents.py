"""Real agents with a scripted model on loopback, as in `lab/`, in the environment of their frameworks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from lab.cases import READ
from lab.model import Model, Player, Script

from ..warm import warm
from . import environment

ROOT = environment.ROOT


def fixture_server() -> tuple[str, ...]:
    """The command of a server that has every kind of result."""
    return warm(str(ROOT / "lab" / "server.py"))


def run(program: Iterable[str], script: Script, tools: Iterable[str], home: Path, **more: str) -> Player:
    """Run a program of a framework until its model's script is over, and return what was played."""
    model = Model()
    player = model.players["session"] = Player(script, "", (*tools, READ))
    variables = {
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), "/usr/bin", "/bin")),
        "HOME": str(home), "XDG_STATE_HOME": str(home), "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT / "src"),
        "OPENAI_API_KEY": "sk-invented", "OPENAI_BASE_URL": f"{model.address('session')}/v1",
    }  # fmt: skip
    try:
        done = subprocess.run(
            [str(environment.python()), *program], env=variables | more, cwd=home, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=120,
        )  # fmt: skip
    finally:
        model.close()
    assert player.over.is_set(), done.stderr[-3000:]
    assert not player.problem, player.problem
    return player
