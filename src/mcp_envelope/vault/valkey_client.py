"""The client of a Valkey or Redis server: its address, timeouts, retries, and errors in plain words.

Strategy: every command may safely be sent twice, so after a lost connection it is sent again, for about a second.
The library could do that too, but it does not retry a refused connection and it multiplies timeouts; here the
whole is bounded. After a failure the client pauses: callers fail at once, except for one that finds out whether
the server is back. Nothing connects before the first command.
"""

from __future__ import annotations

import re
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from .store import StoreError

_CONNECT: Final = 2.0
_ANSWER: Final = 5.0
# Between attempts after a lost connection; there are no more attempts once that much time has passed.
_RETRY_AFTER: Final = (0.02, 0.05, 0.1, 0.2, 0.3)
_PATIENCE: Final = 1.0
# How long to pause after a failure: as long as the failing took, within these bounds.
_PAUSE: Final = (1.0, 5.0)
# How long the others wait while one caller finds out whether the server is back.
_PROBE: Final = 3.0

_TLS: Final = ("valkeys", "rediss")
_SCHEMES: Final = ("valkey", "redis", *_TLS, "unix")
_FORMS: Final = "valkey://, valkeys://, redis://, rediss:// or unix://"
# The library's own options that would change what answers look like.
_REFUSED: Final = frozenset({"decode_responses", "encoding", "encoding_errors", "protocol", "host", "port"})

Answer = TypeVar("Answer")

# What the server's error codes mean to whoever runs it. The library takes some codes off the text and makes a
# class of them.
_MEANINGS: Final = {
    "OOM|OutOfMemoryError": "is out of memory: raise its maxmemory, or lower the cap of the store",
    "READONLY|ReadOnlyError": "is a read-only replica: give the address of its primary",
    "NOREPLICAS": "accepts no writes, because it has too few replicas: see min-replicas-to-write in its settings",
    "MISCONF": "accepts no writes, because it cannot save to disk: see its log",
    "NOPERM|NoPermissionError": "does not let this user do that: its ACL must allow the keys of the store and "
    "the command EVAL",
    "MOVED|MovedError|ASK|AskError": "is part of a cluster: add cluster=true to the query of the URL",
    "CROSSSLOT|ClusterCrossSlotError": "is part of a cluster that keeps these keys apart",
    "CLUSTERDOWN|ClusterDownError|No primary nodes": "belongs to a cluster that is down: see its log",
    "MASTERDOWN|MasterDownError": "is a replica that lost its primary: give the address of the primary",
    "LOADING|BusyLoadingError": "is still loading its data: try again in a moment",
    "BUSY": "is busy with a script: try again in a moment",
    "WRONGTYPE": "has keys of another program under this prefix: use another database",
    "without any password|no password is set": "does not use a password: remove it from the URL",
    "not enabled": "is not part of a cluster: remove cluster=true from the URL",
    "unknown command": "lacks a command: use Valkey, or Redis 6.2 or later, and allow EVAL",
    "DB index": "has no database of that number: correct the number at the end of the URL",
}


