"""The migration guard: finds MCP tools that bypass the envelope, and fixes the simple cases.

Strategy: only the standard library reads the code (`ast`, `tokenize`); nothing is imported or run. `module` follows
names and values, `tools` finds the functions that are tools, `checks` what is wrong with what they return; `fixes`
repairs the simple cases, until none is left, so that doing it again changes nothing. Findings come out in the order
of the file, without those that a comment silences. A finding must be defensible: when in doubt, there is none.
Nothing else of the package is used here.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from .checks import findings
from .expressions import Expressions
from .fixes import Fixes
from .module import Module
from .rules import RULES, Finding, LintRule
from .source import NotPython, Replacement, SourceFile, is_off, silenced

__all__ = ["RULES", "Finding", "Fixed", "LintRule", "NotPython", "SourceFile", "fix", "lint"]
_ROUNDS: Final = 10
# What nobody wrote by hand, besides hidden folders and virtual environments.
_NOT_WALKED: Final = frozenset({"__pycache__", "build", "dist", "node_modules", "site-packages", "venv"})


class Fixed(NamedTuple):
    data: bytes
    fixed: int


def lint(source: SourceFile, rules: Collection[str] = tuple(RULES)) -> list[Finding]:
    return list(_planned(source, rules))


def lint_tree(tree: ast.Module) -> list[Finding]:
    """The findings in a tree, for callers that silence them in their own way. Columns are in bytes."""
    try:
        module = Module(tree)
        return findings(module, Expressions(module))
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
        module = Module(source.tree)
        expressions = Expressions(module)
        found = sorted(each for each in findings(module, expressions, source.column) if each.rule in rules)
        if not found or is_off(source.tokens):  # tokens are slower than all the rest
            return {}
        quiet = silenced(source.tokens)
        found = [each for each in found if not each.rule.startswith(quiet.get(each.line, ()))]
        plans = Fixes(source, expressions).plan(found)
    except RecursionError:
        raise NotPython("nested too deeply") from None
    return {replace(each, fixable=each in plans): plans.get(each, []) for each in found}


def python_files(paths: Iterable[str], complain: Callable[[OSError], None]) -> Iterator[str]:
    """Yield every file once: those named, whatever they are called, and the `*.py` in folders, in order."""
    seen: set[str] = set()
    for path in paths:
        for found in _walk(path, complain) if os.path.isdir(path) else (path,):
            if os.path.normpath(found) not in seen:
                seen.add(os.path.normpath(found))
                yield found


def _walk(folder: str, complain: Callable[[OSError], None]) -> Iterator[str]:
    for here, folders, files in os.walk(folder, onerror=complain):  # which does not follow links
        folders[:] = [
            name
            for name in sorted(folders)
            if not name.startswith(".")
            and name not in _NOT_WALKED
            and not os.path.exists(os.path.join(here, name, "pyvenv.cfg"))
        ]
        for path in (os.path.join(here, name) for name in sorted(files)):
            # Reading a pipe named x.py would block.
            if path.endswith(".py") and os.path.isfile(path):
                yield path.removeprefix("./")
