"""What tools return, and what the MCP libraries make of it: sizes, iterators, content blocks, lanes.

Strategy: a value is looked at, at a few places and by lengths only, before anybody writes it. Writing uses up
the iterators in a value, so they are found first. The results that a library made are taken apart into the JSON
that goes over the wire.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import mcp_types
import msgspec
from pydantic import TypeAdapter

from ..anchors import Anchor, NodeId
from ..jsontext.document import encode
from ..payload import Payload, Result, read_result, to_json
from ..reply_meta import REPLY_KEY

# The libraries write values with pydantic, which asks those of a class that it doesn't know for this.
for _kind in (Anchor, NodeId):
    _kind.__pydantic_serializer__ = TypeAdapter(_kind).serializer  # type: ignore[union-attr]

# What the libraries and tools put into `content`.
BLOCKS: Final = (
    mcp_types.TextContent,
    mcp_types.ImageContent,
    mcp_types.AudioContent,
    mcp_types.ResourceLink,
    mcp_types.EmbeddedResource,
)
_SCALARS: Final = frozenset({int, float, bool, type(None)})
_MANY_ITEMS: Final = 64
_LONG_TEXT: Final = 1 << 12
# The least bytes of an item of a list, and of a member of an object: `1,` and `"":1,`.
_ITEM: Final = 2
_MEMBER: Final = 5
# A text block without its text, and the brackets of the list.
_AROUND_TEXT: Final = len(b'[{"type":"text","text":""}]')
# How the libraries' images, sounds and files become blocks.
_HELPERS: Final = ("to_image_content", "to_audio_content", "to_resource_content")


# -- values ---------------------------------------------------------------------------------------------------


def looks_small(value: Any, deeper: bool = True) -> bool:
    """Whether a value seems to be a few kilobytes at most; False for what can't be looked into.

    It is a guess that costs a few microseconds, whatever the value is, and saves work: large values are sealed
    where they are returned, before the library writes them twice. What leaves is measured.
    """
    kind = type(value)
    if kind is str:
        return len(value) <= _LONG_TEXT
    if kind in _SCALARS:
        return True
    if kind is dict:
        inner = value.values()
    elif kind is list or kind is tuple:
        inner = value
    else:
        # Models and dataclasses keep their fields here.
        fields = getattr(value, "__dict__", None)
        if not fields or not hasattr(kind, "__annotations__"):
            return False
        inner = fields.values()
    if len(inner) > _MANY_ITEMS:
        return False
    if deeper:
        for item in inner:
            if type(item) not in _SCALARS and not looks_small(item, False):
                return False
    return True


def is_iterator(value: object) -> bool:
    return hasattr(type(value), "__next__") and not isinstance(value, Replayed)


class Replayed(Iterator[Any]):
    """Items that a tool yielded, yielded again as often as a library reads them."""

    def __init__(self, values: list[Any]) -> None:
        self._values = values
        self._rest = iter(values)

    def __iter__(self) -> Replayed:
        self._rest = iter(self._values)
        return self

    def __next__(self) -> Any:
        return next(self._rest)


def holds_iterator(value: Any, most: int) -> bool:
    """Whether something in a value can be read only once.

    The search ends where the value is certainly longer than `most` bytes of JSON: it will be cut from what was
    written, and is not read a second time.
    """
    waiting, least = [value], 0
    while waiting and least <= most:
        found = waiting.pop()
        if isinstance(found, Replayed):
            # Its items were checked one by one.
            continue
        if is_iterator(found):
            return True
        inner: Any
        if isinstance(found, list | tuple):
            inner, each = found, _ITEM
        elif isinstance(found, dict):
            inner, each = found.values(), _MEMBER
        else:
            inner, each = (getattr(found, "__dict__", None) or {}).values(), _MEMBER
        least += each * len(inner)
        if least > most:
            return False
        for part in inner:
            kind = type(part)
            if kind is str:
                least += len(part)
            elif kind not in _SCALARS:
                waiting.append(part)
    return False


def has_blocks(value: object, kinds: tuple[type, ...]) -> bool:
    """Whether a value is a content block of these kinds, or a list with one in it."""
    return any(isinstance(item, kinds) for item in (value if isinstance(value, list | tuple) else (value,)))


def is_json_text(value: object) -> bool:
    """Whether a text is an object or a list that the tool's author serialized."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return False
    try:
        return isinstance(msgspec.json.decode(value), dict | list)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False


def payload_of(value: Any) -> Payload:
    """Return the payload of what a library shows as it is: a whole result, content blocks, or their helpers."""
    if hasattr(value, "content") and hasattr(value, "structured_content"):
        result = wire_form(value)
        return read_result(result.content, result.structured)
    items = value if isinstance(value, list | tuple) else (value,)
    return Payload(blocks=tuple([_made_block(item) for item in items]))


def _made_block(item: Any) -> bytes:
    for helper in _HELPERS:
        if hasattr(item, helper):
            return _block(getattr(item, helper)())
    if hasattr(item, "model_dump_json") and isinstance(getattr(item, "type", None), str):
        return _block(item)
    text = item if isinstance(item, str) else to_json(item).decode()
    return b'{"type":"text","text":%b}' % encode(text)


# -- results --------------------------------------------------------------------------------------------------


def wire_form(result: Any) -> Result:
    """Return a library's result as it goes over the wire."""
    value = result.structured_content
    structured = None if value is None else to_json(value)
    meta = encode(result.meta) if result.meta and REPLY_KEY in result.meta else None
    return Result([_block(block) for block in result.content], structured, bool(result.is_error), meta=meta)


def _block(block: Any) -> bytes:
    # The usual block by hand: a model costs ten times as much.
    if _is_plain_text(block):
        return b'{"type":"text","text":%b}' % encode(block.text)
    return bytes(block.model_dump_json(by_alias=True, exclude_none=True), "utf-8")


def _is_plain_text(block: Any) -> bool:
    return (
        getattr(block, "type", None) == "text"
        and block.annotations is None
        and block.meta is None
        and not block.model_extra
    )


def text_lane_bound(text: str, size: int = 0) -> int:
    """Return an upper bound for the bytes of a text lane that is one block of JSON, of `size` bytes if known.

    Each of its characters is escaped by one more, if at all.
    """
    return 2 * (size or (len(text) if text.isascii() else len(text.encode()))) + _AROUND_TEXT
