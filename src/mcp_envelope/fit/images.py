"""What an image costs a model, and how it stays out of the text's budget.

Strategy: models pay for pixels, not for base64. Width and height are read from the first bytes of the file,
without decoding it, and turned into tokens by the formulas of the large vendors. Images have a budget of their
own, in number and in tokens. Those within it are set aside before a result is fitted: the block stays, with a
short mark in place of its data, and the data is put back into the finished lane. An image that is over the
budget, or of unknown size, counts as the text of its base64, like any other block.
"""

from __future__ import annotations

import os
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from ..jsontext.document import Buffer, Node, TooDeep

COSTS: Final = ("largest", "claude", "gpt", "gemini", "bytes")
# Larger ones than this are accepted by no vendor's interface, so they are stored instead.
MOST_BYTES: Final = 16 << 20
# In a JPEG, the size comes after previews and colour profiles.
_HEAD: Final = 256 << 10
_SMALLEST: Final = 512


class ImageBudget(msgspec.Struct, frozen=True):
    """How many images a result may show, and how many tokens they may cost in all, by which formula."""

    count: int = 4
    tokens: int = 8000
    cost: str = "largest"


def set_aside(blocks: Sequence[Buffer], budget: ImageBudget) -> tuple[tuple[Buffer, ...], dict[bytes, bytes]]:
    """Return the blocks with a mark in place of the data of each image within the budget, and the data by mark."""
    shown, data = list(blocks), dict[bytes, bytes]()
    left = budget.tokens
    for index, block in enumerate(blocks):
        if len(data) >= budget.count or budget.cost == "bytes":
            break
        split = _split(block)
        if split is None or (size := dimensions(split[1])) is None:
            continue
        left -= image_tokens(*size, budget.cost)
        if left < 0:
            break
        # Random, so that no text can contain it on purpose.
        mark = b'"%b"' % os.urandom(6).hex().encode()
        shown[index], data[mark] = b"%b%b%b" % (split[0], mark, split[2]), split[1]
    return tuple(shown), data


def put_back(lane: bytes, data: Mapping[bytes, bytes]) -> bytes:
    for mark, image in data.items():
        lane = lane.replace(mark, image, 1)
    return lane


class _Image(msgspec.Struct, tag_field="type", tag="image"):
    data: msgspec.Raw


def _split(block: Buffer) -> tuple[bytes, bytes, bytes] | None:
    """Return what stands before the data of an image block, the data as a JSON string, and what follows it."""
    if not _SMALLEST < len(block) <= MOST_BYTES:
        return None
    try:
        data = bytes(msgspec.json.decode(block, type=_Image).data)
        members = Node(block).members()
    except (msgspec.MsgspecError, TooDeep, RecursionError, UnicodeError):
        return None
    keys = [member.key for member in members]
    if data[:1] != b'"' or keys.count("data") != 1:
        return None
    at = keys.index("data")
    written = [
        b"%b:%b" % (member.raw_key, b"" if member.key == "data" else member.value) for member in members
    ]
    return (
        b"{%b" % b",".join(written[: at + 1]),
        data,
        b"%b}" % b"".join(b",%b" % each for each in written[at + 1 :]),
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
    text = bytes(data[1 : _HEAD + 1]).rstrip(b'"').replace(b"\\/", b"/")
    try:
        head = b64decode(text[: len(text) // 4 * 4], validate=True)
    except Base64Error:
        return None
    size = None
    if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR":
        size = _big(head[16:20]), _big(head[20:24])
    elif head[:6] in (b"GIF87a", b"GIF89a"):
        size = _little(head[6:8]), _little(head[8:10])
    elif head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        size = _webp(head)
    elif head.startswith(b"\xff\xd8"):
        size = _jpeg(head)
    return size if size is not None and min(size) > 0 else None


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
