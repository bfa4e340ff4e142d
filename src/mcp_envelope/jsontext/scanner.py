"""JSON with comments and the positions of everything in it, for configuration files that people edit.

Comments and trailing commas are overwritten with spaces, character for character, so that the standard parser
can read the rest, and every offset, line and column holds for the original file. `scan` then walks over the same
text to find the positions. It opens only the containers that the caller is interested in and skips all others at
the parser's own speed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, NoReturn

Span = tuple[int, int]
Path = tuple[str, ...]

# An unterminated one reaches to the end of the text, so that scanning stays linear.
_STRING: Final = r'"(?:[^"\\]|\\.)*+"?'
# Strings are matched so that nothing inside them is taken for a comment; group 1 is a comment.
_COMMENT: Final = re.compile(rf"{_STRING}|(//[^\n\r]*|/\*.*?(?:\*/|\Z))", re.DOTALL)
# Group 1 is a comma before a closing bracket. In `[,]` and `[1,,]` none is a trailing comma: those are mistakes.
_TRAILING: Final = re.compile(rf"{_STRING}|[\[{{,:][ \t\r\n]*,|(,)(?=[ \t\r\n]*[\]}}])", re.DOTALL)
_VISIBLE: Final = re.compile(r"[^\r\n]")
_STRING_VALUE: Final = re.compile(rf"({_STRING})([ \t\r\n]*:)?", re.DOTALL)
BLANK: Final = re.compile(r"[ \t\r\n]*")


class Unparsable(ValueError):
    """The text cannot be parsed. `place` says where, if known, and `reason` why."""

    def __init__(self, language: str, reason: str, place: str = "") -> None:
        self.reason = f"not {language}: {reason[:1].lower()}{reason[1:]}"
        self.place = place
        super().__init__(f"{place}: {self.reason}" if place else self.reason)


class NotJSON(Unparsable):
    def __init__(self, reason: str, place: str = "") -> None:
        super().__init__("JSON", reason, place)


@dataclass(slots=True)
class ValueSpan:
    """A value's span, and its contents if it was opened. A TOML table over several lines has no span."""

    start: int
    end: int = -1
    items: list[ValueSpan] = field(default_factory=list)
    # In the order of the file. All equal keys are here; `member` returns the last, as every parser does.
    members: list[MemberSpan] = field(default_factory=list)

    def member(self, name: str) -> MemberSpan | None:
        return next((each for each in reversed(self.members) if each.name == name), None)

    @property
    def fields(self) -> dict[str, MemberSpan]:
        """The members by name."""
        return {each.name: each for each in self.members}

    def scalars(self) -> Iterator[ValueSpan]:
        """Yield the values inside that contain no others."""
        children = [*self.items, *(member.value for member in self.members)]
        if not children and self.start >= 0:
            yield self
        for child in children:
            yield from child.scalars()

    def key_offsets(self, path: Path = ()) -> Iterator[tuple[Path, int]]:
        """Yield the path and the offset of each key in this object and in those inside it."""
        for member in self.members:
            yield (*path, member.name), member.keys[0][0]
            yield from member.value.key_offsets((*path, member.name))


@dataclass(slots=True)
class MemberSpan:
    """A member of an object, or of a TOML table, whose key may be spelled in several places."""

    name: str
    keys: list[Span]
    value: ValueSpan
    # Where its line or its dotted key begins: whatever precedes the key itself is part of the name.
    lead: int
    # Whether commas separate it from others, rather than lines.
    inline: bool = True


class Scan(NamedTuple):
    """A JSON text without its comments, what it means, and the positions of its parts."""

    plain: str
    meaning: Any
    root: ValueSpan


def scan(text: str, opens: Callable[[Path], bool]) -> Scan:
    """Parse a text and find positions; `opens` decides which containers to open. Raises NotJSON.

    The items of an array have the array's own path.
    """
    plain, meaning = _parse(text)
    try:
        return Scan(plain, meaning, _walk(plain, _skip(plain, 0), (), opens))
    except RecursionError:
        raise NotJSON("nested too deeply") from None


def parse(text: str) -> Any:
    """Return what the text means. Raises NotJSON."""
    return _parse(text)[1]


def plain_json(text: str) -> str:
    """Return the text with comments and trailing commas turned into spaces.

    An unterminated comment stays, for the parser to complain about.
    """
    text = _COMMENT.sub(_without_comment, text)
    return _TRAILING.sub(lambda match: " " if match[1] else match[0], text)


def comments(text: str) -> Iterator[Span]:
    """Yield the span of each comment."""
    return (match.span() for match in _COMMENT.finditer(text) if match[1])


def string_values(plain: str) -> Iterator[Span]:
    """Yield the span of each string in a text without comments, keys excepted."""
    return (match.span(1) for match in _STRING_VALUE.finditer(plain) if not match[2])


def place(text: str, offset: int) -> str:
    """Return a position such as `line 3, column 14`, both from 1, columns in characters."""
    line = text.count("\n", 0, offset) + 1
    return f"line {line}, column {offset - text.rfind(chr(10), 0, offset)}"


def _without_comment(match: re.Match[str]) -> str:
    comment = match[1]
    if not comment or (comment.startswith("/*") and (len(comment) < 4 or not comment.endswith("*/"))):
        return match[0]
    return _VISIBLE.sub(" ", comment)


def _parse(text: str) -> tuple[str, Any]:
    plain = plain_json(text)
    if plain.startswith("\ufeff"):
        plain = f" {plain[1:]}"
    try:
        return plain, json.loads(plain, parse_constant=_refuse)
    except RecursionError:
        raise NotJSON("nested too deeply") from None
    except json.JSONDecodeError as error:
        raise NotJSON(error.msg, place(plain, error.pos)) from None
    except ValueError as error:  # a number of too many digits, or one that JSON does not have
        raise NotJSON(str(error)) from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"there is no {constant} in JSON")


def _walk(plain: str, at: int, path: Path, opens: Callable[[Path], bool]) -> ValueSpan:
    found = ValueSpan(at)
    if plain[at] not in "{[" or not opens(path):
        found.end = _DECODER.raw_decode(plain, at)[1]
        return found
    closing = "}" if plain[at] == "{" else "]"
    at = _skip(plain, at + 1)
    while plain[at] != closing:
        if closing == "]":
            value = _walk(plain, at, path, opens)
            found.items.append(value)
        else:
            name, end = _DECODER.raw_decode(plain, at)
            colon = _skip(plain, end)
            value = _walk(plain, _skip(plain, colon + 1), (*path, name), opens)
            found.members.append(MemberSpan(name, [(at, end)], value, lead=at))
        at = _skip(plain, value.end)
        if plain[at] == ",":
            at = _skip(plain, at + 1)
    found.end = at + 1
    return found


def _skip(plain: str, at: int) -> int:
    match = BLANK.match(plain, at)
    return match.end() if match else at


_DECODER: Final = json.JSONDecoder()
