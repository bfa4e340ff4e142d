"""A budget that two lanes share.

Strategy: most clients show their model one lane, so each lane has the whole budget. Who is known to show both pays
for both: then they may have it together, as they are, or half of it each.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec

from .budget import MIN_BYTES, MIN_TOKENS
from .front import Call
from .job import most_bytes
from .jsontree import Buffer


def is_shared(call: Call) -> bool:
    return call.client.lane == "both" and call.is_native and call.policy.budget is not None


def shared(call: Call, content: Sequence[Buffer], structured: Buffer | None) -> Call:
    """The call as a result with these lanes is measured: as it is, unless they are too much together."""
    budget = call.policy.budget
    if not is_shared(call) or structured is None or budget is None:
        return call
    lanes = b"[%b]" % b",".join(content), bytes(structured)
    if max(map(len, lanes)) <= most_bytes(budget) and sum(map(budget.meter.count, lanes)) <= budget.limit:
        return call
    return halved(call)


def halved(call: Call) -> Call:
    """The same with half of the budget for each lane."""
    budget = call.policy.budget
    assert budget is not None
    if budget.unit == "bytes":
        policy = dataclasses.replace(call.policy, bytes=max(budget.limit // 2, MIN_BYTES), tokens=None)
    else:
        policy = dataclasses.replace(call.policy, tokens=max(budget.limit // 2, MIN_TOKENS), bytes=None)
    return msgspec.structs.replace(call, policy=policy)
