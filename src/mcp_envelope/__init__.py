"""Every MCP tool result in one envelope: it fits the budget, stays valid, and loses nothing.

The names load when they are first used, so that a command which needs none of them starts in a blink.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .budget import Budget
    from .context import describe_call, fallback, index_age, stale, upgrade, warn
    from .envelope import seal
    from .faults import JSONError
    from .fitting import Cut
    from .outcome import Failure, Link, Miss, Reply
    from .payload import PayloadError
    from .ranking import Key, Ranking, rank
    from .schema import Schema, SchemaError, Widened, widen
    from .sealed import Report, Sealed
    from .servers.declaring import enveloped

__version__ = "0.1.0"

__all__ = [
    "Budget",
    "Cut",
    "Failure",
    "JSONError",
    "Key",
    "Link",
    "Miss",
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
    "seal",
    "stale",
    "upgrade",
    "warn",
    "widen",
]

_HOMES = {
    "Budget": "budget",
    "Cut": "fitting",
    "Failure": "outcome",
    "JSONError": "faults",
    "Key": "ranking",
    "Link": "outcome",
    "Miss": "outcome",
    "PayloadError": "payload",
    "Ranking": "ranking",
    "Reply": "outcome",
    "Report": "sealed",
    "Schema": "schema",
    "SchemaError": "schema",
    "Sealed": "sealed",
    "Widened": "schema",
    "describe_call": "context",
    "enveloped": "servers.declaring",
    "fallback": "context",
    "index_age": "context",
    "rank": "ranking",
    "seal": "envelope",
    "stale": "context",
    "upgrade": "context",
    "warn": "context",
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
