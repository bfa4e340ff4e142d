"""The default vault under fire: killed writers, many processes, damaged, full, locked and read-only files."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_envelope import seal
from mcp_envelope.dialects.notice import META_KEY
from mcp_envelope.payload import new_handle, read_payload
from mcp_envelope.vault import sqlite
from mcp_envelope.vault.ledger import Ledger, LedgerEntry
from mcp_envelope.vault.read_tool import read
from mcp_envelope.vault.sqlite import SQLiteStore
from mcp_envelope.vault.store import DamagedFile, Entry, StoreError
from mcp_envelope.vault.vault import Vault, key_of

ROWS = {"items": [{"id": number, "text": f"row {number} " * 5} for number in range(2000)]}

# Stores payloads of its own for ever and says which ones are in.
WRITER = """
import sys, itertools
from mcp_envelope.payload import read_payload
from mcp_envelope.vault.sqlite import SQLiteStore
from mcp_envelope.vault.vault import Vault
vault = Vault(SQLiteStore(sys.argv[1]))
size, most = int(sys.argv[3]), int(sys.argv[4])
for number in itertools.islice(itertools.count(), most):
    handle = f"{sys.argv[2]}-{number}"
    problem = vault.keep(handle, read_payload([f"{handle}:{at}" for at in range(size)]))
    print(handle if problem is None else f"! {problem}", flush=True)
"""


def writer(path: Path, name: str, size: int, most: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), name, str(size), str(most)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def sealed_with(vault: Vault) -> dict[str, Any]:
    result: dict[str, Any] = seal(ROWS, tokens=500, vault=vault.of(None)).to_result()
    return result


def test_a_killed_writer_leaves_whole_payloads_only(tmp_path: Path) -> None:
    path = tmp_path / "vault.db"
    generator = random.Random(7)
    said: list[str] = []
    for turn in range(6):
        # About 15 MB each, which takes several transactions.
        process = writer(path, f"w{turn}", 700_000 if turn % 2 else 2_000, 1000)
        assert process.stdout is not None
        said.append(process.stdout.readline().strip())
        time.sleep(generator.uniform(0, 0.15))
        os.kill(process.pid, signal.SIGKILL)
        rest, _ = process.communicate()
        said += rest.split("\n")[:-1]
    store = SQLiteStore(path)
    vault = Vault(store)
    there = {entry.handle for entry in store.entries()}
    assert {handle for handle in said if handle} <= there
    for handle in there:
        items = json.loads(b"".join(vault.open(handle).stream()))
        assert items == [f"{handle}:{at}" for at in range(len(items))]
        assert len(items) in (700_000, 2_000)
    (rows,) = store._database.connection().execute("PRAGMA integrity_check").fetchone()
    assert rows == "ok"
    store.close()


def test_what_a_killed_writer_left_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SQLiteStore(tmp_path / "vault.db")
    writing = store.write("a" * 32, time.time() + 60)
    writing.add([b"x" * (5 << 20)])
    connection = store._database.connection()
    assert connection.execute("SELECT count(*) FROM blobs").fetchone() == (1,)
    store.sweep()
    assert connection.execute("SELECT count(*) FROM blobs").fetchone() == (1,), "it may still be alive"
    monkeypatch.setattr(sqlite, "_ABANDONED", -1.0)
    store.sweep()
    assert connection.execute("SELECT count(*) FROM blobs").fetchone() == (0,)
    # Should it be alive after all, it is told, and nobody ever sees half of it.
    with pytest.raises(StoreError, match="swept away"):
        writing.add([b"x" * (5 << 20)])
    store.close()


def test_a_slow_writer_is_not_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch says that it is alive, so it may take longer than a writer may be silent."""
    store = SQLiteStore(tmp_path / "vault.db")
    began = time.time()
    now = [began]
    monkeypatch.setattr(sqlite, "time", SimpleNamespace(time=lambda: now[0], monotonic=time.monotonic))
    handle, blobs = new_handle(), [b"x" * (5 << 20)]
    with store.write(key_of(handle, None), began + 90_000) as writing:
        for _ in range(4):
            writing.add(blobs)
            now[0] += 3000
            store.sweep()
        entry = Entry(
            key=key_of(handle, None),
            handle=handle,
            kind="text",
            size=1,
            stored=1,
            blobs=4,
            created=began,
            expires=began + 90_000,
        )
        writing.commit(entry)
    assert store.blobs(entry.key, range(4)) == blobs * 4
    store.close()


def test_ten_processes_share_one_file(tmp_path: Path) -> None:
    path = tmp_path / "vault.db"
    processes = [writer(path, f"p{number}", 3000, 8) for number in range(10)]
    outputs = [process.communicate(timeout=60)[0].split() for process in processes]
    assert [len(output) for output in outputs] == [8] * 10, outputs
    store = SQLiteStore(path)
    assert store.stats().entries == 80
    store.close()


