"""Which functions are tools, and which servers have the envelope: every way to register one, in both libraries."""

from __future__ import annotations

import pytest

from .marked import check

REGISTERED = {
    "a decorator": """
        import json
        from fastmcp import FastMCP
        mcp = FastMCP("x")  # >> ENV006
        @mcp.tool
        def a(): return json.dumps(rows)  # >> ENV003
        @mcp.tool()
        async def b(): return json.dumps(rows)  # >> ENV003
        @mcp.tool("named", tags={"x"})
        def c(): return json.dumps(rows)  # >> ENV003
        def not_a_tool(): return json.dumps(rows)
        @mcp.resource("data://x")
        def a_resource(): return json.dumps(rows)
        """,
    "a call": """
        import json, fastmcp
        from fastmcp.tools import Tool
        server = fastmcp.FastMCP("x")  # >> ENV006
        def a(): return json.dumps(rows)  # >> ENV003
        def b(): return json.dumps(rows)  # >> ENV003
        def c(): return json.dumps(rows)  # >> ENV003
        def d(): return json.dumps(rows)  # >> ENV003
        def e(): return json.dumps(rows)  # >> ENV003
        server.tool(a, name="first")
        server.tool(name="second")(b)
        server.add_tool(Tool.from_function(c))
        server.add_tool(d)
        tool = Tool.from_function(fn=e)
        """,
    "the standalone decorator": """
        import json
        from fastmcp.tools import tool
        from fastmcp.contrib.mcp_mixin import MCPMixin, mcp_tool
        @tool
        def a(): return json.dumps(rows)  # >> ENV003
        class Mine(MCPMixin):
            @mcp_tool(name="b")
            def b(self): return json.dumps(rows)  # >> ENV003
        """,
    "the constructor": """
        from json import dumps
        from mcp.server import MCPServer
        def a(): return dumps(rows)  # >> ENV003
        app = MCPServer("x", tools=[a])  # >> ENV006
        """,
    "the official server": """
        import json
        from mcp.server.mcpserver import MCPServer
        server = MCPServer("x")  # >> ENV006
        @server.tool(title="A")
        async def a(): return json.dumps(rows)  # >> ENV003
        def b(): return json.dumps(rows)  # >> ENV003
        server.add_tool(b, name="b")
        """,
    "its first version": """
        import json
        from mcp.server.fastmcp import FastMCP
        app = FastMCP("x")  # >> ENV006
        @app.tool()
        async def a() -> str: return json.dumps(rows)  # >> ENV003
        """,
    "a handler in the constructor": """
        import json
        import mcp_types as types
        from mcp.server.lowlevel import Server
        async def call(context, params):
            return types.CallToolResult(
                content=[types.TextContent(type="text", text=json.dumps(rows))]  # >> ENV003
            )
        async def other(context, params):
            return types.CallToolResult(content=[types.TextContent(type="text", text=json.dumps(rows))])
        server = Server("x", on_call_tool=call, on_list_tools=other)  # >> ENV006
        """,
    "a handler by its method": """
        from mcp.server import Server
        from mcp.types import CallToolRequestParams, CallToolResult, TextContent
        server = Server("x")  # >> ENV006
        async def call(context, params):
            return CallToolResult(content=[TextContent(type="text", text=params.name)])  # >> ENV001
        server.add_request_handler("tools/call", CallToolRequestParams, call)
        """,
    "a handler of version 1": """
        import mcp.types as types
        from mcp.server import Server
        server = Server("x")  # >> ENV006
        @server.call_tool()
        async def call(name, arguments):
            return [types.TextContent(type="text", text=name)]  # >> ENV002
        """,
    "a handler in its slot": """
        import mcp.types as types
        async def call(request):
            return [types.TextContent(type="text", text="x")]  # >> ENV002
        server.request_handlers[types.CallToolRequest] = call
        """,
    "a server from elsewhere": """
        import json
        from .app import mcp, jira_mcp
        from .app import server
        @mcp.tool
        def a(): return json.dumps(rows)  # >> ENV003
        @jira_mcp.tool(tags={"x"})
        def b(): return json.dumps(rows)  # >> ENV003
        @server.tool()
        def c(): return json.dumps(rows)
        """,
    "a server from elsewhere, beside the library": """
        import json
        from fastmcp import Context
        from .app import server
        @server.tool()
        def c(context: Context): return json.dumps(rows)  # >> ENV003
        """,
    "a function that is handed the server": """
        import json
        from fastmcp import FastMCP
        def register(app: FastMCP, other: FastMCP | None, agent: Agent, mcp):
            @app.tool
            def a(): return json.dumps(rows)  # >> ENV003
            @other.tool
            def b(): return json.dumps(rows)  # >> ENV003
            @agent.tool
            def c(): return json.dumps(rows)
            @mcp.tool
            def d(): return json.dumps(rows)  # >> ENV003
        """,
    "a class that has a server": """
        import json
        from fastmcp import FastMCP
        class Search:
            def __init__(self):
                self.app = FastMCP("x")  # >> ENV006
                self.app.tool(self.find)
                self.agent = Agent()
                self.agent.tool(self.other)
            def find(self): return json.dumps(rows)  # >> ENV003
            def other(self): return json.dumps(rows)
        """,
    "a class that is a server": """
        import json
        from fastmcp import FastMCP
        class Base(FastMCP): pass
        class Mine(Base):
            def setup(self):
                def find(): return json.dumps(rows)  # >> ENV003
                found = find
                self.tool(found, name="find")
        app = Mine("x")  # >> ENV006
        @app.tool
        def a(): return json.dumps(rows)  # >> ENV003
        """,
    "a star import": """
        from json import dumps
        from mcp.types import *
        from .app import mcp
        @mcp.tool()
        def a(): return [TextContent(type="text", text="x")]  # >> ENV002
        """,
    "another name": """
        import json as j
        import mcp_types
        from fastmcp import FastMCP as Server
        Text = mcp_types.TextContent
        app = Server("x")  # >> ENV006
        @app.tool
        def a(): return j.dumps(rows)  # >> ENV003
        @app.tool
        def b(): return Text(type="text", text="x")  # >> ENV002
        """,
    "what a factory makes": """
        import json
        from fastmcp import FastMCP
        def make() -> FastMCP: ...
        one = make()
        @one.tool
        def a(): return json.dumps(rows)  # >> ENV003
        """,
    "a class with names of its own": """
        import json
        from .app import mcp
        class Tools:
            json = None
            mcp = Agent()
            @mcp.tool
            def a(self): return json.dumps(rows)
            def setup(self):
                @mcp.tool
                def b(): return json.dumps(rows)  # >> ENV003
        """,
    "part of a tool": """
        import json
        from .app import mcp
        def _text(rows): return json.dumps(rows)  # >> ENV003
        def _rows(rows): return _text(rows)
        def _other(rows): return json.dumps(rows)
        class Tools:
            @mcp.tool
            async def b(self): return await self._later()
            async def _later(self): return json.dumps(rows)  # >> ENV003
        @mcp.tool
        def a():
            text = _rows(find())
            return text
        @mcp.tool
        def c(): return {"text": len(_other(rows))}
        """,
}
NO_TOOLS = {
    "agents of other libraries": """
        import json
        from pydantic_ai import Agent
        from langchain.tools import tool
        agent = Agent("x")
        mcp_agent = Agent("x")
        @agent.tool
        def a(): return json.dumps(rows)
        @mcp_agent.tool
        def b(): return json.dumps(rows)
        @tool
        def c(): return json.dumps(rows)
        """,
    "the library itself": """
        import json, mcp
        @mcp.tool
        def a(): return json.dumps(rows)
        """,
    "a low-level server, which has no such method": """
        import json
        from mcp.server import Server
        server = Server("x")
        @server.tool()
        def a(): return json.dumps(rows)
        """,
    "a client": """
        from mcp import Client, ClientSession
        async def go(session: ClientSession):
            result = await session.call_tool("x", {})
            return json.dumps(result)
        """,
    "methods of the same name": """
        import json
        class Box:
            def tool(self, f): return f
        box = Box()
        @box.tool
        def a(): return json.dumps(rows)
        server.tool(a)
        """,
}


