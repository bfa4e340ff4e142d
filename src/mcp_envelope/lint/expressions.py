"""What an expression is, in terms of the rules: a hand-made result, text blocks, data as text, an error.

Strategy: each question looks at one expression and answers with the parts that matter, or with None. Names are
followed to the libraries they come from, so a class of your own that is called `TextContent` does not count.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from typing import Final, NamedTuple

from .module import MCP_ROOTS, Module

_DUMPS: Final = frozenset(
    {"json.dumps", "orjson.dumps", "ujson.dumps", "simplejson.dumps", "rapidjson.dumps"}
    | {"msgspec.json.encode", "pydantic_core.to_json", "pprint.pformat"}
)
_TEXT_METHODS: Final = ("strip", "rstrip", "lstrip", "decode", "encode", "format", "join", "expandtabs")
_ERROR_TEXT: Final = re.compile(
    r"""[\W_]*(?:
        (?:(?:an?|the)\s+)?
        (?:(?:api|auth|authentication|client|connection|database|db|execution|fatal|http|internal|network|parse
            |permission|query|request|runtime|server|sql|system|timeout|tool|unexpected|unknown|validation)\s+)?
        error (?: \s*: | \s+(?:occurred|while|when|during|\w+ing)\b )
      | (?:exception|failure)\s*:
      | failed\s+to\b
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_SAYS_WHY: Final = frozenset({"error", "message", "reason", "detail", "details"})
_ABOUT_ERRORS: Final = _SAYS_WHY.union(
    ("code", "status", "success", "ok", "hint", "type", "suggestion", "traceback", "isError", "is_error"),
    ("error_type", "error_code", "status_code"),
)
_CONTAINERS: Final = (ast.Dict, ast.List, ast.ListComp, ast.DictComp, ast.SetComp)


class HandMadeResult(NamedTuple):
    """A hand-made result. `content` is None where it cannot be seen."""

    name: str
    content: ast.expr | None
    structured: ast.expr | None
    is_error: bool
    # A plain return value cannot carry `_meta`.
    has_meta: bool


class Expressions:
    def __init__(self, module: Module) -> None:
        self.dotted = module.dotted

    def mcp_class(self, node: ast.AST) -> str | None:
        """The name of the MCP class that an expression stands for."""
        dotted = self.dotted(node) or ""
        root, _, last = dotted.partition(".")
        # fastmcp.client has classes of the same names: they are what a client gets.
        return dotted.rpartition(".")[2] if root in MCP_ROOTS and last and ".client." not in dotted else None

    def result(self, node: ast.expr) -> HandMadeResult | None:
        if isinstance(node, ast.Call):
            name = self.mcp_class(node.func)
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            if name not in ("CallToolResult", "ToolResult") or None in given:  # **sealed.to_result()
                return None
            content = node.args[0] if node.args else given.get("content")
        else:
            name, given = "result", _members(node)
            content = given.get("content")
            if content is None or self.texts(content) is None:
                return None
        is_error = any(_is_constant(given.get(key), True) for key in ("isError", "is_error"))
        structured = given.get("structured_content") or given.get("structuredContent")
        return HandMadeResult(name, content, structured, is_error, "meta" in given or "_meta" in given)

    def is_plain(self, node: ast.expr) -> bool:
        """Whether a result's content is certainly empty, or text that is not in a block yet."""
        is_empty = isinstance(node, ast.List | ast.Tuple) and not node.elts
        return is_empty or self.is_text(node) or self.encoded(node) is not None

    def texts(self, node: ast.expr) -> list[ast.expr] | None:
        """The texts of a content list, or of one block, if it holds only text."""
        if isinstance(node, ast.List | ast.Tuple) and node.elts:
            blocks = node.elts
        else:
            blocks = [node.elt if isinstance(node, ast.ListComp) else node]
        found = [text for block in blocks if (text := self._text_of(block)) is not None]
        return found if len(found) == len(blocks) else None

    def _text_of(self, block: ast.expr) -> ast.expr | None:
        if isinstance(block, ast.Call) and self.mcp_class(block.func) == "TextContent":
            return next((keyword.value for keyword in block.keywords if keyword.arg == "text"), None)
        given = _members(block)
        return given.get("text") if _is_constant(given.get("type"), "text") else None

    def encoded(self, node: ast.expr) -> ast.expr | None:
        """The data that an expression writes as JSON, or as Python prints it."""
        match node:
            case ast.Call(func=ast.Attribute(value=inner, attr="decode")):
                return self.encoded(inner)
            case ast.Call(func=ast.Attribute(value=inner, attr="model_dump_json")):
                return inner
            case ast.Call(func=function, args=[data, *rest]):
                dotted = self.dotted(function)
                is_printed = dotted in ("str", "repr") and not rest and self.is_container(data)
                return data if is_printed or dotted in _DUMPS else None
        return None

    def is_container(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Call):
            return self.dotted(node.func) in ("dict", "list", "sorted", "dataclasses.asdict")
        return isinstance(node, _CONTAINERS)

    def is_error(self, node: ast.expr, caught: Collection[str]) -> bool:
        """Whether an expression is an error disguised as a result."""
        result = self.result(node)
        if result is not None and result.is_error:
            return True
        inner = self.texts(result.content if result and result.content else node)
        if inner is None and isinstance(data := self.encoded(node), ast.Dict):
            inner = [data]
        if inner:
            return len(inner) == 1 and self.is_error(inner[0], caught)
        if isinstance(node, ast.Dict):
            return _is_error_dict(node)
        if _ERROR_TEXT.match(_leading(node)):
            return True
        parts = [*ast.walk(node)] if self.is_text(node) else []
        # "Saved. Warning: …" is a success.
        if any(isinstance(part, ast.Constant) and "warning" in str(part.value).lower() for part in parts):
            return False
        return any(
            (isinstance(part, ast.Name) and part.id in caught)
            or (isinstance(part, ast.Call) and self.dotted(part.func) == "traceback.format_exc")
            for part in parts
        )

    def is_text(self, node: ast.expr) -> bool:
        match node:
            case ast.JoinedStr() | ast.Constant(value=str()):
                return True
            case ast.BinOp(left=left, right=right, op=ast.Add() | ast.Mod()):
                return self.is_text(left) or self.is_text(right)
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in _TEXT_METHODS:
                return self.is_text(value)
            case ast.Call(func=function):
                return self.dotted(function) in ("str", "repr", "traceback.format_exc")
        return False


def _is_error_dict(node: ast.Dict) -> bool:
    given = _members(node)
    if _is_constant(given.get("isError"), True):
        return True
    verdicts = [given[key] for key in ("success", "ok", "status") if key in given]
    if any(_is_constant(verdict, False, "error", "failed", "failure") for verdict in verdicts):
        return not _SAYS_WHY.isdisjoint(given)
    error = given.get("error")
    if error is None or verdicts or len(given) != len(node.keys) or not given.keys() <= _ABOUT_ERRORS:
        return False
    return not _is_constant(error, None, False, True, "")


def _leading(node: ast.expr) -> str:
    """The words that a text begins with, as far as the source shows them."""
    match node:
        case ast.Constant(value=str(text)) | ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]):
            return text
        case (
            ast.BinOp(left=inner, op=ast.Add() | ast.Mod())
            | ast.Call(func=ast.Attribute(value=inner, attr="format"))
        ):
            return _leading(inner)
    return ""


def _members(node: ast.expr) -> dict[str | None, ast.expr]:
    """The members of a dictionary whose keys are in the source."""
    pairs = zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ()
    return {
        key.value: value
        for key, value in pairs
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }


def _is_constant(node: ast.expr | None, *values: object) -> bool:
    # In Python True equals 1, which is not what is meant.
    return isinstance(node, ast.Constant) and any(
        node.value == value and type(node.value) is type(value) for value in values
    )
