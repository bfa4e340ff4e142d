"""The store on a Valkey server, against a real one: alone, as a node of a cluster, failing in every way."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mcp_envelope.vault import valkey, valkey_client
from mcp_envelope.vault.store import REMEMBERED, Damaged, Entry, Gone, Store, StoreError
from mcp_envelope.vault.valkey import ValkeyStore

from .relay import certificate, running_relay
from .valkey_server import Server, running_server

_numbers = itertools.count()
_LARGE = [bytes([number % 251]) * 60_000 for number in range(80)]


def entry_of(
    key: str,
    blobs: Sequence[bytes],
    *,
    ttl: float = 60,
    created: float | None = None,
    index: bytes = b"",
) -> Entry:
    now = time.time()
    size = sum(map(len, blobs))
    return Entry(
        key=key,
        handle=f"handle of {key}",
        kind="json",
        size=size * 3,
        stored=size + len(index),
        blobs=len(blobs),
        created=now if created is None else created,
        expires=now + ttl,
        tool="search",
        index=index,
    )


def put(store: Store, key: str, blobs: Sequence[bytes] = (b"one", b"two"), **facts: Any) -> Entry:
    entry = entry_of(key, blobs, **facts)
    with store.write(key, entry.expires) as writing:
        writing.add(blobs)
        writing.commit(entry)
    return entry


def read(store: Store, key: str) -> list[bytes]:
    entry = store.entry(key)
    assert isinstance(entry, Entry)
    return store.blobs(key, range(entry.blobs))


def fate(store: Store, key: str) -> str:
    gone = store.entry(key)
    assert isinstance(gone, Gone)
    return gone.fate


def wait_for(happens: Callable[[], object]) -> None:
    until = time.monotonic() + 10
    while not happens():
        assert time.monotonic() < until
        time.sleep(0.01)


def names(server: Server, prefix: str = "") -> list[str]:
    with contextlib.closing(server.client()) as client:
        return sorted(key.decode() for key in client.scan_iter(f"{prefix}*", count=1000))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("alone")) as server:
        yield server


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("node"), "--cluster-enabled", "yes") as server:
        yield server


class Place:
    """A server to itself, as far as a store can tell: keys of one test have their own prefix."""

    def __init__(self, server: Server, url: str) -> None:
        self.server = server
        self.url = url
        self.prefix = f"test-{next(_numbers)}"
        self._stores: list[ValkeyStore] = []

    def store(self, cap: int = 1 << 30) -> ValkeyStore:
        self._stores.append(ValkeyStore(self.url, cap=cap, prefix=self.prefix))
        return self._stores[-1]

    def names(self) -> list[str]:
        return names(self.server, f"{self.prefix}:")

    def close(self) -> None:
        for store in self._stores:
            store.close()


# A node of a cluster refuses each command that mixes slots, so all of this also shows that none does.
@pytest.fixture(params=["alone", "cluster"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    cluster = request.param == "cluster"
    server: Server = request.getfixturevalue("node" if cluster else "alone")
    place = Place(server, server.url + ("?cluster=true" if cluster else ""))
    yield place
    place.close()


@pytest.fixture
def lone(alone: Server) -> Iterator[Place]:
    place = Place(alone, alone.url)
    yield place
    place.close()


# What every store does


def test_what_is_put_is_read_back(place: Place) -> None:
    store = place.store()
    blobs = [b"", b"\x00\xff\r\n", *_LARGE]
    entry = put(store, "k", blobs, index=b"\x00outline" * 40_000)
    assert store.entry("k") == entry
    assert read(store, "k") == blobs
    assert store.blobs("k", [3, 0, 3]) == [blobs[3], b"", blobs[3]]
    assert store.blobs("k", []) == []
    # Another replica sees the same.
    assert place.store().entry("k") == entry


def test_many_small_blobs(place: Place) -> None:
    store = place.store()
    blobs = [b"%d" % number for number in range(5000)]
    put(store, "k", blobs)
    assert read(store, "k") == blobs


def test_a_payload_may_have_no_blobs(place: Place) -> None:
    store = place.store()
    put(store, "k", [], index=b"o")
    assert read(store, "k") == []
    assert [entry.key for entry in store.entries()] == ["k"]


def test_nothing_is_visible_before_commit_and_nothing_is_left_without(place: Place) -> None:
    store, other = place.store(), place.store()
    with store.write("k", time.time() + 60) as writing:
        writing.add(_LARGE)
        assert place.names(), "a part is with the server"
        assert other.entry("k") is None
        assert list(other.entries()) == []
        with pytest.raises(Damaged):
            other.blobs("k", [0])
    assert place.names() == []


def test_unknown(place: Place) -> None:
    store = place.store()
    assert store.entry("k") is None
    assert store.delete("k") is False
    assert store.entry("k") is None, "a key that never was leaves no tombstone"
    with pytest.raises(Damaged):
        store.blobs("k", [0])
    put(store, "k")
    with pytest.raises(Damaged):
        store.blobs("k", [0, 2])


def test_the_server_lets_go_of_what_has_expired(place: Place) -> None:
    store = place.store()
    put(store, "stays")
    entry = put(store, "k", ttl=0.15)
    wait_for(lambda: not isinstance(store.entry("k"), Entry))
    assert store.entry("k") == Gone("expired", entry.expires)
    assert [known.key for known in store.entries()] == ["stays"]
    assert [key for key in place.names() if "{k}" in key] == [f"{place.prefix}:{{k}}:fate"]
    with contextlib.closing(place.server.client()) as client:
        left = client.pttl(f"{place.prefix}:{{k}}:fate") / 1000
    assert REMEMBERED - 60 < left <= REMEMBERED
    assert store.delete("k") is False
    assert store.sweep() == 1
    assert store.sweep() == 0
    assert store.stats().entries == 1


def test_all_keys_have_an_end(place: Place) -> None:
    store = place.store()
    put(store, "k")
    put(store, "gone")
    store.delete("gone")
    assert len(place.names()) == 3 + 1 + 3
    with contextlib.closing(place.server.client()) as client:
        assert all(client.pttl(key) > 0 for key in place.names())
        # The blobs end no sooner than the entry.
        ends = [
            client.execute_command("PEXPIRETIME", f"{place.prefix}:{{k}}:{part}")
            for part in ("entry", "blobs")
        ]
    assert ends[0] <= ends[1]


def test_an_entry_that_is_expired_at_once(place: Place) -> None:
    store = place.store()
    put(store, "k", ttl=-5)
    assert fate(store, "k") == "expired"
    assert store.stats().entries == 0


def test_delete(place: Place) -> None:
    store = place.store()
    put(store, "k", _LARGE)
    put(store, "other")
    before = time.time()
    assert store.delete("k") is True
    gone = store.entry("k")
    assert isinstance(gone, Gone)
    assert gone.fate == "deleted"
    assert before <= gone.at <= time.time()
    assert store.delete("k") is False
    with pytest.raises(Damaged, match="gone"):
        store.blobs("k", [0])
    assert [key for key in place.names() if "{k}" in key] == [f"{place.prefix}:{{k}}:fate"]
    assert store.stats().entries == 1
    # It may come again.
    put(store, "k", [b"again"])
    assert read(store, "k") == [b"again"]


def test_the_oldest_make_room(place: Place) -> None:
    store = place.store(cap=1000)
    now = time.time()
    for key, created in (("b", now - 20), ("c", now - 10), ("a", now - 30)):
        put(store, key, [b"x" * 150] * 2, created=created)
    assert [entry.key for entry in store.entries()] == ["c", "b", "a"]
    put(store, "d", [b"x" * 500], created=now)
    assert [fate(store, key) for key in "ab"] == ["evicted", "evicted"]
    assert [entry.key for entry in store.entries()] == ["d", "c"]
    assert read(store, "c") == [b"x" * 150] * 2
    stats = store.stats()
    assert (stats.entries, stats.stored, stats.size, stats.cap) == (2, 800, 2400, 1000)
    assert stats.oldest == pytest.approx(now - 10)
    assert stats.newest == pytest.approx(now)
    assert not [key for key in place.names() if "{a}" in key and not key.endswith(":fate")]


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valkey, "WINDOW", 3)


@pytest.mark.usefixtures("small_windows")
def test_more_than_one_window_makes_room(place: Place) -> None:
    store = place.store(cap=100)
    for number in range(10):
        put(store, f"k{number}", [b"x" * 10], created=number)
    assert [entry.key for entry in store.entries()] == [f"k{number}" for number in reversed(range(10))]
    put(store, "large", [b"x" * 90])
    assert [entry.key for entry in store.entries()] == ["large", "k9"]
    assert store.stats().stored == 100


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("count", [6, 10])
def test_more_than_one_window_expires(place: Place, count: int) -> None:
    store = place.store()
    keys = [f"k{number}" for number in range(count)]

    def put_and_expire() -> None:
        for key in keys:
            put(store, key)
        # As if their time were over, so that nobody has to wait for it.
        with contextlib.closing(place.server.client()) as client:
            client.zadd(f"{place.prefix}:{{account}}:ends", dict.fromkeys(keys, time.time() - 1), xx=True)

    put_and_expire()
    assert store.sweep() == count
    put_and_expire()
    assert store.stats().entries == 0
    assert store.sweep() == 0


def test_the_index_counts(place: Place) -> None:
    store = place.store(cap=1000)
    put(store, "a", [b"x" * 400], created=1)
    put(store, "b", [b"x" * 400], index=b"o" * 300, created=2)
    assert [entry.key for entry in store.entries()] == ["b"]


def test_what_has_expired_makes_room_first(place: Place) -> None:
    store = place.store(cap=1000)
    put(store, "old", [b"x" * 300], created=1)
    put(store, "short", [b"x" * 600], ttl=0.1)
    wait_for(lambda: not isinstance(store.entry("short"), Entry))
    put(store, "new", [b"x" * 600])
    assert [entry.key for entry in store.entries()] == ["new", "old"]
    assert fate(store, "short") == "expired"


def test_larger_than_the_cap(place: Place) -> None:
    store = place.store(cap=1000)
    put(store, "stays", [b"x" * 1000])
    with store.write("k", time.time() + 60) as writing, pytest.raises(StoreError, match=r"1000.*cap"):
        writing.add([b"x" * 600] * 2)
    with pytest.raises(StoreError, match=r"1200.*1000.*cap"):
        put(store, "k", [b"x" * 600], index=b"o" * 600)
    assert store.entry("k") is None
    assert [entry.key for entry in store.entries()] == ["stays"]


def test_what_is_new_does_not_make_room_for_what_is_there(place: Place) -> None:
    store = place.store(cap=1000)
    put(store, "a", [b"x" * 600])
    # As from a replica whose clock is slow.
    put(store, "b", [b"x" * 600], created=1)
    assert fate(store, "a") == "evicted"
    assert read(store, "b") == [b"x" * 600]


def test_entries_come_without_indexes(place: Place) -> None:
    store = place.store()
    entry = put(store, "k", index=b"long")
    (listed,) = store.entries()
    assert listed.index == b""
    assert listed.handle == entry.handle
    assert store.entry("k") == entry


def test_written_again(place: Place) -> None:
    store = place.store()
    put(store, "k", [b"1", b"2", b"3"], index=b"long")
    put(store, "k", [b"4"])
    assert read(store, "k") == [b"4"]
    with pytest.raises(Damaged):
        store.blobs("k", [1])
    put(store, "k", [])
    with pytest.raises(Damaged):
        store.blobs("k", [0])
    assert store.stats().entries == 1
    assert store.stats().stored == 0


@pytest.mark.usefixtures("small_windows")
def test_purge(place: Place) -> None:
    store = place.store()
    for number in range(10):
        put(store, f"k{number}")
    assert store.purge() == 10
    assert [name for name in place.names() if not name.endswith(":fate")] == []
    assert list(store.entries()) == []
    assert store.stats().stored == 0
    assert fate(store, "k7") == "deleted"
    assert store.purge() == 0


# Several replicas


def test_threads_of_two_replicas(place: Place) -> None:
    stores = [place.store(cap=20_000), place.store(cap=20_000)]
    troubles: list[BaseException] = []

    def work(name: int) -> None:
        try:
            for number in range(12):
                put(stores[name % 2], f"{name}-{number}", [b"x" * 300] * (number % 4 + 1))
                for entry in stores[0].entries():
                    with contextlib.suppress(Damaged):
                        assert len(stores[0].blobs(entry.key, range(entry.blobs))) == entry.blobs
        except BaseException as error:
            troubles.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not troubles
    kept = list(stores[0].entries())
    stats = stores[1].stats()
    assert stats.entries == len(kept)
    assert stats.stored == sum(entry.stored for entry in kept)
    assert 20_000 - 1200 <= stats.stored <= 20_000
    for entry in kept:
        assert read(stores[1], entry.key) == [b"x" * 300] * entry.blobs


def test_the_same_key_from_two_writers(place: Place) -> None:
    stores = [place.store(), place.store()]
    with stores[0].write("k", time.time() + 60) as one, stores[1].write("k", time.time() + 60) as two:
        one.add([b"1"] * 2000)
        two.add([b"2"] * 1500)
        entry = entry_of("k", [b"1"])
        one.commit(entry)
        assert set(read(stores[1], "k")) == {b"1"}
        two.commit(entry)
    assert read(stores[0], "k") == [b"2"] * 1500
    assert stores[0].stats().entries == 1


def test_who_was_evicted_before_it_was_published_is_not_published(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = place.store(cap=1000), place.store(cap=1000)
    make_room = ValkeyStore.make_room

    def interrupted(self: ValkeyStore, entry: Entry) -> None:
        make_room(self, entry)
        if entry.key == "slow":
            put(other, "quick", [b"x" * 700])

    monkeypatch.setattr(ValkeyStore, "make_room", interrupted)
    put(store, "slow", [b"x" * 700])
    assert fate(store, "slow") == "evicted"
    assert [entry.key for entry in store.entries()] == ["quick"]
    assert store.stats().stored == 700
    assert not [key for key in place.names() if "{slow}" in key and not key.endswith(":fate")]


_WRITER = """
import sys, time
from mcp_envelope.vault import valkey, valkey_client
from mcp_envelope.vault.store import Entry
from mcp_envelope.vault.valkey import ValkeyStore
url, prefix, name, count = sys.argv[1:]
store = ValkeyStore(url, prefix=prefix, cap=30_000)
for number in range(int(count)):
    key, now = f"{name}-{number}", time.time()
    with store.write(key, now + 60) as writing:
        writing.add([name.encode() * 200] * 3)
        times = {"created": now, "expires": now + 60}
        writing.commit(Entry(key=key, handle=key, kind="text", size=1, stored=1, blobs=3, **times))
