"""Pages put end to end are the original, whatever was stored and however small the pages are."""

from __future__ import annotations

import base64
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_envelope import seal
from mcp_envelope.budget import Budget
from mcp_envelope.dialects.notice import META_KEY
from mcp_envelope.payload import new_handle, read_payload
from mcp_envelope.vault import layout
from mcp_envelope.vault import vault as stream
from mcp_envelope.vault.layout import Index, key_hash
from mcp_envelope.vault.read_tool import read
from mcp_envelope.vault.sqlite import SQLiteStore
from mcp_envelope.vault.vault import ListStream, Vault

from ..conftest import examples
from ..strategies import large_values, long_texts, words
from .reader import Reader

budgets = st.one_of(
    st.integers(128, 600).map(lambda tokens: Budget.of(tokens=tokens)),
    st.integers(512, 2500).map(lambda size: Budget.of(max_bytes=size)),
    st.just(Budget.of(tokens=150, meter="chars4")),
)
# How large a value is before it gets a span, and how large a blob is: small, so that the ways of large payloads
# are walked by small ones.
grains = st.sampled_from([(40, 64), (200, 1000), (1 << 15, 1 << 16)])


@pytest.fixture(scope="module")
def vault() -> Iterator[Vault]:
    with tempfile.TemporaryDirectory() as folder:
        vault = Vault(SQLiteStore(Path(folder) / "vault.db"))
        yield vault
        vault.close()


class _Grained:
    """Stores with other grains than usual."""

    def __init__(self, grain: tuple[int, int]) -> None:
        self.grain = grain

    def __enter__(self) -> None:
        self.before = layout.CHUNK, layout.BLOB
        layout.CHUNK, layout.BLOB = self.grain  # type: ignore[misc]

    def __exit__(self, *_: object) -> None:
        layout.CHUNK, layout.BLOB = self.before  # type: ignore[misc]


def stored(vault: Vault, payload: Any, read_as: Any = "auto") -> str:
    handle = new_handle()
    assert vault.keep(handle, read_payload(payload, read_as)) is None
    return handle


def spellings(value: Any, indent: int | None, ascii_only: bool) -> bytes:
    separators = (",", ":") if indent is None else None
    return json.dumps(value, indent=indent, ensure_ascii=ascii_only, separators=separators).encode()


@settings(max_examples=examples(75))
@given(large_values, budgets, grains, st.sampled_from([None, 0, 3]), st.booleans())
def test_pages_put_end_to_end_are_the_document(
    vault: Vault, value: Any, budget: Budget, grain: tuple[int, int], indent: int | None, ascii_only: bool
) -> None:
    data = spellings(value, indent, ascii_only)
    with _Grained(grain):
        handle = stored(vault, data)
        again = Reader(vault, handle, budget).value("", value)
        assert _same(again, value)
        assert b"".join(vault.open(handle).stream()) == data


@settings(max_examples=examples(30))
@given(long_texts(20_000), budgets, grains)
def test_pages_put_end_to_end_are_the_text(
    vault: Vault, text: str, budget: Budget, grain: tuple[int, int]
) -> None:
    if text.lstrip()[:1] in ("{", "["):
        text = "plain " + text
    with _Grained(grain):
        handle = stored(vault, text, "text")
        assert Reader(vault, handle, budget).text("", 0, len(text)) == text
        assert b"".join(vault.open(handle).stream()) == text.encode()


@settings(max_examples=examples(50))
@given(large_values, budgets, grains)
def test_every_cut_can_be_read_on(vault: Vault, value: Any, budget: Budget, grain: tuple[int, int]) -> None:
    data = spellings(value, None, False)
    with _Grained(grain):
        sealed = seal(data, budget=budget, vault=vault.of(None))
        if not sealed.truncated:
            return
        assert sealed.meta is not None
        handle = sealed.meta[META_KEY]["handle"]
        assert handle.encode() in sealed.content
        if sealed.structured is not None and sealed.structured_cuts and b'"_envelope"' in sealed.structured:
            assert handle.encode() in sealed.structured
        for cut in (*sealed.content_cuts, *sealed.structured_cuts)[:4]:
            whole = _at(value, cut.path)
            if isinstance(whole, str) and cut.kind == "characters":
                rest: Any = whole[cut.offset :]
                read_back = Reader(vault, handle, budget).text(cut.path, cut.offset, len(whole))
            else:
                rest = _from(whole, cut.offset)
                read_back = Reader(vault, handle, budget).value(cut.path, whole, cut.offset)
            assert _same(read_back, rest)


