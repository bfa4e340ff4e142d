"""`envelope_read`: the one tool of our own. It reads on in a stored payload and never runs a tool again.

Strategy: arguments are checked, the value at the path is found, and a little more of it than the budget holds
is loaded as a page, which is sealed like any result. A query gives a new value, and path and offset then lead
into that; a search gives a list of places, and the offset counts them. So every answer can be continued by
the same means, and the same call gives the same answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ..budget import Budget
from ..dialects.notice import READ_TOOL, quoted
from ..envelope import OwnFailure, seal
from ..job import most_bytes
from ..jsontree import encode
from ..outcome import Failure, sendable
from ..page import Page, Part, Shape
from ..sealed import Sealed
from .document import BadPath, Value
from .spelling import Spelling
from .store import Damaged, StoreError
from .vault import Stored, Vault, failures

if TYPE_CHECKING:
    from ..policy import Policy

_MOST_CONTEXT: Final = 20
_MOST_SAID: Final = 500
# What no answer should have in it: control characters, and marks that turn the direction of text.
_UNSEEN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_BLOCKS: Final = "/content"

TOOL: Final[dict[str, Any]] = {
    "name": READ_TOOL,
    "title": "Read on in a stored result",
    "description": (
        "Reads more of a tool result that was cut to fit. Give the handle from the notice, and the path and "
        "offset that it names: the next page follows, and pages put end to end are the original. `query` "
        "selects with JMESPath (path and offset then lead into what it selects); `grep` finds lines by a "
        "regular expression and tells the path and offset of each. Nothing is run again. Results are kept for "
        "a limited time, usually 24 hours."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "handle": {"type": "string", "description": "The handle from the notice of the cut result."},
            "path": {
                "type": "string",
                "description": "JSON pointer, such as /items/3/body. Default: the top.",
            },
            "offset": {
                "type": "integer",
                "minimum": 0,
                "description": "The first item, member, character or match to show, counted from 0.",
            },
            "query": {"type": "string", "description": "JMESPath, such as items[?size > `10`].name"},
            "grep": {
                "type": "string",
                "description": "RE2 pattern, matched line by line in texts and strings.",
            },
            "context": {
                "type": "integer",
                "minimum": 0,
                "maximum": _MOST_CONTEXT,
                "description": "With grep: lines to show before and after each match.",
            },
            "exact": {
                "type": "boolean",
                "description": "The exact characters, also of JSON, as text.",
            },
        },
        "required": ["handle"],
    },
    "annotations": {
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": False,
    },
}


def read(
    vault: Vault | None,
    arguments: Mapping[str, Any],
    *,
    owner: str | None = None,
    policy: Policy | None = None,
    budget: Budget | None = None,
) -> Sealed:
    """Answer a call of `envelope_read`; whatever goes wrong is in the answer, with a code."""
    budget = budget or (policy.with_budget(arguments.get("tokenBudget")).budget if policy else None)
    budget = budget or Budget.of()
    try:
        page = _page(vault, arguments, owner, budget)
        return seal(page, budget=budget, handle=str(arguments["handle"]).strip(), dialect="native")
    except Failure as failure:
        return seal(_own(failure), budget=budget, dialect="native")
    except Damaged as error:
        return seal(_gone(vault, arguments, owner) or failures(error), budget=budget, dialect="native")
    except StoreError as error:
        return seal(failures(error), budget=budget, dialect="native")


def _own(failure: Failure) -> OwnFailure:
    """What we say is made of our own words and of the caller's: a pointer in it is no path of this machine."""
    said = failure.problem
    message, hint = [_UNSEEN.sub("", sendable(text) or "")[:_MOST_SAID] for text in (said.message, said.hint)]
    return OwnFailure(said.code, message, hint, **(said.details or {}))


def _gone(vault: Vault | None, arguments: Mapping[str, Any], owner: str | None) -> Failure | None:
    """A result that could not be read whole may have made room, or expired, in that moment."""
    try:
        if vault is not None:
            vault.open(str(arguments["handle"]).strip(), owner)
    except Failure as failure:
        return failure
    except (StoreError, Damaged):
        pass
    return None


