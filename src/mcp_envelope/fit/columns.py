"""The rows of a list turned into columns, for profiles, for the choice of rows, and for SQL.

Strategy: a column as a whole is what Python's built-in functions are quick with. An object inside a record becomes
columns with a dot in their names; lists, and what is nested deeper than asked for, are left to the caller. Of a
list that is too large to be decoded in passing, a random sample is taken.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from itertools import chain
from operator import itemgetter
from random import Random
from typing import Any, Final

import msgspec

from ..jsontext.document import Buffer, Node, TooDeep

# One column's values, under its name; a row without the field has None.
Columns = dict[str, Sequence[Any]]

# Records with more columns than this are one column, `value`.
WIDEST: Final = 500
# Bytes of a list that are decoded in passing, and rows that are if it is larger.
_EXACT: Final = 8 << 20
_SAMPLE: Final = 2000
# A shorter list can be read as it is.
_FEWEST: Final = 5
# A map has more keys than this, and on average fewer than this many of so many.
_MANY: Final = 32
_USUAL: Final = 8
_DECODER: Final = msgspec.json.Decoder()
_SNIFFED: Final = 20
_DELIMITERS: Final = ",\t;|"
_NUMBER: Final = re.compile(r"-?(0|[1-9]\d{0,17})(\.\d+)?([eE][-+]?\d{1,3})?")


class Records:
    """The decoded rows of a list, or a sample of them."""

    def __init__(self, rows: list[Any], total: int) -> None:
        self.rows = rows
        self.total = total
        self.is_sample = len(rows) < total

    @classmethod
    def of(cls, node: Node) -> Records | None:
        """The rows of a list of objects, of lists or of scalars; None for anything else."""
        try:
            if node.kind != "array" or node.total() < _FEWEST:
                return None
            rows = _DECODER.decode(node.raw) if node.size <= _EXACT else _sample(node.all_items())
        except (msgspec.MsgspecError, TooDeep, RecursionError):
            return None
        kinds = set(map(type, rows))
        if not (kinds <= {dict} or kinds <= {list} or kinds <= {int, float, str, bool}):
            return None
        return cls(rows, node.total())

    @classmethod
    def of_columns(cls, table: Columns, total: int) -> Records:
        records = cls([], total)
        records.is_sample = False
        records.__dict__["columns"] = table
        return records

    @cached_property
    def columns(self) -> Columns:
        return columns(self.rows, 1)


def _sample(items: Sequence[Buffer]) -> list[Any]:
    # Not at equal distances, which could agree with a period in the data; the seed makes it repeatable.
    chosen = sorted(Random(len(items)).sample(range(len(items)), min(_SAMPLE, len(items))))
    return [_DECODER.decode(items[index]) for index in chosen]


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
