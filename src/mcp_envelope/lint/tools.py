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
    made: ast.Call | None = None


class Servers:
    def __init__(self, names: Names) -> None:
        self._names = names
        self._guess = Server("fastmcp" if "fastmcp" in names.packages else "sdk")
        self._uses_mcp = not MCP_ROOTS.isdisjoint(names.packages)

    def of(self, node: ast.AST | None, steps: int = _STEPS) -> Server | None:
        """The server that an expression stands for."""
        if isinstance(node, ast.Call):
            return self._called(node)
        if isinstance(node, ast.Name):
            if is_self(node):
                owner = self._names.owner(node)
                kind = self._of_class(owner.node, steps) if owner else None
                return Server(kind) if kind else None
            return self._bound(self._names.bindings(node), node.id, steps)
        if isinstance(node, ast.Attribute):
            owner = self._names.owner(node) if is_self(node.value) else None
            bindings = (owner.attributes.get(node.attr) or owner.bindings.get(node.attr)) if owner else None
            if bindings:
                return self._bound(bindings, node.attr, steps)
            return self._guess if "mcp" in node.attr.lower() else None
        return None

    def _bound(self, bindings: list[Binding], name: str, steps: int) -> Server | None:
        for binding in reversed(bindings if steps else []):
            if binding.annotation is not None:
                if kind := self._annotated(binding.annotation):
                    made = self.of(binding.node, steps - 1)
                    return Server(kind, made.made if made else None)
            elif isinstance(binding.node, ast.expr):
                found = self.of(binding.node, steps - 1)
                if found or not isinstance(binding.node, ast.Call):
                    return found
                if "mcp" in name.lower() and self._may_be_a_factory(binding.node):
                    return self._guess
            elif binding.node is None and self._sounds_right(name, binding):
                return self._guess
        return None

    def _sounds_right(self, name: str, binding: Binding) -> bool:
        if binding.dotted.partition(".")[0] in MCP_ROOTS:
            return False  # the library itself
        return "mcp" in name.lower() or (name in ("server", "app") and self._uses_mcp)

    def _may_be_a_factory(self, call: ast.Call) -> bool:
        """`make_server()` may return a server, `Agent()` does not."""
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        last = (self._names.dotted(call.func) or name).rpartition(".")[2]
        return last[:1].islower() or "mcp" in last.lower()

    def _called(self, call: ast.Call) -> Server | None:
        if kind := self.class_kind(call.func):
            return Server(kind, call)
        for function in self._names.functions(call.func):
            if function.returns and (kind := self._annotated(function.returns)):
                return Server(kind)
        return None

    def class_kind(self, node: ast.AST, steps: int = _STEPS) -> Kind | None:
        """The kind of server that a class makes, if it is a server class or a subclass of one."""
        if isinstance(node, ast.Subscript):
            node = node.value
        if (dotted := self._names.dotted(node)) is not None:
            root, last = dotted.partition(".")[0], dotted.rpartition(".")[2]
            if last in ("FastMCP", "FastMCPApp", "MCPServer"):
                return "fastmcp" if root == "fastmcp" else "sdk"
            return "handler" if last == "Server" and root == "mcp" else None
        bound = self._names.bindings(node) if isinstance(node, ast.Name) and steps else []
        kinds = (self._of_class(each.node, steps) for each in bound)
        return next(filter(None, kinds), None)

    def _of_class(self, node: ast.AST | None, steps: int) -> Kind | None:
        if not isinstance(node, ast.ClassDef):
            return None
        return next(filter(None, (self.class_kind(base, steps - 1) for base in node.bases)), None)

    def _annotated(self, annotation: ast.expr) -> Kind | None:
        parts = (part for part in ast.walk(annotation) if isinstance(part, ast.Name | ast.Attribute))
        return next(filter(None, map(self.class_kind, parts)), None)

    def without_envelope(self, used: set[ast.Call]) -> list[tuple[ast.Call, Kind]]:
        """Servers that this module makes, uses and does not hand on, and that have no envelope."""
        enveloped = self.enveloped()
        if not used or enveloped is None:
            return []
        gone = {
            server.made for node in self._names.nodes for each in _leaving(node) if (server := self.of(each))
        }
        return [
            (call, kind)
            for call in self._names.calls()
            if call in used - gone - enveloped and (kind := self.class_kind(call.func))
        ]

    def enveloped(self) -> set[ast.Call] | None:
        """The servers with the envelope, or None if it is used in a way that leaves open whose it is."""
        found: set[ast.Call] = set()
        if _OUR_PACKAGE not in self._names.packages:
            return found
        unclear = {node for node in self._names.nodes if self._is_ours(node)}
        for call in self._names.calls():
            targets: list[ast.AST] = [call, *call.args]
            if isinstance(call.func, ast.Attribute) and call.func.attr == "add_middleware":
                targets.append(call.func.value)
            made = {server.made for each in targets if (server := self.of(each)) and server.made}
            if made and not unclear.isdisjoint(inside := set(ast.walk(call))):
                found |= made
                unclear -= inside
        return None if unclear else found

    def _is_ours(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Name | ast.Attribute) or isinstance(node.ctx, ast.Store):
            return False
        dotted = self._names.dotted(node) or ""
        if not dotted.startswith(f"{_OUR_PACKAGE}."):
            return False
        last = dotted.rpartition(".")[2]
        return ".servers." in dotted or last in ("seal", "EnvelopeMiddleware", "envelope")


