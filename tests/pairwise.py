"""Parametrize over pairs: each pair of values of two factors occurs at least once.

Most faults need one or two factors to show. Five dialects, three libraries and two eras make 30 combinations,
but 15 cases have every dialect with every library, every library with every era, and every dialect with every era.
"""

from __future__ import annotations

from collections.abc import Collection
from heapq import heappop, heapreplace
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
    """The indices of each case. Greedy: the first combination that adds the most new pairs, until all are in.

    What a combination would add only falls as others are chosen: a figure from earlier need not be counted again
    while another combination is ahead of it.
    """
    candidates = list(product(*(range(len(of)) for of in values)))
    missing = {pair for row in candidates for pair in combinations(enumerate(row), 2)}
    ahead = [(-len(values) * len(values), index) for index in range(len(candidates))]
    chosen = []
    while missing:
        expected, index = ahead[0]
        new = missing & set(combinations(enumerate(candidates[index]), 2))
        if len(new) == -expected:
            heappop(ahead)
            missing -= new
            chosen.append(candidates[index])
        else:
            heapreplace(ahead, (-len(new), index))
    return chosen
