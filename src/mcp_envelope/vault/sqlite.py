"""The default store: one private SQLite file, shared by every process of the user.

Strategy: a blob's row number is made of its entry's number and its own, so that any blob is one look-up. A
small payload is written in one transaction. A large one is written in several, under an entry that stays
invisible until the last of them; what a killed writer leaves behind is swept later. The entry stays on record for
a week after its blobs are gone, so that an expired handle can be told from an unknown one.

`Database`, which the ledger uses too, is the file itself: private, in WAL mode, with errors in plain words.
Connections come from a small pool, so that threads that come and go leave none behind; after a fork, or if the
file was replaced, the pool is emptied. The file is never opened by any other means while it is in
use: closing any descriptor of it would take SQLite's locks away, and with them other processes' knowledge that it
is used. A write is one transaction that takes the lock at once, so it is there whole or not at all, whatever kills
the process. Our files bear a mark; one without it belongs to another program, and stays as it is.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from ..state_files import state_folder
from .store import (
    DEFAULT_CAP,
    REMEMBERED,
    Damaged,
    DamagedFile,
    DiskTrouble,
    Entry,
    Fate,
    Gone,
    Stats,
    StoreError,
    Writing,
)

# How long a writer waits for others, and for how long between two tries, in seconds.
_PATIENCE: Final = 10.0
_FIRST_PAUSE: Final = 0.01
_LAST_PAUSE: Final = 0.001
# Connections kept for later use.
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


class Database:
    """`mark` has four bytes; it says that a file is ours, and of which kind."""

    def __init__(self, path: str | os.PathLike[str], mark: bytes, schema: str, version: int) -> None:
        self.path = Path(path)
        self._mark = int.from_bytes(mark)
        self._schema = schema
        self._version = version
        self._idle: list[sqlite3.Connection] = []
        self._owner: tuple[int, int] | None = None
        self._lock = threading.Lock()
        self._writer = threading.Lock()

    def connection(self) -> sqlite3.Connection:
        """The connection that the next caller would get."""
        with self._held() as connection:
            return connection

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with self._explaining(), self._held() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction: all of what happens in it, or nothing."""
        with self._explaining(), self._held() as connection, self._turn():
            _patiently(connection, lambda: connection.execute("BEGIN IMMEDIATE"))
            try:
                yield connection
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """This thread's turn to write: the threads of a process don't have to ask SQLite again and again."""
        writer = self._writer
        if not writer.acquire(timeout=_PATIENCE):
            raise sqlite3.OperationalError("database is locked by another thread")
        try:
            yield
        finally:
            writer.release()

    @contextmanager
    def _held(self) -> Iterator[sqlite3.Connection]:
        owner = self._identity()
        with self._lock:
            if self._owner != owner:
                # They lead to a file that is gone, or were opened by the process that this one is a fork of.
                stale, self._idle, self._owner = self._idle, [], None
                # The thread that held it may not be in this process.
                self._writer = threading.Lock()
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
        """Delete the file; the last resort."""
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
        """Whether the file bears our mark, even if the rest is damaged."""
        with self._explaining(), open(self.path, "rb") as file:
            head = file.read(_MARK_AT + 4)
        return head.startswith(_MAGIC) and int.from_bytes(head[_MARK_AT:]) == self._mark

    def _foreign(self, reason: str) -> StoreError:
        return StoreError(f"{self.path} was not made by mcp-envelope ({reason}); name another file")

    def _connect(self) -> sqlite3.Connection:
        with self._explaining():
            self._make()
            connection = sqlite3.connect(self.path, timeout=0, isolation_level=None, check_same_thread=False)
            try:
                _patiently(connection, lambda: self._prepare(connection))
                self._make_private()
            except BaseException:
                connection.close()
                raise
            return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        is_filled = connection.execute("SELECT 1 FROM sqlite_master").fetchone() is not None
        # Read last, since another process may be making the file just now: its tables come with the mark.
        (mark,) = connection.execute("PRAGMA application_id").fetchone()
        if mark != self._mark and (mark or found or is_filled):
            raise self._foreign("it is another program's database")
        if found == 0:
            # Has to come before the first table, and then costs nothing until pages are given back.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.executescript(_PRAGMAS)
        if found == 0:
            # Two processes may get here at once; the second finds the work done.
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
            # SQLite gives its companions (-wal, -shm) the permissions of the file. Only a file that did not exist
            # is opened here: see above.
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))

    def _make_private(self) -> None:
        """Take away permissions that others may have been given."""
        if os.name == "posix" and os.stat(self.path).st_mode & 0o077:
            for suffix in _COMPANIONS:
                with suppress(PermissionError, FileNotFoundError):
                    os.chmod(f"{self.path}{suffix}", 0o600)

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._explained(str(error).lower()) from error
        except (OSError, ValueError) as error:
            raise StoreError(f"cannot use {self.path}: {_reason(error)}") from error

    def _explained(self, said: str) -> StoreError:
        path = self.path
        if "not a database" in said:
            return self._foreign(said)
        if "malformed" in said or "corrupt" in said:
            return DamagedFile(f"{path} is damaged ({said}); move it away")
        if "full" in said:
            return DiskTrouble(f"no room to write {path} ({said}); free some space, or name another place")
        if "disk i/o" in said:
            return DiskTrouble(f"cannot use {path}: {said}; the disk may be full, or failing")
        if "locked" in said or "busy" in said:
            return StoreError(f"{path} is locked by another process ({said})")
        if "readonly" in said or "read-only" in said:
            return StoreError(f"{path} cannot be written ({said}); check its permissions")
        return StoreError(f"cannot use {path}: {said}")


