"""Suggestions for misspelled names."""

from __future__ import annotations

from collections.abc import Iterable

# Low enough for `std` and `standard`, too high for `halp` and `wrap`.
_SIMILAR = 0.54


def closest(name: str, names: Iterable[str], cutoff: float = _SIMILAR) -> str | None:
    """Return the name that was probably meant, or None if no name is similar enough."""
    from difflib import get_close_matches  # only here: it takes longer to import than all the rest

    found = get_close_matches(name[:200], list(names), n=1, cutoff=cutoff)
    return found[0] if found else None


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return `, did you mean tokens?`, or nothing if no name is similar enough."""
    found = closest(name, names)
    return f", did you mean {found}?" if found else ""
