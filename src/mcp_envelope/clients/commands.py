"""How the servers in a client's configuration are started by somebody other than that client.

Strategy: an entry says it in its client's words: a command, arguments, variables and a folder. One with a URL is
wrapped first, so that the proxy speaks HTTP for it. Variables (`${NAME}`, `${NAME:-default}`, `${env:NAME}`) are
replaced as clients do it; what only the client can fill in, such as an input, leaves a server out, and so does one
that the client has switched off.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from . import server_entry
from .config_file import ConfigFile
from .server_entry import Launch, NotWrappable

_PLACEHOLDER: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_CLIENTS_OWN: Final = re.compile(r"\$\{[A-Za-z][^}]*\}")


class ServerCommand(NamedTuple):
    """`variables` are those of the entry, besides the surroundings'."""

    words: tuple[str, ...]
    variables: Mapping[str, str]
    folder: str | None
    is_remote: bool


def commands(
    file: ConfigFile, carrier: Launch, environ: Mapping[str, str], is_secret: Callable[[str], bool]
) -> tuple[dict[str, ServerCommand], list[tuple[str, str]]]:
    """The servers by name, and the names of those that are left out, with the reason.

    `carrier` is what starts the proxy for a server with a URL.
    """
    found: dict[str, ServerCommand] = {}
    left: list[tuple[str, str]] = []
    for server in file.servers():
        entry = server.value
        if server.path[:1] == ("projects",) or entry.get("disabled") is True or entry.get("enabled") is False:
            continue
        try:
            if server_entry.is_gateway(entry):
                raise NotWrappable("is a gateway itself")
            headers = file.syntax.headers
            server_entry.check(entry, headers, is_secret)
            is_remote = server_entry.is_remote(entry)
            value = server_entry.wrapped(entry, carrier, headers).value if is_remote else entry
            found[server.name] = _command(value, environ, is_remote)
        except NotWrappable as reason:
            left.append((server.name, str(reason)))
    return found, left


def _command(entry: Mapping[str, Any], environ: Mapping[str, str], is_remote: bool) -> ServerCommand:
    def filled(text: str) -> str:
        def value(match: re.Match[str]) -> str:
            known = environ.get(match[1], match[2])
            if known is None:
                raise NotWrappable(f"needs the variable {match[1]}, which is not set")
            return known

        for only in _CLIENTS_OWN.findall(text):
            if not _PLACEHOLDER.fullmatch(only):
                raise NotWrappable(f"needs {only}, which only the client knows")
        return _PLACEHOLDER.sub(value, text)

    given: Any = next((entry[key] for key in ("env", "environment", "envs") if key in entry), {})
    variables = {name: filled(str(value)) for name, value in given.items()} if isinstance(given, dict) else {}
    folder = entry.get("cwd")
    words = tuple(map(filled, server_entry.words(entry)))
    return ServerCommand(words, variables, filled(folder) if isinstance(folder, str) else None, is_remote)
