"""What can be told from a module's tree: what its names stand for, and what may reach a return of a function.

Strategy: one pass notes the parent of every node, the scope it is in, and the nodes that bind each name. Everything
else climbs from a node to its parents: a statement to the blocks around it, a bound name to its value. A name is
followed through imports and plain assignments to a dotted name (with `import mcp_types as types`,
`types.TextContent` is `mcp_types.TextContent`); one that is bound in any other way stays unknown. Values are never
computed, and nothing is followed through another call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

Function = ast.FunctionDef | ast.AsyncFunctionDef
# The packages whose names matter here; a star import from one of them may bring any of its names.
MCP_ROOTS: Final = frozenset({"mcp", "mcp_types", "fastmcp"})
_FOLLOWED: Final = 8


class Module:
    def __init__(self, tree: ast.Module) -> None:
        self.nodes: list[ast.AST] = []
        self.packages: set[str] = set()
        self.scopes: dict[ast.AST, ast.AST] = {}
        # Each node's parent, and the field of the parent that it is in.
        self._parents: dict[ast.AST, tuple[ast.AST, str]] = {}
        # The nodes that bind a name in a scope. `.name` is an attribute of `self`, in the scope of its class.
        self._bound: dict[tuple[ast.AST | None, str], list[ast.AST]] = {}
        self._stars: list[str] = []
        # A stack and not recursion: a long chain of operators is a deep tree.
        stack: list[tuple[ast.AST, ast.AST]] = [(tree, tree)]
        while stack:
            node, scope = stack.pop()
            self.nodes.append(node)
            self.scopes[node] = scope
            self._bind(node, scope)
            for name, value in reversed([*ast.iter_fields(node)]):
                inner = (
                    node
                    if name == "body" and isinstance(node, Function | ast.Lambda | ast.ClassDef)
                    else scope
                )
                for child in reversed(value) if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        self._parents[child] = node, name
                        stack.append((child, inner))

    # -- names ----------------------------------------------------------------------------------------------

    def _bind(self, node: ast.AST, scope: ast.AST) -> None:
        name, holder = "", self._parents.get(node, (scope, ""))[0]
        match node:
            case ast.alias(name=imported, asname=asname):
                origin = (
                    f"{'.' * holder.level}{holder.module or ''}"
                    if isinstance(holder, ast.ImportFrom)
                    else imported
                )
                root = origin.partition(".")[0]
                self.packages.add(root)
                if imported != "*":
                    name = asname or (imported if isinstance(holder, ast.ImportFrom) else root)
                elif root in MCP_ROOTS:
                    self._stars.append(origin)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                name = node.name
            case ast.arg(arg=name):
                scope = self._parents[holder][0]
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.Name(id=name, ctx=ast.Store())
            ):
                pass
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=attribute, ctx=ast.Store()):
                name, scope = f".{attribute}", self.owner(node) or scope
        if name:
            self._bound.setdefault((scope, name), []).append(node)

    def bindings(self, name: ast.Name) -> list[ast.AST]:
        """The nodes that bind a name in the nearest scope that has any; methods don't see those of their class."""
        first = scope = self.scopes[name]
        while not (found := self._bound.get((scope, name.id))) or (
            scope is not first and isinstance(scope, ast.ClassDef)
        ):
            if scope is self.scopes[scope]:
                return []
            scope = self.scopes[scope]
        return found

    def members(self, node: ast.Attribute) -> list[ast.AST]:
        """The nodes that bind an attribute of `self`."""
        owner = self.owner(node) if is_self(node.value) else None
        return (
            self._bound.get((owner, f".{node.attr}")) or self._bound.get((owner, node.attr), [])
            if owner
            else []
        )

    def owner(self, node: ast.AST) -> ast.ClassDef | None:
        """The class that `self` belongs to where the node is."""
        scope = self.scopes[node]
        while not isinstance(scope, ast.ClassDef):
            if scope is self.scopes[scope]:
                return None
            scope = self.scopes[scope]
        return scope

    def value(self, bound: ast.AST) -> ast.AST | None:
        """What a name was bound to: a definition or an assigned value. A parameter or a loop's target has none."""
        match bound, *self._parents[bound]:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef(), _, _:
                return bound
            case (_, ast.Assign(value=value), "targets") | (
                _,
                ast.AnnAssign(value=value) | ast.NamedExpr(value=value),
                _,
            ):
                return value
        return None

    def annotation(self, bound: ast.AST) -> ast.expr | None:
        holder = bound if isinstance(bound, ast.arg) else self._parents[bound][0]
        return holder.annotation if isinstance(holder, ast.arg | ast.AnnAssign) else None

    def imported(self, bound: ast.AST) -> str:
        """The dotted name that an import binds."""
        if not isinstance(bound, ast.alias):
            return ""
        statement = self._parents[bound][0]
        if isinstance(statement, ast.ImportFrom):
            return f"{'.' * statement.level}{statement.module or ''}.{bound.name}"
        return bound.name if bound.asname else bound.name.partition(".")[0]

    def dotted(self, node: ast.AST | None, steps: int = _FOLLOWED) -> str | None:
        """The dotted name that an expression stands for."""
        attributes: list[str] = []
        while isinstance(node, ast.Attribute):
            attributes.insert(0, node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or not steps:
            return None
        base: str | None = f"{self._stars[-1]}.{node.id}" if self._stars else node.id
        if bindings := self.bindings(node):
            # `try: import a; except ImportError: import b`: either will do
            base = self.imported(bindings[-1])
            if not base:
                base = self.dotted(self.value(bindings[0]), steps - 1) if len(bindings) == 1 else None
        return ".".join([base, *attributes]) if base else None

    def functions(self, node: ast.AST | None, steps: int = _FOLLOWED) -> list[Function]:
        """The functions of this module that an expression may stand for."""
        if isinstance(node, Function):
            return [node]
        bindings: list[ast.AST] = []
        if isinstance(node, ast.Attribute):
            bindings = self.members(node)
        elif isinstance(node, ast.Name) and steps:
            bindings = self.bindings(node)
        found = [each for each in bindings if isinstance(each, Function)]
        return found if found or len(bindings) != 1 else self.functions(self.value(bindings[0]), steps - 1)

    # -- blocks ---------------------------------------------------------------------------------------------

    def statement(self, node: ast.AST) -> ast.stmt:
        while not isinstance(node, ast.stmt):
            node = self._parents[node][0]
        return node

    def blocks(self, node: ast.AST) -> list[tuple[ast.AST, str]]:
        """The blocks around a statement up to its function, the outermost first: each is a part of another node."""
        node = self.statement(node)
        scope, found = self.scopes[node], [self._parents[node]]
        while found[-1][0] is not scope:
            found.append(self._parents[found[-1][0]])
        return found[::-1]


class Flow:
    """The values in a function, and which of them may reach a return."""

    def __init__(self, module: Module, function: Function) -> None:
        self._module = module
        self.parameters = frozenset(argument.arg for argument in _parameters(function))
        self.returns: list[ast.expr] = []
        # What is built piece by piece: `lines.append(…)`, `text += …`.
        self.gathered: dict[str, list[ast.expr]] = {}
        self.assigned: dict[str, list[ast.expr]] = {}
        self.is_generator = False
        for node in _own_nodes(function):
            match node:
                case ast.Return(value=ast.expr() as value):
                    self.returns.append(value)
                case ast.Yield() | ast.YieldFrom():
                    self.is_generator = True
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                ):
                    self.assigned.setdefault(name, []).append(value)
                case (
                    ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=value)
                    | ast.Expr(
                        value=ast.Call(
                            func=ast.Attribute(value=ast.Name(id=name), attr="append" | "extend" | "insert"),
                            args=[*_, value],
                        )
                    )
                ):
                    self.gathered.setdefault(name, []).append(value)

    def alternatives(self, node: ast.expr, seen: set[ast.expr] | None = None) -> Iterator[ast.expr]:
        """The expressions that a value may come from."""
        seen = set() if seen is None else seen
        if node in seen:
            return
        seen.add(node)
        sources: list[ast.expr] = []
        match node:
            case ast.IfExp(body=one, orelse=other):
                sources = [one, other]
            case ast.BoolOp(values=sources):
                pass
            case ast.Await(value=inner) | ast.NamedExpr(value=inner):
                sources = [inner]
            case _:
                yield node
                sources = self.reaching(node) if isinstance(node, ast.Name) else []
        for source in sources:
            yield from self.alternatives(source, seen)

    def reaching(self, name: ast.Name) -> list[ast.expr]:
        """The assignments that may reach a name, without those that are certainly overwritten on the way."""
        reader, line = self._module.blocks(name), self._module.statement(name).lineno
        before = [
            each for each in self.assigned.get(name.id, []) if self._module.statement(each).lineno < line
        ]
        blocks = [self._module.blocks(each) for each in before]

        def overwrites(later: list[tuple[ast.AST, str]], earlier: list[tuple[ast.AST, str]]) -> bool:
            # Every path from the one to the reader passes the other if that is in a block around either of them.
            return later in (earlier[: len(later)], reader[: len(later)])

        pairs = enumerate(zip(before, blocks, strict=True))
        return [
            each
            for at, (each, around) in pairs
            if not any(overwrites(later, around) for later in blocks[at + 1 :])
        ]

    def loops(self, node: ast.AST) -> list[ast.For | ast.AsyncFor]:
        return [each for each, _ in self._module.blocks(node) if isinstance(each, ast.For | ast.AsyncFor)]

    def caught(self, node: ast.AST) -> set[str]:
        """The names of the exceptions that are handled where the node is."""
        around = (each for each, _ in self._module.blocks(node))
        return {each.name for each in around if isinstance(each, ast.ExceptHandler) and each.name}


def _own_nodes(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function's body in order, without what is inside other functions and classes."""
    stack: list[ast.AST] = [*reversed(function.body)]
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, Function | ast.ClassDef):
            stack += reversed([*ast.iter_child_nodes(node)])


def is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _parameters(node: Function) -> list[ast.arg]:
    arguments = node.args
    rest = [given for given in (arguments.vararg, arguments.kwarg) if given is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *rest]
