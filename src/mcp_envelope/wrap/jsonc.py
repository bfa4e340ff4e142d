"""JSON with comments, and where everything in it stands.

Strategy: comments and trailing commas are overwritten with spaces, so the standard parser can read the rest and
every offset stays true of the file. The walk opens only objects that may hold servers and steps over all else with
the parser's own speed: a file of many megabytes costs little more than parsing it.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

from ..policy.comments import plain_json
from ..policy.places import place
from .tree import Broken, Document, Field, Node, Path, Span, Syntax, is_on_the_way

_DECODER: Final = json.JSONDecoder()
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"(?P<colon>[ \t\r\n]*:)?', re.DOTALL)
_COMMENT: Final = re.compile(r'"(?:[^"\\]|\\.)*"|(?P<comment>//[^\n\r]*|/\*.*?\*/)', re.DOTALL)


def read(text: str) -> Document:
    value, plain = _parsed(text)
    try:
        root, _ = _walk(plain, _skip(plain, 0), ())
    except (RecursionError, ValueError, IndexError):
        raise Broken("not JSON: nested too deeply") from None
    comments = [match.span() for match in _COMMENT.finditer(text) if match["comment"]]
    strings: list[Span] = [match.span() for match in _STRING.finditer(plain) if not match["colon"]]
    return Document(text, value, root, SYNTAX, comments, strings)


def _parse(text: str) -> Any:
    return _parsed(text)[0]


def _parsed(text: str) -> tuple[Any, str]:
    plain = plain_json(text)
    if plain.startswith("\ufeff"):
        plain = f" {plain[1:]}"
    try:
        return json.loads(plain, parse_constant=_refuse), plain
    except RecursionError:
        raise Broken("not JSON: nested too deeply") from None
    except json.JSONDecodeError as error:
        reason = f"{error.msg[:1].lower()}{error.msg[1:]}"
        raise Broken(f"{place(plain, error.pos)}: not JSON: {reason}") from None
    except ValueError as error:
        raise Broken(f"not JSON: {error}") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"there is no {constant} in JSON")


def _walk(plain: str, at: int, path: Path) -> tuple[Node, int]:
    """The value at `at`, and the offset after it."""
    node = Node(start=at)
    if plain[at] == "{" and is_on_the_way(path):
        at = _skip(plain, at + 1)
        while plain[at] != "}":
            start = at
            name, at = _DECODER.raw_decode(plain, at)
            key = (start, at)
            at = _skip(plain, _skip(plain, at) + 1)
            child, at = _walk(plain, at, (*path, name))
            node.add(Field(name, [key], child, lead=start, inline=True))
            at = _next(plain, at)
        node.end = at + 1
    elif plain[at] == "[" and path and is_on_the_way(path):
        at = _skip(plain, at + 1)
        while plain[at] != "]":
            child, at = _walk(plain, at, path)
            node.items.append(child)
            at = _next(plain, at)
        node.end = at + 1
    else:
        node.end = _DECODER.raw_decode(plain, at)[1]
    return node, node.end


def _next(plain: str, at: int) -> int:
    at = _skip(plain, at)
    return _skip(plain, at + 1) if plain[at] == "," else at


def _skip(plain: str, at: int) -> int:
    while at < len(plain) and plain[at] in " \t\r\n":
        at += 1
    return at


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


SYNTAX: Final = Syntax("JSON", _string, _string, ": ", "headers", _parse)
