"""What the lists of a payload are called as tables, for a question in SQL.

Strategy: the same walk as over a stored payload, over one that is in memory: from the top through objects, and
through strings that hold JSON, down to each list, or to a map of records. A name is the last one of the path, with
as much of the path as it takes to tell it from the names before it, so all tables have to be found to name one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ..jsontext.document import Buffer, Far, Node, TooDeep
from .columns import unique

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


def tables_in(root: Node, path: str) -> dict[str, str]:
    """Return the names of the tables in a payload by their paths; none if that would take long."""
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
