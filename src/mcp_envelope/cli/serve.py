"""`mcp-envelope serve`: an MCP server over stdio that has `envelope_read` alone.

It goes beside a hook or a guardrail: whatever sealed the results, this reads the rest from the same vault.
"""

from __future__ import annotations

import sys
from typing import Final

from . import console
from .console import Misuse, Parser

_DESCRIPTION: Final = """\
Serve envelope_read over standard input and output, for results that a hook or a
guardrail has cut. The proxy, and servers with an envelope, do not need this.
"""
_EPILOG: Final = """\
exit codes:
  0    the client has disconnected
  2    wrong usage

examples, the second in a client's configuration:
  mcp-envelope serve --vault valkey://localhost:6379
  {"mcpServers": {"results": {"command": "mcp-envelope", "args": ["serve"]}}}
"""


def run(arguments: list[str]) -> int:
    options = make_parser().parse_args(arguments)
    from ..hosts.reader import serve
    from .hook import gateway_of

    try:
        gateway = gateway_of("serve", options.vault)
    except ValueError as error:
        raise Misuse(f"--vault: {error}") from None
    console.say_if_started_by_hand("A client starts it with: mcp-envelope serve")
    try:
        serve(gateway, sys.stdin.buffer, sys.stdout.buffer)
    finally:
        gateway.close()
    return console.OK


def make_parser() -> Parser:
    parser = Parser("serve", "[options]", _DESCRIPTION, _EPILOG)
    parser.vault_option()
    return parser
