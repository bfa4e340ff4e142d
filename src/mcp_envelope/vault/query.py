"""JMESPath over a stored payload of any size, without loading it.

Strategy: the outer steps of an expression are taken lazily. Keys, indexes and slices walk in the outline; a
projection, a filter, `[]`, `map` and the like run over the children one at a time, as a stream, and each child
is decoded for itself. `length`, `keys` and `type` need not decode anything. Whatever needs all of a value at
once gets it, if it is of moderate size. What passes through whole keeps its exact bytes.

The answers are those of the library, with two differences. A step into a string that holds JSON goes on
inside: `result.rows[0]` works whether `result` is an object or one written into a string. And where the
library fails on a number and a string, `<` is null and `contains` is false. Mistakes that depend on the payload
(a function that gets a value of the wrong type) are told if the stream comes to them.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec import Raw

from ..jsontree import OPEN_ARRAY
from .bounds import BadQuery, Budget, TooCostly
from .document import Value
from .evaluation import Engine, Stream, decode, size_of
from .expression import SEQUENCES, Node, looks_once, parse, parts_of
from .functions import OBJECT, POINTER, Step, WrongType, is_false
from .pieces import Piece

__all__ = ["LIMITS", "BadQuery", "Limits", "TooCostly", "run"]

_ADVICE: Final = (
    "Begin with the list that is meant and choose before anything else, such as items[?status=='failed'].id, "
    "or give a path."
)
# Less than this is decoded without a thought about memory.
_SMALL: Final = 1 << 16
# So many of the last items of a stream are kept to find one of them.
_LAST: Final = 1000


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one query may cost: characters, seconds, steps, and bytes."""

    expression: int = 4000
    seconds: float = 5.0
    steps: int = 200_000_000
    # What is decoded at once, what is held in memory at a time, and what the result may have.
    whole: int = 32 << 20
    memory: int = 256 << 20
    result: int = 64 << 20


LIMITS: Final = Limits()


def run(root: Value, expression: str, limits: Limits = LIMITS) -> bytes:
    """What the expression selects, as JSON: `null` if there is nothing."""
    if root.kind == "text":
        raise BadQuery(
            "the payload is text, or too deep to be read as JSON; grep searches text, query does not", 0
        )
    tree = parse(expression, limits.expression)
    search = _Search(expression, limits)
    try:
        return search.written(search.look(tree, root))
    except RecursionError:
        raise TooCostly(f"stopped, because values are nested too deeply. {_ADVICE}") from None


