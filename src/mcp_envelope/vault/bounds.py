"""What a search in a stored payload may cost, and what is said when it is wrong or costs more.

Strategy: whoever searches tells a `Budget` of every loop before it runs and of everything it builds before it
is built. Steps and memory are counted, so the same search always ends the same way; the clock is asked every
so many steps, for whatever the count does not see.
"""

from __future__ import annotations

import time
from typing import Final, NoReturn

# So many steps go by between two looks at the clock: a few milliseconds of work.
_UNWATCHED: Final = 1 << 13
_SHOWN: Final = 32


class BadQuery(Exception):
    """The expression or pattern cannot be used. `position` is the character where the mistake is, from 0."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.message = message
        self.position = position


class TooCostly(Exception):
    """The search was stopped. The message says what it needed too much of, and what would be less."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Budget:
    """What is left to one search. Spending more than there is raises `TooCostly`."""

    def __init__(self, *, seconds: float, steps: int, memory: int, advice: str) -> None:
        self._end = time.monotonic() + seconds
        self._seconds = seconds
        self._most_steps = steps
        self._most_memory = memory
        self._advice = advice
        self._next = min(_UNWATCHED, steps)
        self.steps = 0
        self.held = 0

    @property
    def room(self) -> int:
        """Memory that is left."""
        return max(self._most_memory - self.held, 0)

    def spend(self, steps: int) -> None:
        """Work that is about to be done."""
        self.steps += steps
        if self.steps > self._next:
            if self.steps > self._most_steps:
                self.refuse(f"it takes more than {self._most_steps:,} steps")
            self._next = min(self.steps + _UNWATCHED, self._most_steps)
            self.look()

    def look(self) -> None:
        """Ask the clock."""
        if time.monotonic() > self._end:
            self.refuse(f"it takes more than {self._seconds:g} seconds")

    def hold(self, size: int) -> None:
        """Memory that is about to be taken, in bytes."""
        self.held += size
        if self.held > self._most_memory:
            self.refuse(f"it needs more than {self._most_memory / (1 << 20):.0f} MB of memory")

    def refuse(self, why: str) -> NoReturn:
        raise TooCostly(f"stopped, because {why}. {self._advice}")


def shown(text: str, position: int) -> str:
    """The place of a mistake, for people: some characters before and after it, and a mark in between."""
    before, after = text[max(position - _SHOWN, 0) : position], text[position : position + _SHOWN]
    head = "…" if position > _SHOWN else ""
    tail = "…" if position + _SHOWN < len(text) else ""
    return f"{head}{printable(before)} <-- HERE {printable(after)}{tail}".strip()


def printable(text: str) -> str:
    """The text without anything that would upset a terminal or an encoder."""
    return "".join([char if char.isprintable() else ascii(char)[1:-1] for char in text])
