"""The rules as a flake8 plugin.

flake8 parses the file, selects the rules and reads `# noqa` itself; the plugin only reports what it found, in
flake8's form. `# mcp-envelope: off` is our own comment and is read here.
"""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Iterator
from typing import ClassVar

from .. import __version__
from . import lint_tree
from .source import is_off


class Plugin:
    name: ClassVar[str] = "mcp-envelope"
    version: ClassVar[str] = __version__

    def __init__(self, tree: ast.Module, file_tokens: list[tokenize.TokenInfo]) -> None:
        self._tree = tree
        self._is_off = is_off(file_tokens)

    def run(self) -> Iterator[tuple[int, int, str, type[Plugin]]]:
        if not self._is_off:
            for found in lint_tree(self._tree):
                yield found.line, found.column, f"{found.rule} {found.message}", type(self)
