"""One client and many servers, without any I/O: frames in, frames out, each with its server.

Strategy: what the servers offer is known from the last time, so the client's handshake and lists are answered at
once, and a server is started when something is sent to it. One that is not known yet is started, asked, and ended
again unless it is used; one that is started anyway is asked again, and the client is told if a list has changed.
What the client sends goes to the server whose tool, prompt or resource it names, through an interceptor of its own,
so that one server's settings and masked values are not another's. Ids of the client's requests stay as they are;
those of the servers' requests are replaced, because two servers may use the same. A server that fails costs its own
answers and nothing else.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from msgspec import UNSET, Raw, UnsetType

from ..dialects.notice import READ_TOOL
from ..jsontext.document import encode
from . import frames
from .catalogue import (
    LISTS,
    SEPARATOR,
    Names,
    Offer,
    fits_template,
    merged,
    name_of,
    named,
    prefixes,
    renamed,
)
from .frames import Frame, Id, Outgoing, members_of, text_of
from .interceptor import LOGIN_NEEDED, Interceptor, read_sender
from .multiplexer import SUBSCRIPTION
from .reads import Work
from .relay import RoutedFrames

_log = logging.getLogger("mcp_envelope")

_CURRENT: Final = "2025-11-25"
_STATELESS: Final = "2026-07-28"
_UNSUPPORTED_VERSION: Final = -32022
# Methods that the stateless era has no more.
_REMOVED: Final = frozenset(
    ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "tasks/list"]
)
_TASKS: Final = "io.modelcontextprotocol/tasks"
_INITIALIZED: Final = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
_CHANGED: Final = {
    "notifications/tools/list_changed": ("tools",),
    "notifications/prompts/list_changed": ("prompts",),
    "notifications/resources/list_changed": ("resources", "templates"),
}
_LISTENS_FOR: Final = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}
# Seconds that a server may take for a handshake or a list before whoever waits goes on without it.
_PATIENCE: Final = 15.0
_MOST_PAGES: Final = 1000
_MOST_TASKS: Final = 1000

Heard = Callable[[Frame | None], None]


class Memory(Protocol):
    """What is remembered of servers, by era."""

    def load(self, server: str, era: str) -> Offer | None: ...
    def save(self, server: str, era: str, offer: Offer) -> None: ...


class Backend:
    """One server of the gateway."""

    def __init__(self, name: str, interceptor: Interceptor) -> None:
        self.name = name
        self.interceptor = interceptor
        self.offer: Offer | None = None
        # The tools as the envelope shows them.
        self.tools: list[Raw] = []
        # "closed", "opening" (its handshake is under way) or "open".
        self.state = "closed"
        self.held: list[bytes] = []
        self.is_learning = False
        # Whether a list has changed while it was being asked for, and which it says have.
        self.is_stale = False
        self.announced: set[str] = set()
        # Whether the handshake takes longer than anybody waits.
        self.is_late = False
        # Whether the client has sent it anything.
        self.is_used = False


class _Waiting(NamedTuple):
    """A request of the client's that waits for these servers, and what answers it."""

    servers: set[str]
    answer: Callable[[], None]


