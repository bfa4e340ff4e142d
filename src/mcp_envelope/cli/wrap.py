"""`mcp-envelope wrap`: put the proxy in front of the servers in a client's configuration.

Strategy: find the file, plan the change, show it, ask, write. The diff goes to standard output, messages go to
standard error. What `unwrap` shares with it is here too: the target, the diff, the question, the writing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from ..clients import backup, config_file, server_entry, wrapping
from ..clients.config_file import ConfigFile, NotConfig
from ..clients.diff import DiffMask, Side, unified
from ..clients.locations import CLIENTS, SCOPES, SPREAD, locations
from ..clients.server_entry import MODULE, PROGRAM, SETTINGS, Launch, is_program
from ..clients.wrapping import WrapOptions, WrapPlan
from ..spelling import did_you_mean
from . import console, proxy
from .console import BadInput, Misuse, Parser

DECLINED: Final = 1
_MANY: Final = 20
# The folder of uv's cache that has the environments of uvx.
_UVX_CACHE: Final = "archive-v0"
_COLOURS: Final = {"+": "32", "-": "31", "@": "36"}
_DESCRIPTION: Final = """\
Put the proxy in front of the MCP servers in a client's configuration.
The change is shown first, and a backup of the file is kept next to it.
Comments, order and all other bytes are kept. Running it again is safe.
"""
_EPILOG: Final = """\
clients:
  claude-code     .mcp.json here, else ~/.claude.json
  claude-desktop  claude_desktop_config.json
  cursor          .cursor/mcp.json here, else in the home folder
  vscode          .vscode/mcp.json here, else the user's mcp.json
  continue        .continue/mcpServers here, and ~/.continue
  codex           .codex/config.toml here, else ~/.codex/config.toml
  goose           ~/.config/goose/config.yaml
  gemini          .gemini/settings.json here, else in the home folder
  copilot-cli     ~/.copilot/mcp-config.json
  lm-studio       ~/.lmstudio/mcp.json
  opencode        opencode.json here, else in ~/.config/opencode
  windsurf        ~/.codeium/windsurf/mcp_config.json
  zed             .zed/settings.json here, else the user's settings.json
  The first file that exists and has servers is used (for continue, every such
  file); --scope picks one.

what happens to a server:
  npx -y server .      becomes  mcp-envelope proxy -- npx -y server .
  Entries that already go through the proxy stay as they are, except for what
  --tokens, --bytes, --dialect, --config, --vault or --command set.
  Remote servers (with a URL) are left alone unless you add --remote, because
  clients log in by themselves, while the proxy needs mcp-envelope login first.
  The values of headers go into the entry's env, never onto a command line.

exit codes:
  0    done, or nothing to do
  1    you answered no
  2    wrong usage, or --yes is needed
  3    a file cannot be read, parsed or written; nothing was changed

examples:
  mcp-envelope wrap --all --dry-run
  mcp-envelope wrap cursor --dry-run
  mcp-envelope wrap claude-desktop --tokens 4000
  mcp-envelope wrap codex --except memory --yes
  mcp-envelope wrap path/to/mcp.json --servers github,search --remote
  mcp-envelope unwrap cursor
