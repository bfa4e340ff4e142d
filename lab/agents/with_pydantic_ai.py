"""An agent of Pydantic AI with the server that the command line names, in an environment of its own."""

import asyncio
import os
import sys

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.usage import UsageLimits

from mcp_envelope.hosts.pydantic_ai import EnvelopeToolset


async def main(command: str, *arguments: str) -> None:
    transport = StdioTransport(command, list(arguments), env={"HOME": os.environ["HOME"]})
    toolset = MCPToolset(transport, max_retries=100, read_timeout=60)
    inside = "LAB_ENVELOPE" in os.environ
    agent = Agent("openai:gpt-5.5", toolsets=[EnvelopeToolset(toolset) if inside else toolset])
    async with agent:
        await agent.run("Go.", usage_limits=UsageLimits(request_limit=400))


asyncio.run(main(*sys.argv[1:]))
