"""What the names of a module stand for, as far as reading can tell.

Strategy: one pass over the tree records every binding in its scope, and every node with its scope. A name is then
followed through imports and plain assignments to a dotted name (with `import mcp_types as types`,
`types.TextContent` is `mcp_types.TextContent`). A name that is bound in any other way stays unknown.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

Function = ast.FunctionDef | ast.AsyncFunctionDef
# The packages whose names matter here; a star import from one of them may bring any of its names.
MCP_ROOTS: Final = frozenset({"mcp", "mcp_types", "fastmcp"})
_FOLLOWED: Final = 8


@dataclass(frozen=True, slots=True)
class Binding:
    """What a name was bound to. A parameter, or the target of a loop, has nothing but an annotation at most."""

    # An import's dotted name.
    dotted: str = ""
    # A definition, or an assigned value.
    node: ast.AST | None = None
    annotation: ast.expr | None = None


@dataclass(eq=False, slots=True)
class Scope:
    node: ast.AST
    parent: Scope | None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    # Of a class: what its methods assign to attributes of `self`.
    attributes: dict[str, list[Binding]] = field(default_factory=dict)

    def bind(self, name: str, binding: Binding) -> None:
        self.bindings.setdefault(name, []).append(binding)

    def outwards(self) -> Iterator[Scope]:
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def find(self, name: str) -> list[Binding]:
        """The bindings of a name in the nearest scope that has any; methods don't see those of their class."""
        for scope in self.outwards():
            if name in scope.bindings and (scope is self or not isinstance(scope.node, ast.ClassDef)):
                return scope.bindings[name]
        return []

    def owner(self) -> Scope | None:
        """The class that `self` belongs to here."""
        return next((scope for scope in self.outwards() if isinstance(scope.node, ast.ClassDef)), None)


class Names:
    def __init__(self, tree: ast.Module) -> None:
        self.nodes: list[ast.AST] = []
        self.packages: set[str] = set()
        self._stars: list[str] = []
        # The scope that each node is in.
        self._scopes: dict[ast.AST, Scope] = {}
        self._assigned: set[ast.expr] = set()
        # A stack and not recursion: a long chain of operators is a deep tree.
        stack: list[tuple[ast.AST, Scope]] = [(tree, Scope(tree, None))]
        while stack:
            node, scope = stack.pop()
            self.nodes.append(node)
            self._scopes[node] = scope
            self._bind(node, scope)
            stack.extend(reversed([*_children(node, scope)]))

    def bindings(self, name: ast.Name) -> list[Binding]:
        return self._scopes[name].find(name.id)

    def owner(self, node: ast.AST) -> Scope | None:
        """The class that `self` belongs to where the node is."""
        return self._scopes[node].owner()

    def calls(self) -> Iterator[ast.Call]:
        return (node for node in self.nodes if isinstance(node, ast.Call))

    def dotted(self, node: ast.AST | None, steps: int = _FOLLOWED) -> str | None:
        """The dotted name that an expression stands for."""
        attributes: list[str] = []
        while isinstance(node, ast.Attribute):
            attributes.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or not steps:
            return None
        base = self._base(node, steps)
        return None if base is None else ".".join([base, *reversed(attributes)])

    def _base(self, name: ast.Name, steps: int) -> str | None:
        bindings = self.bindings(name)
        if not bindings:
            return f"{self._stars[-1]}.{name.id}" if self._stars else name.id
        last = bindings[-1]  # `try: import a; except ImportError: import b`: either will do
        if last.dotted:
            return last.dotted
        return self.dotted(last.node, steps - 1) if len(bindings) == 1 else None

    def functions(self, node: ast.AST | None, steps: int = _FOLLOWED) -> list[Function]:
        """The functions of this module that an expression may stand for."""
        if isinstance(node, Function):
            return [node]
        bindings: list[Binding] = []
        if isinstance(node, ast.Attribute) and is_self(node.value) and (owner := self.owner(node)):
            bindings = owner.bindings.get(node.attr, [])
        elif isinstance(node, ast.Name) and steps:
            bindings = self.bindings(node)
        found = [each.node for each in bindings if isinstance(each.node, Function)]
        return found if found or len(bindings) != 1 else self.functions(bindings[0].node, steps - 1)

    def _bind(self, node: ast.AST, scope: Scope) -> None:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    root = alias.name.partition(".")[0]
                    self.packages.add(root)
                    scope.bind(alias.asname or root, Binding(alias.name if alias.asname else root))
            case ast.ImportFrom(module=module, names=names, level=level):
                origin = "." * level + (module or "")
                self.packages.add(origin.partition(".")[0])
                for alias in names:
                    if alias.name != "*":
                        scope.bind(alias.asname or alias.name, Binding(f"{origin}.{alias.name}"))
                    elif origin.partition(".")[0] in MCP_ROOTS:
                        self._stars.append(origin)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                scope.bind(name, Binding(node=node))
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._assign(target, Binding(node=value), scope)
            case ast.AnnAssign(target=target, value=given, annotation=annotation):
                self._assign(target, Binding(node=given, annotation=annotation), scope)
            case ast.NamedExpr(target=target, value=value):
                self._assign(target, Binding(node=value), scope)
            case ast.Name(id=name, ctx=ast.Store()) if node not in self._assigned:
                scope.bind(name, Binding())
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                scope.bind(name, Binding())

    def _assign(self, target: ast.expr, binding: Binding, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            self._assigned.add(target)
            scope.bind(target.id, binding)
        elif isinstance(target, ast.Attribute) and is_self(target.value) and (owner := scope.owner()):
            owner.attributes.setdefault(target.attr, []).append(binding)


def _children(node: ast.AST, scope: Scope) -> Iterator[tuple[ast.AST, Scope]]:
    """The parts of a node, each with its scope: what a function or a class opens holds only for its body."""
    inner, inside = scope, set[ast.AST]()
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
        inner = Scope(node, scope)
        inside.update(node.body if isinstance(node.body, list) else [node.body])
        for argument in parameters(node) if not isinstance(node, ast.ClassDef) else ():
            inner.bind(argument.arg, Binding(annotation=argument.annotation))
    for child in ast.iter_child_nodes(node):
        yield child, inner if child in inside else scope


def is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def parameters(node: Function | ast.Lambda) -> list[ast.arg]:
    arguments = node.args
    rest = [given for given in (arguments.vararg, arguments.kwarg) if given is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *rest]
