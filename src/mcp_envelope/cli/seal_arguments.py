"""The arguments of `mcp-envelope seal`, and the words of its help."""

from __future__ import annotations

import argparse
from typing import Final, get_args

from ..budget import DEFAULT_TOKENS
from ..dialects import NAMES
from ..envelope import seal
from ..job import PROFILES
from ..meters import METERS
from ..payload import As
from . import console, files, vaults
from .console import Parser

_DESCRIPTION: Final = """\
Fit a tool's payload into a budget and print the MCP CallToolResult as JSON.
A payload that fits comes out byte for byte. One that does not is cut, stays
valid, and says what was left out; the whole is kept in a vault and can be read
with `mcp-envelope read`. Words for people go to standard error.
"""
_EPILOG: Final = """\
how the payload is read (--as auto):
  Valid JSON is JSON, anything else is text. A file named *.json must be JSON.
  What --error marks is text.

exit codes:
  0    sealed, cut or not, and whether or not the whole could be kept
  2    wrong usage
  3    a file cannot be read, understood or written; the message says where
  4    RESULT_TOO_LARGE: it cannot be cut to the budget (the result is printed)
  130  interrupted
  141  the reader of the output went away

examples:
  seq 1 5000 | mcp-envelope seal --tokens 200
  echo '{"hits": [{"id": 1, "score": 2}, {"id": 2, "score": 9}]}' > hits.json
  mcp-envelope seal hits.json --bytes 1000 --rank /hits:-score
  echo '{"type": "object", "required": ["hits"]}' > schema.json
  mcp-envelope seal hits.json --schema schema.json --widen --profile debug
  mcp-envelope seal hits.json --dialect transcend --tokens 800
  seq 1 5000 | mcp-envelope seal --tokens 200 --vault ./vault.db
"""


def _handle(text: str) -> str:
    try:
        seal("", handle=text)  # which knows what a handle looks like
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def parser() -> Parser:
    made = Parser(
        prog="mcp-envelope seal",
        usage="mcp-envelope seal [FILE] [--tokens N | --bytes N] [options]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add = made.add_argument
    add("file", nargs="?", default=files.STDIN, metavar="FILE", help="the payload (default: standard input)")

    budget = made.add_argument_group("the budget")
    limit = budget.add_mutually_exclusive_group().add_argument
    limit(
        "--tokens",
        type=console.whole_number,
        metavar="N",
        help="the most tokens that each lane (content, structuredContent) may have "
        f"(default: {DEFAULT_TOKENS})",
    )
    limit("--bytes", type=console.whole_number, metavar="N", help="the same in bytes")
    budget.add_argument(
        "--meter",
        type=console.one_of(METERS),
        metavar="METER",
        help="what counts: bytes, chars4, estimate (the default for tokens) or exact (an extra)",
    )

    add = made.add_argument_group("the payload").add_argument
    add(
        "--as",
        dest="read_as",
        type=console.one_of(get_args(As)),
        default="auto",
        metavar="KIND",
        help="auto, json, text, or blocks (a JSON list of MCP content blocks)",
    )
    add("--schema", metavar="FILE", help="the tool's output schema, which the result keeps to")
    add("--widen", action="store_true", help="first make room for the notice in the schema")
    add("--wrap", action="store_true", help='the schema is that of {"result": payload}')
    add(
        "--rank",
        action="append",
        default=[],
        metavar="PATH:KEY",
        help="order the list at PATH before it is cut: /hits:-score, /refs:@file,line "
        "(- down, @ grouped; may be repeated)",
    )
    add(
        "--error",
        action="store_true",
        help="the payload is the text of a failure: its beginning and its end stay",
    )

    add = made.add_argument_group("the shape").add_argument
    add(
        "--dialect",
        type=console.one_of(NAMES),
        metavar="NAME",
        help="native (default), ctxo, transcend, gel or scalpel",
    )
    add("--config", metavar="FILE", help="settings for --tool from a mcp-envelope.toml; options go first")
    add(
        "--tool",
        type=console.plain_text,
        metavar="NAME",
        help="the tool's name, for the profiles beyond minimal",
    )
    add(
        "--profile",
        type=console.one_of(PROFILES),
        metavar="PROFILE",
        help="how much is told: minimal (default), standard or debug",
    )
    add(
        "--handle", type=_handle, metavar="NAME", help="the whole payload is stored elsewhere under this name"
    )
    add("--hint", type=console.plain_text, metavar="TEXT", help="the next step, when something was cut")
    add(
        "--warning",
        type=console.plain_text,
        action="append",
        default=[],
        metavar="TEXT",
        help="a warning to pass on (may be repeated)",
    )

    vaults.add_arguments(made, config=False)

    add = made.add_argument_group("the output").add_argument
    add(
        "--output",
        default=files.STDIN,
        metavar="FILE",
        help="write the result there (default: standard output)",
    )
    add("-q", "--quiet", action="store_true", help="no summary: only warnings and errors")
    return made
