"""Settings and where they come from: one table of them, and the layers that give them values.

`Settings` finds and watches the files and the environment; its `policy` says what applies to a call. To add a
setting, add a field to `Policy` in `policy.py`: everything else follows from that.
"""

from .policy import BUDGET_ARGUMENT, BUILT_IN, SETTINGS, Policy, Shape
from .settings import Settings
from .values import PREFIX, Setting

__all__ = [
    "BUDGET_ARGUMENT",
    "BUILT_IN",
    "PREFIX",
    "SETTINGS",
    "Policy",
    "Setting",
    "Settings",
    "Shape",
]
