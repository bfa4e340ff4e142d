"""Images made smaller: scaled down, or a region of them cut out, with Pillow.

Strategy: what is shown is a region at a factor. A screenshot is scaled down as a whole. A page that is many times
higher than wide would be unreadable then, so its beginning is shown instead, as a tile of readable size, and the
next tile has a region of its own. Files come from strangers: only four formats are opened, their pixels are bounded
before anything is decoded, one image is decoded at a time, and whatever Pillow raises becomes `Unshowable`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from io import BytesIO
from math import ceil, sqrt
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from PIL.Image import Image

Box = tuple[int, int, int, int]
# What an image of this width and height costs a model, in tokens.
Cost = Callable[[int, int], int]

# More pixels are not decoded: they take four bytes each.
MOST_PIXELS: Final = 64_000_000
_FORMATS: Final = ("PNG", "JPEG", "GIF", "WEBP")
# Below this factor, text in an image is hard to read. One whose sides differ so many times is then shown in tiles,
# which are themselves at most this much longer than wide, or this many pixels long.
_READABLE: Final = 0.5
_EXTREME: Final = 2.0
_TILE: Final = 1.5
_SHORTEST_TILE: Final = 1024
_TRIES: Final = 12
_lock = threading.Lock()


class Unshowable(Exception):
    """The image can't be shown; the message says why."""


class OutsideImage(Exception):
    """The region is not within the image, which has this size."""

    def __init__(self, width: int, height: int) -> None:
        super().__init__(f"{width}×{height}")
        self.size = width, height


class ImageRoom(msgspec.Struct, frozen=True):
    """How large an image may be: its longest side, the bytes of its base64, and what it may cost."""

    longest: int
    most_bytes: int
    tokens: int
    cost: Cost

    def factor(self, width: int, height: int) -> float:
        """Return by how much an image has to be scaled down; 0 if no size is small enough."""
        factor = min(1.0, self.longest / max(width, height))
        for _ in range(_TRIES):
            size = _scaled(width, height, factor)
            if (cost := self.cost(*size)) <= self.tokens:
                return factor
            factor *= min(0.98, sqrt(self.tokens / cost))
        return 0.0


class Rendering(msgspec.Struct, frozen=True):
    """A region of an image as it is shown, and the region that comes next, if there is one."""

    file: bytes
    mime: str
    whole: tuple[int, int]
    region: Box
    shown: tuple[int, int]
    then: Box | None
    is_animated: bool

    @property
    def factor(self) -> float:
        """What coordinates in the image shown are multiplied by."""
        return max(self.region[2], self.region[3]) / max(self.shown)


@cache
def has_pillow() -> bool:
    return find_spec("PIL") is not None


def render(file: bytes, room: ImageRoom, region: Box | None = None, scale: float | None = None) -> Rendering:
    """Return as much of an image, or of a region of it, as may be shown."""
    if not has_pillow():
        raise Unshowable('scaling needs Pillow: pip install "mcp-envelope[images]"')
    with _lock:
        try:
            return _render(file, room, region, scale)
        except (Unshowable, OutsideImage):
            raise
        except Exception as error:
            # Pillow raises errors of many types for damaged files, SyntaxError and struct.error among them.
            raise Unshowable("it can't be decoded") from error


def _render(file: bytes, room: ImageRoom, region: Box | None, scale: float | None) -> Rendering:
    from PIL import Image

    with Image.open(BytesIO(file), formats=_FORMATS) as opened:
        if opened.width * opened.height > MOST_PIXELS:
            raise Unshowable("it has too many pixels to be decoded")
        is_lossy = opened.format in ("JPEG", "MPO")
        is_animated = bool(getattr(opened, "is_animated", False))
        image = _upright(_plain(opened))
    whole = image.size
    asked = _within(region, whole)
    shown = _chosen(asked, room, scale)
    if asked != (0, 0, *whole) or shown != asked:
        x, y, width, height = shown
        image = image.crop((x, y, x + width, y + height))
    factor = room.factor(*image.size)
    if scale is not None:
        factor = min(scale, room.factor(*_scaled(image.width, image.height, scale)) * scale)
    if not factor:
        raise Unshowable(f"the {room.tokens} tokens left for images are too few")
    data, mime, size = _written(image, factor, is_lossy, room.most_bytes)
    return Rendering(data, mime, whole, shown, size, _next(shown, whole), is_animated)


