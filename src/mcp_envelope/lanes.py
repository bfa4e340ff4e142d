"""The lanes of a result, and the search for the fullest one within the budget.

Strategy: the fitter works in bytes and a meter is a black box over finished text, so the room that uses a
budget best can only be found by trying. The measurements so far give a straight line from room to use; the next
try is where that line meets the limit, kept between the largest room that was accepted and the smallest that
was not. Only what the meter accepted is ever returned, so the promise holds by construction, for every meter.

A dialect takes an immutable `Plan` and returns two `Lanes`. It knows how a fitted payload looks on the wire;
the functions here find out how much of the payload fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, Protocol

import msgspec
from msgspec.structs import replace

from .budget import Budget
from .codes import Problem
from .fit.completeness import told
from .fit.documents import Cut, Fitted, Fitter
from .fit.images import ImageBudget, put_back
from .fit.ranking import Ranking
from .fit.survey import Survey
from .jsontext.document import Buffer, encode, parse
from .outcome import Outcome
from .payload import Payload, shown, to_json
from .schema import FREE, Schema

Profile = Literal["minimal", "standard", "debug"]
PROFILES: Final[tuple[Profile, ...]] = ("minimal", "standard", "debug")
# Lengths of a notice: everything, the essentials, the minimum.
LENGTHS: Final = (0, 1, 2)

# The search ends with this share of the limit unused, or with more if no further item fits.
_SLACK: Final = 0.002
# After so many tries, a larger share will do.
_PATIENCE: Final = 8
_ENOUGH: Final = 0.02
_TRIES: Final = 20
# Bytes per token of typical JSON, where a search starts.
_TYPICAL_RATE: Final = 3.0
# How often an invalid cut is undone before the result counts as one that can't be cut.
_REFUSALS: Final = 24
# In a larger payload, don't look for the place where it breaks its schema: that could take too long.
_WORTH_CHECKING: Final = 1 << 18


class Lane:
    """A finished lane: its exact JSON text on the wire, its cuts, and how much of the budget it uses.

    `measured` is the text that the model gets, if that isn't the JSON itself; `body` is the fitted payload without
    the dialect's frame. Below a room of `next_room` bytes, the lane would be the same. `length` is its notice's.
    """

    __slots__ = ("_budget", "_load", "_used", "body", "cuts", "json", "length", "measured", "next_room")

    def __init__(
        self,
        json: bytes,
        cuts: tuple[Cut, ...],
        budget: Budget,
        body: bytes = b"",
        measured: bytes | None = None,
        next_room: int = 0,
    ) -> None:
        self.json = json
        self.cuts = cuts
        self.body = body
        self.measured = json if measured is None else measured
        self.next_room = next_room
        self.length = 0
        self._budget = budget
        self._used: int | None = None
        self._load: int | None = None

    def with_cuts(self, cuts: tuple[Cut, ...]) -> Lane:
        return Lane(self.json, cuts, self._budget, self.body, self.measured)

    def with_images(self, images: Mapping[bytes, bytes], cuts: tuple[Cut, ...]) -> Lane:
        """Return the lane with images that were set aside, and their cuts. They have a budget of their own."""
        json = put_back(self.json, images) if images else self.json
        return Lane(json, (*cuts, *self.cuts), self._budget, self.body, self.measured)

    @property
    def used(self) -> int:
        """The size of what the model gets, in the budget's unit."""
        if self._used is None:
            self._used = self._budget.meter.count(self.measured)
        return self._used

    @property
    def load(self) -> int:
        """The same, or more if the lane comes closer to another limit of its client."""
        if self._load is None:
            self._load = self._budget.load(self.measured, self.used)
        return self._load

    @property
    def frame(self) -> int:
        """About how much of the load isn't the payload, but the dialect's frame and the notice; 0 if unknown."""
        if not self.body:
            return 0
        return self.load * max(len(self.measured) - len(self.body), 0) // max(len(self.measured), 1)

    def fits(self, limit: int) -> bool:
        return self._budget.holds(self.measured, limit, lambda: self.load)


