"""`mcp-envelope trust`: accept a settings file that the proxy finds in a working folder.

A file is accepted as it is now: after a change it has to be accepted again.
"""

from __future__ import annotations

import os
from typing import Final

from ..config.trust import Accepted, digest
from . import console, files
from .console import BadInput, Misuse, Parser

_DESCRIPTION: Final = """\
Accept a settings file that the proxy finds in a project folder. Until then, the
file may only lower budgets. If it changes, it must be accepted again.
"""
_EPILOG: Final = """\
exit codes:
  0    done
  2    wrong usage
  3    the file cannot be read or parsed, or --remove names one that isn't accepted

examples:
  mcp-envelope trust ./mcp-envelope.toml
  mcp-envelope trust --list
  mcp-envelope trust --remove ./mcp-envelope.toml
"""


def run(arguments: list[str]) -> int:
    options = make_parser().parse_args(arguments)
    if sum((options.file is not None, options.list, options.remove is not None)) != 1:
        raise Misuse("name a file, or use --list or --remove FILE")
    accepted = Accepted()
    if options.list:
        for path, known in sorted(accepted.files().items()):
            console.write_text(f"{_state(path, known)}\t{console.printable(path)}\n")
        return console.OK
    try:
        if options.remove is None:
            accepted.add(options.file, files.check_config(options.file))
            console.say("done", f"accepted {options.file}; if it changes, accept it again")
        elif accepted.remove(options.remove):
            console.say("done", f"{options.remove} is no longer accepted")
        else:
            raise BadInput(f"{options.remove} is not accepted; see mcp-envelope trust --list")
    except OSError as error:
        raise BadInput(f"cannot write {accepted.path}: {console.reason(error)}") from None
    return console.OK


def _state(path: str, known: str) -> str:
    try:
        if not os.path.isfile(path):
            return "missing"
        return "accepted" if digest(files.read_bytes(path)) == known else "changed"
    except OSError:
        return "unreadable"


def make_parser() -> Parser:
    parser = Parser("trust", "FILE\n--list\n--remove FILE", _DESCRIPTION, _EPILOG)
    parser.add_argument("file", nargs="?", metavar="FILE", help="the settings file to accept")
    add = parser.options()
    add("--list", "print the accepted files: accepted, changed, missing or unreadable, and the path")
    add("--remove FILE", "stop accepting FILE")
    return parser
