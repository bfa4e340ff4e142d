"""Tools of a FastMCP server: the functions behind them, and what clients are told of them.

Strategy: a transform gives the server each of its function tools with the function wrapped. What stands before a
function is looked through: a transformed tool, a mounted server, which gets the transform too. Other tools
(proxied, made by hand) have no function, and are sealed from the result that comes up.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import mcp_types
from fastmcp.server.providers.fastmcp_provider import FastMCPProviderTool
from fastmcp.server.transforms import GetToolNext, Transform
from fastmcp.tools import FunctionTool, Tool, ToolResult
from fastmcp.tools.base import _serialize_to_jsonable, default_serializer
from fastmcp.tools.tool_transform import TransformedTool
from fastmcp.utilities.types import Audio, File, Image, get_cached_typeadapter
from fastmcp.utilities.versions import VersionSpec
from pydantic import BaseModel, PydanticSchemaGenerationError, PydanticUserError
from pydantic_core import PydanticSerializationError

from ..clients import UNKNOWN, Client, era_of
from ..clients import client as known_client
from ..front import Call, Declared, Front
from ..outcome import Miss, Reply
from ..payload import PayloadError
from ..published import Published, Publisher
from ..sealed import Sealed
from .annotations import without_outcomes
from .declaring import declared_at
from .once import is_iterator
from .results import has_blocks, is_json_text
from .running import is_wrapped, running, wrapped

if TYPE_CHECKING:
    from fastmcp import FastMCP

_WRAPS: Final = "x-fastmcp-wrap-result"
SEALED: Final = "io.github.mcp-envelope/sealed"
# So many functions are remembered.
_REMEMBERED: Final = 4096
_DEEPEST: Final = 32
Leaf = FunctionTool | TransformedTool


_FASTMCP: Final = "fastmcp"


def fitting_meta(meta: dict[str, Any] | None, call: Call) -> dict[str, Any] | None:
    """What a result says of itself besides, without what is true of the library's own shape alone."""
    told = (meta or {}).get(_FASTMCP)
    if meta is None or call.is_native or not isinstance(told, dict) or "wrap_result" not in told:
        return meta
    rest = {name: value for name, value in told.items() if name != "wrap_result"}
    others = {name: value for name, value in meta.items() if name != _FASTMCP}
    return {**others, _FASTMCP: rest} if rest else others


class SealedResult(ToolResult):
    """A result that went through the envelope. Its mark outlives a cache, which knows only plain results."""

    def __init__(self, sealed: Sealed, meta: dict[str, Any] | None = None) -> None:
        result = sealed.to_result()
        BaseModel.__init__(
            self,
            content=result["content"],
            structured_content=result.get("structuredContent"),
            meta={**(meta or {}), **(result.get("_meta") or {}), SEALED: True},
            is_error=sealed.is_error,
        )


def is_sealed(result: ToolResult) -> bool:
    return result.meta is not None and SEALED in result.meta


def unmarked(result: ToolResult) -> ToolResult:
    """As it leaves the server."""
    meta = {name: value for name, value in (result.meta or {}).items() if name != SEALED}
    return result.model_copy(update={"meta": meta or None})


class Stated(NamedTuple):
    """What a tool promises of its data, outcomes aside, and whether it says that it may miss."""

    annotation: Any
    schema: dict[str, Any] | None
    misses: bool
    # Whether its annotation speaks of outcomes at all.
    speaks: bool


class Behind(NamedTuple):
    """The tool whose function gives the result, and whether something before it promises other results."""

    leaf: Leaf
    overridden: bool


class Functions:
    """The functions of tools, wrapped and asked what they promise, each once."""

    def __init__(self) -> None:
        # What an id belongs to stays beside what was made of it, so that it cannot come to mean another one.
        self._stated: dict[tuple[int, int], tuple[object, object, Stated]] = {}
        self._wrapped: dict[tuple[int, int], tuple[object, object, Callable[..., Any]]] = {}

    def published(self, tool: Tool, behind: Behind | None, dialect: str, publisher: Publisher) -> Published:
        """What clients are told of a tool's results."""
        if behind is None:
            return publisher.of(dialect, tool.output_schema)
        stated = self.stated(behind.leaf)
        is_own = stated.speaks and not behind.overridden
        return publisher.of(dialect, stated.schema if is_own else tool.output_schema, stated.misses)

    def stated(self, tool: Leaf) -> Stated:
        key = id(tool.fn), id(tool.output_schema)
        kept = self._stated.get(key)
        if kept is None or kept[0] is not tool.fn or kept[1] is not tool.output_schema:
            if len(self._stated) >= _REMEMBERED:
                self._stated.clear()
            kept = self._stated[key] = tool.fn, tool.output_schema, _stated(tool)
        return kept[2]

    def wrapped(self, tool: Any) -> Any:
        """The tool with its function wrapped, and without outcomes in what it promises."""
        if is_wrapped(tool.fn):
            return tool
        key = id(tool.fn), id(tool.output_schema)
        kept = self._wrapped.get(key)
        stated = self.stated(tool)
        if kept is None or kept[0] is not tool.fn or kept[1] is not tool.output_schema:
            if len(self._wrapped) >= _REMEMBERED:
                self._wrapped.clear()
            function = wrapped(tool.fn, FunctionLibrary(stated))
            kept = self._wrapped[key] = tool.fn, tool.output_schema, function
        changes = {"fn": kept[2], "output_schema": stated.schema, "return_type": stated.annotation}
        made = tool.model_copy(update=changes)
        if type(made) is FunctionTool:
            # A copy of another class, private attributes and all; the library offers no other way to make one.
            object.__setattr__(made, "__class__", _Wrapped)
        return made


