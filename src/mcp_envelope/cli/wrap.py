"""`mcp-envelope wrap`: the proxy put in front of the servers in a client's configuration.

Strategy: find the file, plan the change, show it, ask, write. The diff goes to standard output, words for people to
standard error. What `unwrap` does in the same way is here too: the target, the diff, the question, the writing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from ..dialects import NAMES
from ..wire.remote import missing_extra
from ..wrap import backups, planning
from ..wrap.diffs import Side, unified
from ..wrap.entries import MODULE, PROGRAM, Launch, is_program
from ..wrap.masking import Masks
from ..wrap.places import CLIENTS, SCOPES, places
from ..wrap.tree import Broken, Document, servers
from . import console, proxy
from .console import BadInput, Misuse, Parser

DECLINED: Final = 1
_MANY: Final = 20
_COLOURS: Final = {"+": "32", "-": "31", "@": "36"}
_DESCRIPTION: Final = """\
Put the proxy in front of the MCP servers in a client's configuration.
The change is shown first, and the file as it was is kept beside it.
Comments, order and every other byte stay. Run it again whenever you like.
"""
_EPILOG: Final = """\
clients:
  claude-code     .mcp.json here, else ~/.claude.json
  claude-desktop  claude_desktop_config.json
  cursor          .cursor/mcp.json here, else in the home folder
  vscode          .vscode/mcp.json here, else mcp.json of the user
  codex           .codex/config.toml here, else ~/.codex/config.toml
  gemini          .gemini/settings.json here, else in the home folder
  The first that exists and has servers is taken; --scope says which.

what happens to a server:
  npx -y server .      becomes  mcp-envelope proxy -- npx -y server .
  Entries that go through the proxy already stay as they are. With --tokens,
  --bytes, --dialect, --config, --vault or --command these are set in them too.
  Remote servers (with a URL) stay as they are unless you say --remote: a
  client can log in with a browser, the proxy cannot. Values of headers go into
  the entry's env, not on a command line.

exit codes:
  0    done, or nothing to do
  1    you said no
  2    wrong usage, or --yes is needed
  3    a file cannot be read, understood or written; nothing was changed

examples:
  mcp-envelope wrap cursor --dry-run
  mcp-envelope wrap claude-desktop --tokens 4000
  mcp-envelope wrap codex --except memory --yes
  mcp-envelope wrap path/to/mcp.json --servers github,search --remote
  mcp-envelope unwrap cursor
