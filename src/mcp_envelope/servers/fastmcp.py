"""FastMCP with one line: `mcp.add_middleware(EnvelopeMiddleware())`.

Strategy: the middleware sees lists and calls, and a transform gives the server each of its function tools with
the function wrapped. What stands before a function is looked through: a transformed tool, or a mounted server,
which gets the transform too. Other tools (proxied, made by hand) have no function; their finished results are
sealed. What fits goes out as the very object that FastMCP made. Exceptions pass through FastMCP, so that its
logs and spans have them, and are answered here. Where servers are mounted in one another, the outermost
envelope speaks.
"""

from __future__ import annotations

import inspect
import json
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .declare import declared_at, gateway_of, missing_extra, without_outcomes

try:
    import mcp_types
    from anyio import to_thread
    from fastmcp.exceptions import DisabledError, FastMCPError, NotFoundError, ToolError
    from fastmcp.exceptions import ValidationError as ArgumentError
    from fastmcp.resources import ResourceContent, ResourceResult
    from fastmcp.server.dependencies import extract_version_spec, fastmcp_request_ctx
    from fastmcp.server.middleware import CallNext, MiddlewareContext
    from fastmcp.server.middleware.tool_injection import ToolInjectionMiddleware
    from fastmcp.server.providers.fastmcp_provider import FastMCPProviderTool
    from fastmcp.server.transforms import GetToolNext, Transform
    from fastmcp.tools import FunctionTool, Tool, ToolResult
    from fastmcp.tools.base import InputRequiredToolResult, default_serializer
    from fastmcp.tools.tool_transform import TransformedTool
    from fastmcp.utilities.types import Audio, File, Image, get_cached_typeadapter
    from fastmcp.utilities.versions import VersionSpec
    from mcp.shared.exceptions import MCPError
except ImportError as error:
    raise missing_extra("FastMCP", "fastmcp", error) from error

from msgspec.structs import replace
from pydantic import BaseModel, PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from ..config import Shape
from ..dialects.notice import READ_TOOL
from ..fit.blocks import SCHEME
from ..gateway import Call, Declared, Gateway, Published, program_identity
from ..outcome import Failure, Miss, Reply
from ..payload import PayloadError
from .calls import Converter, Run, call_of, is_wrapped, owner_of, raised_in_body, running, wrapped
from .values import is_iterator

if TYPE_CHECKING:
    from fastmcp import FastMCP

    from ..config import Settings
    from ..envelope import Sealed
    from ..vault.ledger import Ledger
    from ..vault.vault import Vault

_GET_TASK: Final = "tasks/get"
_TIMED_OUT: Final = -32000
_WRAPS: Final = "x-fastmcp-wrap-result"
_FASTMCP: Final = "fastmcp"
_SEALED: Final = "io.github.mcp-envelope/sealed"
# How many tools and functions are remembered, and how many tasks.
_REMEMBERED: Final = 4096
_REMEMBERED_TASKS: Final = 256
# How many transforms and mounted servers are looked through.
_DEEPEST: Final = 32
_listing: Final[ContextVar[bool]] = ContextVar("mcp_envelope_listing", default=False)