class ValkeyClient:
    """A client of the library, made when it is first needed. Safe to use from several threads."""

    def __init__(self, url: str) -> None:
        try:
            import valkey
            from valkey import exceptions
        except ImportError:
            raise StoreError(
                "A store on a Valkey or Redis server needs the extra: pip install 'mcp-envelope[valkey]'"
            ) from None
        # The library is typed in part only.
        self._library: Any = valkey
        self._errors = exceptions
        self._failures = (exceptions.ValkeyError, exceptions.ValkeyClusterException, OSError)
        self._url, self.place, self._cluster, self._options = _read(url)
        self._secrets = _secrets_of(url)
        self._lock = threading.Lock()
        # A client for a cluster connects when it is made; callers that fail at once do not wait for that.
        self._making = threading.Lock()
        # 0 while the server is up; else the time until which no command is sent.
        self._paused_until = 0.0
        self._trouble = ""
        self._client: Any = None
        try:
            # Makes a connection object but does not connect: an option that is unknown or wrong shows now.
            pool = self._library.ConnectionPool.from_url(self._url, **self._options)
            pool.connection_class(**pool.connection_kwargs)
        except Exception:
            names = ", ".join(sorted({name for name, _ in parse_qsl(urlsplit(url).query)})) or "none"
            raise StoreError(
                f"The URL of {self.place} has an option that is unknown or has a wrong value; it has: {names}."
            ) from None

    def call(self, *command: Any) -> Any:
        return self._attempt(lambda client: client.execute_command(*command))

    def run(self, script: str, keys: Sequence[str], values: Sequence[Any] = ()) -> Any:
        """A script on keys that share a slot. EVAL, not EVALSHA: a server that came back knows no script."""
        return self.call("EVAL", script, len(keys), *keys, *values)

    def calls(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Independent commands in one go, each on one slot; the first error is raised."""

        def send(client: Any) -> list[Any]:
            with client.pipeline(transaction=False) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                # The library's own way to raise puts the whole command, blobs and all, into the message.
                answers: list[Any] = pipeline.execute(raise_on_error=False)
            for answer in answers:
                if isinstance(answer, Exception):
                    raise answer
            return answers

        return self._attempt(send) if commands else []

    def close(self) -> None:
        with self._making:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _attempt(self, do: Callable[[Any], Answer]) -> Answer:
        self._admit()
        started = time.monotonic()
        for pause in (*_RETRY_AFTER, None):
            try:
                answer = do(self._connected())
            except Exception as caught:
                # The cluster client gives the reason for a missing connection only in the cause.
                error = caught.__cause__ if isinstance(caught.__cause__, self._failures) else caught
                taken = time.monotonic() - started
                if not self._lost(error):
                    self._paused_until = 0.0
                    raise StoreError(self._sentence(error)) from error
                if self._cluster:
                    # The library's client forgets nodes that failed, and cannot ask again who has which slots.
                    self._client = None
                slow = isinstance(error, (self._errors.TimeoutError, TimeoutError))
                if pause is None or slow or _distrusted(error) or taken > _PATIENCE:
                    raise self._down(error, taken) from error
                time.sleep(pause)
            else:
                self._paused_until = 0.0
                return answer
        raise AssertionError("the last try returns or raises")

    def _admit(self) -> None:
        with self._lock:
            if not self._paused_until:
                return
            now = time.monotonic()
            if now < self._paused_until:
                raise StoreError(self._trouble)
            self._paused_until = now + _PROBE

    def _down(self, error: BaseException, taken: float) -> StoreError:
        sentence = self._sentence(error)
        with self._lock:
            self._trouble = sentence
            self._paused_until = time.monotonic() + min(max(taken, _PAUSE[0]), _PAUSE[1])
        return StoreError(sentence)

    def _connected(self) -> Any:
        with self._making:
            client = self._client
            if client is None:
                kind = self._library.ValkeyCluster if self._cluster else self._library.Valkey
                client = self._client = kind.from_url(self._url, **self._options)
            return client

    def _lost(self, error: BaseException) -> bool:
        if isinstance(error, (self._errors.AuthenticationError, self._errors.ClusterDownError)):
            return False
        answered = isinstance(error, self._errors.ResponseError) or "not enabled" in str(error)
        return isinstance(error, self._failures) and not answered

    def _sentence(self, error: BaseException) -> str:
        text = str(error).strip()
        said = f"{' '.join(kind.__name__ for kind in type(error).__mro__)} {text}"
        for codes, meaning in _MEANINGS.items():
            if re.search(rf"(?<!\w)({codes})(?!\w)", said):
                return f"{self.place} {meaning}."
        if isinstance(error, self._errors.AuthenticationError):
            given = "rejected the password or the user name" if self._secrets else "requires a password"
            return (
                f"{self.place} {given}: put the right ones into the URL, as in valkey://user:password@host."
            )
        if _distrusted(error):
            return (
                f"{self.place} presents a certificate that is not trusted: name the file of its "
                f"authority in the URL, as in ?ssl_ca_certs=/path/to/ca.pem. {self._shown(text)}"
            )
        text = self._shown(text)
        if isinstance(error, (self._errors.TimeoutError, TimeoutError)):
            return f"{self.place} does not answer in time: check the server and the network."
        if self._lost(error):
            advice = "check that the server is running and the address is right"
            return f"{self.place} cannot be reached: {advice}. {text}"
        return f"{self.place} refused: {text}"

    def _shown(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "…")
        return text if len(text) <= 200 else text[:199] + "…"


def _distrusted(error: BaseException) -> bool:
    """Whether TLS failed: the library hides that in the error's context."""
    return isinstance(error.__context__, ssl.SSLError)


def _read(url: str) -> tuple[str, str, bool, dict[str, Any]]:
    """Return the URL for the library, the place for people, whether it is a cluster, and the library's options."""
    # The URL is not shown: in a broken one there is no telling where the password is.
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise StoreError(
            f"The URL of the store cannot be parsed: it is {_FORMS} and a host, and in a password "
            "characters such as / # ? @ are written as %2F %23 %3F %40."
        ) from None
    scheme = parts.scheme.lower()
    if scheme not in _SCHEMES or not url.lower().startswith(f"{scheme}://"):
        raise StoreError(f"The URL of the store starts with {_FORMS}.")
    query = parse_qsl(parts.query, keep_blank_values=True)
    if refused := sorted({name for name, _ in query} & _REFUSED):
        raise StoreError(f"The URL of the store has options that cannot be set: {', '.join(refused)}.")
    cluster = any(name == "cluster" and value.lower() in ("1", "yes", "true") for name, value in query)
    query = [(name, value) for name, value in query if name != "cluster"]
    options: dict[str, Any] = {"socket_timeout": _ANSWER, "socket_connect_timeout": _CONNECT}
    if scheme == "unix":
        if cluster or not parts.path:
            raise StoreError(
                "A unix:// URL takes the path of a socket, as in unix:///run/valkey.sock, and no cluster."
            )
        place = f"unix://{parts.path}"
    else:
        if not parts.netloc:
            raise StoreError(f"The URL of the store has no host: write {scheme}://HOST:6379.")
        number = parts.path.strip("/")
        if number and not number.isdecimal():
            raise StoreError(
                "After the host the URL of the store may have only the number of a database, as in /0."
            )
        options["socket_keepalive"] = True
        host = parts.hostname or "localhost"
        place = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port or 6379}" + (
            f"/{number}" if number else ""
        )
        if scheme in _TLS and ("ssl_cert_reqs", "none") not in query:
            # The library checks the certificate but not whose it is.
            options["ssl_check_hostname"] = True
    # The library knows schemes in lower case alone.
    address = urlunsplit((scheme, parts.netloc, parts.path, urlencode(query, quote_via=quote), ""))
    return address, place, cluster, options


def _secrets_of(url: str) -> tuple[str, ...]:
    parts = urlsplit(url)
    given = [value for name, value in parse_qsl(parts.query) if "password" in name]
    if parts.password:
        given += [parts.password, unquote(parts.password)]
    return tuple(sorted(set(given), key=len, reverse=True))
