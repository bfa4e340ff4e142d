"""Counts text in the budget's unit: bytes, UTF-16 units / 4, an estimate of tokens, or exact tokens.

The estimate has to run several times per reply, so it never looks at one token, nor loops over bytes in
Python. Every byte gets a kind (32 of them), and every kind a cost that depends on the sort of byte before it
(8 of them); every byte adds a small cost of its own. The costs were fitted once to o200k, leaning to the safe
side (benchmarks/meters_calibrate.py), and the whole sum is a handful of C-level passes: `translate` looks
costs up, one long integer puts each byte beside its neighbour, and Adler-32 adds the costs up.
"""

from difflib import get_close_matches
from functools import cache
from typing import Any, Protocol
from zlib import adler32

METERS: tuple[str, ...] = ("bytes", "chars4", "estimate", "exact")


class MeterUnavailable(Exception):
    """A known meter whose optional dependency is not installed."""


class Meter(Protocol):
    name: str
    unit: str

    def count(self, text: bytes) -> int:
        """The size of `text`, which is valid UTF-8, in this meter's unit."""
        ...


@cache
def meter(name: str) -> Meter:
    """The meter of that name."""
    match name:
        case "bytes":
            return _Bytes()
        case "chars4":
            return _Chars4()
        case "estimate":
            return _Estimate()
        case "exact":
            return _Exact()
    near = get_close_matches(name, METERS, n=1, cutoff=0)
    raise ValueError(f"unknown meter {name!r}: use one of {', '.join(METERS)}; the nearest is {near[0]!r}")


class _Bytes:
    name = "bytes"
    unit = "bytes"

    def count(self, text: bytes) -> int:
        return len(text)


_CONTINUATION = bytes(range(0x80, 0xC0))
_NOT_LEAD4 = bytes(range(0xF0))


class _Chars4:
    name = "chars4"
    unit = "tokens"

    def count(self, text: bytes) -> int:
        units = len(text)
        if not text.isascii():
            # One unit per character, and a second one for each character of four bytes.
            units = len(text.translate(None, _CONTINUATION)) + len(text.translate(None, _NOT_LEAD4))
        return -(-units // 4)


# The kinds of byte. Letters are grouped by how often English uses them, so that random letters, which make
# many more tokens than words do, cost more.
_KINDS = (
    *("eai", "ou", "tnsr", "ldhcm", "pgbfy", "vkw", "jqxz"),
    *("EAIOU", "TNSRLDCMPHGBF", "JKQVWXYZ"),
    "0123456789",
    *(" ", "\n\r", "\t"),
    *('"', "'`", ",", ":;", "([{", ")]}", "\\", "/", ".", "_", "-", "<>=", "|*#~+", "!?@$%^&"),
)
_CONTROL, _TAIL, _LEAD2, _LEAD = 28, 29, 30, 31
_DIGIT = _KINDS.index("0123456789")
# The sorts of byte before. White space is 0, which is also what the first byte of a text sees.
_SORTS = (
    *(" \t\n\r", "aeiou", "bcdfghjklmnpqrstvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"),
    "\"'`,;:([{",
)
_OTHER, _NOT_ASCII = 6, 7


def _classes() -> bytes:
    """For each byte its kind in the low five bits, its sort in the high three."""
    kinds = [_CONTROL] * 128 + [_TAIL] * 64 + [_LEAD2] * 32 + [_LEAD] * 32
    sorts = [_OTHER] * 128 + [_NOT_ASCII] * 128
    for table, groups in ((kinds, _KINDS), (sorts, _SORTS)):
        for number, group in enumerate(groups):
            for byte in group.encode():
                table[byte] = number
    return bytes(kind | sort << 5 for kind, sort in zip(kinds, sorts, strict=True))


_CLASSES = _classes()
_BLOCK = 16_384  # texts are taken in blocks, so that the two masks have a fixed length
_KIND_MASK = int.from_bytes(b"\x1f" * _BLOCK, "big")
_SORT_MASK = int.from_bytes(b"\xe0" * _BLOCK, "big")
# o200k cuts a run of digits into threes. Matches don't overlap, so each one is exactly one more group.
_THREE_MORE_DIGITS = bytes((_DIGIT | 4 << 5,)) * 3

# BEGIN fitted by benchmarks/meters_calibrate.py: hundredths of a token
_PAIR_COSTS = bytes.fromhex(
    "350011210000700000007f0000073830177e4e007f2e2d787f005b131e0f2500"
    "0e0000000000232d3742570e7f11000053793c2c080b000004282723200f1c00"
    "00002e1e1a7f0b09077f66007f301c22000a152f134200003425713c510f1100"
    "00281000492d35041e084700021529280024124333302e001333667f560f3000"
    "3123353922322b32513c056e7f1d230f4a4e25004e2e58056d45354f2a0f0f06"
    "1d00001f4e2c7f13212d3e455b2e0a00030700052344612002006b002a0f5f62"
    "0016130118003d26297265106c160022346f5500020002020002017f7f0f3706"
    "2700040000182d10100117007f0f2d3400130f1f0f010c0d300c0e000f0b0200"
)
_BYTE_COSTS = bytes.fromhex(
    "1a1d1e191b1b1b191c00071a1c151e1b1c1d1a1b1d1c1c191c1b1a1d191a1b1b"
    "013820014b003011001d0003170100020e0e0a1b000e091a010e002c6300233e"
    "4c0a47081516177f13007f7f00000d00002c000016347f7f00472c3a183b7300"
    "0f003900110b490001062f55000006002529000005105a08022e28130000031e"
    "0f0400001300000000001400182d1f001023311400005f002b1908001b00122d"
    "00004a1f011e02261032150d560a080019000032041008000800500001000018"
    "0f0f34275757001e192c0e0f0f0f110004000f0f280710080000190c0f0f0f0f"
    "00000d193e07002031000f041b210f406c0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f"
)
# END fitted


def _pairs(block: bytes) -> bytes:
    """For each byte its own kind, and the sort of the byte before it."""
    number = int.from_bytes(block.translate(_CLASSES), "big")
    return (number & _KIND_MASK | number >> 8 & _SORT_MASK).to_bytes(len(block), "big")


def _total(costs: bytes) -> int:
    """The sum of the bytes. Adler-32's low half is that sum modulo 65,521: 512 costs of at most 127 stay below."""
    total = 0
    for start in range(0, len(costs), 512):
        total += adler32(costs[start : start + 512], 0) & 0xFFFF
    return total


class _Estimate:
    name = "estimate"
    unit = "tokens"

    def count(self, text: bytes) -> int:
        cost = 0
        for start in range(0, len(text), _BLOCK):
            block = text[start : start + _BLOCK]
            pairs = _pairs(block)
            cost += 100 * pairs.count(_THREE_MORE_DIGITS)
            cost += _total(pairs.translate(_PAIR_COSTS)) + _total(block.translate(_BYTE_COSTS))
        # A token has at least one byte.
        return min(-(-cost // 100), len(text))


class _Exact:
    name = "exact"
    unit = "tokens"
    _tokenizer: Any = None

    def count(self, text: bytes) -> int:
        if self._tokenizer is None:
            self._tokenizer = _load()
        # Ordinary: a special token spelled in the text is text.
        return len(self._tokenizer.encode_ordinary(text.decode()))


def _load() -> Any:
    try:
        from splintr import Tokenizer
    except ImportError as error:
        raise MeterUnavailable('the exact meter needs splintr: pip install "mcp-envelope[exact]"') from error
    return Tokenizer.from_pretrained("o200k_base")
