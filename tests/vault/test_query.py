"""Queries: the library's answers on payloads of any size, and hostile expressions stopped in time."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
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


def _expected(expression: str, value: Any) -> Any:
    return _Reference().visit(Parser().parse(expression).parsed, value)


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
_names = st.sampled_from(["a", "b", "c", '"d/~"'])
_numbers = st.integers(-3, 3)
_bounds = st.one_of(st.just(""), _numbers.map(str))
_slices = st.builds(
    lambda start, stop, step: f"[{start}:{stop}{step}]",
    _bounds,
    _bounds,
    st.sampled_from(["", ":", ":1", ":2", ":-1", ":-2"]),
)
_literals = st.one_of(
    st.sampled_from(["'a'", "'x y'", "''", "`null`", "`true`", "`[]`", "`{}`", "`[1, 2]`", "`1.0`"]),
    _numbers.map(lambda number: f"`{number}`"),
)
_BINARY = ["==", "!=", "<", "<=", ">", ">=", "||", "&&", "|", "|"]
_ON_ANY = ["length", "type", "keys", "values", "to_array", "to_string", "to_number", "not_null", "reverse"]
_ON_LISTS = ["sum", "avg", "max", "min", "sort", "abs", "ceil", "floor", "merge"]


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    base = inner.map(lambda text: text if text.isalnum() or text == "@" else f"({text})")
    base = st.one_of(base, inner.filter(lambda text: not any(mark in text for mark in "|&=<>!")))
    return st.one_of(
        st.builds(lambda left, right: f"{left}.{right}", base, _names),
        st.builds(lambda left, right: f"{left}[{right}]", base, _numbers),
        st.builds(lambda left, right: f"{left}{right}", base, _slices),
        st.builds(lambda left, right: f"{left}{right}", base, st.sampled_from(["[*]", "[]", ".*"])),
        st.builds(lambda left, right: f"{left}[?{right}]", base, inner),
        st.builds(lambda left, one, two: f"{left}.[{one}, {two}]", base, inner, inner),
        st.builds(lambda left, one, two: f"{left}.{{x: {one}, y: {two}}}", base, inner, inner),
        st.builds(lambda left, mark, right: f"{left} {mark} {right}", inner, st.sampled_from(_BINARY), inner),
        st.builds(lambda name, one: f"{name}({one})", st.sampled_from(_ON_ANY + _ON_LISTS), inner),
        st.builds(lambda left, name: f"{left}.{name}(@)", base, st.sampled_from(_ON_ANY)),
        st.builds(lambda one, two: f"contains({one}, {two})", inner, inner),
        st.builds(
            lambda name, one, two: f"{name}({one}, &{two})",
            st.sampled_from(["sort_by", "max_by"]),
            inner,
            base,
        ),
        st.builds(lambda one, two: f"map(&{one}, {two})", base, inner),
        st.builds(lambda one, two: f"join({one}, {two})", _literals, inner),
        st.builds(lambda one: f"!{one}", base),
    )


_expressions = st.recursive(
    st.one_of(
        _names,
        _names,
        st.just("@"),
        st.sampled_from(["*", "[*]", "[]"]),
        _slices,
        _numbers.map("[{}]".format),
        _literals,
    ),
    _grown,
    max_leaves=8,
)


@settings(max_examples=examples(1500))
@given(_documents, _expressions, st.sampled_from([4, 16, 64, 1 << 15]), st.booleans())
def test_the_answers_are_those_of_the_library(value: Any, expression: str, far: int, spaced: bool) -> None:
    data = json.dumps(value, indent=1 if spaced else None, separators=None if spaced else (",", ":")).encode()
    root = stored(data, far)
    try:
        expected = _expected(expression, _opened(value))
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
