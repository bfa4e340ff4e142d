"""The exact characters of anything that is stored, page by page."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_envelope.budget import Budget
from mcp_envelope.payload import new_handle, read_payload
from mcp_envelope.vault import layout
from mcp_envelope.vault import vault as stream
from mcp_envelope.vault.read_tool import exact_text, read
from mcp_envelope.vault.sqlite import SQLiteStore
from mcp_envelope.vault.vault import ListStream, Vault

from ..conftest import examples
from ..strategies import large_lists, large_maps, long_texts, small_values, words
from .reader import Reader

_BLANKS = ("", "", " ", "\n", "\r\n\t", "   ")


class Held:
    """A string that holds this as JSON."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Speller:
    """Writes values with odd blanks and needless escapes, and keeps what each of them has for text."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.texts: dict[str, str] = {}

    def document(self, value: Any) -> bytes:
        self.texts[""] = f"{self._blank()}{self._value(value, '')}{self._blank()}"
        return self.texts[""].encode()

    def _blank(self) -> str:
        return self._random.choice(_BLANKS)

    def _value(self, value: Any, path: str) -> str:
        if isinstance(value, Held):
            text = f"{self._blank()}{self._value(value.value, path)}{self._blank()}"
            self.texts[path] = text
            return self._string(text)
        if isinstance(value, str):
            self.texts[path] = value
            return self._string(value)
        if isinstance(value, list):
            inside = [self._value(item, f"{path}/{index}") for index, item in enumerate(value)]
            spelled = f"[{self._joined(inside)}]"
        elif isinstance(value, dict):
            inside = [self._member(key, item, path) for key, item in value.items()]
            spelled = f"{{{self._joined(inside)}}}"
        else:
            spelled = json.dumps(value)
        self.texts[path] = spelled
        return spelled

    def _member(self, key: str, value: Any, path: str) -> str:
        step = key.replace("~", "~0").replace("/", "~1")
        spelled = self._value(value, f"{path}/{step}")
        return f"{self._string(key)}{self._blank()}:{self._blank()}{spelled}"

    def _joined(self, parts: Sequence[str]) -> str:
        return ",".join([f"{self._blank()}{part}{self._blank()}" for part in parts]) or self._blank()

    def _string(self, text: str) -> str:
        plain = json.dumps(text, ensure_ascii=self._random.random() < 0.2)
        if self._random.random() < 0.7:
            return plain
        odd = self._random.choice("aeé漢1")
        return plain.replace("/", "\\/").replace(odd, f"\\u{ord(odd):04X}") if "\\u" not in plain else plain


documents = st.recursive(
    st.one_of(large_lists(60), large_maps(), long_texts(), small_values),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(words, inner, max_size=3),
        st.lists(inner, max_size=3).map(Held),
        st.dictionaries(words, inner, max_size=3).map(Held),
    ),
    max_leaves=4,
)
roots = st.one_of(st.lists(documents, min_size=1, max_size=3), st.dictionaries(words, documents, min_size=1))
grains = st.sampled_from([(40, 64), (200, 1000), (1 << 15, 1 << 16)])
budgets = st.integers(128, 600)


@pytest.fixture(scope="module")
def vault() -> Iterator[Vault]:
    with tempfile.TemporaryDirectory() as folder:
        vault = Vault(SQLiteStore(Path(folder) / "vault.db"))
        yield vault
        vault.close()


def stored(vault: Vault, payload: Any, read_as: Any = "json") -> str:
    handle = new_handle()
    assert vault.keep(handle, read_payload(payload, read_as)) is None
    return handle


@settings(max_examples=examples(20))
@given(roots, st.integers(0, 1 << 30), budgets, grains)
def test_exact_pages_put_end_to_end_are_the_spelling(
    vault: Vault, value: Any, seed: int, tokens: int, grain: tuple[int, int]
) -> None:
    speller = Speller(seed)
    data = speller.document(value)
    # Thirty pages have every kind of seam between them; a long document need not have a thousand.
    budget = Budget.of(tokens=max(tokens, len(data) // 100))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "CHUNK", grain[0])
        patch.setattr(layout, "BLOB", grain[1])
        handle = stored(vault, data)
        reader = Reader(vault, handle, budget)
        assert reader.text("", exact=True).encode() == data
        paths = sorted(speller.texts, key=lambda path: -len(speller.texts[path]))
        for path in {*paths[1:6], *random.Random(seed).sample(paths, min(len(paths), 6))}:
            said = speller.texts[path]
            assert reader.text(path, exact=True) == said
            if said:
                start = seed % len(said)
                assert reader.text(path, start, exact=True) == said[start:]


def test_a_text_is_what_it_is(vault: Vault) -> None:
    text = "Zeile ü 速い 🚀\n" * 5000
    reader = Reader(vault, stored(vault, text, "text"), Budget.of(tokens=4000))
    assert reader.text("", exact=True) == text


def test_indented_json_in_a_text_block(vault: Vault) -> None:
    said = json.dumps({"rows": [{"n": n, "ü": None} for n in range(3000)]}, indent=2, ensure_ascii=False)
    handle = stored(vault, [{"type": "text", "text": said}, {"type": "text", "text": "b"}], "blocks")
    reader = Reader(vault, handle, Budget.of(tokens=4000))
    assert reader.text("/content/0/text", exact=True) == said
    assert reader.text("/content/0/text/rows", exact=True) == said[said.index("[") : said.rindex("]") + 1]
    # Dialects other than native tell the path without the list's name.
    blocks, _ = reader.call(path="/1", exact="true")
    assert json.loads(blocks[0]["text"]) == {"type": "text", "text": "b"}
    whole = b"".join(vault.open(handle).stream()).decode()
    assert reader.text("", exact=True) == whole


@pytest.mark.parametrize("count", [2, 20_000])
def test_json_in_a_string_at_the_top(vault: Vault, count: int) -> None:
    said = json.dumps({"a": list(range(count))}, indent=1)
    data = b" %b\n" % json.dumps(said).encode()
    reader = Reader(vault, stored(vault, data), Budget.of(tokens=8000))
    assert reader.text("", exact=True) == data.decode()
    assert reader.text("/a", exact=True) == said[said.index("[") : said.rindex("]") + 1]


@pytest.mark.parametrize("count", [2, 20_000])
def test_half_a_surrogate_pair(vault: Vault, count: int) -> None:
    data = b'{"a": {"\\ud83d":  {"b": [1,  2]}, "c": "\\ud83d%b"}}' % (b"x" * count)
    reader = Reader(vault, stored(vault, data), Budget.of(tokens=8000))
    assert reader.text("", exact=True) == data.decode()
    assert reader.text("/a/c", exact=True) == "\ufffd" + "x" * count
    assert json.loads(reader.text("/a/\ufffd/b", exact=True)) == [1, 2]


def test_a_page_ends_at_the_end_of_a_line(vault: Vault) -> None:
    data = json.dumps([{"n": n} for n in range(9000)], indent=1).encode()
    handle = stored(vault, data)
    blocks, (cut,) = Reader(vault, handle, Budget.of(tokens=300)).call(exact=True, offset=5)
    assert blocks[1]["text"] == data[5 : cut["offset"]].decode()
    assert blocks[1]["text"].endswith("\n")
    assert blocks[0]["text"] == (
        f"Characters 5 to {cut['offset'] - 1} of {len(data)}. "
        f'Read on: envelope_read(handle="{handle}", exact=true, offset={cut["offset"]}).'
    )


@pytest.mark.parametrize("filler", ["word", "ü", "速🚀"])
def test_a_list_that_was_streamed(vault: Vault, filler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "CHUNK", 300)
    handle = new_handle()
    lines = ListStream(vault, handle, None, None, "ü")
    for number in range(200):
        item = {"n": number, "text": filler * (200 if number % 9 == 0 else 3)}
        lines.add(json.dumps(item, ensure_ascii=False).encode())
    lines.finish()
    whole = b"".join(vault.open(handle).stream()).decode()
    reader = Reader(vault, handle, Budget.of(tokens=1000))
    assert reader.text("", exact=True) == whole
    assert reader.text("/ü", 3000, exact=True) == whole[5 : len(whole) - 1][3000:]


@pytest.mark.parametrize("filler", ["word ", "wörd "])
def test_an_exact_page_loads_no_more_of_a_larger_payload(
    vault: Vault, filler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "CHUNK", 300)
    monkeypatch.setattr(layout, "BLOB", 1000)
    loaded: list[int] = []
    blobs = vault.store.blobs

    def counted(key: str, numbers: Sequence[int]) -> list[bytes]:
        loaded[-1] += len(numbers)
        return blobs(key, numbers)

    monkeypatch.setattr(vault.store, "blobs", counted)
    for path in ("", "/rows", "/held", "/held/rows"):
        loaded.clear()
        for count in (400, 4000):
            rows = [f"{filler}{number}" for number in range(count)]
            value = {"rows": rows, "held": json.dumps({"rows": rows}, indent=1, ensure_ascii=False)}
            handle = stored(vault, json.dumps(value, ensure_ascii=False).encode())
            loaded.append(0)
            asked = {"handle": handle, "path": path, "offset": 900, "exact": True}
            assert read(vault, asked, budget=Budget.of(tokens=200)).problem is None
        assert loaded[1] <= loaded[0] + 3, path


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"exact": "yes"}, "BAD_ARGS"),
        ({"exact": 1}, "BAD_ARGS"),
        ({"exact": True, "query": "a"}, "BAD_ARGS"),
        ({"exact": True, "grep": "a"}, "BAD_ARGS"),
        ({"exact": True, "offset": 22}, "BAD_OFFSET"),
        ({"exact": True, "path": "/nowhere"}, "BAD_PATH"),
    ],
)
def test_what_cannot_be_given_exact_text(vault: Vault, arguments: dict[str, Any], code: str) -> None:
    handle = stored(vault, b' {"a": "[1, 2]"} \n\n\n\n')
    sealed = read(vault, {"handle": handle, **arguments})
    assert sealed.problem is not None
    assert sealed.problem.code == code


@pytest.mark.parametrize("letter", ["é", "漢", "😀"])
@pytest.mark.parametrize("shift", range(4))
def test_wide_characters_at_the_seams(vault: Vault, letter: str, shift: int) -> None:
    """What is read for a page ends anywhere in a character, and none is lost or halved."""
    document = f'{" " * shift}["{letter * 30_000}" , 1]'
    handle = new_handle()
    assert vault.keep(handle, read_payload(document.encode(), "json")) is None
    stored = exact_text(vault.open(handle), "")
    for room in (1000, 1001, 1002, 1003):
        text = stored.text(500, room)
        assert text == document[500 : 500 + len(text)]
        assert len(text.encode()) >= room
