"""`mcp-envelope proxy`: the envelope in front of any MCP server.

Strategy: the server is started before anything else is loaded, so that it and the proxy get ready at the same
time. Standard output belongs to the protocol; words for people go to standard error.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from . import console
from .console import Misuse, Parser

if TYPE_CHECKING:
    from ..front import Front
    from ..vault.ledger import Call as Noted
    from ..wire.interceptor import Interceptor

_DESCRIPTION: Final = """\
Stand between an MCP client and a server: results that are too large are cut to
fit, stay valid, and say how to read on. Everything else passes as it is.
"""
_EPILOG: Final = """\
examples:
  mcp-envelope proxy -- npx -y @modelcontextprotocol/server-filesystem .
  mcp-envelope proxy --tokens 4000 -- uvx mcp-server-git
  mcp-envelope proxy --url https://example.com/mcp --bearer-env TOKEN
  mcp-envelope proxy --listen 127.0.0.1:8900 --url http://127.0.0.1:8000/mcp
  mcp-envelope proxy --observe -- uvx mcp-server-git    # change nothing, only count

exit codes:
  those of the server; 2 wrong usage; 126 the server cannot be started
"""
_CANNOT_START: Final = 126
# As in `budget`, which is loaded later.
_LEAST_TOKENS: Final = 128
_LEAST_BYTES: Final = 512
_MOST_TOKENS: Final = 10_000_000
# As `vault.places` has it, which is loaded when something has to be stored.
_DEFAULT_VAULT: Final = "default"


def run(arguments: list[str]) -> int:
    parser = _parser()
    if "--" in arguments:
        at = arguments.index("--")
        arguments, command = arguments[:at], arguments[at + 1 :]
    else:
        command = []
    options, stray = parser.parse_known_args(arguments)
    if stray:
        parser.check_option(stray[0].partition("=")[0])
        parser.error(f"put -- before the server's command: mcp-envelope proxy -- {' '.join(stray)}")
    try:
        return _run(options, command)
    except Misuse as error:
        parser.error(str(error))


def _run(options: argparse.Namespace, command: list[str]) -> int:
    if bool(command) == bool(options.url):
        raise Misuse(
            "say which server: --url URL, or its command after --, as in: mcp-envelope proxy -- npx -y SERVER"
        )
    if options.listen and not options.url:
        raise Misuse("--listen serves HTTP in front of a server that speaks HTTP: it needs --url")
    if options.allow_host and not options.listen:
        raise Misuse("--allow-host goes with --listen")
    if not options.url and (options.header_env or options.bearer_env or options.transport):
        raise Misuse("--header-env, --bearer-env and --transport go with --url")
    check(options)
    observed = _Observed()
    code = _serve(options, command, observed)
    if options.observe:
        console.say("note", observed.told())
    if code < 0:
        # Ended by a signal: so does the proxy, for whoever looks at that. Some signals cannot be had otherwise.
        with suppress(OSError, ValueError):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _serve(options: argparse.Namespace, command: list[str], observed: _Observed) -> int:
    """The exit code, or minus the signal that ended the server."""
    if options.url:
        from ..wire import remote

        return remote.run(options, lambda: _front(options, options.url, observed))
    from ..wire import stdio

    try:
        return stdio.Proxy(command, lambda: _interceptor(options, command[0], observed)).run()
    except stdio.CannotStart as error:
        is_quoted = len(command) == 1 and " " in command[0]
        console.say("error", f"{error}{'; put no quotes around the whole command' if is_quoted else ''}")
        return _CANNOT_START


class _Observed:
    """What `--observe` saw."""

    def __init__(self) -> None:
        self._calls = self._cut = self._before = self._after = 0
        self._unit = "tokens"

    def note(self, call: Noted) -> None:
        self._calls += 1
        self._cut += bool(call.cuts)
        self._before += call.before
        self._after += call.after
        self._unit = call.unit

    def told(self) -> str:
        calls = f"{self._calls:,} call{'' if self._calls == 1 else 's'}"
        return (
            f"observed {calls}, {self._cut:,} of them over the budget: "
            f"{self._before - self._after:,} of {self._before:,} {self._unit} would have been saved"
        )


def check(options: argparse.Namespace) -> None:
    """Mistakes in settings that should be told before anything is started, or written into a configuration."""
    vault = options.vault or os.environ.get("MCP_ENVELOPE_VAULT") or ""
    if "://" in vault:
        from ..vault.places import check

        try:
            check(vault)
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
        from ..meters import MeterUnavailable

        try:
            Budget.of(tokens=options.tokens, max_bytes=options.bytes, meter=options.meter)
        except (ValueError, MeterUnavailable) as error:
            raise Misuse(f"--meter: {error}") from None
    if options.config is not None:
        from . import files

        files.read(options.config)


def _interceptor(options: argparse.Namespace, server: str, observed: _Observed) -> Interceptor:
    from ..wire.interceptor import Interceptor

    return Interceptor(_front(options, server, observed), observe=options.observe)


def _front(options: argparse.Namespace, server: str, observed: _Observed) -> Front:
    """The settings that apply. A file that merely lies about may not say where results are kept."""
    from ..front import Front
    from ..policy import Settings
    from ..policy.table import PREFIX

    environ = dict(os.environ)
    for name, value in (("TOKENS", options.tokens), ("BYTES", options.bytes), ("METER", options.meter)):
        if value is not None:
            environ[PREFIX + name] = str(value)
    settings = Settings(options.config, environ, say=lambda problem: console.say("warning", problem))
    vault = options.vault or environ.get(f"{PREFIX}VAULT")
    if vault is None:
        vault = (settings.policy().vault if options.config else None) or _DEFAULT_VAULT
    front = Front(
        settings,
        vault="none" if options.observe else vault,
        dialect=options.dialect,
        server=os.path.basename(server)[:200],
    )
    if options.observe:
        front.observers.append(observed.note)
    return front


def _dialect(text: str) -> str:
    # Loaded only where one is named: nothing may come before the start of the server.
    from ..dialects import NAMES

    return console.one_of(NAMES)(text)


def _meter(text: str) -> str:
    from ..meters import METERS

    return console.one_of(METERS)(text)


def _parser() -> Parser:
    parser = Parser(
        prog="mcp-envelope proxy",
        usage="mcp-envelope proxy [options] (--url URL | -- COMMAND ...)",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    limit = parser.add_argument_group("the budget").add_mutually_exclusive_group().add_argument
    limit(
        "--tokens",
        type=console.whole_number,
        metavar="N",
        help="the most tokens that each lane of a result may have "
        "(default: what is known of the client, else 8000)",
    )
    limit("--bytes", type=console.whole_number, metavar="N", help="the same in bytes")
    add = parser.add_argument
    add(
        "--meter",
        type=_meter,
        metavar="METER",
        help="what counts tokens: estimate, chars4, exact",
    )
    add("--dialect", type=_dialect, metavar="DIALECT", help="the wire shape of results (native)")
    add("--config", metavar="FILE", help="settings (default: the nearest mcp-envelope.toml)")
    add(
        "--vault",
        metavar="URL",
        help="where whole results are kept: a file, valkey://HOST:PORT, rediss://HOST:PORT, or none "
        "(default: MCP_ENVELOPE_VAULT, else a file in your state folder)",
    )
    add("--observe", action="store_true", help="change nothing; only note what would have been saved")
    remote = parser.add_argument_group("a server that speaks HTTP").add_argument
    remote("--url", metavar="URL", help="its address")
    remote(
        "--transport", choices=("http", "sse"), help="streamable HTTP, or the older SSE (default: found out)"
    )
    remote(
        "--header-env",
        action="append",
        default=[],
        metavar="NAME=VARIABLE",
        help="send a header whose value is in an environment variable; may be said again",
    )
    remote(
        "--bearer-env", metavar="VARIABLE", help="send Authorization: Bearer, with the token in the variable"
    )
    remote("--listen", metavar="HOST:PORT", help="serve HTTP there instead of standard input and output")
    remote(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="with --listen: a name by which clients and web pages may call it; may be said again "
        "(default: those of this computer)",
    )
    return parser
