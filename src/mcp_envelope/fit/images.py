"""What an image costs a model, how it stays out of the text's budget, and what becomes of one that is too large.

Strategy: models pay for pixels, not for base64. Width and height are read from the first bytes of the file,
without decoding it, and turned into tokens by the formulas of the large vendors. Images have a budget of their
own, in number and in tokens, which they share like the values of a document. Those within it are set aside before
a result is fitted: the block stays, with a short mark in place of its data, and the data is put back into the
finished lane. A larger one is scaled down or cut to a tile (`pixels`) first, or a line says why it was left out;
both are cuts. An image of unknown size counts as the text of its base64, like any other block. Audio and other
files do, too, unless the client saves them: then they are set aside in the same way.
"""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from ..jsontext.document import Buffer, Node, TooDeep, encode, quoted, string_cut
from .blocks import label
from .documents import Cut, share
from .pixels import MOST_PIXELS, Box, ImageRoom, Rendering, Unshowable, has_pillow, render

COSTS: Final = ("largest", "claude", "gpt", "gemini", "bytes")
TREATMENTS: Final = ("fit", "pass", "store")
# Larger files aren't decoded, not even to be scaled down.
MOST_BYTES: Final = 64 << 20
# What has more pixels isn't left to the client to decode either: this is the limit of the library that most have.
_MOST_PASSED: Final = 0x3FFF**2
# What vendors take: the longest side that they don't scale down themselves, and the most bytes of base64.
_TAKEN: Final = {"claude": (2576, 5_000_000), "gpt": (2048, 16_000_000), "gemini": (3072, 15_000_000)}
# In a JPEG, the size comes after previews and colour profiles.
_FIRST: Final = 128
_HEAD: Final = 256 << 10
# An image that has to share its budget is not made so small that it costs less than this.
_LEAST_TOKENS: Final = 400
_LONGEST_URI: Final = 200
# A block that holds a file is larger, in bytes.
_SMALLEST_FILE: Final = 512


class ImageBudget(msgspec.Struct, frozen=True):
    """How many images a result may show, what they may cost in all, by which formula, and how large each may be."""

    count: int = 4
    tokens: int = 8000
    cost: str = "largest"
    longest: int | None = None
    most_bytes: int | None = None
    # "fit", "pass" (as they are, whatever they cost), "store" (none is shown).
    treatment: str = "fit"
    # Why the client's model can't see any.
    refused: str = ""
    # Whether the client drops images that come beside a structure.
    alone: bool = False
    # Whether it shows those in embedded resources as images.
    embedded: bool = True
    # How many bytes of base64 the client saves of audio and other files, which then cost nothing.
    saved_bytes: int = 0

    def room(self, tokens: int) -> ImageRoom:
        longest, most_bytes = _TAKEN.get(self.cost) or map(min, *_TAKEN.values())
        return ImageRoom(
            self.longest or longest,
            self.most_bytes or most_bytes,
            tokens,
            lambda width, height: image_tokens(width, height, self.cost),
        )


class Shown(msgspec.Struct, frozen=True):
    """Blocks with a mark in place of each image's data, the data by mark, and what isn't shown of the images."""

    blocks: tuple[Buffer, ...]
    data: Mapping[bytes, bytes] = {}
    cuts: tuple[Cut, ...] = ()


def set_aside(
    blocks: Sequence[Buffer], budget: ImageBudget, beside_structure: bool
) -> tuple[tuple[Buffer, ...], bool]:
    """Return the blocks as they are measured, without the data of images, and whether the images may stay."""
    found = _found(blocks, budget)
    measured = list(blocks)
    for file in (*found, *_saved(blocks, budget)):
        measured[file.index] = file.with_data(b'""')
    shares = _shares(found, budget)
    stays = budget.treatment == "pass" or all(
        _stays(image, tokens, budget) for image, tokens in zip(found, shares, strict=True)
    )
    return tuple(measured), not found or (stays and not (budget.alone and beside_structure))


