"""`envelope_read`, the one tool that we add. It reads stored payloads and never runs a tool again.

Strategy: check the arguments, find the value at the path, and load a little more of it than the budget holds as
a page, which is sealed like any result. A query gives a new value, to which path and offset then apply; a
search gives a list of matches, which the offset counts. So every result can be continued in the same way, and
the same call gives the same result. What a query or a search finds can be asked in SQL, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from msgspec.structs import replace

from ..budget import Budget
from ..dialects import dialect
from ..dialects.notice import READ_TOOL
from ..envelope import Sealed, make_plan, seal_plan
from ..fit.documents import Cut
from ..fit.images import ImageBudget
from ..fit.pages import Page, Part, Shape
from ..fit.survey import Survey
from ..jsontext.document import Node, encode, quoted
from ..lanes import Profile
from ..outcome import Failure, Outcome, OwnFailure, sendable
from ..payload import Payload, shown
from .document import BadPath, ExactText, StoredValue, text_parts
from .limits import BadQuery, TooCostly
from .media import (
    FILE_IN_BLOCK,
    Media,
    View,
    first_image,
    holds_file,
    media,
    no_image,
    read_view,
    without_files,
)
from .store import Damaged, StoreError
from .vault import Stored, Vault, store_failure

if TYPE_CHECKING:
    from ..config import Policy

_MOST_CONTEXT: Final = 20
_LONGEST_MESSAGE: Final = 500
# It may list the columns of tables.
_LONGEST_HINT: Final = 1500
# Characters that a message must not contain: controls, and marks that change the direction of text.
_INVISIBLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_BLOCKS: Final = "/content"
_LINES: Final = re.compile(r"(\d{1,15})(?:\s*-\s*(\d{1,15}))?")
_WAYS: Final = ("lines", "query", "grep", "sql")
# Bytes of matches that SQL can be asked about.
_MOST_MATCHED: Final = 32 << 20
# An expression that is longer isn't repeated to offer SQL.
_LONGEST_OFFERED: Final = 200
_COUNTING_LINES: Final = 'sql="SELECT text, count(*) FROM data GROUP BY 1"'

# Models pay for this with every request, so it teaches by examples. The notice of a cut result has the handle, the
# path, the offset and SQL that fits the result; docs/vault.md has the rest.
TOOL: Final[dict[str, Any]] = {
    "name": READ_TOOL,
    "title": "Read a stored result",
    "description": (
        'Reads cut results: sql="SELECT count(*) FROM items" (texts: lines(n,text)), lines="9-12", query=JMESPath'
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "handle": {"type": "string"},
            "path": {"type": "string"},
            "offset": {"type": "integer"},
            "lines": {"type": "string"},
            "sql": {"type": "string"},
            "query": {"type": "string"},
            "grep": {"type": "string"},
            "exact": {"type": "boolean"},
            "region": {"type": "string"},
            "scale": {"type": "number"},
        },
        "required": ["handle"],
    },
    # Claude Code hides tools behind a search where there are many; this one is loaded from the start.
    "_meta": {"anthropic/alwaysLoad": True},
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
    request_id: str | None = None,
) -> Sealed:
    """Return the result of a call of `envelope_read`, in the dialect of the policy; failures are results."""
    spoken = dialect(policy.dialect if policy else "native")
    if policy is not None and (requested := arguments.get(spoken.budget_argument)) is not None:
        policy = policy.with_budget(requested)
    budget = budget or (policy.budget if policy else None) or Budget.of()
    handle = str(arguments.get("handle")).strip()
    outcome = Outcome(tool=READ_TOOL, request_id=request_id)
    if policy is not None:
        known = {name: getattr(policy, name) for name in ("warnings", "tier", "tool_version", "workspace")}
        outcome = replace(outcome, capabilities=policy.capabilities or None, **known)
    # What our own shape adds in other profiles is no part of a page.
    profile = "minimal" if policy is None or spoken.in_place else cast(Profile, policy.detail)

    def sealed(answer: Page | Media | Failure, outcome: Outcome) -> Sealed:
        if not isinstance(answer, Media):
            return seal_plan(make_plan(answer, budget, outcome, spoken, profile=profile), spoken)
        plan = make_plan(Payload(blocks=(answer.block,)), budget, outcome, spoken, profile=profile)
        # It was fitted already.
        whole = replace(images, treatment="pass")
        made = seal_plan(replace(plan, images=whole, image_cuts=answer.cuts), spoken)
        made.noted = bool(answer.cuts)
        return made

    images = policy.image_budget if policy else ImageBudget()
    try:
        page = _page(vault, arguments, owner, budget, spoken.in_place, images)
        reading = page.reading if isinstance(page, Page) else None
        return sealed(page, replace(outcome, handle=handle, reading=reading))
    except Failure as error:
        failure = _own(error)
    except Damaged as error:
        failure = (_reason_gone(vault, handle, owner) if vault else None) or store_failure(error)
    except StoreError as error:
        failure = store_failure(error)
    if not spoken.in_place and not spoken.shows_warnings:
        # It has no place for a hint either.
        problem = failure.problem
        failure = OwnFailure(
            problem.code, f"{problem.message.rstrip('.')}. {problem.hint}".strip(), **(problem.details or {})
        )
    return sealed(failure, outcome)


def _own(failure: Failure) -> Failure:
    """Return a failure that is not scrubbed: its text is ours or the caller's, and JSON pointers aren't paths."""
    problem = failure.problem
    message, hint = [
        _INVISIBLE.sub("", sendable(text) or "")[:longest]
        for text, longest in ((problem.message, _LONGEST_MESSAGE), (problem.hint, _LONGEST_HINT))
    ]
    return OwnFailure(problem.code, message, hint, **(problem.details or {}))


def _reason_gone(vault: Vault, handle: str, owner: str | None) -> Failure | None:
    """Return why a result is gone that was evicted, or expired, while it was being read."""
    try:
        vault.open(handle, owner)
    except Failure as failure:
        return failure
    except (StoreError, Damaged):
        pass
    return None


def _page(
    vault: Vault | None,
    arguments: Mapping[str, Any],
    owner: str | None,
    budget: Budget,
    has_blocks: bool,
    images: ImageBudget,
) -> Page | Media:
    handle = (_text(arguments, "handle") or "").strip()
    path = _text(arguments, "path") or ""
    offset = _number(arguments, "offset")
    ways = {name: given for name in _WAYS if (given := _text(arguments, name))}
    exact = _flag(arguments, "exact")
    if not handle:
        hint = "Give the handle from the notice of the cut result."
        raise Failure("BAD_ARGS", "`handle` is missing.", hint)
    if len(ways) > 1 and tuple(ways) not in (("query", "sql"), ("grep", "sql")):
        named = " and ".join(f"`{name}`" for name in ways)
        hint = "Use one at a time; only `sql` can be added to `query` or `grep`."
        raise Failure("BAD_ARGS", f"{named} cannot be combined.", hint)
    if exact and ways:
        hint = f"Leave out `exact`, or `{next(iter(ways))}`."
        raise Failure("BAD_ARGS", "`exact` works only with a path.", hint)
    if vault is None:
        hint = "Call the tool again with a narrower request, or a larger budget."
        raise Failure("HANDLE_UNKNOWN", "Nothing is stored here: there is no vault.", hint)
    stored = vault.open(handle, owner)
    room = budget.most_bytes
    if exact:
        return _page_of_text(exact_text(stored, path), offset, room, ", exact=true")
    root = stored.root()
    if wanted := ways.get("lines"):
        if stored.entry.kind == "blocks" and holds_file(root, block_path(path)):
            raise _no_text(path)
        is_first = stored.entry.kind == "blocks" and not path
        return _page_of_lines(_first_text(root) if is_first else find(root, path), wanted, room)
    asked, query, grep = ways.get("sql"), ways.get("query"), ways.get("grep")
    reading = ""
    finding: Callable[[], StoredValue] | None = None
    if query:
        reading = f", query={quoted(query)}"
        finding = partial(_selected, root, query, stored.entry.kind == "blocks")
    elif grep:
        context = _number(arguments, "context")
        reading = f", grep={quoted(grep)}" + (f", context={context}" if context else "")
        if not asked:
            return _page_of_matches(root, grep, path, offset, context, room, reading)
        finding = partial(_all_matches, root, grep, context)
    if asked:
        rows = _asked(vault, stored, asked, owner, reading, finding)
        return page_of(find(rows, path), offset, room, f"{reading}, sql={quoted(asked)}")
    if finding is not None:
        selected = finding()
        page = page_of(find(selected, path), offset, room, reading)
        if not path and selected.kind == "array" and len(reading) <= _LONGEST_OFFERED:
            page.offer = partial(_question_about, selected, reading)
        return page
    view = read_view(arguments)
    if stored.entry.kind == "blocks":
        found = _media(root, block_path(path), budget, images, view)
        if found is not None or view is None:
            return found or _page_of_blocks(root, path, offset, budget, room, has_blocks)
    if view is not None:
        raise no_image(path)
    return page_of(find(root, path), offset, room)


# -- pages --------------------------------------------------------------------------------------------------


def page_of(value: StoredValue, offset: int, room: int, reading: str = "") -> Page:
    """Return the page that starts at an offset: slightly more than `room` bytes, or all there is."""
    if value.kind in ("string", "text"):
        return _page_of_text(value, offset, room, reading)
    _check_offset(value, offset)
    if value.kind not in ("array", "object"):
        return Page(value.path, "whole", 0, 1, text=value.raw(), reading=reading, bytes_in_all=value.size)
    parts: list[Part] = []
    covered = 0
    whole = True
    for found in value.children(offset):
        if covered > room:
            whole = False
            break
        child = found.loaded(room)
        large = None if child.large is None else child.large.node(room)
        raw_key = b"" if child.member is None else child.member.raw_key
        parts.append(Part(child.step, child.raw, raw_key, large))
        covered += parts[-1].size + 1
    shape: Shape = "array" if value.kind == "array" else "object"
    return Page(
        value.path,
        shape,
        offset,
        value.total,
        parts=parts,
        whole=whole,
        most=room,
        reading=reading,
        bytes_in_all=value.size,
    )


def _page_of_text(value: StoredValue | ExactText, offset: int, room: int, reading: str) -> Page:
    _check_offset(value, offset)
    text = value.text(offset, room)
    whole = offset + len(text) >= value.total
    data = text.encode()
    return Page(value.path, "text", offset, value.total, text=data, whole=whole, most=room, reading=reading)


def _page_of_lines(value: StoredValue, wanted: str, room: int) -> Page:
    """Return some lines of a text, counted from 1."""
    asked = _LINES.fullmatch(wanted.strip())
    first, last = (int(asked[1]), int(asked[2] or asked[1])) if asked else (0, 0)
    if not 0 < first <= last:
        hint = "Write it like 1200-1260; the first line is 1."
        raise Failure("BAD_ARGS", f"`lines` must be a range of lines, not {_shown(wanted)}.", hint)
    if value.kind not in ("string", "text"):
        raise _no_text(value.path)
    start = _after_lines(value, first - 1)
    if start == value.total:
        message = f"Line {first} is past the end of the text at {value.path or 'the top'}."
        raise Failure("BAD_OFFSET", message, "Ask for earlier lines, or search with grep.")
    size = _after_lines(value, last - first + 1, start) - start
    text = value.text(start, room)
    is_whole = size <= len(text)
    data = text[:size].encode()
    return Page(value.path, "text", start, value.total, text=data, whole=is_whole, most=room)


def _no_text(path: str) -> Failure:
    hint = "Give the path of a text, or read a list with its path and an offset."
    return Failure("BAD_ARGS", f"There is no text at {path[:200] or 'the top'}.", hint)


def _after_lines(value: StoredValue, count: int, at: int = 0) -> int:
    """Return the offset, in characters, after so many lines from an offset on; at most the end."""
    for part in text_parts(value, at) if count else ():
        ended = part.count("\n")
        if ended < count:
            count -= ended
            at += len(part)
            continue
        place = -1
        for _ in range(count):
            place = part.find("\n", place + 1)
        return at + place + 1
    return at


def _first_text(root: StoredValue) -> StoredValue:
    """Return the first text among a result's blocks, or else the result."""
    content = root.child("content")
    blocks = (content.item(index) for index in range(content.total)) if content is not None else ()
    return next((text for block in blocks if block and (text := block.child("text"))), root)


