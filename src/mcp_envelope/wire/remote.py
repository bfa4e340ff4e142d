"""`--url`: the ways to a server that speaks HTTP, from standard input or from HTTP."""

from __future__ import annotations

import argparse
import os
import re
import socket
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from types import FrameType
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from ..cli.console import Misuse

_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE: Final = re.compile(r"[\x21-\x7e\xa1-\xff]([\x20-\x7e\xa1-\xff]*[\x21-\x7e\xa1-\xff])?")

# As many files as are wanted where there is no limit.
_FILES: Final = 1 << 16

if TYPE_CHECKING:
    from ..front import Front


def run(options: argparse.Namespace, make: Callable[[], Front]) -> int:
    headers = _headers(options)
    if not _is_address(options.url):
        raise Misuse(f"--url is an address such as http://127.0.0.1:8000/mcp; got {options.url!r}")
    if lacking := missing_extra(serves=bool(options.listen)):
        raise Misuse(f"--url: {lacking}")
    if options.listen:
        return _listen(options, headers, make())
    from .bridge import Bridge

    return Bridge(make(), options.url, headers, transport=options.transport, observe=options.observe).run()


def missing_extra(serves: bool = False) -> str | None:
    """What to say if the libraries for HTTP are not there."""
    for name in ("anyio", "httptools", *(("uvicorn",) if serves else ())):
        if find_spec(name) is None:
            return f"needs an extra ({name} is missing): pip install 'mcp-envelope[http]'"
    return None


def _is_address(url: str) -> bool:
    try:
        split = urlsplit(url)
        return (
            split.scheme in ("http", "https")
            and bool(split.hostname)
            and (split.port is None or split.port > 0)
        )
    except ValueError:
        return False


def _is_name(host: str) -> bool:
    try:
        return bool(host.encode("idna"))
    except UnicodeError:
        return False


def _headers(options: argparse.Namespace) -> dict[str, str]:
    """Headers whose values are secrets come from the environment, never from the command line."""
    headers: dict[str, str] = {}
    for text in options.header_env:
        name, equals, variable = text.partition("=")
        if not equals or not name.strip() or not variable.strip():
            raise Misuse(f"--header-env is NAME=VARIABLE; got {text!r}")
        if not _NAME.fullmatch(name.strip()):
            raise Misuse(f"--header-env: {name.strip()!r} is no name of a header")
        headers[name.strip()] = _variable(variable.strip())
    if options.bearer_env:
        headers["Authorization"] = f"Bearer {_variable(options.bearer_env)}"
    return headers


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise Misuse(f"the environment variable {name} is not set")
    if not _VALUE.fullmatch(value):
        raise Misuse(f"what the environment variable {name} holds cannot be sent in a header")
    return value


def _listen(options: argparse.Namespace, headers: dict[str, str], front: Front) -> int:
    import uvicorn

    from ..cli import console
    from .door import Door
    from .http import HttpProxy, is_loopback

    host, colon, port = options.listen.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not colon or not port.isdecimal() or int(port) > 65535 or not _is_name(host):
        raise Misuse(f"--listen is HOST:PORT, such as 127.0.0.1:8900; got {options.listen!r}")
    named = tuple(options.allow_host)
    app = HttpProxy(
        front,
        options.url,
        headers=headers,
        hosts=(*named, host),
        # What listens to the world has names that we cannot know, unless they are said.
        is_open=not is_loopback(host) and not named,
        observe=options.observe,
    )
    try:
        listening = _socket(host, int(port))
    except OSError as error:
        console.say("error", f"cannot listen on {options.listen}: {console.reason(error)}")
        return 1

    _make_ready(front)

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            app.leave()
            super().handle_exit(sig, frame)

    config = uvicorn.Config(
        app,
        http=Door,
        lifespan="on",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=5,
        # Those of the server behind are passed on.
        server_header=False,
        date_header=False,
        ws="none",
        proxy_headers=False,
    )
    server = Server(config)
    shown = f"[{host}]" if ":" in host else host
    console.say(
        "note", f"listening on http://{shown}:{listening.getsockname()[1]}, in front of {_shown(options.url)}"
    )
    server.run([listening])
    return 0 if server.started else 1


def _make_ready(front: Front) -> None:
    """Two connections for each call may be many files, and a failure has to be told even if there are too many."""
    from ..front import Front
    from .interceptor import Interceptor

    with suppress(ImportError, ValueError, OSError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _FILES if most == resource.RLIM_INFINITY else most
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    # Whatever it takes to tell a failure is loaded now, and the vault found; nobody hears of this one.
    unheard = Front(front.settings, vault="none", ledger=False, dialect=front.dialect)
    unheard.observers.append(lambda call: None)
    silent = Interceptor(unheard)
    called = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"","arguments":{}}}'
    silent.from_client(called)
    silent.failed(called, "", "UPSTREAM_UNAVAILABLE")
    front.keeping(None)


def _socket(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(2048)
    except OSError:
        listening.close()
        raise
    return listening


def _shown(url: str) -> str:
    """An address without what may be secret in it."""
    split = urlsplit(url)
    return f"{split.scheme}://{split.netloc.rpartition('@')[2]}{split.path}"
