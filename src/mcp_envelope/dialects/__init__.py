"""The wire shapes. A dialect defines how a fitted payload, and what is known about it, looks to a client.

Strategy: a dialect is a class with a few attributes and one method, `fit`, that takes an immutable plan and
returns two finished lanes. Other code asks the dialect and never compares its name. Each dialect is in its own
file, which is imported on first use.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from ..budget import DEFAULT_TOKENS, MIN_BYTES, MIN_TOKENS, Budget

if TYPE_CHECKING:
    from ..lanes import Lanes, Plan

# Where each class is.
_CLASSES: dict[str, str] = {
    "native": "Native",
    "ctxo": "Ctxo",
    "transcend": "Transcend",
    "gel": "Gel",
    "scalpel": "Scalpel",
}
NAMES: tuple[str, ...] = tuple(_CLASSES)


class BudgetRange(msgspec.Struct, frozen=True):
    """The budget that applies unless one is set, and its range. Neither tokens nor bytes: no limit."""

    tokens: int | None = DEFAULT_TOKENS
    bytes: int | None = None
    meter: str = "estimate"
    least_tokens: int = MIN_TOKENS
    least_bytes: int = MIN_BYTES
    most_tokens: int | None = None


class Dialect:
    """A wire shape. Subclasses override what differs."""

    name: ClassVar[str]
    # Whether a result that fits goes out as it came, without a frame around it. Such a dialect also has a place
    # for content blocks of any kind.
    in_place: ClassVar[bool] = False
    # Whether results can name the handle of a stored payload.
    names_handles: ClassVar[bool] = True
    # The name of the argument for a call's own budget.
    budget_argument: ClassVar[str] = "tokenBudget"
    limits: ClassVar[BudgetRange] = BudgetRange()
    # The environment variable with which the contract itself lets people move its limit.
    limit_variable: ClassVar[str | None] = None

    def budget(self, tokens: int | None, max_bytes: int | None, meter: str | None) -> Budget:
        """Return the requested budget of a call, in this dialect's unit and range."""
        return Budget.of(tokens=tokens, max_bytes=max_bytes, meter=meter)

    def output_schema(self, data: Mapping[str, Any] | bool | None) -> dict[str, Any] | None:
        """Return the schema of `structuredContent`, given the schema of the data."""
        return None

    def fit(self, plan: Plan) -> Lanes:
        """Return the finished lanes, within the plan's budget."""
        raise NotImplementedError


class _Dialects(dict[str, Dialect]):
    def __missing__(self, name: str) -> Dialect:
        if name not in _CLASSES:
            raise ValueError(f"unknown dialect {name!r}; use one of {', '.join(NAMES)}")
        self[name] = getattr(import_module(f".{name}", __name__), _CLASSES[name])()
        return self[name]


# By name; each is created on first use.
DIALECTS: Final = _Dialects()


def dialect(name: str) -> Dialect:
    return DIALECTS[name]
