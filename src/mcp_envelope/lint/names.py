"""What the names of a module stand for, as far as reading tells.

Strategy: one pass over the tree notes every binding in its scope, and every node with the scope that it is in.
A name is then followed through imports and plain assignments to a dotted name (`types.TextContent` under
`import mcp_types as types` is `mcp_types.TextContent`). What is bound in a way that reading can't follow stays
unknown.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

Function = ast.FunctionDef | ast.AsyncFunctionDef
_Kind = Literal["import", "function", "class", "value", "parameter", "loop", "other"]
# The packages whose names are known here; a star import from one of them may bring any of its names.
MCP_ROOTS: Final = frozenset({"mcp", "mcp_types", "fastmcp"})
_FOLLOWED: Final = 8


@dataclass(frozen=True, slots=True)
class Binding:
    kind: _Kind
    scope: Scope
    # An import's dotted name.
    dotted: str = ""
    # A definition; an assigned value; what a loop goes over.
    node: ast.AST | None = None
    annotation: ast.expr | None = None


@dataclass(eq=False, slots=True)
class Scope:
    node: ast.AST
    parent: Scope | None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    # Of a class: what its methods assign to attributes of `self`.
    attributes: dict[str, list[Binding]] = field(default_factory=dict)

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef)

    def bind(self, name: str, binding: Binding) -> None:
        self.bindings.setdefault(name, []).append(binding)

    def find(self, name: str) -> list[Binding]:
        """The bindings of a name in the nearest scope that has any."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.bindings and (scope is self or not scope.is_class):
                return scope.bindings[name]
            scope = scope.parent
        return []

    def owner(self) -> Scope | None:
        """The class that `self` is an object of, here."""
        scope: Scope | None = self
        while scope is not None and not scope.is_class:
            scope = scope.parent
        return scope


