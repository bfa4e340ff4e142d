"""Whether an instance conforms to a schema, and where it doesn't.

Strategy: a `Schema` is a document prepared once: its graph, the bounds on what checking costs, the compiled
validator and the place of the root. Preparing takes far longer than checking, so `Schema.of` keeps the most
recently used ones by their encoded text. An instance that would cost too much to check counts as not conforming.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from threading import Lock
from typing import Any, ClassVar, Final

import msgspec

from ..jsontext.errors import replace_lone_surrogates
from .document import Document, SchemaError, check, depth
from .places import Graph, Place, Places, Subschema
from .validator import compiled, deepest_error


class Schema:
    """A schema document, checked: where it lets us cut, and whether an instance conforms."""

    _cache: ClassVar[OrderedDict[bytes, Schema]] = OrderedDict()
    _cache_lock: ClassVar[Lock] = Lock()
    _CACHE_SIZE: ClassVar[int] = 128

    def __init__(self, document: Mapping[str, Any] | bool) -> None:
        self.document = document
        read = Document(document)
        try:
            graph = Graph(read)
            self._effort = Effort(graph)
        except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
            # A keyword of the wrong type: the validator says which one.
            compiled(document)
            raise SchemaError(f"a keyword has a value of the wrong type ({error})") from None
        self._validator = compiled(document)
        self.root: Place = Places().of([graph.root])

    @classmethod
    def of(cls, document: Mapping[str, Any] | bool) -> Schema:
        """Return the schema for this document, prepared once."""
        key = _key_of(document)
        with cls._cache_lock:
            schema = cls._cache.get(key)
            if schema is not None:
                cls._cache.move_to_end(key)
                return schema
        schema = cls(document)
        with cls._cache_lock:
            cls._cache[key] = schema
            if len(cls._cache) > cls._CACHE_SIZE:
                cls._cache.popitem(last=False)
        return schema

    def is_valid(self, instance_json: bytes) -> bool:
        """Whether the instance is JSON, conforms, and doesn't cost too much to check."""
        try:
            instance = _decode(instance_json)
        except (ValueError, RecursionError):
            return False
        return self._is_affordable(instance, instance_json) and self._validator.is_valid(instance)

    def first_error(self, instance_json: bytes) -> tuple[str, str] | None:
        """Return where an instance fails, as a JSON pointer, and why; None if it conforms."""
        try:
            instance = _decode(instance_json)
        except RecursionError:
            return "", "nested too deeply to be checked"
        except ValueError as error:
            return "", f"not JSON: {error}"
        if not self._is_affordable(instance, instance_json):
            return "", "too costly to check: the schema multiplies at this depth"
        if self._validator.is_valid(instance):
            return None
        if not self._effort.allows_errors(depth(instance)):
            return "", "does not conform to the schema, which is too entangled to say where"
        return deepest_error(self._validator, instance) or ("", "does not conform to the schema")

    def _is_affordable(self, instance: Any, instance_json: bytes) -> bool:
        # There can't be more levels than brackets, which are quickly counted.
        brackets = instance_json.count(b"{") + instance_json.count(b"[")
        return self._effort.allows(brackets) or self._effort.allows(depth(instance))


def _key_of(document: Mapping[str, Any] | bool) -> bytes:
    """Return the document's text, the same for any order of its members."""
    if not isinstance(document, dict | bool):
        check(document)
    try:
        return msgspec.json.encode(document, order="deterministic")
    except (TypeError, ValueError, RecursionError) as error:
        # A better reason, if there is one. Checking costs more than encoding, so it comes second.
        check(document)
        if isinstance(error, RecursionError):
            raise
        raise SchemaError(f"the schema is not JSON: {error}") from None


def _decode(instance_json: bytes) -> Any:
    try:
        return msgspec.json.decode(instance_json)
    except ValueError:
        # msgspec refuses numbers beyond a double and halves of surrogate pairs; JSON doesn't.
        repaired, _ = replace_lone_surrogates(instance_json)
        return json.loads(repaired, parse_float=_float, parse_int=_integer, parse_constant=_no_constant)


def _float(text: str) -> float | Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        return float(text)


def _integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits) < 4_000 else Decimal(digits)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# How often one spot of a payload may be evaluated: about 20 ns each, or 80 µs when errors are collected.
MAX_EVALUATIONS: Final = 20_000
MAX_EVALUATIONS_FOR_ERRORS: Final = 2_000
# The validator recurses on the thread's own stack: levels of the payload times applicators at one spot.
MAX_FRAMES: Final = 20_000
MAX_FRAMES_FOR_ERRORS: Final = 1_000
# Beyond this many levels we don't check whether evaluations still multiply.
MAX_WIDTH_LEVELS: Final = 64
# The validator remembers what it found at a recursive reference, but only after unrolling it once.
MAX_UNROLLED: Final = 3_000
# References that lead back to the spot they came from: pointless, harmless when few, 2^n when many.
MAX_IDLE_CYCLES: Final = 16


