"""The official SDK with one line: `envelope(server)`, for an `MCPServer` or a low-level `Server`.

Strategy: the handlers of `tools/list` and `tools/call` are wrapped where the SDK keeps them, so both protocol
eras, extensions and middleware stay as they are. An `MCPServer` has functions, and what they return is taken
before the SDK turns it into a result; a low-level server makes its results itself, and those are sealed. What
fits goes out as the very object that came.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from .extras import missing

try:
    import mcp_types
    from anyio import to_thread
    from mcp.server.lowlevel import Server
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
    from mcp.shared.exceptions import MCPError
except ImportError as error:
    raise missing("The official SDK, from version 2 on,", "sdk", error) from error

from ..clients import UNKNOWN, Client, era_of
from ..clients import client as known_client
from ..dialects.notice import READ_TOOL
from ..front import Call, Declared, Front, Published, payload_of
from ..outcome import Miss, Reply
from ..payload import read_result
from ..policy import Settings
from ..policy.table import budget_argument
from ..tracing import current_span
from .declaring import check_budget, settings_of
from .results import in_body
from .running import Run, is_wrapped, running, wrapped
from .sdk_tools import FunctionLibrary, HandlerLibrary, Metadata, SealedResult, to_result

if TYPE_CHECKING:
    from mcp.server.mcpserver.tools.base import Tool

    from ..vault.ledger import Ledger
    from ..vault.vault import Vault


Handler = Callable[[Any, Any], Awaitable[Any]]
_LIST, _CALL = "tools/list", "tools/call"
_MOST_PAGES: Final = 100


def envelope(
    server: MCPServer[Any] | Server[Any],
    *,
    budget: int | None = None,
    max_bytes: int | None = None,
    config: str | None = None,
    dialect: str | None = None,
    vault: Vault | str | None = None,
    ledger: Ledger | bool = True,
    strict: bool = False,
    token_budget: bool = True,
    settings: Settings | None = None,
) -> Front:
    """Put every tool's result of a server into one envelope. Tools may be added before or after.

    `budget` is in tokens, for each lane, `max_bytes` in bytes; a settings file goes before it. `config` names that
    file (default: the nearest mcp-envelope.toml); `dialect` the wire shape; `vault` where whole results are kept
    (an address, or "none"). `strict` warns of tools that make results by hand.
    """
    _check_kind(server)
    check_budget(budget, max_bytes)
    front = Front(
        settings or settings_of(config),
        vault=vault,
        ledger=ledger,
        dialect=dialect,
        server=server.name,
        token_budget=token_budget,
        budget=budget,
        max_bytes=max_bytes,
    )
    _Enveloped(server, front, strict)
    return front


def _check_kind(server: object) -> None:
    if isinstance(server, MCPServer | Server):
        return
    is_fastmcp = type(server).__module__.startswith("fastmcp.")
    more = "; for FastMCP: server.add_middleware(EnvelopeMiddleware())" if is_fastmcp else ""
    raise TypeError(f"envelope takes an MCPServer or a low-level Server, not a {type(server).__name__}{more}")


class _Enveloped:
    def __init__(self, server: MCPServer[Any] | Server[Any], front: Front, strict: bool) -> None:
        self._front = front
        self._warned: set[str] | None = set() if strict else None
        self._functions = server if isinstance(server, MCPServer) else None
        self._server: Server[Any] = server._lowlevel_server if isinstance(server, MCPServer) else server
        self._list = self._taken(_LIST, self.list)
        self._call = self._taken(_CALL, self.call)
        self._entries: dict[str, mcp_types.Tool] = {}
        if self._functions is not None:
            self._call_tool = self._functions.call_tool
            # The SDK turns exceptions into text one step further out; here they are still what they were.
            self._functions.call_tool = self._answered  # type: ignore[method-assign]

    def _taken(self, method: str, instead: Handler) -> Handler:
        entry = self._server.get_request_handler(method)
        if entry is None:
            raise ValueError(
                f"the server has no handler for {method} yet: pass on_list_tools and on_call_tool to Server(…), "
                "or add the handlers, before envelope(server)"
            )
        if getattr(entry.handler, "__self__", None).__class__ is _Enveloped:
            raise ValueError("this server is in an envelope already")
        self._server.add_request_handler(method, entry.params_type, instead)
        return entry.handler

    # -- lists ----------------------------------------------------------------------------------------------

    async def list(self, ctx: Any, params: Any) -> Any:
        result = await self._list(ctx, params)
        if not isinstance(result, mcp_types.ListToolsResult):
            return result
        if any(tool.name == READ_TOOL for tool in result.tools):
            # Another envelope is inside already.
            return result
        self._entries |= {tool.name: tool for tool in result.tools}
        tools = [self._listed(tool) for tool in result.tools]
        if result.next_cursor is None:
            tools.append(mcp_types.Tool.model_validate(self._front.read_tool()))
        return result.model_copy(update={"tools": tools})

    def _listed(self, tool: mcp_types.Tool) -> mcp_types.Tool:
        entry = {"inputSchema": tool.input_schema, "outputSchema": tool.output_schema}
        shown = self._front.listed(entry, self.published(tool.name, tool.output_schema))
        return tool.model_copy(
            update={"input_schema": shown["inputSchema"], "output_schema": shown.get("outputSchema")}
        )

    def published(self, name: str, schema: dict[str, Any] | None) -> Published:
        tool = self._function_tool(name)
        if tool is None:
            return self._front.publish(name, schema)
        metadata = self._wrap(tool)
        return self._front.publish(name, metadata.output_schema, metadata.misses, metadata.wrap_output)

    def _function_tool(self, name: str) -> Tool | None:
        return None if self._functions is None else self._functions._tool_manager.get_tool(name)

    async def _entry(self, ctx: Any, name: str) -> mcp_types.Tool | None:
        """What the server lists of a tool; asked for when nobody did yet."""
        if name not in self._entries:
            cursor: str | None = None
            for _ in range(_MOST_PAGES):
                page = await self._list(ctx, mcp_types.PaginatedRequestParams(cursor=cursor))
                if not isinstance(page, mcp_types.ListToolsResult):
                    break
                self._entries |= {tool.name: tool for tool in page.tools}
                cursor = page.next_cursor
                if cursor is None:
                    break
        return self._entries.get(name)

    # -- calls ----------------------------------------------------------------------------------------------

    async def call(self, ctx: Any, params: Any) -> Any:
        client, owner = _client(ctx), _owner(ctx)
        arguments = params.arguments or {}
        if params.name == READ_TOOL and READ_TOOL not in self._entries:
            policy = self._front.policy(READ_TOOL, None, client)
            call = Call(tool=READ_TOOL, policy=policy, client=client, owner=owner, span=current_span())
            return to_result(await to_thread.run_sync(self._front.read, arguments, call))
        tool = self._function_tool(params.name)
        entry = None if tool is not None else await self._entry(ctx, params.name)
        schema = entry.input_schema if entry is not None else None if tool is None else tool.parameters
        requested = None
        policy = self._front.policy(params.name, None, client)
        budget_name = budget_argument(policy.dialect)
        if budget_name in arguments and self._front.adds_budget(schema, budget_name):
            arguments = dict(arguments)
            requested = arguments.pop(budget_name)
            params = params.model_copy(update={"arguments": arguments})
        call = Call(
            tool=params.name,
            policy=policy if requested is None else policy.with_budget(requested),
            client=client,
            owner=owner,
            request_id=None if ctx.request_id is None else str(ctx.request_id),
            started=time.perf_counter(),
            span=current_span(),
        )
        run = Run(self._front, call, requested, self._warned)
        if tool is not None:
            known = self._wrap(tool)
            dialect = call.policy.dialect
            told = self._front.publisher.of(dialect, known.output_schema, known.misses, known.wrap_output)
            run.know(known.declared, told)
        else:
            run.know(Declared(), self.published(params.name, None if entry is None else entry.output_schema))
        try:
            with run:
                result = await self._call(ctx, params)
                if isinstance(result, Reply | Miss):
                    result = await run.finish_aside(result, HandlerLibrary(entry))
                if isinstance(result, dict) and "content" in result:
                    result = mcp_types.CallToolResult.model_validate(result)
                # What is no such result is input to ask for, or a task.
                if isinstance(result, mcp_types.CallToolResult) and not isinstance(result, SealedResult):
                    result = await _checked(result, run)
                await run.still_wanted()
                return result
        except MCPError:
            raise
        except Exception as error:
            return to_result(run.failure(error, arguments))

    async def _answered(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        """`MCPServer.call_tool`, with whatever it raises answered."""
        run, tool = running.get(), self._function_tool(name)
        if tool is not None:
            self._wrap(tool)
        try:
            return await self._call_tool(name, arguments, context)
        except MCPError:
            raise
        except Exception as error:
            if run is None or tool is None:
                raise
            return to_result(run.failure(_cause(error, run, arguments), arguments))

    def _wrap(self, tool: Tool) -> Metadata:
        """Take what the tool's function returns; once for each tool."""
        if isinstance(tool.fn_metadata, Metadata) and is_wrapped(tool.fn):
            return tool.fn_metadata
        metadata = Metadata.made(tool)
        tool.fn, tool.fn_metadata = wrapped(tool.fn, FunctionLibrary(metadata)), metadata
        # Asynchronous generators are awaited once they are wrapped.
        tool.is_async = tool.is_async or inspect.iscoroutinefunction(tool.fn)
        return metadata


