"""Where logins are kept: a private file for each server, and its secrets in the system's keyring if there is one.

Strategy: a login belongs to one address, query and fragment left out, and is found by nothing else, so that a
token can't be sent to another server by mistake. A file is private from its first byte and replaced at once;
whoever renews a token holds the lock of that login meanwhile, across all processes of the user. A keyring that is
missing, locked or too small for a token is no error: the secrets are in the file then, and `status` says so.
"""

from __future__ import annotations

import os
import shlex
from contextlib import AbstractContextManager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit, urlunsplit

import msgspec
from msgspec.structs import replace

from ..proxy.headers import is_loopback
from ..state_files import locked, state_folder, write_private

_SERVICE: Final = "mcp-envelope"
_LARGEST: Final = 1 << 20
# A keyring of at least this priority keeps secrets to itself; those below only look like one.
_TRUSTED: Final = 1
_PORTS: Final = {"http": 80, "https": 443}

Grant = Literal["authorization_code", "client_credentials"]


class Unstorable(Exception):
    """A login cannot be read or written. The message says which file, and why."""


class Secrets(msgspec.Struct, frozen=True, omit_defaults=True):
    access_token: str = ""
    refresh_token: str = ""
    client_secret: str = ""


class Challenge(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a server said when it refused a request: its scopes, and where its metadata is."""

    scope: str = ""
    metadata: str = ""
    # Whether the login was good, but not for this.
    wants_more: bool = False


class Login(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A login at one server, or what is known for the next one if it has no token."""

    url: str
    grant: Grant = "authorization_code"
    # What the token is for, and who gave it.
    resource: str = ""
    issuer: str = ""
    scope: str = ""
    expires: float | None = None
    lifetime: float = 0
    # How this program is known to the authorization server: the SDK's record, its secret left out.
    client: dict[str, Any] = {}
    is_registered_by_hand: bool = False
    client_metadata_url: str = ""
    key_file: str = ""
    redirect_port: int = 0
    # The authorization server's metadata and the server's own, as they were at the login.
    server: dict[str, Any] = {}
    protected: dict[str, Any] = {}
    challenge: Challenge | None = None
    in_keyring: bool = False
    secrets: Secrets = Secrets()

    @property
    def has_token(self) -> bool:
        return bool(self.secrets.access_token)

    @property
    def is_renewable(self) -> bool:
        return self.grant == "client_credentials" or bool(self.secrets.refresh_token)

    def without_token(self) -> Login:
        return replace(self, secrets=Secrets(client_secret=self.secrets.client_secret), expires=None)


def canonical(url: str) -> str:
    """The address that a login belongs to. Raises ValueError if it isn't one."""
    split = urlsplit(url)
    scheme, host, port = split.scheme.lower(), split.hostname or "", split.port
    if scheme not in _PORTS or not host:
        raise ValueError(f"not the address of a server: {url!r}")
    host = f"[{host}]" if ":" in host else host
    netloc = host if port in (None, _PORTS[scheme]) else f"{host}:{port}"
    return urlunsplit((scheme, netloc, split.path if split.path != "/" else "", "", ""))


def login_command(url: str) -> str:
    """What a person runs to log in to a server."""
    return f"mcp-envelope login {shlex.quote(canonical(url))}"


def origin(url: str) -> tuple[str, str, int]:
    split = urlsplit(url)
    return split.scheme, split.hostname or "", split.port or _PORTS.get(split.scheme, 0)


def is_safe(url: str) -> bool:
    """Whether a token may be sent there: not in clear, unless it stays on this computer."""
    return urlsplit(url).scheme == "https" or is_loopback(urlsplit(url).hostname)


class LoginStore:
    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or state_folder() / "logins"

    def path(self, url: str) -> Path:
        return self.folder / f"{sha256(url.encode()).hexdigest()[:32]}.json"

    def version(self, url: str) -> object:
        """Something that changes when the login does; None if there is none."""
        try:
            found = os.stat(self.path(url))
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size

    def load(self, url: str) -> Login | None:
        login = _read(self.path(url))
        if login is None or login.url != url:
            return None
        if login.in_keyring:
            secrets = _from_keyring(url)
            return replace(login, secrets=secrets) if secrets is not None else login.without_token()
        return login

    def save(self, login: Login) -> Login:
        """Keep a login; returns it as it is kept."""
        in_keyring = login.secrets != Secrets() and _to_keyring(login.url, login.secrets)
        kept = replace(login, in_keyring=in_keyring)
        try:
            written = replace(kept, secrets=Secrets()) if in_keyring else kept
            write_private(self.path(login.url), msgspec.json.format(msgspec.json.encode(written)))
        except OSError as error:
            raise Unstorable(f"{self.folder} cannot be written: {error.strerror}") from None
        if login.in_keyring and not in_keyring:
            _delete_from_keyring(login.url)
        return kept

    def delete(self, url: str) -> bool:
        """Forget a login; returns whether there was one."""
        login = _read(self.path(url))
        if login is not None and login.in_keyring:
            _delete_from_keyring(url)
        try:
            self.path(url).unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise Unstorable(f"{self.path(url)} cannot be deleted: {error.strerror}") from None
        return True

    def all(self) -> list[Login]:
        found = [_read(path) for path in sorted(self.folder.glob("*.json"))]
        known = [login for login in found if login is not None]
        loaded = [self.load(login.url) for login in sorted(known, key=lambda login: login.url)]
        return [login for login in loaded if login is not None]

    def lock(self, url: str) -> AbstractContextManager[None]:
        """One process at a time. May wait for as long as another one renews the token."""
        return locked(self.path(url))


def _read(path: Path) -> Login | None:
    """The login in a file; None if it cannot be read, which is as good as none."""
    try:
        if os.name == "posix" and (os.stat(path).st_mode & 0o077):
            os.chmod(path, 0o600)
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(_LARGEST), type=Login)
    except (OSError, ValueError):
        return None


# -- the keyring --------------------------------------------------------------------------------------------


def _keyring() -> Any:
    """The system's keyring; None if there is none that can be trusted."""
    try:
        import keyring

        found = keyring.get_keyring()
        return found if found.priority >= _TRUSTED else None
    except Exception:
        # Its backends fail in as many ways as there are desktops.
        return None


def keyring_name() -> str | None:
    """What the keyring is called, if there is one."""
    found = _keyring()
    return None if found is None else str(found.name)


def _to_keyring(url: str, secrets: Secrets) -> bool:
    found, text = _keyring(), msgspec.json.encode(secrets).decode()
    if found is None:
        return False
    try:
        found.set_password(_SERVICE, url, text)
        return bool(found.get_password(_SERVICE, url) == text)
    except Exception:
        return False


def _from_keyring(url: str) -> Secrets | None:
    found = _keyring()
    try:
        said = None if found is None else found.get_password(_SERVICE, url)
        return None if said is None else msgspec.json.decode(said, type=Secrets)
    except Exception:
        return None


def _delete_from_keyring(url: str) -> None:
    found = _keyring()
    with suppress(Exception):
        if found is not None:
            found.delete_password(_SERVICE, url)
