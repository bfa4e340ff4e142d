"""What an outline is made of: knots, where a large value lies and what is in it, and tables of keys.

Strategy: a page should load little of an outline, however large the payload is. So a knot holds its children
only if they are few. Those of a knot with many are stored behind the payload, among its blobs, and the knot has
their places; what is on the way to a page is loaded, and nothing else. All numbers of a knot are packed, four
bytes each, and are looked at where they lie.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Sequence
from typing import Final, Literal, Protocol, TypeVar

import msgspec

from .store import Damaged

KnotKind = Literal["array", "object", "string", "text", "leaf"]
_HEAD: Final = 4


class Readable(Protocol):
    """The stored bytes: the payload, and what is stored behind it."""

    def read(self, start: int, end: int) -> bytes: ...


class Table(msgspec.Struct, array_like=True, frozen=True):
    """Where the table of an object's keys is stored: a directory of buckets, and the buckets."""

    start: int
    buckets: int

    def stretches(self, key: str, stored: Readable) -> list[int]:
        """The stretches that may have the key: all with a key of the same digest."""
        hashed = digest(key)
        place = self.start + 4 * (hashed * self.buckets >> 32)
        start, end = unpacked(stored.read(place, place + 8))
        pairs = unpacked(stored.read(self.start + start, self.start + end))
        return [pairs[at + 1] for at in range(0, len(pairs), 2) if pairs[at] == hashed]


class Knot(msgspec.Struct, array_like=True):
    kind: KnotKind
    start: int
    end: int
    # Items, members or characters.
    total: int
    # For each stretch its first item, member or character, and the byte where it begins.
    firsts: bytes = b""
    starts: bytes = b""
    # A string: for each stretch the byte of the unescaped text where it begins.
    inside: bytes = b""
    # Large items or members by their ordinals; if they are many, for each stretch the place of its knot, or 0.
    children: dict[int, Knot] = {}
    places: bytes = b""
    # The keys of the large members that are here, and the table of all keys if there are many stretches.
    keys: dict[str, int] = {}
    table: Table | None = None
    # The JSON that a string holds, in the coordinates of its text.
    held: Knot | None = None

    @property
    def weight(self) -> int:
        """How many knots are loaded with this one, itself included."""
        held = 0 if self.held is None else self.held.weight
        return 1 + held + sum([child.weight for child in self.children.values()])

    def is_large(self, stretch: int) -> bool:
        """Whether the stretch is a single child that has a knot of its own."""
        if self.places:
            return unpacked(self.places)[stretch] != 0
        return bool(self.children) and unpacked(self.firsts)[stretch] in self.children

    def child(self, stretch: int, stored: Readable) -> Knot | None:
        """The knot of a stretch that is a single large child."""
        if not self.places:
            return self.children.get(unpacked(self.firsts)[stretch])
        place = unpacked(self.places)[stretch]
        if not place:
            return None
        size = int.from_bytes(stored.read(place, place + _HEAD))
        return _decoded(_KNOT, stored.read(place + _HEAD, place + _HEAD + size))


class Outline(msgspec.Struct, array_like=True):
    """`root` is None for a payload so small that it is read whole. `text` tells that it is not JSON."""

    root: Knot | None = None
    text: bool = False
    # Of JSON with characters of several bytes: the character and the byte at each mark.
    firsts: bytes = b""
    starts: bytes = b""


def packed(numbers: Sequence[int]) -> bytes:
    return array("I", numbers).tobytes()


def unpacked(numbers: bytes) -> memoryview:
    return memoryview(numbers).cast("I")


def digest(key: str) -> int:
    return zlib.crc32(key.encode("utf-8", "surrogatepass"))


_ENCODE: Final = msgspec.msgpack.Encoder().encode
_KNOT: Final = msgspec.msgpack.Decoder(Knot)
_OUTLINE: Final = msgspec.msgpack.Decoder(Outline)
_Made = TypeVar("_Made", Knot, Outline)


def dumps(outline: Outline) -> bytes:
    return _ENCODE(outline)


def loads(data: bytes) -> Outline:
    return _decoded(_OUTLINE, data)


def placed(knot: Knot) -> bytes:
    """A knot as it is stored behind the payload."""
    data = _ENCODE(knot)
    return len(data).to_bytes(_HEAD) + data


def _decoded(decoder: msgspec.msgpack.Decoder[_Made], data: bytes) -> _Made:
    try:
        return decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise Damaged(f"the outline is not what was written: {error}") from None
