"""The first two promises, as properties over payloads, schemas, budgets and meters: it fits, it is valid.

With them what makes the third possible: every omission is named, with figures that add up, and nothing that
is not named has changed.
"""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_envelope import Cut, Schema, Sealed, seal, widen
from mcp_envelope.budget import Budget
from mcp_envelope.vault.vault import open_vault

from .conftest import examples
from .shown import shown
from .strategies import (
    Shape,
    blocks,
    budgets,
    large_values,
    long_texts,
    object_shapes,
    recursive_shapes,
    shapes,
)

HANDLE = "0123456789abcdefghijklmnopqrstuv"
_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
handles = st.sampled_from([None, "h" * 22, HANDLE, "x" * 43])


def thorough(count: int) -> settings:
    return settings(max_examples=examples(count))


def check_fits(sealed: Sealed, budget: dict[str, Any]) -> None:
    limit = Budget.of(**budget)
    structured = sealed.structured
    if structured is not None and b"\\u" in structured:
        # Clients decode it and write it anew. Numbers stay as they are: Python spells some longer than others do.
        structured = _JSON_STRING.sub(
            lambda each: json.dumps(json.loads(each[0]), ensure_ascii=False), structured.decode()
        ).encode()
    for lane in (shown(sealed.content), structured):
        if lane is not None:
            assert limit.meter.count(lane) <= limit.limit, lane
    assert sealed.report.used <= sealed.report.limit


def check_wire(sealed: Sealed) -> None:
    result = json.loads(sealed.to_json())
    assert isinstance(result["content"], list)
    assert all(block["type"] for block in result["content"])
    assert b"\n" not in sealed.to_json()
    if sealed.truncated:
        assert "_meta" in result
    if sealed.content_cuts:
        told = json.dumps(result["content"])
        assert "Cut to fit" in told or "howing" in told or "eft out" in told or "not kept" in told, told


def step_into(value: Any, step: str) -> Any:
    if isinstance(value, str):
        value = json.loads(value)
    if isinstance(value, list):
        return value[int(step)]
    return value[step.replace("~1", "/").replace("~0", "~")]


def check_same(original: Any, fitted: Any, cuts: dict[str, Cut], path: str, seen: set[str]) -> None:
    """Whatever differs is named by a cut at that path, and the figures are right."""
    cut = cuts.get(path)
    if isinstance(original, str):
        if cut is not None and cut.kind == "characters":
            seen.add(path)
            assert cut.total == len(original)
            assert fitted.startswith(original[: cut.kept])
            assert fitted != original
            return
        if fitted != original:
            # A string that holds JSON: still JSON, cut inside.
            check_same(json.loads(original), json.loads(fitted), cuts, path, seen)
        return
    if isinstance(original, list):
        assert isinstance(fitted, list)
        if cut is None:
            assert len(fitted) == len(original), path
        else:
            seen.add(path)
            assert cut.kind == "items"
            assert (cut.kept, cut.total) == (len(fitted), len(original))
            assert cut.kept < cut.total
        for index, item in enumerate(fitted):
            check_same(original[index], item, cuts, f"{path}/{index}", seen)
        return
    if isinstance(original, dict):
        assert isinstance(fitted, dict)
        if cut is None:
            assert list(fitted) == list(original), path
        else:
            seen.add(path)
            assert cut.kind == "properties"
            assert (cut.kept, cut.total) == (len(fitted), len(original))
            assert [key for key in original if key in fitted] == list(fitted)
        for key, value in fitted.items():
            step = key.replace("~", "~0").replace("/", "~1")
            check_same(original[key], value, cuts, f"{path}/{step}", seen)
        return
    assert fitted == original, path
    assert type(fitted) is type(original), path


def check_announced(payload: Any, sealed: Sealed, wrap: bool = False) -> None:
    if sealed.structured is None or sealed.is_error:
        return
    fitted = json.loads(sealed.structured)
    if wrap:
        fitted = fitted["result"]
    elif isinstance(fitted, dict) and "_envelope" not in payload:
        said = fitted.pop("_envelope", None)
        assert (said is not None) <= bool(sealed.truncated or sealed.warnings)
    seen: set[str] = set()
    cuts = {cut.path: cut for cut in sealed.structured_cuts}
    assert len(cuts) == len(sealed.structured_cuts), "one cut at a path"
    check_same(json.loads(json.dumps(payload)), fitted, cuts, "", seen)
    assert seen == set(cuts), "every cut that is named was made"


@given(payload=large_values, budget=budgets, handle=handles)
@thorough(200)
def test_any_json(payload: Any, budget: dict[str, Any], handle: str | None) -> None:
    before = copy.deepcopy(payload)
    sealed = seal(
        payload, **budget, handle=handle, read_as="json" if not isinstance(payload, str) else "auto"
    )
    assert payload == before, "the caller's object is as it was"
    check_fits(sealed, budget)
    check_wire(sealed)
    if not isinstance(payload, str):
        check_announced(payload, sealed)
    again = seal(
        copy.deepcopy(payload),
        **budget,
        handle=handle,
        read_as="json" if not isinstance(payload, str) else "auto",
    )
    assert again.to_json() == sealed.to_json(), "equal input gives equal output"


