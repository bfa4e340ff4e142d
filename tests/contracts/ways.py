"""The four ways in: the library, a FastMCP server, an MCPServer, and the proxy in front of a plain server.

Strategy: servers and proxies live for the session, one of each for a dialect and a setup, and equal calls are made
once. A setup is environment variables and files; each has a folder of its own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import fastmcp
import jsonschema_rs
import mcp
from anyio.from_thread import BlockingPortal
from fastmcp import FastMCP
from mcp.server.mcpserver import MCPServer

from mcp_envelope import seal
from mcp_envelope.dialects import dialect
from mcp_envelope.dialects.notice import READ_TOOL
from mcp_envelope.outcome import client_request_id, collect_remarks
from mcp_envelope.servers.fastmcp import EnvelopeMiddleware
from mcp_envelope.servers.sdk import envelope
from mcp_envelope.vault.read_tool import read, resource
from mcp_envelope.vault.vault import open_vault

from ..proxy.harness import Running, call, proxied, request, started
from ..warm import warm
from .cases import TOOLS, answer

WAYS = ("library", "fastmcp", "mcpserver", "proxy")
PLAIN = str(Path(__file__).with_name("plain.py"))


class Setup(NamedTuple):
    variables: tuple[tuple[str, str], ...] = ()
    files: tuple[tuple[str, str], ...] = ()


DEFAULT = Setup()


def variables(**named: str) -> Setup:
    return Setup(tuple(named.items()))


class Answer:
    """A result as a client gets it."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw
        self.content: list[dict[str, Any]] = raw["content"]
        self.structured: Any = raw.get("structuredContent")
        self.is_error: bool = raw.get("isError", False)

    def __repr__(self) -> str:
        return json.dumps(self.raw)[:1500]

    @property
    def texts(self) -> list[str]:
        return [block["text"] for block in self.content if block["type"] == "text"]

    @property
    def text(self) -> str:
        return self.texts[0]

    @property
    def links(self) -> list[dict[str, Any]]:
        return [block for block in self.content if block["type"] == "resource_link"]

    @property
    def doc(self) -> Any:
        """The document: the JSON of the first text."""
        return json.loads(self.text)


class Talk:
    """One way in, in one dialect. Calling it calls a tool."""

    def __init__(self, way: str, dialect: str, world: World) -> None:
        self.way, self.dialect, self.world = way, dialect, world
        self.heard: list[Answer] = []

    def __call__(self, case: str, tool: str = "look", setup: Setup = DEFAULT, **more: Any) -> Answer:
        key = (self.way, self.dialect, case, tool, setup, json.dumps(more, sort_keys=True))
        if key not in self.world.answers:
            self.world.answers[key] = Answer(
                self.world.end(self.way, self.dialect, setup).call(tool, case, **more)
            )
        self.heard.append(self.world.answers[key])
        return self.heard[-1]

    def read(self, handle: str, setup: Setup = DEFAULT, **asked: Any) -> Answer:
        return Answer(self.world.end(self.way, self.dialect, setup).read({"handle": handle, **asked}))

    def resource(self, uri: str) -> Any:
        return self.world.end(self.way, self.dialect, DEFAULT).resource(uri)

    def listed(self, tool: str = "look") -> dict[str, Any]:
        return self.world.end(self.way, self.dialect, DEFAULT).listed[tool]


class World:
    """Everything that lives for the session."""

    def __init__(self, folder: Path, portal: BlockingPortal, stack: ExitStack) -> None:
        self.folder, self.portal, self.stack = folder, portal, stack
        self.answers: dict[Any, Answer] = {}
        self.ends: dict[Any, End] = {}

    def end(self, way: str, dialect: str, setup: Setup) -> End:
        key = way, dialect, setup
        if key not in self.ends:
            folder = self.folder / str(len(self.ends))
            for name, text in setup.files:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text)
            folder.mkdir(exist_ok=True)
            self.ends[key] = END[way](self, dialect, setup, folder)
        return self.ends[key]


