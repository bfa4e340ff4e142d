"""What a server's entry means, with the proxy in front of it and without. It reads entries; `wrapping` edits them.

Strategy: a wrapped entry itself says what it was before. A local server's command goes behind `--`. Of a remote
server the URL, the transport and the names of its headers go into the arguments; the values of the headers may be
secrets, so they become variables in `env` and never appear on a command line. `--transport http` says that the
entry had a `type`, `--transport=http` that its URL was called `httpUrl`: to the proxy they are the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeGuard

PROGRAM: Final = "mcp-envelope"
MODULE: Final = "mcp_envelope"
PROXY: Final = "proxy"
SEPARATOR: Final = "--"
VARIABLE: Final = "MCP_ENVELOPE_HEADER_"

# Options of the proxy that can be set through `wrap`; each takes a value.
SETTINGS: Final = ("--tokens", "--bytes", "--dialect", "--config", "--vault")
# A budget has one unit.
_RIVALS: Final = {"--tokens": "--bytes", "--bytes": "--tokens"}
# Options that describe a remote server.
_REMOTE: Final = ("--transport", "--header-env", "--bearer-env", "--url")
_TRANSPORTS: Final = {"http": "http", "sse": "sse", "streamable-http": "http", "streamableHttp": "http"}
# Programs that start another one, whose name is then an argument.
_STARTERS: Final = re.compile(r"(?:python[\d.]*|pypy[\d.]*|pyw?|uvx?|pipx)", re.IGNORECASE)
_BASENAME: Final = re.compile(r"([^/\\]*?)(?:\.(?:exe|cmd|bat))?", re.IGNORECASE | re.DOTALL)
# With one of these the client logs in, or makes the headers itself.
_CLIENT_ONLY: Final = (
    "oauth",
    "oauth_resource",
    "auth",
    "authProviderType",
    "headersHelper",
    "bearer_token",
    "env_http_headers",
)


class NotWrappable(Exception):
    """This entry cannot be wrapped or unwrapped. The message says why, and follows the entry's name."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How the proxy is started: the program, its own arguments, and the options of the proxy."""

    program: tuple[str, ...]
    options: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.program[1:], PROXY, *self.options)


@dataclass(frozen=True, slots=True)
class Proxied:
    """A wrapped entry, as told by its arguments."""

    launch: Launch
    stop: int  # the index of `--`, or the number of arguments
    remote: Remote | None


@dataclass(frozen=True, slots=True)
class Remote:
    words: tuple[str, ...]  # its options, in the order of the arguments
    url: int  # the index of the URL among the arguments
    transport: str | None
    kind: int | None  # the index of the transport, if the entry had a `type`
    headers: Mapping[str, str]  # variable -> header
    bearer: str | None


def is_program(command: str) -> bool:
    return _named(command) == PROGRAM


def proxied(entry: Mapping[str, Any]) -> Proxied | None:
    """The wrapped entry, or None if the entry is not wrapped."""
    command, args = entry.get("command"), arguments(entry)
    if is_inline(entry):
        command = entry["command"][0]
    if not isinstance(command, str) or not _are_strings(args):
        return None
    words = [command, *args]
    for at, (word, following) in enumerate(pairwise(words)):
        if word == SEPARATOR or (at and not _STARTERS.fullmatch(_named(command))):
            return None
        if following == PROXY and (is_program(word) or (at and word == MODULE and words[at - 1] == "-m")):
            return _proxied(words[: at + 1], words[1:], first=at + 1)
    return None


def is_inline(entry: Mapping[str, Any]) -> bool:
    """Whether the arguments stand behind the program in `command`, as in opencode."""
    command = entry.get("command")
    return _are_strings(command) and bool(command)


def arguments(entry: Mapping[str, Any]) -> Any:
    return entry["command"][1:] if is_inline(entry) else entry.get("args")


def is_remote(entry: Mapping[str, Any]) -> bool:
    return "command" not in entry and ("url" in entry or "httpUrl" in entry)


def url_key(entry: Mapping[str, Any]) -> str:
    return "httpUrl" if "httpUrl" in entry else "url"


def check(entry: Mapping[str, Any], headers_key: str, is_secret: Callable[[str], bool]) -> None:
    """Check that an entry without the proxy can be wrapped. Raises NotWrappable."""
    mistakes = _remote_mistakes(entry, headers_key, is_secret) if is_remote(entry) else _local_mistakes(entry)
    for is_wrong, reason in mistakes:
        if is_wrong:
            raise NotWrappable(reason)


def _local_mistakes(entry: Mapping[str, Any]) -> Iterator[tuple[bool, str]]:
    command, args = entry.get("command"), entry.get("args", [])
    yield "command" not in entry, "has neither a command nor a URL"
    is_understood = is_inline(entry) or (isinstance(command, str) and bool(command))
    yield not is_understood, "has a command that is neither a string nor a list of strings"
    yield is_inline(entry) and "args" in entry, "has a command with arguments and args"
    yield not _are_strings(args), "has arguments that are not a list of strings"
    yield "url" in entry or "httpUrl" in entry, "has both a command and a URL"


