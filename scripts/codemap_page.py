"""The page docs/codemap.md: one question, put to the example server codemap in each dialect.

    python scripts/codemap_page.py            # prints it
    python scripts/codemap_page.py --update   # writes it

The server indexes this repository, and each reply is what a client got over stdio.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any, Final

from fastmcp import Client
from fastmcp.client.transports import StdioTransport

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "codemap.md"
NODE: Final = "py:src/mcp_envelope/scrubbing.py#scrub"
BUDGET: Final = 450
_WIDTH: Final = 112

_ABOUT: Final = {
    "native": """The payload keeps its shape and gets one more property, `_envelope`, which says what was left
    out and has the handle. `envelope_read` reads the rest, without running the tool again.""",
    "ctxo": """`_meta` comes last and counts items and bytes. There is no place for a handle; the hint says how to
    ask for less.""",
    "transcend": """`used` is the size of what you see, and never more than `requested`. `dropped.note` says what is
    missing and how to get it.""",
    "gel": """The text is for reading, `structuredContent` for programs. `tokenUsage` says what it would have
    cost to read the files instead. One link leads to the source, and another to the whole result.""",
    "scalpel": """The profile `minimal` has only `data` and whatever has to be said. The dialect has no default
    budget, so this call sets one, and a second text block describes what was left out.""",
}


async def made() -> str:
    name = NODE.partition("#")[2]
    parts = [
        "# What breaks if I change this function?",
        wrapped(
            f"""[codemap](../examples/codemap/README.md) is an example server that answers questions about code.
            Here it is asked one question about this repository, in each of the five [dialects](contracts.md): what
            breaks if I change `{name}`? Everything below is what a client got; this page was made by `python
            scripts/codemap_page.py --update`."""
        ),
        "The tool is a function with plain types. It knows nothing about dialects or budgets.",
        block(_source(), "py"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        for dialect, about in _ABOUT.items():
            parts += [f"## {dialect}", wrapped(about), *await _asked(dialect, folder)]
    return "\n\n".join(parts) + "\n"


def _source() -> str:
    """The declaration of the tool, from its source."""
    lines = (ROOT / "examples/codemap/codemap/impact_tools.py").read_text().splitlines()
    at = next(n for n, line in enumerate(lines) if "def get_blast_radius" in line)
    start = max(n for n in range(at) if lines[n].strip() == "@enveloped(")
    end = next(n for n in range(at, len(lines)) if lines[n].strip().startswith('"""'))
    return "\n".join(line[4:] for line in lines[start : end + 1])


async def _asked(dialect: str, folder: str) -> list[str]:
    """The question, how the rest of the answer is read, and how a wrong question fails."""
    options = ["--root", str(ROOT), "--db", f"{folder}/map.db", "--dialect", dialect, "--no-build"]
    env = {
        "PATH": os.environ["PATH"],
        "XDG_STATE_HOME": folder,
        "MCP_ENVELOPE_CONFIG": os.devnull,
        "FASTMCP_LOG_ENABLED": "false",
    }
    transport = StdioTransport(sys.executable, [str(ROOT / "examples/codemap"), *options], env, folder)
    budget = "token_budget" if dialect == "scalpel" else "tokenBudget"
    async with Client(transport) as client:

        async def ask(tool: str, **arguments: Any) -> tuple[str, Any]:
            result = await client.call_tool_mcp(tool, arguments, timeout=300)
            return block(f"{tool} {json.dumps(arguments)}", ""), result

        if not Path(folder, "map.db").exists():
            await ask("map_rebuild")
        question, answer = await ask("get_blast_radius", node=NODE, **{budget: BUDGET})
        parts = [question, *_shown(answer, dialect)]
        if dialect == "native":
            handle = answer.structured_content["_envelope"]["handle"]
            query = 'SELECT "anchor.file" AS file, count(*) AS uses FROM impactedSymbols GROUP BY 1 ORDER BY 2 DESC'
            question, page = await ask("envelope_read", handle=handle, sql=query)
            parts += [
                "Which files are these? The query runs on the whole result, including the part that isn't shown:",
                question,
                *_shown(page, dialect),
            ]
        if dialect == "gel":
            links = [each for each in answer.content if each.type == "resource_link"]
            link = next(each for each in links if str(each.uri).startswith("codemap:"))
            (read,) = await client.read_resource(str(link.uri))
            lines = "\n".join(read.text.splitlines()[:4])
            parts += [f"`resources/read` of `{link.uri}` begins:", block(lines, "")]
        if dialect == "transcend":
            question, live = await ask("nav_references", node=NODE, tokenBudget=BUDGET)
            parts += [
                "The map is approximate. A language server confirms it, about the files as they are now:",
                *(question, *_shown(live, dialect)),
            ]
        question, failed = await ask("get_blast_radius", node=f"{NODE}s")
        return [*parts, "A node that doesn't exist:", question, *_shown(failed, dialect)]


def _shown(result: Any, dialect: str) -> list[str]:
    """What a client hands on: the structure, or the texts; in gel both."""
    texts = [each.text for each in result.content if each.type == "text"]
    if result.structured_content is None:
        return [
            block(pretty(json.loads(each)), "json") if each[0] == "{" else block(each, "") for each in texts
        ]
    parts = [block(pretty(result.structured_content), "json")]
    if dialect == "gel":
        parts.insert(0, block("\n".join(map(_shortened, texts)), ""))
    if dialect == "scalpel":
        parts += [block(text, "") for text in texts[1:]]
    return parts


def _shortened(text: str) -> str:
    return text if len(text) <= 4 * _WIDTH else f"{text[: 4 * _WIDTH]}…"


def wrapped(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 118, break_long_words=False, break_on_hyphens=False)


def block(text: str, language: str) -> str:
    return f"```{language}\n{text}\n```"


def pretty(value: Any, indent: str = "") -> str:
    """JSON with as much on a line as a line can hold."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(line) <= _WIDTH or not value or not isinstance(value, dict | list):
        return line
    inner = indent + "  "
    if isinstance(value, list):
        items = [pretty(each, inner) for each in value]
        opening, closing = "[", "]"
    else:
        items = [f"{json.dumps(key)}: {pretty(each, inner)}" for key, each in value.items()]
        opening, closing = "{", "}"
    return f"{opening}\n" + ",\n".join(inner + item for item in items) + f"\n{indent}{closing}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--update", action="store_true")
    page = asyncio.run(made())
    if parser.parse_args().update:
        PAGE.write_text(page)
    else:
        print(page)
