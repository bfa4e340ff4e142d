"""The command `mcp-envelope`: pick the command and run it.

Strategy: a command's module is imported only when that command runs, so that each one starts as fast as it can.
Whatever ends a program early (an interrupt, a closed pipe, an unusable input) becomes an exit code here.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from ..spelling import did_you_mean
from . import console
from .console import BadInput, Misuse, Parser

# Each is a module in this package, with `run(arguments) -> exit code`.
COMMANDS: Final = {
    "demo": "run real servers through the proxy, and show results before and after",
    "proxy": "run in front of an MCP server",
    "login": "log in to a remote server, for the proxy",
    "logout": "forget a login, and revoke its token",
    "status": "list the logins: issuer, scopes, expiry",
    "gateway": "run in front of all servers in a client's configuration, as one",
    "seal": "fit a tool's payload into a budget and print the result",
    "read": "read a stored result by page, query or search",
    "vault": "list and delete stored results",
    "check": "score a server's results: do they fit, are they valid, can the rest be read",
    "stats": "show what was saved, by tool, server, client or day",
    "ui": "watch calls in the browser: what was cut, and what was saved",
    "doctor": "check what is installed, wrapped and working",
    "config": "print the settings that apply to a tool, and where they came from",
    "trust": "accept a settings file that the proxy finds in a project folder",
    "completion": "print a script that completes commands and options in bash, zsh or fish",
    "hook": "seal a result for a coding agent's plugin",
    "serve": "serve only envelope_read, for use with a hook or a guardrail",
    "lint": "find MCP tools that bypass the envelope",
    "wrap": "put the proxy in front of the servers in a client's configuration",
    "unwrap": "remove the proxy again, byte for byte",
}
_HELP: Final = "help"
_EXAMPLES: Final = """\
examples:
  mcp-envelope demo
  mcp-envelope wrap claude-code
  mcp-envelope proxy --tokens 4000 -- uvx mcp-server-git
  mcp-envelope lint src

More about a command: mcp-envelope help COMMAND
"""


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        try:
            code = _dispatch(arguments)
        except SystemExit as stop:  # how argparse ends, after --help too
            code = stop.code if isinstance(stop.code, int) else 0
        console.flush()
        return code
    except BadInput as trouble:
        console.say("error", str(trouble))
        return console.BAD_INPUT
    except BrokenPipeError:
        console.abandon()
        return console.BROKEN_PIPE
    except KeyboardInterrupt:
        return console.INTERRUPTED


def _dispatch(arguments: list[str]) -> int:
    if arguments[:1] == [_HELP]:
        arguments = ["--help"] if arguments[1:2] == [_HELP] else [*arguments[1:2], "--help"]
    if arguments and arguments[0] in COMMANDS:
        try:
            code: int = import_module(f".{arguments[0]}", __package__).run(arguments[1:])
        except Misuse as error:
            console.say("error", f"{error} (see mcp-envelope {arguments[0]} --help)")
            return console.USAGE
        return code
    parser = make_parser()
    if arguments and not arguments[0].startswith("-"):
        suggestion = did_you_mean(arguments[0], [*COMMANDS, _HELP])
        parser.error(f"there is no command {arguments[0]!r}{suggestion}")
    parser.parse_args(arguments)
    if sys.stderr is not None:
        parser.print_help(sys.stderr)
        sys.stderr.write("\n")
    parser.error("no command was given")


def make_parser() -> Parser:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}}  {purpose}" for name, purpose in COMMANDS.items())
    about = "Every MCP tool result in one envelope: it fits the budget, stays valid, loses nothing."
    return Parser("", "COMMAND ...", about, f"commands:\n{commands}\n\n{_EXAMPLES}")
