"""Who calls over HTTP, and what is remembered of them.

Strategy: whatever is remembered here can be had again, so that any replica can answer any request. What is known of
the tools belongs to one credential and one session, because a server may show others other tools under the same
names; it is asked for anew after a while, since another replica may have told the caller something newer. Who the
client of an older session is, is said once, at its beginning; where that matters it is put into the vault, which
all replicas share.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

import anyio
from anyio import to_thread

from ..clients import UNKNOWN, Client
from ..clients import client as known_client
from ..front import Front
from ..outcome import Failure
from ..payload import Payload
from .catalogue import Catalogue
from .requests import Pending, Requests

_CREDENTIALS: Final = ("authorization", "x-api-key", "api-key", "x-auth-token")
_MOST: Final = 10_000
# How long what is known of the tools is taken for true, and how long a list that failed is not asked for again.
_FRESH: Final = 60.0
_PAUSE: Final = 5.0


def credential(headers: Mapping[str, str]) -> str | None:
    """What tells one caller from another; only a digest of it is ever kept."""
    found = [f"{name}: {headers[name]}" for name in _CREDENTIALS if headers.get(name)]
    return "\n".join(found) or None


class Tools:
    """The tools as one caller sees them."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._catalogue = Catalogue(front)
        self._born = time.monotonic()
        self._old: Catalogue | None = None
        self._failed = -_PAUSE
        # One list is asked for at a time; who waits for it finds it done.
        self.lock = anyio.Lock()
        self.tasks: OrderedDict[str, Pending] = OrderedDict()

    @property
    def catalogue(self) -> Catalogue:
        if time.monotonic() - self._born > _FRESH:
            self._old = self._catalogue if self._catalogue.seen else self._old
            self._catalogue, self._born = Catalogue(self._front), time.monotonic()
        return self._catalogue

    @property
    def is_worth_asking(self) -> bool:
        """Whether a list may be had; one that failed a moment ago is not asked for again."""
        return time.monotonic() - self._failed > _PAUSE

    def failed(self) -> None:
        self._failed = time.monotonic()

    def fall_back(self, catalogue: Catalogue) -> None:
        """There is no list to be had: what was known before is better than nothing."""
        if self._old is not None and not catalogue.seen:
            catalogue.tools.update(self._old.tools)
            catalogue.seen, catalogue.complete = True, self._old.complete
            catalogue.enveloped = self._old.enveloped


class Session:
    """An older session: who its client is, and calls whose answers may come on another stream."""

    def __init__(self, requests: Requests) -> None:
        self.requests = requests
        self.client: Client = UNKNOWN
        self.is_known = False
        self.lock = anyio.Lock()


class Callers:
    def __init__(self, front: Front) -> None:
        self._front = front
        self._tools: OrderedDict[tuple[str | None, str | None], Tools] = OrderedDict()
        self._sessions: OrderedDict[tuple[str | None, str], Session] = OrderedDict()

    def tools(self, owner: str | None, session: str | None) -> Tools:
        key = _digest(owner), session
        tools = self._tools.get(key)
        if tools is None:
            tools = self._tools[key] = Tools(self._front)
            if len(self._tools) > _MOST:
                self._tools.popitem(last=False)
        self._tools.move_to_end(key)
        return tools

    async def session(self, name: str, owner: str | None) -> Session:
        """A session, which may have begun at another replica."""
        key = _digest(owner), name
        session = self._sessions.get(key)
        if session is None:
            session = self._sessions[key] = Session(Requests(self.tools(owner, name).tasks))
            if len(self._sessions) > _MOST:
                self._sessions.popitem(last=False)
        self._sessions.move_to_end(key)
        if not session.is_known:
            async with session.lock:
                if not session.is_known:
                    session.client = await to_thread.run_sync(self._recall, name, owner)
                    session.is_known = True
        return session

    async def began(self, name: str, owner: str | None, client: Client) -> None:
        """A session begins; its other requests may go to other replicas, which want to know the client, too."""
        session = self._sessions[_digest(owner), name] = Session(Requests(self.tools(owner, name).tasks))
        session.client, session.is_known = client, True
        if len(self._sessions) > _MOST:
            self._sessions.popitem(last=False)
        if client.has_limit or client.links or client.lane != "unknown":
            await to_thread.run_sync(self._note, name, owner, client)

    def ended(self, name: str, owner: str | None) -> None:
        self._sessions.pop((_digest(owner), name), None)
        self._tools.pop((_digest(owner), name), None)

    def _note(self, name: str, owner: str | None, client: Client) -> None:
        if (vault := self._front.vault) is not None:
            said = Payload(text=f"{client.name}\n{client.version}".encode())
            vault.keep(_key(name), said, "initialize", owner)

    def _recall(self, name: str, owner: str | None) -> Client:
        from ..vault.store import Damaged, StoreError

        if (vault := self._front.vault) is None:
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
