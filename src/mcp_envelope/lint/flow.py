"""What may reach a return of a function.

Strategy: the statements of a function are listed once, each with the blocks, loops and exception handlers around
it. A returned name is followed to the assignments that may reach the return, without those that are certainly
overwritten. Values are never computed, and nothing is followed through another call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .names import Function, parameters


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A statement and what is around it."""

    node: ast.stmt
    blocks: tuple[int, ...]
    loops: tuple[ast.For | ast.AsyncFor, ...]
    caught: frozenset[str]


class Returned(NamedTuple):
    node: ast.Return
    value: ast.expr
    step: Step


class _Assigned(NamedTuple):
    value: ast.expr
    step: Step


class Flow:
    def __init__(self, function: Function) -> None:
        self.parameters = frozenset(argument.arg for argument in parameters(function))
        self.returns: list[Returned] = []
        self.is_generator = False
        # What is built piece by piece: `lines.append(…)`, `text += …`.
        self.gathered: dict[str, list[_Assigned]] = {}
        self.assigned: dict[str, list[_Assigned]] = {}
        self._list(function.body, (), (), frozenset())

    def alternatives(
        self, value: ast.expr, step: Step, seen: set[ast.expr] | None = None
    ) -> Iterator[tuple[ast.expr, Step]]:
        """The expressions that a value may come from, with their statements."""
        seen = set() if seen is None else seen
        if value in seen:
            return
        seen.add(value)
        match value:
            case ast.IfExp(body=one, orelse=other):
                yield from self.alternatives(one, step, seen)
                yield from self.alternatives(other, step, seen)
            case ast.BoolOp(values=values):
                for each in values:
                    yield from self.alternatives(each, step, seen)
            case ast.Await(value=inner) | ast.NamedExpr(value=inner):
                yield from self.alternatives(inner, step, seen)
            case ast.Name(id=name):
                yield value, step
                for assigned in self.reaching(name, step):
                    yield from self.alternatives(assigned.value, assigned.step, seen)
            case _:
                yield value, step

    def reaching(self, name: str, step: Step) -> list[_Assigned]:
        """The assignments to a name that may reach a statement."""
        before = [each for each in self.assigned.get(name, []) if each.step.node.lineno < step.node.lineno]
        return [
            each
            for index, each in enumerate(before)
            if not any(_overwrites(later.step, each.step, step) for later in before[index + 1 :])
        ]

    def _list(
        self,
        body: list[ast.stmt],
        blocks: tuple[int, ...],
        loops: tuple[ast.For | ast.AsyncFor, ...],
        caught: frozenset[str],
    ) -> None:
        blocks = (*blocks, id(body))
        for node in body:
            step = Step(node, blocks, loops, caught)
            self._note(node, step)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            self.is_generator = self.is_generator or _yields(node)
            inner = (*loops, node) if isinstance(node, ast.For | ast.AsyncFor) else loops
            for name in ("body", "orelse", "finalbody"):
                self._list(getattr(node, name, []), blocks, inner, caught)
            for handler in getattr(node, "handlers", []):
                names = caught | {handler.name or ""}
                self._list(handler.body, blocks, inner, names)
            for case in getattr(node, "cases", []):
                self._list(case.body, blocks, inner, caught)

    def _note(self, node: ast.stmt, step: Step) -> None:
        match node:
            case ast.Return(value=ast.expr() as value):
                self.returns.append(Returned(node, value, step))
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                self.assigned.setdefault(name, []).append(_Assigned(value, step))
            case (
                ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=value)
                | ast.Expr(
                    value=ast.Call(
                        func=ast.Attribute(value=ast.Name(id=name), attr="append" | "extend" | "insert"),
                        args=[*_, value],
                    )
                )
            ):
                self.gathered.setdefault(name, []).append(_Assigned(value, step))


def _overwrites(later: Step, earlier: Step, reader: Step) -> bool:
    """Whether every path from the earlier statement to the reader passes the later one."""
    around = later.blocks
    return earlier.blocks[: len(around)] == around or (
        # In another block than the earlier one, but in the reader's own: the reader passes it.
        reader.blocks[: len(around)] == around
    )


def _yields(node: ast.stmt) -> bool:
    """Whether the statement itself yields, not counting its blocks."""
    parts: list[ast.AST] = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
    while parts:
        part = parts.pop()
        if isinstance(part, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(part, ast.Lambda):
            parts.extend(ast.iter_child_nodes(part))
    return False
