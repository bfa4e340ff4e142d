"""A list of records: its rows as columns, and what those hold, which no prefix of the rows can tell.

Strategy: a column as a whole is what Python's built-in functions are quick with. An object inside a record becomes
columns with a dot in their names; lists, and what is nested deeper than asked for, are left to the caller. Of a
list that is too large to be decoded in passing, a random sample is taken. Columns are also what SQL asks about, so
their names and those of tables are made here.

A profile describes one column at a time, in as few words as answer most questions: how many nulls; of numbers the
extremes and where they are, mean, median and sum, and the mean for each value of another field that has few; of a
few distinct values each with its count; of many how many, and the most frequent or two examples; of dates the first
and the last. As far as the room goes, that is said first which answers most questions for its length, and before it
whatever the call names. What is said of a sample is marked as such. Each field is one line, because JSON would take
more tokens; values that could be mistaken for ours are in quotes.
"""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from io import StringIO
from itertools import chain, islice, repeat, takewhile
from operator import attrgetter, itemgetter
from random import Random
from typing import Any, Final

import msgspec

from ..jsontext.document import Buffer, Far, Node, TooDeep, encode, quoted

# One column's values, under its name; a row without the field has None.
Columns = dict[str, Sequence[Any]]

# Records with more columns than this are one column, `value`.
WIDEST: Final = 500
# Bytes of a list that are decoded in passing, and rows that are if it is larger.
_EXACT: Final = 8 << 20
_SAMPLE: Final = 2000
# A shorter list can be read as it is.
_FEWEST: Final = 5
# A map has more than _MANY keys, and a row has on average fewer than _USUAL in _MANY of them.
_MANY: Final = 32
_USUAL: Final = 8
# How many rows are looked at to learn the fields.
_PEEKED: Final = 32
_DECODER: Final = msgspec.json.Decoder()
_SNIFFED: Final = 20
_DELIMITERS: Final = ",\t;|"
_NUMBER: Final = re.compile(r"-?(0|[1-9]\d{0,17})(\.\d+)?([eE][-+]?\d{1,3})?")
DEEPEST: Final = 6
LOOKED_AT: Final = 1000
MOST_TABLES: Final = 64
# An object with at least so many members, all of them objects with a key in common, is a map of records.
MAP: Final = 8
_MOST_CONTAINERS: Final = 500
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_]\w*")
# Words that SQLite takes for its own where a name could stand.
_RESERVED: Final = re.compile(
    r"(?i)add|all|alter|and|as|autoincrement|between|case|check|collate|commit|constraint|create|"
    r"current_date|current_time|current_timestamp|default|deferrable|delete|distinct|drop|else|escape|"
    r"except|exists|foreign|from|group|having|if|in|index|insert|intersect|into|is|isnull|join|limit|"
    r"not|nothing|notnull|null|on|or|order|primary|raise|references|returning|select|set|table|then|"
    r"to|transaction|union|unique|update|using|values|when|where"
)
# Tables that SQLite has or keeps for itself.
_OF_SQLITE: Final = re.compile(r"(?i)sqlite_.*|json_each|json_tree")


