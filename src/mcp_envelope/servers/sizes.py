"""How large a value is, about, at a glance.

Strategy: a look at the top of the value and one level below, at lengths only. So it costs a few microseconds,
whatever the value is. It is a guess that saves work: large values are sealed where they are returned, before the
library writes them twice. What leaves is measured.
"""

from __future__ import annotations

from typing import Any, Final

_MANY: Final = 64
_LONG: Final = 1 << 12
_SCALARS: Final = frozenset({int, float, bool, type(None)})


def looks_small(value: Any, deeper: bool = True) -> bool:
    """Whether a value seems to be a few kilobytes at most. Of what it cannot look into, it says no."""
    kind = type(value)
    if kind is str:
        return len(value) <= _LONG
    if kind in _SCALARS:
        return True
    if kind is dict:
        inner = value.values()
    elif kind is list or kind is tuple:
        inner = value
    else:
        # Models and dataclasses keep their fields here.
        fields = getattr(value, "__dict__", None)
        if not fields or not hasattr(kind, "__annotations__"):
            return False
        inner = fields.values()
    if len(inner) > _MANY:
        return False
    if deeper:
        for item in inner:
            if type(item) not in _SCALARS and not looks_small(item, False):
                return False
    return True
