"""Results cut by hand.

Strategy: a slice from the start with a fixed limit, in anything that becomes part of the result: a member, a
piece of text, the list that a comprehension goes over. A limit that the caller passes is paging; a small one
means a top ten; a member called `preview` is meant to be short. What happens inside other calls is not
followed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from .flow import Step
from .names import Names
from .shapes import Shapes
from .tools import Tool

# Fewer items or characters than these are meant: a top ten, an excerpt in a sentence. Words that call it truncated
# leave no doubt.
_FEW: Final = 50
_FEW_IN_A_SENTENCE: Final = 1000
_NO_DOUBT: Final = 1
_IS_SHORT: Final = re.compile(
    r"preview|snippet|excerpt|summary|sample|head|title|short|digest|hash|id$", re.IGNORECASE
)
_IS_LIMIT: Final = re.compile(r"max|limit|cap$|trunc|chars", re.I)
_SAYS_CUT: Final = re.compile(r"truncat", re.IGNORECASE)
_PASSED_ON: Final = frozenset({"strip", "rstrip", "lstrip", "decode", "encode"})
_Piece = tuple[ast.expr, Step, int]


class Cuts:
    def __init__(self, names: Names, shapes: Shapes, tool: Tool) -> None:
        self._names = names
        self._shapes = shapes
        self._tool = tool
        self._flow = tool.flow

    def of(self, value: ast.expr, step: Step) -> Iterator[tuple[ast.expr, str]]:
        """The cuts in a returned value, and what each of them is."""
        seen: set[ast.expr] = set()
        # The last part is the least limit that counts as a cut.
        stack: list[_Piece] = [(value, step, _FEW)]
        while stack:
            piece, at, least = stack.pop()
            for node, where in self._flow.alternatives(piece, at):
                if node in seen:
                    continue
                seen.add(node)
                what = self._cut(node, where, least)
                if what:
                    yield node, what
                else:
                    stack.extend(self._inside(node, where, least))

    def _inside(self, node: ast.expr, step: Step, least: int) -> list[_Piece]:
        """The parts of an expression that become parts of the result."""
        parts: list[ast.expr] = []
        match node:
            case ast.BinOp(left=left, right=right, op=ast.Add()):
                least = _NO_DOUBT if _says_cut(left) or _says_cut(right) else least
                parts = [left, right]
            case ast.JoinedStr(values=values):
                least = _NO_DOUBT if least == _NO_DOUBT or _says_cut(node) else _FEW_IN_A_SENTENCE
                parts = [value.value for value in values if isinstance(value, ast.FormattedValue)]
            case ast.Dict(keys=keys, values=values):
                parts = [value for key, value in zip(keys, values, strict=True) if not _is_short(key)]
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                parts = items
            case ast.ListComp() | ast.GeneratorExp() | ast.DictComp() | ast.SetComp():
                parts = [node.generators[0].iter]
            case ast.Call():
                parts = self._passed_on(node)
            case ast.Name(id=name):
                gathered = self._flow.gathered.get(name, [])
                return [(loop.iter, each.step, least) for each in gathered for loop in each.step.loops[:1]]
        named_short = {part for part in parts if isinstance(part, ast.Name) and _IS_SHORT.search(part.id)}
        return [(part, step, least) for part in parts if part not in named_short]

    def _passed_on(self, call: ast.Call) -> list[ast.expr]:
        """What a call gives back as part of its own value."""
        scope = self._tool.scope
        function = call.func
        if isinstance(function, ast.Attribute) and function.attr in _PASSED_ON:
            return [function.value]
        if isinstance(function, ast.Attribute) and function.attr == "join" and len(call.args) == 1:
            return call.args
        dotted = self._names.dotted(function, scope) or ""
        made = self._shapes.mcp_class(function, scope) in ("CallToolResult", "ToolResult", "TextContent")
        if (
            made
            or dotted in ("str", "list", "sorted", "mcp_envelope.Reply")
            or self._shapes.encoded(call, scope)
        ):
            return [*call.args, *(keyword.value for keyword in call.keywords)]
        return []

    def _cut(self, node: ast.expr, step: Step, least: int) -> str | None:
        if isinstance(node, ast.Call):
            shortens = self._names.dotted(node.func, self._tool.scope) == "textwrap.shorten"
            return "textwrap.shorten" if shortens else None
        match node:
            case ast.Subscript(slice=ast.Slice(lower=lower, upper=ast.expr() as upper, step=None)):
                from_start = lower is None or (isinstance(lower, ast.Constant) and lower.value == 0)
                if from_start and self._is_fixed(upper, step, least):
                    return f"[:{ast.unparse(upper)}]"
        return None

    def _is_fixed(self, limit: ast.expr, step: Step, least: int) -> bool:
        names = {part.id for part in ast.walk(limit) if isinstance(part, ast.Name)}
        if names & self._flow.parameters - {"self", "cls"}:
            return False
        number = self._number(limit, step)
        if number is not None:
            return number >= least
        if any(self._flow.reaching(name, step) for name in names):
            return False  # computed: who knows what from
        last = (
            limit.attr
            if isinstance(limit, ast.Attribute)
            else limit.id
            if isinstance(limit, ast.Name)
            else ""
        )
        return least == _NO_DOUBT or _IS_LIMIT.search(last) is not None

    def _number(self, node: ast.expr, step: Step) -> int | None:
        """The number that an expression stands for, if that stands in the source."""
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.BinOp(left=left, right=right, op=ast.Mult()):
                one, other = self._number(left, step), self._number(right, step)
                return one * other if one is not None and other is not None else None
            case ast.Name(id=name):
                values = [each.value for each in self._flow.reaching(name, step)]
                if not values and name not in self._flow.parameters:
                    bindings = self._tool.scope.find(name)
                    values = [
                        each.node
                        for each in bindings
                        if each.kind == "value" and isinstance(each.node, ast.expr)
                    ]
                    if len(values) != len(bindings):
                        return None
                if len(values) == 1 and not isinstance(values[0], ast.Name):
                    return self._number(values[0], step)
        return None


def _is_short(key: ast.expr | None) -> bool:
    return isinstance(key, ast.Constant) and isinstance(key.value, str) and bool(_IS_SHORT.search(key.value))


def _says_cut(node: ast.expr) -> bool:
    if isinstance(node, ast.JoinedStr):
        return any(map(_says_cut, node.values))
    return (
        isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(_SAYS_CUT.search(node.value))
    )
