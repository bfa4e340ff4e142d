"""A server's entry, with the proxy in front of it and without. Meaning only, no text.

Strategy: whatever a wrapped entry was before can be told from itself. A local server's command goes behind `--`. Of
a remote one the URL, the kind of transport and the names of its headers go into the arguments; the values of the
headers may be secrets, so they become variables in `env` and never stand on a command line. `--transport http` says
that the entry had a `type`, `--transport=http` that its URL was called `httpUrl`: the proxy reads both alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeGuard

PROGRAM: Final = "mcp-envelope"
MODULE: Final = "mcp_envelope"
PROXY: Final = "proxy"
SEPARATOR: Final = "--"
VARIABLE: Final = "MCP_ENVELOPE_HEADER_"

# Options of the proxy that a person may set; each is followed by its value.
SETTINGS: Final = ("--tokens", "--bytes", "--dialect", "--config", "--vault")
# A budget is in one unit.
_RIVALS: Final = {"--tokens": "--bytes", "--bytes": "--tokens"}
# Options that say what a remote entry was.
_REMOTE: Final = ("--transport", "--header-env", "--bearer-env", "--url")
_TRANSPORTS: Final = {"http": "http", "sse": "sse", "streamable-http": "http", "streamableHttp": "http"}
# Programs that start another one, whose name is then among the arguments.
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


class Unfit(Exception):
    """This entry cannot be wrapped or unwrapped. The message says why and goes on after its name."""


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
    """What a wrapped entry's arguments say."""

    launch: Launch
    first: int  # the index of the first option
    stop: int  # the index of `--`, or the number of arguments
    remote: Remote | None


@dataclass(frozen=True, slots=True)
class Remote:
    words: tuple[str, ...]  # all that tells of it, in the order of the arguments
    url: int  # the index of the URL among the arguments
    transport: str | None
    kind: int | None  # the index of the transport, if the entry had a `type`
    headers: Mapping[str, str]  # variable -> header
    bearer: str | None


def is_program(command: str) -> bool:
    return _named(command) == PROGRAM


def proxied(entry: Mapping[str, Any]) -> Proxied | None:
    """What a wrapped entry says, or None if it is not wrapped."""
    command, args = entry.get("command"), entry.get("args")
    if not isinstance(command, str) or not _are_words(args):
        return None
    words = [command, *args]
    for at, (word, following) in enumerate(pairwise(words)):
        if word == SEPARATOR or (at and not _STARTERS.fullmatch(_named(command))):
            return None
        if following == PROXY and (is_program(word) or (at and word == MODULE and words[at - 1] == "-m")):
            return _told(words[: at + 1], words[1:], first=at + 1)
    return None


def is_remote(entry: Mapping[str, Any]) -> bool:
    return "command" not in entry and ("url" in entry or "httpUrl" in entry)


def url_key(entry: Mapping[str, Any]) -> str:
    return "httpUrl" if "httpUrl" in entry else "url"


def check_local(entry: Mapping[str, Any]) -> None:
    if "command" not in entry:
        raise Unfit("has neither a command nor a URL")
    if not isinstance(entry["command"], str) or not entry["command"]:
        raise Unfit("has a command that is no text")
    if "args" in entry and not _are_words(entry["args"]):
        raise Unfit("has arguments that are not a list of texts")
    if "url" in entry or "httpUrl" in entry:
        raise Unfit("has both a command and a URL")


def check_remote(entry: Mapping[str, Any], headers_key: str, is_secret: Callable[[str], bool]) -> None:
    url, headers = entry[url_key(entry)], entry.get(headers_key, {})
    if not isinstance(url, str) or ("url" in entry and "httpUrl" in entry):
        raise Unfit("has a URL that is not understood")
    if is_secret(url):
        raise Unfit("has a secret in its URL, which would stand on a command line")
    for key in _CLIENT_ONLY:
        if key in entry:
            raise Unfit(f"has {key}, which only the client can do")
    for key in ("args", "env", "env_vars"):
        if key in entry:
            raise Unfit(f"has both a URL and {key}")
    if "type" in entry and entry["type"] not in _TRANSPORTS:
        raise Unfit("has a type that the proxy does not speak")
    if not isinstance(headers, dict) or not all(isinstance(value, str) for value in headers.values()):
        raise Unfit(f"has {headers_key} that are no texts")
    if any("=" in name or not name for name in headers):
        raise Unfit(f"has {headers_key} with a name that no header can have")
    if not isinstance(entry.get("bearer_token_env_var", ""), str):
        raise Unfit("has a bearer_token_env_var that is no text")


