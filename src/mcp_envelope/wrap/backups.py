"""A file replaced in one step, and what it was before kept beside it.

Strategy: a new file is written in full, flushed to the disk, given the old one's mode and owner, and put in its
place by one rename; until then nothing has changed, and a full disk costs only the new file. A link stays a link:
the file it leads to is replaced, and the backup lies beside that. Just before, the file is read once more: if it is
not what the plan was made for, nothing is done. Runs at the same time wait for each other where the system can
lock a folder.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

SUFFIX: Final = ".mcp-envelope-backup"


class Changed(Exception):
    """Somebody wrote to the file since it was read."""


def real(path: Path) -> Path:
    """The file itself, if the path is a link."""
    return Path(os.path.realpath(path))


def backup_of(path: Path) -> Path:
    file = real(path)
    return file.with_name(file.name + SUFFIX)


def backup(path: Path) -> bytes | None:
    try:
        return backup_of(path).read_bytes()
    except FileNotFoundError:
        return None


def replace(path: Path, old: bytes, new: bytes, *, keep: bool) -> None:
    """Put new bytes in the place of the old ones. With `keep` the old ones become the backup."""
    file = real(path)
    with _locked(file.parent):
        if file.read_bytes() != old:
            raise Changed
        if keep:
            _write(backup_of(file), old, like=file)
        _write(file, new, like=file)


def discard(path: Path, content: bytes) -> bool:
    """Remove the backup if it holds just this. True if there is none afterwards."""
    file = backup_of(path)
    with _locked(file.parent):
        found = backup(path)
        if found == content:
            file.unlink(missing_ok=True)
        return found is None or found == content


def _write(file: Path, data: bytes, like: Path) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as new:
            new.write(data)
            new.flush()
            os.fsync(new.fileno())
        _dress(name, like)
        os.replace(name, file)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
    _flush(file.parent)


def _dress(name: str, like: Path) -> None:
    """Mode, owner and attributes of the old file; its times are not those of the new one."""
    status = like.stat()
    if hasattr(os, "chown"):
        mine = os.stat(name)
        if (mine.st_uid, mine.st_gid) != (status.st_uid, status.st_gid):
            os.chown(name, status.st_uid, status.st_gid)
    shutil.copystat(like, name)
    os.utime(name)


def _flush(folder: Path) -> None:
    """Make the rename last, where folders can be flushed."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Alone in this folder. The lock is on the folder itself, so nothing is left lying about."""
    try:
        import fcntl
    except ImportError:  # Windows: there the comparison before the rename has to do
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a network disk that has no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
