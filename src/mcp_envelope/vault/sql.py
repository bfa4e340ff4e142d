"""SQL over the tables of stored payloads.

Strategy: SQLite in memory. The tables that a question names are loaded once and kept for the next question, in a
cache with a bounded size. Each question gets a connection of its own that can read those tables and do nothing
else: no files, no other databases, no pragmas, no extensions. Its time is bounded by a thread that interrupts
SQLite, its memory by SQLite's own limits. A mistake is answered with the tables and columns that there are,
so that the next try is right.

SQLite takes an unknown name in double quotes for a text, which turns a misspelled column into a wrong answer
without a word. So such names are looked up here first.
"""

from __future__ import annotations

import itertools
import math
import re
import sqlite3
import statistics
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import msgspec
import re2  # type: ignore[import-untyped]

from ..fit.records import Columns, identifier, unique
from .document import StoredValue
from .limits import BadQuery, SearchLimits, TooCostly, printable
from .tables import LARGEST_INTEGER, Table, tables_in
from .vault import Stored, Vault

LIMITS: Final = SearchLimits(length=20_000)
_EXAMPLE: Final = "SELECT state, count(*) FROM tickets GROUP BY state"
_ADVICE: Final = "Aggregate, or add a LIMIT."
# Bytes of JSON: in one table, and in all that are kept loaded. SQLite itself may take twice as much.
_LARGEST: Final = 256 << 20
_KEPT: Final = 128 << 20
_HEAP: Final = 2 * (_LARGEST + _KEPT)
_MOST_KEPT: Final = 32
_IDLE: Final = 600.0
_MOST_ROWS: Final = 100_000
# SQLite can't join more databases than that.
_MOST_OTHERS: Final = 10
# Between two attempts to interrupt, as one does nothing where no statement runs.
_INTERRUPTING: Final = 0.1
_NAMED_COLUMNS: Final = 40
_ROW_NUMBER: Final = ("rowid", "oid", "_rowid_")
_NAMED_TABLES: Final = 8
_ALLOWED: Final = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
# json_patch() takes time that grows with the product of its arguments, and can't be interrupted.
_REFUSED_FUNCTIONS: Final = (
    "load_extension",
    "fts3_tokenizer",
    "readfile",
    "writefile",
    "edit",
    "json_patch",
)
# A pattern takes time that grows with the product of its length and the text's.
_LONGEST_PATTERN: Final = 100
_READABLE: Final = ("json_each", "json_tree", "sqlite_master", "sqlite_schema")
_HANDLE: Final = re.compile(r"[A-Za-z0-9]{20,43}")
# A comment, a text, a name in quotes, or a word.
_TOKEN: Final = re.compile(r"""--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|"(?:[^"]|"")*"|\w+|\S""", re.DOTALL)
# Integers up to here are exact as floats, too.
_EXACT: Final = 1 << 53
_MOST_DIGITS: Final = 1000
# Bytes: in one row of a result, whose values Python copies, and in what a function of ours gathers.
_LARGEST_ROW: Final = 64 << 20
_GATHERED: Final = 256 << 20
# A name with dots, or what only looks like one: a comment, a text, a name in quotes.
_DOTTED: Final = re.compile(
    r"""--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|"(?:[^"]|"")*"|(?<![\w."])\w+(?:\.\w+)+(?![\w."])""", re.DOTALL
)
_NAME: Final = re.compile(r'"(?:[^"]|"")*"|\w+')
# A column that is added up, or a text or a comment, where nothing is; and what SQLite takes for a number.
_ADDING: Final = re.compile(
    r"""--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|(?<![\w."])(?P<adding>sum|avg|total)\s*\(\s*(?P<distinct>distinct\s+)?"""
    r"""(?P<column>(?:"(?:[^"]|"")*"|\w+)(?:\s*\.\s*(?:"(?:[^"]|"")*"|\w+))*)\s*\)""",
    re.DOTALL | re.IGNORECASE,
)
_A_NUMBER: Final = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"
_names = itertools.count()


class Selection(NamedTuple):
    """What a query or a search finds in a payload, which then has the tables. Its name tells it from others."""

    name: str
    found: Callable[[], StoredValue]


