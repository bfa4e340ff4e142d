"""Which functions of a module are tools.

Strategy: every way to register a tool is looked for: as a decorator, as a call, in the server's constructor,
and the low-level handlers of the official SDK. A function of the module whose result a tool returns as it is
(`return _render(rows)`) is read as part of that tool, because that is where the text is made.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .flow import Flow
from .names import Function, Names, Scope
from .servers import Kind, Server, Servers

# With one of these the author said what the result looks like; it must not be changed behind their back.
_SAYS_SHAPE: Final = frozenset({"output_schema", "structured_output"})
_CALL_TOOL: Final = "tools/call"


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    node: Function
    flow: Flow
    # Where its body's names live.
    scope: Scope
    kind: Kind
    # Whether the function itself is registered, and nothing else depends on what it returns.
    may_change: bool
    # The tool that returns what this function returns, if the function is none itself.
    caller: str | None = None

    @property
    def who(self) -> str:
        if self.caller is None:
            return f"tool {self.node.name!r}"
        return f"{self.node.name!r}, whose result tool {self.caller!r} returns,"


@dataclass(frozen=True, slots=True)
class _Registration:
    function: Function
    kind: Kind
    server: Server | None
    settings: ast.Call | None


class Tools:
    def __init__(self, names: Names, servers: Servers) -> None:
        self._names = names
        self._servers = servers
        self.all: list[Tool] = []
        # The servers of this module that got a tool in it.
        self.used: set[ast.Call] = set()
        self._seen: set[Function] = set()
        registrations = [*self._decorated(), *self._called()]
        # A function that is also a low-level handler must return what handlers return.
        for registration in sorted(registrations, key=lambda each: each.kind != "handler"):
            if registration.server and registration.server.made:
                self.used.add(registration.server.made)
            self._add(registration.function, registration.kind, self._may_change(registration))
        self._follow()

    def _add(self, function: Function, kind: Kind, may_change: bool, caller: str | None = None) -> None:
        if function not in self._seen:
            self._seen.add(function)
            self.all.append(
                Tool(function, Flow(function), self._names.scopes[function], kind, may_change, caller)
            )

    def _follow(self) -> None:
        for tool in self.all:  # which grows meanwhile
            caller = tool.caller or tool.node.name
            for returned in tool.flow.returns:
                for expression, _ in tool.flow.alternatives(returned.value, returned.step):
                    if isinstance(expression, ast.Call):
                        for function in self._names.function(expression.func, tool.scope):
                            self._add(function, tool.kind, may_change=False, caller=caller)

    def _may_change(self, registration: _Registration) -> bool:
        function, settings = registration.function, registration.settings
        if registration.kind == "handler":
            return False
        if settings is not None and any(
            given.arg in _SAYS_SHAPE or given.arg is None for given in settings.keywords
        ):
            return False
        tool_decorators = [
            each for each in function.decorator_list if self._decorates(each, self._outer(function))
        ]
        if len(tool_decorators) != len(function.decorator_list):
            return False  # another decorator may want the text
        return not any(_calls(node, function.name) for node, _ in self._names.nodes)

    def _outer(self, function: Function) -> Scope:
        return self._names.scopes[function].parent or self._names.module

    def _decorated(self) -> Iterator[_Registration]:
        for node, scope in self._names.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for decorator in node.decorator_list:
                    found = self._decorates(decorator, scope)
                    if found is not None:
                        settings = decorator if isinstance(decorator, ast.Call) else None
                        yield _Registration(node, found.kind, found, settings)

    def _decorates(self, decorator: ast.expr, scope: Scope) -> Server | None:
        """The server that a decorator registers a tool with."""
        name = decorator.func if isinstance(decorator, ast.Call) else decorator
        dotted = self._names.dotted(name, scope) or ""
        if dotted.startswith("fastmcp.") and dotted.endswith((".tool", ".mcp_tool")):
            return Server("fastmcp", None)
        if not isinstance(name, ast.Attribute):
            return None
        server = self._servers.of(name.value, scope)
        if server is None:
            return None
        if name.attr == "tool" and server.kind != "handler":
            return server
        if name.attr == "call_tool" and name is not decorator:
            return Server("handler", server.made)
        return None

    def _called(self) -> Iterator[_Registration]:
        for call, scope in self._names.calls():
            for node, server, kind in self._registered(call, scope):
                for function in self._names.function(node, scope):
                    yield _Registration(function, kind, server, call)
        for statement, scope in self._names.nodes:
            if isinstance(statement, ast.Assign) and self._is_handler_slot(statement.targets[0], scope):
                for function in self._names.function(statement.value, scope):
                    yield _Registration(function, "handler", None, None)

    def _registered(self, call: ast.Call, scope: Scope) -> Iterator[tuple[ast.expr, Server | None, Kind]]:
        """What a call registers as a tool, and with which server."""
        made = self._servers.class_kind(call.func, scope)
        if made:
            yield from self._in_constructor(call, Server(made, call))
        if isinstance(call.func, ast.Call):  # mcp.tool(name=…)(function)
            server = self._decorates(call.func, scope)
            if server is not None and call.args:
                yield call.args[0], server, server.kind
        if not isinstance(call.func, ast.Attribute):
            return
        target, method = call.func.value, call.func.attr
        first = call.args[0] if call.args else _keyword(call, "fn", "name_or_fn", "tool")
        if method == "from_function":
            dotted = self._names.dotted(target, scope) or ""
            if (
                dotted.endswith(("Tool", "FunctionTool"))
                and dotted.startswith(("fastmcp.", "mcp."))
                and first
            ):
                yield first, None, "fastmcp" if dotted.startswith("fastmcp.") else "sdk"
        elif method in ("tool", "add_tool") and first is not None:
            server = self._servers.of(target, scope)
            if server is not None and server.kind != "handler":
                inner = first.args[0] if isinstance(first, ast.Call) and first.args else first
                yield inner, server, server.kind
        elif (
            method == "add_request_handler" and isinstance(first, ast.Constant) and first.value == _CALL_TOOL
        ):
            server = self._servers.of(target, scope)
            for given in (*call.args[1:], *(keyword.value for keyword in call.keywords)):
                yield given, server, "handler"

    def _in_constructor(self, call: ast.Call, server: Server) -> Iterator[tuple[ast.expr, Server, Kind]]:
        handler = _keyword(call, "on_call_tool")
        if handler is not None:
            yield handler, server, "handler"
        listed = _keyword(call, "tools")
        if isinstance(listed, ast.List | ast.Tuple) and server.kind != "handler":
            for item in listed.elts:
                yield item, server, server.kind

    def _is_handler_slot(self, target: ast.expr, scope: Scope) -> bool:
        """`server.request_handlers[CallToolRequest] = …`, as servers for version 1 of the SDK have it."""
        return (
            isinstance(target, ast.Subscript)
            and isinstance(target.value, ast.Attribute)
            and target.value.attr == "request_handlers"
            and (self._names.dotted(target.slice, scope) or "").endswith("CallToolRequest")
        )


def _keyword(call: ast.Call, *names: str) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg in names), None)


def _calls(node: ast.AST, name: str) -> bool:
    """Whether a node calls a function of that name: its caller may want the text."""
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    return (isinstance(function, ast.Name) and function.id == name) or (
        isinstance(function, ast.Attribute) and function.attr == name
    )
