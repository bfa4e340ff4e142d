"""What every store must do, on real ones: a SQLite file and a Valkey server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_envelope.outcome import Failure
from mcp_envelope.payload import Payload, new_handle, read_payload
from mcp_envelope.vault.sqlite import SQLiteStore
from mcp_envelope.vault.store import Damaged, Entry, Gone, Store, StoreError
from mcp_envelope.vault.valkey import ValkeyStore
from mcp_envelope.vault.vault import Vault, key_of

from .valkey_server import Server, running_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture(params=["sqlite", "valkey"])
def make(request: pytest.FixtureRequest, tmp_path: Path, server: Server) -> Iterator[_Make]:
    made = _Make(request.param, tmp_path, server)
    yield made
    for store in made.made:
        store.close()


class _Make:
    """Stores that share what they keep, as two processes would."""

    def __init__(self, kind: str, folder: Path, server: Server) -> None:
        self.kind = kind
        self.made: list[Store] = []
        self._folder = folder
        self._server = server

    def __call__(self, cap: int = 1 << 30) -> Store:
        store: Store
        if self.kind == "sqlite":
            store = SQLiteStore(self._folder / "vault.db", cap=cap)
        else:
            store = ValkeyStore(self._server.url, cap=cap, prefix=self._folder.name)
        self.made.append(store)
        return store


def put(store: Store, name: str, blobs: list[bytes], ttl: float = 60, index: bytes = b"way") -> Entry:
    now = time.time()
    entry = Entry(
        key=key_of(name, None),
        handle=name,
        kind="json",
        size=sum(map(len, blobs)),
        stored=sum(map(len, blobs)),
        blobs=len(blobs),
        created=now,
        expires=now + ttl,
        tool="search",
        index=index,
    )
    with store.write(entry.key, entry.expires) as writing:
        writing.add(blobs)
        writing.commit(entry)
    return entry


def test_what_is_put_can_be_read(make: _Make) -> None:
    store = make()
    blobs = [bytes([number]) * (number * 1000 + 1) for number in range(50)]
    entry = put(store, "one", blobs)
    found = make().entry(entry.key)
    assert isinstance(found, Entry)
    assert (found.handle, found.kind, found.size, found.blobs, found.tool) == (
        "one",
        "json",
        entry.size,
        50,
        "search",
    )
    assert found.index == b"way"
    assert abs(found.expires - entry.expires) < 0.01
    assert store.blobs(entry.key, [7, 3, 49]) == [blobs[7], blobs[3], blobs[49]]


def test_nothing_is_seen_before_the_commit(make: _Make) -> None:
    store, other = make(), make()
    key = key_of("two", None)
    with store.write(key, time.time() + 60) as writing:
        # Enough to be written in several goes.
        for _ in range(3):
            writing.add([b"x" * (3 << 20)])
        assert other.entry(key) is None
        assert list(other.entries()) == []
    assert other.entry(key) is None
    assert other.stats().entries == 0
    # The same key can be written again.
    put(store, "two", [b"a"])
    assert isinstance(other.entry(key), Entry)


def test_an_unknown_key(make: _Make) -> None:
    store = make()
    assert store.entry(key_of("nobody", None)) is None
    assert not store.delete(key_of("nobody", None))
    with pytest.raises(Damaged):
        store.blobs(key_of("nobody", None), [0])


def test_what_is_deleted_is_remembered(make: _Make) -> None:
    store = make()
    entry = put(store, "three", [b"abc"])
    assert store.delete(entry.key)
    gone = make().entry(entry.key)
    assert isinstance(gone, Gone)
    assert gone.fate == "deleted"
    assert not store.delete(entry.key)
    with pytest.raises(Damaged):
        store.blobs(entry.key, [0])


def test_what_has_expired_is_remembered(make: _Make) -> None:
    store = make()
    entry = put(store, "four", [b"abc"], ttl=1.0)
    assert isinstance(store.entry(entry.key), Entry)
    time.sleep(1.0)
    gone = make().entry(entry.key)
    assert isinstance(gone, Gone)
    assert gone.fate == "expired"
    store.sweep()
    assert list(store.entries()) == []
    assert store.stats().entries == 0
    assert isinstance(store.entry(entry.key), Gone)


def test_the_oldest_make_room(make: _Make) -> None:
    store = make(cap=10_000)
    entries = [put(store, f"five{number}", [b"%d" % number * 3000]) for number in range(5)]
    kept = [entry.handle for entry in store.entries()]
    assert kept == ["five4", "five3", "five2"][: len(kept)]
    assert len(kept) >= 2
    gone = store.entry(entries[0].key)
    assert isinstance(gone, Gone)
    assert gone.fate == "evicted"
    assert store.stats().stored <= 10_000


def test_more_than_all_that_may_be_held(make: _Make) -> None:
    store = make(cap=10_000)
    old = put(store, "old", [b"x"])
    with pytest.raises(StoreError, match=r"(larger|more) than"):
        put(store, "six", [b"x" * 6000, b"y" * 6000])
    assert store.entry(key_of("six", None)) is None
    # And nobody had to make room for what didn't come.
    assert isinstance(store.entry(old.key), Entry)


def test_the_account(make: _Make) -> None:
    store = make()
    put(store, "a", [b"x" * 100])
    put(store, "b", [b"x" * 200])
    stats = make().stats()
    assert (stats.entries, stats.size) == (2, 300)
    assert stats.stored >= 300
    assert [entry.handle for entry in store.entries()] == ["b", "a"]
    assert all(entry.index == b"" for entry in store.entries())
    assert store.purge() == 2
    assert make().stats().entries == 0
    assert make().stats().stored == 0


def test_many_at_once(make: _Make) -> None:
    store = make()
    wrong: list[str] = []

    def work(number: int) -> None:
        blobs = [f"{number}-{blob}".encode() * 500 for blob in range(20)]
        for turn in range(5):
            entry = put(store, f"t{number}-{turn}", blobs)
            if store.blobs(entry.key, range(20)) != blobs:
                wrong.append(entry.handle)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert store.stats().entries == 40


# -- through the vault --------------------------------------------------------------------------------------


def payload(text: str = "hello") -> Payload:
    return read_payload({"text": text})


def test_handles_of_others_are_unknown(make: _Make) -> None:
    vault = Vault(make())
    handle = new_handle()
    assert vault.keep(handle, payload(), owner="alice") is None
    assert b"".join(vault.open(handle, "alice").stream()) == b'{"text":"hello"}'
    said = []
    for owner in ("bob", None, ""):
        with pytest.raises(Failure) as failure:
            vault.open(handle, owner)
        said.append((str(failure.value), failure.value.problem))
    with pytest.raises(Failure) as never_was:
        vault.open(new_handle(), "bob")
    assert {problem.code for _, problem in said} == {"HANDLE_UNKNOWN"}
    # Word for word the same, but for the handle that was asked for.
    other = str(never_was.value)
    assert said[0][0].replace(handle, "…") == other.replace(other.split("'")[1], "…")
    # Nor can somebody else delete it.
    assert not vault.delete(handle, "bob")
    vault.delete(handle, "alice")
    with pytest.raises(Failure) as still_unknown:
        vault.open(handle, "bob")
    assert still_unknown.value.problem == said[0][1]


@pytest.mark.parametrize("way", ["deleted", "expired", "evicted"])
def test_each_way_to_go_has_its_code(make: _Make, way: str) -> None:
    store = make(cap=10_000)
    vault = Vault(store, ttl=0.2 if way == "expired" else 60)
    handle = new_handle()
    assert vault.keep(handle, payload()) is None
    if way == "deleted":
        vault.delete(handle)
    elif way == "expired":
        time.sleep(0.3)
    else:
        for number in range(4):
            put(store, f"newer{number}", [bytes([number]) * 4000])
    with pytest.raises(Failure) as failure:
        vault.open(handle)
    assert failure.value.problem.code == ("HANDLE_DELETED" if way == "deleted" else "HANDLE_EXPIRED")
    assert failure.value.problem.hint


def test_a_large_payload_comes_back_exactly(make: _Make) -> None:
    vault = Vault(make())
    data = b"[" + b",".join([b'{"n":%d,"text":"%d"}' % (n, n * 7919) for n in range(300_000)]) + b"]"
    handle = new_handle()
    assert vault.keep(handle, read_payload(data)) is None
    stored = vault.open(handle)
    assert b"".join(stored.stream()) == data
    assert bytes(stored.root().find("/299999").raw()) == b'{"n":299999,"text":"%d"}' % (299999 * 7919)
    assert stored.entry.size == len(data)
    assert stored.entry.stored < len(data) / 2
