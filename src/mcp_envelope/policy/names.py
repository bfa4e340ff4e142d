"""Words about names and values: what was probably meant, and how a value is shown in a complaint.

Strategy: a complaint shows what somebody wrote, but never all of it: a value is cut, its control characters
are spelled out, and a number too long to print is described.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

_LONGEST: Final = 40
# Printing a longer integer may be refused by Python itself.
_LONGEST_NUMBER: Final = 1 << 63


def nearest(name: str, names: Iterable[str]) -> str:
    """`, did you mean tokens?`, or nothing if no name is near."""
    from difflib import get_close_matches  # only here: it takes longer to import than all the rest

    found = get_close_matches(name[:200], list(names), n=1, cutoff=0.5)
    return f", did you mean {found[0]}?" if found else ""


def shown(value: object) -> str:
    """The value as a person wrote it, or the kind of thing it is."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        cut = value if len(value) <= _LONGEST else f"{value[: _LONGEST - 1]}…"
        return repr(cut)
    if isinstance(value, int):
        return str(value) if abs(value) < _LONGEST_NUMBER else "a number of many digits"
    if isinstance(value, float):
        return str(value)
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list | tuple):
        return "a list"
    return f"a {type(value).__name__}"
