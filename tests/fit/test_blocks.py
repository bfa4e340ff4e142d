"""Content blocks in a number of bytes: where a block begins to be cut, and how the room is shared."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_envelope.fit.blocks import (
    OpaqueBlock,
    TextBlock,
    _label,
    best_first,
    fit_blocks,
    label,
    read_block,
    read_blocks,
)
from mcp_envelope.fit.documents import Cut
from mcp_envelope.fit.survey import Survey
from mcp_envelope.jsontext.document import encode, text_block
from mcp_envelope.payload import shown


def text(characters: int, **more: Any) -> bytes:
    return encode({"type": "text", "text": "x" * characters, **more})


def image(characters: int) -> bytes:
    return encode({"type": "image", "data": "A" * characters, "mimeType": "image/png"})


def test_a_block_that_just_fits_is_kept_byte_for_byte() -> None:
    for raw in (
        text(400),
        image(400),
        encode({"type": "resource", "resource": {"uri": "a:b", "text": "y" * 400}}),
    ):
        block = read_block(raw, "/content/0")
        cuts: list[Cut] = []
        assert block.size == len(raw)
        assert block.fit(len(raw), cuts) == raw
        assert cuts == []
        smaller = block.fit(len(raw) - 1, cuts)
        assert smaller is not None
        assert len(smaller) < len(raw)
        assert len(cuts) == 1


@pytest.mark.parametrize("around", [0, 20, 60, 80, 100, 500])
@pytest.mark.parametrize("characters", [1, 60, 130, 5000])
def test_the_least_is_what_a_block_can_be_cut_to(around: int, characters: int) -> None:
    block = read_block(text(characters, _meta={"m": "m" * around}), "/content/0")
    assert block.least <= block.size
    fitted = block.fit(block.least, [])
    assert fitted is not None
    assert len(fitted) <= block.least
    json.loads(fitted)
    # A line takes its place if what is around the text is too large.
    assert around < 500 or block.least < 60


@pytest.mark.parametrize("size", [1, 40, 96, 97, 200, 5000])
def test_an_image_is_whole_or_a_line(size: int) -> None:
    raw = image(size)
    block = read_block(raw, "/content/3")
    assert isinstance(block, OpaqueBlock)
    cuts: list[Cut] = []
    fitted = block.fit(block.least, cuts)
    assert fitted is not None
    assert len(fitted) <= block.least
    if block.least == len(raw):
        assert (fitted, cuts) == (raw, [])
    else:
        assert json.loads(fitted) == {"type": "text", "text": f"[image/png left out, {len(raw)} bytes]"}
        assert cuts == [Cut("/content/3", "bytes", 0, len(raw), 0)]
        assert block.fit(block.least - 1, []) is None


def test_a_link_replaces_an_image_where_clients_follow_links() -> None:
    block = read_block(image(5000), "/content/1", handle="h" * 22)
    note, link = json.loads(b"[%b]" % (block.fit(400, []) or b""))
    assert note["type"] == "text"
    assert link == {
        "type": "resource_link",
        "uri": f"envelope://{'h' * 22}/content/1",
        "name": "image",
        "mimeType": "image/png",
    }


def test_a_text_whose_other_members_are_too_large_is_a_line() -> None:
    raw = text(300, _meta={"m": "m" * 900})
    block = read_block(raw, "/content/0")
    cuts: list[Cut] = []
    assert block.fit(200, cuts) == text_block(f"[text left out, {len(raw)} bytes]")
    assert cuts == [Cut("/content/0/text", "bytes", 0, len(raw), 0)]
    assert block.fit(20, []) is None


@pytest.mark.parametrize("count", [1, 3])
def test_blocks_that_just_fit_stay_whole(count: int) -> None:
    raws = [text(100), image(200), text(300)][:count]
    room = len(b"[%b]" % b",".join(raws))
    cuts: list[Cut] = []
    assert fit_blocks(read_blocks(raws), room, cuts) == raws
    assert cuts == []
    fitted = fit_blocks(read_blocks(raws), room - 1, cuts)
    assert fitted is not None
    assert cuts
    assert len(b"[%b]" % b",".join(fitted)) < room


@pytest.mark.parametrize("room", range(700, 2300, 50))
def test_small_blocks_stay_and_large_ones_share_what_is_left(room: int) -> None:
    raws = [text(50), text(3000), text(50), text(3000)]
    cuts: list[Cut] = []
    parts = fit_blocks(read_blocks(raws), room, cuts)
    assert parts is not None
    assert (parts[0], parts[2]) == (raws[0], raws[2])
    assert room - 24 <= len(b"[%b]" % b",".join(parts)) <= room
    assert abs(len(parts[1]) - len(parts[3])) <= 20
    assert [cut.path for cut in cuts] == ["/content/1/text", "/content/3/text"]


def test_many_blocks_are_a_list_of_which_whole_ones_stay() -> None:
    raws = [encode({"type": "text", "text": f"item {number:03} " + "x" * 60}) for number in range(100)]
    each = len(raws[0]) + 1
    for kept in (8, 9, 30, 99):
        for room in (kept * each + 1, (kept + 1) * each):
            cuts: list[Cut] = []
            assert fit_blocks(read_blocks(raws), room, cuts) == raws[:kept]
            assert cuts == [Cut("/content", "blocks", kept, 100, kept)]


def test_an_image_in_a_list_of_blocks_goes_before_the_blocks_behind_it() -> None:
    raws = [text(60), text(60), image(5000), *[text(60)] * 20]
    cuts: list[Cut] = []
    parts = fit_blocks(read_blocks(raws), 1500, cuts)
    assert parts is not None
    assert len(parts) > 12
    assert [part for part in parts if part != raws[0]] == [parts[2]]
    assert [cut.path for cut in cuts] == ["/content/2", "/content"]


@pytest.mark.parametrize("count", [2, 6, 8])
def test_each_of_a_few_large_blocks_is_shown(count: int) -> None:
    parts = fit_blocks(read_blocks([text(3000)] * count), 1700, [])
    assert parts is not None
    assert len(parts) == count


def test_json_in_a_block_stays_json() -> None:
    rows = [f"row {number}" for number in range(400)]
    cuts: list[Cut] = []
    fitted = read_block(text_block(json.dumps(rows)), "/content/2").fit(500, cuts)
    shown = json.loads(json.loads(fitted or b"")["text"])
    assert shown == rows[: len(shown)]
    assert cuts == [Cut("/content/2/text", "items", len(shown), 400, len(shown))]


def test_small_images_in_a_list_of_blocks_stay_whole() -> None:
    raws = [image(150)] * 100
    room = 9 * (len(raws[0]) + 1) + 1
    cuts: list[Cut] = []
    assert fit_blocks(read_blocks(raws), room, cuts) == raws[:9]
    assert cuts == [Cut("/content", "blocks", 9, 100, 9)]


def test_what_a_block_does_not_use_goes_to_the_next() -> None:
    lines = "\n".join(f"line {number} " + "x" * 40 for number in range(100))
    raws = [encode({"type": "text", "text": lines}), text(4000)]
    parts = fit_blocks(read_blocks(raws), 2000, [])
    assert parts is not None
    assert len(parts[0]) < 996 < len(parts[1])
    assert 1976 <= len(b"[%b]" % b",".join(parts)) <= 2000


@pytest.mark.parametrize("plain", ["x" * 9000, 'a "quoted"\tword\n' * 600, "é" * 5000, "\\" * 4000, "short"])
def test_the_size_of_plain_text_is_estimated_with_its_escapes(plain: str) -> None:
    block = TextBlock.of_text(plain.encode(), None)
    whole = encode({"type": "text", "text": plain})
    assert block.size == len(whole)
    assert block.fit(block.size, []) == whole


@pytest.mark.parametrize("room", [200, 333, 1000, 5000])
def test_plain_text_uses_its_room(room: int) -> None:
    block = TextBlock.of_text(("word " * 4000).encode(), None)
    cuts: list[Cut] = []
    fitted = block.fit(room, cuts)
    assert fitted is not None
    assert room - 20 <= len(fitted) <= room
    (cut,) = cuts
    assert (cut.kind, cut.total) == ("characters", 20_000)


def test_a_text_that_begins_with_escapes_uses_its_room() -> None:
    for plain in ('"' * 2000 + "x" * 8000, "\\" * 300 + "x" * 50_000):
        block = read_block(text_block(plain), "/content/0")
        for room in (200, 400, 900):
            fitted = block.fit(room, [])
            assert fitted is not None
            assert room - 24 <= len(fitted) <= room


def test_records_in_blocks_are_looked_at_unless_they_are_very_large() -> None:
    for size, is_small in [(300_000, True), (900_000, False)]:
        rows = [{"state": "failed" if n == 9 else "open", "pad": "x" * size} for n in range(12)]
        blocks = read_blocks([text_block(json.dumps(row)) for row in rows])
        order = best_first(blocks, Survey())
        assert (order is not None and order.index(9) == 2) == is_small
        # A few share the room.
        assert fit_blocks(blocks[:8], 4000, [], lambda: pytest.fail("few")) is not None


def test_blocks_are_measured_as_clients_show_them() -> None:
    raws = [encode({"type": "text", "text": 'a "b"\n'}), b'{"type":"audio","data":""}', b"[1]"]
    assert shown(raws) == b'a "b"\n\n\n{"type":"audio","data":""}\n\n[1]'


def test_the_label_of_a_block_is_of_what_is_inside() -> None:
    inside = {"uri": "file:///a", "mimeType": "text/css", "text": "p{}"}
    assert label(encode({"type": "resource", "resource": inside})) == {
        "type": "resource",
        "mimeType": "text/css",
        "uri": "file:///a",
    }
    assert label(encode({"type": "image", "mimeType": 3, "data": "A"})) == {"type": "image"}
    assert label(b"[") == {}


def test_only_a_resource_has_a_text_inside() -> None:
    inside = {"resource": {"uri": "a:b", "text": "y" * 400}}
    assert isinstance(read_block(encode({"type": "resource", **inside}), "/content/0"), TextBlock)
    assert isinstance(read_block(encode({"type": "other", **inside}), "/content/0"), OpaqueBlock)


def test_the_label_of_a_link_is_bounded() -> None:
    raw = encode({"type": "image", "data": "", "mimeType": "m" * 80, "name": "n" * 99})
    link = _label(raw).link("u:v")
    assert link == {"type": "resource_link", "uri": "u:v", "name": "n" * 80, "mimeType": "m" * 60}
