"""A slice of a stored payload, from an offset on: whole items, members or characters, as many as fit.

Strategy: unlike a first look, which shares its room among everything, a page is a plain prefix of what comes
next, so that pages put end to end are the original. Only an item that is alone too large for a page is cut,
by the fitter and with its own cuts, and the next page goes on behind it. What is loaded is a little more than
the budget can hold, never the payload.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Literal

import msgspec

from .blocks import read_block, text_block
from .fitting import Cut, CutKind, Fitter
from .jsontree import Buffer, Node
from .text import characters, line_end

Shape = Literal["array", "object", "blocks", "text", "whole"]


class Part(msgspec.Struct, frozen=True, gc=False):
    """An item or a member. Its `node` tells of it when it is not here as a whole."""

    step: str
    value: Buffer
    raw_key: bytes = b""
    node: Node | None = None

    @property
    def size(self) -> int:
        return len(self.value) + (len(self.raw_key) + 1 if self.raw_key else 0)


class FittedPage(msgspec.Struct, frozen=True):
    """The blocks of a page as it is shown (texts, or content blocks as JSON), and what it leaves out."""

    text: bytes | None
    blocks: tuple[bytes, ...]
    cuts: tuple[Cut, ...]


class Page:
    """What follows an offset in the value at a path: `parts`, or the `text` of a string or of plain text.

    `total` counts what the value has in all, `whole` says that the parts reach to its end. No more than `most`
    bytes of it can be shown, since no more was loaded. `reading` has further arguments that the call for the
    next page needs. In a list of `places` each item says itself where the whole of it is.
    """

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
    ) -> None:
        self.path = path
        self.shape = shape
        self.offset = offset
        self.total = total
        self.reading = reading
        self._most = most
        self._places = places
        self._parts = parts
        self._text = text
        self._whole = whole
        self._ends = list(accumulate([part.size + 1 for part in parts]))

    @property
    def size(self) -> int:
        size = len(self._text) if self.shape in ("text", "whole") else 1 + (self._ends or [1])[-1]
        return min(size, self._most)

    @property
    def kind(self) -> CutKind:
        kinds: dict[Shape, CutKind] = {"array": "items", "object": "properties", "blocks": "blocks"}
        return kinds.get(self.shape, "characters")

    def fit(self, room: int) -> FittedPage | None:
        if self.shape == "whole":
            return FittedPage(self._text, (), ()) if len(self._text) <= room else None
        if self.shape == "text":
            return self._fit_text(room)
        kept = bisect_right(self._ends, room - 1)
        cuts: list[Cut] = []
        shown = [_written(part) for part in self._parts[:kept]]
        if kept == 0 and self._parts:
            first = self._fit_first(self._parts[0], room, cuts)
            if first is None:
                return None
            kept, shown = 1, [first] if first else []
        if self._places:
            cuts.clear()
        if (rest := self._rest(kept)) is not None:
            cuts.insert(0, rest)
        if self.shape == "blocks":
            return FittedPage(None, tuple(shown), tuple(cuts))
        body = b",".join(shown)
        return FittedPage(b"[%b]" % body if self.shape == "array" else b"{%b}" % body, (), tuple(cuts))

    def _rest(self, kept: int) -> Cut | None:
        end = self.offset + kept
        return None if end >= self.total else Cut(self.path, self.kind, kept, self.total, end)

    def _fit_text(self, room: int) -> FittedPage | None:
        text = self._text
        if len(text) > room or not self._whole:
            text = text[: line_end(text, min(room, len(text)))]
            if not text and self._text:
                return None
        rest = self._rest(characters(text))
        return FittedPage(text, (), (rest,) if rest else ())

    def _fit_first(self, part: Part, room: int, cuts: list[Cut]) -> bytes | None:
        """The first part, which alone is too large: cut, or if that cannot be, left out and announced."""
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
    """A block of which only the beginning was loaded: its text is cut; what is no text is left out, and named."""
    kept = {member.key: index for index, member in enumerate(node.members())}
    inside = node.child(kept["resource"]) if "resource" in kept else node
    if inside.kind == "object" and any(member.key == "text" for member in inside.members()):
        fitted = Fitter(node, base=path).fit(room)
        if fitted is not None and all(cut.path.startswith(path + "/") for cut in fitted.cuts):
            cuts.extend(fitted.cuts)
            return fitted.json
    cuts.append(Cut(path, "bytes", 0, node.size, 0))
    stub = text_block(f"[a block left out, {node.size} bytes]")
    return stub if len(stub) <= room else None
