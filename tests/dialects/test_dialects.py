"""What every dialect keeps for any payload: its shape, its limit, its schema."""

from __future__ import annotations

import json
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_envelope import Failure, Miss, Reply, rank, seal
from mcp_envelope.budget import Budget
from mcp_envelope.budget import meter_named as meter
from mcp_envelope.dialects import NAMES, ctxo, dialect, gel
from mcp_envelope.payload import to_json
from mcp_envelope.vault.sqlite import SQLiteStore
from mcp_envelope.vault.vault import Vault

from ..conftest import examples
from ..strategies import Shape, large_values, object_shapes, small_values, words

texts = st.text(max_size=300)
failures = st.builds(
    lambda code, message, hint, details: Failure(code, message, hint, details),
    st.sampled_from(["BAD_ARGS", "NOT_FOUND", "INTERNAL", "MY_OWN_CODE"]),
    texts,
    texts,
    st.none() | st.dictionaries(words.filter(bool), small_values, max_size=3),
)
misses = st.builds(lambda hint, message: Miss(hint, message), texts, st.none() | texts)


@st.composite
def replies(draw: st.DrawFn) -> Reply:
    return Reply(
        draw(large_values.filter(lambda value: value is not None)),
        summary=draw(st.none() | texts),
        details=draw(st.lists(texts, max_size=4)),
        next_steps=draw(st.lists(texts, max_size=3)),
        texts=draw(st.lists(st.text(max_size=3000), max_size=2)),
        warnings=draw(st.lists(texts, max_size=30)),
        hint=draw(st.none() | texts),
        status=draw(st.sampled_from(["ok", "info", "warn", "error"])),
    )


outcomes = st.one_of(large_values, replies(), misses, failures)


def text_of(sealed: Any) -> str:
    return str(json.loads(sealed.content)[0]["text"])


failures_with_data = st.builds(
    lambda code, words, hint, data: Failure(code, words, hint, {"language": "py"}, data=data),
    st.sampled_from(
        ["LSP_UNAVAILABLE", "NOT_FOUND", "A_CODE_OF_A_SERVER_THAT_LIKES_LONG_NAMES_OF_ALL_KINDS"]
    ),
    st.sampled_from(["It failed.", "word " * 300, "漢" * 400, '"\\' * 300]),
    st.sampled_from(["", "Try again.", "word " * 300, "漢" * 400]),
    small_values.filter(lambda value: value is not None),
)


@given(outcome=failures_with_data, tokens=st.integers(-5, 400), handle=st.sampled_from(["h" * 22, "h" * 43]))
@settings(max_examples=examples(150))
def test_a_failure_of_transcend_with_data_is_within_what_was_requested(
    outcome: Any, tokens: int, handle: str
) -> None:
    sealed = seal(outcome, dialect="transcend", tokens=tokens, handle=handle, warnings=["w" * 300])
    result = json.loads(text_of(sealed))
    budget = result["tokenBudget"]
    assert budget["used"] <= budget["requested"]
    assert f'envelope_read(handle="{handle}")' in result["dropped"]["note"]


@given(outcome=outcomes, tokens=st.integers(-5, 12_000), handle=st.none() | st.just("h" * 22))
@settings(max_examples=examples(75))
def test_transcend_never_uses_more_than_requested(outcome: Any, tokens: int, handle: str | None) -> None:
    sealed = seal(outcome, dialect="transcend", tokens=tokens, handle=handle)
    text = text_of(sealed)
    result = json.loads(text)
    budget = result["tokenBudget"]
    assert budget["requested"] == min(max(tokens, 100), 10_000)
    assert budget["used"] == -(-len(text.encode("utf-16-le")) // 2 // 4) or budget["used"] == meter(
        "chars4"
    ).count(text.encode())
    assert budget["used"] <= budget["requested"]
    assert sealed.structured == text.encode()
    assert list(result)[:2] == ["ok", "data" if result["ok"] else "error"]
    assert sealed.is_error == (not result["ok"]) or isinstance(outcome, Reply)
    is_hidden = sealed.problem is not None and sealed.problem.code == "RESULT_TOO_LARGE"
    assert ("dropped" in result) == result["truncated"] == (bool(sealed.cuts) or is_hidden)
    if budget["requested"] != tokens:
        assert result["warnings"]
    jsonschema_rs.validate(dialect("transcend").output_schema(None) or {}, result)


