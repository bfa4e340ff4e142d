"""Time: calls take turns, so what disturbs the machine disturbs them all; the best turn of each counts.

It is processor time of the whole process, not time on the wall: none of the engines waits for anything or
starts threads, so on an idle machine the two are the same, and on a busy one the wall shows the neighbours.
"""

from collections.abc import Callable, Mapping
from time import process_time
from typing import Any

_TURN = 0.002  # seconds; quicker calls are repeated within a turn
_MOST_ROUNDS = 200


class Race:
    """The turns of each call, in seconds."""

    def __init__(self, turns: dict[str, list[float]]) -> None:
        self._turns = turns

    def __contains__(self, name: str) -> bool:
        return name in self._turns

    def best(self, name: str) -> float:
        return min(self._turns[name])

    def ratio(self, name: str, other: str) -> float:
        """How many times the other's time a call takes, by the best of the rounds that both took part in."""
        both = min(len(self._turns[name]), len(self._turns[other]))
        return min(self._turns[name][:both]) / min(self._turns[other][:both])


Clock = Callable[[], float]


def race(
    calls: Mapping[str, Callable[[], Any]],
    seconds: float,
    least: int = 3,
    clocks: Mapping[str, Clock] | None = None,
) -> Race:
    """Rounds in which each call has its turn, until each has had its part of the seconds.

    A slow call drops out when its part is used up, but not before it had `least` turns, or two if a single
    one takes longer than all of the seconds. `clocks` tell the time of a call that is not spent here alone.
    """
    clock = {name: (clocks or {}).get(name, process_time) for name in calls}
    first = {name: _turn(call, 1, clock[name]) for name, call in calls.items()}
    times = {name: max(1, int(_TURN / max(took, 1e-7))) for name, took in first.items()}
    turns = {name: [took] for name, took in first.items()}
    part = seconds / len(calls)
    for _ in range(_MOST_ROUNDS):
        running = [name for name in calls if _goes_on(turns[name], times[name], part, least, seconds)]
        if not running:
            break
        for name in running:
            turns[name].append(_turn(calls[name], times[name], clock[name]))
    return Race(turns)


def _goes_on(turns: list[float], times: int, part: float, least: int, seconds: float) -> bool:
    if len(turns) < (2 if turns[0] > seconds else least):
        return True
    return sum(turns) * times < part


def _turn(call: Callable[[], Any], times: int, clock: Clock) -> float:
    start = clock()
    for _ in range(times):
        call()
    return (clock() - start) / times