@settings(max_examples=examples(40))
@given(st.lists(st.binary(max_size=3000), min_size=1, max_size=4), words, budgets, grains)
def test_blobs_come_back_exactly(
    vault: Vault, blobs: list[bytes], words: str, budget: Budget, grain: tuple[int, int]
) -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "image", "data": base64.b64encode(blob).decode(), "mimeType": "image/png"} for blob in blobs
    ]
    blocks.insert(0, {"type": "text", "text": words * 100})
    blocks.append(
        {
            "type": "resource",
            "resource": {"uri": "file:///a", "blob": base64.b64encode(blobs[0] * 3).decode()},
        }
    )
    with _Grained(grain):
        handle = stored(vault, blocks)
        reader = Reader(vault, handle, budget)
        back: list[Any] = []
        while len(back) < len(blocks):
            index = len(back)
            shown, cuts = reader.call(path=f"/content/{index}")
            if cuts:
                back.append(reader.value(f"/content/{index}", blocks[index]))
            elif shown[0]["type"] == "text" and blocks[index]["type"] != "text":
                back.append(json.loads(shown[0]["text"]))
            else:
                back.append(shown[0])
        assert back == blocks


def test_blocks_come_as_blocks(vault: Vault) -> None:
    blocks = [{"type": "text", "text": "one"}, {"type": "image", "data": "aGk=", "mimeType": "image/png"}]
    handle = stored(vault, blocks)
    reader = Reader(vault, handle, Budget.of())
    assert reader.call()[0] == blocks
    assert reader.call(path="/content", offset=1)[0] == blocks[1:]
    assert reader.call(path="/content/1")[0] == blocks[1:]
    # Dialects other than native tell the path without the list's name.
    assert reader.call(path="/1")[0] == blocks[1:]


def test_the_note_of_a_page_names_the_next_one(vault: Vault) -> None:
    handle = stored(vault, {"items": [{"n": n, "text": "x" * 40} for n in range(100)]})
    blocks, cuts = Reader(vault, handle, Budget.of(tokens=200)).call(path="/items", offset=30)
    (cut,) = cuts
    note = blocks[0]["text"]
    assert note == (
        f"Items 30 to {cut['offset'] - 1} of 100. "
        f'Read on: envelope_read(handle="{handle}", path="/items", offset={cut["offset"]}).'
    )


def test_the_last_page_names_its_items(vault: Vault) -> None:
    handle = stored(vault, {"items": list(range(100))})
    blocks, cuts = Reader(vault, handle, Budget.of()).call(path="/items", offset=97)
    assert [block["text"] for block in blocks] == ["Items 97 to 99 of 100.", "[97,98,99]"]
    assert cuts == []


def test_what_cannot_be_opened_is_read_as_text(vault: Vault) -> None:
    if sys.version_info < (3, 12):  # newer ones open hundreds of thousands of levels
        deep = b"[" * 3000 + b"]" * 3000
        handle = stored(vault, deep)
        assert Reader(vault, handle, Budget.of(tokens=200)).text("") == deep.decode()
    number = b'{"n": ' + b"7" * 100_000 + b"}"
    handle = stored(vault, number)
    assert Reader(vault, handle, Budget.of(tokens=2000)).text("/n") == "7" * 100_000


def test_half_a_surrogate_pair(vault: Vault) -> None:
    data = b'{"a": "' + b"\\ud83d" * 20_000 + b'", "b": [1, 2]}'
    handle = stored(vault, data)
    assert b"".join(vault.open(handle).stream()) == data
    reader = Reader(vault, handle, Budget.of())
    assert reader.text("/a") == "\ufffd" * 20_000
    assert reader.value("/b", [1, 2]) == [1, 2]


def test_a_map_of_many_keys_inside_a_string(vault: Vault) -> None:
    inner = {f"key {number}": {"n": number} for number in range(20_000)}
    handle = stored(vault, {"before": "é" * 50_000, "result": json.dumps(inner)})
    reader = Reader(vault, handle, Budget.of())
    for number in (0, 7777, 19_999):
        assert reader.value(f"/result/key {number}", {"n": 0}) == {"n": number}


