"""Parts of a list or an object: a single child, and a run of small ones.

Strategy: children come as they are stored, unparsed, and a large one is not even loaded, so that whoever walks
over many of them pays for those alone that he looks at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import msgspec

from ..jsontree import Buffer, Member, Node
from .store import Damaged

if TYPE_CHECKING:
    from .document import Value


class Piece(msgspec.Struct, frozen=True, gc=False):
    """A child of a list or an object. One that is large is `far`, and its `value` has a size only."""

    ordinal: int
    value: Buffer
    member: Member | None = None
    far: Value | None = None

    @property
    def step(self) -> str:
        """The last step of the path of the child."""
        if self.member is None:
            return str(self.ordinal)
        return self.member.key.replace("~", "~0").replace("/", "~1")

    def loaded(self, room: int) -> Piece:
        """The same, here and whole if it is not larger than the room."""
        if self.far is None or self.far.size > room:
            return self
        value = self.far.raw()
        member = None if self.member is None else Member(self.member.key, self.member.raw_key, value)
        return Piece(self.ordinal, value, member)


class Run(msgspec.Struct, frozen=True):
    """Some small children of the list or object at `path`, as a list or object of their own."""

    path: str
    kind: Literal["array", "object"]
    first: int
    data: bytes


def pieces_of(run: bytes, first: int) -> Iterator[Piece]:
    """The children in a run, the first of which has that ordinal."""
    node = Node(run)
    try:
        if node.kind == "object":
            for index, member in enumerate(node.members(), first):
                yield Piece(index, member.value, member)
        else:
            for index, item in enumerate(node.all_items(), first):
                yield Piece(index, item)
    except msgspec.DecodeError as error:
        raise Damaged(f"the stored payload is not what was written: {error}") from None
