"""The search for the largest room whose finished lane is within the budget.

Strategy: the fitter thinks in bytes and a meter is a black box over finished text, so the room that uses a
budget best can only be found by trying. What was measured so far gives a straight line from room to use;
the next try is where that line meets the limit, kept inside the bracket between the largest room that was
accepted and the smallest that was not. Only what the meter accepted is ever returned: the promise holds by
construction, for every meter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .fitting import Cut
from .meters import Meter

# Good enough: so much of the limit may stay unused; and up to the second figure, if it is less than an item.
_SLACK: Final = 0.02
_SLACK_FOR_ITEM: Final = 0.06
_ITEM: Final = 0.85
# A try aims a little below the limit, because the first one that is accepted often ends the search.
_AIM: Final = 0.99
_TRIES: Final = 20


class Lane:
    """A finished lane: its exact JSON text on the wire, the cuts in it, and what it uses of the budget.

    `body` is the payload as it was fitted, without what the dialect put around it. `measured` is the text
    that counts, where a dialect says that it is not the JSON itself.
    """

    __slots__ = ("_measured", "_meter", "_used", "body", "cuts", "json")

    def __init__(
        self,
        json: bytes,
        cuts: tuple[Cut, ...],
        meter: Meter,
        body: bytes = b"",
        measured: bytes | None = None,
    ) -> None:
        self.json = json
        self.cuts = cuts
        self.body = body
        self._measured = json if measured is None else measured
        self._meter = meter
        self._used = -1

    @property
    def measured(self) -> bytes:
        return self._measured

    def with_cuts(self, cuts: tuple[Cut, ...]) -> Lane:
        return Lane(self.json, cuts, self._meter, self.body, self._measured)

    @property
    def used(self) -> int:
        if self._used < 0:
            self._used = self._meter.count(self._measured)
        return self._used

    def fits(self, limit: int) -> bool:
        # Tokens never exceed UTF-8 bytes: a short text needs no counting.
        return len(self._measured) <= limit or self.used <= limit


def largest_room(
    attempt: Callable[[int], Lane | None], limit: int, guess: int, most: int, overhead: int = 0
) -> Lane | None:
    """The best lane that `attempt` makes within `limit`, for a room of at most `most` bytes.

    `attempt` gives None for a room in which the payload cannot be fitted at all; `overhead` is what a lane
    uses besides its payload, roughly.
    """
    best: Lane | None = None
    over: Lane | None = None
    low, used_low = 0, min(overhead, limit // 2)
    high, used_high = most + 1, 0
    room = min(max(guess, 1), most)
    for _ in range(_TRIES):
        lane = attempt(room)
        if lane is None:
            low = room
        elif lane.used <= limit:
            best = lane
            low, used_low = room, lane.used
            if room == most or limit - lane.used <= _acceptable(lane, limit):
                break
        else:
            over = lane
            high, used_high = room, lane.used
        if high - low <= max(1, low // 200) or _are_neighbours(best, over):
            break
        room = _next_room(low, used_low, high, used_high, int(limit * _AIM))
    return best


def _next_room(low: int, used_low: int, high: int, used_high: int, aim: int) -> int:
    if used_high:
        slope = (used_high - used_low) / (high - low)
        margin = (high - low) // 16
    elif low:
        # Nothing was too much yet: go on at the rate so far, not more than four times as far.
        slope = max(used_low / low, aim / (4 * low))
        margin = 0
    else:
        slope, margin = 1.0, 0
    room = low + int((aim - used_low) / slope) if slope > 0 else (low + high) // 2
    return min(max(room, low + margin, low + 1), high - margin, high - 1)


def _acceptable(lane: Lane, limit: int) -> float:
    kept = sum([cut.kept for cut in lane.cuts if cut.kind == "items"])
    item = _ITEM * lane.used / kept if kept else 0
    return max(_SLACK * limit, min(item, _SLACK_FOR_ITEM * limit))


def _are_neighbours(best: Lane | None, over: Lane | None) -> bool:
    """Whether nothing can lie between the two: they differ by one whole item or member only."""
    if best is None or over is None or len(best.cuts) != len(over.cuts):
        return False
    more = 0
    for one, other in zip(best.cuts, over.cuts, strict=True):
        if one.path != other.path or one.kind not in ("items", "properties"):
            return False
        more += other.kept - one.kept
    return 0 <= more <= 1
