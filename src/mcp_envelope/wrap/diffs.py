"""The change of a file, as a unified diff.

Strategy: a wrapped file differs from the old one in small places far apart, in a file that may be long and full of
lines that are alike. So both are walked side by side; where they part, the nearest spot is looked for where they
are the same again. That costs what the changes cost, not the square of the file. Lines are compared as they are and
shown masked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

_CONTEXT: Final = 3
# So many lines have to be the same before two texts count as together again.
_SAME: Final = 2
# A change of more lines than this is shown as one with all that follows.
_FARTHEST: Final = 400


class _Change(NamedTuple):
    old: int
    old_end: int
    new: int
    new_end: int


class Side(NamedTuple):
    """A text's lines, and the same lines as they may be shown."""

    lines: Sequence[str]
    shown: Sequence[str]

    @classmethod
    def of(cls, text: str, shown: str) -> Side:
        return cls(text.split("\n"), [line.removesuffix("\r") for line in shown.split("\n")])


def unified(old: Side, new: Side, name: str) -> Iterator[str]:
    """The lines of the diff; none if there is no change."""
    changes = list(_changes(old.lines, new.lines))
    if changes:
        yield from (f"--- {name}", f"+++ {name}")
    for hunk in _hunks(changes):
        first, last = hunk[0], hunk[-1]
        before = min(_CONTEXT, first.old)
        after = min(_CONTEXT, len(old.lines) - last.old_end)
        old_range = _range(first.old - before, last.old_end + after)
        new_range = _range(first.new - before, last.new_end + after)
        yield f"@@ -{old_range} +{new_range} @@"
        at = first.old - before
        for change in hunk:
            yield from (f" {line}" for line in old.shown[at : change.old])
            yield from (f"-{line}" for line in old.shown[change.old : change.old_end])
            yield from (f"+{line}" for line in new.shown[change.new : change.new_end])
            at = change.old_end
        yield from (f" {line}" for line in old.shown[at : at + after])


def _changes(old: Sequence[str], new: Sequence[str]) -> Iterator[_Change]:
    here = there = 0
    while here < len(old) or there < len(new):
        if here < len(old) and there < len(new) and old[here] == new[there]:
            here, there = here + 1, there + 1
            continue
        gone, come = _parted(old, here, new, there)
        yield _Change(here, here + gone, there, there + come)
        here, there = here + gone, there + come


def _parted(old: Sequence[str], here: int, new: Sequence[str], there: int) -> tuple[int, int]:
    """For how many lines the two are not the same."""
    for distance in range(1, _FARTHEST):
        for gone in range(distance + 1):
            come = distance - gone
            if here + gone > len(old) or there + come > len(new):
                continue
            following = old[here + gone : here + gone + _SAME]
            if following == new[there + come : there + come + _SAME]:
                return gone, come
    return len(old) - here, len(new) - there


def _hunks(changes: Sequence[_Change]) -> Iterator[list[_Change]]:
    """Changes whose surroundings touch are shown together."""
    number, last = 0, 0
    numbered = []
    for change in changes:
        number += change.old - last > 2 * _CONTEXT
        last = change.old_end
        numbered.append((number, change))
    for _, group in groupby(numbered, key=lambda pair: pair[0]):
        yield [change for _, change in group]


def _range(start: int, end: int) -> str:
    return f"{start + 1 if end > start else start},{end - start}"
