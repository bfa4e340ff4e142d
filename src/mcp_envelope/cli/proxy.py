"""`mcp-envelope proxy`: the envelope in front of any MCP server.

Strategy: the server is started before anything else is loaded, so that it and the proxy get ready at the same
time. Standard output belongs to the protocol; messages go to standard error.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from . import console
from .console import Misuse, Parser

if TYPE_CHECKING:
    from ..config import Settings
    from ..gateway import Gateway
    from ..proxy.http import Application
    from ..proxy.interceptor import Interceptor
    from ..vault.ledger import LedgerEntry

_DESCRIPTION: Final = """\
Sit between an MCP client and a server. Results that are too large are cut to
fit, stay valid, and say how to read the rest. Everything else passes unchanged.
"""
_EPILOG: Final = """\
examples:
  mcp-envelope proxy -- npx -y @modelcontextprotocol/server-filesystem .
  mcp-envelope proxy --tokens 4000 -- uvx mcp-server-git
  mcp-envelope proxy --url https://example.com/mcp --bearer-env TOKEN
  mcp-envelope proxy --listen 127.0.0.1:8900 --url http://127.0.0.1:8000/mcp
  mcp-envelope proxy --listen 127.0.0.1:8900 -- uvx mcp-server-git
  mcp-envelope proxy --observe -- uvx mcp-server-git    # change nothing, only count

exit codes:
  the server's own, or
  1    cannot listen on the address given with --listen
  2    wrong usage
  3    the file named with --config cannot be read or parsed
  126  the server's command cannot be run
  127  the server's command was not found
"""
# As in shells.
_CANNOT_START: Final = 126
_NOT_FOUND: Final = 127
_HEADER_NAME: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_HEADER_VALUE: Final = r"[\x21-\x7e\xa1-\xff]([\x20-\x7e\xa1-\xff]*[\x21-\x7e\xa1-\xff])?"
# As in `budget`, which is loaded later.
_LEAST_TOKENS: Final = 128
_LEAST_BYTES: Final = 512
_MOST_TOKENS: Final = 10_000_000
# Options about the processes behind an HTTP front.
_PROCESSES: Final = ("share", "processes", "idle")
_REDACT: Final = ("tokens", "keys", "custom", "off")
# As in `vault.vault`, which is loaded only when something has to be stored.
_DEFAULT_VAULT: Final = "default"


def run(arguments: list[str]) -> int:
    parser = make_parser()
    arguments, command = split(arguments)
    options, stray = parser.parse_known_args(arguments)
    if stray:
        parser.check_option(stray[0].partition("=")[0])
        at = _first_word(parser, arguments)
        meant = console.command("mcp-envelope", "proxy", *arguments[:at], "--", *arguments[at:])
        parser.error(f"put -- before the server's command: {meant}")
    return _run(options, command)


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The options, and the server's command after them."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


def check_server(options: argparse.Namespace, command: list[str], name: str) -> None:
    if bool(command) == bool(options.url):
        example = f"mcp-envelope {name} -- npx -y SERVER"
        raise Misuse(f"name one server: --url URL, or its command after --, as in: {example}")


def _first_word(parser: Parser, arguments: list[str]) -> int:
    """The index of the first argument that is neither an option nor an option's value."""
    with_value = {name for name, action in parser._option_string_actions.items() if action.nargs is None}
    at = 0
    while arguments[at].startswith("-"):
        at += 2 if arguments[at] in with_value else 1
    return at


def _run(options: argparse.Namespace, command: list[str]) -> int:
    check_server(options, command, "proxy")
    check_listening(options)
    for name in _PROCESSES:
        if getattr(options, name) and options.url:
            raise Misuse(f"--{name} works with a command, not with --url")
    if not options.url and (options.header_env or options.bearer_env or options.transport or options.plain):
        raise Misuse("--header-env, --bearer-env, --transport and --plain need --url")
    if options.plain and (options.listen or options.observe):
        raise Misuse("--plain cannot be combined with --listen or --observe")
    check(options)
    observed = _Observed()
    code = _serve(options, command, observed)
    if options.observe:
        console.say("note", observed.summary())
    if code < 0:
        # The server was killed by a signal: exit in the same way, so that our caller sees it.
        with suppress(OSError, ValueError):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def check_listening(options: argparse.Namespace) -> None:
    """Options about serving HTTP are for somebody who serves it."""
    for name in ("allow_host", "connections", "request_memory", *_PROCESSES):
        if getattr(options, name) and not options.listen:
            raise Misuse(f"--{name.replace('_', '-')} needs --listen")


