"""Images, audio and embedded files in a stored result, read back as blocks of their own.

Strategy: a block is shown as it was stored, or refused with the reason; base64 is never cut into pages. An image
may be asked for by region and scale, and is made smaller where the budget for images asks for that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ..budget import Budget
from ..fit.documents import Cut
from ..fit.images import MOST_BYTES, File, ImageBudget, image_cut, image_file, is_image_type, put_back, show
from ..fit.pixels import Box, OutsideImage, Unshowable
from ..jsontext.document import encode
from ..outcome import Failure
from ..payload import shown
from .document import StoredValue

# The path of a block, or of what is in it.
FILE_IN_BLOCK: Final = re.compile(r"(/content/\d{1,15})(?:/data|/resource|/resource/blob)?")
_REGION: Final = re.compile(r"\[?\s*" + r"\s*,\s*".join([r"(\d{1,9})(?:\.0*)?"] * 4) + r"\s*\]?")
_MOST_SCALE: Final = 4
# Shorter base64 may stand in a page.
_LONGEST_BASE64: Final = 1000
_SAVED: Final = "Tell the user that `mcp-envelope read` saves it: --path and --output."


class View(msgspec.Struct, frozen=True):
    """Which part of an image is asked for, and at what scale."""

    region: Box | None = None
    scale: float | None = None


class Media(msgspec.Struct, frozen=True):
    """A content block to be shown, and what it leaves out of an image."""

    block: bytes
    cuts: tuple[Cut, ...] = ()


def read_view(arguments: Mapping[str, Any]) -> View | None:
    """Return the region and the scale among the arguments; None if neither is there."""
    region, scale = arguments.get("region"), arguments.get("scale")
    if region in (None, "") and scale is None:
        return None
    box = None
    if region not in (None, ""):
        numbers = _REGION.fullmatch(region.strip() if isinstance(region, str) else encode(region).decode())
        if numbers is None:
            said = encode(region)[:60].decode("utf-8", "ignore")
            message = f"`region` must be x,y,width,height in pixels, not {said}."
            raise Failure("BAD_ARGS", message, "Write it like 0,1080,1280,1080.")
        x, y, width, height = map(int, numbers.groups())
        box = x, y, width, height
    try:
        factor = None if scale is None else float(scale)
    except (TypeError, ValueError):
        factor = 0.0
    if factor is not None and not 0 < factor <= _MOST_SCALE:
        raise Failure("BAD_ARGS", f"`scale` is a number above 0, up to {_MOST_SCALE}.", "Write it like 0.5.")
    return View(box, factor)


def no_image(path: str) -> Failure:
    message = f"There is no image at {path[:200] or 'the top'} whose pixels can be read."
    return Failure(
        "BAD_ARGS", message, "`region` and `scale` are for PNG, JPEG, GIF and WebP: give their path."
    )


def first_image(content: StoredValue) -> str:
    """Return the path of the first image among content blocks, or of the list itself."""
    for index in range(content.total):
        if (block := content.item(index)) is not None and _kind(block) == "image":
            return block.path
    return content.path


def _kind(block: StoredValue) -> str:
    """Return "image" or "audio", "file" for another one as base64, "" for any other block."""
    kind = block.child("type")
    said = "" if kind is None or kind.size > 20 else kind.raw().decode().strip('"')
    if said == "resource":
        held = block.child("resource")
        if held is None or held.child("blob") is None:
            return ""
        mime = held.child("mimeType")
        return "image" if mime is not None and is_image_type(mime.raw()) else "file"
    return said if said in ("image", "audio") else ""


def holds_file(root: StoredValue, path: str) -> bool:
    """Whether a path leads to an image, audio or another file in a block, or into it."""
    inside = FILE_IN_BLOCK.fullmatch(path)
    content = root.child("content") if inside else None
    block = content.item(int(inside[1].rpartition("/")[2])) if inside and content is not None else None
    return block is not None and bool(_kind(block))


def without_files(root: StoredValue, found: bytes) -> bytes:
    """Return what a query found without the base64 of files, which can be read as blocks."""
    content = root.child("content") if len(found) > _LONGEST_BASE64 else None
    for index in range(content.total if content is not None else 0):
        block = content.item(index) if content is not None else None
        if block is None or not _kind(block):
            continue
        held = block.child("resource") or block
        data = held.child("blob" if held is not block else "data")
        if data is not None and _LONGEST_BASE64 < data.size <= len(found):
            found = found.replace(data.raw(), encode(f"[{data.size} bytes of base64, see {block.path}]"))
    return found


def media(block: StoredValue, budget: Budget, images: ImageBudget, view: View | None) -> Media | None:
    """Return the image, audio or file in a block, as far as it may be shown; None if the block holds none."""
    kind = _kind(block)
    if not kind:
        return None
    if block.size > MOST_BYTES:
        raise _too_large(kind, block, f"more than {MOST_BYTES} are not shown")
    raw = block.raw()
    image = image_file(raw) if kind == "image" else None
    if image is not None and image.size is not None:
        return _image(image.alone(), block.path, images, view)
    if view is not None:
        raise no_image(block.path)
    if block.size > images.saved_bytes and not budget.holds(shown([raw])):
        raise _too_large(kind, block, f"the budget is {budget.limit} {budget.unit}")
    return Media(raw)


def _image(image: File, path: str, images: ImageBudget, view: View | None) -> Media:
    if images.refused:
        raise Failure("NOT_IMPLEMENTED", f"The image can't be shown: {images.refused}.", _SAVED)
    # An image that is asked for is shown even where results show none.
    images = msgspec.structs.replace(
        images,
        count=1,
        cost="largest" if images.cost == "bytes" else images.cost,
        treatment="pass" if images.treatment == "pass" else "fit",
    )
    assert image.size is not None
    try:
        if view is not None:
            rendering = image.render(images.room(images.tokens), view.region, view.scale)
            data = image.showing(rendering)
            return Media(data.with_data(data.data), (image_cut(path, rendering),))
        found = show([image.block], images, [path])
        if found.data:
            block = put_back(bytes(found.blocks[0]), found.data) if found.cuts else bytes(image.block)
            return Media(block, found.cuts)
        raise Unshowable(found.cuts[0].said.partition(": ")[2])
    except OutsideImage as error:
        width, height = error.size
        message = f"The region is outside the image, which has {width}×{height} pixels."
        raise Failure(
            "BAD_ARGS", message, f"x must be less than {width}, and y less than {height}."
        ) from None
    except Unshowable as reason:
        size = "×".join(map(str, image.size))
        raise Failure("TOO_LARGE", f"The image of {size} pixels can't be shown: {reason}.", _SAVED) from None


def _too_large(kind: str, block: StoredValue, why: str) -> Failure:
    message = f"The {kind} at {block.path} has {block.size} bytes as base64, and {why}."
    hint = "Raise the budget, read the base64 in pages with exact=true, or save it with `mcp-envelope read`."
    return Failure("TOO_LARGE", message, hint)