@given(value=large_values, limit=st.integers(1, 20_000), is_own=st.booleans())
@settings(max_examples=examples(75))
def test_ctxo_cuts_a_payload_over_the_limit(value: Any, limit: int, is_own: bool) -> None:
    payload = {"results": value, "files": [value] * 5, "other": 1}
    budget = Budget(limit, meter("bytes"), is_own=True) if is_own else Budget.of(max_bytes=limit)
    sealed = seal(payload, dialect="ctxo", budget=budget)
    text = text_of(sealed)
    result = json.loads(text)
    if not is_own:
        assert len(text.encode()) <= budget.limit
        if "_meta" not in result:
            assert result["error"] is True
            assert sealed.problem is not None
            return
    lists = [member for key, member in result.items() if key in ctxo.TRUNCATABLE and isinstance(member, list)]
    if len(text.encode()) > budget.limit and len(to_json(payload)) > limit:
        assert all(not member for member in lists), "as far as lists can go"
    meta = result.pop("_meta")
    largest = max(
        (value, payload["files"]), key=lambda member: len(member) if isinstance(member, list) else -1
    )
    assert meta["totalItems"] == len(largest)
    assert meta["totalBytes"] == len(to_json(payload))
    assert meta["truncated"] == (result != json.loads(json.dumps(payload)))
    assert ("hint" in meta) == meta["truncated"]
    if len(to_json(payload)) <= limit and is_own:
        assert not meta["truncated"], "at or under the limit a payload is verbatim"


def test_ctxo_uses_its_limit() -> None:
    text = text_of(seal({"results": [{"n": n} for n in range(5000)]}, dialect="ctxo"))
    assert 8192 - 12 <= len(text.encode()) <= 8192
    two = text_of(seal({"results": ["x" * 90] * 500, "files": ["y" * 90] * 400, "n": 1}, dialect="ctxo"))
    assert len(two.encode()) <= 8192
    kept = json.loads(two)
    assert len(kept["results"]) >= 35 <= len(kept["files"]), "two lists share the limit"


@pytest.mark.parametrize("size", [8190, 8191, 8192, 8193])
def test_ctxo_is_verbatim_up_to_the_limit(size: int) -> None:
    payload = {"results": [{"n": n} for n in range(100)], "more": ""}
    payload["more"] = "x" * (size - len(to_json(payload)))
    sealed = seal(payload, dialect="ctxo")
    result = json.loads(text_of(sealed))
    meta = result.pop("_meta")
    assert (result == payload) == (size <= 8192) == (not meta["truncated"])
    assert sealed.over_budget is False
    assert sealed.report.used <= 8192


def test_ctxo_shows_no_item_if_none_fits() -> None:
    payload = {"results": ["x" * 20_000, "small"], "total": 2}
    text = text_of(seal(payload, dialect="ctxo", hint="Ask for one."))
    assert json.loads(text) == {
        "results": [],
        "total": 2,
        "_meta": {
            "totalItems": 2,
            "returnedItems": 0,
            "truncated": True,
            "totalBytes": len(to_json(payload)),
            "hint": "Ask for one.",
        },
    }


@pytest.mark.parametrize("path", ["rows", "/rows"])
def test_ctxo_cuts_lists_that_are_ranked(path: str) -> None:
    sealed = seal({"rows": list(range(9000))}, dialect="ctxo", rank={path: rank("n")})
    shown = json.loads(json.loads(sealed.to_json())["content"][0]["text"])
    assert 0 < len(shown["rows"]) == shown["_meta"]["returnedItems"] < shown["_meta"]["totalItems"] == 9000


def test_ctxo_without_a_list_returns_everything(caplog: pytest.LogCaptureFixture) -> None:
    sealed = seal({"tree": "x" * 20_000}, dialect="ctxo", tool="read_tree")
    assert len(text_of(sealed)) > 20_000
    assert sealed.over_budget
    assert sealed.report.used > sealed.report.limit == 8192
    [record] = caplog.records
    assert "read_tree" in record.getMessage()
    assert "8192" in record.getMessage()


@pytest.mark.parametrize("budget", [{"tokens": 200}, {"max_bytes": 300}])
def test_ctxo_keeps_a_budget_that_is_set_even_without_a_list(budget: dict[str, Any], tmp_path: Path) -> None:
    with closing(Vault(SQLiteStore(tmp_path / "v.db"))) as vault:
        sealed = seal({"tree": "x " * 20_000}, dialect="ctxo", vault=vault.of(None), **budget)
        result = json.loads(text_of(sealed))
        assert list(result) == ["error", "message"]
        assert result["error"] is True
        assert not sealed.is_error, "the contract never sets isError"
        assert sealed.problem is not None
        assert sealed.problem.code == "RESULT_TOO_LARGE"
        assert sealed.report.used <= sealed.report.limit
        assert sealed.handle
        assert sealed.handle in result["message"]
        assert vault.open(sealed.handle).entry.size > 40_000


