"""The map of a repository in SQLite: files, symbols, imports and uses.

Strategy: a build compares every file with what is known of it, first by size and time, then by its hash, and parses
what changed, in several processes if there is much of it. A use is stored with the unit (a file; in Go, a
directory) that its name is looked for in, so another file's change leaves it valid. When files come or go, the
imports that now lead elsewhere are found, and their files parsed again. Nothing is watched: whoever shows an entry
asks for the `state` of its file.
"""

from __future__ import annotations

import gc
import hashlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from .files import LARGEST, Found, Listing, Resolver, language_of, list_files, package_of, unit_of
from .source import HERE, UNKNOWN, Source

_VERSION = 1
# From so many files on, starting other processes pays.
_MANY = 200
_TABLES = """
CREATE TABLE units(id INTEGER PRIMARY KEY, name TEXT UNIQUE);
CREATE TABLE files(id INTEGER PRIMARY KEY, path TEXT UNIQUE, lang TEXT, unit INTEGER, package TEXT,
  hash BLOB, size INTEGER, mtime INTEGER, problem TEXT);
CREATE TABLE symbols(id INTEGER PRIMARY KEY, file INTEGER, unit INTEGER, name TEXT, last TEXT, kind TEXT,
  line INTEGER, col INTEGER, end_line INTEGER, public INTEGER, registered INTEGER);
CREATE TABLE imports(file INTEGER, unit INTEGER, module TEXT, name TEXT, alias TEXT, line INTEGER, col INTEGER,
  target INTEGER, target_name TEXT);
CREATE TABLE uses(file INTEGER, owner INTEGER, target INTEGER, name TEXT, kind TEXT, line INTEGER, col INTEGER);
CREATE TABLE facts(name TEXT PRIMARY KEY, value TEXT);
"""
_INDEXES = """
CREATE INDEX IF NOT EXISTS symbols_by_name ON symbols(unit, name);
CREATE INDEX IF NOT EXISTS symbols_by_last ON symbols(last);
CREATE INDEX IF NOT EXISTS symbols_by_file ON symbols(file);
CREATE INDEX IF NOT EXISTS imports_by_target ON imports(target, target_name);
CREATE INDEX IF NOT EXISTS imports_by_alias ON imports(unit, alias);
CREATE INDEX IF NOT EXISTS imports_by_file ON imports(file);
CREATE INDEX IF NOT EXISTS uses_by_name ON uses(name, target);
CREATE INDEX IF NOT EXISTS uses_by_owner ON uses(file, owner);
"""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Built:
    """What a build did."""

    indexed: int
    unchanged: int
    deleted: int
    seconds: float


class _Parsed(NamedTuple):
    path: str
    hash: bytes
    source: Source | None  # None if the file is what it was


class Index:
    def __init__(self, root: Path, database: Path) -> None:
        self.root = root
        self.database = database
        self.building: tuple[int, int] | None = None  # files done, and of how many; at first of none
        self._lock = Lock()

    @property
    def is_built(self) -> bool:
        return self.fact("built") is not None

    def fact(self, name: str) -> str | None:
        if not self.database.exists():
            return None
        with self.open() as connection:
            if not _has_tables(connection):
                return None
            row = connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
            return None if row is None else str(row[0])

    @contextmanager
    def open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.database)) as connection:
            yield connection

    # -- building ---------------------------------------------------------------------------------------------

    def build(self, *, full: bool = False, progress: Progress | None = None) -> Built:
        """Bring the map up to date. A build that fails leaves it as it was."""
        with self._lock:
            started = time.monotonic()
            self.building = 0, 0
            try:
                self.database.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                with self.open() as connection:
                    connection.execute("PRAGMA journal_mode = WAL")
                    connection.execute("PRAGMA synchronous = OFF")  # it can always be built again
                    with connection:
                        connection.execute("BEGIN IMMEDIATE")
                        counts = self._update(connection, full, progress)
                return Built(*counts, round(time.monotonic() - started, 2))
            finally:
                self.building = None

    def _update(
        self, connection: sqlite3.Connection, full: bool, progress: Progress | None
    ) -> tuple[int, int, int]:
        if full or not _has_tables(connection):
            _create_tables(connection)
        listing = list_files(self.root)
        resolver = Resolver(self.root, listing)
        known = {
            path: (number, hashed, size, mtime)
            for number, path, hashed, size, mtime in connection.execute(
                "SELECT id, path, hash, size, mtime FROM files"
            )
        }
        gone = [path for path in known if path not in resolver.paths]
        came = resolver.paths - known.keys()
        connection.executemany("DELETE FROM files WHERE id = ?", [(known[path][0],) for path in gone])
        _forget(connection, [known[path][0] for path in gone])
        moved = self._moved(connection, resolver) if known and (gone or came) else set()
        hashes = {
            found.path: b"" if found.path in moved or found.path in came else known[found.path][1]
            for found in listing.files
            if found.path in came or found.path in moved or (found.size, found.mtime) != known[found.path][2:]
        }
        writer = _Writer(connection, listing, resolver)
        indexed = 0
        for done, parsed in enumerate(_parse_all(self.root, hashes), start=1):
            indexed += writer.write(parsed, known[parsed.path][0] if parsed.path in known else None)
            self.building = done, len(hashes)
            if progress is not None:
                progress(done, len(hashes))
        for statement in filter(str.strip, _INDEXES.split(";")):
            connection.execute(statement)
        facts = {"built": str(time.time()), "packages": "\n".join(listing.packages)}
        connection.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())
        return indexed, len(listing.files) - indexed, len(gone)

    def _moved(self, connection: sqlite3.Connection, resolver: Resolver) -> set[str]:
        """Return the files with an import that now leads to another file, or to one at last."""
        rows = connection.execute(
            "SELECT f.path, i.module, i.name, u.name FROM imports i JOIN files f ON f.id = i.file"
            " LEFT JOIN units u ON u.id = i.target"
        )
        return {
            path
            for path, module, name, unit in rows
            if (place[0] if (place := resolver.find(path, module, name)) else None) != unit
        }

    # -- freshness --------------------------------------------------------------------------------------------

    def state(self, connection: sqlite3.Connection, path: str) -> str:
        """Return whether a file is "fresh", or "changed" or "gone" since it was indexed; "" if it never was."""
        row = connection.execute("SELECT size, mtime, hash FROM files WHERE path = ?", (path,)).fetchone()
        if row is None:
            return ""
        try:
            stat = (self.root / path).stat()
            if (stat.st_size, stat.st_mtime_ns) == row[:2] or _hash((self.root / path).read_bytes()) == row[
                2
            ]:
                return "fresh"
        except OSError:
            return "gone"
        return "changed"

    def outdated(self, connection: sqlite3.Connection) -> tuple[int, int, int]:
        """Return how many files changed, were added and were deleted since the last build."""
        known = {str(path) for (path,) in connection.execute("SELECT path FROM files")}
        states = [self.state(connection, path) for path in known]
        added = {found.path for found in list_files(self.root).files} - known
        return states.count("changed"), len(added), states.count("gone")


