"""What every command shares: exit codes, arguments, and words for people.

Strategy: standard output belongs to the result alone, as bytes, so no locale can spoil it. People read
standard error: one line each, in colour only on a terminal, and control characters from a payload never reach
it. A wrong name is answered with the nearest right one.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, NoReturn, TextIO, TypeVar

_Choice = TypeVar("_Choice", bound=str)

SEALED: Final = 0
USAGE: Final = 2
BAD_INPUT: Final = 3
TOO_LARGE: Final = 4
# A stored result cannot be read: the code that goes with it says why.
UNREAD: Final = 5
INTERRUPTED: Final = 130
# What a shell reports for a program that a closed pipe ended.
BROKEN_PIPE: Final = 141

Tone = Literal["error", "warning", "note", "hint", "done"]
_COLOURS: Final[dict[Tone, str]] = {
    "error": "31",
    "warning": "33",
    "note": "36",
    "hint": "36",
    "done": "32",
}


class BadInput(Exception):
    """A file cannot be read, understood or written. The message names it, and line and column if known."""


class Misuse(Exception):
    """Options that do not go together, or not with what is installed."""


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong and, for a wrong name, what was probably meant.

    `takes` is what stands without an option, in a word.
    """

    def __init__(self, *, takes: str = "file", **settings: Any) -> None:
        super().__init__(**settings, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter)
        self._takes = takes

    def parse_args(self, args: Sequence[str], namespace: Any = None) -> Any:  # type: ignore[override]
        known, unknown = self.parse_known_args(args, namespace)
        if unknown:
            name = unknown[0].partition("=")[0]
            self.check_option(name)
            self.error(f"one {self._takes} at most; {name!r} is one too many")
        return known

    def check_option(self, name: str) -> None:
        """Called with an argument that the parser does not know."""
        if name.startswith("-"):
            self.error(f"there is no option {name!r}{nearest(name, self._option_string_actions)}")

    def error(self, message: str) -> NoReturn:
        say("error", f"{message} (see {self.prog} --help)")
        raise SystemExit(USAGE)


def one_of(choices: Sequence[_Choice]) -> Callable[[str], _Choice]:
    """A type for an argument that takes one of a few names."""

    def choose(text: str) -> _Choice:
        for choice in choices:
            if text == choice:
                return choice
        raise argparse.ArgumentTypeError(
            f"{text!r} is not one of {', '.join(choices)}{nearest(text, choices)}"
        )

    return choose


def whole_number(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number") from None
    if number > sys.maxsize:
        raise argparse.ArgumentTypeError("that is more than any computer holds")
    return number


def plain_text(text: str) -> str:
    """Text that can go into a result: an argument that was not UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not valid UTF-8") from None
    return text


def nearest(name: str, names: Iterable[str]) -> str:
    from difflib import get_close_matches

    found = get_close_matches(name, list(names), n=1, cutoff=0.5)
    return f", did you mean {found[0]}?" if found else ""


def say(tone: Tone, message: str) -> None:
    """One line for a person."""
    stream = sys.stderr
    if stream is None:  # a closed standard error: print() would turn to standard output instead
        return
    words = f"{tone}: {printable(message)}" if tone != "done" else printable(message)
    if has_colour(stream):
        head, colon, rest = words.partition(":")
        words = f"\x1b[{_COLOURS[tone]}m{head}{colon}\x1b[0m{rest}"
    stream.write(f"{words}\n")
    stream.flush()


def has_colour(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def printable(text: str) -> str:
    """The text with everything that could move a cursor, or worse, spelled out."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def write_out(result: bytes) -> None:
    if sys.stdout is None:
        raise BadInput("standard output is closed; name a file with --output")
    try:
        sys.stdout.buffer.write(result)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        abandon()
        raise BadInput(f"cannot write to standard output: {reason(error)}") from None


def flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def abandon() -> None:
    """Nobody reads on: send what is still buffered nowhere, so that the end of the program is quiet."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            try:
                os.dup2(nowhere, stream.fileno())
            except (OSError, ValueError, AttributeError):
                continue
    os.close(nowhere)


def reason(error: OSError | ValueError) -> str:
    words = getattr(error, "strerror", None) or str(error)
    return str(words[:1].lower() + words[1:])
