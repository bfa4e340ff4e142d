"""A SQLite file that several processes share: private, in WAL mode, with plain words for what goes wrong.

Strategy: connections are taken from a small pool and put back, so that threads that come and go leave none behind;
after a fork, or if the file was replaced, the pool begins anew. The file itself is never opened by any other means
while it is in use: closing any descriptor of it would take SQLite's locks away, and with them other processes'
knowledge that it is used. A write is one transaction that takes the lock at once, so it is there whole or not at
all, whatever kills the process. Every error of SQLite becomes a `StoreError` that says what would help. Our files
bear a mark; one without it is somebody else's, and stays as it is.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from .store import DamagedFile, DiskTrouble, StoreError

# How long a writer waits for another one, in seconds.
_PATIENCE: Final = 5.0
# So many connections are kept for the next ones who need one.
_IDLE: Final = 4
# Where SQLite keeps its application id, which says whose file it is.
_MARK_AT: Final = 68
_MAGIC: Final = b"SQLite format 3\0"
_COMPANIONS: Final = ("", "-wal", "-shm")
_PRAGMAS: Final = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA journal_size_limit = 67108864;
PRAGMA trusted_schema = OFF;
"""


def state_folder() -> Path:
    """Where programs keep what should outlive a restart, for this user and this system."""
    if named := os.environ.get("XDG_STATE_HOME"):
        base = Path(named)
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        base = Path.home() / ".local" / "state"
    return base / "mcp-envelope"


class Database:
    """`mark` has four bytes and tells our files from others, and of what kind they are."""

    def __init__(self, path: str | os.PathLike[str], mark: bytes, schema: str, version: int) -> None:
        self.path = Path(path)
        self._mark = int.from_bytes(mark)
        self._schema = schema
        self._version = version
        self._idle: list[sqlite3.Connection] = []
        self._owner: tuple[int, int] | None = None
        self._lock = threading.Lock()

    def connection(self) -> sqlite3.Connection:
        """The connection that the next one who asks would get."""
        with self._held() as connection:
            return connection

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with self._in_plain_words(), self._held() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction: all of what happens in it, or nothing."""
        with self._in_plain_words(), self._held() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    @contextmanager
    def _held(self) -> Iterator[sqlite3.Connection]:
        owner = self._identity()
        with self._lock:
            if self._owner != owner:
                # Connections of the parent process are not ours to close; those of a file that is gone are useless.
                stale, self._idle, self._owner = self._idle, [], None
                if owner is not None and stale and owner[0] == os.getpid():
                    _close(stale)
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = self._connect()
            owner = self._identity()
        try:
            yield connection
        finally:
            with self._lock:
                if self._owner is None:
                    self._owner = owner
                keep = self._owner == owner and len(self._idle) < _IDLE
                if keep:
                    self._idle.append(connection)
            if not keep:
                _close([connection])

    def _identity(self) -> tuple[int, int] | None:
        """This process and this file; None if there is no file."""
        try:
            return os.getpid(), os.stat(self.path).st_ino
        except (OSError, ValueError):
            return None

    def close(self) -> None:
        with self._lock:
            idle, self._idle, self._owner = self._idle, [], None
        _close(idle)

    def remove(self) -> None:
        """Delete the file, for when nothing else helps."""
        self.close()
        if not self._is_ours():
            raise self._foreign("it does not look like one")
        for suffix in _COMPANIONS:
            try:
                os.unlink(f"{self.path}{suffix}")
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StoreError(f"cannot remove {self.path}{suffix}: {_reason(error)}") from None

    def _is_ours(self) -> bool:
        """Whether the file bears our mark, whatever else became of it."""
        with self._in_plain_words(), open(self.path, "rb") as file:
            head = file.read(_MARK_AT + 4)
        return head.startswith(_MAGIC) and int.from_bytes(head[_MARK_AT:]) == self._mark

    def _foreign(self, reason: str) -> StoreError:
        return StoreError(f"{self.path} was not made by mcp-envelope ({reason}); name another file")

    def _connect(self) -> sqlite3.Connection:
        with self._in_plain_words():
            self._make()
            connection = sqlite3.connect(
                self.path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare(connection)
                self._make_private()
            except BaseException:
                connection.close()
                raise
            return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        is_filled = connection.execute("SELECT 1 FROM sqlite_master").fetchone() is not None
        # Asked last, since somebody may be making the file just now: its tables come with the mark.
        (mark,) = connection.execute("PRAGMA application_id").fetchone()
        if mark != self._mark and (mark or found or is_filled):
            raise self._foreign("it is another program's database")
        if found == 0:
            # Has to come before the first table, and then costs nothing until pages are given back.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.executescript(_PRAGMAS)
        if found == 0:
            # Two processes may come here at once; the second one finds the work done.
            connection.execute("BEGIN IMMEDIATE")
            (found,) = connection.execute("PRAGMA user_version").fetchone()
            if found == 0:
                for statement in self._schema.split(";;"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {self._mark}")
                connection.execute(f"PRAGMA user_version = {self._version}")
                found = self._version
            connection.execute("COMMIT")
        if found != self._version:
            raise StoreError(
                f"{self.path} was made by another version of mcp-envelope (format {found}, not {self._version}); "
                "name another file"
            )

    def _make(self) -> None:
        folder = self.path.parent
        if not folder.is_dir():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(OSError):
                folder.chmod(0o700)
        with suppress(FileExistsError):
            # SQLite gives its companions (-wal, -shm) the permissions of the file. Only a file that was not there
            # is opened here: see above.
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))

    def _make_private(self) -> None:
        """Nobody else may read a file of ours, should somebody have let them."""
        if os.name == "posix" and os.stat(self.path).st_mode & 0o077:
            for suffix in _COMPANIONS:
                with suppress(PermissionError, FileNotFoundError):
                    os.chmod(f"{self.path}{suffix}", 0o600)

    @contextmanager
    def _in_plain_words(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._explained(str(error).lower()) from error
        except (OSError, ValueError) as error:
            raise StoreError(f"cannot use {self.path}: {_reason(error)}") from error

    def _explained(self, said: str) -> StoreError:
        if "not a database" in said:
            return self._foreign(said)
        if "malformed" in said or "corrupt" in said:
            return DamagedFile(f"{self.path} is damaged ({said}); move it away")
        if "full" in said:
            return DiskTrouble(
                f"no room to write {self.path} ({said}); free some space, or name another place"
            )
        if "disk i/o" in said:
            return DiskTrouble(f"cannot use {self.path}: {said}; see whether the disk is full, or fails")
        if "locked" in said or "busy" in said:
            return StoreError(f"{self.path} is locked by another process ({said})")
        if "readonly" in said or "read-only" in said:
            return StoreError(f"{self.path} cannot be written ({said}); check its permissions")
        return StoreError(f"cannot use {self.path}: {said}")


def _close(connections: list[sqlite3.Connection]) -> None:
    for connection in connections:
        with suppress(sqlite3.Error):
            connection.close()


def _reason(error: OSError | ValueError) -> str:
    return str(getattr(error, "strerror", None) or error).lower()