def _remote_mistakes(
    entry: Mapping[str, Any], headers_key: str, is_secret: Callable[[str], bool]
) -> Iterator[tuple[bool, str]]:
    url, headers = entry[url_key(entry)], entry.get(headers_key, {})
    is_understood = isinstance(url, str) and not ("url" in entry and "httpUrl" in entry)
    yield not is_understood, "has a URL that is not understood"
    yield is_secret(url), "has a secret in its URL, which would appear on a command line"
    for key in _CLIENT_ONLY:
        yield key in entry, f"has {key}, which only the client can handle"
    for key in ("args", "env", "env_vars"):
        yield key in entry, f"has both a URL and {key}"
    yield "httpUrl" in entry and "type" in entry, "has both httpUrl and type"
    yield str(entry.get("type", "http")) not in _TRANSPORTS, "has a type that the proxy does not speak"
    are_strings = isinstance(headers, dict) and _are_strings(list(headers.values()))
    yield not are_strings, f"has {headers_key} that are not strings"
    bad_name = any("=" in name or not name for name in headers)
    yield bad_name, f"has {headers_key} with a name that a header cannot have"
    bearer = entry.get("bearer_token_env_var", "")
    yield not isinstance(bearer, str), "has a bearer_token_env_var that is not a string"


def remote_words(entry: Mapping[str, Any], headers_key: str) -> list[str]:
    """The options that describe a remote server, up to `--url`; the URL follows."""
    words: list[str] = []
    if "httpUrl" in entry:
        words.append("--transport=http")
    elif "type" in entry:
        words += ["--transport", _TRANSPORTS[entry["type"]]]
    for name, variable in variables(entry.get(headers_key, {})).items():
        words += ["--header-env", f"{name}={variable}"]
    if "bearer_token_env_var" in entry:
        words += ["--bearer-env", entry["bearer_token_env_var"]]
    return [*words, "--url"]


def variables(headers: Mapping[str, str]) -> dict[str, str]:
    """Each header's variable, numbered, because a header's name may not be valid as one."""
    return {name: f"{VARIABLE}{number}" for number, name in enumerate(headers, 1)}


def check_wrapped(entry: Mapping[str, Any], proxied: Proxied) -> None:
    """Check that the entry says what it was before."""
    args, remote = arguments(entry), proxied.remote
    if remote is None:
        if len(args) < proxied.stop + 2 or not args[proxied.stop + 1]:
            raise NotWrappable("has a proxy with arguments that are not understood")
        return
    env, names = entry.get("env", {}), remote.headers
    if not isinstance(env, dict) or set(env) != set(names) or len(set(names.values())) != len(names):
        raise NotWrappable("has an env that does not match its headers; change it by hand")
    if entry.get("env_vars", []) != ([] if remote.bearer is None else [remote.bearer]):
        raise NotWrappable("has env_vars that do not match its token; change it by hand")
    if "type" in entry or "url" in entry or "httpUrl" in entry:
        raise NotWrappable("has both a command and a URL")


def with_settings(launch: Launch, program: tuple[str, ...] | None, settings: Mapping[str, str]) -> Launch:
    """The same launch with these options set, and all others as they were."""
    options: list[str] = []
    left = dict(settings)
    words = iter(launch.options)
    for word in words:
        name, equals, _ = word.partition("=")
        if name not in SETTINGS:
            options.append(word)
            continue
        value = [] if equals else [next(words, "")]
        if name in left:
            options += [name, left.pop(name)]
        elif _RIVALS.get(name) not in settings:
            options += [word, *value]
    for name, setting in left.items():
        options += [name, setting]
    return Launch(program or launch.program, tuple(options))


def _proxied(program: list[str], args: list[str], first: int) -> Proxied:
    if SEPARATOR in args[first:]:
        stop = args.index(SEPARATOR, first)
        return Proxied(Launch(tuple(program), tuple(args[first:stop])), stop, None)
    options: list[str] = []
    words: list[str] = []
    headers: dict[str, str] = {}
    places: dict[str, int] = {}
    at = first
    while at < len(args):
        name, equals, _ = args[at].partition("=")
        if name not in _REMOTE or (equals and name != "--transport") or (not equals and at + 1 == len(args)):
            options.append(args[at])
            at += 1
            continue
        taken = args[at : at + (1 if equals else 2)]
        words += taken
        at += len(taken)
        places[name] = at - 1
        if name == "--header-env":
            header, _, variable = taken[-1].partition("=")
            headers[variable] = header
    launch = Launch(tuple(program), tuple(options))
    if "--url" not in places:
        return Proxied(launch, len(args), None)
    kind, bearer = places.get("--transport"), places.get("--bearer-env")
    transport = None if kind is None else args[kind].removeprefix("--transport=")
    if kind is not None and args[kind].startswith("--transport="):
        kind = None
    token = None if bearer is None else args[bearer]
    return Proxied(launch, len(args), Remote(tuple(words), places["--url"], transport, kind, headers, token))


def _named(command: str) -> str:
    """`mcp-envelope` for `C:\\Tools\\mcp-envelope.EXE`."""
    found = _BASENAME.fullmatch(re.split(r"[/\\]", command)[-1])
    return found[1] if found else command


def _are_strings(args: object) -> TypeGuard[list[str]]:
    return isinstance(args, list) and all(isinstance(word, str) for word in args)
