"""Coverage-guided search: atheris changes inputs and keeps those that reach code no other has reached.

    python fuzz/guided.py frames -runs=1000000          # any option of libFuzzer

What it keeps goes to `.fuzz/NAME`, so that the next run starts from there. An input that breaks a promise is
written to the current folder as `crash-…`: put it into tests/found/NAME, where a test will try it from then on.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import atheris

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

# Where each target looks for new ways, so that it isn't led astray by what others are about.
WATCHED = {
    "frames": ["proxy", "jsontext", "errors", "outcome"],
    "conversations": ["fit", "schema", "lanes", "payload"],
    "handles": ["vault", "proxy"],
    "queries": ["vault"],
    "settings": ["config"],
    "clients": ["clients", "jsontext"],
}

with atheris.instrument_imports(include=[f"mcp_envelope.{each}" for each in WATCHED[sys.argv[1]]]):
    from fuzz.targets import SEEDS, TARGETS, Mistakes, hurry


def main() -> None:
    name, *options = sys.argv[1:]
    corpus = ROOT / ".fuzz" / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(SEEDS[name]):
        (corpus / f"seed-{number}").write_bytes(seed)
    log = logging.getLogger("mcp_envelope")
    log.addHandler(Mistakes())
    log.propagate = False
    hurry()
    atheris.Setup([sys.argv[0], str(corpus), "-rss_limit_mb=4096", "-max_len=4096", *options], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
