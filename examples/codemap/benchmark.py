"""How long a map of many files takes: `python examples/codemap/benchmark.py FOLDER [COUNT]`.

The first COUNT Python files of the folder, such as a `site-packages`, are copied and indexed; then one of them is
changed. Seconds of CPU say more than those of the clock where the machine has other things to do.
"""

from __future__ import annotations

import resource
import shutil
import sys
import tempfile
from pathlib import Path

from codemap.index import Built, Index


def main(source: Path, count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "files")
        files = sorted(path for path in source.rglob("*.py") if path.is_file())[:count]
        for path in files:
            copy = root / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        megabytes = sum(path.stat().st_size for path in files) / 1e6
        print(f"{len(files):,} files, {megabytes:.0f} MB")
        index = Index(root, Path(folder, "map.db"))
        measured("all of them", index)
        first = root / files[0].relative_to(source)
        first.write_bytes(first.read_bytes() + b"\n# changed\n")
        measured("one changed", index)
        measured("none changed", index)


def measured(what: str, index: Index) -> None:
    before = seconds_of_cpu()
    built: Built = index.build()
    cpu = seconds_of_cpu() - before
    print(f"{what}: {built.indexed:,} files in {built.seconds:.2f} s, {cpu:.2f} s of CPU")


def seconds_of_cpu() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10_000)