store.close()
"""


def test_processes(place: Place) -> None:
    started = [
        subprocess.Popen([sys.executable, "-c", _WRITER, place.url, place.prefix, name, "60"])
        for name in "ab"
    ]
    for process in started:
        assert process.wait(30) == 0
    store = place.store(cap=30_000)
    stats = store.stats()
    kept = list(store.entries())
    assert stats.entries == len(kept) == 50
    assert stats.stored == 30_000
    assert all(read(store, entry.key) == [entry.key[:1].encode() * 200] * 3 for entry in kept)


_HALF = """
import sys, time
from mcp_envelope.vault.valkey import ValkeyStore
store = ValkeyStore(sys.argv[1], prefix=sys.argv[2])
writing = store.write("k", time.time() + 60)
writing.add([b"x" * 60_000] * 80)
print("there", flush=True)
time.sleep(60)
"""


def test_a_writer_that_is_killed_leaves_nothing_for_long(place: Place) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", _HALF, place.url, place.prefix], stdout=subprocess.PIPE, text=True
    )
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "there\n"
    finally:
        writer.kill()
        writer.communicate()
    store = place.store()
    assert store.entry("k") is None
    assert list(store.entries()) == []
    assert store.stats().entries == 0
    (part,) = place.names()
    with contextlib.closing(place.server.client()) as client:
        assert 0 < client.ttl(part) <= 600
    put(store, "k")
    assert read(store, "k") == [b"one", b"two"]


# The account


@pytest.mark.parametrize("lost", [["ages"], ["ends"], ["ages", "ends"]])
def test_an_account_that_lost_a_key_is_mended(place: Place, lost: list[str]) -> None:
    store = place.store(cap=1000)
    put(store, "a", [b"x" * 300], created=1)
    put(store, "b", [b"x" * 300], created=2)
    with contextlib.closing(place.server.client()) as client:
        client.delete(*(f"{place.prefix}:{{account}}:{part}" for part in lost))
    put(store, "c", [b"x" * 600], created=3)
    assert fate(store, "a") == "evicted"
    assert [entry.key for entry in store.entries()] == ["c", "b"]
    assert store.stats().stored == 900


def test_an_account_that_is_lost_begins_anew(place: Place) -> None:
    store = place.store(cap=1000)
    put(store, "a", [b"x" * 300])
    with contextlib.closing(place.server.client()) as client:
        client.delete(f"{place.prefix}:{{account}}:sizes")
    put(store, "b", [b"x" * 300])
    assert store.stats().stored == 300
    assert read(store, "a") == [b"x" * 300], "it can be read, though it is not listed"


def test_sweeping_takes_off_what_the_server_let_go(place: Place) -> None:
    store = place.store()
    put(store, "old", created=time.time() - 1000)
    put(store, "young")
    with contextlib.closing(place.server.client()) as client:
        for key in ("old", "young"):
            client.delete(f"{place.prefix}:{{{key}}}:entry")
    assert fate(store, "old") == "evicted"
    assert store.sweep() == 0
    # A young one may be of a writer that is about to publish.
    assert store.stats().entries == 1


# A server that goes and comes


@pytest.fixture
def short_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line tries again soon after a failure, so that tests need not wait."""
    monkeypatch.setattr(valkey_client, "_PAUSE", (0.05, 0.05))
    monkeypatch.setattr(valkey_client, "_RETRY_AFTER", (0.02, 0.05))


