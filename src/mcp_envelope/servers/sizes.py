"""How large a value is, about, at a glance.

Strategy: a walk over the value that counts what its JSON would have at least, and gives up as soon as that is
more than it was asked about. So it costs no more than what is small, whatever the value is. It is a guess that
saves work; what leaves is measured.
"""

from __future__ import annotations

from typing import Any


def is_small(value: Any, most: int) -> bool:
    """Whether a value's JSON has about `most` bytes or fewer. Of what it cannot look into, it says no."""
    left = most
    waiting = [value]
    while waiting:
        item = waiting.pop()
        kind = type(item)
        if kind is str:
            left -= len(item) + 3
        elif item is None or kind is int or kind is float or kind is bool:
            left -= 5
        elif kind is dict:
            left -= 2 + 4 * len(item)
            if left >= 0:
                waiting.extend(item)
                waiting.extend(item.values())
        elif kind is list or kind is tuple:
            left -= 2 + len(item)
            if left >= 0:
                waiting.extend(item)
        else:
            # Models and dataclasses keep their fields here; what keeps them elsewhere is not looked into.
            fields = getattr(item, "__dict__", None)
            if not fields or not hasattr(kind, "__annotations__"):
                return False
            left -= 2
            waiting.append(fields)
        if left < 0:
            return False
    return True
