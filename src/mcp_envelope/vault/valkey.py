"""A store on a Valkey or Redis server, for several replicas.

Strategy: all keys of a payload share one hash tag, and so one slot of a cluster. Blobs go into a hash under a
name that only the writer knows and that soon expires; `commit` books the payload, makes room, and then one
script checks that every blob is there, renames the hash and sets the entry. So there is nothing half to see,
and nothing stays of a writer that dies. The server lets entry and blobs expire by itself; a small tombstone,
written along with them, lives longer and tells what became of the key. Each script can run twice to the same
end, since the reply to the first may be lost.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final, Self

import msgspec

from .store import DEFAULT_CAP, DEFAULT_TTL, REMEMBERED, Damaged, Entry, Fate, Gone, Stats, StoreError
from .valkey_account import WINDOW, Account, Booking
from .valkey_link import Link

# Blobs go to the server in batches of about that many bytes, and of so many blobs: a script holds its arguments.
_BATCH: Final = 1 << 20
_BATCH_BLOBS: Final = 1000
# A writer that is silent for so long is dead, in seconds.
_SILENCE: Final = 600

# A batch of blobs, and the time limit in the same breath; what is told of the key so far.
_ADD: Final = """
local fields = {}
for i = 3, #ARGV do
  fields[#fields + 1] = string.format('%d', ARGV[1] + i - 3)
  fields[#fields + 1] = ARGV[i]
end
if #fields > 0 then
  redis.call('HSET', KEYS[1], unpack(fields))
  redis.call('EXPIRE', KEYS[1], ARGV[2])
end
return redis.call('GET', KEYS[2])
"""

# The entry with all its blobs, or nothing. If the tombstone says that it was evicted since the writer began,
# somebody took its booking away to make room: then it is not to be seen any more. HSET is the first write,
# since a server that is out of memory refuses a script at its first write or not at all.
_PUBLISH: Final = """
local part, entry, blobs, fate = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local facts, outline, count, ends, before = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[7]
if redis.call('HLEN', part) ~= count then
  if redis.call('HGET', entry, 'facts') == facts then return 'done' end
  return 'short'
end
local now = redis.call('GET', fate)
if now and now ~= before and string.sub(now, 1, 7) == 'evicted' then
  redis.call('UNLINK', part)
  return 'evicted'
end
redis.call('HSET', entry, 'facts', facts, 'outline', outline)
redis.call('PEXPIREAT', entry, ends)
if count > 0 then
  redis.call('RENAME', part, blobs)
  redis.call('PEXPIREAT', blobs, ends)
else
  redis.call('UNLINK', blobs)
end
redis.call('SET', fate, ARGV[5], 'PXAT', ARGV[6])
return 'done'
"""

_FIND: Final = """
local found = redis.call('HMGET', KEYS[1], 'facts', 'outline')
return {found[1], found[2], redis.call('GET', KEYS[2]), redis.call('TIME')[1]}
"""

# Who evicts a key that has no entry may have met a writer that is about to publish it; the tombstone tells the
# writer. UNLINK comes first, since that is what a server without memory always allows.
_DROP: Final = """
local there, before = redis.call('EXISTS', KEYS[1]), redis.call('GET', KEYS[3])
redis.call('UNLINK', KEYS[1], KEYS[2])
if there == 1 then
  redis.call('SET', KEYS[3], ARGV[1], 'PXAT', ARGV[2])
elseif before == ARGV[1] then
  return 1
elseif not before and string.sub(ARGV[1], 1, 7) == 'evicted' then
  redis.call('SET', KEYS[3], ARGV[1], 'PXAT', ARGV[2])
end
return there
"""


class ValkeyStore:
    """Safe to use from several threads; each replica has its own."""

    def __init__(
        self, url: str, *, ttl: float = DEFAULT_TTL, cap: int = DEFAULT_CAP, prefix: str = "mcp-envelope"
    ) -> None:
        if not prefix or set(prefix) & set("{}"):
            raise StoreError("The prefix of the keys has at least one character, and no braces.")
        self.ttl = ttl
        self.cap = cap
        self._prefix = prefix
        self._link = Link(url)
        self._account = Account(self._link, prefix, cap)
        self.place = self._link.place

    def write(self, key: str, expires: float) -> ValkeyWriting:
        return ValkeyWriting(self, self._link, key)

    def entry(self, key: str) -> Entry | Gone | None:
        facts, outline, fate, now = self._link.run(_FIND, [self.name(key, "entry"), self.name(key, "fate")])
        if facts is not None:
            return msgspec.structs.replace(_decoded(facts), outline=outline or b"")
        if fate is None:
            return None
        gone = _gone(fate)
        # The tombstone is written in advance. If the time is not over yet, the server needed the memory.
        if gone.fate == "expired" and gone.at > float(now) + 1:
            return Gone("evicted", float(now))
        return gone

    def blobs(self, key: str, numbers: Sequence[int]) -> list[bytes]:
        if not numbers:
            return []
        # One command, so that all are of one and the same payload.
        found: list[bytes | None] = self._link.call("HMGET", self.name(key, "blobs"), *numbers)
        blobs = [blob for blob in found if blob is not None]
        if len(blobs) < len(found):
            if isinstance(self.entry(key), Entry):
                raise Damaged(
                    f"{len(found) - len(blobs)} of {len(found)} blobs are missing: "
                    "the server let go of them before their time, probably to save memory."
                )
            raise Damaged("The entry is gone, and its blobs with it.")
        return blobs

    def delete(self, key: str) -> bool:
        there = bool(self._drop([key], "deleted"))
        if there:
            # A booking that stays is mended later; the entry is gone in any case.
            with contextlib.suppress(StoreError):
                self._account.settle([key])
        return there

    def entries(self) -> Iterator[Entry]:
        for window in _windows(self._account.keys()):
            for facts in self._link.calls([("HGET", self.name(key, "entry"), "facts") for key in window]):
                if facts is not None:
                    with contextlib.suppress(Damaged):
                        yield _decoded(facts)

    def sweep(self) -> int:
        expired = WINDOW
        total = 0
        while expired == WINDOW:
            expired = self._account.settle().expired
            total += expired
        # What the server let go of before its time counts no longer. Young bookings may be of writers at work.
        for window in _windows(self._account.keys_before(time.time() - _SILENCE)):
            there = self._link.calls([("EXISTS", self.name(key, "entry")) for key in window])
            lost = [key for key, count in zip(window, there, strict=True) if not count]
            if lost:
                self._account.settle(lost)
        return total

    def purge(self) -> int:
        total = 0
        for window in _windows(self._account.keys()):
            total += self._drop(window, "deleted")
            self._account.settle(window)
        return total

    def stats(self) -> Stats:
        balance = self._account.settle()
        while balance.expired == WINDOW:
            balance = self._account.settle()
        return Stats(
            place=self.place,
            entries=balance.entries,
            size=balance.size,
            stored=balance.stored,
            cap=self.cap,
            oldest=balance.oldest,
            newest=balance.newest,
        )

    def close(self) -> None:
        self._link.close()

    def name(self, key: str, part: str) -> str:
        """The braces make the key alone decide the slot."""
        return f"{self._prefix}:{{{key}}}:{part}"

    def make_room(self, booking: Booking) -> None:
        if booking.stored > self.cap:
            raise StoreError(
                f"The result takes {booking.stored} bytes and the store at {self.place} keeps {self.cap} in all: "
                "raise its cap."
            )
        victims = self._account.book(booking).victims
        while victims:
            self._drop(victims, "evicted")
            victims = self._account.settle(victims, spared=booking.key).victims

    def give_back(self, key: str) -> None:
        """Take back the booking of what was not published, unless an older entry of that key needs it."""
        with contextlib.suppress(StoreError):
            if not self._link.call("EXISTS", self.name(key, "entry")):
                self._account.settle([key])

    def _drop(self, keys: Sequence[str], fate: Fate) -> int:
        """Delete what these keys have; how many had something."""
        now = time.time()
        values = (_tombstone(fate, now), _milliseconds(now + REMEMBERED))
        parts = ("entry", "blobs", "fate")
        commands = [("EVAL", _DROP, 3, *(self.name(key, part) for part in parts), *values) for key in keys]
        return sum(self._link.calls(commands))


class ValkeyWriting:
    """A payload on its way in."""

    def __init__(self, store: ValkeyStore, link: Link, key: str) -> None:
        self._store = store
        self._link = link
        self._key = key
        self._part = store.name(key, f"part:{secrets.token_hex(8)}")
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._sent = 0
        self._bytes = 0
        # What the tombstone said when the first batch went out; None before that.
        self._before: bytes | None = None
        self._done = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._waiting.clear()
        if not self._done and self._before is not None:
            # The server lets it expire anyway.
            with contextlib.suppress(StoreError):
                self._link.call("UNLINK", self._part)

    def add(self, blobs: Sequence[bytes]) -> None:
        for blob in blobs:
            self._waiting.append(blob)
            self._waiting_bytes += len(blob)
            self._bytes += len(blob)
            if self._bytes > self._store.cap:
                raise StoreError(
                    f"The result takes more than the {self._store.cap} bytes that the store at "
                    f"{self._store.place} keeps in all: raise its cap."
                )
            if self._waiting_bytes >= _BATCH or len(self._waiting) >= _BATCH_BLOBS:
                self._send()

    def commit(self, entry: Entry) -> None:
        if self._waiting or self._before is None:
            self._send()
        # What it takes and how many blobs it has is known here best.
        entry = msgspec.structs.replace(entry, stored=self._bytes + len(entry.outline), blobs=self._sent)
        booking = Booking(
            key=self._key,
            stored=entry.stored,
            size=entry.size,
            created=entry.created,
            expires=entry.expires,
        )
        self._store.make_room(booking)
        try:
            self._publish(entry)
        except StoreError:
            self._store.give_back(self._key)
            raise
        self._done = True

    def _send(self) -> None:
        keys = [self._part, self._store.name(self._key, "fate")]
        before = self._link.run(_ADD, keys, [self._sent, _SILENCE, *self._waiting])
        if self._before is None:
            self._before = before or b""
        self._sent += len(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0

    def _publish(self, entry: Entry) -> None:
        values = [
            msgspec.msgpack.encode(msgspec.structs.replace(entry, outline=b"")),
            entry.outline,
            entry.blobs,
            _milliseconds(entry.expires),
            _tombstone("expired", entry.expires),
            _milliseconds(entry.expires + REMEMBERED),
            self._before or b"",
        ]
        names = [self._store.name(self._key, part) for part in ("entry", "blobs", "fate")]
        if self._link.run(_PUBLISH, [self._part, *names], values) == b"short":
            raise StoreError(
                f"{self._store.place} has not all of the {entry.blobs} blobs that make up the result. It was "
                "restarted meanwhile, or it needed the memory. Store it again."
            )


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


def _tombstone(fate: Fate, at: float) -> str:
    return f"{fate} {at!r}"


def _gone(tombstone: bytes) -> Gone:
    try:
        fate, at = tombstone.decode().split()
        return msgspec.convert({"fate": fate, "at": float(at)}, Gone)
    except ValueError:
        raise Damaged("A tombstone of the store is not what was written.") from None


def _decoded(facts: bytes) -> Entry:
    try:
        return msgspec.msgpack.decode(facts, type=Entry)
    except msgspec.MsgspecError:
        raise Damaged("The entry is not what was written.") from None


def _windows(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    return (keys[start : start + WINDOW] for start in range(0, len(keys), WINDOW))
