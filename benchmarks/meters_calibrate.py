"""Fits the costs of the `estimate` meter to o200k, and prints them as they stand in budget.py.

    python -m benchmarks.meters_calibrate            # print
    python -m benchmarks.meters_calibrate --write    # and paste into src/mcp_envelope/budget.py
    python -m benchmarks.meters_calibrate --beyond   # leave the costs of ASCII as they are

Needs the dev extra, and the network for pip on the first run. About a minute, no other library.

Each calibration text is cut into pieces of 1,500 bytes. A piece is one equation: the costs of its byte pairs,
bytes and units beyond ASCII, and one for each further group of digits, sum to its o200k tokens. Coordinate
descent minimises the squared relative errors. Too low weighs more than too high, and a cost is held near its
pair's own share of tokens, so that text unlike any of ours is not counted as nothing. A unit's cost is held near
what the characters of its page and row take in random order: that is what a script without a text keeps.
"""

import argparse
import random
import re
import unicodedata
from collections import Counter
from pathlib import Path

from benchmarks import corpora

from mcp_envelope import budget as meters

PIECE = 1_500
PIECES = 44  # per text at most
AIM = 1.03  # lean: aim above the truth
UNDER = 1.5  # an error below the aim weighs this much more
RIDGE = 0.002
LOWEST = 0.3  # a pair costs at least this part of its own share
LOWEST_UNIT = 0.1
TRAILING = 1.0  # the second unit of a character of two costs this at least, so that the two can cost four
# What a byte of hundredths, or fortieths, may hold without overflowing the meter's sum.
HIGHEST, HIGHEST_UNIT = 1.27, 3.175
MIXED = 0.05  # a piece counts towards the costs of units if this part of its bytes is beyond ASCII
SWEEPS = 200
_TRAILING = meters._PAGE_CLASSES[0xDC]
COSTS = 768  # 256 pair costs, then 256 byte costs, then 256 unit costs


