"""What every command shares: exit codes, argument parsing, and output.

Strategy: standard output belongs to the result alone, and is written as bytes so that no locale can spoil it. A
pipe or a file gets those exact bytes; a terminal gets the same text with control characters escaped, because a
payload comes from a stranger. Messages for people go to standard error, one line each, coloured only on a
terminal. A misspelled name is answered with the nearest right one.
"""

from __future__ import annotations

import argparse
import codecs
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Literal, NoReturn, TextIO, TypeVar

from .. import __version__
from ..extras import lacking
from ..spelling import did_you_mean

_Choice = TypeVar("_Choice", bound=str)

OK: Final = 0
USAGE: Final = 2
BAD_INPUT: Final = 3
TOO_LARGE: Final = 4
# A stored result cannot be read; the error code printed with it says why.
UNREAD: Final = 5
INTERRUPTED: Final = 130
# What a shell reports for a program that was ended by a closed pipe.
BROKEN_PIPE: Final = 141

Tone = Literal["error", "warning", "note", "hint", "done"]
_COLOURS: Final[dict[Tone, str]] = {
    "error": "31",
    "warning": "33",
    "note": "36",
    "hint": "36",
    "done": "32",
}
# C0 and C1 except tab and newline, the line separators, and the characters that change writing direction.
_UNSAFE: Final = {
    code: chr(code).encode("unicode_escape").decode()
    for code in (*range(32), *range(127, 160), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
    if chr(code) not in "\t\n"
}
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_AGES: Final = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))


class BadInput(Exception):
    """A file cannot be read, understood or written. The message names it, with line and column if known."""


class Misuse(Exception):
    """Options that do not work together, or not with what is installed. `main` refers to --help."""


# -- arguments ----------------------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """Reports a mistake in one line, with the name that was probably meant.

    `takes` names the positional argument in messages.
    """

    def __init__(self, command: str, usage: str, description: str, epilog: str, takes: str = "file") -> None:
        program = f"mcp-envelope {command}".rstrip()
        super().__init__(
            prog=program,
            usage="\n       ".join(f"{program} {line}" for line in usage.splitlines()),
            description=description,
            epilog=epilog,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self._takes = takes
        self._groups: dict[str, argparse._ActionsContainer] = {"": self}
        self.add_argument("-V", "--version", action="version", version=f"mcp-envelope {__version__}")

    def options(self, title: str = "", *, exclusive: bool = False) -> Callable[..., None]:
        """Return the function that adds options under a title; see `_add`."""
        if title not in self._groups:
            self._groups[title] = self.add_argument_group(title)
        group = self._groups[title]
        return partial(_add, group.add_mutually_exclusive_group() if exclusive else group)

    def budget_options(self, title: str, tokens: str, meter: str) -> None:
        limit, add = self.options(title, exclusive=True), self.options(title)
        limit("--tokens N", tokens, positive_number)
        limit("--bytes N", "the same in bytes", positive_number)
        add("--meter METER", meter, meter_name)

    def vault_option(self, title: str = "") -> None:
        where = "a file, sqlite:///PATH, valkey://HOST:PORT, rediss://HOST:PORT, or none"
        default = "MCP_ENVELOPE_VAULT, else a file in your state folder"
        self.options(title)("--vault URL", f"where whole results are kept: {where} (default: {default})")

    def parse_args(self, args: Sequence[str], namespace: Any = None) -> Any:  # type: ignore[override]
        known, unknown = self.parse_known_args(args, namespace)
        if unknown:
            name = unknown[0].partition("=")[0]
            self.check_option(name)
            self.error(f"at most one {self._takes}; unexpected argument {name!r}")
        return known

    def check_option(self, name: str) -> None:
        """Report an argument that the parser doesn't know, if it looks like an option."""
        if name.startswith("-"):
            # One letter resembles any other: only long options are worth a suggestion.
            known = [option for option in self._option_string_actions if option.startswith("--")]
            self.error(f"there is no option {name!r}{did_you_mean(name, known) if len(name) > 2 else ''}")

    def error(self, message: str) -> NoReturn:
        say("error", f"{message} (see {self.prog} --help)")
        raise SystemExit(USAGE)


def _add(
    group: argparse._ActionsContainer,
    spelling: str,
    about: str,
    kind: Callable[[str], Any] = str,
    **more: Any,
) -> None:
    """Add an option, spelled as --help shows it: `--tokens N` takes a value, `--json` is a switch."""
    *names, last = spelling.split()
    if last.startswith("-"):
        group.add_argument(*names, last, action="store_true", help=about, **more)
    else:
        group.add_argument(*names, metavar=last, type=kind, help=about, **more)


def one_of(choices: Sequence[_Choice]) -> Callable[[str], _Choice]:
    """A type for an argument that takes one of a few names. They are its first argument, for the completion."""
    return partial(_chosen, choices)


def _chosen(choices: Sequence[_Choice], text: str) -> _Choice:
    for choice in choices:
        if text == choice:
            return choice
    raise argparse.ArgumentTypeError(
        f"{text!r} is not one of {', '.join(choices)}{did_you_mean(text, choices)}"
    )


def meter_name(text: str) -> str:
    # Imported only if one is named: nothing should delay the start of the proxy.
    from ..budget import METERS

    return one_of(METERS)(text)


def dialect_name(text: str) -> str:
    from ..dialects import NAMES

    if text in NAMES:
        return text
    from ..dialects import dialect, registry

    try:
        found = registry.located(text, os.getcwd())
        dialect(found)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return found


