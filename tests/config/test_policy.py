"""What a call gets for what it asks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_envelope import dialects
from mcp_envelope.config import Policy

ANYTHING = st.one_of(
    st.integers(),
    st.floats(),
    st.text(),
    st.none(),
    st.booleans(),
    st.integers().map(str),
    st.floats().map(str),
    st.integers(0, 12).map(lambda power: 10**power),
    st.just(10**5000),
    st.lists(st.integers()),
    st.dictionaries(st.text(), st.integers()),
    st.binary(),
)
NUMBERS = st.none() | st.integers(100, 50_000)


@given(st.sampled_from(dialects.NAMES), NUMBERS, NUMBERS, NUMBERS, ANYTHING)
def test_any_request_ends_within_the_ceiling(
    dialect: str, tokens: int | None, max_bytes: int | None, ceiling: int | None, requested: Any
) -> None:
    if tokens is not None:
        max_bytes = None
    before = Policy(dialect=dialect, tokens=tokens, bytes=max_bytes, max_tokens=ceiling)
    after = before.with_budget(requested)
    limits, allowance = dialects.dialect(dialect).limits, before.allowance
    if after.tokens is not None and after.sources.get("tokens") == "call":
        assert limits.least_tokens <= after.tokens <= allowance.ceiling
        assert after.bytes is None
        assert after.allowance.ceiling == allowance.ceiling
        assert after.budget is not None
        assert after.budget.limit == after.tokens
        assert after.warnings or float(requested) == after.tokens
    else:
        assert after.warnings
        assert (after.tokens, after.bytes) == (tokens, max_bytes)
    assert len("".join(after.warnings)) < 200
    if ceiling is not None:
        assert allowance.ceiling == max(min(ceiling, limits.most_tokens or ceiling), limits.least_tokens)


@pytest.mark.parametrize(
    ("requested", "tokens", "said"),
    [
        (500, 500, ""),
        ("500", 500, ""),
        (" 1e3 ", 1000, ""),
        (1500.0, 1500, ""),
        (1500.7, 1500, "tokenBudget 1500.7 was rounded down to 1500"),
        (10_001, 10_000, "tokenBudget 10001 was lowered to 10000, the largest allowed"),
        (float("inf"), 10_000, "was lowered to 10000"),
        (10**400, 10_000, "tokenBudget a number of many digits was lowered"),
        (-1, 128, "tokenBudget -1 was raised to 128, the smallest"),
        (float("nan"), None, "tokenBudget nan is not a number of tokens; the default applies: 8000 tokens"),
        (True, None, "tokenBudget true is not a number of tokens"),
        (None, None, "tokenBudget null is not a number of tokens"),
        ("16k", None, "tokenBudget '16k' is not a number of tokens"),
        ("1_000", None, "is not a number"),
        ("٣", None, "is not a number"),
        ("", None, "tokenBudget '' is not a number"),
        ([500], None, "tokenBudget a list is not a number"),
        ({"a": 1}, None, "tokenBudget a table is not a number"),
        (object(), None, "tokenBudget a object is not a number"),
    ],
)
def test_requests(requested: object, tokens: int | None, said: str) -> None:
    policy = Policy().with_budget(requested)
    assert policy.tokens == tokens
    assert said in "".join(policy.warnings)
    assert bool(said) == bool(policy.warnings)


def test_the_defaults_of_the_dialects() -> None:
    limits = {dialect: Policy(dialect=dialect).allowance for dialect in dialects.NAMES}
    assert {name: (each.limit, each.unit, each.meter, each.ceiling) for name, each in limits.items()} == {
        "native": (8000, "tokens", "exact", 10_000),
        "ctxo": (8192, "bytes", "bytes", 10_000),
        "transcend": (2000, "tokens", "chars4", 10_000),
        "gel": (8000, "tokens", "exact", 10_000),
        "scalpel": (None, "tokens", "exact", 10_000),
    }
    assert Policy(dialect="scalpel").budget is None


@pytest.mark.parametrize("name", dialects.NAMES)
@pytest.mark.parametrize(
    ("tokens", "max_bytes"), [(None, None), (1, None), (150, None), (99_999, None), (None, 1)]
)
def test_the_dialects_agree(name: str, tokens: int | None, max_bytes: int | None) -> None:
    """A dialect takes what the policy gives it, and has nothing to correct."""
    budget = Policy(dialect=name, tokens=tokens, bytes=max_bytes).budget
    theirs = dialects.dialect(name).budget(tokens, max_bytes, None)
    if budget is None:
        assert theirs.limit > 1 << 60
    else:
        assert (theirs.limit, theirs.meter.name) == (budget.limit, budget.meter.name)


def test_the_ceiling_follows_what_is_configured() -> None:
    assert Policy(tokens=30_000).allowance.ceiling == 30_000
    assert Policy(bytes=400_000).allowance.ceiling == 100_000
    assert Policy(dialect="transcend", tokens=30_000).allowance.ceiling == 10_000
    # Less than the default: then that is the default.
    assert Policy(max_tokens=3000).allowance.limit == 3000


def test_a_call_keeps_the_ceiling_of_its_policy() -> None:
    policy = Policy(tokens=30_000).with_budget(500)
    assert policy.allowance.ceiling == 30_000
    assert policy.with_budget(25_000).tokens == 25_000
