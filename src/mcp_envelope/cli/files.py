"""Files as the commands need them: bytes, checked, and every complaint with its place.

Strategy: a file is read whole and checked as UTF-8 once; after that only its meaning can be wrong. A
complaint names the file, the line and the column, also where the library knows no more than a JSON pointer.
"""

from __future__ import annotations

import codecs
import json
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from ..faults import JSONError
from ..jsontree import Node, parse
from ..schema import SchemaError
from . import console
from .console import BadInput

STDIN: Final = "-"
_WHITESPACE: Final = " \t\r\n"
_KINDS: Final = {
    "array": "a list",
    "string": "a string",
    "number": "a number",
    "null": "null",
}


def name_of(path: str) -> str:
    return "standard input" if path == STDIN else path


def read(path: str) -> bytes:
    """What a file, or standard input, says: valid UTF-8, without the byte order mark some editors add."""
    try:
        data = _read_stdin() if path == STDIN else _read_file(path)
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read {name_of(path)}: {console.reason(error)}") from None
    try:
        data.decode()
    except UnicodeDecodeError as error:
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise BadInput(f"{name_of(path)} is UTF-16; save it as UTF-8") from None
        at = place(data, error.start)
        byte = f"0x{data[error.start]:02x}"
        raise BadInput(f"{name_of(path)}, {at}: not UTF-8 (byte {byte}); save it as UTF-8") from None
    return data.removeprefix(codecs.BOM_UTF8)


def _read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _read_stdin() -> bytes:
    if sys.stdin is None:
        raise OSError("it is closed")
    return sys.stdin.buffer.read()


def write(path: str, data: bytes) -> None:
    if path == STDIN:
        console.write_out(data)
        return
    try:
        with open(path, "wb") as file:
            file.write(data)
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot write {path}: {console.reason(error)}") from None


def write_all(path: str, chunks: Iterable[bytes]) -> None:
    """Write a file a piece at a time. It is not opened, and so not emptied, before there is a first piece."""
    pieces = iter(chunks)
    first = next(pieces, b"")
    try:
        with open(path, "wb") as file:
            file.write(first)
            for piece in pieces:
                file.write(piece)
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot write {path}: {console.reason(error)}") from None


def are_same(one: str, other: str) -> bool:
    with suppress(OSError):
        return os.path.samefile(one, other)
    return False


def place(data: bytes, offset: int) -> str:
    """`line 3, column 14`, columns in characters."""
    before = data[:offset]
    line_start = before.rfind(b"\n") + 1
    column = len(before[line_start:].decode("utf-8", "replace")) + 1
    return f"line {before[:line_start].count(10) + 1}, column {column}"


def parse_json(data: bytes, path: str) -> Node:
    try:
        return parse(data)
    except JSONError as error:
        at = f"line {error.line}, column {error.column}"
        advice = (
            "; one document to a line is text: say --as text" if "follows the end" in error.reason else ""
        )
        raise BadInput(f"{name_of(path)}, {at}: not JSON: {error.reason}{advice}") from None


def read_schema(path: str) -> tuple[bytes, dict[str, Any] | bool]:
    """The schema document, and its bytes for whoever has a complaint about it."""
    data = read(path)
    node = parse_json(data, path)
    if node.kind not in ("object", "boolean"):
        raise BadInput(f"{path}: a schema is an object, or true or false; this is {_KINDS[node.kind]}")
    try:
        document: dict[str, Any] | bool = json.loads(data.decode())
    except RecursionError:
        raise BadInput(f"{path}: the schema is nested too deeply") from None
    except ValueError as error:
        raise BadInput(f"{path}: the schema cannot be used: {error}") from None
    return data, document


def bad_schema(path: str, data: bytes, error: SchemaError) -> BadInput:
    where = locate(data, error.pointer) if error.pointer else None
    return BadInput(f"{path}{f', {where}' if where else ''}: not a usable schema: {error}")


def locate(data: bytes, pointer: str) -> str | None:
    """The place of the value that a JSON pointer leads to, in a document that is known to be JSON."""
    text = data.decode()
    decoder = json.JSONDecoder()
    try:
        at = _skip(text, 0)
        for step in pointer.split("/")[1:]:
            at = _enter(decoder, text, at, step.replace("~1", "/").replace("~0", "~"))
    except (ValueError, IndexError, RecursionError):
        return None
    return place(text.encode(), len(text[:at].encode()))


def _enter(decoder: json.JSONDecoder, text: str, at: int, step: str) -> int:
    """Where the member or item begins. ValueError if there is none."""
    opening, index, found = text[at], 0, -1
    if opening not in "[{":
        raise ValueError(step)
    at = _skip(text, at + 1)
    while text[at] not in "]}":
        key = str(index)
        if opening == "{":
            key, at = decoder.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        if key == step:
            found = at  # the last of equal keys counts
        at = _skip(text, decoder.raw_decode(text, at)[1])
        if text[at] == ",":
            at = _skip(text, at + 1)
        index += 1
    if found < 0:
        raise ValueError(step)
    return found


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _WHITESPACE:
        at += 1
    return at
