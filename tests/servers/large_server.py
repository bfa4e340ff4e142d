"""A server for the tests: one tool with a result of any size, in an envelope, or bare if it is told so."""

import sys

from mcp.server.mcpserver import MCPServer

from mcp_envelope.servers.sdk import envelope

server = MCPServer("large")
if "--bare" not in sys.argv:
    envelope(server)


@server.tool()
def text(size: int) -> str:
    return "x" * size


if __name__ == "__main__":
    server.run()