class _Wrapped(FunctionTool):
    """A function tool that turns the usual value into the library's own result, by a shorter way.

    Outcomes may come here, too: from a worker that ran the function itself.
    """

    def convert_result(self, raw_value: Any) -> ToolResult:
        run = running.get()
        if run is None:
            return super().convert_result(raw_value)
        if type(raw_value) is dict and (made := self._converted(raw_value)) is not None:
            if run.is_direct:
                run.plain = made
            return made
        if isinstance(raw_value, Reply | Miss):
            stated = Stated(self.return_type, self.output_schema, False, False)
            sealed: ToolResult = run.finish(raw_value, FunctionLibrary(stated))
            return sealed
        return super().convert_result(raw_value)

    def _converted(self, value: dict[Any, Any]) -> ToolResult | None:
        """What FastMCP makes of a dictionary, which it writes four times; None if anything is unusual."""
        if self.output_schema is not None and _WRAPS in self.output_schema:
            return None
        try:
            structured = _serialize_to_jsonable(value, self.return_type)
            if type(structured) is not dict:
                return None
            text = mcp_types.TextContent(type="text", text=default_serializer(structured))
        except Exception:
            return None
        return ToolResult.model_construct(
            content=[text], structured_content=structured, meta=None, is_error=False
        )


def _stated(tool: Leaf) -> Stated:
    found = without_outcomes(tool.fn)
    if found is None:
        return Stated(tool.return_type, tool.output_schema, False, False)
    schema = None if tool.output_schema is None else _schema_of(found.annotation)
    return Stated(found.annotation, schema, found.misses, True)


async def behind(tool: Tool) -> Behind | None:
    """What is found behind transformed tools and mounted servers."""
    found: Tool | None = tool
    overridden = False
    for _ in range(_DEEPEST):
        if isinstance(found, FunctionTool):
            return Behind(found, overridden)
        if isinstance(found, TransformedTool):
            if found.fn is not found.forwarding_fn:
                return Behind(found, overridden)
            overridden = overridden or found.output_schema != found.parent_tool.output_schema
            found = found.parent_tool
        elif isinstance(found, FastMCPProviderTool):
            version = VersionSpec(eq=found.version) if found.version else None
            found = await found._server.get_tool(found._original_name, version)
        else:
            break
    return None


class _Known(NamedTuple):
    """A tool, what the server gets instead, and what its author and its schema say."""

    tool: Tool
    made: Tool
    declared: Declared
    behind: Behind | None
    # By dialect.
    published: dict[str, Published]


class Wrapping(Transform):
    """Gives a server its tools with their functions wrapped, and tells the run which tool it is."""

    def __init__(self, functions: Functions, front: Front) -> None:
        self._functions = functions
        self._front = front
        self._known: dict[int, _Known] = {}

    def join(self, server: FastMCP[Any]) -> None:
        if self not in server._transforms:
            server.add_transform(self)

    async def get_tool(
        self, name: str, call_next: GetToolNext, *, version: VersionSpec | None = None
    ) -> Tool | None:
        tool = await call_next(name, version=version)
        if tool is None:
            return None
        known = self._known.get(id(tool))
        if known is None or known.tool is not tool:
            known = await self._found(tool)
        run = running.get()
        if run is not None and run.front is self._front and (name == run.call.tool or not run.is_known):
            dialect = run.call.policy.dialect
            published = known.published.get(dialect)
            if published is None:
                published = self._functions.published(tool, known.behind, dialect, self._front.publisher)
                known.published[dialect] = published
            if not run.is_known:
                # The first one asked is the server that was called; a mounted one may do more to results.
                run.is_direct = type(known.made) is _Wrapped
            run.know(known.declared, published, name)
        return known.made

    async def _found(self, tool: Tool) -> _Known:
        found = await behind(tool)
        declared = declared_at(None if found is None else found.leaf.fn)
        known = _Known(tool, self._reached(tool), declared, found, {})
        if isinstance(tool, FunctionTool):
            # Others are made anew each time that they are asked for.
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[id(tool)] = known
        return known

    def _reached(self, tool: Tool) -> Tool:
        if isinstance(tool, FunctionTool) or (
            isinstance(tool, TransformedTool) and tool.fn is not tool.forwarding_fn
        ):
            made: Tool = self._functions.wrapped(tool)
            return made
        if isinstance(tool, TransformedTool):
            # Its way to the function cannot be led elsewhere, so the function itself is changed.
            inner = self._reached(tool.parent_tool)
            if inner is not tool.parent_tool:
                for field in ("fn", "output_schema", "return_type"):
                    setattr(tool.parent_tool, field, getattr(inner, field))
        elif isinstance(tool, FastMCPProviderTool):
            self.join(tool._server)
        return tool