class Records:
    """The rows of a list as columns, or of a sample of its rows: `sampled` is how many those are."""

    def __init__(self, columns: Columns, total: int, sampled: int = 0) -> None:
        self.columns = columns
        self.total = total
        self.sampled = sampled
        self._kinds: dict[str, set[type]] = {}
        self._nulls: dict[str, int] = {}
        self._counts: dict[str, Counter[Any]] = {}

    @classmethod
    def of(cls, node: Node) -> Records | None:
        """The rows of a list of objects, of lists or of scalars; None for anything else."""
        try:
            if node.kind != "array" or node.total() < _FEWEST:
                return None
            if node.size > _EXACT:
                sample = _sample(node)
                return cls(columns(sample, 1), node.total(), len(sample)) if _are_alike(sample) else None
            quickly = _quickly(node)
            if quickly is None:
                rows = _DECODER.decode(node.raw)
                quickly = columns(rows, 1) if _are_alike(rows) else None
            return None if quickly is None else cls(quickly, node.total())
        except (msgspec.MsgspecError, TooDeep, RecursionError):
            return None

    @classmethod
    def of_members(cls, node: Node) -> Records | None:
        """The rows of a map of records, with their keys as a column; None for anything else."""
        try:
            if node.kind != "object" or node.total() < MAP:
                return None
            members = node.members()
            is_sample = node.size > _EXACT
            chosen = [members[index] for index in _chosen(len(members))] if is_sample else members
            rows = [_DECODER.decode(member.value) for member in chosen]
            if set(map(type, rows)) != {dict} or not have_a_key_in_common([set(row) for row in rows[:MAP]]):
                return None
            made = {"key": [member.key for member in chosen], **columns(rows, 1, ("key",))}
            return cls(made, len(members), len(rows) if is_sample else 0)
        except (msgspec.MsgspecError, TooDeep, RecursionError):
            return None

    def kinds(self, name: str) -> set[type]:
        """The types of a column's values, nulls aside."""
        if name not in self._kinds:
            values = self.columns[name]
            found = set(map(type, values))
            # Counting compares each value with None, so it is done only where there is one.
            self._nulls[name] = values.count(None) if type(None) in found else 0
            self._kinds[name] = found - {type(None)}
        return self._kinds[name]

    def nulls(self, name: str) -> int:
        """How many rows don't have the field, or have null in it."""
        self.kinds(name)
        return self._nulls[name]

    def counts(self, name: str) -> Counter[Any]:
        """How often each value of a column is there."""
        if name not in self._counts:
            self._counts[name] = Counter(self.groups(name))
            self._counts[name].pop(None, None)
        return self._counts[name]

    def groups(self, name: str) -> Sequence[Any]:
        """A column's values as they are counted: JSON's `true` is not 1. Nothing if they can't be."""
        values, kinds = self.columns[name], self.kinds(name)
        if kinds & {dict, list, msgspec.Raw}:
            return ()
        if bool in kinds and kinds & {int, float}:
            if "true" in values or "false" in values:
                return ()
            return [str(value).lower() if type(value) is bool else value for value in values]
        return values


def _are_alike(rows: Sequence[Any]) -> bool:
    kinds = set(map(type, rows))
    return kinds <= {dict} or kinds <= {list} or kinds <= {int, float, str, bool}


def _sample(node: Node) -> list[Any]:
    return [_DECODER.decode(item) for item in node.picked(_chosen(node.total()))]


def _chosen(total: int) -> list[int]:
    # Not at equal distances, which could agree with a period in the data; the seed makes it repeatable.
    return sorted(Random(total).sample(range(total), min(_SAMPLE, total)))


# -- records of one shape, decoded into a struct made for them: no dictionaries, and nothing for the garbage
# -- collector to follow

# The fields of a record by name; those of an object inside it, or what else to decode.
_Shape = tuple[tuple[str, Any], ...]
_NULL: Final = msgspec.Raw(b"null")


