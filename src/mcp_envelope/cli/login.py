"""`mcp-envelope login`: log in to a server with a URL, so that the proxy can call it.

Strategy: what is asked for is checked first, then the flow runs, and the browser or the person does the rest. The
address to open goes to standard output where no browser is to be opened, and the redirect's address may be pasted
back, since the browser may run on another computer. Secrets are read from the environment or a file.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..extras import lacking
from . import console
from .console import BadInput, Misuse, Parser

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from ..login.oauth import Wanted
    from ..login.redirect import Listener
    from ..login.store import Grant, Login, LoginStore

_FAILED: Final = 1
_PATIENCE: Final = 300
_DESCRIPTION: Final = """\
Log in to a remote MCP server. From then on the proxy uses the login, and renews
its token, which belongs to this address and is sent nowhere else.
"""
_EPILOG: Final = """\
exit codes:
  0    done
  1    the login failed, was refused, or was not completed in time
  2    wrong usage
  3    a secret or the login cannot be read or written

examples:
  mcp-envelope login https://example.com/mcp
  mcp-envelope login https://example.com/mcp --no-browser
  mcp-envelope login https://example.com/mcp --client-id abc --redirect-port 8123
  mcp-envelope login https://example.com/mcp --client-credentials \\
      --client-id robot --client-secret-env SECRET --issuer https://login.example.com
  mcp-envelope status
  mcp-envelope logout https://example.com/mcp
"""


def run(arguments: list[str]) -> int:
    options = make_parser().parse_args(arguments)
    url = server_url(options.url)
    wanted_client = _check(options)
    require_extra()
    import anyio

    from ..login import oauth
    from ..login.store import LoginStore, Unstorable

    store = LoginStore()
    known = store.load(url)
    wanted = _wanted(options, known, wanted_client)
    try:
        login = anyio.run(_log_in, options, wanted, known)
        with store.lock(url):
            login = store.save(login)
    except (oauth.Refused, oauth.Unavailable) as error:
        console.say("error", f"not logged in: {error}")
        return _FAILED
    except TimeoutError:
        console.say("error", f"not logged in: the login was not completed within {options.timeout} seconds")
        return _FAILED
    except Unstorable as error:
        raise BadInput(str(error)) from None
    except OSError as error:
        raise BadInput(f"the login cannot be received or stored: {console.reason(error)}") from None
    console.say("done", f"Logged in to {url}, through {login.issuer or 'the server itself'}.")
    console.say(
        "done", f"Kept in {place(store, login)}. To undo: {console.command('mcp-envelope', 'logout', url)}"
    )
    return console.OK


def server_url(text: str | None) -> str:
    """The address that a login belongs to."""
    from ..login.store import canonical

    if text is None:
        raise Misuse("name the server: mcp-envelope login https://example.com/mcp")
    try:
        return canonical(text)
    except ValueError:
        raise Misuse(f"expected a server's address such as https://example.com/mcp, not {text!r}") from None


def require_extra() -> None:
    if lacking("login"):
        raise Misuse(f"a login {console.extra('login')}")


def place(store: LoginStore, login: Login) -> str:
    """Where the secrets of a login are."""
    from ..login.store import keyring_name

    return f"the keyring ({keyring_name()})" if login.in_keyring else f"a private file in {store.folder}"


def _check(options: argparse.Namespace) -> str:
    """Check what is asked for; returns the client's secret."""
    if options.client_secret_env and options.client_secret_file:
        raise Misuse("use either --client-secret-env or --client-secret-file")
    has_secret = options.client_secret_env or options.client_secret_file
    if (has_secret or options.private_key_file) and not options.client_id:
        raise Misuse("a client secret or key needs --client-id")
    if options.private_key_file and (has_secret or not options.client_credentials):
        raise Misuse("--private-key-file needs --client-credentials, and takes the place of a secret")
    if options.client_credentials and not (has_secret or options.private_key_file):
        raise Misuse("--client-credentials needs --client-id, and a secret or --private-key-file")
    if options.client_id and options.client_metadata_url:
        raise Misuse("use either --client-id or --client-metadata-url")
    document = options.client_metadata_url or "https://example.com/client"
    if not document.startswith("https://") or document.count("/") < 3 or document.endswith(".com/"):
        raise Misuse("--client-metadata-url must be an https address with a path")
    if options.client_secret_env:
        secret = os.environ.get(options.client_secret_env, "")
        if not secret:
            raise Misuse(f"the environment variable {options.client_secret_env} is not set")
        return secret
    if options.client_secret_file:
        with console.trouble(f"read {options.client_secret_file}"):
            return Path(options.client_secret_file).read_text().strip()
    return ""