class FunctionLibrary:
    """What FastMCP does with the values of one function."""

    def __init__(self, stated: Stated) -> None:
        self._annotation = stated.annotation
        self.wraps = bool((stated.schema or {}).get(_WRAPS))
        self.structures = stated.schema is not None

    def is_result(self, value: object) -> bool:
        if isinstance(value, ToolResult | mcp_types.CallToolResult | mcp_types.InputRequiredResult | bytes):
            return True
        some = value if isinstance(value, list | tuple) else (value,)
        # The last one is what FastMCP calls a Prefab app, or a part of one: they have a shape of their own.
        return any(isinstance(item, _BLOCKS) for item in some) or hasattr(value, "to_json")

    def is_hand_made(self, value: object) -> bool:
        if isinstance(value, ToolResult | mcp_types.CallToolResult):
            return not (isinstance(value, ToolResult) and is_sealed(value))
        return is_json_text(value) or has_blocks(value, _BY_HAND)

    def to_json(self, value: Any) -> bytes:
        return _written(value, self._annotation, None if self.structures else str)

    def item_to_json(self, item: Any) -> bytes:
        return _written(item, Any, None if self.structures else str)

    def is_yielded(self, value: object) -> bool:
        return inspect.isgenerator(value)

    def yielded(self, values: list[Any]) -> Any:
        return values

    def again(self, value: Any, written: bytes) -> Any:
        # A model is written by its own serializer, which knows nothing of dictionaries.
        is_data = isinstance(value, dict | list | tuple) or is_iterator(value)
        return json.loads(written) if is_data else value

    def of(self, sealed: Sealed, call: Call) -> ToolResult:
        # FastMCP's own client takes the value out again when it is told so.
        is_member = self.wraps and call.is_native and (sealed.structured or b"").startswith(b'{"result":')
        return SealedResult(sealed, {"fastmcp": {"wrap_result": True}} if is_member else None)


_BY_HAND: Final = (
    mcp_types.TextContent,
    mcp_types.ImageContent,
    mcp_types.AudioContent,
    mcp_types.ResourceLink,
    mcp_types.EmbeddedResource,
)
_BLOCKS: Final = (*_BY_HAND, Audio, Image, File)


def _written(value: Any, annotation: Any, fallback: Callable[[Any], Any] | None) -> bytes:
    """As FastMCP writes values: by the return annotation, if it can be used, else by what they are."""
    stated = annotation not in (inspect.Signature.empty, None, Any, ...) and not isinstance(annotation, str)
    try:
        if stated:
            try:
                return bytes(get_cached_typeadapter(annotation).dump_json(value, warnings=False))
            except (PydanticSchemaGenerationError, PydanticUserError, PydanticSerializationError):
                pass
        return bytes(get_cached_typeadapter(Any).dump_json(value, fallback=fallback))
    except Exception as error:
        # Serializers are the author's code, and anything may come out of it.
        raise PayloadError(f"the result cannot be written as JSON: {error}") from error


def _schema_of(annotation: Any) -> dict[str, Any] | None:
    """The output schema that FastMCP would derive from a return annotation."""

    def stub() -> Any: ...

    stub.__annotations__ = {"return": annotation}
    return Tool.from_function(stub, name="stub").output_schema


def client_of(request: Any) -> Client:
    try:
        info = request.session.client_params.client_info
        return known_client(info.name, info.version or "", era_of(request.protocol_version))
    except AttributeError:
        return UNKNOWN


def owner_of(request: Any) -> str | None:
    """Who calls, over HTTP: what was stored for one credential is not found with another."""
    inside = getattr(request, "request", None)
    return None if inside is None else inside.headers.get("authorization")
