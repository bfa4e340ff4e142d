"""What is known about the upstream's tools, and how the proxy asks for more.

Strategy: every page of a tool list that passes is rewritten into what clients should see, and what calls will
need is kept by tool name. Sometimes a tool has to be known before any list has passed: a typed result is held to
a schema, and a `tokenBudget` may be meant for us or for the tool. Then the result or the call waits while the
proxy requests the list itself, whatever the transport: one list at a time, page by page, under ids that no client
uses. The responses never reach the client, and however a list ends, nobody waits any longer.

A server that lists `envelope_read` itself has an envelope already, and is left alone. But whoever told the client
of that tool first stays its owner: a server can't switch the envelope off later on, or get at our handles.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw, UnsetType

from ..dialects.notice import READ_TOOL
from ..gateway import Gateway, Published
from ..jsontext.document import Buffer, encode
from ..schema import Schema
from .frames import (
    METHOD_NOT_FOUND,
    UNREADABLE,
    Frame,
    Id,
    Outgoing,
    batch,
    id_key,
    joined,
    members_of,
    read_error,
    replaced,
)

_log = logging.getLogger("mcp_envelope")
_DEEPEST: Final = 16
_MOST_PAGES: Final = 1000
# When so many wait, nothing more should be read from the client for a while.
_CROWD: Final = 100


class ListedTool(msgspec.Struct, frozen=True):
    """What a call needs to know about its tool."""

    published: Published
    # Whether the budget argument is ours and has to be removed from a call.
    adds_budget: bool


NOTHING: Final = ListedTool(Published(), False)


class ListPage(NamedTuple):
    """A page of a tool list as clients should see it (None: as it came), and the cursor of the next one."""

    shown: bytes | None = None
    cursor: str | None = None


class _Page(msgspec.Struct, rename="camel"):
    tools: list[Raw]
    next_cursor: Any = None


class _Entry(msgspec.Struct, rename="camel"):
    name: str
    input_schema: Any = None
    output_schema: Any = None


_PAGE: Final = msgspec.json.Decoder(_Page)
_ENTRY: Final = msgspec.json.Decoder(_Entry)


class ToolList:
    """What is known about one server's tools, as one caller sees them."""

    def __init__(self, gateway: Gateway, is_ours: bool = False) -> None:
        self._gateway = gateway
        # Whether a client was told of our own tool, in a list or with a handle.
        self.is_ours = is_ours
        self.by_name: dict[str, ListedTool] = {}
        # Whether any page has passed, and whether all of them have.
        self.seen = False
        self.complete = False
        # Whether the server has an envelope of its own.
        self.enveloped = False
        # By tool: the arguments that are repeated in HTTP headers, by their paths.
        self._headers: dict[str, dict[tuple[str, ...], str]] = {}

    def find(self, name: str) -> ListedTool | None:
        """What is known about a tool; None if a list could tell more."""
        found = self.by_name.get(name)
        return NOTHING if found is None and self.complete else found

    def unknown_tool(self) -> ListedTool:
        """What applies to the result of an unknown tool: it stays whole, unless no tool has a schema."""
        tools = list(self.by_name.values())
        if self.complete and all(each.published.schema is None for each in tools):
            return NOTHING
        return ListedTool(Published(schema=Schema.of(False)), False)

    def headers(self, tool: str) -> dict[tuple[str, ...], str]:
        """Which arguments of a tool go into which headers."""
        return self._headers.get(tool, {})

    def fall_back(self, older: ToolList) -> None:
        """Use what was known before, where no list can be had."""
        self.by_name |= older.by_name
        self.seen, self.complete = True, older.complete
        self.enveloped = older.enveloped and not self.is_ours

    def learn(self, result: Raw, first: bool = True, shown: bool = False) -> ListPage:
        """Learn from a page of a list. `shown` tells that a client will see the page.

        Our own tool goes to the end of the first page: there is exactly one of it, whatever the cursors mean.
        """
        try:
            page = _PAGE.decode(result)
        except UNREADABLE:
            return ListPage()
        cursor = page.next_cursor if isinstance(page.next_cursor, str) else None
        entries = [(raw, _entry(raw)) for raw in page.tools]
        self.seen = True
        others = [each for each in entries if each[1] is None or each[1].name != READ_TOOL]
        if self.enveloped or (len(others) < len(entries) and not self.is_ours):
            self.enveloped = self.complete = True
            return ListPage(None, cursor)
        entries = others
        tools = [raw if entry is None else self._rewritten(raw, entry) for raw, entry in entries]
        if page.next_cursor is None:
            self.complete = True
        if first:
            self.is_ours = self.is_ours or shown
            tools.append(encode(self._gateway.read_tool()))
        return ListPage(replaced(result, {"tools": batch(tools)}), cursor)

    def _rewritten(self, raw: Raw, entry: _Entry) -> Buffer:
        """A list entry as clients should see it."""
        try:
            return self._publish(raw, entry)
        except Exception:
            # One tool with a schema that we cannot follow must not affect the others.
            _log.exception("mcp-envelope: internal error; the tool %.200r is listed unchanged", entry.name)
            self.by_name[entry.name] = NOTHING
            return raw

    def _publish(self, raw: Raw, entry: _Entry) -> Buffer:
        schema = entry.output_schema if isinstance(entry.output_schema, dict) else None
        published = self._gateway.publish(entry.name, schema)
        name = published.budget_argument
        adds = self._gateway.adds_budget(entry.input_schema, name)
        if headers := _headers(entry.input_schema):
            self._headers[entry.name] = headers
        shown = self._gateway.listed({"inputSchema": entry.input_schema, "outputSchema": schema}, published)
        changes: dict[str, bytes | None] = {}
        if adds:
            # One more property; the others keep their bytes.
            given = members_of(raw)["inputSchema"]
            properties = members_of(given).get("properties", Raw(b"{}"))
            own = encode(shown["inputSchema"]["properties"][name])
            changes["inputSchema"] = replaced(given, {"properties": replaced(properties, {name: own})})
        output = shown.get("outputSchema")
        if output != schema:
            changes["outputSchema"] = None if output is None else encode(output)
        self.by_name[entry.name] = ListedTool(published, adds)
        return replaced(raw, changes) if changes else raw


