"""Several limits hold at once: tokens or bytes, and what the client takes in bytes, characters and lines."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_envelope import seal
from mcp_envelope.budget import Budget, Caps, meter_named
from mcp_envelope.clients.known import client, table
from mcp_envelope.dialects.notice import META_KEY
from mcp_envelope.vault.read_tool import read
from mcp_envelope.vault.sqlite import SQLiteStore
from mcp_envelope.vault.vault import Vault
from tests.shown import shown

NAMES = st.text('abcdeé漢😀 \n\t"\\', max_size=60)
ROWS = st.lists(st.fixed_dictionaries({"n": st.integers(), "name": NAMES}), min_size=1, max_size=8).map(
    lambda some: some * 60
)
PAYLOADS: st.SearchStrategy[Any] = st.one_of(
    ROWS,
    ROWS.map(lambda rows: {"rows": rows, "total": len(rows)}),
    st.lists(NAMES, min_size=1, max_size=9).map(lambda lines: "\n".join(lines * 90)),
    ROWS.map(lambda rows: [{"type": "text", "text": json.dumps(row)} for row in rows]),
    st.lists(NAMES, min_size=1, max_size=4).map(
        lambda lines: [{"type": "text", "text": line * 200} for line in lines]
    ),
)
LIMITS = st.builds(
    Caps,
    st.none() | st.integers(700, 6000),
    st.none() | st.integers(700, 6000),
    st.none() | st.integers(12, 200),
    st.none() | st.integers(700, 3000),
)


def within(text: bytes, caps: Caps, is_error: bool) -> bool:
    words = text.decode()
    # As JavaScript counts, in which most clients are written.
    size = len(words.encode("utf-16-le")) // 2
    most = [caps.characters, caps.error_characters if is_error else None]
    return (
        len(text) <= (caps.max_bytes or len(text))
        and size <= min([each for each in most if each is not None], default=size)
        and words.count("\n") + 1 <= (caps.lines or 1 << 30)
    )


@given(payload=PAYLOADS, caps=LIMITS, limit=st.integers(300, 4000), is_error=st.booleans())
def test_a_result_is_within_all_limits(payload: Any, caps: Caps, limit: int, is_error: bool) -> None:
    budget = Budget(limit, meter_named("estimate"), caps=caps)
    sealed = seal(payload, budget=budget, is_error=is_error or None)
    lanes = [shown(sealed.content), *([sealed.structured] if sealed.structured else [])]
    for lane in lanes:
        assert budget.meter.count(lane) <= limit
        assert within(lane, caps, is_error)


def test_a_character_beyond_the_first_plane_counts_as_two() -> None:
    budget = Budget(9000, meter_named("estimate"), caps=Caps(error_characters=3000))
    (block,) = json.loads(seal("😀" * 2000, budget=budget, is_error=True).content)[-1:]
    assert block["text"].count("😀") <= 1500
    text = ("😀 " * 1000).encode()
    assert Caps(characters=3000).load(text, 100) == 100
    assert Caps(characters=2999).load(text, 100) == 101


@given(payload=PAYLOADS, caps=LIMITS, limit=st.integers(300, 4000))
def test_offsets_are_true_under_all_limits(
    tmp_path_factory: pytest.TempPathFactory, payload: Any, caps: Caps, limit: int
) -> None:
    """What the model has seen ends where the note says, so that reading on from there misses nothing."""
    vault = Vault(SQLiteStore(tmp_path_factory.mktemp("vault") / "v.db"))
    budget = Budget(limit, meter_named("estimate"), caps=caps)
    sealed = seal(payload, budget=budget, vault=vault.of(None))
    cuts = [cut for cut in sealed.cuts if cut.kind == "items" and cut.kept == cut.offset]
    for cut in cuts:
        rows = payload if isinstance(payload, list) else payload["rows"]
        document = json.loads(sealed.structured or json.loads(sealed.content)[-1]["text"])
        assert (document if isinstance(document, list) else document["rows"]) == rows[: cut.kept]
        page = read(vault, {"handle": sealed.handle, "path": cut.path, "offset": cut.offset}, budget=budget)
        assert within(shown(page.content), caps, False)
        assert json.loads(json.loads(page.content)[-1]["text"])[0] == rows[cut.kept]
        assert META_KEY in page.to_result().get("_meta", {META_KEY: 0})


@pytest.mark.parametrize("name", sorted({entry.names[0] for entry in table().values()}))
def test_the_limits_of_each_client_leave_room_for_a_notice(name: str) -> None:
    known = client(name.replace("*", "x"))
    caps = known.caps
    assert known.lane in ("structured", "content", "both", "unknown")
    if caps is not None:
        for least in (caps.max_bytes, caps.characters, caps.error_characters):
            assert least is None or least >= 4000
        assert caps.lines is None or caps.lines >= 100


@pytest.mark.parametrize("dialect", ["ctxo", "transcend", "gel", "scalpel"])
@given(payload=PAYLOADS, caps=LIMITS, limit=st.integers(1000, 4000))
def test_every_dialect_is_within_all_limits(dialect: str, payload: Any, caps: Caps, limit: int) -> None:
    budget = Budget(limit, meter_named("estimate"), caps=caps)
    content = shown(seal(payload, budget=budget, dialect=dialect).content)
    assert budget.load(content, budget.meter.count(content)) <= limit


def test_ctxo_keeps_a_limit_of_the_client_with_texts_beside_the_data() -> None:
    budget = Budget(5000, meter_named("estimate"), caps=Caps(max_bytes=8000))
    for payload in ({"results": ["error 漢字"] * 1200}, {"text": "error 漢字 " * 1200}):
        assert len(shown(seal(payload, budget=budget, dialect="ctxo").content)) <= 8000
