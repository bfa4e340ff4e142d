"""`mcp-envelope doctor`: what is installed, which clients are wrapped, what works, and what is cut for whom.

Strategy: each check yields findings, one line each: fine, worth knowing, or wrong, with the command that fixes it.
Nothing is written, started or sent anywhere, apart from a question to the Valkey server that the settings name.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from .. import __version__
from ..clients import config_file, server_entry
from ..clients.config_file import NotConfig
from ..clients.locations import CLIENTS, locations
from ..extras import lacking
from . import console, settings
from .console import Misuse, Parser

_DESCRIPTION: Final = """\
Check everything that mcp-envelope depends on, and say what is wrong.
"""
_EPILOG: Final = """\
exit codes:
  0    nothing is wrong
  1    something is; the lines marked "wrong" say what, and how to fix it
  2    wrong usage
  3    the --config file cannot be read

examples:
  mcp-envelope doctor
  mcp-envelope doctor --vault valkey://127.0.0.1:6379
  mcp-envelope doctor --json
"""
State = Literal["fine", "note", "wrong"]
_WRONG: Final = 1
_MARKS: Final[dict[State, tuple[str, str]]] = {"fine": ("✓", "32"), "note": ("·", "36"), "wrong": ("✗", "31")}
# What each extra is for.
_EXTRAS: Final = {
    "http": "the proxy over HTTP",
    "login": "logins at servers with a URL",
    "ui": "the page of mcp-envelope ui",
    "images": "images scaled down",
    "yaml": "clients whose configuration is YAML, as Continue's and Goose's",
    "valkey": "a vault shared by several machines",
    "fastmcp": "servers made with FastMCP",
    "sdk": "servers made with the official SDK",
}


class DoctorFinding(NamedTuple):
    state: State
    about: str
    text: str


def run(arguments: list[str]) -> int:
    options = make_parser().parse_args(arguments)
    checks = (_program(), _clients(), _settings(options), _vault(options), _ledger())
    findings = [finding for check in checks for finding in check]
    if options.json:
        console.write_json([finding._asdict() for finding in findings])
    elif console.is_terminal():
        console.write_text("".join(f"{_line(finding)}\n" for finding in findings))
    else:
        console.write_text("".join("\t".join(map(console.printable, each)) + "\n" for each in findings))
    return _WRONG if any(finding.state == "wrong" for finding in findings) else console.OK


def _line(finding: DoctorFinding) -> str:
    mark, colour = _MARKS[finding.state]
    if console.has_colour(sys.stdout):
        mark = f"\x1b[{colour}m{mark}\x1b[0m"
    return f"{mark} {finding.about:<15} {console.printable(finding.text)}"


def _program() -> Iterator[DoctorFinding]:
    python = f"Python {platform.python_version()} on {platform.system()}"
    yield DoctorFinding("fine", "mcp-envelope", f"{__version__}, {python}")
    for name, purpose in _EXTRAS.items():
        if lacks := lacking(name):
            words = f"{lacks}: {purpose} (pip install 'mcp-envelope[{name}]')"
            yield DoctorFinding("note", f"[{name}]", words)
        else:
            yield DoctorFinding("fine", f"[{name}]", purpose)


def _clients() -> Iterator[DoctorFinding]:
    found = False
    for client in CLIENTS:
        for path in locations(client):
            try:
                data = path.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                yield DoctorFinding("wrong", client, f"{path}: {console.reason(error)}")
                continue
            try:
                servers = [server.value for server in config_file.read(data, path.name).servers()]
            except NotConfig as error:
                yield DoctorFinding("wrong", client, f"{path}: {error}")
                continue
            found = True
            wrapped = sum(server_entry.proxied(server) is not None for server in servers)
            remote = sum(map(server_entry.is_remote, servers))
            bare = len(servers) - wrapped - remote
            text = f"{path}: {console.counted(len(servers), 'server')}, {wrapped} wrapped"
            if remote:
                text += f", {remote} remote"
            if bare:
                text += f", {bare} not wrapped; to wrap: {console.command('mcp-envelope', 'wrap', client)}"
            yield DoctorFinding("note" if bare else "fine", client, text)
    if not found:
        yield DoctorFinding("note", "clients", f"no configuration found for {', '.join(CLIENTS)}")


def _settings(options: argparse.Namespace) -> Iterator[DoctorFinding]:
    found = settings.for_proxy(options.config)
    _, wrong, notes = found.report()
    yield DoctorFinding("fine", "settings", found.file or "no file; the defaults and the environment apply")
    for problem in wrong:
        yield DoctorFinding("wrong", "settings", problem)
    for problem in notes:
        yield DoctorFinding("note", "settings", problem)


def _vault(options: argparse.Namespace) -> Iterator[DoctorFinding]:
    from ..vault.store import StoreError

    address = settings.vault_address(options.vault, options.config, settings.policy(options.config))
    try:
        with address.opened() as vault:
            if vault is None:
                yield DoctorFinding("note", "vault", "none: results are cut, and the rest is discarded")
                return
            missing = settings.missing_file(vault)
            if missing is not None:
                yield DoctorFinding("fine", "vault", f"{missing}: nothing is stored yet")
                return
            stats = vault.store.stats()
            size, cap = console.human_size(stats.stored), console.human_size(stats.cap)
            place = settings.without_password(stats.place)
            yield DoctorFinding(
                "fine", "vault", f"{place}: {console.counted(stats.entries, 'result')}, {size} of {cap}"
            )
    except (StoreError, Misuse) as error:
        yield DoctorFinding("wrong", "vault", str(error))


def _ledger() -> Iterator[DoctorFinding]:
    from ..vault.ledger import Ledger
    from ..vault.store import StoreError

    ledger = Ledger()
    try:
        found = {would: ledger.totals("client", observed=would) for would in (False, True)}
        if not any(found.values()):
            yield DoctorFinding("note", "ledger", f"{ledger.place}: no calls have been recorded yet")
        for observed, totals in found.items():
            for total in totals:
                would = "would have been cut" if observed else "cut"
                shares = f"{total.cut:,} of {console.counted(total.calls, 'result')} {would}"
                yield DoctorFinding("fine", "ledger", f"{total.group or 'unnamed clients'}: {shares}")
    except StoreError as error:
        yield DoctorFinding("wrong", "ledger", str(error))
    finally:
        ledger.close()


def make_parser() -> Parser:
    parser = Parser("doctor", "[--vault URL] [--config FILE] [--json]", _DESCRIPTION, _EPILOG)
    parser.options()("--json", "print JSON")
    settings.vault_options(parser)
    return parser