class End:
    """The other end of a conversation."""

    def __init__(self, world: World, dialect: str, setup: Setup, folder: Path) -> None:
        self.world, self.dialect, self.setup, self.folder = world, dialect, setup, folder
        self.listed: dict[str, dict[str, Any]] = {}
        self.start()

    def start(self) -> None: ...

    def call(
        self, tool: str, case: str, meta: dict[str, Any] | None = None, tokens: Any = None, **arguments: Any
    ) -> dict[str, Any]:
        if tokens is not None:
            arguments[dialect(self.dialect).budget_argument] = tokens
        with self.here():
            result = self.ask(tool, {"case": case, **arguments}, meta)
        self.check(tool, result)
        return result

    def check(self, tool: str, result: dict[str, Any]) -> None:
        """As a client does, hold a result to what was listed."""
        schema = self.listed.get(tool, {}).get("outputSchema")
        if schema is not None:
            jsonschema_rs.validate(schema, result.get("structuredContent"))

    def ask(self, tool: str, arguments: dict[str, Any], meta: dict[str, Any] | None) -> dict[str, Any]:
        raise NotImplementedError

    def read(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return self.ask(READ_TOOL, arguments, None)

    def resource(self, uri: str) -> Any:
        raise NotImplementedError

    @contextmanager
    def here(self) -> Iterator[None]:
        """In this folder, with these variables."""
        before, was = dict(os.environ), os.getcwd()
        os.environ.update({**dict(self.setup.variables), "MCP_ENVELOPE_VAULT": str(self.folder / "vault.db")})
        os.chdir(self.folder)
        try:
            yield
        finally:
            os.chdir(was)
            os.environ.clear()
            os.environ.update(before)


class Library(End):
    def start(self) -> None:
        opened = open_vault(str(self.folder / "vault.db"))
        assert opened is not None
        self.vault = opened
        self.world.stack.callback(self.vault.close)
        schema = dialect(self.dialect).output_schema(None)
        entry: dict[str, Any] = {"inputSchema": {"properties": {"tokenBudget": {}}}}
        self.listed = {"look": entry if schema is None else {**entry, "outputSchema": schema}}

    def ask(self, tool: str, arguments: dict[str, Any], meta: dict[str, Any] | None) -> dict[str, Any]:
        arguments = dict(arguments)
        tokens = arguments.pop(dialect(self.dialect).budget_argument, None)
        options: dict[str, Any] = {} if tokens is None else {"tokens": tokens}
        with collect_remarks():
            try:
                value = answer(arguments["case"], arguments)
            except Exception as error:
                value = error
            sealed = seal(
                value,
                dialect=self.dialect,
                vault=self.vault.of(None),
                tool=tool,
                arguments=arguments,
                request_id=client_request_id(meta),
                **options,
            )
        result: dict[str, Any] = json.loads(sealed.to_json())
        return result

    def read(self, arguments: dict[str, Any]) -> dict[str, Any]:
        from mcp_envelope.config import Settings

        policy = Settings("/dev/null", {}).policy(READ_TOOL, dialect=self.dialect)
        result: dict[str, Any] = json.loads(read(self.vault, arguments, policy=policy).to_json())
        return result

    def resource(self, uri: str) -> Any:
        return json.loads(resource(self.vault, uri))


def tool_named(name: str) -> Callable[..., Any]:
    def called(case: str, file: str = "", count: int = 0) -> Any:
        return answer(case, {"case": case, "file": file})

    called.__name__ = name
    return called


class PythonServer(End):
    """A server in this process, and a client that stays connected to it."""

    client: Any

    def connect(self, server: Any, client: Any) -> None:
        cm = self.world.portal.wrap_async_context_manager(client)
        with self.here():
            self.client = self.world.stack.enter_context(cm)
            tools = self.world.portal.call(client.list_tools)
        for tool in tools if isinstance(tools, list) else tools.tools:
            self.listed[tool.name] = tool.model_dump(mode="json", by_alias=True, exclude_none=True)

    def resource(self, uri: str) -> Any:
        found = self.world.portal.call(self.client.read_resource, uri)
        contents = found if isinstance(found, list) else found.contents
        return {"contents": [each.model_dump(mode="json", by_alias=True) for each in contents]}


class OnFastMCP(PythonServer):
    def start(self) -> None:
        server = FastMCP("contracts")
        for name in TOOLS:
            server.tool(tool_named(name))
        with self.here():
            vault = str(self.folder / "vault.db")
            server.add_middleware(EnvelopeMiddleware(dialect=self.dialect, ledger=False, vault=vault))
        self.connect(server, fastmcp.Client(server))

    def ask(self, tool: str, arguments: dict[str, Any], meta: dict[str, Any] | None) -> dict[str, Any]:
        async def ask() -> Any:
            return await self.client.call_tool_mcp(tool, arguments, meta=meta)

        dumped: dict[str, Any] = self.world.portal.call(ask).model_dump(
            mode="json", by_alias=True, exclude_none=True
        )
        return dumped


class OnMCPServer(PythonServer):
    def start(self) -> None:
        server: MCPServer[Any] = MCPServer("contracts")
        for name in TOOLS:
            server.add_tool(tool_named(name))
        with self.here():
            envelope(server, dialect=self.dialect, ledger=False, vault=str(self.folder / "vault.db"))
        self.connect(server, mcp.Client(server))

    def ask(self, tool: str, arguments: dict[str, Any], meta: dict[str, Any] | None) -> dict[str, Any]:
        async def ask() -> Any:
            return await self.client.call_tool(tool, arguments, meta=meta)

        dumped: dict[str, Any] = self.world.portal.call(ask).model_dump(
            mode="json", by_alias=True, exclude_none=True
        )
        return dumped


class Proxy(End):
    running: Running

    def start(self) -> None:
        # A setup of its own gets the server that starts quickly.
        server = warm(PLAIN, "sdk") if self.setup == DEFAULT else (sys.executable, PLAIN)
        command = proxied(*server, options=("--dialect", self.dialect))
        environ: dict[str, Any] = dict(self.setup.variables)
        self.running = self.world.stack.enter_context(started(command, self.folder, **environ))
        info = {"clientInfo": {"name": "tests", "version": "1"}, "capabilities": {}}
        self.running.ask(request(0, "initialize", protocolVersion="2025-06-18", **info))
        self.running.say(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        tools = self.running.ask(request(1, "tools/list"))["result"]["tools"]
        self.listed = {tool["name"]: tool for tool in tools}

    def ask(self, tool: str, arguments: dict[str, Any], meta: Mapping[str, Any] | None) -> dict[str, Any]:
        reply = self.running.ask(call(2, tool, arguments, **({"_meta": dict(meta)} if meta else {})))
        assert "result" in reply, reply
        result: dict[str, Any] = reply["result"]
        return result

    def resource(self, uri: str) -> Any:
        return self.running.ask(request(3, "resources/read", uri=uri))["result"]


END: dict[str, type[End]] = {
    "library": Library,
    "fastmcp": OnFastMCP,
    "mcpserver": OnMCPServer,
    "proxy": Proxy,
}
