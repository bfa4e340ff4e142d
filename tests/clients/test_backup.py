"""Files replaced in one step: nothing lost, nothing left lying about."""

from __future__ import annotations

import os
import stat
import sys
import threading
from pathlib import Path

import pytest

from mcp_envelope.clients import backup

posix = pytest.mark.skipif(sys.platform == "win32", reason="modes and links of POSIX")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mcp.json"
    path.write_bytes(b"old")
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_replace_and_keep(file: Path) -> None:
    backup.replace(file, b"old", b"new", keep=True)
    assert file.read_bytes() == b"new"
    assert backup.read(file) == b"old"
    backup.replace(file, b"new", b"newer", keep=False)
    assert backup.read(file) == b"old"
    assert names(file.parent) == ["mcp.json", "mcp.json.mcp-envelope-backup"]


def test_a_file_that_changed_meanwhile_is_left(file: Path) -> None:
    with pytest.raises(backup.Changed):
        backup.replace(file, b"older", b"new", keep=True)
    assert file.read_bytes() == b"old"
    assert names(file.parent) == ["mcp.json"]


def test_discard(file: Path) -> None:
    assert backup.discard(file, b"old")
    backup.replace(file, b"old", b"new", keep=True)
    assert not backup.discard(file, b"new")
    assert backup.read(file) == b"old"
    assert backup.discard(file, b"old")
    assert backup.read(file) is None


@posix
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o640])
def test_mode(file: Path, mode: int) -> None:
    file.chmod(mode)
    os.utime(file, (1, 1))
    backup.replace(file, b"old", b"new", keep=True)
    for path in (file, backup.path_of(file)):
        assert stat.S_IMODE(path.stat().st_mode) == mode
    assert file.stat().st_mtime > 1


@posix
def test_owner(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        os.chown(file, 12345, 12346)
        backup.replace(file, b"old", b"new", keep=True)
        for path in (file, backup.path_of(file)):
            assert (path.stat().st_uid, path.stat().st_gid) == (12345, 12346)
    else:
        backup.replace(file, b"old", b"new", keep=True)
        assert file.stat().st_uid == os.geteuid()


@posix
def test_a_link_stays_a_link(file: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    link = home / "linked.json"
    link.symlink_to(Path("..") / "mcp.json")
    backup.replace(link, b"old", b"new", keep=True)
    assert link.is_symlink()
    assert file.read_bytes() == b"new"
    assert names(home) == ["linked.json"]
    assert backup.path_of(link) == backup.path_of(file)
    assert backup.read(link) == b"old"


@pytest.mark.parametrize("moment", ["fsync", "replace", "utime"])
def test_a_failure_changes_nothing(file: Path, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, moment, full)
    with pytest.raises(OSError, match="No space left"):
        backup.replace(file, b"old", b"new", keep=True)
    assert file.read_bytes() == b"old"
    assert names(file.parent) == ["mcp.json"]


def test_of_many_at_once_one_wins(file: Path) -> None:
    gate = threading.Barrier(8)
    won: list[int] = []
    lost: list[int] = []

    def go(number: int) -> None:
        gate.wait()
        try:
            backup.replace(file, b"old", b"new %d" % number, keep=True)
            won.append(number)
        except backup.Changed:
            lost.append(number)

    threads = [threading.Thread(target=go, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) + len(lost) == 8
    assert len(won) == 1 or sys.platform == "win32"
    assert file.read_bytes() in [b"new %d" % number for number in won]
    assert backup.read(file) == b"old"
    assert names(file.parent) == ["mcp.json", "mcp.json.mcp-envelope-backup"]
