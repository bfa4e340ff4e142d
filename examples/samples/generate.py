"""Sample payloads, the same ones on every run, so that no large file has to be kept.

Strategy: a random generator with a fixed seed picks words, paths and numbers. `python generate.py search` (or
`project`, `log`) prints one of the samples, to try the command on.
"""

from __future__ import annotations

import json
import sys
from random import Random
from typing import Any

_NOUNS = ("request", "session", "cache", "token", "worker", "queue", "batch", "cursor", "lease", "schema")
_VERBS = ("open", "close", "retry", "flush", "parse", "merge", "split", "rotate", "expire", "resolve")
_FOLDERS = ("core", "api", "storage", "network", "jobs", "web")
_PEOPLE = ("Amara", "Bo", "Chidi", "Dana", "Emil", "Fatou", "Grete", "Hiro")


def search() -> dict[str, Any]:
    """What a code search returns: 900 hits in no useful order."""
    random = Random(1)
    hits = [
        {
            "id": f"h{number:04}",
            "path": _path(random),
            "line": random.randint(1, 900),
            "score": round(random.random() * 10, 3),
            "tags": random.sample(_NOUNS, random.randint(1, 3)),
            "snippet": _code(random, 5),
        }
        for number in range(900)
    ]
    return {"query": "retry with backoff", "total": len(hits), "hits": hits}


def project() -> dict[str, Any]:
    """An object with two large lists of different sizes."""
    random = Random(2)
    files = [{"path": _path(random), "bytes": random.randint(200, 90_000)} for _ in range(1200)]
    commits = [
        {
            "id": f"{random.getrandbits(160):040x}",
            "author": random.choice(_PEOPLE),
            "message": f"{random.choice(_VERBS).capitalize()} the {random.choice(_NOUNS)} before the "
            f"{random.choice(_NOUNS)}: größer, 速い, 🚀",
            "files": sorted({_path(random) for _ in range(random.randint(1, 5))}),
        }
        for _ in range(400)
    ]
    return {"name": "lighthouse", "branch": "main", "files": files, "commits": commits}


def log() -> str:
    """What a build prints: 3,000 lines, the reason for its failure at the end."""
    random = Random(3)
    lines = [
        f"12:{second // 60 % 60:02}:{second % 60:02} {random.choice(('info ', 'info ', 'debug'))} "
        f"{random.choice(_FOLDERS)}: {random.choice(_VERBS)} {random.choice(_NOUNS)} "
        f"{random.randint(1, 9999)} in {random.randint(1, 400)} ms"
        for second in range(3000)
    ]
    lines.append("12:50:01 error storage: no space left on device while writing the cache")
    lines.append("build failed: 1 error, 0 warnings")
    return "\n".join(lines) + "\n"


def _path(random: Random) -> str:
    return f"src/{random.choice(_FOLDERS)}/{random.choice(_VERBS)}_{random.choice(_NOUNS)}.py"


def _code(random: Random, lines: int) -> str:
    def name() -> str:
        return f"{random.choice(_VERBS)}_{random.choice(_NOUNS)}"

    body = [f"    {random.choice(_NOUNS)} = {name()}({random.randint(1, 99)})" for _ in range(lines)]
    return f"def {name()}(self):\n" + "\n".join(body)


if __name__ == "__main__":
    samples = {"search": search, "project": project, "log": log}
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    if wanted not in samples:
        sys.exit(f"which sample? {', '.join(samples)}")
    made = samples[wanted]()
    text = made if isinstance(made, str) else json.dumps(made, ensure_ascii=False) + "\n"
    sys.stdout.buffer.write(text.encode())
