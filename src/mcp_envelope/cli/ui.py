"""`mcp-envelope ui`: a page that shows calls as they pass, what was cut in them, and what was saved."""

from __future__ import annotations

import argparse
import secrets
import socket
import webbrowser
from contextlib import suppress
from typing import Final

from ..extras import lacking
from . import console, settings
from .console import Misuse, Parser

_DESCRIPTION: Final = """\
Watch the envelope at work, in the browser: calls as they pass, what was kept
and what was cut, what each client would show its model, and what was saved.
It reads the ledger and the vault, and changes nothing.
"""
_EPILOG: Final = """\
The address contains a token that is new each time: anyone who has the address
can read what is stored. Stop it with Ctrl-C.

exit codes:
  0    stopped
  1    the port is taken
  2    wrong usage
  3    the --config file cannot be read

examples:
  mcp-envelope ui
  mcp-envelope ui --port 8920 --no-browser
  mcp-envelope ui --vault ./vault.db
"""
_TAKEN: Final = 1


def run(arguments: list[str]) -> int:
    options = make_parser().parse_args(arguments)
    if lacking("ui"):
        raise Misuse(f"this command {console.extra('ui')}")
    import uvicorn

    from ..ui.app import create_app
    from ..ui.inspector import Inspector
    from ..vault.ledger import Ledger

    policy = settings.policy(options.config)
    address = settings.vault_address(options.vault, options.config, policy)
    try:
        listening = socket.create_server(("127.0.0.1", options.port))
    except OSError as error:
        console.say("error", f"cannot listen on port {options.port}: {console.reason(error)}")
        return _TAKEN
    port, token, ledger = listening.getsockname()[1], secrets.token_urlsafe(16), Ledger()
    with listening, address.opened() as vault:
        inspector = Inspector(vault, ledger, settings.for_proxy(options.config))
        hosts = frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost"))
        app = create_app(inspector, token, hosts)
        url = f"http://127.0.0.1:{port}/{token}/"
        console.write_text(f"{url}\n")
        console.flush()
        if not options.no_browser and console.is_terminal():
            webbrowser.open(url)
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))
        with suppress(KeyboardInterrupt):  # which is how to stop it
            server.run(sockets=[listening])
    ledger.close()
    return console.OK


def make_parser() -> Parser:
    parser = Parser("ui", "[options]", _DESCRIPTION, _EPILOG)
    add = parser.options()
    add("--port PORT", "the port to listen on (default: any free one)", _port, default=0)
    add("--no-browser", "only print the address")
    settings.vault_options(parser)
    return parser


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 65_536:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is not a port, from 1 to 65535")
    return int(text)