def whole_number(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number") from None
    if number > sys.maxsize:
        raise argparse.ArgumentTypeError(f"{text[:40]} is too large a number")
    return number


def positive_number(text: str) -> int:
    number = whole_number(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not a positive number")
    return number


def plain_text(text: str) -> str:
    """Text that can go into a result; an argument that was not UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not valid UTF-8") from None
    return text


def names(text: str) -> list[str]:
    """Names that are separated by commas."""
    return [name.strip() for name in plain_text(text).split(",") if name.strip()]


def extra(name: str) -> str:
    """How to get what a command lacks, with and without uvx."""
    wanted, lacks = f"'mcp-envelope[{name}]'", lacking(name)
    because = f" ({lacks})" if lacks else ""
    return f"needs the extra [{name}]{because}: pip install {wanted}, or uvx --from {wanted} mcp-envelope …"


# -- messages for people ------------------------------------------------------------------------------------


def say(tone: Tone, message: str) -> None:
    """Print one line for a person."""
    stream = sys.stderr
    if stream is None:  # closed; print() would fall back to standard output
        return
    words = f"{tone}: {printable(message)}" if tone != "done" else printable(message)
    if has_colour(stream):
        head, colon, rest = words.partition(":")
        words = f"\x1b[{_COLOURS[tone]}m{head}{colon}\x1b[0m{rest}"
    stream.write(f"{words}\n")
    stream.flush()


def say_if_started_by_hand(advice: str) -> None:
    """Programs start our servers; a person who does would wait for something to happen."""
    if sys.stdin is not None and sys.stdin.isatty():
        say("note", f"waiting for an MCP client on standard input (Ctrl-C ends it). {advice}")


def confirms(question: str) -> bool:
    """Ask the person at the terminal; anything but yes is no."""
    sys.stderr.write(f"{printable(question)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def has_colour(stream: TextIO | None) -> bool:
    if stream is None or not stream.isatty():
        return False
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def printable(text: str) -> str:
    """The text with control characters and other unprintable ones escaped."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def reason(error: OSError | ValueError) -> str:
    words = getattr(error, "strerror", None) or str(error)
    return str(words[:1].lower() + words[1:])


@contextmanager
def trouble(doing: str) -> Iterator[None]:
    """Report that a file cannot be read or written: `doing` is `read FILE`."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot {doing}: {reason(error)}") from None


def command(*words: str) -> str:
    """A command line that can be pasted into a shell."""
    return " ".join(map(_quoted, words))


def option(name: str, value: object) -> list[str]:
    """An option and its value, joined by `=` where the value could be taken for an option."""
    text = str(value)
    return [f"{name}={text}"] if text.startswith("-") else [name, text]


def _quoted(word: str) -> str:
    import shlex

    if word.isprintable():
        return shlex.quote(word)
    # Unprintable characters would be escaped on their way to the terminal, so use the shell's own escapes.
    escaped = "".join(
        char
        if char.isprintable() and char not in "\\'"
        else "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))
        for char in word
    )
    return f"$'{escaped}'"


def counted(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def human_size(size: float) -> str:
    unit = 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {_UNITS[unit]}" if unit else f"{size:.0f} B"


def human_time(seconds: float) -> str:
    """A length of time in its one or two largest units."""
    left = max(round(seconds), 0)
    said: list[str] = []
    for name, length in _AGES:
        count, left = divmod(left, length)
        if count or said:
            said.append(f"{count}{name}" if count else "")
    return " ".join(filter(None, said[:2])) or "0s"


# -- standard output ----------------------------------------------------------------------------------------


def is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def show(chunks: Iterable[bytes]) -> None:
    """Write UTF-8 to standard output, escaped if that is a terminal."""
    if not is_terminal():
        for chunk in chunks:
            write_out(chunk)
        return
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    last = "\n"
    for chunk in chunks:
        text = decoder.decode(chunk)
        last = text[-1:] or last
        write_out(text.translate(_UNSAFE).encode())
    if last != "\n":
        # Keep the shell prompt on a line of its own.
        write_out(b"\n")


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


def write_text(text: str) -> None:
    write_out(text.encode("utf-8", "backslashreplace"))


def write_json(value: object) -> None:
    import json

    write_text(json.dumps(value, ensure_ascii=False, indent=2, default=dict) + "\n")


def table(
    rows: Sequence[Sequence[str]],
    header: Sequence[str] = (),
    *,
    right: Collection[int] = (),
    dim: Callable[[Sequence[str]], bool] = lambda row: False,
) -> str:
    """Rows for a person as aligned columns under a header, and for a program with tabs and no header.

    Columns at `right` are aligned to the right; colour dims the header and the rows that matter less.
    """
    if not is_terminal():
        return "".join("\t".join(row).rstrip() + "\n" for row in rows)
    rows = [header, *rows] if header else rows
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = enumerate(zip(row, widths, strict=True))
        line = "  ".join(
            f"{cell:{'>' if at in right else '<'}{width}}" for at, (cell, width) in cells
        ).rstrip()
        is_dim = has_colour(sys.stdout) and (row is header or dim(row))
        lines.append(f"\x1b[2m{line}\x1b[0m\n" if is_dim else f"{line}\n")
    return "".join(lines)


def shortened(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def abandon() -> None:
    """Discard what is still buffered, so that the interpreter exits quietly when the reader has gone."""
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
