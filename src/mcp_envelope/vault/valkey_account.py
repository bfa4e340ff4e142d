"""What a store on a Valkey or Redis server keeps, so that all replicas together stay within the cap.

Strategy: one account for all, in keys of its own slot, changed by one script and therefore never half. It knows
the age, the end and the sizes of each entry. An entry is booked before it can be seen, so what is kept is
always booked; a writer that dies in between leaves a booking without an entry, which ends like any other.
Whoever books too much gets the oldest keys back, evicts them, and says so. Two replicas may evict the same key:
the second finds nothing to do. So the sum is right, and what is kept is above the cap only for the moment
between booking and evicting, by at most what is being committed just then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from .valkey_link import Link

# How many entries one call of the script lets go or names at most, so that it never holds up the server.
WINDOW: Final = 256

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


class Booking(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    # What it takes in the store, which counts against the cap, and the bytes of the payload.
    stored: int
    size: int
    created: float
    expires: float


class Balance(msgspec.Struct, frozen=True, kw_only=True):
    expired: int
    # What has to be evicted to be within the cap, oldest first.
    victims: list[str]
    entries: int
    stored: int
    size: int
    oldest: float | None
    newest: float | None


class Account:
    def __init__(self, link: Link, prefix: str, cap: int) -> None:
        self._link = link
        self._cap = cap
        self._ages = f"{prefix}:{{account}}:ages"
        self._keys = [self._ages, f"{prefix}:{{account}}:ends", f"{prefix}:{{account}}:sizes"]

    def book(self, booking: Booking) -> Balance:
        sizes = f"{booking.stored} {booking.size}"
        return self._change(booking.key, f"{sizes} {booking.created!r} {booking.expires!r}", ())

    def settle(self, gone: Sequence[str] = (), spared: str = "") -> Balance:
        """Take these keys and expired ones off the account. The spared one is not named as a victim."""
        return self._change(spared, "", gone)

    def keys(self) -> list[str]:
        """All of them, newest first."""
        return _texts(self._link.call("ZREVRANGE", self._ages, 0, -1))

    def keys_before(self, created: float) -> list[str]:
        return _texts(self._link.call("ZRANGEBYSCORE", self._ages, "-inf", created))

    def _change(self, own: str, booking: str, gone: Sequence[str]) -> Balance:
        expired, victims, entries, stored, size, oldest, newest = self._link.run(
            _BOOK, self._keys, [self._cap, WINDOW, own, booking, *gone]
        )
        return Balance(
            expired=expired,
            victims=_texts(victims),
            entries=entries,
            stored=int(stored),
            size=int(size),
            oldest=float(oldest) if oldest else None,
            newest=float(newest) if newest else None,
        )


def _texts(keys: Sequence[Any]) -> list[str]:
    return [bytes(key).decode() for key in keys]
