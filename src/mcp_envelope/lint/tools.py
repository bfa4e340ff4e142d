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
from typing import Final, Literal, NamedTuple

from .module import MCP_ROOTS, Flow, Function, Module

Kind = Literal["fastmcp", "sdk", "handler"]
_STEPS: Final = 8
_OUR_PACKAGE: Final = "mcp_envelope"
# With one of these the author has declared the shape of the result, so it must not change.
_SAYS_SHAPE: Final = frozenset({"output_schema", "structured_output", None})  # None: **settings
_FUNCTION: Final = ("fn", "name_or_fn", "tool")


class Server(NamedTuple):
    kind: Kind
    # The call that made it, if that is in this module.
    made: ast.Call | None = None


class Tool(NamedTuple):
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
    server: Server
    settings: ast.AST | None = None


class Tools:
    def __init__(self, module: Module) -> None:
        self._module = module
        self._guess = Server("fastmcp" if "fastmcp" in module.packages else "sdk")
        self._uses_mcp = not MCP_ROOTS.isdisjoint(module.packages)
        self._calls = [node for node in module.nodes if isinstance(node, ast.Call)]
        self._enveloped = self._with_envelope()
        # Whether what handlers return gets sealed.
        self.is_sealed = self._enveloped != set()
        # The servers of this module that have a tool here.
        self._used: set[ast.Call] = set()
        tools: dict[Function, Tool] = {}
        # A function that is also a low-level handler must return what handlers return.
        found = [each for node in module.nodes for each in self._registered(node)]
        for each in sorted(
            found, key=lambda each: (each.server.kind != "handler", not isinstance(each.what, Function))
        ):
            for function in module.functions(each.what):
                if each.server.made:
                    self._used.add(each.server.made)
                if function not in tools:
                    may_change = self._may_change(function, each)
                    tools[function] = Tool(function, Flow(module, function), each.server.kind, may_change)
        self.all = [*tools.values()]
        for tool in self.all:  # which grows during the loop
            for source in (each for value in tool.flow.returns for each in tool.flow.alternatives(value)):
                for function in module.functions(source.func) if isinstance(source, ast.Call) else ():
                    if function not in tools:
                        caller = tool.caller or tool.node.name
                        tools[function] = Tool(function, Flow(module, function), tool.kind, False, caller)
                        self.all.append(tools[function])

    # -- servers --------------------------------------------------------------------------------------------

    def _server(self, node: ast.AST | None, steps: int = _STEPS) -> Server | None:
        """The server that an expression stands for."""
        match node:
            case ast.Call():
                if kind := self._class_kind(node.func):
                    return Server(kind, node)
                returned = (function.returns for function in self._module.functions(node.func))
                kinds = (self._annotated(each) for each in returned if each)
                return next((Server(kind) for kind in kinds if kind), None)
            case ast.Name(id="self" | "cls"):
                kind = self._of_class(self._module.owner(node), steps)
                return Server(kind) if kind else None
            case ast.Name(id=name):
                return self._bound(self._module.bindings(node), name, steps)
            case ast.Attribute(attr=name):
                if bindings := self._module.members(node):
                    return self._bound(bindings, name, steps)
                return self._guess if "mcp" in name.lower() else None
        return None

    def _bound(self, bindings: list[ast.AST], name: str, steps: int) -> Server | None:
        is_mcp = "mcp" in name.lower()
        for binding in reversed(bindings if steps else []):
            value, annotation = self._module.value(binding), self._module.annotation(binding)
            if annotation is not None:
                if kind := self._annotated(annotation):
                    made = self._server(value, steps - 1)
                    return Server(kind, made.made if made else None)
            elif isinstance(value, ast.expr):
                found = self._server(value, steps - 1)
                if found or not isinstance(value, ast.Call):
                    return found
                # `make_server()` may return a server, `Agent()` does not.
                maker = (self._module.dotted(value.func) or "").rpartition(".")[2]
                if is_mcp and (maker[:1].islower() or "mcp" in maker.lower()):
                    return self._guess
            elif value is None and self._module.imported(binding).partition(".")[0] not in MCP_ROOTS:
                if is_mcp or (name in ("server", "app") and self._uses_mcp):
                    return self._guess
        return None

    def _class_kind(self, node: ast.AST, steps: int = _STEPS) -> Kind | None:
        """The kind of server that a class makes, if it is a server class or a subclass of one."""
        if isinstance(node, ast.Subscript):
            node = node.value
        if (dotted := self._module.dotted(node)) is not None:
            root, last = dotted.partition(".")[0], dotted.rpartition(".")[2]
            if last in ("FastMCP", "FastMCPApp", "MCPServer"):
                return "fastmcp" if root == "fastmcp" else "sdk"
            return "handler" if last == "Server" and root == "mcp" else None
        bound = self._module.bindings(node) if isinstance(node, ast.Name) and steps else []
        return next(filter(None, (self._of_class(each, steps) for each in bound)), None)

    def _of_class(self, node: ast.AST | None, steps: int) -> Kind | None:
        bases = node.bases if isinstance(node, ast.ClassDef) else []
        return next(filter(None, (self._class_kind(base, steps - 1) for base in bases)), None)

    def _annotated(self, annotation: ast.expr) -> Kind | None:
        parts = (part for part in ast.walk(annotation) if isinstance(part, ast.Name | ast.Attribute))
        return next(filter(None, map(self._class_kind, parts)), None)

    # -- the envelope ---------------------------------------------------------------------------------------

    def without_envelope(self) -> Iterator[tuple[ast.Call, str]]:
        """Servers made, used and not handed on in this module, each with the line that it lacks."""
        if not self._used or self._enveloped is None:
            return
        leaving = (self._server(each) for node in self._module.nodes for each in _leaving(node))
        gone = {server.made for server in leaving if server}
        for call in self._calls:
            if call in self._used - gone - self._enveloped and (kind := self._class_kind(call.func)):
                yield (
                    call,
                    "add_middleware(EnvelopeMiddleware())" if kind == "fastmcp" else "envelope(server)",
                )

    def _with_envelope(self) -> set[ast.Call] | None:
        """The servers with the envelope, or None if it is used in a way that leaves open whose it is."""
        found: set[ast.Call] = set()
        unclear = {
            node
            for node in self._module.nodes
            if _OUR_PACKAGE in self._module.packages and self._is_ours(node)
        }
        for call in self._calls if unclear else ():
            targets: list[ast.AST] = [call, *call.args]
            if isinstance(call.func, ast.Attribute) and call.func.attr == "add_middleware":
                targets.append(call.func.value)
            made = {server.made for each in targets if (server := self._server(each)) and server.made}
            if made and not unclear.isdisjoint(inside := set(ast.walk(call))):
                found |= made
                unclear -= inside
        return None if unclear else found

    def _is_ours(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Name | ast.Attribute) or isinstance(node.ctx, ast.Store):
            return False
        root, _, rest = (self._module.dotted(node) or "").partition(".")
        is_front = rest.rpartition(".")[2] in ("seal", "EnvelopeMiddleware", "envelope")
        return root == _OUR_PACKAGE and (is_front or rest.startswith("servers."))

    # -- tools ----------------------------------------------------------------------------------------------

    def _may_change(self, function: Function, registration: _Registration) -> bool:
        settings = registration.settings
        shapes = {keyword.arg for keyword in settings.keywords} if isinstance(settings, ast.Call) else set()
        # Another decorator, or whoever calls the function, may need the text.
        called = (getattr(call.func, "id", getattr(call.func, "attr", "")) for call in self._calls)
        return (
            registration.server.kind != "handler"
            and shapes.isdisjoint(_SAYS_SHAPE)
            and all(self._decorates(each) for each in function.decorator_list)
            and function.name not in called
        )

    def _decorates(self, decorator: ast.expr) -> Server | None:
        """The server that a decorator registers a tool with."""
        name = decorator.func if isinstance(decorator, ast.Call) else decorator
        dotted = self._module.dotted(name) or ""
        if dotted.startswith("fastmcp.") and dotted.endswith((".tool", ".mcp_tool")):
            return Server("fastmcp")
        if isinstance(name, ast.Attribute) and (server := self._server(name.value)):
            if name.attr == "tool" and server.kind != "handler":
                return server
            if name.attr == "call_tool" and name is not decorator:
                return Server("handler", server.made)
        return None

    def _registered(self, node: ast.AST) -> Iterator[_Registration]:
        """The tools that a definition, a call or an assignment registers."""
        match node:
            case ast.FunctionDef(decorator_list=decorators) | ast.AsyncFunctionDef(decorator_list=decorators):
                for decorator in decorators:
                    if server := self._decorates(decorator):
                        yield _Registration(node, server, decorator)
            case ast.Call(func=function, args=args, keywords=keywords):
                kind = self._class_kind(function)
                for keyword in keywords if kind else ():
                    if keyword.arg == "on_call_tool":
                        yield _Registration(keyword.value, Server("handler", node))
                    elif keyword.arg == "tools" and kind and kind != "handler":
                        for item in getattr(keyword.value, "elts", ()):
                            yield _Registration(item, Server(kind, node), node)
                if given := [*args, *(each.value for each in keywords if each.arg in _FUNCTION)]:
                    yield from self._by_call(node, given[0])
            case ast.Assign(
                # `server.request_handlers[CallToolRequest] = …`, for version 1 of the SDK
                targets=[ast.Subscript(value=ast.Attribute(attr="request_handlers"), slice=request)],
                value=value,
            ) if (self._module.dotted(request) or "").endswith("CallToolRequest"):
                yield _Registration(value, Server("handler"))

    def _by_call(self, call: ast.Call, first: ast.expr) -> Iterator[_Registration]:
        match call.func:
            case ast.Call() if server := self._decorates(call.func):  # mcp.tool(name=…)(function)
                yield _Registration(first, server, call)
            case ast.Attribute(value=target, attr="from_function"):
                root, _, rest = (self._module.dotted(target) or "").partition(".")
                if root in ("fastmcp", "mcp") and rest.endswith("Tool"):
                    yield _Registration(first, Server("fastmcp" if root == "fastmcp" else "sdk"), call)
            case ast.Attribute(value=target, attr="tool" | "add_tool"):
                server = self._server(target)
                if server and server.kind != "handler":
                    yield _Registration(
                        first.args[0] if isinstance(first, ast.Call) and first.args else first, server, call
                    )
            case ast.Attribute(value=target, attr="add_request_handler"):
                if isinstance(first, ast.Constant) and first.value == "tools/call":
                    server = self._server(target)
                    for each in (*call.args[1:], *(keyword.value for keyword in call.keywords)):
                        yield _Registration(each, Server("handler", server.made if server else None))


def _leaving(node: ast.AST) -> list[ast.expr]:
    """What leaves the part that can be read here: into a call, out of a function, into a list."""
    match node:
        case ast.Call(args=args, keywords=keywords):
            return [*args, *(keyword.value for keyword in keywords)]
        case ast.Return(value=ast.expr() as value) | ast.Yield(value=ast.expr() as value):
            return [value]
        case (
            ast.Tuple(elts=items, ctx=ast.Load())
            | ast.List(elts=items, ctx=ast.Load())
            | ast.Dict(values=items)
        ):
            return items
    return []