def test_files_are_private(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "mcp-envelope"
    store = SQLiteStore(folder / "vault.db")
    assert sealed_with(Vault(store))["_meta"][META_KEY]["handle"]
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert modes["vault.db"] == 0o600
    assert set(modes.values()) == {0o600}, modes
    assert folder.stat().st_mode & 0o777 == 0o700
    store.close()


def test_a_file_that_others_could_read_is_made_private(tmp_path: Path) -> None:
    path = tmp_path / "vault.db"
    path.touch(0o644)
    path.chmod(0o644)
    store = SQLiteStore(path)
    store.stats()
    assert path.stat().st_mode & 0o777 == 0o600
    store.close()


def _damaged(path: Path) -> None:
    path.write_bytes(b"this is not a database at all " * 1000)


def _damaged_inside(path: Path) -> None:
    store = SQLiteStore(path)
    for _ in range(20):
        Vault(store).keep(new_handle(), read_payload(ROWS))
    store._database.connection().execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.close()
    data = bytearray(path.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    path.write_bytes(data)


def _folder(path: Path) -> None:
    path.mkdir()


def _below_a_file(path: Path) -> None:
    path.parent.rmdir()
    path.parent.write_text("a file where a folder should be")


def _newer(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()


@pytest.mark.parametrize("ruin", [_damaged, _damaged_inside, _folder, _below_a_file, _newer])
def test_a_vault_that_cannot_be_used_never_fails_a_call(tmp_path: Path, ruin: Any) -> None:
    path = tmp_path / "room" / "vault.db"
    path.parent.mkdir()
    ruin(path)
    store = SQLiteStore(path)
    result = sealed_with(Vault(store))
    said = result["structuredContent"]["_envelope"]
    assert "handle" not in said
    assert "The rest was not kept" in said["note"]
    (warning,) = said["warnings"]
    assert "was not stored" in warning
    assert "vault.db" in warning
    assert "not isError" not in result
    # And reading says so, with a code; where the file is stays in the log.
    sealed = read(Vault(store), {"handle": "abc"})
    assert sealed.problem is not None
    assert sealed.problem.code == "VAULT_UNAVAILABLE"
    assert str(tmp_path) not in sealed.to_json().decode()
    store.close()


def test_a_damaged_file_can_be_purged(tmp_path: Path) -> None:
    path = tmp_path / "vault.db"
    _damaged_inside(path)
    store = SQLiteStore(path)
    with pytest.raises(DamagedFile):
        list(store.entries())
    store.purge()
    assert "handle" in sealed_with(Vault(store))["structuredContent"]["_envelope"]
    store.close()


def _another_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE notes (text)")
    connection.commit()
    connection.close()


def _ledger(path: Path) -> None:
    ledger = Ledger(path)
    ledger.record(LedgerEntry(at=1.0, tool="x"))
    ledger.close()


@pytest.mark.parametrize("make", [_damaged, _another_database, _newer, _ledger])
def test_a_file_of_somebody_else_stays_as_it_is(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "vault.db"
    make(path)
    path.chmod(0o644)
    before = path.read_bytes()
    store = SQLiteStore(path)
    for use in (store.stats, store.purge, store.sweep, lambda: list(store.entries())):
        with pytest.raises(StoreError, match=r"was not made by mcp-envelope \(.+\); name another file"):
            use()
    assert "handle" not in sealed_with(Vault(store))["structuredContent"]["_envelope"]
    store.close()
    assert path.read_bytes() == before
    assert path.stat().st_mode & 0o777 == 0o644
    assert [each.name for each in tmp_path.iterdir()] == ["vault.db"]


def test_a_full_disk(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "vault.db")
    vault = Vault(store)
    kept = sealed_with(vault)["_meta"][META_KEY]["handle"]
    connection = store._database.connection()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 1}")
    problem = vault.keep(new_handle(), read_payload(os.urandom(200_000).hex()))
    assert problem is not None
    assert "free some space" in problem
    assert store.stats().entries == 1
    assert json.loads(b"".join(vault.open(kept).stream())) == ROWS
    store.close()


def _few_bytes() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    script = """
import os, sys
from mcp_envelope import seal
from mcp_envelope.vault.sqlite import SQLiteStore
from mcp_envelope.vault.vault import Vault
vault = Vault(SQLiteStore(sys.argv[1]))
sealed = seal({"text": os.urandom(500_000).hex()}, tokens=500, vault=vault.of(None))
print(sealed.to_json().decode())
"""
    ran = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "vault.db")],
        capture_output=True,
        text=True,
        preexec_fn=_few_bytes,
        check=True,
    )
    said = json.loads(ran.stdout)["structuredContent"]["_envelope"]
    assert "handle" not in said
    assert "was not stored" in said["warnings"][0]


