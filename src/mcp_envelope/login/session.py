"""The login that the proxy uses at one server: a token for each request, renewed when it has run out.

Strategy: the store is the truth, and is looked at whenever its file changes, so that `mcp-envelope login` in
another window counts at once. A token is sent to the origin that it belongs to and nowhere else. It is renewed
shortly before it runs out, or when the server refuses it: one renewal at a time, here and across processes, because
a refresh token is often good for one use. Whoever waited finds the new token and uses that. If a person has to log
in, the proxy can begin the login itself, for clients that show an address to their user.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, Literal
from uuid import uuid4

import anyio
import anyio.abc
from anyio import to_thread
from msgspec.structs import replace

from ..proxy.headers import origin
from .challenge import challenge_of
from .store import Challenge, Login, LoginStore, Unstorable, canonical, is_safe, login_command

_log = logging.getLogger("mcp_envelope")

# A token is renewed this many seconds before it runs out, or at a tenth of its life if that is short.
_EARLY: Final = 30.0
# How long to leave an authorization server alone that does not answer.
_PAUSE: Final = 5.0
# How long a person has for a login that the proxy began.
_PATIENCE: Final = 600.0


class Invitation:
    """A login that waits for a person."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.id = uuid4().hex
        self.done = anyio.Event()


class LoginSession:
    """The login at one server."""

    def __init__(self, url: str, store: LoginStore | None = None) -> None:
        self.url = canonical(url)
        self.command = login_command(self.url)
        self._store = store or LoginStore()
        self._login: Login | None = None
        self._version: object = None
        self._renewing = anyio.Lock()
        self._inviting = anyio.Lock()
        self._invitation: Invitation | None = None
        self._paused_until = 0.0
        # Whether the server asked for a login and has not been sent a token since.
        self._is_out = False
        # A new token that was refused: another one would be, too.
        self._hopeless: Login | None = None

    @property
    def is_paused(self) -> bool:
        """Whether the authorization server did not answer a moment ago."""
        return time.monotonic() < self._paused_until

    # -- for requests ---------------------------------------------------------------------------------------

    async def authorization(self, url: str) -> str | None:
        """The Authorization header of a request to an address; None if there is no token for it."""
        if origin(url) != origin(self.url) or not is_safe(url):
            return None
        login = await self._current()
        if login is None or not login.has_token:
            return None
        if _runs_out(login) and login.is_renewable:
            await self._renew(login)
            login = await self._current()
        if login is None or not login.has_token:
            return None
        self._is_out = False
        return f"Bearer {login.secrets.access_token}"

    async def refused(self, url: str, sent: str | None, status: int, header: str) -> bool:
        """Take note of a refusal; returns whether the request may be sent again, with another token."""
        challenge = challenge_of(self.url, status, header)
        if challenge is None or origin(url) != origin(self.url):
            return False
        self._is_out = self._is_out or not challenge.wants_more
        login = await self._current()
        if _is_other(login, sent):
            # Renewed meanwhile, here or by another process.
            return True
        if login is not None and login.is_renewable and login != self._hopeless:
            is_machine = login.grant == "client_credentials"
            if is_machine or not challenge.wants_more:
                await self._renew(login, challenge if is_machine else None)
                if _is_other(await self._current(), sent):
                    return True
        if not self.is_paused:
            await self.note(url, status, header)
        return False

    async def note(self, url: str, status: int, header: str) -> None:
        """Keep what the server asks for, so that the next login asks for it."""
        challenge = challenge_of(self.url, status, header)
        if challenge is None or origin(url) != origin(self.url):
            return
        login = await self._current()
        if login is None or login.challenge != challenge:
            await self._change(lambda login: replace(login or Login(url=self.url), challenge=challenge))
        self._hopeless = await self._current()

    async def _current(self) -> Login | None:
        version = self._store.version(self.url)
        if version != self._version:
            # A keyring may ask its user something.
            self._login = None if version is None else await to_thread.run_sync(self._store.load, self.url)
            self._version = version
        return self._login

    async def _change(self, change: Callable[[Login | None], Login]) -> None:
        def work() -> None:
            with self._store.lock(self.url):
                self._store.save(change(self._store.load(self.url)))

        try:
            await to_thread.run_sync(work)
        except (OSError, Unstorable):
            # Then it isn't noted.
            return

    # -- renewal --------------------------------------------------------------------------------------------

    async def _renew(self, old: Login, challenge: Challenge | None = None) -> None:
        """Put a new token in the place of an old one, unless somebody else has."""
        async with self._renewing:
            if (await self._current()) != old or self.is_paused:
                return
            # A request that is cancelled must not lose the token that the old one was given for.
            with anyio.CancelScope(shield=True), suppress(OSError):
                lock = self._store.lock(self.url)
                await to_thread.run_sync(lock.__enter__)
                try:
                    login = await self._current()
                    if login is not None and login.secrets == old.secrets:
                        await self._renew_locked(replace(login, challenge=challenge or login.challenge))
                finally:
                    lock.__exit__(None, None, None)

    async def _renew_locked(self, login: Login) -> None:
        try:
            oauth = await _oauth()
            fresh = await oauth.renewed(login)
        except ImportError:
            _log.warning("mcp-envelope: a token cannot be renewed without the extra 'login'")
            return
        except oauth.Refused:
            fresh = replace(login.without_token(), challenge=login.challenge or Challenge(scope=login.scope))
        except oauth.Unavailable:
            self._paused_until = time.monotonic() + _PAUSE
            return
        try:
            await to_thread.run_sync(self._store.save, fresh)
        except Unstorable:
            # Good until we end.
            self._login = fresh

    # -- logging in -----------------------------------------------------------------------------------------

    def needs(self, status: int) -> Literal["", "login", "more", "patience"]:
        """What would help with a request that was refused: nothing of ours, a login, a wider one, or time."""
        noted = None if self._login is None else self._login.challenge
        if self.is_paused and status == 401:
            return "patience"
        if status == 403:
            return "more" if noted is not None and noted.wants_more else ""
        # A client that tries an older revision next may be refused for that.
        is_asked = status == 401 or (self._is_out and 400 <= status < 500)
        return "login" if is_asked and is_safe(self.url) else ""

    async def invite(self, group: anyio.abc.TaskGroup) -> Invitation | None:
        """Begin a login that a person can finish in a browser, or find the one that waits; None if we can't."""
        async with self._inviting:
            if self._invitation is None or self._invitation.done.is_set():
                self._invitation = await group.start(self._log_in)
            return self._invitation

    async def _log_in(self, *, task_status: anyio.abc.TaskStatus[Invitation | None]) -> None:
        from .redirect import listening

        try:
            oauth = await _oauth()
        except ImportError:
            # The command to run says what to install.
            task_status.started(None)
            return
        invitation: list[Invitation] = []

        async def show(address: str) -> None:
            invitation.append(Invitation(address))
            task_status.started(invitation[0])

        known = await self._current()
        wanted: dict[str, Any] = {}
        if known is not None and known.is_registered_by_hand:
            client = str(known.client.get("client_id", ""))
            wanted = {
                "client_id": client,
                "client_secret": known.secrets.client_secret,
                "issuer": known.issuer,
            }
        elif known is not None:
            wanted = {"client_metadata_url": known.client_metadata_url}
        port, is_fixed = (known.redirect_port, known.is_registered_by_hand) if known else (0, False)
        try:
            async with listening(port, is_fixed=is_fixed) as listener:
                with anyio.fail_after(_PATIENCE):
                    fresh = await oauth.log_in(oauth.Wanted(self.url, **wanted), known, listener, show)
            await self._change(lambda login: fresh)
        except (oauth.Refused, oauth.Unavailable, OSError, TimeoutError):
            pass
        finally:
            if invitation:
                invitation[0].done.set()
            else:
                task_status.started(None)


def _runs_out(login: Login) -> bool:
    if login.expires is None:
        return False
    return login.expires - time.time() < min(_EARLY, login.lifetime / 10)


def _is_other(login: Login | None, sent: str | None) -> bool:
    return login is not None and login.has_token and f"Bearer {login.secrets.access_token}" != sent


async def _oauth() -> Any:
    """The module that does the protocol. Loading it takes a second, in which others have to go on."""
    return await to_thread.run_sync(import_module, ".oauth", __package__)