@pytest.mark.usefixtures("short_rests")
def test_a_server_that_is_killed_and_comes_back(place: Place) -> None:
    server, store = place.server, place.store()
    put(store, "before", _LARGE)
    put(store, "deleted")
    writing = store.write("during", time.time() + 60)
    writing.add(_LARGE)
    server.kill()
    try:
        uses: list[Callable[[], object]] = [
            lambda: store.entry("before"),
            lambda: store.blobs("before", [0]),
            lambda: store.delete("deleted"),
            lambda: list(store.entries()),
            lambda: put(store, "after"),
            store.sweep,
            store.purge,
            store.stats,
        ]
        for use in uses:
            with pytest.raises(StoreError, match=rf"127\.0\.0\.1:{server.port} cannot be reached"):
                use()
        if "cluster" in place.url:
            # That client would never hear again who has which slots.
            assert store._client._client is None
    finally:
        server.start()
    wait_for(lambda: _works(store))
    assert read(store, "before") == _LARGE
    with writing:
        writing.add([b"end"])
        writing.commit(entry_of("during", [*_LARGE, b"end"]))
    assert read(store, "during") == [*_LARGE, b"end"]
    put(store, "after")
    assert [entry.key for entry in store.entries()] == ["after", "during", "deleted", "before"]


def _works(store: ValkeyStore) -> bool:
    try:
        store.stats()
    except StoreError:
        return False
    return True


