"""`mcp-envelope gateway`: all servers of a client's configuration as one.

Strategy: the file is read once, at the start. Every server gets a `Gateway` of its own, so that its settings,
masked values and figures stay its own; a conversation gets an interceptor for each, and a router over them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from . import console, proxy
from .console import BadInput, Misuse, Parser

if TYPE_CHECKING:
    from ..clients.commands import ServerCommand
    from ..gateway import Gateway
    from ..proxy.processes import ProcessGuard
    from ..proxy.relay import Relay, ToClient
    from ..proxy.router import Router
    from ..proxy.supervisor import Command

_DEFAULT: Final = ".mcp.json"
_DESCRIPTION: Final = """\
Serve all MCP servers in a client's configuration as one. Tools are prefixed
with the name of their server (git__git_status), and one envelope_read serves
them all. A server starts when it is first needed; if one fails, only its own
tools are missing.
"""
_EPILOG: Final = """\
examples:
  mcp-envelope gateway
  mcp-envelope gateway ~/.cursor/mcp.json --except memory
  mcp-envelope gateway mcp.json --listen 127.0.0.1:8900
  mcp-envelope wrap cursor --gateway    # put it into a client's configuration

exit codes:
  0    the client has disconnected
  1    cannot listen on the address given with --listen
  2    wrong usage
  3    a file cannot be read or parsed, or has no servers
  143  terminated