def _entry(raw: Raw) -> _Entry | None:
    try:
        return _ENTRY.decode(raw)
    except UNREADABLE:
        return None


def _headers(schema: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], str]:
    """The properties of an input schema that have an `x-mcp-header`."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    found: dict[tuple[str, ...], str] = {}
    if isinstance(properties, dict) and len(path) < _DEEPEST:
        for name, inner in properties.items():
            if isinstance(inner, dict):
                if isinstance(header := inner.get("x-mcp-header"), str):
                    found[*path, name] = header
                found |= _headers(inner, (*path, name))
    return found


class Waiting(NamedTuple):
    """Something that goes on once the tools are known, or as well known as they will ever be."""

    then: Callable[[], Outgoing]
    # The id of the request that is held back; None for a result.
    identifier: bytes | None = None


# Waits when everybody else has been cancelled, while the list is still on its way.
_NOBODY: Final = Waiting(lambda: Outgoing([], []))


class ListRequests:
    """The proxy's own requests for a tool list, and what waits for the responses."""

    def __init__(self, tools: ToolList) -> None:
        self._tools = tools
        self._lock = threading.Lock()
        self._waiting: list[Waiting] = []
        self._prefix = f"mcp-envelope-{os.urandom(8).hex()}-"
        self._number = 0
        self._pages = 0
        self._cursor: str | None = None
        self._meta: bytes | None = None
        # Whether the server leaves such requests without a response.
        self._is_futile = False

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def are_wanted(self) -> bool:
        return any(each is not _NOBODY for each in list(self._waiting))

    @property
    def is_crowded(self) -> bool:
        return len(self._waiting) >= _CROWD

    @property
    def holds_requests(self) -> bool:
        """Whether a request from the client is held back."""
        return any(each.identifier is not None for each in list(self._waiting))

    def wait(self, waiting: Waiting, meta: bytes | None) -> Outgoing:
        """Wait for the list, which is requested unless it is on its way. `meta` says who asks."""
        with self._lock:
            if not self._is_futile:
                self._waiting.append(waiting)
                if len(self._waiting) > 1:
                    return Outgoing([], [])
                self._meta, self._pages = meta, 0
                return Outgoing([], [self._request(None)])
        return waiting.then()

    def cancel(self, key: Id) -> bool:
        """Whether a request that the client cancels was held back; it is dropped."""
        with self._lock:
            kept = [each for each in self._waiting if not each.identifier or id_key(each.identifier) != key]
            found = len(kept) < len(self._waiting)
            self._waiting = kept or ([_NOBODY] if found else [])
            return found

    def owns(self, request: bytes) -> bool:
        """Whether a frame to the server is a request of ours."""
        return self._prefix.encode() in request[:200]

    def expects(self, key: Id) -> bool:
        """Whether a response belongs to a request of ours."""
        return key[0] == "s" and key[1].startswith(self._prefix)

    def answered(self, frame: Frame) -> Outgoing:
        """Take the response to a request of ours: request the next page, or let everything go on."""
        if frame.key != ("s", f"{self._prefix}{self._number}"):
            # The server has responded twice.
            return Outgoing([], [])
        if not isinstance(frame.result, UnsetType):
            _, cursor = self._tools.learn(frame.result, self._pages == 1)
            # An empty cursor may mean another page or none; a cursor that is repeated means none.
            if cursor is not None and cursor != self._cursor and self._pages < _MOST_PAGES:
                return Outgoing([], [self._request(cursor)])
            self._tools.complete = self._tools.seen
        elif read_error(frame.error).code == METHOD_NOT_FOUND:
            # A server without tool lists advertises no schemas.
            self._tools.complete = True
        return self.finish()

    def unanswered(self, request: bytes) -> Outgoing:
        """Give up on a request of ours that has waited too long, and on all later ones."""
        with self._lock:
            if not self._waiting or f'"{self._prefix}{self._number}"'.encode() not in request[:200]:
                return Outgoing([], [])
            self._is_futile = True
        return self.finish()

    def finish(self) -> Outgoing:
        """Let everything that waits go on."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
            self._number += 1
        return joined([each.then() for each in waiting])

    def take_requests(self) -> list[bytes]:
        """Drop the requests that are held back; return their ids."""
        with self._lock:
            held = [each.identifier for each in self._waiting if each.identifier is not None]
            self._waiting = [each for each in self._waiting if each.identifier is None]
        return held

    def _request(self, cursor: str | None) -> bytes:
        self._number += 1
        self._pages += 1
        self._cursor = cursor
        params: dict[str, Any] = {} if cursor is None else {"cursor": cursor}
        if self._meta is not None:
            # A stateless request says who sends it; we speak for the sender of the call that waits.
            params["_meta"] = Raw(self._meta)
        message = {"jsonrpc": "2.0", "id": f"{self._prefix}{self._number}", "method": "tools/list"}
        return encode({**message, "params": params} if params else message)
