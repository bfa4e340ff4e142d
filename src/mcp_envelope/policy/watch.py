"""Files that are watched: found, read when they change, and kept as they last made sense.

Strategy: a look costs a few `stat` calls and reads nothing unless time, size or inode differ. A file that
changed a moment ago may change again within the clock's grain, so its bytes are compared at the next look
as well. A file that cannot be read or parsed leaves the last good document in force; one that is gone
leaves none. What is wrong stays known as `problem` until it is mended.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from .documents import PYPROJECT_TABLE, Broken, is_settings_table, read_response_config, read_toml
from .layers import Document

FILE_NAME: Final = "mcp-envelope.toml"
PYPROJECT: Final = "pyproject.toml"
RESPONSE_CONFIG: Final = os.path.join(".code-scalpel", "response_config.json")
# The coarsest clock of a common file system.
_GRAIN_NS: Final = 2_000_000_000
_LARGEST: Final = 1_000_000

Signature = tuple[int, int, int]


class Found(NamedTuple):
    path: str
    name: str  # as people are told
    signature: Signature | None  # None: it is not there


Find = Callable[[], Found | None]


class Watched:
    """One file, wherever `find` finds it."""

    def __init__(self, find: Find, read: Callable[[str, str], Document], without: str) -> None:
        self.find = find
        self.document = Document()
        self.name: str | None = None
        self.problem: str | None = None
        self._read = read
        self._without = without  # what is the case when there is no file
        self._seen: Found | None = None
        self._data: bytes | None = None  # of the last good document
        self._young = False
        self._news: list[str] = []

    def look(self) -> bool:
        """Look at the file; whether anything is different now."""
        found = self.find()
        if found == self._seen and not self._young:
            return False
        before = self.document, self.problem, self.name
        if found is None or found.signature is None:
            self._gone(found)
        else:
            self._load(found, found.signature)
        self._seen = found
        return before != (self.document, self.problem, self.name)

    def take_news(self) -> list[str]:
        """What happened since it was last asked."""
        news, self._news = self._news, []
        return news

    def _gone(self, found: Found | None) -> None:
        if self._seen is not None and self._seen.signature is not None:
            self._news.append(f"{self._seen.name} is gone; {self._without}")
            self.problem = None
        elif found is not None:
            self.problem = f"cannot read {found.name}: {_absence(found.path)}; {self._without}"
        self.document, self._data, self.name = Document(), None, None
        self._young = False

    def _load(self, found: Found, signature: Signature) -> None:
        if self._seen is not None and self._seen.path != found.path:
            # Another file: the last good state of the old one is no answer for it.
            self.document, self._data = Document(), None
            if self._seen.signature is not None and not os.path.exists(self._seen.path):
                self._news.append(f"{self._seen.name} is gone; {found.name} applies")
        stays = "no setting of it applies" if self._data is None else "its last good version stays in force"
        self.name = found.name
        self._young = True  # a reason not to read it may pass without a trace in the signature
        try:
            data = read_bytes(found.path)
            # The signature is older than the data. A change in between shows as a new one at the next look.
            self._young = _age(signature) < _GRAIN_NS
            if data == self._data:
                self.problem = None
                return
            if not data.strip() and self._data and abs(_age(signature)) < _GRAIN_NS:
                return  # perhaps somebody is just writing it: emptied, not yet filled
            self.document = self._read(_decoded(data, found.name), found.name)
            self._data, self.problem = data, None
        except Broken as error:
            self.problem = f"{error}; {stays}"
        except FileNotFoundError:
            pass  # deleted since the look: the next one will see
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self.problem = f"cannot read {found.name}: {reason[:1].lower()}{reason[1:]}; {stays}"


def settings_file(path: str | os.PathLike[str] | None, start: Path) -> Watched:
    """The file that was named, or else the nearest one from `start` upwards."""
    without = "the built-in settings apply"
    if path is not None:
        name, full = os.fspath(path), os.path.abspath(path)
        return Watched(lambda: Found(full, name, _signature(full)), _read_settings, without)
    pyprojects: dict[str, tuple[Signature, bool]] = {}
    return Watched(lambda: _nearest(start, pyprojects), _read_settings, without)


def _read_settings(text: str, name: str) -> Document:
    table = PYPROJECT_TABLE if os.path.basename(name) == PYPROJECT else ()
    return read_toml(text, name, table)


def response_config(start: Path) -> Watched:
    """The dialect scalpel's own file, the nearest one from `start` upwards."""

    def find() -> Found | None:
        return _upwards(start, lambda folder: _here(os.path.join(folder, RESPONSE_CONFIG), start))

    return Watched(find, read_response_config, "its settings no longer apply")


def _nearest(start: Path, pyprojects: dict[str, tuple[Signature, bool]]) -> Found | None:
    def look(folder: str) -> Found | None:
        if found := _here(os.path.join(folder, FILE_NAME), start):
            return found
        found = _here(os.path.join(folder, PYPROJECT), start)
        if found is None or found.signature is None:
            return None
        known = pyprojects.get(found.path)
        if known is None or known[0] != found.signature or _age(found.signature) < _GRAIN_NS:
            known = pyprojects[found.path] = (found.signature, _is_ours(found.path))
        return found if known[1] else None

    return _upwards(start, look)


def _upwards(start: Path, look: Callable[[str], Found | None]) -> Found | None:
    folder = os.fspath(start)
    while True:
        if found := look(folder):
            return found
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent


def _here(path: str, start: Path) -> Found | None:
    signature = _signature(path)
    return Found(path, _relative(path, start), signature) if signature is not None else None


def _relative(path: str, start: Path) -> str:
    try:
        return Path(os.path.relpath(path, start)).as_posix()
    except ValueError:  # another drive
        return os.path.basename(path)


def _signature(path: str) -> Signature | None:
    try:
        about = os.stat(path)
    except (OSError, ValueError):
        return None
    # /dev/null is how a person says "no file".
    if not stat.S_ISREG(about.st_mode) and path != os.devnull:
        return None
    return about.st_mtime_ns, about.st_size, about.st_ino


def _absence(path: str) -> str:
    if os.path.isdir(path):
        return "it is a folder"
    return "it is no ordinary file" if os.path.exists(path) else "no such file"


def _age(signature: Signature) -> int:
    """Nanoseconds since the last change; less than none if that lies in the future."""
    return time.time_ns() - signature[0]


def _is_ours(path: str) -> bool:
    try:
        return is_settings_table(read_bytes(path).decode("utf-8", "replace"))
    except (OSError, ValueError):
        return False


def read_bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ValueError("it is larger than 1 MB")
    return data


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = len(data[data.rfind(b"\n", 0, error.start) + 1 : error.start].decode("utf-8", "replace")) + 1
        raise Broken(
            f"{name}, line {line}, column {column}: not UTF-8 (byte 0x{data[error.start]:02x})"
        ) from None
