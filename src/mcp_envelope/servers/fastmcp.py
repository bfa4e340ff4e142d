"""FastMCP with one line: `mcp.add_middleware(EnvelopeMiddleware())`.

Strategy: the middleware sees lists and calls. What a tool's function returns is taken by a transform, which gives
the server each function tool with its function wrapped; other tools (proxied, mounted, made by hand) are sealed
from the result that comes up. What fits goes out as the very object that FastMCP made. Exceptions are let through
the library, so that its logs and spans have them, and answered here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import mcp_types
from fastmcp.exceptions import DisabledError, NotFoundError, ToolError
from fastmcp.server.middleware import CallNext, MiddlewareContext
from fastmcp.server.middleware.tool_injection import ToolInjectionMiddleware
from fastmcp.server.transforms import GetToolNext, Transform
from fastmcp.tools import FunctionTool, Tool, ToolResult
from fastmcp.tools.base import InputRequiredToolResult
from fastmcp.utilities.types import Audio, File, Image, get_cached_typeadapter
from mcp.shared.exceptions import MCPError
from pydantic import PydanticSchemaGenerationError, PydanticUserError
from pydantic_core import PydanticSerializationError

from ..clients import UNKNOWN, Client
from ..clients import client as known_client
from ..dialects.notice import READ_TOOL
from ..front import Call, Declared, Front, Published
from ..outcome import Miss, Reply
from ..payload import PayloadError, read_result
from ..policy import Settings
from ..policy.table import BUDGET_ARGUMENT
from ..sealed import Sealed
from .annotations import without_outcomes
from .declaring import declared_at
from .results import blocks_of, problem, structured_of, warn_of_hand_made
from .running import Run, running, wrapped

if TYPE_CHECKING:
    from fastmcp import FastMCP
    from fastmcp.utilities.versions import VersionSpec

    from ..vault.ledger import Ledger
    from ..vault.vault import Vault

_WRAPS: Final = "x-fastmcp-wrap-result"


class EnvelopeMiddleware(ToolInjectionMiddleware):
    """Every tool's result in one envelope.

    `config` names a settings file (default: the nearest mcp-envelope.toml); `dialect` the wire shape; `vault` where
    whole results are kept (an address, or "none"). `strict` warns of tools that make results by hand.
    """

    def __init__(
        self,
        *,
        config: str | None = None,
        dialect: str | None = None,
        vault: Vault | str | None = None,
        ledger: Ledger | bool = True,
        strict: bool = False,
        token_budget: bool = True,
        settings: Settings | None = None,
    ) -> None:
        self.front = Front(
            settings or Settings(config),
            vault=vault,
            ledger=ledger,
            dialect=dialect,
            token_budget=token_budget,
        )
        self.strict = strict
        self._transform = _Wrapping(self)
        super().__init__([_ReadTool.made(self.front)])

    # -- lists ----------------------------------------------------------------------------------------------

    async def on_list_tools(
        self,
        context: MiddlewareContext[mcp_types.ListToolsRequest],
        call_next: CallNext[mcp_types.ListToolsRequest, Sequence[Tool]],
    ) -> Sequence[Tool]:
        return [self._listed(tool) for tool in await call_next(context)]

    def _listed(self, tool: Tool) -> Tool:
        if tool.name == READ_TOOL:
            return tool
        entry = {"inputSchema": tool.parameters, "outputSchema": tool.output_schema}
        shown = self.front.listed(entry, self.published(tool))
        return tool.model_copy(
            update={"parameters": shown["inputSchema"], "output_schema": shown.get("outputSchema")}
        )

    def published(self, tool: Tool) -> Published:
        function = getattr(tool, "fn", None)
        schema, misses = tool.output_schema, False
        if function is not None and (stated := without_outcomes(function)) is not None:
            misses = stated.misses
            if schema is not None:
                schema = _schema_of(stated.annotation)
        return self.front.publish(tool.name, schema, misses)

    # -- calls ----------------------------------------------------------------------------------------------

    async def on_call_tool(
        self,
        context: MiddlewareContext[mcp_types.CallToolRequestParams],
        call_next: CallNext[mcp_types.CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        message, inside = context.message, context.fastmcp_context
        arguments = message.arguments or {}
        requested = None
        server = inside.fastmcp if inside is not None else None
        if server is not None and self._transform not in server._transforms:
            server.add_transform(self._transform)
        request = inside.request_context if inside is not None else None
        client = _client(request)
        if message.name == READ_TOOL:
            call = Call(
                tool=READ_TOOL,
                policy=self.front.policy(READ_TOOL, None, client),
                client=client,
                owner=_owner(),
            )
            return _to_result(self.front.read(arguments, call), call)
        if BUDGET_ARGUMENT in arguments and server is not None:
            tool = await server.get_tool(message.name)
            if tool is not None and self.front.adds_budget(tool.parameters):
                arguments = dict(arguments)
                requested = arguments.pop(BUDGET_ARGUMENT)
                context = context.copy(message=message.model_copy(update={"arguments": arguments}))
        call = Call(
            tool=message.name,
            policy=self.front.policy(message.name, requested, client),
            client=client,
            owner=_owner(),
            request_id=None if request is None else str(request.request_id),
            started=time.perf_counter(),
        )
        run = Run(self.front, call)
        run.requested = requested
        token = running.set(run)
        try:
            result = await call_next(context)
        except (NotFoundError, DisabledError, MCPError):
            raise
        except Exception as error:
            return _to_result(run.seal(problem(_cause(error), arguments)), call)
        finally:
            running.reset(token)
        if not isinstance(result, ToolResult) or isinstance(result, InputRequiredToolResult | _SealedResult):
            return result
        return await self._checked(result, run, server)

    async def _checked(self, result: ToolResult, run: Run, server: FastMCP[Any] | None) -> ToolResult:
        """A result that FastMCP made: the very object if it fits."""
        content, structured = blocks_of(result.content), structured_of(result.structured_content)
        if run.fits(content, structured):
            return result
        tool = await server.get_tool(run.call.tool) if server is not None else None
        if tool is not None:
            run.know(declared_at(getattr(tool, "fn", None)), self.published(tool))
        sealed = run.seal(read_result(content, structured), is_error=True if result.is_error else None)
        if sealed.untouched:
            return result
        return _to_result(sealed, run.call, result.meta)


class _Wrapping(Transform):
    """Gives the server its function tools with their functions wrapped."""

    def __init__(self, middleware: EnvelopeMiddleware) -> None:
        self._middleware = middleware
        self._made: dict[int, tuple[Tool, Tool]] = {}

    async def get_tool(
        self, name: str, call_next: GetToolNext, *, version: VersionSpec | None = None
    ) -> Tool | None:
        tool = await call_next(name, version=version)
        if not isinstance(tool, FunctionTool):
            return tool
        kept = self._made.get(id(tool))
        if kept is None or kept[0] is not tool:
            library = _Library(tool, self._middleware)
            made = tool.model_copy(update={"fn": wrapped(tool.fn, library)})
            if len(self._made) > 4096:
                self._made.clear()
            # The tool stays beside what was made of it, so that its id cannot come to mean another one.
            kept = self._made[id(tool)] = tool, made
        return kept[1]


class _Library:
    """What FastMCP does with the values of one tool."""

    def __init__(self, tool: FunctionTool, middleware: EnvelopeMiddleware) -> None:
        self._tool = tool
        self._middleware = middleware
        self.wraps = bool((tool.output_schema or {}).get(_WRAPS))
        self.structures = tool.output_schema is not None
        self.declared = declared_at(tool.fn)

    @cached_property
    def published(self) -> Published:
        return self._middleware.published(self._tool)

    def is_result(self, value: object) -> bool:
        if isinstance(value, ToolResult | mcp_types.CallToolResult):
            if self._middleware.strict:
                warn_of_hand_made(self._tool.name, value)
            return True
        if isinstance(value, mcp_types.InputRequiredResult | bytes):
            return True
        some = value if isinstance(value, list | tuple) else (value,)
        kinds = (mcp_types.ContentBlock, Audio, Image, File)
        return any(isinstance(item, kinds) for item in some) or hasattr(value, "to_json")

    def to_json(self, value: Any) -> bytes:
        return _written(value, self._tool.return_type)

    def item_to_json(self, item: Any) -> bytes:
        return _written(item, Any)

    def of(self, sealed: Sealed, call: Call) -> ToolResult:
        # FastMCP's own client takes the value out again when it is told so.
        is_member = self.wraps and call.is_native and (sealed.structured or b"").startswith(b'{"result":')
        return _to_result(sealed, call, {"fastmcp": {"wrap_result": True}} if is_member else None)


def _written(value: Any, annotation: Any) -> bytes:
    """As FastMCP writes values: by the return annotation, if it can be used, else by what they are."""
    from inspect import Signature

    stated = annotation not in (Signature.empty, None, Any, ...) and not isinstance(annotation, str)
    try:
        if stated:
            try:
                return bytes(get_cached_typeadapter(annotation).dump_json(value, warnings=False))
            except (PydanticSchemaGenerationError, PydanticUserError, PydanticSerializationError):
                pass
        return bytes(get_cached_typeadapter(Any).dump_json(value))
    except (PydanticSerializationError, UnicodeDecodeError, ValueError) as error:
        raise PayloadError(f"the result cannot be written as JSON: {error}") from error


class _SealedResult(ToolResult):
    """A result that went through the envelope already."""


class _ReadTool(Tool):
    """Our own tool. The middleware answers its calls; this is for servers that are asked directly."""

    @classmethod
    def made(cls, front: Front) -> _ReadTool:
        entry = front.read_tool()
        tool = cls.model_validate(
            {
                "name": entry["name"],
                "title": entry["title"],
                "description": entry["description"],
                "parameters": entry["inputSchema"],
                "annotations": entry["annotations"],
            }
        )
        tool._front = front
        return tool

    _front: Front

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        call = Call(tool=READ_TOOL, policy=self._front.policy(READ_TOOL), owner=_owner())
        return _to_result(self._front.read(arguments, call), call)


def _to_result(sealed: Sealed, call: Call, meta: Mapping[str, Any] | None = None) -> ToolResult:
    result = sealed.to_result()
    own = result.get("_meta")
    both = {**(meta or {}), **(own or {})}
    content = mcp_types.CallToolResult.model_validate({"content": result["content"]}).content
    return _SealedResult(
        content=content,
        structured_content=result.get("structuredContent"),
        meta=both or None,
        is_error=sealed.is_error,
    )


def _schema_of(annotation: Any) -> dict[str, Any] | None:
    """The output schema that FastMCP would derive from a return annotation."""

    def stub() -> Any: ...

    stub.__annotations__ = {"return": annotation}
    return Tool.from_function(stub, name="stub").output_schema


def _cause(error: BaseException) -> BaseException:
    """What the tool raised, behind what the library made of it."""
    if isinstance(error, ToolError) and error.__cause__ is not None:
        error = error.__cause__
    while type(error).__name__ in ("_ToolBodyError", "ValidationError") and error.__cause__ is not None:
        error = error.__cause__
    return error


def _client(request: Any) -> Client:
    session = getattr(request, "session", None)
    parameters = getattr(session, "client_params", None)
    info = getattr(parameters, "client_info", None)
    return UNKNOWN if info is None else known_client(info.name, info.version or "")


def _owner() -> str | None:
    """Who calls, over HTTP: what was stored for one credential is not found with another."""
    from fastmcp.server.dependencies import get_http_headers

    try:
        return get_http_headers(include={"authorization"}).get("authorization")
    except RuntimeError:
        return None


__all__ = ["Declared", "EnvelopeMiddleware", "Miss", "Reply"]
