"""`mcp-envelope unwrap`: remove the proxy from a client's configuration, byte for byte.

Strategy: the reverse of `wrap`, with the same parts. When nothing is wrapped any more, a backup that equals the
file has done its work and is deleted; one that differs stays, and its name is printed.
"""

from __future__ import annotations

import argparse
from typing import Final

from ..clients import backup, server_entry, wrapping
from ..clients.config_file import ConfigFile
from ..clients.diff import DiffMask
from ..clients.wrapping import WrapPlan
from . import console
from .console import BadInput, Parser
from .wrap import Target, change_each, choice, find_targets, listed, parse, shared_parser

_DESCRIPTION: Final = """\
Remove the proxy from the MCP servers in a client's configuration.
If the file has not changed since `wrap`, it becomes what it was before, byte
for byte. If it has, only the wrapped entries are changed back.
"""
_EPILOG: Final = """\
exit codes:
  0    done, or nothing to do
  1    you answered no
  2    wrong usage, or --yes is needed
  3    a file cannot be read, parsed or written; nothing was changed

examples:
  mcp-envelope unwrap cursor
  mcp-envelope unwrap codex --servers github --dry-run
  mcp-envelope unwrap --all
  mcp-envelope unwrap path/to/mcp.json --yes
"""


def run(arguments: list[str]) -> int:
    options = make_parser().parse_args(arguments)
    return change_each(find_targets(options), lambda target: _unwrap(target, options))


def _unwrap(target: Target, options: argparse.Namespace) -> int:
    plan = target.plan(lambda: _plan(options, target))
    if not plan.is_change:
        console.say("done", f"Nothing to unwrap in {target.path}.")
        return console.OK
    refusal = target.show_and_ask(plan.text, options, DiffMask())
    if refusal is not None:
        return refusal
    target.write(plan.text, keep=False)
    console.say("done", f"Unwrapped in {target.path}: {listed(plan.changed)}.")
    _tidy(target, plan.text)
    return console.OK


def _plan(options: argparse.Namespace, target: Target) -> WrapPlan:
    if any(server_entry.is_gateway(server.value) for server in target.config.servers()):
        from ..clients import gateway_entry

        return gateway_entry.scatter(target.config, _backup(target))
    return wrapping.unwrap(target.config, _backup(target), choice(options))


def _backup(target: Target) -> ConfigFile | None:
    """The backup, if there is one that can be read. Without it, the entries say enough."""
    try:
        data = backup.read(target.path)
        return None if data is None else parse(data, target.path)
    except (OSError, BadInput):
        console.say(
            "warning", f"the backup {backup.path_of(target.path)} cannot be read; continuing without it"
        )
        return None


def make_parser() -> Parser:
    return shared_parser("unwrap", _DESCRIPTION, _EPILOG)


def _tidy(target: Target, text: str) -> None:
    is_wrapped = any(
        server_entry.proxied(server.value) or server_entry.is_gateway(server.value)
        for server in parse(text.encode(), target.path).servers()
    )
    try:
        is_gone = backup.discard(target.path, text.encode())
    except OSError:
        is_gone = False
    if not is_gone and not is_wrapped:
        kept = backup.path_of(target.path)
        console.say("note", f"the file has changed since it was wrapped; the backup is kept: {kept}")
