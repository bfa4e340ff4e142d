"""The work on one result, as a dialect sees it: the payload, the budget, the facts, and the tools to fit it.

Strategy: a dialect knows how a fitted payload and the facts look on the wire, and says so in a function that
finishes a lane for a given room and length of notice. The job does the rest: it looks for the largest room
whose finished lane the meter accepts, and undoes cuts that the schema does not take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Literal, Protocol

import msgspec
from msgspec.structs import replace

from .budget import Budget
from .facts import Facts, Problem
from .fitting import Cut, Fitted, Fitter
from .payload import Payload
from .ranking import Ranking
from .rooms import Lane, largest_room
from .schema import FREE, Schema

Profile = Literal["minimal", "standard", "debug"]
PROFILES: Final[tuple[Profile, ...]] = ("minimal", "standard", "debug")
# How much a notice says: everything, the essentials, the least.
LENGTHS: Final = (0, 1, 2)

# A cut that the schema refuses is undone so many times before the result counts as one that cannot be cut.
_REFUSALS: Final = 24
# A larger payload is not asked where it breaks its schema: the answer could take longer than everything else.
_WORTH_CHECKING: Final = 1 << 18
# The most bytes that one unit of a budget can stand for: there is no use in trying more.
_MOST_BYTES: Final = {"bytes": 1, "estimate": 8, "chars4": 12}
# Bytes to a token of JSON: where the search starts.
_TYPICAL_RATE: Final = 3.0


def most_bytes(budget: Budget) -> int:
    """No text of more bytes can be within the budget."""
    return budget.limit * _MOST_BYTES.get(budget.meter.name, 128) + 64


class Finish(Protocol):
    """Makes the lane for a room in bytes and a length of notice; None if the payload cannot be that small."""

    def __call__(self, room: int, length: int) -> Lane | None: ...


class Lanes(msgspec.Struct, frozen=True):
    """What a dialect makes of a job."""

    content: Lane
    structured: Lane | None
    is_error: bool
    facts: Facts
    meta: Mapping[str, Any] | None


class Dialect(Protocol):
    """A wire shape."""

    name: str

    def budget(self, tokens: int | None, max_bytes: int | None, meter: str | None) -> Budget:
        """The budget of a call: as asked for, in this dialect's unit and range."""
        ...

    def seal(self, job: Job) -> Lanes: ...

    def output_schema(self, data: Mapping[str, Any] | bool | None) -> dict[str, Any] | None:
        """The schema of what this dialect puts into `structuredContent`, for a schema of the data."""
        ...


class Job(msgspec.Struct):
    payload: Payload
    budget: Budget
    facts: Facts
    schema: Schema | None = None
    wrap: bool = False
    rankings: Mapping[str, Ranking] = {}
    # Said by the caller; None leaves it to the dialect.
    is_error: bool | None = None
    profile: Profile = "minimal"
    # Further names of lists that the dialect ctxo may cut.
    truncatable: frozenset[str] = frozenset()
    # Where the data is in what is stored, and what the dialect's own parts have to leave of the budget.
    base: str = ""
    reserved: int = 0
    _rate: float = 0.0

    def lane(
        self, text: bytes, cuts: tuple[Cut, ...], body: bytes = b"", measured: bytes | None = None
    ) -> Lane:
        return Lane(text, cuts, self.budget.meter, body, measured)

    @property
    def limit(self) -> int:
        return self.budget.limit - self.reserved

    def first_that_fits(self, finish: Callable[[int], Lane]) -> Lane:
        """The longest notice that is within the budget; the shortest if none is."""
        for length in LENGTHS:
            lane = finish(length)
            if lane.fits(self.limit):
                break
        return lane

    @property
    def lacks_data(self) -> bool:
        """Whether there is no data, and null would not do: a dialect leaves the member out."""
        return self.payload.is_empty and self.schema is not None and not self.schema.is_valid(b"null")

    @property
    def hidden(self) -> dict[str, str] | None:
        """For a failure that shows nothing of a payload: where that is, as far as it is anywhere; else None."""
        if self.payload.is_empty:
            return None
        return {} if self.facts.handle is None else {"handle": self.facts.handle}

    def with_cuts(self, cuts: tuple[Cut, ...]) -> Facts:
        return replace(self.facts, cuts=cuts)

    def search(self, size: int, finish: Finish) -> Lane | None:
        """The fullest lane within the budget, with the longest notice that leaves room for the payload."""
        limit = self.limit
        most = min(size, most_bytes(self.budget))
        if not self._rate:
            self._rate = 1.0 if self.budget.unit == "bytes" else _TYPICAL_RATE
        for length in LENGTHS:
            # Whole, if it can be: worth one try when it is not hopeless.
            if size <= limit * 8:
                lane = finish(size, length=length)
                if lane is not None and lane.fits(limit):
                    return lane
            guess = int(min(limit, size) * self._rate)
            lane = largest_room(partial(finish, length=length), limit, guess, most)
            if lane is not None:
                # What was learned here is where the next lane starts.
                self._rate = len(lane.json) / max(lane.used, 1)
                return lane
        return None

    def conforming(
        self, fitter: Fitter, search: Callable[[], Lane | None], accept: Callable[[Lane], Lane | None]
    ) -> Lane | None:
        """The lane that `accept` takes; until it takes one, cuts are undone where the schema complains."""
        for _ in range(_REFUSALS):
            lane = search()
            if lane is None or self.schema is None:
                return lane
            accepted = accept(lane)
            if accepted is not None:
                return accepted
            error = self.schema.first_error(lane.body)
            pointer = error[0] if error else ""
            if not fitter.protect(pointer.removeprefix("/result") if self.wrap else pointer):
                return None
        return None

    def fit_data(
        self,
        frame: Callable[[Fitted, int], Lane],
        rankings: Mapping[str, Ranking] | None = None,
        soft: frozenset[str] = frozenset(),
    ) -> Lane | None:
        """The data in the frame that a dialect puts around it, for a schema of the data alone."""
        node, schema = self.payload.as_node(), self.schema
        place = FREE if schema is None else schema.root
        fitter = Fitter(node, place, {**(rankings or {}), **self.rankings}, self.base, soft=soft)

        def finish(room: int, length: int) -> Lane | None:
            fitted = fitter.fit(room)
            return None if fitted is None else frame(fitted, length)

        def accept(lane: Lane) -> Lane | None:
            # What is whole and does not conform is the tool's own doing.
            return lane if not lane.cuts or schema is None or schema.is_valid(lane.body) else None

        return self.conforming(fitter, lambda: self.search(node.size, finish), accept)

    def too_large(self) -> Problem:
        """The coded outcome of a payload that cannot be cut to the budget."""
        message = f"The result has {self.payload.size} bytes and cannot be cut to the budget"
        if self.schema is not None and self.payload.node is not None and not self.wrap:
            small = self.payload.size <= _WORTH_CHECKING
            broken = self.schema.first_error(bytes(self.payload.node.raw)) if small else None
            message += " without breaking its output schema"
            if broken:
                message += f", to which it does not conform as it is (at {broken[0] or 'its root'})"
        ask = "ask for less, or for a larger budget."
        hint = f"Read it in parts with the handle, {ask}" if self.facts.handle else ask.capitalize()
        return Problem(code="RESULT_TOO_LARGE", message=f"{message}.", hint=hint)
