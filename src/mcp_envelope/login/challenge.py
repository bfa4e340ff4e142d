"""What a server said when it refused a request, as far as a login needs it."""

from __future__ import annotations

import re
from typing import Final

from ..proxy.headers import bearer_parameters, resolve
from .store import Challenge, origin

_SCOPES: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+(?: [\x21\x23-\x5b\x5d-\x7e]+)*")
_LONGEST: Final = 2000


def challenge_of(url: str, status: int, header: str) -> Challenge | None:
    """What a refusal asks for; None if it isn't about a login.

    Metadata on another origin than the server's is not looked at: a server speaks for itself alone.
    """
    said = bearer_parameters(header)
    wants_more = status == 403 and said.get("error") == "insufficient_scope"
    if status != 401 and not wants_more:
        return None
    scope, metadata = said.get("scope", ""), resolve(url, said.get("resource_metadata", "")) or ""
    if len(scope) > _LONGEST or not _SCOPES.fullmatch(scope):
        scope = ""
    if not said.get("resource_metadata") or len(metadata) > _LONGEST or origin(metadata) != origin(url):
        metadata = ""
    return Challenge(scope, metadata, wants_more)
