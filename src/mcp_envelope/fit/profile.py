"""What the columns of a list hold: the part of an answer that no prefix of the rows can give.

Strategy: decode the rows once, look at one column at a time, and describe it in as few words as answer most
questions: how many rows and nulls; of numbers the extremes and where they are, mean, median and sum; of a few
distinct values each with its count; of many how many, the most frequent and two examples; of dates the first and
the last. The fields that the call asked about come first, then those that can be counted by, then the rest, as far
as the room goes. What is said of a sample is marked as such.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from ..jsontext.document import encode
from .columns import Records

_MOST_FIELDS: Final = 60
# So many distinct values are counted one by one, if they are short.
_FEW: Final = 16
_SHORT: Final = 40
_TOP: Final = 3
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d(?:$|[T ]\d\d:\d\d)")
_DIGITS: Final = 12


class Profile(msgspec.Struct, frozen=True):
    """The fields of a list, the most useful first; `sampled` is how many of the rows were looked at, if not all."""

    rows: int
    sampled: int
    fields: Mapping[str, Mapping[str, Any]]

    def within(self, room: int) -> dict[str, Any]:
        """As much of it as fits into so many bytes of JSON; nothing if that says nothing."""
        shown: dict[str, Any] = {}
        left = room - 40
        for name, facts in self.fields.items():
            size = len(encode(name)) + len(encode(facts)) + 2
            if size > left:
                facts = {key: value for key, value in facts.items() if key not in ("examples", "top")}
                size = len(encode(name)) + len(encode(facts)) + 2
            if size <= left:
                shown[name] = facts
                left -= size
        if not shown:
            return {}
        made: dict[str, Any] = {"rows": self.rows}
        if self.sampled:
            made["sampled"] = self.sampled
        return {**made, "fields": shown}


def profile(records: Records, words: Collection[str] = ()) -> Profile:
    """Return the profile of a list of records or rows. `words` are those of the call, in lower case."""
    described: list[tuple[int, int, str, Mapping[str, Any]]] = []
    for place, (name, values) in enumerate(islice(records.columns.items(), _MOST_FIELDS)):
        facts = _describe(values, records.is_sample)
        described.append((_usefulness(name, facts, words), place, name, facts))
    described.sort(key=lambda each: each[:2])
    fields = {name: facts for _, _, name, facts in described}
    return Profile(records.total, len(records.rows) if records.is_sample else 0, fields)


def _usefulness(name: str, facts: Mapping[str, Any], words: Collection[str]) -> int:
    if any(part.lower() in words for part in name.split(".")):
        return 0
    return 1 if "values" in facts or facts["type"] in ("integer", "number", "date") else 2


def _describe(column: Sequence[Any], is_sampled: bool) -> dict[str, Any]:
    nulls = column.count(None)
    values = column if not nulls else [value for value in column if value is not None]
    kinds = set(map(type, values))
    facts: dict[str, Any] = {"type": _type(kinds)}
    if nulls:
        facts["nulls"] = nulls
    if not values:
        return facts
    if kinds <= {int, float}:
        return facts | _numbers(column, values, is_sampled)
    if kinds & {dict, list}:
        if kinds == {list}:
            sizes = list(map(len, values))
            facts |= {"fewest": min(sizes), "most": max(sizes)}
            facts |= {} if is_sampled else {"items": sum(sizes)}
        return facts
    if kinds == {str} and _DATE.match(values[0]) and len(set(map(len, values))) == 1:
        first, last = min(values), max(values)
        if _DATE.match(first) and _DATE.match(last):
            facts["type"] = "date"
            facts |= {"first": first, "last": last}
    return facts | _distinct(values, len(column))


def _type(kinds: set[type]) -> str:
    if len(kinds) == 1:
        names = {
            str: "string",
            int: "integer",
            float: "number",
            bool: "boolean",
            list: "array",
            dict: "object",
        }
        return names.get(next(iter(kinds)), "mixed")
    return "number" if kinds == {int, float} else "null" if not kinds else "mixed"


def _numbers(column: Sequence[Any], values: Sequence[Any], is_sampled: bool) -> dict[str, Any]:
    least, most = min(values), max(values)
    facts: dict[str, Any] = {"min": least, "max": most}
    ordered = sorted(values)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    total = sum(values) if type(least) is int and type(most) is int else math.fsum(values)
    facts |= {"mean": _rounded(total / len(values)), "median": _rounded(median)}
    if not is_sampled:
        facts |= {"sum": _rounded(total), "minAt": column.index(least), "maxAt": column.index(most)}
    counted = Counter(values)
    if len(counted) <= _FEW and len(counted) < len(values):
        facts["values"] = {str(value): count for value, count in counted.most_common()}
    elif len(counted) < len(values):
        facts["distinct"] = len(counted)
    return facts


def _rounded(number: float) -> float:
    return number if isinstance(number, int) else float(f"{number:.{_DIGITS}g}")


def _distinct(values: Sequence[Any], rows: int) -> dict[str, Any]:
    counted = Counter(values)
    if len(counted) <= _FEW and all(len(str(value)) <= _SHORT for value in counted):
        return {"values": {_shown(value): count for value, count in counted.most_common()}}
    if len(counted) == rows:
        return {"distinct": rows, "examples": [_shown(value) for value in values[:2]]}
    top = [(value, count) for value, count in counted.most_common(_TOP) if count > 1]
    facts: dict[str, Any] = {"distinct": len(counted)}
    if top:
        facts["top"] = {_shown(value): count for value, count in top}
    return facts | {"examples": [_shown(value) for value in list(counted)[:2]]}


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    return text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"