"""


class Target(NamedTuple):
    """The file that was meant, as it was read."""

    path: Path
    data: bytes
    document: Document


def run(arguments: list[str]) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    masks = Masks()
    _check(options, parser)
    wish = _wish(options, parser, masks)
    target = find_target(options, parser)
    if not servers(target.document):
        console.say("done", f"No servers in {target.path}; nothing to do.")
        return console.SEALED
    try:
        plan = planning.wrap(target.document, wish, choice(options, parser, target), masks.is_secret)
    except planning.Unsafe as which:
        raise unsafe(target, which) from None
    _tell(plan)
    if not plan.is_change:
        console.say("done", f"Nothing to do in {target.path}.")
        return console.SEALED
    refusal = show_and_ask(target, plan.text, options, masks)
    if refusal is not None:
        return refusal
    keep = not plan.is_wrapped or backups.backup(target.path) is None
    write(target, plan.text, keep=keep)
    console.say("done", f"Wrapped in {target.path}: {listed([*plan.changed, *plan.updated])}.")
    kept = backups.backup_of(target.path)
    console.say("done", f"As it was: {kept}. To undo: mcp-envelope unwrap {options.target}")
    console.say("done", "Restart the client to use it.")
    return console.SEALED


def _check(options: argparse.Namespace, parser: Parser) -> None:
    """What the proxy would refuse when a client starts it is refused now. Another program is not ours to judge."""
    if options.command is not None:
        return
    try:
        proxy.check(options)
        if options.remote and (lacking := missing_extra()):
            raise Misuse(f"--remote: {lacking}")
    except Misuse as error:
        parser.error(str(error))


def _wish(options: argparse.Namespace, parser: Parser, masks: Masks) -> planning.Wish:
    settings: dict[str, str] = {}
    for name in ("tokens", "bytes", "dialect", "config", "vault"):
        value = getattr(options, name)
        if value is not None:
            settings[f"--{name}"] = str(value)
    # A client starts the proxy in a folder of its own choice.
    if options.config is not None:
        settings["--config"] = _absolute(options.config)
    if options.vault is not None:
        if masks.is_secret(options.vault):
            parser.error("--vault has a password in it, which would stand on a command line")
        if "://" not in options.vault and options.vault.lower() not in ("none", "off"):
            settings["--vault"] = _absolute(options.vault)
    program = None
    if options.command is not None:
        program = (_program(options.command, parser),)
    return planning.Wish(Launch(program or _running()), program, settings, options.remote)


def _program(command: str, parser: Parser) -> str:
    if not is_program(command):
        parser.error(f"--command: the name has to be {PROGRAM}, or unwrap would not know it again")
    if os.path.basename(command) == command:
        return command
    return _absolute(command)


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def _running() -> tuple[str, ...]:
    """How this program was started, as a full path: programs with windows have a short PATH of their own."""
    started = sys.argv[0]
    if is_program(started):
        found = shutil.which(started) or shutil.which(PROGRAM)
        if found is not None:
            return (os.path.abspath(found),)
    return (sys.executable, "-m", MODULE)


def _tell(plan: planning.Plan) -> None:
    if plan.remote:
        console.say("note", f"remote, left as it is (--remote includes it): {listed(plan.remote)}")
    for label, reason in plan.unfit:
        console.say("warning", f"{label} {reason}; left as it is")
    if plan.already:
        console.say("note", f"wrapped already: {listed(plan.already)}")


# -- what unwrap does too -----------------------------------------------------------------------------------


def find_target(options: argparse.Namespace, parser: Parser) -> Target:
    """The first place that exists and has servers; failing that, the first that exists."""
    if options.target is None:
        parser.error(f"say whose configuration: {', '.join(CLIENTS)}, or a file")
    is_client = options.target in CLIENTS
    if not is_client and options.scope is not None:
        parser.error("--scope goes with a client, not with a file")
    looked = places(options.target, options.scope) if is_client else [Path(options.target).expanduser()]
    if not looked:
        parser.error(f"{options.target} has no file of a project")
    targets = _existing(looked)
    first = next(targets, None)
    if first is None:
        if is_client:
            raise BadInput(f"no configuration of {options.target}; looked for {', '.join(map(str, looked))}")
        raise BadInput(f"there is no file {options.target}{console.nearest(options.target, CLIENTS)}")
    if servers(first.document):
        return first
    return next((target for target in targets if servers(target.document)), first)


def _existing(looked: list[Path]) -> Iterator[Target]:
    for path in looked:
        try:
            data = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as error:
            raise BadInput(f"cannot read {path}: {console.reason(error)}") from None
        yield Target(path, data, parse(data, path))


def parse(data: bytes, path: Path) -> Document:
    try:
        return planning.read(data, backups.real(path).name)
    except Broken as error:
        joint = ", " if str(error).startswith("line ") else ": "
        raise BadInput(f"{path}{joint}{error}") from None


def choice(options: argparse.Namespace, parser: Parser, target: Target) -> Callable[[str], bool]:
    """Which servers were meant."""
    known = {server.name for server in servers(target.document)}
    for name in (*options.servers, *options.leave):
        if name not in known:
            parser.error(f"there is no server {name!r} in {target.path}{console.nearest(name, known)}")
    wanted, left = set(options.servers) or known, set(options.leave)
    return lambda name: name in wanted and name not in left


def listed(names: list[str]) -> str:
    few = ", ".join(names[:_MANY])
    return few if len(names) <= _MANY else f"{few} and {len(names) - _MANY} more"


def unsafe(target: Target, names: planning.Unsafe) -> BadInput:
    return BadInput(
        f"{target.path}: cannot be edited without touching more than {names}; nothing was changed"
        f" (leave them out with --except)"
    )


def show_and_ask(target: Target, text: str, options: argparse.Namespace, masks: Masks) -> int | None:
    """The change, and whether it may be made: None, or the exit code if not."""
    new = parse(text.encode(), target.path)
    console.write_out(_diff(target, new, masks))
    if target.path.name == ".claude.json":
        console.say("note", "Claude Code writes this file while it runs; close it first")
    if options.dry_run:
        console.say("note", "nothing was written (--dry-run)")
        return console.SEALED
    if options.yes:
        return None
    if sys.stdin is None or not sys.stdin.isatty():
        console.say(
            "error", "nothing was written: there is nobody to ask; add --yes, or --dry-run to look only"
        )
        return console.USAGE
    sys.stderr.write(f"Write this to {console.printable(str(target.path))}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return None
    console.say("note", "nothing was written")
    return DECLINED


def _diff(target: Target, new: Document, masks: Masks) -> bytes:
    colour = sys.stdout is not None and console.has_colour(sys.stdout)
    old_side, new_side = (Side.of(each.text, masks.shown(each)) for each in (target.document, new))
    lines = []
    for line in unified(old_side, new_side, str(target.path)):
        shown = console.printable(line.expandtabs(4))
        if colour and line[:1] in _COLOURS:
            shown = f"\x1b[{_COLOURS[line[:1]]}m{shown}\x1b[0m"
        lines.append(f"{shown}\n")
    return "".join(lines).encode("utf-8", "backslashreplace")


def write(target: Target, text: str, *, keep: bool) -> None:
    try:
        backups.replace(target.path, target.data, text.encode(), keep=keep)
    except backups.Changed:
        raise BadInput(
            f"{target.path} was changed by another program just now; nothing was written, run it again"
        ) from None
    except OSError as error:
        raise BadInput(
            f"cannot write {target.path}: {console.reason(error)}; the file is as it was"
        ) from None


def add_shared(parser: Parser) -> None:
    add = parser.add_argument
    add("target", nargs="?", metavar="CLIENT|FILE", type=console.plain_text, help="whose configuration")
    add("--scope", metavar="SCOPE", type=console.one_of(SCOPES), help="the client's file: project or user")
    add("--servers", metavar="NAMES", type=_names, default=[], help="only these, with commas between")
    add("--except", metavar="NAMES", type=_names, default=[], dest="leave", help="all but these")
    add("--dry-run", action="store_true", help="show the change and write nothing")
    add("--yes", action="store_true", help="write without asking")


def _names(text: str) -> list[str]:
    return [name.strip() for name in console.plain_text(text).split(",") if name.strip()]


def _parser() -> Parser:
    parser = Parser(
        prog="mcp-envelope wrap",
        usage="mcp-envelope wrap CLIENT|FILE [options]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add_shared(parser)
    add = parser.add_argument
    add("--remote", action="store_true", help="servers with a URL too")
    budget = parser.add_mutually_exclusive_group()
    budget.add_argument("--tokens", metavar="N", type=_budget, help="the proxy's budget in tokens")
    budget.add_argument("--bytes", metavar="N", type=_budget, help="the proxy's budget in bytes")
    add("--dialect", metavar="DIALECT", type=console.one_of(NAMES), help="the proxy's dialect")
    add("--config", metavar="FILE", type=console.plain_text, help="the proxy's mcp-envelope.toml")
    add("--vault", metavar="URL", type=console.plain_text, help="where the proxy keeps what was cut")
    add(
        "--command",
        metavar="PATH",
        type=console.plain_text,
        help="what the client starts (default: this program, with its full path)",
    )
    parser.set_defaults(meter=None)
    return parser


def _budget(text: str) -> int:
    number = console.whole_number(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is no budget")
    return number
