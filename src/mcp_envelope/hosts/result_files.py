"""Results that a coding agent has put into a file of its own, because they were too large for it."""

from __future__ import annotations

import os
from typing import Final

_LARGEST: Final = 1 << 28


def saved_text(path: str, folder: str) -> str | None:
    """Return the text of a file in the folder where the agent keeps such files; a tool may name any other."""
    found = os.path.realpath(path)
    if os.path.dirname(found) != os.path.realpath(folder):
        return None
    try:
        if os.path.getsize(found) > _LARGEST:
            return None
        with open(found, encoding="utf-8", errors="replace", newline="") as file:
            return file.read()
    except OSError:
        return None
