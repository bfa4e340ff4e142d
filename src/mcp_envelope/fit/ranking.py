"""Rankings that a server declares, to decide which items of a list stay.

Strategy: only the fields that a ranking names are decoded, by a `msgspec` struct made for them, so ranking a
list of a hundred thousand records costs one pass that skips the rest, and one sort. A ranking is a list of
keys, the strongest first; a key sorts up, sorts down, or groups: equal values stay together, in the order in
which they first appear. Sorting is stable; a record without the field comes after those that have it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

from ..jsontext.document import Node

Direction = Literal["up", "down", "group"]


@dataclass(frozen=True, slots=True)
class Key:
    """One field to order by. `field` may lead into objects: `position.line`."""

    field: str
    direction: Direction = "up"


@dataclass(frozen=True, slots=True)
class Ranking:
    keys: tuple[Key, ...]

    def order(self, node: Node) -> list[int]:
        """Return the indices of an array node's items, best first."""
        rows = _fields_of(node, tuple(key.field.split(".")[0] for key in self.keys))
        order = list(range(len(rows)))
        for position in range(len(self.keys) - 1, -1, -1):
            key = self.keys[position]
            values = [_dig(row[position], key.field.split(".")[1:]) for row in rows]
            _sort(order, values, key.direction)
        return order


def rank(*fields: str | Key) -> Ranking:
    """Return a ranking; a key sorts up (`rank("file", "line")`), down (`"-score"`) or groups (`"@file"`)."""
    if not fields:
        raise ValueError('rank() needs at least one field, for example rank("file", "line")')
    return Ranking(tuple(_key(field) for field in fields))


def parse_rank(text: str) -> tuple[str, Ranking]:
    """Return the path of a list and its ranking from text such as `/references:@file,line`."""
    path, colon, fields = text.rpartition(":")
    if not colon or (path and not path.startswith("/")):
        raise ValueError(
            f"a ranking is PATH:KEY[,KEY…], PATH a JSON pointer, for example /items:-score; got {text!r}"
        )
    return path, rank(*(field.strip() for field in fields.split(",")))


_SIGNS: Final[Mapping[str, Direction]] = {"-": "down", "@": "group"}


def _key(field: str | Key) -> Key:
    if isinstance(field, Key):
        return field
    direction = _SIGNS.get(field[:1], "up")
    name = field.removeprefix("+") if direction == "up" else field[1:]
    if not name:
        raise ValueError(f"a ranking key needs the name of a field, got {field!r}")
    return Key(name, direction)


def _fields_of(node: Node, fields: tuple[str, ...]) -> list[tuple[Any, ...]]:
    try:
        names, decoder = _decoder(fields)
    except (ValueError, UnicodeError):
        # A struct can't have a field of that name: look it up in each item.
        return [_looked_up(item, fields) for item in node.all_items()]
    try:
        records = decoder.decode(node.raw)
    except msgspec.MsgspecError:
        # Not a list of plain records: look at each item on its own.
        records = [_one(decoder, item) for item in node.all_items()]
    return [tuple([getattr(record, name) for name in names]) for record in records]


def _looked_up(item: Any, fields: tuple[str, ...]) -> tuple[Any, ...]:
    try:
        record = msgspec.json.decode(item)
    except (msgspec.MsgspecError, RecursionError):
        record = None
    return tuple([record.get(field) if isinstance(record, dict) else None for field in fields])


def _one(decoder: msgspec.json.Decoder[list[Any]], item: Any) -> Any:
    try:
        return decoder.decode(b"[%b]" % bytes(item))[0]
    except msgspec.MsgspecError:
        return decoder.decode(b"[{}]")[0]


@lru_cache(64)
def _decoder(fields: tuple[str, ...]) -> tuple[list[str], msgspec.json.Decoder[list[Any]]]:
    distinct = list(dict.fromkeys(fields))
    attributes = {field: f"f{index}" for index, field in enumerate(distinct)}
    record = msgspec.defstruct(
        "Record",
        [(attributes[field], Any, None) for field in distinct],
        rename={attributes[field]: field for field in distinct},
        gc=False,
    )
    return [attributes[field] for field in fields], msgspec.json.Decoder(list[record])  # type: ignore[valid-type]


def _dig(value: Any, steps: Sequence[str]) -> Any:
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _comparable(value: Any) -> tuple[int, Any]:
    """Return a sort key that orders values of different kinds: booleans, numbers, strings, the rest."""
    if isinstance(value, bool):
        return 0, value
    if isinstance(value, int | float):
        return 1, value
    if isinstance(value, str):
        return 2, value
    return 3, msgspec.json.encode(value)


def _sort(order: list[int], values: list[Any], direction: Direction) -> None:
    if direction == "group":
        first: dict[Any, int] = {}
        seats = [first.setdefault(_comparable(value), len(first)) for value in values]
        # Groups are ordered by their best member so far, that is, by where they first occur in `order`.
        seen: dict[int, int] = {}
        for index in order:
            seen.setdefault(seats[index], len(seen))
        order.sort(key=lambda index: (values[index] is None, seen[seats[index]]))
        return
    present = [index for index in order if values[index] is not None]
    missing = [index for index in order if values[index] is None]
    # reverse=True keeps equal items in their order, so the sort stays stable.
    present.sort(key=lambda index: _comparable(values[index]), reverse=direction == "down")
    order[:] = present + missing
