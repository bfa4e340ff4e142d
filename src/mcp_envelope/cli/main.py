"""The command `mcp-envelope`: find the command that was meant and hand over.

Strategy: a command's module is imported when that command runs, and not before, so one that needs little
starts in a blink. Whatever ends a program early (an interrupt, a reader that went away, an input that cannot
be used) is turned into an exit code here, in one place.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from .. import __version__
from . import console
from .console import BadInput, Parser

# Each is a module beside this one, with `run(arguments) -> exit code`.
COMMANDS: Final = {
    "proxy": "stand in front of an MCP server",
    "seal": "fit a tool's payload into a budget and print the result",
    "read": "read on in a result that was cut",
    "vault": "show what is stored, and delete it",
    "config": "print the settings that apply to a tool, and where they came from",
    "lint": "find MCP tools that bypass the envelope",
    "wrap": "put the proxy in front of the servers in a client's configuration",
    "unwrap": "take the proxy away again, byte for byte",
}


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
    if arguments and arguments[0] in COMMANDS:
        code: int = import_module(f".{arguments[0]}", __package__).run(arguments[1:])
        return code
    parser = _parser()
    if arguments and not arguments[0].startswith("-"):
        parser.error(f"there is no command {arguments[0]!r}{console.nearest(arguments[0], COMMANDS)}")
    parser.parse_args(arguments)
    parser.error(f"a command is needed: {', '.join(COMMANDS)}")


def _parser() -> Parser:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}}  {purpose}" for name, purpose in COMMANDS.items())
    parser = Parser(
        prog="mcp-envelope",
        usage="mcp-envelope COMMAND ...",
        description="Every MCP tool result in one envelope: it fits the budget, stays valid, loses nothing.",
        epilog=f"commands:\n{commands}\n\nMore about one: mcp-envelope COMMAND --help\n",
    )
    parser.add_argument("--version", action="version", version=f"mcp-envelope {__version__}")
    return parser