def _media(
    root: StoredValue, path: str, budget: Budget, images: ImageBudget, view: View | None
) -> Media | None:
    """Return the image, audio or file in the block at a path; with a view and no path, the first image."""
    content = root.child("content")
    if view is not None and path in ("", _BLOCKS) and content is not None:
        path = first_image(content)
    inside = FILE_IN_BLOCK.fullmatch(path)
    return None if inside is None else media(find(root, inside[1]), budget, images, view)


def _page_of_blocks(
    root: StoredValue, path: str, offset: int, budget: Budget, room: int, has_blocks: bool
) -> Page:
    """Return content blocks as such. Without a place for blocks, a list of them is JSON."""
    path = block_path(path)
    above, _, step = path.rpartition("/")
    value = _find_in_either(root, path or _BLOCKS)
    if value.path == _BLOCKS:
        page = page_of(value, offset, room)
        if has_blocks:
            page.shape = "blocks"
            return page
        parts = [_described(part, value) for part in page.parts]
        return Page(_BLOCKS, "array", offset, value.total, parts=parts, whole=page.whole, most=room)
    if has_blocks and above == _BLOCKS and value.size <= room and budget.holds(shown([value.raw()])):
        part = Part(step, value.raw())
        return Page(_BLOCKS, "blocks", int(step), int(step) + 1, parts=[part])
    return page_of(value, offset, room)


