"""The linter: find the files, look for findings, fix the simple ones.

Strategy: findings come out in the order of the file, without those that a comment silences or that were not asked
for. Fixing goes on until nothing is left to fix, so that doing it again changes nothing, and the result is parsed
as Python before anybody sees it. Folders are walked for `*.py`, in order, without what nobody wrote by hand: hidden
folders, virtual environments, caches, build output. Links to folders are not followed.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from .checks import Checks
from .fixes import Fixes
from .rules import RULES, Finding
from .source import NotPython, Replacement, SourceFile, Suppressions

_ROUNDS: Final = 10
_NOT_WALKED: Final = frozenset({"__pycache__", "build", "dist", "node_modules", "site-packages", "venv"})


class Fixed(NamedTuple):
    data: bytes
    fixed: int


def lint(source: SourceFile, rules: Collection[str] = tuple(RULES)) -> list[Finding]:
    return list(_planned(source, rules))


def lint_tree(tree: ast.Module) -> list[Finding]:
    """The findings in a tree, for callers that silence them in their own way. Columns are in bytes."""
    try:
        return Checks(tree).findings()
    except RecursionError:
        return []


def fix(source: SourceFile, rules: Collection[str] = tuple(RULES)) -> Fixed:
    """Return the file's bytes with the simple cases fixed, and how many findings that removed."""
    count = 0
    for _ in range(_ROUNDS if source.can_be_written else 0):
        plans = [edits for edits in _planned(source, rules).values() if edits]
        if not plans:
            break
        try:
            source = SourceFile(source.edited([edit for edits in plans for edit in edits]))
        except NotPython:  # a bug of ours: better no fix than a broken file
            break
        count += len(plans)
    return Fixed(source.data, count)


def _planned(source: SourceFile, rules: Collection[str]) -> dict[Finding, list[Replacement]]:
    """The findings in order, each with the edits that fix it, if there are any."""
    if b"tool" not in source.utf8.lower():
        return {}  # no tool can be registered without the word
    try:
        checks = Checks(source.tree, source.column)
        found = [each for each in checks.findings() if each.rule in rules]
        if not found:
            return {}
        suppressions = Suppressions(source.tokens)  # slower than all the rest
        found = sorted(each for each in found if not suppressions.hides(each.rule, each.line))
        plans = Fixes(source, checks.expressions).plan(found)
    except RecursionError:
        raise NotPython("nested too deeply") from None
    return {replace(each, fixable=each in plans): plans.get(each, []) for each in found}


def python_files(paths: Iterable[str], complain: Callable[[OSError], None]) -> Iterator[str]:
    """Yield every file once: those named, whatever they are called, and the `*.py` in the folders named."""
    seen: set[str] = set()
    for path in paths:
        for found in _walk(path, complain) if os.path.isdir(path) else (path,):
            if os.path.normpath(found) not in seen:
                seen.add(os.path.normpath(found))
                yield found


def _walk(folder: str, complain: Callable[[OSError], None]) -> Iterator[str]:
    for here, folders, files in os.walk(folder, onerror=complain):
        folders[:] = sorted(name for name in folders if _is_walked(here, name))
        for name in sorted(files):
            path = os.path.join(here, name)
            # Reading a pipe named x.py would block.
            if name.endswith(".py") and os.path.isfile(path):
                yield path.removeprefix("./")


def _is_walked(here: str, name: str) -> bool:
    if name.startswith(".") or name in _NOT_WALKED:
        return False
    return not os.path.exists(os.path.join(here, name, "pyvenv.cfg"))
