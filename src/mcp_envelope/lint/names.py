"""What the names of a module stand for, as far as reading can tell.

Strategy: one pass over the tree records every binding in its scope, and every node with its scope. A name is then
followed through imports and plain assignments to a dotted name (with `import mcp_types as types`,
`types.TextContent` is `mcp_types.TextContent`). A name that is bound in any other way stays unknown.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

Function = ast.FunctionDef | ast.AsyncFunctionDef
_Kind = Literal["import", "function", "class", "value", "parameter", "loop", "other"]
# The packages whose names matter here; a star import from one of them may bring any of its names.
MCP_ROOTS: Final = frozenset({"mcp", "mcp_types", "fastmcp"})
_FOLLOWED: Final = 8


@dataclass(frozen=True, slots=True)
class Binding:
    kind: _Kind
    # An import's dotted name.
    dotted: str = ""
    # A definition, an assigned value, or what a loop iterates over.
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
        seen = (
            scope for scope in self.outwards() if scope is self or not isinstance(scope.node, ast.ClassDef)
        )
        return next((scope.bindings[name] for scope in seen if name in scope.bindings), [])

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

    def adopt(self, tree: ast.AST, node: ast.AST) -> None:
        """Treat a tree that was parsed from a string as if it stood where the node is."""
        self._scopes.update(dict.fromkeys(ast.walk(tree), self._scopes[node]))

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
        if last.kind == "import":
            return last.dotted
        if last.kind == "value" and len(bindings) == 1 and isinstance(last.node, ast.Name | ast.Attribute):
            return self.dotted(last.node, steps - 1)
        return None

    def function(self, node: ast.AST | None, steps: int = _FOLLOWED) -> list[Function]:
        """The functions of this module that an expression may stand for."""
        if not steps:
            return []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return [node]
        if isinstance(node, ast.Call) and node.args:
            is_partial = (self.dotted(node.func) or "").endswith("partial")
            return self.function(node.args[0], steps - 1) if is_partial else []
        if isinstance(node, ast.Attribute) and is_self(node.value):
            owner = self.owner(node)
            return _functions(owner.bindings.get(node.attr, [])) if owner is not None else []
        if not isinstance(node, ast.Name):
            return []
        bindings = self.bindings(node)
        found = _functions(bindings)
        if found or len(bindings) != 1:
            return found
        (binding,) = bindings
        if binding.kind == "value":
            return self.function(binding.node, steps - 1)
        if binding.kind == "loop" and isinstance(binding.node, ast.List | ast.Tuple):
            return [item for each in binding.node.elts for item in self.function(each, steps - 1)]
        return []

    def _bind(self, node: ast.AST, scope: Scope) -> None:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    root = alias.name.partition(".")[0]
                    self.packages.add(root)
                    scope.bind(alias.asname or root, Binding("import", alias.name if alias.asname else root))
            case ast.ImportFrom(module=module, names=names, level=level):
                origin = "." * level + (module or "")
                self.packages.add(origin.partition(".")[0])
                for alias in names:
                    if alias.name != "*":
                        scope.bind(alias.asname or alias.name, Binding("import", f"{origin}.{alias.name}"))
                    elif origin.partition(".")[0] in MCP_ROOTS:
                        self._stars.append(origin)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                scope.bind(name, Binding("function", node=node))
            case ast.ClassDef(name=name):
                scope.bind(name, Binding("class", node=node))
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    _assign(target, Binding("value", node=value), scope)
            case ast.AnnAssign(target=target, value=given, annotation=annotation):
                _assign(target, Binding("value", node=given, annotation=annotation), scope)
            case ast.NamedExpr(target=target, value=value):
                _assign(target, Binding("value", node=value), scope)
            case ast.For(target=target, iter=over) | ast.AsyncFor(target=target, iter=over):
                _assign(target, Binding("loop", node=over), scope)
            case ast.withitem(optional_vars=ast.expr() as target) | ast.AugAssign(target=target):
                _assign(target, Binding("other"), scope)
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                scope.bind(name, Binding("other"))


def _assign(target: ast.expr, binding: Binding, scope: Scope) -> None:
    if isinstance(target, ast.Name):
        scope.bind(target.id, binding)
    elif isinstance(target, ast.Attribute) and is_self(target.value):
        if (owner := scope.owner()) is not None:
            owner.attributes.setdefault(target.attr, []).append(binding)
    elif isinstance(target, ast.Tuple | ast.List | ast.Starred):
        for name in ast.walk(target):
            if isinstance(name, ast.Name):
                scope.bind(name.id, Binding("other"))


def _children(node: ast.AST, scope: Scope) -> Iterator[tuple[ast.AST, Scope]]:
    """The parts of a node, each with its scope: what a function or a class opens holds only for its body."""
    inner, inside = scope, set[ast.AST]()
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
        inner = Scope(node, scope)
        inside.update(node.body if isinstance(node.body, list) else [node.body])
        for argument in parameters(node) if not isinstance(node, ast.ClassDef) else ():
            inner.bind(argument.arg, Binding("parameter", annotation=argument.annotation))
    for child in ast.iter_child_nodes(node):
        yield child, inner if child in inside else scope


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
