"""Every MCP tool result in one envelope: it fits the budget, stays valid, and loses nothing.

The names load when they are first used, so that a command which needs none of them starts in a blink.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .budget import Budget
    from .envelope import seal
    from .faults import JSONError
    from .fitting import Cut
    from .payload import PayloadError
    from .ranking import Key, Ranking, rank
    from .schema import Schema, SchemaError, Widened, widen
    from .sealed import Report, Sealed

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

_HOMES = {
    "Budget": "budget",
    "Cut": "fitting",
    "JSONError": "faults",
    "Key": "ranking",
    "PayloadError": "payload",
    "Ranking": "ranking",
    "Report": "sealed",
    "Schema": "schema",
    "SchemaError": "schema",
    "Sealed": "sealed",
    "Widened": "schema",
    "rank": "ranking",
    "seal": "envelope",
    "widen": "schema",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
