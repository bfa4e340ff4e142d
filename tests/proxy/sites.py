"""Servers for the tests of HTTP: any ASGI application on a free loopback port, until the `with` block ends.

Strategy: what is tested is real sockets, so every site is a uvicorn in a thread of its own. `Scripted` is a server
that answers what a test tells it to and remembers exactly what it was sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import uvicorn
from mcp import Client

from mcp_envelope.config import Settings
from mcp_envelope.gateway import Gateway
from mcp_envelope.proxy.http import HttpProxy
from mcp_envelope.proxy.server import HttpProtocol

App = Callable[[Any, Any, Any], Awaitable[None]]
MODERN = "2026-07-28"
OLD = "2025-11-25"


class _Server(uvicorn.Server):
    """One that ends when it is told, and not at its next look at the clock."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._told: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    async def main_loop(self) -> None:
        told = asyncio.Event()
        self._told = asyncio.get_running_loop(), told
        await told.wait()

    def end(self) -> None:
        while self._told is None:
            time.sleep(0.001)
        loop, told = self._told
        loop.call_soon_threadsafe(told.set)


@contextlib.contextmanager
def serving(
    app: App, *, lifespan: Any = "auto", listening: socket.socket | None = None, **more: Any
) -> Iterator[str]:
    """The address at which the application answers; `listening`, if its port has to be known before."""
    listening = listening or socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        log_level="critical",
        access_log=False,
        lifespan=lifespan,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=1,
        ws="none",
        **more,
    )
    server = _Server(config)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.002)
        assert thread.is_alive(), "the server did not start"
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.end()
        thread.join(10)
        listening.close()
        assert not thread.is_alive(), "the server did not end"


@contextlib.contextmanager
def proxied(url: str, folder: Path, **more: Any) -> Iterator[tuple[str, HttpProxy]]:
    """A proxy in front of an address, and the address of the proxy; options are `Front`'s or `HttpProxy`'s."""
    kept: dict[str, Any] = {name: more.pop(name) for name in ("vault", "dialect") if name in more}
    tokens = more.pop("tokens", 2000)
    limit = more.pop("connections", None)
    said = {} if tokens is None else {"MCP_ENVELOPE_TOKENS": str(tokens)}
    settings = Settings(None, said, say=lambda problem: None)
    kept.setdefault("vault", str(folder / "vault.db"))
    gateway = Gateway(settings, ledger=False, **kept)
    app = HttpProxy(gateway, url, **more)
    most = None if limit is None else limit + 1
    with serving(app, lifespan="on", http=HttpProtocol, limit_concurrency=most) as address:
        yield address, app


