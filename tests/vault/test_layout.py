"""The index of a result that is stored in parts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_envelope.vault import layout
from mcp_envelope.vault.layout import IndexBuilder, result_parts, unpacked
from tests.conftest import examples

_WORDS = st.text('aä😀"\\ [{', max_size=60)
_VALUES = st.recursive(
    st.none() | st.integers() | _WORDS | st.lists(st.integers(), max_size=9).map(json.dumps),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(_WORDS, inner, max_size=9),
    max_leaves=30,
)
_BLOCKS = st.fixed_dictionaries({"type": st.just("text"), "text": _WORDS | _VALUES.map(json.dumps)})


@settings(max_examples=examples(200))
@given(st.lists(_BLOCKS, max_size=20), st.none() | st.dictionaries(_WORDS, _VALUES), st.booleans())
def test_the_index_of_parts_is_that_of_the_whole(blocks: list[Any], structured: Any, escaped: bool) -> None:
    def written(value: Any) -> bytes:
        return json.dumps(value, ensure_ascii=escaped).encode()

    parts = list(map(written, blocks)), None if structured is None else b" %b\n" % written(structured)
    whole = b"".join(map(bytes, result_parts(*parts)))
    assert json.loads(whole)["content"] == blocks
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "CHUNK", 48)
        together, apart = IndexBuilder(len(whole)), IndexBuilder(len(whole))
        wanted, made = together.document(whole), apart.result(*parts)
    assert made.root == wanted.root
    assert apart.appendix == together.appendix
    assert bool(made.starts) == (made.root is not None and not whole.isascii())
    for character, start in zip(unpacked(made.characters), unpacked(made.starts), strict=True):
        assert len(whole[:start].decode()) == character


def test_text_that_is_not_utf8_comes_to_an_end() -> None:
    """Bytes that all go on with a character never begin one."""
    text = b"\x80" * (3 * layout.CHUNK)
    index = IndexBuilder(len(text)).text(text)
    assert index.root is not None
    assert index.root.end == len(text)
