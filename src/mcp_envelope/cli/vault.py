"""`mcp-envelope vault`: what is stored, how much it takes, and deleting it.

Strategy: a person at a terminal gets aligned columns and readable sizes, a program gets tabs and plain numbers,
or JSON with times as numbers. Looking creates nothing. Deleting needs a confirmation: an answer at the
terminal, or `--yes` elsewhere.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Final

import msgspec

from ..vault.store import DamagedFile, DiskTrouble, Entry
from ..vault.vault import Vault
from . import console, settings
from .console import Misuse, Parser
from .read import reported
from .settings import VaultAddress

_DESCRIPTION: Final = """\
Show what is stored, and delete it. Without a subcommand: stats.
"""
_EPILOG: Final = """\
list   what is stored, newest first: handle, kind, size, tool, age, expires in
stats  where it is, how much is stored, and the limit
purge  delete everything, one result (--handle) or what has expired (--expired).
       A damaged vault is removed; a file that isn't a vault is left alone.

exit codes:
  0    done, even if there was nothing to do
  2    wrong usage, or a purge that needs --yes because there is no terminal
  3    the --config file cannot be read
  5    the vault cannot be used, or there is no such handle: the message begins
       with a code
  130  interrupted
  141  the output was closed

examples:
  mcp-envelope vault
  mcp-envelope vault list --vault ./vault.db
  mcp-envelope vault list --json
  mcp-envelope vault purge --expired --yes