def test_a_locked_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "_PATIENCE", 0.05)
    path = tmp_path / "vault.db"
    store = SQLiteStore(path)
    kept = sealed_with(Vault(store))["_meta"][META_KEY]["handle"]
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    said = sealed_with(Vault(store))["structuredContent"]["_envelope"]
    assert "handle" not in said
    assert "locked" in said["warnings"][0]
    # Reading goes on meanwhile.
    assert json.loads(b"".join(Vault(store).open(kept).stream())) == ROWS
    other.execute("ROLLBACK")
    other.close()
    assert "handle" in sealed_with(Vault(store))["structuredContent"]["_envelope"]
    store.close()


@pytest.mark.parametrize("statements", [("BEGIN", "SELECT 1 FROM sqlite_master"), ("BEGIN IMMEDIATE",)])
def test_a_file_that_is_locked_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statements: Sequence[str]
) -> None:
    """Somebody reads a file that is to be switched to WAL, or writes to it."""
    path = tmp_path / "vault.db"
    other = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        other.execute(statement).fetchone()
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            other.close()

    monkeypatch.setattr(time, "sleep", pause)
    assert "handle" in sealed_with(Vault(SQLiteStore(path)))["structuredContent"]["_envelope"]
    # Whoever has waited longer tries more often.
    assert len(pauses) == 3
    assert pauses == sorted(pauses, reverse=True)


def test_many_threads_that_begin_at_once(tmp_path: Path) -> None:
    vault = Vault(SQLiteStore(tmp_path / "vault.db"))
    together = threading.Barrier(12)

    def one(_: int) -> dict[str, Any]:
        together.wait()
        return sealed_with(vault)["structuredContent"]["_envelope"]  # type: ignore[no-any-return]

    with ThreadPoolExecutor(12) as pool:
        notices = list(pool.map(one, range(12)))
    assert all("handle" in notice for notice in notices)
    vault.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind this user")
def test_a_read_only_file(tmp_path: Path) -> None:
    path = tmp_path / "vault.db"
    store = SQLiteStore(path)
    kept = sealed_with(Vault(store))["_meta"][META_KEY]["handle"]
    store.close()
    path.chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        store = SQLiteStore(path)
        assert "handle" not in sealed_with(Vault(store))["structuredContent"]["_envelope"]
        assert kept
        store.close()
    finally:
        tmp_path.chmod(0o700)


def test_a_read_only_database(tmp_path: Path) -> None:
    """What a read-only file system makes of it, shown by SQLite's own switch."""
    store = SQLiteStore(tmp_path / "vault.db")
    kept = sealed_with(Vault(store))["_meta"][META_KEY]["handle"]
    store._database.connection().execute("PRAGMA query_only = ON")
    said = sealed_with(Vault(store))["structuredContent"]["_envelope"]
    assert "handle" not in said
    assert "cannot be written" in said["warnings"][0]
    assert json.loads(b"".join(Vault(store).open(kept).stream())) == ROWS
    store.close()


def test_a_blob_that_was_changed_is_noticed(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "vault.db")
    vault = Vault(store)
    handle = new_handle()
    vault.keep(handle, read_payload(ROWS))
    connection = store._database.connection()
    connection.execute("UPDATE blobs SET data = zeroblob(100) WHERE id % 1048576 = 1")
    sealed = read(vault, {"handle": handle, "path": "/items", "offset": 1500})
    assert sealed.problem is not None
    assert sealed.problem.code == "HANDLE_DAMAGED"
    connection.execute("DELETE FROM blobs WHERE id % 1048576 = 1")
    sealed = read(vault, {"handle": handle, "path": "/items", "offset": 1500})
    assert sealed.problem is not None
    assert sealed.problem.code == "HANDLE_DAMAGED"
    store.close()


def test_a_full_disk_can_be_purged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SQLiteStore(tmp_path / "vault.db")
    sealed_with(Vault(store))

    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(sqlite, "_let_go", full)
    assert store.purge() == 1
    assert not list(tmp_path.iterdir())
    assert store.stats().entries == 0
    store.close()


def _no_bytes() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def test_where_nothing_can_be_written_everything_can_be_deleted(tmp_path: Path) -> None:
    path = tmp_path / "vault.db"
    store = SQLiteStore(path)
    for _ in range(5):
        Vault(store).keep(new_handle(), read_payload(ROWS))
    store.close()
    ran = subprocess.run(
        [sys.executable, "-m", "mcp_envelope", "vault", "purge", "--yes", "--vault", str(path)],
        capture_output=True,
        text=True,
        preexec_fn=_no_bytes,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "")
    assert ran.stderr.startswith(("deleted: 5 results", "removed: "))
    assert not path.exists()


