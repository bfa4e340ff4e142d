"""Cuts a list of content blocks to a number of bytes.

Strategy: every block knows its size and the least it can be cut to, and fits itself into its share. Text is cut
at line ends, or as JSON if it is JSON; links stay; an image, audio or a blob is kept whole or replaced by a
line that describes it. If there are too many blocks, the first ones stay. Blocks with a record each are a list
like any other: those worth keeping stay, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, Final

import msgspec

from ..jsontext.document import TEXT_CLOSE, TEXT_OPEN, Buffer, Node, TooDeep, encode, text_block, unescaped
from .documents import FEW_FIT, FEW_ITEMS, USEFUL_SHARE, Cut, Fitter, first_gap, ranges, share
from .survey import Survey
from .text import Ends, characters, fit_text, lines

# The scheme of links to stored payloads, for clients that follow links.
SCHEME: Final = "envelope://"
# Enough for the mark at the cut and a little of the text itself.
_TEXT_FLOOR: Final = 96
_TRIES: Final = 64
_SAMPLE: Final = 1 << 16
# Blocks that are larger together aren't opened to see whether they are records, in bytes.
_OPENED: Final = 8 << 20
_CONTENT: Final = "/content"


class TextBlock:
    """A text block, or a resource block with text. Everything around the text stays."""

    def __init__(
        self,
        before: bytes,
        string: Buffer,
        after: bytes,
        path: str,
        ends: Ends = "head",
        survey: Survey | None = None,
    ) -> None:
        self.before = before
        self.after = after
        self.path = path
        self.node: Node | None = Node(string)
        self.size = len(before) + len(string) + len(after)
        self._ends = ends
        self._survey = survey
        if survey is not None:
            survey.blocks.add(path)
        self._text: bytes | None = None
        self._counts: tuple[int, int] | None = None
        self._fitter: Fitter | None = None

    @classmethod
    def of_text(
        cls, text: bytes, held: Node | None, ends: Ends = "head", survey: Survey | None = None
    ) -> TextBlock:
        """Return a block of plain text that is not escaped yet. `held` is the JSON that the text holds, if any."""
        block = cls(TEXT_OPEN, b'""', TEXT_CLOSE, "", ends, survey)
        if held is not None:
            block.node = Node(encode(text.decode()))
        else:
            block.node, block._text = None, text
        # Estimate the escaped size from the beginning, which is the part that stays.
        head = text[:_SAMPLE]
        escapes = sum([head.count(mark) for mark in (b"\n", b'"', b"\\", b"\t", b"\r")])
        block.size += len(text) + escapes * len(text) // max(len(head), 1)
        return block

    @property
    def _around(self) -> int:
        return len(self.before) + len(self.after)

    @cached_property
    def _stub(self) -> bytes:
        return text_block(f"[text left out, {self.size} bytes]")

    @property
    def least(self) -> int:
        least = self._around + _TEXT_FLOOR
        return min(self.size, least if self._around <= _TEXT_FLOOR else min(least, len(self._stub)))

    def fit(self, room: int, cuts: list[Cut]) -> bytes | None:
        if self.size <= room:
            whole = self.node.raw if self.node is not None else encode((self._text or b"").decode())
            return b"%b%b%b" % (self.before, whole, self.after)
        if room < self._around + _TEXT_FLOOR and self._around > _TEXT_FLOOR:
            # The other members alone are too large.
            cuts.append(Cut(self.path, "bytes", 0, self.size, 0))
            return self._stub if len(self._stub) <= room else None
        room -= self._around
        if self.node is not None and self.node.inner() is not None:
            string = self._fit_json(self.node, room, cuts)
        else:
            string = self._fit_plain(room, cuts)
        return None if string is None else b"%b%b%b" % (self.before, string, self.after)

    def _fit_json(self, node: Node, room: int, cuts: list[Cut]) -> bytes | None:
        if self._fitter is None:
            self._fitter = Fitter(node, base=self.path, survey=self._survey)
        fitted = self._fitter.fit(room)
        if fitted is None:
            # JSON that can't be cut is left out entirely: half a document would not be valid.
            held = node.inner()
            assert held is not None
            cuts.append(Cut(self.path, "bytes", 0, held.size, 0))
            return b'"{}"' if held.kind == "object" else b'"[]"'
        cuts.extend(fitted.cuts)
        return fitted.json

    def _fit_plain(self, room: int, cuts: list[Cut]) -> bytes | None:
        if self._text is None:
            assert self.node is not None
            self._text = unescaped(self.node.raw)
        if self._counts is None:
            self._counts = characters(self._text), lines(self._text)
        notable = () if self._survey is None else self._survey.lines(self.path, self._text)
        inside = (room - 2) * len(self._text) // max(self.size, 1)
        for _ in range(_TRIES):
            fitted = fit_text(self._text, inside, self._ends, self._counts, notable)
            if fitted is None:
                return None
            string = encode(fitted.text.decode())
            if len(string) <= room:
                cuts.append(Cut(self.path, "characters", fitted.kept, fitted.total, fitted.offset))
                return string
            # Go below the length of the result, not of the request: cut at a line end, it could be the same
            # again.
            inside = min(inside * room // len(string), len(fitted.text) - 1)
        return None


class OpaqueBlock:
    """A block that is kept whole, or replaced by a line that describes it and a link if clients follow links.

    `said` replaces it in any case: the cut is known already.
    """

    def __init__(self, raw: Buffer, path: str, handle: str | None = None, said: str = "") -> None:
        self.raw = raw
        self.path = path
        self._handle = handle
        self._said = said
        self.size = len(self._stub) if said else len(raw)

    @cached_property
    def _stub(self) -> bytes:
        label = _label(self.raw)
        stub = text_block(f"[{self._said or f'{label.described()} left out, {self.size} bytes'}]")
        if self._handle is None or label.type == "resource_link":
            return stub
        return b"%b,%b" % (stub, encode(label.link(f"{SCHEME}{self._handle}{self.path}")))

    @property
    def least(self) -> int:
        return self.size if self.size <= _TEXT_FLOOR else min(self.size, len(self._stub))

    def fit(self, room: int, cuts: list[Cut]) -> bytes | None:
        if self.size <= room:
            return self._stub if self._said else bytes(self.raw)
        if not self._said:
            cuts.append(Cut(self.path, "bytes", 0, self.size, 0))
        return self._stub if len(self._stub) <= room else None


Block = TextBlock | OpaqueBlock


def _fitting(sizes: Sequence[int], room: int) -> int:
    """Return how many values fit, from the front. Each needs a comma, too."""
    return sum(1 for below in accumulate([size + 1 for size in sizes]) if below < room)


def read_blocks(
    raws: Sequence[Buffer],
    ends: Ends = "head",
    handle: str | None = None,
    survey: Survey | None = None,
    known: Sequence[Cut] = (),
) -> list[Block]:
    """Return each block as the class that can cut it, with its path in the whole result.

    `handle` names the stored payload, if links may point to it; `known` are cuts that were made before.
    """
    said = {cut.path: cut.said for cut in known if not cut.kept}
    blocks: list[Block] = []
    for index, raw in enumerate(raws):
        path = f"/content/{index}"
        left_out = OpaqueBlock(raw, path, handle, said[path]) if path in said else None
        blocks.append(left_out or read_block(raw, path, ends, handle, survey))
    return blocks


def read_block(
    raw: Buffer, path: str, ends: Ends = "head", handle: str | None = None, survey: Survey | None = None
) -> Block:
    label = _label(raw)
    if label.type == "text" and (split := _split(raw, "text")):
        return TextBlock(*split, f"{path}/text", ends, survey)
    if label.type == "resource" and (around := _split(raw, "resource")):
        before, resource, after = around
        if inside := _split(resource, "text"):
            inner = before + inside[0], inside[1], inside[2] + after
            return TextBlock(*inner, f"{path}/resource/text", ends, survey)
    return OpaqueBlock(raw, path, handle)


class _Label(msgspec.Struct, rename="camel"):
    """The fields that describe a block; its data is skipped, not decoded."""

    type: Any = None
    mime_type: Any = None
    name: Any = None
    uri: Any = None
    resource: Any = None

    def described(self) -> str:
        inside = self.resource if isinstance(self.resource, _Label) else self
        kind = inside.mime_type or self.type or "block"
        return f"{str(kind)[:60]} {str(inside.name or inside.uri or '')[:80]}".strip()

    def link(self, uri: str) -> dict[str, str]:
        inside = self.resource if isinstance(self.resource, _Label) else self
        link = {"type": "resource_link", "uri": uri, "name": str(inside.name or inside.uri or self.type)[:80]}
        if isinstance(inside.mime_type, str):
            link["mimeType"] = inside.mime_type[:60]
        return link


class _Embedding(_Label, rename="camel"):
    resource: _Label | None = None


def is_text(raw: Buffer) -> bool:
    return bool(_label(raw).type == "text")


def label(raw: Buffer) -> dict[str, Any]:
    """Return a block's description, without its data."""
    found = _label(raw)
    inside = found.resource if isinstance(found.resource, _Label) else found
    fields = {"type": found.type, "mimeType": inside.mime_type, "name": inside.name, "uri": inside.uri}
    return {key: value for key, value in fields.items() if isinstance(value, str)}


