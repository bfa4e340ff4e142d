"""The tables in a stored payload: its lists of records, and the lines or the CSV columns of a text.

Strategy: walk the containers from the top, through strings that hold JSON, and stop at each list, whose items are
the rows of a table. A table is named by the last name of its path, `data` if the payload itself is the list. Rows
are decoded a few megabytes at a time and turned into columns, because looking at a column as a whole is what makes
this quick. An object inside a record becomes columns with a dot in their names; lists, and objects that are nested
deeper, stay JSON.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, Literal

import msgspec

from ..fit.records import (
    DEEPEST,
    LOOKED_AT,
    MAP,
    MOST_TABLES,
    Columns,
    columns,
    csv_columns,
    have_a_key_in_common,
    may_hold,
    table_names,
)
from ..jsontext.document import encode
from .document import Child, Chunk, StoredValue, decode_json

Rows = Literal["items", "members", "lines", "csv"]

_BATCH: Final = 4 << 20
_NESTED: Final = 3
_DECODER: Final = msgspec.json.Decoder()
# The largest integer that SQLite has.
LARGEST_INTEGER: Final = (1 << 63) - 1
_SNIFFED: Final = 1 << 16


class Table(msgspec.Struct, frozen=True):
    """A list in the payload. `size` is that of its JSON or text, in bytes."""

    name: str
    path: str
    kind: Rows
    values: tuple[StoredValue, ...]

    @property
    def size(self) -> int:
        return sum(value.size for value in self.values)

    def batches(self, size: int = _BATCH, unopened: Collection[str] = ()) -> Iterator[Columns]:
        """The rows as columns, some megabytes at a time. Later batches may have other columns.

        Objects in the columns `unopened` stay JSON.
        """
        if self.kind in ("lines", "csv"):
            text = "\n".join(value.text(0, value.size) for value in self.values)
            lines = text.removesuffix("\n").replace("\r\n", "\n").split("\n")
            as_csv = csv_columns(text) if self.kind == "csv" else None
            yield as_csv or {"n": list(range(1, len(lines) + 1)), "text": lines}
            return
        for rows, keys in self._decoded(size):
            if self.kind == "items":
                yield _for_sql(rows, (), unopened)
            else:
                yield {"key": keys, **_for_sql(rows, {"key"}, unopened)}

    def _decoded(self, size: int) -> Iterator[tuple[list[Any], list[str]]]:
        """Rows, and their keys if they are members of an object, about `size` bytes at a time."""
        rows: list[Any] = []
        keys: list[str] = []
        held = 0
        for value in self.values:
            is_row = value.kind == "object" and self.kind == "items"
            for part in (value,) if is_row else value.chunks():
                raw = part.raw if isinstance(part, Chunk) else part.raw()
                decoded = decode_json(_DECODER, raw, float)
                if isinstance(part, StoredValue):
                    rows.append(decoded)
                    keys.append(part.path.rpartition("/")[2].replace("~1", "/").replace("~0", "~"))
                elif self.kind == "members":
                    rows += decoded.values()
                    keys += decoded
                else:
                    rows += decoded
                held += len(raw)
                if held >= size:
                    yield rows, keys
                    rows, keys, held = [], [], 0
        if rows:
            yield rows, keys

    def sample(self) -> Columns:
        """The columns of the first rows, to say what there is."""
        return next(self.batches(1), {})


def tables_in(root: StoredValue, *, blocks: bool = False) -> dict[str, Table]:
    """The tables of a payload by their names; `blocks` means that it is a result with content blocks."""
    if root.kind in ("text", "string"):
        return _named([_text([root])])
    if blocks:
        return _named(_of_blocks(root))
    found: list[Table] = []
    _walk(root, 0, found)
    return _named(found)


def _of_blocks(root: StoredValue) -> list[Table]:
    found: list[Table] = []
    if (structured := root.child("structuredContent")) is not None:
        _walk(structured, 0, found)
        return found
    content = root.child("content")
    blocks = [] if content is None else map(content.value_of, content.children())
    opened = [text.opened() for block in blocks if (text := block.child("text")) is not None]
    if len(opened) > 1 and all(value.kind == "object" for value in opened):
        # A list that was sent as one block per item.
        return [Table("", "", "items", tuple(opened))]
    for value in opened:
        if value.kind in ("array", "object"):
            _walk(value, 0, found)
    plain = [value for value in opened if value.kind in ("string", "text")]
    return [*found, *([_text(plain)] if plain else [])]


def _walk(value: StoredValue, depth: int, found: list[Table]) -> None:
    value = value.opened()
    if value.kind == "array":
        if value.total and len(found) < MOST_TABLES:
            found.append(Table("", value.path, "items", (value,)))
    elif value.kind == "object" and depth < DEEPEST:
        children = islice(value.children(), LOOKED_AT)
        inside = [value.value_of(child) for child in children if _may_hold(child)]
        if value.total >= MAP and len(inside) >= min(value.total, LOOKED_AT) and _are_alike(inside[:MAP]):
            found.append(Table("", value.path, "members", (value,)))
            return
        for each in inside:
            _walk(each, depth + 1, found)


def _may_hold(child: Child) -> bool:
    """Whether a table may be in it: a container, or a string that may hold one."""
    if child.large is not None:
        return child.large.kind in ("array", "object", "string")
    return may_hold(child.raw)


def _are_alike(values: Iterable[StoredValue]) -> bool:
    """Whether all are objects that have a key in common."""
    return have_a_key_in_common(
        [set(islice(value.member_keys(), LOOKED_AT)) if value.kind == "object" else set() for value in values]
    )


def _text(values: list[StoredValue]) -> Table:
    head = values[0].text(0, _SNIFFED)
    if len(head) == _SNIFFED:
        head = head[: head.rfind("\n") + 1]
    is_csv = len(values) == 1 and csv_columns(head) is not None
    return Table("", values[0].path, "csv" if is_csv else "lines", tuple(values))


def _named(found: Sequence[Table]) -> dict[str, Table]:
    are_lines = [table.kind == "lines" for table in found]
    # What models are told: a text has the table `lines`, also inside a content block.
    paths = ["" if lines else table.path for table, lines in zip(found, are_lines, strict=True)]
    names = table_names(paths, are_lines)
    return {name: msgspec.structs.replace(table, name=name) for name, table in zip(names, found, strict=True)}


# -- rows ---------------------------------------------------------------------------------------------------


def _for_sql(rows: list[Any], taken: Iterable[str], unopened: Collection[str]) -> Columns:
    """Rows as columns of names and values that SQLite takes: what is nested becomes JSON, a long integer text."""
    made = columns(rows, _NESTED, taken, unopened)
    return {name.replace("\0", "␀"): _scalars(values) for name, values in made.items()}


def _scalars(values: Sequence[Any]) -> Sequence[Any]:
    kinds = set(map(type, values))
    if kinds & {dict, list}:
        values = [encode(value).decode() if type(value) in (dict, list) else value for value in values]
    if int in kinds and max(abs(value) for value in values if type(value) is int) > LARGEST_INTEGER:
        # As floats, several ids would be one.
        values = [
            str(value) if type(value) is int and abs(value) > LARGEST_INTEGER else value for value in values
        ]
    return values
