"""The simple cases, mended in the source.

Strategy: a returned call is replaced by the very bytes of the data inside it, so nothing else of the file
moves. Where the return annotation no longer fits, it is changed in the same step, because both libraries make
the output schema of it: a `-> str` over a returned dictionary would fail every call. A tool is mended only if
that can be done right.
"""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from .lines import Edit, Source
from .names import Names, Scope
from .rules import RULES, Finding
from .shapes import Shapes
from .tools import Tool

_Returns = Literal["text", "object", "list", "unknown"]
# They say how the JSON looks, not what it says.
_LOOKS: Final = frozenset({"indent", "separators", "ensure_ascii", "sort_keys", "check_circular"})
_MAKES_WORK: Final = (ast.Call, ast.Await, ast.NamedExpr, ast.Yield, ast.YieldFrom)
# Written without imports, and right for type checkers too: what is returned is a display.
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


class _Plain(NamedTuple):
    """What is left when the wrapping is taken off."""

    node: ast.expr
    returns: _Returns


class Fixes:
    def __init__(self, source: Source, names: Names, shapes: Shapes) -> None:
        self._source = source
        self._names = names
        self._shapes = shapes

    def plan(self, findings: Iterable[Finding]) -> dict[Finding, list[Edit]]:
        """The edits for the findings that can be mended; the first of a tool has its annotation's edit too."""
        by_tool: dict[Tool, dict[ast.Return, Finding]] = {}
        for finding in findings:
            if not RULES[finding.rule].fixable:
                continue
            if finding.tool is not None and finding.returned is not None and finding.tool.may_change:
                by_tool.setdefault(finding.tool, {})[finding.returned] = finding
        plans: dict[Finding, list[Edit]] = {}
        for tool, returns in by_tool.items():
            plans.update(self._mend(tool, returns))
        return plans

    def _mend(self, tool: Tool, returns: dict[ast.Return, Finding]) -> dict[Finding, list[Edit]]:
        plans: dict[Finding, list[Edit]] = {}
        kinds: list[_Returns] = []
        for returned in tool.flow.returns:
            finding = returns.get(returned.node)
            plain = self._unwrapped(returned.value, tool.scope) if finding else None
            edit = self._edit(returned.value, plain.node) if plain else None
            if finding is None or plain is None or edit is None:
                kinds.append("unknown")
            else:
                kinds.append(plain.returns)
                plans[finding] = [edit]
        if not plans:
            return {}
        annotation = self._annotation(tool, kinds)
        if annotation is None:
            return {}
        next(iter(plans.values())).extend(annotation)
        return plans

    def _unwrapped(self, node: ast.expr, scope: Scope) -> _Plain | None:
        """The data or the text inside; None if there is no simple way to it."""
        returns: _Returns | None = None
        while isinstance(node, ast.Call | ast.List):
            text = self._text(node, scope)
            data = self._data(node, scope)
            if text is not None:
                node, returns = text, "text"
            elif data is not None:
                node, returns = data, _display(data)
            else:
                break
        return _Plain(node, returns) if returns else None

    def _text(self, node: ast.Call | ast.List, scope: Scope) -> ast.expr | None:
        """The text of a result, a list or a block that holds one text and says no more than that."""
        if isinstance(node, ast.List):
            (item,) = node.elts if len(node.elts) == 1 else (None,)
            return (
                self._text(item, scope)
                if isinstance(item, ast.Call) and self._is(item, "TextContent", scope)
                else None
            )
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        if self._is(node, "TextContent", scope):
            return given.get("text") if not node.args and given.keys() <= {"type", "text"} else None
        if not (self._is(node, "CallToolResult", scope) or self._is(node, "ToolResult", scope)):
            return None
        flags = [given.pop(name) for name in ("isError", "is_error") if name in given]
        content = given.pop("content", node.args[0] if len(node.args) == 1 else None)
        is_bare = not given and not any(not isinstance(flag, ast.Constant) or flag.value for flag in flags)
        return self._text(content, scope) if is_bare and isinstance(content, ast.List) else None

    def _is(self, call: ast.Call, name: str, scope: Scope) -> bool:
        return self._shapes.mcp_class(call.func, scope) == name

    def _data(self, node: ast.Call | ast.List, scope: Scope) -> ast.expr | None:
        """What json.dumps is given, where nothing but the looks of the JSON is asked for."""
        if not isinstance(node, ast.Call) or self._names.dotted(node.func, scope) != "json.dumps":
            return None
        if len(node.args) != 1 or isinstance(node.args[0], ast.Starred | ast.GeneratorExp | ast.Constant):
            return None
        for keyword in node.keywords:
            if keyword.arg not in _LOOKS or any(
                isinstance(part, _MAKES_WORK) for part in ast.walk(keyword.value)
            ):
                return None
        return node.args[0]

    def _edit(self, whole: ast.expr, kept: ast.expr) -> Edit | None:
        start, end = self._source.span(whole)
        first, last = self._source.span(kept)
        if self._has_comment(start, first) or self._has_comment(last, end):
            return None  # it would be lost
        text = self._source.utf8[first:last]
        if not _stands_alone(text, kept):
            text = b"(" + text + b")"
        glued = self._source.utf8[start - 1 : start].isalnum()  # return[…]
        return Edit(start, end, b" " + text if glued else text)

    def _has_comment(self, start: int, end: int) -> bool:
        return any(
            token.type == tokenize.COMMENT and start <= self._source.token_offset(token.start) < end
            for token in self._source.tokens
        )

    def _annotation(self, tool: Tool, kinds: list[_Returns]) -> list[Edit] | None:
        """The edits that make the annotation right; None if that can't be done."""
        annotation = tool.node.returns
        kind = kinds[0] if len(set(kinds)) == 1 else "unknown"
        # Without an annotation the official SDK sends one block per item, and no structured content.
        needs = (
            {"unknown", "list"} if annotation is None or _names(annotation) <= _FIT_ANYTHING else {"unknown"}
        )
        if tool.kind != "fastmcp" and kind in needs:
            return None
        if annotation is None or _names(annotation) <= _FIT_ANYTHING:
            return []
        if not _names(annotation) <= _ABOUT_RESULTS:
            return None
        if kind == "unknown":
            return self._without_annotation(annotation)
        start, end = self._source.span(annotation)
        text = _ANNOTATIONS[kind].encode()
        if self._source.utf8[start:end].strip(b"\"'") == text:
            return []
        return [Edit(start, end, text)] if not self._has_comment(start, end) else None

    def _without_annotation(self, annotation: ast.expr) -> list[Edit] | None:
        at = self._source.span(annotation)
        arrow: int | None = None
        before = 0
        for token in self._source.tokens:
            start = self._source.token_offset(token.start)
            if token.type == tokenize.OP and token.string == "->" and start < at[0]:
                arrow = before
            if token.type == tokenize.OP and token.string == ":" and start >= at[1] and arrow is not None:
                return [Edit(arrow, start, b"")] if not self._has_comment(arrow, start) else None
            before = self._source.token_offset(token.end)
        return None


def _display(node: ast.expr) -> _Returns:
    """What a display is without a doubt. Keys that aren't texts would not pass for `dict[str, …]`."""
    if isinstance(node, ast.Dict):
        keys = [isinstance(key, ast.Constant) and isinstance(key.value, str) for key in node.keys]
        return "object" if all(keys) else "unknown"
    return "list" if isinstance(node, ast.List | ast.ListComp) else "unknown"


def _stands_alone(text: bytes, node: ast.expr) -> bool:
    """Whether the text means the same outside of the parentheses that it was in."""
    try:
        (statement,) = ast.parse(b"_ = " + text).body
    except (SyntaxError, ValueError):
        return False
    return isinstance(statement, ast.Assign) and ast.dump(statement.value) == ast.dump(node)


def _names(annotation: ast.expr) -> frozenset[str]:
    """The last parts of all names in an annotation; a name that can't be one if it isn't made of names."""
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
