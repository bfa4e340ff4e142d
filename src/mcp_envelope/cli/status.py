"""`mcp-envelope status`: the logins, one a line, without anything secret."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from . import console
from .console import Parser

if TYPE_CHECKING:
    from ..login.store import Login

_DESCRIPTION: Final = """\
List the logins: the server, the state of its token, the issuer, the scopes, the
expiry, and where it is kept. Nothing is sent anywhere.
"""
_EPILOG: Final = """\
exit codes:
  0    every login has a valid token, or one that can be renewed
  1    at least one server needs a new login
  2    wrong usage

examples:
  mcp-envelope status
  mcp-envelope status --json
  mcp-envelope login https://example.com/mcp
"""
_WANTED: Final = 1
_NEEDED: Final = ("login needed", "more scopes needed", "expired")


def run(arguments: list[str]) -> int:
    from ..login.store import LoginStore

    options = make_parser().parse_args(arguments)
    logins = [_facts(login) for login in LoginStore().all()]
    if options.json:
        console.write_json(logins)
    elif not logins:
        console.say("done", "No logins.")
    for login in () if options.json else logins:
        console.write_text(
            "\t".join(console.printable(str(value)) for value in login.values() if value) + "\n"
        )
    return _WANTED if any(login["state"] in _NEEDED for login in logins) else console.OK


def _facts(login: Login) -> dict[str, Any]:
    left = None if login.expires is None else login.expires - time.time()
    if not login.has_token:
        state, until = "login needed", ""
    elif login.challenge is not None and login.challenge.wants_more:
        state, until = "more scopes needed", ""
    elif left is None:
        state, until = "good", ""
    elif left > 0:
        state = "good"
        until = f"{'renewed' if login.is_renewable else 'expires'} in {console.human_time(left)}"
    else:
        state, until = ("good", "renewed at the next call") if login.is_renewable else ("expired", "")
    return {
        "url": login.url,
        "state": state,
        "until": until,
        "issuer": login.issuer,
        "scope": login.scope,
        "grant": login.grant.replace("_", " "),
        "kept": "keyring" if login.in_keyring else "file",
    }


def make_parser() -> Parser:
    parser = Parser("status", "[options]", _DESCRIPTION, _EPILOG)
    parser.options()("--json", "print everything as JSON")
    return parser
