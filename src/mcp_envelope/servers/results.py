"""Results of the MCP libraries, taken apart; and exceptions, as far as a caller may know of them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..codes import CATALOGUE
from ..errors import problem_of
from ..jsontree import encode
from ..outcome import Failure
from ..payload import Payload, read_result, to_json
from ..scrubbing import scrub_line

if TYPE_CHECKING:
    from ..facts import Problem

_log = logging.getLogger("mcp_envelope")
_RESULT: Final = b'{"result":'
_NOTHING: Final = object()
# A text block's own letters, and the brackets of the list.
_AROUND: Final = len(b'[{"type":"text","text":""}]')
# How the libraries' images, sounds and files become blocks.
_HELPERS: Final = ("to_image_content", "to_audio_content", "to_resource_content")
_PREFIX: Final = "the result cannot be written as JSON: "


def blocks_of(content: Sequence[Any]) -> list[bytes]:
    """Content blocks as they go over the wire."""
    return [_block(block) for block in content]


def _block(block: Any) -> bytes:
    # The usual block by hand: a model costs ten times as much.
    if _is_plain_text(block):
        return b'{"type":"text","text":%b}' % encode(block.text)
    return bytes(block.model_dump_json(by_alias=True, exclude_none=True), "utf-8")


def shown_by_library(value: Any) -> Payload:
    """What a library shows as it is, inside a reply: a whole result, content blocks, or helpers that make one."""
    if hasattr(value, "content") and hasattr(value, "structured_content"):
        return read_result(blocks_of(value.content), structured_of(value.structured_content))
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


def has_blocks(value: object, kinds: tuple[type, ...]) -> bool:
    """Whether a value is a content block of these kinds, or a list with one in it."""
    return any(isinstance(item, kinds) for item in (value if isinstance(value, list | tuple) else (value,)))


def is_json_text(value: object) -> bool:
    """Whether a text is an object or a list that its author wrote out."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return False
    try:
        return isinstance(msgspec.json.decode(value), dict | list)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False


def most_repeated(said: str) -> int:
    """No less than the bytes of a text lane of one block that is JSON, and so escaped once more."""
    return 2 * (len(said) if said.isascii() else len(said.encode())) + _AROUND


def repeated_size(content: Sequence[Any], value: Any, structured: bytes | None) -> int | None:
    """No less than the bytes of a text lane that only says the structure again; None if it says anything else.

    Such a lane needs neither be written nor searched, since the structure is.
    """
    if structured is None or len(content) != 1 or not _is_plain_text(content[0]):
        return None
    try:
        written: bytes = content[0].text.encode()
        if written != structured and written != structured[len(_RESULT) : -1]:
            said = msgspec.json.decode(written)
            if said != value and (len(value) != 1 or value.get("result", _NOTHING) != said):
                return None
    except (msgspec.MsgspecError, ValueError, TypeError, AttributeError, RecursionError):
        return None
    # Each of its characters is escaped by one more, if it is at all.
    return 2 * len(written) + _AROUND


def _is_plain_text(block: Any) -> bool:
    return (
        getattr(block, "type", None) == "text"
        and block.annotations is None
        and block.meta is None
        and not block.model_extra
    )


def structured_of(structured: Any) -> bytes | None:
    return None if structured is None else to_json(structured)


def problem(error: BaseException, arguments: Mapping[str, Any], root: str | None = None) -> Failure:
    """The failure that a caller is told of. What passes through is raised again."""
    if isinstance(error, Failure):
        return error
    known = [value for value in arguments.values() if isinstance(value, str)]
    return _failure(problem_of(error, known=known, root=root), error)


def in_body(error: BaseException, arguments: Mapping[str, Any]) -> BaseException:
    """A model that the tool's own code could not make is the caller's mistake only if it speaks of arguments."""
    if type(error).__name__ != "ValidationError" or not hasattr(error, "errors"):
        return error
    places = [place["loc"][0] for place in error.errors() if place["loc"]]
    if places and all(place in arguments for place in places):
        return error
    unexpected = RuntimeError("a model could not be made inside of the tool")
    unexpected.__traceback__ = error.__traceback__
    unexpected.__context__ = error
    return unexpected


def bad_result(error: BaseException) -> Failure:
    """What a tool returned is not fit to be sent. Why is said without any of its values."""
    _log.error("mcp-envelope: a tool returned what cannot be sent", exc_info=error)
    if hasattr(error, "errors"):
        # A pydantic model that the result does not conform to: the fields, and what is wrong with each.
        message = f"The result is not what the tool promises: {problem_of(error).message}"
    else:
        message = f"The result cannot be written as JSON: {str(error).removeprefix(_PREFIX)}"
    return _failure(CATALOGUE.problem("BAD_RESULT", scrub_line(message, limit=400)), error)


def _failure(told: Problem, error: BaseException) -> Failure:
    failure = Failure(told.code, told.message, told.hint, told.details)
    failure.__cause__ = error
    return failure
