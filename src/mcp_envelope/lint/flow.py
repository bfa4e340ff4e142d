"""What may reach a return of a function.

Strategy: the statements of a function are listed once, each with the blocks around it. A returned name is followed
to the assignments that may reach the return, without those that are certainly overwritten. Values are never
computed, and nothing is followed through another call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from .names import Function, parameters

_PARTS = ("body", "orelse", "finalbody", "handlers", "cases")


class Step(NamedTuple):
    """A statement, and the blocks around it: each is a part of another node."""

    node: ast.stmt
    blocks: tuple[tuple[ast.AST, str], ...]

    @property
    def loops(self) -> list[ast.For | ast.AsyncFor]:
        return [node for node, _ in self.blocks if isinstance(node, ast.For | ast.AsyncFor)]

    @property
    def caught(self) -> set[str]:
        """The names of the exceptions that are handled here."""
        return {node.name for node, _ in self.blocks if isinstance(node, ast.ExceptHandler) and node.name}


class Value(NamedTuple):
    """An expression that is returned, assigned or added to something by a statement."""

    node: ast.expr
    step: Step


class Flow:
    def __init__(self, function: Function) -> None:
        self.parameters = frozenset(argument.arg for argument in parameters(function))
        self.returns: list[Value] = []
        # What is built piece by piece: `lines.append(…)`, `text += …`.
        self.gathered: dict[str, list[Value]] = {}
        self.assigned: dict[str, list[Value]] = {}
        self.is_generator = False
        for step in _steps(function, ()):
            own = (part for part in ast.iter_child_nodes(step.node) if isinstance(part, ast.expr))
            yields = (isinstance(part, ast.Yield | ast.YieldFrom) for each in own for part in ast.walk(each))
            self.is_generator = self.is_generator or any(yields)
            self._note(step)

    def alternatives(self, value: Value, seen: set[ast.expr] | None = None) -> Iterator[Value]:
        """The expressions that a value may come from, with their statements."""
        seen = set() if seen is None else seen
        if value.node in seen:
            return
        seen.add(value.node)
        sources: list[Value] = []
        match value.node:
            case ast.IfExp(body=one, orelse=other):
                sources = [Value(one, value.step), Value(other, value.step)]
            case ast.BoolOp(values=values):
                sources = [Value(each, value.step) for each in values]
            case ast.Await(value=inner) | ast.NamedExpr(value=inner):
                sources = [Value(inner, value.step)]
            case ast.Name(id=name):
                yield value
                sources = self.reaching(name, value.step)
            case _:
                yield value
        for source in sources:
            yield from self.alternatives(source, seen)

    def reaching(self, name: str, step: Step) -> list[Value]:
        """The assignments to a name that may reach a statement."""
        before = [each for each in self.assigned.get(name, []) if each.step.node.lineno < step.node.lineno]
        return [
            each
            for index, each in enumerate(before)
            if not any(_overwrites(later.step, each.step, step) for later in before[index + 1 :])
        ]

    def _note(self, step: Step) -> None:
        match step.node:
            case ast.Return(value=ast.expr() as value):
                self.returns.append(Value(value, step))
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                self.assigned.setdefault(name, []).append(Value(value, step))
            case (
                ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=value)
                | ast.Expr(
                    value=ast.Call(
                        func=ast.Attribute(value=ast.Name(id=name), attr="append" | "extend" | "insert"),
                        args=[*_, value],
                    )
                )
            ):
                self.gathered.setdefault(name, []).append(Value(value, step))


def _steps(node: ast.AST, blocks: tuple[tuple[ast.AST, str], ...]) -> Iterator[Step]:
    for part in _PARTS:
        for child in getattr(node, part, ()):
            if isinstance(child, ast.stmt):
                yield Step(child, (*blocks, (node, part)))
            if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from _steps(child, (*blocks, (node, part)))


def _overwrites(later: Step, earlier: Step, reader: Step) -> bool:
    """Whether every path from the earlier statement to the reader passes the later one.

    It does if the later one is in a block around the earlier one, or in another block that the reader is in, too.
    """
    around = later.blocks
    return around in (earlier.blocks[: len(around)], reader.blocks[: len(around)])