def show(blocks: Sequence[Buffer], budget: ImageBudget, paths: Sequence[str] = ()) -> Shown:
    """Return the blocks with their images as far as the budget allows. `paths` are theirs, if not the usual."""
    found, saved = _found(blocks, budget), _saved(blocks, budget)
    if not found and not saved:
        return Shown(tuple(blocks))
    shown, data, cuts = list(blocks), dict[bytes, bytes](), list[Cut]()
    granted = _shares(found, budget)
    for image, tokens in zip(found, granted, strict=True):
        path = paths[image.index] if paths else f"/content/{image.index}"
        try:
            if budget.treatment == "store":
                raise Unshowable(budget.refused or "images are stored, as configured")
            if budget.treatment == "fit" and not _stays(image, tokens, budget):
                if tokens is None:
                    raise Unshowable(
                        f"a result shows at most {budget.count} images in {budget.tokens} tokens"
                    )
                taken_out = image if budget.embedded else image.alone()
                if _fits(image, tokens, budget):
                    cuts.append(_alone_cut(image, path))
                    image = taken_out
                else:
                    rendering = image.render(budget.room(tokens))
                    cuts.append(image_cut(path, rendering))
                    image = taken_out.showing(rendering)
        except Unshowable as reason:
            said = f"{image.described} at {path} left out: {reason}"
            # One that was left out for the number of images can be seen alone.
            way = "See it" if tokens is None and budget.treatment == "fit" else ""
            cuts.append(Cut(path, "bytes", 0, len(image.data), 0, said=said, way=way))
            shown[image.index] = image.with_data(b'""')
            continue
        mark = _mark()
        shown[image.index], data[mark] = image.with_data(mark), image.data
    for file in saved:
        mark = _mark()
        shown[file.index], data[mark] = file.with_data(mark), file.data
    return Shown(tuple(shown), data, tuple(cuts))


def _mark() -> bytes:
    # Random, so that no text can contain it on purpose.
    return b'"%b"' % os.urandom(6).hex().encode()


def put_back(lane: bytes, data: Mapping[bytes, bytes]) -> bytes:
    for mark, image in data.items():
        lane = lane.replace(mark, image, 1)
    return lane


def _shares(found: Sequence[File], budget: ImageBudget) -> list[int | None]:
    """Return how many tokens each image may cost; None for one that is too many."""
    if budget.treatment != "fit":
        return [None] * len(found)
    room = budget.room(budget.tokens)
    # What has to be scaled down, or cut to a tile, takes as much as it gets.
    largest = room.cost(room.longest, room.longest)
    wanted = [
        largest
        if max(image.size or (0,)) > room.longest and image.can_be_scaled
        else room.cost(*image.size or (0, 0))
        for image in found[: budget.count]
    ]
    if not has_pillow():
        left, granted = budget.tokens, list[int | None]()
        for tokens in wanted:
            granted.append(tokens if tokens <= left else None)
            left -= granted[-1] or 0
    else:
        least = max(image_tokens(1, 1, budget.cost), _LEAST_TOKENS)
        kept = len(wanted)
        while (
            shares := share(wanted[:kept], [min(each, least) for each in wanted[:kept]], budget.tokens)
        ) is None:
            kept -= 1
        granted = [*shares]
    return granted + [None] * (len(found) - len(granted))


def _stays(image: File, tokens: int | None, budget: ImageBudget) -> bool:
    """Whether an image goes out as it came."""
    return _fits(image, tokens, budget) and (image.in_place or budget.embedded)


def _fits(image: File, tokens: int | None, budget: ImageBudget) -> bool:
    """Whether an image is shown as it is."""
    if tokens is None or image.size is None or image.size[0] * image.size[1] > _MOST_PASSED:
        return False
    room = budget.room(tokens)
    if len(image.data) - 2 > room.most_bytes or room.cost(*image.size) > tokens:
        return False
    # What can't be scaled down here is scaled down by the client, or by the vendor.
    return max(image.size) <= room.longest or not image.can_be_scaled


def _found(blocks: Sequence[Buffer], budget: ImageBudget) -> list[File]:
    """Return the images among the blocks that have a budget of their own."""
    if budget.cost == "bytes" and budget.treatment == "fit":
        return []
    found = [image for index, block in enumerate(blocks) if (image := image_file(block, index)) is not None]
    # One whose size can't be read is treated like text, unless the treatment is the same for all.
    return [image for image in found if image.size is not None or budget.treatment != "fit"]


def _saved(blocks: Sequence[Buffer], budget: ImageBudget) -> list[File]:
    """Return the audio and other files among the blocks that the client saves; it takes so much in one result."""
    found, left = list[File](), budget.saved_bytes
    for index, block in enumerate(blocks) if left else ():
        file = file_in(block, index)
        if file is not None and not file.is_image and len(file.data) <= left:
            left -= len(file.data)
            found.append(file)
    return found


def image_cut(path: str, rendering: Rendering) -> Cut:
    said, way, region = _told(rendering, f"image at {path}")
    (width, height), shown = rendering.whole, rendering.shown
    return Cut(path, "pixels", shown[0] * shown[1], width * height, 0, said=said, way=way, region=region)