@given(outcome=outcomes, tokens=st.integers(200, 5000))
@settings(max_examples=examples(50))
def test_gel_is_valid_and_short(outcome: Any, tokens: int) -> None:
    sealed = seal(outcome, dialect="gel", tokens=tokens, handle="h" * 22)
    result = json.loads(sealed.structured or b"")
    assert list(result) == ["meta", "data"]
    jsonschema_rs.validate(dialect("gel").output_schema(None) or {}, result)
    assert len(result["meta"]["summary"]) <= 80
    content = json.loads(sealed.content)
    shown = sum(len(block["text"]) for block in content if block["type"] == "text")
    assert shown <= gel.INLINE_CHARACTERS
    assert content[0]["text"].startswith(tuple(gel.EMOJI.values()))
    links = [block for block in content if block["type"] == "resource_link"]
    assert bool(result["meta"].get("truncated")) == (
        f"envelope://{'h' * 22}" in [link["uri"] for link in links]
    )
    assert sealed.is_error == (result["meta"]["status"] == "error")
    assert sealed.report.used <= tokens


@pytest.mark.parametrize("name", [name for name in NAMES if name != "ctxo"])
@given(shape=object_shapes, data=st.data(), tokens=st.integers(150, 3000))
@settings(max_examples=examples(30))
def test_the_published_schema_covers_what_is_emitted(
    name: str, shape: Shape, data: st.DataObject, tokens: int
) -> None:
    spoken = dialect(name)
    published = spoken.output_schema(shape.schema)
    assert published is not None
    assert published["type"] == "object"
    payload = data.draw(shape.values)
    for outcome in (
        payload,
        Reply(payload, warnings=["w"]),
        Miss("look elsewhere"),
        Failure("BAD_ARGS", "no"),
    ):
        schema = published if name == "native" else shape.schema
        sealed = seal(outcome, dialect=name, tokens=tokens, schema=schema, handle="abc")
        if sealed.structured is not None:
            result = json.loads(sealed.structured)
            assert jsonschema_rs.is_valid(published, result), (published, result)


@given(outcome=outcomes, profile=st.sampled_from(["minimal", "standard", "debug"]))
@settings(max_examples=examples(50))
def test_scalpel_shows_what_the_profile_says(outcome: Any, profile: Any) -> None:
    sealed = seal(outcome, dialect="scalpel", profile=profile, tool="t", duration_ms=1.5)
    result = json.loads(text_of(sealed))
    failed = isinstance(outcome, Failure | Miss)
    if profile == "minimal":
        assert list(result) == ["error" if failed else "data"]
    elif profile == "debug":
        assert len(result) == 9
        assert (result["error"] is not None) == failed
    assert sealed.structured == text_of(sealed).encode()
    assert not sealed.is_error
    if not failed:
        data = outcome.data if isinstance(outcome, Reply) else outcome
        if isinstance(data, str) and data.lstrip()[:1] in tuple("[{"):
            with suppress(ValueError):
                # JSON as text is the document that it spells.
                data = json.loads(data)
        assert result["data"] == json.loads(json.dumps(data)), "there is no budget, so nothing is cut"


@pytest.mark.parametrize("name", NAMES)
def test_every_dialect_tells_of_a_cut_in_the_text(name: str) -> None:
    payload = {"results": [{"n": n, "text": "some words"} for n in range(3000)]}
    sealed = seal(payload, dialect=name, max_bytes=2000, handle="abc", hint="Ask for less.")
    said = sealed.content.decode()
    assert "3000" in said or "Dropped" in said
    assert "Ask for less." in said or "abc" in said
    if sealed.structured is not None and name != "scalpel":
        assert "Ask for less." in sealed.structured.decode()
    assert sealed.report.used <= 2000


@pytest.mark.parametrize("name", NAMES)
def test_a_plain_value_works_in_every_dialect(name: str) -> None:
    for value in (
        {"a": 1},
        [1, 2],
        "text",
        5,
        None,
        True,
        b'{"raw": 1.0}',
        [{"type": "text", "text": "block"}],
    ):
        json.loads(seal(value, dialect=name).to_json())


def test_transcend_names_members_that_were_dropped_once() -> None:
    sealed = seal({f"k{n}": "x" * 90 for n in range(40)}, dialect="transcend", tokens=100)
    dropped = json.loads(sealed.structured or b"")["dropped"]
    assert dropped["kind"] == "properties"
    assert dropped["note"].startswith(f"Dropped {dropped['count']} properties to fit")


@pytest.mark.parametrize("name", ["native", "transcend", "gel"])
def test_rankings_of_a_reply_are_used(name: str) -> None:
    reply = Reply({"rows": [{"n": n} for n in range(3000)]}, rank={"/rows": rank("-n")})
    result = json.loads(seal(reply, dialect=name, tokens=400).structured or b"")
    assert result.get("data", result)["rows"][0] == {"n": 2999}


def test_an_unknown_dialect_is_named() -> None:
    with pytest.raises(ValueError, match="native, ctxo, transcend, gel, scalpel"):
        seal({}, dialect="klingon")


@pytest.mark.parametrize("name", NAMES)
def test_only_our_own_leaves_a_payload_as_it_came(name: str) -> None:
    assert seal({"results": [1]}, dialect=name).untouched == (name == "native")
