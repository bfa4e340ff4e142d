"""The ceiling on a lane: a number, and the meter that counts towards it.

Strategy: a budget out of range is clamped, never refused, and says so in a warning that travels with the
result. The smallest budget is what the shortest notice needs in any lane, with a handle in it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from . import meters
from .meters import Meter

DEFAULT_TOKENS: Final = 8000
MIN_TOKENS: Final = 128
MIN_BYTES: Final = 512


def check_whole(**numbers: object) -> None:
    for name, value in numbers.items():
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise TypeError(f"{name} is a whole number, got {value!r}")


class Budget(msgspec.Struct, frozen=True):
    limit: int
    meter: Meter
    warning: str | None = None

    @property
    def unit(self) -> str:
        return self.meter.unit

    @classmethod
    def of(
        cls,
        *,
        tokens: int | None = None,
        max_bytes: int | None = None,
        meter: str | None = None,
    ) -> Budget:
        """A budget in tokens (by the meter `estimate`, unless another is named) or in bytes."""
        if tokens is not None and max_bytes is not None:
            raise ValueError("a budget is in tokens or in bytes, not both")
        check_whole(tokens=tokens, max_bytes=max_bytes)
        if max_bytes is not None:
            if meter not in (None, "bytes"):
                raise ValueError(f"a budget in bytes is counted by the meter bytes, not by {meter}")
            return cls._clamped(max_bytes, meters.meter("bytes"))
        if meter == "bytes":
            raise ValueError("the meter bytes goes with a budget in bytes")
        return cls._clamped(DEFAULT_TOKENS if tokens is None else tokens, meters.meter(meter or "estimate"))

    @classmethod
    def _clamped(cls, limit: int, meter: Meter) -> Budget:
        least = MIN_BYTES if meter.unit == "bytes" else MIN_TOKENS
        if limit >= least:
            return cls(limit, meter)
        return cls(least, meter, f"the budget of {limit} {meter.unit} was raised to {least}, the smallest")
