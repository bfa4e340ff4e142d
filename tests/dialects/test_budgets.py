"""Every dialect under an explicit budget: what is counted is what is sent."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_envelope import seal
from mcp_envelope.budget import Budget

ROWS = [{"id": index, "name": f'row "{index}"\n', "tags": ["ä", "\\", "x" * 20]} for index in range(2000)]
BUDGETS: list[dict[str, Any]] = [
    *({"max_bytes": limit} for limit in (600, 2000, 9000)),
    *(
        {"tokens": limit, "meter": meter}
        for meter in ("estimate", "chars4", "exact")
        for limit in (150, 600, 3000)
    ),
]


# ctxo and transcend define what they count: the document in the text block.
@pytest.mark.parametrize("dialect", ["native", "gel", "scalpel"])
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize(
    "payload", [{"rows": ROWS}, ROWS, {"text": 'a "b"\n' * 5000}], ids=["object", "list", "text"]
)
def test_both_lanes_are_within_the_budget_with_their_blocks(
    dialect: str, budget: dict[str, Any], payload: Any
) -> None:
    limit = Budget.of(**budget)
    sealed = seal(payload, dialect=dialect, handle="aB3dE6gH9jK2mN5pQ8sT1v", **budget)
    for lane in (sealed.content, sealed.structured):
        assert lane is None or limit.holds(lane)
