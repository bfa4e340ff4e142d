"""How time and memory grow with the payload, from 3 KB to 200 MB."""

from benchmarks.apart import Measured, available, measure
from benchmarks.report import Table, progress
from benchmarks.samples import RECORDS, TOKENS

# Python objects take about eight times the room of their JSON, and the encoded bytes come on top.
_ROOM_FOR_OBJECTS = 12


def growth(seconds: float, most: str) -> Table:
    table = Table(
        name="growth",
        title=f"Growth: typed JSON to {TOKENS:,} tokens, each step and engine in a process of its own",
        columns={
            "encode ms": "{:.3g}",
            "seal ms": "{:.3g}",
            "× encode": "{:.2f}",
            "MB": "{:.1f}",
            "× payload": "{:.2f}",
        }
        | {"bytes in × encode": "{:.2f}", "shrinkfit × encode": "{:.2f}", "shrinkfit MB": "{:.1f}"}
        | {"seal is faster": "{:.1f} ×"},
        note="Processor time, best of the rounds. MB: peak memory on top of the caller's payload. The\n"
        "bisections and FastMCP's limiter are in the tables above and left out here, to keep the run short.",
    )
    for size, records in RECORDS.items():
        needed = records * 330 * _ROOM_FOR_OBJECTS
        if available() < needed:
            table.add(size, f"skipped: needs {needed / 1e9:.0f} GB of free memory")
            continue
        progress(f"growth: {size}")
        ours = measure(size, "seal", seconds)
        raw = measure(f"{size} bytes", "seal", seconds)
        theirs = measure(size, "shrinkfit", seconds)
        if ours is not None:
            table.add(size, *_figures(ours), raw.ratio if raw else None, *_beside(theirs, ours))
        if size == most:
            break
    return table


def _figures(found: Measured) -> list[float | None]:
    # Below a megabyte the resident set grows by whole arenas and says nothing about the payload.
    by_payload = found.memory if found.size > 1e6 else None
    return [1e3 * found.encode, 1e3 * found.engine, found.ratio, found.peak / 1e6, by_payload]


def _beside(theirs: Measured | None, ours: Measured) -> list[float | None]:
    if theirs is None:
        return [None, None, None]
    return [theirs.ratio, theirs.peak / 1e6, theirs.ratio / ours.ratio]
