"""`mcp-envelope vault`: what is stored, how much it takes, and deleting it.

Strategy: a person at a terminal gets aligned columns and sizes to read at a glance, a program gets tabs and plain
numbers, or JSON with times that can be reckoned with. Looking creates nothing. Deleting is asked for twice: by a
question, or where nobody can be asked by `--yes`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any, Final

from ..outcome import Failure
from ..vault.store import Damaged, DamagedFile, DiskTrouble, Entry, Stats, StoreError
from ..vault.vault import Vault
from . import console, screen, settings, vaults
from .console import Misuse, Parser
from .read import damaged, told, unavailable
from .settings import Place

_DESCRIPTION: Final = """\
Show what is stored, and delete it. Without a word: stats.
"""
_EPILOG: Final = """\
list   what can be read, newest first: handle, kind, size, tool, age, expires in
stats  the place, how much is stored, and how much may be
purge  delete everything; with --handle one result, with --expired what is over.
       A damaged vault is removed; a file that is no vault is not.

exit codes:
  0    done; also if there is nothing
  2    wrong usage; also a purge without --yes where nobody can be asked
  3    the file of --config cannot be read
  5    the vault cannot be used, or there is no such handle: the message begins
       with a code
  130  interrupted
  141  the reader of the output went away

examples:
  mcp-envelope vault
  mcp-envelope vault list --vault ./vault.db
  mcp-envelope vault list --json
  mcp-envelope vault purge --expired --yes
