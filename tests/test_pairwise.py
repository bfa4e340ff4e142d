"""That no pair is missing, and how much is saved."""

from __future__ import annotations

from itertools import combinations

import pytest

from .pairwise import rows


@pytest.mark.parametrize(
    ("sizes", "count"),
    [((2, 3), 6), ((2, 2, 2), 4), ((5, 3, 2), 15), ((5, 2, 2, 2), 10), ((3, 5, 2, 2), 15), ((23, 2, 2), 46)],
)
def test_every_pair_is_there(sizes: tuple[int, ...], count: int) -> None:
    chosen = rows([list(range(size)) for size in sizes])
    assert len(chosen) == len(set(chosen)) == count
    for (one, first), (two, second) in combinations(enumerate(sizes), 2):
        assert len({(row[one], row[two]) for row in chosen}) == first * second
