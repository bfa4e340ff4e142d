"""The official SDK with one line: `envelope(server)`, for an `MCPServer` or a low-level `Server`.

Strategy: the handlers of `tools/list` and `tools/call` are wrapped where the SDK keeps them, so both protocol
eras, extensions and middleware stay as they are. An `MCPServer` has functions: what they return is taken before
the SDK turns it into a result, and their metadata is replaced by a copy that says nothing of outcomes. Values
are written by the SDK's own adapters, so that what is cut is what would have been sent. A low-level server
makes its results itself, and those are sealed. What fits goes out as the very object that came.
"""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .declare import NOTHING_DECLARED, declared_at, gateway_of, missing_extra, without_outcomes

try:
    import mcp_types
    from anyio import to_thread
    from mcp.server.lowlevel import Server
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
    from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata, func_metadata
    from mcp.server.mcpserver.utilities.types import Audio, Image
    from mcp.shared.exceptions import MCPError
except ImportError as error:
    raise missing_extra("The official SDK (mcp)", "sdk", error) from error

from msgspec import DecodeError
from msgspec.json import decode
from msgspec.structs import replace
from pydantic import BaseModel, TypeAdapter
from pydantic_core import PydanticSerializationError, to_json

from ..dialects.notice import READ_TOOL
from ..fit.blocks import SCHEME
from ..gateway import Call, Declared, Gateway
from ..outcome import Miss, Reply
from ..payload import PayloadError
from .calls import Converter, Run, call_of, is_wrapped, owner_of, raised_in_body, running, wrapped
from .values import Replayed, is_iterator, wire_form

if TYPE_CHECKING:
    from mcp.server.mcpserver.tools.base import Tool

    from ..config import Settings
    from ..envelope import Sealed
    from ..vault.ledger import Ledger
    from ..vault.vault import Vault

Handler = Callable[[Any, Any], Awaitable[Any]]
_LIST, _CALL, _READ = "tools/list", "tools/call", "resources/read"
_MOST_PAGES: Final = 100
_RESULT: Final = b'{"result":'


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
) -> Gateway:
    """Put the results of all tools of a server into one envelope. Tools may be added before or after.

    `budget` is in tokens, for each lane, `max_bytes` in bytes; a settings file takes precedence. `config` names
    that file (default: the nearest mcp-envelope.toml), `dialect` the wire shape, and `vault` where whole
    results are kept (an address, or "none"). `strict` warns of tools that make results by hand.
    """
    _check_kind(server)
    gateway = gateway_of(
        budget=budget,
        max_bytes=max_bytes,
        config=config,
        settings=settings,
        vault=vault,
        ledger=ledger,
        dialect=dialect,
        server=server.name,
        token_budget=token_budget,
    )
    _Enveloped(server, gateway, strict)
    return gateway


def _check_kind(server: object) -> None:
    if not isinstance(server, MCPServer | Server):
        is_fastmcp = type(server).__module__.startswith("fastmcp.")
        more = "; for FastMCP: server.add_middleware(EnvelopeMiddleware())" if is_fastmcp else ""
        kind = type(server).__name__
        raise TypeError(f"envelope takes an MCPServer or a low-level Server, not a {kind}{more}")


