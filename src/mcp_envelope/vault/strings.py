"""The string values in some JSON, in order, and the paths that lead to them.

Strategy: the values are decoded at once, and the strings are taken out by a loop without recursion. Paths are
made for those strings only that somebody wants. A string that holds JSON counts as that JSON, as it does in
every path.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from ..faults import mend_surrogates
from ..jsontree import OPENS_JSON, Node, encode

_LOOK: Final = 1 << 12

# What a string that holds JSON begins with.
_OPENERS: Final = "[{ \t\r\n"
# Numbers are not looked at, so they may become anything; none is too large for a float.
_DECODE: Final = msgspec.json.Decoder(float_hook=float).decode
# The last step of a path, and those before it. Cheap to make, since few of them become paths.
Trail = tuple[Any, ...]


def children_of(data: bytes, first: int) -> Iterator[tuple[str, bytes, bytes]]:
    """The last step of the path, the key as it is spelled with its colon, and the value."""
    node = Node(data)
    if node.kind == "object":
        for member in node.members():
            yield _escaped(member.key), member.raw_key + b":", bytes(member.value)
    else:
        for index, item in enumerate(node.all_items(), first):
            yield str(index), b"", bytes(item)


def texts_in(value: Any) -> list[str]:
    """The strings that have lines, in order. Most runs that are decoded end here, so this is plain and quick."""
    texts: list[str] = []
    waiting = [value]
    while waiting:
        one = waiting.pop()
        kind = type(one)
        if kind is dict:
            waiting.extend(reversed(one.values()))
        elif kind is list:
            waiting.extend(reversed(one))
        elif kind is str and one:
            if one[0] in _OPENERS and (inner := _held(one)) is not None:
                waiting.append(inner)
            else:
                texts.append(one)
    return texts


def places_in(value: Any, first: int, wanted: set[int]) -> Iterator[tuple[Trail, str]]:
    """Some of the same strings, by their numbers, with the steps that lead there, the last one first."""
    waiting: list[tuple[Trail, Any]] = [((), value)]
    index, left = -1, len(wanted)
    while left:
        trail, one = waiting.pop()
        if type(one) is str and one:
            inner = _held(one) if one[0] in _OPENERS else None
            if inner is None:
                index += 1
                if index in wanted:
                    left -= 1
                    yield trail, one
                continue
            one = inner
        if type(one) is list:
            begin = first if one is value else 0
            steps = range(begin + len(one) - 1, begin - 1, -1)
            waiting.extend([((step, trail), item) for step, item in zip(steps, reversed(one), strict=True)])
        elif type(one) is dict:
            waiting.extend([((key, trail), item) for key, item in reversed(one.items())])


def path_of(trail: Trail) -> str:
    steps: list[str] = []
    while trail:
        steps.append(_escaped(str(trail[0])))
        trail = trail[1]
    return "".join([f"/{step}" for step in reversed(steps)])


def _held(text: str) -> Any:
    """The list or object that a string holds as JSON, where a path would go on into it."""
    if not OPENS_JSON.match(encode(text[:_LOOK])[1:_LOOK]):
        return None
    try:
        value = decoded(text.encode())
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list | dict) else None


def decoded(data: bytes) -> Any:
    try:
        return _DECODE(data)
    except msgspec.ValidationError:
        # An integer of thousands of digits.
        return json.loads(mend_surrogates(data)[0], parse_int=float)
    except msgspec.DecodeError:
        mended, count = mend_surrogates(data)
        if not count:
            raise
        return decoded(mended)


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
