"""Images, sounds, resources and links stay content blocks in every dialect, within the same budget."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_envelope import seal
from mcp_envelope.dialects import NAMES
from mcp_envelope.dialects.notice import META_KEY
from mcp_envelope.envelope import Sealed
from mcp_envelope.payload import read_result
from mcp_envelope.vault.vault import open_vault

from ..conftest import examples
from ..shown import shown as as_shown
from ..strategies import blocks as any_block
from ..strategies import small_values

OTHERS = [name for name in NAMES if name != "native"]
HANDLE = "aB3dE6gH9jK2mN5pQ8sT1v"
TEXT = {"type": "text", "text": "words"}
IMAGE = {"type": "image", "data": "aGk=" * 10, "mimeType": "image/png"}
SOUND = {"type": "audio", "data": "aGk=" * 10, "mimeType": "audio/wav"}
LINK = {"type": "resource_link", "uri": "file:///x", "name": "x"}
RESOURCE = {"type": "resource", "resource": {"uri": "file:///t", "text": "inside", "mimeType": "text/x"}}
BLOB = {"type": "resource", "resource": {"uri": "file:///b", "blob": "aGk="}}


def content(sealed: Sealed) -> list[Any]:
    found: list[Any] = json.loads(sealed.content)
    return found


def data(sealed: Sealed) -> Any:
    if sealed.structured is not None:
        return json.loads(sealed.structured)["data"]
    return json.loads(content(sealed)[0]["text"])["results"]


@pytest.mark.parametrize("dialect", OTHERS)
def test_blocks_stay_blocks(dialect: str) -> None:
    sealed = seal([TEXT, IMAGE, SOUND, LINK, RESOURCE, BLOB], dialect=dialect)
    assert content(sealed)[-5:] == [IMAGE, SOUND, LINK, RESOURCE, BLOB]
    assert content(sealed)[0]["type"] == "text"
    assert not sealed.truncated
    assert data(sealed) == [
        TEXT,
        {"type": "image", "mimeType": "image/png"},
        {"type": "audio", "mimeType": "audio/wav"},
        {"type": "resource_link", "name": "x", "uri": "file:///x"},
        {"type": "resource", "mimeType": "text/x", "uri": "file:///t"},
        {"type": "resource", "uri": "file:///b"},
    ]


@pytest.mark.parametrize("dialect", OTHERS)
def test_blocks_beside_a_structure(dialect: str) -> None:
    payload = read_result([msgspec.json.encode(IMAGE)], b'{"results":[1]}')
    sealed = seal(payload, dialect=dialect)
    assert content(sealed)[-1] == IMAGE
    assert data(sealed) == [1] if dialect == "ctxo" else {"results": [1]}
    assert "not shown" not in sealed.content.decode()


@pytest.mark.parametrize("dialect", ["transcend", "gel", "scalpel", "ctxo"])
def test_a_block_that_is_too_large_is_announced_and_kept(dialect: str, tmp_path: Any) -> None:
    vault = open_vault(str(tmp_path / "vault.db"))
    assert vault is not None
    large = {**IMAGE, "data": "aGk=" * 40_000}
    sealed = seal([TEXT, large, LINK], dialect=dialect, tokens=1000, vault=vault.of(None))
    shown = content(sealed)
    assert LINK in shown
    assert all(block["type"] in ("text", "resource_link") for block in shown)
    assert any(block.get("text", "").startswith("[image/png left out") for block in shown)
    told = sealed.content.decode().replace("\\", "")
    assert f'handle="{sealed.handle}", path="/content/1"' in told
    assert sealed.handle is not None
    kept = json.loads(b"".join(vault.open(sealed.handle).stream()))
    assert kept["content"][1] == large
    vault.close()


@pytest.mark.parametrize("dialect", ["transcend", "gel", "scalpel"])
def test_a_long_text_leaves_room_for_a_block(dialect: str) -> None:
    long = {"type": "text", "text": "a line\n" * 9000}
    sealed = seal([long, IMAGE], dialect=dialect, tokens=1000, handle=HANDLE)
    assert IMAGE in content(sealed)
    assert sealed.structured_cuts[0].path == "/content/0/text", "where it is in what is stored"


def test_the_path_of_a_cut_beside_blocks() -> None:
    payload = read_result([msgspec.json.encode(IMAGE)], b'{"rows":[%b]}' % b",".join([b"12345"] * 9000))
    sealed = seal(payload, dialect="transcend", tokens=1000, handle=HANDLE)
    assert sealed.structured_cuts[0].path == "/structuredContent/rows"
    assert 'path="/structuredContent/rows"' in json.loads(sealed.structured or b"")["dropped"]["note"]


def test_the_path_of_a_bare_list_in_ctxo() -> None:
    sealed = seal(list(range(9000)), dialect="ctxo", handle=HANDLE)
    assert sealed.cuts[0].path == ""


@given(
    blocks=st.lists(any_block, min_size=1, max_size=5),
    structure=st.none() | st.dictionaries(st.sampled_from("abc"), small_values, min_size=1),
    tokens=st.integers(128, 3000),
    meter=st.sampled_from(["estimate", "chars4", "exact"]),
    dialect=st.sampled_from(OTHERS),
)
@settings(max_examples=examples(150))
def test_any_blocks(
    blocks: list[Any], structure: dict[str, Any] | None, tokens: int, meter: str, dialect: str
) -> None:
    raws = [msgspec.json.encode(block) for block in blocks]
    payload = read_result(raws, None if structure is None else msgspec.json.encode(structure))
    sealed = seal(payload, dialect=dialect, tokens=tokens, meter=meter, handle=HANDLE)
    budget = sealed.report.limit
    counted = sealed._budget.meter.count
    if dialect != "ctxo":
        # Of a note behind its document scalpel measures the words.
        assert dialect == "scalpel" or counted(as_shown(sealed.content)) <= budget
        assert sealed.report.content_used <= budget
        assert sealed.structured is None or counted(sealed.structured) <= budget
    told = [cut.path for cut in sealed.content_cuts] + [""] * bool(sealed.problem)
    shown = msgspec.json.decode(sealed.content, type=list[msgspec.Raw])
    if payload.blocks is None:
        return
    # Texts that are JSON, or only repeat the structure, are no blocks of what is stored.
    for index, raw in enumerate(map(bytes, sealed._payload.blocks or ())):
        if msgspec.json.decode(raw)["type"] != "text" and raw not in map(bytes, shown):
            assert any(path in ("", "/content") or path.startswith(f"/content/{index}") for path in told)
            assert sealed.meta is not None
            assert META_KEY in sealed.meta


@pytest.mark.parametrize("dialect", ["transcend", "gel"])
def test_a_model_that_sees_the_structure_alone_is_told_of_a_block_left_out(dialect: str) -> None:
    sealed = seal([TEXT, {**SOUND, "data": "aGk=" * 40_000}], dialect=dialect, tokens=1000, handle=HANDLE)
    assert sealed.structured is not None
    shown = json.loads(sealed.structured)
    said = shown["warnings"] if dialect == "transcend" else shown["meta"]["details"]
    assert [f'envelope_read(handle="{HANDLE}", path="/content/1")' in each for each in said] == [True]
    assert (shown if dialect == "transcend" else shown["meta"])["truncated"] is True
    # Once in each lane.
    assert sealed.content.count(b"Read on") == sealed.structured.count(b"Read on") == 1


@pytest.mark.parametrize("handle", [HANDLE, None])
@pytest.mark.parametrize("tokens", [150, 2000])
def test_transcend_says_what_it_dropped_where_only_blocks_were_cut(tokens: int, handle: str | None) -> None:
    long = {**SOUND, "data": "aGk=" * 9000}
    sealed = seal([TEXT, long], dialect="transcend", tokens=tokens, handle=handle)
    shown = json.loads(sealed.structured or b"")
    assert shown["ok"] is True
    assert shown["truncated"] is True
    assert (shown["dropped"]["kind"], shown["dropped"]["count"]) == ("blocks", 1)
    assert f"tokenBudget={tokens}" in shown["dropped"]["note"]
    assert handle is None or handle in sealed.content.decode()


@pytest.mark.parametrize("dialect", ["transcend", "gel", "scalpel", "ctxo"])
@pytest.mark.parametrize("tokens", [128, 150, 200, 300, 500])
def test_a_block_left_out_is_announced_under_every_budget(dialect: str, tokens: int) -> None:
    rows = [{"number": number, "name": "a longer name"} for number in range(100)]
    sound = msgspec.json.encode({**SOUND, "data": "aGk=" * 40_000})
    sealed = seal(
        read_result([sound], msgspec.json.encode({"rows": rows})),
        dialect=dialect,
        tokens=tokens,
        handle=HANDLE,
    )
    told = sealed.content.decode().replace("\\", "")
    assert HANDLE in told
    assert sealed.report.content_used <= sealed.report.limit
