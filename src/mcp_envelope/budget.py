"""The limits on a lane: a number, the meter that counts text towards it, and what the client takes at most.

Strategy: a budget out of range is clamped, never refused, with a warning that is shown with the result. The
smallest budget is what the shortest notice needs in any lane, handle included. Several limits apply at once, so a
text's load is what it takes of the limit that it comes closest to, as if all of them were the budget.

Meters count bytes, UTF-16 units / 4, tokens, or estimated tokens. Tokens are those of o200k; the vocabulary is
loaded when something is counted first, since most results are so short that their size in bytes tells enough. The
estimate is for processes that can't spare the memory for it, and doesn't loop over bytes in Python. Every byte has
a kind (there are 32), and every kind has a cost that depends on the sort of byte before it (8 sorts); every byte
adds a small cost of its own. A character beyond ASCII costs what its script does: by the 256 characters that it
stands among, and by its row there, which tells capitals from small letters. The costs were fitted once to o200k,
erring on the high side (benchmarks/meters_calibrate.py). The sum takes a handful of passes in C: `translate` looks
up costs, one long integer pairs each byte with its neighbour, and Adler-32 adds the costs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, Protocol
from zlib import adler32

import msgspec

from .spelling import closest

DEFAULT_TOKENS: Final = 8000
MIN_TOKENS: Final = 128
MIN_BYTES: Final = 512

_CONTINUATION: Final = bytes(range(0x80, 0xC0))
_NOT_LEAD4: Final = bytes(range(0xF0))
# The most bytes that one unit of a meter stands for; 128 for a meter that isn't listed. No text that says something
# has 16 bytes to a token (Malayalam has ten); only whitespace and runs of one character do, up to 128.
_MOST_BYTES: Final = {"bytes": 1, "estimate": 8, "chars4": 12, "exact": 16}
# Texts that are longer than so many bytes a unit are counted from the front first, which usually tells.
_LONG: Final = 8


def check_whole(**numbers: object) -> None:
    for name, value in numbers.items():
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise TypeError(f"{name} is a whole number, got {value!r}")


class Caps(msgspec.Struct, frozen=True):
    """What a client takes at most, besides the budget: past any of these, it cuts or hides a result itself."""

    max_bytes: int | None = None
    # In UTF-16, as JavaScript counts them: most clients are written in it.
    characters: int | None = None
    lines: int | None = None
    # Of the text of a failure.
    error_characters: int | None = None

    @property
    def for_errors(self) -> Caps:
        least = min(
            [cap for cap in (self.characters, self.error_characters) if cap is not None], default=None
        )
        return Caps(self.max_bytes, least, self.lines, self.error_characters)

    @property
    def certain(self) -> int:
        """A text of fewer bytes is within all of them."""
        return min(
            [cap for cap in (self.max_bytes, self.characters, self.lines) if cap is not None], default=1 << 60
        )

    @property
    def halves(self) -> Caps:
        """The same for one of two lanes of which both are shown."""
        most_bytes, characters, lines = [
            None if cap is None else cap // 2 for cap in (self.max_bytes, self.characters, self.lines)
        ]
        return Caps(most_bytes, characters, lines, self.error_characters)

    @property
    def most_bytes(self) -> int:
        return min(self.max_bytes or 1 << 60, 4 * (self.characters or 1 << 60))

    def load(self, text: bytes, limit: int) -> int:
        """Return what a text takes of these caps, if each of them were `limit`."""
        load = 0
        if self.max_bytes is not None:
            load = -(-len(text) * limit // self.max_bytes)
        if self.characters is not None:
            load = max(load, -(-_utf16_units(text) * limit // self.characters))
        if self.lines is not None:
            load = max(load, -(-(text.count(b"\n") + 1) * limit // self.lines))
        return load


class Budget(msgspec.Struct, frozen=True):
    limit: int
    meter: Meter
    warning: str | None = None
    # Whether this is the dialect's own limit, with the exceptions that its contract makes. A budget that
    # somebody set has none.
    is_own: bool = False
    caps: Caps | None = None

    @property
    def unit(self) -> str:
        return self.meter.unit

    @property
    def most_bytes(self) -> int:
        """The size in bytes above which no text is within the budget."""
        most = self.limit * _MOST_BYTES.get(self.meter.name, 128) + 64
        return most if self.caps is None else min(most, self.caps.most_bytes)

    @property
    def most_json(self) -> int:
        """The same for a text that is escaped in JSON, where a byte takes six at most."""
        return 6 * self.most_bytes

    @property
    def for_errors(self) -> Budget:
        return self if self.caps is None else msgspec.structs.replace(self, caps=self.caps.for_errors)

    @property
    def halves(self) -> Budget:
        least = MIN_BYTES if self.unit == "bytes" else MIN_TOKENS
        caps = None if self.caps is None else self.caps.halves
        return msgspec.structs.replace(self, limit=max(self.limit // 2, least), caps=caps)

    def is_within(self, other: Budget) -> bool:
        """Whether every text within this budget is certainly within the other one, too."""
        if self.meter.name == other.meter.name:
            return self.limit <= other.limit
        # Only bytes tell: a token has at least one, and at most as many as its meter says.
        return (self.limit if self.unit == "bytes" else self.most_bytes) <= other.limit

    def holds(self, text: bytes, limit: int | None = None, load: Callable[[], int] | None = None) -> bool:
        """Whether a text is within the budget and the client's limits, or within another `limit`.

        `load` is asked what the text takes, if only that tells; without it, the text is counted here.
        """
        limit = self.limit if limit is None else limit
        if self.is_certain(text, limit):
            return True
        if self.is_hopeless(text, limit):
            return False
        return (self.load(text, self.meter.count(text)) if load is None else load()) <= limit

    def is_hopeless(self, text: bytes, limit: int) -> bool:
        """Whether a text is over `limit` for sure, without counting all of it."""
        if len(text) <= _LONG * limit:
            return False
        # The token at the end may not be whole.
        return len(text) > self.most_bytes or self.meter.count(text[: _LONG // 2 * limit]) > limit + 16

    def is_certain(self, text: bytes, limit: int) -> bool:
        """Whether the length alone says that a text is within `limit`: a token has at least one byte."""
        return len(text) <= limit and (self.caps is None or len(text) < self.caps.certain)

    def is_certain_size(self, size: int) -> bool:
        """The same of a text of so many bytes, and the whole limit."""
        return size <= self.limit and (self.caps is None or size < self.caps.certain)

    def load(self, text: bytes, used: int) -> int:
        """Return what a text that counts for `used` takes of the limit that it comes closest to."""
        return used if self.caps is None else max(used, self.caps.load(text, self.limit))

    @classmethod
    def of(
        cls,
        *,
        tokens: int | None = None,
        max_bytes: int | None = None,
        meter: str | None = None,
    ) -> Budget:
        """Return a budget in tokens (counted by the meter `exact`, unless another is named) or in bytes."""
        if tokens is not None and max_bytes is not None:
            raise ValueError("a budget is in tokens or in bytes, not both")
        check_whole(tokens=tokens, max_bytes=max_bytes)
        if max_bytes is not None:
            if meter not in (None, "bytes"):
                raise ValueError(f"a budget in bytes is counted by the meter bytes, not by {meter}")
            return cls._clamped(max_bytes, meter_named("bytes"))
        if meter == "bytes":
            raise ValueError("the meter bytes works only with a budget in bytes")
        return cls._clamped(DEFAULT_TOKENS if tokens is None else tokens, meter_named(meter or "exact"))

    @classmethod
    def _clamped(cls, limit: int, meter: Meter) -> Budget:
        least = MIN_BYTES if meter.unit == "bytes" else MIN_TOKENS
        if limit >= least:
            return cls(limit, meter)
        return cls(least, meter, f"the budget of {limit} {meter.unit} was raised to {least}, the smallest")


METERS: tuple[str, ...] = ("bytes", "chars4", "estimate", "exact")


class Meter(Protocol):
    name: str
    unit: str

    def count(self, text: bytes) -> int:
        """Return the size of `text`, which is valid UTF-8, in this meter's unit."""
        ...