"""
_ACTIONS: Final = ("list", "stats", "purge")
_COLUMNS: Final = ("handle", "kind", "size", "tool", "age", "expires in")
_WIDEST: Final = 40


def run(arguments: list[str]) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        _check(options)
        place = settings.place(options.vault, options.config, settings.policy(options.config))
        with vaults.opened(place) as vault:
            if vault is None or (missing := vaults.missing_file(vault)):
                return _nothing(options, place, None if vault is None else missing)
            if options.action == "list":
                return _list(vault, options)
            return _stats(vault, options) if options.action == "stats" else _purge(vault, options)
    except Misuse as error:
        parser.error(str(error))
    except Failure as failure:
        return told(failure.problem)
    except StoreError as error:
        return told(unavailable(error))
    except Damaged as error:
        return told(damaged(error))


def _check(options: argparse.Namespace) -> None:
    if options.action != "purge":
        given = [name for name in ("handle", "expired", "yes") if getattr(options, name)]
        if given:
            raise Misuse(f"--{given[0]} goes with purge: mcp-envelope vault purge --{given[0]}")
    elif options.json:
        raise Misuse("--json goes with list and stats")


def _nothing(options: argparse.Namespace, place: Place, missing: str | None) -> int:
    """There is no vault, or none yet."""
    if options.json:
        empty = {"place": missing, "exists": False, "entries": 0, "size": 0, "stored": 0, "cap": place.cap}
        _print_json([] if options.action == "list" else empty)
    if missing is None:
        console.say("note", "there is no vault: results are cut, and the rest is not kept")
    else:
        console.say("note", f"nothing is stored yet: there is no vault at {missing}")
    return console.SEALED


# -- looking ------------------------------------------------------------------------------------------------


def _list(vault: Vault, options: argparse.Namespace) -> int:
    entries = list(vault.store.entries())
    if options.json:
        _print_json([_as_json(entry) for entry in entries])
        return console.SEALED
    now = time.time()
    rows = [_row(entry, now) for entry in entries]
    if not screen.is_terminal():
        _print("".join("\t".join(row) + "\n" for row in rows))
        return console.SEALED
    if not rows:
        console.say("note", f"nothing is stored at {vault.store.place}")
        return console.SEALED
    table = [_COLUMNS, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(_COLUMNS))]
    for row in table:
        cells = [
            cell.rjust(width) if name == "size" else cell.ljust(width)
            for name, cell, width in zip(_COLUMNS, row, widths, strict=True)
        ]
        line = "  ".join(cells).rstrip()
        _print(
            f"\x1b[2m{line}\x1b[0m\n" if row is _COLUMNS and console.has_colour(sys.stdout) else f"{line}\n"
        )
    return console.SEALED


def _row(entry: Entry, now: float) -> tuple[str, ...]:
    tool = console.printable(entry.tool or "-")
    size = str(entry.size)
    if screen.is_terminal():
        size = screen.human_size(entry.size)
        tool = tool if len(tool) <= _WIDEST else f"{tool[: _WIDEST - 1]}…"
    age, left = screen.human_time(now - entry.created), screen.human_time(entry.expires - now)
    return console.printable(entry.handle), entry.kind, size, tool, age, left


def _as_json(entry: Entry) -> dict[str, Any]:
    return {
        "handle": entry.handle,
        "kind": entry.kind,
        "size": entry.size,
        "stored": entry.stored,
        "tool": entry.tool,
        "created": entry.created,
        "expires": entry.expires,
    }


def _stats(vault: Vault, options: argparse.Namespace) -> int:
    stats = vault.store.stats()
    ratio = round(stats.size / stats.stored, 2) if stats.stored else None
    if options.json:
        _print_json(
            {
                "place": stats.place,
                "exists": True,
                "entries": stats.entries,
                "size": stats.size,
                "stored": stats.stored,
                "ratio": ratio,
                "cap": stats.cap,
                "oldest": stats.oldest,
                "newest": stats.newest,
            }
        )
        return console.SEALED
    size = screen.human_size if screen.is_terminal() else str
    rows = {
        "place": console.printable(stats.place),
        "entries": str(stats.entries),
        "payloads": size(stats.size),
        "stored": size(stats.stored),
        "ratio": "-" if ratio is None else f"{ratio:.1f} : 1" if screen.is_terminal() else str(ratio),
        "cap": size(stats.cap),
        "oldest": _ago(stats.oldest),
        "newest": _ago(stats.newest),
    }
    if screen.is_terminal():
        _print("".join(f"{name:<10}{value}\n" for name, value in rows.items()))
    else:
        _print("".join(f"{name}\t{value}\n" for name, value in rows.items()))
    return console.SEALED


def _ago(moment: float | None) -> str:
    return "-" if moment is None else f"{screen.human_time(time.time() - moment)} ago"


# -- deleting -----------------------------------------------------------------------------------------------


def _purge(vault: Vault, options: argparse.Namespace) -> int:
    place = vault.store.place
    if options.handle is not None:
        return _purge_one(vault, options)
    try:
        before: Stats | None = vault.store.stats()
    except (DamagedFile, DiskTrouble) as error:
        if options.expired:
            raise
        before, trouble = None, "damaged" if isinstance(error, DamagedFile) else "not usable on this disk"
    if before is None:
        question = f"{place} is {trouble}. Remove it?"
    elif options.expired:
        question = f"Delete what has expired at {place}?"
    else:
        question = f"Delete {_many(before.entries)} ({screen.human_size(before.size)}) at {place}?"
    if not _confirmed(question, options):
        return console.SEALED
    if options.expired:
        vault.store.sweep()
    else:
        vault.store.purge()
    if before is None:
        console.say("done", f"removed: {place} was {trouble}, and everything in it is gone")
        return console.SEALED
    count, size = before.entries, before.size
    if not vaults.missing_file(vault):
        after = vault.store.stats()
        count, size = max(count - after.entries, 0), max(size - after.size, 0)
    console.say("done", f"deleted: {_many(count)}, {screen.human_size(size)}")
    return console.SEALED


def _purge_one(vault: Vault, options: argparse.Namespace) -> int:
    # Of whomever they are: who may delete the file may delete what is in it.
    found = [entry for entry in vault.store.entries() if entry.handle == options.handle]
    if not found:
        vault.open(options.handle)  # which says why there is none
    size = sum(entry.size for entry in found)
    question = f"Delete {options.handle} ({screen.human_size(size)}) at {vault.store.place}?"
    if not _confirmed(question, options):
        return console.SEALED
    count = sum([vault.store.delete(entry.key) for entry in found])
    console.say("done", f"deleted: {_many(count)}, {screen.human_size(size if count else 0)}")
    return console.SEALED


def _confirmed(question: str, options: argparse.Namespace) -> bool:
    if options.yes:
        return True
    if not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr)):
        raise Misuse("purge deletes for good, and there is nobody to ask: say --yes")
    sys.stderr.write(f"{console.printable(question)} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    console.say("note", "nothing was deleted")
    return False


def _many(count: int) -> str:
    return f"{count:,} result{'' if count == 1 else 's'}"


def _print(text: str) -> None:
    console.write_out(text.encode("utf-8", "backslashreplace"))


def _print_json(value: object) -> None:
    _print(json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def _parser() -> Parser:
    parser = Parser(
        prog="mcp-envelope vault",
        usage="mcp-envelope vault [list | stats | purge] [--vault URL] [options]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        takes="word",
    )
    parser.add_argument(
        "action",
        nargs="?",
        default="stats",
        type=console.one_of(_ACTIONS),
        metavar="list|stats|purge",
        help="what to do (default: stats)",
    )
    parser.add_argument("--json", action="store_true", help="list and stats: print JSON")
    purge = parser.add_argument_group("purge")
    which = purge.add_mutually_exclusive_group().add_argument
    which("--handle", metavar="HANDLE", help="delete only this result")
    which("--expired", action="store_true", help="delete only what has expired")
    purge.add_argument("--yes", action="store_true", help="do not ask")
    vaults.add_arguments(parser)
    return parser