def _serve(options: argparse.Namespace, command: list[str], observed: _Observed) -> int:
    """The exit code, or minus the signal that ended the server."""
    if options.url:
        return _serve_url(options, observed)
    if options.listen:
        return _listen_for_command(options, command, observed)
    from ..proxy import stdio

    console.say_if_started_by_hand("To have a client start it: mcp-envelope wrap CLIENT")
    try:
        return stdio.Proxy(command, lambda: _interceptor(options, command, observed)).run()
    except stdio.CannotStart as error:
        is_quoted = len(command) == 1 and " " in command[0]
        console.say("error", f"{error}{'; do not quote the whole command' if is_quoted else ''}")
        return _NOT_FOUND if isinstance(error.__cause__, FileNotFoundError) else _CANNOT_START


def _serve_url(options: argparse.Namespace, observed: _Observed) -> int:
    headers = _headers(options)
    if not _is_url(options.url):
        raise Misuse(f"--url must be an address such as http://127.0.0.1:8000/mcp, not {options.url!r}")
    if lacking := missing_extra(serves=bool(options.listen)):
        raise Misuse(f"--url: {lacking}")
    if options.listen:
        return _listen(options, headers, observed)
    from ..login.session import LoginSession
    from ..proxy.stdio_to_http import StdioToHttp

    gateway, login = _gateway(options, [options.url], observed), LoginSession(options.url)
    kind = None if options.transport == "auto" else options.transport
    is_observed = options.observe or options.plain
    return StdioToHttp(gateway, options.url, headers, transport=kind, observe=is_observed, login=login).run()


def missing_extra(serves: bool = False) -> str | None:
    """What is missing if the libraries for HTTP are not installed."""
    needed = ("anyio", "httptools", "aiohappyeyeballs", *(("uvicorn",) if serves else ()))
    return console.extra("http") if any(find_spec(name) is None for name in needed) else None


def _is_url(text: str) -> bool:
    from urllib.parse import urlsplit

    try:
        split = urlsplit(text)
        return split.scheme in ("http", "https") and bool(split.hostname) and split.port != 0
    except ValueError:
        return False


def _headers(options: argparse.Namespace) -> dict[str, str]:
    """Headers with secret values come from the environment, never from the command line."""
    headers: dict[str, str] = {}
    for text in options.header_env:
        name, _, variable = map(str.strip, text.partition("="))
        if not name or not variable:
            raise Misuse(f"--header-env must be NAME=VARIABLE, not {text!r}")
        if not re.fullmatch(_HEADER_NAME, name):
            raise Misuse(f"--header-env: {name!r} is not a header name")
        headers[name] = _variable(variable)
    if options.bearer_env:
        headers["Authorization"] = f"Bearer {_variable(options.bearer_env)}"
    return headers


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise Misuse(f"the environment variable {name} is not set")
    if not re.fullmatch(_HEADER_VALUE, value):
        raise Misuse(f"the value of the environment variable {name} cannot be sent in a header")
    return value


def _listen(options: argparse.Namespace, headers: dict[str, str], observed: _Observed) -> int:
    from urllib.parse import urlsplit

    from ..proxy.http import HttpProxy

    url = urlsplit(options.url)
    gateway = _gateway(options, [options.url], observed)
    app = HttpProxy(gateway, options.url, headers=headers, observe=options.observe, **access(options))
    return serve(app, options, f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}")


def _listen_for_command(options: argparse.Namespace, words: list[str], observed: _Observed) -> int:
    """Serve a command over HTTP."""
    if lacking := missing_extra(serves=True):
        raise Misuse(f"--listen: {lacking}")
    if shutil.which(words[0]) is None:
        console.say("error", f"cannot start {words[0]!r}: no such command")
        return _NOT_FOUND
    from ..proxy.processes import ProcessGuard

    # Before anything starts a thread.
    guard = ProcessGuard()
    from ..proxy.http_to_stdio import HttpToStdio
    from ..proxy.interceptor import Interceptor
    from ..proxy.relay import Relay, SingleRoute, ToClient
    from ..proxy.shared_servers import SharedServers
    from ..proxy.supervisor import Command, SupervisedServer, Supervisor

    gateway = _gateway(options, words, observed)
    supervisor, command = Supervisor(guard, options.processes), Command(tuple(words))
    shared = SharedServers(supervisor, {"": command})

    def make_relay(to_client: ToClient, is_shared: bool) -> Relay:
        route = SingleRoute(Interceptor(gateway, observe=options.observe))
        if is_shared:
            return Relay(route, shared.connect, to_client)
        return Relay(route, lambda _, callbacks: SupervisedServer(supervisor, command, callbacks), to_client)

    app = HttpToStdio(gateway, make_relay, shared, share=options.share, idle=options.idle, **access(options))
    code = serve(app, options, console.command(*words))
    guard.dismiss()
    return code


