"""`mcp-envelope hook`: what a coding agent runs after each call of a tool, to have the result sealed.

Strategy: the agent writes one JSON event and reads the answer; silence leaves the result as it is. Whatever goes
wrong here must not cost the user a result, so it is reported on standard error, and nothing is answered.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from . import console, proxy
from .console import Parser

if TYPE_CHECKING:
    from ..gateway import Gateway

_DESCRIPTION: Final = """\
Seal a tool's result that a coding agent passes on standard input. The agent's
plugin runs this; --plugin prints where that plugin is.
"""
_EPILOG: Final = """\
exit codes:
  0    done; without output, the result is left unchanged
  1    the event cannot be read; the result is left unchanged
  2    wrong usage

examples:
  claude --plugin-dir "$(mcp-envelope hook claude-code --plugin)"
  cp "$(mcp-envelope hook opencode --plugin)" ~/.config/opencode/plugin/mcp-envelope.js
"""
# The module and the plugin of each host.
HOSTS: Final = {"claude-code": ("claude_code", "claude-code"), "opencode": ("opencode", "opencode.js")}


def run(arguments: list[str]) -> int:
    options = make_parser().parse_args(arguments)
    module, plugin = HOSTS[options.host]
    if options.plugin:
        console.write_text(f"{Path(__file__).parents[1] / 'hosts' / 'plugins' / plugin}\n")
        return console.OK
    data = sys.stdin.buffer.read()
    host = import_module(f"...hosts.{module}", __name__)
    gateway = gateway_of(options.host)
    try:
        answer = host.answer(data, gateway)
    except Exception as error:
        console.say("error", f"the result is left unchanged: {type(error).__name__}: {error}")
        return 1
    finally:
        gateway.close()
    if answer is not None:
        console.write_out(answer)
    return console.OK


def gateway_of(server: str, vault: str | None = None) -> Gateway:
    """Return a gateway with the user's settings. What was only found in a project may lower budgets, no more."""
    from ..gateway import Gateway

    settings, place = proxy.settings_of(argparse.Namespace(vault=vault))
    return Gateway(settings, vault=place, server=server)


def make_parser() -> Parser:
    parser = Parser("hook", "HOST [--plugin]", _DESCRIPTION, _EPILOG, takes="host")
    parser.add_argument("host", choices=HOSTS, metavar="HOST", help=", ".join(HOSTS))
    parser.options()("--plugin", "print where the plugin of this host is")
    return parser