def _described(part: Part, blocks: StoredValue) -> Part:
    """Return a text block as it is, and of any other a description and the path where it can be read."""
    block = blocks.item(int(part.step))
    known = {name: block.child(name) for name in ("type", "mimeType", "name", "uri")} if block else {}
    said = {name: msgspec.Raw(value.raw()) for name, value in known.items() if value and value.size < 1000}
    if said.get("type") == msgspec.Raw(b'"text"'):
        return part
    return Part(part.step, encode({**said, "path": f"{_BLOCKS}/{part.step}"}))


def exact_text(stored: Stored, path: str) -> StoredValue | ExactText:
    """Return the value at a path as text: a string's own characters, or the stored bytes of any other value."""
    if not path:
        return stored.as_text()
    root = stored.root(opened=False)
    if stored.entry.kind == "blocks":
        return _find_in_either(root, block_path(path), opened=False).as_text()
    return find(root, path, opened=False).as_text()


def block_path(path: str) -> str:
    """Return the full path of a block: dialects other than native omit the name of the list."""
    return _BLOCKS + path if path[1:].split("/")[0].isdigit() else path


def _find_in_either(root: StoredValue, path: str, *, opened: bool = True) -> StoredValue:
    """Return the value at a path into the result, or else into its structure, since callers confuse the two."""
    try:
        return root.find(path, opened=opened)
    except BadPath:
        structure = root.child("structuredContent")
        if structure is not None:
            with suppress(BadPath):
                return structure.opened().find(path, opened=opened)
    return find(root, path)


