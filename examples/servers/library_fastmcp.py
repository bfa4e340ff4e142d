"""A library's catalogue, with FastMCP, in our own dialect.

One line puts every result into an envelope. The tools show what else is possible: a search with far too many
hits that keeps the best, a miss, a failure, a warning, an image, and a catalogue that is yielded book by book.
"""

import argparse
from collections.abc import Iterator
from random import Random

from fastmcp import FastMCP
from fastmcp.utilities.types import Image
from pydantic import BaseModel

from mcp_envelope import Failure, Miss, enveloped, rank, warn
from mcp_envelope.servers.fastmcp import EnvelopeMiddleware

mcp = FastMCP("library")
mcp.add_middleware(EnvelopeMiddleware())  # the one line

PLACES = ("Harbour", "Garden", "Mountain", "Island", "River", "Desert", "Forest", "City")
TOPICS = ("Birds", "Bridges", "Clocks", "Maps", "Music", "Storms", "Trains", "Trees")


class Book(BaseModel):
    number: int
    title: str
    shelf: str
    pages: int
    rating: float


class Found(BaseModel):
    total: int
    books: list[Book]


class Loan(BaseModel):
    number: int
    weeks: int


def made_up(number: int) -> Book:
    random = Random(number)
    title = f"{random.choice(TOPICS)} of the {random.choice(PLACES)}, volume {number % 40 + 1}"
    shelf = f"{random.choice('ABCDEF')}{random.randint(1, 60)}"
    pages, rating = random.randint(40, 900), random.randint(10, 50) / 10
    return Book(number=number, title=title, shelf=shelf, pages=pages, rating=rating)


BOOKS = {number: made_up(number) for number in range(1, 2001)}


@mcp.tool
@enveloped(budget=1500, lists={"books": rank("-rating", "number")}, hint="Search for two words.")
def search_books(words: str) -> Found:
    """Find books by words in their titles. If there are too many, the best ones are shown."""
    wanted = words.lower().split()
    hits = [book for book in BOOKS.values() if all(word in book.title.lower() for word in wanted)]
    return Found(total=len(hits), books=hits)


@mcp.tool
def get_book(number: int) -> Book | Miss:
    """Get one book by its number."""
    return BOOKS.get(number) or Miss("Numbers go from 1 to 2000; search_books finds them.")


@mcp.tool
def lend_book(number: int) -> Loan:
    """Lend a book for four weeks."""
    if number % 7 == 0:
        raise Failure("ON_LOAN", f"Book {number} is on loan.", "Lend another volume.", number=number)
    if BOOKS[number].pages > 600:
        warn("This one is heavy.")
    return Loan(number=number, weeks=4)


@mcp.tool
def export_catalogue(shelf: str = "") -> Iterator[Book]:
    """Export every book, or those on one shelf. What doesn't fit is stored as it is yielded."""
    for book in BOOKS.values():
        if book.shelf.startswith(shelf):
            yield book


@mcp.tool
def book_cover(number: int, rings: int = 3) -> Image:
    """Draw the cover of a book, as SVG."""
    circles = "".join(f'<circle r="{ring}" fill="none" stroke="teal"/>' for ring in range(rings))
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-50 -50 100 100">{circles}</svg>'
    return Image(data=svg.encode(), format="svg+xml")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A library's catalogue.")
    parser.add_argument("--http", type=int, metavar="PORT", help="serve HTTP on 127.0.0.1 instead of stdio")
    port = parser.parse_args().http
    mcp.run() if port is None else mcp.run("http", host="127.0.0.1", port=port)
