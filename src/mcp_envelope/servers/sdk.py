"""The official SDK with one line: `envelope(server)`, for an `MCPServer` or a low-level `Server`.

Strategy: the handlers of `tools/list` and `tools/call` are wrapped where the SDK keeps them, so both protocol
eras, extensions and middleware stay as they are. An `MCPServer` has functions, and what they return is taken
before the SDK turns it into a result; a low-level server makes its results itself, and those are sealed. What
fits goes out as the very object that came.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import mcp_types
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json

from ..clients import UNKNOWN, Client
from ..clients import client as known_client
from ..dialects.notice import READ_TOOL
from ..front import Call, Declared, Front, Published
from ..payload import PayloadError, read_result
from ..policy import Settings
from ..policy.table import BUDGET_ARGUMENT
from ..sealed import Sealed
from .annotations import without_outcomes
from .declaring import declared_at
from .results import blocks_of, problem, structured_of, warn_of_hand_made
from .running import Run, running, wrapped

if TYPE_CHECKING:
    from mcp.server.mcpserver.tools.base import Tool

    from ..vault.ledger import Ledger
    from ..vault.vault import Vault

Handler = Callable[[Any, Any], Awaitable[Any]]
_LIST, _CALL = "tools/list", "tools/call"
_RESULT: Final = b'{"result":'


def envelope(
    server: MCPServer[Any] | Server[Any],
    *,
    config: str | None = None,
    dialect: str | None = None,
    vault: Vault | str | None = None,
    ledger: Ledger | bool = True,
    strict: bool = False,
    token_budget: bool = True,
    settings: Settings | None = None,
) -> Front:
    """Put every tool's result of a server into one envelope. Tools may be added before or after.

    `config` names a settings file (default: the nearest mcp-envelope.toml); `dialect` the wire shape; `vault` where
    whole results are kept (an address, or "none"). `strict` warns of tools that make results by hand.
    """
    front = Front(
        settings or Settings(config),
        vault=vault,
        ledger=ledger,
        dialect=dialect,
        server=server.name,
        token_budget=token_budget,
    )
    _Enveloped(server, front, strict)
    return front


class _Enveloped:
    def __init__(self, server: MCPServer[Any] | Server[Any], front: Front, strict: bool) -> None:
        self._front = front
        self.strict = strict
        self._functions = server if isinstance(server, MCPServer) else None
        self._server: Server[Any] = server._lowlevel_server if isinstance(server, MCPServer) else server
        self._list = self._taken(_LIST, self.list)
        self._call = self._taken(_CALL, self.call)
        self._entries: dict[str, mcp_types.Tool] | None = None
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
        self._entries = {**(self._entries or {}), **{tool.name: tool for tool in result.tools}}
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
        misses = False
        if tool is not None and (stated := without_outcomes(tool.fn)) is not None:
            misses = stated.misses
            schema = None if schema is None else _schema_of(stated.annotation)
        return self._front.publish(name, schema, misses)

    def _function_tool(self, name: str) -> Tool | None:
        return None if self._functions is None else self._functions._tool_manager.get_tool(name)

    async def _entry(self, ctx: Any, name: str) -> mcp_types.Tool | None:
        """What the server lists of a tool; asked for when nobody did yet."""
        if self._entries is None or name not in self._entries:
            cursor: str | None = None
            found: dict[str, mcp_types.Tool] = {}
            for _ in range(100):
                page = await self._list(ctx, mcp_types.PaginatedRequestParams(cursor=cursor))
                found |= {tool.name: tool for tool in page.tools}
                cursor = page.next_cursor
                if cursor is None:
                    break
            self._entries = {**(self._entries or {}), **found}
        return self._entries.get(name)

    # -- calls ----------------------------------------------------------------------------------------------

    async def call(self, ctx: Any, params: Any) -> Any:
        client = _client(ctx)
        owner = _owner(ctx)
        if params.name == READ_TOOL:
            policy = self._front.policy(READ_TOOL, None, client)
            call = Call(tool=READ_TOOL, policy=policy, client=client, owner=owner)
            return _to_result(self._front.read(params.arguments or {}, call))
        requested = None
        tool = self._function_tool(params.name)
        if tool is not None:
            self._wrap(tool)
            schema: Any = tool.parameters
        else:
            entry = await self._entry(ctx, params.name)
            schema = None if entry is None else entry.input_schema
        arguments = params.arguments or {}
        if BUDGET_ARGUMENT in arguments and self._front.adds_budget(schema):
            arguments = dict(arguments)
            requested = arguments.pop(BUDGET_ARGUMENT)
            params = params.model_copy(update={"arguments": arguments})
        call = Call(
            tool=params.name,
            policy=self._front.policy(params.name, requested, client),
            client=client,
            owner=owner,
            request_id=None if ctx.request_id is None else str(ctx.request_id),
            started=time.perf_counter(),
        )
        run = Run(self._front, call)
        run.requested = requested
        if tool is None:
            run.know(Declared(), self.published(params.name, None if entry is None else entry.output_schema))
        token = running.set(run)
        try:
            result = await self._call(ctx, params)
        except MCPError:
            raise
        except Exception as error:
            return _to_result(run.seal(problem(error, arguments)))
        finally:
            running.reset(token)
        if isinstance(result, dict) and "content" in result:
            result = mcp_types.CallToolResult.model_validate(result)
        if not isinstance(result, mcp_types.CallToolResult) or isinstance(result, _SealedResult):
            return result
        return self._checked(result, run)

    def _checked(self, result: mcp_types.CallToolResult, run: Run) -> mcp_types.CallToolResult:
        content, structured = blocks_of(result.content), structured_of(result.structured_content)
        if run.fits(content, structured):
            return result
        tool = self._function_tool(run.call.tool)
        if tool is not None:
            run.know(declared_at(tool.fn), self.published(tool.name, tool.output_schema))
        wrap = run.call.published.wrap and structured is not None and not result.is_error
        sealed = run.seal(read_result(content, structured), is_error=True if result.is_error else None)
        if sealed.untouched and not wrap:
            return result
        return _to_result(sealed, result.meta)

    async def _answered(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        """`MCPServer.call_tool`, with whatever it raises answered."""
        run = running.get()
        try:
            return await self._call_tool(name, arguments, context)
        except MCPError:
            raise
        except Exception as error:
            if run is None or self._function_tool(name) is None:
                raise
            return _to_result(run.seal(problem(_cause(error), arguments)))

    def _wrap(self, tool: Tool) -> None:
        """Take what the tool's function returns; once for each tool."""
        if isinstance(tool.fn_metadata, _Metadata):
            return
        function = wrapped(tool.fn, _Library(tool, self))
        metadata = _Metadata.model_construct(
            **{name: getattr(tool.fn_metadata, name) for name in FuncMetadata.model_fields}
        )
        tool.fn, tool.fn_metadata = function, metadata
        if not tool.is_async:
            # Asynchronous generators are awaited once they are wrapped.
            import inspect

            tool.is_async = inspect.iscoroutinefunction(function)


