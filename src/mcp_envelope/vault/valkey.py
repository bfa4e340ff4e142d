"""A store on a Valkey or Redis server, for several replicas.

Strategy: all keys of a payload share one hash tag, and so one slot of a cluster. Blobs go into a hash under a
name that only the writer knows and that soon expires; `commit` books the payload, makes room, and then one
script checks that every blob is there, renames the hash and sets the entry. So nothing is ever half visible, and
nothing stays of a writer that dies. The server lets entry and blobs expire by itself; a small tombstone, written
along with them, lives longer and says what became of the key. Each script can run twice to the same end, since the
reply to the first may be lost.

One account keeps all replicas together within the cap. It knows the age, the end and the sizes of each entry, in
keys of its own slot, and is changed by one script, so never by halves. An entry is booked before it can be seen,
so what is kept is always booked; a writer that dies in between leaves a booking without an entry, which ends like
any other. Whoever books too much gets the oldest keys back and evicts them. Two replicas may evict the same key:
the second finds nothing to do. So the sum is right, and what is kept is above the cap only between booking and
evicting, by at most what is being committed just then.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from .store import DEFAULT_CAP, REMEMBERED, Damaged, Entry, Fate, Gone, Stats, StoreError, Writing
from .valkey_client import ValkeyClient

# After this many seconds of silence a writer is taken for dead.
_SILENCE: Final = 600

# How many entries one call of the script drops or names at most, so that it never holds up the server.
WINDOW: Final = 256

# A batch of blobs, and their time limit with it; returns the tombstone of the key so far.
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
# another writer took its booking away to make room, so it must not become visible. HSET is the first write,
# since a server that is out of memory refuses a script at its first write or not at all.
_PUBLISH: Final = """
local part, entry, blobs, fate = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local facts, index, count, ends, before = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[7]
if redis.call('HLEN', part) ~= count then
  if redis.call('HGET', entry, 'facts') == facts then return 'done' end
  return 'short'
end
local now = redis.call('GET', fate)
if now and now ~= before and string.sub(now, 1, 7) == 'evicted' then
  redis.call('UNLINK', part)
  return 'evicted'
end
redis.call('HSET', entry, 'facts', facts, 'index', index)
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
local found = redis.call('HMGET', KEYS[1], 'facts', 'index')
return {found[1], found[2], redis.call('GET', KEYS[2]), redis.call('TIME')[1]}
"""

# A key without an entry may belong to a writer that is about to publish it; the tombstone warns that writer.
# UNLINK comes first, since a server that is out of memory still allows that.
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

# In `sizes` the sums are fields that begin with =, as no digest does. Times are the server's, as its
# own expiry is. A server that may evict any key may evict one of these: what `sizes` still knows is then booked
# anew.
_BOOK: Final = """
local ages, ends, sizes = KEYS[1], KEYS[2], KEYS[3]
local cap, most, own, booking = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4]
local call = redis.call
local names = {'=stored', '=size'}
local clock = call('TIME')
local now = clock[1] + clock[2] / 1000000

local function numbers(text)
  return {string.match(text, '^(%S+) (%S+) (%S+) (%S+)$')}
end
local function drop(key)
  call('ZREM', ages, key)
  call('ZREM', ends, key)
  local text = call('HGET', sizes, key)
  if text then
    call('HDEL', sizes, key)
    local known = numbers(text)
    for i = 1, 2 do call('HINCRBY', sizes, names[i], string.format('%d', -known[i])) end
  end
end
local function enter(key, text)
  local known = numbers(text)
  call('ZADD', ages, known[3], key)
  call('ZADD', ends, known[4], key)
  call('HSET', sizes, key, text)
  for i = 1, 2 do call('HINCRBY', sizes, names[i], known[i]) end
end

local count = call('ZCARD', ages)
if count ~= call('ZCARD', ends) or call('HLEN', sizes) ~= (count > 0 and count + 2 or 0) then
  local left = call('HGETALL', sizes)
  call('DEL', ages, ends, sizes)
  for i = 1, #left, 2 do
    if string.sub(left[i], 1, 1) ~= '=' then enter(left[i], left[i + 1]) end
  end
end

for i = 5, #ARGV do drop(ARGV[i]) end
if booking ~= '' then
  drop(own)
  enter(own, booking)