def _told(rendering: Rendering, what: str) -> tuple[str, str, str]:
    """Return what is shown of an image, what a further call is for, and the region that it asks for."""
    (width, height), (x, y, *extent), then = rendering.whole, rendering.region, rendering.then
    is_whole = extent == [width, height]
    is_scaled = tuple(extent) != rendering.shown
    size = "×".join(map(str, rendering.shown))
    factor = f"multiply coordinates by {rendering.factor:.5g}"
    if is_whole:
        said = f"{what} has {width}×{height} pixels and is shown "
        # What isn't scaled down was made smaller in bytes.
        said += f"at {size}; {factor}" if is_scaled else f"as {rendering.mime.partition('/')[2].upper()}"
    else:
        parts = ([factor] if is_scaled else []) + ([f"add {x},{y} to coordinates"] if x or y else [])
        said = f"{what} has {width}×{height} pixels; this is region {x},{y},{extent[0]},{extent[1]}"
        said += (f" at {size}" if is_scaled else "") + (f"; {', then '.join(parts)}" if parts else "")
    if rendering.is_animated:
        said += "; the first frame alone"
    if then is not None:
        return said, "Next", ",".join(map(str, then))
    is_reduced = rendering.factor > 1 or (is_whole and not is_scaled)
    return (said, "Parts in full size", "x,y,width,height") if is_reduced else (said, "", "")


def _alone_cut(image: File, path: str) -> Cut:
    uri = quoted(label(image.block).get("uri", "")[:_LONGEST_URI])
    said = f"image at {path} is shown without its resource, {uri}"
    return Cut(path, "bytes", len(image.data), len(image.block), 0, said=said)


# -- the file in a block --------------------------------------------------------------------------------------


class File(msgspec.Struct, frozen=True):
    """A file in a block, or in a resource embedded in it: its base64 and its media type, as JSON strings.

    `size` is that of an image whose header can be read.
    """

    block: Buffer
    index: int
    key: str
    data: bytes
    mime: bytes
    is_image: bool
    size: tuple[int, int] | None

    @property
    def in_place(self) -> bool:
        """Whether the block itself is of the file's type."""
        return self.key == "data"

    @property
    def described(self) -> str:
        kind = msgspec.json.decode(self.mime, type=str)[:60]
        kind = kind if kind.isprintable() and "/" in kind else "image"
        return f"{kind} of {self.size[0]}×{self.size[1]} pixels" if self.size else kind

    @property
    def has_too_many_pixels(self) -> bool:
        return self.size is not None and self.size[0] * self.size[1] > MOST_PIXELS

    @property
    def can_be_scaled(self) -> bool:
        return has_pillow() and not self.has_too_many_pixels

    def render(self, room: ImageRoom, region: Box | None = None, scale: float | None = None) -> Rendering:
        if len(self.data) > MOST_BYTES:
            raise Unshowable(f"it has {len(self.data)} bytes")
        if self.has_too_many_pixels:
            raise Unshowable("it has too many pixels to be decoded")
        try:
            file = b64decode(_base64(self.data), validate=True)
        except (ValueError, msgspec.MsgspecError):
            raise Unshowable("it can't be decoded") from None
        return render(file, room, region, scale)

    def showing(self, rendering: Rendering) -> File:
        data, mime = b'"%b"' % b64encode(rendering.file), encode(rendering.mime)
        return msgspec.structs.replace(self, data=data, mime=mime, size=rendering.shown)

    def alone(self) -> File:
        """Return an image as a block of its own, without the resource that it is embedded in."""
        if self.in_place:
            return self
        block = b'{"type":"image","data":%b,"mimeType":%b}' % (self.data, self.mime)
        return msgspec.structs.replace(self, block=block, key="data")

    def with_data(self, data: bytes) -> bytes:
        """Return the block with other data; everything else stays as it is spelled."""
        changes = {self.key: data, "mimeType": self.mime}
        if self.in_place:
            return _with(self.block, changes)
        held = next(member.value for member in Node(self.block).members() if member.key == "resource")
        return _with(self.block, {"resource": _with(held, changes)})


def image_file(block: Buffer, index: int = 0) -> File | None:
    """Return the image in a content block, if there is one."""
    file = file_in(block, index)
    return file if file is not None and file.is_image else None


def file_in(block: Buffer, index: int = 0) -> File | None:
    """Return the file in a content block, if there is one."""
    if not may_be_file(block):
        return None
    try:
        members = _members(block)
        kind, key = msgspec.json.decode(members["type"], type=str), "data"
        if kind == "resource":
            members, key = _members(members["resource"]), "blob"
        # Only in a resource is the type optional.
        mime = bytes(members["mimeType"] if key == "data" else members.get("mimeType", b'""'))
        data = bytes(members[key])
        is_image = kind == "image" or (key == "blob" and is_image_type(mime))
    except (msgspec.MsgspecError, TooDeep, RecursionError, UnicodeError, LookupError):
        return None
    if data[:1] != b'"':
        return None
    return File(block, index, key, data, mime, is_image, dimensions(data) if is_image else None)


