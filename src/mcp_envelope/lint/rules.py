"""The catalogue of rules, and what a finding is.

Strategy: a rule is data, so that the command, the reports and the page in docs/ tell the same story. A finding
is a rule, a place and a sentence; it also keeps the tool it was found in, for whoever wants to mend it.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .tools import Tool


@dataclass(frozen=True, slots=True)
class Rule:
    id: str
    name: str
    message: str
    why: str
    mend: str
    before: str
    after: str
    fixable: bool = False


_ALL: Final = (
    Rule(
        "ENV001",
        "hand-made-result",
        "a tool returns a hand-made CallToolResult or ToolResult",
        "What a tool returns is put into the envelope: fitted, validated, and told what was left out. A result "
        "made by hand carries text where there was data, so it can only be cut like text. Results that carry "
        "media or `_meta` are left alone: there is no other way to send those.",
        "Return the data itself, or `Reply(data, summary=…)` if there is more to say. A low-level handler has to "
        "make results: `envelope(server)` seals them, and data goes into `structured_content`.",
        'return CallToolResult(content=[TextContent(type="text", text=note)])',
        "return note",
        fixable=True,
    ),
    Rule(
        "ENV002",
        "hand-made-content",
        "a tool returns hand-made text blocks",
        "A list of text blocks is a list of texts that nobody can rank, validate or page through. Lists with an "
        "image, audio, a link or an embedded resource are left alone, also if a text goes with them.",
        "Return the text or the data itself; `Reply(data, texts=[…])` if texts go with data.",
        'return [TextContent(type="text", text=note)]',
        "return note",
        fixable=True,
    ),
    Rule(
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
    Rule(
        "ENV004",
        "cut-by-hand",
        "a tool cuts its result by hand",
        "A slice with a fixed limit loses the rest without a word, and JSON cut that way is no longer JSON. A "
        "limit that the caller passes is paging, and fine. So are small ones: below 50, or below 1000 inside a "
        "sentence.",
        "Return everything: the envelope cuts to the budget and says what it left out. `rank=` says what stays.",
        'return {"rows": rows[:500]}',
        'return {"rows": rows}',
    ),
    Rule(
        "ENV005",
        "error-as-result",
        "a tool returns an error as if it were a result",
        'An error that looks like an answer ("Error: …", `{"error": …}`, `isError=True` by hand) has no code '
        "and no next step, and the caller takes it for data. A raised one becomes a coded failure, without a "
        "traceback.",
        "`raise Failure(code, message, hint)`, let the exception through, or return `Miss(hint)` if what was asked "
        "for is not there.",
        'return f"Error: {error}"',
        'raise Failure("TIMEOUT", "The search took too long.", "Search fewer files.") from error',
    ),
    Rule(
        "ENV006",
        "no-envelope",
        "a server has tools but no envelope",
        "Without the line no result of this server is measured, cut or told. It belongs beside the constructor, so "
        "that every way to start the server has it. A server that is handed on (returned, or passed to a function) "
        "is left alone: the line may be there.",
        "FastMCP: `mcp.add_middleware(EnvelopeMiddleware())`. Official SDK: `envelope(server)`.",
        'mcp = FastMCP("search")',
        'mcp = FastMCP("search")\nmcp.add_middleware(EnvelopeMiddleware())',
    ),
    Rule(
        "ENV007",
        "records-as-text",
        "a tool writes records into text",
        "Lines made of fields (`title`, `url`, …) can't be cut record by record, ranked, or read by a program. "
        "Only loops that write two fields or more are found; prose and lists of words are left alone. If Markdown "
        "is what you mean, ignore this rule.",
        "Return the records; put words about them in `Reply(records, summary=…)`.",
        'return "\\n".join(f"{hit.file}: {hit.score}" for hit in hits)',
        'return [{"file": hit.file, "score": hit.score} for hit in hits]',
    ),
)
RULES: Final[dict[str, Rule]] = {rule.id: rule for rule in _ALL}


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """Lines count from 1, columns from 0 and in characters, ends are exclusive: as editors have it."""

    line: int
    column: int
    rule: str
    message: str
    end_line: int
    end_column: int
    fixable: bool = False
    # What the fixer needs: where it was found, and what is returned there.
    tool: Tool | None = field(default=None, compare=False, repr=False)
    returned: ast.Return | None = field(default=None, compare=False, repr=False)


def chosen(select: Collection[str], ignore: Collection[str]) -> frozenset[str]:
    """The rules meant by prefixes: `ENV` is all of them, `ENV003` is one. `ignore` wins."""
    wanted = [name for name in RULES if not select or name.startswith(tuple(select))]
    return frozenset(name for name in wanted if not (ignore and name.startswith(tuple(ignore))))


def markdown_table() -> str:
    """The table of docs/lint.md."""
    rows = ["| rule | name | what is found | `--fix` |", "|---|---|---|---|"]
    rows += [
        f"| {rule.id} | {rule.name} | {rule.message} | {'simple cases' if rule.fixable else ''} |"
        for rule in RULES.values()
    ]
    return "\n".join(rows) + "\n"