class Router:
    """`reader` answers reads from the vault; `short` leaves out the servers' names where that is possible.

    `logins` has the command that logs in to a server, for those that may want it.
    """

    def __init__(
        self,
        interceptors: Mapping[str, Interceptor],
        reader: Interceptor,
        memory: Memory,
        info: Mapping[str, str],
        *,
        short: bool = False,
        logins: Mapping[str, str] | None = None,
    ) -> None:
        # Frames from servers are worked on in other threads.
        self._lock = threading.RLock()
        self._backends = {name: Backend(name, each) for name, each in interceptors.items()}
        self._reader = reader
        self._reader.tools.is_ours = self._reader.tools.seen = self._reader.tools.complete = True
        self._memory = memory
        self._info = info
        self._short = short
        self._logins = logins or {}
        self._prefix = prefixes(interceptors)
        self._tools = Names({}, {})
        self._prompts = Names({}, {})
        # What is to be sent, while an entry point runs.
        self._out = RoutedFrames([], [], [])
        # "sessions" or "stateless", once the client has begun.
        self._era = ""
        self._hello: Raw | None = None
        # Whether the client's handshake was answered; before that, nothing is news.
        self._is_greeted = True
        self._meta: bytes | None = None
        self._level: bytes | None = None
        self._token = f"mcp-envelope-{os.urandom(8).hex()}-"
        self._number = 0
        # Our own requests: the server, and who hears of the response.
        self._own: dict[str, tuple[Backend, Heard]] = {}
        # The client's requests under way, by id; and the servers' at the client.
        self._under_way: dict[Id, Backend] = {}
        self._asked: dict[Id, tuple[Backend, bytes]] = {}
        self._waiting: list[_Waiting] = []
        # Reads of addresses that nobody has listed: the request, and who is asked next.
        self._trying: dict[Id, tuple[bytes, str | None, list[Backend]]] = {}
        self._tasks: dict[str, Backend] = {}
        # Streams of the stateless era that listen: their request, and what for.
        self._listening: dict[bytes, tuple[bytes, dict[str, Any]]] = {}
        # The kinds of lists that the client has seen.
        self._seen: set[str] = set()

    # -- the entry points -------------------------------------------------------------------------------------

    def from_client(self, data: bytes, owner: str | None, later: list[Work]) -> RoutedFrames:
        with self._lock:
            for part in frames.read_batch(data) or [data]:
                frame = frames.read(part)
                if frame is not None:
                    self._from_client(frame, owner, later)
            return self._taken()

    def done(self, work: Work) -> RoutedFrames:
        return RoutedFrames(work().to_client, [])

    def from_server(self, server: str, data: bytes) -> RoutedFrames:
        backend = self._backends[server]
        if self._token.encode() in data[:400] or self._token.encode() in data[-400:]:
            frame = frames.read(data)
            if frame is not None and frame.is_response and frame.key is not None and frame.key[0] == "s":
                with self._lock:
                    if self._own.get(frame.key[1], (None,))[0] is backend:
                        self._heard(frame.key[1], frame)
                    return self._taken()
        routed = Outgoing([data], [])
        if not any(name.encode() in data[:300] for name in _CHANGED):
            # Without the lock: a large result takes a while.
            routed = backend.interceptor.from_line(data)
        with self._lock:
            for each in routed.to_client:
                for part in frames.read_batch(each) or [each]:
                    self._arrived(backend, part)
            return self._taken()

    def lost(self, server: str, words: str, code: str) -> RoutedFrames:
        backend = self._backends[server]
        with self._lock:
            if backend.state == "opening":
                backend.state = "closed"
            backend.held.clear()
            for answer in backend.interceptor.lost(f"{server}: {words}", code):
                self._arrived(backend, answer)
            for identifier in [name for name, (each, _) in self._own.items() if each is backend]:
                self._heard(identifier, None)
            self._asked = {key: each for key, each in self._asked.items() if each[0] is not backend}
            return self._taken()

    def failed(self, server: str, data: bytes, words: str, code: str) -> RoutedFrames:
        with self._lock:
            self._unsent(self._backends[server], data, words, code)
            return self._taken()

    def patience(self, server: str, data: bytes) -> float | None:
        return _PATIENCE if self._token.encode() in data[:200] else None

    def unanswered(self, server: str, data: bytes) -> RoutedFrames:
        """A server takes longer for a request of ours than anybody waits; its answer may still come."""
        backend = self._backends[server]
        frame = frames.read(data)
        with self._lock:
            if frame is not None and frame.key is not None and frame.key[1] in self._own:
                if backend.state == "opening":
                    backend.is_late = True
                    held, backend.held = backend.held, []
                    for each in held:
                        self._unsent(backend, each, _late(backend), "UPSTREAM_TIMEOUT")
                self._settled(backend)
            return self._taken()

    def headers(self, tool: str) -> Mapping[tuple[str, ...], str]:
        with self._lock:
            found = self._find(self._tools, tool)
        return {} if found is None else found[0].interceptor.tools.headers(found[1])

    @property
    def expects_answers(self) -> bool:
        """Whether the client still waits for something."""
        return bool(self._under_way or self._waiting)

    def _taken(self) -> RoutedFrames:
        taken, self._out = self._out, RoutedFrames([], [], [])
        return taken

    # -- what is sent -----------------------------------------------------------------------------------------

    def _say(self, frame: bytes) -> None:
        self._out.to_client.append(frame)

    def _answer(self, frame: Frame, result: Any) -> None:
        self._say(frames.response(frame.identifier, result if isinstance(result, bytes) else encode(result)))

    def _refuse(self, frame: Frame, code: int, message: str) -> None:
        self._say(frames.failure(frame.identifier, code, message))

    def _tell(self, backend: Backend, frame: bytes) -> None:
        """Send a frame to a server as it is."""
        self._out.to_servers.append((backend.name, frame))

    def _forward(self, backend: Backend, data: bytes, owner: str | None, later: list[Work]) -> None:
        """Send something of the client's through the envelope; the server is started if need be."""
        routed = backend.interceptor.from_client(data, owner, later)
        self._out.to_client.extend(routed.to_client)
        if routed.to_server:
            backend.is_used = True
            if backend.state == "closed":
                self._open(backend)
        for frame in routed.to_server:
            if backend.state == "open":
                self._tell(backend, frame)
            elif backend.is_late:
                self._unsent(backend, frame, _late(backend), "UPSTREAM_TIMEOUT")
            else:
                backend.held.append(frame)

    def _unsent(self, backend: Backend, data: bytes, words: str, code: str) -> None:
        frame = frames.read(data)
        if frame is None or frame.key is None or isinstance(frame.method, UnsetType):
            return
        if frame.key[0] == "s" and frame.key[1] in self._own:
            if backend.state == "opening":
                backend.state = "closed"
                held, backend.held = backend.held, []
                for each in held:
                    self._unsent(backend, each, words, code)
            self._heard(frame.key[1], None)
        elif backend.interceptor.awaits(frame.key):
            failure = backend.interceptor.failed(data, f"{backend.name}: {words}", code)
            if failure is not None:
                self._arrived(backend, failure)

    def _ask(self, backend: Backend, method: str, params: Mapping[str, Any], heard: Heard) -> None:
        """Send a request of ours."""
        self._number += 1
        identifier = f"{self._token}{self._number}"
        self._own[identifier] = backend, heard
        given: dict[str, Any] = dict(params)
        if self._era == "stateless" and self._meta is not None:
            given["_meta"] = Raw(self._meta)
        request = {"jsonrpc": "2.0", "id": identifier, "method": method}
        self._tell(backend, encode({**request, "params": given} if given else request))

    def _heard(self, identifier: str, frame: Frame | None) -> None:
        backend, heard = self._own.pop(identifier, (None, None))
        if backend is not None and heard is not None:
            heard(frame)

    # -- a server is opened, and asked what it offers -----------------------------------------------------------

    def _open(self, backend: Backend) -> None:
        if self._era == "stateless":
            backend.state = "open"
            self._learn(backend)
            return
        backend.state = "opening"
        backend.is_late, backend.is_learning = False, True
        hello = members_of(self._hello)
        self._ask(backend, "initialize", hello, lambda frame: self._opened(backend, frame))

    def _opened(self, backend: Backend, frame: Frame | None) -> None:
        result = UNSET if frame is None else frame.result
        if isinstance(result, UnsetType):
            backend.state, backend.is_learning = "closed", False
            held, backend.held = backend.held, []
            said = frames.read_error(UNSET if frame is None else frame.error).message
            # Only these very words: our hint about the command must not be for words of the server's own.
            command = self._logins.get(backend.name)
            wants_login = command is not None and said == LOGIN_NEEDED % command
            code = "LOGIN_REQUIRED" if wants_login else "UPSTREAM_UNAVAILABLE"
            for each in held:
                self._unsent(backend, each, f"It refused the handshake: {said}", code)
            if frame is not None:
                self._out.closed.append(backend.name)
            self._settled(backend)
            return
        backend.state, backend.is_late = "open", False
        self._tell(backend, _INITIALIZED)
        offer = Offer(result)
        if self._level is not None and offer.has("logging"):
            level = members_of(frames.members_of(Raw(self._level)).get("params"))
            self._ask(backend, "logging/setLevel", level, lambda _: None)
        held, backend.held = backend.held, []
        for each in held:
            self._tell(backend, each)
        self._list(backend, offer)

    def _learn(self, backend: Backend) -> None:
        """Find out what a server offers; `_settled` is called in the end, whatever comes of it."""
        if backend.is_learning:
            backend.is_stale = True
            return
        backend.is_stale = False
        if self._era == "stateless":
            backend.state, backend.is_learning = "open", True
            self._ask(backend, "server/discover", {}, lambda frame: self._discovered(backend, frame))
        elif backend.state == "closed":
            self._open(backend)
        elif backend.state == "open" and backend.offer is not None:
            backend.is_learning = True
            self._list(backend, Offer(backend.offer.handshake))

    def _discovered(self, backend: Backend, frame: Frame | None) -> None:
        result = UNSET if frame is None else frame.result
        if isinstance(result, UnsetType) or "supportedVersions" not in members_of(result):
            backend.state, backend.is_learning = "closed", False
            if frame is not None:
                # It does not speak this era. It is as good as new, and may be opened in the other one.
                self._memory.save(backend.name, "stateless", Offer(Raw(b"null")))
                backend.offer = Offer(Raw(b"null"))
            self._settled(backend)
            return
        for request, _ in self._listening.values():
            self._tell(backend, request)
        self._list(backend, Offer(result))

    def _list(self, backend: Backend, offer: Offer) -> None:
        """Ask for all lists of a server that has told its capabilities."""
        # Some servers have tools without saying so.
        left = {kind for kind, (_, _, name) in LISTS.items() if name == "tools" or offer.has(name)}
        pages = dict.fromkeys(left, 0)

        def page(kind: str, cursor: str | None) -> None:
            method, holder, _ = LISTS[kind]
            pages[kind] += 1

            def heard(frame: Frame | None) -> None:
                if frame is None:
                    # It is gone; what it has said is not all of it.
                    backend.is_learning = False
                    self._settled(backend)
                    return
                result = members_of(frame.result)
                if holder in result:
                    getattr(offer, kind).extend(_array(result[holder]))
                following = text_of(result.get("nextCursor"))
                if following is not None and following != cursor and pages[kind] < _MOST_PAGES:
                    page(kind, following)
                    return
                left.discard(kind)
                if not left:
                    self._learned(backend, offer)

            self._ask(backend, method, {} if cursor is None else {"cursor": cursor}, heard)

        for kind in sorted(left):
            setattr(offer, kind, [])
            page(kind, None)
        if not left:
            self._learned(backend, offer)

    def _learned(self, backend: Backend, offer: Offer) -> None:
        backend.is_learning = False
        changed = [] if backend.offer is None and not self._seen else offer.changed(backend.offer)
        if offer != backend.offer:
            self._memory.save(backend.name, self._era, offer)
        self._know(backend, offer)
        for method, kinds in _CHANGED.items():
            is_news = any(kind in changed and kind in self._seen for kind in kinds)
            if is_news or (method in backend.announced and self._is_greeted):
                self._tell_changed(method)
        backend.announced.clear()
        self._settled(backend)
        if backend.is_stale and backend.is_used:
            self._learn(backend)
        elif not backend.is_used and not self._listening:
            # It was started for its lists alone.
            backend.state = "closed"
            self._out.closed.append(backend.name)

    def _know(self, backend: Backend, offer: Offer) -> None:
        """Make what a server offers part of what the gateway offers."""
        backend.offer = offer
        tools = backend.interceptor.tools
        shown = tools.learn(Raw(encode({"tools": offer.tools})), first=False, shown=True).shown
        page = offer.tools if shown is None else _array(members_of(Raw(shown))["tools"])
        # One `envelope_read` is enough: where a server has an envelope itself, the vault is the same.
        backend.tools = [entry for entry in page if name_of(entry) != READ_TOOL]
        tools.seen = tools.complete = True
        tools.is_ours = not tools.enveloped
        known = {each.name: each for each in self._backends.values() if each.offer is not None}
        tools_of = {name: [*map(name_of, each.tools)] for name, each in known.items()}
        self._tools = named(tools_of, self._prefix, self._short)
        prompts = {name: [*map(name_of, each.offer.prompts)] for name, each in known.items() if each.offer}
        self._prompts = named(prompts, self._prefix, self._short)

    def _tell_changed(self, method: str) -> None:
        if self._era != "stateless":
            self._say(encode({"jsonrpc": "2.0", "method": method}))
            return
        for identifier, (_, wanted) in self._listening.items():
            if wanted.get(_LISTENS_FOR[method]):
                meta = {"_meta": {SUBSCRIPTION: Raw(identifier)}}
                self._say(encode({"jsonrpc": "2.0", "method": method, "params": meta}))

    def _settled(self, backend: Backend) -> None:
        """Nobody waits for this server any longer."""
        for waiting in list(self._waiting):
            waiting.servers.discard(backend.name)
            if not waiting.servers:
                self._waiting.remove(waiting)
                waiting.answer()

    def _when_known(self, answer: Callable[[], None]) -> None:
        """Answer once it is known what all servers offer, or at least that no more can be had now."""
        for backend in self._backends.values():
            if backend.offer is None and (offer := self._memory.load(backend.name, self._era)) is not None:
                self._know(backend, offer)
        unknown = [each for each in self._backends.values() if each.offer is None and not each.is_late]
        if not unknown:
            answer()
            return
        self._waiting.append(_Waiting({each.name for each in unknown}, answer))
        for backend in unknown:
            self._learn(backend)

    # -- from the client ----------------------------------------------------------------------------------------

    def _from_client(self, frame: Frame, owner: str | None, later: list[Work]) -> None:
        if isinstance(frame.method, UnsetType):
            backend, identifier = self._asked.pop(frame.key or ("", b""), (None, b""))
            if backend is not None:
                self._tell(backend, frames.replaced(frame.data, {"id": identifier}))
            return
        if frame.key is None:
            self._notified(frame, frame.method)
            return
        if self._era != "sessions":
            sender = read_sender(frame.param("_meta"))
            is_begun = self._era == "stateless" and frame.method != "initialize"
            if (sender.is_stateless or is_begun) and self._is_refused(frame, frame.method):
                return
            if sender.is_stateless and self._meta is None:
                self._meta = sender.meta
                self._restart("stateless")
        self._request(frame, frame.method, frame.key, owner, later)

    def _is_refused(self, frame: Frame, method: str) -> bool:
        """Whether a request is none of the stateless era. Several callers may share a conversation in it."""
        version = frame.version
        if version is None or frames.META_CAPABILITIES not in frame.meta:
            missing = frames.META_VERSION if version is None else frames.META_CAPABILITIES
            self._refuse(frame, frames.INVALID_PARAMS, f"_meta lacks {missing}")
        elif version != _STATELESS:
            data = {"supported": [_STATELESS], "requested": version[:100]}
            error = {"code": _UNSUPPORTED_VERSION, "message": "Unsupported protocol version", "data": data}
            self._say(frames.error_response(frame.identifier, encode(error)))
        elif method in _REMOVED:
            self._refuse(frame, frames.METHOD_NOT_FOUND, "Method not found")
        else:
            return False
        return True

    def _restart(self, era: str) -> None:
        """The client begins, in this era; what it began before is over."""
        for backend in self._backends.values():
            if backend.state != "closed":
                backend.state = "closed"
                self._out.closed.append(backend.name)
            backend.offer, backend.is_learning, backend.is_late, backend.is_used = None, False, False, False
            backend.held.clear()
        self._own.clear()
        self._era = era

    def _request(self, frame: Frame, method: str, key: Id, owner: str | None, later: list[Work]) -> None:
        params = members_of(frame.params)
        if method == "initialize":
            self._restart("sessions")
            self._is_greeted = False
            self._hello = None if isinstance(frame.params, UnsetType) else Raw(bytes(frame.params))
            self._reader.from_client(frame.data)
            for backend in self._backends.values():
                backend.interceptor.client = self._reader.client
            asked = text_of(params.get("protocolVersion")) or _CURRENT
            version = min(asked, _CURRENT)

            def greet() -> None:
                self._is_greeted = True
                self._answer(frame, merged(self._offers(), version, self._info, False))

            self._when_known(greet)
        elif method == "server/discover":
            self._when_known(lambda: self._discover(frame))
        elif method == "ping":
            self._answer(frame, self._empty())
        elif method == "tools/call":
            self._call(frame, key, params, owner, later)
        elif method == "prompts/get":
            self._get_prompt(frame, key, params, owner, later)
        elif method in ("resources/read", "resources/subscribe", "resources/unsubscribe"):
            self._resource(frame, key, text_of(params.get("uri")) or "", owner, later)
        elif method == "completion/complete":
            self._complete(frame, key, params, owner, later)
        elif method == "logging/setLevel":
            self._level = frame.data
            for backend in self._backends.values():
                if backend.state == "open" and backend.offer is not None and backend.offer.has("logging"):
                    self._ask(backend, method, params, lambda _: None)
            self._answer(frame, {})
        elif method == "subscriptions/listen":
            self._listen(frame, params)
        elif any(method == each for each, _, _ in LISTS.values()):
            kind = next(kind for kind, (each, _, _) in LISTS.items() if each == method)
            self._when_known(lambda: self._answer(frame, self._listed(kind)))
        elif method.startswith("tasks/") and (task := text_of(params.get("taskId"))) in self._tasks:
            self._pass(self._tasks[task or ""], frame, key, owner, later)
        elif method == "tasks/list":
            self._list_tasks(frame)
        elif method.startswith("tasks/") and (
            able := [each for each in self._backends.values() if _has_tasks(each)]
        ):
            # Nobody knows that task, and each of them can say so.
            self._pass(able[0], frame, key, owner, later)
        else:
            self._refuse(frame, frames.METHOD_NOT_FOUND, f"The gateway does not know where {method} belongs")

    def _empty(self) -> dict[str, Any]:
        return {"resultType": "complete"} if self._era == "stateless" else {}

    def _offers(self) -> dict[str, Offer]:
        return {
            self._prefix[name]: each.offer
            for name, each in self._backends.items()
            if each.offer is not None and bytes(each.offer.handshake) != b"null"
        }

    def _discover(self, frame: Frame) -> None:
        """The stateless era, if every server that can be asked speaks it."""
        offers = [each.offer for each in self._backends.values() if each.offer is not None]
        if not offers or any(bytes(each.handshake) == b"null" for each in offers):
            self._refuse(frame, frames.METHOD_NOT_FOUND, "Method not found")
            return
        self._answer(frame, merged(self._offers(), _STATELESS, self._info, True))

    def _listed(self, kind: str) -> dict[str, Any]:
        self._seen.add(kind)
        entries: list[Raw] = []
        for name, backend in self._backends.items():
            if backend.offer is None:
                continue
            if kind in ("tools", "prompts"):
                own = backend.tools if kind == "tools" else backend.offer.prompts
                names = self._tools if kind == "tools" else self._prompts
                shown = [(entry, names.shown.get((name, name_of(entry)), "")) for entry in own]
                entries += [Raw(renamed(entry, each)) for entry, each in shown if each]
            else:
                entries += getattr(backend.offer, kind)
        if kind == "tools":
            entries.append(Raw(encode(self._reader.read_tool())))
        shown_list: dict[str, Any] = {LISTS[kind][1]: entries}
        if self._era == "stateless":
            shown_list = {"resultType": "complete", **shown_list, "ttlMs": 0, "cacheScope": "private"}
        return shown_list

    def _pass(self, backend: Backend, frame: Frame, key: Id, owner: str | None, later: list[Work]) -> None:
        self._under_way[key] = backend
        self._forward(backend, frame.data, owner, later)

    def _find(self, names: Names, name: str) -> tuple[Backend, str] | None:
        """The server of a tool or prompt, and its name there; unlisted ones are found by the server's name."""
        if (found := names.targets.get(name)) is not None:
            return self._backends[found[0]], found[1]
        for server, prefix in sorted(self._prefix.items(), key=lambda each: -len(each[1])):
            if name.startswith(prefix + SEPARATOR):
                return self._backends[server], name[len(prefix) + len(SEPARATOR) :]
        return None

    def _call(
        self, frame: Frame, key: Id, params: Mapping[str, Raw], owner: str | None, later: list[Work]
    ) -> None:
        name = text_of(params.get("name")) or ""
        if name == READ_TOOL:
            routed = self._reader.from_client(frame.data, owner, later)
            self._out.to_client.extend(routed.to_client)
            return
        found = self._find(self._tools, name)
        if found is None:
            self._refuse(frame, frames.INVALID_PARAMS, f"Unknown tool: {name:.200}")
            return
        self._pass(found[0], _with_param(frame, "name", found[1]), key, owner, later)

    def _get_prompt(
        self, frame: Frame, key: Id, params: Mapping[str, Raw], owner: str | None, later: list[Work]
    ) -> None:
        name = text_of(params.get("name")) or ""
        found = self._find(self._prompts, name)
        if found is None:
            self._refuse(frame, frames.INVALID_PARAMS, f"Unknown prompt: {name:.200}")
            return
        self._pass(found[0], _with_param(frame, "name", found[1]), key, owner, later)

    def _complete(
        self, frame: Frame, key: Id, params: Mapping[str, Raw], owner: str | None, later: list[Work]
    ) -> None:
        ref = members_of(params.get("ref"))
        if (uri := text_of(ref.get("uri"))) is not None:
            backends = self._holders(uri)
            if backends:
                self._pass(backends[0], frame, key, owner, later)
                return
        found = self._find(self._prompts, text_of(ref.get("name")) or "")
        if found is None or "ref" not in params or isinstance(frame.params, UnsetType):
            self._refuse(frame, frames.INVALID_PARAMS, "Nothing of that name can be completed")
            return
        changed = frames.replaced(params["ref"], {"name": encode(found[1])})
        data = frames.replaced(frame.data, {"params": frames.replaced(frame.params, {"ref": changed})})
        self._pass(found[0], frames.read(data) or frame, key, owner, later)

    def _resource(self, frame: Frame, key: Id, uri: str, owner: str | None, later: list[Work]) -> None:
        if uri.startswith("envelope://"):
            routed = self._reader.from_client(frame.data, owner, later)
            self._out.to_client.extend(routed.to_client)
            return
        backends = self._holders(uri)
        if not backends:
            self._refuse(frame, frames.INVALID_PARAMS, f"Resource not found: {uri:.500}")
            return
        if len(backends) > 1:
            self._trying[key] = frame.data, owner, backends[1:]
        self._pass(backends[0], frame, key, owner, later)

    def _holders(self, uri: str) -> list[Backend]:
        """Who has a resource: the one that lists it, else those whose templates fit, else all that have any."""
        able = [each for each in self._backends.values() if each.offer and each.offer.has("resources")]

        def lists(backend: Backend, kind: str, key: str) -> list[str]:
            return [text_of(members_of(entry).get(key)) or "" for entry in getattr(backend.offer, kind)]

        listed = [each for each in able if uri in lists(each, "resources", "uri")]
        fitting = [
            each
            for each in able
            if any(
                uri == known or fits_template(uri, known) for known in lists(each, "templates", "uriTemplate")
            )
        ]
        return listed[:1] or fitting or able

    def _listen(self, frame: Frame, params: Mapping[str, Raw]) -> None:
        wanted = frames.value_of(params["notifications"]) if "notifications" in params else {}
        wanted = wanted if isinstance(wanted, dict) else {}
        self._listening[bytes(frame.identifier)] = frame.data, wanted
        told = {"notifications": wanted, "_meta": {SUBSCRIPTION: frame.identifier}}
        method = "notifications/subscriptions/acknowledged"
        self._say(encode({"jsonrpc": "2.0", "method": method, "params": told}))
        subscribed = wanted.get("resourceSubscriptions")
        for uri in subscribed if isinstance(subscribed, list) else ():
            for backend in self._holders(uri)[:1] if isinstance(uri, str) else ():
                backend.is_used = True
                if backend.state == "closed":
                    # It hears of the stream when it has been discovered.
                    self._open(backend)
        for backend in self._backends.values():
            if backend.state == "open" and not backend.is_learning:
                self._tell(backend, frame.data)

    def _list_tasks(self, frame: Frame) -> None:
        backends = [each for each in self._backends.values() if each.state == "open"]
        found: list[Raw] = []
        left = {each.name for each in backends}

        def heard(backend: Backend, answer: Frame | None) -> None:
            result = members_of(UNSET if answer is None else answer.result)
            for task in _array(result.get("tasks")):
                found.append(task)
                self._own_task(text_of(members_of(task).get("taskId")), backend)
            left.discard(backend.name)
            if not left:
                self._answer(frame, {"tasks": found})

        for backend in backends:
            self._ask(backend, "tasks/list", {}, partial(heard, backend))
        if not backends:
            self._answer(frame, {"tasks": []})

    def _own_task(self, task: str | None, backend: Backend) -> None:
        if task is not None:
            self._tasks[task] = backend
            if len(self._tasks) > _MOST_TASKS:
                del self._tasks[next(iter(self._tasks))]

    def _notified(self, frame: Frame, method: str) -> None:
        if method == "notifications/initialized":
            return
        if method == "notifications/cancelled" and (wanted := frame.param("requestId")) is not None:
            key = frames.id_key(bytes(wanted))
            self._trying.pop(key, None)
            if self._listening.pop(bytes(wanted), None) is not None:
                for backend in self._backends.values():
                    if backend.state == "open":
                        self._tell(backend, frame.data)
            elif (cancelled := self._under_way.pop(key, None)) is not None:
                self._cancel(cancelled, frame, key)
            return
        if method == "notifications/progress" and (token := frame.param("progressToken")) is not None:
            asker, own = self._asked.get(frames.id_key(bytes(token)), (None, b""))
            if asker is not None and not isinstance(frame.params, UnsetType):
                shown = frames.replaced(frame.params, {"progressToken": own})
                self._tell(asker, frames.replaced(frame.data, {"params": shown}))
            return
        for backend in self._backends.values():
            if backend.state == "open":
                self._tell(backend, frame.data)

    def _cancel(self, backend: Backend, frame: Frame, key: Id) -> None:
        before = len(backend.held)
        backend.held = [
            each for each in backend.held if (read := frames.read(each)) is None or read.key != key
        ]
        routed = backend.interceptor.from_client(frame.data)
        if len(backend.held) == before and backend.state == "open":
            for each in routed.to_server:
                self._tell(backend, each)

    # -- from a server --------------------------------------------------------------------------------------------

    def _arrived(self, backend: Backend, data: bytes) -> None:
        """What a server says, as the envelope shows it."""
        frame = frames.read(data)
        if frame is None:
            return
        if frame.is_response:
            self._responded(backend, frame, data)
        elif frame.key is not None and not isinstance(frame.method, UnsetType):
            self._questioned(backend, frame, frame.method)
        elif frame.method in _CHANGED:
            backend.announced.add(frame.method)
            self._learn(backend)
        elif frame.method == "notifications/cancelled":
            wanted = frame.param("requestId")
            mine = None if wanted is None else self._shown_id(backend, bytes(wanted))
            if mine is not None and not isinstance(frame.params, UnsetType):
                shown = frames.replaced(frame.params, {"requestId": mine})
                self._say(frames.replaced(frame.data, {"params": shown}))
        elif frame.method != "notifications/subscriptions/acknowledged":
            self._say(data)

    def _responded(self, backend: Backend, frame: Frame, data: bytes) -> None:
        key = frame.key or ("", b"")
        if key not in self._under_way:
            key = frames.same_id(key) or key
        if self._under_way.get(key) is not backend:
            # Nobody has asked this server, or nobody waits for it any longer.
            return
        if key in self._trying:
            request, owner, others = self._trying.pop(key)
            if not isinstance(frame.error, UnsetType) and others:
                if len(others) > 1:
                    self._trying[key] = request, owner, others[1:]
                if (again := frames.read(request)) is not None:
                    self._pass(others[0], again, key, owner, [])
                return
        del self._under_way[key]
        if not isinstance(frame.result, UnsetType) and b'"taskId"' in data[:4000]:
            self._own_task(frames.task_of(frame.result), backend)
        self._say(data)

    def _questioned(self, backend: Backend, frame: Frame, method: str) -> None:
        """A request of the server's: under another id, and the user is told which server asks."""
        self._number += 1
        identifier = f"{self._prefix[backend.name]}-{self._number}"
        self._asked["s", identifier] = backend, bytes(frame.identifier)
        changes: dict[str, bytes | None] = {"id": encode(identifier)}
        params = members_of(frame.params)
        inner: dict[str, bytes | None] = {}
        if "progressToken" in members_of(params.get("_meta")):
            inner["_meta"] = frames.replaced(params["_meta"], {"progressToken": encode(identifier)})
        if method == "elicitation/create" and (message := text_of(params.get("message"))) is not None:
            inner["message"] = encode(f"[{backend.name}] {message}")
        if inner and not isinstance(frame.params, UnsetType):
            changes["params"] = frames.replaced(frame.params, inner)
        self._say(frames.replaced(frame.data, changes))

    def _shown_id(self, backend: Backend, identifier: bytes) -> bytes | None:
        """The id under which the client knows a server's request."""
        for key, (whose, own) in self._asked.items():
            if whose is backend and frames.id_key(own) == frames.id_key(identifier):
                return encode(key[1])
        return None


def _late(backend: Backend) -> str:
    return f"It has not answered the handshake for {_PATIENCE:.0f} seconds; it may still be starting."


def _has_tasks(backend: Backend) -> bool:
    if backend.offer is None:
        return False
    capabilities = members_of(members_of(backend.offer.handshake).get("capabilities"))
    return "tasks" in capabilities or _TASKS in members_of(capabilities.get("extensions"))


def _with_param(frame: Frame, name: str, value: str) -> Frame:
    assert not isinstance(frame.params, UnsetType)
    changed = frames.replaced(frame.params, {name: encode(value)})
    return frames.read(frames.replaced(frame.data, {"params": changed})) or frame


def _array(raw: Raw | None) -> list[Raw]:
    if raw is None:
        return []
    return [Raw(part) for part in frames.read_batch(bytes(raw)) or ()]