def _leaving(node: ast.AST) -> list[ast.expr]:
    """What leaves the part that can be read here: into a call, out of a function, into a list."""
    match node:
        case ast.Call(args=args, keywords=keywords):
            return [*args, *(keyword.value for keyword in keywords)]
        case ast.Return(value=ast.expr() as value) | ast.Yield(value=ast.expr() as value):
            return [value]
        case ast.Tuple(elts=items, ctx=ast.Load()) | ast.List(elts=items, ctx=ast.Load()):
            return items
        case ast.Dict(values=values):
            return values
    return []


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
    made: ast.Call | None = None
    settings: ast.AST | None = None


class Tools:
    def __init__(self, names: Names, servers: Servers) -> None:
        self._names = names
        self._servers = servers
        self.all: list[Tool] = []
        # The servers of this module that have a tool here.
        self.used: set[ast.Call] = set()
        self._seen: set[Function] = set()
        found = [each for node in names.nodes for each in self._registered(node)]
        # A function that is also a low-level handler must return what handlers return.
        for each in sorted(
            found, key=lambda each: (each.kind != "handler", not isinstance(each.what, Function))
        ):
            for function in names.functions(each.what):
                if each.made:
                    self.used.add(each.made)
                self._add(function, each.kind, self._may_change(function, each))
        for tool in self.all:  # which grows during the loop
            caller = tool.caller or tool.node.name
            for returned in tool.flow.returns:
                for source in tool.flow.alternatives(returned):
                    if isinstance(source.node, ast.Call):
                        for function in self._names.functions(source.node.func):
                            self._add(function, tool.kind, may_change=False, caller=caller)

    def _add(self, function: Function, kind: Kind, may_change: bool, caller: str | None = None) -> None:
        if function not in self._seen:
            self._seen.add(function)
            self.all.append(Tool(function, Flow(function), kind, may_change, caller))

    def _may_change(self, function: Function, registration: _Registration) -> bool:
        settings = registration.settings
        says_shape = isinstance(settings, ast.Call) and any(
            keyword.arg in _SAYS_SHAPE for keyword in settings.keywords
        )
        if registration.kind == "handler" or says_shape:
            return False
        if not all(self._decorates(each) for each in function.decorator_list):
            return False  # another decorator may need the text
        called = (getattr(call.func, "id", getattr(call.func, "attr", "")) for call in self._names.calls())
        return function.name not in called  # whoever calls it may need the text

    def _registered(self, node: ast.AST) -> Iterator[_Registration]:
        match node:
            case ast.FunctionDef(decorator_list=decorators) | ast.AsyncFunctionDef(decorator_list=decorators):
                for decorator in decorators:
                    if server := self._decorates(decorator):
                        yield _Registration(node, *server, decorator)
            case ast.Call():
                yield from self._by_constructor(node)
                yield from self._by_call(node)
            case ast.Assign(
                # `server.request_handlers[CallToolRequest] = …`, for version 1 of the SDK
                targets=[ast.Subscript(value=ast.Attribute(attr="request_handlers"), slice=request)],
                value=value,
            ) if (self._names.dotted(request) or "").endswith("CallToolRequest"):
                yield _Registration(value, "handler")

    def _decorates(self, decorator: ast.expr) -> Server | None:
        """The server that a decorator registers a tool with."""
        name = decorator.func if isinstance(decorator, ast.Call) else decorator
        dotted = self._names.dotted(name) or ""
        if dotted.startswith("fastmcp.") and dotted.endswith((".tool", ".mcp_tool")):
            return Server("fastmcp")
        server = self._servers.of(name.value) if isinstance(name, ast.Attribute) else None
        if server is None or not isinstance(name, ast.Attribute):
            return None
        if name.attr == "tool" and server.kind != "handler":
            return server
        return Server("handler", server.made) if name.attr == "call_tool" and name is not decorator else None

    def _by_constructor(self, call: ast.Call) -> Iterator[_Registration]:
        kind = self._servers.class_kind(call.func)
        for keyword in call.keywords if kind else ():
            if keyword.arg == "on_call_tool":
                yield _Registration(keyword.value, "handler", call)
            elif keyword.arg == "tools" and kind and kind != "handler":
                for item in getattr(keyword.value, "elts", ()):
                    yield _Registration(item, kind, call, call)

    def _by_call(self, call: ast.Call) -> Iterator[_Registration]:
        given = [
            *call.args,
            *(each.value for each in call.keywords if each.arg in ("fn", "name_or_fn", "tool")),
        ]
        if not given:
            return
        first = given[0]
        match call.func:
            case ast.Call() if server := self._decorates(call.func):  # mcp.tool(name=…)(function)
                yield _Registration(first, *server, call)
            case ast.Attribute(value=target, attr="from_function"):
                root, _, rest = (self._names.dotted(target) or "").partition(".")
                if root in ("fastmcp", "mcp") and rest.endswith("Tool"):
                    yield _Registration(first, "fastmcp" if root == "fastmcp" else "sdk", None, call)
            case ast.Attribute(value=target, attr="tool" | "add_tool"):
                server = self._servers.of(target)
                if server and server.kind != "handler":
                    inner = first.args[0] if isinstance(first, ast.Call) and first.args else first
                    yield _Registration(inner, *server, call)
            case ast.Attribute(value=target, attr="add_request_handler"):
                if isinstance(first, ast.Constant) and first.value == _CALL_TOOL:
                    server = self._servers.of(target)
                    for each in (*call.args[1:], *(keyword.value for keyword in call.keywords)):
                        yield _Registration(each, "handler", server.made if server else None)