@given(payload=large_values, budget=budgets, indent=st.sampled_from([None, 2]))
@thorough(150)
def test_raw_json_that_fits_is_untouched(payload: Any, budget: dict[str, Any], indent: int | None) -> None:
    raw = json.dumps(payload, indent=indent, ensure_ascii=False).encode()
    sealed = seal(raw, **budget)
    check_fits(sealed, budget)
    limit = Budget.of(**budget)
    fits = limit.holds(raw)
    if fits and limit.warning is None:
        assert not sealed.truncated
        assert json.loads(sealed.content)[0]["text"].encode() == raw
        if isinstance(payload, dict):
            assert sealed.structured == raw
    elif not sealed.is_error:
        check_announced(payload, sealed)


def check_shape(shape: Shape, data: st.DataObject, budget: dict[str, Any], handle: str | None) -> None:
    payload = data.draw(shape.values)
    assert jsonschema_rs.is_valid(shape.schema, payload)
    widened = widen(shape.schema)
    advertised = jsonschema_rs.validator_for(widened.schema)
    schema = Schema.of(widened.schema)
    before = copy.deepcopy(payload)
    value = json.dumps(payload).encode() if isinstance(payload, str) else payload
    sealed = seal(value, **budget, schema=schema, wrap=widened.wrapped, handle=handle, read_as="json")
    assert payload == before
    check_fits(sealed, budget)
    check_wire(sealed)
    if sealed.structured is None:
        assert sealed.is_error
        assert "RESULT_TOO_LARGE" in sealed.content.decode()
    else:
        result = json.loads(sealed.structured)
        assert advertised.is_valid(result), result
        if sealed.structured_cuts:
            assert result["_envelope"]["truncated"] is True
    check_announced(payload, sealed, widened.wrapped)


@given(shape=st.one_of(object_shapes, shapes), data=st.data(), budget=budgets, handle=handles)
@thorough(200)
def test_any_schema(shape: Shape, data: st.DataObject, budget: dict[str, Any], handle: str | None) -> None:
    check_shape(shape, data, budget, handle)


@given(shape=recursive_shapes(), data=st.data(), budget=budgets, handle=handles)
@thorough(150)
def test_recursive_schemas(
    shape: Shape, data: st.DataObject, budget: dict[str, Any], handle: str | None
) -> None:
    check_shape(shape, data, budget, handle)


@given(shape=object_shapes, data=st.data(), budget=budgets)
@thorough(100)
def test_a_schema_as_it_is_given_is_kept_too(
    shape: Shape, data: st.DataObject, budget: dict[str, Any]
) -> None:
    """Nobody widened it: a closed schema then keeps the notice out, and the result is still valid."""
    payload = data.draw(shape.values)
    sealed = seal(payload, **budget, schema=shape.schema)
    check_fits(sealed, budget)
    if sealed.structured is not None:
        assert jsonschema_rs.is_valid(shape.schema, json.loads(sealed.structured))


def holds_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict | list)
    except ValueError:
        return False


@given(
    content=st.lists(blocks, min_size=1, max_size=8), budget=budgets, handle=handles, is_error=st.booleans()
)
@thorough(150)
def test_any_blocks(content: list[Any], budget: dict[str, Any], handle: str | None, is_error: bool) -> None:
    before = copy.deepcopy(content)
    sealed = seal(content, **budget, handle=handle, is_error=is_error)
    assert content == before
    check_fits(sealed, budget)
    check_wire(sealed)
    result = json.loads(sealed.content)
    if not sealed.truncated and not sealed.warnings:
        assert result == content
    limit = Budget.of(**budget)
    if limit.holds(shown(content)):
        assert not sealed.truncated or limit.warning
    paths = {cut.path: cut for cut in sealed.cuts}
    total = paths["/content"].kept if "/content" in paths else len(content)
    if sealed.is_error and not is_error:
        return
    # The note comes first.
    result = result[len(result) - total :]
    for index, block in enumerate(content[:total]):
        named = [
            path for path in paths if path == f"/content/{index}" or path.startswith(f"/content/{index}/")
        ]
        if not named:
            # Whitespace and escapes may go before anything is cut, and a warning says so.
            respelled = sealed.warnings and holds_json(block.get("text", ""))
            assert respelled or result[index] == block
        elif block["type"] == "text" and "annotations" in block:
            assert result[index]["annotations"] == block["annotations"]
        if holds_json(block.get("text", "")) and not any(paths[path].kind == "bytes" for path in named):
            assert holds_json(result[index]["text"])