def access(options: argparse.Namespace) -> dict[str, Any]:
    """Who may call an HTTP front, and how much memory requests have."""
    from ..proxy.headers import is_loopback
    from ..proxy.http import REQUEST_MEMORY

    host, _ = _address(options)
    names = tuple(options.allow_host)
    return {
        "hosts": (*names, host),
        # We cannot know the names of a public address unless they are given.
        "is_open": not is_loopback(host) and not names,
        "request_memory": (options.request_memory or 0) << 20 or REQUEST_MEMORY,
    }


def _address(options: argparse.Namespace) -> tuple[str, int]:
    host, colon, port = options.listen.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not colon or not port.isdecimal() or int(port) > 65535 or not _is_hostname(host):
        raise Misuse(f"--listen must be HOST:PORT, such as 127.0.0.1:8900, not {options.listen!r}")
    return host, int(port)


def serve(app: Application, options: argparse.Namespace, behind: str) -> int:
    """Serve HTTP until a signal ends it; the exit code."""
    from ..proxy import server

    host, port = _address(options)
    try:
        listening = server.listen(host, port)
    except OSError as error:
        console.say("error", f"cannot listen on {options.listen}: {console.reason(error)}")
        return 1
    shown = f"[{host}]" if ":" in host else host
    console.say("note", f"listening on http://{shown}:{listening.getsockname()[1]}, in front of {behind}")
    return 0 if server.serve(app, listening, options.connections or server.MOST_CONNECTIONS) else 1


def _is_hostname(host: str) -> bool:
    try:
        return bool(host.encode("idna"))
    except UnicodeError:
        return False


# Programs whose name says nothing about the server.
_LAUNCHERS: Final = {"npx", "node", "bunx", "bun", "deno", "uvx", "uv", "python", "pipx", "sh", "bash"}
_VERBS: Final = {"run", "exec", "tool", "x"}
# Names of files and folders that say nothing about a server.
_COMMON: Final = {"index", "main", "dist", "build", "src", "lib", "bin"}


class _Observed:
    """What `--observe` saw."""

    def __init__(self) -> None:
        self._calls = self._cut = self._before = self._after = 0
        self._unit = "tokens"

    def note(self, call: LedgerEntry) -> None:
        self._calls += 1
        self._cut += bool(call.cuts)
        self._before += call.before
        self._after += call.after
        self._unit = call.unit

    def summary(self) -> str:
        return (
            f"observed {console.counted(self._calls, 'call')}, {self._cut:,} of them over the budget: "
            f"{self._before - self._after:,} of {self._before:,} {self._unit} would have been saved"
        )


def check(options: argparse.Namespace) -> None:
    """Check the settings before anything is started, or written into a client's configuration."""
    vault = options.vault or os.environ.get("MCP_ENVELOPE_VAULT") or ""
    if "://" in vault:
        from ..vault.vault import check_address

        try:
            check_address(vault)
        except ValueError as error:
            raise Misuse(f"--vault: {error}") from None
    for name, least, most in (("tokens", _LEAST_TOKENS, _MOST_TOKENS), ("bytes", _LEAST_BYTES, sys.maxsize)):
        asked = getattr(options, name)
        if asked is not None and not least <= asked <= most:
            used, wrong = (least, "small") if asked < least else (most, "large")
            console.say("warning", f"--{name}: {asked} is too {wrong}; {used} is used")
            setattr(options, name, used)
    if options.meter is not None:
        from ..budget import Budget

        try:
            Budget.of(tokens=options.tokens, max_bytes=options.bytes, meter=options.meter)
        except ValueError as error:
            raise Misuse(f"--meter: {error}") from None
    if options.config is not None:
        from . import files

        files.check_config(options.config)


