"""The end of a login in a browser: one redirect to a port of this computer, or its address pasted by hand.

Strategy: the listener takes one GET of one path, under its own name, with the `state` of the login that waits;
that is the answer, and then it is gone. Anything else gets an error and changes nothing, so that no web page and
no other program can end a login or slip in a code of its own. The page that it shows loads nothing and passes
nothing on.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

_HOST: Final = "127.0.0.1"
_PATH: Final = "/callback"
_LARGEST: Final = 1 << 16
_PATIENCE: Final = 10.0
_HEAD: Final = (
    "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {size}\r\n"
    "cache-control: no-store\r\nreferrer-policy: no-referrer\r\n"
    "content-security-policy: default-src 'none'\r\nconnection: close\r\n\r\n"
)
_PAGE: Final = "<!doctype html><meta charset=utf-8><title>mcp-envelope</title><p>{words}\n"
_DONE: Final = (
    "mcp-envelope has the answer. You can close this page, and look at where you started the login."
)
_NOT_OURS: Final = "This is not what mcp-envelope waits for."


class AuthorizationResponse(NamedTuple):
    """What the authorization server said, by way of the browser."""

    code: str = ""
    state: str = ""
    issuer: str | None = None
    error: str = ""


class Listener:
    """Waits for the answer to one login at a time."""

    def __init__(self, port: int) -> None:
        self.redirect_uri = f"http://{_HOST}:{port}{_PATH}"
        self._names = (f"{_HOST}:{port}", f"localhost:{port}")
        self._state = ""
        self._answer: asyncio.Future[AuthorizationResponse] = asyncio.get_running_loop().create_future()

    def expect(self, authorization_url: str) -> None:
        """The answer to come is the one to this address."""
        self._state = _first(urlsplit(authorization_url).query, "state")

    async def answer(self) -> AuthorizationResponse:
        return await self._answer

    def take(self, address: str) -> bool:
        """Take the address of a redirect, wherever it was read; returns whether it is the answer."""
        with suppress(ValueError):
            split = urlsplit(address.strip())
            found = _answer(split.query)
            # Bytes, as text that isn't ASCII cannot be compared.
            is_ours = self._state and hmac.compare_digest(found.state.encode(), self._state.encode())
            if split.path == _PATH and is_ours and (found.code or found.error) and not self._answer.done():
                self._answer.set_result(found)
                return True
        return False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                is_taken = self._is_for_us(head) and self.take(head.split(" ", 2)[1])
                page = _PAGE.format(words=_DONE if is_taken else _NOT_OURS)
                status = "200 OK" if is_taken else "400 Bad Request"
                writer.write((_HEAD.format(status=status, size=len(page)) + page).encode())
                await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    def _is_for_us(self, head: str) -> bool:
        """A GET under our own name: a page elsewhere may have pointed its own name here."""
        first, *lines = head.split("\r\n")
        hosts = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("host:")]
        return first.startswith(f"GET {_PATH}?") and len(hosts) == 1 and hosts[0].lower() in self._names


def _answer(query: str) -> AuthorizationResponse:
    said = parse_qs(query, max_num_fields=50)
    if any(len(values) > 1 for values in said.values()):
        return AuthorizationResponse()
    issuer = said.get("iss", [None])[0]
    return AuthorizationResponse(
        _first(query, "code"), _first(query, "state"), issuer, _first(query, "error")
    )


def _first(query: str, name: str) -> str:
    return parse_qs(query, max_num_fields=50).get(name, [""])[0]


@asynccontextmanager
async def listening(port: int = 0, *, is_fixed: bool = False) -> AsyncIterator[Listener]:
    """Listen on a port of this computer: on that one, or on another if it is taken and need not be that one.

    Raises OSError if it cannot.
    """
    listeners: list[Listener] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await listeners[0].serve(reader, writer)

    try:
        server = await asyncio.start_server(serve, _HOST, port, limit=_LARGEST)
    except OSError:
        if is_fixed or not port:
            raise
        server = await asyncio.start_server(serve, _HOST, 0, limit=_LARGEST)
    listeners.append(Listener(server.sockets[0].getsockname()[1]))
    try:
        yield listeners[0]
    finally:
        server.close()
        # A browser that keeps its connection open must not keep us.
        for _ in range(2):
            await asyncio.sleep(0)
