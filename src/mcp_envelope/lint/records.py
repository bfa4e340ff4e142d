"""Records written into text, line by line.

Strategy: a record shows itself by its fields. A loop, or a comprehension, that writes two fields or more of
what it goes over (`hit.file`, `hit["score"]`, the key and the value of a mapping) into lines has taken a record
apart. Lists of words, and text that is only rearranged, have no fields and are left alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from .flow import Flow, Step

_FEWEST_FIELDS: Final = 2
_BETWEEN_LINES: Final = "\n,|;"
_Field = tuple[str, str]


def writes_records(flow: Flow, node: ast.expr, step: Step) -> bool:
    return any(len(set(fields)) >= _FEWEST_FIELDS for fields in _written(flow, node, step))


def _written(flow: Flow, node: ast.expr, step: Step) -> Iterator[list[_Field]]:
    """For every piece of a text, the fields that were written into it."""
    match node:
        case ast.BinOp(left=left, right=right, op=ast.Add()):
            yield from _written(flow, left, step)
            yield from _written(flow, right, step)
        case ast.JoinedStr(values=values):
            for value in values:
                if isinstance(value, ast.FormattedValue):
                    yield from _written(flow, value.value, step)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(between)), attr="join"), args=[joined]):
            if not any(char in _BETWEEN_LINES for char in between):
                return
            if isinstance(joined, ast.GeneratorExp | ast.ListComp):
                yield _fields(joined.elt, [(each.target, each.iter) for each in joined.generators])
            elif isinstance(joined, ast.Name):
                yield _gathered(flow, joined.id)
        case ast.Call(func=ast.Attribute(value=value, attr="strip" | "rstrip" | "lstrip"), args=[]):
            yield from _written(flow, value, step)
        case ast.Name(id=name):
            # A list that is returned as it is, is data; only a text grows by `+=` out of texts.
            starts = [each.value for each in flow.reaching(name, step)]
            if any(isinstance(start, ast.JoinedStr) or _is_text(start) for start in starts):
                yield _gathered(flow, name)


def _gathered(flow: Flow, name: str) -> list[_Field]:
    return [
        found
        for value, step in flow.gathered.get(name, [])
        for found in _fields(value, [(loop.target, loop.iter) for loop in step.loops])
    ]


def _fields(written: ast.expr, loops: list[tuple[ast.expr, ast.expr]]) -> list[_Field]:
    """The fields of what the loops go over that are written into a text."""
    if not (isinstance(written, ast.JoinedStr | ast.BinOp) or _is_format(written)):
        return []
    names = {part.id for target, _ in loops for part in ast.walk(target) if isinstance(part, ast.Name)}
    called = {id(part.func) for part in ast.walk(written) if isinstance(part, ast.Call)}
    found: list[_Field] = []
    for part in ast.walk(written):
        match part:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(field))) if (
                name in names
            ):
                found.append((name, field))
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="get"),
                args=[ast.Constant(value=str(field)), *_],
            ) if name in names:
                found.append((name, field))
            case ast.Attribute(value=ast.Name(id=name), attr=field) if (
                name in names and id(part) not in called
            ):
                found.append((name, field))
    return found + _of_mappings(written, loops)


def _of_mappings(written: ast.expr, loops: list[tuple[ast.expr, ast.expr]]) -> list[_Field]:
    used = {part.id for part in ast.walk(written) if isinstance(part, ast.Name)}
    found: list[_Field] = []
    for target, over in loops:
        match target, over:
            case (
                ast.Tuple(elts=[ast.Name(id=key), ast.Name(id=value)]),
                ast.Call(func=ast.Attribute(attr="items"), args=[]),
            ) if {key, value} <= used:
                found += [(key, ""), (value, "")]
    return found


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_format(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format"