class _Enveloped:
    """The handlers of a server, and our own around them."""

    def __init__(self, server: MCPServer[Any] | Server[Any], gateway: Gateway, strict: bool) -> None:
        self._gateway = gateway
        self._warned: set[str] | None = set() if strict else None
        self._functions = server if isinstance(server, MCPServer) else None
        # An MCPServer has no public way to its handlers.
        self._server: Server[Any] = server._lowlevel_server if isinstance(server, MCPServer) else server
        self._list = self._replace(_LIST, self.list)
        self._call = self._replace(_CALL, self.call)
        # Links to stored results can be followed on a server without resources, too.
        reading = self._server.get_request_handler(_READ)
        self._read = None if reading is None else reading.handler
        self._server.add_request_handler(_READ, mcp_types.ReadResourceRequestParams, self.read)
        # An MCPServer's own method, and not a chain of extensions that may handle results before we do.
        self._is_innermost = getattr(self._call, "__self__", None) is server
        self._entries: dict[str, mcp_types.Tool] = {}
        if self._functions is not None:
            self._call_tool = self._functions.call_tool
            # The SDK turns exceptions into text one step further out; here they are still what they were.
            self._functions.call_tool = self._answered  # type: ignore[method-assign]

    def _replace(self, method: str, handler: Handler) -> Handler:
        entry = self._server.get_request_handler(method)
        if entry is None:
            raise ValueError(
                f"the server has no handler for {method} yet: pass on_list_tools and on_call_tool to Server(…), "
                "or add the handlers, before envelope(server)"
            )
        if getattr(entry.handler, "__self__", None).__class__ is _Enveloped:
            raise ValueError("this server already has an envelope")
        self._server.add_request_handler(method, entry.params_type, handler)
        return entry.handler

    async def read(self, ctx: Any, params: Any) -> Any:
        if params.uri.startswith(SCHEME):
            owner = owner_of(ctx)
            found, problem = await to_thread.run_sync(self._gateway.resource, params.uri, owner)
            if problem:
                raise MCPError(code=mcp_types.INVALID_PARAMS, message=problem)
            return mcp_types.ReadResourceResult.model_validate_json(found)
        if self._read is None:
            raise MCPError(code=mcp_types.METHOD_NOT_FOUND, message="Method not found", data=_READ)
        return await self._read(ctx, params)

    # -- lists ------------------------------------------------------------------------------------------------

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
            tools.append(mcp_types.Tool.model_validate(self._gateway.read_tool()))
        return result.model_copy(update={"tools": tools})

    def _listed(self, entry: mcp_types.Tool) -> mcp_types.Tool:
        tool = self._function_tool(entry.name)
        published = self._gateway.publish(entry.name, *self._output(tool, entry)[1:])
        schemas = {"inputSchema": entry.input_schema, "outputSchema": entry.output_schema}
        shown = self._gateway.listed(schemas, published)
        return entry.model_copy(
            update={"input_schema": shown["inputSchema"], "output_schema": shown.get("outputSchema")}
        )

    def _output(self, tool: Tool | None, entry: mcp_types.Tool | None) -> _ToolOutput:
        if tool is not None:
            output: _ToolOutput = self._wrap(tool).output
            return output
        return _ToolOutput(NOTHING_DECLARED, None if entry is None else entry.output_schema, False, False)

    def _function_tool(self, name: str) -> Tool | None:
        # The SDK's public list has no functions in it.
        return None if self._functions is None else self._functions._tool_manager.get_tool(name)

    async def _entry(self, ctx: Any, name: str) -> mcp_types.Tool | None:
        """Return what the server lists of a tool; ask for the list if nobody did yet."""
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

    # -- calls ------------------------------------------------------------------------------------------------

    async def call(self, ctx: Any, params: Any) -> Any:
        name, arguments = params.name, params.arguments or {}
        if name == READ_TOOL and READ_TOOL not in self._entries:
            call = call_of(ctx, READ_TOOL, self._gateway)
            return _to_result(await to_thread.run_sync(self._gateway.read, arguments, call))
        tool = self._function_tool(name)
        entry = await self._entry(ctx, name) if tool is None else None
        output = self._output(tool, entry)
        call = call_of(ctx, name, self._gateway, output.declared, output[1:], arguments)
        if arguments and (budget_name := call.dialect.budget_argument) in arguments:
            schema = tool.parameters if tool is not None else None if entry is None else entry.input_schema
            requested = arguments[budget_name]
            if self._gateway.adds_budget(schema, budget_name):
                arguments = {key: value for key, value in arguments.items() if key != budget_name}
                params = params.model_copy(update={"arguments": arguments})
            elif not call.dialect.defines_budget_argument:
                requested = None
            if requested is not None:
                call = replace(call, policy=call.policy.with_budget(requested))
        run = Run(self._gateway, call)
        try:
            with run:
                if (restored := self._gateway.restored(arguments, call)) is not arguments:
                    params = params.model_copy(update={"arguments": restored})
                result = await self._call(ctx, params)
                if self._is_innermost and run.passes(result):
                    return result
                if isinstance(result, Reply | Miss):
                    result = await run.take_aside(result, LowLevelConverter(entry))
                if isinstance(result, dict) and "content" in result:
                    result = mcp_types.CallToolResult.model_validate(result)
                # Anything else is a request for input, or a task.
                if isinstance(result, mcp_types.CallToolResult) and not isinstance(
                    result, SealedCallToolResult
                ):
                    result = await _finished(result, run)
                await run.check_cancelled()
                return result
        except MCPError as error:
            if run.passes_on(error.code, error.message, is_known=bool(tool or entry)):
                raise
            return _to_result(run.fail(error, arguments))
        except Exception as error:
            return _to_result(run.fail(error, arguments))

    async def _answered(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        """Do what `MCPServer.call_tool` does, and answer whatever it raises."""
        run = running.get()
        if (run is None or run.call.tool != name) and (tool := self._function_tool(name)) is not None:
            self._wrap(tool)
        try:
            return await self._call_tool(name, arguments, context)
        except MCPError:
            raise
        except Exception as error:
            if run is None or self._function_tool(name) is None:
                raise
            return _to_result(run.fail(_cause(error, run, arguments), arguments))

    def _wrap(self, tool: Tool) -> Metadata:
        """Wrap a tool's function, once for each tool."""
        metadata = tool.fn_metadata
        if type(metadata) is Metadata and is_wrapped(tool.fn):
            return metadata
        metadata = Metadata.made(tool)
        tool.fn = wrapped(tool.fn, MCPServerConverter(metadata, self._warned))
        tool.fn_metadata = metadata
        # Asynchronous generators are awaited once they are wrapped.
        tool.is_async = tool.is_async or inspect.iscoroutinefunction(tool.fn)
        return metadata


async def _finished(result: mcp_types.CallToolResult, run: Run) -> mcp_types.CallToolResult:
    """Return a result that somebody else made: the very object if it fits."""
    # The SDK shows each item of a list as a block. The list itself is easier to cut, and to read on in.
    is_list = result.structured_content is None and len(result.content) > 1
    sealed = await run.finish(result, run.payload if is_list else None)
    if sealed is None:
        return result
    budget = run.call.policy.budget
    if sealed.untouched and run.call.published.wrap and result.structured_content is not None:
        # The structure gets a member around it. Text that only repeats it stays as it was written.
        words = wire_form(result.model_copy(update={"structured_content": None}))
        if budget is None or all(map(budget.holds, words.lanes())):
            return result.model_copy(update={"structured_content": {"result": result.structured_content}})
    return _to_result(sealed, result.meta)


def _cause(error: BaseException, run: Run, arguments: Mapping[str, Any]) -> BaseException:
    """Return what the tool raised, behind what the SDK made of it."""
    while isinstance(error, ToolError) and error.__cause__ is not None:
        was_unexpected = isinstance(error, UnexpectedToolError)
        error = error.__cause__
        if was_unexpected and run.stage == "running":
            error = raised_in_body(error, arguments)
    return error


# -- results and values ---------------------------------------------------------------------------------------


class SealedCallToolResult(mcp_types.CallToolResult):
    """A result that went through the envelope already."""


def _to_result(sealed: Sealed, meta: Mapping[str, Any] | None = None) -> mcp_types.CallToolResult:
    result = sealed.to_result()
    if meta:
        result["_meta"] = {**meta, **(result.get("_meta") or {})}
    return SealedCallToolResult.model_validate(result)


class _ToolOutput(NamedTuple):
    """What a tool's author declared, and what the tool promises of its data, outcomes aside."""

    declared: Declared
    schema: dict[str, Any] | None
    misses: bool
    wraps: bool


class Metadata(FuncMetadata):
    """What the SDK knows of a function, outcomes aside."""

    output: Any = None
    # Whether the data is any dictionary, which the SDK sends as it is.
    is_any_dict: bool = False

    @classmethod
    def made(cls, tool: Tool) -> Metadata:
        known = tool.fn_metadata
        data = without_outcomes(tool.fn)
        output = known
        if data is not None and known.output_schema is not None:

            def stub() -> Any: ...

            stub.__annotations__ = {"return": data.annotation}
            stub.__name__ = getattr(tool.fn, "__name__", "tool")
            output = func_metadata(stub)
        return cls.model_construct(
            arg_model=known.arg_model,
            output_schema=output.output_schema,
            output_model=output.output_model,
            wrap_output=output.wrap_output,
            output=_ToolOutput(
                declared_at(tool.fn),
                output.output_schema,
                data is not None and data.misses,
                output.wrap_output,
            ),
            is_any_dict=typing.get_args(output.output_model)[:1] == (dict[str, Any],),
        )

    def convert_result(self, result: Any) -> Any:
        if type(result) is not dict or (run := running.get()) is None:
            # The SDK's own model of the data knows nothing of a notice.
            return result if isinstance(result, SealedCallToolResult) else super().convert_result(result)
        if self.is_any_dict and (adapter := self.adapter()) is not None:
            # What the SDK makes of it, without its search for content blocks. Reading the structure from the text
            # takes less than writing the value once more.
            try:
                written = to_json(result, indent=2)
            except PydanticSerializationError:
                return super().convert_result(result)
            adapter.validate_python(result, by_alias=True, by_name=True)
            try:
                structured = decode(written)
            except (DecodeError, RecursionError):  # NaN is no JSON
                structured = adapter.dump_python(result, mode="json", by_alias=True)
            text = mcp_types.TextContent(type="text", text=written.decode())
            run.plain = mcp_types.CallToolResult(content=[text], structured_content=structured)
            run.plain_size = len(written)
            return run.plain
        made: Any = super().convert_result(result)
        if made.structured_content == result:
            # The text was written from the same value as the structure.
            run.plain = made
        return made

    def adapter(self) -> TypeAdapter[Any] | None:
        """Return what the SDK validates and writes structures with. Its special cases are not worth copying."""
        if self.output_schema is None or self.output_model is None:
            return None
        return self._output_adapter(self.output_model)


class LowLevelConverter(Converter):
    """The handler of a low-level server makes results of its values itself, unless it returns an outcome."""

    results = (mcp_types.CallToolResult, mcp_types.InputRequiredResult)
    helpers = (Audio, Image)

    def __init__(self, entry: mcp_types.Tool | None) -> None:
        self.structures = entry is not None and entry.output_schema is not None

    def is_hand_made(self, value: object) -> bool:
        if isinstance(value, mcp_types.CallToolResult):
            return not isinstance(value, SealedCallToolResult)
        return super().is_hand_made(value)

    def to_json(self, value: Any) -> bytes:
        return self.item_to_json(value)

    def item_to_json(self, item: Any) -> bytes:
        try:
            return bytes(to_json(item, by_alias=True, fallback=str))
        except Exception as error:
            raise PayloadError(f"the result cannot be written as JSON: {error}") from error

    def is_yielded(self, value: object) -> bool:
        return is_iterator(value)

    def from_items(self, values: list[Any]) -> Any:
        # The SDK makes one text of an iterator, and a block for each item of a list. Blocks stay blocks.
        return values if self.is_result(values) else Replayed(values)

    def reread(self, value: Any, written: bytes) -> Any:
        return json.loads(written)

    def to_result(self, sealed: Sealed, call: Call) -> mcp_types.CallToolResult:
        return _to_result(sealed)


class MCPServerConverter(LowLevelConverter):
    """What an `MCPServer` does with the values of one function."""

    def __init__(self, metadata: Metadata, warned: set[str] | None) -> None:
        self._metadata = metadata
        self.wraps = metadata.wrap_output
        self.structures = metadata.output_model is not None
        self.warned = warned

    def to_json(self, value: Any) -> bytes:
        adapter = self._metadata.adapter()
        if adapter is None:
            return self.item_to_json(value)
        try:
            data = {"result": value} if self.wraps else value
            validated = adapter.validate_python(data, by_alias=True, by_name=True)
            if isinstance(validated, BaseModel):
                written = validated.model_dump_json(by_alias=True).encode()
            else:
                written = bytes(adapter.dump_json(validated, by_alias=True))
        except Exception as error:
            # It is not what was promised, or its serializer, which is the author's code, failed.
            raise PayloadError(f"the result cannot be written as JSON: {error}") from error
        return written[len(_RESULT) : -1] if self.wraps else written
