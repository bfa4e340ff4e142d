"""Tools of the official SDK: what it makes of their values, and what it knows of their functions.

Strategy: a function's metadata is replaced by a copy that speaks of no outcomes and lets a sealed result pass.
Values are written by the SDK's own adapters, so that what is cut is what would have been sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import mcp_types
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata, func_metadata
from mcp.server.mcpserver.utilities.types import Audio, Image
from pydantic import BaseModel
from pydantic_core import to_json

from ..front import Call
from ..payload import PayloadError
from ..sealed import Sealed
from .annotations import without_outcomes
from .declaring import declared_at
from .once import Yielded, is_iterator
from .results import has_blocks, is_json_text

if TYPE_CHECKING:
    from mcp.server.mcpserver.tools.base import Tool

_RESULT: Final = b'{"result":'


class SealedResult(mcp_types.CallToolResult):
    """A result that went through the envelope already."""


class Metadata(FuncMetadata):
    """What the SDK knows of a function, outcomes aside. A result that was sealed is passed on: the SDK's own
    model knows nothing of a notice."""

    declared: Any = None
    misses: bool = False

    @classmethod
    def made(cls, tool: Tool) -> Metadata:
        known = tool.fn_metadata
        stated = without_outcomes(tool.fn)
        told = known
        if stated is not None and known.output_schema is not None:
            told = func_metadata(_returning(stated.annotation, tool.fn))
        return cls.model_construct(
            arg_model=known.arg_model,
            output_schema=told.output_schema,
            output_model=told.output_model,
            wrap_output=told.wrap_output,
            declared=declared_at(tool.fn),
            misses=stated is not None and stated.misses,
        )

    def convert_result(self, result: Any) -> Any:
        return result if isinstance(result, SealedResult) else super().convert_result(result)


class HandlerLibrary:
    """The handler of a low-level server makes results of its values itself, unless it returns an outcome."""

    wraps = False

    def __init__(self, entry: mcp_types.Tool | None) -> None:
        self.structures = entry is not None and entry.output_schema is not None

    def is_result(self, value: object) -> bool:
        if isinstance(value, mcp_types.CallToolResult | mcp_types.InputRequiredResult | bytes):
            return True
        return any(
            isinstance(item, _BLOCKS) for item in (value if isinstance(value, list | tuple) else (value,))
        )

    def is_hand_made(self, value: object) -> bool:
        if isinstance(value, mcp_types.CallToolResult):
            return not isinstance(value, SealedResult)
        return is_json_text(value) or has_blocks(value, _BY_HAND)

    def to_json(self, value: Any) -> bytes:
        return self.item_to_json(value)

    def item_to_json(self, item: Any) -> bytes:
        try:
            return bytes(to_json(item, by_alias=True, fallback=str))
        except Exception as error:
            raise PayloadError(f"the result cannot be written as JSON: {error}") from error

    def is_yielded(self, value: object) -> bool:
        return is_iterator(value)

    def yielded(self, values: list[Any]) -> Any:
        # The SDK makes one text of an iterator, and a block for each item of a list. Blocks are blocks.
        return values if self.is_result(values) else Yielded(values)

    def again(self, value: Any, written: bytes) -> Any:
        return json.loads(written)

    def of(self, sealed: Sealed, call: Call) -> mcp_types.CallToolResult:
        return to_result(sealed)


class FunctionLibrary(HandlerLibrary):
    """What an `MCPServer` does with the values of one function."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self.wraps = metadata.wrap_output
        self.structures = metadata.output_model is not None

    def to_json(self, value: Any) -> bytes:
        model = self._metadata.output_model
        if self._metadata.output_schema is None or model is None:
            return self.item_to_json(value)
        adapter = self._metadata._output_adapter(model)
        try:
            validated = adapter.validate_python(
                {"result": value} if self.wraps else value, by_alias=True, by_name=True
            )
            if isinstance(validated, BaseModel):
                written = validated.model_dump_json(by_alias=True).encode()
            else:
                written = bytes(adapter.dump_json(validated, by_alias=True))
        except Exception as error:
            # It is not what was promised, or its serializer, which is the author's code, failed.
            raise PayloadError(f"the result cannot be written as JSON: {error}") from error
        return written[len(_RESULT) : -1] if self.wraps else written


_BY_HAND: Final = (
    mcp_types.TextContent,
    mcp_types.ImageContent,
    mcp_types.AudioContent,
    mcp_types.ResourceLink,
    mcp_types.EmbeddedResource,
)
_BLOCKS: Final = (*_BY_HAND, Audio, Image)


def to_result(sealed: Sealed, meta: Mapping[str, Any] | None = None) -> mcp_types.CallToolResult:
    result = sealed.to_result()
    if meta:
        result["_meta"] = {**meta, **(result.get("_meta") or {})}
    return SealedResult.model_validate(result)


def _returning(annotation: Any, function: Any) -> Callable[[], Any]:
    """A function of which only its name and what it returns is known."""

    def stub() -> Any: ...

    stub.__annotations__ = {"return": annotation}
    stub.__name__ = getattr(function, "__name__", "tool")
    return stub