class Effort:
    """Bounds on the work that validation takes, by the depth of the payload."""

    def __init__(self, graph: Graph) -> None:
        self._root = graph.root
        order = _inner_first(graph)
        sizes: dict[int, int] = {}
        heights: dict[int, int] = {}
        for node in order:
            inner = list(node.in_place())
            sizes[id(node)] = 1 + sum(sizes.get(id(part), 1) for part in inner)
            heights[id(node)] = 1 + max((heights.get(id(part), 1) for part in inner), default=0)
            if sizes[id(node)] > MAX_EVALUATIONS:
                raise SchemaError(
                    f"checking one value would take more than {MAX_EVALUATIONS} steps", node.pointer
                )
        self._frames = max(heights.values(), default=1)
        self._widths, self._is_settled = _widths(order, sizes, graph.root)
        self._unrolled: bool | None = None

    def allows(self, depth: int) -> bool:
        if depth * self._frames > MAX_FRAMES:
            return False
        return self._width(depth) <= MAX_EVALUATIONS or self._unrolls()

    def allows_errors(self, depth: int) -> bool:
        is_shallow = depth * self._frames <= MAX_FRAMES_FOR_ERRORS
        return is_shallow and self._width(depth) <= MAX_EVALUATIONS_FOR_ERRORS

    def _width(self, depth: int) -> int:
        if depth < len(self._widths):
            return self._widths[depth]
        return self._widths[-1] if self._is_settled else MAX_EVALUATIONS + 1

    def _unrolls(self) -> bool:
        """Whether the schema stays small when each recursive reference is followed once."""
        if self._unrolled is None:
            self._unrolled = _unrolled_size(self._root, MAX_UNROLLED) <= MAX_UNROLLED
        return self._unrolled


def _inner_first(graph: Graph) -> list[Subschema]:
    """Return all nodes, each after those it applies at the same spot; raise SchemaError for too many cycles."""
    order: list[Subschema] = []
    is_done: dict[int, bool] = {}  # False while being visited
    cycles = 0
    for start in graph.nodes:
        waiting = [(start, iter((start,)))]
        while waiting:
            node, rest = waiting[-1]
            inner = next(rest, None)
            if inner is None:
                waiting.pop()
                if waiting:
                    is_done[id(node)] = True
                    order.append(node)
            elif id(inner) not in is_done:
                is_done[id(inner)] = False
                waiting.append((inner, inner.in_place()))
            elif not is_done[id(inner)]:
                cycles += 1
                if cycles > MAX_IDLE_CYCLES:
                    raise SchemaError("references lead back to themselves in too many ways", node.pointer)
    return order


def _widths(order: list[Subschema], sizes: dict[int, int], root: Subschema) -> tuple[list[int], bool]:
    """Return how often the deepest spot may be evaluated, for each depth of a payload, and whether that settles.

    This is an upper bound: each node is assumed to meet the member or item that costs it most.
    """
    ceiling = MAX_EVALUATIONS + 1
    widths = dict(sizes)
    found = [widths[id(root)]]

    def width(node: Subschema | None) -> int:
        return 0 if node is None else widths.get(id(node), 1)

    for _ in range(MAX_WIDTH_LEVELS):
        reached: dict[int, int] = {}
        for node in order:
            named = max(map(width, node.properties.values()), default=0)
            members = max(named, width(node.other_properties)) + width(node.unevaluated_properties)
            members += sum(width(child) for _, child in node.patterns)
            listed = max(map(width, node.prefix), default=0)
            items = max(listed, width(node.other_items)) + width(node.unevaluated_items)
            items += width(node.contains)
            inner = sum(reached.get(id(part), 0) for part in node.in_place())
            reached[id(node)] = min(ceiling, max(members, items) + inner)
        following = {key: max(sizes[key], reached[key], widths[key]) for key in sizes}
        if following == widths:
            return found, True
        widths = following
        found.append(widths[id(root)])
        if found[-1] >= ceiling:
            break
    return found, False


def _unrolled_size(root: Subschema, limit: int) -> int:
    size = 0
    open_nodes: set[int] = set()
    waiting = [(root, iter((root,)))]
    while waiting and size <= limit:
        node, rest = waiting[-1]
        inner = next(rest, None)
        if inner is None:
            waiting.pop()
            open_nodes.discard(id(node))
            continue
        size += 1
        if id(inner) not in open_nodes:
            open_nodes.add(id(inner))
            waiting.append((inner, iter((*inner.in_place(), *inner.below()))))
    return size
