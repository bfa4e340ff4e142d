"""An agent of openai-agents with the server that the command line names, in an environment of its own."""

import asyncio
import os
import sys

from agents import Agent, Runner, set_tracing_disabled
from agents.mcp import MCPServerStdio

from mcp_envelope.hosts.openai_agents import ServerEnvelope


async def main(command: str, *arguments: str) -> None:
    set_tracing_disabled(True)
    parameters = {"command": command, "args": list(arguments), "env": {"HOME": os.environ["HOME"]}}
    async with MCPServerStdio(params=parameters, name="fixture", client_session_timeout_seconds=60) as server:
        agent = Agent(name="lab", mcp_servers=[server])
        if "LAB_ENVELOPE" in os.environ:
            envelope = ServerEnvelope()
            agent = Agent(name="lab", mcp_servers=[envelope(server)], tools=[envelope.read_tool])
        await Runner.run(agent, "Go.", max_turns=200)


asyncio.run(main(*sys.argv[1:]))
