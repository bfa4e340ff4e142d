"""Fits the costs of the `estimate` meter to o200k, and prints them as they stand in budget.py.

    python -m benchmarks.meters_calibrate            # print
    python -m benchmarks.meters_calibrate --write    # and paste into src/mcp_envelope/budget.py

Needs the dev extra, and the network for pip on the first run. About a minute, no other library.

Each calibration text is cut into pieces of 1,500 bytes. A piece is one equation: the costs of its byte pairs
and bytes, and one for each further group of digits, sum to its o200k tokens. Coordinate descent minimises the
squared relative errors. Too low weighs more than too high, and a cost is held near its pair's own
share of tokens, so that text unlike any of ours is not counted as nothing.
"""

import argparse
import random
import re
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
UNSEEN = 0.8  # where the cost of a character beyond ASCII starts
HIGHEST = 1.27  # what a byte of hundredths may hold without overflowing the meter's sum
SWEEPS = 200
COSTS = 512  # 256 pair costs, then 256 byte costs


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

    This is where the fit starts and what it is held near. Byte costs start at nothing, but for the first byte
    of a character beyond ASCII: scripts we have no text of are dear. A digit after a digit starts at nothing,
    because groups are counted apart, and so does a space after a space, because long runs are one token.
    """
    tokenizer = meters._load()
    begun, seen = [0.5] * 256, [1.0] * 256
    for text in texts.values():
        pairs = meters._pairs(text[: meters._BLOCK])
        place, scale = 0, 1000 / len(pairs)
        for token in tokenizer.encode_ordinary(text[: meters._BLOCK].decode("utf-8", "ignore")):
            begun[pairs[place]] += scale
            place += len(tokenizer.decode_token_bytes(token))
        for pair, n in Counter(pairs).items():
            seen[pair] += n * scale
    found = [min(b / s, 1.0) for b, s in zip(begun, seen, strict=True)]
    found[meters._THREE_MORE_DIGITS[0]] = 0.0
    found[meters._pairs(b"  ")[1]] = 0.0
    return found + [0.0] * 192 + [UNSEEN] * 64


def weight(name: str) -> float:
    if name.startswith(("run of", "control", "language", "small", "repeated")):
        return 0.3
    return 3.0 if name.split(",")[0] in corpora.REQUIRED else 1.0


def fit(texts: dict[str, bytes]) -> list[int]:
    """The costs in hundredths of a token."""
    exact = meters.meter_named("exact")
    columns: list[list[tuple[int, float]]] = [[] for _ in range(COSTS)]
    weights: list[float] = []
    short: list[float] = []  # what each piece's estimate lacks
    first = shares(texts)
    for name, text in texts.items():
        cut = pieces(text)
        for piece in cut:
            tokens, pairs = exact.count(piece), meters._pairs(piece)
            short.append(AIM - pairs.count(meters._THREE_MORE_DIGITS) / tokens)
            for offset, counts in ((0, Counter(pairs)), (256, Counter(piece))):
                for byte, n in counts.items():
                    columns[offset + byte].append((len(weights), n / tokens))
                    short[-1] -= first[offset + byte] * n / tokens
            weights.append(weight(name) / len(cut))
    costs = first.copy()
    lowest = [LOWEST * share for share in first[:256]] + [0.0] * 256
    order = list(range(COSTS))
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
            new = min(max(costs[index] + up / down, lowest[index]), HIGHEST)
            if (
                sweep >= SWEEPS - 8
            ):  # at last in whole hundredths; costs still to come make up for the rounding
                new = round(new * 100) / 100
            if step := new - costs[index]:
                costs[index] = new
                for row, x in columns[index]:
                    short[row] -= x * step
    return [round(cost * 100) for cost in costs]


def source(costs: list[int]) -> str:
    def table(name: str, values: list[int]) -> str:
        lines = [bytes(values[i : i + 32]).hex() for i in range(0, 256, 32)]
        return f"{name} = bytes.fromhex(\n" + "".join(f'    "{line}"\n' for line in lines) + ")\n"

    return table("_PAIR_COSTS", costs[:256]) + table("_BYTE_COSTS", costs[256:])


def main() -> None:
    parser = argparse.ArgumentParser(description="Fit the estimate meter to o200k.")
    parser.add_argument("--write", action="store_true", help="paste the costs into budget.py")
    write = parser.parse_args().write
    text = source(fit(corpora.calibration()))
    print(text)
    if write:
        path = Path(meters.__file__)
        body = re.sub(r"(?s)(# BEGIN fitted[^\n]*\n).*?(# END)", rf"\1{text}\2", path.read_text("utf-8"))
        path.write_text(body, "utf-8")


if __name__ == "__main__":
    main()
