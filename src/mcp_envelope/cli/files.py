"""Files as the commands need them: read, checked, written, and every error with its position.

Strategy: a file is read whole and checked as UTF-8 once; after that only its meaning can be wrong. An error names
the file, the line and the column, even where the library knows only a JSON pointer.
"""

from __future__ import annotations

import codecs
import json
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from ..jsontext import scanner
from ..jsontext.document import Node, parse
from ..jsontext.errors import JSONError
from ..schema import Schema, SchemaError
from . import console
from .console import BadInput

STDIN: Final = "-"
_KINDS: Final = {"array": "a list", "string": "a string", "number": "a number", "null": "null"}


def name_of(path: str) -> str:
    return "standard input" if path == STDIN else path


def position(path: str, place: str | None) -> str:
    """The file, and the place in it if that is known, for the beginning of a message."""
    return f"{name_of(path)}, {place}" if place else name_of(path)


def read(path: str) -> bytes:
    """Read a file or standard input: valid UTF-8, without the byte order mark that some editors add."""
    with console.trouble(f"read {name_of(path)}"):
        return _utf8(read_bytes(path), path)


def _utf8(data: bytes, path: str) -> bytes:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise BadInput(f"{name_of(path)} is UTF-16; save it as UTF-8") from None
        before = data[: error.start].decode()
        at, byte = scanner.place(before, len(before)), f"0x{data[error.start]:02x}"
        raise BadInput(f"{name_of(path)}, {at}: not UTF-8 (byte {byte}); save it as UTF-8") from None
    return data.removeprefix(codecs.BOM_UTF8)


def read_bytes(path: str) -> bytes:
    if path != STDIN:
        with open(path, "rb") as file:
            return file.read()
    if sys.stdin is None:
        raise OSError("it is closed")
    return sys.stdin.buffer.read()


def write(path: str, data: bytes) -> None:
    if path == STDIN:
        console.write_out(data)
    else:
        write_all(path, [data])


def write_all(path: str, chunks: Iterable[bytes]) -> None:
    """Write a file piece by piece. It is not opened, and so not emptied, before the first piece is there."""
    pieces = iter(chunks)
    first = next(pieces, b"")
    with console.trouble(f"write {path}"), open(path, "wb") as file:
        file.write(first)
        file.writelines(pieces)


def are_same(one: str, other: str) -> bool:
    with suppress(OSError):
        return os.path.samefile(one, other)
    return False


def check_config(path: str) -> bytes:
    """Check that a named settings file can be read and parsed, and return it. What it says is checked later."""
    from ..jsontext.toml_scanner import NotTOML, parse

    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path) or path == os.devnull):
        # It is read again whenever it changes. A pipe would wait for its writer.
        raise BadInput(f"cannot read {path}: it is not an ordinary file")
    with console.trouble(f"read {path}"):
        data = read_bytes(path)
    try:
        parse(_utf8(data, path).decode())
        return data
    except NotTOML as error:
        raise BadInput(f"{position(path, error.place)}: {error.reason}") from None


def parse_json(data: bytes, path: str) -> Node:
    try:
        return parse(data)
    except JSONError as error:
        at = f"line {error.line}, column {error.column}"
        advice = (
            "; if it is one document per line, use --as text" if "follows the end" in error.reason else ""
        )
        raise BadInput(f"{name_of(path)}, {at}: not JSON: {error.reason}{advice}") from None


def read_schema(path: str) -> tuple[dict[str, Any] | bool, Schema]:
    """Return the schema, as it was written and ready to use."""
    data = read(path)
    node = parse_json(data, path)
    if node.kind not in ("object", "boolean"):
        raise BadInput(f"{path}: a schema is an object, or true or false; this is {_KINDS[node.kind]}")
    try:
        document: dict[str, Any] | bool = json.loads(data.decode())
        return document, Schema.of(document)
    except RecursionError:
        raise BadInput(f"{path}: the schema is nested too deeply") from None
    except SchemaError as error:
        place = locate(data, error.pointer) if error.pointer else None
        raise BadInput(f"{position(path, place)}: not a usable schema: {error}") from None
    except ValueError as error:
        raise BadInput(f"{path}: the schema cannot be used: {error}") from None


def pointer_steps(pointer: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def locate(data: bytes, pointer: str) -> str | None:
    """The position of the value that a JSON pointer leads to, in a document that is known to be JSON."""
    steps = pointer_steps(pointer)
    text = data.decode()
    try:
        value = scanner.scan(text, set(steps).issuperset).root
        for step in steps:
            member = value.member(step)
            value = member.value if member is not None else value.items[int(step)]
    except (ValueError, IndexError):
        return None
    return scanner.place(text, value.start)
