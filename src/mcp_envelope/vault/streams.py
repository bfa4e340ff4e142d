"""A list that is stored while it comes in, item by item, and is never in memory as a whole.

Strategy: items are packed into blobs as they come, and marked every 32 KB, so the outline grows along. Nobody
sees the list before `finish`; a stream that is abandoned leaves nothing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..text import characters
from .knots import Knot, Outline, dumps, packed
from .outline import FAR, Builder
from .source import BLOB, Compressor
from .store import Entry, StoreError
from .vault import key_of

if TYPE_CHECKING:
    from .vault import Vault

_AT_ONCE = 16 * BLOB
# Positions have four bytes, and knots come after the list.
_MOST = (1 << 32) - (1 << 24)


class ListStream:
    """`member` names the member of an object that the list is in, if it is in one."""

    def __init__(
        self, vault: Vault, handle: str, tool: str | None, owner: str | None, member: str | None = None
    ) -> None:
        self._handle = handle
        self._tool = tool
        self._key = key_of(handle, owner)
        self._expires = time.time() + vault.ttl
        self._writing = vault.store.write(self._key, self._expires)
        self._writing.__enter__()
        self._compressor = Compressor()
        self._waiting = bytearray()
        self._written = 0
        self._blobs = self._stored = 0
        self._member = member
        self._firsts: list[int] = []
        self._starts: list[int] = []
        self._marked = 0
        # Characters so far, and how many there were at each start.
        self._characters = 0
        self._counted: list[int] = []
        self._children: dict[int, Knot] = {}
        self._push(b"[" if member is None else b'{"%b":[' % member.encode())
        self._begin = self._at - 1
        self.total = 0

    @property
    def _at(self) -> int:
        return self._written + len(self._waiting)

    def add(self, item: bytes) -> None:
        """The next item, as JSON without line breaks between its parts."""
        if self.total:
            self._push(b",")
        large = len(item) > FAR
        if large or not self._firsts or self._at - self._marked >= FAR or self.total - 1 in self._children:
            self._firsts.append(self.total)
            self._starts.append(self._at)
            self._counted.append(self._characters)
            self._marked = self._at
        if large:
            self._children[self.total] = Knot("leaf", self._at, self._at + len(item), 0)
        self._push(item)
        self.total += 1
        if len(self._waiting) >= _AT_ONCE:
            self._pack(len(self._waiting) // BLOB * BLOB)

    def finish(self) -> float:
        """Make it visible; when it will expire."""
        self._push(b"]")
        end = self._at
        if self._member is not None:
            self._push(b"}")
        size = self._at
        if size >= _MOST:
            raise StoreError(f"the list has {size} bytes, which is more than can be stored")
        root = Knot("array", self._begin, end, self.total)
        builder = Builder(size)
        builder.hang(root, self._children, self._firsts, self._starts)
        outline = Outline()
        if self._characters < size:
            outline.firsts, outline.starts = packed([0, *self._counted]), packed([0, *self._starts])
        self._push(builder.behind)
        self._pack(len(self._waiting))
        if self._member is not None:
            inner, root = root, Knot("object", 0, size, 1, packed([0]), packed([1]))
            root.children, root.keys = {0: inner}, {self._member: 0}
        outline.root = root
        entry = Entry(
            key=self._key,
            handle=self._handle,
            kind="json",
            size=size,
            stored=self._stored,
            blobs=self._blobs,
            created=time.time(),
            expires=self._expires,
            tool=self._tool,
            outline=self._compressor.pack(dumps(outline)),
        )
        self._writing.commit(entry)
        self._writing.__exit__(None, None, None)
        return self._expires

    def abandon(self) -> None:
        self._writing.__exit__(None, None, None)

    def _push(self, data: bytes) -> None:
        self._waiting += data
        self._characters += characters(data)

    def _pack(self, size: int) -> None:
        view = memoryview(self._waiting)
        blobs = [self._compressor.pack(view[at : min(at + BLOB, size)]) for at in range(0, size, BLOB)]
        view.release()
        self._writing.add(blobs)
        self._blobs += len(blobs)
        self._stored += sum(map(len, blobs))
        del self._waiting[:size]
        self._written += size