class _Writer:
    """Stores what files say, with what their imports lead to."""

    def __init__(self, connection: sqlite3.Connection, listing: Listing, resolver: Resolver) -> None:
        self._connection = connection
        self._resolver = resolver
        self._packages = [package for package in listing.packages if package]
        self._found: dict[str, Found] = {found.path: found for found in listing.files}
        self._units: dict[str, int] = dict(connection.execute("SELECT name, id FROM units"))
        self._next_symbol = 1 + (connection.execute("SELECT max(id) FROM symbols").fetchone()[0] or 0)

    def write(self, parsed: _Parsed, number: int | None) -> bool:
        """Store a file; return False if it is only its time that changed."""
        execute = self._connection.execute
        path, source, found = parsed.path, parsed.source, self._found[parsed.path]
        if source is None:
            execute("UPDATE files SET size = ?, mtime = ? WHERE id = ?", (found.size, found.mtime, number))
            return False
        if number is not None:
            _forget(self._connection, [number])
        language = language_of(path)
        assert language is not None
        unit = self._unit(unit_of(path))
        facts = (
            path,
            language.name,
            unit,
            package_of(path, self._packages),
            parsed.hash,
            found.size,
            found.mtime,
        )
        row = execute(
            "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (number, *facts, source.problem),
        )
        file = row.lastrowid
        numbers = {"": 0}
        symbols = []
        for each in source.symbols:
            numbers[each.name] = self._next_symbol
            last = each.name.rpartition(".")[2]
            symbols.append((self._next_symbol, file, unit, each.name, last, *each[1:]))
            self._next_symbol += 1
        targets = [self._target(path, each.module, each.name) for each in source.imports]
        imports = [(file, unit, *each, *target) for each, target in zip(source.imports, targets, strict=True)]
        uses = []
        for owner, target, name, kind, line, col in source.uses:
            into = unit if target == HERE else 0
            if target not in (HERE, UNKNOWN):
                into, first = targets[target]
                name = ".".join(filter(None, (first, name)))
                if not into:
                    continue  # of a library
            uses.append((file, numbers[owner], into, name, kind, line, col))
        many = self._connection.executemany
        many("INSERT INTO symbols VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", symbols)
        many("INSERT INTO imports VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", imports)
        many("INSERT INTO uses VALUES (?, ?, ?, ?, ?, ?, ?)", uses)
        return True

    def _target(self, path: str, module: str, name: str) -> tuple[int, str]:
        place = self._resolver.find(path, module, name)
        return (0, name) if place is None else (self._unit(place[0]), place[1])

    def _unit(self, name: str) -> int:
        number = self._units.get(name)
        if number is None:
            number = self._units[name] = len(self._units) + 1
            self._connection.execute("INSERT INTO units VALUES (?, ?)", (number, name))
        return number


def _has_tables(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("PRAGMA user_version").fetchone()[0] == _VERSION)


def _create_tables(connection: sqlite3.Connection) -> None:
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        connection.execute(f"DROP TABLE {name}")
    for statement in filter(str.strip, _TABLES.split(";")):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {_VERSION}")


def _forget(connection: sqlite3.Connection, files: Iterable[int]) -> None:
    for file in files:
        for table in ("symbols", "imports", "uses"):
            connection.execute(f"DELETE FROM {table} WHERE file = ?", (file,))


def _parse_all(root: Path, hashes: dict[str, bytes]) -> Iterator[_Parsed]:
    parse = partial(_parse_file, str(root))
    if len(hashes) < _MANY:
        yield from map(parse, hashes, hashes.values())
        return
    # Fork is not safe in a server with threads.
    context = get_context("spawn")
    # Syntax trees have no cycles, so looking for some costs time and finds nothing.
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context, initializer=gc.disable) as pool:
        yield from pool.map(parse, hashes, hashes.values(), chunksize=25)


def _parse_file(root: str, path: str, known: bytes) -> _Parsed:
    language = language_of(path)
    assert language is not None
    try:
        data = Path(root, path).read_bytes()
    except OSError as error:
        return _Parsed(path, b"", Source(problem=f"it cannot be read: {error.strerror}"))
    hashed = _hash(data)
    if hashed == known:
        return _Parsed(path, hashed, None)
    if len(data) > LARGEST:
        return _Parsed(path, hashed, Source(problem=f"it is larger than {LARGEST:,} bytes"))
    return _Parsed(path, hashed, language.parse(data))


def _hash(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