def find(root: StoredValue, path: str, *, opened: bool = True) -> StoredValue:
    """Return the value at a path, or raise a `Failure` that says what is there instead."""
    try:
        return root.find(path, opened=opened)
    except BadPath as error:
        hint = f"{error.there[:1].upper()}{error.there[1:]}."
        raise Failure("BAD_PATH", f"There is nothing at {path[:200]!r}.", hint, found=error.found) from None


def _check_offset(value: StoredValue | ExactText, offset: int) -> None:
    total = value.total if value.kind in ("array", "object", "string", "text") else 1
    if offset > total or (offset == total and total > 0):
        kind = {"array": "items", "object": "members"}.get(value.kind, "characters")
        raise Failure(
            "BAD_OFFSET",
            f"The offset {offset} is past the end: there are {total} {kind} at {value.path or 'the top'}.",
            "Offsets count from 0. There is nothing more to read past the end.",
        )


# -- queries and searches -----------------------------------------------------------------------------------


def _selected(root: StoredValue, expression: str, has_blocks: bool) -> StoredValue:
    from . import query

    if root.kind == "text":
        raise Failure("BAD_QUERY", query.NOT_JSON, "Search it with grep, or read pages.")
    with _explaining("Narrow it, or read pages instead."):
        found = query.run(root, expression)
        return StoredValue.small("", without_files(root, found) if has_blocks else found).opened()