def test_two_keys_of_one_key_hash(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "CHUNK", 300)
    first, second = "k1de6b95387e", "k772cfb1a316c"
    assert key_hash(first) == key_hash(second)
    handle = stored(vault, {first: "one", **{f"key{n}": n for n in range(2000)}, second: "two"})
    root = vault.open(handle).root()
    assert [root.find(f"/{key}").text(0, 9) for key in (first, second)] == ["one", "two"]


def test_equal_keys(vault: Vault) -> None:
    body = b",".join([b'"k":%d' % n for n in range(20_000)])
    data = b'{"x": {' + body + b"}}"
    handle = stored(vault, data)
    assert Reader(vault, handle, Budget.of()).value("/x", {"k": 1}) == {"k": 19_999}


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ({}, "BAD_ARGS", "handle"),
        ({"handle": 7}, "BAD_ARGS", "7"),
        ({"handle": "HANDLE", "path": "items"}, "BAD_PATH", "begins with a slash"),
        ({"handle": "HANDLE", "path": "/itms"}, "BAD_PATH", "items, total"),
        ({"handle": "HANDLE", "path": "/items/9"}, "BAD_PATH", "a list of 3 items"),
        ({"handle": "HANDLE", "path": "/items/x"}, "BAD_PATH", "a list of 3 items"),
        ({"handle": "HANDLE", "path": "/total/x"}, "BAD_PATH", "a number"),
        ({"handle": "HANDLE", "path": "/items", "offset": 3}, "BAD_OFFSET", "3 items"),
        ({"handle": "HANDLE", "path": "/items", "offset": -1}, "BAD_OFFSET", "an integer of at least 0"),
        ({"handle": "HANDLE", "path": "/items", "offset": "one"}, "BAD_OFFSET", "an integer"),
        ({"handle": "HANDLE", "path": "/items", "offset": True}, "BAD_OFFSET", "an integer"),
        ({"handle": "HANDLE", "query": "a", "grep": "b"}, "BAD_ARGS", "cannot be combined"),
        ({"handle": "nobody"}, "HANDLE_UNKNOWN", "nobody"),
        ({"handle": "\ud800 \n"}, "HANDLE_UNKNOWN", "handle"),
        ({"handle": "x" * 100_000}, "HANDLE_UNKNOWN", "handle"),
    ],
)
def test_bad_arguments_get_a_code_and_the_next_step(
    vault: Vault, arguments: dict[str, Any], code: str, told: str
) -> None:
    handle = stored(vault, {"items": [1, 2, 3], "total": 3})
    asked = {key: handle if value == "HANDLE" else value for key, value in arguments.items()}
    sealed = read(vault, asked)
    assert sealed.is_error
    assert sealed.problem is not None
    assert sealed.problem.code == code
    assert sealed.problem.hint
    assert told in sealed.content.decode()


