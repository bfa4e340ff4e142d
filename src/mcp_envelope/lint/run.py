"""The two things to do with a file: look for findings, and mend the simple ones.

Strategy: findings come out in the order of the file, without those that a comment silences or that were not asked
for. Mending goes on until nothing is left that can be mended, so that doing it again changes nothing, and what it
gives is read as Python before anybody sees it.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import replace
from typing import Final, NamedTuple

from .checks import Checks, Spot
from .fixes import Fixes
from .lines import Edit, NotPython, Source
from .rules import RULES, Finding
from .suppressions import Suppressions

_ROUNDS: Final = 10


class Mended(NamedTuple):
    data: bytes
    # How many findings are gone.
    fixed: int


def lint(source: Source, rules: Collection[str] = tuple(RULES)) -> list[Finding]:
    return list(_planned(source, rules))


def lint_tree(tree: ast.Module) -> list[Spot]:
    """The same for whoever has a tree and silences findings in their own way."""
    try:
        return list(Checks(tree).spots())
    except RecursionError:
        return []


def mend(source: Source, rules: Collection[str] = tuple(RULES)) -> Mended:
    """The file's bytes with the simple cases mended."""
    fixed = 0
    for _ in range(_ROUNDS if source.can_be_written else 0):
        plans = [edits for edits in _planned(source, rules).values() if edits]
        if not plans:
            break
        try:
            source = Source(source.edited([edit for edits in plans for edit in edits]))
        except NotPython:  # which would be a mistake of ours: better no fix than a broken file
            break
        fixed += len(plans)
    return Mended(source.data, fixed)


def _planned(source: Source, rules: Collection[str]) -> dict[Finding, list[Edit]]:
    """The findings in order, each with the edits that mend it, if there are any."""
    if b"tool" not in source.utf8.lower():
        return {}  # no way to register one does without the word
    try:
        checks = Checks(source.tree)
        found = [_finding(source, spot) for spot in checks.spots() if spot.rule in rules]
        if not found:
            return {}
        silent = Suppressions(source.tokens)  # which takes longer than all the rest
        found = sorted(each for each in found if not silent.hides(each.rule, each.line))
        plans = Fixes(source, checks.names, checks.shapes).plan(found)
    except RecursionError:
        raise NotPython("nested too deeply") from None
    return {replace(each, fixable=each in plans): plans.get(each, []) for each in found}


def _finding(source: Source, spot: Spot) -> Finding:
    node = spot.node
    end_line = node.end_lineno or node.lineno
    return Finding(
        line=node.lineno,
        column=source.column(node.lineno, node.col_offset),
        rule=spot.rule,
        message=spot.message,
        end_line=end_line,
        end_column=source.column(end_line, node.end_col_offset or 0),
        tool=spot.tool,
        returned=spot.returned,
    )
