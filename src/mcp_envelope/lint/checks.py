"""The rules, applied to what a tool returns.

Strategy: every expression that may reach a return is judged once, where it stands. An error in the clothes of a
result is that and nothing else; then comes the outermost thing made by hand, since mending it mends what is
inside. Cuts are looked for apart, in everything that becomes part of the result.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final, NamedTuple

from .cuts import Cuts
from .flow import Step
from .names import Names, Scope
from .records import writes_records
from .servers import Kind, Servers
from .shapes import Shapes
from .tools import Tool, Tools

_MIDDLEWARE: Final[dict[Kind, str]] = {
    "fastmcp": "add_middleware(EnvelopeMiddleware())",
    "sdk": "envelope(server)",
    "handler": "envelope(server)",
}


class Spot(NamedTuple):
    """A finding before it has a place in lines and columns."""

    rule: str
    node: ast.expr
    message: str
    tool: Tool | None = None
    returned: ast.Return | None = None


class Checks:
    def __init__(self, tree: ast.Module) -> None:
        names = Names(tree)
        self.shapes = Shapes(names)
        self.names = names
        self._servers = Servers(names)
        self.tools = Tools(names, self._servers)
        # Whether what handlers return is sealed on its way out.
        self._is_sealed = self._servers.enveloped() != set()

    def spots(self) -> Iterator[Spot]:
        seen: set[tuple[str, ast.expr]] = set()
        for spot in self._all():
            if (spot.rule, spot.node) not in seen:
                seen.add((spot.rule, spot.node))
                yield spot

    def _all(self) -> Iterator[Spot]:
        for tool in self.tools.all:
            if tool.flow.is_generator:
                continue
            cuts = Cuts(self.names, self.shapes, tool)
            for returned in tool.flow.returns:
                for expression, step in tool.flow.alternatives(returned.value, returned.step):
                    found = self._judge(tool, expression, step)
                    if found is not None:
                        yield found._replace(tool=tool, returned=returned.node)
                for node, what in cuts.of(returned.value, returned.step):
                    message = f"{tool.who} cuts its result by hand ({what}); return all of it"
                    yield Spot("ENV004", node, message)
        for call, kind in self._servers.without_envelope(self.tools.used):
            yield Spot("ENV006", call, f"this server has tools but no envelope; add {_MIDDLEWARE[kind]}")

    def _judge(self, tool: Tool, node: ast.expr, step: Step) -> Spot | None:
        scope, who = tool.scope, tool.who
        result = self.shapes.result(node, scope)
        if self.shapes.is_error(node, step.caught, scope):
            if tool.kind == "handler" and result is not None and result.is_error and not self._is_sealed:
                return None  # without the envelope, what a handler raises is an error of the protocol
            advice = "raise it, or a Failure" if tool.kind != "handler" else "with envelope(server), raise it"
            return Spot("ENV005", node, f"{who} returns an error as if it were a result; {advice}")
        if result is not None:
            content = result.content
            texts = self._texts(tool, content, step) if content is not None else None
            if tool.kind == "handler":
                return self._in_handler("ENV001", node, texts, scope, who) if not result.structured else None
            # What can't be seen may be media, which has to be sent this way.
            if result.has_meta or not (content is None or texts or self.shapes.is_plain(content, scope)):
                return None
            advice = "return the data, or Reply(data, …)"
            return Spot("ENV001", node, f"{who} returns a hand-made {result.name}; {advice}")
        is_gathered = isinstance(node, ast.Name) and node.id in tool.flow.gathered
        texts = self._texts(tool, node, step) if is_gathered or not isinstance(node, ast.Name) else None
        if texts is not None:
            if tool.kind == "handler":
                return self._in_handler("ENV002", node, texts, scope, who)
            return Spot("ENV002", node, f"{who} returns hand-made text blocks; return the text or the data")
        if self._is_encoded(tool, node, step):
            return Spot("ENV003", node, f"{who} returns data as text; return the data")
        if writes_records(tool.flow, node, step):
            return Spot("ENV007", node, f"{who} writes records into text; return the records")
        return None

    def _in_handler(
        self, rule: str, node: ast.expr, texts: list[ast.expr] | None, scope: Scope, who: str
    ) -> Spot | None:
        """A handler has no other way to say words. Once it is sealed, only data in the clothes of text is wrong."""
        if not texts:
            return None
        encoded = [text for text in texts if self.shapes.encoded(text, scope) is not None]
        if encoded:
            return Spot("ENV003", encoded[0], f"{who} returns data as text; pass it as structured_content")
        if self._is_sealed:
            return None
        made = "a CallToolResult" if rule == "ENV001" else "text blocks"
        return Spot(rule, node, f"{who} makes {made} by hand; envelope(server) seals what it returns")

    def _texts(self, tool: Tool, node: ast.expr, step: Step) -> list[ast.expr] | None:
        """The texts of a content list that has nothing but text, also if it was put together block by block."""
        if not isinstance(node, ast.Name):
            return self.shapes.texts(node, tool.scope) if node not in self._open_lists(tool) else None
        starts = [each.value for each in tool.flow.reaching(node.id, step)]
        pieces = [each.value for each in tool.flow.gathered.get(node.id, [])]
        found: list[ast.expr] = []
        for part in [*starts, *pieces]:
            texts = (
                [] if isinstance(part, ast.List) and not part.elts else self.shapes.texts(part, tool.scope)
            )
            if texts is None:
                return None
            found += texts
        return found if starts else None

    def _open_lists(self, tool: Tool) -> set[ast.expr]:
        """Lists that something else than text is added to."""
        return {
            assigned.value
            for name, pieces in tool.flow.gathered.items()
            if any(self.shapes.texts(piece.value, tool.scope) is None for piece in pieces)
            for assigned in tool.flow.assigned.get(name, [])
        }

    def _is_encoded(self, tool: Tool, node: ast.expr, step: Step) -> bool:
        if self.shapes.encoded(node, tool.scope) is not None:
            return True
        # str(rows), where rows is a list further up
        if isinstance(node, ast.Call) and self.names.dotted(node.func, tool.scope) in ("str", "repr"):
            if len(node.args) == 1 and isinstance(node.args[0], ast.Name):
                values = [value for value, _ in tool.flow.alternatives(node.args[0], step)][1:]
                return bool(values) and all(self.shapes.is_container(value, tool.scope) for value in values)
        return False