def _patiently(connection: sqlite3.Connection, attempt: Callable[[], object]) -> None:
    """Try until nobody else has a lock in the way, more often the longer it takes.

    SQLite's own waiting won't do: it asks ever more seldom, so newcomers overtake whoever has waited longest, and
    it doesn't wait at all for somebody who is switching a new file to WAL.
    """
    began = time.monotonic()
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                attempt()
                return
            except sqlite3.OperationalError as error:
                waited = (time.monotonic() - began) / _PATIENCE
                if waited >= 1 or "locked" not in str(error):
                    raise
            time.sleep(_FIRST_PAUSE * (1 - waited) + _LAST_PAUSE * waited)
    finally:
        connection.execute(f"PRAGMA busy_timeout = {_PATIENCE * 1000:.0f}")


def _close(connections: list[sqlite3.Connection]) -> None:
    for connection in connections:
        with suppress(sqlite3.Error):
            connection.close()


def _reason(error: OSError | ValueError) -> str:
    return str(getattr(error, "strerror", None) or error).lower()


# -- the store ------------------------------------------------------------------------------------------------

_VERSION: Final = 2
# A blob's row is the entry's number times this, plus its own number; the last number holds the index.
_SPAN: Final = 1 << 20
_INDEX: Final = _SPAN - 1
# After so long without a sign of life, a writer is taken for dead.
_ABANDONED: Final = 3600.0
_SWEEP_EVERY: Final = 60.0
_PAGES_AT_ONCE: Final = 2000
# Every SQLite accepts at least this many parameters.
_MOST_MARKS: Final = 500

_SCHEMA: Final = """
CREATE TABLE entries (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  key TEXT NOT NULL UNIQUE,
  handle TEXT NOT NULL DEFAULT '',
  kind TEXT NOT NULL DEFAULT '',
  size INTEGER NOT NULL DEFAULT 0,
  stored INTEGER NOT NULL DEFAULT 0,
  blobs INTEGER NOT NULL DEFAULT 0,
  created REAL NOT NULL,
  expires REAL NOT NULL,
  tool TEXT,
  state TEXT NOT NULL
) ;;
CREATE TABLE blobs (id INTEGER PRIMARY KEY, data BLOB NOT NULL) ;;
CREATE INDEX by_state ON entries (state, created) ;;
CREATE INDEX by_expiry ON entries (state, expires) ;;
CREATE TABLE account (entries INTEGER NOT NULL, size INTEGER NOT NULL, stored INTEGER NOT NULL) ;;
INSERT INTO account VALUES (0, 0, 0) ;;
CREATE TRIGGER comes AFTER UPDATE OF state ON entries WHEN NEW.state = 'ready' AND OLD.state <> 'ready' BEGIN
  UPDATE account SET entries = entries + 1, size = size + NEW.size, stored = stored + NEW.stored;
END ;;
CREATE TRIGGER goes AFTER UPDATE OF state ON entries WHEN OLD.state = 'ready' AND NEW.state <> 'ready' BEGIN
  UPDATE account SET entries = entries - 1, size = size - OLD.size, stored = stored - OLD.stored;
END
"""
_FATES: Final[tuple[Fate, ...]] = ("expired", "deleted", "evicted")
_FIELDS: Final = [name for name in Entry.__struct_fields__ if name != "index"]
_COLUMNS: Final = ", ".join(_FIELDS)


