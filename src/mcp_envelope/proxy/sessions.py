"""Who calls over HTTP, and what the proxy remembers about them.

Strategy: nothing remembered here is irreplaceable, so any replica can answer any request. A tool list belongs
to one credential and one session, because a server may show different callers different tools under the same names;
it is asked for again after a while, since another replica may have shown the caller a newer one. The client of a
session of the older protocol names itself once, in `initialize`; where that matters, its name is put into the
vault, which all replicas share.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import Final

import anyio
from anyio import to_thread

from ..clients.known import UNKNOWN, Client
from ..clients.known import client as known_client
from ..gateway import Gateway
from ..outcome import Failure
from ..payload import Payload
from .interceptor import Pending, Requests
from .tool_lists import ToolList

_MOST: Final = 10_000
# In seconds: how long a tool list is trusted, how long a new one may take, how long a failed one is not retried.
_FRESH: Final = 60.0
_PATIENCE: Final = 30.0
_PAUSE: Final = 5.0


class Session:
    """One caller in one session, or outside any: the tools it sees, its client, and its requests.

    `client` is None until it has been looked up.
    """

    def __init__(self, gateway: Gateway, client: Client | None) -> None:
        self._gateway = gateway
        self._tools = ToolList(gateway)
        self._since = time.monotonic()
        self._older: ToolList | None = None
        self._failed = -_PAUSE
        self.client = client
        self.tasks: OrderedDict[str, Pending] = OrderedDict()
        # A response may come on another stream of the same session.
        self.requests = Requests(self.tasks)
        # One thing is asked for at a time; whoever waits for it finds it done.
        self.lock = anyio.Lock()

    @property
    def tools(self) -> ToolList:
        if time.monotonic() - self._since > _FRESH:
            self._older = self._tools if self._tools.seen else self._older
            self._tools, self._since = ToolList(self._gateway, self._tools.is_ours), time.monotonic()
        return self._tools

    async def ask_for(self, tools: ToolList, ask: Callable[[], Awaitable[bytes | None]]) -> bytes | None:
        """The response to a request for a tool list; None if none is needed, or none can be had.

        In place of a list that cannot be had, what was known before is better than nothing.
        """
        if tools.complete:
            return None
        reply: bytes | None = None
        if time.monotonic() - self._failed > _PAUSE:
            with anyio.move_on_after(_PATIENCE):
                reply = await ask()
            if reply is None:
                self._failed = time.monotonic()
        if reply is None and self._older is not None and not tools.seen:
            tools.fall_back(self._older)
        return reply


class Sessions:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._sessions: OrderedDict[tuple[str | None, str | None], Session] = OrderedDict()

    async def find(self, name: str | None, owner: str | None) -> Session:
        """The session of a request, which may have begun at another replica."""
        key = _digest(owner), name
        session = self._sessions.get(key)
        if session is None:
            session = self._add(key, None if name else UNKNOWN)
        self._sessions.move_to_end(key)
        if session.client is None and name is not None:
            async with session.lock:
                session.client = session.client or await to_thread.run_sync(self._recall, name, owner)
        return session

    async def start(self, name: str, owner: str | None, client: Client) -> None:
        """A session begins. Its other requests may go to other replicas, which have to know the client, too."""
        self._add((_digest(owner), name), client)
        if client.has_limit or client.links or client.lane != "unknown":
            await to_thread.run_sync(self._note, name, owner, client)

    def end(self, name: str, owner: str | None) -> None:
        self._sessions.pop((_digest(owner), name), None)

    def _add(self, key: tuple[str | None, str | None], client: Client | None) -> Session:
        session = self._sessions[key] = Session(self._gateway, client)
        if len(self._sessions) > _MOST:
            self._sessions.popitem(last=False)
        return session

    def _note(self, name: str, owner: str | None, client: Client) -> None:
        if (vault := self._gateway.vault) is not None:
            said = Payload(text=f"{client.name}\n{client.version}".encode())
            vault.keep(_key(name), said, "initialize", owner)

    def _recall(self, name: str, owner: str | None) -> Client:
        from ..vault.store import Damaged, StoreError

        if (vault := self._gateway.vault) is None:
            return UNKNOWN
        try:
            said = b"".join(vault.open(_key(name), owner).stream()).decode()
        except (Failure, StoreError, Damaged, UnicodeDecodeError):
            return UNKNOWN
        called, _, version = said.partition("\n")
        return known_client(called, version, "sessions")


def _digest(text: str | None) -> str | None:
    return None if text is None else blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


def _key(session: str) -> str:
    return f"session-{_digest(session)}"
