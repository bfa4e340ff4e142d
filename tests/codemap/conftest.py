from __future__ import annotations

from pathlib import Path

import pytest

from .harness import Project


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is counted and stored by itself goes into the test's folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)
