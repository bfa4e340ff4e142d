"""What programs get of LangChain's adapter. Arguments: a folder, and the command of the lab's server."""

import asyncio
import sys
from pathlib import Path

from langchain_core.messages import ToolMessage
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools

from mcp_envelope.hosts.langchain import EnvelopeInterceptor


def call(name, **arguments):
    return {"type": "tool_call", "id": "1", "name": name, "args": arguments}


def text(message):
    return "\n".join(block["text"] for block in message.content if block["type"] == "text")


async def main(folder: str, command: str, *arguments: str) -> None:
    vault = str(Path(folder) / "vault.db")
    servers = {"lab": {"transport": "stdio", "command": command, "args": list(arguments)}}
    handled = []

    async def other(request, handler):
        """Another interceptor, nearer to the server."""
        handled.append(request.args)
        if request.name == "lanes":
            return ToolMessage("by another", tool_call_id="1")
        return await handler(request)

    envelope = EnvelopeInterceptor(budget=300, vault=vault)
    async with MultiServerMCPClient(servers).session("lab") as session:
        loaded = await load_mcp_tools(session, tool_interceptors=[envelope, other], server_name="lab")
        plain = {tool.name: tool for tool in await load_mcp_tools(session)}
        tools = {tool.name: tool for tool in loaded}

        # The model's text is cut; the program's structure is whole.
        cut, whole = [
            await each["typed_rows"].ainvoke(call("typed_rows", size=20_000)) for each in (tools, plain)
        ]
        assert len(text(cut)) < 1600 < 10_000 < len(text(whole))
        assert cut.artifact == whole.artifact
        assert len(cut.artifact["structured_content"]["rows"]) == 357

        # What fits is the same, and a result that another interceptor makes is left to LangChain.
        few, same = [
            await each["typed_rows"].ainvoke(call("typed_rows", size=100)) for each in (tools, plain)
        ]
        assert (text(few), few.artifact) == (text(same), same.artifact)
        assert (await tools["lanes"].ainvoke(call("lanes"))).content == "by another"

        # A failure is cut, and stays one.
        failed = await tools["failure"].ainvoke(call("failure", size=20_000))
        assert failed.status == "error"
        assert len(text(failed)) < 1600

        # The rest is read through one tool for all servers.
        handle = text(cut).partition('handle="')[2].partition('"')[0]
        page = await envelope.read_tool.ainvoke(
            call("envelope_read", handle=handle, sql="SELECT count(*) FROM rows")
        )
        assert text(page).endswith('[{"count(*)":357}]'), page
        unknown = await envelope.read_tool.ainvoke(call("envelope_read", handle="none"))
        assert unknown.status == "error"
        assert "HANDLE_UNKNOWN" in text(unknown)

        # Secrets are masked in both, and put back in the arguments of later calls.
        settings = Path(folder) / "envelope.toml"
        settings.write_text('redact = "custom"\n[redact_patterns]\ncustomer = "Customer [0-9]{3}"\n')
        masking = EnvelopeInterceptor(config=settings, vault=vault)
        loaded = await load_mcp_tools(session, tool_interceptors=[masking, other])
        tools = {tool.name: tool for tool in loaded}
        masked = await tools["typed_rows"].ainvoke(call("typed_rows", size=100))
        assert "Customer" not in str(masked), masked
        placeholder = masked.artifact["structured_content"]["rows"][0]["customer"]
        assert placeholder.startswith("[redacted:")
        await tools["lanes"].ainvoke(call("lanes", of=placeholder))
        assert handled[-1] == {"of": "Customer 000"}
        lost = await tools["lanes"].ainvoke(call("lanes", of=f"{placeholder[:-6]}abcde]"))
        assert lost.status == "error", lost
        assert "MASK_UNKNOWN" in text(lost)
    print("all hold")


asyncio.run(main(*sys.argv[1:]))
