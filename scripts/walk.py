"""How far one over-budget result walks through our code: `make walk`, or `python scripts/walk.py http fastmcp`.

Prints how many of our modules and functions the result passes, and how often control moves from one module to
another, so that a longer way is noticed. Everything runs in this process, with a vault in a temporary folder and
without the ledger. Two calls fill the caches, then the third is traced: on stdio from the server's response to the
frame for the client; over HTTP the whole exchange, from the ASGI application on; in FastMCP the whole call.
`--list` shows the modules, with the functions of each in the order in which they are first entered.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import FrameType
from typing import Any, Final

SOURCE: Final = Path(__file__).resolve().parents[1] / "src"
sys.path.insert(0, str(SOURCE))

from mcp_envelope.config import Settings  # noqa: E402
from mcp_envelope.gateway import Gateway  # noqa: E402

_OURS: Final = str(SOURCE / "mcp_envelope") + os.sep
_CALLS: Final = 3
_TOKENS: Final = 8000
_PAYLOAD: Final = {
    "rows": [{"id": n, "name": f"row number {n}", "score": n / 7} for n in range(1000)],
    "total": 1000,
}
_SCHEMA: Final = {
    "type": "object",
    "properties": {"rows": {"type": "array", "items": {"type": "object"}}, "total": {"type": "integer"}},
    "required": ["rows", "total"],
}
_TOOL: Final = {"name": "rows", "inputSchema": {"type": "object"}, "outputSchema": _SCHEMA}


class Walk:
    """The functions of ours that are entered while it is `on`, in any thread."""

    def __init__(self) -> None:
        self.functions: dict[str, list[str]] = {}
        self.switches = 0
        self._is_on = False
        self._last = ""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch this thread, and those that start meanwhile."""
        threading.setprofile(self._event)
        sys.setprofile(self._event)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    @contextmanager
    def on(self, is_on: bool = True) -> Iterator[None]:
        self._is_on = is_on
        try:
            yield
        finally:
            self._is_on = False

    def _event(self, frame: FrameType, event: str, _: object) -> None:
        if not self._is_on or event != "call" or not frame.f_code.co_filename.startswith(_OURS):
            return
        module = frame.f_code.co_filename[len(_OURS) : -len(".py")].replace(os.sep, ".")
        functions = self.functions.setdefault(module, [])
        if frame.f_code.co_qualname not in functions:
            functions.append(frame.f_code.co_qualname)
        self.switches += bool(self._last) and module != self._last
        self._last = module

    def summary(self) -> str:
        functions = sum(map(len, self.functions.values()))
        return f"{len(self.functions):3} modules  {functions:4} functions  {self.switches:4} switches"


def _message(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


def _response(request: bytes) -> bytes:
    """What the server behind a proxy answers."""
    asked = json.loads(request)
    result: dict[str, Any] = {"tools": [_TOOL]}
    if asked["method"] == "tools/call":
        text = {"type": "text", "text": json.dumps(_PAYLOAD)}
        result = {"content": [text], "structuredContent": _PAYLOAD}
    return _message(id=asked["id"], result=result)


def _requests() -> list[bytes]:
    calls = [_message(id=n, method="tools/call", params={"name": "rows"}) for n in range(1, _CALLS + 1)]
    return [_message(id=0, method="tools/list"), *calls]


def _gateway(folder: Path) -> Gateway:
    settings = Settings(None, {"MCP_ENVELOPE_TOKENS": str(_TOKENS)}, start=folder)
    return Gateway(settings, vault=str(folder / "vault.db"), ledger=False)


def stdio(folder: Path, walk: Walk) -> bytes:
    from mcp_envelope.proxy.interceptor import Interceptor

    interceptor = Interceptor(_gateway(folder))
    requests = _requests()
    for request in requests:
        interceptor.from_client(request)
        with walk.on(request is requests[-1]):
            [answer], _ = interceptor.from_server(_response(request))
    interceptor.close()
    return answer


def http(folder: Path, walk: Walk) -> bytes:
    from mcp_envelope.proxy.http import HttpProxy

    class Server(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = _response(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    async def run() -> bytes:
        proxy = HttpProxy(_gateway(folder), f"http://127.0.0.1:{server.server_port}/mcp")
        headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/mcp", "raw_path": b"/mcp", "query_string": b""}
        requests = _requests()
        for request in requests:
            incoming = [{"type": "http.request", "body": request, "more_body": False}]
            sent: list[dict[str, Any]] = []

            async def receive(incoming: list[dict[str, Any]] = incoming) -> dict[str, Any]:
                return incoming.pop() if incoming else await asyncio.Future()

            async def send(message: dict[str, Any], sent: list[dict[str, Any]] = sent) -> None:
                sent.append(message)

            with walk.on(request is requests[-1]):
                await proxy({**scope, "headers": headers, "http_version": "1.1"}, receive, send)
        await proxy.upstream.aclose()
        proxy.gateway.close()
        return b"".join(message.get("body", b"") for message in sent)

    answer = asyncio.run(run())
    server.shutdown()
    return answer


def fastmcp(folder: Path, walk: Walk) -> bytes:
    from fastmcp import Client, FastMCP

    from mcp_envelope.servers.fastmcp import EnvelopeMiddleware

    server: FastMCP[Any] = FastMCP("walk")

    @server.tool(output_schema=_SCHEMA)
    def rows() -> dict[str, Any]:
        return _PAYLOAD

    server.add_middleware(EnvelopeMiddleware(vault=str(folder / "vault.db"), ledger=False, budget=_TOKENS))

    async def run() -> bytes:
        async with Client(server) as client:
            await client.list_tools()
            for number in range(_CALLS):
                with walk.on(number == _CALLS - 1):
                    result = await client.call_tool_mcp("rows", {})
        return str(result.structured_content).encode()

    return asyncio.run(run())


_WAYS: Final[dict[str, Callable[[Path, Walk], bytes]]] = {"stdio": stdio, "http": http, "fastmcp": fastmcp}


def main() -> None:
    parser = argparse.ArgumentParser(description="Count the modules and functions that one result passes.")
    parser.add_argument("ways", nargs="*", metavar="|".join(_WAYS), help="default: stdio")
    parser.add_argument("--list", action="store_true", help="list the modules and their functions")
    options = parser.parse_args()
    for name in options.ways or ["stdio"]:
        if name not in _WAYS:
            parser.error(f"unknown: {name}; choose from {', '.join(_WAYS)}")
        walk = Walk()
        with tempfile.TemporaryDirectory() as folder, walk.watching():
            answer = _WAYS[name](Path(folder), walk)
        assert b"_envelope" in answer, "the result was not cut"
        print(f"{name:8} {walk.summary()}")
        if options.list:
            for module, functions in sorted(walk.functions.items()):
                print(f"  {module}: {', '.join(functions)}")


if __name__ == "__main__":
    main()