def _label(raw: Buffer) -> _Label:
    try:
        return msgspec.json.decode(raw, type=_Embedding)
    except (msgspec.MsgspecError, RecursionError):
        return _Label()


def _split(raw: Buffer, key: str) -> tuple[bytes, Buffer, bytes] | None:
    """Split an object around one member: the bytes before its value, the value, the bytes after."""
    if memoryview(raw)[0] != ord("{"):
        return None
    try:
        pairs = [(member.key, b"%b:" % member.raw_key, member.value) for member in Node(raw).members()]
    except TooDeep:
        return None
    at = next((index for index, pair in enumerate(pairs) if pair[0] == key), None)
    if at is None or memoryview(pairs[at][2])[0] != ord('"' if key == "text" else "{"):
        return None
    before = b"".join([b"%b%b," % (name, value) for _, name, value in pairs[:at]])
    after = b"".join([b",%b%b" % (name, value) for _, name, value in pairs[at + 1 :]])
    return b"{%b%b" % (before, pairs[at][1]), pairs[at][2], b"%b}" % after


def best_first(blocks: Sequence[Block], survey: Survey) -> Sequence[int] | None:
    """Return the indices of blocks that are records, those to keep first; None if the beginning is to be kept."""
    if sum(block.size for block in blocks) > _OPENED:
        return None
    records: list[Buffer] = []
    for block in blocks:
        held = block.node.inner() if isinstance(block, TextBlock) and block.node is not None else None
        if held is None or held.kind != "object":
            return None
        records.append(held.raw)
    rows = Node(b"[%b]" % b",".join(records))
    survey.cut_list(_CONTENT, rows)
    return survey.order(_CONTENT, rows)


