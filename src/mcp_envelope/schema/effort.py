"""What checking a payload may cost, known before it is checked.

Strategy: schemas come from strangers, and a few lines of references can multiply without bound. So we count,
on the graph, how often one spot of a payload could be evaluated, level by level until that settles, and how
deep the validator would call itself. A document that is hopeless at a single value is refused; with the
others it depends on how deep the payload is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .document import SchemaError
from .graph import Graph, Node

# How often one spot of a payload may be evaluated: about 20 ns each, or 80 µs when errors are collected.
MAX_EVALUATIONS: Final = 20_000
MAX_EVALUATIONS_FOR_ERRORS: Final = 2_000
# The validator calls itself, on the thread's own stack: levels of the payload times applicators at one spot.
MAX_FRAMES: Final = 20_000
MAX_FRAMES_FOR_ERRORS: Final = 1_000
# Beyond this many levels nobody looks whether evaluations still multiply.
MAX_WIDTH_LEVELS: Final = 64
# The validator remembers what it found at a recursive reference, but only after unrolling it once.
MAX_UNROLLED: Final = 3_000
# References that lead back to the spot they came from: senseless, harmless when few, 2^n when many.
MAX_IDLE_CYCLES: Final = 16


class Effort:
    """Bounds on the work that validating costs, by the depth of the payload."""

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
        return depth * self._frames <= MAX_FRAMES_FOR_ERRORS and (
            self._width(depth) <= MAX_EVALUATIONS_FOR_ERRORS
        )

    def _width(self, depth: int) -> int:
        if depth < len(self._widths):
            return self._widths[depth]
        return self._widths[-1] if self._is_settled else MAX_EVALUATIONS + 1

    def _unrolls(self) -> bool:
        """Whether the schema stays small when each recursive reference is followed once."""
        if self._unrolled is None:
            self._unrolled = _unrolled_size(self._root, MAX_UNROLLED) <= MAX_UNROLLED
        return self._unrolled


def _inner_first(graph: Graph) -> list[Node]:
    """All nodes, each after those that it applies at the same spot; counts the ways back to the same spot."""
    order: list[Node] = []
    state: dict[int, int] = {}  # 1 while being visited, 2 when done
    cycles = 0
    for start in graph.nodes:
        waiting: list[tuple[Node, Iterator[Node]]] = []
        if id(start) not in state:
            state[id(start)] = 1
            waiting.append((start, start.in_place()))
        while waiting:
            node, rest = waiting[-1]
            inner = next(rest, None)
            if inner is None:
                waiting.pop()
                state[id(node)] = 2
                order.append(node)
            elif id(inner) not in state:
                state[id(inner)] = 1
                waiting.append((inner, inner.in_place()))
            elif state[id(inner)] == 1:
                cycles += 1
                if cycles > MAX_IDLE_CYCLES:
                    raise SchemaError("references lead back to themselves in too many ways", node.pointer)
    return order


def _widths(order: list[Node], sizes: dict[int, int], root: Node) -> tuple[list[int], bool]:
    """For each depth of a payload, how often its deepest spot may be evaluated; and whether that settles.

    An upper bound: of the members (or items) below, each node is taken to meet the one that costs it most.
    """
    ceiling = MAX_EVALUATIONS + 1
    widths = dict(sizes)
    found = [widths[id(root)]]

    def width(node: Node | None) -> int:
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


def _unrolled_size(root: Node, limit: int) -> int:
    size = 1
    open_nodes = {id(root)}
    waiting: list[tuple[Node, Iterator[Node]]] = [(root, iter((*root.in_place(), *root.below())))]
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
