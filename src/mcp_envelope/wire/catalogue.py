"""What is known of the tools behind the proxy, learned from the lists that pass.

Strategy: every list entry that passes is turned into what clients are told, and what was learned from it is kept
by the tool's name. A server that lists `envelope_read` itself has an envelope already, and is left alone.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import msgspec
from msgspec import Raw

from ..dialects.notice import READ_TOOL
from ..front import Front, Published
from ..jsontree import Buffer, encode
from ..schema import Schema
from .frames import ListResult, members_of, replaced


class Listed(msgspec.Struct, frozen=True):
    """What a call of a tool needs to know."""

    published: Published
    # Whether `tokenBudget` is ours to take out of the arguments.
    adds_budget: bool


class _Entry(msgspec.Struct):
    name: str
    inputSchema: Any = None  # noqa: N815
    outputSchema: Any = None  # noqa: N815


_log = logging.getLogger("mcp_envelope")

_ENTRY: Final = msgspec.json.Decoder(_Entry)
_LIST: Final = msgspec.json.Decoder(ListResult)
_DEEPEST: Final = 16
NOTHING: Final = Listed(Published(), False)


class Catalogue:
    def __init__(self, front: Front) -> None:
        self._front = front
        self.tools: dict[str, Listed] = {}
        # Whether a page of a list was seen, and whether every page was.
        self.seen = False
        self.complete = False
        # Whether the server has an envelope of its own, and whether a client was told of ours meanwhile.
        self.enveloped = False
        self._is_told = False
        # Arguments that a tool wants to see in headers, too, over HTTP.
        self._mirrored: dict[str, dict[tuple[str, ...], str]] = {}

    def find(self, name: str) -> Listed | None:
        """What is known of a tool; None if a list could tell more."""
        found = self.tools.get(name)
        return NOTHING if found is None and self.complete else found

    def uncertain(self) -> Listed:
        """What to hold a result to whose tool is not known: it stays whole, unless no tool promises anything."""
        if self.complete and not any(each.published.schema is not None for each in list(self.tools.values())):
            return NOTHING
        return Listed(Published(schema=Schema.of(False)), False)

    def learn(self, result: Raw, first: bool = True, told: bool = False) -> bytes | None:
        """A page of a list as clients should see it; None if it should stay as it is.

        Our own tool goes to the end of the first page: there is exactly one of it, whatever cursors mean. `told`
        says that a client gets to see the page.
        """
        try:
            page = _LIST.decode(result)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        entries = [self._entry(raw) for raw in page.tools]
        self.seen = True
        if any(entry is not None and entry.name == READ_TOOL for entry in entries):
            self.enveloped = True
        if self.enveloped:
            self.complete = True
            if first or not told or not self._is_told:
                return None
            # The client has our entry for it already.
            others = [
                raw
                for raw, entry in zip(page.tools, entries, strict=True)
                if entry is None or entry.name != READ_TOOL
            ]
            return replaced(result, {"tools": b"[%b]" % b",".join(others)})
        tools: list[Buffer] = [
            raw if entry is None else self._rewritten(raw, entry)
            for raw, entry in zip(page.tools, entries, strict=True)
        ]
        if page.next_cursor is None:
            self.complete = True
        if first:
            self._is_told = self._is_told or told
            tools.append(encode(self._front.read_tool()))
        return replaced(result, {"tools": b"[%b]" % b",".join(tools)})

    def headers(self, tool: str) -> dict[tuple[str, ...], str]:
        """Which arguments of a tool go into which headers, by their paths."""
        return self._mirrored.get(tool, {})

    def cursor(self, result: Raw) -> str | None:
        """The cursor of the next page, if there is one."""
        try:
            cursor = _LIST.decode(result).next_cursor
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        return cursor if isinstance(cursor, str) else None

    def _entry(self, raw: Raw) -> _Entry | None:
        try:
            return _ENTRY.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def _rewritten(self, raw: Raw, entry: _Entry) -> Buffer:
        try:
            return self._told(raw, entry)
        except Exception:
            # One tool with a schema that nobody can follow must not take the others with it.
            _log.exception("mcp-envelope: the tool %.200r is listed as it is", entry.name)
            self.tools[entry.name] = NOTHING
            return raw

    def _told(self, raw: Raw, entry: _Entry) -> Buffer:
        schema = entry.outputSchema if isinstance(entry.outputSchema, dict) else None
        published = self._front.publish(entry.name, schema)
        adds = self._front.adds_budget(entry.inputSchema, published.budget_argument)
        if mirrored := _mirrored(entry.inputSchema):
            self._mirrored[entry.name] = mirrored
        shown = self._front.listed({"inputSchema": entry.inputSchema, "outputSchema": schema}, published)
        changes: dict[str, bytes | None] = {}
        if adds:
            changes["inputSchema"] = _with_budget(raw, shown["inputSchema"], published.budget_argument)
        told = shown.get("outputSchema")
        if told != schema:
            changes["outputSchema"] = None if told is None else encode(told)
        self.tools[entry.name] = Listed(published, adds)
        return replaced(raw, changes) if changes else raw


def _with_budget(raw: Raw, shown: dict[str, Any], name: str) -> bytes:
    """The input schema with one more property; the others keep their bytes."""
    own = encode(shown["properties"][name])
    schema = (members_of(raw) or {})["inputSchema"]
    properties = (members_of(schema) or {}).get("properties", Raw(b"{}"))
    return replaced(schema, {"properties": replaced(properties, {name: own})})


def _mirrored(schema: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], str]:
    """The properties of an input schema that say `x-mcp-header`."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    found: dict[tuple[str, ...], str] = {}
    if isinstance(properties, dict) and len(path) < _DEEPEST:
        for name, inner in properties.items():
            if isinstance(inner, dict):
                if isinstance(token := inner.get("x-mcp-header"), str):
                    found[*path, name] = token
                found |= _mirrored(inner, (*path, name))
    return found
