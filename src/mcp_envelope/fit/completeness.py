"""A document's own word on whether it is complete: `truncated: false` is not left standing beside a cut list.

Strategy: most documents have no such word, and one search over the bytes tells. Otherwise only the objects on
the way to a cut are opened, and only a boolean changes.
"""

from __future__ import annotations

import re
from typing import Final

from ..jsontext.document import Buffer, Member, Node, assembled
from .documents import Fitted

_INCOMPLETE: Final = (
    "truncated",
    "isTruncated",
    "is_truncated",
    "incomplete",
    "partial",
    "hasMore",
    "has_more",
)
_COMPLETE: Final = ("complete", "isComplete", "is_complete")
_OPPOSITE: Final = {
    **dict.fromkeys([(name, b"false") for name in _INCOMPLETE], b"true"),
    **dict.fromkeys([(name, b"true") for name in _COMPLETE], b"false"),
}
_MENTIONED: Final = re.compile(rb'"(?:%b)":' % "|".join([*_INCOMPLETE, *_COMPLETE]).encode())


def told(fitted: Fitted, base: str = "") -> Fitted:
    """Return the fitted document with the booleans corrected that say that nothing is missing."""
    if not fitted.cuts or not _MENTIONED.search(fitted.json):
        return fitted
    paths = [cut.path.removeprefix(base).split("/")[1:] for cut in fitted.cuts]
    return Fitted(_corrected(fitted.json, paths), fitted.cuts)


def opposite(member: Member) -> bytes | None:
    """Return the other value of a boolean that says that nothing is missing; None for any other member."""
    return _OPPOSITE.get((member.key, bytes(member.value))) if len(member.value) <= len(b"false") else None


def _corrected(raw: Buffer, paths: list[list[str]]) -> bytes:
    node = Node(raw)
    if node.kind != "object":
        return bytes(raw)
    return bytes(assembled([_member(member, paths) for member in node.members()]).raw)


def _member(member: Member, paths: list[list[str]]) -> Member:
    value = opposite(member)
    if value is None:
        step = member.key.replace("~", "~0").replace("/", "~1")
        inside = [path[1:] for path in paths if path[:1] == [step] and len(path) > 1]
        if not inside:
            return member
        value = _corrected(member.value, inside)
    return Member(member.key, member.raw_key, value)