class SQLiteStore:
    def __init__(self, path: str | os.PathLike[str] | None = None, *, cap: int = DEFAULT_CAP) -> None:
        self.cap = cap
        self._database = Database(path or state_folder() / "vault.db", b"MCPv", _SCHEMA, _VERSION)
        self.place = str(self._database.path)
        self._swept = 0.0
        self._freed = False

    def write(self, key: str, expires: float) -> _SQLiteWriting:
        return _SQLiteWriting(self, self._database, key, expires)

    def entry(self, key: str) -> Entry | Gone | None:
        with self._database.reading() as connection:
            row = connection.execute(
                f"SELECT id, state, {_COLUMNS} FROM entries WHERE key = ?", (key,)
            ).fetchone()
            if row is None or row[1] == "writing":
                return None
            entry = _entry(row[2:])
            if row[1] in _FATES or entry.expires <= time.time():
                return Gone(row[1] if row[1] in _FATES else "expired", entry.expires)
            index = connection.execute(
                "SELECT data FROM blobs WHERE id = ?", (row[0] * _SPAN + _INDEX,)
            ).fetchone()
        if index is None:
            # It may have gone between the two queries.
            return Gone("evicted", time.time())
        return msgspec.structs.replace(entry, index=index[0])

    def blobs(self, key: str, numbers: Sequence[int]) -> list[bytes]:
        found: dict[int, bytes] = {}
        with self._database.reading() as connection:
            row = connection.execute("SELECT id FROM entries WHERE key = ?", (key,)).fetchone()
            base = row[0] * _SPAN if row else 0
            for at in range(0, len(numbers), _MOST_MARKS):
                some = [base + number for number in numbers[at : at + _MOST_MARKS]]
                marks = ",".join("?" * len(some))
                found.update(connection.execute(f"SELECT id, data FROM blobs WHERE id IN ({marks})", some))
        if len(found) < len(set(numbers)):
            raise Damaged("some of the stored payload is gone")
        return [found[base + number] for number in numbers]

    def delete(self, key: str) -> bool:
        with self._database.writing() as connection:
            row = connection.execute(
                "SELECT id FROM entries WHERE key = ? AND state = 'ready'", (key,)
            ).fetchone()
            if row is not None:
                _let_go(connection, [row[0]], "deleted")
        return row is not None

    def entries(self) -> Iterator[Entry]:
        with self._database.reading() as connection:
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM entries "
                "WHERE state = 'ready' AND expires > ? ORDER BY created DESC, id DESC",
                (time.time(),),
            ).fetchall()
        yield from map(_entry, rows)

    def sweep(self) -> int:
        with self._database.writing() as connection:
            swept = self._sweep(connection)
        self.give_back()
        return swept

    def _sweep(self, connection: Any) -> int:
        now = self._swept = time.time()
        old = _ids(connection, "state = 'ready' AND expires <= ?", now)
        _let_go(connection, old, "expired")
        _let_go(connection, _ids(connection, "state = 'writing' AND created <= ?", now - _ABANDONED), None)
        connection.execute(
            "DELETE FROM entries WHERE state IN ('expired', 'deleted', 'evicted') AND expires <= ?",
            (now - REMEMBERED,),
        )
        self._freed = True
        return len(old)

    def give_back(self, pages: int = _PAGES_AT_ONCE) -> None:
        """Return unused pages to the system, some at a time. Not inside a transaction."""
        if self._freed:
            self._freed = False
            with self._database.reading() as connection:
                # A script, because only that is run to its end.
                connection.executescript(f"PRAGMA incremental_vacuum({pages})")

    def make_room(self, connection: Any, newcomer: int) -> None:
        """Evict what has expired, then the oldest others, in the transaction that adds something new."""
        if time.time() - self._swept > _SWEEP_EVERY:
            self._sweep(connection)
        (taken,) = connection.execute("SELECT stored FROM account").fetchone()
        while taken > self.cap:
            row = connection.execute(
                "SELECT id, stored FROM entries WHERE state = 'ready' AND id <> ? ORDER BY created, id LIMIT 1",
                (newcomer,),
            ).fetchone()
            if row is None:
                break
            _let_go(connection, [row[0]], "evicted")
            taken -= row[1]
            self._freed = True

    def purge(self) -> int:
        ready: list[int] = []
        try:
            with self._database.writing() as connection:
                ready = _ids(connection, "state = 'ready' AND expires > ?", time.time())
                _let_go(connection, ready, "deleted")
                self._sweep(connection)
            self.give_back(pages=0)
            with self._database.reading() as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except (DamagedFile, DiskTrouble):
            # Everything is to go, and the file itself always can.
            self._database.remove()
        return len(ready)

    def stats(self) -> Stats:
        with self._database.reading() as connection:
            totals = connection.execute("SELECT entries, size, stored FROM account").fetchone()
            ages = connection.execute(
                "SELECT min(created), max(created) FROM entries WHERE state = 'ready'"
            ).fetchone()
        known = zip(("entries", "size", "stored", "oldest", "newest"), (*totals, *ages), strict=True)
        return Stats(place=self.place, cap=self.cap, **dict(known))

    def close(self) -> None:
        self._database.close()


