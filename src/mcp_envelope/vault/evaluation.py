"""A JMESPath tree made into Python functions that work on decoded values, within a budget.

Strategy: each node becomes a closure once, so that a million items cost a million calls and no interpretation.
Only loops and whatever builds something ask the budget; between two of them stands at most the expression
itself, which is short. A string that holds JSON is opened when a step is taken into it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final, NoReturn

import msgspec

from ..faults import mend_surrogates
from .bounds import BadQuery, Budget
from .expression import SEQUENCES, Node, bad, parts_of
from .functions import ENTRY, OBJECT, POINTER, Functions, Spelled, Step, WrongType, is_false

_HOLDS_JSON: Final = re.compile(r"[ \t\r\n]*[\[{]")
# Longer integers are not read as such by Python; they keep their spelling.
_LONG_INTEGER: Final = 4000
# Bytes of JSON that are decoded in the time of one step.
_BYTES: Final = 16


def _spelled(text: str) -> Spelled:
    number = Spelled(text)
    number.spelling = text
    return number


def _integer(text: str) -> int | Spelled:
    return int(text) if len(text) < _LONG_INTEGER else _spelled(text)


def _respell(value: Any) -> msgspec.Raw:
    if not isinstance(value, Spelled):
        raise NotImplementedError
    return msgspec.Raw(value.spelling.encode())


_DECODE: Final = msgspec.json.Decoder(float_hook=_spelled).decode
_ENCODE: Final = msgspec.json.Encoder(enc_hook=_respell).encode


def decode(raw: bytes | msgspec.Raw) -> Any:
    """Python objects; numbers keep their spelling. Raises RecursionError or ValueError."""
    try:
        return _DECODE(raw)
    except msgspec.ValidationError:
        # An integer of thousands of digits.
        return json.loads(mend_surrogates(bytes(raw))[0], parse_float=_spelled, parse_int=_integer)
    except msgspec.DecodeError:
        mended, count = mend_surrogates(bytes(raw))
        if not count:
            raise
        return decode(mended)


def footprint(raw: bytes) -> int:
    """About how much memory a value takes once it is decoded, told from how many parts it has."""
    # One wide character makes every character of its string wide.
    text = len(raw) if raw.isascii() and b"\\u" not in raw else 4 * len(raw)
    return text + 32 * raw.count(b",") + 64 * raw.count(b"[") + 200 * raw.count(b"{")


class Stream:
    """The items of a list that is not there as a whole, once. An item is a `Value`, `Raw`, or decoded."""

    def __init__(self, items: Iterator[Any]) -> None:
        self.items = items

    def is_empty(self) -> bool:
        for item in self.items:
            self.items = chain((item,), self.items)
            return False
        return True


class Engine:
    """Makes steps out of nodes. One for each query, since the budget is in the steps."""

    def __init__(self, expression: str, budget: Budget, largest: int) -> None:
        self._expression = expression
        self._budget = budget
        self._largest = largest
        self.functions = Functions(budget)
        self._opened: tuple[str, Any] = ("", None)

    def loaded(self, raw: bytes | msgspec.Raw) -> Any:
        """Decoded JSON that will stay for the time of the query."""
        data = bytes(raw)
        self._budget.spend(len(data) // _BYTES)
        self._budget.hold(footprint(data))
        return decode(data)

    def encoded(self, value: Any) -> bytes:
        if self.functions.look_at(value, self._largest) > self._largest:
            self.too_large()
        return self.within(_ENCODE(value))

    def within(self, data: bytes) -> bytes:
        if len(data) > self._largest:
            self.too_large()
        return data

    def too_large(self) -> NoReturn:
        self._budget.refuse(f"the result would have more than {self._largest / (1 << 20):.0f} MB")

    def opened(self, text: str) -> Any:
        """The list or object that a string holds as JSON; None if it holds none."""
        if not _HOLDS_JSON.match(text):
            return None
        if self._opened[0] is not text:
            try:
                inner = self.loaded(text.encode())
            except (ValueError, RecursionError):
                inner = None
            self._opened = (text, inner)
        return self._opened[1]

    def step(self, node: Node) -> Step:
        made: Step = getattr(self, f"_{node['type']}")(node)
        return made

    def called(self, node: Node, arguments: list[Any]) -> Any:
        try:
            return self.functions.call(node["value"], arguments)
        except WrongType as error:
            raise self.wrong(node, error) from None

    def wrong(self, node: Node, error: WrongType) -> BadQuery:
        return bad(self._expression, node["at"], str(error))

    # -- ways into a value ----------------------------------------------------------------------------------

    def _identity(self, node: Node) -> Step:
        return lambda value: value

    _current = _identity

    def _literal(self, node: Node) -> Step:
        literal = node["value"]
        return lambda value: literal

    def _field(self, node: Node) -> Step:
        key = node["value"]
        opened = self.opened

        def field(value: Any) -> Any:
            if type(value) is str:
                value = opened(value)
            return value.get(key) if type(value) is dict else None

        return field

    def _index(self, node: Node) -> Step:
        index = node["value"]

        def item(value: Any) -> Any:
            if type(value) is str:
                value = self.opened(value)
            return value[index] if type(value) is list and -len(value) <= index < len(value) else None

        return item

    def _slice(self, node: Node) -> Step:
        wanted = slice(*node["children"])

        def part(value: Any) -> Any:
            if type(value) is str:
                value = self.opened(value)
            return self.functions.made(value[wanted]) if type(value) is list else None

        return part

    def _sequence(self, node: Node) -> Step:
        steps = [
            self.step(part)
            for part in parts_of(node, SEQUENCES)
            if part["type"] not in ("identity", "current")
        ]
        if len(steps) == 1:
            return steps[0]
        if len(steps) == 2:
            first, second = steps
            return lambda value: second(first(value))

        def sequence(value: Any) -> Any:
            for step in steps:
                value = step(value)
            return value

        return sequence

    _subexpression = _index_expression = _pipe = _sequence

    # -- loops ----------------------------------------------------------------------------------------------

    def _base(self, value: Any) -> list[Any] | None:
        if type(value) is str:
            value = self.opened(value)
        return value if type(value) is list else None

    def _projection(self, node: Node) -> Step:
        left, right = map(self.step, node["children"])
        cost = size_of(node["children"][1])

        def project(value: Any) -> Any:
            if (base := self._base(left(value))) is None:
                return None
            results = [right(item) for item in self.functions.watched(base, cost)]
            return self.functions.made([result for result in results if result is not None])

        return project

    def _filter_projection(self, node: Node) -> Step:
        left, right, condition = map(self.step, node["children"])
        cost = size_of(node["children"][1]) + size_of(node["children"][2])

        def choose(value: Any) -> Any:
            if (base := self._base(left(value))) is None:
                return None
            chosen = [item for item in self.functions.watched(base, cost) if not is_false(condition(item))]
            results = [right(item) for item in self.functions.watched(chosen, cost)]
            return self.functions.made([result for result in results if result is not None])

        return choose

    def _value_projection(self, node: Node) -> Step:
        left, right = map(self.step, node["children"])
        cost = size_of(node["children"][1])

        def project(value: Any) -> Any:
            base = left(value)
            if type(base) is str:
                base = self.opened(base)
            if type(base) is not dict:
                return None
            results = [right(item) for item in self.functions.watched(list(base.values()), cost)]
            return self.functions.made([result for result in results if result is not None])

        return project

    def _flatten(self, node: Node) -> Step:
        left = self.step(node["children"][0])

        def flatten(value: Any) -> Any:
            if (base := self._base(left(value))) is None:
                return None
            merged: list[Any] = []
            for item in self.functions.watched(base):
                if type(item) is list:
                    self._budget.spend(len(item) // _BYTES)
                    self._budget.hold(POINTER * len(item))
                    merged.extend(item)
                else:
                    merged.append(item)
            self._budget.hold(OBJECT + POINTER * len(base))
            return merged

        return flatten

    # -- what is built --------------------------------------------------------------------------------------

    def _multi_select_list(self, node: Node) -> Step:
        steps = [self.step(child) for child in node["children"]]
        budget, size = self._budget, OBJECT + POINTER * len(steps)

        def select(value: Any) -> Any:
            if value is None:
                return None
            budget.hold(size)
            return [step(value) for step in steps]

        return select

    def _multi_select_dict(self, node: Node) -> Step:
        steps = [(child["value"], self.step(child["children"][0])) for child in node["children"]]
        budget, size = self._budget, OBJECT + ENTRY * len(steps)

        def select(value: Any) -> Any:
            if value is None:
                return None
            budget.hold(size)
            return {key: step(value) for key, step in steps}

        return select

    def _function_expression(self, node: Node) -> Step:
        steps = [
            self.step(child["children"][0]) if child["type"] == "expref" else self.step(child)
            for child in node["children"]
        ]
        refers = [child["type"] == "expref" for child in node["children"]]

        def call(value: Any) -> Any:
            arguments = [step if itself else step(value) for step, itself in zip(steps, refers, strict=True)]
            return self.called(node, arguments)

        return call

    # -- conditions -----------------------------------------------------------------------------------------

    def _comparator(self, node: Node) -> Step:
        left, right = map(self.step, node["children"])
        kind = node["value"]
        equal, ordered, most = self.functions.equal, self.functions.ordered, self._largest
        if kind == "eq":
            return lambda value: equal(left(value), right(value), most)
        if kind == "ne":
            return lambda value: not equal(left(value), right(value), most)
        return lambda value: ordered(kind, left(value), right(value))

    def _or_expression(self, node: Node) -> Step:
        return self._first(node, until_false=False)

    def _and_expression(self, node: Node) -> Step:
        return self._first(node, until_false=True)

    def _first(self, node: Node, *, until_false: bool) -> Step:
        steps = [self.step(part) for part in parts_of(node, (node["type"],))]

        def first(value: Any) -> Any:
            result = None
            for step in steps:
                result = step(value)
                if is_false(result) is until_false:
                    break
            return result

        return first

    def _not_expression(self, node: Node) -> Step:
        inner = self.step(node["children"][0])

        def negate(value: Any) -> bool:
            return is_false(inner(value))

        return negate


def size_of(node: Node) -> int:
    """How many nodes there are: about how many steps it takes to evaluate them once."""
    count = 0
    waiting = [node]
    while waiting:
        one = waiting.pop()
        count += 1
        if one["type"] != "slice":
            waiting.extend(one["children"])
    return count
