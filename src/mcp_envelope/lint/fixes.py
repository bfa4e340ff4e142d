"""Fixes for the simple cases, in the source.

Strategy: a returned call is replaced by the bytes of the data inside it, so nothing else in the file moves. Where
the return annotation no longer fits, it changes in the same step, because both libraries derive the output schema
from it: a `-> str` over a returned dictionary would fail every call. A tool is fixed only if this can be done
right, and not at all where a comment might be lost.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Final

from .expressions import Expressions
from .rules import RULES, Finding
from .source import Replacement, SourceFile
from .tools import Tool

# Arguments that change how the JSON looks, not what it says.
_LOOKS: Final = frozenset({"indent", "separators", "ensure_ascii", "sort_keys", "check_circular"})
_MAKES_WORK: Final = (ast.Call, ast.Await, ast.NamedExpr, ast.Yield, ast.YieldFrom)
# The annotations for what is returned: they need no imports and satisfy type checkers. Without one, it isn't known.
_TEXT, _OBJECT, _LIST, _UNKNOWN = "str", "dict[str, object]", "list[object]", ""
_ABOUT_RESULTS: Final = frozenset(
    {"str", "list", "List", "Sequence", "Iterable", "CallToolResult", "ToolResult", "ContentBlock"}
    | {"TextContent", "ImageContent", "AudioContent", "EmbeddedResource", "ResourceLink"}
)
_FIT_ANYTHING: Final = frozenset({"Any", "object"})


class Fixes:
    def __init__(self, source: SourceFile, expressions: Expressions) -> None:
        self._source = source
        self._expressions = expressions

    def plan(self, findings: Iterable[Finding]) -> dict[Finding, list[Replacement]]:
        """The edits for the findings that can be fixed; a tool's first one includes its annotation's."""
        by_tool: dict[ast.AST, tuple[Tool, dict[ast.expr, Finding]]] = {}
        for finding in findings:
            tool, returned = finding.tool, finding.returned
            if RULES[finding.rule].fixable and tool and returned and tool.may_change:
                by_tool.setdefault(tool.node, (tool, {}))[1][returned] = finding
        return {
            finding: edits
            for tool, returns in by_tool.values()
            for finding, edits in self._fix(tool, returns).items()
        }

    def _fix(self, tool: Tool, returns: dict[ast.expr, Finding]) -> dict[Finding, list[Replacement]]:
        plans: dict[Finding, list[Replacement]] = {}
        kinds: set[str] = set()
        for whole in tool.flow.returns:
            kept, kind = whole, _UNKNOWN
            while inner := self._inner(kept):
                kept, kind = inner
            edit = self._edit(whole, kept) if whole in returns and kept is not whole else None
            if edit is not None:
                plans[returns[whole]] = [edit]
            kinds.add(kind if edit else _UNKNOWN)
        annotation = self._annotation(tool, kinds.pop() if len(kinds) == 1 else _UNKNOWN) if plans else None
        if annotation is None:
            return {}
        next(iter(plans.values())).extend(annotation)
        return plans

    def _inner(self, node: ast.expr) -> tuple[ast.expr, str] | None:
        """What is inside a result, a list or a block that holds one text and nothing else, or inside json.dumps."""
        if isinstance(node, ast.List):
            (item,) = node.elts if len(node.elts) == 1 else (None,)
            is_block = isinstance(item, ast.Call) and self._expressions.mcp_class(item.func) == "TextContent"
            return self._inner(item) if item and is_block else None
        if not isinstance(node, ast.Call):
            return None
        args, given = node.args, {keyword.arg: keyword.value for keyword in node.keywords}
        made = self._expressions.mcp_class(node.func)
        if made == "TextContent":
            text = given.get("text") if not args and given.keys() <= {"type", "text"} else None
            return None if text is None else (text, _TEXT)
        if made in ("CallToolResult", "ToolResult"):
            flags = [given.pop(name) for name in ("isError", "is_error") if name in given]
            content = given.pop("content", args[0] if len(args) == 1 else None)
            is_plain = not given and all(isinstance(flag, ast.Constant) and not flag.value for flag in flags)
            return self._inner(content) if is_plain and isinstance(content, ast.List) else None
        if (
            self._expressions.dotted(node.func) != "json.dumps"
            or len(args) != 1
            or not given.keys() <= _LOOKS
        ):
            return None
        makes_work = any(
            isinstance(part, _MAKES_WORK) for value in given.values() for part in ast.walk(value)
        )
        is_data = not isinstance(args[0], ast.Starred | ast.GeneratorExp | ast.Constant)
        return (args[0], _kind(args[0])) if is_data and not makes_work else None

    def _edit(self, whole: ast.expr, kept: ast.expr) -> Replacement | None:
        start, end = self._source.span(whole)
        first, last = self._source.span(kept)
        if self._may_lose_comment(start, first) or self._may_lose_comment(last, end):
            return None
        text = self._source.utf8[first:last]
        if not _stands_alone(text, kept):
            text = b"(" + text + b")"
        glued = self._source.utf8[start - 1 : start].isalnum()  # return[…]
        return Replacement(start, end, b" " + text if glued else text)

    def _may_lose_comment(self, start: int, end: int) -> bool:
        return b"#" in self._source.utf8[start:end]

    def _annotation(self, tool: Tool, kind: str) -> list[Replacement] | None:
        """The edits that correct the annotation, or None if that cannot be done."""
        annotation = tool.node.returns
        fits = annotation is None or _names(annotation) <= _FIT_ANYTHING
        # Without an annotation the official SDK sends one block per item, and no structured content.
        if tool.kind != "fastmcp" and (kind == _UNKNOWN or (kind == _LIST and fits)):
            return None
        if annotation is None or fits:
            return []
        if not _names(annotation) <= _ABOUT_RESULTS:
            return None
        start, end = self._source.span(annotation)
        utf8, text = self._source.utf8, kind.encode()
        if text and utf8[start:end].strip(b"\"'") == text:
            return []
        if not text:  # it goes, with its arrow and any parentheses
            start, end = len(utf8[: utf8.rindex(b"->", 0, start)].rstrip()), utf8.index(b":", end)
        return None if self._may_lose_comment(start, end) else [Replacement(start, end, text)]


def _kind(node: ast.expr) -> str:
    """What a display certainly is. Keys that are not strings do not fit `dict[str, …]`."""
    if isinstance(node, ast.Dict):
        keys = [isinstance(key, ast.Constant) and isinstance(key.value, str) for key in node.keys]
        return _OBJECT if all(keys) else _UNKNOWN
    return _LIST if isinstance(node, ast.List | ast.ListComp) else _UNKNOWN


def _stands_alone(text: bytes, node: ast.expr) -> bool:
    """Whether the text means the same outside of its parentheses."""
    try:
        (statement,) = ast.parse(b"_ = " + text).body
    except (SyntaxError, ValueError):
        return False
    return isinstance(statement, ast.Assign) and ast.dump(statement.value) == ast.dump(node)


def _names(annotation: ast.expr) -> frozenset[str]:
    """The last parts of all names in an annotation, with `?` for anything that is not a name."""
    match annotation:
        case ast.Constant(value=str(text)):
            try:
                return _names(ast.parse(text, mode="eval").body)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return frozenset("?")
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return frozenset({name})
        case ast.Subscript(value=one, slice=other) | ast.BinOp(left=one, right=other, op=ast.BitOr()):
            return _names(one) | _names(other)
        case ast.Tuple(elts=items):
            return frozenset[str]().union(*map(_names, items))
    return frozenset("?")
