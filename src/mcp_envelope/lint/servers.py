"""Which expressions of a module stand for an MCP server, and which servers have the envelope.

Strategy: a server is what the libraries' own classes make, or a subclass of them, or what an annotation says is
one. One that comes from another module can only be known by its name, so a name with `mcp` in it is believed;
`server` and `app` are believed where the module uses an MCP library. Other libraries have `@agent.tool` too:
whatever was made by a class that is known to be something else is not a server.
"""

from __future__ import annotations

import ast
from typing import Final, Literal, NamedTuple

from .names import MCP_ROOTS, Binding, Names, Scope, is_self

Kind = Literal["fastmcp", "sdk", "handler"]
_STEPS: Final = 8
_OUR_PACKAGE: Final = "mcp_envelope"


class Server(NamedTuple):
    kind: Kind
    # Where it was made, if that is in this module.
    made: ast.Call | None


class Servers:
    def __init__(self, names: Names) -> None:
        self._names = names
        self._guess: Kind = "fastmcp" if "fastmcp" in names.packages else "sdk"
        self._uses_mcp = not MCP_ROOTS.isdisjoint(names.packages)

    def of(self, node: ast.AST | None, scope: Scope, steps: int = _STEPS) -> Server | None:
        """The server that an expression stands for."""
        if not steps:
            return None
        if isinstance(node, ast.Call):
            return self._called(node, scope)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, scope, steps)
        if not isinstance(node, ast.Name):
            return None
        if is_self(node):
            owner = scope.owner()
            kind = self._of_class(owner.node, steps) if owner is not None else None
            return Server(kind, None) if kind else None
        return self._bound(scope.find(node.id), node.id, steps)

    def _attribute(self, node: ast.Attribute, scope: Scope, steps: int) -> Server | None:
        owner = scope.owner() if is_self(node.value) else None
        if owner is not None:
            bindings = owner.attributes.get(node.attr, []) or owner.bindings.get(node.attr, [])
            if bindings:
                return self._bound(bindings, node.attr, steps)
        return Server(self._guess, None) if "mcp" in node.attr.lower() else None

    def _bound(self, bindings: list[Binding], name: str, steps: int) -> Server | None:
        for binding in reversed(bindings):
            if binding.annotation is not None:
                kind = self.annotated(binding.annotation, binding.scope)
                made = self.of(binding.node, binding.scope, steps - 1) if kind and binding.node else None
                if kind:
                    return Server(kind, made.made if made else None)
            elif binding.kind == "value":
                found = self.of(binding.node, binding.scope, steps - 1)
                if found or not isinstance(binding.node, ast.Call):
                    return found
                if "mcp" in name.lower() and self._may_be_a_factory(binding.node, binding.scope):
                    return Server(self._guess, None)
            elif binding.kind in ("import", "parameter", "other") and self._sounds_right(name, binding):
                return Server(self._guess, None)
        return None

    def _sounds_right(self, name: str, binding: Binding) -> bool:
        if binding.dotted.partition(".")[0] in MCP_ROOTS:
            return False  # the library itself
        return "mcp" in name.lower() or (name in ("server", "app") and self._uses_mcp)

    def _may_be_a_factory(self, call: ast.Call, scope: Scope) -> bool:
        """`make_server()` may be one, `Agent()` is none."""
        dotted = self._names.dotted(call.func, scope) or (
            call.func.id if isinstance(call.func, ast.Name) else ""
        )
        last = dotted.rpartition(".")[2]
        return bool(last) and (last[0].islower() or "mcp" in last.lower() or "server" in last.lower())

    def _called(self, call: ast.Call, scope: Scope) -> Server | None:
        kind = self.class_kind(call.func, scope)
        if kind:
            return Server(kind, call)
        for function in self._names.function(call.func, scope):
            kind = self.annotated(function.returns, scope) if function.returns else None
            if kind:
                return Server(kind, None)
        return None

    def class_kind(self, node: ast.AST, scope: Scope, steps: int = _STEPS) -> Kind | None:
        """What a class makes, if it is one of the libraries' server classes or a subclass of one."""
        if not steps:
            return None
        if isinstance(node, ast.Subscript):
            return self.class_kind(node.value, scope, steps - 1)
        dotted = self._names.dotted(node, scope)
        if dotted is not None:
            return _kind(dotted)
        if isinstance(node, ast.Name):
            for binding in scope.find(node.id):
                if binding.kind == "class" and binding.node is not None:
                    return self._of_class(binding.node, steps)
        return None

    def _of_class(self, node: ast.AST, steps: int) -> Kind | None:
        if not isinstance(node, ast.ClassDef):
            return None
        outer = self._names.scopes[node].parent or self._names.module
        kinds = (self.class_kind(base, outer, steps - 1) for base in node.bases)
        return next((kind for kind in kinds if kind), None)

    def annotated(self, annotation: ast.expr, scope: Scope) -> Kind | None:
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            try:
                annotation = ast.parse(annotation.value, mode="eval").body
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return None
        for part in ast.walk(annotation):
            if isinstance(part, ast.Name | ast.Attribute):
                kind = self.class_kind(part, scope)
                if kind:
                    return kind
        return None

    def without_envelope(self, used: set[ast.Call]) -> list[tuple[ast.Call, Kind]]:
        """Servers that this module makes, uses and keeps, and that have no envelope."""
        kept = {call: kind for call, kind in self._made() if call in used}
        for node, scope in self._names.nodes if kept else ():
            for gone in self._leaving(node, scope):
                kept.pop(gone, None)
        enveloped = self.enveloped()
        if enveloped is None:
            return []
        return [(call, kind) for call, kind in kept.items() if call not in enveloped]

    def enveloped(self) -> set[ast.Call] | None:
        """The servers with the envelope; None if it is used in a way that doesn't say whose it is."""
        found: set[ast.Call] = set()
        if _OUR_PACKAGE not in self._names.packages:
            return found
        understood: set[ast.AST] = set()
        for call, scope in self._names.calls():
            inside = [part for part in ast.walk(call) if self._is_ours(part, scope)]
            if not inside:
                continue
            targets: list[ast.AST] = [call, *call.args]
            if isinstance(call.func, ast.Attribute) and call.func.attr == "add_middleware":
                targets.append(call.func.value)
            made = [server.made for each in targets if (server := self.of(each, scope)) and server.made]
            if made:
                found.update(made)
                understood.update(inside)
        mentions = {node for node, scope in self._names.nodes if self._is_ours(node, scope)}
        return found if mentions <= understood else None

    def _is_ours(self, node: ast.AST, scope: Scope) -> bool:
        if not isinstance(node, ast.Name | ast.Attribute) or isinstance(node.ctx, ast.Store):
            return False
        dotted = self._names.dotted(node, scope) or ""
        if not dotted.startswith(f"{_OUR_PACKAGE}."):
            return False
        last = dotted.rpartition(".")[2]
        return ".servers." in dotted or last in ("seal", "EnvelopeMiddleware", "envelope")

    def _made(self) -> list[tuple[ast.Call, Kind]]:
        calls = self._names.calls()
        return [(call, kind) for call, scope in calls if (kind := self.class_kind(call.func, scope))]

    def _leaving(self, node: ast.AST, scope: Scope) -> list[ast.Call]:
        """Servers that go where this module can't be followed: into a call, out of a function."""
        leaving: list[ast.expr] = []
        if isinstance(node, ast.Call):
            leaving = [*node.args, *(keyword.value for keyword in node.keywords)]
        elif isinstance(node, ast.Return | ast.Yield) and node.value is not None:
            leaving = [node.value]
        elif isinstance(node, ast.Tuple | ast.List) and isinstance(node.ctx, ast.Load):
            leaving = node.elts
        elif isinstance(node, ast.Dict):
            leaving = node.values
        found = [
            self.of(each, scope) for each in leaving if isinstance(each, ast.Name | ast.Attribute | ast.Call)
        ]
        return [server.made for server in found if server and server.made]


def _kind(dotted: str) -> Kind | None:
    root, last = dotted.partition(".")[0], dotted.rpartition(".")[2]
    if last in ("FastMCP", "FastMCPApp", "MCPServer"):
        return "fastmcp" if root == "fastmcp" else "sdk"
    return "handler" if last == "Server" and root == "mcp" else None
