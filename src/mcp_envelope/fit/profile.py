"""What the columns of a list hold: the part of an answer that no prefix of the rows can give.

Strategy: decode the rows once, look at one column at a time, and describe it in as few words as answer most
questions: how many nulls; of numbers the extremes and where they are, mean, median and sum, and the mean for each
value of another field that has few; of a few distinct values each with its count; of many how many, and the most
frequent or two examples; of dates the first and the last. As far as the room goes, that is said first which answers
most questions for its length, and before it whatever the call names. What is said of a sample is marked as such.
Each field is one line, because JSON would take more tokens; values that could be mistaken for ours are in quotes.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice, repeat
from operator import attrgetter, itemgetter
from typing import Any, Final

import msgspec

from ..jsontext.document import encode, quoted
from .columns import Records

_MOST_FIELDS: Final = 60
# So many distinct values are counted one by one, if they are short.
_FEW: Final = 16
_SHORT: Final = 40
_TOP: Final = 3
# How many of the most frequent values are named, as far as the room goes.
_MOST: Final = (1, 3, 8, 16, 32)
# How much more a field is worth that the call names, and one that only numbers the rows.
_NAMED: Final = 100
_COUNTER: Final = 0.1
# Means are told by so many fields at most, which have so many values at most, of so many numbers.
_MOST_GROUPED: Final = 3
_GROUPS: Final = 12
_MOST_MEANS: Final = 8
_LIKELY_FIGURE: Final = 8
# What the number of distinct values is worth.
_DISTINCT: Final = 0.5
# The same of the rows with the extremes.
_ROW: Final = 0.1
_EXAMPLES: Final = 2
_OBJECT: Final = "object"
_LONGEST_NAME: Final = 120
_DATE: Final = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d[\d:.,]*(?: ?(?:[A-Z]{1,4}|[+-][\d:]+))?)?", re.ASCII
)
_ZONE: Final = re.compile(r"[+-]\d\d:?\d\d$|[A-Z]+$")
# What our notices say.
_OURS: Final = "envelope_"
# A value that needs no quotes.
_PLAIN: Final = re.compile(r"[\w+-][\w .@/+&'#-]*(?<! )")
_DIGITS: Final = 12
_MEANINGFUL: Final = 6


class Profile(msgspec.Struct, frozen=True):
    """The fields of a list, the most useful first; `sampled` is how many of the rows were looked at, if not all.

    `lines` has what can be said of each field, from a few words to everything, and `means` what can be said of a
    number for each value of another field. `steps` are places in both, those that say most for their length first.
    `unseen` is how many fields there are besides.
    """

    rows: int
    sampled: int
    fields: Mapping[str, Mapping[str, Any]] = {}
    lines: Mapping[str, Sequence[str]] = {}
    means: Mapping[str, Mapping[str, Callable[[], str]]] = {}
    steps: Sequence[Step] = ()
    unseen: int = 0

    def within(self, room: int) -> dict[str, Any]:
        """As much of it as fits into so many bytes of JSON; nothing if that says nothing."""
        shown: dict[str, str] = {}
        means: dict[str, dict[str, str]] = {}
        left = room - 40
        for step in self.steps:
            if step.by:
                line = self.means[step.by][step.field]()
                size = _size(line) + _size(step.field) + 2
                size += 0 if step.by in means else _size(step.by) + (4 if means else 16)
                if size <= left:
                    means.setdefault(step.by, {})[step.field] = line
                    left -= size
                continue
            line = self.lines[step.field][step.place]
            before = shown.get(step.field)
            size = _size(line) + (_size(step.field) + 2 if before is None else -_size(before))
            if size <= left:
                shown[step.field] = line
                left -= size
        if not shown:
            return {}
        made: dict[str, Any] = {"rows": self.rows}
        if self.sampled:
            made["sampled"] = self.sampled
        made["fields"] = {name: shown[name] for name in self.lines if name in shown}
        if more := len(self.lines) - len(shown) + self.unseen:
            made["more"] = more
        if means:
            made["meansBy"] = means
        return made


@dataclass(frozen=True, slots=True)
class Step:
    """Something more to say: the line at a place in those of a field, or the means of a field `by` another."""

    worth: float
    field: str
    place: int = 0
    by: str = ""


@lru_cache(1024)
def _size(text: str) -> int:
    return len(encode(text))


def profile(records: Records, words: Collection[str] = ()) -> Profile:
    """Return the profile of a list of records or rows. `words` are those of the call, in lower case."""
    described: list[tuple[int, int, str, Mapping[str, Any]]] = []
    labels: Sequence[Any] | None = None
    for place, (name, values) in enumerate(islice(records.columns.items(), _MOST_FIELDS)):
        found = _describe(values, records.kinds(name), records.counts(name), records.sampled > 0)
        described.append((_usefulness(name, found, words), place, name, found))
        if labels is None and found["type"] == "string" and found.get("distinct", 0) * 10 > len(values) * 8:
            labels = values
    described.sort(key=lambda each: each[:2])
    fields = {name: facts for _, _, name, facts in described}
    lines: dict[str, Sequence[str]] = {}
    steps: list[Step] = []
    for usefulness, _, name, facts in described:
        given = len(records.columns[name]) - facts.get("nulls", 0)
        said = list(_sayings(facts, given, labels))
        short = _short(name)
        lines[short] = [line for line, _ in said]
        times = _NAMED if not usefulness else _COUNTER if _is_number(facts, records.total) else 1
        steps += [Step(times * worth, short, place) for worth, place in _places(said, _size(short) + 2)]
    means, further = _means(records, fields)
    steps = sorted([*steps, *further], key=attrgetter("worth"), reverse=True)
    return Profile(
        records.total, records.sampled, fields, lines, means, steps, len(records.columns) - len(described)
    )


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def _means(
    records: Records, fields: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, dict[str, Callable[[], str]]], list[Step]]:
    """The means of numbers by the fields that have the fewest values: how to say them, and what that is worth."""
    numbers = [
        name for name, facts in fields.items() if "sum" in facts and not _is_counter(facts, records.total)
    ]
    groups = [name for name, facts in fields.items() if 1 < len(facts.get("values", ())) <= _GROUPS]
    groups.sort(key=lambda name: len(fields[name]["values"]))
    means: dict[str, dict[str, Callable[[], str]]] = {}
    steps: list[Step] = []
    for by in groups[:_MOST_GROUPED]:
        names = fields[by]["values"]
        size = sum(len(name) + _LIKELY_FIGURE for name in names)
        for number in [each for each in numbers if each != by][:_MOST_MEANS]:
            said = partial(_means_by, records.columns[number], records.columns[by], records.counts(by))
            means.setdefault(_short(by), {})[_short(number)] = said
            steps.append(Step(1 / len(groups) / (size + len(number) + 5), _short(number), by=_short(by)))
    return means, steps


def _is_counter(facts: Mapping[str, Any], total: int) -> bool:
    """Whether a number only counts the rows, or is the same in all."""
    return (facts.get("minAt"), facts.get("maxAt")) in ((0, 0), (0, total - 1), (total - 1, 0))


def _is_number(facts: Mapping[str, Any], total: int) -> bool:
    """Whether a field has a number of its own for each row, which rises or falls with the rows."""
    return facts["type"] == "integer" and facts.get("distinct") == total and _is_counter(facts, total)


def _means_by(numbers: Sequence[Any], groups: Sequence[Any], counts: Counter[Any]) -> str:
    within: dict[Any, list[Any]] = {group: [] for group, _ in counts.most_common()}
    for group, number in zip(groups, numbers, strict=True):
        if number is not None and group is not None:
            within[group].append(number)
    return ", ".join(
        f"{told(_shown(group))}:{_figure(_rounded(math.fsum(each) / len(each)))}"
        for group, each in within.items()
        if each
    )


def _places(said: Sequence[tuple[str, float]], more: int) -> Iterator[tuple[float, int]]:
    """Which of the lines to say one after the other, each with its worth for each byte more: less and less.

    The first comes with `more` bytes, those of the field's name.
    """
    at, told = -1, 0.0
    while at + 1 < len(said):
        worth, at = max(
            ((said[step][1] - told) / max(_size(said[step][0]) + more, 1), step)
            for step in range(at + 1, len(said))
        )
        more, told = -_size(said[at][0]), said[at][1]
        yield worth, at


def _sayings(
    facts: Mapping[str, Any], given: int, labels: Sequence[Any] | None
) -> Iterator[tuple[str, float]]:
    """What can be said of a field, from little to much, and what each is worth: how many questions it answers."""
    nulls = [f"{facts['nulls']} null"] if "nulls" in facts else []
    parts: list[str] = []
    worth = 0.0

    def say(*more: str) -> str:
        return ", ".join([*parts, *more, *nulls])

    if "min" in facts:
        worth += 2
        yield say(_figures(facts, ())), worth
        worth += 3
        parts = [_figures(facts)]
    elif "first" in facts:
        worth += 2
        parts = [f"{facts['first']} to {facts['last']}"]
    elif "most" in facts:
        worth += 0.5
        parts = [f"lists of {facts['fewest']} to {facts['most']}"]
        parts += [f"{facts['items']} items"] if "items" in facts else []
    if parts:
        yield say(), worth
    if counts := facts.get("values") or facts.get("top"):
        counted = _counted(counts)
        every = "values" in facts
        before = f"{facts.get('distinct', len(counts))} distinct"
        if not every:
            yield say(before), worth + _DISTINCT
        rungs = [each for each in _MOST if each < len(counts)]
        clear = _clear(counts, every)
        for most in rungs if every else (*rungs, len(counts)):
            covered = sum(islice(counts.values(), most)) / given
            parts_so_far = [before, f"most {', '.join(counted[:most])}"]
            told_by_these = _DISTINCT + sum(most >= each for each in clear) + 2 * covered
            yield say(*parts_so_far), worth + told_by_these
        # That all rows say the same answers less.
        if every:
            worth += 5 + _DISTINCT if len(counts) > 1 else _DISTINCT
            parts += counted
            yield say(), worth
        else:
            worth += told_by_these
            parts += parts_so_far
    elif "distinct" in facts:
        worth += _DISTINCT if facts["type"] != "number" else _DISTINCT / 5
        parts.append(f"{facts['distinct']} distinct")
        yield say(), worth
        if "examples" in facts:
            worth += 0.1
            parts.append("e.g. " + ", ".join(map(told, facts["examples"])))
            yield say(), worth
    if "minAt" in facts:
        for each in (None, labels) if labels is not None else (None,):
            worth += _ROW
            parts[0] = _figures(facts, labels=each, rows=True)
            yield say(), worth
    if not parts:
        yield say() or facts["type"], 0.05


def _clear(counts: Mapping[str, int], every: bool) -> list[int]:
    """Which of the most frequent values are so without a tie: the first, the first three."""
    numbers = [*counts.values(), *([0] if every else [])]
    return [most for most in (1, _TOP) if len(numbers) > most and numbers[most - 1] > numbers[most]]


_AVERAGES: Final = ("mean", "median", "sum")


def _figures(
    facts: Mapping[str, Any],
    averages: Sequence[str] = _AVERAGES,
    labels: Sequence[Any] | None = None,
    *,
    rows: bool = False,
) -> str:
    said = [
        f"{name} {_figure(facts[name])}{_row(facts[f'{name}At'], labels) if rows else ''}"
        for name in ("min", "max")
    ]
    return " ".join([*said, *(f"{name} {_figure(facts[name])}" for name in averages if name in facts)])


def _counted(values: Mapping[str, int]) -> list[str]:
    return [f"{told(value)}:{count}" for value, count in values.items()]


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
        # Texts sort as dates do, if all are in one time zone.
        zone = _ZONE.search(first)
        is_same = zone is None or all(map(str.endswith, values, repeat(zone[0])))
        if _DATE.fullmatch(first) and _DATE.fullmatch(last) and is_same:
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
    else:
        facts["distinct"] = len(counted)
    return facts


def _figure(number: float) -> str:
    return str(int(number)) if number == int(number) and abs(number) < 1e15 else str(number)


def _significant(number: float) -> float:
    return number if isinstance(number, int) else float(f"{number:.{_DIGITS}g}")


def _rounded(number: float) -> float:
    """A mean or a median to six digits, or to the last before the point."""
    return float(f"{number:.{_MEANINGFUL}g}") if abs(number) < 10**_MEANINGFUL else float(round(number))


def _distinct(total: int, counted: Counter[Any]) -> dict[str, Any]:
    if len(counted) <= _FEW and all(len(str(value)) <= _SHORT for value in counted):
        values = dict(_named(counted.most_common()))
        if len(values) == len(counted):
            return {"values": values}
    facts: dict[str, Any] = {"distinct": len(counted)}
    if len(counted) < total:
        # Among values of one type, only long ones look alike, and those are not told whole.
        alike = len(set(map(type, counted))) > 1
        repeated = [each for each in counted.items() if alike or each[1] > 1]
        repeated.sort(key=itemgetter(1), reverse=True)
        named = _named(repeated if alike else repeated[: _MOST[-1]])
        facts["top"] = {text: count for text, count in islice(named, _MOST[-1]) if count > 1}
    else:
        facts["examples"] = list(map(_shown, islice(counted, _EXAMPLES)))
    return facts


def _named(counted: Iterable[tuple[Any, int]]) -> Iterator[tuple[str, int]]:
    """Values as they are told, up to the first that can't be told from another: 1 and "1", or two long ones."""
    counted = list(counted)
    times = Counter(_shown(value) for value, _ in counted)
    for value, count in counted:
        if times[_shown(value)] > 1:
            return
        yield _shown(value), count


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
