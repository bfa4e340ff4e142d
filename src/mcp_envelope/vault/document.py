"""A stored payload to walk in: values found by their path, and as much of each as somebody has room for.

Strategy: a `Value` is small, and then it is loaded and parsed, or large, and then it is a knot of the outline
and only the stretches that are asked for are read. A path goes on through a string that holds JSON, as it does
in the cuts. What JSON itself cannot open (thousands of levels, a number of a megabyte) is shown as the text
that it is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, Literal, cast

import msgspec

from ..faults import WHITESPACE, JSONError
from ..jsontree import (
    Buffer,
    Far,
    Member,
    Node,
    TooDeep,
    abridged,
    parse,
)
from ..text import characters
from .knots import Knot, Outline, unpacked
from .outline import FAR
from .pieces import Piece, Run, pieces_of
from .source import Source, Unescaped, unescaped
from .spelling import Spelling

ValueKind = Literal["object", "array", "string", "number", "boolean", "null", "text"]

# A longer number is shown as text; no reader would take it for a number anyway.
_LONG_NUMBER: Final = 1 << 7
# So many members of an object are looked at even if there is no room for them, since they share the room.
_SHARING: Final = 256
_MISSING_KEYS_TOLD: Final = 8
_PIECE: Final = 1 << 20


class BadPath(Exception):
    """There is nothing at the path. `found` is how far it leads, `there` what could follow."""

    def __init__(self, path: str, found: str, there: str) -> None:
        super().__init__(f"there is nothing at {path!r}: {there}")
        self.path = path
        self.found = found
        self.there = there


class Value:
    """One value: either loaded (`node`, or `plain` if it is no JSON), or a knot to be read when asked."""

    def __init__(
        self,
        path: str,
        *,
        node: Node | None = None,
        plain: bytes | None = None,
        knot: Knot | None = None,
        source: Source | None = None,
    ) -> None:
        self.path = path
        self._node = node
        self._plain = plain
        self._knot = knot
        self._source = source
        # As it is stored, its whitespace included.
        self._spelled: bytes | None = None
        if knot is not None:
            self.size = knot.end - knot.start
            self.kind: ValueKind = "text" if knot.kind == "leaf" else knot.kind
            self.total = knot.total
        elif node is not None:
            self.size, self.kind = node.size, node.kind
            self.total = node.length() if node.kind == "string" else 1
            if node.kind in ("array", "object"):
                self.total = node.total()
        else:
            assert plain is not None
            self.size, self.kind, self.total = len(plain), "text", characters(plain)

    # -- the way to a value ---------------------------------------------------------------------------------

    @classmethod
    def small(cls, path: str, raw: bytes) -> Value:
        """A value that is loaded; what cannot be opened as JSON is text."""
        try:
            node = parse(raw)
            if node.kind in ("array", "object"):
                node.total()
            elif node.kind == "number" and node.size > _LONG_NUMBER:
                return cls(path, plain=raw)
        except (TooDeep, JSONError):
            return cls(path, plain=raw.strip(WHITESPACE))
        value = cls(path, node=node)
        value._spelled = raw
        return value

    @classmethod
    def large(cls, path: str, knot: Knot, source: Source) -> Value:
        if knot.kind == "leaf":
            return cls.small(path, source.read(knot.start, knot.end))
        return cls(path, knot=knot, source=source)

    def opened(self) -> Value:
        """The JSON that a string holds, in place of the string."""
        if self.kind != "string":
            return self
        if self._knot is not None and self._knot.held is not None:
            assert self._source is not None
            return Value.large(self.path, self._knot.held, Unescaped(self._source, self._knot))
        if self._node is not None and (inner := self._node.inner()):
            try:
                inner.total()
            except TooDeep:
                return self
            return Value(self.path, node=inner)
        return self

    def _verbatim(self) -> Value:
        """The same, but what is in a small value has all its blanks; to parse a value takes them away."""
        value = self if self._knot is None else self.opened()
        if value._spelled is None or value._node is None:
            return value
        raw = value._spelled.strip(WHITESPACE)
        try:
            if value.kind == "string" and value.opened() is not value:
                raw = unescaped(raw[1:-1]).encode().strip(WHITESPACE)
            return Value(self.path, node=Node(raw))
        except (TooDeep, msgspec.DecodeError):
            # Half a surrogate pair in a key: parsing has mended it.
            return value.opened()

    def find(self, path: str, *, opened: bool = True) -> Value:
        """The value that a JSON pointer leads to; the JSON in a string counts as what the string is.

        If it shall not be `opened` it is the value as it is stored: a string is a string, and blanks are there.
        """
        if path and not path.startswith("/"):
            steps = path.removeprefix("$").replace("[", "/").replace("]", "").replace(".", "/").strip("/")
            raise BadPath(path, "", f"a path is a JSON pointer and begins with a slash, such as /{steps}")
        value = self
        for step in path.split("/")[1:]:
            value = value.opened() if opened else value._verbatim()
            child = value._step(step.replace("~1", "/").replace("~0", "~"))
            if child is None:
                raise BadPath(path, value.path, value._what_is_there())
            value = child
        return value.opened() if opened else value

    def child(self, step: str) -> Value | None:
        found = self._step(step)
        return None if found is None else found.opened()

    def _step(self, step: str) -> Value | None:
        if self.kind == "array":
            if not (step.isascii() and step.isdigit()) or len(step) > 15 or int(step) >= self.total:
                return None
            piece = next(self.pieces(int(step)), None)
        elif self.kind == "object":
            piece = self.member(step)
        else:
            return None
        return None if piece is None else self.value(piece)

    def value(self, piece: Piece) -> Value:
        """A child as a value of its own."""
        if piece.far is not None:
            return piece.far
        return Value.small(self._path_of(piece), bytes(piece.value))

    def _path_of(self, piece: Piece) -> str:
        return f"{self.path}/{piece.step}"

    def member(self, key: str) -> Piece | None:
        """The member of an object that has the key, as it is stored."""
        knot = self._knot
        if knot is None:
            found = [piece for piece in self.pieces(0) if piece.member and piece.member.key == key]
            return found[-1] if found else None
        if key in knot.keys:
            return next(self.pieces(knot.keys[key]), None)
        for stretch in self._stretches_with(key, knot):
            for piece in self._stretch(knot, stretch):
                if piece.member is not None and piece.member.key == key:
                    return piece
        return None

    def _stretches_with(self, key: str, knot: Knot) -> list[int]:
        if knot.table is None:
            # Large members have their keys in the knot.
            return [stretch for stretch in range(len(knot.firsts) // 4) if not knot.is_large(stretch)]
        assert self._source is not None
        return knot.table.stretches(key, self._source.stored)

    def _what_is_there(self) -> str:
        where = self.path or "the top"
        if self.kind == "array":
            return f"at {where} is a list of {self.total} items"
        if self.kind != "object":
            return f"at {where} is a {self.kind}"
        keys: list[str] = []
        for piece in self.pieces(0):
            assert piece.member is not None
            if len(keys) == _MISSING_KEYS_TOLD:
                keys.append(f"… ({self.total} in all)")
                break
            keys.append(piece.member.key[:40])
        return f"at {where} there {'are' if keys else 'is nothing'} {', '.join(keys)}".rstrip()

    # -- what is in it --------------------------------------------------------------------------------------

    def pieces(self, offset: int) -> Iterator[Piece]:
        """The children of a list or an object, from one of them on."""
        knot = self._knot
        if knot is None:
            assert self._node is not None
            yield from self._loaded(self._node, offset)
            return
        firsts = unpacked(knot.firsts)
        for stretch in range(max(bisect_right(firsts, offset) - 1, 0), len(firsts)):
            skipped = offset - firsts[stretch]
            for piece in self._stretch(knot, stretch):
                if skipped > 0:
                    skipped -= 1
                else:
                    yield piece

    def _loaded(self, node: Node, offset: int) -> Iterator[Piece]:
        if node.kind == "object":
            for index, member in enumerate(node.members()[offset:], offset):
                yield Piece(index, member.value, member)
        else:
            for index, item in enumerate(node.all_items()[offset:], offset):
                yield Piece(index, item)

    def _stretch(self, knot: Knot, stretch: int) -> Iterator[Piece]:
        assert self._source is not None
        first = unpacked(knot.firsts)[stretch]
        child = knot.child(stretch, self._source.stored)
        if child is None:
            yield from pieces_of(self._run(knot, stretch), first)
            return
        size = child.end - child.start
        far = cast(Buffer, Far(size))
        member: Member | None = None
        if knot.kind == "object":
            before = self._source.read(unpacked(knot.starts)[stretch], child.start).rstrip(WHITESPACE)
            raw_key = before.removesuffix(b":").rstrip(WHITESPACE)
            member = Member(unescaped(raw_key[1:-1]), raw_key, far)
        piece = Piece(first, far, member)
        yield Piece(first, far, member, Value.large(self._path_of(piece), child, self._source))

    def _run(self, knot: Knot, stretch: int) -> bytes:
        """A stretch of small children as a list or object of its own."""
        assert self._source is not None
        starts = unpacked(knot.starts)
        stop = starts[stretch + 1] if stretch + 1 < len(starts) else knot.end - 1
        inside = self._source.read(starts[stretch], stop).rstrip(WHITESPACE).removesuffix(b",")
        return b"[%b]" % inside if knot.kind == "array" else b"{%b}" % inside

    def raw(self) -> bytes:
        """The value's exact bytes; all of them."""
        if self._spelled is not None:
            return self._spelled
        return b"".join(self.stream())

    def stream(self) -> Iterator[bytes]:
        """The same, a piece at a time."""
        if self._knot is None:
            yield self._spelled or (bytes(self._node.raw) if self._node is not None else self._plain or b"")
            return
        assert self._source is not None
        for at in range(self._knot.start, self._knot.end, _PIECE):
            yield self._source.read(at, min(at + _PIECE, self._knot.end))

    def spelled(self) -> Value | Spelling:
        """The value as text: a string's own characters, and of anything else the exact bytes."""
        if self.kind in ("string", "text"):
            return self
        if self._knot is None:
            return Spelling.of(self.path, self.raw())
        assert self._source is not None
        return Spelling(self.path, self._source, self._knot.start, self._knot.end)

    def node(self, room: int) -> Node:
        """The value for a fitter that has at most `room` bytes for it."""
        knot = self._knot
        if knot is None:
            # What cannot be opened can be kept or left out.
            return Node(self._plain or b"null") if self._node is None else self._node
        assert self._source is not None
        if knot.kind == "string":
            head = self._source.read(knot.start, min(knot.start + room + FAR, knot.end))
            held = self.opened()
            inner = None if held is self or held.kind == "text" else held.node(room)
            return abridged(head, self.size, self.total, inner=inner)
        pieces: list[Piece] = []
        covered = 0
        for found in self.pieces(0):
            piece = found.loaded(room)
            pieces.append(piece)
            covered += len(piece.value)
            if covered > room and (knot.kind == "array" or len(pieces) >= _SHARING):
                break
        children = {piece.ordinal: piece.far.node(room) for piece in pieces if piece.far is not None}
        if knot.kind == "array":
            items = [piece.value for piece in pieces]
            return abridged(b"[]", self.size, self.total, items=items, children=children)
        members = [piece.member for piece in pieces if piece.member is not None]
        return abridged(b"{}", self.size, self.total, members=members, children=children)

    def text(self, offset: int, room: int) -> str:
        """What a string or a text says from a character on: more than `room` bytes of it, or all there is."""
        if self._plain is not None:
            # A character has four bytes at most; slicing whole text by characters would cost all of it.
            return self._plain.decode()[offset : offset + room + 1]
        if self._knot is None:
            assert self._node is not None
            return self._node.text()[offset : offset + room + 1]
        assert self._source is not None
        starts, firsts = unpacked(self._knot.starts), unpacked(self._knot.firsts)
        stretch = max(bisect_right(firsts, offset) - 1, 0)
        skipped = offset - firsts[stretch]
        parts: list[str] = []
        covered = 0
        while stretch < len(starts) and covered <= room:
            closing = self._knot.end - (self._knot.kind == "string")
            stop = starts[stretch + 1] if stretch + 1 < len(starts) else closing
            data = self._source.read(starts[stretch], stop)
            part = (data.decode() if self._knot.kind == "text" else unescaped(data))[skipped:]
            parts.append(part)
            covered += len(part.encode())
            skipped, stretch = 0, stretch + 1
        return "".join(parts)

    # -- all of it ------------------------------------------------------------------------------------------

    def walk(self) -> Iterator[Run | Value]:
        """Everything, in order: runs of small children, and each string or text that is large."""
        if self.kind not in ("array", "object"):
            yield self
        elif self._knot is None:
            yield Run(self.path, self.kind, 0, self.raw())
        else:
            knot = self._knot
            for stretch, first in enumerate(unpacked(knot.firsts)):
                if knot.is_large(stretch):
                    for piece in self._stretch(knot, stretch):
                        assert piece.far is not None
                        yield from piece.far.opened().walk()
                else:
                    kind: Literal["array", "object"] = "array" if knot.kind == "array" else "object"
                    yield Run(self.path, kind, first, self._run(knot, stretch))


def root_of(source: Source, size: int, outline: Outline) -> Value:
    """The whole payload as a value."""
    if outline.root is not None:
        return Value.large("", outline.root, source)
    data = source.read(0, size)
    return Value("", plain=data) if outline.text else Value.small("", data)