class _Search:
    def __init__(self, expression: str, limits: Limits) -> None:
        self._limits = limits
        self._budget = Budget(
            seconds=limits.seconds, steps=limits.steps, memory=limits.memory, advice=_ADVICE
        )
        self._engine = Engine(expression, self._budget, limits.result)
        self._steps: dict[int, Step] = {}

    # -- the end of the way ---------------------------------------------------------------------------------

    def written(self, found: Any) -> bytes:
        if isinstance(found, Stream):
            data = bytearray(b"[")
            for item in found.items:
                mark = self._budget.held
                data += self.written(item)
                data += b","
                self._budget.held = mark
                if len(data) > self._limits.result:
                    self._engine.too_large()
            data[max(len(data) - 1, 1) :] = b"]"
            return bytes(data)
        if isinstance(found, Value):
            if found.size > self._limits.result:
                self._engine.too_large()
            return found.raw()
        return bytes(found) if isinstance(found, Raw) else self._engine.encoded(found)

    def _whole(self, found: Any) -> Any:
        """All of it, decoded."""
        if isinstance(found, Stream):
            items: list[Any] = []
            for item in found.items:
                if not isinstance(item, Value | Raw):
                    self._budget.hold(OBJECT + 3 * self._engine.functions.look_at(item, self._budget.room))
                self._budget.hold(POINTER)
                items.append(self._whole(item))
            return items
        if isinstance(found, Value):
            if found.size > self._limits.whole:
                size = f"{found.size / (1 << 20):.0f} MB"
                self._budget.refuse(f"it needs all {size} of what is at {found.path or 'the top'} at once")
            return self._engine.loaded(found.raw())
        return self._engine.loaded(found) if isinstance(found, Raw) else found

    # -- the way --------------------------------------------------------------------------------------------

    def look(self, node: Node, current: Any) -> Any:
        """What the node makes of the current value: a `Value`, a stream, raw or decoded JSON."""
        kind = node["type"]
        if kind in ("identity", "current"):
            return current
        if kind in SEQUENCES:
            for part in parts_of(node, SEQUENCES):
                current = self.look(part, current)
            return current
        if isinstance(current, Raw) or (isinstance(current, Stream) and not looks_once(node)):
            current = self._whole(current)
        if isinstance(current, Value | Stream):
            return getattr(self, f"_{kind}", self._other)(node, current)
        return self._step(node)(current)

    def _step(self, node: Node) -> Step:
        step = self._steps.get(id(node))
        if step is None:
            step = self._steps[id(node)] = self._engine.step(node)
        return step

    def _of(self, node: Node, found: list[Any]) -> Any:
        """The node with its children evaluated already."""
        literals = [{"type": "literal", "value": self._whole(one), "children": []} for one in found]
        return self._engine.step({**node, "children": literals})(None)

    def _literal(self, node: Node, current: Any) -> Any:
        return node["value"]

    def _field(self, node: Node, current: Value | Stream) -> Any:
        if isinstance(current, Stream):
            return None
        value = current.opened()
        if value.kind == "text":
            return self._step(node)(self._whole(value))
        piece = value.member(node["value"]) if value.kind == "object" else None
        return None if piece is None else _settled(value.value(piece))

    def _index(self, node: Node, current: Value | Stream) -> Any:
        index = node["value"]
        if isinstance(current, Stream):
            if index >= 0:
                return next(islice(current.items, min(index, sys.maxsize), None), None)
            if -index > _LAST:
                return self._step(node)(self._whole(current))
            last = deque(current.items, maxlen=-index)
            return last[0] if len(last) == -index else None
        value = current.opened()
        if value.kind == "text":
            return self._step(node)(self._whole(value))
        index += value.total if index < 0 else 0
        if value.kind != "array" or not 0 <= index < value.total:
            return None
        return _settled(value.value(next(value.pieces(index))))

    def _slice(self, node: Node, current: Value | Stream) -> Any:
        start, stop, stride = node["children"]
        if isinstance(current, Stream):
            if min(start or 0, stop or 0, stride or 0) < 0:
                return self._step(node)(self._whole(current))
            start, stop, stride = [
                None if end is None else min(end, sys.maxsize) for end in (start, stop, stride)
            ]
            return Stream(islice(current.items, start, stop, stride))
        value = current.opened()
        if value.kind != "array":
            return self._step(node)(self._whole(value)) if value.kind == "text" else None
        picked = range(value.total)[start:stop:stride]
        if not picked:
            return []
        forward = picked if picked.step > 0 else picked[::-1]
        items = islice(self._children(value, forward[0]), 0, forward[-1] - forward[0] + 1, forward.step)
        return Stream(items if forward is picked else self._backward(items))

    def _backward(self, items: Iterator[Any]) -> Iterator[Any]:
        kept: list[Any] = []
        for item in items:
            self._budget.hold(OBJECT + (0 if isinstance(item, Value) else len(item)))
            kept.append(item)
        yield from reversed(kept)

    # -- streams --------------------------------------------------------------------------------------------

    def _children(self, value: Value, first: int = 0) -> Iterator[Any]:
        for piece in value.pieces(first):
            self._budget.spend(1)
            yield _child(piece)

    def _items(self, base: Any) -> Iterator[Any] | None:
        """The items of a list that is a stream or can be one."""
        if isinstance(base, Stream):
            return base.items
        if isinstance(base, Value):
            value = base.opened()
            return self._children(value) if value.kind == "array" else None
        return None

    def _projection(self, node: Node, current: Any) -> Any:
        left, right = node["children"]
        return self._over(node, self.look(left, current), right, None)

    def _filter_projection(self, node: Node, current: Any) -> Any:
        left, right, condition = node["children"]
        return self._over(node, self.look(left, current), right, condition)

    def _over(self, node: Node, base: Any, right: Node, condition: Node | None) -> Any:
        items = self._items(base)
        return (
            self._at_once(node, base) if items is None else Stream(self._projected(items, right, condition))
        )

    def _value_projection(self, node: Node, current: Any) -> Any:
        left, right = node["children"]
        base = self.look(left, current)
        if isinstance(base, Value) and base.opened().kind == "object":
            return Stream(self._projected(self._children(base.opened()), right, None))
        return None if isinstance(base, Stream) else self._at_once(node, base)

    def _at_once(self, node: Node, base: Any) -> Any:
        """A loop over what is no list or object, as far as the outline knows, or is decoded already."""
        if isinstance(base, Value) and base.opened().kind != "text":
            return None
        literal = {"type": "literal", "value": self._whole(base), "children": []}
        return self._engine.step({**node, "children": [literal, *node["children"][1:]]})(None)

    def _projected(self, items: Iterable[Any], right: Node, condition: Node | None) -> Iterator[Any]:
        budget = self._budget
        cost = size_of(right) + (size_of(condition) if condition else 0)
        as_it_is = right["type"] == "identity"
        test, step = self._step(condition) if condition else None, self._step(right)
        for item in items:
            # What an item takes is free again when the next one comes; who keeps a result accounts for it.
            mark = budget.held
            budget.spend(cost)
            result = item
            if isinstance(item, Value):
                chosen = not condition or not self._is_false(self.look(condition, item))
                result = self.look(right, item) if chosen else None
                if isinstance(result, Stream):
                    result = self._whole(result)
            elif not (as_it_is and test is None):
                value = self._decoded(item) if type(item) is Raw else item
                if (value is None and as_it_is) or (test is not None and is_false(test(value))):
                    result = None
                elif not as_it_is:
                    result = step(value)
            elif type(item) is Raw and len(item) == 4 and bytes(item) == b"null":
                result = None
            budget.held = mark
            if result is not None:
                yield result

    def _decoded(self, item: Raw) -> Any:
        """An item of a stream for the time that it is looked at."""
        if len(item) > _SMALL:
            return self._engine.loaded(item)
        self._budget.spend(len(item) // 16)
        return decode(item)

    def _flatten(self, node: Node, current: Any) -> Any:
        base = self.look(node["children"][0], current)
        items = self._items(base)
        return self._at_once(node, base) if items is None else Stream(self._flat(items))

    def _flat(self, items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            if isinstance(item, Value) and item.kind == "array":
                yield from self._children(item)
            elif isinstance(item, Raw) and memoryview(item)[0] == 0x5B:
                inner = OPEN_ARRAY.decode(item)
                self._budget.spend(len(inner))
                yield from inner
            elif type(item) is list:
                yield from self._engine.functions.watched(item)
            else:
                yield item

    # -- what looks more than once --------------------------------------------------------------------------

    def _multi_select_list(self, node: Node, current: Value) -> Any:
        return [self._whole(self.look(child, current)) for child in node["children"]]

    def _multi_select_dict(self, node: Node, current: Value) -> Any:
        return {
            child["value"]: self._whole(self.look(child["children"][0], current))
            for child in node["children"]
        }

    def _or_expression(self, node: Node, current: Value) -> Any:
        return self._first(node, current, until_false=False)

    def _and_expression(self, node: Node, current: Value) -> Any:
        return self._first(node, current, until_false=True)

    def _first(self, node: Node, current: Value, *, until_false: bool) -> Any:
        result = None
        for part in parts_of(node, (node["type"],)):
            result = self.look(part, current)
            if self._is_false(result) is until_false:
                break
        return result

    def _not_expression(self, node: Node, current: Any) -> bool:
        return self._is_false(self.look(node["children"][0], current))

    def _is_false(self, found: Any) -> bool:
        if isinstance(found, Stream):
            return found.is_empty()
        if isinstance(found, Value) and found.kind in ("array", "object", "string", "number"):
            return found.kind != "number" and found.total == 0
        return is_false(self._whole(found))

    def _other(self, node: Node, current: Any) -> Any:
        return self._of(node, [self.look(child, current) for child in node["children"]])

    # -- functions ------------------------------------------------------------------------------------------

    def _function_expression(self, node: Node, current: Any) -> Any:
        name = node["value"]
        found = [
            None if child["type"] == "expref" else self.look(child, current) for child in node["children"]
        ]
        first = found[0]
        if name == "length" and isinstance(first, Value) and first.kind in ("array", "object", "string"):
            return first.total
        if name == "length" and isinstance(first, Stream):
            return sum(1 for _ in first.items)
        if name == "type" and isinstance(first, Value) and first.kind != "text":
            return first.kind
        if name in ("keys", "values") and isinstance(first, Value) and first.kind == "object":
            return self._keys(first) if name == "keys" else Stream(self._children(first))
        steps = [self._step(child["children"][0]) for child in node["children"] if child["type"] == "expref"]
        if name in ("map", "max_by", "min_by"):
            array = found[1] if name == "map" else first
            if isinstance(array, Stream) or (isinstance(array, Value) and array.kind == "array"):
                items = self._items(array)
                assert items is not None
                if name == "map":
                    return Stream(self._mapped(items, steps[0]))
                return self._best(node, items, steps[0])
        arguments = [
            self._step(child["children"][0]) if child["type"] == "expref" else self._whole(one)
            for child, one in zip(node["children"], found, strict=True)
        ]
        return self._engine.called(node, arguments)

    def _keys(self, value: Value) -> list[str]:
        keys: list[str] = []
        for piece in value.pieces(0):
            assert piece.member is not None
            self._budget.hold(2 * OBJECT + len(piece.member.key))
            keys.append(piece.member.key)
        return keys

    def _mapped(self, items: Iterator[Any], step: Step) -> Iterator[Any]:
        for item in items:
            mark = self._budget.held
            result = step(self._whole(item))
            self._budget.held = mark
            yield result

    def _best(self, node: Node, items: Iterator[Any], key: Step) -> Any:
        try:
            return self._engine.functions.best(node["value"], self._mapped(items, lambda item: item), key)
        except WrongType as error:
            raise self._engine.wrong(node, error) from None


def _child(piece: Piece) -> Any:
    return piece.value if piece.far is None else piece.far


def _settled(value: Value) -> Value | None:
    return None if value.kind == "null" else value
