"""The kinds of values that settings have: how each is read, spelled in the environment, and described.

Strategy: a kind never raises. What it cannot use it reports, with the path inside the value, and leaves
out, so that one wrong entry costs no more than itself. A number out of range is moved to the nearest end of
the range, which is reported too. The environment knows only text: `parse` turns it into what a file would
have said, and then `read` judges both alike.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol

from .names import nearest, shown

# Called as report(message, *path): the path leads from the setting to what is wrong inside it.
Report = Callable[..., None]


class Unset:
    """The type of UNSET: no value could be read."""


UNSET: Final = Unset()
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,18}(_[0-9]{1,18})*", re.ASCII)
_YES: Final = ("true", "yes", "on", "1")
_NO: Final = ("false", "no", "off", "0")
_AMOUNT: Final = re.compile(r"([0-9]{1,18}(?:_[0-9]{1,18})*(?:\.[0-9]{1,18})?)[ ]*([a-z]*)", re.ASCII)


class Kind(Protocol):
    @property
    def words(self) -> str:
        """The kind in a few words, for the documentation."""

    @property
    def merges(self) -> bool:
        """Whether a stronger layer adds to the value of a weaker one, entry by entry."""

    def read(self, value: object, report: Report) -> Any:
        """The value as a policy holds it, or UNSET."""

    def parse(self, text: str) -> object:
        """What a file would say for this text of the environment."""

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of a value in a file."""


class _Plain:
    merges = False

    def parse(self, text: str) -> object:
        return text


@dataclass(frozen=True)
class Whole(_Plain):
    """A whole number within a range."""

    least: int
    most: int

    @property
    def words(self) -> str:
        return f"whole number, {self.least:,} to {self.most:,}"

    def read(self, value: object, report: Report) -> int | Unset:
        if not isinstance(value, int) or isinstance(value, bool):
            report(f"{shown(value)} is not a whole number")
            return UNSET
        if value < self.least:
            report(f"{shown(value)} is too small; {self.least} is used")
        elif value > self.most:
            report(f"{shown(value)} is too large; {self.most} is used")
        return max(self.least, min(value, self.most))

    def parse(self, text: str) -> object:
        return int(text) if _WHOLE.fullmatch(text.strip()) and len(text) < 1000 else text

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True)
class Amount(_Plain):
    """A time or a size: a number with a unit, or a bare one in the smallest unit. A policy holds the latter."""

    noun: str
    # For people: the smallest unit, and how others are written.
    smallest: str
    example: str
    # By their names in lower case, each as so many of the smallest.
    units: tuple[tuple[str, int], ...]
    least: int
    most: int

    @property
    def words(self) -> str:
        return f"{self.smallest}, or a {self.noun} such as `{self.example}`"

    def read(self, value: object, report: Report) -> int | Unset:
        number = self._number(value)
        if number is None:
            names = ", ".join(name for name, _ in self.units)
            report(f"{shown(value)} is not a {self.noun}; write {self.example} (units: {names})")
            return UNSET
        if number < self.least:
            report(f"{shown(value)} is too small; {self.least} {self.smallest} is used")
        elif number > self.most:
            report(f"{shown(value)} is too large; {self.most} {self.smallest} is used")
        return round(max(self.least, min(number, self.most)))

    def _number(self, value: object) -> float | None:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value if value == value else None  # NaN is no amount
        found = (
            _AMOUNT.fullmatch(value.strip().lower()) if isinstance(value, str) and len(value) < 60 else None
        )
        if found is None:
            return None
        unit = dict(self.units).get(found[2], None if found[2] else 1)
        if unit is None:
            return None
        digits = found[1].replace("_", "")
        return (float(digits) if "." in digits else int(digits)) * unit

    def schema(self) -> dict[str, Any]:
        names = "|".join(name for name, _ in self.units)
        # Capitals do not matter, and JSON Schema knows no other way to say so.
        either = re.sub("[a-z]", lambda letter: f"[{letter[0]}{letter[0].upper()}]", names)
        return {
            "anyOf": [
                {"type": "integer", "minimum": self.least, "maximum": self.most},
                {"type": "string", "pattern": rf"^[0-9][0-9_]*(\.[0-9]+)? *({either})?$"},
            ]
        }


@dataclass(frozen=True)
class Choice(_Plain):
    """One of a few names."""

    names: tuple[str, ...]

    @property
    def words(self) -> str:
        return "one of " + ", ".join(f"`{name}`" for name in self.names)

    def read(self, value: object, report: Report) -> str | Unset:
        if isinstance(value, str) and value in self.names:
            return value
        near = nearest(value, self.names) if isinstance(value, str) else ""
        report(f"{shown(value)} is not one of {', '.join(self.names)}{near}")
        return UNSET

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.names)}


@dataclass(frozen=True)
class Text(_Plain):
    """Any text. `usual` are names to offer, where a user may add more."""

    usual: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        return (
            ", ".join(f"`{name}`" for name in self.usual) + " or a name of your own" if self.usual else "text"
        )

    def read(self, value: object, report: Report) -> str | Unset:
        if not isinstance(value, str):
            report(f"{shown(value)} is not a text")
            return UNSET
        return value if is_sendable(value, report) else UNSET

    def schema(self) -> dict[str, Any]:
        return (
            {"anyOf": [{"enum": list(self.usual)}, {"type": "string"}]} if self.usual else {"type": "string"}
        )


@dataclass(frozen=True)
class Flag(_Plain):
    """True or false."""

    words = "`true` or `false`"

    def read(self, value: object, report: Report) -> bool | Unset:
        if isinstance(value, bool):
            return value
        report(f"{shown(value)} is not true or false")
        return UNSET

    def parse(self, text: str) -> object:
        word = text.strip().lower()
        return word in _YES if word in (*_YES, *_NO) else text

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Names(_Plain):
    """A list of names, each once."""

    words = "list of names"

    def read(self, value: object, report: Report) -> tuple[str, ...] | Unset:
        if not isinstance(value, list | tuple):
            advice = f"; write [{json.dumps(value)}]" if isinstance(value, str) and len(value) < 40 else ""
            report(f"{shown(value)} is not a list of names{advice}")
            return UNSET
        names: dict[str, None] = {}
        for name in value:
            if not isinstance(name, str) or not name:
                report(f"{shown(name)} is not a name")
            elif is_sendable(name, report):
                names[name] = None
        return tuple(names)

    def parse(self, text: str) -> object:
        if text.lstrip().startswith("["):
            return from_json(text)
        return [name.strip() for name in text.split(",") if name.strip()]

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": {"type": "string", "minLength": 1}}


def is_sendable(text: str, report: Report) -> bool:
    """Half a surrogate pair, from a JSON escape or a stray byte of the environment, fits in no result."""
    try:
        text.encode()
    except UnicodeEncodeError:
        report(f"{shown(text)} is not valid UTF-8")
        return False
    return True


def from_json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text  # which `read` will not take, and show
