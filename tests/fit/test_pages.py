"""A page in a number of bytes: as many whole parts as fit, and where the next one begins."""

from __future__ import annotations

import json

import pytest

from mcp_envelope.fit.documents import Cut
from mcp_envelope.fit.pages import Page, Part, Shape
from mcp_envelope.jsontext.document import encode, text_block

ITEMS = [encode("x" * length) for length in (10, 20, 30)]
ARRAY = [Part(str(index), item) for index, item in enumerate(ITEMS)]
OBJECT = [Part(name, item, encode(name)) for name, item in zip("abc", ITEMS, strict=True)]


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_a_page_has_as_many_whole_items_as_fit(kept: int) -> None:
    page = Page("/rows", "array", 4, 7, parts=ARRAY)
    text = b"[%b]" % b",".join(ITEMS[:kept])
    fitted = page.fit(len(text))
    assert fitted is not None
    assert fitted.text == text
    assert fitted.cuts == ((Cut("/rows", "items", kept, 7, 4 + kept),) if kept < 3 else ())
    smaller = page.fit(len(text) - 1)
    assert smaller is not None
    assert smaller.text != text
    if kept < 3:
        # Below this room the page is the same; from it on, there is more.
        assert page.fit(fitted.next_room - 1) == fitted
        more = page.fit(fitted.next_room)
        assert more is not None
        assert more.text == b"[%b]" % b",".join(ITEMS[: kept + 1])
    assert page.size == len(b"[%b]" % b",".join(ITEMS))


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_members_and_blocks_are_counted_with_what_is_around_them(kept: int) -> None:
    members = [b"%b:%b" % (part.raw_key, part.value) for part in OBJECT[:kept]]
    text = b"{%b}" % b",".join(members)
    page = Page("", "object", 0, 3, parts=OBJECT)
    fitted = page.fit(len(text))
    assert fitted is not None
    assert fitted.text == text
    assert [cut.kind for cut in fitted.cuts] == ["properties"] * (kept < 3)
    blocks = [text_block("y" * size) for size in (10, 20, 30)]
    page = Page("/content", "blocks", 0, 3, parts=[Part(str(n), block) for n, block in enumerate(blocks)])
    fitted = page.fit(len(b"[%b]" % b",".join(blocks[:kept])))
    assert fitted is not None
    assert (fitted.text, fitted.blocks) == (None, tuple(blocks[:kept]))
    assert [cut.kind for cut in fitted.cuts] == ["blocks"] * (kept < 3)


@pytest.mark.parametrize("room", range(60, 400, 13))
@pytest.mark.parametrize("name", ["", "k", "a key of some length"])
def test_an_item_that_is_too_large_for_a_page_is_cut_to_it(room: int, name: str) -> None:
    part = Part(name or "0", encode("x" * 1000), encode(name) if name else b"")
    page = Page("/a", "object" if name else "array", 0, 2, parts=[part, ARRAY[0]])
    fitted = page.fit(room)
    assert fitted is not None
    assert fitted.text is not None
    assert room - 6 <= len(fitted.text) <= room
    json.loads(fitted.text)
    rest, inside = fitted.cuts
    assert (rest.kept, rest.offset) == (1, 1)
    assert (inside.path, inside.total) == (f"/a/{name or 0}", 1000)


@pytest.mark.parametrize("room", range(60, 70))
def test_the_key_of_a_cut_member_takes_part_of_the_room(room: int) -> None:
    part = Part("key", encode([1] * 200), encode("key"))
    fitted = Page("", "object", 0, 1, parts=[part]).fit(room)
    assert fitted is not None
    assert len(fitted.text or b"") in (room - 1, room)


def test_an_item_that_cannot_be_cut_is_left_out() -> None:
    page = Page("", "array", 0, 1, parts=[Part("0", b"1" * 500)])
    for room in (2, 100, 501):
        fitted = page.fit(room)
        assert fitted is not None
        assert fitted.text == b"[]"
        assert fitted.cuts == (Cut("/0", "bytes", 0, 500, 0),)
    assert page.fit(1) is None
    whole = page.fit(502)
    assert whole is not None
    assert whole.cuts == ()


def test_a_text_ends_at_a_line_unless_it_is_the_last_page() -> None:
    text = b"one\ntwo\nthree"
    page = Page("", "text", 100, 113, text=text)
    assert page.size == len(text)
    whole, part = page.fit(13), page.fit(12)
    assert whole is not None
    assert part is not None
    assert (whole.text, whole.cuts) == (text, ())
    assert (part.text, part.cuts) == (b"one\ntwo\n", (Cut("", "characters", 8, 113, 108),))
    # More of it is stored than was loaded: the last line may go on.
    loaded = Page("", "text", 100, 200, text=text, whole=False).fit(1000)
    assert loaded is not None
    assert loaded.text == b"one\ntwo\n"
    assert Page("", "text", 0, 3, text="€".encode()).fit(2) is None


def test_a_single_value_is_whole_or_nothing() -> None:
    page = Page("/n", "whole", 0, 1, text=b"12345")
    fitted = page.fit(5)
    assert fitted is not None
    assert (fitted.text, fitted.cuts) == (b"12345", ())
    assert page.fit(6) == fitted
    assert page.fit(4) is None


def test_a_page_is_one_json_value_where_a_dialect_wants_one() -> None:
    text = Page("", "text", 0, 4, text=b'a"b\n').as_json(10)
    assert text is not None
    assert text.json == b'"a\\"b\\n"'
    blocks = [text_block("y"), text_block("z")]
    shown = Page("", "blocks", 0, 2, parts=[Part(str(n), block) for n, block in enumerate(blocks)]).as_json(
        200
    )
    assert shown is not None
    assert json.loads(shown.json) == [{"type": "text", "text": "y"}, {"type": "text", "text": "z"}]


@pytest.mark.parametrize("shape", ["array", "object", "blocks"])
def test_below_the_next_room_a_page_is_the_same(shape: Shape) -> None:
    values = [text_block("x" * (7 * n % 50)) if shape == "blocks" else encode("x" * 9) for n in range(30)]
    parts = [
        Part(f"k{n}", value, encode(f"k{n}") if shape == "object" else b"") for n, value in enumerate(values)
    ]
    page = Page("", shape, 0, 40, parts=[*parts, Part("k30", encode(["y" * 90] * 9))])
    for room in range(60, 900):
        fitted = page.fit(room)
        assert fitted is not None
        assert fitted.next_room > room
        for larger in range(room + 1, fitted.next_room):
            assert page.fit(larger) == fitted
        if 0 < fitted.cuts[0].kept < 30:
            assert page.fit(fitted.next_room) != fitted


def test_no_more_is_shown_than_was_loaded() -> None:
    assert Page("", "array", 0, 9, parts=ARRAY, most=40).size == 40
    assert Page("", "array", 0, 0).size == 2
    # 0 leaves it to the page's own size.
    assert Page("", "array", 0, 0).bytes_in_all == 0
