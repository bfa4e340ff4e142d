"""Images that are too large: scaled down, cut into tiles, or left out; whatever the file, never an exception."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from contextlib import closing
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from mcp_envelope import seal
from mcp_envelope.dialects import NAMES
from mcp_envelope.fit import images, pixels
from mcp_envelope.fit.images import ImageBudget, image_tokens, put_back, show
from mcp_envelope.fit.pixels import ImageRoom, render
from mcp_envelope.vault.read_tool import read
from mcp_envelope.vault.vault import Vault, open_vault

from ..conftest import examples
from ..shown import shown as as_shown


def gradient(width: int, height: int, mode: str = "RGB") -> Image.Image:
    """An image in which each pixel tells where it is."""
    made = Image.merge(
        "RGB",
        [
            Image.linear_gradient("L").resize((width, height)),
            Image.linear_gradient("L").rotate(90).resize((width, height)),
            Image.new("L", (width, height), 128),
        ],
    )
    return made if mode == "RGB" else made.convert(mode)


def file(image: Image.Image, kind: str = "PNG", **more: Any) -> bytes:
    out = BytesIO()
    image.save(out, kind, **({"compress_level": 1} if kind == "PNG" else {}), **more)
    return out.getvalue()


@cache
def picture(width: int, height: int) -> bytes:
    return file(gradient(width, height))


def block(data: bytes, mime: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "data": base64.b64encode(data).decode(), "mimeType": mime}


def embedded(data: bytes, mime: str = "image/png") -> dict[str, Any]:
    blob = base64.b64encode(data).decode()
    return {"type": "resource", "resource": {"uri": "shot://1", "mimeType": mime, "blob": blob}}


def decoded(shown: dict[str, Any]) -> Image.Image:
    held = shown.get("resource", shown)
    image = Image.open(BytesIO(base64.b64decode(held.get("blob") or held["data"])))
    image.load()
    assert held["mimeType"] == f"image/{str(image.format).lower()}"
    return image


def raw(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()


def fitted(shown: images.Shown) -> list[dict[str, Any]]:
    return [json.loads(put_back(bytes(each), shown.data)) for each in shown.blocks]


@pytest.fixture
def vault(tmp_path: Path) -> Any:
    opened = open_vault(str(tmp_path / "vault.db"))
    assert opened is not None
    with closing(opened):
        yield opened


def reading(vault: Vault, handle: str | None, **more: Any) -> tuple[list[dict[str, Any]], Any]:
    result = json.loads(read(vault, {"handle": handle, **more}).to_json())
    return result["content"], result.get("isError", False)


# -- scaled down ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", NAMES)
def test_a_large_screenshot_is_scaled_down_and_the_note_has_the_factor(dialect: str, vault: Vault) -> None:
    blocks = [{"type": "text", "text": "A shot."}, block(picture(3840, 2160))]
    sealed = seal(blocks, dialect=dialect, tokens=2000, vault=vault.of(None))
    content = json.loads(sealed.content)
    (image,) = [each for each in content if each["type"] == "image"]
    assert decoded(image).size == (2048, 1152)
    said = " ".join(each["text"] for each in content if each["type"] == "text").replace('\\"', '"')
    assert "3840×2160 pixels and is shown at 2048×1152; multiply coordinates by 1.875" in said
    assert f'envelope_read(handle="{sealed.handle}", path="/content/1", region="x,y,width,height")' in said
    whole, is_error = reading(vault, sealed.handle, path="/content/1", region="960,540,1000,600")
    assert not is_error
    assert decoded(whole[-1]).tobytes() == gradient(3840, 2160).crop((960, 540, 1960, 1140)).tobytes()
    assert "add 960,540 to coordinates" in whole[0]["text"]


def test_a_structure_tells_of_the_image_beside_it(vault: Vault) -> None:
    from mcp_envelope.payload import Result, read_result

    result = Result([raw(block(picture(3000, 2000)))], b'{"title":"x"}')
    sealed = seal(read_result(result.content, result.structured), vault=vault.of(None))
    assert sealed.structured is not None
    said = json.loads(sealed.structured)
    assert "multiply coordinates by 1.4648" in said["_envelope"]["note"]
    assert said["_envelope"]["handle"] == sealed.handle
    assert said["title"] == "x"


def test_an_embedded_image_is_one_too(vault: Vault) -> None:
    small, large = embedded(picture(1280, 720)), embedded(picture(2560, 1600))
    content = json.loads(seal([small], tokens=200).content)
    assert content == [small]
    sealed = seal([large], tokens=300, vault=vault.of(None))
    content = json.loads(sealed.content)
    assert content[1]["resource"]["uri"] == "shot://1"
    assert decoded(content[1]).size == (2048, 1280)
    back, _ = reading(vault, sealed.handle, path="/content/0", region="0,0,500,400")
    assert decoded(back[-1]).size == (500, 400)


def test_a_client_that_shows_embedded_images_as_text_gets_them_as_images() -> None:
    small, large = embedded(picture(1280, 720)), embedded(picture(2560, 1600))
    alone = block(picture(1280, 720))
    found = show([raw(small), raw(large), raw(alone)], ImageBudget(embedded=False))
    shown = fitted(found)
    assert shown[0] == shown[2] == alone
    assert shown[1]["type"] == "image"
    assert decoded(shown[1]).size == (2048, 1280)
    assert [cut.path for cut in found.cuts] == ["/content/0", "/content/1"]
    assert "without its resource" in found.cuts[0].said
    assert '"shot://1"' in found.cuts[0].said
    # A program gets what was sent.
    assert fitted(show([raw(small)], ImageBudget(treatment="pass", embedded=False))) == [small]


def test_an_embedded_image_is_read_back_as_an_image(vault: Vault) -> None:
    data = base64.b64encode(picture(1280, 720)).decode()
    sent = (
        b'{"type":"resource","resource":{"uri":"x:y","mimeType":"image\\/png","blob":"%b"}}' % data.encode()
    )
    sealed = seal(
        [msgspec.Raw(sent), {"type": "text", "text": "word " * 9000}],
        tokens=500,
        vault=vault.of(None),
        read_as="blocks",
    )
    back, is_error = reading(vault, sealed.handle, path="/content/0")
    assert not is_error
    assert back == [{"type": "image", "data": data, "mimeType": "image/png"}]
    back, _ = reading(vault, sealed.handle, path="/content/0", region="0,0,50,40")
    assert back[-1]["type"] == "image"
    assert decoded(back[-1]).size == (50, 40)


def test_base64_in_lines_is_decoded() -> None:
    data = base64.encodebytes(picture(2560, 1600)).decode()
    (shown,) = fitted(show([raw({**block(b""), "data": data})], ImageBudget()))
    assert decoded(shown).size == (2048, 1280)


def test_images_share_their_budget() -> None:
    found = show([raw(block(picture(1900, 1060)))] * 4, ImageBudget())
    sizes = [decoded(each).size for each in fitted(found)]
    assert len(set(sizes)) == 1
    assert sum(image_tokens(*size) for size in sizes) <= 8000
    assert sizes[0][0] > 1500


@pytest.mark.parametrize("scale", [0.2, 2])
def test_a_scale_may_be_asked_for(scale: float, vault: Vault) -> None:
    sealed = seal([block(file(gradient(1000, 5000)))], vault=vault.of(None))
    back, _ = reading(vault, sealed.handle, path="/content/0", region="0,0,400,600", scale=scale)
    assert decoded(back[-1]).size == (400 * scale, 600 * scale)
    assert f"multiply coordinates by {1 / scale:.5g}" in back[0]["text"]


@pytest.mark.parametrize("size", [(4001, 2003), (2577, 2000), (2000, 3333)])
def test_the_factor_is_right_to_the_pixel(size: tuple[int, int]) -> None:
    found = show([raw(block(file(gradient(*size))))], ImageBudget(longest=2000))
    factor = float(found.cuts[0].said.rpartition(" ")[2])
    shown = decoded(fitted(found)[0]).size
    longer = size.index(max(size))
    assert abs(shown[longer] * factor - size[longer]) < 0.2
    # The other side is rounded to whole pixels.
    assert abs(shown[1 - longer] * factor - size[1 - longer]) <= factor / 2 + 0.2


def test_a_client_takes_so_many_bytes() -> None:
    noise = Image.effect_noise((1200, 900), 90).convert("RGB")
    found = show([raw(block(file(noise)))], ImageBudget(most_bytes=120_000))
    (shown,) = fitted(found)
    assert len(shown["data"]) <= 120_000
    assert decoded(shown).format == "JPEG"
    # With a few bytes less, it needn't be scaled down as well, and the note says what became of it.
    found = show([raw(block(file(noise)))], ImageBudget(most_bytes=len(block(file(noise))["data"]) - 1))
    assert decoded(fitted(found)[0]).size == (1200, 900)
    assert found.cuts[0].said == "image at /content/0 has 1200×900 pixels and is shown as JPEG"
    assert found.cuts[0].way


# -- tiles ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(1280, 9000), (9000, 1280), (3000, 9000), (300, 4500)])
def test_tiles_cover_a_page(size: tuple[int, int], vault: Vault) -> None:
    page = gradient(*size)
    sealed = seal([{"type": "text", "text": "A page."}, block(file(page))], vault=vault.of(None))
    content = json.loads(sealed.content)
    rebuilt = Image.new("RGB", size)
    place, covered = [0, 0], 0
    for _ in range(40):
        tile = decoded(content[-1])
        assert tile.size[0] * tile.size[1] > 200_000
        note = content[0]["text"]
        x, y, width, height = map(int, re.findall(r"region (\d+),(\d+),(\d+),(\d+)", note)[0])
        assert [x, y] == place
        rebuilt.paste(tile.resize((width, height)), (x, y))
        covered += width * height
        following = re.search(r'region="(\d+),(\d+),(\d+),(\d+)"', note)
        if following is None:
            break
        assert min(tile.size[0] / width, tile.size[1] / height) >= 0.5
        place = [int(following[1]), int(following[2])]
        content, _ = reading(vault, sealed.handle, path="/content/1", region=following[0].split('"')[1])
    assert covered == size[0] * size[1]
    if size[0] < 2000:
        assert rebuilt.tobytes() == page.tobytes()


# -- odd files ------------------------------------------------------------------------------------------------


def _animation() -> bytes:
    frames = [Image.new("P", (2100, 1050), index) for index in range(3)]
    return file(frames[0], "GIF", save_all=True, append_images=frames[1:])


def _turned() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return file(gradient(2100, 1050), "JPEG", exif=exif)


ODD: dict[str, tuple[Callable[[], bytes], str]] = {
    "animated": (_animation, "image/gif"),
    "CMYK": (lambda: file(gradient(2100, 1050, "CMYK"), "JPEG"), "image/jpeg"),
    "16 bits": (lambda: file(Image.new("I;16", (2100, 1050), 40_000)), "image/png"),
    "palette": (lambda: file(gradient(2100, 1050, "P"), transparency=3), "image/png"),
    "alpha": (lambda: file(gradient(2100, 1050, "RGBA")), "image/png"),
    "grey and alpha": (lambda: file(gradient(2100, 1050).convert("LA")), "image/png"),
    "one bit": (lambda: file(gradient(2100, 1050, "1")), "image/png"),
    "turned": (_turned, "image/jpeg"),
    "webp": (lambda: file(gradient(2100, 1050), "WEBP"), "image/webp"),
}


@cache
def odd(name: str) -> tuple[bytes, str]:
    make, mime = ODD[name]
    return make(), mime


@pytest.mark.parametrize("name", ODD)
def test_odd_files_are_scaled_down(name: str, vault: Vault) -> None:
    data, mime = odd(name)
    sealed = seal([block(data, mime)], vault=vault.of(None))
    shown = decoded(json.loads(sealed.content)[-1])
    assert shown.size == ((1024, 2048) if name == "turned" else (2048, 1024))
    if name == "16 bits":
        assert shown.convert("L").getpixel((5, 5)) == pytest.approx(40_000 // 256, abs=1)
    if name in ("alpha", "grey and alpha"):
        assert "A" in shown.getbands()
    assert ("first frame" in json.loads(sealed.content)[0]["text"]) == (name == "animated")


@pytest.mark.parametrize("broken", ["truncated", "corrupt", "header alone", "bomb", "lies"])
def test_a_file_that_cannot_be_decoded_is_kept_and_the_note_says_why(broken: str, vault: Vault) -> None:
    whole = picture(3000, 2000)
    data = {
        "truncated": whole[: len(whole) // 2],
        "corrupt": whole[:41] + b"\xff" * 1000 + whole[1041:],
        "header alone": whole[:33] + bytes(600),
        "bomb": whole[:16] + (60_000).to_bytes(4, "big") * 2 + whole[24:],
        "lies": b"GIF89a" + (5000).to_bytes(2, "little") * 2 + bytes(900),
    }[broken]
    blocks = [{"type": "text", "text": "A shot."}, block(data)]
    sealed = seal(blocks, vault=vault.of(None))
    note, text, stub = json.loads(sealed.content)
    assert text == blocks[0]
    assert "left out: it " in note["text"]
    assert "left out: it " in stub["text"]
    assert f'handle="{sealed.handle}"' in note["text"]
    for view in ({}, {"region": "0,0,10,10"}):
        _, is_error = reading(vault, sealed.handle, path="/content/1", **view)
        assert is_error
    exact, _ = reading(vault, sealed.handle, path="/content/1/data", exact=True)
    assert exact[-1]["text"].startswith("iVBOR" if broken != "lies" else "R0lG")


@given(st.data())
@settings(max_examples=examples(40))
def test_whatever_is_in_a_file_there_is_no_exception(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(ODD)))
    whole, mime = odd(name)
    spoiled = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 8))):
        spoiled[data.draw(st.integers(0, min(len(spoiled), 2000) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(600, len(spoiled)))
    found = show([raw(block(bytes(spoiled[:cut]), mime))], ImageBudget(longest=600))
    for each in found.cuts:
        assert each.said


# -- the budget -----------------------------------------------------------------------------------------------

SIZES = st.tuples(st.integers(20, 3000), st.integers(20, 3000))


@given(
    sizes=st.lists(SIZES, min_size=1, max_size=6),
    count=st.integers(0, 5),
    tokens=st.integers(0, 9000),
    cost=st.sampled_from(["largest", "claude", "gpt", "gemini"]),
    longest=st.sampled_from([None, 300, 1568]),
)
@settings(max_examples=examples(25))
def test_nothing_is_above_the_budget_and_what_is_within_it_is_unchanged(
    sizes: list[tuple[int, int]], count: int, tokens: int, cost: str, longest: int | None
) -> None:
    sent = [block(picture(*size) + bytes(600)) for size in sizes]
    budget = ImageBudget(count, tokens, cost, longest)
    found = show(list(map(raw, sent)), budget)
    shown = [each for each in fitted(found) if each["data"]]
    assert len(shown) <= count
    sizes_shown: list[tuple[int, int]] = [decoded(each).size for each in shown]
    assert sum([image_tokens(width, height, cost) for width, height in sizes_shown]) <= tokens
    most = budget.room(tokens).longest
    assert all(max(decoded(each).size) <= most for each in shown)
    changed = {cut.path for cut in found.cuts}
    for index, each in enumerate(fitted(found)):
        assert (each == sent[index]) == (f"/content/{index}" not in changed)
    wanted = sum(image_tokens(width, height, cost) for width, height in sizes)
    if len(sizes) <= count and wanted <= tokens:
        assert all(max(size) > most for index, size in enumerate(sizes) if f"/content/{index}" in changed)


@given(sizes=st.lists(SIZES, max_size=5), words=st.integers(0, 4000), tokens=st.integers(400, 3000))
@settings(max_examples=examples(15))
def test_the_text_stays_within_its_own_budget(sizes: list[tuple[int, int]], words: int, tokens: int) -> None:
    sent = [{"type": "text", "text": "a word " * words}]
    sent += [block(picture(*size) + bytes(600)) for size in sizes]
    sealed = seal(sent, tokens=tokens)
    content = json.loads(sealed.content)
    for each in content:
        if each["type"] == "image":
            each["data"] = ""
    from mcp_envelope.budget import meter_named

    assert meter_named("exact").count(as_shown(content)) <= tokens


@given(
    size=st.tuples(st.integers(1, 6000), st.integers(1, 6000)),
    longest=st.integers(64, 3000),
    tokens=st.integers(1, 9000),
    cost=st.sampled_from(["largest", "claude", "gpt", "gemini"]),
)
def test_a_factor_is_within_the_room(size: tuple[int, int], longest: int, tokens: int, cost: str) -> None:
    room = ImageRoom(longest, 1 << 30, tokens, lambda width, height: image_tokens(width, height, cost))
    factor = room.factor(*size)
    assert 0 <= factor <= 1
    if factor:
        shown = max(1, round(size[0] * factor)), max(1, round(size[1] * factor))
        assert max(shown) <= longest
        assert image_tokens(*shown, cost) <= tokens


# -- settings -------------------------------------------------------------------------------------------------


def test_images_may_pass_untouched_or_not_at_all() -> None:
    sent = [block(picture(2560, 1920))] * 6
    passed = show(list(map(raw, sent)), ImageBudget(treatment="pass"))
    assert fitted(passed) == sent
    assert not passed.cuts
    found = show(list(map(raw, sent)), ImageBudget(treatment="store", refused="nobody sees them"))
    assert not found.data
    assert all(cut.said.endswith("left out: nobody sees them") for cut in found.cuts)


def test_without_pillow_an_image_is_shown_as_it_is_if_its_bytes_allow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (images, pixels):
        monkeypatch.setattr(module, "has_pillow", lambda: False)
    large = block(picture(2560, 1920))
    assert fitted(show([raw(large)], ImageBudget())) == [large]
    (cut,) = show([raw(large)], ImageBudget(most_bytes=1000)).cuts
    assert "mcp-envelope[images]" in cut.said


# -- regions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("view", "said"),
    [
        ({"region": "5000,0,10,10"}, "which has 1280×900 pixels"),
        ({"region": "0,0,0,10"}, "which has 1280×900 pixels"),
        ({"region": "-1,0,10,10"}, 'not \\\\"-1,0,10,10'),
        ({"region": "half"}, "x,y,width,height"),
        ({"region": {"x": 1}}, "x,y,width,height"),
        ({"scale": 0}, "`scale` is a number above 0"),
        ({"scale": "big"}, "`scale` is a number above 0"),
        ({"region": "0,0,9,9", "path": "/content/0"}, "There is no image at /content/0"),
        ({"region": "0,0,9,9", "path": "/content/2"}, "There is no image at /content/2"),
    ],
)
def test_a_bad_region(view: dict[str, Any], said: str, vault: Vault) -> None:
    sound = {"type": "audio", "data": "aGk=" * 20, "mimeType": "audio/wav"}
    sent = [{"type": "text", "text": "a shot " * 9000}, block(picture(1280, 900)), sound]
    sealed = seal(sent, vault=vault.of(None))
    content, is_error = reading(vault, sealed.handle, **{"path": "/content/1", **view})
    assert is_error
    assert said.replace("\\\\", "\\") in content[0]["text"]
    assert "BAD_ARGS" in content[0]["text"]


@pytest.mark.parametrize(
    "region", ["10,20,300,200", " [10, 20, 300, 200] ", [10, 20, 300, 200], [10.0, 20, 300.0, 200]]
)
def test_a_region_may_be_spelled_in_other_ways(region: object, vault: Vault) -> None:
    sealed = seal([{"type": "text", "text": "x " * 90_000}, block(picture(1280, 900))], vault=vault.of(None))
    # Without a path, it is the first image.
    content, is_error = reading(vault, sealed.handle, region=region)
    assert not is_error
    assert decoded(content[-1]).size == (300, 200)


def test_what_was_stored_is_read_back_whole_or_refused(vault: Vault) -> None:
    sound = {"type": "audio", "data": "aGk=" * 2000, "mimeType": "audio/wav"}
    pdf = {
        "type": "resource",
        "resource": {"uri": "x://1", "mimeType": "application/pdf", "blob": "aGk=" * 2000},
    }
    long = {**sound, "data": "aGk=" * 90_000}
    sent = [{"type": "text", "text": "x " * 90_000}, block(picture(1280, 900)), sound, pdf, long]
    sealed = seal(sent, vault=vault.of(None))
    for index in (1, 2, 3):
        for path in (f"/content/{index}", f"/content/{index}/data") if index < 3 else ("/content/3",):
            content, _ = reading(vault, sealed.handle, path=path)
            assert content == [sent[index]]
    content, is_error = reading(vault, sealed.handle, path="/content/4")
    assert is_error
    assert "TOO_LARGE" in content[0]["text"]
    content, is_error = reading(vault, sealed.handle, path="/content/4/data", exact=True)
    assert not is_error
    assert content[-1]["text"].startswith("aGk=aGk=")


def test_a_rendering_is_the_part_that_was_asked_for() -> None:
    room = ImageRoom(2000, 1 << 24, 8000, image_tokens)
    made = render(file(gradient(1280, 9000)), room, (0, 8900, 5000, 5000))
    assert (made.region, made.shown, made.then) == ((0, 8900, 1280, 100), (1280, 100), None)
