"""What programs get of the adapter for openai-agents. Arguments: a folder, and the command of the lab's server."""

import asyncio
import json
import sys
from pathlib import Path

from agents import Agent, RunContextWrapper
from agents.mcp import MCPServerStdio
from agents.tool_context import ToolContext

from mcp_envelope.hosts.openai_agents import ServerEnvelope


async def shown(agent, name, **arguments):
    """What the agent's model is shown of a call."""
    tools = await agent.get_all_tools(RunContextWrapper(None))
    (tool,) = [each for each in tools if each.name == name]
    given = json.dumps(arguments)
    context = ToolContext(None, tool_name=name, tool_call_id="1", tool_arguments=given)
    return await tool.on_invoke_tool(context, given)


async def main(folder: str, command: str, *arguments: str) -> None:
    envelope = ServerEnvelope(budget=300, vault=str(Path(folder) / "vault.db"))
    parameters = {"command": command, "args": list(arguments)}
    async with (
        MCPServerStdio(params=parameters, name="text") as text,
        MCPServerStdio(params=parameters, name="structure", use_structured_content=True) as structure,
    ):
        # Structure is shown as it was measured, not as json.dumps writes it.
        small = await structure.call_tool("typed_rows", {"size": 100})
        assert envelope(structure) is structure
        agent = Agent(name="lab", mcp_servers=[structure], tools=[envelope.read_tool])
        few = await shown(agent, "typed_rows", size=100)
        assert json.loads(few["text"]) == small.structuredContent
        assert " " not in few["text"].replace("Customer ", "")
        cut = await shown(agent, "typed_rows", size=20_000)
        assert len(cut["text"] if isinstance(cut, dict) else "".join(each["text"] for each in cut)) < 1600
        several = await shown(agent, "picture_and_rows", size=90_000)
        assert [each["type"] for each in several] == ["text", "image"], several

        # Otherwise the model is shown the content, and the structure stays whole for programs.
        before = await text.call_tool("typed_rows", {"size": 20_000})
        alike = await text.call_tool("typed_rows", {"size": 100}, meta={"key": "value"})
        envelope(text)
        after = await text.call_tool("typed_rows", {"size": 20_000})
        assert after.structuredContent == before.structuredContent
        assert sum(len(block.text) for block in after.content) < 1600
        assert await text.call_tool("typed_rows", {"size": 100}, meta={"key": "value"}) == alike
        failed = await text.call_tool("failure", {"size": 20_000})
        assert failed.isError
        assert sum(len(block.text) for block in failed.content) < 1600

        # One tool reads the rest of any server's results.
        handle = after.content[0].text.partition('handle="')[2].partition('"')[0]
        *_, page = await shown(agent, "envelope_read", handle=handle, query="content[0].text | length(@)")
        assert page.text == str(len(before.content[0].text)), page
    print("all hold")


asyncio.run(main(*sys.argv[1:]))