def _wanted(options: argparse.Namespace, known: Login | None, secret: str) -> Wanted:
    """What is asked for; where nothing is, the client of the last login is used again."""
    from ..login.oauth import Wanted

    client_id, issuer = options.client_id or "", options.issuer or ""
    document = options.client_metadata_url or os.environ.get("MCP_ENVELOPE_CLIENT_METADATA_URL") or ""
    grant: Grant = "client_credentials" if options.client_credentials else "authorization_code"
    key_file = os.path.abspath(options.private_key_file) if options.private_key_file else ""
    if known is not None and not client_id and not options.client_metadata_url:
        document = document or known.client_metadata_url
        if known.is_registered_by_hand:
            client_id, secret = str(known.client.get("client_id", "")), known.secrets.client_secret
            grant, key_file, issuer = known.grant, known.key_file, issuer or known.issuer
    return Wanted(
        options.url,
        grant,
        options.scope or "",
        issuer,
        client_id,
        secret,
        "" if client_id else document,
        key_file,
    )


async def _log_in(options: argparse.Namespace, wanted: Wanted, known: Login | None) -> Login:
    import anyio

    from ..login import oauth
    from ..login.redirect import listening

    async def nothing(address: str) -> None:
        raise AssertionError("a machine was asked to log in")

    if wanted.grant == "client_credentials":
        return await oauth.log_in(wanted, known, None, nothing)
    port = options.redirect_port or (known.redirect_port if known else 0)
    is_fixed = options.redirect_port is not None or (known is not None and known.is_registered_by_hand)
    async with listening(port, is_fixed=is_fixed) as listener:

        async def show(address: str) -> None:
            _show(address, options.no_browser, listener)

        with anyio.fail_after(options.timeout):
            return await oauth.log_in(wanted, known, listener, show)


def _show(address: str, no_browser: bool, listener: Listener) -> None:
    if not no_browser:
        import webbrowser

        console.say("note", "opening your browser; if that fails, open this address, or use --no-browser:")
        console.say("hint", address)
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    else:
        console.write_text(f"{address}\n")
        console.say("note", "open this address, and log in")
        elsewhere = f"a browser on another computer ends up at an address like {listener.redirect_uri}?code=…"
        console.say("note", f"{elsewhere}; paste that address here")
        if sys.stdin is not None:
            import asyncio

            loop = asyncio.get_running_loop()
            threading.Thread(target=_read_pasted, args=(listener, loop), daemon=True).start()


def _read_pasted(listener: Listener, loop: AbstractEventLoop) -> None:
    """Runs in a thread of its own, which nobody waits for, since reading cannot be interrupted."""

    def take(line: str) -> None:
        if not listener.take(line):
            console.say("warning", "that is not the redirect address of this login")

    try:
        for line in sys.stdin:
            if line.strip():
                loop.call_soon_threadsafe(take, line)
    except (OSError, ValueError, RuntimeError):
        return


def make_parser() -> Parser:
    parser = Parser("login", "URL [options]", _DESCRIPTION, _EPILOG, takes="server")
    parser.add_argument("url", nargs="?", metavar="URL", type=console.plain_text, help="the server's address")
    text, number = console.plain_text, console.positive_number
    add = parser.options()
    add("--no-browser", "print the address to open, and let you paste the redirect's address")
    add(
        "--scope SCOPES",
        "request these scopes, separated by spaces (default: those that the server asks for)",
        text,
    )
    seconds = f"how long to wait for you (default: {_PATIENCE})"
    add("--timeout SECONDS", seconds, number, default=_PATIENCE)
    add = parser.options("how the authorization server knows this program")
    add("--client-id ID", "the id under which it was registered by hand", text)
    add("--client-secret-env VARIABLE", "the environment variable that has its secret", text)
    add("--client-secret-file FILE", "the file that has its secret", text)
    document = "the address of its client metadata document (default: MCP_ENVELOPE_CLIENT_METADATA_URL)"
    add("--client-metadata-url URL", document, text)
    add("--redirect-port PORT", "the port of the redirect address, if it was registered with one", number)
    add("--issuer URL", "use this authorization server, and no other", text)
    add = parser.options("logging in without a person")
    add("--client-credentials", "log in as this program itself")
    add("--private-key-file FILE", "authenticate with this key (PEM) instead of a secret", text)
    return parser