def _quickly(node: Node) -> Columns | None:
    """The columns of records that all have the fields which some of them have, and no others."""
    items = node.all_items()
    few = items[:: max(1, len(items) // _PEEKED)][:_PEEKED]
    peeked = _DECODER.decode(b"[%b]" % b",".join(few))
    if set(map(type, peeked)) != {dict}:
        return None
    shape = _shape_of(peeked, 1)
    if not shape:
        return None
    try:
        rows = _struct_decoder(shape).decode(node.raw)
    except (msgspec.ValidationError, ValueError, UnicodeError):
        return None
    made: Columns = {}
    _spread("", shape, rows, made)
    taken: set[str] = set()
    return {unique(name, taken): values for name, values in made.items()}


def _shape_of(rows: Sequence[dict[str, Any]], nested: int) -> _Shape | None:
    fields: list[tuple[str, Any]] = []
    for key in dict.fromkeys(chain.from_iterable(rows)):
        values = [value for row in rows if (value := row.get(key)) is not None]
        kinds = set(map(type, values))
        found: Any = Any
        if kinds == {dict}:
            inner = _shape_of(values, nested - 1) if nested else ()
            if inner is None:
                return None
            found = inner or msgspec.Raw
        elif kinds == {list}:
            found = list[msgspec.Raw] | None
        fields.append((key, found))
    # With more fields, it may be a map.
    return tuple(fields) if len(fields) <= _MANY else None


@lru_cache(64)
def _struct_decoder(shape: _Shape) -> msgspec.json.Decoder[list[Any]]:
    return msgspec.json.Decoder(list[_struct(shape)])  # type: ignore[misc]


def _struct(shape: _Shape) -> type[msgspec.Struct]:
    types = [_struct(found) | None if isinstance(found, tuple) else found for _, found in shape]
    fields = [(f"f{index}", found, None) for index, found in enumerate(types)]
    names = {f"f{index}": key for index, (key, _) in enumerate(shape)}
    return msgspec.defstruct("Row", fields, rename=names, gc=False, forbid_unknown_fields=True)


def _spread(prefix: str, shape: _Shape, rows: Sequence[Any], made: Columns) -> None:
    holed = None in rows
    for index, (key, found) in enumerate(shape):
        get = attrgetter(f"f{index}")
        values = [None if row is None else get(row) for row in rows] if holed else list(map(get, rows))
        if isinstance(found, tuple):
            _spread(f"{prefix}{key}.", found, values, made)
        elif found is msgspec.Raw:
            made[prefix + key] = [None if value is None or value == _NULL else value for value in values]
        else:
            made[prefix + key] = values


# -- any other rows --------------------------------------------------------------------------------------------


def columns(
    rows: Sequence[Any], nested: int, taken: Iterable[str] = (), unopened: Collection[str] = ()
) -> Columns:
    """Rows as columns, objects opened `nested` levels deep. A row that is a list has columns c0, c1 …

    Names are unique in any case, as SQL needs it; those in `taken` are used already. Objects in the columns
    `unopened` stay as they are.
    """
    if set(map(type, rows)) != {dict}:
        rows = [_as_record(row) for row in rows]
    made = _flatten("", rows, nested + 1, unopened)
    if made is None:
        return {"value": rows}
    names = set(taken)
    return {unique(name, names): values for name, values in made.items()}


def unique(name: str, taken: set[str]) -> str:
    """The name, or one with a number behind it: SQL does not tell upper from lower case."""
    base, number = name, 1
    while name.lower() in taken:
        number += 1
        name = f"{base}_{number}"
    taken.add(name.lower())
    return name


def _as_record(row: Any) -> dict[str, Any]:
    if isinstance(row, dict):
        return row
    return (
        {f"c{index}": value for index, value in enumerate(row)} if isinstance(row, list) else {"value": row}
    )


def _flatten(prefix: str, rows: Sequence[Any], nested: int, unopened: Collection[str]) -> Columns | None:
    """The columns of some objects, of which a few may be None; None if there are too many."""
    made: Columns = {}
    if len(set(chain.from_iterable([row for row in rows if row]))) > WIDEST:
        return None
    for key, values in _transposed(rows).items():
        name = prefix + key
        inner: Columns | None = None
        if nested > 1 and name not in unopened and set(map(type, values)) in _OBJECTS:
            inner = _flatten(f"{name}.", values, nested - 1, unopened)
        if inner is None or len(made) + len(inner) > WIDEST or _is_map(inner):
            inner = {name: values}
        made |= inner
        if len(made) > WIDEST:
            return None
    return made


_OBJECTS: Final = ({dict}, {dict, type(None)})


def _is_map(inner: Columns) -> bool:
    """Whether keys are data, such as languages: there are many, and each is in a few rows only."""
    if len(inner) <= _MANY:
        return False
    given = sum(len(values) - values.count(None) for values in inner.values())
    return given * _MANY < sum(map(len, inner.values())) * _USUAL


def _transposed(rows: Sequence[Any]) -> Columns:
    if rows and rows[0]:
        # Most lists have records of one shape, and C code is quick with those.
        keys = list(rows[0])
        try:
            if set(map(len, rows)) == {len(keys)}:
                if len(keys) == 1:
                    return {keys[0]: list(map(itemgetter(keys[0]), rows))}
                return dict(zip(keys, zip(*map(itemgetter(*keys), rows), strict=True), strict=True))
        except (KeyError, TypeError):
            pass
    keys = list(dict.fromkeys(chain.from_iterable([row for row in rows if row])))
    return {key: [row.get(key) if row else None for row in rows] for key in keys}


# -- CSV ------------------------------------------------------------------------------------------------------


def csv_columns(text: str) -> Columns | None:
    """The columns of CSV with a header, by whatever it is separated; None if the text is something else."""
    text = text.removesuffix("\n").replace("\r\n", "\n")
    delimiter = _delimiter(text.split("\n", _SNIFFED)[:_SNIFFED])
    if delimiter is None:
        return None
    try:
        # A value in quotes may have line breaks; an empty line is no row.
        header, *rows = filter(None, csv.reader(StringIO(text), delimiter=delimiter))
    except csv.Error:
        return None
    header += [f"c{index}" for index in range(len(header), max(map(len, rows), default=0))]
    names: set[str] = set()
    return {
        unique(name.strip(), names): _typed([row[index] if index < len(row) else "" for row in rows])
        for index, name in enumerate(header)
    }


def _delimiter(lines: Sequence[str]) -> str | None:
    """What separates the columns, if the first lines have as many columns as their header has names."""
    sample = [line for line in lines if line.strip()]
    for delimiter in _DELIMITERS if len(sample) > 2 else "":
        try:
            header, *rows = csv.reader(sample, delimiter=delimiter, strict=True)
        except csv.Error:
            continue
        is_header = len(set(header)) == len(header) > 1 and not any(map(_NUMBER.fullmatch, header))
        if is_header and all(name.strip() for name in header) and {len(row) for row in rows} == {len(header)}:
            return delimiter
    return None


def _typed(values: list[str]) -> list[Any]:
    """Numbers if all that isn't empty is one; a code such as 007 is not a number."""
    given = [value for value in values if value]
    if not given or not all(map(_NUMBER.fullmatch, given)):
        return [value or None for value in values]
    convert: Callable[[str], Any] = int if all(value.lstrip("-").isdigit() for value in given) else float
    return [convert(value) if value else None for value in values]


# -- the names of tables ------------------------------------------------------------------------------------


def tables_in(root: Node, path: str) -> dict[str, str]:
    """Return the names of the tables in a payload by their paths; none if that would take long.

    The walk is the one over a stored payload: through objects, and strings that hold JSON, down to each list, or to
    a map of records. A name is the last one of the path, with as much of the path as it takes to tell it from the
    names before it, so all tables have to be found to name one.
    """
    found: list[str] = []
    try:
        seen = _walk(root, path, 0, found)
    except TooDeep:
        return {}
    return dict(zip(found, table_names(found), strict=True)) if seen <= _MOST_CONTAINERS else {}


def _walk(node: Node, path: str, depth: int, found: list[str], seen: int = 0) -> int:
    """Add the paths of the tables; return how many containers were seen, more than the most if there are more."""
    node = node.inner() or node if node.kind == "string" else node
    if node.kind == "array":
        if node.total() and len(found) < MOST_TABLES:
            found.append(path)
    elif node.kind == "object" and depth < DEEPEST:
        members = node.members()
        looked_at = range(min(len(members), LOOKED_AT))
        inside = [index for index in looked_at if may_hold(members[index].value)]
        if len(members) >= MAP and len(inside) == len(looked_at):
            first = [node.child(index) for index in inside[:MAP]]
            if have_a_key_in_common(
                [_keys(each.inner() or each if each.kind == "string" else each) for each in first]
            ):
                found.append(path)
                return seen
        for index in inside:
            if seen >= _MOST_CONTAINERS:
                return seen + 1
            step = members[index].key.replace("~", "~0").replace("/", "~1")
            seen = _walk(node.child(index), f"{path}/{step}", depth + 1, found, seen + 1)
    return seen


def _keys(node: Node) -> set[str]:
    return {member.key for member in node.members()[:LOOKED_AT]} if node.kind == "object" else set()


def may_hold(value: Buffer | Far) -> bool:
    """Whether a table may be in a value: it is a container, or a string that may hold one."""
    if isinstance(value, Far):
        return True  # too large to be loaded
    return bytes(memoryview(value)[:2]).startswith((b"[", b"{", b'"[', b'"{'))


def have_a_key_in_common(keys: Sequence[set[str]]) -> bool:
    return bool(set.intersection(*keys))


def table_names(paths: Sequence[str], are_lines: Sequence[bool] = ()) -> list[str]:
    """Return a name for each path that tells it from those before it."""
    names: list[str] = []
    taken: set[str] = set()
    for place, path in enumerate(paths):
        default = "lines" if any(are_lines[place : place + 1]) else "data"
        steps = [step for step in path.split("/")[1:] if not step.isdigit()]
        name = default if not steps or steps == ["structuredContent"] else steps[-1]
        for longer in range(2, len(steps) + 1):
            if name.lower() not in taken:
                break
            name = "_".join(steps[-longer:])
        name = re.sub(r"\W", "_", name) or default
        names.append(unique(f"_{name}" if _OF_SQLITE.fullmatch(name) else name, taken))
    return names


def identifier(name: str) -> str:
    """Return a name as SQL takes it."""
    plain = _PLAIN_NAME.fullmatch(name) and name.isascii() and not _RESERVED.fullmatch(name)
    return name if plain else '"' + name.replace('"', '""') + '"'


# -- profiles -------------------------------------------------------------------------------------------------

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
# The sum of some numbers that are larger may be more than a fraction can be, even where that of all is not.
_LARGE: Final = 1e290
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
_PLAIN_VALUE: Final = re.compile(r"[\w+-][\w .@/+&'#-]*(?<! )")
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
        found = _describe(records, name)
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
        name
        for name, facts in fields.items()
        if "sum" in facts
        and not _is_counter(facts, records.total)
        and -_LARGE < facts["min"] <= facts["max"] < _LARGE
    ]
    groups = [name for name, facts in fields.items() if 1 < len(facts.get("values", ())) <= _GROUPS]
    groups.sort(key=lambda name: len(fields[name]["values"]))
    means: dict[str, dict[str, Callable[[], str]]] = {}
    steps: list[Step] = []
    for by in groups[:_MOST_GROUPED]:
        names = fields[by]["values"]
        size = sum(len(name) + _LIKELY_FIGURE for name in names)
        for number in [each for each in numbers if each != by][:_MOST_MEANS]:
            said = partial(_means_by, records.columns[number], records.groups(by), records.counts(by))
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


def _describe(records: Records, name: str) -> dict[str, Any]:
    column, counted, is_sampled = records.columns[name], records.counts(name), records.sampled > 0
    kinds, nulls = records.kinds(name), records.nulls(name)
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
    return facts | _distinct(len(values), kinds, counted)


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


def _distinct(total: int, kinds: set[type], counted: Counter[Any]) -> dict[str, Any]:
    if len(counted) <= _FEW and all(len(str(value)) <= _SHORT for value in counted):
        values = dict(_named(counted.most_common()))
        if len(values) == len(counted):
            return {"values": values}
    facts: dict[str, Any] = {"distinct": len(counted)}
    if len(counted) < total:
        # Among values of one type, only long ones look alike, and those are not told whole.
        alike = len(kinds) > 1
        repeated = [each for each in counted.items() if alike or each[1] > 1]
        repeated.sort(key=itemgetter(1), reverse=True)
        named = _named(repeated if alike else repeated[: _MOST[-1]])
        facts["top"] = {text: count for text, count in islice(named, _MOST[-1]) if count > 1}
    else:
        facts["examples"] = list(map(_shown, islice(counted, _EXAMPLES)))
    return facts


def _named(counted: Iterable[tuple[Any, int]]) -> Iterator[tuple[str, int]]:
    """Values as they are told, up to the first that can't be told from another: 1 and "1", or two long ones."""
    named = [(_shown(value), count) for value, count in counted]
    times = Counter([name for name, _ in named])
    yield from takewhile(lambda each: times[each[0]] == 1, named)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    return text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"


def told(text: str) -> str:
    """Return a text of the payload's as it may stand among our words: in quotes, unless it is plain."""
    return text if _PLAIN_VALUE.fullmatch(text) and _OURS not in text else quoted(text)


def visible(text: str) -> str:
    """The same of a longer text, such as a line or a name, which is plain if nothing in it is invisible."""
    return text if text.isprintable() and _OURS not in text else quoted(text)
