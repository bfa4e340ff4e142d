"""The rows of a list turned into columns, for profiles, for the choice of rows, and for SQL.

Strategy: a column as a whole is what Python's built-in functions are quick with. An object inside a record becomes
columns with a dot in their names; lists, and what is nested deeper than asked for, are left to the caller. Of a
list that is too large to be decoded in passing, a random sample is taken.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from itertools import chain
from operator import attrgetter, itemgetter
from random import Random
from typing import Any, Final

import msgspec

from ..jsontext.document import Buffer, Far, Node, TooDeep

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
_PLAIN: Final = re.compile(r"[A-Za-z_]\w*")
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

    def kinds(self, name: str) -> set[type]:
        """The types of a column's values, nulls aside."""
        if name not in self._kinds:
            self._kinds[name] = set(map(type, self.columns[name])) - {type(None)}
        return self._kinds[name]

    def counts(self, name: str) -> Counter[Any]:
        """How often each value of a column is there. JSON's `true` is not 1."""
        if name not in self._counts:
            values, kinds = self.columns[name], self.kinds(name)
            if kinds & {dict, list, msgspec.Raw}:
                values = ()
            elif bool in kinds and kinds & {int, float}:
                values = () if "true" in values or "false" in values else values
                values = [str(value).lower() if type(value) is bool else value for value in values]
            self._counts[name] = Counter(values)
            self._counts[name].pop(None, None)
        return self._counts[name]


def _are_alike(rows: Sequence[Any]) -> bool:
    kinds = set(map(type, rows))
    return kinds <= {dict} or kinds <= {list} or kinds <= {int, float, str, bool}


def _sample(node: Node) -> list[Any]:
    # Not at equal distances, which could agree with a period in the data; the seed makes it repeatable.
    total = node.total()
    chosen = sorted(Random(total).sample(range(total), min(_SAMPLE, total)))
    return [_DECODER.decode(item) for item in node.picked(chosen)]


# -- records of one shape, decoded into a struct made for them: no dictionaries, and nothing for the garbage
# -- collector to follow

# The fields of a record by name; those of an object inside it, or what else to decode.
_Shape = tuple[tuple[str, Any], ...]


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
            made[prefix + key] = [None if value in (None, b"null") else value for value in values]
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
    lines = text.removesuffix("\n").replace("\r\n", "\n").split("\n")
    delimiter = _delimiter(lines[:_SNIFFED])
    if delimiter is None:
        return None
    try:
        header, *rows = csv.reader(lines, delimiter=delimiter)
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
    plain = _PLAIN.fullmatch(name) and name.isascii() and not _RESERVED.fullmatch(name)
    return name if plain else '"' + name.replace('"', '""') + '"'
