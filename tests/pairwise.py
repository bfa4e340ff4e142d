"""Parametrize over pairs: each pair of values of two factors occurs at least once.

Most faults need one or two factors to show. Five dialects, three libraries and two eras make 30 combinations,
but 15 cases have every dialect with every library, every library with every era, and every dialect with every era.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations, product
from typing import Any

import pytest


def pairwise(**factors: Collection[Any]) -> pytest.MarkDecorator:
    """Like `pytest.mark.parametrize` with each factor in turn, but with enough cases to cover all pairs only."""
    values = [list(factor) for factor in factors.values()]
    return pytest.mark.parametrize(
        list(factors), [[of[index] for of, index in zip(values, row, strict=True)] for row in rows(values)]
    )


def rows(values: list[list[Any]]) -> list[tuple[int, ...]]:
    """The indices of each case. Greedy: the first combination that adds the most new pairs, until all are in."""
    candidates = {
        row: set(combinations(enumerate(row), 2)) for row in product(*(range(len(of)) for of in values))
    }
    missing = set().union(*candidates.values())
    chosen = []
    while missing:
        row = max(candidates, key=lambda row: len(candidates[row] & missing))
        missing -= candidates.pop(row)
        chosen.append(row)
    return chosen
