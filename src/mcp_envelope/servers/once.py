"""What can be read only once: iterators, alone or inside of a value.

Strategy: a value is written to be measured, and that uses up the iterators in it. So they are looked for first, and
the library gets what was read instead of what is spent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

_PLAIN: Final = frozenset({int, float, bool, type(None)})
# The least bytes of an item of a list, and of a member of an object: `1,` and `"":1,`.
_ITEM: Final = 2
_MEMBER: Final = 5


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
    """Whether there is something in a value that can be read only once.

    A value that takes more than so many bytes as JSON is not looked at any further: it is cut anyway, from what was
    written, and not read a second time.
    """
    waiting, least = [value], 0
    while waiting and least <= most:
        found = waiting.pop()
        if isinstance(found, Yielded):
            # Its items were looked at one by one.
            continue
        if is_iterator(found):
            return True
        inner: Any
        if isinstance(found, list | tuple):
            inner, each = found, _ITEM
        elif isinstance(found, dict):
            inner, each = found.values(), _MEMBER
        else:
            inner, each = (getattr(found, "__dict__", None) or {}).values(), _MEMBER
        least += each * len(inner)
        if least > most:
            return False
        for part in inner:
            kind = type(part)
            if kind is str:
                least += len(part)
            elif kind not in _PLAIN:
                waiting.append(part)
    return False
