"""Coverage-guided search: atheris changes inputs and keeps those that reach code no other has reached.

    python fuzz/guided.py frames -runs=1000000          # any option of libFuzzer

What it keeps goes to `.fuzz/NAME`, so that the next run starts from there. An input that breaks a promise is
written to the current folder as `crash-…`: put it into tests/found/NAME, where a test will try it from then on.
"""

from __future__ import annotations

import gc
import json
import logging
import sys
from pathlib import Path

import atheris
from atheris.import_hook import HookManager

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

# What each target looks for new ways in. The rest of the package is only in the way: each line costs.
WATCHED = {
    "frames": ["proxy", "jsontext", "errors", "outcome"],
    "conversations": ["fit", "schema", "lanes", "payload"],
    "handles": ["vault", "proxy.reads", "fit.pages"],
    "queries": ["vault"],
    "settings": ["config"],
    "clients": ["clients", "jsontext"],
}
# Whose bytes are choices, which no comparison in the package is about.
CHOICES = ("conversations",)


def unwatched(watched: list[str]) -> set[str]:
    """The modules of the package that are not among these: atheris takes all of a package, but for a list."""
    package = ROOT / "src" / "mcp_envelope"
    paths = (path.relative_to(package).with_suffix("") for path in package.rglob("*.py"))
    names = {".".join(path.parts).removesuffix(".__init__") for path in paths}
    return {
        f"mcp_envelope.{name}"
        for name in names
        if not f"{name}.".startswith(tuple(f"{each}." for each in watched))
    }


with HookManager({"mcp_envelope"}, unwatched(WATCHED[sys.argv[1]]), True, sys.argv[1] not in CHOICES):
    from fuzz.targets import SEEDS, TARGETS, WORDS, Mistakes, hurry


def main() -> None:
    name, *options = sys.argv[1:]
    corpus = ROOT / ".fuzz" / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(SEEDS[name]):
        (corpus / f"seed-{number}").write_bytes(seed)
    if name in WORDS:
        words = ROOT / ".fuzz" / f"{name}.words"
        words.write_text("".join(f"{json.dumps(word)}\n" for word in WORDS[name].split()))
        options.append(f"-dict={words}")
    log = logging.getLogger("mcp_envelope")
    log.addHandler(Mistakes())
    log.propagate = False
    hurry()
    # What was imported stays, and an execution leaves little behind.
    gc.freeze()
    gc.set_threshold(50_000)
    atheris.Setup(
        [sys.argv[0], str(corpus), "-rss_limit_mb=4096", "-max_len=4096", *options],
        TARGETS[name],
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
