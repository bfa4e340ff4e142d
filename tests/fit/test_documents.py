"""The fitter by itself: shares, and cuts that were tried and given up."""

from __future__ import annotations

import gc
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_envelope.fit.documents import FitNode, Fitter, share
from mcp_envelope.jsontext.document import encode, parse


@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=1, max_size=12),
    st.integers(0, 3000),
)
def test_shares_are_fair_and_within_the_room(pairs: list[tuple[int, int]], room: int) -> None:
    sizes = [max(pair) for pair in pairs]
    floors = [min(pair) for pair in pairs]
    shares = share(sizes, floors, room)
    if sum(floors) > room:
        assert shares is None
        return
    assert shares is not None

    def at(level: int) -> list[int]:
        return [min(size, max(floor, level)) for size, floor in zip(sizes, floors, strict=True)]

    # There is one level for all, and the next one would be too high.
    assert sum(shares) <= room
    level = max(level for level in range(max(sizes) + 1) if sum(at(level)) <= room)
    assert shares == at(level)


def test_what_was_tried_and_given_up_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [{"rows": list(range(300))}, {"s": json.dumps(list(range(600)))}, {"rows": [1]}]
    monkeypatch.setattr(Fitter, "_fit_json_string", lambda *_: None)
    fitted = Fitter(parse(encode(items))).fit(1500)
    assert fitted is not None
    assert json.loads(fitted.json) == items[:1]
    assert [(cut.path, cut.kept, cut.total) for cut in fitted.cuts] == [("", 1, 3)]


def test_what_was_fitted_is_let_go_at_once() -> None:
    """A payload may be large: it must not stay until somebody looks for rings of references."""
    node = parse(json.dumps({"a": [{"b": json.dumps([{"c": "x" * 50}] * 50)}] * 20}).encode())
    gc.collect()
    gc.disable()
    try:
        fitter = Fitter(node)
        assert fitter.fit(400) is not None
        assert any(isinstance(each, FitNode) for each in gc.get_objects())
        del fitter
        assert not any(isinstance(each, FitNode) for each in gc.get_objects())
    finally:
        gc.enable()