def _asked(
    vault: Vault,
    stored: Stored,
    text: str,
    owner: str | None,
    reading: str,
    finding: Callable[[], StoredValue] | None,
) -> StoredValue:
    from . import sql

    def rows() -> StoredValue:
        assert finding is not None
        value = finding()
        if value.kind == "null" or (value.kind == "array" and not value.total):
            message = f"There is nothing to query in SQL: {reading[2:][:200]} finds nothing."
            raise Failure("BAD_QUERY", message, "Change it, or use `sql` alone.")
        return value

    with _explaining("Ask for less, or read pages instead."):
        selection = None if finding is None else sql.Selection(reading, rows)
        return StoredValue.small("", sql.run(vault, stored, text, owner, selection=selection))


def _question_about(rows: StoredValue, reading: str) -> str:
    """Return the arguments of a call that asks about what a query found, as an example."""
    node = Node(rows.raw())
    survey = Survey()
    survey.roots[""] = node
    survey.cut_list("", node)
    asked = survey.example(Cut("", "items", 0, rows.total, 0))
    return f"{reading[2:]}, {asked}" if asked else ""


def _all_matches(root: StoredValue, pattern: str, context: int) -> StoredValue:
    from . import grep

    with _explaining("Search for less."):
        found = grep.run(root, pattern, context=context, most_bytes=_MOST_MATCHED)
    if found.more:
        message = "The search takes too long, or finds too much for a table."
        raise Failure("QUERY_TOO_COSTLY", message, "Search for less.")
    # All have the same columns.
    names = ("path", "offset", "line", "text", *(("before", "after") if context else ()))
    rows = [{name: getattr(match, name) for name in names} for match in found.matches]
    return StoredValue.small("", encode(rows))


def _page_of_matches(
    root: StoredValue, pattern: str, path: str, offset: int, context: int, room: int, reading: str
) -> Page:
    from . import grep

    value = find(root, path)
    with _explaining("Narrow it with a path."):
        found = grep.run(value, pattern, context=context, skip=offset, most_bytes=room)
    parts = [Part(str(index), encode(match)) for index, match in enumerate(found.matches, offset)]
    total = offset + len(parts) + 1 if found.total is None else found.total
    page = Page(
        path,
        "array",
        offset,
        total,
        parts=parts,
        whole=not found.more,
        most=room,
        reading=reading,
        places=True,
        at_least=found.total is None,
    )
    if not path and len(reading) <= _LONGEST_OFFERED:
        page.offer = lambda: f"{reading[2:]}, {_COUNTING_LINES}"
    return page


