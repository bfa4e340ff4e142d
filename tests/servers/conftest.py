"""Nothing here may touch the home folder, or be led by a settings file or by variables of whoever runs it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("MCP_ENVELOPE_", "CTXO_", "SCALPEL_"))]:
        monkeypatch.delenv(name)
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def vault(tmp_path: Path) -> str:
    return str(tmp_path / "vault.db")