def _page(vault: Vault | None, arguments: Mapping[str, Any], owner: str | None, budget: Budget) -> Page:
    handle = (_text(arguments, "handle") or "").strip()
    path = _text(arguments, "path") or ""
    offset = _whole(arguments, "offset")
    query, grep = _text(arguments, "query"), _text(arguments, "grep")
    exact = _flag(arguments, "exact")
    if not handle:
        raise Failure(
            "BAD_ARGS", "`handle` is missing.", "Give the handle from the notice of the cut result."
        )
    if query and grep:
        raise Failure("BAD_ARGS", "`query` and `grep` do not go together.", "Use one of them at a time.")
    if exact and (query or grep):
        raise Failure(
            "BAD_ARGS", "`exact` goes with a path alone.", "Leave out `exact`, or `query` and `grep`."
        )
    if vault is None:
        raise Failure(
            "HANDLE_UNKNOWN",
            "Nothing is stored here: there is no vault.",
            "Call the tool again with a narrower request, or a larger budget.",
        )
    stored = vault.open(handle, owner)
    room = most_bytes(budget)
    if exact:
        return _page_of_text(exactly(stored, path), offset, room, ", exact=true")
    root = stored.root()
    if grep:
        return _matches(root, grep, path, offset, _whole(arguments, "context"), room)
    if query:
        return page_of(_found(_selected(root, query), path), offset, room, f", query={quoted(query)}")
    if stored.entry.kind == "blocks":
        return _page_of_blocks(root, path, offset, budget, room)
    return page_of(_found(root, path), offset, room)


# -- pages --------------------------------------------------------------------------------------------------


def page_of(value: Value, offset: int, room: int, reading: str = "") -> Page:
    """What follows an offset: somewhat more than `room` bytes of it, or all there is."""
    _check_offset(value, offset)
    if value.kind in ("array", "object"):
        parts: list[Part] = []
        covered = 0
        whole = True
        for found in value.pieces(offset):
            if covered > room:
                whole = False
                break
            piece = found.loaded(room)
            far = None if piece.far is None else piece.far.node(room)
            raw_key = b"" if piece.member is None else piece.member.raw_key
            parts.append(Part(piece.step, piece.value, raw_key, far))
            covered += parts[-1].size + 1
        shape: Shape = "array" if value.kind == "array" else "object"
        return Page(
            value.path, shape, offset, value.total, parts=parts, whole=whole, most=room, reading=reading
        )
    if value.kind in ("string", "text"):
        return _page_of_text(value, offset, room, reading)
    return Page(value.path, "whole", 0, 1, text=value.raw(), reading=reading)


def _page_of_text(value: Value | Spelling, offset: int, room: int, reading: str) -> Page:
    _check_offset(value, offset)
    text = value.text(offset, room)
    whole = offset + len(text) >= value.total
    return Page(
        value.path,
        "text",
        offset,
        value.total,
        text=text.encode(),
        whole=whole,
        most=room,
        reading=reading,
    )


def exactly(stored: Stored, path: str) -> Value | Spelling:
    """The text of the value at a path: a string's own characters, and of anything else the stored bytes."""
    if not path:
        return stored.spelled()
    root = stored.root(opened=False)
    if stored.entry.kind == "blocks":
        return _found_in_either(root, _of_block(path), opened=False).spelled()
    return _found(root, path, opened=False).spelled()


def _page_of_blocks(root: Value, path: str, offset: int, budget: Budget, room: int) -> Page:
    """Content blocks come back as such: an image as an image, if the budget has room for it."""
    path = _of_block(path)
    above, _, step = path.rpartition("/")
    value = _found_in_either(root, path or _BLOCKS)
    if value.path == _BLOCKS:
        page = page_of(value, offset, room)
        page.shape = "blocks"
        return page
    if above == _BLOCKS and value.size <= room and budget.meter.count(b"[%b]" % value.raw()) <= budget.limit:
        part = Part(step, value.raw())
        return Page(_BLOCKS, "blocks", int(step), int(step) + 1, parts=[part])
    return page_of(value, offset, room)


def _of_block(path: str) -> str:
    """Dialects other than native tell the paths of blocks without their list's name."""
    return _BLOCKS + path if path[1:].split("/")[0].isdigit() else path