class _SealedResult(mcp_types.CallToolResult):
    """A result that went through the envelope already."""


class _Metadata(FuncMetadata):
    """The same, but a result that was sealed is passed on: the SDK's model knows nothing of a notice."""

    def convert_result(self, result: Any) -> Any:
        return result if isinstance(result, _SealedResult) else super().convert_result(result)


class _Library:
    """What an `MCPServer` does with the values of one tool."""

    def __init__(self, tool: Tool, enveloped: _Enveloped) -> None:
        self._tool = tool
        self._enveloped = enveloped
        self._metadata = tool.fn_metadata
        self.wraps = tool.fn_metadata.wrap_output
        self.structures = tool.fn_metadata.output_model is not None
        self.declared = declared_at(tool.fn)

    @cached_property
    def published(self) -> Published:
        return self._enveloped.published(self._tool.name, self._tool.output_schema)

    def is_result(self, value: object) -> bool:
        if isinstance(value, mcp_types.CallToolResult):
            if self._enveloped.strict:
                warn_of_hand_made(self._tool.name, value)
            return True
        if isinstance(value, mcp_types.InputRequiredResult | bytes):
            return True
        some = value if isinstance(value, list | tuple) else (value,)
        return any(_is_block(item) for item in some)

    def to_json(self, value: Any) -> bytes:
        model = self._metadata.output_model
        if self._metadata.output_schema is None or model is None:
            return self.item_to_json(value)
        adapter = self._metadata._output_adapter(model)
        whole = {"result": value} if self.wraps else value
        validated = adapter.validate_python(whole, by_alias=True, by_name=True)
        if isinstance(validated, BaseModel):
            written = validated.model_dump_json(by_alias=True).encode()
        else:
            written = bytes(adapter.dump_json(validated, by_alias=True))
        return written[len(_RESULT) : -1] if self.wraps else written

    def item_to_json(self, item: Any) -> bytes:
        try:
            return bytes(to_json(item, by_alias=True, fallback=str))
        except (PydanticSerializationError, UnicodeDecodeError, ValueError) as error:
            raise PayloadError(f"the result cannot be written as JSON: {error}") from error

    def of(self, sealed: Sealed, call: Call) -> mcp_types.CallToolResult:
        return _to_result(sealed)


def _is_block(value: object) -> bool:
    from mcp.server.mcpserver.utilities.types import Audio, Image

    return isinstance(value, mcp_types.ContentBlock | Image | Audio)


def _to_result(sealed: Sealed, meta: Mapping[str, Any] | None = None) -> mcp_types.CallToolResult:
    result = sealed.to_result()
    if meta:
        result["_meta"] = {**meta, **(result.get("_meta") or {})}
    return _SealedResult.model_validate(result)


def _schema_of(annotation: Any) -> dict[str, Any] | None:
    """The output schema that the SDK would derive from a return annotation."""
    from mcp.server.mcpserver.utilities.func_metadata import func_metadata

    def stub() -> Any: ...

    stub.__annotations__ = {"return": annotation}
    return func_metadata(stub).output_schema


def _cause(error: BaseException) -> BaseException:
    """What the tool raised, behind what the SDK made of it."""
    from mcp.server.mcpserver.exceptions import ToolError

    while isinstance(error, ToolError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _client(ctx: Any) -> Client:
    parameters = getattr(ctx.session, "client_params", None)
    info = getattr(parameters, "client_info", None)
    return UNKNOWN if info is None else known_client(info.name, info.version or "")


def _owner(ctx: Any) -> str | None:
    """Who calls, over HTTP: what was stored for one credential is not found with another."""
    headers = getattr(ctx.request, "headers", None)
    return None if headers is None else headers.get("authorization")
