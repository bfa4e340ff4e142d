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
from collections.abc import Callable, Iterator
from typing import Final

from .expressions import Expressions
from .flow import Flow, Step, Value
from .names import Names
from .rules import Finding
from .tools import Kind, Servers, Tool, Tools

_MIDDLEWARE: Final[dict[Kind, str]] = {
    "fastmcp": "add_middleware(EnvelopeMiddleware())",
    "sdk": "envelope(server)",
    "handler": "envelope(server)",
}
# Limits below these are intended: a top ten, an excerpt in a sentence. Words such as "truncated" leave no doubt.
_FEW: Final = 50
_FEW_IN_A_SENTENCE: Final = 1000
_NO_DOUBT: Final = 1
_IS_SHORT: Final = re.compile(
    r"preview|snippet|excerpt|summary|sample|head|title|short|digest|hash|id$", re.IGNORECASE
)
_IS_LIMIT: Final = re.compile(r"max|limit|cap$|trunc|chars", re.IGNORECASE)
_PASSED_ON: Final = frozenset({"strip", "rstrip", "lstrip", "decode", "encode"})
_FEWEST_FIELDS: Final = 2
_BETWEEN_LINES: Final = "\n,|;"

# What makes results of text alone, as Python and TypeScript spell it.
_LEGACY: Final = frozenset({"build_tool_response", "buildToolResponse"})
_RAW_TEXT: Final = "build_tool_response has text for data; use build_structured_response or return the data"

_Verdict = tuple[str, ast.expr, str]


class Checks:
    """The findings in a tree. `column` turns the tree's columns, which are in bytes, into those of findings."""

    def __init__(
        self, tree: ast.Module, column: Callable[[int, int], int] = lambda line, column: column
    ) -> None:
        self.names = Names(tree)
        self.expressions = Expressions(self.names)
        self._servers = Servers(self.names)
        self._tools = Tools(self.names, self._servers)
        self._column = column

    def findings(self) -> list[Finding]:
        """Every finding once, in no particular order."""
        found: dict[object, Finding] = {}
        for each in self._all():
            found.setdefault((each.rule, each.node or (each.line, each.column)), each)
        return list(found.values())

    def _all(self) -> Iterator[Finding]:
        # Whether what handlers return gets sealed.
        is_sealed = self._servers.enveloped() != set()
        for tool in self._tools.all:
            if not tool.flow.is_generator:
                checks = _ToolChecks(tool, self.names, self.expressions, is_sealed)
                for returned, (rule, node, message) in checks.verdicts():
                    yield self._finding(rule, node, f"{tool.who} {message}", tool, returned)
        for call, kind in self._servers.without_envelope(self._tools.used):
            message = f"this server has tools but no envelope; add {_MIDDLEWARE[kind]}"
            yield self._finding("ENV006", call, message)
        for each in self.names.nodes:
            if (isinstance(each, ast.alias) and each.name in _LEGACY) or (
                isinstance(each, ast.Attribute) and each.attr in _LEGACY
            ):
                yield self._finding("ENV008", each, _RAW_TEXT)

    def _finding(
        self,
        rule: str,
        node: ast.expr | ast.alias,
        message: str,
        tool: Tool | None = None,
        returned: ast.stmt | None = None,
    ) -> Finding:
        line, end = node.lineno, node.end_lineno or node.lineno
        return Finding(
            line,
            self._column(line, node.col_offset),
            rule,
            message,
            end,
            self._column(end, node.end_col_offset or 0),
            node=node if isinstance(node, ast.expr) else None,
            tool=tool,
            returned=returned,
        )


