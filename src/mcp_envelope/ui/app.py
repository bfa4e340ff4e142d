"""The page's server: a Starlette application on loopback.

Strategy: every address begins with a token that is in the URL the command prints, so nobody else on the machine
can guess one, and the page needs no cookie. `Host` and `Origin` are checked besides, so that no web page reaches
it through a name of its own. The page is three static files; everything else is JSON, which the page puts into
text nodes and nowhere else. New calls come as server-sent events.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from hmac import compare_digest
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ..outcome import Failure
from ..vault.store import Damaged, StoreError
from .inspector import Inspector, answer_to

_STATIC: Final = Path(__file__).parent / "static"
_KINDS: Final = {
    "index.html": "text/html; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
}
_HEADERS: Final = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
_EVERY: Final = 0.5  # seconds between two looks at the ledger


def create_app(inspector: Inspector, token: str, hosts: frozenset[str]) -> ASGIApp:
    """Return the application; `hosts` are the values of `Host` by which it may be called."""
    routes = [Route("/", _static("index.html"))]
    routes += [Route(f"/{name}", _static(name)) for name in ("style.css", "page.js")]

    def asked(path: str, answer: Callable[[Request], Any]) -> None:
        async def endpoint(request: Request) -> Response:
            try:
                return _json(await run_in_threadpool(answer, request))
            except (Failure, StoreError, Damaged) as error:
                return _json(answer_to(error), 400)

        routes.append(Route(path, endpoint))

    asked("/about", lambda request: inspector.about())
    asked("/calls", lambda request: inspector.calls(_number(request, "before")))
    asked("/totals", lambda request: inspector.totals(_text(request, "by")))
    asked("/settings", lambda request: inspector.settings(_text(request, "tool")))
    asked(
        "/tree",
        lambda request: inspector.tree(
            _text(request, "handle"), _text(request, "path"), _number(request, "offset") or 0
        ),
    )
    asked(
        "/lanes",
        lambda request: inspector.lanes(
            _text(request, "handle"),
            _text(request, "client"),
            _text(request, "dialect"),
            _number(request, "tokens"),
        ),
    )
    asked(
        "/read",
        lambda request: inspector.read(
            _text(request, "handle"),
            {name: value for name, value in request.query_params.items() if name != "handle"},
        ),
    )

    async def events(request: Request) -> Response:
        return StreamingResponse(
            _new_calls(inspector, _number(request, "after") or 0), media_type="text/event-stream"
        )

    routes.append(Route("/events", events))
    return Guard(Starlette(routes=routes), token, hosts)


class Guard:
    """Lets nobody through who doesn't have the token, or comes from another page."""

    def __init__(self, app: ASGIApp, token: str, hosts: frozenset[str]) -> None:
        self._app = app
        self._prefix = f"/{token}/"
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, guarded)
            return
        # What follows knows nothing of the token.
        await self._app(
            {**scope, "path": scope["path"][len(self._prefix) - 1 :], "raw_path": b""}, receive, guarded
        )

    def _refusal(self, scope: Scope) -> Response | None:
        headers = [(name, value.decode("latin-1")) for name, value in scope["headers"]]
        named = [value for name, value in headers if name == b"host"]
        origins = [value for name, value in headers if name == b"origin"]
        if len(named) != 1 or named[0] not in self._hosts:
            return PlainTextResponse("This address is not for that host.", 421)
        if any(origin != f"http://{named[0]}" for origin in origins):
            return PlainTextResponse("Other pages may not ask.", 403)
        if not compare_digest(scope["path"][: len(self._prefix)].encode(), self._prefix.encode()):
            return PlainTextResponse("Use the address that mcp-envelope ui has printed.", 404)
        return None


def _json(value: Any, status: int = 200) -> Response:
    # Some settings are read-only mappings.
    return Response(msgspec.json.encode(value, enc_hook=dict), status, media_type="application/json")


def _static(name: str) -> Callable[[Request], Response]:
    def endpoint(request: Request) -> Response:
        return Response((_STATIC / name).read_bytes(), media_type=_KINDS[name])

    return endpoint


async def _new_calls(inspector: Inspector, after: int) -> AsyncIterator[str]:
    yield ": connected\n\n"
    while True:
        try:
            calls = await run_in_threadpool(inspector.newer, after)
        except StoreError:
            calls = []  # the file is being written, or replaced
        for call in calls:
            after = call["number"]
            yield f"id: {after}\ndata: {json.dumps(call)}\n\n"
        await asyncio.sleep(_EVERY)


def _text(request: Request, name: str) -> str:
    return request.query_params.get(name, "")


def _number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name, "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise Failure("BAD_ARGS", f"{name} is a number from 0 up.")
    return int(text)