def fit_blocks(
    blocks: Sequence[Block],
    room: int,
    cuts: list[Cut],
    order: Callable[[], Sequence[int] | None] = lambda: None,
) -> list[bytes] | None:
    """Return the blocks in at most `room` bytes, commas included, and add the cuts to `cuts`.

    `order` is asked for the indices of many blocks, those to keep first, if some have to go.
    """
    sizes = [block.size for block in blocks]
    if sum(sizes) + len(blocks) + 1 <= room:
        return [bytes(part) for block in blocks if (part := block.fit(block.size, cuts)) is not None]
    floors = [block.least for block in blocks]
    # Libraries send a list as one block for each item, so many blocks are a list: whole ones stay, from the front,
    # unless few of them fit. An image or the like among them may go.
    whole = [
        floor if isinstance(block, OpaqueBlock) and size > room // FEW_ITEMS else size
        for block, size, floor in zip(blocks, sizes, floors, strict=True)
    ]
    kept = 0
    if len(blocks) > FEW_ITEMS:
        first = order() or range(len(blocks))
        kept = _fitting([whole[index] for index in first], room)
        places = sorted(first[:kept])
    if kept < FEW_FIT:
        several = len(blocks) if len(blocks) <= FEW_ITEMS else max(room // USEFUL_SHARE, FEW_FIT)
        kept = max(1, _fitting(floors[:several], room))
        places = list(range(kept))
    room -= 1 + kept
    chosen = [blocks[place] for place in places]
    sizes, floors = [[each[place] for place in places] for each in (sizes, floors)]
    shares = share(sizes, floors, room)
    if shares is None:
        return None
    # A block that can't be cut can't use part of its size, so the others get it.
    settled = [
        floor if isinstance(block, OpaqueBlock) and granted < size else size
        for block, size, floor, granted in zip(chosen, sizes, floors, shares, strict=True)
    ]
    shares = share(settled, [min(a, b) for a, b in zip(floors, settled, strict=True)], room) or shares
    parts: list[bytes] = []
    slack = 0
    for block, granted in zip(chosen, shares, strict=True):
        part = block.fit(granted + slack, cuts)
        if part is None:
            return None
        slack += granted - len(part)
        parts.append(part)
    if kept < len(blocks):
        offset = first_gap(places)
        rows = ranges(places) if offset < kept else ""
        cuts.append(Cut(_CONTENT, "blocks", kept, len(blocks), offset, rows))
    return parts
