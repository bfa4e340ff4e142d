"""The functions of JMESPath, each with a bound on what it may cost.

Strategy: they do what the library's do, answer for answer. But a function here tells the budget what it is
going to do before it does it. Lists can hold the same long string a million times over, so what counts is not
how much memory the arguments take but how much there is to look at.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from .bounds import Budget

# An expression after `&`, ready to be applied to a value.
Step = Callable[[Any], Any]

# What a reference and an entry of a dictionary take in memory, about; and an empty string or container.
POINTER: Final = 8
ENTRY: Final = 100
OBJECT: Final = 56
# Characters that are compared or copied in the time of one step.
_CHARACTERS: Final = 64

# The types of the arguments, and whether the last of them may be repeated.
SIGNATURES: Final[dict[str, tuple[tuple[str, ...], bool]]] = {
    "abs": (("number",), False),
    "avg": (("array-number",), False),
    "ceil": (("number",), False),
    "contains": (("array|string", "any"), False),
    "ends_with": (("string", "string"), False),
    "floor": (("number",), False),
    "join": (("string", "array-string"), False),
    "keys": (("object",), False),
    "length": (("string|array|object",), False),
    "map": (("expref", "array"), False),
    "max": (("array-number|array-string",), False),
    "max_by": (("array", "expref"), False),
    "merge": (("object",), True),
    "min": (("array-number|array-string",), False),
    "min_by": (("array", "expref"), False),
    "not_null": (("any",), True),
    "reverse": (("array|string",), False),
    "sort": (("array-number|array-string",), False),
    "sort_by": (("array", "expref"), False),
    "starts_with": (("string", "string"), False),
    "sum": (("array-number",), False),
    "to_array": (("any",), False),
    "to_number": (("any",), False),
    "to_string": (("any",), False),
    "type": (("any",), False),
    "values": (("object",), False),
}


class WrongType(Exception):
    """An argument is not what the function works on. The message is for people."""


class Spelled(float):
    """A number with a point or an exponent that remembers how it was written."""

    __slots__ = ("spelling",)
    spelling: str


_TYPES: Final[dict[type, str]] = {
    str: "string",
    bool: "boolean",
    list: "array",
    dict: "object",
    float: "number",
    Spelled: "number",
    int: "number",
    type(None): "null",
}


def type_of(value: object) -> str:
    return _TYPES.get(type(value), "expref")


def is_false(value: Any) -> bool:
    """What a condition takes for no: null, false, and whatever is empty. Zero is not among them."""
    return value is None or value is False or (type(value) in (str, list, dict) and not value)


class Functions:
    def __init__(self, budget: Budget) -> None:
        self._budget = budget

    def call(self, name: str, arguments: list[Any]) -> Any:
        wanted, _ = SIGNATURES[name]
        for index, argument in enumerate(arguments):
            self._check(name, argument, wanted[min(index, len(wanted) - 1)])
        try:
            return getattr(self, f"_{name}")(*arguments)
        except (OverflowError, ValueError) as error:
            raise WrongType(f"{name}() cannot reckon with such a number: {error}") from None

    def _check(self, name: str, argument: Any, wanted: str) -> None:
        if wanted in ("any", "expref"):
            return
        actual = type_of(argument)
        inside = ""
        for option in wanted.split("|"):
            kind, _, inner = option.partition("-")
            if actual != kind:
                continue
            if not inner:
                return
            self._budget.spend(len(argument))
            odd = next((item for item in map(type_of, argument) if item != inner), None)
            if odd is None:
                return
            inside = inside or f" with a {odd} in it"
        options = wanted.replace("array-", "array of ").replace("|", " or ")
        raise WrongType(
            f"{name}() wants {options}, not {actual}{inside}; choose the right ones with a filter first"
        )

    # -- what things cost -----------------------------------------------------------------------------------

    def look_at(self, value: Any, most: int) -> int:
        """How long the value is when written, if that is less than `most`. What is shared counts each time."""
        size = 0
        seen = 0
        waiting = [value]
        while waiting:
            item = waiting.pop()
            kind = type(item)
            if kind is str:
                size += len(item) + 3
            elif kind is dict:
                size += 2 + 4 * len(item)
                for key in item:
                    size += len(key)
                waiting.extend(item.values())
                seen += len(item)
            elif kind is list:
                size += 2
                waiting.extend(item)
                seen += len(item)
            else:
                size += 6
            seen += 1
            if seen > 1000 or size > most:
                self._budget.spend(seen + size // _CHARACTERS if size > most else seen)
                seen = 0
                if size > most:
                    return size
        self._budget.spend(seen + size // _CHARACTERS)
        return size

    def equal(self, left: Any, right: Any, most: int) -> bool:
        """Whether two values are the same. As in the library, 1 is not true, but [1] is [true]."""
        for one, other in ((left, right), (right, left)):
            if type(one) is bool and type_of(other) == "number":
                return False
        if type(left) in (list, dict) and type(left) is type(right):
            if max(self.look_at(left, most), self.look_at(right, most)) > most:
                self._budget.refuse("it compares values that are too large")
        elif type(left) is str:
            self._budget.spend(len(left) // _CHARACTERS)
        return bool(left == right)

    def ordered(self, name: str, left: Any, right: Any) -> bool | None:
        kinds = (type_of(left), type_of(right))
        if kinds not in (("number", "number"), ("string", "string")):
            # The library lets a TypeError out if one is a number and the other a string.
            return None
        if kinds[0] == "string":
            self._budget.spend(min(len(left), len(right)) // _CHARACTERS)
        if name == "lt":
            return bool(left < right)
        if name == "lte":
            return bool(left <= right)
        return bool(left > right) if name == "gt" else bool(left >= right)

    def watched(self, items: list[Any], cost: int = 1) -> Iterator[Any]:
        """The items, with a look at the budget every so often; `cost` is the steps that each will take."""
        stride = max(1024 // cost, 1)
        for at in range(0, len(items), stride):
            some = items[at : at + stride]
            self._budget.spend(cost * len(some))
            yield from some

    def made(self, items: list[Any]) -> list[Any]:
        self._budget.hold(OBJECT + POINTER * len(items))
        return items

    def _said(self, text: str) -> str:
        """Text that was not there before."""
        self._budget.hold(OBJECT + len(text))
        return text

    def _will_sort(self, items: list[Any]) -> None:
        rounds = max(len(items).bit_length(), 1)
        letters = sum(map(len, items)) if items and type(items[0]) is str else 0
        self._budget.spend(len(items))
        self._budget.spend((len(items) + letters // _CHARACTERS) * rounds)
        self._budget.hold(2 * POINTER * len(items))

    # -- numbers --------------------------------------------------------------------------------------------

    def _abs(self, number: Any) -> Any:
        return abs(number)

    def _ceil(self, number: Any) -> Any:
        return math.ceil(number)

    def _floor(self, number: Any) -> Any:
        return math.floor(number)

    def _sum(self, numbers: list[Any]) -> Any:
        return sum(numbers)

    def _avg(self, numbers: list[Any]) -> Any:
        return sum(numbers) / len(numbers) if numbers else None

    def _to_number(self, value: Any) -> Any:
        if type_of(value) == "number":
            return value
        if type(value) is not str:
            return None
        self._budget.spend(len(value) // _CHARACTERS)
        for read in (int, float):
            try:
                return read(value)
            except ValueError:
                continue
        return None

    # -- text -----------------------------------------------------------------------------------------------

    def _starts_with(self, text: str, start: str) -> bool:
        self._budget.spend(len(start) // _CHARACTERS)
        return text.startswith(start)

    def _ends_with(self, text: str, end: str) -> bool:
        self._budget.spend(len(end) // _CHARACTERS)
        return text.endswith(end)

    def _join(self, glue: str, texts: list[str]) -> str:
        self._budget.spend(len(texts))
        self._budget.hold(4 * (sum(map(len, texts)) + len(glue) * len(texts)))
        return glue.join(texts)

    def _to_string(self, value: Any) -> str:
        if type(value) is str:
            return value
        # Escapes make a character six, and a pair twelve.
        most = self._budget.room // 12
        if (size := self.look_at(value, most)) > most:
            self._budget.refuse("to_string() would write too much")
        self._budget.hold(size)
        return self._said(json.dumps(value, separators=(",", ":")))

    # -- lists and objects ----------------------------------------------------------------------------------

    def _length(self, value: Any) -> int:
        return len(value)

    def _reverse(self, value: Any) -> Any:
        if type(value) is str:
            return self._said(value[::-1])
        return self.made(value[::-1])

    def _contains(self, where: Any, what: Any) -> bool:
        if type(where) is str:
            if type(what) is not str:
                return False
            self._budget.spend(len(where) // _CHARACTERS)
            return what in where
        each = 1
        if type(what) is str:
            each += len(what) // _CHARACTERS
        elif type(what) in (list, dict):
            each += self.look_at(what, self._budget.room)
        self._budget.spend(len(where) * each)
        return what in where

    def _keys(self, value: dict[str, Any]) -> list[Any]:
        return self.made(list(value))

    def _values(self, value: dict[str, Any]) -> list[Any]:
        return self.made(list(value.values()))

    def _merge(self, *values: dict[str, Any]) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for value in values:
            self._budget.spend(len(value))
            self._budget.hold(ENTRY * len(value))
            merged.update(value)
        return merged

    def _not_null(self, *values: Any) -> Any:
        return next((value for value in values if value is not None), None)

    def _to_array(self, value: Any) -> list[Any]:
        return value if type(value) is list else self.made([value])

    def _type(self, value: Any) -> str:
        return type_of(value)

    # -- order ----------------------------------------------------------------------------------------------

    def _sort(self, items: list[Any]) -> list[Any]:
        self._will_sort(items)
        return sorted(items)

    def _max(self, items: list[Any]) -> Any:
        self._will_sort(items)
        return max(items, default=None)

    def _min(self, items: list[Any]) -> Any:
        self._will_sort(items)
        return min(items, default=None)

    def _map(self, step: Step, items: list[Any]) -> list[Any]:
        return self.made([step(item) for item in self.watched(items)])

    def _sort_by(self, items: list[Any], key: Step) -> list[Any]:
        keys = self.made([key(item) for item in self.watched(items)])
        kinds = {type_of(item) for item in keys}
        if kinds - {"number"} and kinds - {"string"}:
            raise WrongType(f"sort_by() sorts by numbers or by strings, not by {' and '.join(sorted(kinds))}")
        self._will_sort(keys)
        return [items[index] for index in sorted(range(len(items)), key=keys.__getitem__)]

    def _max_by(self, items: list[Any], key: Step) -> Any:
        return self.best("max_by", self.watched(items), key)

    def _min_by(self, items: list[Any], key: Step) -> Any:
        return self.best("min_by", self.watched(items), key)

    def best(self, name: str, items: Iterable[Any], key: Step) -> Any:
        """The item with the greatest or the least key; the first of them, if there are more."""
        found: Any = None
        best: Any = None
        for item in items:
            mine = key(item)
            kind = type_of(mine)
            if kind not in ("number", "string") or (best is not None and type_of(best) != kind):
                raise WrongType(f"{name}() compares numbers or strings, all of one kind; here is a {kind}")
            if best is None or self.ordered("gt" if name == "max_by" else "lt", mine, best):
                found, best = item, mine
        return found