class _ToolChecks:
    """What is wrong with the values that one tool returns."""

    def __init__(self, tool: Tool, names: Names, expressions: Expressions, is_sealed: bool) -> None:
        self._names = names
        self._flow = tool.flow
        self._is_handler = tool.kind == "handler"
        self._is_sealed = is_sealed
        self._expressions = expressions
        # Lists that something other than text is added to.
        self._open_lists = {
            assigned.node
            for name, pieces in tool.flow.gathered.items()
            if any(expressions.texts(piece.node) is None for piece in pieces)
            for assigned in tool.flow.assigned.get(name, [])
        }

    def verdicts(self) -> Iterator[tuple[ast.stmt | None, _Verdict]]:
        for returned in self._flow.returns:
            for value in self._flow.alternatives(returned):
                if verdict := self._judge(value.node, value.step):
                    yield returned.step.node, verdict
            for node, what in self._cuts(returned):
                yield None, ("ENV004", node, f"cuts its result by hand ({what}); return all of it")

    def _judge(self, node: ast.expr, step: Step) -> _Verdict | None:
        result = self._expressions.result(node)
        if self._expressions.is_error(node, step.caught):
            if self._is_handler and result is not None and result.is_error and not self._is_sealed:
                return None  # without the envelope, what a handler raises is a protocol error
            advice = "with envelope(server), raise it" if self._is_handler else "raise it, or a Failure"
            return "ENV005", node, f"returns an error as if it were a result; {advice}"
        if result is not None:
            content = result.content
            texts = self._texts(content, step) if content is not None else None
            if self._is_handler:
                return self._in_handler("ENV001", node, texts) if not result.structured else None
            # What cannot be seen may be media, which has to be sent this way.
            if result.has_meta or not (content is None or texts or self._expressions.is_plain(content)):
                return None
            return "ENV001", node, f"returns a hand-made {result.name}; return the data, or Reply(data, …)"
        is_gathered = isinstance(node, ast.Name) and node.id in self._flow.gathered
        texts = self._texts(node, step) if is_gathered or not isinstance(node, ast.Name) else None
        if texts is not None:
            if self._is_handler:
                return self._in_handler("ENV002", node, texts)
            return "ENV002", node, "returns hand-made text blocks; return the text or the data"
        if self._is_encoded(node, step):
            return "ENV003", node, "returns data as text; return the data"
        if any(len(fields) >= _FEWEST_FIELDS for fields in _written(self._flow, node, step)):
            return "ENV007", node, "writes records into text; return the records"
        return None

    def _in_handler(self, rule: str, node: ast.expr, texts: list[ast.expr] | None) -> _Verdict | None:
        """A handler has no other way to return words. Once it is sealed, only data written as text is wrong."""
        encoded = [text for text in texts or () if self._expressions.encoded(text) is not None]
        if encoded:
            return "ENV003", encoded[0], "returns data as text; pass it as structured_content"
        if self._is_sealed or not texts:
            return None
        made = "a CallToolResult" if rule == "ENV001" else "text blocks"
        return rule, node, f"makes {made} by hand; envelope(server) seals what it returns"

    def _texts(self, node: ast.expr, step: Step) -> list[ast.expr] | None:
        """The texts of a content list that holds only text, even if it was built block by block."""
        if not isinstance(node, ast.Name):
            return self._expressions.texts(node) if node not in self._open_lists else None
        starts = self._flow.reaching(node.id, step)
        found: list[ast.expr] = []
        for part in (*starts, *self._flow.gathered.get(node.id, ())):
            is_empty = isinstance(part.node, ast.List) and not part.node.elts
            texts = [] if is_empty else self._expressions.texts(part.node)
            if texts is None:
                return None
            found += texts
        return found if starts else None

    def _is_encoded(self, node: ast.expr, step: Step) -> bool:
        if self._expressions.encoded(node) is not None:
            return True
        match node:
            case ast.Call(
                func=function, args=[ast.Name() as name]
            ):  # str(rows), where rows is a list further up
                values = [each.node for each in self._flow.alternatives(Value(name, step))][1:]
                is_printed = self._expressions.dotted(function) in ("str", "repr")
                return is_printed and bool(values) and all(map(self._expressions.is_container, values))
        return False

    # -- cuts by hand ---------------------------------------------------------------------------------------

    def _cuts(self, returned: Value) -> Iterator[tuple[ast.expr, str]]:
        """The cuts in a returned value, each with its spelling."""
        seen: set[ast.expr] = set()
        # The number is the smallest limit that counts as a cut.
        stack = [(returned, _FEW)]
        while stack:
            piece, least = stack.pop()
            for node, step in self._flow.alternatives(piece):
                if node in seen:
                    continue
                seen.add(node)
                if what := self._cut(node, step, least):
                    yield node, what
                else:
                    stack.extend(self._inside(node, step, least))

    def _inside(self, node: ast.expr, step: Step, least: int) -> list[tuple[Value, int]]:
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
                pairs = zip(keys, values, strict=True)
                parts = [value for key, value in pairs if not _IS_SHORT.search(_string(key) or "")]
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                parts = items
            case ast.ListComp() | ast.GeneratorExp() | ast.DictComp() | ast.SetComp():
                parts = [node.generators[0].iter]
            case ast.Call():
                parts = self._passed_on(node)
            case ast.Name(id=name):
                gathered = self._flow.gathered.get(name, [])
                return [
                    (Value(loop.iter, each.step), least) for each in gathered for loop in each.step.loops[:1]
                ]
        is_short = (isinstance(part, ast.Name) and _IS_SHORT.search(part.id) for part in parts)
        return [(Value(part, step), least) for part, short in zip(parts, is_short, strict=True) if not short]

    def _passed_on(self, call: ast.Call) -> list[ast.expr]:
        """The arguments of a call that become part of its value."""
        match call:
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in _PASSED_ON:
                return [value]
            case ast.Call(func=ast.Attribute(attr="join"), args=[joined]):
                return [joined]
        made = self._expressions.mcp_class(call.func) in ("CallToolResult", "ToolResult", "TextContent")
        passes = self._expressions.dotted(call.func) in ("str", "list", "sorted", "mcp_envelope.Reply")
        if made or passes or self._expressions.encoded(call):
            return [*call.args, *(keyword.value for keyword in call.keywords)]
        return []

    def _cut(self, node: ast.expr, step: Step, least: int) -> str | None:
        match node:
            case ast.Call(func=function) if self._expressions.dotted(function) == "textwrap.shorten":
                return "textwrap.shorten"
            case ast.Subscript(
                slice=ast.Slice(lower=None | ast.Constant(value=0), upper=ast.expr() as upper, step=None)
            ) if self._is_fixed(upper, step, least):
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
            return False  # computed
        last = getattr(limit, "attr", getattr(limit, "id", ""))
        return least == _NO_DOUBT or _IS_LIMIT.search(last) is not None

    def _number(self, node: ast.AST | None, step: Step) -> int | None:
        """The number that an expression stands for, if the source shows it."""
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.BinOp(left=left, right=right, op=ast.Mult()):
                one, other = self._number(left, step), self._number(right, step)
                return one * other if one is not None and other is not None else None
            case ast.Name(id=name):
                values: list[ast.AST | None] = [each.node for each in self._flow.reaching(name, step)]
                if not values and name not in self._flow.parameters:
                    values = [each.node for each in self._names.bindings(node)]
                if len(values) == 1 and not isinstance(values[0], ast.Name):
                    return self._number(values[0], step)
        return None