@dataclass
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    query: str
    headers: list[tuple[str, str]]
    body: bytes
    # How many others were under way when it came.
    beside: int = 0

    def header(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key == name]
        assert len(found) < 2, f"{name} came {len(found)} times"
        return found[0] if found else None

    def headers_of(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


@dataclass
class Reply:
    status: int = 200
    headers: list[tuple[str, str]] = field(default_factory=list)
    # One piece after the other; a number is a pause in seconds, before the headers too, None breaks off.
    parts: list[bytes | float | None] = field(default_factory=list)


class Scripted:
    """An application whose replies a test gives. `gone` counts clients that left before the end."""

    def __init__(self, script: Callable[[Seen], Reply]) -> None:
        self._script = script
        self.seen: list[Seen] = []
        self.gone = 0
        self.sent = 0
        self._under_way: set[int] = set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        seen = Seen(
            scope["method"],
            scope["raw_path"].decode(),
            scope["query_string"].decode(),
            [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]],
            body,
            len(self._under_way),
        )
        self.seen.append(seen)
        reply = self._script(seen)
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in reply.headers]
        answering = asyncio.create_task(self._answer(reply, raw, send))
        leaving = asyncio.create_task(_disconnected(receive))
        await asyncio.wait([answering, leaving], return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        if not answering.done():
            self.gone += 1
            answering.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await answering

    async def _answer(self, reply: Reply, raw: list[tuple[bytes, bytes]], send: Any) -> None:
        self._under_way.add(id(raw))
        parts = list(reply.parts)
        while parts and isinstance(pause := parts[0], float):
            await asyncio.sleep(pause)
            del parts[0]
        await send({"type": "http.response.start", "status": reply.status, "headers": raw})
        for part in parts:
            if part is None:
                raise ConnectionError("in the middle")
            if isinstance(part, float):
                await asyncio.sleep(part)
            else:
                await send({"type": "http.response.body", "body": part, "more_body": True})
                self.sent += len(part)
        # Before the client can know it.
        self._under_way.discard(id(raw))
        await send({"type": "http.response.body", "body": b""})


@contextlib.contextmanager
def hanging_up() -> Iterator[str]:
    """The address of a server that takes requests and closes the connection without a word."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                talking, _ = listening.accept()
                with talking:
                    talking.recv(1 << 16)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(5)


@contextlib.contextmanager
def talking(talk: Callable[[socket.socket], None]) -> Iterator[tuple[str, list[socket.socket]]]:
    """A server that is told what to do with each connection, and the connections that it had."""
    connections: list[socket.socket] = []

    def run(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            talk(connection)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connections.append(listening.accept()[0])
                threading.Thread(target=run, args=(connections[-1],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", connections
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            for connection in connections:
                connection.close()


async def _disconnected(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


# -- messages -------------------------------------------------------------------------------------------------


def json_reply(message: Any, status: int = 200, *headers: tuple[str, str]) -> Reply:
    body = message if isinstance(message, bytes) else msgspec.json.encode(message)
    sized = ("content-length", str(len(body)))
    return Reply(status, [("content-type", "application/json"), sized, *headers], [body])


def stream_reply(*events: bytes | float | None, headers: tuple[tuple[str, str], ...] = ()) -> Reply:
    return Reply(200, [("content-type", "text/event-stream"), *headers], list(events))


def event(message: Any, identifier: str | None = None) -> bytes:
    data = message if isinstance(message, bytes) else msgspec.json.encode(message)
    named = b"" if identifier is None else b"id: %b\n" % identifier.encode()
    return b"event: message\n%bdata: %b\n\n" % (named, data)


def result(identifier: Any, value: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identifier, "result": value}


def rows(count: int) -> dict[str, Any]:
    data = {"rows": [{"id": number, "name": f"row {number}"} for number in range(count)]}
    return {
        "content": [{"type": "text", "text": msgspec.json.encode(data).decode()}],
        "structuredContent": data,
    }


ROWS_SCHEMA = {
    "type": "object",
    "properties": {"rows": {"type": "array", "items": {"type": "object"}}},
    "required": ["rows"],
    "additionalProperties": False,
}


def tools(*entries: dict[str, Any]) -> dict[str, Any]:
    own = {"name": "rows", "inputSchema": {"type": "object", "properties": {}}, "outputSchema": ROWS_SCHEMA}
    return {"tools": list(entries) or [own]}


def meta(client: str = "test") -> dict[str, Any]:
    prefix = "io.modelcontextprotocol/"
    info = {"name": client, "version": "1"}
    return {
        f"{prefix}protocolVersion": MODERN,
        f"{prefix}clientInfo": info,
        f"{prefix}clientCapabilities": {},
    }


def request(method: str, identifier: Any = 1, modern: bool = False, **params: Any) -> dict[str, Any]:
    if modern:
        params["_meta"] = {**meta(), **params.get("_meta", {})}
    return {"jsonrpc": "2.0", "id": identifier, "method": method, **({"params": params} if params else {})}


def call(tool: str = "rows", identifier: Any = 1, modern: bool = False, **arguments: Any) -> dict[str, Any]:
    return request("tools/call", identifier, modern, name=tool, arguments=arguments)


def post(
    url: str,
    message: Any,
    headers: dict[str, str] | None = None,
    *,
    modern: bool = False,
    path: str = "/mcp",
    through: httpx2.Client | None = None,
) -> httpx2.Response:
    """As a client of either era would, on a connection of its own or through another client's."""
    sent = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    sent["mcp-protocol-version"] = MODERN if modern else OLD
    if modern and isinstance(message, dict):
        sent["mcp-method"] = message["method"]
        if "name" in message.get("params", {}):
            sent["mcp-name"] = message["params"]["name"]
    body = message if isinstance(message, bytes) else msgspec.json.encode(message)
    with contextlib.nullcontext(through) if through else client() as talking:
        return talking.post(url + path, content=body, headers={**sent, **(headers or {})})


def client(**options: Any) -> httpx2.Client:
    # Nothing that the surroundings say may lead a test elsewhere.
    return httpx2.Client(trust_env=False, timeout=30, verify=False, **options)


def messages(response: httpx2.Response) -> list[Any]:
    """What a reply says, as JSON or as events."""
    if response.headers["content-type"].startswith("text/event-stream"):
        lines = response.content.split(b"\n")
        return [msgspec.json.decode(line[6:]) for line in lines if line.startswith(b"data: {")]
    return [msgspec.json.decode(response.content)]


def call_at_once(clients: Sequence[Client]) -> None:
    """Each client makes six calls at a time beside the others, and gets its own answers, every other one cut."""

    async def one(number: int, connecting: Client) -> None:
        async with connecting as client:
            calls = [{"count": 2 if step % 2 else 3000, "tag": f"{number}-{step}"} for step in range(6)]
            results = await asyncio.gather(*[client.call_tool("rows", arguments) for arguments in calls])
        for step, result in enumerate(results):
            assert result.structured_content["rows"][0]["name"] == f"{number}-{step} 0"
            assert ("_envelope" in result.structured_content) == (step % 2 == 0)

    async def run() -> None:
        await asyncio.gather(*[one(*each) for each in enumerate(clients)])

    asyncio.run(run())


def structured(response: httpx2.Response) -> Any:
    return messages(response)[-1]["result"]["structuredContent"]


def problem(message: Any) -> str:
    """The code of a coded failure."""
    assert message["result"]["isError"] is True
    notice = message["result"]["_meta"]["io.github.mcp-envelope/notice"]
    return str(notice["error"]["code"])
