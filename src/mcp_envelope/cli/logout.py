"""`mcp-envelope logout`: forget a login, and tell the authorization server that its token is of no use any more."""

from __future__ import annotations

from typing import Final

from ..extras import lacking
from . import console
from .console import BadInput, Parser
from .login import server_url

_DESCRIPTION: Final = """\
Forget the login to a server, and revoke its token. The client that was
registered for it is forgotten, too.
"""
_EPILOG: Final = """\
exit codes:
  0    done, or there was no login
  2    wrong usage
  3    the login cannot be deleted

examples:
  mcp-envelope logout https://example.com/mcp
  mcp-envelope status
"""


def run(arguments: list[str]) -> int:
    from ..login.store import LoginStore, Unstorable

    options = make_parser().parse_args(arguments)
    url, store = server_url(options.url), LoginStore()
    try:
        with store.lock(url):
            login = store.load(url)
            is_revoked = False
            if login is not None and login.has_token and login.server.get("revocation_endpoint"):
                if lacking("login") is None:
                    import anyio

                    from ..login import oauth

                    is_revoked = anyio.run(oauth.revoke, login)
            is_deleted = store.delete(url)
    except Unstorable as error:
        raise BadInput(str(error)) from None
    except OSError as error:
        raise BadInput(f"{store.folder} cannot be used: {console.reason(error)}") from None
    if not is_deleted:
        console.say("done", f"There is no login at {url}.")
    elif is_revoked:
        console.say("done", f"Logged out of {url}; its token is revoked.")
    else:
        console.say("done", f"Logged out of {url}; its token could not be revoked.")
    return console.OK


def make_parser() -> Parser:
    parser = Parser("logout", "URL", _DESCRIPTION, _EPILOG, takes="server")
    parser.add_argument("url", nargs="?", metavar="URL", type=console.plain_text, help="the server's address")
    return parser