def test_a_server_that_comes_back_at_once_is_not_noticed(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        store = ValkeyStore(server.url)
        put(store, "k", _LARGE)
        for _ in range(3):
            server.kill()
            server.start()
            assert read(store, "k") == _LARGE
        back = threading.Timer(0.1, server.start)
        server.kill()
        back.start()
        try:
            assert read(store, "k") == _LARGE
        finally:
            back.join()
        store.close()


@pytest.mark.usefixtures("short_rests")
def test_a_server_that_is_killed_while_it_is_used(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        store = ValkeyStore(server.url)
        committed: list[str] = []
        failed = 0
        stop = threading.Event()
        troubles: list[BaseException] = []

        def work(name: int) -> None:
            nonlocal failed
            number = 0
            try:
                while not stop.is_set():
                    number += 1
                    try:
                        put(store, f"{name}-{number}", _LARGE[:40], ttl=60)
                        committed.append(f"{name}-{number}")
                    except StoreError:
                        failed += 1
                        time.sleep(0.01)
            except BaseException as error:
                troubles.append(error)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(3)]
        for thread in threads:
            thread.start()
        try:
            wait_for(lambda: len(committed) > 5 or troubles)
            server.kill()
            wait_for(lambda: failed or troubles)
            server.start()
        finally:
            mark = len(committed)
            wait_for(lambda: len(committed) > mark + 3 or troubles)
            stop.set()
            for thread in threads:
                thread.join()
        assert not troubles
        for key in committed:
            assert read(store, key) == _LARGE[:40]
        for entry in store.entries():
            assert store.blobs(entry.key, range(entry.blobs)) == _LARGE[:40]
        store.close()


def test_what_a_server_forgot_while_it_was_written_is_not_published(tmp_path: Path) -> None:
    with running_server(tmp_path, "--appendonly", "no") as server:
        store = ValkeyStore(server.url)
        with store.write("k", time.time() + 60) as writing:
            writing.add(_LARGE)
            server.kill()
            server.start()
            with pytest.raises(StoreError, match="Store it again"):
                writing.commit(entry_of("k", _LARGE))
        assert store.entry("k") is None
        assert store.stats().entries == 0
        assert names(server) == []
        store.close()


def test_nobody_knocks_while_the_line_rests(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        store = ValkeyStore(server.url)
        server.kill()
        with pytest.raises(StoreError) as first:
            store.entry("k")
        with socket.create_server(("127.0.0.1", server.port)) as listener:
            listener.setblocking(False)
            with pytest.raises(StoreError) as second:
                store.entry("k")
            assert str(second.value) == str(first.value)
            with pytest.raises(BlockingIOError):
                listener.accept()
        store.close()


@pytest.mark.usefixtures("short_rests")
def test_one_finds_out_whether_the_server_is_back(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        store = ValkeyStore(server.url)
        server.kill()
        with pytest.raises(StoreError):
            store.entry("k")
        with socket.create_server(("127.0.0.1", server.port)) as listener:
            failed = threading.Event()

            def ask() -> None:
                with contextlib.suppress(StoreError):
                    store.entry("k")
                failed.set()

            listener.settimeout(10)
            time.sleep(0.06)
            threading.Thread(target=ask).start()
            caller = listener.accept()[0]
            listener.setblocking(False)
            # The first one waits for an answer. The others do not.
            with pytest.raises(StoreError, match="cannot be reached"):
                store.entry("k")
            assert not failed.is_set()
            with pytest.raises(BlockingIOError):
                listener.accept()
            caller.close()
        assert failed.wait(10)
        store.close()


@pytest.mark.usefixtures("short_rests")
def test_a_server_that_hangs(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        store = ValkeyStore(server.url + "?socket_timeout=0.2")
        put(store, "k")
        os.kill(server.pid, signal.SIGSTOP)
        try:
            with pytest.raises(StoreError, match="does not answer in time"):
                store.entry("k")
        finally:
            os.kill(server.pid, signal.SIGCONT)
        wait_for(lambda: _works(store))
        assert read(store, "k") == [b"one", b"two"]
        store.close()


def test_a_reply_that_is_lost(lone: Place) -> None:
    with running_relay(lone.server.port) as relay:
        store = ValkeyStore(f"valkey://127.0.0.1:{relay.port}", prefix=lone.prefix)
        for number, marker in enumerate([b"'HSET', KEYS[1]", b"names = {", b"'RENAME'"]):
            relay.lose_reply_to = marker
            put(store, f"k{number}")
            assert read(store, f"k{number}") == [b"one", b"two"]
            assert store.stats().entries == number + 1
        relay.lose_reply_to = b"'UNLINK', KEYS[1], KEYS[2]"
        assert store.delete("k0") is True
        relay.lose_reply_to = b"'UNLINK', KEYS[1], KEYS[2]"
        assert store.purge() == 2
        assert relay.lost == 5
        store.close()


# A server that refuses


def _refused(store: ValkeyStore, saying: str) -> None:
    with pytest.raises(StoreError, match=saying):
        put(store, "k", _LARGE[:2])
    assert store.entry("k") is None
    assert list(store.entries()) == []


def test_passwords(tmp_path: Path) -> None:
    secret = "s3cr/t @é"
    with running_server(tmp_path, "--requirepass", secret) as server:
        store = ValkeyStore(server.url)
        put(store, "k")
        assert read(store, "k") == [b"one", b"two"]
        assert store.place == f"valkey://127.0.0.1:{server.port}"
        store.close()
        for user in (":wr0ng-one@", "someone:wr0ng-one@", ""):
            wrong = ValkeyStore(f"valkey://{user}127.0.0.1:{server.port}")
            before = _refusals(server)
            with pytest.raises(StoreError, match=r"password.*URL") as caught:
                wrong.entry("k")
            assert _refusals(server) == before + bool(user), "it is not tried again and again"
            assert "wr0ng" not in str(caught.value)
            assert "someone" not in str(caught.value) + wrong.place
            wrong.close()


def _refusals(server: Server) -> int:
    with contextlib.closing(server.client()) as client:
        return int(client.info("stats")["acl_access_denied_auth"])


def test_a_password_that_nobody_asked_for(place: Place) -> None:
    store = ValkeyStore(place.url.replace("//", "//:wr0ng-one@"))
    with pytest.raises(StoreError, match="does not use a password"):
        store.entry("k")
    store.close()


def test_a_read_only_replica(tmp_path: Path) -> None:
    with running_server(tmp_path, "--replicaof", "127.0.0.1 1") as server:
        store = ValkeyStore(server.url)
        _refused(store, "read-only replica: give the address of its primary")
        store.close()


def test_too_few_replicas(tmp_path: Path) -> None:
    with running_server(tmp_path, "--min-replicas-to-write", "1") as server:
        store = ValkeyStore(server.url)
        _refused(store, "too few replicas")
        store.close()


def test_a_server_that_cannot_save(tmp_path: Path) -> None:
    with running_server(tmp_path, "--save", "3600 1", "--appendonly", "no") as server:
        (tmp_path / "dump.rdb").mkdir()
        with contextlib.closing(server.client()) as client:
            client.set("x", "y")
            client.bgsave()
            wait_for(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")
        store = ValkeyStore(server.url)
        _refused(store, "cannot save to disk")
        store.close()
        # It would not stop before it has saved.
        server.kill()


def test_a_server_that_is_out_of_memory(tmp_path: Path) -> None:
    with running_server(tmp_path, "--maxmemory", "8mb", "--maxmemory-policy", "noeviction") as server:
        store = ValkeyStore(server.url)
        put(store, "stays", _LARGE[:10])
        for _ in range(2):
            with pytest.raises(StoreError, match="out of memory: raise its maxmemory"):
                put(store, "k", _LARGE * 3)
            assert store.entry("k") is None
            assert [entry.key for entry in store.entries()] == ["stays"]
            assert store.stats().entries == 1
        with contextlib.closing(server.client()) as client:
            client.config_set("maxmemory", "100kb")
        # More than full: reading and deleting still work.
        assert read(store, "stays") == _LARGE[:10]
        assert store.delete("stays") is True
        assert fate(store, "stays") == "deleted"
        assert store.stats().entries == 0
        store.close()


def test_a_server_that_lets_go_of_blobs(tmp_path: Path) -> None:
    # What is seldom used goes first, and only the entries are used here.
    rare = ("--maxmemory-policy", "allkeys-lfu", "--lfu-log-factor", "0", "--maxmemory-samples", "64")
    with running_server(tmp_path, *rare) as server:
        store = ValkeyStore(server.url)
        for number in range(10):
            put(store, f"k{number}", _LARGE[:5])
        for number in range(10):
            for _ in range(60):
                store.entry(f"k{number}")
        with contextlib.closing(server.client()) as client:
            client.config_set("maxmemory", client.info("memory")["used_memory"] - 1_000_000)
            client.set("one", "more")
        kept = 0
        for number in range(10):
            assert isinstance(store.entry(f"k{number}"), Entry)
            if names(server, f"mcp-envelope:{{k{number}}}:blobs"):
                assert read(store, f"k{number}") == _LARGE[:5]
                kept += 1
            else:
                with pytest.raises(Damaged, match="5 of 5 blobs are missing"):
                    read(store, f"k{number}")
        assert 0 < kept < 10
        store.close()


def test_users_without_rights(lone: Place) -> None:
    with contextlib.closing(lone.server.client()) as client:
        client.execute_command("ACL", "SETUSER", "reader", "on", ">pass-w0rd", "~*", "+@read", "+@connection")
    store = ValkeyStore(f"valkey://reader:pass-w0rd@127.0.0.1:{lone.server.port}", prefix=lone.prefix)
    with pytest.raises(StoreError, match="ACL") as caught:
        put(store, "k")
    assert "pass-w0rd" not in str(caught.value)
    store.close()


def test_keys_of_somebody_else(lone: Place) -> None:
    store = lone.store()
    with contextlib.closing(lone.server.client()) as client:
        client.set(f"{lone.prefix}:{{k}}:entry", "mine")
        client.hset(f"{lone.prefix}:{{l}}:entry", "facts", "mine")
        client.set(f"{lone.prefix}:{{m}}:fate", "mine")
    with pytest.raises(StoreError, match="another database"):
        store.entry("k")
    for key in "lm":
        with pytest.raises(Damaged, match="not what was written"):
            store.entry(key)


def test_a_cluster_that_is_none_and_one_that_is_not_told(alone: Server, tmp_path: Path) -> None:
    store = ValkeyStore(alone.url + "?cluster=yes")
    with pytest.raises(StoreError, match="remove cluster=true from"):
        store.entry("k")
    store.close()
    # A replica of a node that has all the slots. A primary would take two seconds to begin.
    mine, other = "a" * 40, "b" * 40
    nodes = f"""{mine} 127.0.0.1:1@2 myself,slave {other} 0 0 2 connected
{other} 127.0.0.1:3@4 master - 0 0 2 connected 0-16383
vars currentEpoch 2 lastVoteEpoch 0
"""
    (tmp_path / "nodes.conf").write_text(nodes)
    settings = ("--cluster-enabled", "yes", "--cluster-node-timeout", "60000")
    with running_server(tmp_path, *settings) as server:
        store = ValkeyStore(server.url)
        with pytest.raises(StoreError, match="add cluster=true"):
            store.entry("k")
        store.close()
        with contextlib.closing(server.client()) as client:
            client.execute_command("CLUSTER", "RESET", "SOFT")
        for query in ("", "?cluster=true"):
            store = ValkeyStore(server.url + query)
            with pytest.raises(StoreError, match="a cluster that is down"):
                store.entry("k")
            store.close()


# Addresses


@pytest.mark.parametrize(
    "url",
    [
        "valkey://:s3cret/x@127.0.0.1:6379",
        "valkey://:s3cret@127.0.0.1:port",
        "valkey://:s3cret@127.0.0.1:99999",
        "valkey://:s3cret@127.0.0.1/database",
        "valkey://:s3cret@127.0.0.1?wrong=s3cret",
        "valkey://:s3cret@127.0.0.1?socket_timeout=s3cret",
        "valkey://:s3cret@127.0.0.1?decode_responses=true",
        "valkey://[::1:s3cret",
        "unix://?password=s3cret",
        "unix:///a/socket?cluster=true&password=s3cret",
    ],
)
def test_bad_urls(url: str) -> None:
    with pytest.raises(StoreError) as caught:
        ValkeyStore(url)
    assert "s3cret" not in str(caught.value)
    assert "URL" in str(caught.value)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("valkey://host", "valkey://host:6379"),
        ("redis://user:s3cret@host:1234/3", "redis://host:1234/3"),
        ("rediss://:s3cret@host?ssl_password=s3cret", "rediss://host:6379"),
        ("valkeys://[::1]:7000", "valkeys://[::1]:7000"),
        ("unix://user@/a/socket?password=s3cret&db=2", "unix:///a/socket"),
        ("VALKEY://host:1?cluster=true&socket_timeout=3", "valkey://host:1"),
    ],
)
def test_the_place_has_no_secrets(url: str, place: str) -> None:
    # Nothing connects before it is used.
    store: Store = ValkeyStore(url)
    assert store.place == place
    store.close()


@pytest.mark.parametrize("url", ["valkey://", "redis:///0", "rediss://?db=1"])
def test_a_url_without_a_host(url: str) -> None:
    with pytest.raises(StoreError, match="has no host"):
        ValkeyStore(url)


@pytest.mark.parametrize("url", ["", "127.0.0.1:6379", "http://:s3cret@127.0.0.1", "valkey:"])
def test_schemes(url: str) -> None:
    with pytest.raises(StoreError, match="starts with valkey://, valkeys://, redis://, rediss:// or unix://"):
        ValkeyStore(url)


@pytest.mark.usefixtures("short_rests")
@pytest.mark.parametrize("url", ["valkey://a..b", "valkey://nowhere.invalid", "unix:///no/such/socket"])
def test_addresses_of_nobody(url: str) -> None:
    store = ValkeyStore(url)
    with pytest.raises(StoreError, match=rf"^{url}(:6379)? "):
        store.entry("k")
    store.close()


@pytest.mark.parametrize("prefix", ["", "a{b", "}"])
def test_bad_prefixes(prefix: str) -> None:
    with pytest.raises(StoreError, match="prefix"):
        ValkeyStore("valkey://127.0.0.1", prefix=prefix)


def test_databases(lone: Place) -> None:
    zero = lone.store()
    two = ValkeyStore(lone.url.replace("valkey:", "redis:") + "/2", prefix=lone.prefix)
    put(two, "k")
    assert zero.entry("k") is None
    assert read(two, "k") == [b"one", b"two"]
    two.close()
    beyond = ValkeyStore(lone.url + "/99", prefix=lone.prefix)
    with pytest.raises(StoreError, match="number"):
        beyond.entry("k")
    beyond.close()


def test_unix_sockets() -> None:
    # The path of a socket is short.
    with tempfile.TemporaryDirectory(prefix="vk") as folder:
        path = Path(folder) / "s"
        with running_server(Path(folder), "--unixsocket", str(path)) as server:
            store = ValkeyStore(f"unix://{path}")
            put(store, "k")
            assert read(store, "k") == [b"one", b"two"]
            server.kill()
            with pytest.raises(StoreError, match="cannot be reached"):
                store.entry("k")
            store.close()


def test_tls(lone: Place, tmp_path: Path) -> None:
    known, context = certificate(tmp_path, "127.0.0.1")
    with running_relay(lone.server.port, context) as relay:
        address = f"127.0.0.1:{relay.port}"
        for url in (f"rediss://{address}?ssl_ca_certs={known}", f"valkeys://{address}?ssl_cert_reqs=none"):
            with contextlib.closing(ValkeyStore(url, prefix=lone.prefix)) as store:
                put(store, "k")
                assert read(store, "k") == [b"one", b"two"]
        _distrusts(f"rediss://{address}")


def test_tls_with_the_certificate_of_another_host(lone: Place, tmp_path: Path) -> None:
    known, context = certificate(tmp_path, "127.0.0.9")
    with running_relay(lone.server.port, context) as relay:
        _distrusts(f"rediss://127.0.0.1:{relay.port}?ssl_ca_certs={known}")


def _distrusts(url: str) -> None:
    with contextlib.closing(ValkeyStore(url)) as store, pytest.raises(StoreError, match="is not trusted"):
        store.entry("k")


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkey", None)
    with pytest.raises(StoreError, match=r"pip install 'mcp-envelope\[valkey\]'"):
        ValkeyStore("valkey://127.0.0.1")


def test_the_library_is_imported_late() -> None:
    code = "import sys, mcp_envelope.vault.valkey; sys.exit('valkey' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_closed_store_opens_again(lone: Place) -> None:
    store: Any = lone.store()
    put(store, "k")
    store.close()
    store.close()
    assert read(store, "k") == [b"one", b"two"]