def pieces(text: bytes) -> list[bytes]:
    """Pieces of whole characters, spread evenly over the text."""
    out, start = [], 0
    while start < len(text):
        end = min(len(text), start + PIECE)
        while end < len(text) and text[end] & 0xC0 == 0x80:
            end += 1
        out.append(text[start:end])
        start = end
    if len(out) > 1 and len(out[-1]) < PIECE // 2:
        out.pop()
    return out[:: -(-len(out) // PIECES)]


def shares(texts: dict[str, bytes]) -> list[float]:
    """Each pair's own share: how often a token begins at it. Texts count alike; an unseen pair gets a half.

    This is where the fit starts and what it is held near. Byte costs start at nothing. A digit after a digit
    starts at nothing, because groups are counted apart, and so does a space after a space, because long runs are
    one token.
    """
    tokenizer = meters._tokenizer()
    begun, seen = [0.5] * 256, [1.0] * 256
    for text in texts.values():
        pairs = meters._pairs(text[: meters._BLOCK])
        place, scale = 0, 1000 / len(pairs)
        for token in tokenizer.encode_ordinary(text[: meters._BLOCK].decode("utf-8", "ignore")):
            if pairs[place] & 31 != meters._BEYOND:
                begun[pairs[place]] += scale
            place += len(tokenizer.decode_token_bytes(token))
        for pair, n in Counter(pairs).items():
            seen[pair] += n * scale
    found = [min(b / s, 1.0) for b, s in zip(begun, seen, strict=True)]
    found[meters._THREE_MORE_DIGITS[0]] = 0.0
    found[meters._pairs(b"  ")[1]] = 0.0
    for pair in range(256):
        if pair & 31 == meters._BEYOND:
            found[pair] = 0.0
    return found + [0.0] * 256 + unfitted()


def unfitted() -> list[float]:
    """What a unit of each page and row takes in random order; of several blocks, in the dearest one."""
    mixed, exact = random.Random(11), meters.meter_named("exact")
    blocks: dict[tuple[int, int], list[str]] = {}
    for code in range(0x80, 0x30000):
        if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co", "Cc"):
            unit = meters._units(chr(code).encode())[0]
            blocks.setdefault((unit, code >> 8 if unit & 31 == meters._OTHER_PAGES else 0), []).append(
                chr(code)
            )
    costs = [0.0] * 256
    for (unit, _), characters in blocks.items():
        tokens = exact.count("".join(mixed.choices(characters, k=400)).encode()) / 400
        costs[unit] = max(costs[unit], tokens - TRAILING * (characters[0] > "\uffff"))
    return [
        TRAILING if unit & 31 == _TRAILING else min(cost or max(costs), 3.0)
        for unit, cost in enumerate(costs)
    ]


def weight(name: str) -> float:
    if name.startswith(("run of", "control", "small", "repeated")):
        return 0.3
    return 3.0 if name.split(",")[0] in corpora.REQUIRED else 1.0


def fit(texts: dict[str, bytes], fixed: bytes = b"") -> list[int]:
    """The costs in hundredths of a token, and fortieths for a unit; the first ones stay as they are `fixed`."""
    exact = meters.meter_named("exact")
    columns: list[list[tuple[int, float]]] = [[] for _ in range(COSTS)]
    weights: list[float] = []
    short: list[float] = []  # what each piece's estimate lacks
    first = [cost / 100 for cost in fixed]
    first += shares(texts)[len(fixed) :]
    for name, text in texts.items():
        cut = [
            p for p in pieces(text) if not fixed or len(p.translate(None, meters._ASCII)) >= MIXED * len(p)
        ]
        for piece in cut:
            tokens, pairs = exact.count(piece), meters._pairs(piece)
            short.append(AIM - pairs.count(meters._THREE_MORE_DIGITS) / tokens)
            ascii_only = bytes(byte for byte in piece if byte < 128)
            sets = (pairs, ascii_only, meters._units(piece))
            for offset, counts in zip((0, 256, 512), map(Counter, sets), strict=True):
                for byte, n in counts.items():
                    columns[offset + byte].append((len(weights), n / tokens))
                    short[-1] -= first[offset + byte] * n / tokens
            weights.append(weight(name) / len(cut))
    costs = first.copy()
    lowest = [LOWEST * share for share in first[:256]] + [0.0] * 256
    lowest += [TRAILING if unit & 31 == _TRAILING else LOWEST_UNIT for unit in range(256)]
    order = list(range(len(fixed), COSTS))
    mixed = random.Random(7)
    for sweep in range(SWEEPS):
        mixed.shuffle(order)
        for index in order:
            up = RIDGE * (first[index] - costs[index])
            down = RIDGE
            for row, x in columns[index]:
                w = weights[row] * (UNDER if short[row] > 0 else 1.0)
                up += w * x * short[row]
                down += w * x * x
            highest, parts = (HIGHEST, 100) if index < 512 else (HIGHEST_UNIT, 40)
            new = min(max(costs[index] + up / down, lowest[index]), highest)
            # At last in whole hundredths; costs still to come make up for the rounding.
            if sweep >= SWEEPS - 8:
                new = round(new * parts) / parts
            if step := new - costs[index]:
                costs[index] = new
                for row, x in columns[index]:
                    short[row] -= x * step
    return [round(cost * (100 if index < 512 else 40)) for index, cost in enumerate(costs)]


def source(costs: list[int]) -> str:
    def table(name: str, values: list[int]) -> str:
        lines = [bytes(values[i : i + 32]).hex() for i in range(0, 256, 32)]
        return f"{name} = bytes.fromhex(\n" + "".join(f'    "{line}"\n' for line in lines) + ")\n"

    names = ("_PAIR_COSTS", "_BYTE_COSTS", "_UNIT_COSTS")
    return "".join(table(name, costs[i * 256 : i * 256 + 256]) for i, name in enumerate(names))


def main() -> None:
    parser = argparse.ArgumentParser(description="Fit the estimate meter to o200k.")
    parser.add_argument("--write", action="store_true", help="paste the costs into budget.py")
    parser.add_argument("--beyond", action="store_true", help="fit only characters beyond ASCII")
    args = parser.parse_args()
    fixed = meters._PAIR_COSTS + meters._BYTE_COSTS if args.beyond else b""
    text = source(fit(corpora.calibration(), fixed))
    print(text)
    if args.write:
        path = Path(meters.__file__)
        body = re.sub(r"(?s)(# BEGIN fitted[^\n]*\n).*?(# END)", rf"\1{text}\2", path.read_text("utf-8"))
        path.write_text(body, "utf-8")


if __name__ == "__main__":
    main()
