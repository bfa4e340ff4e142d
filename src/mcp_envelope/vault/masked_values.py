"""What placeholders stand for: masked values, remembered for one server and one caller.

Strategy: a value is kept in the vault like a payload, as private and for as long, under the id in its placeholder.
Its owner is a digest of server and caller, which no caller of `envelope_read` can have, so an id leads nowhere for
anybody else, and never to the value itself. The id is a digest of the value, with a random key that the vault
keeps, too: the same value has the same placeholder, in every process, and the id tells nothing about the value.
"""

from __future__ import annotations

import logging
import os
import time
from base64 import b32encode
from collections import OrderedDict
from hashlib import blake2b
from typing import Final

from ..outcome import Failure
from ..payload import Payload
from .store import Damaged, Gone, StoreError
from .vault import Stored, Vault, key_of

_log = logging.getLogger("mcp_envelope")

_KEY: Final = "key"
_SHORTEST: Final = 6
# A value that is masked again is kept anew once this part of its time is over.
_FRESH: Final = 0.25
_REMEMBERED: Final = 4096


class MaskedValues:
    """The masked values of one server and caller."""

    def __init__(self, vault: Vault, server: str, owner: str | None) -> None:
        self._vault = vault
        scope = blake2b(digest_size=32)
        for part in (server, owner or ""):
            scope.update(blake2b(part.encode("utf-8", "surrogatepass")).digest())
        self._scope = f"masks:{scope.hexdigest()}"
        self._secret = b""
        # Values and their ids, until they have to be kept anew.
        self._known: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def placeholder(self, name: str, value: str) -> str | None:
        """Remember a value and return its placeholder; None if the vault can't be used."""
        identifier, until = self._known.get(value, ("", 0.0))
        try:
            if until < time.time():
                identifier = self._keep(value)
                self._known[value] = identifier, time.time() + _FRESH * self._vault.ttl
                if len(self._known) > _REMEMBERED:
                    self._known.popitem(last=False)
        except (StoreError, Damaged) as error:
            _log.warning("mcp-envelope: a masked value was not stored: %s", error)
            return None
        return f"[redacted:{name}:{identifier}]"

    def original(self, identifier: str) -> str | None:
        """Return the value with this id; None if there is none."""
        try:
            found = self._read(identifier)
        except (StoreError, Damaged) as error:
            _log.warning("mcp-envelope: a masked value cannot be read: %s", error)
            message = "The vault, which keeps masked values, cannot be reached."
            raise Failure("VAULT_UNAVAILABLE", message, "Try again in a moment.") from None
        return None if found is None else found[0].decode("utf-8", "surrogatepass")

    def _keep(self, value: str) -> str:
        data = value.encode("utf-8", "surrogatepass")
        if not self._secret:
            kept = self._read(_KEY)
            self._secret = os.urandom(32) if kept is None else kept[0]
            self._write(_KEY, self._secret)
        digits = b32encode(blake2b(data, key=self._secret).digest()).decode().lower()
        for length in range(_SHORTEST, 33):
            known = self._read(identifier := digits[:length])
            if known is None or known[0] == data:
                break
        # Kept anew if it was kept a while ago, so that it outlives the result that shows it.
        if known is None or known[1] < time.time() + (1 - _FRESH) * self._vault.ttl:
            self._write(identifier, data)
        return identifier

    def _read(self, identifier: str) -> tuple[bytes, float] | None:
        """Return what is kept, and until when."""
        entry = self._vault.store.entry(key_of(identifier, self._scope))
        if entry is None or isinstance(entry, Gone):
            return None
        return b"".join(Stored(entry, self._vault.store).stream()), entry.expires

    def _write(self, identifier: str, data: bytes) -> None:
        problem = self._vault.keep(identifier, Payload(text=data), "redaction", self._scope)
        if problem is not None:
            raise StoreError(problem)
