"""Fixes for the simple cases, in the source.

Strategy: a returned call is replaced by the bytes of the data inside it, so nothing else in the file moves. Where
the return annotation no longer fits, it changes in the same step, because both libraries derive the output schema
from it: a `-> str` over a returned dictionary would fail every call. A tool is fixed only if this can be done
right.
"""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Iterable
from typing import Final, Literal

from .expressions import Expressions
from .rules import RULES, Finding
from .source import Replacement, SourceFile
from .tools import Tool

_Returns = Literal["text", "object", "list", "unknown"]
# Arguments that change how the JSON looks, not what it says.
_LOOKS: Final = frozenset({"indent", "separators", "ensure_ascii", "sort_keys", "check_circular"})
_MAKES_WORK: Final = (ast.Call, ast.Await, ast.NamedExpr, ast.Yield, ast.YieldFrom)
# These need no imports and satisfy type checkers.
_ANNOTATIONS: Final[dict[_Returns, str]] = {
    "text": "str",
    "object": "dict[str, object]",
    "list": "list[object]",
}
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
        by_tool: dict[Tool, dict[ast.stmt, Finding]] = {}
        for finding in findings:
            tool, returned = finding.tool, finding.returned
            if RULES[finding.rule].fixable and tool and returned and tool.may_change:
                by_tool.setdefault(tool, {})[returned] = finding
        plans: dict[Finding, list[Replacement]] = {}
        for tool, returns in by_tool.items():
            plans.update(self._fix(tool, returns))
        return plans

    def _fix(self, tool: Tool, returns: dict[ast.stmt, Finding]) -> dict[Finding, list[Replacement]]:
        plans: dict[Finding, list[Replacement]] = {}
        kinds: set[_Returns] = set()
        for value, step in tool.flow.returns:
            kept, kind = self._plain(value)
            edit = self._edit(value, kept) if step.node in returns and kept is not value else None
            if edit is not None:
                plans[returns[step.node]] = [edit]
            kinds.add(kind if edit else "unknown")
        annotation = self._annotation(tool, kinds.pop() if len(kinds) == 1 else "unknown") if plans else None
        if annotation is None:
            return {}
        next(iter(plans.values())).extend(annotation)
        return plans

    def _plain(self, node: ast.expr) -> tuple[ast.expr, _Returns]:
        """The data or the text inside, as far as there is a simple way to it, and what that is."""
        returns: _Returns = "unknown"
        while isinstance(node, ast.Call | ast.List):
            if (text := self._text(node)) is not None:
                node, returns = text, "text"
            elif (data := self._data(node)) is not None:
                node, returns = data, _display(data)
            else:
                break
        return node, returns

    def _text(self, node: ast.Call | ast.List) -> ast.expr | None:
        """The text of a result, a list or a block that holds one text and nothing else."""
        if isinstance(node, ast.List):
            (item,) = node.elts if len(node.elts) == 1 else (None,)
            return self._text(item) if isinstance(item, ast.Call) and self._is(item, "TextContent") else None
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        if self._is(node, "TextContent"):
            return given.get("text") if not node.args and given.keys() <= {"type", "text"} else None
        if not (self._is(node, "CallToolResult") or self._is(node, "ToolResult")):
            return None
        flags = [given.pop(name) for name in ("isError", "is_error") if name in given]
        content = given.pop("content", node.args[0] if len(node.args) == 1 else None)
        is_bare = not given and not any(not isinstance(flag, ast.Constant) or flag.value for flag in flags)
        return self._text(content) if is_bare and isinstance(content, ast.List) else None

    def _is(self, call: ast.Call, name: str) -> bool:
        return self._expressions.mcp_class(call.func) == name

    def _data(self, node: ast.Call | ast.List) -> ast.expr | None:
        """The data given to json.dumps, if all other arguments are about looks."""
        if not isinstance(node, ast.Call) or self._expressions.dotted(node.func) != "json.dumps":
            return None
        if len(node.args) != 1 or isinstance(node.args[0], ast.Starred | ast.GeneratorExp | ast.Constant):
            return None
        for keyword in node.keywords:
            if keyword.arg not in _LOOKS or any(
                isinstance(part, _MAKES_WORK) for part in ast.walk(keyword.value)
            ):
                return None
        return node.args[0]

    def _edit(self, whole: ast.expr, kept: ast.expr) -> Replacement | None:
        start, end = self._source.span(whole)
        first, last = self._source.span(kept)
        if self._has_comment(start, first) or self._has_comment(last, end):
            return None  # the comment would be lost
        text = self._source.utf8[first:last]
        if not _stands_alone(text, kept):
            text = b"(" + text + b")"
        glued = self._source.utf8[start - 1 : start].isalnum()  # return[…]
        return Replacement(start, end, b" " + text if glued else text)

    def _has_comment(self, start: int, end: int) -> bool:
        return any(
            token.type == tokenize.COMMENT and start <= self._source.token_offset(token.start) < end
            for token in self._source.tokens
        )

    def _annotation(self, tool: Tool, kind: _Returns) -> list[Replacement] | None:
        """The edits that correct the annotation, or None if that cannot be done."""
        annotation = tool.node.returns
        fits = annotation is None or _names(annotation) <= _FIT_ANYTHING
        # Without an annotation the official SDK sends one block per item, and no structured content.
        if tool.kind != "fastmcp" and (kind == "unknown" or (kind == "list" and fits)):
            return None
        if annotation is None or fits:
            return []
        if not _names(annotation) <= _ABOUT_RESULTS:
            return None
        start, end = self._source.span(annotation)
        utf8, text = self._source.utf8, _ANNOTATIONS.get(kind, "").encode()
        if text and utf8[start:end].strip(b"\"'") == text:
            return []
        if not text:  # it goes, with its arrow and any parentheses
            start, end = len(utf8[: utf8.rindex(b"->", 0, start)].rstrip()), utf8.index(b":", end)
        return None if self._has_comment(start, end) else [Replacement(start, end, text)]


def _display(node: ast.expr) -> _Returns:
    """What a display certainly is. Keys that are not strings do not fit `dict[str, …]`."""
    if isinstance(node, ast.Dict):
        keys = [isinstance(key, ast.Constant) and isinstance(key.value, str) for key in node.keys]
        return "object" if all(keys) else "unknown"
    return "list" if isinstance(node, ast.List | ast.ListComp) else "unknown"


def _stands_alone(text: bytes, node: ast.expr) -> bool:
    """Whether the text means the same outside of its parentheses."""
    try:
        (statement,) = ast.parse(b"_ = " + text).body
    except (SyntaxError, ValueError):
        return False
    return isinstance(statement, ast.Assign) and ast.dump(statement.value) == ast.dump(node)


def _names(annotation: ast.expr) -> frozenset[str]:
    """The last parts of all names in an annotation, with `?` for anything that is not a name."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            annotation = ast.parse(annotation.value, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return frozenset({"?"})
    found: set[str] = set()
    parts: list[ast.expr] = [annotation]
    while parts:
        part = parts.pop()
        match part:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                found.add(name)
            case ast.Subscript(value=value, slice=inner):
                parts += [value, inner]
            case ast.BinOp(left=left, right=right, op=ast.BitOr()):
                parts += [left, right]
            case ast.Tuple(elts=items):
                parts += items
            case _:
                found.add("?")
    return frozenset(found)
