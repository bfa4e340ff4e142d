"""An audit of packages, with the official SDK's MCPServer, in the dialect `scalpel`.

`scalpel` has no budget of its own, so the tool with large results declares one. The profile decides how much
metadata is shown with the data: try it with MCP_ENVELOPE_PROFILE=debug.
"""

import argparse
from random import Random
from typing import Literal

from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel

from mcp_envelope import Failure, Miss, describe_call, enveloped, rank, upgrade
from mcp_envelope.servers.sdk import envelope

server = MCPServer("audit")
envelope(server, dialect="scalpel")

PACKAGES = {"parser": 400, "router": 7, "store": 0}


class Finding(BaseModel):
    severity: int
    rule: str
    file: str
    line: int
    advice: str


class Audit(BaseModel):
    risk: Literal["none", "low", "high"]
    findings: list[Finding]


def made_up(random: Random, count: int) -> Finding:
    return Finding(
        severity=random.randint(1, 10),
        rule=random.choice(("eval", "shell", "path", "pickle", "timeout")),
        file=f"src/{random.choice('abcdef')}{count % 5}.py",
        line=random.randint(1, 2000),
        advice=random.choice(("Check the input.", "Use a list of arguments.", "Set a limit.")),
    )


@server.tool()
@enveloped(budget=1000, lists={"findings": rank("-severity", "file", "line")}, hint="Audit one file.")
def audit(package: str, deep: bool = False) -> Audit | Miss:
    """List the risks in a package, the worst first."""
    describe_call(tier="community", tool_version="1.2.0", capabilities=("rules",))
    if package not in PACKAGES:
        return Miss(f"Packages are {', '.join(PACKAGES)}.", f"There is no package {package}.")
    if deep:
        upgrade("deep audit", "pro", "It follows calls across packages.")
    random, count = Random(package), PACKAGES[package]
    findings = [made_up(random, number) for number in range(count)]
    return Audit(risk="high" if count > 50 else "low" if count else "none", findings=findings)


@server.tool()
def fix(package: str, rule: str) -> dict[str, int]:
    """Fix the findings of a rule, where that can be done automatically."""
    if rule == "eval":
        raise Failure(
            "NOT_IMPLEMENTED", "eval cannot be fixed automatically.", "Rewrite it by hand.", package=package
        )
    return {"fixed": PACKAGES.get(package, 0) // 3}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="An audit of packages.")
    parser.add_argument("--http", type=int, metavar="PORT", help="serve HTTP on 127.0.0.1 instead of stdio")
    port = parser.parse_args().http
    if port is None:
        server.run()
    else:
        server.run("streamable-http", host="127.0.0.1", port=port)