def wrapped(entry: Mapping[str, Any], launch: Launch, headers_key: str) -> dict[str, Any]:
    """The entry with the proxy in front. It was checked before."""
    result = dict(entry)
    if not is_remote(entry):
        result["command"] = launch.program[0]
        result["args"] = [*launch.words, SEPARATOR, entry["command"], *entry.get("args", [])]
        return result
    url = result.pop(url_key(entry))
    result["command"] = launch.program[0]
    result["args"] = [*launch.words, *remote_words(entry, headers_key), url]
    result.pop("type", None)
    if headers_key in result:
        names = variables(result.pop(headers_key))
        result["env"] = {variable: entry[headers_key][name] for name, variable in names.items()}
    if "bearer_token_env_var" in result:
        result["env_vars"] = [result.pop("bearer_token_env_var")]
    return result


def remote_words(entry: Mapping[str, Any], headers_key: str) -> list[str]:
    """The arguments that tell of a remote server, without the URL itself, which comes last."""
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
    """Each header's variable. The names are numbers: what a header is called may not do for a variable."""
    return {name: f"{VARIABLE}{number}" for number, name in enumerate(headers, 1)}


def check_wrapped(entry: Mapping[str, Any], told: Proxied) -> None:
    """Whether what was in front of the proxy can be told."""
    args, remote = entry["args"], told.remote
    if remote is None:
        if len(args) < told.stop + 2 or not args[told.stop + 1]:
            raise Unfit("has a proxy whose arguments are not understood")
        return
    env, names = entry.get("env", {}), remote.headers
    if not isinstance(env, dict) or set(env) != set(names) or len(set(names.values())) != len(names):
        raise Unfit("has an env that is not that of its headers; change it by hand")
    if entry.get("env_vars", []) != ([] if remote.bearer is None else [remote.bearer]):
        raise Unfit("has env_vars that are not those of its token; change it by hand")
    if "type" in entry or "url" in entry or "httpUrl" in entry:
        raise Unfit("has both a command and a URL")


def unwrapped(entry: Mapping[str, Any], told: Proxied, headers_key: str, *, has_args: bool) -> dict[str, Any]:
    """The entry without the proxy. It was checked before."""
    result = dict(entry)
    args, remote = entry["args"], told.remote
    if remote is None:
        result["command"] = args[told.stop + 1]
        result["args"] = args[told.stop + 2 :]
        if not has_args:
            del result["args"]
        return result
    del result["command"], result["args"]
    if remote.kind is not None:
        result["type"] = remote.transport
    has_http_url = remote.transport is not None and remote.kind is None
    result["httpUrl" if has_http_url else "url"] = args[remote.url]
    if "env" in entry:
        env = result.pop("env")
        result[headers_key] = {remote.headers[variable]: value for variable, value in env.items()}
    if "env_vars" in entry:
        result["bearer_token_env_var"] = result.pop("env_vars")[0]
    return result


def with_settings(launch: Launch, program: tuple[str, ...] | None, settings: Mapping[str, str]) -> Launch:
    """The same launch with these options set, and those that they do not name as they were."""
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


def _told(program: list[str], args: list[str], first: int) -> Proxied | None:
    if SEPARATOR in args[first:]:
        stop = args.index(SEPARATOR, first)
        return Proxied(Launch(tuple(program), tuple(args[first:stop])), first, stop, None)
    options: list[str] = []
    words: list[str] = []
    headers: dict[str, str] = {}
    url = -1
    transport: str | None = None
    bearer: str | None = None
    kind: int | None = None
    at = first
    while at < len(args):
        name, equals, value = args[at].partition("=")
        if name not in _REMOTE or (equals and name != "--transport") or (not equals and at + 1 == len(args)):
            options.append(args[at])
            at += 1
            continue
        taken = args[at : at + (1 if equals else 2)]
        words += taken
        value = taken[-1] if not equals else value
        at += len(taken)
        if name == "--url":
            url = at - 1
        elif name == "--transport":
            transport, kind = value, None if equals else at - 1
        elif name == "--bearer-env":
            bearer = value
        else:
            header, _, variable = value.partition("=")
            headers[variable] = header
    if url < 0:
        return Proxied(Launch(tuple(program), tuple(options)), first, len(args), None)
    remote = Remote(tuple(words), url, transport, kind, headers, bearer)
    return Proxied(Launch(tuple(program), tuple(options)), first, len(args), remote)


def _named(command: str) -> str:
    """`mcp-envelope` for `C:\\Tools\\mcp-envelope.EXE`."""
    found = _BASENAME.fullmatch(re.split(r"[/\\]", command)[-1])
    return found[1] if found else command


def _are_words(args: object) -> TypeGuard[list[str]]:
    return isinstance(args, list) and all(isinstance(word, str) for word in args)