def is_image_type(mime: Buffer) -> bool:
    """Whether a media type, as a JSON string, is that of an image."""
    try:
        return msgspec.json.decode(mime, type=str).startswith("image/")
    except msgspec.MsgspecError:
        return False


def _members(value: Buffer) -> dict[str, Buffer]:
    """Return the members of an object whose keys are all different: of equal ones, clients see one or the other."""
    members = Node(value).members()
    found = {member.key: member.value for member in members}
    if len(found) < len(members):
        raise LookupError
    return found


def _with(value: Buffer, changes: Mapping[str, bytes]) -> bytes:
    return b"{%b}" % b",".join(
        [
            b"%b:%b" % (member.raw_key, changes.get(member.key, member.value))
            for member in Node(value).members()
        ]
    )


def image_tokens(width: int, height: int, cost: str = "largest") -> int:
    """Return what a model pays for an image, after scaling it down as its vendor does."""
    costs = {"claude": _claude, "gpt": _gpt, "gemini": _gemini}
    if cost in costs:
        return costs[cost](width, height)
    return max(each(width, height) for each in costs.values())


def _claude(width: int, height: int) -> int:
    width, height = _scaled(width, height, 2576)
    return min(-(-width // 28) * -(-height // 28), 4784)


def _gpt(width: int, height: int) -> int:
    width, height = _scaled(width, height, 2048)
    return -(-6 * -(-width // 32) * -(-height // 32) // 5)


def _gemini(width: int, height: int) -> int:
    return 1101


def _scaled(width: int, height: int, most: int) -> tuple[int, int]:
    longer = max(width, height)
    return (width, height) if longer <= most else (-(-width * most // longer), -(-height * most // longer))


def dimensions(data: bytes) -> tuple[int, int] | None:
    """Return the width and height of a PNG, JPEG, GIF or WebP file, given as base64 in a JSON string."""
    head = _head(data, _FIRST)
    size = None
    if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR":
        size = _big(head[16:20]), _big(head[20:24])
    elif head[:6] in (b"GIF87a", b"GIF89a"):
        size = _little(head[6:8]), _little(head[8:10])
    elif head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        size = _webp(head)
    elif head.startswith(b"\xff\xd8"):
        size = _jpeg(_head(data, _HEAD))
    return size if size is not None and min(size) > 0 else None


def _head(data: bytes, most: int) -> bytes:
    """Return the first bytes of a file, given as base64 in a JSON string."""
    try:
        text = _base64(b'%b"' % data[: string_cut(data, min(most, len(data) - 1))])
        return b64decode(text[: len(text) // 4 * 4], validate=True)
    except (ValueError, msgspec.MsgspecError):
        return b""


def _base64(data: bytes) -> str:
    """Return the base64 in a JSON string, which may have escapes and line breaks in it."""
    return "".join(msgspec.json.decode(data, type=str).split())


def _webp(head: bytes) -> tuple[int, int] | None:
    match head[12:16]:
        case b"VP8X":
            return _little(head[24:27]) + 1, _little(head[27:30]) + 1
        case b"VP8 " if head[23:26] == b"\x9d\x01\x2a":
            return _little(head[26:28]) & 0x3FFF, _little(head[28:30]) & 0x3FFF
        case b"VP8L" if head[20:21] == b"\x2f":
            bits = _little(head[21:25])
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return None


def _jpeg(head: bytes) -> tuple[int, int] | None:
    """Return the size in the frame header, which follows segments of any number and length."""
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        marker = head[at + 1]
        if marker == 0xFF or 0xD0 <= marker <= 0xD7 or marker == 0x01:
            at += 1 if marker == 0xFF else 2
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return _big(head[at + 7 : at + 9]), _big(head[at + 5 : at + 7])
        else:
            at += 2 + max(_big(head[at + 2 : at + 4]), 2)
    return None


def _big(number: bytes) -> int:
    return int.from_bytes(number, "big")


def _little(number: bytes) -> int:
    return int.from_bytes(number, "little")


class _ImageBlock(msgspec.Struct, tag_field="type", tag="image"):
    pass


class _AudioBlock(msgspec.Struct, tag_field="type", tag="audio"):
    pass


class _ResourceBlock(msgspec.Struct, tag_field="type", tag="resource"):
    pass


_TAGGED: Final = msgspec.json.Decoder(_ImageBlock | _AudioBlock | _ResourceBlock)


def may_be_file(block: Buffer) -> bool:
    """Whether a block is of a type that can hold a file; of another, little more than the type is read."""
    if len(block) <= _SMALLEST_FILE:
        return False
    try:
        _TAGGED.decode(block)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return False
    return True