class EnvelopeMiddleware(ToolInjectionMiddleware):
    """Put every tool's result into one envelope.

    `budget` is in tokens, for each lane, `max_bytes` in bytes; a settings file takes precedence. `config` names
    that file (default: the nearest mcp-envelope.toml), `dialect` the wire shape, and `vault` where whole
    results are kept (an address, or "none"). `strict` warns of tools that make results by hand.
    """

    def __init__(
        self,
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
    ) -> None:
        self.gateway = gateway_of(
            budget=budget,
            max_bytes=max_bytes,
            config=config,
            settings=settings,
            vault=vault,
            ledger=ledger,
            dialect=dialect,
            token_budget=token_budget,
        )
        self._transform = FunctionTransform(self.gateway, strict)
        self._tasks = _TaskResults(self.gateway, self._transform)
        super().__init__([_ReadTool.made(self.gateway)])

    def __call__(  # type: ignore[override]
        self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]
    ) -> Awaitable[Any]:
        """Go straight to the hook for calls: FastMCP's own dispatch passes through six functions.

        FastMCP passes these parameters only where that hook is due; elsewhere the message is a mapping.
        """
        if type(context.message) is mcp_types.CallToolRequestParams and type(self) is EnvelopeMiddleware:
            return self.on_call_tool(context, call_next)
        if context.method == _GET_TASK and running.get() is None:
            call_next = partial(self._tasks.get, call_next=call_next)
        return super().__call__(context, call_next)

    # -- lists ------------------------------------------------------------------------------------------------

    async def on_list_tools(
        self,
        context: MiddlewareContext[mcp_types.ListToolsRequest],
        call_next: CallNext[mcp_types.ListToolsRequest, Sequence[Tool]],
    ) -> Sequence[Tool]:
        if _listing.get():
            return await call_next(context)
        token = _listing.set(True)
        try:
            tools = await call_next(context)
        finally:
            _listing.reset(token)
        return [await self._listed(tool) for tool in tools]

    async def _listed(self, tool: Tool) -> Tool:
        if tool.name == READ_TOOL:
            # What it returns depends on the dialect, which may have changed.
            return _ReadTool.made(self.gateway) if isinstance(tool, _ReadTool) else tool
        entry = {"inputSchema": tool.parameters, "outputSchema": tool.output_schema}
        published = self._transform.published(tool, await _leaf(tool), self.gateway.policy(tool.name).shape)
        shown = self.gateway.listed(entry, published)
        return tool.model_copy(
            update={"parameters": shown["inputSchema"], "output_schema": shown.get("outputSchema")}
        )

    # -- calls ------------------------------------------------------------------------------------------------

    async def on_call_tool(
        self,
        context: MiddlewareContext[mcp_types.CallToolRequestParams],
        call_next: CallNext[mcp_types.CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        if running.get() is not None:
            # This server is mounted in one with an envelope, which takes what functions return.
            return await call_next(context)
        message, inside = context.message, context.fastmcp_context
        server = None if inside is None else inside.fastmcp
        arguments = message.arguments or {}
        request = None if inside is None else inside.request_context
        call = call_of(request, message.name, self.gateway, arguments=arguments)
        if message.name == READ_TOOL:
            return _unmarked(SealedToolResult(await to_thread.run_sync(self.gateway.read, arguments, call)))
        requested = None
        if server is not None:
            self.gateway.identity = self.gateway.identity or program_identity(_own_name(server))
            self._transform.join(server)
            if arguments and (name := call.dialect.budget_argument) in arguments:
                tool = await server.get_tool(message.name, _version(message))
                if tool is not None and self.gateway.adds_budget(tool.parameters, name):
                    arguments = dict(arguments)
                    requested = arguments.pop(name)
                    context = context.copy(message=message.model_copy(update={"arguments": arguments}))
                elif call.dialect.defines_budget_argument:
                    requested = arguments[name]
                if requested is not None:
                    call = replace(call, policy=call.policy.with_budget(requested))
        run = Run(self.gateway, call, requested)
        try:
            with run:
                if (restored := self.gateway.restored(arguments, call)) is not arguments:
                    context = context.copy(message=message.model_copy(update={"arguments": restored}))
                result = await call_next(context)
                if server is not None and server.middleware[-1] is self and not _has_extensions(server):
                    # Nobody else had the result in their hands.
                    if run.passes(result):
                        return result
                result = await self._finish(result, run, server)
                await run.check_cancelled()
                return result
        except (NotFoundError, DisabledError):
            raise
        except MCPError as error:
            # Some middleware makes a protocol error of whatever a tool raised; that is answered.
            cause = error.__cause__
            if not isinstance(cause, FastMCPError) and run.passes_on(error.code, error.message):
                raise
            return _failed(cause if isinstance(cause, FastMCPError) else error, run, arguments)
        except Exception as error:
            return _failed(error, run, arguments)

    async def on_read_resource(
        self,
        context: MiddlewareContext[mcp_types.ReadResourceRequestParams],
        call_next: CallNext[mcp_types.ReadResourceRequestParams, ResourceResult],
    ) -> ResourceResult:
        """Answer for stored results, to which links lead."""
        uri = str(context.message.uri)
        if not uri.startswith(SCHEME):
            return await super().on_read_resource(context, call_next)
        inside = context.fastmcp_context
        owner = owner_of(None if inside is None else inside.request_context)
        found, problem = await to_thread.run_sync(self.gateway.resource, uri, owner)
        if problem:
            raise MCPError(code=mcp_types.INVALID_PARAMS, message=problem)
        read = mcp_types.ReadResourceResult.model_validate_json(found)
        return ResourceResult(
            [
                ResourceContent(
                    each.text if isinstance(each, mcp_types.TextResourceContents) else b64decode(each.blob),
                    each.mime_type,
                )
                for each in read.contents
            ]
        )

    async def _finish(self, result: ToolResult, run: Run, server: FastMCP[Any] | None) -> ToolResult:
        if not isinstance(result, ToolResult) or isinstance(result, InputRequiredToolResult):
            # A request for input, or a task: not a result yet.
            self._tasks.began(result, run.requested)
            return result
        is_sealed = _is_sealed(result)
        # A cache may return what was sealed for another budget. Only our own shape can be cut again.
        if is_sealed and (run.stage == "sealed" or not run.call.is_native):
            return _unmarked(result)
        if run.tool is None and server is not None:
            # The result came from a cache, say. Looking the tool up tells the run about it.
            await server.get_tool(run.call.tool)
        sealed = await run.finish(result)
        if sealed is None:
            # The very object that FastMCP made.
            return _unmarked(result) if is_sealed else result
        return _unmarked(SealedToolResult(sealed, _own_meta(result.meta, run.call)))


class _ReadTool(Tool):
    """`envelope_read`. The middleware answers its calls; this is for servers that are asked directly."""

    _gateway: Gateway

    @classmethod
    def made(cls, gateway: Gateway) -> _ReadTool:
        entry = gateway.read_tool()
        fields = {name: entry[name] for name in ("name", "title", "description", "annotations")}
        schemas = {"parameters": entry["inputSchema"], "output_schema": entry.get("outputSchema")}
        tool = cls.model_validate({**fields, **schemas, "meta": entry["_meta"]})
        tool._gateway = gateway
        return tool

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        call = call_of(fastmcp_request_ctx.get(), READ_TOOL, self._gateway)
        return SealedToolResult(await to_thread.run_sync(self._gateway.read, arguments, call))


def _own_name(server: FastMCP[Any]) -> str:
    """Return the name that the author gave a server. The one that FastMCP makes up is new in each process."""
    return "" if server.name.startswith("FastMCP-") else server.name


def _version(message: mcp_types.CallToolRequestParams) -> VersionSpec | None:
    version = extract_version_spec(None if message.meta is None else dict(message.meta))
    return None if version is None else VersionSpec(eq=version)


def _failed(error: BaseException, run: Run, arguments: Mapping[str, Any]) -> ToolResult:
    """Answer what was raised: what the tool raised, behind what FastMCP made of it."""
    is_logged = False
    if isinstance(error, ArgumentError) and error.__cause__ is not None:
        error = error.__cause__
    elif isinstance(error, ToolError) and error.__cause__ is not None:
        has_traceback = getattr(getattr(error.__cause__, "response", None), "status_code", None) is None
        is_logged = has_traceback and str(error).startswith("Error calling tool")
        error = error.__cause__
        if type(error).__module__.startswith("fastmcp.") and isinstance(error.__cause__, ValidationError):
            # FastMCP marks a model that the tool's own code could not make.
            error = error.__cause__
        if run.stage == "running":
            error = raised_in_body(error, arguments)
    if isinstance(error, MCPError) and error.error.code == _TIMED_OUT and "timed out" in error.error.message:
        error = Failure("TIMEOUT", error.error.message)
    return _unmarked(SealedToolResult(run.fail(error, arguments, is_logged)))


# -- results --------------------------------------------------------------------------------------------------


class SealedToolResult(ToolResult):
    """A result that went through the envelope. Its mark outlives a cache, which knows only plain results."""

    def __init__(self, sealed: Sealed, meta: dict[str, Any] | None = None) -> None:
        result = sealed.to_result()
        BaseModel.__init__(
            self,
            content=result["content"],
            structured_content=result.get("structuredContent"),
            meta={**(meta or {}), **(result.get("_meta") or {}), _SEALED: True},
            is_error=sealed.is_error,
        )


def _is_sealed(result: ToolResult) -> bool:
    return result.meta is not None and _SEALED in result.meta


def _unmarked(result: ToolResult) -> ToolResult:
    """Return a result as it leaves the server."""
    meta = {name: value for name, value in (result.meta or {}).items() if name != _SEALED}
    return result.model_copy(update={"meta": meta or None})


def _own_meta(meta: dict[str, Any] | None, call: Call) -> dict[str, Any] | None:
    """Return a result's own `_meta`, without what is true of FastMCP's own shape alone."""
    told = (meta or {}).get(_FASTMCP)
    if meta is None or call.is_native or not isinstance(told, dict) or "wrap_result" not in told:
        return meta
    rest = {name: value for name, value in told.items() if name != "wrap_result"}
    others = {name: value for name, value in meta.items() if name != _FASTMCP}
    return {**others, _FASTMCP: rest} if rest else others


# -- tools ----------------------------------------------------------------------------------------------------


class _Function(NamedTuple):
    """A tool's function, wrapped, and what the tool promises of its data, outcomes aside."""

    # These two belong to the key, which is made of their ids: held here, they can't come to mean others.
    original: Callable[..., Any]
    original_schema: dict[str, Any] | None
    wrapped: Callable[..., Any]
    annotation: Any
    schema: dict[str, Any] | None
    misses: bool
    has_outcomes: bool


class _Leaf(NamedTuple):
    """The tool whose function gives the result, and whether something before it promises other results."""

    tool: FunctionTool | TransformedTool
    is_overridden: bool


class _Known(NamedTuple):
    """A tool, what the server gets in its place, what its author declared, and what clients may expect of it."""

    tool: Tool
    made: Tool
    leaf: _Leaf | None
    declared: Declared
    published: dict[Shape, Published]


class FunctionTransform(Transform):
    """Gives a server its tools with their functions wrapped, and tells the run which tool was found."""

    def __init__(self, gateway: Gateway, strict: bool = False) -> None:
        self._gateway = gateway
        self._warned: set[str] | None = set() if strict else None
        self._known: dict[int, _Known] = {}
        self._functions: dict[tuple[int, int], _Function] = {}

    def join(self, server: FastMCP[Any]) -> None:
        if self not in server.transforms:
            server.add_transform(self)

    async def get_tool(
        self, name: str, call_next: GetToolNext, *, version: VersionSpec | None = None
    ) -> Tool | None:
        tool = await call_next(name, version=version)
        if tool is None:
            return None
        known = self._known.get(id(tool))
        if known is None or known.tool is not tool:
            known = await self._look_at(tool)
        run = running.get()
        if run is not None and run.gateway is self._gateway and (run.tool is None or name == run.call.tool):
            shape = run.call.policy.shape
            published = known.published.get(shape)
            if published is None:
                published = known.published[shape] = self.published(tool, known.leaf, shape)
            run.found(known.made, name, known.declared, published)
        return known.made

    async def _look_at(self, tool: Tool) -> _Known:
        leaf = await _leaf(tool)
        declared = declared_at(None if leaf is None else leaf.tool.fn)
        known = _Known(tool, self.wrap(tool), leaf, declared, {})
        if isinstance(tool, FunctionTool):
            # Other tools are new objects at each look-up.
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[id(tool)] = known
        return known

    def published(self, tool: Tool, leaf: _Leaf | None, shape: Shape) -> Published:
        """Return what a tool's results promise to clients."""
        publisher = self._gateway.publisher
        if leaf is None:
            return publisher.of(shape, tool.output_schema)
        function = self._function(leaf.tool)
        is_own = function.has_outcomes and not leaf.is_overridden
        return publisher.of(shape, function.schema if is_own else tool.output_schema, function.misses)

    def wrap(self, tool: Tool) -> Tool:
        """Return a tool with its function wrapped, and without outcomes in what it promises."""
        if isinstance(tool, FunctionTool) or (
            isinstance(tool, TransformedTool) and tool.fn is not tool.forwarding_fn
        ):
            if is_wrapped(tool.fn):
                return tool
            function = self._function(tool)
            changes = {
                "fn": function.wrapped,
                "output_schema": function.schema,
                "return_type": function.annotation,
            }
            made = tool.model_copy(update=changes)
            if type(made) is FunctionTool:
                # A copy of another class, private attributes and all; there is no other way to make one.
                object.__setattr__(made, "__class__", _WrappedTool)
            return made
        if isinstance(tool, TransformedTool):
            # Its way to the function cannot be redirected, so the function itself is changed.
            inner = self.wrap(tool.parent_tool)
            if inner is not tool.parent_tool:
                for field in ("fn", "output_schema", "return_type"):
                    setattr(tool.parent_tool, field, getattr(inner, field))
        elif isinstance(tool, FastMCPProviderTool):
            self.join(_mounted(tool)[0])
        return tool

    def _function(self, tool: FunctionTool | TransformedTool) -> _Function:
        key = id(tool.fn), id(tool.output_schema)
        kept = self._functions.get(key)
        if kept is None or kept.original is not tool.fn or kept.original_schema is not tool.output_schema:
            if len(self._functions) >= _REMEMBERED:
                self._functions.clear()
            kept = self._functions[key] = self._make_function(tool)
        return kept

    def _make_function(self, tool: FunctionTool | TransformedTool) -> _Function:
        annotation, schema, misses = tool.return_type, tool.output_schema, False
        data = without_outcomes(tool.fn)
        if data is not None:
            annotation, misses = data
            schema = None if schema is None else _derived_schema(annotation)
        converter = FastMCPConverter(annotation, schema, self._warned)
        function = tool.fn if is_wrapped(tool.fn) else wrapped(tool.fn, converter)
        return _Function(tool.fn, tool.output_schema, function, annotation, schema, misses, data is not None)


def _derived_schema(annotation: Any) -> dict[str, Any] | None:
    """Return the output schema that FastMCP would derive from a return annotation."""

    def stub() -> Any: ...

    stub.__annotations__ = {"return": annotation}
    return Tool.from_function(stub, name="stub").output_schema


async def _leaf(tool: Tool) -> _Leaf | None:
    """Return the function tool behind transformed tools and mounted servers, if there is one."""
    found: Tool | None = tool
    is_overridden = False
    for _ in range(_DEEPEST):
        if isinstance(found, FunctionTool):
            return _Leaf(found, is_overridden)
        if isinstance(found, TransformedTool):
            if found.fn is not found.forwarding_fn:
                return _Leaf(found, is_overridden)
            is_overridden = is_overridden or found.output_schema != found.parent_tool.output_schema
            found = found.parent_tool
        elif isinstance(found, FastMCPProviderTool):
            server, name = _mounted(found)
            found = await server.get_tool(name, VersionSpec(eq=found.version) if found.version else None)
        else:
            break
    return None


def _mounted(tool: FastMCPProviderTool) -> tuple[FastMCP[Any], str]:
    """Return the mounted server that a tool calls, and the tool's name there. FastMCP keeps both private."""
    return tool._server, tool._original_name or ""


def _has_extensions(server: FastMCP[Any]) -> bool:
    """Whether extensions may handle results before the middleware does. FastMCP keeps the list private."""
    return bool(server._extensions)


class _WrappedTool(FunctionTool):
    """A function tool that turns the usual value into FastMCP's own result by a shorter way."""

    def convert_result(self, raw_value: Any) -> ToolResult:
        run = running.get()
        if run is None:
            return super().convert_result(raw_value)
        if type(raw_value) is dict and (made := self._converted(raw_value)) is not None:
            if run.tool is self:
                run.plain = made
            return made
        if isinstance(raw_value, Reply | Miss):
            # From a worker that ran the function itself.
            sealed: ToolResult = run.take(raw_value, FastMCPConverter(self.return_type, self.output_schema))
            return sealed
        return super().convert_result(raw_value)

    def _converted(self, value: dict[Any, Any]) -> ToolResult | None:
        """Return what FastMCP makes of a dictionary, which it writes four times; None if anything is unusual."""
        if self.output_schema is not None and _WRAPS in self.output_schema:
            return None
        try:
            structured = (_adapter(self.return_type) or _ANY).dump_python(value, mode="json")
            if type(structured) is not dict:
                return None
            text = mcp_types.TextContent(type="text", text=default_serializer(structured))
        except Exception:
            return None
        return ToolResult.model_construct(
            content=[text], structured_content=structured, meta=None, is_error=False
        )


_ANY: Final[TypeAdapter[Any]] = get_cached_typeadapter(Any)


def _adapter(annotation: Any) -> TypeAdapter[Any] | None:
    """Return what FastMCP writes values with, by the return annotation; None if that says nothing."""
    if (
        annotation is Any
        or annotation is None
        or annotation is ...
        or annotation is inspect.Signature.empty
        or isinstance(annotation, str)
    ):
        return None
    try:
        adapter: TypeAdapter[Any] = get_cached_typeadapter(annotation)
    except PydanticSchemaGenerationError:
        return None
    return adapter


class FastMCPConverter(Converter):
    """What FastMCP does with the values of one function."""

    results = (ToolResult, mcp_types.CallToolResult, mcp_types.InputRequiredResult)
    helpers = (Audio, Image, File)

    def __init__(
        self, annotation: Any, schema: dict[str, Any] | None, warned: set[str] | None = None
    ) -> None:
        self._annotation = annotation
        self.wraps = bool((schema or {}).get(_WRAPS))
        self.structures = schema is not None
        self.warned = warned

    def is_result(self, value: object) -> bool:
        # The last one is what FastMCP calls a Prefab app, or a part of one: they have a shape of their own.
        return super().is_result(value) or hasattr(value, "to_json")

    def is_hand_made(self, value: object) -> bool:
        if isinstance(value, ToolResult | mcp_types.CallToolResult):
            return not (isinstance(value, ToolResult) and _is_sealed(value))
        return super().is_hand_made(value)

    def to_json(self, value: Any) -> bytes:
        return self._written(value, self._annotation)

    def item_to_json(self, item: Any) -> bytes:
        return self._written(item, Any)

    def _written(self, value: Any, annotation: Any) -> bytes:
        try:
            try:
                if (adapter := _adapter(annotation)) is not None:
                    return bytes(adapter.dump_json(value, warnings=False))
            except (PydanticUserError, PydanticSerializationError):
                pass
            return bytes(_ANY.dump_json(value, fallback=None if self.structures else str))
        except Exception as error:
            # Serializers are the author's code, which may raise anything.
            raise PayloadError(f"the result cannot be written as JSON: {error}") from error

    def is_yielded(self, value: object) -> bool:
        return inspect.isgenerator(value)

    def from_items(self, values: list[Any]) -> Any:
        return values

    def reread(self, value: Any, written: bytes) -> Any:
        # A model is written by its own serializer, which knows nothing of dictionaries.
        is_data = isinstance(value, dict | list | tuple) or is_iterator(value)
        return json.loads(written) if is_data else value

    def to_result(self, sealed: Sealed, call: Call) -> ToolResult:
        # FastMCP's own client takes the value out of its member again if the result says so.
        is_member = self.wraps and call.is_native and (sealed.structured or b"").startswith(b'{"result":')
        return SealedToolResult(sealed, {_FASTMCP: {"wrap_result": True}} if is_member else None)


# -- background tasks -----------------------------------------------------------------------------------------


class _TaskResults:
    """Results of FastMCP's background tasks, sealed where the client is told of them.

    The worker that ran the tool may be another process without an envelope, so what it leaves behind is whole.
    The run is the poll's own: looking the tool up on the way tells the run about it. What was answered once is
    answered again, so that polling twice stores nothing twice.
    """

    def __init__(self, gateway: Gateway, transform: FunctionTransform) -> None:
        self._gateway = gateway
        self._transform = transform
        # The budgets that calls asked for, and what was answered.
        self._requested: OrderedDict[Hashable, object] = OrderedDict()
        self._answered: OrderedDict[Hashable, dict[str, Any]] = OrderedDict()

    def began(self, result: object, requested: object) -> None:
        """Remember the budget of a call that was answered with something else than a result: a task, perhaps."""
        identifier = getattr(result, "task_id", None)
        if identifier is not None and requested is not None:
            _remember(self._requested, identifier, requested)

    async def get(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        inside = context.fastmcp_context
        if inside is not None:
            self._transform.join(inside.fastmcp)
        call = call_of(None if inside is None else inside.request_context, "", self._gateway)
        params = getattr(context.message, "params", context.message)
        is_mapping = isinstance(params, Mapping)
        identifier = str(params.get("taskId", "") if is_mapping else getattr(params, "task_id", ""))
        # How long the tool took is not known here.
        run = Run(self._gateway, replace(call, started=0.0), self._requested.get(identifier))
        with run:
            task = await call_next(context)
            raw = task.get("result") if isinstance(task, Mapping) else getattr(task, "result", None)
            if not isinstance(raw, Mapping) or "content" not in raw:
                return task
            key = identifier, run.call.owner, run.call.policy.budget
            shown = self._answered.get(key)
            if shown is not None:
                run.discard()
            else:
                shown = await _shown(raw, run)
                if shown is None:
                    return task
                _remember(self._answered, key, shown)
            await run.check_cancelled()
        if isinstance(task, Mapping):
            return {**task, "result": shown}
        return task.model_copy(update={"result": shown})


async def _shown(raw: Mapping[str, Any], run: Run) -> dict[str, Any] | None:
    """Return a task's result in its envelope; None if it goes out as it is."""
    meta = dict(raw.get("_meta") or {})
    if meta.pop(_SEALED, False):
        # An outcome, which was sealed when FastMCP converted it.
        return {**raw, "_meta": meta} if meta else {name: raw[name] for name in raw if name != "_meta"}
    sealed = await run.finish(mcp_types.CallToolResult.model_validate(raw))
    if sealed is None:
        return None
    shown = sealed.to_result()
    meta |= shown.get("_meta") or {}
    return {**shown, "_meta": meta} if meta else shown


def _remember(kept: OrderedDict[Hashable, Any], key: Hashable, value: Any) -> None:
    kept[key] = value
    if len(kept) > _REMEMBERED_TASKS:
        kept.popitem(last=False)


__all__ = ["EnvelopeMiddleware"]
