"""A keyring for the tests, as `keyring` loads one: PYTHON_KEYRING_BACKEND=tests.login.keyring_backend.InFile.

It keeps what it is given in the file that KEYRING_FILE names, up to KEYRING_MOST characters each.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import PasswordDeleteError, PasswordSetError


class InFile(KeyringBackend):
    priority = 5

    @property
    def _path(self) -> Path:
        return Path(os.environ["KEYRING_FILE"])

    def _all(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self._path.read_text()) if self._path.exists() else {}
        return found

    def get_password(self, service: str, username: str) -> str | None:
        return self._all().get(f"{service} {username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        if len(password) > int(os.environ.get("KEYRING_MOST", "100000")):
            raise PasswordSetError("too long for this keyring")
        self._path.write_text(json.dumps({**self._all(), f"{service} {username}": password}))

    def delete_password(self, service: str, username: str) -> None:
        kept = self._all()
        if kept.pop(f"{service} {username}", None) is None:
            raise PasswordDeleteError("not there")
        self._path.write_text(json.dumps(kept))
