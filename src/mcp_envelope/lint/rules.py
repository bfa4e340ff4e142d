"""The catalogue of rules, and what a finding is.

A rule is data, so that the command and the reports agree. A finding is a rule, a position and a
message; it also keeps the tool it was found in, for the fixer.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .tools import Tool


@dataclass(frozen=True, slots=True)
class LintRule:
    id: str
    name: str
    message: str
    why: str
    advice: str
    before: str
    after: str
    fixable: bool = False


_ALL: Final = (
    LintRule(
        "ENV001",
        "hand-made-result",
        "a tool returns a hand-made CallToolResult or ToolResult",
        "The envelope fits and validates what a tool returns, and announces what was left out. A result made by "
        "hand carries text where there was data, so it can only be cut as text. Results with media or `_meta` are "
        "left alone: there is no other way to send those.",
        "Return the data itself, or `Reply(data, summary=…)` if there is more to say. A low-level handler has to "
        "make results: `envelope(server)` seals them, and data goes into `structured_content`.",
        'return CallToolResult(content=[TextContent(type="text", text=note)])',
        "return note",
        fixable=True,
    ),
    LintRule(
        "ENV002",
        "hand-made-content",
        "a tool returns hand-made text blocks",
        "Nobody can rank, validate or page through a list of text blocks. Lists with an image, audio, a link or "
        "an embedded resource are left alone, even with text next to them.",
        "Return the text or the data itself; `Reply(data, texts=[…])` if texts go with data.",
        'return [TextContent(type="text", text=note)]',
        "return note",
        fixable=True,
    ),
    LintRule(
        "ENV003",
        "data-as-text",
        "a tool returns data as text",
        "JSON in a string has no output schema, and clients that read `structuredContent` find a string there. "
        "Data stays data: the envelope writes the JSON.",
        "Return the data; drop the `-> str`.",
        "return json.dumps(rows, indent=2)",
        "return rows",
        fixable=True,
    ),
    LintRule(
        "ENV004",
        "cut-by-hand",
        "a tool cuts its result by hand",
        "A slice with a fixed limit drops the rest silently, and JSON cut that way is no longer JSON. A limit that "
        "the caller passes is paging, which is fine. So are small limits: below 50, or below 1000 inside a "
        "sentence.",
        "Return everything: the envelope cuts to the budget and says what it left out. `rank=` decides what stays.",
        'return {"rows": rows[:500]}',
        'return {"rows": rows}',
    ),
    LintRule(
        "ENV005",
        "error-as-result",
        "a tool returns an error as if it were a result",
        'An error that looks like an answer ("Error: …", `{"error": …}`, `isError=True` by hand) has no code '
        "and no next step, and the caller takes it for data. A raised error becomes a coded failure, without a "
        "traceback.",
        "`raise Failure(code, message, hint)`, let the exception through, or return `Miss(hint)` if what was asked "
        "for does not exist.",
        'return f"Error: {error}"',
        'raise Failure("TIMEOUT", "The search took too long.", "Search fewer files.") from error',
    ),
    LintRule(
        "ENV006",
        "no-envelope",
        "a server has tools but no envelope",
        "Without that line no result of this server is measured or cut. It belongs next to the constructor, so "
        "that it applies however the server is started. A server that is handed on (returned, or passed to a "
        "function) is left alone: it may get its envelope there.",
        "FastMCP: `mcp.add_middleware(EnvelopeMiddleware())`. Official SDK: `envelope(server)`.",
        'mcp = FastMCP("search")',
        'mcp = FastMCP("search")\nmcp.add_middleware(EnvelopeMiddleware())',
    ),
    LintRule(
        "ENV007",
        "records-as-text",
        "a tool writes records into text",
        "Lines made of fields (`title`, `url`, …) can't be cut record by record, ranked, or read by a program. "
        "Only loops that write at least two fields are found; prose and lists of words are left alone. If you do "
        "want Markdown, ignore this rule.",
        "Return the records; `Reply(records, summary=…)` adds words about them.",
        'return "\\n".join(f"{hit.file}: {hit.score}" for hit in hits)',
        'return [{"file": hit.file, "score": hit.score} for hit in hits]',
    ),
    LintRule(
        "ENV008",
        "no-raw-mcp-text",
        "a module imports build_tool_response",
        "`build_tool_response` has text for data, so nothing in it can be ranked, validated or paged. It is there "
        "for tools that have not been migrated yet, under this name or as `buildToolResponse`.",
        "Use `build_structured_response`, or `compose_tool_payload`; with the envelope, return the data itself.",
        "from mcp_envelope.dialects.gel import build_tool_response",
        "from mcp_envelope.dialects.gel import build_structured_response",
    ),
)
RULES: Final[dict[str, LintRule]] = {rule.id: rule for rule in _ALL}


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """Lines count from 1, columns from 0 and in characters; ends are exclusive."""

    line: int
    column: int
    rule: str
    message: str
    end_line: int
    end_column: int
    fixable: bool = False
    # For the fixer: in which tool, and what that returns there.
    tool: Tool | None = field(default=None, compare=False, repr=False)
    returned: ast.expr | None = field(default=None, compare=False, repr=False)


def chosen(select: Collection[str], ignore: Collection[str]) -> frozenset[str]:
    """The rules selected by prefixes: `ENV` is all of them, `ENV003` is one. `ignore` wins."""
    wanted = [name for name in RULES if not select or name.startswith(tuple(select))]
    return frozenset(name for name in wanted if not (ignore and name.startswith(tuple(ignore))))
