"""One engine on one sample in a process of its own: time beside one encode, and how far memory grows.

Memory is the resident set's peak during the first call on the payload, less what was resident right before
it: the caller's own payload is not counted, everything on top of it is. Only Linux lets us reset the peak;
elsewhere it is the process's highest so far.
"""

import contextlib
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
from benchmarks.clock import race
from benchmarks.engines import ENGINES, encode, sealing
from benchmarks.samples import TOKENS, Sample, orders, sample


@dataclass(frozen=True)
class Measured:
    size: int  # bytes of the payload as it came in, if that was bytes, else as compact JSON
    encode: float  # seconds; 0 where only memory was asked for
    engine: float
    peak: int  # bytes
    traced: int  # bytes, as Python's allocators count them; 0 where that was not asked for

    @property
    def ratio(self) -> float:
        return self.engine / self.encode

    @property
    def memory(self) -> float:
        return self.peak / self.size


def measure(name: str, engine: str, seconds: float, trace: bool = False) -> Measured | None:
    """None if the engine is not installed, or cannot take this sample."""
    request = json.dumps({"name": name, "engine": engine, "seconds": seconds, "trace": trace})
    command = [sys.executable, "-m", "benchmarks.apart", request]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent.parent)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        print(f"  {engine} on {name} failed: {''.join(last)}", file=sys.stderr)
        return None
    answer = json.loads(done.stdout)
    return Measured(**answer) if answer else None


def available() -> int:
    """Free memory in bytes; a guess where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 8 << 30
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), 8 << 30)


def _measure(name: str, engine: str, seconds: float, trace: bool) -> Measured | None:
    of = sample(name)
    room = 3 * TOKENS
    small = Sample.of(orders(100))
    warm = ENGINES[engine](small, room)
    call = ENGINES[engine](of, room)
    if warm is None or call is None:
        return None
    # Whatever is imported or compiled on first use belongs to no payload.
    warm()
    if engine == "seal" and of.options:
        sealing(Sample(small.payload, small.value, of.options))()
    peak = _growth(call)
    traced = _traced(call) if trace else 0
    yardstick = encode(of)
    size = len(of.payload) if isinstance(of.payload, bytes) else len(yardstick())
    if not seconds:
        return Measured(size, 0, 0, peak, traced)
    times = race({"encode": yardstick, "engine": call}, seconds)
    engine_time = times.best("engine")
    return Measured(size, engine_time / times.ratio("engine", "encode"), engine_time, peak, traced)


def _growth(call: Callable[[], Any]) -> int:
    before = _reset_peak()
    kept = call()
    after = _peak()
    del kept
    return max(after - before, 0)


def _reset_peak() -> int:
    """Forget the peak so far; gives what is resident now, in bytes."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    # Not ru_maxrss where it can be helped: a child inherits its parent's there.
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def _traced(call: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


if __name__ == "__main__":
    found = _measure(**json.loads(sys.argv[1]))
    sys.stdout.buffer.write(msgspec.json.encode(asdict(found) if found else None))