"""


class Target(NamedTuple):
    """The file to change, as it was read, and what both commands do with it."""

    path: Path
    data: bytes
    config: ConfigFile

    def plan(self, make: Callable[[], WrapPlan]) -> WrapPlan:
        try:
            plan = make()
        except wrapping.Unsafe as names:
            raise BadInput(
                f"{self.path}: {names} cannot be edited without changing other settings; nothing was changed"
                " (leave them out with --except)"
            ) from None
        for label, reason in plan.skipped:
            console.say("warning", f"{label} {reason}; left as it is")
        return plan

    def show_and_ask(self, text: str, options: argparse.Namespace, mask: DiffMask) -> int | None:
        """Show the change and ask; return None if it may be made, else the exit code."""
        new = parse(text.encode(), self.path)
        console.write_text(self._diff(new, mask))
        if self.path.name == ".claude.json":
            console.say("note", "Claude Code writes to this file while it runs; close it first")
        if options.dry_run:
            console.say("note", "nothing was written (--dry-run)")
            return console.OK
        if options.yes:
            return None
        if sys.stdin is None or not sys.stdin.isatty():
            advice = "add --yes to write, or --dry-run to preview"
            console.say("error", f"nothing was written: no terminal to ask for confirmation; {advice}")
            return console.USAGE
        if console.confirms(f"Write this to {self.path}?"):
            return None
        console.say("note", "nothing was written")
        return DECLINED

    def write(self, text: str, *, keep: bool) -> None:
        try:
            backup.replace(self.path, self.data, text.encode(), keep=keep)
        except backup.Changed:
            advice = "nothing was written, try again"
            raise BadInput(f"another program has just changed {self.path}; {advice}") from None
        except OSError as error:
            raise BadInput(
                f"cannot write {self.path}: {console.reason(error)}; the file is unchanged"
            ) from None

    def _diff(self, new: ConfigFile, mask: DiffMask) -> str:
        colour = console.has_colour(sys.stdout)
        old_side, new_side = (Side.of(each.text, mask.shown(each)) for each in (self.config, new))
        lines = []
        for line in unified(old_side, new_side, str(self.path)):
            shown = console.printable(line.expandtabs(4))
            if colour and line[:1] in _COLOURS:
                shown = f"\x1b[{_COLOURS[line[:1]]}m{shown}\x1b[0m"
            lines.append(f"{shown}\n")
        return "".join(lines)


def run(arguments: list[str]) -> int:
    options = make_parser().parse_args(arguments)
    _check(options)
    mask = DiffMask()
    wanted = _wanted(options, mask)
    return change_each(find_targets(options), lambda target: _wrap(target, options, wanted, mask))


def _wrap(target: Target, options: argparse.Namespace, wanted: WrapOptions, mask: DiffMask) -> int:
    if not target.config.servers():
        console.say("done", f"No servers in {target.path}; nothing to do.")
        return console.OK
    plan = target.plan(lambda: _plan(options, target, wanted, mask))
    if plan.remote:
        console.say("note", f"remote, skipped without --remote: {listed(plan.remote)}")
    if plan.already:
        console.say("note", f"already wrapped: {listed(plan.already)}")
    if not plan.is_change:
        console.say("done", f"Nothing to do in {target.path}.")
        return console.OK
    refusal = target.show_and_ask(plan.text, options, mask)
    if refusal is not None:
        return refusal
    keep = options.gateway or not plan.is_wrapped or backup.read(target.path) is None
    target.write(plan.text, keep=keep)
    how = "Moved behind the gateway" if options.gateway else "Wrapped"
    console.say("done", f"{how} in {target.path}: {listed([*plan.changed, *plan.updated])}.")
    kept, undo = (
        backup.path_of(target.path),
        console.command("mcp-envelope", "unwrap", options.target or "--all"),
    )
    console.say("done", f"Backup: {kept}. To undo: {undo}")
    for name, address in plan.logins:
        login = console.command("mcp-envelope", "login", address)
        console.say("done", f"If {name} requires a login, run this first (it opens your browser): {login}")
    console.say("done", "Restart the client to use it.")
    return console.OK


def _plan(options: argparse.Namespace, target: Target, wanted: WrapOptions, mask: DiffMask) -> WrapPlan:
    chosen = choice(options)
    if not options.gateway:
        return wrapping.wrap(target.config, wanted, chosen, mask.is_secret)
    from ..clients import gateway_entry

    if any(server_entry.proxied(server.value) for server in target.config.servers()):
        advice = console.command("mcp-envelope", "unwrap", options.target or str(target.path))
        raise BadInput(f"{target.path}: some servers are already wrapped; first run: {advice}")
    kept_in = os.path.abspath(backup.path_of(target.path))
    return gateway_entry.gather(target.config, wanted, kept_in, chosen, mask.is_secret)


def _check(options: argparse.Namespace) -> None:
    """Refuse now what the proxy would refuse when a client starts it, unless it is another program."""
    if options.command is None:
        proxy.check(options)
        if options.remote and (lacking := proxy.missing_extra()):
            raise Misuse(f"--remote: {lacking}")


def _wanted(options: argparse.Namespace, mask: DiffMask) -> WrapOptions:
    given = {name: getattr(options, name.removeprefix("--")) for name in SETTINGS}
    settings = {name: str(value) for name, value in given.items() if value is not None}
    # A client starts the proxy in a folder of its own choosing.
    if options.config is not None:
        settings["--config"] = _absolute(options.config)
    if options.vault is not None:
        if mask.is_secret(options.vault):
            raise Misuse("--vault has a password in it, which would appear on a command line")
        if "://" not in options.vault and options.vault.lower() not in ("none", "off"):
            settings["--vault"] = _absolute(options.vault)
    program = None if options.command is None else (_program(options.command),)
    return WrapOptions(Launch(program or _running()), program, settings, options.remote)


def _program(command: str) -> str:
    if not is_program(command):
        raise Misuse(f"--command: the program must be named {PROGRAM}, or unwrap would not recognize it")
    return command if os.path.basename(command) == command else _absolute(command)


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def _running() -> tuple[str, ...]:
    """How this program was started, as a full path: desktop programs have a short PATH of their own."""
    # uv tells the programs that it starts where it is; uvx lies beside it, on the PATH or not.
    uvx = shutil.which("uvx") or shutil.which(Path(os.environ.get("UV") or "uv").with_name("uvx"))
    if uvx is not None and _UVX_CACHE in Path(sys.prefix).parts:
        # What uvx has installed for this run is deleted sooner or later, so clients have to start it by uvx, too.
        source = () if proxy.missing_extra(serves=True) else ("--from", f"{PROGRAM}[http]")
        return (os.path.abspath(uvx), *source, PROGRAM)
    started = sys.argv[0]
    if is_program(started):
        found = shutil.which(started) or shutil.which(PROGRAM)
        if found is not None:
            return (os.path.abspath(found),)
    return (sys.executable, "-m", MODULE)


# -- what unwrap does too -----------------------------------------------------------------------------------


def find_targets(options: argparse.Namespace) -> list[Target]:
    """The files to change. Of a client's, the first that has servers, or failing that, the first that exists."""
    found = _found(options)
    known = {server.name for target in found for server in target.config.servers()}
    for name in (*options.servers, *options.leave):
        if name not in known:
            where = found[0].path if len(found) == 1 else "these files"
            raise Misuse(f"there is no server {name!r} in {where}{did_you_mean(name, known)}")
    return found


