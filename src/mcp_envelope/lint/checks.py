"""The rules, applied to what a tool returns.

Strategy: every expression that may reach a return is judged once, where it stands. An error disguised as a result
is only that; otherwise the outermost hand-made thing is reported, since fixing it fixes what is inside. Cuts are
searched separately, in everything that becomes part of the result: a slice from the start with a fixed limit
counts; a limit that the caller passes is paging, a small one is a top ten, a member called `preview` is meant to be
short. Records written into text show themselves by their fields: a loop or a comprehension that writes two or
more fields of what it iterates over (`hit.file`, `hit["score"]`) into lines has taken a record apart.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from .expressions import Expressions
from .module import Module
from .rules import Finding
from .tools import Tool, Tools

# Limits below these are intended: a top ten, an excerpt in a sentence. Words such as "truncated" leave no doubt.
_FEW: Final = 50
_FEW_IN_A_SENTENCE: Final = 1000
_NO_DOUBT: Final = 1
_IS_SHORT: Final = re.compile(r"(?i)preview|snippet|excerpt|summary|sample|head|title|short|digest|hash|id$")
_IS_LIMIT: Final = re.compile(r"(?i)max|limit|cap$|trunc|chars")
_PASSED_ON: Final = frozenset({"strip", "rstrip", "lstrip", "decode", "encode"})
_FEWEST_FIELDS: Final = 2
_BETWEEN_LINES: Final = "\n,|;"

# What makes results of text alone, as Python and TypeScript spell it.
_LEGACY: Final = frozenset({"build_tool_response", "buildToolResponse"})
_RAW_TEXT: Final = "build_tool_response has text for data; use build_structured_response or return the data"

_Verdict = tuple[str, ast.expr, str]
_Fields = set[tuple[str, str]]


def findings(
    module: Module, expressions: Expressions, column: Callable[[int, int], int] = lambda line, column: column
) -> list[Finding]:
    """Every finding once, in no order. `column` turns a column in bytes, as the tree has it, into another."""
    found: dict[object, Finding] = {}
    tools = Tools(module)

    def note(
        rule: str,
        node: ast.expr | ast.alias,
        message: str,
        tool: Tool | None = None,
        returned: ast.expr | None = None,
    ) -> None:
        line, end = node.lineno, node.end_lineno or node.lineno
        start, stop = column(line, node.col_offset), column(end, node.end_col_offset or 0)
        found.setdefault(
            (rule, node), Finding(line, start, rule, message, end, stop, tool=tool, returned=returned)
        )

    for tool in tools.all:
        if not tool.flow.is_generator:
            checks = _ToolChecks(tool, module, expressions, tools.is_sealed)
            for returned, (rule, node, message) in checks.verdicts():
                note(rule, node, f"{tool.who} {message}", tool, returned)
    for call, line in tools.without_envelope():
        note("ENV006", call, f"this server has tools but no envelope; add {line}")
    for each in module.nodes:
        if isinstance(each, ast.alias | ast.Attribute):
            if (each.name if isinstance(each, ast.alias) else each.attr) in _LEGACY:
                note("ENV008", each, _RAW_TEXT)
    return list(found.values())


class _ToolChecks:
    """What is wrong with the values that one tool returns."""

    def __init__(self, tool: Tool, module: Module, expressions: Expressions, is_sealed: bool) -> None:
        self._module = module
        self._flow = tool.flow
        self._is_handler = tool.kind == "handler"
        self._is_sealed = is_sealed
        self._expressions = expressions
        # Lists that something other than text is added to.
        self._open_lists = {
            assigned
            for name, pieces in tool.flow.gathered.items()
            if any(expressions.texts(piece) is None for piece in pieces)
            for assigned in tool.flow.assigned.get(name, [])
        }

    def verdicts(self) -> Iterator[tuple[ast.expr | None, _Verdict]]:
        for returned in self._flow.returns:
            for node in self._flow.alternatives(returned):
                if verdict := self._judge(node):
                    yield returned, verdict
            for node, what in self._cuts(returned):
                yield None, ("ENV004", node, f"cuts its result by hand ({what}); return all of it")

    def _judge(self, node: ast.expr) -> _Verdict | None:
        result = self._expressions.result(node)
        if self._expressions.is_error(node, self._flow.caught(node)):
            if self._is_handler and result is not None and result.is_error and not self._is_sealed:
                return None  # without the envelope, what a handler raises is a protocol error
            advice = "with envelope(server), raise it" if self._is_handler else "raise it, or a Failure"
            return "ENV005", node, f"returns an error as if it were a result; {advice}"
        if result is not None:
            content = result.content
            texts = self._texts(content) if content is not None else None
            if self._is_handler:
                return self._in_handler("ENV001", node, texts) if not result.structured else None
            # What cannot be seen may be media, which has to be sent this way.
            if result.has_meta or not (content is None or texts or self._expressions.is_plain(content)):
                return None
            return "ENV001", node, f"returns a hand-made {result.name}; return the data, or Reply(data, …)"
        is_gathered = isinstance(node, ast.Name) and node.id in self._flow.gathered
        texts = self._texts(node) if is_gathered or not isinstance(node, ast.Name) else None
        if texts is not None:
            if self._is_handler:
                return self._in_handler("ENV002", node, texts)
            return "ENV002", node, "returns hand-made text blocks; return the text or the data"
        if self._is_encoded(node):
            return "ENV003", node, "returns data as text; return the data"
        if any(len(fields) >= _FEWEST_FIELDS for fields in self._written(node)):
            return "ENV007", node, "writes records into text; return the records"
        return None

    def _in_handler(self, rule: str, node: ast.expr, texts: list[ast.expr] | None) -> _Verdict | None:
        """A handler has no other way to return words. Once it is sealed, only data written as text is wrong."""
        for text in texts or ():
            if self._expressions.encoded(text) is not None:
                return "ENV003", text, "returns data as text; pass it as structured_content"
        if self._is_sealed or not texts:
            return None
        made = "a CallToolResult" if rule == "ENV001" else "text blocks"
        return rule, node, f"makes {made} by hand; envelope(server) seals what it returns"

    def _texts(self, node: ast.expr) -> list[ast.expr] | None:
        """The texts of a content list that holds only text, even if it was built block by block."""
        if not isinstance(node, ast.Name):
            return self._expressions.texts(node) if node not in self._open_lists else None
        starts = self._flow.reaching(node)
        found: list[ast.expr] = []
        for part in (*starts, *self._flow.gathered.get(node.id, ())):
            is_empty = isinstance(part, ast.List) and not part.elts
            texts = [] if is_empty else self._expressions.texts(part)
            if texts is None:
                return None
            found += texts
        return found if starts else None

    def _is_encoded(self, node: ast.expr) -> bool:
        match node:
            case ast.Call(func=function, args=[ast.Name() as name]) if not self._expressions.encoded(node):
                # str(rows), where rows is a list further up
                values = [*self._flow.alternatives(name)][1:]
                is_printed = self._expressions.dotted(function) in ("str", "repr")
                return is_printed and bool(values) and all(map(self._expressions.is_container, values))
        return self._expressions.encoded(node) is not None

    # -- cuts by hand ---------------------------------------------------------------------------------------

    def _cuts(self, returned: ast.expr) -> Iterator[tuple[ast.expr, str]]:
        """The cuts in a returned value, each with its spelling."""
        seen: set[ast.expr] = set()
        # The number is the smallest limit that counts as a cut.
        stack = [(returned, _FEW)]
        while stack:
            piece, least = stack.pop()
            for node in self._flow.alternatives(piece):
                if node in seen:
                    continue
                seen.add(node)
                if what := self._cut(node, least):
                    yield node, what
                    continue
                parts, within = self._inside(node, least)
                stack += [(each, within) for each in parts if not _IS_SHORT.search(getattr(each, "id", ""))]

    def _inside(self, node: ast.expr, least: int) -> tuple[list[ast.expr], int]:
        """The parts of an expression that become parts of the result, and the smallest limit that counts there."""
        match node:
            case ast.BinOp(left=left, right=right, op=ast.Add()):
                return [left, right], _NO_DOUBT if _says_cut(left) or _says_cut(right) else least
            case ast.JoinedStr(values=values):
                least = _NO_DOUBT if least == _NO_DOUBT or _says_cut(node) else _FEW_IN_A_SENTENCE
                return [value.value for value in values if isinstance(value, ast.FormattedValue)], least
            case ast.Dict(keys=keys, values=values):
                pairs = zip(keys, values, strict=True)
                return [value for key, value in pairs if not _IS_SHORT.search(_string(key) or "")], least
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                return items, least
            case ast.ListComp() | ast.GeneratorExp() | ast.DictComp() | ast.SetComp():
                return [node.generators[0].iter], least
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in _PASSED_ON:
                return [value], least
            case ast.Call(func=ast.Attribute(attr="join"), args=[joined]):
                return [joined], least
            case ast.Call() if self._passes(node):
                return [*node.args, *(keyword.value for keyword in node.keywords)], least
            case ast.Name(id=name):
                gathered = self._flow.gathered.get(name, [])
                return [loop.iter for each in gathered for loop in self._flow.loops(each)[:1]], least
        return [], least

    def _passes(self, call: ast.Call) -> bool:
        """Whether the arguments of a call become part of its value."""
        return (
            self._expressions.mcp_class(call.func) in ("CallToolResult", "ToolResult", "TextContent")
            or self._expressions.dotted(call.func) in ("str", "list", "sorted", "mcp_envelope.Reply")
            or self._expressions.encoded(call) is not None
        )

    def _cut(self, node: ast.expr, least: int) -> str | None:
        match node:
            case ast.Call(func=function) if self._expressions.dotted(function) == "textwrap.shorten":
                return "textwrap.shorten"
            case ast.Subscript(
                slice=ast.Slice(lower=None | ast.Constant(value=0), upper=ast.expr() as upper, step=None)
            ) if self._is_fixed(upper, least):
                return f"[:{ast.unparse(upper)}]"
        return None

    def _is_fixed(self, limit: ast.expr, least: int) -> bool:
        names = [part for part in ast.walk(limit) if isinstance(part, ast.Name)]
        if {name.id for name in names} & self._flow.parameters - {"self", "cls"}:
            return False
        number = self._number(limit)
        if number is not None:
            return number >= least
        if any(map(self._flow.reaching, names)):
            return False  # computed
        last = getattr(limit, "attr", getattr(limit, "id", ""))
        return least == _NO_DOUBT or _IS_LIMIT.search(last) is not None

    def _number(self, node: ast.AST | None) -> int | None:
        """The number that an expression stands for, if the source shows it."""
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.BinOp(left=left, right=right, op=ast.Mult()):
                one, other = self._number(left), self._number(right)
                return one * other if one is not None and other is not None else None
            case ast.Name(id=name):
                values: Sequence[ast.AST | None] = self._flow.reaching(node)
                if not values and name not in self._flow.parameters:
                    values = [self._module.value(each) for each in self._module.bindings(node)]
                return (
                    self._number(values[0])
                    if len(values) == 1 and not isinstance(values[0], ast.Name)
                    else None
                )
        return None

    # -- records written into text --------------------------------------------------------------------------

    def _written(self, node: ast.expr) -> Iterator[_Fields]:
        """For every piece of a text, the fields that are written into it."""
        match node:
            case ast.BinOp(left=left, right=right, op=ast.Add()):
                yield from self._written(left)
                yield from self._written(right)
            case ast.JoinedStr(values=values):
                for value in values:
                    if isinstance(value, ast.FormattedValue):
                        yield from self._written(value.value)
            case ast.Call(
                func=ast.Attribute(value=ast.Constant(value=str(between)), attr="join"), args=[joined]
            ):
                if not set(between).isdisjoint(_BETWEEN_LINES):
                    if isinstance(joined, ast.GeneratorExp | ast.ListComp):
                        yield _fields(joined.elt, joined.generators)
                    elif isinstance(joined, ast.Name):
                        yield self._gathered(joined.id)
            case ast.Call(func=ast.Attribute(value=value, attr="strip" | "rstrip" | "lstrip"), args=[]):
                yield from self._written(value)
            case ast.Name(id=name):
                # A list that is returned as it is counts as data; only a text grows out of texts by `+=`.
                starts = self._flow.reaching(node)
                if any(isinstance(start, ast.JoinedStr) or _string(start) is not None for start in starts):
                    yield self._gathered(name)

    def _gathered(self, name: str) -> _Fields:
        pieces = self._flow.gathered.get(name, [])
        return {found for piece in pieces for found in _fields(piece, self._flow.loops(piece))}


def _fields(written: ast.expr, loops: Sequence[ast.comprehension | ast.For | ast.AsyncFor]) -> _Fields:
    """The fields, of what the loops iterate over, that are written into a text."""
    is_format = isinstance(written, ast.Call) and getattr(written.func, "attr", "") == "format"
    if not (isinstance(written, ast.JoinedStr | ast.BinOp) or is_format):
        return set()
    names = {part.id for loop in loops for part in ast.walk(loop.target) if isinstance(part, ast.Name)}
    parts = [*ast.walk(written)]
    called = {part.func for part in parts if isinstance(part, ast.Call)}
    used = {part.id for part in parts if isinstance(part, ast.Name)}
    found: _Fields = set()
    for part in parts:
        match part:
            case (
                ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(field)))
                | ast.Call(
                    func=ast.Attribute(value=ast.Name(id=name), attr="get"),
                    args=[ast.Constant(value=str(field)), *_],
                )
                | ast.Attribute(value=ast.Name(id=name), attr=field)
            ) if name in names and part not in called:
                found.add((name, field))
    for loop in loops:  # for key, value in rows.items()
        match loop.target, loop.iter:
            case (
                ast.Tuple(elts=[ast.Name(id=key), ast.Name(id=value)]),
                ast.Call(func=ast.Attribute(attr="items"), args=[]),
            ) if {key, value} <= used:
                found |= {(key, ""), (value, "")}
    return found


def _string(node: ast.expr | None) -> str | None:
    """The text of a string constant."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _says_cut(node: ast.expr) -> bool:
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return any("truncat" in (_string(part) or "").lower() for part in parts)
