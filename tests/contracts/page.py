"""The tables as they stand in docs/contracts.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .table import Table
from .ways import WAYS

MARKED = re.compile(r"(<!-- sentences:.*?-->\n)(.*?)(<!-- end -->)", re.DOTALL)


def page(text: str, tables: Sequence[Table]) -> str:
    """The document with the tables in their place."""
    made = "\n".join(line for table in tables for line in lines(table))
    return MARKED.sub(lambda found: found[1] + made + "\n" + found[3], text)


def lines(table: Table) -> Iterator[str]:
    checks = sum(len(row.ways) for row in table.rows)
    yield f"### {table.dialect}: {len(table.rows)} sentences, {checks} checks\n"
    yield "| place | what it says | library | FastMCP | MCPServer | proxy |"
    yield "|---|---|---|---|---|---|"
    for row in table.rows:
        marks = ["yes" if way in row.ways else "no" for way in WAYS]
        reasons = "; ".join(sorted(set(row.but.values())))
        said = row.said.replace("|", "\\|") + (f" (*{reasons}*)" if reasons else "")
        yield f"| {row.section} · {row.number} | {said} | {' | '.join(marks)} |"
    yield ""