def _interceptor(options: argparse.Namespace, server: list[str], observed: _Observed) -> Interceptor:
    from ..proxy.interceptor import Interceptor

    return Interceptor(_gateway(options, server, observed), observe=options.observe)


def _gateway(options: argparse.Namespace, server: list[str], observed: _Observed) -> Gateway:
    from ..gateway import Gateway

    settings, vault = settings_of(options)
    gateway = Gateway(
        settings,
        vault="none" if options.observe or options.plain else vault,
        ledger=not (options.plain or options.no_ledger),
        dialect=options.dialect,
        server=short_name(server),
        identity="\0".join([os.getcwd(), *server]) if options.url is None else options.url,
    )
    if options.observe:
        gateway.observers.append(observed.note)
    return gateway


def settings_of(options: argparse.Namespace) -> tuple[Settings, str]:
    """The settings and the vault. A settings file that was only found may be a stranger's, so it is not trusted."""
    from ..config import PREFIX, Settings

    given, environ = vars(options), dict(os.environ)
    for name in ("tokens", "bytes", "meter", "redact"):
        if (value := given.get(name)) is not None:
            environ[PREFIX + name.upper()] = str(value)
    settings = Settings(
        given.get("config"), environ, trust_found=False, say=lambda problem: console.say("warning", problem)
    )
    return settings, given.get("vault") or settings.policy().vault or _DEFAULT_VAULT


def short_name(command: list[str]) -> str:
    """Return a short name for a server: that of its program, or of what a launcher such as npx starts."""
    program = command[0].removesuffix(".exe")
    if os.path.basename(program).rstrip("0123456789.") in _LAUNCHERS:
        words = [word for word in command[1:] if not word.startswith("-") and word not in _VERBS]
        program = next(iter(words), program)
    path = PurePath(program)
    telling = [part for part in path.parts if part.partition(".")[0] not in {*_COMMON, path.anchor}]
    return (telling[-1] if telling else path.name or program)[:200]


def make_parser() -> Parser:
    parser = Parser("proxy", "[options] (--url URL | -- COMMAND ...)", _DESCRIPTION, _EPILOG)
    result_options(parser)
    add = parser.options("an HTTP server")
    several: dict[str, Any] = {"action": "append", "default": []}
    add("--url URL", "its address")
    transports = (
        "http, sse or auto: streamable HTTP, the legacy SSE transport, or what the server speaks (default)"
    )
    add("--transport KIND", transports, console.one_of(("http", "sse", "auto")))
    header = "send a header whose value is in an environment variable; repeatable"
    add("--header-env NAME=VARIABLE", header, **several)
    add("--bearer-env VARIABLE", "send Authorization: Bearer, with the token from the variable")
    add("--plain", "just relay messages: change, store and count nothing")
    listen_options(parser, "with a command, share one process between all clients (default: one per session)")
    return parser


def result_options(parser: Parser) -> None:
    """What becomes of results."""
    tokens = "maximum tokens in each lane of a result (default: the client's own limit, else 8000)"
    parser.budget_options("the budget", tokens, "how tokens are counted: exact, estimate or chars4")
    add = parser.options()
    add("--dialect DIALECT", "the wire shape of results (default: native)", console.dialect_name)
    add("--config FILE", "settings (default: the nearest mcp-envelope.toml)")
    parser.vault_option()
    masked = "tokens by their shape (the default), keys also by their names, custom by your patterns, or off"
    add("--redact LEVEL", f"mask secrets: {masked}", console.one_of(_REDACT), nargs="?", const=_REDACT[0])
    add("--observe", "change nothing, only count what would have been saved")
    add("--no-ledger", "don't record the calls, which mcp-envelope stats and ui show")


def listen_options(parser: Parser, share: str) -> None:
    """How HTTP is served."""
    add = parser.options("serving HTTP")
    add("--listen HOST:PORT", "serve HTTP there instead of standard input and output")
    hosts = "a host name that clients and web pages may use; repeatable"
    add("--allow-host NAME", f"{hosts} (default: this computer's)", action="append", default=[])
    positive = console.positive_number
    add("--connections N", "maximum number of open connections (default: 4096)", positive)
    memory = "maximum memory for large request bodies, in total (default: 256)"
    add("--request-memory MB", memory, positive)
    add("--share", share)
    add("--processes N", "maximum number of running processes (default: 64)", positive)
    add("--idle SECONDS", "end sessions that have been idle for this long (default: 1800)", positive)
