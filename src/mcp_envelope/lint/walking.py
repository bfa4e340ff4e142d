"""Which files are meant by a list of paths.

Strategy: a file that is named is linted, whatever it is called. A folder is walked for `*.py`, in order, without
what nobody wrote by hand: hidden folders, virtual environments, caches, build output. Links to folders are not
followed, so a loop of links is no loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Final

_NOT_WALKED: Final = frozenset({"__pycache__", "build", "dist", "node_modules", "site-packages", "venv"})


def python_files(paths: Iterable[str], complain: Callable[[OSError], None]) -> Iterator[str]:
    """Every file once, in the order in which it is first met."""
    seen: set[str] = set()
    for path in paths:
        for found in _walk(path, complain) if os.path.isdir(path) else (path,):
            if os.path.normpath(found) not in seen:
                seen.add(os.path.normpath(found))
                yield found


def _walk(folder: str, complain: Callable[[OSError], None]) -> Iterator[str]:
    for here, folders, files in os.walk(folder, onerror=complain):
        folders[:] = sorted(name for name in folders if _is_walked(here, name))
        for name in sorted(files):
            path = os.path.join(here, name)
            # A pipe that is called x.py would be waited for.
            if name.endswith(".py") and os.path.isfile(path):
                yield path.removeprefix("./")


def _is_walked(here: str, name: str) -> bool:
    if name.startswith(".") or name in _NOT_WALKED:
        return False
    return not os.path.exists(os.path.join(here, name, "pyvenv.cfg"))
