"""A file replaced in one step, with a backup of what it was.

Strategy: the new file is written in full, flushed to disk, given the old one's mode and owner, and moved into place
by one rename; until then nothing has changed, and a full disk costs only the new file. A link stays a link: its
target is replaced, and the backup is next to that. Just before the rename the file is read once more: if
it is not what the plan was made for, nothing is done. Concurrent runs wait for each other where the system can lock
a folder.
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
    """The file has been written to since it was read."""


def real(path: Path) -> Path:
    """The file itself, if the path is a link."""
    return Path(os.path.realpath(path))


def path_of(path: Path) -> Path:
    file = real(path)
    return file.with_name(file.name + SUFFIX)


def read(path: Path) -> bytes | None:
    try:
        return path_of(path).read_bytes()
    except FileNotFoundError:
        return None


def replace(path: Path, old: bytes, new: bytes, *, keep: bool) -> None:
    """Replace the old bytes by the new ones. With `keep`, the old ones become the backup."""
    file = real(path)
    with _locked(file.parent):
        if file.read_bytes() != old:
            raise Changed
        if keep:
            _write(path_of(file), old, like=file)
        _write(file, new, like=file)


def discard(path: Path, content: bytes) -> bool:
    """Remove the backup if it holds exactly this; return whether there is none afterwards."""
    file = path_of(path)
    with _locked(file.parent):
        found = read(path)
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
        _copy_attributes(like, name)
        os.replace(name, file)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
    _flush(file.parent)


def _copy_attributes(like: Path, name: str) -> None:
    """Give the new file the mode, owner and attributes of the old one, but not its times."""
    status = like.stat()
    if hasattr(os, "chown"):
        mine = os.stat(name)
        if (mine.st_uid, mine.st_gid) != (status.st_uid, status.st_gid):
            os.chown(name, status.st_uid, status.st_gid)
    shutil.copystat(like, name)
    os.utime(name)


def _flush(folder: Path) -> None:
    """Make the rename durable, where folders can be flushed."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock on the folder itself, so that no lock file is left behind."""
    try:
        import fcntl
    except ImportError:  # Windows: the comparison before the rename has to do
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a network disk without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
