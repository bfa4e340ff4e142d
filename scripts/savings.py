"""The table in README.md: what calls of real servers cost a model, directly and through the proxy.

    python scripts/savings.py            # prints it
    python scripts/savings.py --update   # writes it into README.md

Tokens are those of o200k, counted in the lane that most coding agents show: the structure if there is one, else the
text. The servers work on this repository and on the packages that the tests install.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.proxy.real import node, python  # noqa: E402
from tests.shown import shown  # noqa: E402

from mcp_envelope.budget import meter_named  # noqa: E402

PAGE: Final = ROOT / "README.md"
TABLE: Final = re.compile(r"(<!-- savings -->\n)(.*?)(<!-- end -->)", re.DOTALL)
PACKAGES: Final = ROOT / ".venv" / "servers" / "node_modules"


class Case(NamedTuple):
    server: str
    command: tuple[str, ...]
    tool: str
    arguments: dict[str, Any]
    what: str


def cases() -> list[Case]:
    files = "server-filesystem", node("server-filesystem", str(ROOT))
    git = "mcp-server-git", python("mcp_server_git", "--repository", str(ROOT))
    largest = max(PACKAGES.rglob("*.js"), key=lambda path: (path.stat().st_size, path.name))
    repository = {"repo_path": str(ROOT)}
    return [
        Case(
            *files, "read_text_file", {"path": str(largest)}, f"a file of {largest.stat().st_size >> 10:,} KB"
        ),
        Case(*files, "directory_tree", {"path": str(PACKAGES / "zod")}, "the tree of a package"),
        Case(*files, "search_files", {"path": str(PACKAGES), "pattern": "**/*.ts"}, "names of files"),
        Case(*git, "git_log", {**repository, "max_count": 100}, "100 commits"),
        Case(*git, "git_diff", {**repository, "target": "HEAD~20"}, "the diff of 20 commits"),
        Case(*git, "git_status", repository, "a short answer"),
    ]


async def tokens(case: Case, proxied: bool, folder: Path) -> int:
    proxy = (sys.executable, "-m", "mcp_envelope", "proxy", "--vault", str(folder / "vault.db"), "--")
    command = (*proxy, *case.command) if proxied else case.command
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MCP_ENVELOPE_")}
    environment = {**kept, "XDG_STATE_HOME": str(folder), "PYTHONPATH": str(ROOT / "src")}
    parameters = StdioServerParameters(command=command[0], args=list(command[1:]), env=environment)
    with open(os.devnull, "w") as nowhere:
        async with Client(stdio_client(parameters, errlog=nowhere)) as client:
            result = (await client.call_tool(case.tool, case.arguments)).model_dump(
                mode="json", by_alias=True
            )
    structure = result.get("structuredContent")
    seen = shown(result["content"])
    if structure is not None:
        seen = json.dumps(structure, ensure_ascii=False, separators=(",", ":")).encode()
    return meter_named("exact").count(seen)


async def table() -> str:
    lines = ["| server | call | | tokens directly | through the proxy |", "|---|---|---|--:|--:|"]
    with tempfile.TemporaryDirectory() as folder:
        for case in cases():
            before, after = [await tokens(case, proxied, Path(folder)) for proxied in (False, True)]
            after_text = f"{after:,}" if after != before else f"{after:,} (untouched)"
            lines.append(f"| {case.server} | `{case.tool}` | {case.what} | {before:,} | {after_text} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--update", action="store_true", help="write the table into README.md")
    options = parser.parse_args()
    made = asyncio.run(table())
    print(made, end="")
    if options.update:
        text = PAGE.read_text("utf-8")
        assert TABLE.search(text), "README.md has no place for the table"
        PAGE.write_text(TABLE.sub(lambda found: f"{found[1]}\n{made}\n{found[3]}", text), "utf-8")


if __name__ == "__main__":
    main()