"""
_COLUMNS: Final = ("handle", "kind", "size", "tool", "age", "expires in")
_WIDEST: Final = 40
_LISTED: Final = ("handle", "kind", "size", "stored", "tool", "created", "expires")


def run(arguments: list[str]) -> int:
    options = make_parser().parse_args(arguments)
    return reported(lambda: _run(options))


def _run(options: argparse.Namespace) -> None:
    _check(options)
    address = settings.vault_address(options.vault, options.config, settings.policy(options.config))
    with address.opened() as vault:
        missing = None if vault is None else settings.missing_file(vault)
        if vault is None or missing is not None:
            _nothing(options, address, missing)
        else:
            {"list": _list, "stats": _stats, "purge": _purge}[options.action](vault, options)


def _check(options: argparse.Namespace) -> None:
    if options.action != "purge":
        given = [name for name in ("handle", "expired", "yes") if getattr(options, name)]
        if given:
            raise Misuse(f"--{given[0]} works with purge: mcp-envelope vault purge --{given[0]}")
    elif options.json:
        raise Misuse("--json works with list and stats")


def _nothing(options: argparse.Namespace, address: VaultAddress, missing: str | None) -> None:
    """There is no vault, or none yet."""
    if options.json:
        empty = {"place": missing, "exists": False, "entries": 0, "size": 0, "stored": 0, "cap": address.cap}
        console.write_json([] if options.action == "list" else empty)
    if missing is None:
        console.say("note", "there is no vault: results are cut, and the rest is discarded")
    else:
        console.say("note", f"nothing is stored yet: there is no vault at {missing}")


# -- looking ------------------------------------------------------------------------------------------------


def _list(vault: Vault, options: argparse.Namespace) -> None:
    entries = list(vault.store.entries())
    if options.json:
        console.write_json([{name: getattr(entry, name) for name in _LISTED} for entry in entries])
        return
    if console.is_terminal() and not entries:
        console.say("note", f"nothing is stored at {vault.store.place}")
        return
    now = time.time()
    rows = [_row(entry, now) for entry in entries]
    console.write_text(console.table(rows, _COLUMNS, right=(_COLUMNS.index("size"),)))


def _row(entry: Entry, now: float) -> tuple[str, ...]:
    tool, size = console.printable(entry.tool or "-"), str(entry.size)
    if console.is_terminal():
        tool, size = console.shortened(tool, _WIDEST), console.human_size(entry.size)
    age, left = console.human_time(now - entry.created), console.human_time(entry.expires - now)
    return console.printable(entry.handle), entry.kind, size, tool, age, left


def _stats(vault: Vault, options: argparse.Namespace) -> None:
    stats = vault.store.stats()
    ratio = round(stats.size / stats.stored, 2) if stats.stored else None
    if options.json:
        console.write_json({"exists": True, "ratio": ratio, **msgspec.structs.asdict(stats)})
        return
    is_terminal = console.is_terminal()
    size = console.human_size if is_terminal else str
    rows = {
        "place": console.printable(stats.place),
        "entries": str(stats.entries),
        "payloads": size(stats.size),
        "stored": size(stats.stored),
        "ratio": "-" if ratio is None else f"{ratio:.1f} : 1" if is_terminal else str(ratio),
        "cap": size(stats.cap),
        "oldest": _ago(stats.oldest),
        "newest": _ago(stats.newest),
    }
    console.write_text(console.table([*rows.items()]))


def _ago(moment: float | None) -> str:
    return "-" if moment is None else f"{console.human_time(time.time() - moment)} ago"


# -- deleting -----------------------------------------------------------------------------------------------


def _purge(vault: Vault, options: argparse.Namespace) -> None:
    if options.handle is not None:
        _purge_one(vault, options)
        return
    place = vault.store.place
    try:
        before = vault.store.stats()
    except (DamagedFile, DiskTrouble) as error:
        if options.expired:
            raise
        trouble = "damaged" if isinstance(error, DamagedFile) else "not usable on this disk"
        if _confirmed(f"{place} is {trouble}. Remove it?", options):
            vault.store.purge()
            console.say("done", f"removed: {place} was {trouble}, and everything in it is gone")
        return
    many = f"{console.counted(before.entries, 'result')} ({console.human_size(before.size)})"
    if not _confirmed(f"Delete {'what has expired' if options.expired else many} at {place}?", options):
        return
    (vault.store.sweep if options.expired else vault.store.purge)()
    count, size = before.entries, before.size
    if not settings.missing_file(vault):
        after = vault.store.stats()
        count, size = max(count - after.entries, 0), max(size - after.size, 0)
    console.say("done", f"deleted: {console.counted(count, 'result')}, {console.human_size(size)}")


def _purge_one(vault: Vault, options: argparse.Namespace) -> None:
    # Whoever may delete the file may delete any caller's results in it.
    found = [entry for entry in vault.store.entries() if entry.handle == options.handle]
    if not found:
        vault.open(options.handle)  # raises, with the reason
    size = sum(entry.size for entry in found)
    question = f"Delete {options.handle} ({console.human_size(size)}) at {vault.store.place}?"
    if _confirmed(question, options):
        count = sum([vault.store.delete(entry.key) for entry in found])
        console.say(
            "done", f"deleted: {console.counted(count, 'result')}, {console.human_size(size if count else 0)}"
        )


def _confirmed(question: str, options: argparse.Namespace) -> bool:
    if options.yes:
        return True
    if not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr)):
        raise Misuse("purge deletes permanently, and cannot ask for confirmation here: add --yes")
    if console.confirms(question):
        return True
    console.say("note", "nothing was deleted")
    return False


def make_parser() -> Parser:
    usage = "[list | stats | purge] [--vault URL] [options]"
    parser = Parser("vault", usage, _DESCRIPTION, _EPILOG, takes="word")
    parser.add_argument(
        "action",
        nargs="?",
        default="stats",
        type=console.one_of(("list", "stats", "purge")),
        metavar="list|stats|purge",
        help="what to do (default: stats)",
    )
    parser.options()("--json", "list and stats: print JSON")
    add, which = parser.options("purge"), parser.options("purge", exclusive=True)
    which("--handle HANDLE", "delete only this result")
    which("--expired", "delete only what has expired")
    add("--yes", "do not ask")
    settings.vault_options(parser)
    return parser
