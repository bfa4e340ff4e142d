"""A server made with the official SDK, as an application or as a program.

    python -m tests.proxy.sdk PORT KIND
    python -m tests.proxy.sdk stdio

KIND is `http` (streamable, both eras), `json` (the same, with JSON bodies), `stateless`, `resumable` (events are
kept, and streams can be resumed), or `sse` (the legacy transport). Tools tell what happened to them through
`events`, a tool itself, so that a test can ask for it from another connection.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import anyio
import mcp_types as types
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.streamable_http import EventCallback, EventId, EventMessage, EventStore, StreamId
from pydantic import BaseModel


class Row(BaseModel):
    id: int
    name: str


class Rows(BaseModel):
    rows: list[Row]


class Answer(BaseModel):
    colour: str


class Events(EventStore):
    """Events in memory, for streams that are taken up again."""

    def __init__(self) -> None:
        self._kept: list[tuple[StreamId, Any]] = []

    async def store_event(self, stream_id: StreamId, message: Any) -> EventId:
        self._kept.append((stream_id, message))
        return str(len(self._kept))

    async def replay_events_after(
        self, last_event_id: EventId, send_callback: EventCallback
    ) -> StreamId | None:
        at = int(last_event_id)
        stream = self._kept[at - 1][0]
        for number, (name, message) in enumerate(self._kept[at:], at + 1):
            if name == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


def make() -> MCPServer:
    happened: list[str] = []
    server = MCPServer("sdk", log_level="CRITICAL")

    @server.tool()
    def rows(count: int, tag: str = "row") -> Rows:
        return Rows(rows=[Row(id=number, name=f"{tag} {number}") for number in range(count)])

    @server.tool(structured_output=False)
    def text(lines: int) -> str:
        return "\n".join(f"line {number} of many" for number in range(lines))

    @server.tool(structured_output=False)
    def fail(size: int) -> str:
        raise ValueError("wrong " * size)

    @server.tool(structured_output=False)
    async def wait(name: str, seconds: float, ctx: Context[Any, Any]) -> str:
        """Tells its progress, and in `events` how it ended."""
        happened.append(f"{name} began")
        try:
            for step in range(int(seconds * 20)):
                await ctx.report_progress(step + 1, seconds * 20)
                await anyio.sleep(0.05)
        except BaseException:
            happened.append(f"{name} was cancelled")
            raise
        happened.append(f"{name} ended")
        return f"{name} is done"

    @server.tool(structured_output=False)
    async def part(name: str, ctx: Context[Any, Any]) -> str:
        """Closes its stream before it answers: who wants the answer takes the stream up again."""
        await ctx.report_progress(1, 3)
        await ctx.close_sse_stream()
        await ctx.report_progress(2, 3)
        # What happens while the stream is being taken up is lost in the SDK's server: that is its own matter.
        await anyio.sleep(0.6)
        return f"{name} after all " + "x" * 50_000

    @server.tool(structured_output=False)
    async def ask(ctx: Context[Any, Any]) -> str:
        """What the client's user says."""
        answer = await ctx.elicit("Which colour?", Answer)
        return f"The answer is {answer!r}"

    @server.tool(structured_output=False)
    async def sample(ctx: Context[Any, Any]) -> str:
        """What the client's model says."""
        said = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="2+2?"))
        with warnings.catch_warnings():
            # Out of date in the newest protocol, and spoken by many.
            warnings.simplefilter("ignore")
            result = await ctx.session.create_message(messages=[said], max_tokens=10)
        return f"The model says {result.content}"

    @server.tool(structured_output=False)
    async def tell(count: int, ctx: Context[Any, Any]) -> str:
        """Notifications that belong to no request, so that they come on the stream that merely listens."""
        for number in range(count):
            await ctx.session.send_resource_updated(f"test://{number}")
        return "told"

    @server.tool(structured_output=False)
    def events() -> str:
        return "\n".join(happened)

    @server.tool(structured_output=False)
    def headers(ctx: Context[Any, Any]) -> str:
        request = ctx.request_context.request
        assert request is not None
        return "\n".join(f"{name}: {value}" for name, value in request.headers.items())

    return server


def app(kind: str, **more: Any) -> Any:
    server = make()
    if kind == "sse":
        return server.sse_app()
    if kind == "resumable":
        more = {"event_store": Events(), "retry_interval": 50, **more}
    return server.streamable_http_app(
        json_response=kind == "json", stateless_http=kind == "stateless", **more
    )


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        make().run("stdio")
        sys.exit()
    import socket

    import uvicorn

    listening = socket.create_server(("127.0.0.1", int(sys.argv[1])))
    config = uvicorn.Config(app(sys.argv[2]), log_level="critical", ws="none", timeout_graceful_shutdown=1)
    print("ready", flush=True)
    uvicorn.Server(config).run([listening])