@pytest.mark.parametrize("way", REGISTERED)
def test_tools_are_found(way: str) -> None:
    check(REGISTERED[way])


@pytest.mark.parametrize("way", NO_TOOLS)
def test_other_functions_are_not_tools(way: str) -> None:
    check(NO_TOOLS[way])


FASTMCP_LINE = "from mcp_envelope.servers.fastmcp import EnvelopeMiddleware"
SDK_LINE = "from mcp_envelope.servers.sdk import envelope"
ENVELOPED = {
    "middleware": f"{FASTMCP_LINE}\nmcp.add_middleware(EnvelopeMiddleware())",
    "with settings": f"{FASTMCP_LINE}\nmcp.add_middleware(EnvelopeMiddleware(tokens=4000))",
    "a variable": f"{FASTMCP_LINE}\nmiddleware = EnvelopeMiddleware()\nmcp.add_middleware(middleware)",
    "a loop": f"{FASTMCP_LINE}\nfor each in servers: each.add_middleware(EnvelopeMiddleware())",
    "the module": "import mcp_envelope.servers.fastmcp as ours\nmcp.add_middleware(ours.EnvelopeMiddleware())",
    "the other library": f"{SDK_LINE}\nenvelope(mcp)",
    "with its result": f"{SDK_LINE}\nserver = envelope(mcp, tokens=100)",
    "by hand": "from mcp_envelope import seal\ndef out(x): return seal(x).to_result()",
    "handed on": "main.mount(mcp)",
    "to a function": "install(server=mcp)",
    "in a list": "SERVERS = [mcp]",
}


@pytest.mark.parametrize("way", ENVELOPED)
def test_servers_with_an_envelope(way: str) -> None:
    server = 'from fastmcp import FastMCP\nmcp = FastMCP("x")\n@mcp.tool\ndef a(): return rows\n'
    check(server + ENVELOPED[way])


def test_the_envelope_in_the_constructor() -> None:
    check("""
        from fastmcp import FastMCP
        from mcp_envelope.servers.fastmcp import EnvelopeMiddleware
        mcp = FastMCP("x", middleware=[EnvelopeMiddleware()])
        @mcp.tool
        def a(): return rows
        """)


def test_one_of_two_servers_has_it() -> None:
    check("""
        from fastmcp import FastMCP
        from mcp_envelope.servers.fastmcp import EnvelopeMiddleware
        one = FastMCP("x")
        one.add_middleware(EnvelopeMiddleware())
        two = FastMCP("y")  # >> ENV006
        three = FastMCP("without tools")
        @one.tool
        @two.tool
        def a(): return rows
        """)


def test_a_server_that_leaves_its_function() -> None:
    check("""
        from fastmcp import FastMCP
        def make():
            mcp = FastMCP("x")
            @mcp.tool
            def a(): return rows
            return mcp
        def serve():
            mcp = FastMCP("x")  # >> ENV006
            @mcp.tool
            def a(): return rows
            mcp.run()
        """)


def test_the_words_of_our_own_package_are_no_envelope() -> None:
    check("""
        from fastmcp import FastMCP
        from mcp_envelope import Failure, Reply
        mcp = FastMCP("x")  # >> ENV006
        @mcp.tool
        def a(): return Reply(rows)
        """)
