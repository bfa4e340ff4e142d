"""The ledger: what was done, call by call, and never a payload."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from mcp_envelope import Failure, seal
from mcp_envelope.vault import ledger as module
from mcp_envelope.vault.ledger import Ledger, LedgerEntry
from mcp_envelope.vault.sqlite import SQLiteStore
from mcp_envelope.vault.vault import Vault

SECRET = "what nobody should find in a ledger"
ROWS = {"items": [{"id": number, "text": SECRET} for number in range(500)]}


def test_calls_are_noted_with_their_sizes(tmp_path: Path) -> None:
    vault = Vault(SQLiteStore(tmp_path / "vault.db"))
    sealed = seal(ROWS, tokens=500, vault=vault.of(None))
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.record(LedgerEntry.of(sealed, "search", client="tester 1.0", tool_ms=12.5, seal_ms=1.5))
    ledger.record(LedgerEntry.of(seal({"a": 1}), "small"))
    ledger.record(LedgerEntry.of(seal(Failure("NOT_FOUND", "no")), "search", client="tester 1.0"))
    ledger.close()
    failed, small, cut = Ledger(tmp_path / "ledger.db").calls()
    assert (cut.tool, cut.client, cut.dialect, cut.stored, cut.tool_ms) == (
        "search",
        "tester 1.0",
        "native",
        True,
        12.5,
    )
    assert cut.after <= 500 < cut.before
    assert cut.bytes_after < cut.bytes_before == sealed.payload_size
    assert cut.cuts == 1
    assert cut.saved == cut.before - cut.after > 0
    assert (small.tool, small.stored, small.cuts, small.saved, small.code) == ("small", False, 0, 0, "")
    assert failed.code == "NOT_FOUND"
    for path in tmp_path.glob("ledger*"):
        assert SECRET.encode() not in path.read_bytes()
    vault.close()


def test_half_a_character_in_a_name_loses_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    for tool in ("before", "half \ud83d", "after"):
        ledger.record(LedgerEntry.of(seal({"a": 1}), tool))
    ledger.flush()
    assert [call.tool for call in ledger.calls()] == ["after", "half ?", "before"]
    ledger.close()


def test_totals(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    now = time.time()
    for tool, before, after in (("a", 100, 50), ("a", 10, 10), ("b", 1000, 100)):
        ledger.record(
            LedgerEntry(
                at=now,
                tool=tool,
                before=before,
                after=after,
                cuts=before > after,
                bytes_before=before,
                bytes_after=after,
            )
        )
    ledger.record(LedgerEntry(at=now - 1000, tool="old", unit="bytes", before=4000, after=400, cuts=1))
    ledger.flush()
    (everything,) = ledger.totals(since=now - 1)
    assert (everything.calls, everything.cut, everything.tokens_saved) == (3, 2, 950)
    assert [(total.group, total.calls, total.tokens_saved) for total in ledger.totals("tool", now - 1)] == [
        ("b", 1, 900),
        ("a", 2, 50),
    ]
    assert {total.group for total in ledger.totals("tool")} == {"a", "b", "old"}
    (day,) = {total.group for total in ledger.totals("day", now - 1)}
    assert day == time.strftime("%Y-%m-%d", time.gmtime(now))
    ledger.close()


def test_calls_are_written_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_DELAY", 0.02)
    ledger, other = Ledger(tmp_path / "ledger.db"), Ledger(tmp_path / "ledger.db")
    ledger.record(LedgerEntry(at=time.time(), tool="a"))
    until = time.monotonic() + 5
    while not other.calls() and time.monotonic() < until:
        time.sleep(0.01)
    assert [call.tool for call in other.calls()] == ["a"]
    ledger.close()
    other.close()


def test_many_threads(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")

    def work() -> None:
        for _ in range(400):
            ledger.record(LedgerEntry(at=time.time(), tool="t"))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledger.flush()
    (total,) = ledger.totals()
    assert total.calls == 1600
    ledger.close()


def test_a_ledger_that_cannot_be_written_fails_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(os.urandom(5000))
    ledger = Ledger(path)
    for _ in range(3):
        ledger.record(LedgerEntry(at=1.0, tool="a"))
        ledger.flush()
    ledger.close()
    assert len([record for record in caplog.records if "not counted" in record.message]) == 1


def test_old_calls_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEPT", 5)
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.record(LedgerEntry(at=time.time() - 40 * 24 * 3600, tool="ancient"))
    for number in range(10):
        ledger.record(LedgerEntry(at=time.time(), tool=f"t{number}"))
    ledger.flush()
    assert [call.tool for call in ledger.calls()] == ["t9", "t8", "t7", "t6", "t5"]
    ledger.close()
