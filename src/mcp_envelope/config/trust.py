"""Which settings files the user has accepted, as direnv does: each by its path and by what it says.

The list is a private file in the user's state folder. A file that has changed since is no longer accepted. A
file in the home folder itself is the user's own and needs no acceptance. A list that cannot be read accepts
nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from ..state_files import locked, state_folder, write_private

_LARGEST: Final = 10_000_000


def digest(data: bytes) -> str:
    return sha256(data).hexdigest()


def identity(path: str | os.PathLike[str]) -> str:
    """Return the one path by which a file is known. A link is a file of its own: it may lead elsewhere later."""
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(folder), name)


def is_users_own(path: str) -> bool:
    return os.path.dirname(identity(path)) == os.path.realpath(os.path.expanduser("~"))


class Accepted:
    """The list of accepted files: path -> digest. It is short, and read at each look."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or state_folder() / "trusted.json"

    def files(self) -> dict[str, str]:
        try:
            if not self.path.is_file() or self.path.stat().st_size > _LARGEST:
                return {}
            return msgspec.json.decode(self.path.read_bytes(), type=dict[str, str])
        except (OSError, ValueError):
            return {}

    def holds(self, path: str, data: bytes) -> bool:
        return self.files().get(identity(path)) == digest(data)

    def add(self, path: str, data: bytes) -> None:
        with self._changing() as files:
            files[identity(path)] = digest(data)

    def remove(self, path: str) -> bool:
        """Return whether the file was on the list."""
        with self._changing() as files:
            return files.pop(identity(path), None) is not None

    @contextmanager
    def _changing(self) -> Iterator[dict[str, str]]:
        """The list, to be changed by one process at a time."""
        with locked(self.path):
            before = self.files()
            files = dict(before)
            yield files
            if files != before:
                write_private(self.path, msgspec.json.format(msgspec.json.encode(files)))
