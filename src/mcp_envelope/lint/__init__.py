"""The migration guard: finds MCP tools that bypass the envelope.

Strategy: only the standard library reads the code (`ast`, `tokenize`); nothing is imported or run. `tools` says
which functions are tools, `flow` what may reach a return, `checks` what is wrong with it, `fixes` how the
simple cases are mended. A finding must be defensible: in doubt, nothing is said.
"""

from __future__ import annotations

from .lines import NotPython, Source
from .rules import RULES, Finding, Rule
from .run import Mended, lint, mend

__all__ = ["RULES", "Finding", "Mended", "NotPython", "Rule", "Source", "lint", "mend"]
