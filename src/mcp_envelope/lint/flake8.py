"""The rules as a flake8 plugin.

Strategy: flake8 parses the file, selects rules and reads `# noqa` itself; the plugin only says what it found, in
flake8's form. `# mcp-envelope: off` is ours and is read here.
"""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Iterator
from typing import ClassVar

from .. import __version__
from .run import lint_tree
from .suppressions import Suppressions


class Plugin:
    name: ClassVar[str] = "mcp-envelope"
    version: ClassVar[str] = __version__

    def __init__(self, tree: ast.Module, file_tokens: list[tokenize.TokenInfo]) -> None:
        self._tree = tree
        self._is_off = Suppressions(file_tokens).is_off

    def run(self) -> Iterator[tuple[int, int, str, type[Plugin]]]:
        if not self._is_off:
            for spot in lint_tree(self._tree):
                yield spot.node.lineno, spot.node.col_offset, f"{spot.rule} {spot.message}", type(self)
