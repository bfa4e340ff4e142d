"""Payloads on a terminal, and in a pipe: what is shown, how far it got, and commands to paste.

Strategy: a pipe and a file get the exact bytes. A terminal gets the same text with everything spelled out that
could move its cursor or worse, since a payload is somebody else's. A command that is shown for pasting is
quoted so that a shell reads back every character of it.
"""

from __future__ import annotations

import codecs
import shlex
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Final

from . import console

# C0 and C1 but for line breaks and tabs, line separators, and what turns the direction of writing.
_UNSAFE: Final = {
    code: chr(code).encode("unicode_escape").decode()
    for code in (*range(32), *range(127, 160), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
    if chr(code) not in "\t\n"
}
# A line about progress comes after so many seconds, and then so often.
_PATIENCE: Final = 1.0
_EVERY: Final = 0.2
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_AGES: Final = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))


def show(chunks: Iterable[bytes]) -> None:
    """Write UTF-8 to standard output."""
    if not is_terminal():
        for chunk in chunks:
            console.write_out(chunk)
        return
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    last = "\n"
    for chunk in chunks:
        text = decoder.decode(chunk)
        last = text[-1:] or last
        console.write_out(text.translate(_UNSAFE).encode())
    if last != "\n":
        # The prompt that follows should begin on a line of its own.
        console.write_out(b"\n")


def is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def watched(chunks: Iterable[bytes], size: int, visible: bool) -> Iterator[bytes]:
    """The same chunks; how many of them there were is told on standard error, if that takes long."""
    stream = sys.stderr if visible and sys.stderr is not None and sys.stderr.isatty() else None
    begun = told = time.monotonic()
    done = 0
    try:
        for chunk in chunks:
            yield chunk
            done += len(chunk)
            now = time.monotonic()
            if stream is not None and now - begun > _PATIENCE and now - told > _EVERY:
                told = now
                stream.write(f"\r{human_size(done)} of {human_size(size)}, {done / max(size, 1):.0%}  ")
                stream.flush()
    finally:
        if stream is not None and told > begun:
            stream.write(f"\r{' ' * 40}\r")
            stream.flush()


def command(*words: str) -> str:
    """A command line to paste."""
    return " ".join(map(_quoted, words))


def option(name: str, value: object) -> list[str]:
    """An option and its value; in one word where the value could be taken for an option."""
    text = str(value)
    return [f"{name}={text}"] if text.startswith("-") else [name, text]


def _quoted(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    # What cannot be printed would be spelled out on its way to the terminal; so it is spelled as shells do.
    escaped = "".join(
        char
        if char.isprintable() and char not in "\\'"
        else "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))
        for char in word
    )
    return f"$'{escaped}'"


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