def test_the_file_shrinks_when_its_payloads_are_gone(tmp_path: Path) -> None:
    path = tmp_path / "vault.db"
    store = SQLiteStore(path)
    vault = Vault(store)
    for _ in range(5):
        vault.keep(new_handle(), read_payload(os.urandom(1_000_000).hex()))
    store._database.connection().execute("PRAGMA wal_checkpoint(TRUNCATE)")
    full = path.stat().st_size
    store.purge()
    assert path.stat().st_size < full / 4
    store.close()


def test_after_a_fork_the_child_has_connections_of_its_own(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "vault.db")
    mine = store._database.connection()
    reader, teller = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(teller, b"same" if store._database.connection() is mine else b"other")
        os._exit(0)
    os.close(teller)
    assert os.read(reader, 10) == b"other"
    os.close(reader)
    os.waitpid(child, 0)
    store.close()


def test_after_a_fork_the_child_waits_for_no_thread_of_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_PATIENCE", 1.0)
    vault = Vault(SQLiteStore(tmp_path / "vault.db"))
    sealed_with(vault)
    reader, teller = os.pipe()
    with vault.store._database._turn():  # type: ignore[attr-defined]
        child = os.fork()
        if child == 0:
            os.write(teller, b"stored" if "handle" in sealed_with(vault)["_meta"][META_KEY] else b"lost")
            os._exit(0)
    os.close(teller)
    assert os.read(reader, 10) == b"stored"
    os.close(reader)
    os.waitpid(child, 0)
    vault.close()


def test_others_know_that_the_file_is_in_use(tmp_path: Path) -> None:
    """Closing a descriptor of the file takes all locks of the process away: nobody may do that while it is open."""
    path = tmp_path / "vault.db"
    vault = Vault(SQLiteStore(path))
    kept = [new_handle() for _ in range(30)]
    script = (
        "import sys; from mcp_envelope.vault.sqlite import SQLiteStore\n"
        "store = SQLiteStore(sys.argv[1]); print(store.stats().entries); store.close()"
    )
    for turn, handle in enumerate(kept):
        # More than one thread, so more than one connection, and somebody else who only looks and goes away.
        thread = threading.Thread(target=vault.keep, args=(handle, read_payload({"turn": turn})))
        with vault.store._database.reading():  # type: ignore[attr-defined]
            thread.start()
            thread.join()
        if turn % 10 == 5:
            seen = subprocess.run([sys.executable, "-c", script, str(path)], check=True, capture_output=True)
            assert int(seen.stdout) == turn + 1
    vault.close()
    other = Vault(SQLiteStore(path))
    assert [json.loads(b"".join(other.open(handle).stream())) for handle in kept] == [
        {"turn": turn} for turn in range(30)
    ]
    (rows,) = other.store._database.connection().execute("PRAGMA integrity_check").fetchone()  # type: ignore[attr-defined]
    assert rows == "ok"
    other.close()


def test_threads_that_come_and_go_leave_no_files_open(tmp_path: Path) -> None:
    vault = Vault(SQLiteStore(tmp_path / "vault.db"))
    vault.keep(new_handle(), read_payload({"a": 1}))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(40):
        thread = threading.Thread(target=vault.keep, args=(new_handle(), read_payload({"a": 1})))
        thread.start()
        thread.join()
    assert len(os.listdir("/proc/self/fd")) <= before + 10
    vault.close()


def test_a_file_that_was_deleted_is_made_anew(tmp_path: Path) -> None:
    vault = Vault(SQLiteStore(tmp_path / "vault.db"))
    assert vault.keep(new_handle(), read_payload({"a": 1})) is None
    for path in tmp_path.iterdir():
        path.unlink()
    handle = new_handle()
    assert vault.keep(handle, read_payload({"a": 2})) is None
    other = Vault(SQLiteStore(tmp_path / "vault.db"))
    assert b"".join(other.open(handle).stream()) == b'{"a":2}'
    vault.close()
    other.close()


def test_a_newcomer_is_not_evicted_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SQLiteStore(tmp_path / "vault.db", cap=150_000)
    vault = Vault(store)
    assert vault.keep(new_handle(), read_payload(os.urandom(50_000).hex())) is None
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() - 3600)
    handle = new_handle()
    assert vault.keep(handle, read_payload(os.urandom(90_000).hex())) is None
    assert vault.open(handle).entry.size == 180_000
    store.close()


def test_a_path_that_cannot_be_one(tmp_path: Path) -> None:
    problem = Vault(SQLiteStore(str(tmp_path) + "/a\0b")).keep(new_handle(), read_payload({"a": 1}))
    assert problem is not None
    assert "cannot use" in problem