class LoadedTables:
    """The tables of one payload, or of a selection from it, each loaded when a question first names it."""

    def __init__(self, stored: Stored, selection: Selection | None = None) -> None:
        root = stored.root() if selection is None else selection.found()
        self.tables = tables_in(root, blocks=selection is None and stored.entry.kind == "blocks")
        # A database in memory with a name, so that every question can have a connection of its own.
        self.address = f"file:/mcp-envelope-{next(_names)}?vfs=memdb"
        self._connection = sqlite3.connect(
            self.address, uri=True, isolation_level=None, check_same_thread=False
        )
        self._connection.executescript(f"PRAGMA journal_mode=OFF;PRAGMA hard_heap_limit={_HEAP}")
        self._lock = threading.Lock()
        self._column_types: dict[str, ColumnTypes] = {}
        # A selection is held in memory.
        self.size = 0 if selection is None else root.size
        # How many have it, how many of those are reading, and when the last question came.
        self.users = 0
        self.reading = 0
        self.used = 0.0
        self.broken = False

    def load(self, words: set[str], deadline: float) -> bool:
        """Load the tables among these words, to be read until `release`; False if others are reading.

        SQLite doesn't write to a database while it is read.
        """
        with self._lock:
            missing = [
                table
                for name, table in self.tables.items()
                if name.lower() in words and name not in self._column_types
            ]
            if missing and self.reading:
                return False
            for table in missing:
                self._load(table, deadline)
            self.reading += 1
            return True

    def release(self) -> None:
        with self._lock:
            self.reading -= 1

    def known(self) -> Iterator[str]:
        """The tables that are loaded, and a few others."""
        return iter({**dict.fromkeys(itertools.islice(self.tables, _NAMED_TABLES)), **self._column_types})

    def columns(self, name: str) -> tuple[str, ...]:
        types = self._column_types.get(name)
        return tuple(self.tables[name].sample() if types is None else types.columns)

    def kinds(self, column: str) -> set[type]:
        """The types of the values in the columns of this name, in all tables that are loaded."""
        return {kind for types in self._column_types.values() for kind in types.kinds.get(column, ())}

    def having(self, column: str) -> list[str]:
        """The tables that are loaded and have a column of this name."""
        return [name for name, types in self._column_types.items() if column.lower() in types.kinds]

    def _load(self, table: Table, deadline: float) -> None:
        if table.size > _LARGEST:
            size = f"{table.size >> 20} MB, and the limit for SQL is {_LARGEST >> 20} MB"
            raise TooCostly(f"refused, because the table {table.name} has {size}. Use grep or query instead.")
        types = ColumnTypes()
        cursor = self._connection.cursor()
        cursor.execute("BEGIN")
        try:
            _filled(cursor, table, types, deadline)
            cursor.execute("COMMIT")
        except BaseException:
            # Without a journal nothing can be undone.
            self.broken = True
            raise
        self._column_types[table.name] = types
        self.size += table.size

    def close(self) -> None:
        self._connection.close()


class ColumnTypes:
    """What the batches of a table have to agree on: its columns, their types, and which objects stay JSON.

    A column of numbers or of texts has a type, so that `id = '7'` and `zip = 90210` find what they mean; any other
    column has none, so that no value is changed.
    """

    def __init__(self) -> None:
        # The types of the values, by the columns' names in lower case, and what the columns were declared as.
        self.kinds: dict[str, set[type]] = {}
        self._declared: dict[str, tuple[str, str]] = {}
        self._long: set[str] = set()
        self._opened: set[str] = set()
        self.unopened: set[str] = set()

    @property
    def columns(self) -> list[str]:
        return [name for name, _ in self._declared.values()]

    def agrees(self, batch: Columns) -> bool:
        """Take note of more rows; whether the columns so far are right for them."""
        plain: set[str] = set()
        for name, values in batch.items():
            kinds = set(map(type, values)) - {type(None)}
            self.kinds.setdefault(name.lower(), set()).update(kinds)
            if int in kinds and max(abs(value) for value in values if type(value) is int) > _EXACT:
                self._long.add(name.lower())
            steps = name.split(".")
            self._opened |= {".".join(steps[:count]) for count in range(1, len(steps))}
            plain |= {name} if kinds else set()
        mixed = (plain & self._opened) - self.unopened
        self.unopened |= mixed
        return not mixed and all(kind in ("", self._type(name)) for name, (_, kind) in self._declared.items())

    def added(self, batch: Columns) -> list[str]:
        """The columns that are new in this batch, as SQL."""
        fresh = {name.lower(): name for name in batch if name.lower() not in self._declared}
        self._declared |= {lower: (name, self._type(lower)) for lower, name in fresh.items()}
        return [f"{_quoted(name)} {self._declared[lower][1]}" for lower, name in fresh.items()]

    def restart(self) -> None:
        self._declared.clear()

    def _type(self, name: str) -> str:
        kinds = self.kinds[name]
        if not kinds or name in map(str.lower, self.unopened):
            return ""
        if kinds == {str}:
            return "TEXT"
        if kinds <= {int, bool}:
            return "INTEGER"
        return "REAL" if kinds <= {int, float} and name not in self._long else ""


