"""Every MCP tool result in one envelope: it fits the budget, stays valid, and loses nothing."""

from .budget import Budget
from .envelope import Report, Sealed, seal
from .fitting import Cut
from .jsontree import JSONError
from .payload import PayloadError
from .ranking import Key, Ranking, rank
from .schema import Schema, SchemaError
from .widening import Widened, widen

__version__ = "0.1.0"

__all__ = [
    "Budget",
    "Cut",
    "JSONError",
    "Key",
    "PayloadError",
    "Ranking",
    "Report",
    "Schema",
    "SchemaError",
    "Sealed",
    "Widened",
    "__version__",
    "rank",
    "seal",
    "widen",
]
