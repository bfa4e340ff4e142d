"""What can be read only once: iterators, alone or inside of a value.

Strategy: a value is written to be measured, and that uses up the iterators in it. So they are looked for first, and
the library gets what was read instead of what is spent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

_PLAIN: Final = frozenset({str, int, float, bool, type(None)})


def is_iterator(value: object) -> bool:
    return hasattr(type(value), "__next__") and not isinstance(value, Yielded)


class Yielded(Iterator[Any]):
    """Items that were yielded, to be yielded again: as often as a library reads them."""

    def __init__(self, values: list[Any]) -> None:
        self._values = values
        self._rest = iter(values)

    def __iter__(self) -> Yielded:
        self._rest = iter(self._values)
        return self

    def __next__(self) -> Any:
        return next(self._rest)


def holds_iterator(value: Any, most: int) -> bool:
    """Whether there is something in a value that can be read only once. So many parts are looked at: more of them
    are too large to be read a second time anyway."""
    waiting, seen = [value], 0
    while waiting and seen <= most:
        found = waiting.pop()
        if isinstance(found, Yielded):
            # Its items were looked at one by one.
            continue
        if is_iterator(found):
            return True
        if isinstance(found, dict):
            inner: Any = found.values()
        elif isinstance(found, list | tuple):
            inner = found
        else:
            inner = (getattr(found, "__dict__", None) or {}).values()
        seen += len(inner)
        waiting.extend(part for part in inner if type(part) not in _PLAIN)
    return False
