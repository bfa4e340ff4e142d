"""How much a result may have: the budget of each dialect, and what a call may ask for.

Strategy: a dialect has a default, a smallest budget, and sometimes a largest one. Settings move the default
within that range; `max_tokens` bounds what a call's own argument can ask for. Whatever is asked, the answer
is a number in range and, if it is not the number asked for, a sentence about it. No limit at all is an
answer too: scalpel has none.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from ..budget import DEFAULT_TOKENS, MIN_BYTES, MIN_TOKENS
from .names import shown

# What a call may ask for, unless more is configured.
CEILING: Final = 10_000
_NUMBER: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Own:
    """A dialect's own figures. Neither tokens nor bytes: no limit unless one is set."""

    tokens: int | None = None
    bytes: int | None = None
    meter: str = "estimate"
    least_tokens: int = MIN_TOKENS
    least_bytes: int = MIN_BYTES
    most_tokens: int | None = None


OWN: Final = {
    "native": Own(tokens=DEFAULT_TOKENS),
    "ctxo": Own(bytes=8192, least_bytes=1),
    "transcend": Own(tokens=2000, meter="chars4", least_tokens=100, most_tokens=10_000),
    "gel": Own(tokens=DEFAULT_TOKENS),
    "scalpel": Own(),
}


@dataclass(frozen=True, slots=True)
class Allowance:
    """A budget, settled: `limit` in `unit`, counted by `meter`. A call may ask for up to `ceiling`."""

    limit: int | None
    unit: str
    meter: str
    least_tokens: int
    ceiling: int
    # A setting, and what is wrong with it.
    problems: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(
        cls,
        dialect: str,
        tokens: int | None = None,
        max_bytes: int | None = None,
        max_tokens: int | None = None,
        meter: str | None = None,
    ) -> Allowance:
        own = OWN[dialect]
        wrong: list[tuple[str, str]] = []
        ceiling = _ceiling(dialect, own, tokens, max_bytes, max_tokens, wrong)
        if tokens is None and max_bytes is None:
            max_bytes = own.bytes
            tokens = None if own.tokens is None else min(own.tokens, ceiling)
        elif tokens is not None:
            wanted, tokens = tokens, max(own.least_tokens, min(tokens, ceiling))
            if wanted != tokens:
                wrong.append(("tokens", _moved("tokens", wanted, tokens, dialect, max_tokens)))
        elif max_bytes is not None and max_bytes < own.least_bytes:
            wrong.append(("bytes", _moved("bytes", max_bytes, own.least_bytes, dialect, None)))
            max_bytes = own.least_bytes
        if max_bytes is not None:
            return cls(max_bytes, "bytes", "bytes", own.least_tokens, ceiling, tuple(wrong))
        if meter == "bytes":
            wrong.append(("meter", f"the meter bytes goes with a budget in bytes; {own.meter} is used"))
            meter = None
        return cls(tokens, "tokens", meter or own.meter, own.least_tokens, ceiling, tuple(wrong))

    def request(self, requested: object) -> tuple[int | None, str]:
        """The tokens that a call gets for what it asked, None for the default, and a warning or nothing."""
        number, asked = _number(requested), f"tokenBudget {shown(requested)}"
        if number is None:
            default = "no limit" if self.limit is None else f"{self.limit} {self.unit}"
            return None, f"{asked} is not a number of tokens; the default applies: {default}"
        if number > self.ceiling:
            return self.ceiling, f"{asked} was lowered to {self.ceiling}, the largest allowed"
        if number < self.least_tokens:
            return self.least_tokens, f"{asked} was raised to {self.least_tokens}, the smallest"
        whole = math.floor(number)
        return whole, f"{asked} was rounded down to {whole}" if whole != number else ""


def _ceiling(
    dialect: str,
    own: Own,
    tokens: int | None,
    max_bytes: int | None,
    max_tokens: int | None,
    wrong: list[tuple[str, str]],
) -> int:
    """What is configured may be asked for, and so may `CEILING`. A token is about four bytes."""
    wanted = max_tokens if max_tokens is not None else max(CEILING, tokens or 0, (max_bytes or 0) // 4)
    ceiling = max(own.least_tokens, min(wanted, own.most_tokens or wanted))
    if max_tokens is not None and ceiling != max_tokens:
        wrong.append(("max_tokens", _moved("max_tokens", max_tokens, ceiling, dialect, None)))
    return ceiling


def _moved(name: str, wanted: int, used: int, dialect: str, max_tokens: int | None) -> str:
    if wanted < used:
        return f"{name} = {wanted} is less than {dialect} can work with; {used} is used"
    bound = f"{dialect} allows" if max_tokens is None else "max_tokens allows"
    return f"{name} = {wanted} is more than {bound}; {used} is used"


def _number(requested: object) -> int | float | None:
    """What was asked for as a number, infinity included; None if it is none."""
    if isinstance(requested, bool):
        return None
    if isinstance(requested, str):
        text = requested.strip()
        if len(text) > 400 or not _NUMBER.fullmatch(text):
            return None
        # As a whole number where it is one: a float would round a long one.
        requested = int(text) if text.lstrip("+-").isdigit() else float(text)
    if isinstance(requested, float):
        return None if math.isnan(requested) else requested
    return requested if isinstance(requested, int) else None
