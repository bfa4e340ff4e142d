"""Queries: the library's answers on payloads of any size, and hostile expressions stopped in time."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from jmespath.exceptions import JMESPathError  # type: ignore[import-untyped]
from jmespath.parser import Parser  # type: ignore[import-untyped]
from jmespath.visitor import TreeInterpreter  # type: ignore[import-untyped]

from mcp_envelope.jsontree import sniff
from mcp_envelope.vault import document, outline
from mcp_envelope.vault.document import Value, root_of
from mcp_envelope.vault.outline import Builder
from mcp_envelope.vault.query import BadQuery, Limits, TooCostly, run
from mcp_envelope.vault.source import Whole
from tests.conftest import examples


def stored(data: bytes, far: int = 1 << 15) -> Value:
    """A payload as it comes back from a store; a small `far` makes everything large."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outline, "FAR", far)
        patch.setattr(document, "FAR", far)
        builder = Builder(len(data))
        made = builder.document(data)
        return root_of(Whole(data + builder.tables), len(data), made)


def text(data: str) -> Value:
    builder = Builder(len(data.encode()))
    return root_of(Whole(data.encode()), len(data.encode()), builder.text(data.encode()))


# -- the library's answers ----------------------------------------------------------------------------------


def _opened(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) and sniff(value.encode()) is not None else value


class _Reference(TreeInterpreter):  # type: ignore[misc]
    """The library's interpreter, but for steps into strings that hold JSON."""

    def visit_field(self, node: Any, value: Any) -> Any:
        return super().visit_field(node, _opened(value))

    def visit_index(self, node: Any, value: Any) -> Any:
        return super().visit_index(node, _opened(value))

    def visit_slice(self, node: Any, value: Any) -> Any:
        return super().visit_slice(node, _opened(value))

    def _on_opened(self, node: Any, value: Any, visit: Any) -> Any:
        base = {"type": "literal", "value": _opened(self.visit(node["children"][0], value)), "children": []}
        return visit({**node, "children": [base, *node["children"][1:]]}, value)

    def visit_projection(self, node: Any, value: Any) -> Any:
        return self._on_opened(node, value, super().visit_projection)

    def visit_filter_projection(self, node: Any, value: Any) -> Any:
        return self._on_opened(node, value, super().visit_filter_projection)

    def visit_value_projection(self, node: Any, value: Any) -> Any:
        return self._on_opened(node, value, super().visit_value_projection)

    def visit_flatten(self, node: Any, value: Any) -> Any:
        return self._on_opened(node, value, super().visit_flatten)


def _same(mine: Any, theirs: Any) -> bool:
    """Equal to the last type; what JSON cannot write is null."""
    if isinstance(theirs, float) and not math.isfinite(theirs):
        return mine is None or mine == theirs
    if isinstance(mine, list) and isinstance(theirs, list):
        return len(mine) == len(theirs) and all(map(_same, mine, theirs))
    if isinstance(mine, dict) and isinstance(theirs, dict):
        return list(mine) == list(theirs) and all(map(_same, mine.values(), theirs.values()))
    return type(mine) is type(theirs) and bool(mine == theirs)


_keys = st.sampled_from(["a", "b", "c", "d/~"])
_scalars: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.5, 1.0, -2.5, 10**30, "", "a", "b", "x y", "é😀", "1", "2.5", "[", "{a", "long " * 9]),
)
_documents: st.SearchStrategy[Any] = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(_keys, inner, max_size=4),
        st.lists(st.dictionaries(_keys, inner, min_size=1, max_size=3), min_size=1, max_size=4),
        inner.map(json.dumps),
    ),
    max_leaves=25,
)
# E is any expression, B one that a step can follow, N a key, I a number, S a slice's end, L a literal.
_LEAVES = ["N", "N", "N", "@", "*", "[*]", "[]", "[I]", "[S:S]", "[S:S:-1]", "[S:S:2]", "L"]
_GROWN = [
    *["B.N", "B[I]", "B[S:S]", "B[S:S:-2]", "B[*]", "B[]", "B.*", "B[?E]", "B[?E]", "B[*].B", "B[].B", "!B"],
    *["B.[E, E]", "B.{x: E, y: E}", "[E]", "E | E", "E | E", "E || E", "E && E", "E == E", "E != E", "E < E"],
    *[
        "E <= E",
        "E > E",
        "E >= E",
        "contains(E, E)",
        "join(L, E)",
        "map(&E, E)",
        "not_null(E, E)",
        "merge(E, E)",
    ],
    *[f"{name}(E)" for name in ("length", "type", "keys", "values", "to_array", "to_string", "to_number")],
    *[f"{name}(E)" for name in ("sum", "avg", "max", "min", "sort", "abs", "ceil", "floor", "reverse")],
    *[f"{name}(E, &E)" for name in ("sort_by", "max_by", "min_by")],
    *["B.length(@)", "B.type(@)", "starts_with(E, L)", "ends_with(E, L)"],
]
_LITERALS = [
    "'a'",
    "'x y'",
    "''",
    "`null`",
    "`true`",
    "`0`",
    "`1`",
    "`2`",
    "`[]`",
    "`{}`",
    "`[1, 2]`",
    "`1.0`",
]


@st.composite
def expressions(draw: st.DrawFn) -> str:
    def made(kind: str, depth: int) -> str:
        if kind == "N":
            return draw(st.sampled_from(["a", "b", "c", '"d/~"']))
        if kind in "IS":
            return draw(st.sampled_from(["0", "1", "2", "-1", "-2", "7"] + ["", ""] * (kind == "S")))
        if kind == "L":
            return draw(st.sampled_from(_LITERALS))
        form = draw(st.sampled_from(_LEAVES if depth == 0 else _GROWN))
        filled = re.sub(
            "[EBNISL]", lambda part: made(part[0], draw(st.integers(0, depth - 1)) if depth else 0), form
        )
        if kind == "B" and (not filled.isalnum() or filled.isdigit()) and draw(st.booleans()):
            return f"({filled})"
        return filled

    return made("E", draw(st.integers(0, 4)))


def _read(expression: str) -> Any:
    try:
        return Parser().parse(expression).parsed
    except JMESPathError:
        reject()


@settings(max_examples=examples(1500))
@given(_documents, expressions(), st.sampled_from([4, 16, 64, 1 << 15]), st.booleans())
def test_the_answers_are_those_of_the_library(value: Any, expression: str, far: int, spaced: bool) -> None:
    data = json.dumps(value, indent=1 if spaced else None, separators=None if spaced else (",", ":")).encode()
    tree, root = _read(expression), stored(data, far)
    try:
        expected = _Reference().visit(tree, _opened(value))
    except JMESPathError:
        # A stream may end before it comes to what the library fails on.
        try:
            run(root, expression)
        except BadQuery as error:
            assert 0 <= error.position <= len(expression)  # noqa: PT017
        return
    except (TypeError, OverflowError, ValueError):
        return
    assert _same(json.loads(run(root, expression)), json.loads(json.dumps(expected)))
