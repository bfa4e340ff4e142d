"""A server with everything that the conformance suite looks at, in both eras, over streamable HTTP on loopback.

    python -m tests.conformance.server PORT

It says `ready` on standard output when it listens. Port 0 is any that is free; the address is in that line.
"""

from __future__ import annotations

import json
import logging
import re
import socket
import sys
import warnings
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import uvicorn
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CompleteRequestParams,
    GetPromptRequestParams,
    JSONRPCMessage,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    SetLevelRequestParams,
    SubscribeRequestParams,
    UnsubscribeRequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

from .tasks import TASKS
from .tools import BUS, TOOLS, schema_of
from .wire import IMAGE, PIXEL, Call, Context, Json, ask, embedded, text, wanted

Params = TypeVar("Params", bound=BaseModel)
_NAME: Final = "conformance-fixture"
_CACHED: Final[Mapping[CacheableMethod, CacheHint]] = {
    "server/discover": CacheHint(60_000, "public"),
    "tools/list": CacheHint(60_000, "public"),
    "prompts/list": CacheHint(60_000, "public"),
    "resources/list": CacheHint(60_000, "public"),
    "resources/templates/list": CacheHint(60_000, "public"),
    "resources/read": CacheHint(0, "private"),
}
_RESOURCES: Final[dict[str, Json]] = {
    "test://static-text": {
        "mimeType": "text/plain",
        "text": "This is the content of the static text resource.",
    },
    "test://static-binary": {"mimeType": "image/png", "blob": PIXEL},
    "test://watched-resource": {"mimeType": "text/plain", "text": "This one may be subscribed to."},
}
_TEMPLATE: Final = re.compile(r"test://template/([^/]+)/data")
_PROMPTS: Final[dict[str, list[str]]] = {
    "test_simple_prompt": [],
    "test_prompt_with_arguments": ["arg1", "arg2"],
    "test_prompt_with_embedded_resource": ["resourceUri"],
    "test_prompt_with_image": [],
    "test_input_required_result_prompt": [],
}


