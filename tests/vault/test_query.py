"""Queries: the library's answers on payloads of any size, and hostile expressions stopped in time."""

from __future__ import annotations

import json
import math
import re
import sys
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from jmespath.exceptions import JMESPathError  # type: ignore[import-untyped]
from jmespath.parser import Parser  # type: ignore[import-untyped]
from jmespath.visitor import TreeInterpreter  # type: ignore[import-untyped]

from mcp_envelope.jsontext.document import sniff
from mcp_envelope.vault import document, layout
from mcp_envelope.vault.document import StoredValue, root_of
from mcp_envelope.vault.layout import IndexBuilder, InMemory
from mcp_envelope.vault.query import BadQuery, SearchLimits, TooCostly, run
from tests.conftest import examples


def stored(data: bytes, far: int = 1 << 15) -> StoredValue:
    """A payload as it comes back from a store; a small `far` (but no less than an escape) makes all large."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "CHUNK", far)
        patch.setattr(document, "CHUNK", far)
        builder = IndexBuilder(len(data))
        made = builder.document(data)
        return root_of(InMemory(data + builder.appendix), len(data), made).opened()


def text(data: str) -> StoredValue:
    builder = IndexBuilder(len(data.encode()))
    return root_of(InMemory(data.encode()), len(data.encode()), builder.text(data.encode()))


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


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
_records = st.lists(
    st.fixed_dictionaries(
        {"a": st.integers(0, 2), "b": st.one_of(_scalars, st.lists(_scalars, max_size=3))},
        optional={"c": st.sampled_from(["x y", "a", ""]), "d/~": _scalars},
    ),
    min_size=2,
    max_size=6,
)
_shaped = st.fixed_dictionaries(
    {"a": st.one_of(_records, _records.map(json.dumps)), "b": st.lists(_scalars, max_size=6)},
    optional={"c": st.one_of(st.none(), st.dictionaries(_keys, st.one_of(_scalars, _records), max_size=3))},
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


@settings(max_examples=examples(250))
@given(
    st.one_of(_shaped, _shaped, _documents), expressions(), st.sampled_from([16, 40, 1 << 15]), st.booleans()
)
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


_RICH = {
    "a": [
        {"a": 1, "b": None, "c": "x"},
        {"a": 2, "b": [1, None, [2]], "c": "x"},
        {"a": 2, "b": True, "c": "y"},
        None,
        {"a": 0, "b": False},
        {"a": 0, "b": 1},
    ],
    "n": None,
    "t": True,
    "one": 1,
    "zero": 0,
    "e": [],
    "o": {},
    "es": "",
    "s": '{"a": [1, null, 2]}',
    "m": {"k": None, "v": 1, "w": [None, 1]},
}
_EASILY_WRONG = """
a[*]; a[]; a[*].b; a[*].b[]; a[].b[]; m.*; m.*[]; n.{x: y}; n.[y]; a[3].[a]; n.*; n[*]; n[]; n[?@]
one[*]; m[*]; n || t; e || one; o || one; es || one; zero || one; t && e; one && n; !n; !zero; !e; !o
!es; !t; !a; t == one; one == t; zero == `false`; a[?b == `true`].a; a[?b == `1`].a; a[?a == `1`].a
a[?!b].a; a[?b].a; max_by(a[?@], &a); min_by(a[?@], &a); sort_by(a[?@], &a); max_by(a[:3], &a)
min_by(a[4:], &a); sort_by(a[:2], &c); a[?a == `2`] || one; a[?a == `9`] || one; a[?a == `2`] && one
a[?a == `2`] | !@; a[?a == `9`] | !@; a[*].a || n; values(m); keys(m); length(m); length(s); length(es)
length(e); type(n); type(t); type(a); type(a[*]); type(s); a[1:].a; a[::-1].a; a[-2:]; a[5:1:-2]; a[9:]
e[*]; a[*].b | [1]; a[*].b | [-1]; a[6]; a[-6]; a[-7]; a[*].a | [:2]; a[*].a | [-2:]; a[*].a | [::-1]
a[*].a | [1::2]; a[*].a | [9]; a[*].a | [-9]; a[*].a | b; a[*].a | *; a[*].b | []; s.a; s.a[*]; s.*
s.a[1]; to_string(a); to_array(n); to_array(a); not_null(n, zero); m.w[*]; m.w[]; reverse(a); map(&a, a)
map(&b, a); map(&[@], m.w); contains(e, n); contains(m.w, n); contains(s, `"null"`); a[*].[a, b]
a[*].{x: a}; [a, n]; {x: n}; sum(a[*].a); avg(a[*].a); merge(m, {v: n}); a == a; m == m; a[0] == a[1]
a[?!@].type(@); a[*].type(@); a[?!@]; m.*.type(@)
one < es; es < s; zero < one; one <= one; one > zero; one >= t; @.a[0]; a[0].b.c; a[?c > `"x"`]
a[*].a | [?@ > `0`]
"""


@pytest.mark.parametrize("far", [16, 60, 1 << 15])
def test_the_answers_where_it_is_easy_to_be_wrong(far: int) -> None:
    root = stored(compact(_RICH).encode(), far)
    for expression in filter(None, re.split(r"[;\n] *", _EASILY_WRONG)):
        try:
            expected = _Reference().visit(_read(expression), _RICH)
        except TypeError:
            # A number and a string have no order.
            expected = None
        assert _same(json.loads(run(root, expression)), expected), expression


# -- what the library cannot do -----------------------------------------------------------------------------


@pytest.mark.parametrize("far", [16, 1 << 15])
@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("a", '"{\\"rows\\":[{\\"n\\":1.0},{\\"n\\":2}]}"'),
        ("a.rows[0].n", "1.0"),
        ("a.rows[*].n", "[1.0,2]"),
        ("a.rows[-1]", '{"n":2}'),
        ("a.*[]", '[{"n":1.0},{"n":2}]'),
        ("{x: a.rows[1].n}", '{"x":2}'),
        ("list[*].rows[0]", "[5]"),
        ("list[?rows[1] == `6`].rows[]", "[5,6]"),
        ("list[0].rows[:1]", "[5]"),
        ("length(list[0])", "14"),
        ("nothing.at[0].all", "null"),
    ],
)
def test_steps_go_on_in_strings_that_hold_json(far: int, expression: str, answer: str) -> None:
    value = {"a": compact({"rows": [{"n": 1.0}, {"n": 2}]}), "list": [compact({"rows": [5, 6]}), "{"]}
    assert run(stored(compact(value).encode(), far), expression).decode() == answer


_NUMBERS = (
    "[1.0,1e400,-1.50e+3,123456789012345678901234567890,0.1000000000000000055511151231257827,{}]".format(
        "7" * 5000
    )
)


@pytest.mark.parametrize("far", [16, 1 << 15])
@pytest.mark.parametrize(
    "expression", ["n", "n[*]", "n[]", "n[:]", "@.n | [*]", "n[?@ > `-9999`]", "map(&@, n)", "not_null(n)"]
)
def test_numbers_that_pass_through_keep_their_spelling(expression: str, far: int) -> None:
    root = stored(b'{"n":%b}' % _NUMBERS.encode(), far)
    assert run(root, expression).decode() == _NUMBERS


def test_numbers_with_a_spelling_are_numbers() -> None:
    root = stored(b'{"n":[1.0,1e400,2.50,1.00]}')
    assert run(root, "n[?@ > `2`]") == b"[1e400,2.50]"
    assert run(root, "n[?@ == `1`]") == b"[1.0,1.00]"
    assert run(root, "sort(n)") == b"[1.0,1.00,2.50,1e400]"
    assert run(root, "sum(n[?@ < `9`])") == b"4.5"


def test_numbers_of_any_size_and_half_pairs_do_no_harm() -> None:
    data = b'{"a":[{"n":%b,"s":"x \\ud83d"}]}' % (b"7" * 5000)
    for far in (16, 1 << 15):
        assert run(stored(data, far), "a[*].s") == '["x \ufffd"]'.encode()


def test_the_largest_of_nothing_is_null() -> None:
    assert run(stored(b'{"a":[]}', 16), "[max_by(a, &id), min_by(a, &id), max(a)]") == b"[null,null,null]"


def test_a_string_and_a_number_have_no_order() -> None:
    assert run(stored(b'{"a":1,"b":"1"}'), "a < b") == b"null"
    assert run(stored(b'{"a":1,"b":"1"}'), "contains(b, a)") == b"false"


def test_text_is_not_queried() -> None:
    with pytest.raises(BadQuery, match="grep") as caught:
        run(text("lines\n" * 9), "a")
    assert caught.value.position == 0


# -- a large payload is not loaded --------------------------------------------------------------------------

RECORDS = [
    {"id": index, "name": f"name {index}", "tags": ["x", "y"], "w": index % 7} for index in range(3000)
]
# Less than the payload in every respect, but enough for one item and for what is selected.
NARROW = SearchLimits(whole=2000, memory=1_000_000, result=100_000)


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("length(items)", 3000),
        ("keys(@)", ["items", "n"]),
        ("type(items)", "array"),
        ("items[2999].id", 2999),
        ("items[-2].name", "name 2998"),
        ("items[10:13].id", [10, 11, 12]),
        ("items[:2990:-3].id", [2999, 2996, 2993]),
        ("items[?id > `2997`]", RECORDS[2998:]),
        ("items[?w == `6`] | [0].id", 6),
        ("items[?w == `6`] | [-1].id", 2995),
        ("items[?w == `6`].id | [1:3]", [13, 20]),
        ("items[?w == `6`] | length(@)", 428),
        ("items[*].tags[] | length(@)", 6000),
        ("items[*].[id, [id, id], {a: id}] | [5]", [5, [5, 5], {"a": 5}]),
        ("min_by(items[?id > `7`], &id).id", 8),
        (
            "{count: length(items), first: items[0].id, n: n, some: items[:2].w}",
            {"count": 3000, "first": 0, "n": 1, "some": [0, 1]},
        ),
        ("[length(items) > `5`, !items, items && n, nothing || n]", [True, False, 1, 1]),
        ("*[0].id", [0]),
        ("items[*].id", list(range(3000))),
        ("items[*].[id, [id, id], {a: id}] | length(@)", 3000),
        ("items[?[id, id] == `[5, 5]`].id", [5]),
        ('items[?{a: id} == `{"a": 5}`].id', [5]),
        ("items[?w == `6`].id | [length(@), [0]]", [428, 6]),
        ("items[?w == `6`].id | [-2:]", [2988, 2995]),
        ("items[?w == `9`] | {none: !@, all: @}", {"none": True, "all": []}),
        ("sum(items[?id < `100`].w)", sum(index % 7 for index in range(100))),
    ],
)
def test_what_can_be_done_child_by_child_is(expression: str, answer: Any) -> None:
    root = stored(json.dumps({"items": RECORDS, "n": 1}).encode(), 500)
    assert json.loads(run(root, expression, NARROW)) == answer


@pytest.mark.parametrize(
    "expression",
    [
        "items",
        "@",
        "items[*]",
        "sort_by(items, &id)[0]",
        "[items]",
        "max_by(items, &id)",
        "items == items",
    ],
)
def test_what_needs_too_much_at_once_is_refused_with_advice(expression: str) -> None:
    root = stored(json.dumps({"items": RECORDS, "n": 1}).encode(), 500)
    with pytest.raises(TooCostly, match=r"stopped, because .*Start from the list"):
        run(root, expression, NARROW)


@pytest.mark.parametrize(
    ("expression", "limits", "told"),
    [
        ("sort_by(a, &n) | [0].n", SearchLimits(whole=1000), "would have to load all 0 MB at /a"),
        ("not_null(a[*].s) | [0]", SearchLimits(memory=100_000), "memory"),
        ("a[] | [@, @][] | length(@)", SearchLimits(memory=100_000), "memory"),
        (
            "not_null(n) | [@, @][] | [@, @][] | [@, @][] | [@, @][] | length(@)",
            SearchLimits(memory=100_000),
            "memory",
        ),
        ("not_null(n) | [*].{a: @} | length(@)", SearchLimits(memory=100_000), "memory"),
        ("a == a", SearchLimits(result=1000), "compares"),
        ("map(&{a: @, b: @, c: @}, n) | sort_by(@, &a) | length(@)", SearchLimits(memory=100_000), "memory"),
        ("join('', a[*].s)", SearchLimits(memory=100_000), "memory"),
        ("[n, n, n] | [[*][*], [*][*], [*][*]] | length(@)", SearchLimits(steps=8000), "steps"),
        ("n | sort(@) | length(@)", SearchLimits(steps=5000), "steps"),
        ("a[*].s", SearchLimits(result=1000), "more than 0 MB"),
        ("a", SearchLimits(result=1000), "more than 0 MB"),
        ("{s: a[0].s}", SearchLimits(result=1000), "more than 0 MB"),
    ],
)
def test_each_limit_holds_by_itself(expression: str, limits: SearchLimits, told: str) -> None:
    value = {"a": [{"n": index, "s": f"{index}" * 1000} for index in range(100)], "n": list(range(1000))}
    root = stored(compact(value).encode(), 2000)
    run(root, expression)
    with pytest.raises(TooCostly, match=told):
        run(root, expression, limits)


# -- mistakes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "position", "told"),
    [
        ("", 0, "empty"),
        ("  ", 2, "too early"),
        ("items[", 6, "too early"),
        ("items[?a==]", 10, "missing before ']'"),
        ("items[?id > 5]", 12, "backticks"),
        ("items[?id = `5`]", 10, "=="),
        ("$.items", 0, "no `\\$`"),
        ("a.b c", 4, "unexpected 'c'"),
        ("a..b", 2, "missing before '.'"),
        ("{a}", 2, "missing before '}'"),
        ("'abc", 0, "Unclosed"),
        ("a.'b'", 2, "unexpected"),
        ("é", 0, "Unknown token"),
        ("a\0", 1, "Unknown token"),
        ("\ud800", 0, "Unknown token"),
        ("a == '\ud800'", 5, "surrogate"),
        ('a."\\ud800"', 2, "surrogate"),
        ("a[::0]", 1, "step"),
        ("b[1:2] | [0:1:0]", 9, "step"),
        ("lenght(a)", 0, "length"),
        ("a[?nope(b)].length(c)", 3, "no function nope"),
        ("a[?length(b)].nope(c)", 14, "no function nope"),
        ("length(a, b)", 0, "takes 1 argument, not 2"),
        ("[a, merge()]", 4, "at least 1 argument"),
        ("sort_by(a, b)", 0, "after `&`"),
        ("[a, &b]", 4, "belongs before an argument"),
        ("not_null(&b)", 9, "belongs before an argument"),
        ('a."b"(c)', 2, "without quotes"),
        ("a[?abs(s) > `1`]", 3, "takes number, not string"),
        ("n | ceil(@)", 4, "takes number"),
        ("ceil(`1e999`)", 0, "such a number"),
        ("[s, sum(a)]", 4, "array of number"),
        ("sort_by(a, &x)", 0, "not by null"),
        ("sort_by(nope, &x)", 0, "takes array, not null"),
        ("sort(nope)", 0, "takes array of string or array of number, not null"),
        ("join(nope, a)", 0, "takes string, not null"),
        ("join(n, nope)", 0, "takes array of string, not null"),
        ("max_by(n, &x)", 0, "takes array, not string"),
        ('max_by([a[0], `{"s": 1}`], &s)', 0, "all of one kind"),
        ("!" * 3000 + "a", 2999, "levels deep"),
        ("[" * 100 + "a" + "]" * 100, 99, "levels deep"),
        ("(" * 3999, 3998, "levels deep"),
        ("a" + "[*].a" * 700, 1, "levels deep"),
        pytest.param(
            "`" + "[" * 1900 + "]" * 1900 + "`",
            0,
            "nested too deeply",
            marks=pytest.mark.skipif(sys.version_info >= (3, 12), reason="not too deep for newer Pythons"),
        ),
        ("a" * 4001, 4000, "4,001 characters"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_an_example(expression: str, position: int, told: str) -> None:
    root = stored(b'{"a":[{"s":"x"}],"n":"1"}')
    with pytest.raises(BadQuery, match=told) as caught:
        run(root, expression)
    assert caught.value.position == position
    assert f"at character {position}: " in caught.value.message
    assert "<-- HERE" in caught.value.message
    assert "An example that works: items[?status=='failed']" in caught.value.message
    assert caught.value.message.encode().decode().isprintable()


@settings(max_examples=examples(200))
@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                [
                    *"abc.[]*(){}:,|&!<>=@$'\"`\\ \0é😀\ud800",
                    "[?",
                    "[]",
                    "||",
                    "==",
                    "length(",
                    "`1`",
                    "&a",
                    "'x'",
                ]
            ),
            st.text(max_size=2),
        ),
        max_size=12,
    ).map("".join)
)
def test_nothing_but_the_two_failures_comes_out(expression: str) -> None:
    root = stored(b'{"a":[{"b":1,"c":"x"},{"b":2}],"b":{"c":[1,[2]]},"c":"[1]"}', 16)
    try:
        json.loads(run(root, expression))
    except BadQuery as error:
        assert 0 <= error.position <= len(expression)  # noqa: PT017
        error.message.encode()


def test_an_old_spelling_of_literals_works() -> None:
    assert run(stored(b'[{"a":"foo"}]'), "[?a == `foo`]") == b'[{"a":"foo"}]'


# -- hostile expressions ------------------------------------------------------------------------------------


def _piped(*steps: str) -> str:
    return " | ".join(steps)


@pytest.mark.parametrize(
    "expression",
    [
        _piped(*["[@, @]"] * 400),
        _piped(*["{a: @, b: @}"] * 200),
        _piped(*["[@, @][]"] * 300),
        _piped(*["[@, @]"] * 60, "to_string(@)"),
        _piped(*["to_string([@, @])"] * 60),
        _piped("s", *["join('', [@, @])"] * 60),
        _piped("s", *["join(@, [@, @])"] * 60),
        f"({_piped(*['[@, @]'] * 60)}) == ({_piped(*['[@, @]'] * 60)})",
        _piped(*["[@, @]"] * 60, "contains(@, [0])"),
        _piped(*["[@,@,@,@,@,@,@,@,@,@]"] * 12, "[*]" * 11),
        _piped(*["[@,@,@,@,@,@,@,@,@,@]"] * 12, "[]" * 11),
        _piped("[s, join('', [s])]", *["[@, @][]"] * 12, "sort(@) | length(@)"),
        _piped("[s, join('', [s])]", *["[@, @][]"] * 12, "max(@) | length(@)"),
        _piped("[s, join('', [s])]", *["[@, @][]"] * 12, "sort_by(@, &@) | length(@)"),
        _piped("[s, join('', [s])]", *["[@, @][]"] * 12, "[?@ == @] | length(@)"),
        _piped("{a: a}", *["merge(@, {a: @, b: @})"] * 100),
        f"[{','.join(['a[].x[]'] * 400)}]",
        f"a[*].[{','.join(['@'] * 1900)}]",
    ],
)
def test_what_grows_without_end_is_stopped(expression: str) -> None:
    value = {"a": [{"x": list(range(100))}] * 300, "s": "long " * 10_000}
    limits = SearchLimits(steps=400_000, memory=4 << 20, result=1 << 20)
    with pytest.raises(TooCostly, match="stopped, because"):
        run(stored(json.dumps(value).encode()), expression, limits)


def test_what_is_small_in_the_end_may_grow_on_the_way() -> None:
    """Shared structure costs nothing by itself."""
    assert run(stored(b"1"), _piped(*["[@, @]"] * 400, "length(@)")) == b"2"


def test_many_alternatives_are_not_nested() -> None:
    wanted = " || ".join(f"id == `{index}`" for index in range(0, 200, 2))
    root = stored(json.dumps([{"id": index} for index in range(300)]).encode(), 100)
    assert json.loads(run(root, f"[?{wanted}].id")) == list(range(0, 200, 2))
    assert run(root, "[0]" + " | @" * 900 + ".id") == b"0"


def test_what_a_large_item_took_is_free_for_the_next() -> None:
    items = [{"n": index, "s": "x" * 3000} for index in range(50)]
    for far in (1000, 1 << 15):
        root = stored(compact(items).encode(), far)
        assert json.loads(run(root, "[?{a: @, s: s}.a.n > `40`].n", SearchLimits(memory=60_000))) == list(
            range(41, 50)
        )


def test_the_clock_ends_it() -> None:
    root = stored(json.dumps(list(range(20_000))).encode())
    with pytest.raises(TooCostly, match="seconds"):
        run(root, "[?@ > `5`]", SearchLimits(seconds=-1))


def test_deep_values_are_kept_or_refused() -> None:
    levels = 5000 if sys.version_info < (3, 12) else 1_000_000
    deep = b'{"a":%b%b,"b":1}' % (b"[" * levels, b"]" * levels)
    for far in (16, 1 << 15):
        with pytest.raises((TooCostly, BadQuery)):
            run(stored(deep, far), "a[0][0]")
    if sys.version_info < (3, 12):
        with pytest.raises(TooCostly, match="deeply"):
            run(stored(b"[1]"), "|".join(["[[@]]"] * 650))


def test_trees_are_not_kept_for_the_whole_process() -> None:
    Parser.purge()
    run(stored(b"[1]"), "[0] || [1]")
    assert not Parser._CACHE
