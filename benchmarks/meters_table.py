"""Prints the tables of docs/meters.md: how far each token meter is from o200k, and what each meter costs.

    python -m benchmarks.meters_table            # print
    python -m benchmarks.meters_table --check    # and exit 1 if the estimate breaks its bounds

Needs the dev extra, and the network for pip on the first run. The texts are the held-out ones: nothing in
them was used to fit the estimate.
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from timeit import repeat

import msgspec
from benchmarks import corpora
from benchmarks.languages import HELD

from mcp_envelope.budget import METERS
from mcp_envelope.budget import meter_named as meter

WINDOW = 4_000
ROUNDS = 10  # calls timed together: few, so that the best of many is free of other work on the machine
MOST_OVER, MOST_UNDER = 0.15, -0.05


def windows(text: bytes) -> list[bytes]:
    parts = [text[i : i + WINDOW].decode("utf-8", "ignore").encode() for i in range(0, len(text), WINDOW)]
    return parts[:-1] or parts


def accuracy() -> list[str]:
    """Prints one row per text; returns the required texts that break the bounds."""
    exact, estimate, chars4 = meter("exact"), meter("estimate"), meter("chars4")
    broken = []
    print("| text | chars / token | estimate | its 4 KB windows, 5 %–95 % | chars4 | bytes / 4 |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, text in corpora.held_out().items():
        tokens = exact.count(text)
        error = estimate.count(text) / tokens - 1
        each = sorted(estimate.count(part) / exact.count(part) - 1 for part in windows(text))
        low, high = each[len(each) // 20], each[-1 - len(each) // 20]
        required = name in corpora.REQUIRED
        if required and not MOST_UNDER <= error <= MOST_OVER:
            broken.append(name)
        label = f"**{name}**" if required else name
        print(
            f"| {label} | {len(text.decode()) / tokens:.2f} | {error:+.1%} | {low:+.0%} … {high:+.0%} "
            f"| {chars4.count(text) / tokens - 1:+.0%} | {len(text) / 4 / tokens - 1:+.0%} |"
        )
    return broken


def languages() -> None:
    """Prints the estimate's error on a few everyday sentences in each language, and on the same in capitals."""
    exact, estimate = meter("exact"), meter("estimate")
    print("\n| language | chars / token | estimate | in capitals |\n|---|--:|--:|--:|")
    for name, sentences in HELD.items():
        error, capitals = (
            f"{estimate.count(text) / exact.count(text) - 1:+.0%}"
            for text in (sentences.encode(), sentences.upper().encode())
        )
        if sentences.upper() == sentences:
            capitals = ""
        length = len(sentences) / exact.count(sentences.encode())
        print(f"| {name} | {length:.2f} | {error} | {capitals} |")


def speed() -> None:
    """Prints each meter's time as a multiple of encoding a JSON text of the same size."""
    print("\n| JSON text | " + " | ".join(METERS) + " |\n|---|" + "--:|" * len(METERS))
    records = corpora.Maker(held=True).batch(300)
    for kilobytes in (2, 8, 64):
        n = 1
        while len(msgspec.json.encode(records[:n])) < 1024 * kilobytes:
            n += 1
        text = msgspec.json.encode(records[:n])
        calls: list[Callable[[], object]] = [
            partial(msgspec.json.encode, records[:n]),
            *(partial(meter(m).count, text) for m in METERS),
        ]
        base, *times = [min(repeat(call, number=ROUNDS, repeat=200)) for call in calls]
        print(f"| {kilobytes} KB | " + " | ".join(f"{time / base:.2g} ×" for time in times) + " |")
        micros = ", ".join(
            f"{name} {time / ROUNDS * 1e6:.1f} µs" for name, time in zip(METERS, times, strict=True)
        )
        print(f"{kilobytes} KB: encode {base / ROUNDS * 1e6:.1f} µs, {micros}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description="Judge the token meters on held-out texts.")
    parser.add_argument("--check", action="store_true", help="exit 1 if a bold text is out of bounds")
    check = parser.parse_args().check
    broken = accuracy()
    languages()
    speed()
    if broken:
        print(f"out of bounds: {', '.join(broken)}", file=sys.stderr)
    return 1 if check and broken else 0


if __name__ == "__main__":
    sys.exit(main())
