"""Every dialect under an explicit budget: what is counted is what is sent."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from mcp_envelope import Cut, seal
from mcp_envelope.budget import Budget

from ..shown import shown

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
    for lane in (shown(sealed.content), sealed.structured):
        assert lane is None or limit.holds(lane)


def _units(text: str) -> int:
    return -(-(len(text.encode("utf-16-le")) // 2) // 4)


def _with_one_more(envelope: dict[str, Any], name: str, item: Any, cut: Cut) -> int:
    """Count, by hand, what the envelope would use with one more item in a list."""
    larger = copy.deepcopy(envelope)
    larger["data"][name].append(item)
    dropped = larger["dropped"]
    if dropped["kind"] == name:
        dropped["count"] -= 1
    dropped["note"] = dropped["note"].replace(f"{cut.dropped} {name}", f"{cut.dropped - 1} {name}")
    dropped["note"] = dropped["note"].replace(f"offset={cut.kept})", f"offset={cut.kept + 1})")
    return _units(json.dumps(larger, ensure_ascii=False, separators=(",", ":")))


SHAPES: dict[str, dict[str, list[Any]]] = {
    "numbers": {"results": list(range(20_000))},
    "rows": {"results": [{"n": n, "name": f"row {n}"} for n in range(4000)]},
    "not ASCII": {"results": [f"Zeile {n} «äöü» 😀" for n in range(4000)]},
    "uneven": {"results": ["x" * (n * 7919 % 90) for n in range(4000)]},
    "tiny beside large": {"results": [1] * 9000, "other": ["y" * 30] * 900},
    "three lists": {name: [{"id": n, "of": name} for n in range(2000)] for name in ("a", "b", "c")},
    "ranked": {"references": [{"file": f"f{n % 7}.py", "line": n} for n in range(3000)]},
    "neighbours": {"neighbors": [{"id": n, "hubScore": n * 31 % 97, "depth": n % 3} for n in range(3000)]},
}
ORDERS: dict[str, Callable[[Any], Any]] = {
    "references": lambda item: (item["file"], item["line"]),
    "neighbors": lambda item: -item["hubScore"],
}


@pytest.mark.parametrize("handle", [None, "aB3dE6gH9jK2mN5pQ8sT1v"])
@pytest.mark.parametrize("tokens", [100, 137, 500, 2000, 10_000])
@pytest.mark.parametrize("shape", SHAPES)
def test_transcend_keeps_the_largest_prefix_that_fits(shape: str, tokens: int, handle: str | None) -> None:
    payload = SHAPES[shape]
    sealed = seal(payload, dialect="transcend", tokens=tokens, handle=handle)
    text = json.loads(sealed.content)[0]["text"]
    envelope = json.loads(text)
    assert envelope["tokenBudget"]["used"] == _units(text) <= tokens
    cuts = {cut.path: cut for cut in sealed.cuts}
    for name, items in payload.items():
        ordered = sorted(items, key=ORDERS[name]) if name in ORDERS else items
        shown = envelope["data"][name]
        assert shown == ordered[: len(shown)], "a prefix of the ranked list"
        if len(shown) < len(items) - 1 and len(cuts) == len(payload):
            cut = cuts[f"/{name}"]
            assert cut.kept == len(shown)
            assert _with_one_more(envelope, name, ordered[len(shown)], cut) > tokens, "one more would fit"


@pytest.mark.parametrize("limit", [200, 500, 8192])
@pytest.mark.parametrize("shape", ["numbers", "rows", "not ASCII", "uneven"])
def test_ctxo_keeps_the_largest_prefix_that_fits(shape: str, limit: int) -> None:
    items = SHAPES[shape]["results"]
    sealed = seal({"results": items}, dialect="ctxo", max_bytes=limit)
    text = json.loads(sealed.content)[0]["text"]
    document = json.loads(text)
    kept = len(document["results"])
    assert document["results"] == items[:kept]
    assert len(text.encode()) <= limit
    document["results"].append(items[kept])
    document["_meta"]["returnedItems"] += 1
    assert len(json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()) > limit


@pytest.mark.parametrize("handle", ["aB3dE6gH9jK2mN5pQ8sT1v", None])
@pytest.mark.parametrize("tokens", [100, 110, 140])
def test_a_failure_in_transcend_has_its_hint_under_the_smallest_budgets(
    tokens: int, handle: str | None
) -> None:
    sealed = seal("It broke. " * 400, dialect="transcend", tokens=tokens, handle=handle, is_error=True)
    error = json.loads(sealed.structured or b"")["error"]
    assert list(error)[:2] == ["code", "message"]
    assert error["hint"]


@pytest.mark.parametrize("meter", ["estimate", "chars4", "exact"])
@pytest.mark.parametrize("is_error", [True, False])
@pytest.mark.parametrize(
    "payload", ["It broke. " * 400, {"rows": {str(index): "x" * 99 for index in range(99)}}]
)
def test_the_smallest_budget_of_transcend_holds_for_failures_by_any_meter(
    meter: str, is_error: bool, payload: Any
) -> None:
    handle, warnings = "aB3dE6gH9jK2mN5pQ8sT1v", ["One.", "Two."]
    sealed = seal(
        payload,
        dialect="transcend",
        tokens=100,
        meter=meter,
        handle=handle,
        is_error=is_error,
        warnings=warnings,
    )
    shown = json.loads(sealed.structured or b"")
    assert shown["tokenBudget"]["used"] <= shown["tokenBudget"]["requested"] == 100
    assert handle in shown["dropped"]["note"]


@pytest.mark.parametrize("dialect", ["transcend", "gel", "scalpel"])
def test_a_cut_that_only_the_validator_refuses(dialect: str) -> None:
    """Long texts that begin alike are all different; cut, they are not, and none of them may be left out."""
    schema = {
        "type": "object",
        "properties": {"rows": {"type": "array", "minItems": 8, "uniqueItems": True}},
        "required": ["rows"],
    }
    rows = [f"{'y' * 3000}{number}" for number in range(8)]
    sealed = seal({"rows": rows}, dialect=dialect, tokens=600, schema=schema)
    assert sealed.problem is not None
    assert sealed.problem.code == "RESULT_TOO_LARGE"
