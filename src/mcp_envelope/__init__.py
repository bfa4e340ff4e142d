"""Every MCP tool result in one envelope: it fits the budget, stays valid, and loses nothing.

Names are loaded on first use, so that a command that needs none of them starts quickly.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .budget import Budget
    from .dialects import BudgetRange, Dialect
    from .dialects.registry import register_dialect
    from .envelope import Report, Sealed, seal
    from .fit.documents import Cut
    from .fit.ranking import Key, Ranking, rank
    from .jsontext.errors import JSONError
    from .outcome import (
        Failure,
        Link,
        Miss,
        Outcome,
        Reply,
        describe_call,
        fallback,
        index_age,
        stale,
        upgrade,
        warn,
    )
    from .payload import PayloadError
    from .schema import Schema, SchemaError, Widened, widen
    from .servers.declare import enveloped

__version__ = "0.1.0"

__all__ = [
    "Budget",
    "BudgetRange",
    "Cut",
    "Dialect",
    "Failure",
    "JSONError",
    "Key",
    "Link",
    "Miss",
    "Outcome",
    "PayloadError",
    "Ranking",
    "Reply",
    "Report",
    "Schema",
    "SchemaError",
    "Sealed",
    "Widened",
    "__version__",
    "describe_call",
    "enveloped",
    "fallback",
    "index_age",
    "rank",
    "register_dialect",
    "seal",
    "stale",
    "upgrade",
    "warn",
    "widen",
]

_HOMES = {
    "Budget": "budget",
    "BudgetRange": "dialects",
    "Dialect": "dialects",
    "Outcome": "outcome",
    "register_dialect": "dialects.registry",
    "Cut": "fit.documents",
    "Failure": "outcome",
    "JSONError": "jsontext.errors",
    "Key": "fit.ranking",
    "Link": "outcome",
    "Miss": "outcome",
    "PayloadError": "payload",
    "Ranking": "fit.ranking",
    "Reply": "outcome",
    "Report": "envelope",
    "Schema": "schema",
    "SchemaError": "schema",
    "Sealed": "envelope",
    "Widened": "schema",
    "describe_call": "outcome",
    "enveloped": "servers.declare",
    "fallback": "outcome",
    "index_age": "outcome",
    "rank": "fit.ranking",
    "seal": "envelope",
    "stale": "outcome",
    "upgrade": "outcome",
    "warn": "outcome",
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
