"""What a server's entry means, and what it becomes with the proxy in front of it and without. Here it is only data.

Strategy: a wrapped entry itself says what it was before. A local server's command goes behind `--`. Of a remote
server the URL, the transport and the names of its headers go into the arguments; the values of the headers may be
secrets, so they become variables in `env` and never appear on a command line. `--transport http` says that the
entry had a `type`; as one word, `--transport=http` says that its URL was called `httpUrl`, and `--transport=auto`
that it was called `serverUrl`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeGuard

PROGRAM: Final = "mcp-envelope"
MODULE: Final = "mcp_envelope"
PROXY: Final = "proxy"
GATEWAY: Final = "gateway"
SEPARATOR: Final = "--"
VARIABLE: Final = "MCP_ENVELOPE_HEADER_"

# Options of the proxy that can be set through `wrap`; each takes a value.
SETTINGS: Final = ("--tokens", "--bytes", "--dialect", "--config", "--vault")
# A budget has one unit.
_RIVALS: Final = {"--tokens": "--bytes", "--bytes": "--tokens"}
# Options that describe a remote server.
_REMOTE: Final = ("--transport", "--header-env", "--bearer-env", "--url")
# What a URL is called, and the argument that says so.
_URLS: Final = {"httpUrl": "--transport=http", "serverUrl": "--transport=auto", "url": ""}
_TRANSPORTS: Final = {"http": "http", "sse": "sse", "streamable-http": "http", "streamableHttp": "http"}
_BEARER: Final = "bearer_token_env_var"
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
    "requestOptions",
)

Entry = Mapping[str, Any]


class NotWrappable(Exception):
    """This entry cannot be wrapped or unwrapped. The message says why, and follows the entry's name."""


class Launch(NamedTuple):
    """How the proxy is started: the program, its own arguments, and the options of the proxy."""

    program: tuple[str, ...]
    options: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.program[1:], PROXY, *self.options)

    def with_settings(self, program: tuple[str, ...] | None, settings: Mapping[str, str]) -> Launch:
        """The same launch with these options set, and all others as they were."""
        options: list[str] = []
        left = dict(settings)
        words = iter(self.options)
        for word in words:
            name, equals, _ = word.partition("=")
            value = [next(words, "")] if name in SETTINGS and not equals else []
            if name in left:
                options += [name, left.pop(name)]
            elif _RIVALS.get(name) not in settings:
                options += [word, *value]
        options += [word for setting in left.items() for word in setting]
        return Launch(program or self.program, tuple(options))


class Proxied(NamedTuple):
    """A wrapped entry: how the proxy is started, and the arguments that say in front of what."""

    launch: Launch
    server: tuple[str, ...]

    @property
    def is_remote(self) -> bool:
        return "--url" in self.server and self.server[0] != SEPARATOR


class Change(NamedTuple):
    """What an entry becomes, whose words move elsewhere, and which old member each new one replaces."""

    value: dict[str, Any]
    moved: tuple[str, ...]
    places: Mapping[str, str] = {}


# -- reading ------------------------------------------------------------------------------------------------


def is_program(command: str) -> bool:
    return _named(command) == PROGRAM


def command_key(entry: Entry) -> str:
    """What the member with the command is called; Goose has a word of its own."""
    return "cmd" if "cmd" in entry else "command"


def words(entry: Entry) -> list[Any]:
    """The command with its arguments, whatever they are."""
    command, args = entry.get(command_key(entry)), entry.get("args")
    return (
        list(command) if isinstance(command, list) else [command, *(args if isinstance(args, list) else [])]
    )


def is_gateway(entry: Entry) -> bool:
    """Whether the entry starts a gateway."""
    return any(
        following == GATEWAY and isinstance(word, str) and (is_program(word) or word == MODULE)
        for word, following in pairwise(words(entry))
    )


def is_inline(entry: Entry) -> bool:
    """Whether the arguments stand behind the program in `command`, as in opencode."""
    command = entry.get("command")
    return _are_strings(command) and bool(command)


def is_remote(entry: Entry) -> bool:
    return command_key(entry) not in entry and any(key in entry for key in (*_URLS, "uri"))


