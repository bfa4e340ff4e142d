"""Results of the MCP libraries, taken apart; and exceptions, as far as a caller may know of them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import problem_of
from ..jsontree import encode
from ..outcome import Failure
from ..payload import to_json

_log = logging.getLogger("mcp_envelope")


def blocks_of(content: Sequence[Any]) -> list[bytes]:
    """Content blocks as they go over the wire."""
    return [_block(block) for block in content]


def _block(block: Any) -> bytes:
    # The usual block by hand: a model costs ten times as much.
    if (
        getattr(block, "type", None) == "text"
        and block.annotations is None
        and block.meta is None
        and not block.model_extra
    ):
        return b'{"type":"text","text":%b}' % encode(block.text)
    return bytes(block.model_dump_json(by_alias=True, exclude_none=True), "utf-8")


def structured_of(structured: Any) -> bytes | None:
    return None if structured is None else to_json(structured)


def problem(error: BaseException, arguments: Mapping[str, Any], root: str | None = None) -> Failure:
    """The failure that a caller is told of. What passes through is raised again."""
    if isinstance(error, Failure):
        return error
    known = [value for value in arguments.values() if isinstance(value, str)]
    told = problem_of(error, known=known, root=root)
    failure = Failure(told.code, told.message, told.hint, told.details)
    failure.__cause__ = error
    return failure


def warn_of_hand_made(tool: str, value: object) -> None:
    _log.warning(
        "mcp-envelope: the tool %s makes its result by hand (%s); return the data, a Reply, or raise a Failure. "
        "`mcp-envelope lint` finds such places.",
        tool,
        type(value).__name__,
    )
