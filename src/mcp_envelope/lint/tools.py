"""Which functions of a module are tools, and which of its servers have the envelope.

Strategy: a server is made by one of the libraries' own classes or a subclass, or is annotated as one. A server
from another module can only be known by its name, so a name with `mcp` in it is believed; `server` and `app` are
believed where the module uses an MCP library. Other libraries have `@agent.tool` too: whatever was made by a class
that is known to be something else is not a server. Every way to register a tool with a server is looked for: a
decorator, a call, the constructor, the low-level handlers of the official SDK. A function whose result a tool
returns as it is (`return _render(rows)`) counts as part of that tool, because that is where the text is made.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from .flow import Flow
from .names import MCP_ROOTS, Binding, Function, Names, is_self

Kind = Literal["fastmcp", "sdk", "handler"]
_STEPS: Final = 8
_OUR_PACKAGE: Final = "mcp_envelope"
# With one of these the author has declared the shape of the result, so it must not change.
_SAYS_SHAPE: Final = frozenset({"output_schema", "structured_output", None})  # None: **settings
_CALL_TOOL: Final = "tools/call"


class Server(NamedTuple):
    kind: Kind
    # The call that made it, if that is in this module.
    made: ast.Call | None


class Servers:
    def __init__(self, names: Names) -> None:
        self._names = names
        self._guess: Kind = "fastmcp" if "fastmcp" in names.packages else "sdk"
        self._uses_mcp = not MCP_ROOTS.isdisjoint(names.packages)

    def of(self, node: ast.AST | None, steps: int = _STEPS) -> Server | None:
        """The server that an expression stands for."""
        if not steps:
            return None
        if isinstance(node, ast.Call):
            return self._called(node)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, steps)
        if not isinstance(node, ast.Name):
            return None
        if is_self(node):
            owner = self._names.owner(node)
            kind = self._of_class(owner.node, steps) if owner is not None else None
            return Server(kind, None) if kind else None
        return self._bound(self._names.bindings(node), node.id, steps)

    def _attribute(self, node: ast.Attribute, steps: int) -> Server | None:
        owner = self._names.owner(node) if is_self(node.value) else None
        if owner is not None:
            bindings = owner.attributes.get(node.attr, []) or owner.bindings.get(node.attr, [])
            if bindings:
                return self._bound(bindings, node.attr, steps)
        return Server(self._guess, None) if "mcp" in node.attr.lower() else None

    def _bound(self, bindings: list[Binding], name: str, steps: int) -> Server | None:
        for binding in reversed(bindings):
            if binding.annotation is not None:
                kind = self.annotated(binding.annotation)
                made = self.of(binding.node, steps - 1) if kind and binding.node else None
                if kind:
                    return Server(kind, made.made if made else None)
            elif binding.kind == "value":
                found = self.of(binding.node, steps - 1)
                if found or not isinstance(binding.node, ast.Call):
                    return found
                if "mcp" in name.lower() and self._may_be_a_factory(binding.node):
                    return Server(self._guess, None)
            elif binding.kind in ("import", "parameter", "other") and self._sounds_right(name, binding):
                return Server(self._guess, None)
        return None

    def _sounds_right(self, name: str, binding: Binding) -> bool:
        if binding.dotted.partition(".")[0] in MCP_ROOTS:
            return False  # the library itself
        return "mcp" in name.lower() or (name in ("server", "app") and self._uses_mcp)

    def _may_be_a_factory(self, call: ast.Call) -> bool:
        """`make_server()` may return a server, `Agent()` does not."""
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        last = (self._names.dotted(call.func) or name).rpartition(".")[2]
        return bool(last) and (last[0].islower() or "mcp" in last.lower() or "server" in last.lower())

    def _called(self, call: ast.Call) -> Server | None:
        kind = self.class_kind(call.func)
        if kind:
            return Server(kind, call)
        for function in self._names.function(call.func):
            kind = self.annotated(function.returns) if function.returns else None
            if kind:
                return Server(kind, None)
        return None

    def class_kind(self, node: ast.AST, steps: int = _STEPS) -> Kind | None:
        """The kind of server that a class makes, if it is a server class or a subclass of one."""
        if not steps:
            return None
        if isinstance(node, ast.Subscript):
            return self.class_kind(node.value, steps - 1)
        dotted = self._names.dotted(node)
        if dotted is not None:
            return _kind(dotted)
        if isinstance(node, ast.Name):
            for binding in self._names.bindings(node):
                if binding.kind == "class" and binding.node is not None:
                    return self._of_class(binding.node, steps)
        return None

    def _of_class(self, node: ast.AST, steps: int) -> Kind | None:
        if not isinstance(node, ast.ClassDef):
            return None
        kinds = (self.class_kind(base, steps - 1) for base in node.bases)
        return next((kind for kind in kinds if kind), None)

    def annotated(self, annotation: ast.expr) -> Kind | None:
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            try:
                parsed = ast.parse(annotation.value, mode="eval").body
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return None
            self._names.adopt(parsed, annotation)
            annotation = parsed
        for part in ast.walk(annotation):
            if isinstance(part, ast.Name | ast.Attribute):
                kind = self.class_kind(part)
                if kind:
                    return kind
        return None

    def without_envelope(self, used: set[ast.Call]) -> list[tuple[ast.Call, Kind]]:
        """Servers that this module makes, uses and does not hand on, and that have no envelope."""
        kept = {
            call: kind
            for call in self._names.calls()
            if call in used and (kind := self.class_kind(call.func))
        }
        for node in self._names.nodes if kept else ():
            for gone in self._leaving(node):
                kept.pop(gone, None)
        enveloped = self.enveloped()
        if enveloped is None:
            return []
        return [(call, kind) for call, kind in kept.items() if call not in enveloped]

    def enveloped(self) -> set[ast.Call] | None:
        """The servers with the envelope, or None if it is used in a way that leaves open whose it is."""
        found: set[ast.Call] = set()
        if _OUR_PACKAGE not in self._names.packages:
            return found
        understood: set[ast.AST] = set()
        for call in self._names.calls():
            inside = [part for part in ast.walk(call) if self._is_ours(part)]
            if not inside:
                continue
            targets: list[ast.AST] = [call, *call.args]
            if isinstance(call.func, ast.Attribute) and call.func.attr == "add_middleware":
                targets.append(call.func.value)
            made = [server.made for each in targets if (server := self.of(each)) and server.made]
            if made:
                found.update(made)
                understood.update(inside)
        mentions = {node for node in self._names.nodes if self._is_ours(node)}
        return found if mentions <= understood else None

    def _is_ours(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Name | ast.Attribute) or isinstance(node.ctx, ast.Store):
            return False
        dotted = self._names.dotted(node) or ""
        if not dotted.startswith(f"{_OUR_PACKAGE}."):
            return False
        last = dotted.rpartition(".")[2]
        return ".servers." in dotted or last in ("seal", "EnvelopeMiddleware", "envelope")

    def _leaving(self, node: ast.AST) -> list[ast.Call]:
        """Servers that leave what can be read here: into a call, out of a function."""
        leaving: list[ast.expr] = []
        if isinstance(node, ast.Call):
            leaving = [*node.args, *(keyword.value for keyword in node.keywords)]
        elif isinstance(node, ast.Return | ast.Yield) and node.value is not None:
            leaving = [node.value]
        elif isinstance(node, ast.Tuple | ast.List) and isinstance(node.ctx, ast.Load):
            leaving = node.elts
        elif isinstance(node, ast.Dict):
            leaving = node.values
        found = (self.of(each) for each in leaving)
        return [server.made for server in found if server and server.made]


def _kind(dotted: str) -> Kind | None:
    root, last = dotted.partition(".")[0], dotted.rpartition(".")[2]
    if last in ("FastMCP", "FastMCPApp", "MCPServer"):
        return "fastmcp" if root == "fastmcp" else "sdk"
    return "handler" if last == "Server" and root == "mcp" else None


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    node: Function
    flow: Flow
    kind: Kind
    # Whether the function itself is registered and nothing else depends on what it returns.
    may_change: bool
    # The tool that returns this function's result, if the function is not a tool itself.
    caller: str | None = None

    @property
    def who(self) -> str:
        if self.caller is None:
            return f"tool {self.node.name!r}"
        return f"{self.node.name!r}, whose result tool {self.caller!r} returns,"


class _Registration(NamedTuple):
    """A function, or an expression that stands for one, that is registered as a tool."""

    what: ast.AST
    kind: Kind
    server: Server | None = None
    settings: ast.Call | None = None

    @property
    def is_called(self) -> bool:
        return not isinstance(self.what, ast.FunctionDef | ast.AsyncFunctionDef)


class Tools:
    def __init__(self, names: Names, servers: Servers) -> None:
        self._names = names
        self._servers = servers
        self.all: list[Tool] = []
        # The servers of this module that have a tool here.
        self.used: set[ast.Call] = set()
        self._seen: set[Function] = set()
        # A function that is also a low-level handler must return what handlers return.
        for each in sorted(self._registrations(), key=lambda each: (each.kind != "handler", each.is_called)):
            for function in names.function(each.what):
                if each.server and each.server.made:
                    self.used.add(each.server.made)
                self._add(function, each.kind, self._may_change(function, each))
        self._follow()

    def _add(self, function: Function, kind: Kind, may_change: bool, caller: str | None = None) -> None:
        if function not in self._seen:
            self._seen.add(function)
            self.all.append(Tool(function, Flow(function), kind, may_change, caller))

    def _follow(self) -> None:
        for tool in self.all:  # which grows during the loop
            caller = tool.caller or tool.node.name
            for returned in tool.flow.returns:
                for expression, _ in tool.flow.alternatives(returned.value, returned.step):
                    if isinstance(expression, ast.Call):
                        for function in self._names.function(expression.func):
                            self._add(function, tool.kind, may_change=False, caller=caller)

    def _may_change(self, function: Function, registration: _Registration) -> bool:
        if registration.kind == "handler":
            return False
        settings = registration.settings
        if settings is not None and any(keyword.arg in _SAYS_SHAPE for keyword in settings.keywords):
            return False
        if not all(self._decorates(each) for each in function.decorator_list):
            return False  # another decorator may need the text
        return not any(_calls(node, function.name) for node in self._names.nodes)

    def _registrations(self) -> Iterator[_Registration]:
        for node in self._names.nodes:
            match node:
                case (
                    ast.FunctionDef(decorator_list=decorators)
                    | ast.AsyncFunctionDef(decorator_list=decorators)
                ):
                    for decorator in decorators:
                        server = self._decorates(decorator)
                        settings = decorator if isinstance(decorator, ast.Call) else None
                        if server is not None:
                            yield _Registration(node, server.kind, server, settings)
                case ast.Call():
                    for what, server, kind in self._registered(node):
                        yield _Registration(what, kind, server, node)
                case ast.Assign(targets=[target, *_], value=value) if self._is_handler_slot(target):
                    yield _Registration(value, "handler")

    def _decorates(self, decorator: ast.expr) -> Server | None:
        """The server that a decorator registers a tool with."""
        name = decorator.func if isinstance(decorator, ast.Call) else decorator
        dotted = self._names.dotted(name) or ""
        if dotted.startswith("fastmcp.") and dotted.endswith((".tool", ".mcp_tool")):
            return Server("fastmcp", None)
        if not isinstance(name, ast.Attribute):
            return None
        server = self._servers.of(name.value)
        if server is None:
            return None
        if name.attr == "tool" and server.kind != "handler":
            return server
        if name.attr == "call_tool" and name is not decorator:
            return Server("handler", server.made)
        return None

    def _registered(self, call: ast.Call) -> Iterator[tuple[ast.expr, Server | None, Kind]]:
        """What a call registers as a tool, and with which server."""
        made = self._servers.class_kind(call.func)
        if made:
            yield from self._in_constructor(call, Server(made, call))
        if isinstance(call.func, ast.Call):  # mcp.tool(name=…)(function)
            server = self._decorates(call.func)
            if server is not None and call.args:
                yield call.args[0], server, server.kind
        if not isinstance(call.func, ast.Attribute):
            return
        target, method = call.func.value, call.func.attr
        first = call.args[0] if call.args else _keyword(call, "fn", "name_or_fn", "tool")
        if method == "from_function":
            root, _, rest = (self._names.dotted(target) or "").partition(".")
            if first and root in ("fastmcp", "mcp") and rest.endswith("Tool"):
                yield first, None, "fastmcp" if root == "fastmcp" else "sdk"
        elif method in ("tool", "add_tool") and first is not None:
            server = self._servers.of(target)
            if server is not None and server.kind != "handler":
                inner = first.args[0] if isinstance(first, ast.Call) and first.args else first
                yield inner, server, server.kind
        elif (
            method == "add_request_handler" and isinstance(first, ast.Constant) and first.value == _CALL_TOOL
        ):
            server = self._servers.of(target)
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

    def _is_handler_slot(self, target: ast.expr) -> bool:
        """`server.request_handlers[CallToolRequest] = …`, for version 1 of the SDK."""
        return (
            isinstance(target, ast.Subscript)
            and isinstance(target.value, ast.Attribute)
            and target.value.attr == "request_handlers"
            and (self._names.dotted(target.slice) or "").endswith("CallToolRequest")
        )


def _keyword(call: ast.Call, *names: str) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg in names), None)


def _calls(node: ast.AST, name: str) -> bool:
    """Whether a node calls a function of that name, in which case the caller may need the text."""
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    return (isinstance(function, ast.Name) and function.id == name) or (
        isinstance(function, ast.Attribute) and function.attr == name
    )
