"""What the envelope did, call by call, without payloads: tool, client, sizes before and after, time.

Strategy: a call is noted in memory and written a moment later with others, in one transaction, by a thread of
its own; so it costs a call microseconds. A process that is killed loses the last second. If the ledger cannot be
written the log says so once: it never makes a call fail. Old calls are deleted after thirty days, or when there
are very many.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from ..dialects.notice import READ_TOOL
from ..state_files import state_folder
from .sqlite import Database
from .store import StoreError

if TYPE_CHECKING:
    from ..envelope import Sealed

_log = logging.getLogger("mcp_envelope")

_VERSION: Final = 4
_SCHEMA: Final = """
CREATE TABLE calls (
  id INTEGER PRIMARY KEY,
  at REAL NOT NULL,
  tool TEXT NOT NULL,
  client TEXT NOT NULL,
  server TEXT NOT NULL,
  dialect TEXT NOT NULL,
  unit TEXT NOT NULL,
  bytes_before INTEGER NOT NULL,
  bytes_after INTEGER NOT NULL,
  before INTEGER NOT NULL,
  after INTEGER NOT NULL,
  budget INTEGER NOT NULL,
  cuts INTEGER NOT NULL,
  stored INTEGER NOT NULL,
  code TEXT NOT NULL,
  tool_ms REAL,
  seal_ms REAL,
  observed INTEGER NOT NULL,
  result TEXT NOT NULL
) ;;
CREATE INDEX by_time ON calls (at) ;;
CREATE INDEX by_result ON calls (result) WHERE result <> ''
"""
_KEPT_FOR: Final = 30 * 24 * 3600.0
_KEPT: Final = 200_000
_DELAY: Final = 1.0
_FULL: Final = 500
By = Literal["tool", "client", "server", "dialect", "code", "day"]
_GROUPS: Final[dict[By, str]] = {
    "tool": "tool",
    "client": "client",
    "server": "server",
    "dialect": "dialect",
    "code": "code",
    "day": "date(at, 'unixepoch')",
}


# A server may have a tool of that name, too.
_IS_READ: Final = f"tool = '{READ_TOOL}' AND calls.result <> ''"
# A read is counted where its result came from, if that is still in the ledger.
_TOTALS: Final = f"""
WITH reads AS (
  SELECT result, count(*) AS times, sum(CASE unit WHEN 'tokens' THEN after ELSE after / 4 END) AS tokens
  FROM calls WHERE {_IS_READ} GROUP BY result
)
SELECT $group, count(*), coalesce(sum(cuts > 0), 0), coalesce(sum(code <> ''), 0),
  coalesce(sum(stored), 0), count(reads.result), coalesce(sum(reads.times), 0), coalesce(sum(reads.tokens), 0),
  coalesce(sum(bytes_before), 0), coalesce(sum(bytes_after), 0),
  coalesce(sum(CASE unit WHEN 'tokens' THEN before ELSE before / 4 END), 0) AS whole,
  coalesce(sum(CASE unit WHEN 'tokens' THEN after ELSE after / 4 END), 0) AS shown
FROM calls LEFT JOIN reads ON calls.stored AND reads.result = calls.result
WHERE at >= ? AND observed = ? AND NOT ({_IS_READ}) GROUP BY 1
ORDER BY whole - shown DESC, 1
"""


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """One call. `before` and `after` are in `unit`; tokens before a cut are extrapolated from a part of it."""

    at: float
    tool: str
    client: str = ""
    server: str = ""
    dialect: str = "native"
    unit: str = "tokens"
    bytes_before: int = 0
    bytes_after: int = 0
    before: int = 0
    after: int = 0
    # The limit on a lane; 0 if the result went out as it came.
    budget: int = 0
    cuts: int = 0
    stored: bool = False
    code: str = ""
    # How long the tool took, and how long the envelope did, in milliseconds.
    tool_ms: float | None = None
    seal_ms: float | None = None
    # Whether the result went out as it came, and the sizes are what would have been.
    observed: bool = False
    # Tells stored results apart: the one that this call stored or, for a call of `envelope_read`, read.
    result: str = ""

    @property
    def saved(self) -> int:
        return self.before - self.after

    @classmethod
    def of(cls, sealed: Sealed, tool: str, **known: Any) -> LedgerEntry:
        """The entry of a sealed result; what else is `known` are further fields."""
        report = sealed.report
        after = max(len(sealed.content), len(sealed.structured or b""))
        return cls(
            at=time.time(),
            tool=tool,
            unit=report.unit,
            bytes_before=max(sealed.payload_size, after) if sealed.truncated else after,
            bytes_after=after,
            before=report.total,
            after=report.used,
            budget=report.limit,
            cuts=len(sealed.cuts),
            stored=sealed.handle is not None,
            result=digest(sealed.handle),
            code=sealed.problem.code if sealed.problem else "",
            **known,
        )


def digest(handle: object) -> str:
    """Return what stands for a handle, which itself would open the result to whoever reads the ledger."""
    return blake2b(handle.encode(), digest_size=6).hexdigest() if isinstance(handle, str) and handle else ""


class Total(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Sums over calls. Calls of `envelope_read` count as what they read back, not among `calls`."""

    group: str
    calls: int
    cut: int
    failed: int
    # Results that were stored, and how many of them somebody read again.
    stored: int
    read: int
    # Calls of `envelope_read`, and what their answers cost.
    reads: int
    tokens_read: int
    bytes_before: int
    bytes_after: int
    tokens_before: int
    tokens_after: int

    @property
    def tokens_saved(self) -> int:
        """What the model did not get, less what it read back."""
        return self.tokens_before - self.tokens_after - self.tokens_read

    def as_json(self) -> dict[str, Any]:
        return {**msgspec.to_builtins(self), "tokensSaved": self.tokens_saved}


