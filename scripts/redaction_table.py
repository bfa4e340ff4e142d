"""The table in docs/redaction.md: what redaction finds where it should, and where it should not.

    python scripts/redaction_table.py            # prints it
    python scripts/redaction_table.py --update   # writes it into the page
    python scripts/redaction_table.py --show     # also prints what was found in ordinary files

The ordinary files are those of the packages in this environment and of the servers from npm that the tests install.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import random
import re
import sys
import sysconfig
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from benchmarks.secret_formats import FORMATS  # noqa: E402

from mcp_envelope.redaction import Masking, Redactor  # noqa: E402
from mcp_envelope.secrets import LEVELS  # noqa: E402

PAGE: Final = ROOT / "docs" / "redaction.md"
TABLE: Final = re.compile(r"(<!-- table -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_LARGEST: Final = 1 << 21
_EXAMPLES: Final = 20
_LINES: Final = 20_000
_LOCKS: Final = ("*.lock", "*-lock.json", "*-lock.yaml", "go.sum", "RECORD", ".package-lock.json")


def _kind(path: Path, text: str) -> str:
    if any(path.match(pattern) for pattern in _LOCKS):
        return "lock files and lists of hashes"
    if ".min." in path.name or (
        path.suffix in (".js", ".css") and max(map(len, text.splitlines()), default=0) > 2000
    ):
        return "minified code"
    if path.suffix in (".md", ".rst", ".txt", ".html") or path.name in ("METADATA", "README"):
        return "documentation"
    if path.suffix in (".json", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".xml"):
        return "data and settings"
    return "code"


def _files() -> Iterator[tuple[str, str, str]]:
    """Yield kind, name and text of each file."""
    roots = [Path(sysconfig.get_paths()["purelib"]), ROOT / ".venv" / "servers", ROOT / ".venv" / "node"]
    for root in roots:
        for path in sorted(root.rglob("*")):
            try:
                if path.is_file() and not path.is_symlink() and path.stat().st_size <= _LARGEST:
                    text = path.read_bytes().decode()
                    yield _kind(path, text), str(path.relative_to(root)), text
            except (UnicodeDecodeError, OSError):
                continue


def _made_up() -> Iterator[tuple[str, str, str]]:
    rng = random.Random(1)
    kind = f"UUIDs, hashes and base64 ({_LINES:,} lines each, made up)"
    yield kind, "uuids", "\n".join(str(uuid.UUID(int=rng.getrandbits(128))) for _ in range(_LINES))
    for name in ("md5", "sha1", "sha256"):
        lines = [hashlib.new(name, rng.randbytes(8)).hexdigest() for _ in range(_LINES)]
        yield kind, name, "\n".join(f"{line}  file-{number}.tar.gz" for number, line in enumerate(lines))
    yield kind, "base64", "\n".join(base64.b64encode(rng.randbytes(48)).decode() for _ in range(_LINES))
    lines = [f'"integrity": "sha512-{base64.b64encode(rng.randbytes(64)).decode()}"' for _ in range(_LINES)]
    yield kind, "integrity", "\n".join(lines)


def tables(show: bool = False) -> str:
    using = {level: Redactor(level) for level in LEVELS}
    lines = ["| secrets of | formats | found by `tokens` | found by `keys` |", "|---|--:|--:|--:|"]
    for level, title in zip(LEVELS, ("a shape of their own", "a telling name or place"), strict=True):
        formats = [each for each in FORMATS if each.level == level]
        found = dict.fromkeys(LEVELS, 0)
        for each in formats:
            for by, redactor in using.items():
                found[by] += all(
                    secret not in redactor.redact_text(text, Masking())
                    for text, secret in map(each.example, range(_EXAMPLES))
                )
        lines.append(f"| {title} | {len(formats)} | {found['tokens']} | {found['keys']} |")
    lines += [
        "",
        "| ordinary files | files | MB | masked by `tokens` | masked by `keys` |",
        "|---|--:|--:|--:|--:|",
    ]
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    hits: Counter[tuple[str, str]] = Counter()
    for kind, name, text in (*_files(), *_made_up()):
        counts[kind] += 1
        sizes[kind] += len(text)
        for level, redactor in using.items():
            masking = Masking()
            redactor.redact_text(text, masking)
            hits[kind, level] += masking.found.total()
            if show and masking.found:
                print(level, name, dict(masking.found), file=sys.stderr)
    for kind, count in counts.most_common():
        found_here = " | ".join(str(hits[kind, level]) for level in LEVELS)
        lines.append(f"| {kind} | {count:,} | {sizes[kind] / 1e6:,.0f} | {found_here} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--update", action="store_true", help="write the table into the page")
    parser.add_argument("--show", action="store_true", help="say what was found in which ordinary file")
    options = parser.parse_args()
    made = tables(options.show)
    if options.update:
        page = PAGE.read_text()
        PAGE.write_text(TABLE.sub(lambda found: f"{found[1]}\n{made}\n{found[3]}", page))
    else:
        print(made)


if __name__ == "__main__":
    main()