class Events(EventStore):
    """What was sent, so that a client that lost its stream can have the rest."""

    def __init__(self) -> None:
        self._sent: list[tuple[str, JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        self._sent.append((stream_id, message))
        return str(len(self._sent))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        last = int(last_event_id)
        if not 0 < last <= len(self._sent):
            return None
        stream = self._sent[last - 1][0]
        for number, (owner, message) in enumerate(self._sent[last:], last + 1):
            if owner == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


async def list_tools(context: Context, params: PaginatedRequestParams) -> Json:
    return {"tools": [tool.listed for tool in TOOLS.values()]}


async def call_tool(context: Context, params: CallToolRequestParams) -> Json:
    tool = TOOLS.get(params.name)
    if tool is None:
        raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name}")
    return await tool.run(_call(context, params.arguments))


def _call(context: Context, arguments: Mapping[str, Any] | None) -> Call:
    params = context.params or {}
    return Call(context, arguments or {}, params.get("inputResponses") or {}, params.get("requestState"))


async def list_resources(context: Context, params: PaginatedRequestParams) -> Json:
    return {
        "resources": [
            {"uri": uri, "name": uri.removeprefix("test://"), "mimeType": resource["mimeType"]}
            for uri, resource in _RESOURCES.items()
        ]
    }


async def list_templates(context: Context, params: PaginatedRequestParams) -> Json:
    template = {
        "uriTemplate": "test://template/{id}/data",
        "name": "template",
        "mimeType": "application/json",
    }
    return {"resourceTemplates": [template]}


async def read_resource(context: Context, params: ReadResourceRequestParams) -> Json:
    uri = str(params.uri)
    if uri in _RESOURCES:
        return {"contents": [{"uri": uri, **_RESOURCES[uri]}]}
    if (match := _TEMPLATE.fullmatch(uri)) is not None:
        data = {"id": match[1], "templateTest": True, "data": f"Data for ID: {match[1]}"}
        return {"contents": [{"uri": uri, "mimeType": "application/json", "text": json.dumps(data)}]}
    raise MCPError(INVALID_PARAMS, "Resource not found", {"uri": uri})


async def list_prompts(context: Context, params: PaginatedRequestParams) -> Json:
    return {
        "prompts": [
            {
                "name": name,
                "description": f"The prompt {name}.",
                "arguments": [{"name": each, "description": each, "required": True} for each in arguments],
            }
            for name, arguments in _PROMPTS.items()
        ]
    }


async def get_prompt(context: Context, params: GetPromptRequestParams) -> Json:
    given = params.arguments or {}
    match params.name:
        case "test_simple_prompt":
            return _messages(text("This is a simple prompt for testing."))
        case "test_prompt_with_arguments":
            return _messages(text(f"arg1 is {given.get('arg1')!r}, arg2 is {given.get('arg2')!r}."))
        case "test_prompt_with_embedded_resource":
            words = "Embedded resource content for testing."
            resource = embedded(given.get("resourceUri", ""), "text/plain", words)
            return _messages(resource, text("Please process the embedded resource above."))
        case "test_prompt_with_image":
            return _messages(IMAGE, text("Please analyze the image above."))
        case "test_input_required_result_prompt":
            call = _call(context, given)
            question = ask("What context should the prompt use?", context={"type": "string"})
            filled = (call.form("user_context") or {}).get("context")
            return wanted(call, {"user_context": question}) or _messages(text(f"The context is {filled}."))
    raise MCPError(INVALID_PARAMS, f"Unknown prompt: {params.name}")


def _messages(*contents: Json) -> Json:
    return {"messages": [{"role": "user", "content": content} for content in contents]}


async def complete(context: Context, params: CompleteRequestParams) -> Json:
    begun = params.argument.value
    return {"completion": {"values": [f"{begun}-one", f"{begun}-two"], "total": 2, "hasMore": False}}


async def accept(context: Context, params: Any) -> Json:
    return {}


def _stamped(
    handler: Callable[[Context, Params], Awaitable[Json]],
) -> Callable[[Context, Params], Awaitable[Json]]:
    """Results say of which kind they are, since 2026-07-28."""

    async def handle(context: Context, params: Params) -> Json:
        result = await handler(context, params)
        if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            result = {"resultType": "complete", **result}
        return result

    return handle


def build() -> Server[Any]:
    server: Server[Any] = Server(
        _NAME,
        version="1.0.0",
        cache_hints=_CACHED,
        get_tool_input_schema=schema_of,
        on_subscriptions_listen=ListenHandler(BUS),
    )

    def add(method: str, params: type[Params], handler: Callable[[Context, Params], Awaitable[Json]]) -> None:
        server.add_request_handler(method, params, _stamped(handler))

    add("tools/list", PaginatedRequestParams, list_tools)
    add("tools/call", CallToolRequestParams, call_tool)
    add("resources/list", PaginatedRequestParams, list_resources)
    add("resources/templates/list", PaginatedRequestParams, list_templates)
    add("resources/read", ReadResourceRequestParams, read_resource)
    add("resources/subscribe", SubscribeRequestParams, accept)
    add("resources/unsubscribe", UnsubscribeRequestParams, accept)
    add("prompts/list", PaginatedRequestParams, list_prompts)
    add("prompts/get", GetPromptRequestParams, get_prompt)
    add("completion/complete", CompleteRequestParams, complete)
    add("logging/setLevel", SetLevelRequestParams, accept)
    TASKS.serve(server)
    server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=_NAME))
    return server


class Announcing(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if sockets and self.started:
            print(f"ready http://127.0.0.1:{sockets[0].getsockname()[1]}/mcp", flush=True)


def main(port: int) -> None:
    # Logging and sampling are deprecated since 2026-07-28; they are still part of 2025-11-25.
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    logging.basicConfig(level=logging.ERROR)
    app = build().streamable_http_app(event_store=Events(), retry_interval=100)
    with socket.create_server(("127.0.0.1", port)) as listening:
        config = uvicorn.Config(
            app, http="h11", log_level="error", timeout_graceful_shutdown=1, lifespan="on"
        )
        Announcing(config).run(sockets=[listening])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