def _string(node: ast.expr | None) -> str | None:
    """The text of a string constant."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _says_cut(node: ast.expr) -> bool:
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return any("truncat" in (_string(part) or "").lower() for part in parts)


# -- records written into text ------------------------------------------------------------------------------

_Fields = set[tuple[str, str]]


def _written(flow: Flow, node: ast.expr, step: Step) -> Iterator[_Fields]:
    """For every piece of a text, the fields that are written into it."""
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
                yield _fields(joined.elt, joined.generators)
            elif isinstance(joined, ast.Name):
                yield _gathered(flow, joined.id)
        case ast.Call(func=ast.Attribute(value=value, attr="strip" | "rstrip" | "lstrip"), args=[]):
            yield from _written(flow, value, step)
        case ast.Name(id=name):
            # A list that is returned as it is counts as data; only a text grows out of texts by `+=`.
            starts = [each.node for each in flow.reaching(name, step)]
            if any(isinstance(start, ast.JoinedStr) or _string(start) is not None for start in starts):
                yield _gathered(flow, name)


def _gathered(flow: Flow, name: str) -> _Fields:
    return {found for value, step in flow.gathered.get(name, []) for found in _fields(value, step.loops)}


def _fields(written: ast.expr, loops: list[ast.comprehension] | list[ast.For | ast.AsyncFor]) -> _Fields:
    """The fields, of what the loops iterate over, that are written into a text."""
    is_format = isinstance(written, ast.Call) and getattr(written.func, "attr", "") == "format"
    if not (isinstance(written, ast.JoinedStr | ast.BinOp) or is_format):
        return set()
    names = {part.id for loop in loops for part in ast.walk(loop.target) if isinstance(part, ast.Name)}
    called = {id(part.func) for part in ast.walk(written) if isinstance(part, ast.Call)}
    found: _Fields = set()
    for part in ast.walk(written):
        match part:
            case (
                ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(field)))
                | ast.Call(
                    func=ast.Attribute(value=ast.Name(id=name), attr="get"),
                    args=[ast.Constant(value=str(field)), *_],
                )
                | ast.Attribute(value=ast.Name(id=name), attr=field)
            ) if name in names and id(part) not in called:
                found.add((name, field))
    used = {part.id for part in ast.walk(written) if isinstance(part, ast.Name)}
    for loop in loops:  # for key, value in rows.items()
        match loop.target, loop.iter:
            case (
                ast.Tuple(elts=[ast.Name(id=key), ast.Name(id=value)]),
                ast.Call(func=ast.Attribute(attr="items"), args=[]),
            ) if {key, value} <= used:
                found |= {(key, ""), (value, "")}
    return found