end
local late = call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', 0, most)
for _, key in ipairs(late) do drop(key) end

local sums = call('HMGET', sizes, unpack(names))
local stored, victims, at = tonumber(sums[1] or '0'), {}, 0
while stored > cap and #victims < most do
  local key = call('ZRANGE', ages, at, at)[1]
  if not key then break end
  if key ~= own then
    victims[#victims + 1] = key
    stored = stored - tonumber(numbers(call('HGET', sizes, key))[1])
  end
  at = at + 1
end

count = call('ZCARD', ages)
if count == 0 then
  call('DEL', sizes)
else
  local last = call('ZRANGE', ends, -1, -1, 'WITHSCORES')[2]
  for i = 1, 3 do call('PEXPIREAT', KEYS[i], string.format('%.0f', last * 1000 + 60000)) end
end
local oldest = call('ZRANGE', ages, 0, 0, 'WITHSCORES')[2]
local newest = call('ZRANGE', ages, -1, -1, 'WITHSCORES')[2]
return {#late, victims, count, sums[1] or '0', sums[2] or '0', oldest or '', newest or ''}
"""


class ValkeyStore:
    """Safe to use from several threads; each replica has its own."""

    def __init__(self, url: str, *, cap: int = DEFAULT_CAP, prefix: str = "mcp-envelope") -> None:
        if not prefix or set(prefix) & set("{}"):
            raise StoreError("The prefix of the keys needs at least one character, and no braces.")
        self.cap = cap
        self._prefix = prefix
        self._client = ValkeyClient(url)
        self._account = [f"{prefix}:{{account}}:{part}" for part in ("ages", "ends", "sizes")]
        self.place = self._client.place

    def write(self, key: str, expires: float) -> _ValkeyWriting:
        return _ValkeyWriting(self, self._client, key)

    def entry(self, key: str) -> Entry | Gone | None:
        facts, index, fate, now = self._client.run(_FIND, [self.name(key, "entry"), self.name(key, "fate")])
        if facts is not None:
            return msgspec.structs.replace(_decoded(facts), index=index or b"")
        if fate is None:
            return None
        gone = _gone(fate)
        # The tombstone is written in advance. If it has not expired yet, the server needed the memory.
        if gone.fate == "expired" and gone.at > float(now) + 1:
            return Gone("evicted", float(now))
        return gone

    def blobs(self, key: str, numbers: Sequence[int]) -> list[bytes]:
        if not numbers:
            return []
        # One command, so that all belong to the same payload.
        found: list[bytes | None] = self._client.call("HMGET", self.name(key, "blobs"), *numbers)
        blobs = [blob for blob in found if blob is not None]
        if len(blobs) < len(found):
            if isinstance(self.entry(key), Entry):
                raise Damaged(
                    f"{len(found) - len(blobs)} of {len(found)} blobs are missing: "
                    "the server dropped them early, probably to save memory."
                )
            raise Damaged("The entry is gone, and its blobs with it.")
        return blobs

    def delete(self, key: str) -> bool:
        there = bool(self._drop([key], "deleted"))
        if there:
            # A booking that stays is corrected later; the entry is gone in any case.
            with contextlib.suppress(StoreError):
                self._settle([key])
        return there

    def entries(self) -> Iterator[Entry]:
        for window in self._windows():
            for facts in self._client.calls([("HGET", self.name(key, "entry"), "facts") for key in window]):
                if facts is not None:
                    with contextlib.suppress(Damaged):
                        yield _decoded(facts)

    def sweep(self) -> int:
        total = expired = self._settle().expired
        while expired == WINDOW:
            expired = self._settle().expired
            total += expired
        # What the server dropped early no longer counts. Young bookings may belong to writers at work.
        for window in self._windows(time.time() - _SILENCE):
            there = self._client.calls([("EXISTS", self.name(key, "entry")) for key in window])
            lost = [key for key, count in zip(window, there, strict=True) if not count]
            if lost:
                self._settle(lost)
        return total

    def purge(self) -> int:
        total = 0
        for window in self._windows():
            total += self._drop(window, "deleted")
            self._settle(window)
        return total

    def stats(self) -> Stats:
        balance = self._settle()
        while balance.expired == WINDOW:
            balance = self._settle()
        return balance.stats

    def close(self) -> None:
        self._client.close()

    def name(self, key: str, part: str) -> str:
        """The braces make the key alone decide the slot."""
        return f"{self._prefix}:{{{key}}}:{part}"

    def make_room(self, entry: Entry) -> None:
        booking = f"{entry.stored} {entry.size} {entry.created!r} {entry.expires!r}"
        victims = self._settle(own=entry.key, booking=booking).victims
        while victims:
            self._drop(victims, "evicted")
            victims = self._settle(victims, own=entry.key).victims

    def give_back(self, key: str) -> None:
        """Undo the booking of what was not published, unless an older entry of that key needs it."""
        with contextlib.suppress(StoreError):
            if not self._client.call("EXISTS", self.name(key, "entry")):
                self._settle([key])

    def _settle(self, gone: Sequence[str] = (), *, own: str = "", booking: str = "") -> _Balance:
        """Take these keys and expired ones off the account, and book one's own, which is never a victim."""
        values = [self.cap, WINDOW, own, booking, *gone]
        expired, victims, entries, *rest = self._client.run(_BOOK, self._account, values)
        stored, size, oldest, newest = [float(number) if number else None for number in rest]
        stats = Stats(
            place=self.place,
            entries=entries,
            size=int(size or 0),
            stored=int(stored or 0),
            cap=self.cap,
            oldest=oldest,
            newest=newest,
        )
        return _Balance(expired, _texts(victims), stats)

    def _windows(self, latest: float | str = "+inf") -> Iterator[Sequence[str]]:
        """The keys on the account, newest first, some at a time."""
        keys = _texts(self._client.call("ZREVRANGEBYSCORE", self._account[0], latest, "-inf"))
        return (keys[start : start + WINDOW] for start in range(0, len(keys), WINDOW))

    def _drop(self, keys: Sequence[str], fate: Fate) -> int:
        """Delete what these keys have; return how many had something."""
        now = time.time()
        values = (_tombstone(fate, now), _milliseconds(now + REMEMBERED))
        parts = ("entry", "blobs", "fate")
        commands = [("EVAL", _DROP, 3, *(self.name(key, part) for part in parts), *values) for key in keys]
        return sum(self._client.calls(commands))


class _ValkeyWriting(Writing):
    def __init__(self, store: ValkeyStore, client: ValkeyClient, key: str) -> None:
        super().__init__(key, store.place, store.cap)
        self._store = store
        self._client = client
        self._part = store.name(key, f"part:{secrets.token_hex(8)}")
        # What the tombstone said when the first batch went out; None before that.
        self._before: bytes | None = None

    def _send(self, blobs: Sequence[bytes]) -> None:
        keys = [self._part, self._store.name(self._key, "fate")]
        before = self._client.run(_ADD, keys, [self._sent, _SILENCE, *blobs])
        if self._before is None:
            self._before = before or b""

    def _discard(self) -> None:
        if self._before is not None:
            self._client.call("UNLINK", self._part)

    def _publish(self, entry: Entry, blobs: Sequence[bytes]) -> None:
        if blobs or self._before is None:
            self._send(blobs)
        self._store.make_room(entry)
        values = [
            msgspec.msgpack.encode(msgspec.structs.replace(entry, index=b"")),
            entry.index,
            entry.blobs,
            _milliseconds(entry.expires),
            _tombstone("expired", entry.expires),
            _milliseconds(entry.expires + REMEMBERED),
            self._before or b"",
        ]
        names = [self._store.name(self._key, part) for part in ("entry", "blobs", "fate")]
        try:
            if self._client.run(_PUBLISH, [self._part, *names], values) == b"short":
                raise StoreError(
                    f"{self._store.place} does not have all {entry.blobs} blobs of the result. It was "
                    "restarted meanwhile, or it needed the memory. Store it again."
                )
        except StoreError:
            self._store.give_back(self._key)
            raise


class _Balance(NamedTuple):
    expired: int
    # What has to be evicted to be within the cap, oldest first.
    victims: list[str]
    stats: Stats


def _texts(keys: Sequence[Any]) -> list[str]:
    return [bytes(key).decode() for key in keys]


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
