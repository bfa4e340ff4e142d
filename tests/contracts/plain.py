"""A server without an envelope, for the proxy: `plain.py sdk` is a low-level server of the SDK, `plain.py` is bare.

It answers each case on the wire as a server in another language would: data as JSON, and what else there is to say
under one key of `_meta`.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from mcp_envelope import Failure, Miss, Reply
from mcp_envelope.outcome import Remarks, collect_remarks
from mcp_envelope.payload import to_json
from mcp_envelope.reply_meta import REPLY_KEY
from tests.contracts.cases import TOOLS, answer

INPUT = {
    "type": "object",
    "properties": {"case": {"type": "string"}, "file": {"type": "string"}, "count": {"type": "integer"}},
    "required": ["case"],
}


def tools() -> list[dict[str, Any]]:
    return [{"name": name, "inputSchema": INPUT} for name in TOOLS]


def result_of(arguments: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(arguments.get("case"), str):
        raise ValueError("Invalid arguments: case is required and must be a string")
    if not isinstance(arguments.get("count", 0), int):
        raise ValueError("Invalid arguments: count must be an integer")
    with collect_remarks() as remarks:
        try:
            value = answer(arguments["case"], arguments)
        except Failure as failure:
            problem = failure.problem
            error = {"code": problem.code, "hint": problem.hint, "details": dict(problem.details or {})}
            result = shown(failure.data, problem.message) | {"isError": True}
            return with_meta(result, remarks, error=error)
    if isinstance(value, Miss):
        return with_meta(shown(None, "Not found."), remarks, found=False, hint=value.hint)
    if isinstance(value, Reply):
        said = {
            "status": value.status,
            "summary": value.summary,
            "details": list(value.details),
            "nextSteps": list(value.next_steps),
            "links": list(value.links),
            "hint": value.hint,
        }
        return with_meta(shown(value.data, *value.texts), remarks, **said)
    if isinstance(value, dict) and "structuredContent" in value:
        return value
    return with_meta(shown(value), remarks)


def shown(data: Any, *texts: str) -> dict[str, Any]:
    if isinstance(data, str):
        return {"content": [{"type": "text", "text": data}]}
    plain = json.loads(to_json(data))
    words = texts or (() if data is None else (json.dumps(plain, indent=2),))
    result: dict[str, Any] = {"content": [{"type": "text", "text": text} for text in words]}
    return {**result, "structuredContent": plain} if isinstance(plain, dict) else result


def with_meta(result: dict[str, Any], remarks: Remarks, **said: Any) -> dict[str, Any]:
    said |= {
        "warnings": remarks.warnings,
        "upgradeHints": [dataclasses.asdict(hint) for hint in remarks.upgrade_hints],
        "tier": remarks.tier,
        "toolVersion": remarks.tool_version,
        "capabilities": remarks.capabilities,
        "rateLimit": remarks.rate_limit,
        "tokenUsage": remarks.token_usage,
        "workspace": remarks.workspace,
    }
    facts = {name: value for name, value in said.items() if value not in (None, [], "", {})}
    return {**result, "_meta": {REPLY_KEY: facts}} if facts else result


def bare() -> None:
    """JSON-RPC, line by line."""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        method, params = message["method"], message.get("params", {})
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        if method == "initialize":
            info = {"name": "plain", "version": "1"}
            reply["result"] = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": info,
            }
        elif method == "tools/list":
            reply["result"] = {"tools": tools()}
        elif method == "tools/call" and params["name"] in TOOLS:
            try:
                reply["result"] = result_of(params.get("arguments", {}))
            except Exception as error:
                reply["error"] = {"code": -32603, "message": str(error) or type(error).__name__}
        else:
            reply["error"] = {"code": -32602, "message": f"Unknown tool: {params.get('name')}"}
        print(json.dumps(reply), flush=True)


def sdk() -> None:
    import anyio
    import mcp_types
    from mcp import MCPError
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server

    async def listed(ctx: Any, params: Any) -> mcp_types.ListToolsResult:
        return mcp_types.ListToolsResult.model_validate({"tools": tools()})

    async def called(ctx: Any, params: Any) -> mcp_types.CallToolResult:
        if params.name not in TOOLS:
            raise MCPError(code=-32602, message=f"Unknown tool: {params.name}")
        return mcp_types.CallToolResult.model_validate(result_of(params.arguments or {}))

    async def main() -> None:
        server: Server[Any] = Server("plain", on_list_tools=listed, on_call_tool=called)
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    anyio.run(main)


if __name__ == "__main__":
    if sys.argv[1:] == ["sdk"]:
        sdk()
    else:
        bare()
