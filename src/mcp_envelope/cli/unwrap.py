"""`mcp-envelope unwrap`: the proxy taken away from a client's configuration, byte for byte.

Strategy: as `wrap`, the other way round, with the same parts. Once nothing is wrapped any more, a backup that says
the same as the file has done its work and goes; one that says something else stays, and is named.
"""

from __future__ import annotations

from typing import Final

from ..wrap import backups, entries, planning
from ..wrap.masking import Masks
from ..wrap.tree import Document, servers
from . import console
from .console import BadInput, Parser
from .wrap import Target, add_shared, choice, find_target, listed, parse, show_and_ask, unsafe, write

_DESCRIPTION: Final = """\
Take the proxy away from the MCP servers in a client's configuration.
If nobody changed the file since `wrap`, it is afterwards what it was before,
byte for byte. If somebody did, only the wrapped entries are changed back.
"""
_EPILOG: Final = """\
exit codes:
  0    done, or nothing to do
  1    you said no
  2    wrong usage, or --yes is needed
  3    a file cannot be read, understood or written; nothing was changed

examples:
  mcp-envelope unwrap cursor
  mcp-envelope unwrap codex --servers github --dry-run
  mcp-envelope unwrap path/to/mcp.json --yes
"""


def run(arguments: list[str]) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    masks = Masks()
    target = find_target(options, parser)
    try:
        plan = planning.unwrap(target.document, _backup(target), choice(options, parser, target))
    except planning.Unsafe as which:
        raise unsafe(target, which) from None
    for label, reason in plan.unfit:
        console.say("warning", f"{label} {reason}; left as it is")
    if not plan.is_change:
        console.say("done", f"Nothing to unwrap in {target.path}.")
        return console.SEALED
    refusal = show_and_ask(target, plan.text, options, masks)
    if refusal is not None:
        return refusal
    write(target, plan.text, keep=False)
    console.say("done", f"Unwrapped in {target.path}: {listed(plan.changed)}.")
    _tidy(target, plan.text)
    return console.SEALED


def _backup(target: Target) -> Document | None:
    """The file as it was, if that is kept and can be read. Without it the entries tell enough."""
    try:
        data = backups.backup(target.path)
        return None if data is None else parse(data, target.path)
    except (OSError, BadInput):
        console.say("warning", f"the backup {backups.backup_of(target.path)} cannot be read and is not used")
        return None


def _tidy(target: Target, text: str) -> None:
    is_wrapped = any(entries.proxied(server.value) for server in servers(parse(text.encode(), target.path)))
    try:
        is_gone = backups.discard(target.path, text.encode())
    except OSError:
        is_gone = False
    if not is_gone and not is_wrapped:
        kept = backups.backup_of(target.path)
        console.say("note", f"the file was changed since; as it was before wrap: {kept}")


def _parser() -> Parser:
    parser = Parser(
        prog="mcp-envelope unwrap",
        usage="mcp-envelope unwrap CLIENT|FILE [options]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add_shared(parser)
    return parser