@cache
def meter_named(name: str) -> Meter:
    """Return the meter of that name."""
    match name:
        case "bytes":
            return _Bytes()
        case "chars4":
            return _Chars4()
        case "estimate":
            return _Estimate()
        case "exact":
            return _Exact()
    near = closest(name, METERS, cutoff=0)
    raise ValueError(f"unknown meter {name!r}: use one of {', '.join(METERS)}; the nearest is {near!r}")


class _Bytes:
    name = "bytes"
    unit = "bytes"

    def count(self, text: bytes) -> int:
        return len(text)


class _Chars4:
    name = "chars4"
    unit = "tokens"

    def count(self, text: bytes) -> int:
        return -(-_utf16_units(text) // 4)


def _utf16_units(text: bytes) -> int:
    if text.isascii():
        return len(text)
    # One unit per character, and a second one for each four-byte character.
    return len(text.translate(None, _CONTINUATION)) + len(text.translate(None, _NOT_LEAD4))


# The kinds of byte. Letters are grouped by their frequency in English, so that random letters, which make many
# more tokens than words do, cost more.
_KINDS = (
    *("eai", "ou", "tnsr", "ldhcm", "pgbfy", "vkw", "jqxz"),
    *("EAIOU", "TNSRLDCMPHGBF", "JKQVWXYZ"),
    "0123456789",
    *(" ", "\n\r", "\t"),
    *('"', "'`", ",", ":;", "([{", ")]}", "\\", "/", ".", "_", "-", "<>=", "|*#~+", "!?@$%^&"),
)
_CONTROL, _BEYOND = 28, 29
_DIGIT = _KINDS.index("0123456789")
# The sorts of preceding byte. Whitespace is 0, which also applies before the first byte of a text.
_SORTS = (
    *(" \t\n\r", "aeiou", "bcdfghjklmnpqrstvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"),
    "\"'`,;:([{",
)
_OTHER, _NOT_ASCII = 6, 7


def _classes() -> bytes:
    """Return a table with the kind of each byte in the low five bits and its sort in the high three."""
    kinds = [_CONTROL] * 128 + [_BEYOND] * 128
    sorts = [_OTHER] * 128 + [_NOT_ASCII] * 128
    for table, groups in ((kinds, _KINDS), (sorts, _SORTS)):
        for number, group in enumerate(groups):
            for byte in group.encode():
                table[byte] = number
    return bytes(kind | sort << 5 for kind, sort in zip(kinds, sorts, strict=True))


_CLASSES = _classes()
_BLOCK = 16_384  # texts are counted in blocks, so that the two masks have a fixed length
_KIND_MASK = int.from_bytes(b"\x1f" * _BLOCK, "big")
_SORT_MASK = int.from_bytes(b"\xe0" * _BLOCK, "big")
# o200k splits a run of digits into threes. Matches don't overlap, so each one is exactly one more group.
_DIGIT_MORE = bytes((_DIGIT | 4 << 5,))
_THREE_MORE_DIGITS = _DIGIT_MORE * 3

# Characters beyond ASCII, as UTF-16. The upper byte of a unit is its page: one for each script, as far as 32 go.
# Lower bytes are in eight rows, divided so that capitals and small letters of Greek, Cyrillic, Armenian, and the
# scripts that share a page are apart.
_ASCII, _NOT_PLAIN = bytes(range(128)), bytes(range(128, 256))
_PAGES = (
    *((page,) for page in (*range(7), *range(0x09, 0x12))),
    *((0x12,), (0x13,), (0x17,), (0x1E,), (0x1F,), (0x20,), range(0x21, 0x24)),
    *((*range(0x24, 0x28), 0x2B), (0x30,), range(0x31, 0x34), range(0x4E, 0xA0), range(0xAC, 0xD8)),
    *(range(0xD8, 0xDC), range(0xDC, 0xE0), (0xFE, 0xFF)),
)
_OTHER_PAGES = len(_PAGES)
_ROWS = (0x30, 0x40, 0x50, 0x60, 0x80, 0xAC, 0xD0)  # where the second and further rows begin


def _page_classes() -> bytes:
    table = [_OTHER_PAGES] * 256
    for number, pages in enumerate(_PAGES):
        for page in pages:
            table[page] = number
    return bytes(table)


_PAGE_CLASSES = _page_classes()
_ROW_CLASSES = bytes(sum(byte >= start for start in _ROWS) << 5 for byte in range(256))

# BEGIN fitted by benchmarks/meters_calibrate.py: hundredths of a token, and fortieths for a unit
_PAIR_COSTS = bytes.fromhex(
    "0402020202025a0c0d0c7f0102075818357f351b7f3e38787f033c2366000000"
    "0e050001182a7f664e734a3f7f3c372d6f7f4d1f5d3b1e1e1e53695667000000"
    "040531051e7f0c1e1e7f571e70624f4d1e1e2538433c1e1e3c3672397f000000"
    "0717080a1c28270e1b0c521e1e545a591d1e1e63615c5b1e3d637f7f7f000000"
    "6859585f5f5c58686c4000647f445c55797f671e626f644b757f46746e000000"
    "15171a1a71547f25191b453a57580b081a070b193659744c0425232b6d000000"
    "0d0f07080b0d2715134d681e385e047f3e7b3111110202020102027f7f000000"
    "0a0b060a0b33575e51516c1e7f50657e314443605349285044585e1d7c000000"
)
_BYTE_COSTS = bytes.fromhex(
    "0707070505070705060005060814070506070606080707050607050706060606"
    "0018000046000e00000000020000000001010008000100000001000a6000271d"
    "49001d00000c0c73030a7f7f0000002800280000187f7b6c000a283809355900"
    "00001900000a3e000000345a0000000005280000002737000110271613000207"
    "0000000000000000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000"
)
_UNIT_COSTS = bytes.fromhex(
    "781e5e461c4f0f04333406040d3a1d78615578634e274c37045f270f76283f78"
    "783b52500e1c0a04042d04171c500d7854517151503e5045505d2a282e28447d"
    "7822535004300a340437321b0d4626785152784550505e582b663c2d76285379"
    "7831225028325645324a494a49454c785050784d4e505d2b066a2c3077284e78"
    "78455150500e31041d4f500578364e785753784f4a4e5b551a69042577284c7f"
    "315c5227040e04101b07043c524d4a765a780b09774e3c29306a1c1b78284e7a"
    "443e4d104e42040e05131306525a507755782c16664c5c5c0b70291078285078"
    "255f4e5242115e5e4150643650740e7756782e044d4f5c7120780b0d78284e78"
)
# END fitted


def _pairs(block: bytes) -> bytes:
    """Return for each byte its own kind and the sort of the byte before it."""
    number = int.from_bytes(block.translate(_CLASSES), "big")
    return (number & _KIND_MASK | number >> 8 & _SORT_MASK).to_bytes(len(block), "big")


def _units(text: bytes) -> bytes:
    """Return for each UTF-16 unit beyond ASCII its page and its row."""
    wide = text.translate(None, _ASCII).decode("utf-8", "replace").encode("utf-16-be")
    pages = int.from_bytes(wide[::2].translate(_PAGE_CLASSES), "big")
    rows = int.from_bytes(wide[1::2].translate(_ROW_CLASSES), "big")
    return (pages | rows).to_bytes(len(wide) // 2, "big")


def _changes(text: bytes) -> int:
    """Return how many ASCII bytes differ from the one before."""
    plain = text if text.isascii() else text.translate(None, _NOT_PLAIN)
    number = int.from_bytes(plain, "big")
    return len(plain) + 1 - (number ^ number >> 8).to_bytes(len(plain) + 1, "big").count(0)


def _total(costs: bytes) -> int:
    """Return the sum of the costs: Adler-32 adds modulo 65,521, and 512 costs of at most 127 stay below that."""
    total = 0
    for start in range(0, len(costs), 512):
        total += adler32(costs[start : start + 512], 0) & 0xFFFF
    return total


class _Estimate:
    name = "estimate"
    unit = "tokens"

    def count(self, text: bytes) -> int:
        cost = start = 0
        while start < len(text):
            # Include the byte before the block, so that the position of block boundaries makes no difference.
            before = min(start, 1)
            pairs = _pairs(text[start - before : start - before + _BLOCK])[before:]
            if start + len(pairs) < len(text):
                # For the same reason, leave an incomplete group of digits to the next block.
                group = (len(pairs) - len(pairs.rstrip(_DIGIT_MORE))) % 3
                pairs = pairs[: len(pairs) - group]
            cost += 100 * pairs.count(_THREE_MORE_DIGITS) + _total(pairs.translate(_PAIR_COSTS))
            start += len(pairs)
        cost += _total(text.translate(_BYTE_COSTS))
        if not text.isascii():
            cost += _total(_units(text).translate(_UNIT_COSTS)) * 5 // 2
        # A token has at least one byte, and rarely more than eight, except in runs of one character. No ordinary
        # text has more than five ASCII bytes that differ from their neighbour to a token. So even text made to
        # fool the costs isn't counted more than about five times too low.
        least = -(-len(text) // 8)
        if cost < 20 * len(text):
            least = max(least, _changes(text) // 5)
        return min(max(-(-cost // 100), least), len(text))


class _Exact:
    name = "exact"
    unit = "tokens"

    def count(self, text: bytes) -> int:
        spelled = text.decode("utf-8", "replace")
        # One byte is looked for many times as fast as two.
        if b"|" in text and b"<|" in text:
            # What is spelled like a special token is text, too.
            return len(_tokenizer().encode_ordinary(spelled))
        # Four bytes to a token, and no list of integers, which would take longer than the rest.
        return len(_tokenizer().encode_flat(spelled)) // 4


@cache
def _tokenizer() -> Any:
    from splintr import Tokenizer

    return Tokenizer.from_pretrained("o200k_base")