def _found(options: argparse.Namespace) -> list[Target]:
    name = options.target
    if options.all:
        if name is not None:
            raise Misuse("--all takes no client or file")
        looked = {backup.real(path): path for client in CLIENTS for path in locations(client, options.scope)}
        found = [target for target in _readable(looked.values()) if target.config.servers()]
        if not found:
            raise BadInput("no client configuration with servers was found")
        return found
    if name is None:
        raise Misuse(f"name a client ({', '.join(CLIENTS)}) or a file, or use --all")
    is_client = name in CLIENTS
    if not is_client and options.scope is not None:
        raise Misuse("--scope applies to a client, not to a file")
    paths = locations(name, options.scope) if is_client else [Path(name).expanduser()]
    if not paths and name not in SPREAD:
        raise Misuse(f"{name} has no project configuration")
    targets = _existing(paths)
    if name in SPREAD:
        targets = iter(sorted(targets, key=lambda target: not target.config.servers()))
    first = next(targets, None)
    if first is None and is_client:
        places = f"; looked for {', '.join(map(str, paths))}" if paths else ""
        raise BadInput(f"no configuration found for {name}{places}")
    if first is None:
        raise BadInput(f"there is no client or file named {name}{did_you_mean(name, CLIENTS)}")
    if not first.config.servers():
        return [next((target for target in targets if target.config.servers()), first)]
    return [first, *(target for target in targets if name in SPREAD and target.config.servers())]


def _readable(looked: Iterable[Path]) -> Iterator[Target]:
    """The files that exist, with a word about each that cannot be understood."""
    for path in looked:
        try:
            yield from _existing([path])
        except BadInput as trouble:
            console.say("warning", f"{trouble}; left as it is")


def change_each(targets: list[Target], change: Callable[[Target], int]) -> int:
    """Change one file after the other; the exit code is that of the worst.

    A file that fails leaves the others alone. If there is nobody to ask, one file is shown and says so for all.
    """
    if len(targets) == 1:
        return change(targets[0])
    worst = console.OK
    for target in targets:
        try:
            worst = max(worst, code := change(target))
            if code == console.USAGE:
                break
        except BadInput as trouble:
            console.say("error", str(trouble))
            worst = console.BAD_INPUT
    return worst


def choice(options: argparse.Namespace) -> Callable[[str], bool]:
    """Which servers to change."""
    wanted, left = set(options.servers), set(options.leave)
    return lambda name: (not wanted or name in wanted) and name not in left


def _existing(looked: Iterable[Path]) -> Iterator[Target]:
    for path in looked:
        try:
            data = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as error:
            raise BadInput(f"cannot read {path}: {console.reason(error)}") from None
        yield Target(path, data, parse(data, path))


def parse(data: bytes, path: Path) -> ConfigFile:
    try:
        return config_file.read(data, backup.real(path).name)
    except NotConfig as error:
        joint = ", " if str(error).startswith("line ") else ": "
        raise BadInput(f"{path}{joint}{error}") from None


def listed(names: list[str]) -> str:
    few = ", ".join(names[:_MANY])
    return few if len(names) <= _MANY else f"{few} and {len(names) - _MANY} more"


def shared_parser(command: str, description: str, epilog: str) -> Parser:
    parser = Parser(command, "CLIENT|FILE|--all [options]", description, epilog)
    target = "a client's name, or the path of a configuration file"
    parser.add_argument("target", nargs="?", metavar="CLIENT|FILE", type=console.plain_text, help=target)
    add = parser.options()
    add("--scope SCOPE", "the client's file: project or user", console.one_of(SCOPES))
    add("--all", "every client that has a configuration here")
    add("--servers NAMES", "only these, separated by commas", console.names, default=[])
    add("--except NAMES", "all but these", console.names, default=[], dest="leave")
    add("--dry-run", "show the change and write nothing")
    add("--yes", "write without asking")
    return parser


def make_parser() -> Parser:
    parser = shared_parser("wrap", _DESCRIPTION, _EPILOG)
    add, limit = parser.options(), parser.options(exclusive=True)
    text, number = console.plain_text, console.positive_number
    add("--remote", "include servers with a URL")
    add("--gateway", "replace them all by one entry that starts mcp-envelope gateway")
    limit("--tokens N", "the proxy's budget in tokens", number)
    limit("--bytes N", "the proxy's budget in bytes", number)
    add("--dialect DIALECT", "the proxy's dialect", console.dialect_name)
    add("--config FILE", "the proxy's mcp-envelope.toml", text)
    add("--vault URL", "where the proxy stores whole results", text)
    add("--command PATH", "the program that clients start (default: this one, by its full path)", text)
    parser.set_defaults(meter=None)
    return parser