class Lanes(msgspec.Struct, frozen=True):
    """The result of a plan, in a dialect's shape."""

    content: Lane
    structured: Lane | None
    is_error: bool
    outcome: Outcome
    meta: Mapping[str, Any] | None
    # Texts of the tool that are not shown whole, to be stored beside the payload.
    texts: tuple[str, ...] = ()
    # Of a page: whether its first block is a note.
    noted: bool = False

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """The cuts in the structured lane, or in the text if that lane is whole or absent."""
        return (self.structured.cuts if self.structured else ()) or self.content.cuts

    def name(self, handle: str) -> bool:
        """Whether a handle occurs in what is sent, in words or in a link. No other text has its random bits."""
        raw = handle.encode()
        if raw in self.content.json or (self.structured is not None and raw in self.structured.json):
            return True
        return self.meta is not None and raw in encode(self.meta)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to go out, before anything is cut."""

    payload: Payload
    budget: Budget
    outcome: Outcome
    schema: Schema | None = None
    # Whether the payload goes into a member `result`.
    wrap: bool = False
    rankings: Mapping[str, Ranking] = {}
    # Set by the caller; None leaves it to the dialect.
    is_error: bool | None = None
    profile: Profile = "minimal"
    # Further names of lists that the dialect ctxo may cut.
    truncatable: frozenset[str] = frozenset()
    # How a list of records is spelled in a text: see `fit.forms`.
    table: str = "json"
    images: ImageBudget = ImageBudget()
    # What isn't shown of the payload's images. This is decided first.
    image_cuts: tuple[Cut, ...] = ()
    # What is found out about the payload while it is cut.
    survey: Survey = msgspec.field(default_factory=Survey)
    # How many secrets were masked, by the name of the pattern that found them.
    redacted: Mapping[str, int] = {}
    # The path of the data in the stored payload, and the part of the budget reserved for other blocks.
    base: str = ""
    reserved: int = 0
    # Whether both lanes together have to be within the budget, because the client shows both.
    shares: bool = False

    @property
    def limit(self) -> int:
        return self.budget.limit - self.reserved

    def lane(
        self,
        text: bytes,
        cuts: tuple[Cut, ...],
        body: bytes = b"",
        measured: bytes | None = None,
        next_room: int = 0,
    ) -> Lane:
        return Lane(text, cuts, self.budget, body, measured, next_room)

    def content(self, blocks: Sequence[Buffer], cuts: tuple[Cut, ...], next_room: int = 0) -> Lane:
        """Return a text lane, measured as clients show it."""
        return self.lane(b"[%b]" % b",".join(blocks), cuts, b"", shown(blocks), next_room)

    def with_cuts(self, cuts: tuple[Cut, ...]) -> Outcome:
        """Return the outcome with the cuts, and with what is to be said of what was cut."""
        found = self.survey.profiles(cuts, self.budget, self.limit)
        lost = max(cuts, key=lambda cut: cut.loss, default=None)
        example = self._example(lost) if lost is not None and self.outcome.handle is not None else ""
        return replace(
            self.outcome,
            cuts=(*self.image_cuts, *cuts),
            profiles=found,
            examples={lost.path: example} if lost is not None and example else {},
        )

    def _example(self, lost: Cut) -> str:
        page = self.payload.page
        if page is None:
            return self.survey.example(lost)
        return page.example if lost.path == page.path and lost.kind == "items" else ""

    def halved(self) -> Plan:
        """Return the plan for one of two lanes of which both are shown."""
        return replace(self, budget=self.budget.halves, reserved=self.reserved // 2, shares=False)

    def failed(self, problem: Problem) -> Plan:
        return replace(self, outcome=replace(self.outcome, error=problem)).as_error()

    def as_error(self) -> Plan:
        return replace(self, is_error=True, budget=self.budget.for_errors)

    @property
    def lacks_data(self) -> bool:
        """Whether there is no data and null would be invalid, so that a dialect omits the member."""
        return self.payload.is_empty and self.schema is not None and not self.schema.is_valid(b"null")

    @property
    def whole(self) -> Payload:
        """What is stored: the payload, of a miss together with what it says."""
        miss, node = self.outcome.miss, self.payload.node
        if miss is None:
            return self.payload
        own = {"found": False, "hint": miss.hint}
        data = msgspec.json.decode(node.raw) if node is not None and node.kind == "object" else {}
        return Payload(node=parse(to_json({**own, **(miss.details or {}), **data, **own})))

    @property
    def hidden(self) -> dict[str, str] | None:
        """The `handle` of a payload that a failure doesn't show, if it is stored; None if there is no payload."""
        if self.payload.is_empty:
            return None
        return {} if self.outcome.handle is None else {"handle": self.outcome.handle}

    def too_large(self) -> Problem:
        """Return the failure for a payload that can't be cut to the budget."""
        message = f"The result has {self.payload.size} bytes and cannot be cut to the budget"
        if self.schema is not None and self.payload.node is not None and not self.wrap:
            small = self.payload.size <= _WORTH_CHECKING
            broken = self.schema.first_error(bytes(self.payload.node.raw)) if small else None
            message += " without breaking its output schema"
            if broken:
                message += f", which it breaks even uncut (at {broken[0] or 'its root'})"
        hint = "Narrow the request or raise the budget."
        if self.outcome.handle:
            hint = "Read it in parts with the handle, narrow the request, or raise the budget."
        return Problem(code="RESULT_TOO_LARGE", message=f"{message}.", hint=hint)


