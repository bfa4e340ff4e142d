"""A login as an elicitation: an address that a client shows to its user, in both eras of the protocol.

Strategy: only a client that says it can open addresses gets one. In a session, its request fails with the error
that the revision of 2025-11-25 has for this, and a notification follows when the user is done. A stateless client
gets a result that asks for input, and sends its request again with the answer in it; that answer is for us, so it
is taken out before the request goes on, once the login is done. A request that already carries answers for the
server is not asked again, since those would be lost.
"""

from __future__ import annotations

from typing import Final, Protocol

import anyio
from msgspec import Raw, UnsetType

from ..jsontext.document import encode
from . import frames
from .frames import Frame, members_of

_REQUIRED: Final = -32042
_KEY: Final = "mcp-envelope/login"
# The requests whose results may ask for input.
_ASKABLE: Final = ("tools/call", "prompts/get", "resources/read")
_WORDS: Final = "The server wants a login. Open this address to log in."
# How long an accepted request waits for its user: less than clients wait for an answer.
_PATIENCE: Final = 45.0


class PendingLogin(Protocol):
    """A login that waits for a person."""

    address: str
    id: str
    done: anyio.Event


class UrlElicitations:
    """Those of one conversation."""

    def __init__(self) -> None:
        # Whether the client of a session opens addresses.
        self._opens = False
        self._open: dict[str, PendingLogin] = {}
        # Those that a client with a session knows by their ids.
        self._told: set[str] = set()
        self._is_declined = False

    def may_ask(self, frame: Frame) -> bool:
        """Whether a request may be answered with an address to open."""
        if isinstance(frame.id, UnsetType) or isinstance(frame.method, UnsetType):
            return False
        params = members_of(frame.params)
        if frame.version is not None:
            takes = _takes_addresses(frame.meta.get(frames.META_CAPABILITIES))
            is_free = "inputResponses" not in params and "requestState" not in params
            return takes and is_free and not self._is_declined and frame.method in _ASKABLE
        if frame.method == "initialize":
            self._opens = _takes_addresses(params.get("capabilities"))
        return self._opens

    def is_new(self, invitation: PendingLogin) -> bool:
        """Whether nobody waits for its end yet."""
        if invitation.id in self._open:
            return False
        self._open[invitation.id] = invitation
        return True

    def asking(self, frame: Frame, invitation: PendingLogin) -> bytes:
        """The answer to a request that cannot go on without a login."""
        params = {"mode": "url", "message": _WORDS, "url": invitation.address}
        if frame.version is not None:
            asked = {_KEY: {"method": "elicitation/create", "params": params}}
            return frames.response(
                frame.identifier, encode({"resultType": "input_required", "inputRequests": asked})
            )
        self._told.add(invitation.id)
        data = {"elicitations": [{**params, "elicitationId": invitation.id}]}
        error = {"code": _REQUIRED, "message": _WORDS, "data": data}
        return frames.error_response(frame.identifier, encode(error))

    def ended(self, invitation: PendingLogin) -> bytes | None:
        """What to tell a client when a login is over."""
        self._open.pop(invitation.id, None)
        if invitation.id not in self._told:
            return None
        self._told.discard(invitation.id)
        params = {"elicitationId": invitation.id}
        return encode({"jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": params})

    async def answered(self, frame: Frame) -> Frame | None:
        """The request without an answer that is for us, when the login is over; None if it holds none."""
        if _KEY.encode() not in frame.data:
            return None
        params = members_of(frame.params)
        answers = members_of(params.get("inputResponses"))
        if (ours := answers.pop(_KEY, None)) is None or isinstance(frame.params, UnsetType):
            return None
        self._is_declined = frames.text_of(members_of(ours).get("action")) != "accept"
        if not self._is_declined:
            with anyio.move_on_after(_PATIENCE):
                for invitation in list(self._open.values()):
                    await invitation.done.wait()
        changed = frames.replaced(frame.params, {"inputResponses": encode(answers) if answers else None})
        return frames.read(frames.replaced(frame.data, {"params": changed}))


def _takes_addresses(capabilities: Raw | None) -> bool:
    return "url" in members_of(members_of(capabilities).get("elicitation"))
