"""A program that is forked is like one that is started: streams, environment, exit code and end."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from .proxy.programs import is_gone
from .warm import warm

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    ("ending", "code"), [("", 0), ("sys.exit(7)", 7), ("sys.exit('no')", 1), ("1 / 0", 1)]
)
def test_it_ends_as_the_program_does(tmp_path: Path, ending: str, code: int) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import os, sys\n"
        f"print(input(), os.getcwd(), os.environ['A'], *sys.argv[1:], 'HOME' in os.environ)\n{ending}"
    )
    command = warm(str(script), "b c", "")
    done = subprocess.run(
        command, input="words\n", env={"A": "a=ü"}, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (code, f"words {tmp_path} a=ü b c  False\n")
    assert ("ZeroDivisionError" in done.stderr) == ("/" in ending)


def test_it_takes_the_program_along(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)\n")
    with subprocess.Popen(warm(str(script)), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        program = int(process.stdout.readline())
        assert program not in (process.pid, os.getpid())
        process.kill()
        assert process.stdout.read() == b""
    assert is_gone(program)