def test_without_a_vault_every_handle_is_unknown() -> None:
    sealed = read(None, {"handle": "abc"})
    assert sealed.problem is not None
    assert sealed.problem.code == "HANDLE_UNKNOWN"


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON: strings that hold JSON by what they hold, since only their spaces may differ."""
    if isinstance(one, str) and isinstance(other, str) and one != other:
        try:
            return _same(json.loads(one), json.loads(other))
        except ValueError:
            return False
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and one == other


def _at(value: Any, path: str) -> Any:
    for step in path.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, str):
            value = json.loads(value)
        value = value[int(step)] if isinstance(value, list) else value[step]
    return value


def _from(value: Any, offset: int) -> Any:
    if isinstance(value, str):
        try:
            held = json.loads(value)
        except ValueError:
            return value[offset:]
        return json.dumps(_from(held, offset)) if isinstance(held, list | dict) else value[offset:]
    if isinstance(value, dict):
        return dict(list(value.items())[offset:])
    return value[offset:] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        ({"type": "text", "text": "word " * 40_000}, "word word"),
        ({"type": "resource", "resource": {"uri": "x:y", "text": "word " * 40_000}}, "word word"),
        ({"type": "image", "mimeType": "image/png", "data": "QUJD" * 40_000}, "left out"),
        ({"type": "resource", "resource": {"uri": "x:y", "blob": "QUJD" * 40_000}}, "left out"),
    ],
)
def test_all_of_a_result_with_one_large_block(vault: Vault, block: dict[str, Any], shown: str) -> None:
    """Without a path, the page is the blocks; of a large one only the beginning is loaded."""
    handle = stored(vault, [block, {"type": "text", "text": "the second"}], "blocks")
    blocks, cuts = Reader(vault, handle, Budget.of(tokens=500)).call()
    assert shown in json.dumps(blocks[1])
    assert {each["type"] for each in blocks} <= {"text", "resource"}
    assert any(cut["path"].startswith("/content/0") for cut in cuts)
    assert any(cut["path"] == "/content" for cut in cuts)


# -- what testers found -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "like"),
    [
        (
            b'{"big":"' + b"x" * 40_000 + b'","b":1,"big":"' + b"y" * 40_000 + b'"}',
            {"big": "y" * 40_000, "b": 1},
        ),
        (b'{"x":{"k":1,"k":"' + b"b" * 50_000 + b'"},"y":2}', {"x": {"k": "b" * 50_000}, "y": 2}),
        (
            b'{"a":1,' + b",".join([b'"k%05d":%d' % (i, i % 10) for i in range(10_000)]) + b',"a":3}',
            {"a": 3, **{f"k{i:05}": i % 10 for i in range(10_000)}},
        ),
    ],
)
def test_of_equal_keys_the_last_counts_wherever_it_stands(vault: Vault, data: bytes, like: Any) -> None:
    handle = stored(vault, data)
    assert Reader(vault, handle, Budget.of(tokens=2000)).value("", like) == like
    for key in list(like)[:2]:
        assert Reader(vault, handle, Budget.of(tokens=2000)).value(f"/{key}", like[key]) == like[key]


@pytest.mark.parametrize(
    "data",
    [
        b'{"n":' + b"7" * 100_000 + b',"m":1}',
        b"[1," + b"7" * 100_000 + b",2]",
        json.dumps({"held": "[1," + "7" * 100_000 + ",2]"}).encode(),
    ],
)
def test_a_number_that_fills_no_page(vault: Vault, data: bytes) -> None:
    handle = stored(vault, data)
    for offset in (0, 1):
        sealed = read(vault, {"handle": handle, "offset": offset}, budget=Budget.of(tokens=300))
        assert not sealed.is_error or (sealed.problem is not None and sealed.problem.code == "BAD_OFFSET")


def test_a_number_of_a_thousand_digits_at_the_smallest_budget(vault: Vault) -> None:
    handle = stored(vault, b'{"n":' + b"7" * 1000 + b"}")
    assert Reader(vault, handle, Budget.of(max_bytes=512)).text("/n") == "7" * 1000


def test_many_large_members_are_not_searched_one_by_one(vault: Vault) -> None:
    handle = stored(vault, {f"m{i}": "v" * 33_000 for i in range(300)})
    root = vault.open(handle).root()
    reads = 0
    source: Any = root._source
    before = source.read

    def counted(start: int, end: int) -> bytes:
        nonlocal reads
        reads += 1
        return bytes(before(start, end))

    source.read = counted
    assert root.child("zz") is None
    assert reads < 10


def test_a_string_of_brackets_is_read_as_it_was_cut(vault: Vault) -> None:
    inner = json.dumps(["[" * 3000] + [f"item {i}" for i in range(400_000)])
    sealed = seal({"a": inner, "b": 2}, tokens=300, vault=vault.of(None))
    (cut,) = [cut for cut in sealed.structured_cuts if cut.path == "/a"]
    assert sealed.handle is not None
    blocks, _ = Reader(vault, sealed.handle, Budget.of()).call(path="/a", offset=cut.offset)
    assert cut.kind == "characters"
    assert inner[cut.offset :].startswith(blocks[-1]["text"])


@pytest.mark.parametrize("arguments", [{"path": "/\ud800"}, {"offset": "\ud800"}, {"offset": 10**5000}])
def test_odd_arguments_never_raise(vault: Vault, arguments: dict[str, Any]) -> None:
    handle = stored(vault, {f"key{i}": "v" * 20 for i in range(20_000)})
    assert read(vault, {"handle": handle, **arguments}).is_error


def test_a_result_that_makes_room_while_it_is_read(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = stored(vault, {"a": list(range(100_000))})
    entry = vault.store.entry

    def gone_next(key: str) -> Any:
        found = entry(key)
        vault.store.delete(key)
        return found

    monkeypatch.setattr(vault.store, "entry", gone_next)
    sealed = read(vault, {"handle": handle, "path": "/a", "offset": 50_000})
    assert sealed.problem is not None
    assert sealed.problem.code == "HANDLE_DELETED"


def test_blocks_that_are_no_objects(vault: Vault) -> None:
    from mcp_envelope.payload import read_result

    for block in (b'"' + b"s" * 50_000 + b'"', b"[" + b"1," * 30_000 + b"1]"):
        sealed = seal(read_result([block], None), tokens=300, vault=vault.of(None))
        assert sealed.handle is not None
        for path in ("", "/content", "/content/0"):
            assert not read(vault, {"handle": sealed.handle, "path": path}).is_error


def _record(number: int) -> dict[str, Any]:
    return {"id": number, "body": f"{number} " * 60, "rows": list(range(number, number + 90))}


def _streamed(vault: Vault, items: list[Any]) -> str:
    handle = new_handle()
    stream = ListStream(vault, handle, None, None)
    for item in items:
        stream.add(json.dumps(item).encode())
    stream.finish()
    return handle


_SHAPES: dict[str, tuple[Any, dict[str, Any]]] = {
    "records": (lambda records: records, {"offset": 21}),
    "in a record": (lambda records: records, {"path": "/21/rows", "offset": 30}),
    "members": (lambda records: {f"k{n}": record for n, record in enumerate(records)}, {"path": "/k21/rows"}),
    "in a string": (lambda records: {"s": json.dumps(records)}, {"path": "/s/21/rows", "offset": 30}),
    "deep": (lambda records: [records[:30], [records[30:]]], {"path": "/0/21/rows", "offset": 30}),
}


@pytest.mark.parametrize("way", [*_SHAPES, "streamed"])
def test_a_page_loads_no_more_of_a_larger_payload(
    vault: Vault, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many large values in one: what is not on the way to the page is not loaded."""
    monkeypatch.setattr(layout, "CHUNK", 300)
    monkeypatch.setattr(stream, "CHUNK", 300)
    monkeypatch.setattr(layout, "BLOB", 1000)
    make, asked = _SHAPES.get(way, (None, {"path": "/21/rows", "offset": 30}))
    loaded: list[int] = []
    blobs = vault.store.blobs

    def counted(key: str, numbers: Sequence[int]) -> list[bytes]:
        loaded[-1] += len(numbers)
        return blobs(key, numbers)

    monkeypatch.setattr(vault.store, "blobs", counted)
    shown: list[Any] = []
    for count in (60, 2000):
        records = [_record(number) for number in range(count)]
        handle = _streamed(vault, records) if make is None else stored(vault, make(records))
        made = Index.decoded(layout.decompress(vault.open(handle).entry.index))
        assert made.root is not None
        assert made.root.weight <= 20
        loaded.append(0)
        shown.append(read(vault, {"handle": handle, **asked}, budget=Budget.of(tokens=300)).to_result())
    # The notice of the larger one has more digits, so somewhat less may fit.
    assert shown[0]["content"][-1]["text"][:300] == shown[1]["content"][-1]["text"][:300]
    assert loaded[1] <= loaded[0] + 3


@pytest.mark.parametrize("large", ["x" * 40_000, list(range(12_000)), {"k": "x" * 40_000}])
def test_a_member_that_is_not_loaded_may_be_too_large_for_a_page(vault: Vault, large: Any) -> None:
    value = {"outer": {"small": "y" * 10, "k" * 100: large}}
    handle = stored(vault, json.dumps(value).encode())
    for tokens in (128, 200, 1000):
        reader = Reader(vault, handle, Budget.of(tokens=tokens))
        blocks, _ = reader.call(path="")
        assert json.loads(blocks[-1]["text"])["outer"]["small"] == "y" * 10
        assert reader.value("", value) == value