def _filled(cursor: sqlite3.Cursor, table: Table, types: ColumnTypes, deadline: float) -> None:
    """Load a table: in one pass if all batches have the types of the first, else again once they are known."""
    for is_known in (False, True):
        agrees = True
        numbers = itertools.count()
        for batch in table.batches(unopened=tuple(types.unopened)):
            agrees = types.agrees(batch) and agrees
            if agrees or is_known:
                _insert(cursor, table.name, batch, types, numbers)
            if time.monotonic() > deadline:
                raise TooCostly(f"stopped, because loading the table {table.name} takes too long.")
        if agrees:
            break
        if not is_known:
            types.restart()
            cursor.execute(f"DROP TABLE IF EXISTS {_quoted(table.name)}")


def _insert(
    cursor: sqlite3.Cursor, table: str, batch: Columns, types: ColumnTypes, numbers: Iterator[int]
) -> None:
    is_first = not types.columns
    fresh = types.added(batch)
    if is_first:
        cursor.execute(f"CREATE TABLE {_quoted(table)} ({', '.join(fresh)})")
    else:
        for column in fresh:
            cursor.execute(f"ALTER TABLE {_quoted(table)} ADD COLUMN {column}")
    # The first row has the number 0, as in a path, under a name that isn't a column's.
    taken = set(map(str.lower, types.columns))
    number = [name for name in _ROW_NUMBER if name not in taken][:1]
    names = [*number, *map(_quoted, batch)]
    insert = f"INSERT INTO {_quoted(table)} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    rows = zip(*([numbers] if number else []), *batch.values(), strict=False)
    cursor.executemany(insert, rows)