def _plain(image: Image) -> Image:
    """Return the first frame in a form that any format can hold: RGB or grey, of 8 bits, perhaps with alpha."""
    if image.mode.startswith(("I", "F")):
        # `convert` would clip values of 16 bits at 255.
        return image.convert("I").point(lambda value: value * (1 / 256)).convert("L")
    has_alpha = "A" in image.getbands() or "transparency" in image.info
    return image.convert("RGBA" if has_alpha else "L" if image.mode in ("1", "L") else "RGB")


def _upright(image: Image) -> Image:
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # damaged metadata
        return image


def _within(region: Box | None, whole: tuple[int, int]) -> Box:
    """Return the part of a region that is within the image."""
    if region is None:
        return 0, 0, *whole
    x, y = region[:2]
    width, height = min(region[2], whole[0] - x), min(region[3], whole[1] - y)
    if min(width, height) <= 0:
        raise OutsideImage(*whole)
    return x, y, width, height


def _chosen(asked: Box, room: ImageRoom, scale: float | None) -> Box:
    """Return the region itself, or its first tile if scaled down as a whole it would be unreadable."""
    x, y, width, height = asked
    short, long = sorted((width, height))
    factor = room.factor(width, height)
    if scale is not None and scale <= factor:
        return asked
    if factor >= _READABLE or long < _EXTREME * short:
        return asked

    def tile(length: int) -> tuple[int, int]:
        return (short, length) if height > width else (length, short)

    # As long as possible at the factor that the short side needs anyway.
    most = min(long, max(ceil(_TILE * short), _SHORTEST_TILE))
    wanted = min(1.0, room.longest / short)
    while most > short // 2 and room.factor(*tile(most)) < wanted:
        most = most * 7 // 8
    # Tiles of equal length, so that the last one isn't a sliver.
    length = ceil(long / ceil(long / max(most, 1)))
    return x, y, *tile(length)


def _next(shown: Box, whole: tuple[int, int]) -> Box | None:
    """Return the region below one as wide as the image, or beside one as high."""
    x, y, width, height = shown
    if width == whole[0] and y + height < whole[1]:
        return x, y + height, width, min(height, whole[1] - y - height)
    if height == whole[1] and x + width < whole[0]:
        return x + width, y, min(width, whole[0] - x - width), height
    return None


def _written(
    image: Image, factor: float, is_lossy: bool, most_bytes: int
) -> tuple[bytes, str, tuple[int, int]]:
    """Return the file, as JPEG if it was one or PNG takes too many bytes, and even smaller if that does, too."""
    from PIL import Image as Images

    for _ in range(_TRIES):
        size = _scaled(image.width, image.height, factor)
        scaled = (
            image if size == image.size else image.resize(size, Images.Resampling.LANCZOS, reducing_gap=2.0)
        )
        for kind in ("JPEG",) if is_lossy else ("PNG", "JPEG"):
            out = BytesIO()
            if kind == "PNG":
                scaled.save(out, "PNG", compress_level=6)
            else:
                _opaque(scaled).save(out, "JPEG", quality=88)
            if ceil(len(out.getbuffer()) / 3) * 4 <= most_bytes:
                return out.getvalue(), f"image/{kind.lower()}", size
        factor *= 0.75
    raise Unshowable("it takes too many bytes at any size")


def _opaque(image: Image) -> Image:
    """Return the image on white: JPEG has no alpha."""
    if image.mode != "RGBA":
        return image
    from PIL import Image as Images

    page = Images.new("RGB", image.size, "white")
    page.paste(image, mask=image.getchannel("A"))
    return page


def _scaled(width: int, height: int, factor: float) -> tuple[int, int]:
    return max(1, round(width * factor)), max(1, round(height * factor))
