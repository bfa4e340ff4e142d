"""FastMCP with one line: `mcp.add_middleware(EnvelopeMiddleware())`.

Strategy: the middleware sees lists and calls; what functions return is taken by a transform (`fastmcp_tools`). What
fits goes out as the very object that FastMCP made. Exceptions are let through the library, so that its logs and
spans have them, and answered here. Where servers are mounted in one another, the outermost envelope speaks.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from .extras import missing

try:
    import mcp_types
    from anyio import to_thread
    from fastmcp.exceptions import DisabledError, FastMCPError, NotFoundError, ToolError
    from fastmcp.exceptions import ValidationError as BadArguments
    from fastmcp.server.dependencies import extract_version_spec, fastmcp_request_ctx
    from fastmcp.server.middleware import CallNext, MiddlewareContext
    from fastmcp.server.middleware.middleware import _dispatch_phase
    from fastmcp.server.middleware.tool_injection import ToolInjectionMiddleware
    from fastmcp.tools import Tool, ToolResult
    from fastmcp.tools.base import InputRequiredToolResult
    from fastmcp.utilities.versions import VersionSpec
    from mcp.shared.exceptions import MCPError
except ImportError as error:
    raise missing("FastMCP, from version 4 on,", "fastmcp", error) from error

from ..dialects.notice import READ_TOOL
from ..front import Call, Front, payload_of
from ..outcome import Failure
from ..payload import read_result
from ..policy import Settings
from ..policy.table import budget_argument
from ..tracing import current_span
from .declaring import check_budget, settings_of
from .fastmcp_tasks import TASK, Tasks
from .fastmcp_tools import (
    Functions,
    SealedResult,
    Wrapping,
    behind,
    client_of,
    fitting_meta,
    is_sealed,
    owner_of,
    unmarked,
)
from .results import in_body
from .running import Run, running

if TYPE_CHECKING:
    from fastmcp import FastMCP

    from ..vault.ledger import Ledger
    from ..vault.vault import Vault

_TIMED_OUT: Final = -32000
_METHODS: Final = ("tools/call", "tools/list")
_listing: Final[ContextVar[bool]] = ContextVar("mcp_envelope_listing", default=False)


class EnvelopeMiddleware(ToolInjectionMiddleware):
    """Every tool's result in one envelope.

    `budget` is in tokens, for each lane, `max_bytes` in bytes; a settings file goes before it. `config` names that
    file (default: the nearest mcp-envelope.toml); `dialect` the wire shape; `vault` where whole results are kept
    (an address, or "none"). `strict` warns of tools that make results by hand.
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
        check_budget(budget, max_bytes)
        self.front = Front(
            settings or settings_of(config),
            vault=vault,
            ledger=ledger,
            dialect=dialect,
            token_budget=token_budget,
            budget=budget,
            max_bytes=max_bytes,
        )
        self._warned: set[str] | None = set() if strict else None
        self._functions = Functions()
        self._wrapping = Wrapping(self._functions, self.front)
        self._tasks = Tasks(self.front, self._wrapping)
        super().__init__([_ReadTool.made(self.front)])

    def __call__(  # type: ignore[override]
        self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]
    ) -> Awaitable[Any]:
        """Straight to what concerns us: the library's own way is through six functions."""
        if context.method == TASK and running.get() is None:
            return super().__call__(context, partial(self._tasks.ask, call_next=call_next))
        if type(self) is not EnvelopeMiddleware or context.method not in _METHODS:
            return super().__call__(context, call_next)
        if _dispatch_phase.get() == "outer":
            return call_next(context)
        handler = self.on_call_tool if context.method == "tools/call" else self.on_list_tools
        return handler(context, call_next)

    # -- lists ----------------------------------------------------------------------------------------------

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
            return tool
        entry = {"inputSchema": tool.parameters, "outputSchema": tool.output_schema}
        dialect = self.front.policy(tool.name).dialect
        published = self._functions.published(tool, await behind(tool), dialect, self.front.publisher)
        shown = self.front.listed(entry, published)
        return tool.model_copy(
            update={"parameters": shown["inputSchema"], "output_schema": shown.get("outputSchema")}
        )

    # -- calls ----------------------------------------------------------------------------------------------

    async def on_call_tool(
        self,
        context: MiddlewareContext[mcp_types.CallToolRequestParams],
        call_next: CallNext[mcp_types.CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        message, inside = context.message, context.fastmcp_context
        server = inside.fastmcp if inside is not None else None
        if running.get() is not None:
            # This server is mounted in one that has an envelope, which is told what functions return.
            return await call_next(context)
        if server is not None:
            self._wrapping.join(server)
        request = inside.request_context if inside is not None else None
        client, owner = client_of(request), owner_of(request)
        arguments = message.arguments or {}
        if message.name == READ_TOOL:
            call = Call(
                tool=READ_TOOL,
                policy=self.front.policy(READ_TOOL, None, client),
                client=client,
                owner=owner,
                span=current_span(),
            )
            return unmarked(SealedResult(await to_thread.run_sync(self.front.read, arguments, call)))
        requested = None
        policy = self.front.policy(message.name, None, client)
        budget_name = budget_argument(policy.dialect)
        if budget_name in arguments and server is not None:
            tool = await server.get_tool(message.name, _version(message))
            if tool is not None and self.front.adds_budget(tool.parameters, budget_name):
                arguments = dict(arguments)
                requested = arguments.pop(budget_name)
                context = context.copy(message=message.model_copy(update={"arguments": arguments}))
        call = Call(
            tool=message.name,
            policy=policy if requested is None else policy.with_budget(requested),
            client=client,
            owner=owner,
            request_id=None if request is None else str(request.request_id),
            started=time.perf_counter(),
            span=current_span(),
        )
        run = Run(self.front, call, requested, self._warned)
        try:
            with run:
                result = await call_next(context)
                if not isinstance(result, ToolResult) or isinstance(result, InputRequiredToolResult):
                    # Input to ask for, a task: not a result yet.
                    self._tasks.began(result, requested)
                    return result
                # A cache may hand out what was sealed for another budget. Only our own shape can be cut again.
                if not is_sealed(result) or (run.call.is_native and not run.has_sealed):
                    if not run.is_known and server is not None:
                        # It came from a cache, say. Looking the tool up makes it known.
                        await server.get_tool(run.call.tool)
                    is_plain = result is run.plain and server is not None and self._is_inmost(server)
                    lanes = run.fits(result, is_plain)
                    if lanes is None:
                        # The very object that FastMCP made.
                        return unmarked(result) if is_sealed(result) else result
                    payload = payload_of(read_result(*lanes), run.call)
                    sealed = await run.seal_aside(payload, is_error=True if result.is_error else None)
                    result = SealedResult(sealed, fitting_meta(result.meta, run.call))
                await run.still_wanted()
        except (NotFoundError, DisabledError):
            raise
        except MCPError as error:
            # Some middleware makes a protocol error of whatever a tool raised. That one is answered.
            if not isinstance(error.__cause__, FastMCPError):
                raise
            return unmarked(SealedResult(run.failure(_cause(error.__cause__, run, arguments), arguments)))
        except Exception as error:
            return unmarked(SealedResult(run.failure(_cause(error, run, arguments), arguments)))
        return unmarked(result)

    def _is_inmost(self, server: FastMCP[Any]) -> bool:
        """Whether nobody else of this server handles results before this does."""
        return server.middleware[-1] is self and not server._extensions


class _ReadTool(Tool):
    """Our own tool. The middleware answers its calls; this is for servers that are asked directly."""

    _front: Front

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

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        call = Call(
            tool=READ_TOOL, policy=self._front.policy(READ_TOOL), owner=owner_of(fastmcp_request_ctx.get())
        )
        return SealedResult(await to_thread.run_sync(partial(self._front.read, arguments, call)))


def _cause(error: BaseException, run: Run, arguments: Mapping[str, Any]) -> BaseException:
    """What the tool raised, behind what the library made of it."""
    if isinstance(error, BadArguments) and error.__cause__ is not None:
        return error.__cause__
    if isinstance(error, ToolError) and error.__cause__ is not None:
        error = error.__cause__
        if type(error).__name__ == "_ToolBodyError" and error.__cause__ is not None:
            error = error.__cause__
        if not run.has_returned:
            error = in_body(error, arguments)
    if isinstance(error, MCPError) and error.error.code == _TIMED_OUT and "timed out" in error.error.message:
        return Failure("TIMEOUT", error.error.message)
    return error


def _version(message: mcp_types.CallToolRequestParams) -> VersionSpec | None:
    version = extract_version_spec(None if message.meta is None else dict(message.meta))
    return None if version is None else VersionSpec(eq=version)


__all__ = ["EnvelopeMiddleware"]
