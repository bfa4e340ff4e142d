"""References to functions, with FastMCP, in the dialect `transcend`.

In `transcend`, every result says `ok` and how much of the token budget it uses. A client may set the budget
with the argument `tokenBudget`, which every tool has. References are ranked by file and line before they are
cut.
"""

import argparse
from random import Random

from fastmcp import FastMCP
from pydantic import BaseModel

from mcp_envelope import Failure, Miss, fallback, index_age
from mcp_envelope.servers.fastmcp import EnvelopeMiddleware

mcp = FastMCP("references")
mcp.add_middleware(EnvelopeMiddleware(dialect="transcend"))

FOLDERS = ("core", "jobs", "storage", "web")
USES = {"flush": 600, "rotate": 12, "expire": 3}


class Reference(BaseModel):
    file: str
    line: int
    col: int
    snippet: str


class References(BaseModel):
    symbol: str
    references: list[Reference]


@mcp.tool
def find_references(symbol: str, language: str = "py") -> References | Miss:
    """Find all calls of a function."""
    if language != "py":
        raise Failure(
            "LSP_UNAVAILABLE",
            f"No language server for {language}.",
            "Use py.",
            language=language,
        )
    if symbol not in USES:
        return Miss(f"Functions are {', '.join(USES)}.", f"There is no function {symbol}.")
    random = Random(symbol)
    places = [
        Reference(
            file=f"src/{random.choice(FOLDERS)}/{random.choice('abcdef')}.py",
            line=random.randint(1, 900),
            col=9,
            snippet=f"await {symbol}(queue, timeout={random.randint(1, 90)})",
        )
        for _ in range(USES[symbol])
    ]
    return References(symbol=symbol, references=places)


@mcp.tool
def rename_preview(symbol: str, name: str) -> dict[str, int]:
    """Count the places that a rename would change, folder by folder."""
    index_age("2 days", "Rebuild it for exact counts.")
    fallback("rename", "a text search")
    counts = Random(symbol + name)
    return {f"src/{folder}": counts.randint(0, 40) for folder in FOLDERS}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="References to functions.")
    parser.add_argument("--http", type=int, metavar="PORT", help="serve HTTP on 127.0.0.1 instead of stdio")
    port = parser.parse_args().http
    mcp.run() if port is None else mcp.run("http", host="127.0.0.1", port=port)
