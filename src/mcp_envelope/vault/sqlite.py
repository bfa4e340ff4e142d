"""The default store: one private SQLite file, shared by every process of the user.

Strategy: a blob's row number is made of its entry's number and its own, so that any blob is one look-up. A
small payload is written in one transaction. A large one is written in several, under an entry that nobody
sees until the last of them; what a killed writer leaves behind is swept later. What an entry was stays on
record for a week after its blobs are gone, so that an expired handle can be told from one that never was.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from .database import Database, state_folder
from .store import (
    DEFAULT_CAP,
    DEFAULT_TTL,
    REMEMBERED,
    Damaged,
    DamagedFile,
    DiskTrouble,
    Entry,
    Fate,
    Gone,
    Stats,
    StoreError,
)

_VERSION: Final = 2
# A blob's row is the entry's number times this, plus its own number; the last number holds the outline.
_SPAN: Final = 1 << 20
_OUTLINE: Final = _SPAN - 1
# So much is gathered before it is written: the lock is never held for long.
_BATCH: Final = 1 << 22
# A writer that has not been heard of for so long is taken for dead.
_ABANDONED: Final = 3600.0
_SWEEP_EVERY: Final = 60.0
_PAGES_AT_ONCE: Final = 2000
# SQLite takes so many question marks at least.
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


class SQLiteStore:
    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        ttl: float = DEFAULT_TTL,
        cap: int = DEFAULT_CAP,
    ) -> None:
        self.ttl = ttl
        self.cap = cap
        self._database = Database(path or state_folder() / "vault.db", b"MCPv", _SCHEMA, _VERSION)
        self.place = str(self._database.path)
        self._swept = 0.0
        self._freed = False

    def write(self, key: str, expires: float) -> _Writing:
        return _Writing(self, self._database, key, expires)

    def entry(self, key: str) -> Entry | Gone | None:
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT id, key, handle, kind, size, stored, blobs, created, expires, tool, state "
                "FROM entries WHERE key = ?",
                (key,),
            ).fetchone()
            if row is None or row[-1] == "writing":
                return None
            if row[-1] in _FATES:
                return Gone(row[-1], row[8])
            if row[8] <= time.time():
                return Gone("expired", row[8])
            outline = connection.execute(
                "SELECT data FROM blobs WHERE id = ?", (row[0] * _SPAN + _OUTLINE,)
            ).fetchone()
        if outline is None:
            # It may have gone between the two questions.
            return Gone("evicted", time.time())
        return msgspec.structs.replace(_entry(row), outline=outline[0])

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
                "SELECT id, key, handle, kind, size, stored, blobs, created, expires, tool FROM entries "
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
        """Pages that nobody uses go back to the system, some at a time. Not inside a transaction."""
        if self._freed:
            self._freed = False
            with self._database.reading() as connection:
                # A script, because only that is run to its end.
                connection.executescript(f"PRAGMA incremental_vacuum({pages})")

    def make_room(self, connection: Any, newcomer: int) -> None:
        """Within the transaction that brings something new: what has expired goes, then the oldest others."""
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
            # Everything shall go, and the file itself always can.
            self._database.remove()
        return len(ready)

    def stats(self) -> Stats:
        with self._database.reading() as connection:
            entries, size, stored = connection.execute("SELECT * FROM account").fetchone()
            oldest, newest = connection.execute(
                "SELECT min(created), max(created) FROM entries WHERE state = 'ready'"
            ).fetchone()
        return Stats(
            place=self.place,
            entries=entries,
            size=size,
            stored=stored,
            cap=self.cap,
            oldest=oldest,
            newest=newest,
        )

    def close(self) -> None:
        self._database.close()


class _Writing:
    def __init__(self, store: SQLiteStore, database: Database, key: str, expires: float) -> None:
        self._store = store
        self._database = database
        self._key = key
        self._expires = expires
        self._id = 0
        self._waiting: list[bytes] = []
        self._size = 0
        self._written = 0
        self._done = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._done or not self._id:
            return
        try:
            with self._database.writing() as connection:
                _let_go(connection, [self._id], None)
        except StoreError:
            # The sweep will find it.
            return

    def add(self, blobs: Sequence[bytes]) -> None:
        self._waiting.extend(blobs)
        self._size += sum(map(len, blobs))
        if self._written + len(self._waiting) >= _OUTLINE:
            raise StoreError(f"the payload is too large for the vault (more than {_OUTLINE} blobs)")
        if self._size > self._store.cap:
            raise StoreError(
                f"the payload is larger than all that the vault may hold ({self._store.cap} bytes)"
            )
        if sum(map(len, self._waiting)) >= _BATCH:
            with self._database.writing() as connection:
                self._flush(connection)

    def commit(self, entry: Entry) -> None:
        size = self._size + len(entry.outline)
        if size > self._store.cap:
            raise StoreError(
                f"the payload is larger than all that the vault may hold ({self._store.cap} bytes)"
            )
        with self._database.writing() as connection:
            self._flush(connection)
            connection.execute(
                "INSERT INTO blobs VALUES (?, ?)", (self._id * _SPAN + _OUTLINE, entry.outline)
            )
            connection.execute(
                "UPDATE entries SET handle = ?, kind = ?, size = ?, stored = ?, blobs = ?, created = ?, "
                "expires = ?, tool = ?, state = 'ready' WHERE id = ?",
                (
                    entry.handle,
                    entry.kind,
                    entry.size,
                    size,
                    self._written,
                    entry.created,
                    entry.expires,
                    entry.tool,
                    self._id,
                ),
            )
            self._store.make_room(connection, self._id)
        self._done = True
        # The payload is in; that the file could not shrink now is nobody's trouble.
        with suppress(StoreError):
            self._store.give_back()

    def _flush(self, connection: Any) -> None:
        now = time.time()
        if not self._id:
            self._id = connection.execute(
                "INSERT INTO entries (key, created, expires, state) VALUES (?, ?, ?, 'writing')",
                (self._key, now, self._expires),
            ).lastrowid
        else:
            # Still alive: nobody should sweep this.
            found = connection.execute(
                "UPDATE entries SET created = ? WHERE id = ?", (now, self._id)
            ).rowcount
            if not found:
                raise StoreError("the payload took too long to be written and was swept away")
        base = self._id * _SPAN + self._written
        connection.executemany("INSERT INTO blobs VALUES (?, ?)", enumerate(self._waiting, base))
        self._written += len(self._waiting)
        self._waiting = []


def _ids(connection: Any, where: str, *values: object) -> list[int]:
    return [row[0] for row in connection.execute(f"SELECT id FROM entries WHERE {where}", values)]


def _let_go(connection: Any, ids: Sequence[int], fate: Fate | None) -> None:
    """Blobs go; what the entry was stays on record, unless nobody ever saw it."""
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
    _, key, handle, kind, size, stored, blobs, created, expires, tool = row[:10]
    return Entry(
        key=key,
        handle=handle,
        kind=kind,
        size=size,
        stored=stored,
        blobs=blobs,
        created=created,
        expires=expires,
        tool=tool,
    )