class _SQLiteWriting(Writing):
    batch_bytes = 1 << 22

    def __init__(self, store: SQLiteStore, database: Database, key: str, expires: float) -> None:
        super().__init__(key, store.place, store.cap)
        self._store = store
        self._database = database
        self._expires = expires
        self._id = 0

    def _send(self, blobs: Sequence[bytes]) -> None:
        with self._database.writing() as connection:
            self._insert(connection, blobs)

    def _publish(self, entry: Entry, blobs: Sequence[bytes]) -> None:
        with self._database.writing() as connection:
            self._insert(connection, blobs)
            connection.execute("INSERT INTO blobs VALUES (?, ?)", (self._id * _SPAN + _INDEX, entry.index))
            assigned = ", ".join(f"{name} = :{name}" for name in _FIELDS if name != "key")
            connection.execute(
                f"UPDATE entries SET {assigned}, state = 'ready' WHERE id = :id",
                {**msgspec.structs.asdict(entry), "id": self._id},
            )
            self._store.make_room(connection, self._id)
        # The payload is stored; that the file could not shrink now does not matter.
        with suppress(StoreError):
            self._store.give_back()

    def _discard(self) -> None:
        if self._id:
            with self._database.writing() as connection:
                _let_go(connection, [self._id], None)

    def _insert(self, connection: Any, blobs: Sequence[bytes]) -> None:
        if self._sent + len(blobs) >= _INDEX:
            raise StoreError(f"the payload is too large for the vault (more than {_INDEX} blobs)")
        now = time.time()
        if not self._id:
            # Whatever has this key is replaced: a value that is stored again, or the record of one that is gone.
            for number in _ids(connection, "key = ? AND state <> 'writing'", self._key):
                _let_go(connection, [number], "deleted")
                _let_go(connection, [number], None)
            self._id = connection.execute(
                "INSERT INTO entries (key, created, expires, state) VALUES (?, ?, ?, 'writing')",
                (self._key, now, self._expires),
            ).lastrowid
        # A sign of life, so that this is not swept.
        elif not connection.execute("UPDATE entries SET created = ? WHERE id = ?", (now, self._id)).rowcount:
            raise StoreError("the payload took too long to be written and was swept away")
        base = self._id * _SPAN + self._sent
        connection.executemany("INSERT INTO blobs VALUES (?, ?)", enumerate(blobs, base))


def _ids(connection: Any, where: str, *values: object) -> list[int]:
    return [row[0] for row in connection.execute(f"SELECT id FROM entries WHERE {where}", values)]


def _let_go(connection: Any, ids: Sequence[int], fate: Fate | None) -> None:
    """Delete blobs; the entry stays on record, unless it never became visible."""
    for number in ids:
        connection.execute(
            "DELETE FROM blobs WHERE id >= ? AND id < ?", (number * _SPAN, (number + 1) * _SPAN)
        )
        if fate is None:
            connection.execute("DELETE FROM entries WHERE id = ?", (number,))
        else:
            connection.execute(
                "UPDATE entries SET state = ?, expires = min(expires, ?) WHERE id = ?",
                (fate, time.time(), number),
            )


def _entry(row: Sequence[Any]) -> Entry:
    return Entry(**dict(zip(_FIELDS, row, strict=True)))
