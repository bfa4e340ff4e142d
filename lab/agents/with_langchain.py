"""An agent of LangChain with the server that the command line names, in an environment of its own."""

import asyncio
import os
import sys

from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools


async def main(command: str, *arguments: str) -> None:
    entry = {
        "transport": "stdio", "command": command, "args": list(arguments), "env": {"HOME": os.environ["HOME"]},
    }  # fmt: skip
    client = MultiServerMCPClient({"fixture": entry})
    async with client.session("fixture") as session:
        agent = create_agent("openai:gpt-5.5", await load_mcp_tools(session))
        await agent.ainvoke({"messages": [("user", "Go.")]}, {"recursion_limit": 400})


asyncio.run(main(*sys.argv[1:]))
