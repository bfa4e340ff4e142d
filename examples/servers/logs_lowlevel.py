"""Service logs, with the official SDK's low-level Server, in the dialect `ctxo`.

A low-level server builds its own results. The envelope is applied as they are sent: here, one JSON text of at
most 8192 bytes, with its lists cut to fit and `_meta` at the end.
"""

import argparse
import json
from random import Random
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from mcp_envelope import Failure
from mcp_envelope.servers.sdk import envelope

SERVICES = ("gateway", "mailer", "search")
LEVELS = ("info", "warning", "error")


def made_up(service: str) -> list[dict[str, Any]]:
    random = Random(service)
    return [
        {
            "second": number * 7 + random.randint(0, 6),
            "level": random.choices(LEVELS, (80, 15, 5))[0],
            "message": f"{random.choice(('opened', 'closed', 'retried', 'dropped'))} connection {number}",
        }
        for number in range(1500)
    ]


LOGS = {service: made_up(service) for service in SERVICES}


async def list_tools(ctx: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    def schema(**properties: Any) -> dict[str, Any]:
        return {"type": "object", "properties": properties, "required": ["service"]}

    service, level = {"type": "string"}, {"enum": LEVELS}
    return types.ListToolsResult(
        tools=[
            types.Tool(
                name="search_log",
                description="Search the log of a service.",
                input_schema=schema(service=service, level=level),
            ),
            types.Tool(
                name="count_levels",
                description="Count the entries of each level.",
                input_schema=schema(service=service),
            ),
        ]
    )


async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    arguments = params.arguments or {}
    entries = LOGS.get(arguments.get("service", ""))
    if entries is None:
        raise Failure("BAD_ARGS", f"Services are {', '.join(SERVICES)}.", "Name one of them.")
    if params.name == "search_log":
        level = arguments.get("level")
        found = [entry for entry in entries if level in (None, entry["level"])]
        return result({"service": arguments["service"], "results": found})
    if params.name == "count_levels":
        return result({level: sum(entry["level"] == level for entry in entries) for level in LEVELS})
    raise Failure("NOT_FOUND", f"There is no tool {params.name}.", "List the tools.")


def result(data: dict[str, Any]) -> types.CallToolResult:
    text = types.TextContent(text=json.dumps(data))
    return types.CallToolResult(content=[text], structured_content=data)


server = Server("logs", on_list_tools=list_tools, on_call_tool=call_tool)
envelope(server, dialect="ctxo")  # the one line, once the handlers are registered


async def over_stdio() -> None:
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Service logs.")
    parser.add_argument("--http", type=int, metavar="PORT", help="serve HTTP on 127.0.0.1 instead of stdio")
    port = parser.parse_args().http
    if port is None:
        anyio.run(over_stdio)
    else:
        uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=port)
