"""What one query or search of a stored payload may cost, and the errors it ends with.

Strategy: every loop is announced to a `CostGuard` before it runs, and everything large before it is built. Steps
and memory are counted, so the same search always ends the same way; the clock is read every few thousand
steps, to catch what the count does not see.
"""

from __future__ import annotations

import time
from typing import Final, NoReturn

import msgspec

# Steps between two looks at the clock: a few milliseconds of work.
_CLOCK_EVERY: Final = 1 << 13
_SHOWN: Final = 32


class SearchLimits(msgspec.Struct, frozen=True, kw_only=True):
    # Characters of the expression or pattern, then seconds and steps of work.
    length: int = 4000
    seconds: float = 10.0
    steps: int = 200_000_000
    # Bytes: decoded from one stored value, held in memory, and in the result.
    whole: int = 32 << 20
    memory: int = 256 << 20
    result: int = 64 << 20


class BadQuery(Exception):
    """The expression or pattern cannot be used. `position` is the character where the mistake is, from 0."""

    def __init__(self, what: str, text: str, position: int, example: str = "", hint: str = "") -> None:
        self.hint = hint or "Fix it at the position given."
        self.position = min(max(position, 0), len(text))
        self.message = what
        if example:
            place = _excerpt(text, self.position)
            self.message = f"{what}, at character {self.position}: {place}. An example that works: {example}"
        super().__init__(self.message)


class TooCostly(Exception):
    """The search was stopped. The message says what it needed too much of, and what would cost less."""


class CostGuard:
    """What one search has left. Using more raises `TooCostly`."""

    def __init__(self, limits: SearchLimits, advice: str) -> None:
        self._limits = limits
        self._advice = advice
        self._end = time.monotonic() + limits.seconds
        self.next_look = min(_CLOCK_EVERY, limits.steps)
        self.steps = 0
        self.held = 0

    @property
    def memory_left(self) -> int:
        return max(self._limits.memory - self.held, 0)

    def spend(self, steps: int) -> None:
        """Count work that is about to be done."""
        self.steps += steps
        if self.steps > self.next_look:
            if self.steps > self._limits.steps:
                self.refuse(f"it takes more than {self._limits.steps:,} steps")
            self.next_look = min(self.steps + _CLOCK_EVERY, self._limits.steps)
            self.check_clock()

    def check_clock(self) -> None:
        if time.monotonic() > self._end:
            self.refuse(f"it takes more than {self._limits.seconds:g} seconds")

    def hold(self, size: int) -> None:
        """Count memory that is about to be taken, in bytes."""
        self.held += size
        if self.held > self._limits.memory:
            self.refuse(f"it needs more than {self._limits.memory / (1 << 20):.0f} MB of memory")

    def refuse(self, why: str) -> NoReturn:
        raise TooCostly(f"stopped, because {why}. {self._advice}")


def printable(text: str) -> str:
    """The text without anything that would upset a terminal or an encoder."""
    return "".join([char if char.isprintable() else ascii(char)[1:-1] for char in text])


def _excerpt(text: str, position: int) -> str:
    """The characters around a mistake, with a mark where it is."""
    before, after = text[max(position - _SHOWN, 0) : position], text[position : position + _SHOWN]
    head = "…" if position > _SHOWN else ""
    tail = "…" if position + _SHOWN < len(text) else ""
    return f"{head}{printable(before)} <-- HERE {printable(after)}{tail}".strip()
