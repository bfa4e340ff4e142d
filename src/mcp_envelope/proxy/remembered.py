"""What servers offered the last time, on disk, so that a gateway need not start them to say what there is.

Strategy: a private file for each way to start a server (command, environment, folder), named by a digest, so that a
changed configuration is a server that nobody knows. It holds what was offered in each era. A file that cannot be
read says nothing, and one that cannot be written costs the next start some time.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec

from ..vault.store import state_folder
from .catalogue import Offer

_log = logging.getLogger("mcp_envelope")

_LARGEST: Final = 64 << 20
_ERAS: Final = msgspec.json.Decoder(dict[str, Offer])


class RememberedOffers:
    """`ways` says of each server how it is started, in full."""

    def __init__(self, ways: Mapping[str, bytes], folder: Path | None = None) -> None:
        self._folder = folder or state_folder() / "servers"
        self._digests = {server: blake2b(way, digest_size=20).hexdigest() for server, way in ways.items()}

    def load(self, server: str, era: str) -> Offer | None:
        return self._eras(server).get(era)

    def save(self, server: str, era: str, offer: Offer) -> None:
        path = self._path(server)
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft.unlink(missing_ok=True)
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(msgspec.json.encode({**self._eras(server), era: offer}))
            os.replace(draft, path)
        except OSError as error:
            _log.warning("mcp-envelope: what %s offers is not remembered: %s", server, error)

    def _eras(self, server: str) -> dict[str, Offer]:
        path = self._path(server)
        try:
            if path.stat().st_size > _LARGEST:
                return {}
            return _ERAS.decode(path.read_bytes())
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return {}

    def _path(self, server: str) -> Path:
        return self._folder / f"{self._digests[server]}.json"
