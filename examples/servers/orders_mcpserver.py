"""A shop's orders, with the official SDK's MCPServer, in the dialect `gel`.

In `gel`, the text is for the model: a headline, details, links. The data is separate, under `data`. So the
tools return more than data: most replies have a summary, and some have next steps.
"""

import argparse
from random import Random
from typing import Literal

from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel

from mcp_envelope import Failure, Link, Miss, Reply, enveloped, rank, warn
from mcp_envelope.servers.sdk import envelope

server = MCPServer("orders")
envelope(server, dialect="gel")  # the one line; tools may come before or after it

Status = Literal["open", "packed", "shipped"]
STATUSES: tuple[Status, ...] = ("open", "packed", "shipped")
ARTICLES = ("lamp", "chair", "table", "shelf", "carpet", "clock", "vase")


class Line(BaseModel):
    article: str
    count: int
    price: float


class Order(BaseModel):
    number: int
    status: Status
    day: int
    lines: list[Line]


class Orders(BaseModel):
    total: int
    orders: list[Order]


def made_up(number: int) -> Order:
    random = Random(number)
    names = random.sample(ARTICLES, random.randint(1, 4))
    lines = [
        Line(article=name, count=random.randint(1, 6), price=random.randint(5, 400) / 2) for name in names
    ]
    return Order(number=number, status=random.choice(STATUSES), day=random.randint(1, 365), lines=lines)


ORDERS = {number: made_up(number) for number in range(1000, 2000)}


@server.tool()
@enveloped(budget=2000, lists={"orders": rank("-day", "number")}, hint="Ask for one article.")
def list_orders(status: Status, article: str = "") -> Reply[Orders]:
    """List the orders with a status, the latest first."""
    found = [order for order in ORDERS.values() if order.status == status]
    if article:
        found = [order for order in found if any(line.article == article for line in order.lines)]
    return Reply(
        Orders(total=len(found), orders=found),
        summary=f"{len(found)} orders are {status}",
        details=[f"{sum(len(order.lines) for order in found)} lines in all"],
        next_steps=["Look at one with get_order."],
    )


@server.tool()
def get_order(number: int) -> Reply[Order] | Miss:
    """Get one order, with a link to its invoice."""
    order = ORDERS.get(number)
    if order is None:
        return Miss("Numbers go from 1000 to 1999.", f"There is no order {number}.")
    invoice = Link(f"https://shop.example/invoices/{number}", f"Invoice {number}")
    return Reply(order, summary=f"Order {number} is {order.status}", links=[invoice])


@server.tool()
def cancel_order(number: int) -> Order:
    """Cancel an order that has not been shipped yet."""
    order = ORDERS.get(number)
    if order is None:
        raise Failure("NOT_FOUND", f"There is no order {number}.", "Numbers are 1000 to 1999.")
    if order.status == "shipped":
        raise Failure(
            "ALREADY_SHIPPED", f"Order {number} has already been shipped.", "Send it back when it arrives."
        )
    if order.status == "packed":
        warn("It is already packed; unpacking takes a day.")
    return order


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A shop's orders.")
    parser.add_argument("--http", type=int, metavar="PORT", help="serve HTTP on 127.0.0.1 instead of stdio")
    port = parser.parse_args().http
    if port is None:
        server.run()
    else:
        server.run("streamable-http", host="127.0.0.1", port=port)
