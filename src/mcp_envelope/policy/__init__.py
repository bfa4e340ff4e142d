"""Settings and where they come from: one table of them, and the layers that give them values.

`Settings` finds and watches the files and the environment; its `policy` says what applies to a call. To add
a setting, add a field to `Policy` in `table.py`: everything else follows from that.
"""

from .allowance import Allowance
from .settings import Settings
from .table import BUDGET_ARGUMENT, PROFILES, SETTINGS, Policy, Setting

__all__ = ["BUDGET_ARGUMENT", "PROFILES", "SETTINGS", "Allowance", "Policy", "Setting", "Settings"]
