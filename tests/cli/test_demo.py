"""`mcp-envelope demo`: real servers behind the proxy."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from .harness import at_terminal, environment

DEMO = [sys.executable, "-m", "mcp_envelope", "demo"]


def test_in_a_pipe(tmp_path: Path, home: Path) -> None:
    env = environment(MCP_ENVELOPE_VAULT=None)
    done = subprocess.run(DEMO, cwd=tmp_path, env=env, capture_output=True, timeout=120, check=False)
    shown = done.stdout.decode()
    assert (done.returncode, done.stderr) == (0, b""), done
    assert "\x1b" not in shown
    assert shown.count("$ mcp-envelope proxy ") == 3
    assert shown.count("envelope_read(handle, ") >= 4
    assert "pages joined end to end match the original" in shown
    assert "UPSTREAM_DIED" in shown
    assert "hint: " in shown
    assert "NO:" not in shown
    assert "✗" not in shown
    assert str(tmp_path) not in shown
    assert list(home.iterdir()) == []


def test_without_git_and_unicode(tmp_path: Path) -> None:
    env = environment(MCP_ENVELOPE_VAULT=None, PATH=str(tmp_path), PYTHONIOENCODING="ascii")
    done = subprocess.run(DEMO, cwd=tmp_path, env=env, capture_output=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, b""), done
    assert "skipped: it needs git" in done.stdout.decode()
    assert "UPSTREAM_DIED" in done.stdout.decode()


def test_at_a_terminal(tmp_path: Path) -> None:
    code, shown = at_terminal(DEMO, tmp_path, COLUMNS="60", PYTHONUTF8="1")
    plain = re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert code == 0, plain
    assert plain != shown
    assert max(map(len, plain.splitlines())) <= 62
