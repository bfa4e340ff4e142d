"""An agent of LangChain with the server that the command line names, in an environment of its own."""

import asyncio
import os
import sys

from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools

from mcp_envelope.hosts.langchain import EnvelopeInterceptor


async def main(command: str, *arguments: str) -> None:
    entry = {
        "transport": "stdio", "command": command, "args": list(arguments), "env": {"HOME": os.environ["HOME"]},
    }  # fmt: skip
    client = MultiServerMCPClient({"fixture": entry})
    async with client.session("fixture") as session:
        if "LAB_ENVELOPE" in os.environ:
            envelope = EnvelopeInterceptor()
            tools = [*await load_mcp_tools(session, tool_interceptors=[envelope]), envelope.read_tool]
        else:
            tools = await load_mcp_tools(session)
        agent = create_agent("openai:gpt-5.5", tools)
        await agent.ainvoke({"messages": [("user", "Go.")]}, {"recursion_limit": 400})


asyncio.run(main(*sys.argv[1:]))