def _quoted(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


# -- loaded payloads ------------------------------------------------------------------------------------------

# The payload, when it was stored, and the selection from it.
_Key = tuple[str, float, str]
_loaded: OrderedDict[_Key, LoadedTables] = OrderedDict()
_loaded_lock = threading.Lock()


@contextmanager
def _database(
    stored: Stored, words: set[str], deadline: float, selection: Selection | None = None
) -> Iterator[LoadedTables]:
    """The payload's tables that are among the words, kept from the last question or loaded for this one."""
    key = stored.entry.key, stored.entry.created, selection.name if selection else ""
    database = _taken(key, stored, selection)
    try:
        if not database.load(words, deadline):
            _returned(key, database)
            database = _taken(key, stored, selection, fresh=True)
            database.load(words, deadline)
        try:
            yield database
        finally:
            database.release()
    finally:
        _returned(key, database)


def _taken(key: _Key, stored: Stored, selection: Selection | None, *, fresh: bool = False) -> LoadedTables:
    made = LoadedTables(stored, selection) if fresh or key not in _loaded else None
    with _loaded_lock:
        database = made or _loaded.get(key) or LoadedTables(stored, selection)
        _loaded[key] = database
        _loaded.move_to_end(key)
        database.users += 1
        database.used = time.monotonic()
    return database


def _returned(key: _Key, database: LoadedTables) -> None:
    with _loaded_lock:
        database.users -= 1
        if database.broken and _loaded.get(key) is database:
            _loaded.pop(key)
        if _loaded.get(key) is not database and not database.users:
            database.close()
        _make_room()


def _make_room() -> None:
    """Close what was not used for a while, and the least recently used until the rest is small enough."""
    total = sum(database.size for database in _loaded.values())
    for key, database in list(_loaded.items()):
        idle = time.monotonic() - database.used > _IDLE
        if not database.users and (idle or total > _KEPT or len(_loaded) > _MOST_KEPT):
            total -= database.size
            _loaded.pop(key).close()


# -- a question -----------------------------------------------------------------------------------------------


def run(
    vault: Vault,
    stored: Stored,
    text: str,
    owner: str | None = None,
    limits: SearchLimits = LIMITS,
    *,
    selection: Selection | None = None,
) -> bytes:
    """Return the rows that a SELECT gives, as a JSON list of objects.

    A table of another payload of the same owner is written `HANDLE.table`, and so is one of this payload if there
    is a selection from it.
    """
    if len(text) > limits.length:
        raise BadQuery(f"the SQL has {len(text):,} characters, and the limit is {limits.length:,}", text, 0)
    deadline = time.monotonic() + limits.seconds
    tokens = _tokens(text)
    words = {_bare(token[0]).lower() for token in tokens}
    with ExitStack() as stack:
        try:
            main = stack.enter_context(_database(stored, words, deadline, selection))
            handles = _handles(tokens, main)
            others = {
                name: stack.enter_context(_database(vault.open(name, owner), words, deadline))
                for name in dict.fromkeys(map(_of_token, handles))
            }
        except RecursionError:
            raise TooCostly("refused, because values are nested too deeply. Read pages instead.") from None
        except (sqlite3.Error, MemoryError) as error:
            what = printable(str(error))[:300]
            raise TooCostly(
                f"refused, because a table can't be loaded ({what}). Use query instead."
            ) from None
        if len(others) > _MOST_OTHERS:
            raise BadQuery(f"at most {_MOST_OTHERS} other results can be joined", text, 0)
        connection = stack.enter_context(
            closing(sqlite3.connect(main.address, uri=True, isolation_level=None))
        )
        question = _Question(connection, main, others, limits)
        stack.enter_context(_interrupting(connection, deadline))
        return question.answered(_with_handles_quoted(text, handles))


def _tokens(text: str) -> list[re.Match[str]]:
    """The tokens, without comments."""
    return [token for token in _TOKEN.finditer(text) if not token[0].startswith(("--", "/*"))]


def _handles(tokens: Sequence[re.Match[str]], main: LoadedTables) -> list[re.Match[str]]:
    """The handles in front of the names of tables: names that are nothing else here."""
    parts = ["", *(token[0] for token in tokens), ""]
    found: list[re.Match[str]] = []
    named: set[str] = set()
    for token, before, after in zip(tokens, parts, parts[2:], strict=False):
        if not _HANDLE.fullmatch(_bare(token[0])) or before == ".":
            continue
        if after == ".":
            found.append(token)
        else:
            named.add(_bare(token[0]).lower())
    if found:
        named |= {name.lower() for name in main.tables}
        # Objects in the records, whose columns may be written without quotes.
        columns = [column.lower() for name in main.known() for column in main.columns(name)]
        named |= {column.partition(".")[0] for column in columns}
    return [token for token in found if _of_token(token).lower() not in named]


def _of_token(token: re.Match[str]) -> str:
    return _bare(token[0])


def _with_handles_quoted(text: str, handles: Sequence[re.Match[str]]) -> str:
    """The SQL with handles in quotes, as one may begin with a digit."""
    for token in reversed(handles):
        text = text[: token.start()] + _quoted(_of_token(token)) + text[token.end() :]
    return text


def _with_long_integers(text: str) -> str:
    """The SQL with integers that SQLite would round as texts, as they are in the tables."""
    for token in reversed(_tokens(text)):
        if token[0].isdecimal() and len(token[0]) < _MOST_DIGITS and int(token[0]) > LARGEST_INTEGER:
            text = f"{text[: token.start()]}'{token[0]}'{text[token.end() :]}"
    return text


@contextmanager
def _interrupting(connection: sqlite3.Connection, deadline: float) -> Iterator[None]:
    """End a question at its deadline. A handler that SQLite calls as it goes doesn't: it counts instructions, of
    which one may be a call of `hex` that takes as long as 100,000 others."""
    done = threading.Event()

    def watch() -> None:
        if not done.wait(deadline - time.monotonic()):
            with suppress(sqlite3.ProgrammingError):
                connection.interrupt()
                while not done.wait(_INTERRUPTING):
                    connection.interrupt()

    watcher = threading.Thread(target=watch, name="mcp-envelope-sql", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


class _Question:
    """One SELECT, on a connection that can do nothing else."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        main: LoadedTables,
        others: Mapping[str, LoadedTables],
        limits: SearchLimits,
    ) -> None:
        self._connection = connection
        self._databases = {"": main, **others}
        self._limits = limits
        # What one of our own functions had to complain about: SQLite only says that there was something.
        self._complaint = ""
        # SQLite makes these tables on first use, which the connection may not do later.
        connection.execute("SELECT 1 FROM json_each('[]'), json_tree('[]')").close()
        for name, database in others.items():
            connection.execute(f"ATTACH ? AS {_quoted(name)}", (database.address,))
        # Nothing is written to temporary files.
        connection.execute("PRAGMA temp_store=MEMORY")
        connection.execute("PRAGMA query_only=1")
        self._limit(connection)
        self._add_functions(connection)
        connection.set_authorizer(self._allowed)

    def _limit(self, connection: sqlite3.Connection) -> None:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, self._limits.whole)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.setlimit(sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 100)
        connection.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 200)
        connection.setlimit(sqlite3.SQLITE_LIMIT_VDBE_OP, 1_000_000)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, _LONGEST_PATTERN)

    def _allowed(
        self, action: int, first: str | None, second: str | None, schema: str | None, inside: str | None
    ) -> int:
        if action == sqlite3.SQLITE_READ:
            database = self._databases.get("" if schema in (None, "main") else str(schema))
            is_ours = database is not None and any(first == name for name in database.tables)
            return sqlite3.SQLITE_OK if is_ours or first in _READABLE or not second else sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_FUNCTION and str(second).lower() in _REFUSED_FUNCTIONS:
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY

    def answered(self, text: str) -> bytes:
        while True:
            self._check_names(text)
            try:
                return self._rows(_with_long_integers(self._with_booleans(self._with_numbers(text))))
            except sqlite3.OperationalError as error:
                # A column with a dot in its name is easily written without quotes.
                missing = re.fullmatch(r"no such column: (\S+\.\S+)", str(error))
                quoted = self._with_quotes(text, missing[1] if missing else "")
                if quoted == text:
                    raise self._explained(error, text) from None
                text = quoted
            except (sqlite3.Error, sqlite3.Warning, MemoryError, OverflowError, UnicodeError) as error:
                raise self._explained(error, text) from None

    def _with_quotes(self, text: str, missing: str) -> str:
        """The SQL with quotes around the name of a column that is missing, and around others that begin like it
        and can only be such names; if none is missing, around those with too many dots for anything else."""
        known = self._all_columns()
        first = missing.partition(".")[0]

        def spelled(match: re.Match[str]) -> str:
            name = match[0]
            before, _, rest = name.partition(".")
            alike = before == first and rest.lower() not in known
            if name[0] in "-/'\"" or not (name == missing or alike or (not missing and name.count(".") > 2)):
                return name
            # What is before it may be the table's.
            table, column = "", name
            while column.lower() not in known and "." in column:
                before, _, column = column.partition(".")
                table += f"{before}."
            return table + _quoted(column) if "." in column else name

        return _DOTTED.sub(spelled, text)

    def _with_booleans(self, text: str) -> str:
        """The SQL with `urgent = 'true'` as `urgent = true`, which would never be so otherwise."""
        tokens = _tokens(text)
        words = [token[0] for token in tokens]
        parts: list[str] = []
        at = 0
        for index, token in enumerate(tokens):
            if not _is_boolean(token[0]):
                continue
            before = index - 1
            while before >= 0 and (words[before].lower() in _COMPARING or _is_boolean(words[before])):
                before -= 1
            after = index + 1
            while after < len(words) and words[after] in "=!<>":
                after += 1
            while after + 2 < len(words) and words[after + 1] == ".":
                after += 2
            compared = [
                words[place]
                for place in (before, after)
                if 0 <= place < len(words) and abs(place - index) > 1
            ]
            if any(self._kinds(_bare(name)) == {bool} for name in compared):
                parts += [text[at : token.start()], token[0].strip("'")]
                at = token.end()
        return "".join([*parts, text[at:]])

    def _with_numbers(self, text: str) -> str:
        """The SQL with a check of what is added up, where a column has texts that aren't numbers.

        SQLite takes each of them for 0, which gives a wrong mean without a word.
        """

        def checked(match: re.Match[str]) -> str:
            name = ".".join(map(_bare, _NAME.findall(match["column"] or "")))
            columns = (name, name.partition(".")[2])
            if not any(str in self._kinds(column) and self._has_words(column) for column in columns):
                return match[0]
            return f"{match['adding']}({match['distinct'] or ''}only_numbers({match['column']}))"

        return _ADDING.sub(checked, text)

    def _has_words(self, column: str) -> bool:
        """Whether a text in a column of this name is no number."""
        for prefix, database in self._databases.items():
            for table in database.having(column):
                place, value = f"{_quoted(prefix or 'main')}.{_quoted(table)}", _quoted(column)
                asked = (
                    f"SELECT 1 FROM {place} WHERE typeof({value}) = 'text' AND {value} NOT REGEXP ? LIMIT 1"
                )
                if self._connection.execute(asked, (_A_NUMBER,)).fetchone() is not None:
                    return True
        return False

    def _kinds(self, column: str) -> set[type]:
        return {kind for database in self._databases.values() for kind in database.kinds(column.lower())}

    def _rows(self, text: str) -> bytes:
        # The more columns, the shorter the values, because Python gets a copy of a whole row at once.
        if not _tokens(text):
            raise BadQuery("it contains no SELECT", text, 0, _EXAMPLE, self._there())
        # Texts in it may be no UTF-8.
        self._connection.text_factory = bytes
        program = self._connection.execute(f"EXPLAIN {text}").fetchall()
        self._connection.text_factory = str
        wide = max((step[3] for step in program if step[1] == b"ResultRow"), default=0)
        if not wide:
            raise BadQuery(
                "only a single SELECT over the tables is allowed", text, 0, _EXAMPLE, self._there()
            )
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(self._limits.whole, _LARGEST_ROW // wide))
        cursor = self._connection.execute(text)
        taken: set[str] = set()
        names = [unique(str(column[0]), taken) for column in cursor.description]
        rows: list[bytes] = []
        size = 0
        for row in cursor:
            rows.append(msgspec.json.encode(dict(zip(names, row, strict=True))))
            size += len(rows[-1])
            if len(rows) > _MOST_ROWS or size > self._limits.result:
                raise TooCostly(f"stopped, because it gives more than {len(rows) - 1:,} rows. {_ADVICE}")
        return b"[%b]" % b",".join(rows)

    # -- mistakes -------------------------------------------------------------------------------------------

    def _all_columns(self) -> set[str]:
        return {
            column.lower()
            for database in self._databases.values()
            for name in database.known()
            for column in database.columns(name)
        }

    def _check_names(self, text: str) -> None:
        """Raise for a name in double quotes that nothing has."""
        tokens = _tokens(text)
        quoted = [token for token in tokens if token[0].startswith('"')]
        if not quoted:
            return
        known = self._all_columns() | {"rowid"} | {name.lower() for name in self._databases}
        known |= {name.lower() for database in self._databases.values() for name in database.tables}
        # Whatever is defined in the SQL itself follows another word: an alias, with or without AS, or a CTE.
        for before, token in itertools.pairwise(tokens):
            if before[0].lower() in ("as", "with", "recursive", ")") or re.match(r'["\w]', before[0]):
                if before[0].lower() not in _KEYWORDS:
                    known.add(_bare(token[0]).lower())
        for token in quoted:
            name = _bare(token[0])
            if name.lower() not in known:
                what = f"there is no table or column {printable(name)[:60]!r}, and strings take single quotes"
                raise BadQuery(what, text, token.start(), hint=self._there())

    def _explained(self, error: BaseException, text: str) -> BadQuery | TooCostly:
        what = printable(self._complaint or str(error))[:300]
        if "interrupted" in what:
            seconds = f"{self._limits.seconds:g} seconds"
            return TooCostly(f"stopped, because it takes more than {seconds}. {_ADVICE}")
        if isinstance(error, MemoryError) or "out of memory" in what or "too big" in what or "full" in what:
            return TooCostly(f"stopped, because it needs too much memory. {_ADVICE}")
        if any(each in what for each in ("authoriz", "prohibited", "readonly", "one statement")):
            what = f"only a single SELECT over the tables is allowed ({what})"
        near = re.search(r'near "(.+?)"|no such \w+: (\S+)', what)
        at = text.find(near[1] or near[2]) if near else 0
        return BadQuery(what, text, max(at, 0), hint=self._there())

    def _there(self) -> str:
        """What can be asked about."""
        shown: list[str] = []
        for prefix, database in self._databases.items():
            for name in database.known():
                columns = [*map(identifier, database.columns(name))]
                more = ", …" if len(columns) > _NAMED_COLUMNS else ""
                table = f"{prefix}.{identifier(name)}" if prefix else identifier(name)
                shown.append(f"{table}({', '.join(columns[:_NAMED_COLUMNS])}{more})")
        return f"Tables: {'; '.join(shown)}" if shown else "There are no tables in this result."

    # -- functions ------------------------------------------------------------------------------------------

    def _add_functions(self, connection: sqlite3.Connection) -> None:
        for name, compute in _AGGREGATES.items():
            for count in (1, 2) if name == "quantile" else (1,):
                connection.create_aggregate(name, count, self._aggregate(name, compute))
        for name, count, function in _FUNCTIONS:
            connection.create_function(name, count, self._reporting(name, function), deterministic=True)

    def _reporting(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            # As in SQLite's own functions, but for those that take a NULL for something.
            if arguments[0] is None or (None in arguments and name not in ("printf", "format", "quantile")):
                return None
            try:
                return function(*arguments)
            except (ValueError, TypeError, ArithmeticError) as error:
                self._complaint = f"{name}(): {error}"
                raise

        return call

    def _aggregate(self, name: str, compute: Callable[[list[Any], float], Any]) -> Any:
        reporting = self._reporting(name, compute)

        class Aggregate:
            def __init__(self) -> None:
                self.values: list[Any] = []
                self.share = 0.5
                self.held = 0

            def step(self, value: Any, share: Any = 0.5) -> None:
                if value is not None:
                    self.values.append(value)
                    self.held += len(value) + 60 if isinstance(value, str | bytes) else 40
                    if self.held > _GATHERED:
                        raise MemoryError
                self.share = share

            def finalize(self) -> Any:
                return None if self.held > _GATHERED else reporting(self.values or None, self.share)

        return Aggregate


# Words that are followed by an expression, where a name in quotes can't be an alias.
_KEYWORDS: Final = frozenset(
    re.findall(
        r"\w+",
        "select where and or not by on having when then else case between in like limit offset distinct all from "
        "join is null end glob regexp order group union intersect except values collate escape",
    )
)


# What stands between a column and a value that it is compared with.
_COMPARING: Final = ("=", "!", "<", ">", "is", "not", "in", "(", ",")


def _is_boolean(token: str) -> bool:
    return token.lower() in ("'true'", "'false'")


def _bare(token: str) -> str:
    return token[1:-1].replace('""', '"') if token.startswith('"') else token


# -- what SQLite lacks ----------------------------------------------------------------------------------------


def _numbers(values: list[Any]) -> list[Any]:
    wrong = next((value for value in values if not isinstance(value, int | float)), None)
    if wrong is not None:
        raise ValueError(f"takes numbers, not {printable(str(wrong))[:40]!r}")
    return values


def _quantile(values: list[Any], share: Any) -> float:
    """Interpolated, as in most other databases."""
    if not isinstance(share, int | float) or not 0 <= share <= 1:
        raise ValueError("the second argument must be a number from 0 to 1")
    ordered = sorted(_numbers(values))
    place = (len(ordered) - 1) * share
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    between = ordered[below] + (ordered[above] - ordered[below]) * (place - below)
    return ordered[below] if below == place else float(between)


def _deviation(values: list[Any], share: float) -> float | None:
    # That of `statistics` is exact, and takes ten times as long.
    if len(_numbers(values)) < 2:
        return None
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


_AGGREGATES: Final[dict[str, Callable[[list[Any], Any], Any]]] = {
    "median": lambda values, share: statistics.median(_numbers(values)),
    "mode": lambda values, share: Counter(values).most_common(1)[0][0],
    "quantile": _quantile,
    "stddev": _deviation,
}
_DATE: Final = re.compile(r"(\d{4})[-/](\d\d)(?:[-/](\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d))?)?)?")
_PARTS: Final = ("year", "month", "day", "hour", "minute", "second")


def _date_part(part: str, value: Any) -> int | None:
    wanted = str(part).lower()
    if wanted not in (*_PARTS, "weekday", "quarter"):
        raise ValueError(f"the parts of a date are {', '.join(_PARTS)}, weekday and quarter")
    found = _DATE.match(str(value))
    if found is None:
        return None
    if wanted == "weekday":
        import datetime

        try:
            return datetime.date(int(found[1]), int(found[2]), int(found[3] or 1)).isoweekday()
        except ValueError:
            return None
    if wanted == "quarter":
        return (int(found[2]) + 2) // 3
    number = found[_PARTS.index(wanted) + 1]
    return None if number is None else int(number)


@lru_cache(64)
def _pattern(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        raise ValueError(reason.decode() if isinstance(reason, bytes) else str(reason)) from None


def _matches(value: Any, pattern: Any) -> bool:
    return _pattern(str(pattern)).search(str(value)) is not None


# SQLite's own versions of these take time that grows with the product of their arguments, and can't be interrupted.
_LONGEST_WIDTH: Final = re.compile(r"%[^a-zA-Z%]*?(\*|[0-9]{4})")
_MOST_TRIMMED: Final = 100


def _only_numbers(value: Any) -> Any:
    if isinstance(value, str) and not _matches(value, _A_NUMBER):
        advice = "filter texts out with WHERE, or convert them: CAST(replace(x, '$', '') AS REAL)"
        raise ValueError(f"{printable(value)[:40]!r} is not a number; {advice}")
    return value


def _printf(form: Any, *values: Any) -> str:
    if _LONGEST_WIDTH.search(str(form)):
        raise ValueError("widths have at most three digits")
    plain = re.sub(r"(%[^a-zA-Z%]*?),", r"\1", str(form))
    return plain % tuple(_NULL if value is None else value for value in values)


class _Null:
    """What a NULL is in `printf`: no text, and no number but 0."""

    def __str__(self) -> str:
        return ""

    def __int__(self) -> int:
        return 0

    def __float__(self) -> float:
        return 0.0


_NULL: Final = _Null()


def _trimmed(strip: Callable[[str, str], str]) -> Callable[[Any, Any], str]:
    def trim(value: Any, characters: Any) -> str:
        if len(str(characters)) > _MOST_TRIMMED:
            raise ValueError(f"trims at most {_MOST_TRIMMED} characters")
        return strip(str(value), str(characters))

    return trim


_FUNCTIONS: Final[tuple[tuple[str, int, Callable[..., Any]], ...]] = (
    ("regexp_matches", 2, _matches),
    # `value REGEXP pattern` calls it with the pattern first.
    ("regexp", 2, lambda pattern, value: _matches(value, pattern)),
    ("only_numbers", 1, _only_numbers),
    ("date_part", 2, _date_part),
    *((part, 1, partial(_date_part, part)) for part in (*_PARTS, "weekday", "quarter")),
    ("instr", 2, lambda value, sought: str(value).find(str(sought)) + 1),
    ("replace", 3, lambda value, old, new: str(value).replace(str(old), str(new)) if old else value),
    ("printf", -1, _printf),
    ("format", -1, _printf),
    ("trim", 2, _trimmed(str.strip)),
    ("ltrim", 2, _trimmed(str.lstrip)),
    ("rtrim", 2, _trimmed(str.rstrip)),
)