@given(
    text=st.one_of(long_texts(40_000), st.text(max_size=300)),
    budget=budgets,
    handle=handles,
    is_error=st.booleans(),
)
@thorough(150)
def test_any_text(text: str, budget: dict[str, Any], handle: str | None, is_error: bool) -> None:
    try:
        held = json.loads(text)
    except ValueError:
        held = None
    sealed = seal(text, **budget, handle=handle, is_error=is_error)
    check_fits(sealed, budget)
    check_wire(sealed)
    result = json.loads(sealed.content)
    if not sealed.truncated and not sealed.warnings:
        assert result == [{"type": "text", "text": text}]
    elif sealed.truncated and not isinstance(held, dict | list):
        (cut,) = sealed.cuts
        assert cut.total == len(text)
        assert result[-1]["text"].startswith(text[: cut.offset])
        assert cut.dropped > 0


lines = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=90), min_size=1, max_size=6
)


@given(some=lines, budget=budgets, is_error=st.booleans(), inside=st.booleans())
@thorough(150)
def test_lines_of_text_can_always_be_cut(
    some: list[str], budget: dict[str, Any], is_error: bool, inside: bool
) -> None:
    text = ("\n".join(some) + "\n") * 3000
    payload: Any = [{"type": "text", "text": text}] if inside else text
    sealed = seal(payload, **budget, is_error=is_error, read_as="blocks" if inside else "text")
    assert "RESULT_TOO_LARGE" not in sealed.content.decode()
    if not sealed.truncated:
        return
    assert sealed.cuts[0].kept > 0 or not text.strip()
    assert sealed.report.used > 0.6 * sealed.report.limit


def test_no_budget_is_unlucky_for_a_log() -> None:
    log = "".join(f"2026-01-02 10:{n % 60:02} INFO worker {n} finished job {n * 7919}\n" for n in range(3000))
    # Not every one, and neither the even nor the round ones only.
    for tokens in range(128, 1200, 21):
        sealed = seal(log, tokens=tokens)
        assert not sealed.is_error, tokens
        assert sealed.report.used > 0.8 * tokens - 30, tokens


@pytest.mark.parametrize("meter", ["bytes", "estimate", "chars4", "exact"])
@pytest.mark.parametrize("handle", [None, "x" * 43])
@pytest.mark.parametrize(
    "payload",
    [
        {"n": int("9" * 4000)},
        {"deep": json.loads("[" * 90 + "1" + "]" * 90), "text": "漢" * 5000},
        [int("9" * 4000)],
        "😀" * 9000,
        '"\\' * 9000,
        {"\\\n" * 900: 1},
        [{"type": "image", "data": "A" * 9000, "mimeType": "m" * 9000}],
        [{"type": "resource_link", "uri": "u" * 9000, "name": "n" * 9000}] * 20,
        b"[" * 5000 + b"]" * 5000,
        {"id": int("9" * 4000), "text": "漢é" * 40_000},
    ],
)
def test_the_smallest_budget_is_kept(payload: Any, handle: str | None, meter: str) -> None:
    budget = {"max_bytes": 1} if meter == "bytes" else {"tokens": 1, "meter": meter}
    sealed = seal(payload, **budget, handle=handle, hint="h" * 500, warnings=["w" * 300] * 5)
    check_fits(sealed, budget)
    check_wire(sealed)
    assert sealed.truncated
    if handle:
        assert handle.encode() in sealed.content


def test_whitespace_that_goes_beside_a_cut_is_announced(tmp_path: Path) -> None:
    rows = [{"id": number, "name": f"row {number}"} for number in range(12)]
    blob = {"type": "resource", "resource": {"uri": "file:///b", "blob": "QUJD" * 400}}
    sealed = seal([blob, {"type": "text", "text": json.dumps(rows, indent=8)}], tokens=250)
    assert [cut.path for cut in sealed.cuts] == ["/content/0"]
    assert "without its whitespace" in sealed.content.decode()


@pytest.mark.parametrize("kind", ["object", "list", "block", "resource"])
def test_whitespace_goes_before_anything_else_and_is_announced(kind: str, tmp_path: Path) -> None:
    rows = [{"id": number, "name": f"row {number}"} for number in range(60)]
    text = json.dumps(rows if kind == "list" else {"rows": rows}, indent=8)
    payload: Any = text
    if kind == "block":
        payload = [{"type": "text", "text": "Rows:"}, {"type": "text", "text": text}]
    elif kind == "resource":
        payload = [{"type": "resource", "resource": {"uri": "file:///rows.json", "text": text}}]
    vault = open_vault(str(tmp_path / "vault.db"), ttl=100, cap=1 << 30)
    assert vault is not None
    sealed = seal(payload, tokens=900, vault=vault.of(None), read_as="auto" if payload is text else "blocks")
    assert not sealed.truncated
    said = sealed.content.decode()
    assert "row 59" in said
    assert "without its whitespace" in said
    assert sealed.handle is not None
    assert sealed.handle in said
    stored = vault.open(sealed.handle).entry.size
    assert stored >= len(text)
    # With room for all of it, nothing changes and nothing is said.
    assert "whitespace" not in seal(payload, tokens=4000).content.decode()
    vault.close()