@contextmanager
def _explaining(cheaper: str) -> Iterator[None]:
    try:
        yield
    except BadQuery as error:
        raise Failure("BAD_QUERY", str(error), error.hint, position=error.position) from None
    except TooCostly as error:
        raise Failure("QUERY_TOO_COSTLY", str(error), cheaper) from None


# -- arguments ----------------------------------------------------------------------------------------------


def _text(arguments: Mapping[str, Any], name: str) -> str | None:
    value = arguments.get(name)
    if value is not None and not isinstance(value, str):
        raise Failure(
            "BAD_ARGS", f"`{name}` must be a string, not {_shown(value)}.", f"Give `{name}` as a string."
        )
    return value


def _number(arguments: Mapping[str, Any], name: str) -> int:
    value = arguments.get(name)
    if value is None:
        return 0
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    elif isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value) < 16:
        # Models often put numbers into quotes.
        value = int(value.strip())
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        code = "BAD_OFFSET" if name == "offset" else "BAD_ARGS"
        raise Failure(
            code, f"`{name}` must be an integer of at least 0, not {_shown(value)}.", "Count from 0."
        )
    return min(value, _MOST_CONTEXT) if name == "context" else value


def _flag(arguments: Mapping[str, Any], name: str) -> bool:
    value = arguments.get(name)
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    if value is not None and not isinstance(value, bool):
        hint = f"Give `{name}` as a boolean."
        raise Failure("BAD_ARGS", f"`{name}` must be true or false, not {_shown(value)}.", hint)
    return bool(value)


def _shown(value: object) -> str:
    try:
        return encode(value)[:60].decode("utf-8", "ignore")
    except (ValueError, OverflowError, TypeError):
        return "that"


# -- stored results as resources: envelope://HANDLE, or envelope://HANDLE/content/2 for a part of one ---------

SCHEME: Final = "envelope://"
_LARGEST_RESOURCE: Final = 8 << 20


class _ContentBlock(msgspec.Struct, rename={"mime_type": "mimeType"}):
    type: str = ""
    data: str | None = None
    text: str | None = None
    mime_type: str | None = None
    resource: Any = None


def resource(vault: Vault | None, uri: str, owner: str | None = None) -> bytes:
    """The result of `resources/read`, as JSON; `Failure` says why there is none."""
    handle, slash, path = uri.removeprefix(SCHEME).partition("/")
    if vault is None:
        raise Failure("HANDLE_UNKNOWN", "Nothing is stored here: there is no vault.", "Call the tool again.")
    try:
        stored = vault.open(handle, owner)
        value = find(stored.root(), slash + path)
        if value.size > _LARGEST_RESOURCE:
            raise Failure(
                "TOO_LARGE",
                f"The resource has {value.size} bytes, and at most {_LARGEST_RESOURCE} are sent at once.",
                "Read it in pages with envelope_read.",
            )
        contents = {"uri": uri, **_contents(value)}
    except (StoreError, Damaged) as error:
        raise store_failure(error) from None
    return encode({"contents": [contents], "ttlMs": 0, "cacheScope": "private"})


def _contents(value: StoredValue) -> dict[str, Any]:
    raw = value.raw()
    if value.kind == "object":
        try:
            block = msgspec.json.decode(raw, type=_ContentBlock)
        except (msgspec.MsgspecError, RecursionError):
            block = _ContentBlock()
        if block.type in ("image", "audio") and block.data is not None:
            return {"mimeType": block.mime_type or "application/octet-stream", "blob": block.data}
        if block.type == "resource" and isinstance(block.resource, dict):
            return {key: item for key, item in block.resource.items() if key in ("mimeType", "text", "blob")}
        if block.type == "text" and block.text is not None:
            return {"mimeType": "text/plain", "text": block.text}
    if value.kind == "string":
        return {"mimeType": "text/plain", "text": msgspec.json.decode(raw, type=str)}
    kind = "text/plain" if value.kind == "text" else "application/json"
    return {"mimeType": kind, "text": raw.decode()}