class Ledger:
    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._database = Database(path or state_folder() / "ledger.db", b"MCPl", _SCHEMA, _VERSION)
        self.place = str(self._database.path)
        self._lock = threading.Lock()
        self._waiting: list[LedgerEntry] = []
        self._timer: threading.Timer | None = None
        self._broken = False
        self._pruned = 0.0

    def record(self, call: LedgerEntry) -> None:
        """Note a call; it is written a moment later."""
        with self._lock:
            self._waiting.append(call)
            full = len(self._waiting) >= _FULL
            if self._timer is None and not full:
                self._timer = threading.Timer(_DELAY, self.flush)
                self._timer.daemon = True
                self._timer.start()
        if full:
            self.flush()

    def flush(self) -> None:
        with self._lock:
            calls, self._waiting = self._waiting, []
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        if not calls:
            return
        rows: list[tuple[Any, ...]] = list(map(msgspec.structs.astuple, calls))
        try:
            msgspec.msgpack.encode(calls)
        except (
            UnicodeEncodeError
        ):  # half a surrogate pair in a name would keep the whole batch from being written
            rows = [tuple(map(_writable, row)) for row in rows]
        try:
            with self._database.writing() as connection:
                marks = ", ".join("?" * len(LedgerEntry.__struct_fields__))
                names = ", ".join(LedgerEntry.__struct_fields__)
                connection.executemany(f"INSERT INTO calls ({names}) VALUES ({marks})", rows)
                if time.time() - self._pruned > 3600:
                    self._pruned = time.time()
                    connection.execute("DELETE FROM calls WHERE at < ?", (time.time() - _KEPT_FOR,))
                    connection.execute(
                        "DELETE FROM calls WHERE id <= (SELECT max(id) FROM calls) - ?", (_KEPT,)
                    )
        except StoreError as error:
            if not self._broken:
                _log.warning("mcp-envelope: calls are not counted: %s", error)
            self._broken = True
        else:
            self._broken = False

    def calls(self, most: int = 100, since: float = 0.0) -> list[LedgerEntry]:
        """The last calls, newest first."""
        return [call for _, call in self.numbered(most, since=since)]

    def numbered(
        self, most: int = 100, *, since: float = 0.0, after: int = 0, before: int = 1 << 62
    ) -> list[tuple[int, LedgerEntry]]:
        """The same with their numbers, which grow; only those between two of them."""
        names = ", ".join(LedgerEntry.__struct_fields__)
        with self._database.reading() as connection:
            rows = connection.execute(
                f"SELECT id, {names} FROM calls WHERE at >= ? AND id > ? AND id < ? ORDER BY id DESC LIMIT ?",
                (since, after, before, most),
            ).fetchall()
        calls = [
            (row[0], LedgerEntry(**dict(zip(LedgerEntry.__struct_fields__, row[1:], strict=True))))
            for row in rows
        ]
        return [
            (number, msgspec.structs.replace(call, stored=bool(call.stored), observed=bool(call.observed)))
            for number, call in calls
        ]

    def totals(self, by: By | None = None, since: float = 0.0, *, observed: bool = False) -> Sequence[Total]:
        """Sums since a time, of everything or by something: what saved most first, or days in order.

        Calls that were merely `observed` are summed apart: nothing was saved. A ledger isn't created just to be
        looked at.
        """
        if not os.path.exists(self.place):
            return []
        group = "''" if by is None else _GROUPS[by]
        with self._database.reading() as connection:
            rows = connection.execute(_TOTALS.replace("$group", group), (since, observed)).fetchall()
        found = [Total(**dict(zip(Total.__struct_fields__, row, strict=True))) for row in rows]
        return sorted(found, key=lambda total: total.group) if by == "day" else found

    def close(self) -> None:
        self.flush()
        self._database.close()


def _writable(value: object) -> object:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
