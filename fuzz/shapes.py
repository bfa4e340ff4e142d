"""Values and schemas made of the bytes of an input.

Each byte is one choice, so that a fuzzer that changes a byte changes one thing, and a decision costs next to
nothing. A value that is made for a schema is valid under it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
Make = Callable[[], Any]
Shape = tuple[Any, Make]

WORDS = (
    "",
    "a",
    "Ulm ",
    "x1",
    "\n",
    '"\\',
    "é…",
    "漢字",
    "😀",
    "~/",
    "null",
    "\x00\x7f",
    "the quick brown fox ",
    "=",
)
NUMBERS = (0, 1, -1, 7, 10**6, -(10**30), 0.5, -0.0, 1e300, 5e-324, 2**53 + 1, 1.0)
KEYS = ("id", "name", "", "a/b", "~", "rows", "result", "_envelope", "漢", "x" * 40)


class Choices:
    """When the bytes run out, the first of everything is chosen."""

    def __init__(self, data: bytes) -> None:
        self._bytes = iter(data)
        # Characters of a text or a list: lists of lists of lists would fill the memory.
        self.most = 4000

    def below(self, count: int) -> int:
        return next(self._bytes, 0) % count

    def one_of(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    # -- values ---------------------------------------------------------------------------------------------

    def text(self) -> str:
        words = "".join(self.one_of(WORDS) for _ in range(1 + self.below(3)))
        return words * min(self.one_of((1, 1, 1, 2, 5, 60)), self.most // (len(words) + 1) + 1)

    def number(self) -> int | float:
        return self.one_of(NUMBERS) if self.below(2) else self.below(256) * 1001

    def keys(self, most: int) -> list[str]:
        return list(dict.fromkeys(self.one_of(KEYS) for _ in range(self.below(most + 1))))

    def many(self, make: Make, least: int = 0) -> list[Any]:
        """A list with few different items."""
        some = [make() for _ in range(1 + self.below(3))]
        most = self.most // len(repr(some))
        count = max(least, min(most, self.one_of((0, 1, 3, 6, 40))))
        return (some * (count + 1))[:count]

    def value(self, depth: int) -> Any:
        kind = self.below(9 if depth else 4)
        if kind < 2:
            return self.text()
        if kind == 2:
            return self.number()
        if kind == 3:
            return self.one_of((None, True, False))
        if kind == 4:
            return json.dumps(self.value(depth - 1))
        if kind < 7:
            return self.many(lambda: self.value(depth - 1))
        if kind == 7:
            values = self.many(lambda: self.value(depth - 1))
            return {f"{self.one_of(KEYS)}{index}": value for index, value in enumerate(values)}
        return {key: self.value(depth - 1) for key in self.keys(4)}

    # -- schemas --------------------------------------------------------------------------------------------

    def typed(self, depth: int) -> tuple[Any, Any]:
        """A schema of an object, and a value for it."""
        schema, make = self._object(depth - 1) if self.below(4) else self._combined(depth - 1)
        return schema, make()

    def _any(self, depth: int) -> Shape:
        kind = self.below(8 if depth else 4)
        if kind == 0:
            return self._string()
        if kind < 4:
            return self._plain()
        if kind < 6:
            return self._array(depth - 1)
        return self._object(depth - 1) if kind == 6 else self._combined(depth - 1)

    def _string(self) -> Shape:
        text, size = self.text(), self.one_of((0, 1, 40, 600))
        return self.one_of(
            [
                ({"type": "string"}, self.text),
                ({"type": "string", "minLength": size}, lambda: self.text().ljust(size, "x")),
                ({"type": "string", "maxLength": size}, lambda: self.text()[:size]),
                ({"type": "string", "pattern": "^[a-z]+$"}, lambda: "abc" * (1 + self.below(200))),
                ({"type": "string", "format": "uri"}, lambda: "http://a/" + "b" * self.below(200)),
                ({"enum": [text, "else"]}, lambda: self.one_of((text, "else"))),
                ({"const": text}, lambda: text),
            ]
        )

    def _plain(self) -> Shape:
        return self.one_of(
            [
                (True, lambda: self.value(1)),
                ({}, lambda: self.value(2)),
                ({"type": "integer"}, lambda: self.below(256) - 100),
                ({"type": "number", "minimum": 0}, lambda: self.below(256) / 7),
                ({"type": "boolean"}, lambda: bool(self.below(2))),
                ({"type": "null"}, lambda: None),
            ]
        )

    def _array(self, depth: int) -> Shape:
        item, make = self._any(depth)
        kind, least = self.below(6), self.below(4)
        if kind == 0:
            return {"type": "array", "items": item}, lambda: self.many(make)
        if kind == 1:
            return {"type": "array", "items": item, "minItems": least}, lambda: self.many(make, least)
        if kind == 2:
            needle = 10**13 + least
            return (
                {"type": "array", "contains": {"const": needle}},
                lambda: [*self.many(make), needle],
            )
        if kind == 3:
            unique = {"type": "array", "uniqueItems": True, "items": {"type": "integer"}}
            return unique, lambda: list(range(self.below(256)))
        first, make_first = self._any(depth)
        rest = "items" if kind == 4 else "unevaluatedItems"
        return (
            {"type": "array", "prefixItems": [first], rest: item, "minItems": 1},
            lambda: [make_first(), *self.many(make)],
        )

    def _object(self, depth: int) -> Shape:
        members = {key: self._any(depth) for key in self.keys(4) or ["rows"]}
        required = [key for key in members if self.below(2)]
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {key: member for key, (member, _) in members.items()},
            "required": required,
        }
        kind = self.below(6)
        if kind == 1:
            schema["additionalProperties"] = False
        elif kind == 2:
            schema["minProperties"] = len(required)
        elif kind == 3:
            schema["dependentRequired"] = {next(iter(members)): required}
        elif kind == 4:
            more, make_more = self._any(depth)
            schema["additionalProperties"] = more

        def made() -> dict[str, Any]:
            value = {
                key: make()
                for key, (_, make) in members.items()
                if kind == 3 or key in required or self.below(2)
            }
            if kind == 4:
                value |= {f"more {index}": each for index, each in enumerate(self.many(make_more))}
            return value

        return schema, made

    def _combined(self, depth: int) -> Shape:
        """Of objects, so that the whole is one."""
        (one, make_one), (two, make_two) = self._object(depth), self._object(depth)
        kind = self.below(4)
        if kind == 0:
            return {"type": "object", "anyOf": [one, two]}, lambda: self.one_of((make_one, make_two))()
        if kind == 1:
            tagged = [
                {
                    "type": "object",
                    "properties": {"tag": {"const": tag}, "value": each},
                    "required": ["tag", "value"],
                }
                for tag, each in (("one", one), ("two", two))
            ]

            def made() -> dict[str, Any]:
                tag, make = self.one_of((("one", make_one), ("two", make_two)))
                return {"tag": tag, "value": make()}

            return {"type": "object", "oneOf": tagged}, made
        if kind == 2:
            parts = [
                {"type": "object", "properties": {"a": one}, "required": ["a"]},
                {"properties": {"b": two}},
            ]
            return {"type": "object", "allOf": parts}, lambda: {"a": make_one(), "b": make_two()}
        schema = {
            "type": "object",
            "properties": {"flag": {"type": "boolean"}, "a": one},
            "if": {"properties": {"flag": {"const": True}}, "required": ["flag"]},
            "then": {"required": ["a"]},
        }
        return schema, lambda: {"flag": bool(self.below(2)), "a": make_one()}
