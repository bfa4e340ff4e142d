"""Images cost pixels, have a budget of their own, and pass byte for byte within it."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mcp_envelope import seal
from mcp_envelope.dialects import NAMES
from mcp_envelope.fit.images import ImageBudget, Shown, dimensions, image_tokens, put_back, show
from mcp_envelope.vault.read_tool import read
from mcp_envelope.vault.vault import open_vault


def png(width: int, height: int, noise: int = 0) -> bytes:
    random = Random(width * height)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + random.randbytes(noise) + bytes(width * 3 - noise) for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + bytes(20)


def jpeg(width: int, height: int, before: int = 60_000) -> bytes:
    """A JPEG whose size comes after fill bytes, a long segment and a Huffman table."""
    application = b"\xff\xe1" + struct.pack(">H", before + 2) + b"\xff\xc0" * (before // 2)
    table = b"\xff\xff\xff\xc4\x00\x04ab"
    frame = b"\xff\xc2" + struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(9)
    return b"\xff\xd8" + application + table + frame + bytes(20)


def webp(kind: bytes, width: int, height: int) -> bytes:
    match kind:
        case b"VP8X":
            body = bytes(4) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
        case b"VP8L":
            body = b"\x2f" + (width - 1 | height - 1 << 14).to_bytes(4, "little")
        case _:
            body = bytes(3) + b"\x9d\x01\x2a" + struct.pack("<HH", width, height)
    return b"RIFF" + bytes(4) + b"WEBP" + kind + bytes(4) + body + bytes(20)


def string(file: bytes) -> bytes:
    return b'"%b"' % base64.b64encode(file)


def block(file: bytes, **more: Any) -> dict[str, Any]:
    return {"type": "image", "data": base64.b64encode(file).decode(), "mimeType": "image/png", **more}


SCREENSHOT = block(png(1280, 720, noise=200))


# -- what an image costs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "file",
    [png(640, 400), gif(640, 400), jpeg(640, 400)]
    + [webp(kind, 640, 400) for kind in (b"VP8X", b"VP8L", b"VP8 ")],
)
def test_the_size_is_read_from_the_header(file: bytes) -> None:
    assert dimensions(string(file)) == (640, 400)


# As PHP spells slashes and .NET the plus, and base64 in lines.
@pytest.mark.parametrize(
    ("mark", "spelled"), [(b"/", b"\\/"), (b"w", b"\\u0077"), (b"A", b"A\\r\\n"), (b"A", b"A\\n")]
)
def test_base64_may_have_escapes_and_line_breaks(mark: bytes, spelled: bytes) -> None:
    files = (string(jpeg(640, height)) for height in range(400, 500))
    file = next(file for file in files if file.count(mark) > 2)
    assert dimensions(file.replace(mark, spelled)) == dimensions(file) != None  # noqa: E711


@pytest.mark.parametrize(
    "data",
    [
        *(b'""', b'"!!!!"', b'"\\u0041AAA"', string(b"<svg/>")),
        *(string(png(9, 9)[:18]), string(gif(0, 5)), string(jpeg(9, 9)[:900])),
        *(string(b"RIFF" + bytes(40)), string(b"RIFF" + bytes(4) + b"WEBPVP8 " + bytes(40))),
    ],
)
def test_a_size_that_cannot_be_read(data: bytes) -> None:
    assert dimensions(data) is None


@pytest.mark.parametrize(
    ("size", "cost", "tokens"),
    [
        ((1920, 1080), "claude", 69 * 39),
        ((1920, 1080), "gpt", 2448),
        ((1920, 1080), "gemini", 1101),
        ((1920, 1080), "largest", 69 * 39),
        ((20_000, 20_000), "claude", 4784),
        ((20_000, 20_000), "gpt", 4916),
        ((1, 1), "largest", 1101),
    ],
)
def test_what_an_image_costs(size: tuple[int, int], cost: str, tokens: int) -> None:
    assert image_tokens(*size, cost) == tokens


# -- set aside ------------------------------------------------------------------------------------------------


def raw(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()


def test_what_was_set_aside_is_put_back() -> None:
    blocks = [raw({"annotations": {"data": '"data":'}, **SCREENSHOT, "_meta": {"data": 1}}), raw(SCREENSHOT)]
    found = show(blocks, ImageBudget())
    shown, data = found.blocks, found.data
    assert len(data) == 2
    assert sum(map(len, shown)) < 400
    assert [json.loads(put_back(bytes(each), data)) for each in shown] == [
        json.loads(each) for each in blocks
    ]


@pytest.mark.parametrize(
    "odd",
    [
        {**SCREENSHOT, "type": "audio"},
        {**SCREENSHOT, "data": 5},
        {**SCREENSHOT, "data": "x" * 9000},
        {"type": "image"},
        {"type": "text", "text": SCREENSHOT["data"]},
        block(png(4, 4)),
    ],
)
def test_other_blocks_are_left_alone(odd: dict[str, Any]) -> None:
    assert show([raw(odd)], ImageBudget()) == Shown((raw(odd),))


@pytest.mark.parametrize(
    "odd", [b'{"type":"image","data":"%b"}', b'{"type":"%b"}', b'{"%b":1}', b"[%b]", b"[" * 9000]
)
def test_what_is_not_even_json_is_left_alone(odd: bytes) -> None:
    block = odd % (b"\xff" * 9000) if b"%" in odd else odd
    assert show([block], ImageBudget()) == Shown((block,))


@pytest.mark.parametrize(
    ("budget", "count"),
    [
        (ImageBudget(), 4),
        (ImageBudget(count=2), 2),
        (ImageBudget(count=0), 0),
        (ImageBudget(tokens=2500), 2),
        (ImageBudget(tokens=1000), 0),
        (ImageBudget(tokens=3500, cost="gemini"), 3),
        (ImageBudget(cost="bytes"), 0),
    ],
)
def test_images_have_a_budget(budget: ImageBudget, count: int) -> None:
    assert len(show([raw(SCREENSHOT)] * 6, budget).data) == count


# -- in results -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", NAMES)
@pytest.mark.parametrize("tokens", [200, 2000])
def test_a_screenshot_passes(dialect: str, tokens: int) -> None:
    sealed = seal([{"type": "text", "text": "A page."}, SCREENSHOT], dialect=dialect, tokens=tokens)
    assert SCREENSHOT in json.loads(sealed.content)
    assert not sealed.cuts
    assert sealed.report.used <= tokens


@pytest.mark.parametrize("most_bytes", [None, 10_000])
def test_what_is_too_large_to_be_decoded_is_left_to_the_client(most_bytes: int | None) -> None:
    """Clients that were tried make it smaller themselves, or pass it on."""
    data = base64.b64encode(png(9000, 8000)[:30_000]).decode()
    large = {"type": "image", "data": data, "mimeType": "image/png"}
    found = show([raw(large)], ImageBudget(longest=2000, most_bytes=most_bytes))
    assert bool(found.data) == bool(not found.cuts) == (most_bytes is None)
    assert most_bytes is None or "too many pixels" in found.cuts[0].said


# ctxo's contract returns a payload without a known list whole.
@pytest.mark.parametrize("dialect", [name for name in NAMES if name != "ctxo"])
def test_the_text_beside_it_is_fitted(dialect: str) -> None:
    sealed = seal(
        [{"type": "text", "text": "a line of text\n" * 9000}, SCREENSHOT], dialect=dialect, tokens=2000
    )
    shown = json.loads(sealed.content)
    assert SCREENSHOT in shown
    assert sealed.cuts
    assert sealed.report.used <= 2000
    assert sum(len(raw(each)) for each in shown if each != SCREENSHOT) < 16_000


AUDIO = {"type": "audio", "data": "aGk=" * 5000, "mimeType": "audio/wav"}
ARCHIVE = {"type": "resource", "resource": {"uri": "x://1", "blob": "aGk=" * 4000}}


def test_what_the_client_saves_costs_nothing() -> None:
    blocks = [raw(AUDIO), raw(SCREENSHOT), raw(ARCHIVE)]
    found = show(blocks, ImageBudget(saved_bytes=40_000))
    assert len(found.data) == 3
    assert sum(map(len, found.blocks)) < 500
    shown = [json.loads(put_back(bytes(each), found.data)) for each in found.blocks]
    assert shown == [AUDIO, SCREENSHOT, ARCHIVE]
    assert not found.cuts
    # Together they may have so many bytes.
    assert len(show([raw(AUDIO)] * 3, ImageBudget(saved_bytes=40_010)).data) == 2
    assert not show([raw(AUDIO)], ImageBudget()).data


def test_the_fifth_one_is_stored_and_read_back_as_an_image(tmp_path: Path) -> None:
    vault = open_vault(str(tmp_path / "vault.db"))
    assert vault is not None
    with closing(vault):
        sealed = seal([{**SCREENSHOT, "n": n} for n in range(6)], tokens=2000, vault=vault.of(None))
        shown = json.loads(sealed.content)
        assert [each["type"] for each in shown] == ["text"] + ["image"] * 4 + ["text"] * 2
        assert [cut.path for cut in sealed.cuts] == ["/content/4", "/content/5"]
        for number in (4, 5):
            found = read(vault, {"handle": sealed.handle, "path": f"/content/{number}"})
            assert json.loads(found.content) == [{**SCREENSHOT, "n": number}]
            assert not found.is_error
        exact = read(vault, {"handle": sealed.handle, "path": "/content/4/data", "exact": True})
        assert json.loads(exact.content)[1]["text"].startswith(SCREENSHOT["data"][:100])