class Keeper(Protocol):
    """Where whole payloads are kept: a vault, for one caller."""

    def promise(self) -> tuple[str, float]:
        """Return a handle for a payload that may have to be stored, and when it would expire."""
        ...

    def keep(self, handle: str, payload: Payload, tool: str | None) -> str | None:
        """Store the whole payload under the handle. If that fails, return a message for people."""
        ...


class Finish(Protocol):
    """Makes the lane for a room in bytes and a length of notice; None if the payload can't be cut that far."""

    def __call__(self, room: int, length: int) -> Lane | None: ...


class Framing(Protocol):
    """Puts fitted data into a dialect's frame, with a notice of some length."""

    def __call__(self, fitted: Fitted, length: int) -> Lane: ...


def first_that_fits(finish: Callable[[int], Lane], limit: int, lengths: Sequence[int] = LENGTHS) -> Lane:
    """Return the lane with the longest notice that is within the limit, or the shortest if none is."""
    for length in lengths:
        lane = finish(length)
        if lane.fits(limit):
            break
    return lane


def fullest(plan: Plan, size: int, finish: Finish, like: Lane | None = None) -> Lane | None:
    """Return the fullest lane within the budget, with the longest notice that leaves room for the payload.

    `like` is another lane of the same payload; its bytes per token are where the search starts.
    """
    limit = plan.limit
    # Of a payload that was stored as it came in, only what the budget can show is here.
    largest = plan.budget.most_bytes if plan.payload.partial else plan.budget.most_json
    most = min(size, largest)
    rate = 1.0 if plan.budget.unit == "bytes" else _TYPICAL_RATE
    if like is not None:
        rate = len(like.json) / max(like.load, 1)
    for length in LENGTHS:
        # Try the whole payload, unless it is hopelessly large.
        if size <= largest and not plan.payload.partial:
            lane = finish(size, length=length)
            if lane is not None and lane.fits(limit):
                return lane
            # And once without its whitespace: with its profile, one that is cut may be longer than that, so the
            # search could pass over it.
            lane = finish(size - 1, length=length)
            if lane is not None and not lane.cuts and lane.fits(limit):
                return lane
        profiles = plan.survey.share(plan.budget, limit) if length == 0 else 0
        guess = int(min(limit - profiles, size) * rate)
        lane = largest_room(partial(finish, length=length), limit, guess, most)
        if lane is not None:
            lane.length = length
            return lane
    return None


def conforming(
    plan: Plan, fitter: Fitter, search: Callable[[], Lane | None], accept: Callable[[Lane], Lane | None]
) -> Lane | None:
    """Return the first lane that `accept` takes; until then, undo cuts where validation fails."""
    for _ in range(_REFUSALS):
        lane = search()
        if lane is None or plan.schema is None:
            return lane
        accepted = accept(lane)
        if accepted is not None:
            return accepted
        error = plan.schema.first_error(lane.body)
        pointer = error[0] if error else ""
        if not fitter.protect(pointer.removeprefix("/result") if plan.wrap else pointer):
            return None
    return None


