"""Several clients on one connection to a server, without any I/O: which message is whose.

Strategy: the server sees one client. The ids of requests and the progress tokens are replaced by numbers that are
used once, and put back on the way to the client that they came from. What the server says without naming a request
belongs to the only client that has one under way; if several have, nobody can tell whose it is, and since it may
hold what one of them said, it goes to none: a notification is dropped and a request is refused. Changes of lists
concern everybody, those of a resource whoever subscribed to it. The handshake happens once.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from msgspec import Raw, UnsetType

from ..jsontext.document import encode
from . import frames
from .frames import Frame, Id, Outgoing, members_of, text_of

_log = logging.getLogger("mcp_envelope")
_Key = TypeVar("_Key", bound=Hashable)

SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_REFUSED: Final = "The proxy cannot tell which of the clients that share this server the request is for."
# How many tasks are remembered, whose status may be told.
_MOST_TASKS: Final = 1000


class _Sent(NamedTuple, Generic[_Key]):
    """A request under way, as its client spelled it."""

    client: _Key
    identifier: bytes
    method: str
    token: bytes | None


class Delivery(NamedTuple, Generic[_Key]):
    """What comes of a frame from the server: frames for clients, and answers to the server."""

    to_clients: list[tuple[_Key, bytes]]
    to_server: list[bytes]


class Multiplexer(Generic[_Key]):
    def __init__(self) -> None:
        self._number = 0
        self._sent: dict[int, _Sent[_Key]] = {}
        # The server's own requests that a client was given.
        self._asked: dict[Id, _Key] = {}
        self._subscribers: dict[str, dict[_Key, None]] = {}
        self._levels: dict[_Key, int] = {}
        self._tasks: dict[str, _Key] = {}
        # The result of the handshake, and who waits for it: a client and its id.
        self._greeting: Raw | None = None
        self._greeted: list[tuple[_Key, bytes]] = []
        self._is_initialized = False
        self.clients: dict[_Key, None] = {}

    # -- from a client ----------------------------------------------------------------------------------------

    def from_client(self, client: _Key, data: bytes) -> Outgoing:
        """What is sent on, and what the client is answered at once. Batches have to be taken apart before."""
        frame = frames.read(data)
        if frame is None:
            return Outgoing([], [])
        self.clients.setdefault(client)
        if isinstance(frame.method, UnsetType):
            is_theirs = frame.key is not None and self._asked.get(frame.key) == client
            if is_theirs and frame.key is not None:
                del self._asked[frame.key]
            return Outgoing([], [frame.data] if is_theirs else [])
        if frame.key is None:
            return Outgoing([], self._notification(client, frame, frame.method))
        if frame.method == "initialize":
            return self._greet(client, frame)
        if frame.method == "logging/setLevel":
            level = text_of(frame.param("level")) or ""
            self._levels[client] = _LEVELS.index(level) if level in _LEVELS else 0
            if any(each < self._levels[client] for each in self._levels.values()):
                # Somebody wants to hear more than that; this client is told less.
                return Outgoing([frames.response(frame.identifier, b"{}")], [])
        if frame.method in ("resources/subscribe", "resources/unsubscribe"):
            uri = text_of(frame.param("uri")) or ""
            others = self._subscribers.setdefault(uri, {})
            is_alone = not others.keys() - {client}
            if frame.method == "resources/subscribe":
                others[client] = None
            else:
                others.pop(client, None)
            if not is_alone:
                return Outgoing([frames.response(frame.identifier, b"{}")], [])
        return Outgoing([], [self._renamed(client, frame, frame.method)])

    def _greet(self, client: _Key, frame: Frame) -> Outgoing:
        if self._greeting is not None:
            return Outgoing([frames.response(frame.identifier, bytes(self._greeting))], [])
        self._greeted.append((client, bytes(frame.identifier)))
        if len(self._greeted) > 1:
            return Outgoing([], [])
        return Outgoing([], [self._renamed(client, frame, "initialize")])

    def _renamed(self, client: _Key, frame: Frame, method: str) -> bytes:
        """A request under a number of its own, which is its progress token, too."""
        self._number += 1
        number = b"%d" % self._number
        meta = members_of(members_of(frame.params).get("_meta"))
        token = meta.get("progressToken")
        self._sent[self._number] = _Sent(
            client, bytes(frame.identifier), method, None if token is None else bytes(token)
        )
        changes: dict[str, bytes | None] = {"id": number}
        if token is not None and not isinstance(frame.params, UnsetType):
            changed = frames.replaced(members_of(frame.params)["_meta"], {"progressToken": number})
            changes["params"] = frames.replaced(frame.params, {"_meta": changed})
        return frames.replaced(frame.data, changes)

    def _notification(self, client: _Key, frame: Frame, method: str) -> list[bytes]:
        if method == "notifications/initialized":
            is_first, self._is_initialized = not self._is_initialized, True
            return [frame.data] if is_first else []
        if method == "notifications/cancelled":
            number = self._find(client, frame.param("requestId"))
            return [] if number is None else [_cancellation(number, frame)]
        return [frame.data]

    def _find(self, client: _Key, identifier: Raw | None) -> int | None:
        """The number of a client's request."""
        key = None if identifier is None else frames.id_key(bytes(identifier))
        same = (n for n, each in self._sent.items() if each.client == client and _key(each) == key)
        return next(same, None)

    def leave(self, client: _Key) -> list[bytes]:
        """A client is gone: what the server is told, so that it does nothing in vain."""
        self.clients.pop(client, None)
        self._levels.pop(client, None)
        self._asked = {key: each for key, each in self._asked.items() if each != client}
        self._greeted = [each for each in self._greeted if each[0] != client]
        told: list[bytes] = []
        for number, sent in list(self._sent.items()):
            if sent.client == client and sent.method != "initialize":
                del self._sent[number]
                told.append(_cancellation(number))
        for uri, subscribers in list(self._subscribers.items()):
            if client in subscribers:
                del subscribers[client]
                if not subscribers:
                    del self._subscribers[uri]
                    told.append(self._own("resources/unsubscribe", {"uri": uri}))
        return told

    def _own(self, method: str, params: dict[str, Any]) -> bytes:
        """A request whose response nobody waits for."""
        self._number += 1
        return encode({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})

    # -- from the server --------------------------------------------------------------------------------------

    def from_server(self, data: bytes) -> Delivery[_Key]:
        frame = frames.read(data)
        if frame is None:
            parts = frames.read_batch(data)
            given = [self.from_server(part) for part in parts or ()]
            return Delivery(
                [each for part in given for each in part.to_clients],
                [each for part in given for each in part.to_server],
            )
        if frame.is_response:
            return Delivery(self._response(frame), [])
        if isinstance(frame.method, UnsetType):
            return Delivery([], [])
        if frame.key is not None:
            return self._request(frame, frame.method, frame.key)
        return Delivery(self._told(frame, frame.method), [])

    def _response(self, frame: Frame) -> list[tuple[_Key, bytes]]:
        sent = self._sent.pop(_number(frame.identifier), None)
        if sent is None:
            return []
        if not isinstance(frame.result, UnsetType) and (task := frames.task_of(frame.result)) is not None:
            self._tasks[task] = sent.client
            if len(self._tasks) > _MOST_TASKS:
                del self._tasks[next(iter(self._tasks))]
        if sent.method == "initialize":
            waiting, self._greeted = self._greeted, []
            if not isinstance(frame.result, UnsetType):
                self._greeting = frame.result
            return [(client, frames.replaced(frame.data, {"id": mine})) for client, mine in waiting]
        changes: dict[str, bytes | None] = {"id": sent.identifier}
        if sent.method == "subscriptions/listen" and not isinstance(frame.result, UnsetType):
            changes["result"] = _with_meta(frame.result, SUBSCRIPTION, sent.identifier)
        return [(sent.client, frames.replaced(frame.data, changes))]

    def _request(self, frame: Frame, method: str, key: Id) -> Delivery[_Key]:
        if method == "ping":
            return Delivery([], [frames.response(frame.identifier, b"{}")])
        client = self._only()
        if client is None:
            return Delivery([], [frames.failure(frame.identifier, frames.INTERNAL_ERROR, _REFUSED)])
        self._asked[key] = client
        return Delivery([(client, frame.data)], [])

    def _only(self) -> _Key | None:
        """The only client with a request under way, not counting those that last."""
        found = {each.client for each in self._sent.values() if each.method != "subscriptions/listen"}
        if not found and len(self.clients) == 1:
            found = set(self.clients)
        return next(iter(found)) if len(found) == 1 else None

    def _told(self, frame: Frame, method: str) -> list[tuple[_Key, bytes]]:
        """Who hears a notification, and how."""
        subscription = members_of(frame.param("_meta")).get(SUBSCRIPTION)
        if subscription is not None:
            sent = self._sent.get(_number(subscription))
            if sent is None or isinstance(frame.params, UnsetType):
                return []
            shown = _with_meta(frame.params, SUBSCRIPTION, sent.identifier)
            return [(sent.client, frames.replaced(frame.data, {"params": shown}))]
        if method == "notifications/progress":
            token = frame.param("progressToken")
            sent = None if token is None else self._sent.get(_number(token))
            if sent is None or sent.token is None or isinstance(frame.params, UnsetType):
                return []
            shown = frames.replaced(frame.params, {"progressToken": sent.token})
            return [(sent.client, frames.replaced(frame.data, {"params": shown}))]
        return [(client, frame.data) for client in self._hearers(frame, method)]

    def _hearers(self, frame: Frame, method: str) -> Iterable[_Key]:
        if method.endswith("/list_changed"):
            return list(self.clients)
        if method == "notifications/resources/updated":
            return list(self._subscribers.get(text_of(frame.param("uri")) or "", ()))
        if method == "notifications/cancelled":
            wanted = frame.param("requestId")
            client = None if wanted is None else self._asked.pop(frames.id_key(bytes(wanted)), None)
        elif method == "notifications/tasks/status":
            client = self._tasks.get(text_of(frame.param("taskId")) or "")
        else:
            client = self._only()
            if client is not None and method == "notifications/message":
                level = text_of(frame.param("level")) or ""
                least = self._levels.get(client, 0)
                client = client if level not in _LEVELS or _LEVELS.index(level) >= least else None
        if client is None:
            _log.debug("mcp-envelope: nobody is told of %s", method)
            return []
        return [client]

    def withdrawn(self, data: bytes) -> list[tuple[_Key, bytes]]:
        """Whose a frame to the server was that could not be sent, as they spelled it."""
        frame = frames.read(data)
        kind, number = ("", 0) if frame is None or frame.key is None else frame.key
        sent = self._sent.pop(number, None) if kind == "n" else None
        if frame is None or sent is None:
            return []
        whose = [(sent.client, sent.identifier)]
        if sent.method == "initialize":
            whose, self._greeted = self._greeted, []
        return [(client, frames.replaced(frame.data, {"id": mine})) for client, mine in whose]

    def lost(self) -> None:
        """The server is gone, and nothing that was under way will be answered. Its next start begins anew."""
        self._sent.clear()
        self._asked.clear()
        self._greeted.clear()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way, apart from requests that last."""
        return all(each.method == "subscriptions/listen" for each in self._sent.values())


def _key(sent: _Sent[Any]) -> Id:
    return frames.id_key(sent.identifier)


def _number(raw: Raw) -> int:
    kind, value = frames.id_key(bytes(raw))
    try:
        return int(value) if kind in ("n", "s") else 0
    except ValueError:
        return 0


def _cancellation(number: int, frame: Frame | None = None) -> bytes:
    if frame is not None and not isinstance(frame.params, UnsetType):
        params = frames.replaced(frame.params, {"requestId": b"%d" % number})
        return frames.replaced(frame.data, {"params": params})
    told = {"requestId": number, "reason": "The client is gone."}
    return encode({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": told})


def _with_meta(holder: Raw, name: str, value: bytes) -> bytes:
    """An object with a member of its `_meta` replaced, if it is there."""
    meta = members_of(holder).get("_meta")
    if name not in members_of(meta) or meta is None:
        return bytes(holder)
    return frames.replaced(holder, {"_meta": frames.replaced(meta, {name: value})})