def _found_in_either(root: Value, path: str, *, opened: bool = True) -> Value:
    """A path into the result, or into its structure, which many would take for the same."""
    try:
        return root.find(path, opened=opened)
    except BadPath:
        structure = root.child("structuredContent")
        try:
            if structure is not None:
                return structure.find(path, opened=opened)
        except BadPath:
            pass
    return _found(root, path)


def _found(root: Value, path: str, *, opened: bool = True) -> Value:
    try:
        return root.find(path, opened=opened)
    except BadPath as error:
        there = f"{error.there[:1].upper()}{error.there[1:]}"
        raise Failure(
            "BAD_PATH", f"There is nothing at {path[:200]!r}.", f"{there}.", found=error.found
        ) from None


def _check_offset(value: Value | Spelling, offset: int) -> None:
    total = value.total if value.kind in ("array", "object", "string", "text") else 1
    if offset > total or (offset == total and total > 0):
        kind = {"array": "items", "object": "members"}.get(value.kind, "characters")
        raise Failure(
            "BAD_OFFSET",
            f"The offset {offset} is past the end: there are {total} {kind} at {value.path or 'the top'}.",
            "Offsets count from 0. Past the end there is nothing more to read.",
        )


# -- queries and searches -----------------------------------------------------------------------------------


def _selected(root: Value, expression: str) -> Value:
    from . import query

    try:
        return Value.small("", query.run(root, expression)).opened()
    except query.BadQuery as error:
        if root.kind == "text":
            raise Failure("BAD_QUERY", str(error), "Search it with grep, or read pages.") from None
        raise Failure(
            "BAD_QUERY", str(error), "Mend it at the position stated.", position=error.position
        ) from None
    except query.TooCostly as error:
        raise Failure("QUERY_TOO_COSTLY", str(error), "Narrow it, or read pages instead.") from None


def _matches(root: Value, pattern: str, path: str, offset: int, context: int, room: int) -> Page:
    from . import grep

    try:
        found = grep.run(_found(root, path), pattern, context=context, skip=offset, most_bytes=room)
    except grep.BadQuery as error:
        raise Failure(
            "BAD_QUERY", str(error), "Mend it at the position stated.", position=error.position
        ) from None
    except grep.TooCostly as error:
        raise Failure("QUERY_TOO_COSTLY", str(error), "Narrow it with a path.") from None
    parts = [Part(str(index), encode(match)) for index, match in enumerate(found.matches, offset)]
    reading = f", grep={quoted(pattern)}" + (f", context={context}" if context else "")
    total = offset + len(parts) + 1 if found.total is None else found.total
    return Page(
        path,
        "array",
        offset,
        total,
        parts=parts,
        whole=not found.more,
        most=room,
        reading=reading,
        places=True,
    )


# -- arguments ----------------------------------------------------------------------------------------------


def _text(arguments: Mapping[str, Any], name: str) -> str | None:
    value = arguments.get(name)
    if value is not None and not isinstance(value, str):
        raise Failure("BAD_ARGS", f"`{name}` is a text, not {_told(value)}.", f"Give `{name}` as a string.")
    return value


def _whole(arguments: Mapping[str, Any], name: str) -> int:
    value = arguments.get(name, 0)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    elif isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value) < 16:
        # Models often put numbers into quotes.
        value = int(value)
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        code = "BAD_OFFSET" if name == "offset" else "BAD_ARGS"
        raise Failure(code, f"`{name}` is a whole number from 0 on, not {_told(value)}.", "Count from 0.")
    return min(value, _MOST_CONTEXT) if name == "context" else value


def _flag(arguments: Mapping[str, Any], name: str) -> bool:
    value = arguments.get(name)
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    if value is not None and not isinstance(value, bool):
        raise Failure(
            "BAD_ARGS", f"`{name}` is true or false, not {_told(value)}.", f"Give `{name}` as a boolean."
        )
    return bool(value)


def _told(value: object) -> str:
    try:
        return encode(value)[:60].decode("utf-8", "ignore")
    except (ValueError, OverflowError, TypeError):
        return "that"