def fit_data(
    plan: Plan,
    frame: Framing,
    rankings: Mapping[str, Ranking] | None = None,
    soft: frozenset[str] = frozenset(),
) -> Lane | None:
    """Return the data, fitted into a dialect's frame; the schema covers the data alone."""
    if (page := plan.payload.page) is not None:
        # Unlike a first look, pages are joined end to end.
        def show(room: int, length: int) -> Lane | None:
            part = page.as_json(room)
            return None if part is None else frame(part, length)

        return fullest(plan, page.size, show)
    node, schema = plan.payload.as_node(), plan.schema
    place = FREE if schema is None else schema.root
    fitter = Fitter(
        node, place, {**(rankings or {}), **plan.rankings}, plan.base, soft=soft, survey=plan.survey
    )

    made: dict[int, tuple[Lane, Fitted, int]] = {}

    def framed(fitted: Fitted, length: int) -> Lane:
        honest = told(fitted, plan.base)
        if honest is not fitted and schema is not None and not schema.is_valid(honest.json):
            honest = fitted
        return frame(honest, length)

    def finish(room: int, length: int) -> Lane | None:
        fitted = fitter.fit(room)
        if fitted is None:
            return None
        lane = framed(fitted, length)
        made[id(lane)] = lane, fitted, length
        return lane

    def search() -> Lane | None:
        lane = fullest(plan, node.size, finish)
        if lane is None or not lane.cuts:
            return lane
        _, fitted, length = made[id(lane)]
        return _filled_up(plan, fitter, lane, fitted, partial(framed, length=length))

    def accept(lane: Lane) -> Lane | None:
        assert schema is not None
        # If nothing was cut, the tool itself broke the schema.
        return lane if not lane.cuts or schema.is_valid(lane.body) else None

    return conforming(plan, fitter, search, accept)


def _filled_up(
    plan: Plan, fitter: Fitter, lane: Lane, fitted: Fitted, frame: Callable[[Fitted], Lane]
) -> Lane:
    """Return the lane with all items for which the search, which works in bytes and in shares, left room."""
    free = plan.budget.most_bytes * (plan.limit - lane.load + 1) // max(plan.limit, 1)
    for cut in sorted(lane.cuts, key=lambda cut: -cut.dropped):
        low, high = 0, fitter.following(cut, free)
        while low < high:
            middle = (low + high + 1) // 2
            if (larger := frame(fitter.grown(fitted, cut, middle))).fits(plan.limit):
                low, lane = middle, larger
            else:
                high = middle - 1
        fitted = fitter.grown(fitted, cut, low) if low else fitted
    return lane


def largest_room(attempt: Callable[[int], Lane | None], limit: int, guess: int, most: int) -> Lane | None:
    """Return the best lane that `attempt` makes within `limit`, for a room of at most `most` bytes.

    `attempt` returns None if the payload can't be cut to the room.
    """
    best: Lane | None = None
    over: Lane | None = None
    low = load_low = load_high = frame = 0
    high = most + 1
    room = min(max(guess, 1), most)
    for tried in range(_TRIES):
        lane = attempt(room)
        is_step = lane is not None and lane.load in (load_low, load_high)
        frame = lane.frame if lane is not None else frame
        if lane is None:
            low = room
        elif lane.load <= limit:
            best = lane
            low, load_low = max(room, lane.next_room - 1), lane.load
        else:
            over = lane
            high, load_high = room, lane.load
            if best is None:
                load_low = frame
        slack = limit * (_SLACK if tried < _PATIENCE else _ENOUGH)
        if (best is not None and limit - load_low <= slack) or low >= most:
            break
        if high - low <= max(1, low // 2000) or _are_neighbours(best, over):
            break
        # A line leads nowhere on a step, which all items and lines of text make.
        room = (low + high) // 2 if is_step else _next_room(low, load_low, high, load_high, limit, frame)
        if over is not None and low < len(over.body) <= room:
            # That room would show the same as the last one that was too large.
            room = max(len(over.body) - 1, low + 1)
    return best


def _next_room(low: int, load_low: int, high: int, load_high: int, limit: int, frame: int = 0) -> int:
    """Return where the line through the closest loads below and above the limit meets it."""
    if load_high:
        slope = (load_high - load_low) / (high - low)
        # Without a lane below the limit, the line comes from the frame of the one above, and is a good one.
        margin = (high - low) // (16 if low else 64)
    elif low:
        # Nothing was too large yet: extrapolate, but at most to four times the room.
        slope = max((load_low - frame) / low, limit / (4 * low))
        margin = 0
    else:
        slope, margin = 1.0, 0
    room = low + int((limit - load_low) / slope) if slope > 0 else (low + high) // 2
    return min(max(room, low + margin, low + 1), high - margin, high - 1)


def _are_neighbours(best: Lane | None, over: Lane | None) -> bool:
    """Whether no lane can lie between the two, because they differ by a single item or member."""
    if best is None or over is None or len(best.cuts) != len(over.cuts):
        return False
    more = 0
    for one, other in zip(best.cuts, over.cuts, strict=True):
        if one.path != other.path or one.kind not in ("items", "properties", "blocks"):
            return False
        more += other.kept - one.kept
    return 0 <= more <= 1
