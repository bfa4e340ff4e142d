"""A plain MCP server that floods its clients. The demo puts the proxy in front of it.

It knows nothing about envelopes. Its tool returns every ticket there is, under a schema that allows no further
properties, and the same again as text.
"""

import os
import random
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel, ConfigDict, Field

WORDS = [
    *("search", "index", "cache", "socket", "retry", "timeout", "layout"),
    *("colour", "upload", "draft", "filter", "login", "export"),
]


class Ticket(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: int
    title: str
    state: str
    labels: list[str]
    body: str


class Tickets(BaseModel):
    model_config = ConfigDict(extra="forbid")

    tickets: list[Ticket]
    total: int


server = MCPServer("tickets")


@server.tool()
def list_tickets(count: Annotated[int, Field(ge=1, le=20_000)] = 1500) -> Tickets:
    """List all tickets, newest first."""
    chance = random.Random(11)
    tickets = [
        Ticket(
            id=number,
            title=f"The {chance.choice(WORDS)} breaks the {chance.choice(WORDS)}",
            state=chance.choice(["open", "closed"]),
            labels=chance.sample(WORDS, 2),
            body=" ".join(chance.choices(WORDS, k=30)) + ".",
        )
        for number in range(count, 0, -1)
    ]
    return Tickets(tickets=tickets, total=count)


@server.tool()
def restart() -> str:
    """End the server in the middle of the call, like a crash."""
    os._exit(3)


if __name__ == "__main__":
    server.run()