"""


def run(arguments: list[str]) -> int:
    options = make_parser().parse_args(arguments)
    proxy.check_listening(options)
    proxy.check(options)
    from ..proxy.processes import ProcessGuard

    # Before anything starts a thread.
    guard = ProcessGuard()
    try:
        return _run(options, guard)
    finally:
        guard.dismiss()


def _run(options: argparse.Namespace, guard: ProcessGuard) -> int:
    from ..proxy.relay import Relay
    from ..proxy.shared_servers import SharedServers
    from ..proxy.supervisor import SupervisedServer, Supervisor

    commands = _commands(options)
    servers = _Servers(options, commands)
    supervisor = Supervisor(guard, options.processes)
    shared = SharedServers(supervisor, servers.commands)

    def make_relay(to_client: ToClient, is_shared: bool = False) -> Relay:
        if is_shared:
            return Relay(servers.router(), shared.connect, to_client)
        return Relay(
            servers.router(),
            lambda server, callbacks: SupervisedServer(supervisor, servers.commands[server], callbacks),
            to_client,
        )

    if options.listen:
        if lacking := proxy.missing_extra(serves=True):
            raise Misuse(f"--listen: {lacking}")
        from ..proxy.http_to_stdio import HttpToStdio

        reader = servers.reader
        more = proxy.access(options)
        app = HttpToStdio(reader, make_relay, shared, share=options.share, idle=options.idle, **more)
        for gateway in servers.gateways.values():
            gateway.observers.append(app.metrics.noted)
        return proxy.serve(app, options, console.counted(len(commands), "server"))
    from ..proxy import stdio_asyncio

    console.say_if_started_by_hand("To have a client start it: mcp-envelope wrap CLIENT --gateway")
    code = asyncio.run(stdio_asyncio.serve(make_relay))
    servers.close()
    return code


def _commands(options: argparse.Namespace) -> dict[str, ServerCommand]:
    """The servers of the file that were asked for."""
    from ..clients.commands import commands
    from ..clients.diff import DiffMask
    from ..clients.server_entry import MODULE, Launch
    from ..spelling import did_you_mean
    from .wrap import parse

    path = Path(options.file).expanduser()
    try:
        file = parse(path.read_bytes(), path)
    except OSError as error:
        hint = (
            "; name a client's configuration: mcp-envelope gateway FILE" if options.file == _DEFAULT else ""
        )
        raise BadInput(f"cannot read {path}: {console.reason(error)}{hint}") from None
    # The proxy has what it takes to speak HTTP: sessions, streams, logins.
    carrier = Launch((sys.executable, "-m", MODULE), ("--plain",))
    found, left = commands(file, carrier, os.environ, DiffMask().is_secret)
    known = [*found, *(name for name, _ in left)]
    for name in (*options.servers, *options.leave):
        if name not in known:
            raise Misuse(f"there is no server {name!r} in {path}{did_you_mean(name, known)}")
    wanted = set(options.servers or known) - set(options.leave)
    for name, reason in left:
        if name in wanted:
            console.say("warning", f"{name} {reason}; left out")
    chosen = {name: each for name, each in found.items() if name in wanted}
    if any(each.is_remote for each in chosen.values()) and (lacking := proxy.missing_extra()):
        raise Misuse(f"servers with a URL: {lacking}")
    if not chosen:
        raise BadInput(f"{path} has no server that can be started")
    return chosen


class _Servers:
    """What all conversations share: how each server is started, and what applies to it."""

    def __init__(self, options: argparse.Namespace, found: Mapping[str, ServerCommand]) -> None:
        from ..gateway import Gateway
        from ..jsontext.document import encode
        from ..login.store import login_command
        from ..proxy.catalogue import SEPARATOR, OfferCache, prefixes

        self._options = options
        settings, vault = proxy.settings_of(options)
        vault = "none" if options.observe else vault
        self.commands = {name: _command(each) for name, each in found.items()}
        prefix = prefixes(found)

        def gateway(name: str, identity: str, before: str) -> Gateway:
            return Gateway(
                settings,
                vault=vault,
                ledger=not options.no_ledger,
                dialect=options.dialect,
                server=name,
                identity=identity,
                prefix=before,
            )

        self.gateways = {
            name: gateway(
                name, "\0".join([each.folder or os.getcwd(), *each.words]), prefix[name] + SEPARATOR
            )
            for name, each in found.items()
        }
        self.reader = gateway("gateway", os.path.abspath(options.file), "")
        ways = {name: encode([*each]) for name, each in found.items()}
        self._memory = OfferCache(ways)
        self._logins = {}
        for name, each in found.items():
            # An address that isn't one is its own process's to complain about.
            with suppress(ValueError):
                if each.is_remote:
                    self._logins[name] = login_command(each.words[each.words.index("--url") + 1])

    def router(self) -> Router:
        from .. import __version__
        from ..proxy.interceptor import Interceptor
        from ..proxy.router import Router

        is_observed = self._options.observe
        interceptors = {name: Interceptor(each, observe=is_observed) for name, each in self.gateways.items()}
        info = {"name": "mcp-envelope", "version": __version__}
        short = self._options.names == "short"
        return Router(
            interceptors, Interceptor(self.reader), self._memory, info, short=short, logins=self._logins
        )

    def close(self) -> None:
        for gateway in (*self.gateways.values(), self.reader):
            gateway.close()


def _command(server: ServerCommand) -> Command:
    from ..proxy.supervisor import Command

    return Command(server.words, {**os.environ, **server.variables}, server.folder)


def make_parser() -> Parser:
    parser = Parser("gateway", "[FILE] [options]", _DESCRIPTION, _EPILOG)
    file = f"a client's configuration, with its servers under mcpServers or the like (default: {_DEFAULT})"
    parser.add_argument("file", nargs="?", default=_DEFAULT, metavar="FILE", help=file)
    add = parser.options("the servers")
    add("--servers NAMES", "only these, separated by commas", console.names, default=[])
    add("--except NAMES", "all but these", console.names, default=[], dest="leave")
    shapes = "full: git__git_status (the default); short: git_status, unless two servers have it"
    add("--names SHAPE", shapes, console.one_of(("full", "short")), default="full")
    proxy.result_options(parser)
    proxy.listen_options(
        parser, "share one process per server between all clients (default: one per session)"
    )
    return parser
