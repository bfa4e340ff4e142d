"""A slice of a stored payload from an offset on: as many whole items, members or characters as fit.

Strategy: a first result shares its room among everything, but a page is a plain prefix of what comes next, so
that pages joined end to end match the original. Only an item that is too large for a whole page is cut, by the
fitter and with cuts of its own, and the next page continues after it. A page loads a little more than the
budget can hold, never the whole payload.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from itertools import accumulate
from typing import Literal

import msgspec
from msgspec.structs import replace

from ..jsontext.document import Buffer, Node, compact, encode, text_block
from .blocks import read_block
from .documents import Cut, CutKind, Fitted, Fitter
from .text import characters, line_end

Shape = Literal["array", "object", "blocks", "text", "whole"]


class Part(msgspec.Struct, frozen=True, gc=False):
    """An item or a member. It has a `node` if only part of it was loaded."""

    step: str
    value: Buffer
    raw_key: bytes = b""
    node: Node | None = None

    @property
    def size(self) -> int:
        return len(self.value) + (len(self.raw_key) + 1 if self.raw_key else 0)


class FittedPage(msgspec.Struct, frozen=True):
    """A page as it is shown: its text, or its content blocks as JSON, and what it leaves out."""

    text: bytes | None
    blocks: tuple[bytes, ...]
    cuts: tuple[Cut, ...]
    # Below a room of so many bytes, the page would be the same.
    next_room: int = 0


class Page:
    """What follows an offset in the value at a path: `parts`, or the `text` of a string or of plain text.

    `total` counts everything in the value, or is what there is `at_least`; `whole` says that the parts reach its
    end. At most `most` bytes can be shown, since no more was loaded. `reading` holds further arguments for the call
    that reads the next page. `places` says that each item names the place where it can be read whole, so cuts
    inside it aren't reported. `bytes_in_all` is the size of the value. `offer` makes the arguments of another call
    that may be of use, if the page leaves items out.
    """

    offer: Callable[[], str] | None = None

    def __init__(
        self,
        path: str,
        shape: Shape,
        offset: int,
        total: int,
        *,
        parts: Sequence[Part] = (),
        text: bytes = b"",
        whole: bool = True,
        most: int = sys.maxsize,
        reading: str = "",
        places: bool = False,
        bytes_in_all: int = 0,
        at_least: bool = False,
    ) -> None:
        self.path = path
        self.shape = shape
        self.offset = offset
        self.total = total
        self.reading = reading
        self.bytes_in_all = bytes_in_all
        self._most = most
        self._places = places
        self._at_least = at_least
        self.parts = parts
        self._text = text
        self.whole = whole
        self._ends = list(accumulate([part.size + 1 for part in parts]))

    @property
    def size(self) -> int:
        size = len(self._text) if self.shape in ("text", "whole") else 1 + (self._ends or [1])[-1]
        return min(size, self._most)

    @property
    def kind(self) -> CutKind:
        kinds: dict[Shape, CutKind] = {"array": "items", "object": "properties", "blocks": "blocks"}
        return kinds.get(self.shape, "characters")

    @cached_property
    def example(self) -> str:
        return "" if self.offer is None else self.offer()

    def as_json(self, room: int) -> Fitted | None:
        """Return the page as one JSON value, for dialects that put it into a member.

        A text becomes a string. White space between values goes, since what is around them has none.
        """
        page = self._compact.fit(room)
        if page is None:
            return None
        if page.text is None:
            return Fitted(b"[%b]" % b",".join(page.blocks), page.cuts, page.next_room)
        return Fitted(
            encode(page.text.decode()) if self.shape == "text" else page.text, page.cuts, page.next_room
        )

    @cached_property
    def _compact(self) -> Page:
        page = copy(self)
        page.parts = [part if part.node else replace(part, value=compact(part.value)) for part in self.parts]
        page._ends = list(accumulate([part.size + 1 for part in page.parts]))
        return page

    def fit(self, room: int) -> FittedPage | None:
        if self.shape == "whole":
            return FittedPage(self._text, (), ()) if len(self._text) <= room else None
        if self.shape == "text":
            return self._fit_text(room)
        kept = bisect_right(self._ends, room - 1)
        cuts: list[Cut] = []
        shown = [_written(part) for part in self.parts[:kept]]
        if kept == 0 and self.parts:
            first = self._fit_first(self.parts[0], room, cuts)
            if first is None:
                return None
            kept, shown = 1, [first] if first else []
        if self._places:
            cuts.clear()
        if (rest := self._rest(kept)) is not None:
            cuts.insert(0, rest)
        next_room = self._ends[kept] + 1 if kept < len(self._ends) and len(cuts) == 1 else room + 1
        if self.shape == "blocks":
            return FittedPage(None, tuple(shown), tuple(cuts), next_room)
        body = b",".join(shown)
        body = b"[%b]" % body if self.shape == "array" else b"{%b}" % body
        return FittedPage(body, (), tuple(cuts), next_room)

    def _rest(self, kept: int) -> Cut | None:
        end = self.offset + kept
        if end >= self.total:
            return None
        return Cut(self.path, self.kind, kept, self.total, end, at_least=self._at_least)

    def _fit_text(self, room: int) -> FittedPage | None:
        text = self._text
        if len(text) > room or not self.whole:
            text = text[: line_end(text, min(room, len(text)))]
            if not text and self._text:
                return None
        rest = self._rest(characters(text))
        return FittedPage(text, (), (rest,) if rest else ())

    def _fit_first(self, part: Part, room: int, cuts: list[Cut]) -> bytes | None:
        """Cut the first part, which is too large for the page; if that is impossible, leave it out."""
        path = f"{self.path}/{part.step}"
        if self.shape == "blocks" and part.node is not None:
            return _far_block(part.node, path, room - 2, cuts)
        if self.shape == "blocks":
            return read_block(part.value, path).fit(room - 2, cuts)
        around = len(part.raw_key) + 1 if part.raw_key else 0
        fitted = Fitter(part.node or Node(part.value), base=path).fit(room - 2 - around)
        if fitted is None:
            cuts.append(Cut(path, "bytes", 0, len(part.value), 0))
            return b"" if room >= 2 else None
        cuts.extend(fitted.cuts)
        return b"%b:%b" % (part.raw_key, fitted.json) if part.raw_key else fitted.json


def _written(part: Part) -> bytes:
    return b"%b:%b" % (part.raw_key, part.value) if part.raw_key else bytes(part.value)


def _far_block(node: Node, path: str, room: int, cuts: list[Cut]) -> bytes | None:
    """Cut the text of a block of which only the beginning was loaded; replace any other block by a description."""
    kept = {member.key: index for index, member in enumerate(node.members())}
    inside = node.child(kept["resource"]) if "resource" in kept else node
    if inside.kind == "object" and any(member.key == "text" for member in inside.members()):
        fitted = Fitter(node, base=path).fit(room)
        if fitted is not None and all(cut.path.startswith(path + "/") for cut in fitted.cuts):
            cuts.extend(fitted.cuts)
            return fitted.json
    cuts.append(Cut(path, "bytes", 0, node.size, 0))
    stub = text_block(f"[block left out, {node.size} bytes]")
    return stub if len(stub) <= room else None
