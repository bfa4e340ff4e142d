"""The migration guard: finds MCP tools that bypass the envelope.

Strategy: only the standard library reads the code (`ast`, `tokenize`); nothing is imported or run. `tools` finds
the functions that are tools, `flow` what may reach a return, `checks` what is wrong with it; `fixes` repairs the
simple cases. A finding must be defensible: when in doubt, there is none. Nothing else of the package is used here.
"""

from __future__ import annotations

from .linter import Fixed, fix, lint
from .rules import RULES, Finding, LintRule
from .source import NotPython, SourceFile

__all__ = ["RULES", "Finding", "Fixed", "LintRule", "NotPython", "SourceFile", "fix", "lint"]