def login_address(entry: Entry, headers_key: str) -> str | None:
    """Where the server of an entry may want a login: it has a URL, and nothing to show there."""
    if not is_remote(entry) or entry.get(headers_key) or _BEARER in entry:
        return None
    return str(entry[_url_key(entry)])


def proxied(entry: Entry) -> Proxied | None:
    """The wrapped entry, or None if the entry is not wrapped."""
    command, args = entry.get(command_key(entry)), entry.get("args")
    words = command if is_inline(entry) else [command, *args] if isinstance(args, list) else None
    if not _are_strings(words):
        return None
    for at, (word, following) in enumerate(pairwise(words)):
        if word == SEPARATOR or (at and not _STARTERS.fullmatch(_named(words[0]))):
            return None
        if following == PROXY and (is_program(word) or (at and word == MODULE and words[at - 1] == "-m")):
            options, server = _split(words[at + 2 :])
            return Proxied(Launch(tuple(words[: at + 1]), tuple(options)), tuple(server))
    return None


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """The options of the proxy, and the words about the server."""
    if SEPARATOR in words:
        at = words.index(SEPARATOR)
        return words[:at], words[at:]
    options: list[str] = []
    server: list[str] = []
    left = iter(words)
    for word in left:
        if word in _REMOTE and (value := next(left, None)) is not None:
            server += [word, value]
        else:
            (server if word.startswith("--transport=") else options).append(word)
    return options, server


def check(entry: Entry, headers_key: str, is_secret: Callable[[str], bool]) -> None:
    """Check that an entry without the proxy can be wrapped. Raises NotWrappable."""
    if "uri" in entry:
        raise NotWrappable("is remote in a way that only Goose supports; change it by hand")
    mistakes = _remote_mistakes(entry, headers_key, is_secret) if is_remote(entry) else _local_mistakes(entry)
    for is_wrong, reason in mistakes:
        if is_wrong:
            raise NotWrappable(reason)


def _local_mistakes(entry: Entry) -> Iterator[tuple[bool, str]]:
    command, args = entry.get(command_key(entry)), entry.get("args", [])
    yield command is None, "has neither a command nor a URL"
    program = entry["command"][0] if is_inline(entry) else command
    is_understood = isinstance(program, str) and bool(program)
    yield not is_understood, "has a command that is neither a string nor a list of strings"
    yield is_inline(entry) and "args" in entry, "has arguments both in its command and in args"
    yield not _are_strings(args), "has arguments that are not a list of strings"
    yield any(key in entry for key in _URLS), "has both a command and a URL"


def _remote_mistakes(
    entry: Entry, headers_key: str, is_secret: Callable[[str], bool]
) -> Iterator[tuple[bool, str]]:
    url, headers = entry[_url_key(entry)], entry.get(headers_key, {})
    is_understood = isinstance(url, str) and sum(key in entry for key in _URLS) == 1
    yield not is_understood, "has more than one URL, or one that is not a string"
    yield is_secret(url), "has a secret in its URL, which would appear on a command line"
    for key in _CLIENT_ONLY:
        yield key in entry, f"has {key}, which only the client can handle"
    for key in ("args", "env", "env_vars"):
        yield key in entry, f"has both a URL and {key}"
    key = _url_key(entry)
    yield key != "url" and "type" in entry, f"has both {key} and type"
    yield str(entry.get("type", "http")) not in _TRANSPORTS, "has a transport that the proxy does not support"
    are_strings = isinstance(headers, dict) and _are_strings(list(headers.values()))
    yield not are_strings, f"has {headers_key} that are not strings"
    bad_name = any("=" in name or not name for name in headers)
    yield bad_name, f"has {headers_key} with an invalid name"
    yield not isinstance(entry.get(_BEARER, ""), str), f"has a {_BEARER} that is not a string"


# -- changing -----------------------------------------------------------------------------------------------