async def _checked(result: mcp_types.CallToolResult, run: Run) -> mcp_types.CallToolResult:
    """A result that somebody else made: the very object if it fits."""
    lanes = run.fits(result)
    if lanes is None:
        return result
    content, structured = lanes
    payload = payload_of(read_result(content, structured), run.call)
    if run.payload is not None and structured is None and len(content) > 1:
        # The SDK shows each item of a list as a block; the list is easier to cut and to read on in.
        payload = run.payload
    sealed = await run.seal_aside(payload, is_error=True if result.is_error else None)
    if sealed.untouched and run.call.published.wrap and structured is not None:
        # The structure gets a member around it. Text that only says the same stays as it was written.
        words = mcp_types.CallToolResult(content=result.content)
        if run.fits(words) is None:
            return result.model_copy(update={"structured_content": {"result": result.structured_content}})
    return to_result(sealed, result.meta)


def _cause(error: BaseException, run: Run, arguments: Mapping[str, Any]) -> BaseException:
    """What the tool raised, behind what the SDK made of it."""
    while isinstance(error, ToolError) and error.__cause__ is not None:
        was_unexpected = isinstance(error, UnexpectedToolError)
        error = error.__cause__
        if was_unexpected and not run.has_returned:
            error = in_body(error, arguments)
    return error


def _client(ctx: Any) -> Client:
    parameters = getattr(ctx.session, "client_params", None)
    info = getattr(parameters, "client_info", None)
    if info is None:
        return UNKNOWN
    return known_client(info.name, info.version or "", era_of(ctx.protocol_version))


def _owner(ctx: Any) -> str | None:
    """Who calls, over HTTP: what was stored for one credential is not found with another."""
    headers = getattr(ctx.request, "headers", None)
    return None if headers is None else headers.get("authorization")
