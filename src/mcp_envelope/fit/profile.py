"""What the columns of a list hold: the part of an answer that no prefix of the rows can give.

Strategy: decode the rows once, look at one column at a time, and describe it in as few words as answer most
questions: how many nulls; of numbers the extremes and where they are, mean, median and sum; of a few distinct
values each with its count; of many how many, and the most frequent or two examples; of dates the first and the
last. The fields that the call names come first, then those that can be counted by, then the rest, as far as the
room goes: first the essentials of each, then more. What is said of a sample is marked as such. Each field is one
line, because JSON would take more tokens; values in it that could be mistaken for ours are in quotes.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from operator import itemgetter
from typing import Any, Final

import msgspec

from ..jsontext.document import encode, quoted
from .columns import Records

_MOST_FIELDS: Final = 60
# So many distinct values are counted one by one, if they are short.
_FEW: Final = 16
_SHORT: Final = 40
_TOP: Final = 3
# How many values are named if there is much room.
_MORE: Final = 15
_EXAMPLES: Final = 2
_DETAILS: Final = 4
_OBJECT: Final = "object"
_LONGEST_NAME: Final = 120
_DATE: Final = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d[\d:.,]*(?: ?(?:[A-Z]{1,4}|[+-][\d:]+))?)?", re.ASCII
)
# What our notices say.
_OURS: Final = "envelope_"
# A value that needs no quotes.
_PLAIN: Final = re.compile(r"[\w+-][\w .@/+&'#-]*(?<! )")
_DIGITS: Final = 12
_DECIMALS: Final = 4


class Profile(msgspec.Struct, frozen=True):
    """The fields of a list, the most useful first; `sampled` is how many of the rows were looked at, if not all.

    `lines` says of each field the essentials, then more, then everything.
    """

    rows: int
    sampled: int
    fields: Mapping[str, Mapping[str, Any]] = {}
    lines: Mapping[str, Sequence[str]] = {}

    def within(self, room: int) -> dict[str, Any]:
        """As much of it as fits into so many bytes of JSON; nothing if that says nothing."""
        shown: dict[str, str] = {}
        left = room - 40
        for detail in range(_DETAILS):
            for name, lines in self.lines.items():
                # That a field is an object says little, so that comes last.
                is_late = lines[0] == _OBJECT
                if (detail < _DETAILS - 1) if is_late else (detail and lines[detail] == shown.get(name)):
                    continue
                if name not in shown and detail and not is_late:
                    continue
                before = -_size(shown[name]) if name in shown else _size(name) + 2
                size = _size(lines[detail]) + before
                if size <= left:
                    shown[name] = lines[detail]
                    left -= size
        if not shown:
            return {}
        made: dict[str, Any] = {"rows": self.rows}
        if self.sampled:
            made["sampled"] = self.sampled
        made["fields"] = shown
        if more := len(self.lines) - len(shown):
            made["more"] = more
        return made


@lru_cache(1024)
def _size(text: str) -> int:
    return len(encode(text))


def profile(records: Records, words: Collection[str] = ()) -> Profile:
    """Return the profile of a list of records or rows. `words` are those of the call, in lower case."""
    described: list[tuple[int, int, str, Mapping[str, Any]]] = []
    labels: Sequence[Any] | None = None
    for place, (name, values) in enumerate(islice(records.columns.items(), _MOST_FIELDS)):
        facts = _describe(values, records.kinds(name), records.counts(name), records.sampled > 0)
        described.append((_usefulness(name, facts, words), place, name, facts))
        if labels is None and facts["type"] == "string" and facts.get("distinct", 0) * 10 > len(values) * 8:
            labels = values
    described.sort(key=lambda each: each[:2])
    fields = {name: facts for _, _, name, facts in described}
    lines = {
        name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…": [
            _line(facts, labels, detail) for detail in range(_DETAILS)
        ]
        for name, facts in fields.items()
    }
    return Profile(records.total, records.sampled, fields, lines)


def _line(facts: Mapping[str, Any], labels: Sequence[Any] | None, detail: int) -> str:
    said: list[str] = []
    if "min" in facts:
        for name in ("min", "max"):
            at = facts.get(f"{name}At") if detail else None
            where = "" if at is None else _row(at, labels if detail > 1 else None)
            said.append(f"{name} {_figure(facts[name])}{where}")
        said += [f"{name} {_figure(facts[name])}" for name in ("mean", "median", "sum") if name in facts]
    elif "first" in facts:
        said.append(f"{facts['first']} to {facts['last']}")
    elif "most" in facts:
        said.append(f"lists of {facts['fewest']} to {facts['most']}")
        said += [f"{facts['items']} items"] if "items" in facts else []
    if "values" in facts and (detail or not said):
        said += [f"{told(value)}: {count}" for value, count in facts["values"].items()]
    if "distinct" in facts and (detail or not said):
        said.append(f"{facts['distinct']} distinct")
    if detail and facts.get("top"):
        most = islice(facts["top"].items(), _MORE if detail == _DETAILS - 1 else _TOP)
        said.append("most " + ", ".join(f"{told(value)}: {count}" for value, count in most))
    if detail > 1 and "examples" in facts:
        said.append("e.g. " + ", ".join(map(told, facts["examples"])))
    if "nulls" in facts:
        said.append(f"{facts['nulls']} null")
    return ", ".join(said or [facts["type"]])


def _row(index: int, labels: Sequence[Any] | None) -> str:
    label = None if labels is None else labels[index]
    return f" (row {index})" if label is None else f" (row {index} {told(_shown(label))})"


def _usefulness(name: str, facts: Mapping[str, Any], words: Collection[str]) -> int:
    if any(part.lower() in words for part in name.split(".")):
        return 0
    return 1 if "values" in facts or facts["type"] in ("integer", "number", "date") else 2


def _describe(
    column: Sequence[Any], kinds: set[type], counted: Counter[Any], is_sampled: bool
) -> dict[str, Any]:
    nulls = column.count(None)
    values = column if not nulls else [value for value in column if value is not None]
    facts: dict[str, Any] = {"type": _type(kinds)}
    if nulls:
        facts["nulls"] = nulls
    if not values:
        return facts
    if kinds <= {int, float}:
        return facts | _numbers(column, values, counted, is_sampled)
    if kinds & {dict, list, msgspec.Raw}:
        if kinds == {list}:
            sizes = list(map(len, values))
            facts |= {"fewest": min(sizes), "most": max(sizes)}
            facts |= {} if is_sampled else {"items": sum(sizes)}
        return facts
    if kinds == {str} and _DATE.fullmatch(values[0]) and len(set(map(len, values))) == 1:
        first, last = min(values), max(values)
        if _DATE.fullmatch(first) and _DATE.fullmatch(last):
            facts["type"] = "date"
            facts |= {"first": _shown(first), "last": _shown(last)}
    return facts | _distinct(len(values), counted)


def _type(kinds: set[type]) -> str:
    if len(kinds) == 1:
        names = {
            str: "string",
            int: "integer",
            float: "number",
            bool: "boolean",
            list: "array",
            dict: _OBJECT,
            msgspec.Raw: _OBJECT,
        }
        return names.get(next(iter(kinds)), "mixed")
    return "number" if kinds == {int, float} else "null" if not kinds else "mixed"


def _numbers(
    column: Sequence[Any], values: Sequence[Any], counted: Counter[Any], is_sampled: bool
) -> dict[str, Any]:
    ordered = sorted(values)
    least, most = ordered[0], ordered[-1]
    facts: dict[str, Any] = {"min": least, "max": most}
    middle = len(ordered) // 2
    try:
        median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
        total = sum(values) if type(least) is int and type(most) is int else math.fsum(values)
        facts["mean"] = _rounded(total / len(values))
        facts["median"] = _rounded(median)
    except OverflowError:
        # Integers have more digits than a fraction can have.
        return facts
    if not is_sampled:
        facts |= {"sum": _significant(total), "minAt": column.index(least), "maxAt": column.index(most)}
    if len(counted) <= _FEW and len(counted) < len(values):
        facts["values"] = {str(value): count for value, count in counted.most_common()}
    elif len(counted) < len(values):
        facts["distinct"] = len(counted)
    return facts


def _figure(number: float) -> str:
    return str(int(number)) if number == int(number) and abs(number) < 1e15 else str(number)


def _significant(number: float) -> float:
    return number if isinstance(number, int) else float(f"{number:.{_DIGITS}g}")


def _rounded(number: float) -> float:
    if abs(number) < 1:
        return float(f"{number:.{_DIGITS // 2}g}")
    return round(number, _DECIMALS if abs(number) < 1000 else _DECIMALS // 2)


def _distinct(total: int, counted: Counter[Any]) -> dict[str, Any]:
    if len(counted) <= _FEW and all(len(str(value)) <= _SHORT for value in counted):
        return {"values": {_shown(value): count for value, count in counted.most_common()}}
    facts: dict[str, Any] = {"distinct": len(counted)}
    if len(counted) < total:
        several = [(value, count) for value, count in counted.items() if count > 1]
        several.sort(key=itemgetter(1), reverse=True)
        facts["top"] = {_shown(value): count for value, count in several[:_MORE]}
    else:
        facts["examples"] = list(map(_shown, islice(counted, _EXAMPLES)))
    return facts


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    return text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"


def told(text: str) -> str:
    """Return a text of the payload's as it may stand among our words: in quotes, unless it is plain."""
    return text if _PLAIN.fullmatch(text) and _OURS not in text else quoted(text)


def visible(text: str) -> str:
    """The same of a longer text, such as a line or a name, which is plain if nothing in it is invisible."""
    return text if text.isprintable() and _OURS not in text else quoted(text)