def wrapped(entry: Entry, launch: Launch, headers_key: str) -> Change:
    """An entry that can be wrapped, with the proxy in front."""
    program, words = launch.program[0], [*launch.words, SEPARATOR]
    if is_inline(entry):
        return Change({**entry, "command": [program, *words, *entry["command"]]}, ())
    if not is_remote(entry):
        key = command_key(entry)
        args = [*words, entry[key], *entry.get("args", [])]
        return Change({**entry, key: program, "args": args}, (key,))
    places = {"args": _url_key(entry), "command": "type", "env": headers_key, "env_vars": _BEARER}
    places = {new: old for new, old in places.items() if old in entry}
    words = [*launch.words, *filter(None, [_URLS[_url_key(entry)]])]
    words += ["--transport", _TRANSPORTS[entry["type"]]] if "type" in entry else []
    # A header's name may not be valid as that of a variable, so these are numbered.
    headers = {f"{VARIABLE}{number}": name for number, name in enumerate(entry.get(headers_key, {}), 1)}
    words += [word for variable, name in headers.items() for word in ("--header-env", f"{name}={variable}")]
    words += ["--bearer-env", entry[_BEARER]] if _BEARER in entry else []
    new = {key: value for key, value in entry.items() if key not in places.values()}
    new |= {"command": program, "args": [*words, "--url", entry[places["args"]]]}
    if headers_key in entry:
        new["env"] = {variable: entry[headers_key][name] for variable, name in headers.items()}
    if _BEARER in entry:
        new["env_vars"] = [entry[_BEARER]]
    return Change(new, (places["args"], "type", _BEARER), places)


def updated(entry: Entry, launch: Launch, server: tuple[str, ...]) -> Change:
    """A wrapped entry with another launch."""
    words = [*launch.words, *server]
    if is_inline(entry):
        return Change({**entry, "command": [launch.program[0], *words]}, ("command",))
    return Change({**entry, command_key(entry): launch.program[0], "args": words}, ("args",))


def unwrapped(entry: Entry, found: Proxied, headers_key: str, had_args: bool) -> Change:
    """The entry as it was before. Raises NotWrappable if it doesn't say that."""
    if found.is_remote:
        return _unwrapped_remote(entry, found.server, headers_key)
    mark, command, *args = (*found.server, "", "")[: max(len(found.server), 2)]
    if mark != SEPARATOR or not command:
        raise NotWrappable("has a proxy with unknown arguments")
    if is_inline(entry):
        return Change({**entry, "command": [command, *args]}, ())
    new = {**entry, command_key(entry): command, "args": args}
    if not args and not had_args:
        del new["args"]
    return Change(new, ("args",))


def _unwrapped_remote(entry: Entry, server: tuple[str, ...], headers_key: str) -> Change:
    words = iter([word for word in server if not word.startswith("--transport=")])
    pairs = list(zip(words, words, strict=True))
    options = dict(pairs)
    named = [value.partition("=") for option, value in pairs if option == "--header-env"]
    headers = {variable: name for name, _, variable in named}
    bearer, env = options.get("--bearer-env"), entry.get("env", {})
    if not isinstance(env, dict) or env.keys() != headers.keys() or len({*headers.values()}) != len(headers):
        raise NotWrappable("has an env that does not match its headers; change it by hand")
    if entry.get("env_vars", []) != ([] if bearer is None else [bearer]):
        raise NotWrappable("has env_vars that do not match its token; change it by hand")
    if "type" in entry or any(key in entry for key in _URLS):
        raise NotWrappable("has both a command and a URL")
    url_key = next((key for key, mark in _URLS.items() if mark in server), "url")
    places = {url_key: "args", "type": "command", headers_key: "env", _BEARER: "env_vars"}
    before: dict[str, Any] = {url_key: options["--url"], "type": options.get("--transport"), _BEARER: bearer}
    if "env" in entry:
        before[headers_key] = {headers[variable]: value for variable, value in env.items()}
    before = {key: value for key, value in before.items() if value is not None}
    new = {key: value for key, value in entry.items() if key not in ("args", "command", "env", "env_vars")}
    return Change({**new, **before}, ("args", "env_vars"), {key: places[key] for key in before})


def _url_key(entry: Entry) -> str:
    return next((key for key in _URLS if key in entry), "url")


def _named(command: str) -> str:
    """`mcp-envelope` for `C:\\Tools\\mcp-envelope.EXE`."""
    found = _BASENAME.fullmatch(re.split(r"[/\\]", command)[-1])
    return found[1] if found else command


def _are_strings(args: object) -> TypeGuard[list[str]]:
    return isinstance(args, list) and all(isinstance(word, str) for word in args)