class Names:
    def __init__(self, tree: ast.Module) -> None:
        self.module = Scope(tree, None)
        self.nodes: list[tuple[ast.AST, Scope]] = []
        self.scopes: dict[ast.AST, Scope] = {tree: self.module}
        self.packages: set[str] = set()
        self._stars: list[str] = []
        # A stack and not recursion: a long chain of operators is a deep tree.
        stack: list[tuple[ast.AST, Scope]] = [(tree, self.module)]
        while stack:
            node, scope = stack.pop()
            self.nodes.append((node, scope))
            self._bind(node, scope)
            stack.extend(reversed(list(self._children(node, scope))))

    def dotted(self, node: ast.AST | None, scope: Scope, steps: int = _FOLLOWED) -> str | None:
        """The dotted name that an expression stands for."""
        attributes: list[str] = []
        while isinstance(node, ast.Attribute):
            attributes.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or not steps:
            return None
        base = self._base(node.id, scope, steps)
        return None if base is None else ".".join([base, *reversed(attributes)])

    def _base(self, name: str, scope: Scope, steps: int) -> str | None:
        bindings = scope.find(name)
        if not bindings:
            return f"{self._stars[-1]}.{name}" if self._stars else name
        last = bindings[-1]  # of `try: import a; except ImportError: import b` either will do
        if last.kind == "import":
            return last.dotted
        if last.kind == "value" and len(bindings) == 1 and isinstance(last.node, ast.Name | ast.Attribute):
            return self.dotted(last.node, last.scope, steps - 1)
        return None

    def function(self, node: ast.AST | None, scope: Scope, steps: int = _FOLLOWED) -> list[Function]:
        """The functions of this module that an expression may stand for."""
        if not steps:
            return []
        if (
            isinstance(node, ast.Call)
            and (self.dotted(node.func, scope) or "").endswith("partial")
            and node.args
        ):
            return self.function(node.args[0], scope, steps - 1)
        if isinstance(node, ast.Attribute) and is_self(node.value):
            owner = scope.owner()
            return _functions(owner.bindings.get(node.attr, [])) if owner is not None else []
        if not isinstance(node, ast.Name):
            return []
        bindings = scope.find(node.id)
        found = _functions(bindings)
        if found or len(bindings) != 1:
            return found
        (binding,) = bindings
        if binding.kind == "value":
            return self.function(binding.node, binding.scope, steps - 1)
        if binding.kind == "loop" and isinstance(binding.node, ast.List | ast.Tuple):
            return [
                item for each in binding.node.elts for item in self.function(each, binding.scope, steps - 1)
            ]
        return []

    def calls(self) -> Iterator[tuple[ast.Call, Scope]]:
        for node, scope in self.nodes:
            if isinstance(node, ast.Call):
                yield node, scope

    def _children(self, node: ast.AST, scope: Scope) -> Iterator[tuple[ast.AST, Scope]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            inner = self._scope(node, scope)
            body = node.body if isinstance(node.body, list) else [node.body]
            inside = {id(child) for child in body}
            for child in ast.iter_child_nodes(node):
                yield child, inner if id(child) in inside else scope
        elif isinstance(node, ast.ClassDef):
            inner = self._scope(node, scope)
            inside = {id(child) for child in node.body}
            for child in ast.iter_child_nodes(node):
                yield child, inner if id(child) in inside else scope
        else:
            for child in ast.iter_child_nodes(node):
                yield child, scope

    def _scope(self, node: ast.AST, parent: Scope) -> Scope:
        scope = self.scopes[node] = Scope(node, parent)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for argument in parameters(node):
                scope.bind(argument.arg, Binding("parameter", parent, annotation=argument.annotation))
        return scope

    def _bind(self, node: ast.AST, scope: Scope) -> None:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    root = alias.name.partition(".")[0]
                    self.packages.add(root)
                    scope.bind(
                        alias.asname or root, Binding("import", scope, alias.name if alias.asname else root)
                    )
            case ast.ImportFrom(module=module, names=names, level=level):
                origin = "." * level + (module or "")
                self.packages.add(origin.partition(".")[0])
                for alias in names:
                    if alias.name != "*":
                        scope.bind(
                            alias.asname or alias.name, Binding("import", scope, f"{origin}.{alias.name}")
                        )
                    elif origin.partition(".")[0] in MCP_ROOTS:
                        self._stars.append(origin)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                scope.bind(name, Binding("function", scope, node=node))
            case ast.ClassDef(name=name):
                scope.bind(name, Binding("class", scope, node=node))
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._assign(target, value, None, scope)
            case ast.AnnAssign(target=target, value=given, annotation=annotation):
                self._assign(target, given, annotation, scope)
            case ast.NamedExpr(target=target, value=value):
                self._assign(target, value, None, scope)
            case ast.For(target=target, iter=over) | ast.AsyncFor(target=target, iter=over):
                self._assign(target, over, None, scope, "loop")
            case ast.withitem(optional_vars=ast.expr() as target):
                self._assign(target, None, None, scope, "other")
            case ast.AugAssign(target=target):
                self._assign(target, None, None, scope, "other")
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                scope.bind(name, Binding("other", scope))

    def _assign(
        self,
        target: ast.expr,
        value: ast.expr | None,
        annotation: ast.expr | None,
        scope: Scope,
        kind: _Kind = "value",
    ) -> None:
        binding = Binding(kind, scope, node=value, annotation=annotation)
        if isinstance(target, ast.Name):
            scope.bind(target.id, binding)
        elif isinstance(target, ast.Attribute) and is_self(target.value):
            owner = scope.owner()
            if owner is not None:
                owner.attributes.setdefault(target.attr, []).append(binding)
        elif isinstance(target, ast.Tuple | ast.List | ast.Starred):
            for name in ast.walk(target):
                if isinstance(name, ast.Name):
                    scope.bind(name.id, Binding("other", scope))


def is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def parameters(node: Function | ast.Lambda) -> list[ast.arg]:
    arguments = node.args
    rest = [given for given in (arguments.vararg, arguments.kwarg) if given is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *rest]


def _functions(bindings: list[Binding]) -> list[Function]:
    return [
        binding.node
        for binding in bindings
        if isinstance(binding.node, ast.FunctionDef | ast.AsyncFunctionDef) and binding.kind == "function"
    ]
